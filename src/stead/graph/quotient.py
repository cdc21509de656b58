"""The graph of groups: what a graph looks like when every group of its operators is one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.graph.arrays import distinct_pairs, graph_from_arrays
from stead.graph.components import connected
from stead.graph.graph import FORWARD, Graph
from stead.graph.paths import common_path
from stead.graph.weights import resident


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """A graph of groups and where the tensors of the fine graph went."""

    graph: Graph
    tensor: NDArray[
        np.int64
    ]  # [fine tensor]; the coarse tensor that carries it, -1 if it stays inside a group


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """Tensors that leave their group, bundled: same producer group, same groups of readers."""

    of_tensor: NDArray[np.int64]  # [fine tensor]; -1 for tensors inside a group
    count: int


def bundled(graph: Graph, group: NDArray[np.int32], apart: NDArray[np.bool_] | None = None) -> Bundles:
    """Which tensors travel together, numbered by producer group; tensors in `apart` travel alone.

    Outputs of the graph and tensors without any reader stay, outputs of the graph apart from other tensors.
    """
    producer = group[graph.tensor_producer].astype(np.int64)
    tensor, reader = _outside_readers(graph, group)
    label = _row_labels(tensor, reader, graph.tensor_count)
    if apart is not None:
        label = np.where(apart, graph.tensor_count + np.arange(graph.tensor_count), label)
    leaves = np.bincount(tensor, minlength=graph.tensor_count) > 0
    stays = leaves | (graph.tensor_kept > 0) | (np.diff(graph.reader_first) == 0)
    alive = np.flatnonzero(stays)
    owner = 2 * producer[alive] + graph.tensor_kept[alive]
    order = np.lexsort((label[alive], owner))  # stable: tensors of a bundle stay in order
    owner, label, alive = owner[order], label[alive][order], alive[order]
    begins = np.ones(len(alive), dtype=bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (label[1:] != label[:-1])
    number = np.cumsum(begins) - 1
    heads = alive[begins]
    rank = np.empty(len(heads), dtype=np.int64)
    rank[np.lexsort((heads, producer[heads]))] = np.arange(len(heads))
    of_tensor = np.full(graph.tensor_count, -1, dtype=np.int64)
    of_tensor[alive] = rank[number]
    return Bundles(of_tensor, len(heads))


def quotient(
    graph: Graph,
    group: NDArray[np.int32],  # [operator]; numbered so that tensors lead from lower to higher groups
    count: int,
    bundles: Bundles,
    units: NDArray[np.int32]
    | None = None,  # [operator]; operators that must share a device; None: as the graph says
) -> Quotient:
    """The graph in which every group is one operator and every bundle one tensor."""
    members = Members(graph, group, count)
    names = members.names()
    colocation, colocation_names = _colocation(graph, group, count, names, units)
    coarse = graph_from_arrays(
        graph.name,
        operator_names=names,
        kinds=members.leading(graph.kinds),
        modules=members.modules(),
        dtypes=members.leading(graph.dtypes),
        phases=members.lowest(graph.phases),
        flops=np.bincount(group, weights=graph.flops, minlength=count),
        moved_bytes=np.bincount(group, weights=graph.moved_bytes, minlength=count),
        twins=_twins(graph, group, members),
        colocation=colocation,
        colocation_names=colocation_names,
        **tensors_between(graph, group, bundles),
        **_weights(graph, group),
        folded=_folded(graph, group, names, members),
        kernels=None if graph.kernels is None else graph.kernels.grouped(group, count),
    )
    return Quotient(coarse, bundles.of_tensor)


class Members:
    """The operators of each group, in order."""

    def __init__(self, graph: Graph, group: NDArray[np.int32], count: int) -> None:
        self.graph = graph
        self.operators = np.argsort(group, kind="stable")
        self.first = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(group, minlength=count), out=self.first[1:])
        self.heads = self.operators[self.first[:-1]]
        self.sizes = np.diff(self.first)
        self._listed: list[int] = self.operators.tolist()
        self._begins: list[int] = self.first.tolist()
        # Most arithmetic, then most traffic, then first.
        order = np.lexsort((-graph.moved_bytes, -graph.flops, group))
        self.leaders = order[self.first[:-1]].tolist()

    def of(self, g: int) -> list[int]:
        """The operators of one group."""
        return self._listed[self._begins[g] : self._begins[g + 1]]

    def several(self) -> list[int]:
        """Groups of more than one operator."""
        groups: list[int] = np.flatnonzero(self.sizes > 1).tolist()
        return groups

    def names(self) -> list[str]:
        """The only operator's name, or the first one's with the number of the others; all different."""
        names = [self.graph.operator_names[v] for v in self.heads.tolist()]
        taken = {names[g] for g in np.flatnonzero(self.sizes == 1).tolist()}
        for g in self.several():
            name = f"{names[g]}+{self.sizes[g] - 1}"
            while name in taken:
                name += "+"
            taken.add(name)
            names[g] = name
        return names

    def leading(self, texts: Sequence[str]) -> list[str]:
        """What holds for the operator with the most work of each group."""
        return [texts[v] for v in self.leaders]

    def modules(self) -> list[str]:
        """The module that holds all of each group."""
        modules = [self.graph.modules[v] for v in self.heads.tolist()]
        for g in self.several():
            modules[g] = common_path(list(dict.fromkeys(self.graph.modules[v] for v in self.of(g))))
        return modules

    def lowest(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The lowest number in each group."""
        if not len(self.heads):
            return numbers[:0]
        return np.asarray(np.minimum.reduceat(numbers[self.operators], self.first[:-1]))


def _outside_readers(graph: Graph, group: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(tensor, group) of every other group that reads a tensor."""
    tensor = graph.tensor_of_read
    reader = group[graph.readers]
    outside = reader != group[graph.tensor_producer[tensor]]
    return distinct_pairs(tensor[outside], reader[outside])


def _row_labels(owner: NDArray[np.int64], item: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Equal labels for owners of equal items; pairs are sorted."""
    first = np.searchsorted(owner, np.arange(count + 1)) * 4
    data = item.astype(np.int32).tobytes()
    seen: dict[bytes, int] = {}
    return np.array(
        [seen.setdefault(data[a:b], len(seen)) for a, b in pairwise(first.tolist())], dtype=np.int64
    )


def tensors_between(graph: Graph, group: NDArray[np.int32], bundles: Bundles) -> dict[str, Any]:
    """Tensors of the coarse graph, as arguments for `graph_from_arrays`."""
    alive = np.flatnonzero(bundles.of_tensor >= 0)
    bundle = bundles.of_tensor[alive]
    sizes = np.zeros(bundles.count, dtype=np.int64)
    np.add.at(sizes, bundle, graph.tensor_bytes[alive])
    head = np.empty(bundles.count, dtype=np.int64)
    head[bundle[::-1]] = alive[::-1]  # the first tensor of each
    carried = np.bincount(bundle, minlength=bundles.count).tolist()
    heads = head.tolist()
    single = list(zip(heads, carried, strict=True))
    tensor, reader = _outside_readers(graph, group)
    return {
        "tensor_producer": group[graph.tensor_producer[head]],
        "tensor_bytes": sizes,
        "tensor_kept": graph.tensor_kept[head],
        "tensor_names": [
            graph.tensor_names[t] if n == 1 else f"{graph.tensor_names[t]}+{n - 1}" for t, n in single
        ],
        "tensor_shapes": [graph.tensor_shapes[t] if n == 1 else () for t, n in single],
        "tensor_dtypes": [graph.tensor_dtypes[t] if n == 1 else "" for t, n in single],
        "reads": (bundles.of_tensor[tensor], reader),
    }


def _weights(graph: Graph, group: NDArray[np.int32]) -> dict[str, Any]:
    """Weights with the same groups of users become one."""
    count = len(graph.weight_bytes)
    weight, user = resident(graph, group)
    label = _row_labels(weight, user, count)
    united = int(label.max()) + 1 if count else 0
    sizes = np.zeros(united, dtype=np.int64)
    np.add.at(sizes, label, graph.weight_bytes)
    head = np.empty(united, dtype=np.int64)
    head[label[::-1]] = np.arange(count)[::-1]
    single = zip(head.tolist(), np.bincount(label, minlength=united).tolist(), strict=True)
    return {
        "weight_names": [
            graph.weight_names[w] if n == 1 else f"{graph.weight_names[w]}+{n - 1}" for w, n in single
        ],
        "weight_bytes": sizes,
        "weight_uses": (label[weight], user),
    }


def _twins(graph: Graph, group: NDArray[np.int32], members: Members) -> NDArray[np.int64]:
    """The group that holds most forward operators of a group's members; -1 where some member is a forward one."""
    twins = np.full(len(members.heads), -1, dtype=np.int64)
    late = np.flatnonzero((graph.twins >= 0) & (members.lowest(graph.phases)[group] != FORWARD))
    if not late.size:
        return twins
    own, other = group[late].astype(np.int64), group[graph.twins[late]].astype(np.int64)
    own, other = own[own != other], other[own != other]
    width = len(members.heads)
    pair, votes = np.unique(own * width + other, return_counts=True)
    order = np.lexsort((-pair, votes))  # the last entry of a group is its most frequent, lowest twin
    twins[pair[order] // width] = pair[order] % width
    return twins


def _colocation(
    graph: Graph, group: NDArray[np.int32], count: int, names: Sequence[str], units: NDArray[np.int32] | None
) -> tuple[NDArray[np.int64], list[str]]:
    """Groups that must share a device since members of theirs must."""
    bound = np.flatnonzero(graph.colocation >= 0)
    bonds = (graph.colocation[bound], group[bound]) if units is None else (units, group)
    unit, member = distinct_pairs(*bonds)
    same = unit[1:] == unit[:-1]
    lowest = connected(count, member[:-1][same], member[1:][same])
    roots = np.flatnonzero(np.bincount(lowest, minlength=count) > 1)
    label = np.full(count, -1, dtype=np.int64)
    label[roots] = np.arange(len(roots))
    colocation = label[lowest]
    known: dict[int, str] = {}  # names that the fine graph gives
    for v in bound.tolist():
        known.setdefault(int(colocation[group[v]]), graph.colocation_names[graph.colocation[v]])
    return colocation, [known.get(c, f"with {names[root]}") for c, root in enumerate(roots.tolist())]


def _folded(
    graph: Graph, group: NDArray[np.int32], names: Sequence[str], members: Members
) -> dict[str, str]:
    """Names of the source and of the fine graph that now lead to a group."""
    folded = {source: names[group[graph.index(name)]] for source, name in graph.folded.items()}
    for g in members.several():
        for v in members.of(g):
            folded[graph.operator_names[v]] = names[g]
    return folded
