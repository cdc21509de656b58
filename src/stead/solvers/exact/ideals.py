"""The best contiguous stages of a pipeline: dynamic programming over ideals, and over one linear order.

An ideal is a set of supernodes that holds every predecessor of its members; stages that follow each other without a way
back are differences of a growing chain of ideals. With D[I, used] the least largest load of stages that make up I on
`used` devices of every kind,

    D[I, used] = min over ideals J in I and kinds j of  max(D[J, used - 1 of j], load(I minus J on j))

is exact (Tarnawski et al. 2020, section 4). The linear variant looks only at the prefixes of one order: quick, an upper
bound, and the cutoff that keeps the exact one small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import BadInput
from stead.problem import Placement, Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim import Shortfall, simulate
from stead.sim.replication import sync_ticks_per_byte
from stead.solvers.exact.linear_orders import linear_orders
from stead.solvers.exact.reduction import CONTIGUOUS, Merge, Reduced, not_steady, reduce, steady_load
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.rules.simple import Balanced
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

NEVER = int(np.iinfo(np.int64).max)
Sharing = dict[str, Any]  # arguments of the core that let devices share stages
MANY_NODES = 5_000
MEMORY_ROUNDS = 6  # attempts with less room where the simulator counts more than weights


@few_devices
@dataclass(frozen=True, slots=True)
class LinearDP:
    """Cuts linear orders of the graph into stages, each order optimally; the best of several orders.

    Nothing is proved by it, but its value is often the optimum over contiguous stages.
    """

    orders: int = 16
    max_nodes: int = 20_000  # its time grows with their square

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "linear-dp"

    def unsupported(self, problem: Problem) -> str | None:
        """It balances loads of full pipelines."""
        if len(problem.graph) > self.max_nodes:
            return f"the graph has {len(problem.graph)} operators, more than max_nodes = {self.max_nodes}"
        return not_steady(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Offer the best cut of every order."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            search.relax()
            reduced = reduce(problem)
            cut_orders(search, reduced, seed=seed, drawn=max(0, self.orders - 6))
        return search.solution()


@few_devices
@dataclass(frozen=True, slots=True)
class Ideals:
    """The best contiguous stages, proved by dynamic programming over all ideals.

    It uses at most `max_bytes` and gives up beyond, with the best stages found and the best bound known. With direct
    links between more than two devices the loads it balances are lower bounds, so what it proves is a bound, too.
    """

    max_bytes: int = 2**30
    max_pairs: int = 500_000_000  # of ideals, one inside the other; some twenty CPU seconds
    orders: int = 16  # linear orders that give the cutoff
    replicas: int = 1  # equal devices that may share a stage, taking samples in turn
    merge: Merge = "lossless"
    threads: int = 0  # 0: all cores; the answer does not depend on it

    def __post_init__(self) -> None:
        for option in ("max_bytes", "max_pairs", "orders", "replicas"):
            if getattr(self, option) < 1:
                raise BadInput(f"ideals needs {option} of at least 1, got {getattr(self, option)}")

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "ideals"

    def unsupported(self, problem: Problem) -> str | None:
        """It balances loads of full pipelines."""
        return LinearDP().unsupported(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Cut linear orders for a cutoff, then look at every chain of ideals below it."""
        scope = CONTIGUOUS if self.replicas == 1 else f"{CONTIGUOUS} on up to {self.replicas} devices each"
        search = started(self, problem, budget, seed, scope=scope)
        with search.interruptible():
            if self.replicas == 1:  # bounds of placements know nothing of sharing
                search.relax()
            reduced = reduce(problem, merge=self.merge)
            if self.replicas > 1:
                reduced = reduced.by_likeness()
            sharing = sharing_options(reduced, self.replicas)
            best_ticks = cut_orders(
                search, reduced, seed=seed, drawn=max(0, self.orders - 6), sharing=sharing
            )
            if not search.done:
                self._prove(search, reduced, best_ticks, sharing)
        return search.solution()

    def _prove(self, search: Search, reduced: Reduced, best_ticks: int, sharing: Sharing) -> None:
        """Everything below the best cut of an order, or the proof that there is nothing."""
        found = _native.ideals(
            reduced.native,
            load=steady_load(reduced.problem),
            cutoff_ticks=best_ticks,
            max_bytes=self.max_bytes,
            max_pairs=self.max_pairs,
            seconds=search.remaining_seconds,
            threads=self.threads,
            **sharing,
        )
        value = found.value_ticks if found.value_ticks >= 0 else best_ticks
        if found.value_ticks >= 0:
            offer_stages(search, reduced, found)
        if found.status in ("optimal", "cutoff"):
            proved, name = value, "every chain of ideals was considered"
        else:
            proved, name = found.bound_ticks, "ideals considered so far"
            search.notes.append(_gave_up(found.status, found.ideals, self))
        if reduced.lossless and proved < NEVER:
            search.raise_bound(proved / TICKS_PER_SECOND, name)


def sharing_options(reduced: Reduced, replicas: int) -> Sharing:
    """How the core is told that devices may share stages; nothing if they may not."""
    if replicas <= 1:
        return {}
    prices = [min(sync_ticks_per_byte(reduced.problem, d) for d in kind.devices) for kind in reduced.kinds]
    return {"replicas": replicas, "sync_ticks_per_byte": np.array(prices)}


def cut_orders(
    search: Search, reduced: Reduced, *, seed: int, drawn: int, sharing: Sharing | None = None
) -> int:
    """Offer the best cut of several linear orders; the least ticks of one, or NEVER."""
    least = NEVER
    if (
        reduced.count > MANY_NODES or search.done
    ):  # a budget too short for one order must not end with nothing
        search.try_solver(Balanced())
    for order in linear_orders(reduced, seed=seed, drawn=drawn):
        if search.done:
            break
        cut = _native.linear_dp(
            reduced.native,
            order,
            load=steady_load(reduced.problem),
            cutoff_ticks=least,
            seconds=search.remaining_seconds,
            **(sharing or {}),
        )
        if 0 <= cut.value_ticks < least:
            least = cut.value_ticks
            offer_stages(search, reduced, cut)
    if search.best is None and not search.done:
        _offer_overfull(search, reduced)
    return least


def offer_stages(search: Search, reduced: Reduced, split: _native.IdealsRun | _native.StageSplit) -> None:
    """Score stages; where activations do not fit beside the weights, also stages that leave room for them."""
    groups = reduced.groups_of_stages(split.kind_of_stage.tolist(), split.replicas_of_stage.tolist())
    stage_of_node = split.stage_of_node
    devices = reduced.lift(np.array([group[0] for group in groups], dtype=np.uint8)[stage_of_node])
    shared = tuple(group for group in groups if len(group) > 1)
    if shared:
        search.offer_replicas(devices, shared)
        return
    if math.isfinite(search.offer(devices)):
        return
    for tighter in _tighter(search, reduced, devices):
        if search.done:
            return
        order = np.argsort(stage_of_node, kind="stable").astype(np.int32)
        cut = _native.linear_dp(tighter.native, order, load=steady_load(reduced.problem))
        if cut.value_ticks < 0:
            return
        devices = tighter.lift_stages(cut.stage_of_node, cut.kind_of_stage.tolist())
        if math.isfinite(search.offer(devices)):
            return


def _tighter(search: Search, reduced: Reduced, devices: NDArray[np.uint8]) -> Iterator[Reduced]:
    """The same problem with less room on every kind of device that the simulator finds too full."""
    problem, room = reduced.problem, [kind.memory_bytes for kind in reduced.kinds]
    for _ in range(MEMORY_ROUNDS):
        trace = simulate(problem, Placement(problem, devices))
        over = {one.device: one.bytes_over for one in trace.problems if isinstance(one, Shortfall)}
        if not over:
            return
        for j, kind in enumerate(reduced.kinds):
            missing = max((over.get(problem.cluster.names[d], 0) for d in kind.devices), default=0)
            room[j] = max(0, room[j] - missing)
        kinds = tuple(
            replace(kind, memory_bytes=bytes_left)
            for kind, bytes_left in zip(reduced.kinds, room, strict=True)
        )
        yield replace(reduced, kinds=kinds)
        devices = search.current if search.current is not None else devices


def _offer_overfull(search: Search, reduced: Reduced) -> None:
    """Stages that need the least additional memory per device, so that the error can say how much is missing."""
    order = next(linear_orders(reduced, seed=0, drawn=0))
    low, high = 0, int(reduced.weight_bytes.sum())
    best = None
    while low <= high:
        extra = (low + high) // 2
        kinds = tuple(replace(kind, memory_bytes=kind.memory_bytes + extra) for kind in reduced.kinds)
        cut = _native.linear_dp(
            replace(reduced, kinds=kinds).native, order, load=steady_load(reduced.problem)
        )
        if cut.value_ticks >= 0:
            best, high = cut, extra - 1
        else:
            low = extra + 1
    if best is not None:
        search.offer(reduced.lift_stages(best.stage_of_node, best.kind_of_stage.tolist()))


def _gave_up(status: str, ideals: int, solver: Ideals) -> str:
    reasons = {
        "bytes": f"ideals need more than max_bytes = {solver.max_bytes / 2**20:.0f} MiB",
        "pairs": f"more than max_pairs = {solver.max_pairs} pairs of ideals",
        "time": "the time limit came first",
    }
    return f"not all contiguous stages were considered ({reasons[status]}; {ideals} ideals so far)"
