"""ONNX Runtime as an executor: sub-models of an ONNX file in pinned processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stead.errors import BadInput, did_you_mean
from stead.run.cores import check_workers
from stead.run.executor import Worker
from stead.run.ort.cut_onnx import cut_onnx, package, read_onnx
from stead.run.ort.in_worker import LEVELS
from stead.run.segment_executor import SegmentExecutor
from stead.run.segment_pool import SegmentPool

_AT = "stead.run.ort.in_worker:OrtRuntime"


class OrtExecutor(SegmentExecutor):
    """Runs placements of an ONNX file: each worker is a process that is pinned to its cores.

    `level` is how much the runtime optimises each sub-model: none, basic, extended or all. `options` are those of the
    reader (fold, shapes, batch), so that placements fit the graph by name.
    """

    name = "ort"

    def __init__(
        self,
        model: str | Path,
        workers: tuple[Worker, ...],
        *,
        level: str = "all",
        options: Mapping[str, Any] | None = None,
        oversubscribe: bool = False,
    ) -> None:
        if level not in LEVELS:
            raise BadInput(f"no level '{level}'{did_you_mean(level, LEVELS)}; known: {', '.join(LEVELS)}")
        check_workers(workers, oversubscribe=oversubscribe)
        package("onnxruntime")
        graph, file = read_onnx(Path(model), options or {})
        cut = cut_onnx(file.model(), graph)
        spec = {"path": str(model), "options": dict(options or {}), "level": level}
        pool = SegmentPool(workers, _AT, [spec] * len(workers))
        super().__init__(graph, workers, cut, file.layouts, pool)
