"""`latency-cp`: placement and schedule of a dataflow graph at once, by constraint programming (CP-SAT).

Notation    n unit, v operator, t tensor of operator p, s and d devices, h channel
    x[n,d]      n is on d                       start[v], end[v]    on d for duration[v,d], one operator at a time
    m[t,s,d]    t is moved from s to d          begin[t,d]          channel h holds it for wire + gap, one at a time

    end[v] <= T      start[c] >= end[p]      start[c] >= begin[t,d] + wire + latency  if m[t,s,d] and c is on d

Devices and channels may serve in any order here, only weights count as memory, and a device that carries what it sends
is not kept from working. So the program's optimum is a
*lower bound* on what any placement reaches in any order. Its schedule is scored as the order of its placement: where
activations fit, too, the bound is attained. Where they do not, every order of that placement which ends before the
incumbent is looked at; only then is the placement excluded and the program solved again. Where the objective leaves the
order to its policy, a placement has one value, and is excluded once that is known.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.cluster.routes import BY_SENDER, NO_CHANNEL
from stead.problem import Latency, Order, Placement, PlacetoDispatch, Problem
from stead.problem.in_ticks import IMPOSSIBLE, Tables
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim import simulate
from stead.solvers.auto import Auto
from stead.solvers.build.schedules import takes_orders
from stead.solvers.exact.all_orders import EveryOrder, Tasks
from stead.solvers.exact.programs.program import Outcome, Program, Scale, Settings, run
from stead.solvers.few_devices import few_devices
from stead.solvers.part_budgets import limited
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

MOST_TASKS = 100  # of a placement whose orders are all looked at
NEVER = 2**62  # ticks
FREE_UNITS = 12  # of a neighbourhood
NEIGHBOURHOOD_SECONDS = 5.0


@few_devices
@dataclass(frozen=True, slots=True)
class LatencyCp:
    """The best placement for dataflow execution, proved where the program ends in time.

    Its bound holds for all placements and all orders that they may bring; gap 0 means that none is better. A placement
    whose orders are more than `max_steps` allow stays in question, and so does everything behind it. Larger problems
    are first improved in neighbourhoods: all units but some stay where they are. One worker and a fixed seed: the
    same answer whenever it ends by itself before `program_seconds`.
    """

    max_tasks: int = 20_000  # operators and transfers on all devices they could be on
    program_seconds: float = 120.0
    rounds: int = 200  # programs, each without the placements that are settled
    max_steps: int = 20_000  # tasks to add to orders of one placement; some 0.3 s
    neighbourhoods: int = 60  # at most; a third of them in a row without improvement are enough

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "latency-cp"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes dataflow latency of problems that are not too large."""
        objective = problem.objective
        if not isinstance(objective, Latency) or objective.execution != "dataflow":
            return "it schedules operators and transfers: latency with dataflow execution"
        if isinstance(objective.policy, PlacetoDispatch):
            return "the published simulator of Placeto has rules of its own that the program does not know"
        count = len(problem.cluster)
        tasks = len(problem.graph) * count + problem.graph.tensor_count * count * (count - 1)
        if tasks > self.max_tasks:
            return f"the program would have {tasks} tasks, more than max_tasks = {self.max_tasks}"
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Start from quick constructions, then solve programs until nothing better is left."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            search.relax()
            left = search.remaining_evaluations
            with limited(search, seconds=self.program_seconds / 4, evaluations=left and left // 2):
                search.try_solver(Auto(exact=False, patience=2048))
            with limited(search, seconds=self.program_seconds / 2):
                self._search_neighbourhoods(search)
            with limited(search, seconds=self.program_seconds):
                self._solve_programs(search)
        return search.solution()

    def _search_neighbourhoods(self, search: Search) -> None:
        """Solve programs in which only some units that exchange tensors may move."""
        if search.best is None or search.problem.unit_count <= FREE_UNITS:
            return
        rng, next_to = np.random.default_rng(search.seed), _neighbours(search.problem)
        failed = 0
        for _ in range(self.neighbourhoods):
            if search.done or failed * 3 > self.neighbourhoods:
                return
            before = search.best_seconds
            model = ScheduleProgram(search, [], free=_around(next_to, rng))
            with limited(search, seconds=NEIGHBOURHOOD_SECONDS):
                model.run(search, proves=False)
            failed = 0 if search.best_seconds < before else failed + 1

    def _solve_programs(self, search: Search) -> None:
        settled: list[NDArray[np.int64]] = []
        for _ in range(self.rounds):
            if search.done:
                return
            model = ScheduleProgram(search, settled)
            outcome = model.run(search, proves=True)
            if outcome.status == "infeasible" and search.best is not None:
                search.raise_bound(search.best_seconds, "no other placement is better")
            if outcome.status != "optimal" or outcome.values is None or search.done:
                return
            if not takes_orders(search.problem):
                settled += model.seen  # scored by the policy, which is all that they can be
            elif self._try_every_order(search, model.devices(model.seen[-1])):
                settled.append(model.seen[-1])
            else:
                return

    def _try_every_order(self, search: Search, devices: NDArray[np.uint8]) -> bool:
        """Offer all orders of a placement that end before the incumbent; whether none was left out."""
        tasks = Tasks.of(Tables(search.problem), devices.tolist())
        if len(tasks.tasks) > MOST_TASKS:
            return False
        orders = EveryOrder(tasks, most_steps=self.max_steps)
        for sequence in orders.before(lambda: _ticks(search.best_seconds)):
            if search.done:
                return False
            search.offer(devices, order=tasks.order(sequence))
        return orders.complete


def _ticks(seconds: float) -> int:
    """Whole ticks; of no incumbent more than any run takes."""
    return round(seconds * TICKS_PER_SECOND) if math.isfinite(seconds) else NEVER


class ScheduleProgram:
    """The program of all placements but the settled ones, no later than the incumbent."""

    def __init__(
        self, search: Search, settled: list[NDArray[np.int64]], *, free: Collection[int] | None = None
    ) -> None:
        self.program = Program()
        self.seen: list[
            NDArray[np.int64]
        ] = []  # placements of units that the program found, its optimum last
        self._begin: dict[
            tuple[int, int], int
        ] = {}  # (tensor, device): variable, where it may wait for a channel
        self._search, self._problem = search, search.problem
        self._tables = Tables(search.problem)
        self._classes = interchangeable(search.problem, self._tables)
        upper = self._upper_ticks()
        self.scale = Scale.of(self._all_ticks(upper), upper=upper)
        strictly = search.best is not None and (bool(settled) or free is not None)
        self._horizon = self.scale.up(upper) - int(strictly and self.scale.exact)
        self._x = self._assign_units()
        self._start, self._end = self._run_operators()
        self._latency = self._minimise()
        self._move_tensors()
        self._limit_weights()
        if free is None:
            self._order_equal_devices()
        else:
            self._keep_all_but(free)
        for devices in settled:
            self.program.clause([~self._x[n][d] for n, d in enumerate(self._canonical(devices)) if d >= 0])
        if search.best is not None and not strictly:
            self._hint(search.best)

    def run(self, search: Search, *, proves: bool) -> Outcome:
        """Solve within the limits of the search; its bounds hold for all placements, since others are settled."""
        return run(
            self.program,
            search,
            Settings(seed=search.seed),
            place=self._place,
            bound_seconds=self.scale.seconds if proves else None,
            bound_name="schedules in any order",
            order=self._order if takes_orders(self._problem) else None,
        )

    def _place(self, values: NDArray[np.int64]) -> NDArray[np.uint8]:  # [operator]
        self.seen.append(self._units(values))
        return self.devices(self.seen[-1])

    def _units(self, values: NDArray[np.int64]) -> NDArray[np.int64]:  # [unit]
        return np.array([max(own, key=lambda d: values[own[d]]) for own in self._x], dtype=np.int64)

    def devices(self, units: NDArray[np.int64]) -> NDArray[np.uint8]:  # [operator]
        """Devices of operators, given those of units."""
        return units[self._problem.units].astype(np.uint8)

    def _order(self, values: NDArray[np.int64]) -> Order:
        """The order in which the program runs operators and transfers."""
        tasks = Tasks.of(self._tables, self.devices(self._units(values)).tolist())
        begin = [int(values[start]) for start in self._start]
        end = [int(values[end]) for end in self._end]
        for (t, d), i in tasks.sends.items():
            waits = (t, d) in self._begin
            begin.append(int(values[self._begin[t, d]]) if waits else end[self._tables.producer[t]])
            end.append(begin[-1] + self.scale.down(tasks.tasks[i].busy_ticks if waits else 0))
        return tasks.order(tasks.by_time(begin, end))

    def _upper_ticks(self) -> int:
        """The incumbent's latency; without one, everything one after another."""
        if self._search.best is not None:
            return round(self._search.best_seconds * TICKS_PER_SECOND)
        tables, devices = self._tables, range(self._tables.devices)
        work = sum(max(row) for row in tables.duration)
        moves = sum(
            tables.wire(t, s, d) + max(0, tables.latency[s][d]) + tables.gap[s][d]
            for t in range(len(tables.producer))
            for s in devices
            for d in devices
            if s != d and tables.latency[s][d] != IMPOSSIBLE
        )
        return work + moves

    def _all_ticks(self, upper: int) -> list[NDArray[np.int64]]:
        tables = self._tables
        pairs = [(s, d) for s in range(tables.devices) for d in range(tables.devices) if s != d]
        open_pairs = [(s, d) for s, d in pairs if tables.latency[s][d] != IMPOSSIBLE]
        wires = [tables.wire(t, s, d) for t in range(len(tables.producer)) for s, d in open_pairs]
        fixed = [table[s][d] for s, d in open_pairs for table in (tables.latency, tables.gap)]
        return [np.array(part, dtype=np.int64) for part in (tables.duration, wires, fixed, [upper])]

    def _assign_units(self) -> list[dict[int, int]]:  # [unit]; device: literal
        x = []
        for allowed in self._problem.unit_allowed:
            own = {d: self.program.binary() for d in np.flatnonzero(allowed).tolist()}
            self.program.exactly_one(list(own.values()))
            x.append(own)
        return x

    def _of(self, v: int) -> dict[int, int]:
        """The literals of an operator."""
        return self._x[int(self._problem.units[v])]

    def _run_operators(self) -> tuple[list[int], list[int]]:
        """Starts and ends of all operators, one at a time on every device."""
        program, tables = self.program, self._tables
        earliest = _native.earliest_finish(self._problem.native).tolist()
        start = [program.integer(0, self._horizon) for _ in earliest]
        end = [program.integer(min(self.scale.down(e), self._horizon), self._horizon) for e in earliest]
        tasks: dict[int, list[int]] = {}
        for v in range(tables.operators):
            for d, x in self._of(v).items():
                ticks = self.scale.down(tables.duration[v][d])
                tasks.setdefault(d, []).append(program.interval(start[v], ticks, end[v], present=x))
        for own in tasks.values():
            program.no_overlap(own)
        for u, v in self._problem.graph.edges.tolist():
            program.row([start[v], end[u]], [1, -1], low=0)
        return start, end

    def _minimise(self) -> int:
        """The latency: at least every end, and the work of every device."""
        program, tables = self.program, self._tables
        least = self.scale.down(int(self._search.bound_seconds * TICKS_PER_SECOND))
        latency = program.integer(min(least, self._horizon), self._horizon)
        for end in self._end:
            program.row([latency, end], [1, -1], low=0)
        for d in range(tables.devices):
            work: dict[int, int] = {}
            for v in range(tables.operators):
                if d in self._of(v):
                    x = self._of(v)[d]
                    work[x] = work.get(x, 0) + self.scale.down(tables.duration[v][d])
            program.row([latency, *work], [1, *(-ticks for ticks in work.values())], low=0)
        program.minimise([latency], [1])
        return latency

    def _move_tensors(self) -> None:
        """One transfer per tensor and receiving device, one at a time on every channel."""
        tables, queues = self._tables, dict[int, list[int]]()
        for t, p in enumerate(tables.producer):
            for d in range(tables.devices):
                readers = [
                    c for c in tables.readers[t] if d in self._of(c) and self._of(c) is not self._of(p)
                ]
                if readers:
                    self._move(t, p, d, readers, queues)
        for tasks in queues.values():
            self.program.no_overlap(tasks)

    def _move(self, t: int, p: int, d: int, readers: list[int], queues: dict[int, list[int]]) -> None:
        """The transfer of t to d, from wherever it is."""
        program, tables, begin = self.program, self._tables, None
        for s, source in self._of(p).items():
            if s == d:
                continue
            if tables.latency[s][d] == IMPOSSIBLE:
                for c in readers:
                    program.clause([~source, ~self._of(c)[d]])
                continue
            wire, latency = tables.wire(t, s, d), tables.latency[s][d]
            way, busy = self.scale.down(wire + latency), self.scale.down(wire + tables.gap[s][d])
            if tables.channel[s][d] < 0 or (busy == 0 and way == 0):
                for c in readers:
                    when = [source, self._of(c)[d]]
                    program.row([self._start[c], self._end[p]], [1, -1], low=way, when=when)
                continue
            if begin is None:
                begin = self._begin[t, d] = program.integer(0, self._horizon)
                program.row([begin, self._end[p]], [1, -1], low=0)
            moves = program.binary()
            for c in readers:
                program.clause([~source, ~self._of(c)[d], moves])
                program.row([self._start[c], begin], [1, -1], low=way, when=[moves, self._of(c)[d]])
            free = program.integer(0, self._horizon + busy)
            task = program.interval(begin, busy, free, present=moves)
            queues.setdefault(tables.channel[s][d], []).append(task)

    def _limit_weights(self) -> None:
        """Weights are held once per device; the simulator also counts activations, so this is what is certain."""
        program, tables, units = self.program, self._tables, self._problem.units.tolist()
        for d, device in enumerate(self._problem.cluster):
            held: dict[int, int] = {}
            for w, users in enumerate(tables.weight_users):
                for n in dict.fromkeys(units[v] for v in users):
                    if d in self._x[n] and tables.weight_bytes[w]:
                        if w not in held:
                            held[w] = program.binary()
                        program.implies(self._x[n][d], held[w])
            sizes = [tables.weight_bytes[w] for w in held]
            if sum(sizes) > device.usable_bytes:
                program.row(list(held.values()), sizes, high=device.usable_bytes)

    def _order_equal_devices(self) -> None:
        """Of devices that cannot be told apart, the one with the earlier first unit comes first."""
        for devices in self._classes:
            for earlier, later in pairwise(devices):
                for n, own in enumerate(self._x):
                    if later in own:
                        before = [other[earlier] for other in self._x[:n] if earlier in other]
                        self.program.clause([~own[later], *before])

    def _keep_all_but(self, free: Collection[int]) -> None:
        """Leave all units but some where the incumbent has them."""
        assert self._search.best is not None
        for n, chosen in enumerate(self._search.best[self._problem.unit_firsts].tolist()):
            if n not in free:
                self.program.clause([self._x[n][chosen]])

    def _canonical(self, devices: NDArray[np.int64]) -> list[int]:  # [unit]
        """The same placement with interchangeable devices in the order of their first unit."""
        renamed: dict[int, int] = {}
        for own in self._classes:
            used = list(dict.fromkeys(d for d in devices.tolist() if d in own))
            renamed |= dict(zip(used, own, strict=False))
        return [renamed[d] for d in devices.tolist()]

    def _hint(self, best: NDArray[np.uint8]) -> None:
        """The incumbent and its times."""
        units = np.array(self._canonical(best[self._problem.unit_firsts].astype(np.int64)))
        for own, chosen in zip(self._x, units.tolist(), strict=True):
            self.program.hint |= {x: int(d == chosen) for d, x in own.items()}
        if not self.scale.exact:
            return
        devices = self.devices(units)
        order = self._search.best_order if np.array_equal(devices, best) else None  # it may name devices
        placement = Placement(self._problem, devices, order)
        trace = simulate(self._problem, placement, memory="off")
        for variable, ticks in zip(self._start, trace.start_ticks.tolist(), strict=True):
            self.program.hint[variable] = self.scale.down(ticks)


def _neighbours(problem: Problem) -> list[list[int]]:  # [unit]
    """Units that read what a unit writes, or write what it reads."""
    found: list[dict[int, None]] = [{} for _ in range(problem.unit_count)]
    for a, b in problem.units[problem.graph.edges].tolist():
        found[a][b] = found[b][a] = None
    return [list(own) for own in found]


def _around(next_to: list[list[int]], rng: np.random.Generator) -> set[int]:
    """FREE_UNITS units near one that is drawn, and a few drawn from anywhere."""
    drawn = rng.permutation(len(next_to)).tolist()
    waiting, chosen = [drawn[0]], {drawn[0], *drawn[1 : FREE_UNITS // 4]}
    while waiting and len(chosen) < FREE_UNITS:
        for other in next_to[waiting.pop(0)]:
            if other not in chosen and len(chosen) < FREE_UNITS:
                chosen.add(other)
                waiting.append(other)
    return chosen


def interchangeable(problem: Problem, tables: Tables) -> list[list[int]]:
    """Devices in classes: exchanging two of a class changes no time, no memory and no channel."""
    duration, workspace = (
        np.array(table, dtype=np.int64).reshape(tables.operators, tables.devices)
        for table in (tables.duration, tables.workspace)
    )
    room = [device.usable_bytes for device in problem.cluster]
    matrices = [np.array(m) for m in (tables.latency, tables.gap, tables.ps_per_byte, tables.hops)]
    channel = np.array(tables.channel)
    for matrix in (*matrices, channel):
        np.fill_diagonal(matrix, 0)  # never used

    def equal(a: int, b: int) -> bool:
        swapped = np.arange(tables.devices)
        swapped[[a, b]] = b, a
        grid = np.ix_(swapped, swapped)
        return (
            room[a] == room[b]
            and np.array_equal(duration[:, a], duration[:, b])
            and np.array_equal(workspace[:, a], workspace[:, b])
            and all(np.array_equal(matrix[grid], matrix) for matrix in matrices)
            and _partition(channel[grid]) == _partition(channel)
        )

    classes: list[list[int]] = []
    for d in range(tables.devices):
        home = next((own for own in classes if equal(own[0], d)), None)
        if home is None:
            classes.append([d])
        else:
            home.append(d)
    return classes


def _partition(channel: NDArray[np.int64]) -> list[int]:
    """Channels between different devices, numbered by first appearance; what is no queue stays."""
    numbers: dict[int, int] = {NO_CHANNEL: NO_CHANNEL, BY_SENDER: BY_SENDER}
    count = len(channel)
    return [
        numbers.setdefault(int(channel[s, d]), len(numbers))
        for s in range(count)
        for d in range(count)
        if s != d
    ]
