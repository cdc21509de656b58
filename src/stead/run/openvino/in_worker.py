"""OpenVINO inside of a worker process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import RunFailed
from stead.graph import Graph
from stead.readers.common.op_costs import Shape
from stead.readers.openvino.reader import OpenVino
from stead.run.executor import Worker
from stead.run.openvino.hetero import (
    Honoured,
    affinities,
    compile_hetero,
    plugins_for,
    properties,
    read_back,
    set_affinities,
)
from stead.run.openvino.ir import cut_ir, openvino, read_ir, submodels
from stead.run.segment_worker import Run
from stead.run.segments import Segment
from stead.run.timing import RealTime

_PAUSE_SECONDS = 0.05


class OpenVinoRuntime:
    """Compiles sub-models of one file for this worker; with `plugins` a placement on several plugins in one process."""

    def __init__(
        self,
        worker: Worker,
        path: str,
        shapes: Mapping[str, Shape],
        options: Mapping[str, Any],
        plugins: tuple[Worker, ...] = (),
    ) -> None:
        self.worker, self.path, self.shapes, self.options = worker, Path(path), shapes, options
        self.core = openvino().Core()
        self.workers = plugins or (worker,)
        self.is_hetero = bool(plugins)
        names = plugins_for(self.core, self.workers)
        self.told = {n: properties(self.core, n, w) for n, w in zip(names, self.workers, strict=True)}
        self.plugins = names
        self.parts: dict[int, Any] = {}
        self.honoured: Honoured | None = None
        self.found: dict[str, Any] = {}
        self._whole: Any = None

    def facts(self) -> dict[str, Any]:
        """What was read back from OpenVINO."""
        return {
            "version": openvino().__version__,
            "plugins": self.plugins,
            "honoured": self.honoured,
            **self.found,
        }

    def prepare(self, segments: Sequence[Segment]) -> None:
        """Cut the model into all sub-models; only this worker's are compiled."""
        if not self.is_hetero:
            made = submodels(read_ir(self.path, self.shapes), segments)
            self.parts = {id(segment): model for segment, model in zip(segments, made, strict=True)}

    def load(
        self, segment: Segment, slots: Sequence[tuple[list[NDArray[Any]], list[NDArray[Any]]]], extra: Any
    ) -> list[Run]:
        """Compile a sub-model and bind it."""
        if self.is_hetero:
            compiled = self._hetero(np.asarray(extra["devices"], dtype=np.uint8), slots[0][0])
        else:
            compiled = self._compiled(self.parts.pop(id(segment)), self.plugins[0])
        return [self._bound(compiled, takes, gives) for takes, gives in slots]

    def _bound(self, compiled: Any, takes: list[NDArray[Any]], gives: list[NDArray[Any]]) -> Run:
        tensor = openvino().Tensor
        request = compiled.create_infer_request()
        for i, array in enumerate(takes):
            request.set_input_tensor(i, tensor(array, shared_memory=True))
        for i, array in enumerate(gives):
            request.set_output_tensor(i, tensor(array, shared_memory=True))
        run: Run = request.infer
        return run

    def _compiled(self, model: Any, plugin: str, **more: Any) -> Any:
        compiled = self.core.compile_model(model, plugin, {**self.told[plugin], **more})
        asked = self.told[plugin]["INFERENCE_PRECISION_HINT"]
        precision = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        if precision != asked:
            raise RunFailed(f"{plugin} computes in {precision} and not in {asked} as asked")
        threads = compiled.get_property("INFERENCE_NUM_THREADS") if plugin.endswith("CPU") else 0
        self.found = {"precision": precision, "threads": threads}
        return compiled

    def _hetero(self, devices: NDArray[np.uint8], inputs: list[NDArray[Any]]) -> Any:
        """A placement as one compiled model on several plugins, read back."""
        model, graph = read_ir(self.path, self.shapes), self._graph()
        planned = affinities(model, cut_ir(model, graph), graph, self.plugins, devices)
        set_affinities(model, planned)
        compiled = compile_hetero(self.core, model, self.told)
        request = compiled.create_infer_request()
        request.infer(inputs)
        self.honoured = read_back(compiled, request.get_profiling_info(), planned, self.told)
        return compiled

    def _graph(self) -> Graph:
        return OpenVino(**self.options).read(self.path).graph

    def whole(self, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Results of the whole model in fp32."""
        if self._whole is None:
            told = {**self.told[self.plugins[0]], "INFERENCE_PRECISION_HINT": "f32"}
            self._whole = self.core.compile_model(read_ir(self.path, self.shapes), self.plugins[0], told)
        request = self._whole.create_infer_request()
        request.infer(inputs)
        return [request.get_output_tensor(i).data.copy() for i in range(len(self._whole.outputs))]

    def profile(self, inputs: list[NDArray[Any]], repeats: int, device: int) -> NDArray[np.float64]:
        """Seconds of operators in whole runs.

        OpenVINO tells averages over all runs of a compiled model: the n-th run is n times this average less n - 1
        times the one before, to the microsecond or two that averages are rounded to.
        """
        plugin = self.plugins[device if self.is_hetero else 0]
        model, graph = read_ir(self.path, self.shapes), self._graph()
        cut = cut_ir(model, graph)
        operator = dict(zip((node.name for node in cut.nodes), cut.operator, strict=True))
        compiled = self._compiled(model, plugin, PERF_COUNT=True)
        place = attributed(compiled.get_runtime_model(), operator)
        request = compiled.create_infer_request()
        told = np.zeros((repeats + 1, len(graph)))  # averages after each run; the first is to warm up
        for number in range(repeats + 1):
            with RealTime():
                request.infer(inputs)
            for one in request.get_profiling_info():
                v = place.get(one.node_name, -1)
                if v >= 0:
                    told[number, v] += one.real_time.total_seconds()
            time.sleep(_PAUSE_SECONDS)
        return runs_of(told)[1:]


    def units(self) -> list[list[int]]:
        """Operators that run as one kernel, of every kernel."""
        model, graph = read_ir(self.path, self.shapes), self._graph()
        cut = cut_ir(model, graph)
        operator = dict(zip((node.name for node in cut.nodes), cut.operator, strict=True))
        compiled = self._compiled(model, self.plugins[0])
        return [sorted(set(layers_of(op, operator))) for op in compiled.get_runtime_model().get_ordered_ops()]


def layers_of(runtime_op: Any, operator: Mapping[str, int]) -> list[int]:
    """The operators that a runtime node stands for."""
    info = runtime_op.get_rt_info()
    names = str(info["originalLayersNames"].astype(str)).split(",") if "originalLayersNames" in info else []
    return [operator[name] for name in names if name in operator]


def runs_of(averages: NDArray[np.float64]) -> NDArray[np.float64]:
    """Single values from averages over the first 1, 2, 3, ... of them, along the first axis.

    >>> runs_of(np.array([[4.0], [3.0], [4.0]])).ravel().tolist()
    [4.0, 2.0, 6.0]
    """
    sums = averages * np.arange(1, len(averages) + 1)[:, None]
    single: NDArray[np.float64] = np.maximum(np.diff(sums, axis=0, prepend=0.0), 0.0)
    return single


def attributed(runtime_model: Any, operator: Mapping[str, int]) -> dict[str, int]:
    """The operator that each runtime node counts for: the first of the layers it stands for.

    What stands for none, a change of layout, counts for who reads it, or who wrote it if nobody does.
    """
    ops = list(runtime_model.get_ordered_ops())
    place: dict[str, int] = {}
    for op in ops:
        known = layers_of(op, operator)
        if known:
            place[op.get_friendly_name()] = known[0]
    for op in reversed(ops):
        name = op.get_friendly_name()
        readers = [one.get_node() for output in op.outputs() for one in output.get_target_inputs()]
        writers = [one.get_source_output().get_node() for one in op.inputs()]
        for other in (*readers, *writers):
            if name not in place and other.get_friendly_name() in place:
                place[name] = place[other.get_friendly_name()]
    return place
