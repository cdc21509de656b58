"""Costs: how long every operator takes on every device, and where each number comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.cluster import Cluster
from stead.cluster.classes import SOLVER_DEVICES
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
    bandwidth. With `columns` [device] equal devices share a column of the tables, which is how those of large clusters
    stay small. Promises that every operator can run somewhere.
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
        columns: ArrayLike | None = None,
    ) -> None:
        self.columns = _columns(len(cluster), columns)  # [device]
        if columns is not None and len(cluster) <= SOLVER_DEVICES:  # few: solvers find a column for each
            seconds = np.asarray(seconds)[:, self.columns]
            workspace_bytes = None if workspace_bytes is None else np.asarray(workspace_bytes)[:, self.columns]
            sources = None if sources is None else np.asarray(sources)[:, self.columns]
            self.columns = _columns(len(cluster), None)
        shape = (len(graph), int(self.columns.max()) + 1)
        self.column_seconds: NDArray[np.float64] = _table(
            "seconds", seconds, shape, np.float64
        )  # [operator, column]; inf where it cannot run
        self.column_workspace_bytes: NDArray[np.int64] = _table(  # [operator, column]
            "workspace bytes",
            np.zeros(shape, np.int64) if workspace_bytes is None else workspace_bytes,
            shape,
            np.int64,
        )
        self.column_sources: NDArray[np.uint8] = _table(  # [operator, column]; values of Source
            "sources", np.zeros(shape, np.uint8) if sources is None else sources, shape, np.uint8
        )
        self.tensor_seconds: NDArray[np.float64] | None = None  # [tensor]
        if tensor_seconds is not None:
            self.tensor_seconds = _table("tensor seconds", tensor_seconds, (graph.tensor_count,), np.float64)
            bad = ~np.isfinite(self.tensor_seconds) | (self.tensor_seconds < 0)
            _refuse(self.tensor_seconds, bad, "seconds", lambda at: f"tensor {graph.tensor_names[at[0]]!r}")

        def where(at: tuple[int, int]) -> str:
            device = cluster.names[int(np.flatnonzero(self.columns == at[1])[0])]
            return f"operator {graph.operator_names[at[0]]!r} on {device}"

        given, scratch = self.column_seconds, self.column_workspace_bytes
        _refuse(given, np.isnan(given) | (given < 0), "seconds", where)
        _refuse(scratch, scratch < 0, "workspace bytes", where)
        stranded = np.flatnonzero(~np.isfinite(given).any(axis=1))
        if stranded.size:
            name, kind = graph.operator_names[stranded[0]], graph.kinds[stranded[0]]
            raise BadInput(
                f"operator {name!r} ({kind or 'no kind'}) can run on none of {', '.join(cluster.names)}; "
                "add a device that supports it, such as cpu"
            )
        self.reasons = dict(reasons or {})  # by kind and device: why it cannot run there

    @cached_property
    def seconds(self) -> NDArray[np.float64]:  # [operator, device]
        """Seconds of every operator on every device; inf where it cannot run."""
        return self._whole(self.column_seconds)

    @cached_property
    def workspace_bytes(self) -> NDArray[np.int64]:  # [operator, device]
        """Scratch bytes of every operator on every device."""
        return self._whole(self.column_workspace_bytes)

    @cached_property
    def sources(self) -> NDArray[np.uint8]:  # [operator, device]
        """Where each number comes from; values of Source."""
        return self._whole(self.column_sources)

    def _whole(self, table: NDArray[Any]) -> NDArray[Any]:
        """A table with a column for each device; one that has them already is not copied."""
        if table.shape[1] == len(self.columns):
            return table
        whole = np.take(table, self.columns, axis=1)
        whole.setflags(write=False)
        return whole

    def seconds_on(self, devices: NDArray[np.integer[Any]] | list[int]) -> NDArray[np.float64]:  # [operator]
        """Seconds of every operator on the device that a placement gives it."""
        chosen: NDArray[np.float64] = self.column_seconds[np.arange(len(devices)), self.columns[devices]]
        return chosen

    def workspace_on(self, devices: NDArray[np.integer[Any]]) -> NDArray[np.int64]:  # [operator]
        """Scratch bytes of every operator on the device that a placement gives it."""
        chosen: NDArray[np.int64] = self.column_workspace_bytes[np.arange(len(devices)), self.columns[devices]]
        return chosen

    def __repr__(self) -> str:
        operators, devices = len(self.column_seconds), len(self.columns)
        return f"Costs({operators} operators on {devices} device{'s' if devices > 1 else ''}, {self.source.label})"

    def reason(self, kind: str, device: str) -> str:
        """Why operators of a kind cannot run on a device, as far as the source of the costs says."""
        return self.reasons.get((kind, device), "no cost is given for it there")

    @property
    def source(self) -> Source:
        """The weakest source among all finite numbers."""
        finite = np.isfinite(self.column_seconds)
        return Source(int(self.column_sources[finite].min())) if finite.any() else Source.ANALYTIC

    @property
    def fingerprint(self) -> str:
        """Changes whenever a number changes."""
        digest = hashlib.sha256()
        tables = (self.column_seconds, self.column_workspace_bytes, self.column_sources, self.tensor_seconds)
        shared = self.column_seconds.shape[1] < len(self.columns)
        for array in (*tables, *((self.columns,) if shared else ())):
            digest.update(b"" if array is None else array.tobytes())
            digest.update(b"\1")
        return digest.hexdigest()[:16]


class CostSource(Protocol):
    """Anything that can price a graph on a cluster."""

    def costs(self, graph: Graph, cluster: Cluster) -> Costs:
        """Seconds of every operator on every device."""


def _columns(devices: int, given: ArrayLike | None) -> NDArray[np.uint16]:  # [device]
    if given is None:
        return np.arange(devices, dtype=np.uint16)
    columns = np.asarray(given, dtype=np.uint16)
    if columns.shape != (devices,) or len(np.unique(columns)) != int(columns.max()) + 1:
        raise BadInput(f"columns must number the columns of {devices} devices without gaps")
    columns.setflags(write=False)
    return columns


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
