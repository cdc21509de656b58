"""Lower bounds: values that no placement can beat, each with what it assumes.

Notation    v operator or unit, d device, x[v,d] = 1 if v is placed on d
    p[v,d]  seconds of v on d           w[v]    bytes of weights that only v needs (a tied weight is shared out)
    M[d]    usable bytes of d           T       the objective
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import Infeasible
from stead.graph import PHASES
from stead.problem import Latency, Placeto, Problem, Throughput
from stead.sim.path_bounds import heaviest_path, runs_in_memory

ROUNDS = 300  # of the ascent in `_area`; its value is valid after any number
SAFE = 1 - 1e-12  # sums of floating-point numbers may come out this much too large


@dataclass(frozen=True, slots=True)
class Bound:
    """A proved lower bound on the objective of every feasible placement."""

    name: str
    seconds: float
    assumes: str


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that holds for the objective, largest first; Infeasible if memory provably cannot suffice."""
    if isinstance(problem.objective, Latency) and isinstance(problem.objective.policy, Placeto):
        return ()
    table = _Units.of(problem)
    table.check_memory(problem)
    found = [
        _path(problem), _runs(problem), _path_in_memory(problem), _work(problem, table), _largest(problem, table),
    ]  # fmt: skip
    return tuple(sorted((bound for bound in found if bound), key=lambda bound: -bound.seconds))


def best_bound(problem: Problem) -> Bound:
    """The largest of `lower_bounds`; zero with an empty name if none applies."""
    found = lower_bounds(problem)
    return found[0] if found else Bound("", 0.0, "nothing is proved for this objective")


@dataclass(frozen=True, slots=True, eq=False)
class _Units:
    """What matters of the units that must share a device."""

    seconds: NDArray[np.float64]  # [unit, device] per sample; inf where it may not run
    weight_bytes: NDArray[np.float64]  # [unit]
    capacity_bytes: NDArray[np.float64]  # [device]

    @staticmethod
    def of(problem: Problem) -> _Units:
        graph, count = problem.graph, problem.unit_count
        # Whole picoseconds, as the simulator counts, so that a bound can equal a value exactly.
        ticks = np.where(problem.allowed, np.rint(problem.costs.seconds * 1e12), np.inf)
        objective = problem.objective
        if isinstance(objective, Throughput) and objective.microbatches is not None:
            ticks[graph.phases == PHASES.index("update")] /= objective.microbatches  # they run once per step
        seconds = np.zeros((count, len(problem.cluster)))
        np.add.at(seconds, problem.units, ticks)
        seconds /= 1e12
        users = np.diff(graph.weight_user_first)
        shares = np.repeat(graph.weight_bytes / np.maximum(users, 1), users)
        weights = np.zeros(count)
        np.add.at(weights, problem.units[graph.weight_users], shares)
        capacity = np.array([device.usable_bytes for device in problem.cluster], dtype=np.float64)
        return _Units(seconds, weights, capacity)

    def check_memory(self, problem: Problem) -> None:
        """Raise Infeasible if the weights alone exceed all memory that may hold them."""
        total, room = float(self.weight_bytes.sum()), float(self.capacity_bytes.sum())
        if total > room:
            short = math.ceil(total - room)
            raise Infeasible(
                f"weights need {total / 2**30:.2f} GiB, all devices together have {room / 2**30:.2f} GiB",
                short_bytes={problem.cluster.names[int(self.capacity_bytes.argmax())]: short},
                proved=True,
            )


def _path(problem: Problem) -> Bound | None:
    """The longest chain of operators, each step on its best device and each change of device paid for."""
    objective = problem.objective
    if not isinstance(objective, Latency):
        if objective.microbatches is None:
            return None
        longest, share = _longest_path(problem, host=False), objective.microbatches
        return Bound(
            "critical path", longest / share, "one micro-batch passes every operator of a path in turn"
        )
    host = objective.execution == "offload"
    return Bound(
        "critical path",
        _longest_path(problem, host=host),
        "operators of a path run in turn, each on its best device, and a change of device takes a transfer",
    )


def _runs(problem: Problem) -> Bound | None:
    """A path that must change device because no memory holds all of it."""
    objective = problem.objective
    if not isinstance(objective, Latency):
        return None
    total = int(problem.graph.weight_bytes.sum())
    if all(total <= device.usable_bytes for device in problem.cluster):
        return None  # nothing forces a change: no better than the critical path
    return Bound(
        "path cut by memory",
        runs_in_memory(problem, host=objective.execution == "offload"),
        "operators of a path run in turn, a device holds no more weights than fit, a change takes a transfer",
    )


def _path_in_memory(problem: Problem) -> Bound | None:
    """Operators that run in turn and whose weights cannot all be on the quickest device."""
    if not isinstance(problem.objective, Latency):
        return None
    if problem.objective.execution == "sequential":
        in_turn = np.ones(len(problem.graph), dtype=bool)
        assumes = "one operator at a time; weights must fit, operators may be cut into pieces"
    else:
        least = np.where(problem.allowed, problem.costs.seconds, np.inf).min(axis=1, initial=np.inf)
        in_turn = np.zeros(len(problem.graph), dtype=bool)
        in_turn[heaviest_path(problem, least)] = True
        assumes = "operators of one path run in turn; weights must fit, operators may be cut into pieces"
    graph = problem.graph
    users = np.diff(graph.weight_user_first)
    weights = np.zeros(len(graph))
    np.add.at(weights, graph.weight_users, np.repeat(graph.weight_bytes / np.maximum(users, 1), users))
    seconds = np.where(problem.allowed, np.where(in_turn[:, None], problem.costs.seconds, 0.0), np.inf)
    capacity = np.array([device.usable_bytes for device in problem.cluster], dtype=np.float64)
    return Bound("path in memory", _knapsack(seconds, weights, capacity), assumes)


def _knapsack(
    seconds: NDArray[np.float64], weights: NDArray[np.float64], capacity: NDArray[np.float64]
) -> float:
    """Least sum of seconds[v, d(v)] when weights must fit, bounded from below by its dual.

    For every z >= 0:  sum_v min_d (seconds[v,d] + z[d] w[v]) - sum_d z[d] M[d]. Concave in z; ascended one device at
    a time by golden sections, and valid at every point.
    """
    scarce = np.flatnonzero(capacity < weights.sum())
    heavy = weights > 0
    finite = seconds[heavy][np.isfinite(seconds[heavy])]
    spread = float(finite.max(initial=0.0)) if finite.size else 0.0
    lightest = float(weights[heavy].min(initial=np.inf))
    z = np.zeros(len(capacity))

    def value(prices: NDArray[np.float64]) -> float:
        return float(
            (seconds + np.outer(weights, prices)).min(axis=1).sum() - prices[scarce] @ capacity[scarce]
        )

    if not len(seconds):
        return 0.0
    best = value(z)
    if scarce.size and spread > 0:
        top = 4 * spread / lightest  # beyond this price nobody stays who can leave
        for _ in range(3 if scarce.size > 1 else 1):
            for d in scarce:
                best = max(best, _golden(value, z, int(d), top))
    return best * SAFE


def _golden(
    value: Callable[[NDArray[np.float64]], float], z: NDArray[np.float64], d: int, top: float
) -> float:
    """Raise a concave function along one coordinate of z, in place; its best value."""
    ratio, low, high = (math.sqrt(5) - 1) / 2, 0.0, top
    best, best_at = value(z), float(z[d])
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        values = []
        for at in (left, right):
            z[d] = at
            values.append(value(z))
            if values[-1] > best:
                best, best_at = values[-1], at
        low, high = (left, high) if values[0] < values[1] else (low, right)
    z[d] = best_at
    return best


def _longest_path(problem: Problem, *, host: bool) -> float:
    earliest = _native.earliest_finish(problem.native, host)
    return float(earliest.max()) / 1e12 if len(earliest) else 0.0


def _work(problem: Problem, units: _Units) -> Bound | None:
    """All work, spread over the devices as well as memory lets it be."""
    objective = problem.objective
    if isinstance(objective, Latency) and objective.execution == "sequential":
        total = math.fsum(units.seconds.min(axis=1)) if len(units.seconds) else 0.0
        return Bound("total work", total * SAFE, "one operator at a time, each on its best device")
    busy = np.ones(len(problem.cluster), dtype=bool)
    if isinstance(objective, Latency) and objective.execution == "offload":
        busy = np.array([not device.is_host for device in problem.cluster])  # hosts have unlimited cores
    seconds = _area(units, busy)
    return Bound(
        "area", seconds, "a device does one thing at a time; work may be cut into pieces, weights must fit"
    )


def _largest(problem: Problem, units: _Units) -> Bound | None:
    """The unit that takes longest even on its best device."""
    objective = problem.objective
    if isinstance(objective, Latency) and objective.execution != "dataflow":
        return None
    longest = float(units.seconds.min(axis=1).max()) if len(units.seconds) else 0.0
    if isinstance(objective, Throughput) and objective.microbatches is not None:
        longest *= SAFE  # updates are shared out among micro-batches, which is not exact
    return Bound("largest unit", longest, "operators that must share a device share its time")


def _area(units: _Units, busy: NDArray[np.bool_]) -> float:
    """The linear relaxation of balancing work under memory limits, bounded from below by its dual.

    min T  s.t.  sum_v p[v,d] x[v,d] <= T (d busy),  sum_v w[v] x[v,d] <= M[d],  sum_d x[v,d] = 1.
    For every y >= 0 with sum y = 1 and z >= 0:  T >= sum_v min_d (y[d] p[v,d] + z[d] w[v]) - sum_d z[d] M[d].
    Any (y, z) gives a valid bound; projected subgradient steps make it a good one.
    """
    if not len(units.seconds) or not busy.any():
        return 0.0
    usable = np.isfinite(units.seconds)
    seconds = np.where(usable, units.seconds, 0.0)
    weights, capacity = units.weight_bytes, units.capacity_bytes
    total_weight = float(weights.sum())
    scarce = capacity < total_weight
    rates = np.where(busy, 1.0 / np.maximum(np.where(usable, seconds, 0.0).sum(axis=0), 1e-30), 0.0)
    y = rates / rates.sum()
    z = np.zeros(len(capacity))
    best, rows = 0.0, np.arange(len(seconds))
    for round_number in range(ROUNDS):
        price = np.where(usable, y * seconds + np.outer(weights, z), np.inf)
        choice = price.argmin(axis=1)
        value = float(price[rows, choice].sum() - z @ np.where(scarce, capacity, 0.0))
        best = max(best, value)
        load = np.bincount(choice, weights=seconds[rows, choice], minlength=len(y))
        held = np.bincount(choice, weights=weights, minlength=len(y))
        step = 1.0 / math.sqrt(1.0 + round_number)
        scale = max(float(load.max()), 1e-30)
        y = np.where(busy, y * np.exp(step * load / scale), 0.0)
        y /= y.sum()
        if scarce.any():
            excess = np.where(scarce, held - capacity, 0.0) / total_weight
            z = np.maximum(z + step * max(value, best, scale) / total_weight * excess, 0.0)
    return best * SAFE
