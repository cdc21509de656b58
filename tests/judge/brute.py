"""The judge: every placement in every order, scored by the simulator alone.

A run is told by the sequence of operators on every device and of transfers on every channel; each begins as soon as it
can. So the judge lists, for every placement, all combinations of such sequences that do not wait for each other in a
circle, each as a `ProgramOrder` with transfers. Nothing here knows how solvers search or prove.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, Infeasible
from stead.problem import Latency, Placement, Problem, ProgramOrder, Throughput
from stead.problem.in_ticks import Tables
from stead.sim import simulate, simulate_many
from stead.sim.offload_run import pieces
from stead.solvers.whole_blocks import BLOCKS, EXPERT_GROUPS, experts_together, whole_blocks

WHOLE = {BLOCKS: whole_blocks, EXPERT_GROUPS: experts_together}  # what must share a device, by the name of a scope


class TooMany(Exception):
    """There are more runs than the judge may look at."""


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """What is possible: the least seconds of every placement that fits, inf where none does."""

    problem: Problem
    rows: NDArray[np.uint8]  # [placement, operator]; all that constraints allow
    by_policy: NDArray[np.float64]  # [placement]; as the policy orders it
    in_any_order: NDArray[np.float64]  # [placement]; in the best order that a placement may bring
    run_count: int

    @property
    def optimum(self) -> float:
        """The least that any plan reaches; inf if there is none."""
        return float(self.in_any_order.min(initial=math.inf))

    def best_among(self, scope: str) -> float | None:
        """The least among the placements that a scope speaks of; None for a scope that the judge does not know."""
        for units in WHOLE:
            if scope == units or scope.endswith(f" of {units}"):
                return self.of(units).best_among(scope.removesuffix(units).removesuffix(" of "))
        if scope == "":
            return self.optimum
        if scope == "placements without an order of their own":
            return float(self.by_policy.min(initial=math.inf))
        if " on up to " in scope:
            return self._with_replicas(int(scope.rsplit(" on up to ", 1)[1].split()[0]))
        within = _within(self.problem, scope)
        if within is None:
            return None
        chosen = np.array([within(row.tolist()) for row in self.rows], dtype=bool)
        return float(self.in_any_order[chosen].min(initial=math.inf))

    def of(self, units: str) -> Truth:
        """The truth about placements that keep such units whole."""
        try:
            problem = WHOLE[units](self.problem)
        except Infeasible:  # pins and forbids leave nothing for them
            return Truth(self.problem, self.rows[:0], self.by_policy[:0], self.in_any_order[:0], 0)
        leader = problem.unit_firsts[problem.units]
        whole = (self.rows == self.rows[:, leader]).all(axis=1)
        return Truth(problem, self.rows[whole], self.by_policy[whole], self.in_any_order[whole], self.run_count)

    def best_run(self) -> Placement:
        """A placement that reaches the optimum, with the order that it takes for that."""
        number = int(np.argmin(self.in_any_order))
        row = self.rows[number]
        if self.by_policy[number] == self.optimum:
            return Placement(self.problem, row)
        owner, orders = every_run(self.problem, row[None], self.run_count)
        rows, order = np.repeat(row[None], len(owner), axis=0), ProgramOrder(orders, sends=True)
        scores = simulate_many(self.problem, rows, policy=order, threads=1)
        best = int(np.argmin(np.where(scores.feasible, scores.seconds, np.inf)))
        return Placement(self.problem, row, ProgramOrder(orders[best], sends=True))

    def _with_replicas(self, most: int) -> float:
        """The least of contiguous stages some of which several equal devices share."""
        contiguous = _within(self.problem, "contiguous stages")
        assert contiguous is not None
        best = math.inf
        for row in self.rows:
            on = row.tolist()
            if contiguous(on):
                best = min([best, *_replicated(self.problem, on, most)])
        return best


def truth(problem: Problem, *, most_runs: int) -> Truth:
    """Score every placement in every order; TooMany if that is too much."""
    rows = every_placement(problem, most_runs)
    policy = _fitting(problem, rows)
    objective = problem.objective
    if not isinstance(objective, Latency) or not objective.takes_orders:
        return Truth(problem, rows, policy, policy, len(rows))
    owner, orders = every_run(problem, rows, most_runs)
    free = policy.copy()
    if len(owner):
        scores = simulate_many(problem, rows[owner], policy=ProgramOrder(orders, sends=True), threads=1)
        np.minimum.at(free, owner, np.where(scores.feasible, scores.seconds, np.inf))
    return Truth(problem, rows, policy, free, len(owner))


def every_placement(problem: Problem, most: int) -> NDArray[np.uint8]:  # [placement, operator]
    """All placements that pins, forbids and colocation allow."""
    choices = [np.flatnonzero(row).tolist() for row in problem.unit_allowed]
    total = math.prod(len(choice) for choice in choices)
    if total > most:
        raise TooMany
    units = np.array(list(itertools.product(*choices)), dtype=np.uint8).reshape(total, len(choices))
    return np.ascontiguousarray(units[:, problem.units])


def every_run(
    problem: Problem, rows: NDArray[np.uint8], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The placement and the order of every run of every placement whose tensors have a way."""
    graph, devices = problem.graph, len(problem.cluster)
    all_sends = range(len(graph), len(graph) + graph.tensor_count * devices)
    owner, orders = [], []
    for number, row in enumerate(rows):
        for listed in _runs_of(problem, row.tolist(), most - len(owner)):
            owner.append(number)
            orders.append(
                [*listed, *(item for item in all_sends if item not in listed)]
            )  # those are not needed
    width = len(graph) + len(all_sends)
    return np.array(owner, dtype=np.int64), np.array(orders, dtype=np.int32).reshape(len(owner), width)


def _fitting(problem: Problem, rows: NDArray[np.uint8]) -> NDArray[np.float64]:
    scores = simulate_many(problem, rows, threads=1)
    return np.where(scores.feasible, scores.seconds, np.inf)


def _runs_of(problem: Problem, on: Sequence[int], most: int) -> Iterator[list[int]]:
    """Every run of one placement, as a list of operators and transfers."""
    waits, holds = _tasks(problem, on)
    if waits is None:
        return
    behind = _closure(waits)
    queues: dict[int, list[int]] = {}
    for task, resource in holds.items():
        if resource is not None:
            queues.setdefault(resource, []).append(task)
    choices = [list(_extensions(queue, behind, most)) for queue in queues.values()]
    if math.prod(len(choice) for choice in choices) > most:
        raise TooMany
    for sequences in itertools.product(*choices):
        listed = _listed(waits, sequences)
        if listed is not None:
            yield listed


def _tasks(problem: Problem, on: Sequence[int]) -> tuple[dict[int, set[int]] | None, dict[int, int | None]]:
    """What every operator and transfer waits for, and the device or channel it holds; None without a way."""
    graph, routes, devices = problem.graph, problem.routes, len(problem.cluster)
    waits: dict[int, set[int]] = {v: set() for v in range(len(graph))}
    holds: dict[int, int | None] = {v: int(on[v]) for v in range(len(graph))}
    for t, p in enumerate(graph.tensor_producer.tolist()):
        for reader in graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]].tolist():
            source, target = on[p], on[reader]
            if source == target:
                waits[reader].add(p)
                continue
            if math.isinf(routes.latency_seconds[source, target]):
                return None, {}
            send = len(graph) + t * devices + target
            channel = int(routes.channel[source, target])
            holds[send] = None if channel < 0 else devices + channel  # what its sender carries is no choice
            waits[send] = {p}
            waits[reader].add(send)
    return waits, holds


def _closure(waits: dict[int, set[int]]) -> dict[int, set[int]]:
    """Everything that must come before each task."""
    known: dict[int, set[int]] = {}

    def before(task: int) -> set[int]:
        if task not in known:
            known[task] = set(waits[task]).union(*(before(other) for other in waits[task]))
        return known[task]

    return {task: before(task) for task in waits}


def _extensions(queue: list[int], behind: dict[int, set[int]], most: int) -> Iterator[list[int]]:
    """Every sequence of a queue that puts nothing before what it needs."""
    count = 0

    def grow(done: list[int], left: list[int]) -> Iterator[list[int]]:
        nonlocal count
        if not left:
            count += 1
            if count > most:
                raise TooMany
            yield done
        for task in left:
            if not any(other in behind[task] for other in left):
                yield from grow([*done, task], [other for other in left if other != task])

    return grow([], queue)


def _listed(waits: dict[int, set[int]], sequences: Sequence[Sequence[int]]) -> list[int] | None:
    """One list of all tasks that agrees with every sequence; None if they wait for each other in a circle."""
    needs = {task: set(others) for task, others in waits.items()}
    for sequence in sequences:
        for first, then in itertools.pairwise(sequence):
            needs[then].add(first)
    listed: list[int] = []
    done: set[int] = set()
    while len(listed) < len(needs):
        ready = [task for task, others in needs.items() if task not in done and others <= done]
        if not ready:
            return None
        listed += ready
        done.update(ready)
    return listed


# What scopes speak of


def _within(problem: Problem, scope: str) -> Callable[[list[int]], bool] | None:
    """Whether a placement is one of those that a scope names; at most those, where the name leaves it open."""
    graph = problem.graph
    late = graph.phases != 0
    edges = graph.edges.tolist()
    if scope == "contiguous stages":
        return lambda on: _stages_in_turn(problem, on, edges, late)
    if scope == "each device contiguous, colocated operators as one":
        units = problem.units.tolist()
        between = [
            (units[b], units[a]) if late[a] else (units[a], units[b]) for a, b in edges if late[a] == late[b]
        ]
        reach, firsts = _reach(problem.unit_count, between), problem.unit_firsts.tolist()
        return lambda on: _never_comes_back(reach, [on[v] for v in firsts])
    if scope == "one call per accelerator":
        return lambda on: _calls(problem, on) <= 1
    if scope.startswith("at most ") and scope.endswith(
        " calls per accelerator, colocated operators in one call"
    ):
        most = int(scope.split()[2])
        return lambda on: _calls(problem, on) <= most and _units_in_one_call(problem, on)
    return None


def _stages_in_turn(problem: Problem, on: list[int], edges: list[list[int]], late: NDArray[np.bool_]) -> bool:
    """Devices do not wait for each other in a circle, the backward pass seen backwards; pairs share a device."""
    graph = problem.graph
    if any(twin >= 0 and on[v] != on[twin] for v, twin in enumerate(graph.twins.tolist())):
        return False
    for w in range(len(graph.weight_bytes)):
        users = graph.weight_users[graph.weight_user_first[w] : graph.weight_user_first[w + 1]].tolist()
        if any(graph.phases[v] == 2 and on[v] != on[users[0]] for v in users):
            return False
    between = set()
    for a, b in edges:
        if on[a] != on[b] and late[a] == late[b]:
            between.add((on[b], on[a]) if late[a] else (on[a], on[b]))
    left = set(on)
    while left:
        first = {d for d in left if not any(b == d and a in left for a, b in between)}
        if not first:
            return False
        left -= first
    return True


def _reach(count: int, edges: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Which units a path leads to from each."""
    reach = np.zeros((count, count), dtype=bool)
    for a, b in edges:
        reach[a, b] = True
    for middle in range(count):
        reach |= np.outer(reach[:, middle], reach[middle])
    return reach


def _never_comes_back(reach: NDArray[np.bool_], on: list[int]) -> bool:
    """No path leaves a device and comes back to it."""
    count = range(len(on))
    return not any(
        reach[a, b] and reach[b, c] for a in count for b in count for c in count if on[a] == on[c] != on[b]
    )


def _calls(problem: Problem, on: list[int]) -> int:
    """The most calls of one accelerator: how often a path comes back to it, plus one."""
    return max(
        (piece + 1 for piece, d in _pieces(problem, on) if not problem.cluster.devices[d].is_host), default=0
    )


def _pieces(problem: Problem, on: list[int]) -> list[tuple[int, int]]:
    """The call and the device of every operator, as the specification counts them."""
    return list(zip(pieces(Tables(problem), on), on, strict=True))


def _units_in_one_call(problem: Problem, on: list[int]) -> bool:
    calls: dict[int, set[int]] = {}
    for v, (piece, d) in enumerate(_pieces(problem, on)):
        if not problem.cluster.devices[d].is_host:
            calls.setdefault(int(problem.units[v]), set()).add(piece)
    return all(len(own) == 1 for own in calls.values())


def _replicated(problem: Problem, on: list[int], most: int) -> Iterator[float]:
    """Seconds of a placement and of all ways in which idle devices share its stages."""
    used = sorted(set(on))
    idle = [d for d in range(len(problem.cluster)) if d not in used]
    assert isinstance(problem.objective, Throughput)
    for helped in itertools.product([None, *used], repeat=len(idle)):
        groups = [(d, *(i for i, h in zip(idle, helped, strict=True) if h == d)) for d in used]
        shared = tuple(group for group in groups if len(group) > 1)
        if any(len(group) > most for group in shared):
            continue
        try:
            trace = simulate(problem, Placement(problem, on, replicas=shared))
        except BadInput:
            continue  # devices that are not equal
        if trace.feasible:
            yield trace.objective_seconds
