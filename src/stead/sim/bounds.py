"""Lower bounds: values that no placement can beat, each with what it assumes.

Notation    v operator or unit, d device
    p[v,d]  ticks of v on d             w[v]    bytes of weights that only v needs (a tied weight is shared out)
    M[d]    usable bytes of d           T       the objective
    h[v]    ticks before which v cannot start       q[v]    ticks that pass at least once v is done

Everything is computed in whole picoseconds, as the simulator counts: a bound can equal a value, and no rounding lifts
it above one. core/bounds/windows.h and heads_and_tails.h have the proofs of what windows and crowded paths claim,
block_chain.h and block_search.h of what blocks do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from stead import _native, clock
from stead.cluster.classes import SOLVER_DEVICES
from stead.errors import Infeasible
from stead.graph import UPDATE
from stead.problem import Latency, PlacetoDispatch, Problem, Throughput
from stead.problem.ticks import TICKS_PER_SECOND, to_ticks
from stead.sim.call_chain_bound import call_chain_ticks, call_runs_ticks
from stead.sim.class_bounds import class_sizes, device_classes, memory_of_classes, quotient
from stead.sim.counting_bound import counting_bound
from stead.sim.exchange_bounds import crossing_ticks, neighbour_bound

LOOKS = 4_000_000  # operators to look at before or behind others, in all; more would take more than a second
LOOKS_PER_SECOND = 8_000_000
WINDOW_SECONDS = 1.2e-8  # per operator and two devices
FARTHEST, NEAREST = 512, 16  # operators to look at from one
FLOW_SECONDS = 2e-5  # per operator, for a minimum cut, which nothing stops on the way
RUNS_SECONDS = 2.5e-3  # per operator, for minimum cuts of all runs of many operators of a path; of few a quarter
MANY_IN_RUNS, FEW_IN_RUNS = 96, 48
MEETINGS = 4_000_000  # units times devices of which neighbours are looked at: more would take more than a second
RUNS_OPERATORS = 1000  # beyond which it would take too long
BLOCK_STEPS = 4_000_000  # operators to look at in the search of blocks, in all; few graphs need them
BLOCK_STEPS_PER_SECOND = 4_000_000
NEVER = np.iinfo(np.int64).max  # ticks of what cannot be
BLOCK_WAYS = 200_000_000  # operators times devices cubed, for all ways into and out of blocks: more takes seconds


@dataclass(frozen=True, slots=True)
class Bound:
    """A proved lower bound on the objective of every feasible placement."""

    name: str
    seconds: float
    assumes: str


_KNOWN: WeakKeyDictionary[Problem, tuple[int, tuple[Bound, ...]]] = WeakKeyDictionary()  # effort, bounds


def lower_bounds(
    problem: Problem, *, seconds: float = math.inf, within: float = math.inf
) -> tuple[Bound, ...]:
    """Every bound that holds for the objective, largest first; Infeasible if memory provably cannot suffice.

    With about so many seconds for them, those that look far may be smaller. They end `within` so many, whatever that
    costs them. A problem is never asked twice: what was found with as much time or more is given again.
    """
    looks = int(min(LOOKS, seconds * LOOKS_PER_SECOND))
    steps = int(min(BLOCK_STEPS, seconds * BLOCK_STEPS_PER_SECOND))
    thorough = _offloads(problem) and seconds >= RUNS_SECONDS * len(problem.graph)
    effort = looks + steps + thorough
    known = _KNOWN.get(problem)
    if known is None or known[0] < effort:
        end = clock.now() + within
        known = effort, _found(problem, looks, steps, end, thorough=thorough)
        if _left(end) > _least_window_seconds(problem):  # what the clock cut short is asked again
            _KNOWN[problem] = known
    return known[1]


def _least_window_seconds(problem: Problem) -> float:
    """About what windows take at least: every operator on every device after every other one."""
    return WINDOW_SECONDS * len(problem.graph) * len(problem.cluster) ** 2


def _offloads(problem: Problem) -> bool:
    """Whether accelerators are called."""
    return isinstance(problem.objective, Latency) and problem.objective.execution == "offload"


def _found(problem: Problem, looks: int, steps: int, end: float, *, thorough: bool) -> tuple[Bound, ...]:
    if isinstance(problem.objective, Latency) and isinstance(problem.objective.policy, PlacetoDispatch):
        return ()
    if len(problem.cluster) > SOLVER_DEVICES:
        return bounds_by_classes(problem, end)
    table = _Table.of(problem)
    table.check_memory(problem)
    found = [_path(problem)]
    for slow in (_runs, _path_in_memory):
        if clock.now() < end:
            found.append(slow(problem, table, end))
    small = len(table.unit_ticks) * len(problem.cluster) <= MEETINGS
    classes = device_classes(problem) if small and isinstance(problem.objective, Throughput) else None
    if clock.now() < end:
        found += _work(problem, table, end, None if classes is None else _Crossing.of(problem, table, classes))
    found += [_largest(problem, table), _largest_together(problem, table)]
    if _left(end) > _least_window_seconds(problem):
        found += _windows(problem, table, looks, end)
        known = max(bound.seconds for bound in found if bound)
        found.append(_blocks(problem, known, steps, end))
    if _left(end) > FLOW_SECONDS * len(problem.graph):
        found.append(_call_chain(problem))
    if classes is not None:
        found.append(_neighbours(problem, table, classes, end))
    if thorough or 4 * looks >= RUNS_SECONDS * len(problem.graph) * LOOKS_PER_SECOND:
        found.append(_call_runs(problem, table, MANY_IN_RUNS if thorough else FEW_IN_RUNS, end))
    return tuple(sorted((bound for bound in found if bound), key=lambda bound: -bound.seconds))


def bounds_by_classes(problem: Problem, end: float = math.inf) -> tuple[Bound, ...]:
    """Bounds that hold on clusters of any size, from one device for each class of equal ones (class_bounds.py)."""
    classes = device_classes(problem)
    small = quotient(problem, classes)
    table = _Table.of(problem, small)
    table = replace(table, capacity_bytes=memory_of_classes(problem, classes))
    table.check_memory(small)
    sizes = class_sizes(classes)
    spread = replace(table, unit_ticks=np.where(table.unit_ticks < 0, -1, table.unit_ticks // sizes))
    objective = problem.objective
    found = [_largest(problem, table), _neighbours(problem, table, classes, end)]
    timed_by_hops = problem.costs.tensor_seconds is not None and problem.cluster.routing == "host"
    if len(small.cluster) <= SOLVER_DEVICES and not timed_by_hops:  # hops of a way may be none, those of a link are one
        found.append(_path(small))
    if not (isinstance(objective, Latency) and objective.execution == "offload" and objective.pieces == "published"):
        in_turn = isinstance(objective, Latency) and objective.execution == "sequential"
        found += _work(small, table if in_turn else spread, end, _Crossing.of(problem, table, classes))
    return tuple(sorted((bound for bound in found if bound), key=lambda bound: -bound.seconds))


def _left(end: float) -> float:
    """Seconds until a moment."""
    return max(0.0, end - clock.now())


def best_bound(problem: Problem, *, seconds: float = math.inf, within: float = math.inf) -> Bound:
    """The largest of `lower_bounds`; zero with an empty name if none applies."""
    found = lower_bounds(problem, seconds=seconds, within=within)
    return found[0] if found else Bound("", 0.0, "nothing is proved for this objective")


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """What matters of operators and of units, which must share a device, in one step."""

    ticks: NDArray[np.int64]  # [operator, device]; -1 where it may not run
    unit_ticks: NDArray[np.int64]  # [unit, device] per step; -1 where it may not run
    weight_bytes: NDArray[np.int64]  # [operator]; rounded down
    unit_bytes: NDArray[np.int64]  # [unit]
    capacity_bytes: NDArray[np.int64]  # [device]
    repeat: NDArray[np.int32]  # [operator]; runs per step
    microbatches: int  # per step

    @staticmethod
    def of(whole: Problem, problem: Problem | None = None) -> _Table:
        """What matters of a problem; of a smaller cluster the units are those of the `whole` one."""
        problem = problem or whole
        graph, objective = problem.graph, problem.objective
        microbatches = (objective.microbatches if isinstance(objective, Throughput) else None) or 1
        repeat = np.full(len(graph), microbatches, dtype=np.int32)
        repeat[graph.phases == UPDATE] = 1
        seconds = np.where(problem.allowed, problem.costs.seconds, 0.0)
        ticks = to_ticks(seconds)
        unit_ticks = np.zeros((whole.unit_count, len(problem.cluster)), dtype=np.int64)
        np.add.at(unit_ticks, whole.units, ticks * repeat[:, None])
        ticks[~problem.allowed] = unit_ticks[~problem.allowed[whole.unit_firsts]] = -1
        users = np.diff(graph.weight_user_first)
        weight_bytes = np.zeros(len(graph), dtype=np.int64)
        np.add.at(
            weight_bytes, graph.weight_users, np.repeat(graph.weight_bytes // np.maximum(users, 1), users)
        )
        unit_bytes = np.zeros(whole.unit_count, dtype=np.int64)
        np.add.at(unit_bytes, whole.units, weight_bytes)
        return _Table(ticks, unit_ticks, weight_bytes, unit_bytes, problem.limit_bytes, repeat, microbatches)

    def seconds(self, ticks: int) -> float:
        """Seconds per sample of ticks per step, rounded as the simulator rounds them."""
        return ticks / TICKS_PER_SECOND / self.microbatches

    def check_memory(self, problem: Problem) -> None:
        """Raise Infeasible if the weights alone exceed all memory that may hold them."""
        total, room = sum(problem.graph.weight_bytes.tolist()), sum(self.capacity_bytes.tolist())
        if total > room:
            raise Infeasible(
                f"weights need {total / 2**30:.2f} GiB, all devices together have {room / 2**30:.2f} GiB",
                short_bytes={problem.cluster.names[int(self.capacity_bytes.argmax())]: total - room},
                proved=True,
            )


def _path(problem: Problem) -> Bound | None:
    """The longest chain of operators, each step on its best device and each change of device paid for."""
    objective = problem.objective
    if not isinstance(objective, Latency):
        if objective.microbatches is None:
            return None
        return Bound(
            "critical path",
            _longest_path(problem, host=False) / objective.microbatches,
            "one micro-batch passes every operator of a path in turn",
        )
    return Bound(
        "critical path",
        _longest_path(problem, host=objective.execution == "offload"),
        "operators of a path run in turn, each on its best device, and a change of device takes a transfer",
    )


def _longest_path(problem: Problem, *, host: bool) -> float:
    earliest = _native.earliest_finish(problem.native, through_host=host)
    return float(earliest.max()) / TICKS_PER_SECOND if len(earliest) else 0.0


def _windows(problem: Problem, table: _Table, looks: int, end: float) -> tuple[Bound, ...]:
    """Paths that must also pass crowds, and all that must happen between two moments."""
    objective = problem.objective
    if isinstance(objective, Latency):
        if objective.execution != "dataflow":
            return ()
    elif objective.microbatches is None:
        return ()
    if not len(problem.graph):
        return ()
    reach = min(FARTHEST, looks // len(problem.graph))
    if looks == LOOKS:
        reach = max(NEAREST, reach)
    found = _native.window_bounds(
        problem.native, bytes=table.weight_bytes, repeat=table.repeat, reach=reach, seconds=_left(end)
    )
    return (
        Bound(
            "crowded path",
            table.seconds(found.path_ticks),
            "what an operator waits for runs on few devices, on one of them, or has to be sent",
        ),
        Bound(
            "window",
            table.seconds(found.window_ticks),
            f"what cannot start before {_short(found.head_ticks)} and leaves {_short(found.tail_ticks)} behind it "
            "shares the devices; work may be cut into pieces, weights must fit",
        ),
    )


def _blocks(problem: Problem, known: float, steps: int, end: float) -> Bound | None:
    """What lies between operators of the heaviest path, searched block by block."""
    objective, count = problem.objective, len(problem.graph)
    if not isinstance(objective, Latency) or objective.execution != "dataflow" or not count:
        return None
    if count * len(problem.cluster) ** 3 > BLOCK_WAYS:
        return None
    ticks = _native.block_chain_bound(
        problem.native,
        path=heaviest_path(problem, least_seconds(problem)),
        units=problem.units.astype(np.int32),
        known=int(min(known * TICKS_PER_SECOND, NEVER)),
        steps=steps,
        seconds=_left(end),
    )
    return Bound(
        "blocks of a path",
        np.inf if ticks == NEVER else ticks / TICKS_PER_SECOND,
        "what lies between two operators of a path runs between them, on whatever devices; memory is no matter",
    )


def _short(ticks: int) -> str:
    return f"{ticks / TICKS_PER_SECOND:.4g} s"


def _call_chain(problem: Problem) -> Bound | None:
    """The calls that a path passes, with all that they hold, and what they copy from and to the rest."""
    if not _offloads(problem) or not len(problem.graph):
        return None
    ticks = call_chain_ticks(problem, heaviest_path(problem, least_seconds(problem)))
    return Bound(
        "chain of calls",
        ticks / TICKS_PER_SECOND,
        "calls that a path passes wait for each other; each takes all that it holds, and copies what it shares",
    )


def _call_runs(problem: Problem, table: _Table, most: int, end: float) -> Bound | None:
    """The same where no accelerator holds the path, by those operators of it that take longest."""
    if not _offloads(problem) or not 0 < len(problem.graph) <= RUNS_OPERATORS:
        return None
    least = least_seconds(problem)
    path = heaviest_path(problem, least)
    rooms = [device.usable_bytes for device in problem.cluster if not device.is_host]
    if not rooms or int(table.weight_bytes[path].sum()) <= max(rooms):
        return None  # nothing forces the path into more than one call
    chain = path[np.sort(np.argsort(-least[path], kind="stable")[:most])]
    return Bound(
        "chain of calls in memory",
        call_runs_ticks(problem, chain, table.weight_bytes, end=end) / TICKS_PER_SECOND,
        "calls that a path passes wait for each other, and the weights of each must fit",
    )


def _runs(problem: Problem, table: _Table, end: float) -> Bound | None:
    """A path that must change device because no memory holds all of it."""
    objective = problem.objective
    if not isinstance(objective, Latency):
        return None
    total = int(problem.graph.weight_bytes.sum())
    if total <= problem.limit_bytes.min():
        return None  # nothing forces a change: no better than the critical path
    return Bound(
        "path cut by memory",
        _runs_in_memory(problem, host=objective.execution == "offload"),
        "operators of a path run in turn, a device holds no more weights than fit, a change takes a transfer",
    )


def _runs_in_memory(problem: Problem, *, host: bool) -> float:
    """The most seconds that one of a few paths takes at least; `host`: tensors pass host memory (cut_path.h)."""
    if not len(problem.graph):
        return 0.0
    least = least_seconds(problem)
    weights = problem.graph.parameter_bytes.astype(np.float64)
    wishes = [least]
    if weights.any():
        wishes.append(weights)
        wishes.append(least / max(float(least.max()), 1e-30) + weights / float(weights.max()))
    paths = {tuple(heaviest_path(problem, wish).tolist()) for wish in wishes}
    ticks = max(
        _native.least_run_ticks(problem.native, np.array(path, dtype=np.int32), through_host=host)
        for path in paths
    )
    return np.inf if ticks == np.iinfo(np.int64).max else ticks / TICKS_PER_SECOND


def least_seconds(problem: Problem) -> NDArray[np.float64]:  # [operator]
    """Seconds of every operator on the device that runs it quickest."""
    seconds: NDArray[np.float64] = np.where(problem.allowed, problem.costs.seconds, np.inf).min(
        axis=1, initial=np.inf
    )
    return seconds


def heaviest_path(problem: Problem, weight: NDArray[np.float64]) -> NDArray[np.int32]:
    """The path of greatest sum of `weight` [operator], in order."""
    return _native.heaviest_path(problem.native, weight)


def _path_in_memory(problem: Problem, table: _Table, end: float) -> Bound | None:
    """Operators that run in turn and whose weights cannot all be on the quickest device."""
    if not isinstance(problem.objective, Latency):
        return None
    ticks = table.ticks
    if problem.objective.execution == "sequential":
        assumes = "one operator at a time; weights must fit, operators may be cut into pieces"
    else:
        in_turn = np.zeros(len(problem.graph), dtype=bool)
        in_turn[heaviest_path(problem, least_seconds(problem))] = True
        ticks = np.where(in_turn[:, None] | (ticks < 0), ticks, 0)
        assumes = "operators of one path run in turn; weights must fit, operators may be cut into pieces"
    everywhere = np.ones(len(problem.cluster), dtype=np.uint8)
    total = _native.total_bound(
        ticks=ticks,
        bytes=table.weight_bytes,
        capacity_bytes=table.capacity_bytes,
        busy=everywhere,
        seconds=_left(end),
    )
    return Bound("path in memory", table.seconds(total), assumes)


@dataclass(frozen=True, slots=True)
class _Crossing:
    """What a full pipeline of several devices pays beside its work."""

    ticks: int  # that each of them sends or receives at least
    alone_ticks: int  # of everything on one device

    @staticmethod
    def of(problem: Problem, table: _Table, classes: NDArray[np.int64]) -> _Crossing:
        """That of a problem; nothing where devices may do without."""
        columns = _by_class(table, classes)
        alone = columns.sum(axis=0)[(columns >= 0).all(axis=0)]
        return _Crossing(crossing_ticks(problem, classes), int(alone.min(initial=np.iinfo(np.int64).max)))


def _by_class(table: _Table, classes: NDArray[np.int64]) -> NDArray[np.int64]:  # [unit, class]
    """Ticks of units by class, from a table by class or by device."""
    if table.unit_ticks.shape[1] < len(classes):
        return table.unit_ticks
    return table.unit_ticks[:, np.unique(classes, return_index=True)[1]]


def _work(problem: Problem, table: _Table, end: float, crossing: _Crossing | None) -> list[Bound]:
    """All work, spread over the devices as well as memory lets it be, and what devices exchange beside it."""
    objective = problem.objective
    if isinstance(objective, Latency) and objective.execution == "sequential":
        ticks = int(_least(table).sum())
        return [Bound("total work", table.seconds(ticks), "one operator at a time, each on its best device")]
    busy = np.ones(len(problem.cluster), dtype=np.uint8)
    if isinstance(objective, Latency) and objective.execution == "offload":
        if objective.pieces == "published":
            return []  # pieces of one device run side by side
        busy = np.array(
            [not device.is_host for device in problem.cluster], dtype=np.uint8
        )  # hosts: unlimited cores
    ticks = _native.area_bound(
        ticks=table.unit_ticks,
        bytes=table.unit_bytes,
        capacity_bytes=table.capacity_bytes,
        busy=busy,
        seconds=_left(end),
    )
    assumes = "a device does one thing at a time; work may be cut into pieces, weights must fit"
    found = [Bound("area", table.seconds(ticks), assumes)]
    if crossing is not None and crossing.ticks:
        with_it = table.seconds(min(crossing.alone_ticks, ticks + crossing.ticks))
        found.append(Bound("area and a crossing", with_it, f"{assumes}; who does not have all exchanges one tensor"))
    return found


def _largest_together(problem: Problem, table: _Table) -> Bound | None:
    """The device that has its share of the largest units."""
    objective = problem.objective
    if isinstance(objective, Latency) and objective.execution != "dataflow":
        return None
    return Bound(
        "largest units together",
        table.seconds(counting_bound(table.unit_ticks, table.unit_bytes, table.capacity_bytes)),
        "some device has no less than its share of the largest units, one after another; weights must fit",
    )


def _neighbours(problem: Problem, table: _Table, classes: NDArray[np.int64], end: float) -> Bound | None:
    """The unit whose neighbours cost its device most, whether they are there or elsewhere; for full pipelines."""
    ticks = neighbour_bound(problem, _by_class(table, classes), classes, end)
    if ticks is None:
        return None
    return Bound(
        "neighbours",
        table.seconds(ticks),
        "a device runs the neighbours of what it runs, or sends and receives what they share",
    )


def _least(table: _Table) -> NDArray[np.int64]:  # [unit]
    """Ticks of units on their best devices."""
    if not len(table.unit_ticks):
        return np.zeros(0, dtype=np.int64)
    least: NDArray[np.int64] = np.where(table.unit_ticks < 0, np.iinfo(np.int64).max, table.unit_ticks).min(
        axis=1
    )
    return least


def _largest(problem: Problem, table: _Table) -> Bound | None:
    """The unit that takes longest even on its best device."""
    objective = problem.objective
    if isinstance(objective, Latency) and objective.execution != "dataflow":
        return None
    return Bound(
        "largest unit",
        table.seconds(int(_least(table).max(initial=0))),
        "operators that must share a device share its time",
    )
