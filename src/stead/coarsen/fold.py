"""Views folded into the operators whose results they look at: operators that move no data need no device."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.errors import BadInput
from stead.graph import Graph
from stead.graph.arrays import graph_from_arrays
from stead.graph.components import connected

# Reshapes and copies that may move data (reshape, contiguous, clone, ONNX Transpose and Slice) are no views.
VIEW_KINDS = frozenset({
    "_unsafe_view", "alias", "as_strided", "chunk", "detach", "diagonal", "empty", "expand", "expand_as", "getitem",
    "movedim", "narrow", "new_empty", "permute", "select", "slice", "split", "split_with_sizes", "squeeze", "t",
    "transpose", "unbind", "unsqueeze", "view", "view_as",
    "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze",
})  # fmt: skip
ALLOCATIONS = frozenset({"empty", "new_empty"})


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A graph without views, and the operator that stands for each operator of the graph before."""

    graph: Graph
    operator: NDArray[np.int32]  # [operator before]; index into `graph`

    def lift(self, devices: ArrayLike) -> NDArray[np.uint8]:  # [operator before] or [row, operator before]
        """Devices of all operators: a view is where the operator is that stands for it."""
        given = np.asarray(devices)
        if given.dtype.kind not in "iu" or given.ndim not in (1, 2) or given.shape[-1] != len(self.graph):
            raise BadInput(f"{len(self.graph)} devices are needed, one per operator; got shape {given.shape}")
        return given[..., self.operator].astype(np.uint8)


def fold(graph: Graph, *, kinds: Collection[str] = VIEW_KINDS, free: ArrayLike | None = None) -> Folded:
    """The graph without its views; `free` marks further operators that take no time anywhere.

    A view becomes a part of the operator it reads from. Readers of a view as large as its base read the base; a
    narrower view (a slice, one output of a split) stays a tensor of its own size, so that a transfer moves the bytes
    that are needed, and the base gives up these bytes if nobody reads it as a whole. Views of weights make their
    readers users of the weight, memory without contents belongs to its only reader. A view that reads from several
    operators stays.

    >>> from stead.graph import GraphBuilder
    >>> build = GraphBuilder()
    >>> table = build.operator("table", flops=1e6)
    >>> rows = build.operator("row", kind="aten.select.int", reads=[build.tensor(table, size_bytes=400)])
    >>> use = build.operator("use", reads=[build.tensor(rows, size_bytes=40)])
    >>> folded = fold(build.build())
    >>> folded.graph.operator_names, folded.graph.tensor_bytes.tolist(), dict(folded.graph.folded)
    (('table', 'use'), [360, 40], {'row': 'table'})
    """
    folding = _Folding(graph, kinds, free)
    folding.into_producers()
    folding.into_readers()
    return folding.result()


def is_view(kind: str, kinds: Collection[str] = VIEW_KINDS) -> bool:
    """Whether operators of a kind move no data, whatever framework spelled it.

    >>> [is_view(kind) for kind in ("aten.view.default", "aten::select", "view", "aten.clone.default", "MatMul")]
    [True, True, True, False, False]
    """
    return kind in kinds or _plain(kind) in kinds


def _plain(kind: str) -> str:
    """An operator's name without namespace and overload."""
    parts = kind.replace("::", ".").split(".")
    if parts[0] in ("aten", "prims") and len(parts) > 1:
        return parts[1]
    return parts[-1]


class _Folding:
    """What stands for what: `into[v]` for operators, `base[t]` for tensors, themselves at first."""

    def __init__(self, graph: Graph, kinds: Collection[str], free: ArrayLike | None) -> None:
        self.graph = graph
        by_kind = {kind: is_view(kind, kinds) for kind in set(graph.kinds)}
        self.view = [by_kind[kind] for kind in graph.kinds]
        self.free = _mask(free, len(graph))
        self.into = list(range(len(graph)))
        self.base = list(range(graph.tensor_count))
        self.bytes: list[int] = graph.tensor_bytes.tolist()
        self.kept: list[int] = graph.tensor_kept.tolist()
        self.given_up = [0] * graph.tensor_count  # bytes of a tensor that narrower views hold
        self.dissolved = np.zeros(graph.tensor_count, dtype=bool)  # every reader has these by itself
        self.extra_uses: list[tuple[int, int]] = []  # (weight, user)

    def into_producers(self) -> None:
        """Fold operators that read from one operator only."""
        graph = self.graph
        producer, reads = graph.tensor_producer.tolist(), graph.read_tensors.tolist()
        first, tensor_first = graph.read_first.tolist(), graph.tensor_first.tolist()
        for v in range(len(graph)):
            if not (self.view[v] or self.free[v]) or first[v] == first[v + 1]:
                continue
            inputs = reads[first[v] : first[v + 1]]
            if len({self.into[producer[t]] for t in inputs}) == 1:
                self.into[v] = self.into[producer[inputs[0]]]
                if self.view[v]:
                    source = max(inputs, key=lambda t: self.bytes[t])
                    self._look_at(self.base[source], range(tensor_first[v], tensor_first[v + 1]))

    def _look_at(self, base: int, outputs: range) -> None:
        """Views of a tensor: the same tensor, or a narrower one."""
        for t in outputs:
            if 0 < self.bytes[base] <= self.bytes[t]:
                self.base[t] = base
                self.kept[base] |= self.kept[t]
            else:
                self.given_up[base] += self.bytes[t]

    def into_readers(self) -> None:
        """Fold views of weights and empty memory, which have no producer."""
        graph = self.graph
        without_inputs = np.flatnonzero(np.diff(graph.read_first) == 0)
        roots = [v for v in without_inputs.tolist() if self.view[v]]
        if not roots:
            return
        used: dict[int, list[int]] = {v: [] for v in roots}
        weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_user_first))
        for w, v in zip(weight.tolist(), graph.weight_users.tolist(), strict=True):
            if self.into[v] in used:
                used[self.into[v]].append(w)
        readers, kept = self._readers_of(set(roots))
        before = np.array(self.into)
        for v in roots:
            behind = sorted(readers[v])
            if v in kept or not behind:
                continue
            if used[v]:
                self.into[v] = behind[0]
                self.extra_uses += [(w, reader) for w in used[v] for reader in behind]
            elif len(behind) == 1 and _plain(graph.kinds[v]) in ALLOCATIONS:
                self.into[v] = behind[0]
        after = np.array(self.into)[before]  # views of such views move along
        self.into = after.tolist()
        self.dissolved = (after != before)[graph.tensor_producer]

    def _readers_of(self, roots: set[int]) -> tuple[dict[int, set[int]], set[int]]:
        """Operators that read from each root, views looked through, and the roots of outputs of the graph."""
        graph = self.graph
        found: dict[int, set[int]] = {v: set() for v in roots}
        tensor = np.repeat(np.arange(graph.tensor_count), np.diff(graph.reader_first))
        root = np.array(self.into)[graph.tensor_producer]
        wanted = np.isin(root[tensor], list(roots))
        for t, reader in zip(tensor[wanted].tolist(), graph.readers[wanted].tolist(), strict=True):
            if self.into[reader] != root[t]:
                found[int(root[t])].add(self.into[reader])
        kept = {int(root[t]) for t in np.flatnonzero(graph.tensor_kept).tolist()}
        return found, kept

    def result(self) -> Folded:
        """The graph of what is left."""
        graph = self.graph
        into = np.array(self.into, dtype=np.int64)
        stays = into == np.arange(len(graph))
        number = np.cumsum(stays) - 1
        operator = number[into].astype(np.int32)
        names = [graph.operator_names[v] for v in np.flatnonzero(stays)]
        colocation = self._colocation(into)
        gone = ~stays & np.array(self.view, dtype=bool)
        moved = np.where(gone, 0.0, graph.moved_bytes)
        left = np.flatnonzero(stays)
        folded_graph = graph_from_arrays(
            graph.name,
            operator_names=names,
            kinds=[graph.kinds[v] for v in left],
            modules=[graph.modules[v] for v in left],
            dtypes=[graph.dtypes[v] for v in left],
            phases=graph.phases[left],
            flops=np.bincount(operator, weights=graph.flops, minlength=len(left)),
            moved_bytes=np.bincount(operator, weights=moved, minlength=len(left)),
            twins=np.where(graph.twins >= 0, operator[graph.twins], -1)[left],
            colocation=colocation[left],
            colocation_names=graph.colocation_names,
            **self._tensors(operator),
            **self._weights(operator),
            folded=self._names(operator, names, stays),
            kernels=None if graph.kernels is None else graph.kernels.grouped(operator, len(left), gone),
        )
        return Folded(folded_graph, operator)

    def _tensors(self, operator: NDArray[np.int32]) -> dict[str, Any]:
        graph = self.graph
        base = np.array(self.base, dtype=np.int64)
        tensor = np.repeat(np.arange(graph.tensor_count), np.diff(graph.reader_first))
        tensor, reader = base[tensor], operator[graph.readers]
        producer = operator[graph.tensor_producer]
        read = (reader != producer[tensor]) & ~self.dissolved[tensor]
        tensor, reader = tensor[read], reader[read]
        is_read = np.bincount(tensor, minlength=graph.tensor_count) > 0
        kept = np.array(self.kept, dtype=np.uint8)
        given_up = np.array(self.given_up, dtype=np.int64)
        shrinks = ~is_read & (kept == 0) & (given_up > 0)
        sizes = np.where(shrinks, np.maximum(graph.tensor_bytes - given_up, 0), graph.tensor_bytes)
        had_reader = np.diff(graph.reader_first) > 0
        # Nothing is left of tensors that only views read, and of those inside one operator.
        inside = ~is_read & (kept == 0) & had_reader & ~(shrinks & (sizes > 0))
        gone = (base != np.arange(graph.tensor_count)) | inside | self.dissolved
        alive = np.flatnonzero(~gone)
        alive = alive[np.argsort(producer[alive], kind="stable")]
        number = np.full(graph.tensor_count, -1, dtype=np.int64)
        number[alive] = np.arange(len(alive))
        return {
            "tensor_producer": producer[alive],
            "tensor_bytes": sizes[alive],
            "tensor_kept": kept[alive],
            "tensor_names": [graph.tensor_names[t] for t in alive],
            "tensor_shapes": [graph.tensor_shapes[t] for t in alive],
            "tensor_dtypes": [graph.tensor_dtypes[t] for t in alive],
            "reads": (number[tensor], reader),
        }

    def _weights(self, operator: NDArray[np.int32]) -> dict[str, Any]:
        graph = self.graph
        weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_user_first))
        extra = np.array(self.extra_uses, dtype=np.int64).reshape(-1, 2)
        return {
            "weight_names": graph.weight_names,
            "weight_bytes": graph.weight_bytes,
            "weight_uses": (
                np.concatenate([weight, extra[:, 0]]),
                np.concatenate([operator[graph.weight_users], operator[extra[:, 1]]]),
            ),
        }

    def _colocation(self, into: NDArray[np.int64]) -> NDArray[np.int64]:
        """Groups of the operators left: a view hands its group on, two groups that meet become one."""
        graph = self.graph
        bound = np.flatnonzero(graph.colocation >= 0)
        if not bound.size:
            return graph.colocation.astype(np.int64)
        count = len(graph.colocation_names)
        label = connected(count + len(graph), graph.colocation[bound].astype(np.int64), count + into[bound])
        label = label[count:]
        return np.where(label < count, label, -1)

    def _names(
        self, operator: NDArray[np.int32], names: list[str], stays: NDArray[np.bool_]
    ) -> dict[str, str]:
        graph = self.graph
        folded = {source: names[operator[graph.index(name)]] for source, name in graph.folded.items()}
        for v in np.flatnonzero(~stays).tolist():
            folded[graph.operator_names[v]] = names[operator[v]]
        return folded


def _mask(given: ArrayLike | None, count: int) -> list[bool]:
    if given is None:
        return [False] * count
    array = np.asarray(given)
    if array.dtype != np.bool_ or array.shape != (count,):
        raise BadInput(
            f"free must be {count} truth values, one per operator; got {array.dtype} of shape {array.shape}"
        )
    marks: list[bool] = array.tolist()
    return marks
