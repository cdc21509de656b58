"""Local search on devices and order together: the native core improves what cheaper solvers construct."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native, clock
from stead.errors import BadInput, Infeasible
from stead.graph.weights import resident_bytes
from stead.problem import Latency, Placement, PlacetoDispatch, Problem, ProgramOrder
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim import simulate, simulate_many
from stead.solvers.build.schedules import Schedule, offer_schedule, takes_orders
from stead.solvers.few_devices import few_devices
from stead.solvers.phases import Kinds, MoveKind, joined
from stead.solvers.registry import current_name, solver, solver_names
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search, reraise
from stead.solvers.solution import Budget, Solution

STARTS = "heft,etf,chunks,split,even,balanced,single"
WORK_PER_SECOND = 30_000_000  # operators that one thread decodes
LEAST_SECONDS = 10.0  # that are not cut into slices unless memory may be short
MOST_SLICES = 8  # of a budget in evaluations; what is left then is one
SLICE = 0.3  # of what is left of the budget, between two looks at the incumbent
FIRST_SLICE = 0.08  # the same for the first: it tells whether what fits in theory fits in fact, and cools too quickly
UNLIMITED = 2**61  # work; then the clock shares out the time
LEAST_EFFORT = 20_000  # evaluations per start with which both orders of sends are worth trying, and two streams
SMALL = 6000  # operators up to which that holds: on larger ones one stream and sends by producer get further
LARGE_LEAST_EFFORT = 5000  # evaluations per start for both orders of sends on those
MOST_SHARE = 0.3  # of the time that is left, for one start
POOL = 6
ROUNDS, FEW_ROUNDS = 8, 3
MANY_OPERATORS = 20_000  # where a sweep over all windows takes long


@few_devices
@dataclass(frozen=True, slots=True)
class ScheduleSearch:
    """Moves units, blocks and swaps, shifts and sorts the order, near the longest paths of the schedule.

    Every move is judged exactly under policy program_order; hill climbing and annealing alternate, the better of
    several starts go on, and graphs of many operators are also searched window by window. One evaluation of a budget
    is the work of decoding every operator once, and it stops by itself after `effort` evaluations. The same seed gives
    the same answer for any number of threads unless the clock intervenes.
    """

    name: ClassVar[str] = "search"
    starts: str = STARTS  # names of solvers, separated by commas; unknown ones are passed over
    effort: int = 20_000
    streams: int = 2  # searches that go on to the end, each on a thread of its own if there are so many
    threads: int = 0

    def __post_init__(self) -> None:
        if self.effort < 1:
            raise BadInput(f"search needs an effort of at least 1 evaluation, got {self.effort}")
        if not 1 <= self.streams <= 64:
            raise BadInput(f"search runs 1 to 64 streams, got {self.streams}")

    def unsupported(self, problem: Problem) -> str | None:
        """It needs a schedule that an order decides."""
        objective = problem.objective
        if not isinstance(objective, Latency) or objective.execution != "dataflow":
            return "it searches the latency of dataflow execution only"
        if isinstance(objective.policy, PlacetoDispatch):
            return "it does not know the rules of Placeto's simulator"
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Improve the starts slice by slice until the budget is spent."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            search.relax()
            self.improve(search, list(self._constructed(search)))
        return search.solution()

    def _constructed(self, search: Search) -> Iterator[Schedule]:
        """Starts with their orders, those that fit first."""
        problem, misfits, known = search.problem, [], set(solver_names())
        for name in map(current_name, self.starts.split(",")):
            if name not in known:
                continue
            if search.done:
                break
            member = solver(name)
            if member.unsupported(problem) is not None:
                continue
            try:
                solution = search.answers.ask(member, problem, search.rest_of_budget(MOST_SHARE), search.seed)
            except Infeasible as error:
                misfits += _misfit(problem, error, name)
                continue
            search.adopt(solution)
            yield schedule_of(solution.placement, name)
        if search.best is None:
            yield from misfits

    def improve(
        self,
        search: Search,
        pool: list[Schedule],
        *,
        part: int = 0,
        settled: bool = False,
        units: NDArray[np.int32] | None = None,
    ) -> list[Schedule]:
        """Run slices of the native search, each from what the one before left; what the last one left, best first.

        `part` changes what is drawn. Every start is tried with sends by producer and by reader. Where there is too
        little time for that, on small graphs, tensors are sent by reader and one stream goes on to the end. Devices
        that carry tensors themselves send by producer. A pool that has been `settled` by a search before is taken as
        it is; `units` larger than the problem's own stay together.
        """
        if not pool or not len(search.problem.graph) or len(search.problem.cluster) < 2:
            return pool
        small = len(search.problem.graph) <= SMALL
        least = LEAST_EFFORT if small else LARGE_LEAST_EFFORT
        enough = self._evaluations_left(search) >= 2 * least * len(pool)
        chooses = takes_orders(search.problem) and not search.problem.native.carries
        if not settled and chooses and (enough or small):
            pool = in_both_ways(pool) if enough else [replace(one, by_reader=True) for one in pool]
        way = _Way.through(search.problem, self.streams if enough else 1, units)
        fits_so_far = True
        room = _Room.of_weights(search.problem)
        most = search.evaluations + self.effort
        turn = 0
        while not search.done:
            evaluations, seconds = self._slice(search, most, turn, fits_so_far)
            if evaluations < 1 or seconds <= 0:
                break
            drawn = np.random.SeedSequence((search.seed, turn, part)).generate_state(1, np.uint64).item()
            began = clock.now()
            result = self._run(search, pool, room, evaluations, seconds, drawn, way if turn else way.at_first(pool))
            search.kinds = joined(search.kinds, _kinds(result, clock.now() - began))
            search.evaluations += min(
                evaluations, result.work // len(search.problem.graph)
            )  # the last move may exceed it
            found = [_schedule(state) for state in result.pool]
            fits = [_offer(search, schedule) for schedule in found]
            fits_so_far = fits[0]
            if not fits_so_far:
                room = room.tighter(search.problem, found[0])
            pool = [schedule for schedule, fit in zip(found, fits, strict=True) if fit] or pool
            turn += 1
            reraise(result.raised)
        return pool

    def _evaluations_left(self, search: Search) -> float:
        """About as many as the budget or `effort` allow."""
        counted = search.remaining_evaluations
        pace = WORK_PER_SECOND / len(search.problem.graph)
        return min(self.effort, search.spare_seconds * pace, math.inf if counted is None else counted)

    def _slice(self, search: Search, most: int, turn: int, fits: bool) -> tuple[int, float]:
        """(evaluations, seconds) until the next look at the incumbent; enough are left to score what is found.

        Where memory may be short the first slice tells whether it is; if not, the others are as long as elsewhere.
        """
        last = turn >= MOST_SLICES
        count, whole = len(search.problem.graph), (turn > 0 and fits) or _memory_is_ample(search.problem)
        limit = max(0, most - search.evaluations)
        if search.remaining_evaluations is not None:
            limit = min(limit, search.remaining_evaluations)
        left = limit - 3 * POOL if limit > 6 * POOL else limit // 2
        small = last or (whole and left * count <= LEAST_SECONDS * WORK_PER_SECOND)
        share = SLICE if turn or whole else FIRST_SLICE
        evaluations = left if small else math.ceil(share * left)
        seconds = search.remaining_seconds
        if math.isfinite(search.spare_seconds):
            rest = 0.97 * seconds
            seconds = rest if rest <= (LEAST_SECONDS if whole else 0.1) else share * rest
        return evaluations, seconds

    def _run(
        self,
        search: Search,
        pool: list[Schedule],
        room: _Room,
        evaluations: int,
        seconds: float,
        drawn: int,
        way: _Way,
    ) -> _native.SearchResult:
        """One slice of the native search."""
        problem = search.problem
        work = evaluations * len(problem.graph)
        late = not search.counts and work > seconds * WORK_PER_SECOND
        return _native.search(
            problem.native,
            way.unit_of,
            starts=np.stack([schedule.devices for schedule in pool]),
            start_orders=np.stack([schedule.order for schedule in pool]),
            start_sends=np.array([schedule.by_reader for schedule in pool], dtype=np.uint8),
            budget=UNLIMITED if late else work,
            seconds=seconds,
            seed=drawn,
            threads=self.threads,
            streams=way.streams,
            rounds=way.rounds,
            pool=way.pool,
            climbs=way.climbs,
            held_bytes=room.held_bytes,
            room_bytes=room.room_bytes,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """How the native search goes on from its starts."""

    unit_of: NDArray[np.int32]  # [operator]; what stays together
    streams: int
    rounds: int
    climbs: bool  # annealing only where climbing has stalled
    pool: int = POOL
    memory_is_ample: bool = True

    @staticmethod
    def through(problem: Problem, streams: int, unit_of: NDArray[np.int32] | None) -> _Way:
        """On large graphs one stream that climbs, and anneals only where that has stalled."""
        count = len(problem.graph)
        return _Way(
            problem.units if unit_of is None else unit_of,
            streams if count <= SMALL else 1,
            ROUNDS if count <= MANY_OPERATORS else FEW_ROUNDS,
            climbs=count > SMALL,
            memory_is_ample=_memory_is_ample(problem),
        )

    def at_first(self, pool: list[Schedule]) -> _Way:
        """Where a short slice is to tell whether memory suffices, it gives up no start of a large graph yet."""
        if not self.climbs or self.memory_is_ample:
            return self
        return replace(self, rounds=1, pool=max(self.pool, len(pool)))


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """What the native search counts as staying on a device, and how much of it fits."""

    held_bytes: NDArray[np.int64]  # [operator]
    room_bytes: NDArray[np.int64]  # [device]

    @staticmethod
    def of_weights(problem: Problem) -> _Room:
        """Weights alone against all usable memory: whatever breaks it cannot fit."""
        return _Room(
            np.zeros(len(problem.graph), dtype=np.int64),
            np.array([device.usable_bytes for device in problem.cluster], dtype=np.int64),
        )

    def tighter(self, problem: Problem, schedule: Schedule) -> _Room:
        """Count long-lived outputs too, and leave free what a schedule that does not fit needs beyond them."""
        order = schedule.program(problem) if takes_orders(problem) else None
        scores = simulate_many(problem, schedule.devices[None, :], policy=order, memory="peak")
        held = long_lived_bytes(problem)
        kept = np.bincount(schedule.devices, weights=held, minlength=len(problem.cluster))
        resident = kept.astype(np.int64) + resident_bytes(problem.graph, schedule.devices, len(problem.cluster))
        usable = np.array([device.usable_bytes for device in problem.cluster], dtype=np.int64)
        beyond = np.maximum(0, scores.peak_bytes[0] - resident)
        least = np.minimum(self.room_bytes, usable - beyond) if self.held_bytes.any() else usable - beyond
        return replace(self, held_bytes=held, room_bytes=np.maximum(0, least))


def long_lived_bytes(problem: Problem) -> NDArray[np.int64]:  # [operator]
    """Bytes of the outputs that stay: kept ones, and such that a later phase reads."""
    graph = problem.graph
    phase = graph.phases.astype(np.int64)
    reads_of = graph.tensor_of_read
    last = phase[graph.tensor_producer].copy()
    np.maximum.at(last, reads_of, phase[graph.readers])
    stays = graph.tensor_kept.astype(bool) | (last > phase[graph.tensor_producer])
    held = np.zeros(len(graph), dtype=np.int64)
    np.add.at(held, graph.tensor_producer, np.where(stays, graph.tensor_bytes, 0))
    return held


def _memory_is_ample(problem: Problem) -> bool:
    """Whether everything would fit on any one device."""
    graph = problem.graph
    everything = int(graph.weight_bytes.sum()) + int(graph.tensor_bytes.sum())
    workspace = int(problem.costs.workspace_bytes.max(initial=0))
    return all(everything + workspace <= device.usable_bytes for device in problem.cluster)


def schedule_of(placement: Placement, name: str) -> Schedule:
    """Devices with the order in which they run under what the placement says, or under the policy."""
    order = placement.order
    if isinstance(order, ProgramOrder) and not order.sends and order.order is not None:
        return Schedule(placement.devices, order.order, name)
    trace = simulate(placement.problem, placement, memory="off")
    listed = isinstance(order, ProgramOrder) and order.sends and not placement.problem.native.carries
    return Schedule(placement.devices, np.asarray(trace.order, dtype=np.int32), name, listed)


def _schedule(state: _native.SearchState) -> Schedule:
    return Schedule(state.devices, state.order, "search", state.sends == 1, state.ticks / TICKS_PER_SECOND)


def _kinds(result: _native.SearchResult, seconds: float) -> Kinds:
    """Kinds of moves of a search that took so long: each took its share of the work."""
    work = max(1, sum(one.work for one in result.kinds))
    return tuple(
        MoveKind(one.name, one.tried, one.kept, seconds * one.work / work, one.gain) for one in result.kinds
    )


def in_both_ways(pool: list[Schedule]) -> list[Schedule]:
    """Each schedule as it is and with channels that send in the other order."""
    ways = [(one, way) for one in pool for way in (one.by_reader, not one.by_reader)]
    return [replace(one, by_reader=way, seconds=math.inf) for one, way in ways]


def _misfit(problem: Problem, error: Infeasible, name: str) -> list[Schedule]:
    """The placement that an error tells of, if all that keeps it from running is memory."""
    if error.placement is None:
        return []
    placement = Placement(problem, error.placement)
    can_run = math.isfinite(simulate(problem, placement, memory="off").objective_seconds)
    return [schedule_of(placement, name)] if can_run else []


def _offer(search: Search, schedule: Schedule) -> bool:
    """Score a schedule; whether it fits into memory in some order."""
    before = search.best_seconds
    offer_schedule(search, schedule)
    if search.best_seconds < before:
        return True
    order = schedule.program(search.problem) if takes_orders(search.problem) else None
    return bool(simulate_many(search.problem, schedule.devices[None, :], policy=order).feasible[0])
