"""The problem of placing groups: costs, memory and constraints of operators, summed up by group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import FORWARD, Graph
from stead.graph.quotient import Bundles, Quotient, bundled, quotient
from stead.problem import Problem, Throughput
from stead.problem.ticks import TICKS_PER_SECOND


def coarse_problem(problem: Problem, group: NDArray[np.int32], count: int, *, merge: bool) -> Problem:
    """The problem in which every group is one operator; see `Grouping.coarse`."""
    _refuse_mixed_phases(problem, group)
    bundles = bundled(problem.graph, group)
    if not merge:
        apart = ~_adds_up(problem, bundles)
        bundles = bundled(problem.graph, group, apart)
    coarse = quotient(problem.graph, group, count, bundles, problem.units)
    seconds = _seconds(problem, group, coarse.graph)
    costs = Costs(
        coarse.graph,
        problem.cluster,
        seconds,
        workspace_bytes=_workspace(problem, group, count, bundles),
        sources=_weakest_sources(problem, group, count),
        tensor_seconds=_tensor_seconds(problem, coarse),
        reasons={
            (
                coarse.graph.kinds[g],
                problem.cluster.names[d],
            ): f"part of it may not run on {problem.cluster.names[d]}"
            for g, d in np.argwhere(np.isinf(seconds)).tolist()
        },
    )
    return Problem(coarse.graph, problem.cluster, costs, objective=problem.objective)


def _refuse_mixed_phases(problem: Problem, group: NDArray[np.int32]) -> None:
    """Objectives that tell forward from backward work need groups that do."""
    objective, graph = problem.objective, problem.graph
    if not isinstance(objective, Throughput) or (objective.load != "fwbw" and objective.microbatches is None):
        return
    late = graph.phases != FORWARD
    mixed = np.intersect1d(group[late], group[~late])
    if mixed.size:
        names = [
            graph.operator_names[np.flatnonzero((group == mixed[0]) & part)[0]] for part in (~late, late)
        ]
        raise BadInput(
            f"{objective.describe()} tells forward from backward, but one group holds {names[0]!r} and {names[1]!r}; "
            "take grouping.by_phase()"
        )


def _ticks(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole picoseconds as the simulator rounds them."""
    return np.asarray(np.rint(seconds * TICKS_PER_SECOND))


def _seconds(problem: Problem, group: NDArray[np.int32], coarse: Graph) -> NDArray[np.float64]:
    """Seconds of groups; inf where a member may not run."""
    ticks = _ticks(np.where(problem.allowed, problem.costs.seconds, np.inf))
    columns = [np.bincount(group, weights=column, minlength=len(coarse)) for column in ticks.T]
    seconds = np.stack(columns, axis=1) / TICKS_PER_SECOND if len(coarse) else ticks
    stranded = np.flatnonzero(np.isinf(seconds).all(axis=1))
    if stranded.size:
        raise BadInput(
            f"no device may run all of group {coarse.operator_names[stranded[0]]!r}; "
            "do not group operators without a common device"
        )
    return seconds


def _workspace(
    problem: Problem, group: NDArray[np.int32], count: int, bundles: Bundles
) -> NDArray[np.int64]:  # [group, device]
    """The most that a group needs besides its inputs and outputs when its members run one after another.

    That is the workspace of the running member and the tensors that never leave the group, each from its producer to
    its last reader.
    """
    graph = problem.graph
    if not count:
        return np.zeros((0, len(problem.cluster)), dtype=np.int64)
    order = np.argsort(group, kind="stable")
    place = np.empty(len(graph), dtype=np.int64)
    place[order] = np.arange(len(graph))
    inside = np.flatnonzero(bundles.of_tensor < 0)
    last_reader = graph.readers[graph.reader_first[inside + 1] - 1]  # readers increase
    change = np.zeros(len(graph) + 1, dtype=np.int64)
    np.add.at(change, place[graph.tensor_producer[inside]], graph.tensor_bytes[inside])
    np.add.at(change, place[last_reader] + 1, -graph.tensor_bytes[inside])
    held = np.cumsum(change)[:-1]
    need = problem.costs.workspace_bytes[order] + held[:, None]
    first = np.searchsorted(group[order], np.arange(count))
    return np.asarray(np.maximum.reduceat(need, first, axis=0))


def _weakest_sources(problem: Problem, group: NDArray[np.int32], count: int) -> NDArray[np.uint8]:
    sources = np.full((count, len(problem.cluster)), 255, dtype=np.uint8)
    np.minimum.at(sources, group, problem.costs.sources)
    return sources


def _tensor_seconds(problem: Problem, coarse: Quotient) -> NDArray[np.float64] | None:
    given = problem.costs.tensor_seconds
    if given is None:
        return None
    alive = coarse.tensor >= 0
    ticks = np.bincount(
        coarse.tensor[alive], weights=_ticks(given[alive]), minlength=coarse.graph.tensor_count
    )
    return ticks / TICKS_PER_SECOND


def _adds_up(problem: Problem, bundles: Bundles) -> NDArray[np.bool_]:  # [fine tensor]
    """Whether sending a tensor's bundle takes exactly as long as sending its tensors one by one, on every way.

    It does not where a way has latency, nor where lengths are rounded to whole picoseconds differently.
    """
    graph, routes = problem.graph, problem.routes
    different = ~np.eye(len(problem.cluster), dtype=bool)
    latencies, rates = [routes.latency_seconds[different]], [routes.bytes_per_second[different]]
    if problem.cluster.routing == "host":
        latencies.append(routes.host_latency_seconds.ravel())
        rates.append(routes.host_bytes_per_second.ravel())
    latency = np.concatenate(latencies)
    alone = np.bincount(bundles.of_tensor + 1, minlength=bundles.count + 1)[bundles.of_tensor + 1] == 1
    if (latency[np.isfinite(latency)] > 0).any():
        return np.asarray(alone)
    if problem.costs.tensor_seconds is not None:
        return np.ones(graph.tensor_count, dtype=bool)
    alive = np.flatnonzero(bundles.of_tensor >= 0)
    bundle, sizes = bundles.of_tensor[alive], graph.tensor_bytes[alive].astype(np.float64)
    total = np.bincount(bundle, weights=sizes, minlength=bundles.count)
    exact = np.ones(bundles.count, dtype=bool)
    for rate in sorted(set(np.concatenate(rates).tolist())):
        ticks = np.bincount(
            bundle, weights=np.rint(sizes * (TICKS_PER_SECOND / rate)), minlength=bundles.count
        )
        exact &= ticks == np.rint(total * (TICKS_PER_SECOND / rate))
    adds_up: NDArray[np.bool_] = alone.copy()
    adds_up[alive] |= exact[bundle]
    return adds_up
