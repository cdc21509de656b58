"""Coarser graphs: neighbours of one module, or of one repeated block, become one operator.

Only operators that follow each other without a gap are joined. Whatever module paths say, such runs never wait for
each other's results, so the graph stays without cycles. What a run keeps to itself is no tensor any more: a coarse
graph does not see the activations that live inside a block. Its operators remain the kernels of the run, so that a run
takes as long as its members; weights, and tensors between runs, stay what they were.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stead.graph import FORWARD, PHASES, Graph
from stead.graph.arrays import distinct_pairs, graph_from_arrays
from stead.graph.components import connected
from stead.graph.kernels import Kernels, kernels_from_lists
from stead.graph.paths import RepeatedBlocks
from stead.graph.quotient import Members, bundled, tensors_between
from stead.graph.unique_names import Names

SEVERAL = "Block"  # kind of operators that stand for several kinds


def by_module(graph: Graph) -> Graph:
    """One operator for every run of operators of one module."""
    return _merged(graph, graph.modules)


def by_block(graph: Graph) -> Graph:
    """One operator for every repeated block, such as `model.layers.7`; the rest by module."""
    blocks = RepeatedBlocks(graph.modules)
    return _merged(graph, [blocks.around(path) or path for path in graph.modules])


def _merged(graph: Graph, paths: Sequence[str]) -> Graph:
    """The graph of runs of operators with the same path and phase; operators without a path stay alone."""
    begins = [
        v == 0 or not path or path != paths[v - 1] or graph.phases[v] != graph.phases[v - 1]
        for v, path in enumerate(paths)
    ]
    group = np.cumsum(begins, dtype=np.int32) - np.int32(1)  # [operator]
    count = int(sum(begins))
    members = Members(graph, group, count)
    names = _names(members, paths)
    kinds = members.leading(graph.kinds)
    for g in members.several():
        if len({graph.kinds[v] for v in members.of(g)}) > 1:
            kinds[g] = SEVERAL
    twins = graph.twins[members.heads]
    colocation, bound = _colocation(graph, group, count)
    return graph_from_arrays(
        graph.name,
        operator_names=names,
        kinds=kinds,
        modules=[paths[v] for v in members.heads.tolist()],
        dtypes=members.leading(graph.dtypes),
        phases=graph.phases[members.heads],
        flops=np.bincount(group, weights=graph.flops, minlength=count),
        moved_bytes=np.bincount(group, weights=graph.moved_bytes, minlength=count),
        twins=np.where(twins >= 0, group[twins], -1),
        colocation=colocation,
        colocation_names=[names[g] for g in bound],
        **tensors_between(graph, group, bundled(graph, group, apart=np.ones(graph.tensor_count, dtype=bool))),
        weight_names=graph.weight_names,
        weight_bytes=graph.weight_bytes,
        weight_uses=(graph.weight_of_use, group[graph.weight_users]),
        folded=_folded(graph, group, names),
        kernels=_kernels(graph, group, count),
    )


def _names(members: Members, paths: Sequence[str]) -> list[str]:
    """The path of a run, with a number where it is not the first of its kind; the own name of a single operator."""
    found = Names()
    names = []
    for v, size in zip(members.heads.tolist(), members.sizes.tolist(), strict=True):
        plain = paths[v] if size > 1 else members.graph.operator_names[v]
        if size > 1 and members.graph.phases[v] != FORWARD:
            plain = f"{plain}.{PHASES[members.graph.phases[v]]}"
        names.append(found.unique(plain))
    return names


def _colocation(graph: Graph, group: NDArray[np.int32], count: int) -> tuple[NDArray[np.int64], list[int]]:
    """The set of runs that each run must share a device with, -1 for none, and the first run of every set."""
    bound = np.flatnonzero(graph.colocation >= 0)
    label, run = distinct_pairs(graph.colocation[bound], group[bound])
    same = label[1:] == label[:-1]
    lowest = connected(count, run[:-1][same], run[1:][same])
    number = np.full(count, -1, dtype=np.int64)
    firsts = np.unique(lowest[run])
    number[firsts] = np.arange(len(firsts))
    return number[lowest], firsts.tolist()


def _folded(graph: Graph, group: NDArray[np.int32], names: Sequence[str]) -> dict[str, str]:
    """The runs that operators of other names, and what these stand for, became part of."""
    found = {
        own: names[g] for own, g in zip(graph.operator_names, group.tolist(), strict=True) if own != names[g]
    }
    found.update((source, names[group[graph.index(name)]]) for source, name in graph.folded.items())
    return found


def _kernels(graph: Graph, group: NDArray[np.int32], count: int) -> Kernels | None:
    """The kernels of every run; None where all operators stay alone and none says more."""
    if graph.kernels is not None:
        return graph.kernels.grouped(group, count)
    if count == len(graph):
        return None
    lists = [graph.kernels_of(v) for v in range(len(graph))]
    fine = kernels_from_lists(lists, graph.flops, graph.moved_bytes)
    return None if fine is None else fine.grouped(group, count)
