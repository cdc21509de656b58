"""ONNX Runtime inside of a worker process."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.printing.wording import one_line
from stead.run.executor import Worker
from stead.run.ort.cut_onnx import cut_onnx, package, read_onnx, submodel
from stead.run.segment_worker import Run
from stead.run.segments import Segment
from stead.run.timing import RealTime

_PAUSE_SECONDS = 0.05
_KERNEL = "_kernel_time"
_MOST_STEPS = 4  # from the last node of a fused kernel to its first
_FOLDER = "session.model_external_initializers_file_folder_path"
LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


class OrtRuntime:
    """Opens sessions of sub-models of one file for this worker."""

    def __init__(self, worker: Worker, path: str, options: Mapping[str, Any], level: str) -> None:
        self.ort = package("onnxruntime")
        self.worker, self.level = worker, level
        self.providers = _providers(self.ort, worker)
        self.graph, self.file = read_onnx(Path(path), options)
        self.model: Any = None
        self._whole: Any = None

    def facts(self) -> dict[str, Any]:
        """What was read back from ONNX Runtime."""
        return {
            "version": self.ort.__version__,
            "providers": self.providers,
            "precision": "f32",
            "threads": len(self.worker.cores),
            "level": self.level,
        }

    def prepare(self, segments: Sequence[Segment]) -> None:
        """Load the file once for all sub-models."""
        if self.model is None:
            self.model = self.file.model()

    def load(
        self, segment: Segment, slots: Sequence[tuple[list[NDArray[Any]], list[NDArray[Any]]]], extra: Any
    ) -> list[Run]:
        """A session of a sub-model, bound to its slots."""
        made = submodel(self.model, segment, self.file.codes, self.file.layouts)
        session = self._session(made)
        return [_bound(session, segment, takes, gives) for takes, gives in slots]

    def _session(self, model: Any, *, profile: str = "") -> Any:
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = len(self.worker.cores)
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(self.ort.GraphOptimizationLevel, LEVELS[self.level])
        options.log_severity_level = 3
        options.add_session_config_entry(_FOLDER, str(self.file.path.parent))
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        try:
            return self.ort.InferenceSession(model.SerializeToString(), options, providers=self.providers)
        except Exception as error:
            raise BadInput(f"ONNX Runtime cannot open a sub-model: {one_line(str(error), 300)}") from None

    def whole(self, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Results of the whole model."""
        self.prepare(())
        if self._whole is None:
            self._whole = self._session(self.model)
        found: list[NDArray[Any]] = self._whole.run(None, self._fed(self._whole, inputs))
        return found

    def _fed(self, session: Any, inputs: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        stored = {one.name for one in self.model.graph.initializer}
        named = [info.name for info in self.model.graph.input if info.name not in stored]
        wanted = {one.name for one in session.get_inputs()}
        return {name: array for name, array in zip(named, inputs, strict=True) if name in wanted}

    def profile(self, inputs: list[NDArray[Any]], repeats: int, device: int) -> NDArray[np.float64]:
        """Seconds of operators in whole runs, as the profiler of the runtime tells them."""
        self.prepare(())
        cut = cut_onnx(self.model, self.graph)
        operator = dict(zip((node.name for node in cut.nodes), cut.operator, strict=True))
        maker = {name: node.name for node in self.model.graph.node for name in node.output if name}
        steps = FusedSteps(self.model.graph.node, maker)
        with tempfile.TemporaryDirectory(prefix="stead-") as folder:
            session = self._session(self.model, profile=str(Path(folder, "runs")))
            fed = self._fed(session, inputs)
            session.run(None, fed)
            for _ in range(repeats):
                with RealTime():
                    session.run(None, fed)
                time.sleep(_PAUSE_SECONDS)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        runs = kernel_seconds(events)[-repeats:]
        seconds = np.zeros((repeats, len(self.graph)))
        for repeat, kernels in enumerate(runs):
            nodes = [steps.first(node_of(name, operator, maker), kind) for name, kind, _ in kernels]
            found = [operator.get(node, -1) for node in nodes]
            for i, (*_, taken) in enumerate(kernels):
                # A change of layout counts for the kernel before it, at the beginning for the one after it.
                known = [v for v in (*reversed(found[: i + 1]), *found[i:]) if v >= 0]
                seconds[repeat, known[0] if known else 0] += taken
        return seconds


def _providers(ort: Any, worker: Worker) -> list[str]:
    """The provider of a worker; BadInput where there is none."""
    kind, available = worker.device.partition(":")[0], ort.get_available_providers()
    if worker.dtype != "fp32":
        raise BadInput(
            f"{worker.name}: ONNX Runtime computes as the file says, not in {worker.dtype}; use fp32"
        )
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    from stead.run.ort.assignment import PROVIDERS

    found = [one for one in PROVIDERS.get(kind, ()) if one in available]
    if not found:
        raise BadInput(f"ONNX Runtime has no {kind} here for {worker.name}; it has {', '.join(available)}")
    return found[:1]


def _bound(session: Any, segment: Segment, takes: list[NDArray[Any]], gives: list[NDArray[Any]]) -> Run:
    binding = session.io_binding()
    wanted = {one.name for one in session.get_inputs()}
    for name, array in zip(segment.takes, takes, strict=True):
        if name in wanted:
            binding.bind_cpu_input(name, array)
    for name, array in zip(segment.gives, gives, strict=True):
        binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def run() -> None:
        session.run_with_iobinding(binding)

    return run


class FusedSteps:
    """The way back from the node that a fused kernel is called after to the first of those it stands for."""

    def __init__(self, nodes: Sequence[Any], maker: Mapping[str, str]) -> None:
        self.kind = {node.name: node.op_type for node in nodes}
        self.before = {node.name: [maker[name] for name in node.input if name in maker] for node in nodes}

    def first(self, node: str, kind: str) -> str:
        """The nearest node before this one, or itself, of the kind that the kernel has; itself if there is none."""
        wanted, near = kind.removeprefix("Fused"), [node]
        for _ in range(_MOST_STEPS):
            for one in near:
                if self.kind.get(one) == wanted:
                    return one
            near = [before for one in near for before in self.before.get(one, ())]
        return node


def kernel_seconds(events: Sequence[Mapping[str, Any]]) -> list[list[tuple[str, str, float]]]:
    """(kernel, kind, seconds) of each run, in the order of their begin."""
    spans = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "Session" and event.get("name") == "model_run"
    )
    kernels = sorted(
        (event["ts"], str(event["name"]).removesuffix(_KERNEL), _kind(event), event["dur"] / 1e6)
        for event in events
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_KERNEL)
    )
    return [
        [(name, kind, taken) for ts, name, kind, taken in kernels if begin <= ts <= end]
        for begin, end in spans
    ]


def _kind(event: Mapping[str, Any]) -> str:
    return str(event.get("args", {}).get("op_name", ""))


def node_of(kernel: str, nodes: Collection[str], maker: Mapping[str, str]) -> str:
    """The node that a kernel is called after, or the maker of the tensor that it is called after; empty if neither.

    Fused kernels are called after one of their nodes or results, with something before or behind it.

    >>> node_of("conv_nchwc", {"conv"}, {}), node_of("y_nchwc", {"conv"}, {"y": "conv"})
    ('conv', 'conv')
    >>> node_of("ReorderOutput", {"conv"}, {"y": "conv"})
    ''
    """
    parts = {kernel, *(word for word in kernel.split(" ") if word)}
    parts |= {kernel.rpartition(end)[0] for end in ("_nchwc", "/", "_token_") if end in kernel}
    for part in sorted(parts, key=len, reverse=True):
        if part in nodes:
            return part
        if part in maker:
            return maker[part]
    return ""
