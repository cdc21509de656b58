"""Costs: how long every operator takes on every device, and where each number comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.graph import Graph


class Source(IntEnum):
    """Where a number comes from, weakest first; a derived number takes the weakest source of its inputs."""

    ANALYTIC = 0
    IMPORTED = 1
    MEASURED = 2

    @property
    def label(self) -> str:
        """The word printed beside a number."""
        return self.name.lower()


class Costs:
    """Seconds and scratch bytes of every operator on every device; read-only.

    `tensor_seconds`, where a file gives it, is the time each tensor takes over one hop and replaces bytes divided by
    bandwidth. Promises that every operator can run somewhere.
    """

    def __init__(
        self,
        graph: Graph,
        cluster: Cluster,
        seconds: ArrayLike,
        *,
        workspace_bytes: ArrayLike | None = None,
        sources: ArrayLike | None = None,
        tensor_seconds: ArrayLike | None = None,
        reasons: dict[tuple[str, str], str] | None = None,
    ) -> None:
        shape = (len(graph), len(cluster))
        self.seconds = _table(
            "seconds", seconds, shape, np.float64
        )  # [operator, device]; inf where it cannot run
        self.workspace_bytes = _table(  # [operator, device]
            "workspace bytes",
            np.zeros(shape, np.int64) if workspace_bytes is None else workspace_bytes,
            shape,
            np.int64,
        )
        self.sources = _table(  # [operator, device]; values of Source
            "sources", np.zeros(shape, np.uint8) if sources is None else sources, shape, np.uint8
        )
        self.tensor_seconds: NDArray[np.float64] | None = None  # [tensor]
        if tensor_seconds is not None:
            self.tensor_seconds = _table("tensor seconds", tensor_seconds, (graph.tensor_count,), np.float64)
            bad = ~np.isfinite(self.tensor_seconds) | (self.tensor_seconds < 0)
            _refuse(self.tensor_seconds, bad, "seconds", lambda at: f"tensor {graph.tensor_names[at[0]]!r}")
        _refuse(self.seconds, np.isnan(self.seconds) | (self.seconds < 0), "seconds",
                lambda at: f"operator {graph.operator_names[at[0]]!r} on {cluster.names[at[1]]}")  # fmt: skip
        _refuse(self.workspace_bytes, self.workspace_bytes < 0, "workspace bytes",
                lambda at: f"operator {graph.operator_names[at[0]]!r} on {cluster.names[at[1]]}")  # fmt: skip
        stranded = np.flatnonzero(~np.isfinite(self.seconds).any(axis=1))
        if stranded.size:
            name, kind = graph.operator_names[stranded[0]], graph.kinds[stranded[0]]
            raise BadInput(
                f"operator {name!r} ({kind or 'no kind'}) can run on none of {', '.join(cluster.names)}; "
                "add a device that supports it, such as cpu"
            )
        self.reasons = dict(reasons or {})  # by kind and device: why it cannot run there

    def __repr__(self) -> str:
        operators, devices = self.seconds.shape
        return f"Costs({operators} operators on {devices} device{'s' if devices > 1 else ''}, {self.source.label})"

    def reason(self, kind: str, device: str) -> str:
        """Why operators of a kind cannot run on a device, as far as the source of the costs says."""
        return self.reasons.get((kind, device), "no cost is given for it there")

    @property
    def source(self) -> Source:
        """The weakest source among all finite numbers."""
        finite = np.isfinite(self.seconds)
        return Source(int(self.sources[finite].min())) if finite.any() else Source.ANALYTIC

    @property
    def fingerprint(self) -> str:
        """Changes whenever a number changes."""
        digest = hashlib.sha256()
        for array in (self.seconds, self.workspace_bytes, self.sources, self.tensor_seconds):
            digest.update(b"" if array is None else array.tobytes())
            digest.update(b"\1")
        return digest.hexdigest()[:16]


class CostSource(Protocol):
    """Anything that can price a graph on a cluster."""

    def costs(self, graph: Graph, cluster: Cluster) -> Costs:
        """Seconds of every operator on every device."""


def _table(what: str, given: ArrayLike, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    array = np.asarray(given)
    if array.dtype.kind not in "fiu" or array.shape != shape:
        raise BadInput(f"{what} must be numbers of shape {shape}, got {array.dtype} of shape {array.shape}")
    if np.dtype(dtype).kind in "iu" and array.dtype.kind == "f":
        raise BadInput(f"{what} must be whole numbers, got {array.dtype}")
    own = array.astype(dtype, order="C")
    own.setflags(write=False)
    return own


def _refuse(array: NDArray[Any], bad: NDArray[np.bool_], what: str, name: Callable[[Any], str]) -> None:
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise BadInput(f"{what} of {name(at)} must be at least 0, got {array[at]}")
