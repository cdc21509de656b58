"""A step of m micro-batches as one bigger graph.

Forward and backward operators get a copy `name@i` for each micro-batch, updates stay single, weights are
shared. A tensor that an update reads (a gradient) is summed up over the micro-batches: each copy adds to what
the one before it left. So memory holds the sum, not m gradients, and only the sum travels to an update
elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import BACKWARD, FORWARD, MAX_OPERATORS, PHASES, UPDATE, Graph
from stead.graph.kernels import starts_of
from stead.problem import Latency, Problem, Throughput

Indices = NDArray[Any]


class Copies:
    """Which copy of which operator stands where: forward copies, backward copies as they run, updates."""

    def __init__(self, problem: Problem) -> None:
        objective, graph = problem.objective, problem.graph
        if not isinstance(objective, Throughput) or objective.microbatches is None:
            raise BadInput(f"only throughput with microbatches can be unrolled, not {objective.describe()}")
        self.microbatches, self.schedule = objective.microbatches, objective.schedule
        if self.microbatches * max(len(graph), len(graph.readers)) > MAX_OPERATORS:
            raise BadInput(
                f"{self.microbatches} micro-batches of {len(graph)} operators are too many to simulate; "
                "coarsen the graph or take fewer"
            )
        _refuse_backward_to_forward(graph)
        self.graph = graph
        self.phases = graph.phases
        by_phase = [np.flatnonzero(self.phases == phase) for phase in (FORWARD, BACKWARD, UPDATE)]
        self._place = np.empty(len(graph), dtype=np.int64)  # among the operators of its phase
        for own in by_phase:
            self._place[own] = np.arange(len(own))
        m, (forward, backward, updates) = self.microbatches, by_phase
        self._stride = np.array([len(forward), len(backward), 0])
        self._first = np.array([0, m * len(forward), m * (len(forward) + len(backward))])
        turns = np.arange(m)
        self.origin = np.concatenate([np.tile(forward, m), np.tile(backward, m), updates])
        self.microbatch = np.concatenate(  # -1 for updates
            [
                np.repeat(turns, len(forward)),
                np.repeat(turns[::-1] if self.schedule == "gpipe" else turns, len(backward)),
                np.full(len(updates), -1),
            ]
        )

    def of(self, v: Indices, microbatch: Indices | int) -> Indices:
        """Index of the copy of operator v for a micro-batch; updates have one copy."""
        phase = self.phases[v]
        return np.asarray(
            self._first[phase] + self.turn(v, microbatch) * self._stride[phase] + self._place[v]
        )

    def turn(self, v: Indices, microbatch: Indices | int) -> Indices:
        """When a micro-batch has its turn among the copies of v; twice applied, the micro-batch itself."""
        reverse = (self.phases[v] == BACKWARD) & (self.schedule == "gpipe")
        return np.where(reverse, self.microbatches - 1 - microbatch, microbatch)

    def edges_by_phase(self) -> dict[tuple[int, int], NDArray[np.int32]]:
        """Edges of the original graph among forward and backward operators, by the phases of their ends."""
        edges = self.graph.edges
        first, second = self.phases[edges[:, 0]], self.phases[edges[:, 1]]
        pairs = ((FORWARD, FORWARD), (FORWARD, BACKWARD), (BACKWARD, BACKWARD))
        return {(a, b): edges[(first == a) & (second == b)] for a, b in pairs}


def unroll(problem: Problem, copies: Copies) -> Problem:
    """The step as a problem; built with array operations, since it may have millions of operators."""
    graph, tensor_origin = _graph(copies)
    given = problem.costs.tensor_seconds
    costs = Costs(
        graph,
        problem.cluster,
        np.where(problem.column_allowed, problem.column_seconds, np.inf)[copies.origin],
        workspace_bytes=problem.column_workspace_bytes[copies.origin],
        sources=problem.column_sources[copies.origin],
        tensor_seconds=None if given is None else given[tensor_origin],
        columns=problem.columns,
    )
    return Problem(graph, problem.cluster, costs, objective=Latency())


def _graph(copies: Copies) -> tuple[Graph, Indices]:
    """The graph of a step, and for each of its tensors the one it is a copy of."""
    graph, origin, microbatch = copies.graph, copies.origin, copies.microbatch
    outputs = np.diff(graph.tensor_first)[origin]
    tensor_origin = _ranges(graph.tensor_first[origin], outputs)
    tensor_microbatch = np.repeat(microbatch, outputs)
    reader_first, readers = _readers(copies, tensor_origin, tensor_microbatch)
    weight_user_first, weight_users = _weight_users(copies)
    step = Graph(
        name=f"{graph.name} x {copies.microbatches}",
        operator_names=_names(graph.operator_names, origin, microbatch),
        kinds=_picked(graph.kinds, origin),
        modules=_picked(graph.modules, origin),
        dtypes=_picked(graph.dtypes, origin),
        phases=graph.phases[origin],
        flops=graph.flops[origin],
        moved_bytes=graph.moved_bytes[origin],
        twins=_twins(copies),
        colocation=np.full(len(origin), -1, dtype=np.int32),  # is judged on the placement itself
        colocation_names=(),
        tensor_names=_names(graph.tensor_names, tensor_origin, tensor_microbatch),
        tensor_first=starts_of(outputs),
        tensor_bytes=graph.tensor_bytes[tensor_origin],
        tensor_kept=graph.tensor_kept[tensor_origin],
        reader_first=reader_first,
        readers=readers,
        weight_names=graph.weight_names,
        weight_bytes=graph.weight_bytes.copy(),
        weight_user_first=weight_user_first,
        weight_users=weight_users,
        kernels=None if graph.kernels is None else graph.kernels.picked(origin),
    )
    return step, tensor_origin


def _readers(
    copies: Copies, origin: Indices, microbatch: Indices
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Readers of every copy of a tensor; what an update reads is added up in a chain over the copies."""
    graph = copies.graph
    count = np.diff(graph.reader_first)[origin]
    tensor = np.repeat(np.arange(len(origin)), count)
    reader = graph.readers[_ranges(graph.reader_first[origin], count)]
    producer = graph.tensor_producer[origin]
    turn = copies.turn(producer, microbatch)
    holds_sum = (microbatch < 0) | (turn == copies.microbatches - 1)
    to_update = copies.phases[reader] == UPDATE
    summed = np.zeros(len(origin), dtype=bool)
    summed[tensor[to_update]] = True
    adds = np.flatnonzero(summed & ~holds_sum)
    keep = ~to_update | holds_sum[tensor]
    following = copies.turn(producer[adds], turn[adds] + 1)
    return _csr(
        np.concatenate([tensor[keep], adds]),
        np.concatenate(
            [copies.of(reader[keep], microbatch[tensor[keep]]), copies.of(producer[adds], following)]
        ),
        len(origin),
    )


def _weight_users(copies: Copies) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Every copy of every user of a weight."""
    graph, users = copies.graph, copies.graph.weight_users
    count = np.where(copies.phases[users] == UPDATE, 1, copies.microbatches)
    each = copies.of(np.repeat(users, count), _ranges(np.zeros_like(count), count))
    return _csr(np.repeat(graph.weight_of_use, count), each, len(graph.weight_bytes))


def _twins(copies: Copies) -> NDArray[np.int32]:
    twins: NDArray[np.int32] = copies.graph.twins[copies.origin]
    has_one = twins >= 0
    twins[has_one] = copies.of(twins[has_one], np.maximum(copies.microbatch[has_one], 0))
    return twins


def _refuse_backward_to_forward(graph: Graph) -> None:
    ends = graph.phases[graph.edges]
    wrong = np.flatnonzero(ends[:, 0] > ends[:, 1])
    if wrong.size:
        first, second = graph.edges[wrong[0]].tolist()
        raise BadInput(
            "micro-batches run forward, backward and update in this order, but "
            f"{graph.operator_names[first]!r} ({PHASES[graph.phases[first]]}) feeds "
            f"{graph.operator_names[second]!r} ({PHASES[graph.phases[second]]})"
        )


def _names(names: tuple[str, ...], origin: Indices, microbatch: Indices) -> tuple[str, ...]:
    both = zip(origin.tolist(), microbatch.tolist(), strict=True)
    return tuple(names[v] if i < 0 else f"{names[v]}@{i}" for v, i in both)


def _picked(values: tuple[str, ...], origin: Indices) -> tuple[str, ...]:
    return tuple(values[v] for v in origin.tolist())


def _ranges(first: NDArray[Any], count: NDArray[Any]) -> Indices:
    """first[0], first[0] + 1, ... (count[0] of them), then those of first[1], and so on."""
    begin = np.cumsum(count) - count
    return np.repeat(first - begin, count) + np.arange(int(count.sum()))


def _csr(row: Indices, item: Indices, rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Pairs (row, item) as sorted rows in one flat array, and the places where they begin."""
    return starts_of(np.bincount(row, minlength=rows)), item[np.lexsort((item, row))].astype(np.int32)
