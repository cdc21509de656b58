"""Weights that are trained: what an update writes is sent to everyone who reads the weight in the next step.

A weight is memory, not an edge, so nothing in a graph says that its reader needs what its update wrote. Where both
share a device nothing is to be done. Elsewhere the updated weight has to be sent, once per step and device of its
readers, or every later step works with an old one. That is made visible as a tensor and operators that take no time:

    update of w  -- w.updated -->  Refresh, on the device of a reader of w

So simulators, bounds and solvers charge it as they charge any tensor, and a reader whose colocation group holds the
update gets none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.graph.arrays import graph_from_arrays
from stead.graph.graph import FORWARD, UPDATE, Graph
from stead.graph.unique_names import Names

REFRESH = "Refresh"  # kind of the operators that receive updated weights
UPDATED = ".updated"  # how the names of the tensors end that carry them


def refreshed(graph: Graph) -> Graph:
    """The graph in which updated weights reach their readers; the same graph where they do or nothing is trained.

    A parameter is written by the last update operator that uses it, or by each of several that do not follow each
    other, such as those of the uses of a tied weight. Every colocation group, or operator without one, that uses the
    parameter and holds none of its writers gets one operator of kind `Refresh` that reads all it needs. Names and the
    order of operators stay as they are. A weight `w` of which the graph has a tensor `w.updated` is taken care of
    already.

    >>> from stead.graph import GraphBuilder
    >>> build = GraphBuilder()
    >>> read = build.operator("read")
    >>> update = build.operator("update", phase="update", after=[read])
    >>> build.weight("w", size_bytes=8, users=[read, update])
    >>> graph = build.build()
    >>> graph.operator_names, graph.tensor_names
    (('read', 'update', 'read.refresh'), ('^read', 'w.updated'))
    """
    if UPDATE not in graph.phases:
        return graph
    stale = _stale(graph)
    return _with_refreshes(graph, stale) if stale.weight.size else graph


@dataclass(frozen=True, slots=True, eq=False)
class _Stale:
    """Uses of weights that would go on with an old one."""

    weight: NDArray[np.int64]  # [use]
    user: NDArray[np.int32]  # [use]
    unit: NDArray[np.int64]  # [operator]; its colocation group, or a number of its own
    writer: NDArray[np.int64]  # [weight]; the operator that hands it on, -1 where it is not trained


def _stale(graph: Graph) -> _Stale:
    groups, count = len(graph.colocation_names), len(graph)
    unit = np.where(graph.colocation >= 0, graph.colocation, groups + np.arange(count)).astype(np.int64)
    sent = {name for name in graph.tensor_names if name.endswith(UPDATED)}
    known = np.array([f"{name}{UPDATED}" in sent for name in graph.weight_names], dtype=bool)
    trainable = graph.is_parameter & (graph.weight_bytes > 0) & ~known
    weight, user = graph.weight_of_use, graph.weight_users
    updates = trainable[weight] & (graph.phases[user] == UPDATE)
    written, by = _writers(graph, weight[updates], user[updates], unit)
    writer = np.full(len(trainable), -1, dtype=np.int64)
    np.maximum.at(writer, written, by)
    width = groups + count
    is_fresh = np.isin(weight * width + unit[user], written * width + unit[by])
    stale = (writer[weight] >= 0) & ~is_fresh
    return _Stale(weight[stale], user[stale], unit, writer)


def _writers(
    graph: Graph, weight: NDArray[np.int64], user: NDArray[np.int32], unit: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(weight, operator) of updates that no other update of the same weight follows, given all updates by weight."""
    ends = np.flatnonzero(np.diff(weight, append=-1))  # users of a weight rise, so its last update is here
    first = np.concatenate([[0], ends[:-1] + 1]) if ends.size else ends
    scattered = [
        (a, b)
        for a, b in zip(first.tolist(), (ends + 1).tolist(), strict=True)
        if (unit[user[a:b]] != unit[user[a]]).any()
    ]
    kept = np.zeros(len(weight), dtype=bool)
    kept[ends] = True
    for a, b in scattered:
        earlier = _before(graph, user[a:b].tolist())
        kept[a:b] = [v not in earlier for v in user[a:b].tolist()]
    return weight[kept], user[kept]


def _before(graph: Graph, operators: list[int]) -> set[int]:
    """The update operators that some of the given operators wait for."""
    found: set[int] = set()
    waiting = list(operators)
    while waiting:
        v = waiting.pop()
        tensors = graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]]
        for u in graph.tensor_producer[tensors].tolist():
            if u not in found and graph.phases[u] == UPDATE:
                found.add(u)
                waiting.append(u)
    return found


def _with_refreshes(graph: Graph, stale: _Stale) -> Graph:
    """One operator per unit of stale uses, right behind the last update that it waits for."""
    count = len(graph)
    units, number = np.unique(stale.unit[stale.user], return_inverse=True)  # number: [use]; which refresh it is for
    more = len(units)
    reader = np.full(more, count, dtype=np.int64)
    np.minimum.at(reader, number, stale.user)
    behind = np.zeros(more, dtype=np.int64)
    np.maximum.at(behind, number, stale.writer[stale.weight])
    place = np.concatenate([np.arange(count), behind])
    order = np.lexsort((np.concatenate([np.full(count, -1), reader]), place))
    rank = np.empty(count + more, dtype=np.int64)
    rank[order] = np.arange(count + more)

    def longer(own: NDArray[Any], added: Any) -> NDArray[Any]:
        return np.concatenate([own, np.broadcast_to(added, more)])[order]

    def texts(own: tuple[str, ...], added: list[str]) -> list[str]:
        both = [*own, *added]
        return [both[v] for v in order.tolist()]

    readers = reader.tolist()
    twin = np.where(graph.phases[reader] == FORWARD, reader, graph.twins[reader])
    twins = longer(graph.twins, twin)
    group, group_names = _groups(graph, units, readers)
    colocation = np.concatenate([graph.colocation, group])
    colocation[reader] = group
    return graph_from_arrays(
        graph.name,
        operator_names=texts(graph.operator_names, _free([f"{graph.operator_names[v]}.refresh" for v in readers],
                                                        graph.operator_names)),
        kinds=texts(graph.kinds, [REFRESH] * more),
        modules=texts(graph.modules, [graph.modules[v] for v in readers]),
        dtypes=texts(graph.dtypes, [graph.dtypes[v] for v in readers]),
        phases=longer(graph.phases, UPDATE),
        flops=longer(graph.flops, 0.0),
        moved_bytes=longer(graph.moved_bytes, 0.0),
        twins=np.where(twins >= 0, rank[twins], -1),
        colocation=colocation[order],
        colocation_names=group_names,
        **_tensors(graph, stale, rank, count + number),
        weight_names=graph.weight_names,
        weight_bytes=graph.weight_bytes,
        weight_uses=(graph.weight_of_use, rank[graph.weight_users]),
        folded=graph.folded,
        kernels=None if graph.kernels is None else graph.kernels.longer(more).picked(order),
    )  # fmt: skip


def _groups(
    graph: Graph, units: NDArray[np.int64], readers: list[int]
) -> tuple[NDArray[np.int64], list[str]]:
    """The colocation group of every refresh, and the names of all groups; readers that were alone get new ones."""
    known = len(graph.colocation_names)
    alone = units >= known
    group = np.where(alone, known + np.cumsum(alone) - 1, units)
    names = [graph.operator_names[v] for v, new in zip(readers, alone.tolist(), strict=True) if new]
    return group, [*graph.colocation_names, *_free(names, graph.colocation_names)]


def _tensors(
    graph: Graph, stale: _Stale, rank: NDArray[np.int64], refresh: NDArray[np.int64]
) -> dict[str, Any]:
    """The tensors of a graph and one for every stale weight; `refresh` is the operator that is for each stale use."""
    weights, new = np.unique(stale.weight, return_inverse=True)
    more = len(weights)
    producer = rank[np.concatenate([graph.tensor_producer, stale.writer[weights]])]
    names = [*graph.tensor_names, *_free([f"{graph.weight_names[w]}{UPDATED}" for w in weights.tolist()],
                                         graph.tensor_names)]  # fmt: skip
    size = np.concatenate([graph.tensor_bytes, graph.weight_bytes[weights]])
    # Behind a producer's results come those that only say that it is done, as a builder has it.
    control = [not given and name.startswith("^") for given, name in zip(size.tolist(), names, strict=True)]
    order = np.lexsort((control, producer))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    listed = order.tolist()
    shapes, dtypes = [*graph.tensor_shapes, *[()] * more], [*graph.tensor_dtypes, *[""] * more]
    return {
        "tensor_producer": producer[order],
        "tensor_bytes": size[order],
        "tensor_kept": np.concatenate([graph.tensor_kept, np.zeros(more, dtype=np.uint8)])[order],
        "tensor_names": [names[t] for t in listed],
        "tensor_shapes": [shapes[t] for t in listed],
        "tensor_dtypes": [dtypes[t] for t in listed],
        "reads": (
            place[np.concatenate([graph.tensor_of_read, graph.tensor_count + new])],
            rank[np.concatenate([graph.readers, refresh])],
        ),
    }


def _free(names: list[str], taken: tuple[str, ...]) -> list[str]:
    """The names, with a number where somebody else has them."""
    return list(map(Names(taken).unique, names))
