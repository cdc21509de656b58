"""OpenVINO as an executor: sub-models in pinned processes, or one request on several plugins (HETERO)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.graph import Graph
from stead.graph.arrays import with_colocation
from stead.problem import Placement
from stead.readers.openvino.reader import OpenVino
from stead.run.cores import check_workers
from stead.run.executor import Worker
from stead.run.openvino.hetero import Honoured
from stead.run.openvino.ir import cut_ir, input_shapes, openvino, read_ir
from stead.run.segment_executor import SegmentExecutor
from stead.run.segment_pool import SegmentPool
from stead.run.segment_program import TensorLayout
from stead.run.segments import Segment

Mode = Literal["processes", "hetero"]
_COMPILE_SECONDS = 120.0
_AT = "stead.run.openvino.in_worker:OpenVinoRuntime"


class OpenVinoExecutor(SegmentExecutor):
    """Runs placements of an OpenVINO model (.xml; .onnx is converted first).

    `processes`: every worker is a process that is pinned to its cores and runs its part of the model as sub-models.
    `hetero`: one process on all cores; every worker is a plugin, and one request runs submodels one after another.
    `options` are those of the reader (fold, shapes, batch), so that placements fit the graph by name.
    """

    name = "openvino"

    def __init__(
        self,
        model: str | Path,
        workers: tuple[Worker, ...],
        *,
        mode: Mode = "processes",
        options: Mapping[str, Any] | None = None,
        oversubscribe: bool = False,
    ) -> None:
        if mode not in ("processes", "hetero"):
            raise BadInput(f"OpenVINO runs as 'processes' or 'hetero', not as {mode!r}")
        check_workers(workers, oversubscribe=oversubscribe or mode == "hetero")
        self.mode, self._folder = mode, None
        path = Path(model)
        if path.suffix.lower() == ".onnx":
            self._folder = tempfile.TemporaryDirectory(prefix="stead-")
            path = _converted(path, Path(self._folder.name))
        try:
            graph = OpenVino(**(options or {})).read(path).graph
            shapes = input_shapes(graph)
            read = read_ir(path, shapes)
            cut = cut_ir(read, graph)
            spec = {"path": str(path), "shapes": shapes, "options": dict(options or {})}
            if mode == "hetero":
                cores = tuple(sorted({core for worker in workers for core in worker.cores}))
                pool = SegmentPool((Worker("hetero", cores),), _AT, [{**spec, "plugins": workers}])
            else:
                pool = SegmentPool(workers, _AT, [spec] * len(workers))
        except BaseException:
            self._clean()
            raise
        super().__init__(graph, workers, cut, _layouts(read), pool)

    @property
    def honoured(self) -> Honoured | None:
        """What HETERO made of the last placement, with its number of submodels; None in other modes."""
        found: Honoured | None = self.facts[0].get("honoured")
        return found

    def as_kernels(self) -> Graph:
        """The graph with what OpenVINO runs as one kernel kept together: a cut there would cost more than it says.

        A profile counts a kernel for the first of its operators; apart, each of them would be a kernel of its own.
        What runs nothing stays with what it reads.
        """
        (kernels,) = self._pool.ask("units", {}, seconds=_COMPILE_SECONDS, only=0)
        graph = self.graph
        unit = np.full(len(graph), -1, dtype=np.int64)
        for number, members in enumerate(kernels):
            unit[[v for v in members if unit[v] < 0]] = number
        for u, v in sorted(graph.edges.tolist(), key=lambda edge: edge[1]):
            if unit[v] < 0:
                unit[v] = unit[u]
        known, groups = np.unique(unit, return_inverse=True)
        names = [f"kernel {number}" for number in known.tolist() if number >= 0]
        return with_colocation(graph, groups - int(known[0] < 0), names)

    def segments(self, placement: Placement) -> tuple[Segment, ...]:
        """The sub-models of a placement; HETERO makes its own of the whole."""
        if self.mode == "hetero":
            whole = np.zeros(len(self.graph), dtype=np.uint8)
            (one,) = self._cut.segments(whole, range(len(self.graph)))
            return (Segment(0, one.operators, one.nodes, self._cut.inputs, self._cut.results),)
        return super().segments(placement)

    def stages(self, placement: Placement) -> tuple[Segment, ...]:
        """The stages of a convex placement; HETERO has none, since its submodels run one after another."""
        if self.mode == "hetero":
            raise BadInput("HETERO runs submodels one after another and is no pipeline; use mode='processes'")
        return super().stages(placement)

    def close(self) -> None:
        """Give back workers, shared memory and converted files."""
        super().close()
        self._clean()

    def _clean(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _process_of(self, device: int) -> int:
        return 0 if self.mode == "hetero" else device

    def _extra(self, devices: NDArray[np.uint8]) -> dict[str, Any]:
        return {"devices": devices.tolist()} if self.mode == "hetero" else {}


def _converted(path: Path, folder: Path) -> Path:
    """An ONNX file as OpenVINO's own, in full precision."""
    ov = openvino()
    made = folder / f"{path.stem}.xml"
    try:
        ov.save_model(ov.Core().read_model(path), made, compress_to_fp16=False)
    except RuntimeError as error:
        raise BadInput(f"{path}: OpenVINO cannot read it: {' '.join(str(error).split())[:300]}") from None
    return made


def _layouts(model: Any) -> dict[str, TensorLayout]:
    """Types and shapes of all tensors whose sizes are known."""
    found: dict[str, TensorLayout] = {}
    for op in model.get_ordered_ops():
        for output in op.outputs():
            if output.get_partial_shape().is_static and op.get_type_name() not in ("Constant", "Result"):
                dtype = np.dtype(output.get_element_type().to_dtype()).str
                found[f"{op.get_friendly_name()}:{output.get_index()}"] = TensorLayout(
                    dtype, tuple(output.get_shape())
                )
    return found
