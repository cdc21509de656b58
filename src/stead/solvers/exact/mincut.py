"""`mincut`: the shortest sequential run; by minimum cut for two devices, by integer program for more.

Sequential costs add up, and so do those of a chain, where every operator waits for the one before it: ticks of every
unit where it is, and ticks of every tensor to every other device that reads it. For two devices such a sum is the value
of a cut in a network, so a minimum cut is an optimal placement (Stone, "Multiprocessor Scheduling with the Aid of
Network Flow Algorithms", IEEE TSE 1977). Three devices or more, or memory that binds, make the problem NP-hard: an
integer program as long as it is small, else exchanges between pairs of devices, each of them optimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stead.problem import Latency, PlacetoDispatch, Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.solvers.build.split import Split
from stead.solvers.exact.exchange import MOST_TICKS, exchange, longest_total
from stead.solvers.exact.programs.program import Engine, Settings, run
from stead.solvers.exact.sequential import SequentialCosts
from stead.solvers.exact.sequential_mip import SequentialProgram, size
from stead.solvers.few_devices import few_devices
from stead.solvers.part_budgets import limited
from stead.solvers.rules.settle import started
from stead.solvers.rules.simple import FitMemory
from stead.solvers.search.climb import climb_to_fit
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

CLOSING_EFFORT = 2.0  # deterministic seconds for CP-SAT to prove what HiGHS has within tolerances


@few_devices
@dataclass(frozen=True, slots=True)
class MinCut:
    """Exact for two devices with enough memory, whatever the size; else an integer program with its gap.

    The program is left out above `max_variables` and ends after `program_seconds`, so that a search without a budget
    ends as well. HiGHS finds the optimum within its tolerances; CP-SAT proves it in whole numbers, or the bound stays
    a millionth below.
    """

    engine: Engine = "highs"
    max_variables: int = 60_000
    program_seconds: float = 60.0

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "mincut"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes sequential latency, and that of chains."""
        if not runs_in_turn(problem):
            return "it needs costs that add up: latency with sequential execution, or of a chain of operators"
        if longest_total(SequentialCosts.of(problem)) >= MOST_TICKS:
            return "the times are too long to be added in whole picoseconds"
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Cut, exchange, and if that does not prove the answer, solve the program."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            search.relax()
            costs = SequentialCosts.of(problem)
            found = _best_by_exchange(search, costs)
            if not search.done and search.best is None:
                _make_fit(search)
            if not search.done:
                self._solve_program(search, costs, found)
        return search.solution()

    def _solve_program(self, search: Search, costs: SequentialCosts, found: NDArray[np.int64]) -> None:
        """With memory limits if weights can exceed them."""
        problem, variables = search.problem, size(costs)
        if variables > self.max_variables:
            search.notes.append(f"no program: it would have {variables} variables")
            _bound_by_cuts(search, costs)
            return
        least_room = min(device.usable_bytes for device in problem.cluster)
        scarce = int(problem.graph.weight_bytes.sum()) > least_room
        start = found if search.best is None else search.best[problem.unit_firsts].astype(np.int64)
        upper = costs.ticks(start)
        model = SequentialProgram.of(problem, costs, scarce_memory=scarce, upper_ticks=upper or MOST_TICKS)
        if search.best is not None:
            model.start_from(start)
        with limited(search, seconds=self.program_seconds):
            for settings in self._settings(search.seed):
                if search.done:
                    return
                outcome = run(
                    model.program,
                    search,
                    settings,
                    place=lambda values: model.devices(values)[problem.units].astype(np.uint8),
                    bound_seconds=model.scale.seconds,
                    bound_name="integer program",
                )
                if outcome.status == "infeasible":
                    search.notes.append("no placement holds all weights within the limits")
                if outcome.status != "optimal" or outcome.values is None:
                    return
                model.start_from(model.devices(outcome.values))

    def _settings(self, seed: int) -> list[Settings]:
        """The engines in the order in which they try; floating point leaves the last millionth to whole numbers."""
        if self.engine == "cp-sat":
            return [Settings("cp-sat", seed)]
        return [Settings(self.engine, seed), Settings("cp-sat", seed, effort=CLOSING_EFFORT)]


def runs_in_turn(problem: Problem) -> bool:
    """Whether one thing happens at a time: by the rules of execution, or because every operator feeds only the next."""
    objective, graph = problem.objective, problem.graph
    if not isinstance(objective, Latency) or objective.execution == "offload":
        return False
    if objective.execution == "sequential":
        return True
    if isinstance(objective.policy, PlacetoDispatch) or len(graph.edges) != max(0, len(graph) - 1):
        return False
    feeds_the_next = bool((graph.edges[:, 1] == graph.edges[:, 0] + 1).all())
    return feeds_the_next and bool((np.bincount(graph.tensor_producer, minlength=1) <= 1).all())


def _best_by_exchange(search: Search, costs: SequentialCosts) -> NDArray[np.int64]:  # [unit]
    """Exchange between pairs of devices until no pair can improve; every run on the way is offered.

    With two devices one exchange gives the shortest run of all, and a bound even if it does not fit.
    """
    devices = _quickest(costs)
    best: int | None = costs.ticks(devices)
    pairs = list(combinations(range(costs.devices), 2))
    if not pairs:
        _offer(search, devices)
    waiting = list(pairs)
    while waiting and not search.done:
        a, b = waiting.pop(0)
        outcome = exchange(costs, devices, a, b)
        if outcome is None:
            continue
        ticks, moved = outcome
        if len(pairs) == 1:
            search.raise_bound(ticks / TICKS_PER_SECOND, "minimum cut")
        if best is None or ticks < best or search.evaluations == 0:
            best, devices = ticks, moved
            _offer(search, devices)
            waiting += [pair for pair in pairs if pair not in waiting and pair != (a, b)]
    return devices


def _bound_by_cuts(search: Search, costs: SequentialCosts) -> None:
    """The minimum cut between each device and the best of all others is a bound, if there are more than two."""
    for d in range(costs.devices if costs.devices > 2 else 0):
        if search.done:
            return
        pair = costs.against_rest(d)
        found = exchange(pair, np.where(pair.allowed[:, 0], 0, 1).astype(np.int64), 0, 1)
        if found is not None:
            search.raise_bound(found[0] / TICKS_PER_SECOND, f"minimum cut around {search.problem.cluster.names[d]}")


def _quickest(costs: SequentialCosts) -> NDArray[np.int64]:  # [unit]
    """Everything on the device that does all it may do in the shortest time; what it may not, elsewhere."""
    if not len(costs.unit_ticks):
        return np.zeros(0, dtype=np.int64)
    elsewhere = np.where(costs.allowed, costs.unit_ticks, MOST_TICKS).argmin(axis=1)
    total = [np.where(costs.allowed[:, d], costs.unit_ticks[:, d], 0).sum() for d in range(costs.devices)]
    refused = (~costs.allowed).sum(axis=0)
    d = min(range(costs.devices), key=lambda d: (refused[d], total[d]))
    return np.where(costs.allowed[:, d], d, elsewhere).astype(np.int64)


def _make_fit(search: Search) -> None:
    """Find some placement that fits, so that there is an answer whatever the program does."""
    for member in (Split(), FitMemory()):
        if search.best is None and not search.done:
            search.try_solver(member)
    if search.best is None and not search.done:
        climb_to_fit(search)


def _offer(search: Search, devices: NDArray[np.int64]) -> None:
    search.offer(devices[search.problem.units].astype(np.uint8))
