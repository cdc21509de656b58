"""`auto`: everything at hand that fits the question, cheapest first, until the gap is closed or the budget is spent.

First a list of steps, which is a function of the problem alone and can be read (`Auto().steps_for(problem)`): rules,
constructions, exact solvers where the problem is small enough for them. Then search with growing effort from the best
of what they found, until that no longer helps. All share one incumbent and one bound; a bound that holds for some
placements only is not taken for one over all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stead.problem import Latency, Placeto, Problem, Throughput
from stead.sim.bounds import best_bound
from stead.solvers.base import Budget, Search, Solution, Solver, solver
from stead.solvers.climb import climb
from stead.solvers.exact.anneal import Anneal
from stead.solvers.exact.limits import limited
from stead.solvers.exact.mincut import runs_in_turn
from stead.solvers.exact.throughput_mip import ThroughputMip
from stead.solvers.exhaustive import placement_count
from stead.solvers.schedules import Schedule
from stead.solvers.search import LocalSearch, schedule_of

MANY = 8_000  # operators beyond which constructions get more time than search
LARGE = 20_000  # operators beyond which only what takes about linear time is tried
HUGE = 200_000
POOL = 10  # placements that search begins with; a good end may begin at a poor one
STALLED = 1e-3  # improvement of a round, relative, below which it was in vain
VAIN_ROUNDS = 3  # in a row, after which search ends
CLOSE = 1e-4  # gap that is not worth more rounds
TINY_PROGRAM, PROGRAM_SIZE = 300, 3000  # units times devices
PROGRAM_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    """One member of a portfolio and the share of the remaining budget that it may take."""

    name: str
    share: float = 1.0
    options: tuple[tuple[str, object], ...] = ()

    def solver(self) -> Solver:
        """The member itself."""
        return solver(self.name, **dict(self.options))


@dataclass(frozen=True, slots=True)
class Auto:
    """Bounds, then the steps that suit objective and size, then search in rounds of doubled effort.

    It ends early when the gap is next to nothing, and when several rounds in a row improved next to nothing.
    """

    exhaustive_below: int = 20_000  # placements
    effort: int = 10_000  # evaluations of the first round of search
    moves: int = 2_000_000  # of the first round of annealing
    patience: int = 4096  # placements without improvement before climbing ends

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "auto"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Return the best placement any member finds, with the best bound."""
        search = Search(problem, budget, solver=self.name, seed=seed)
        with search.interruptible():
            bound = best_bound(problem)
            search.raise_bound(bound.seconds, bound.name)
            found: list[Solution] = []
            for step in self.steps_for(problem):
                if search.done:
                    break
                solution = search.try_solver(step.solver(), share=step.share)
                found += [solution] if solution is not None else []
            self._improve(search, found)
        return search.solution()

    def steps_for(self, problem: Problem) -> list[Step]:
        """The members for a problem, in order."""
        steps = [*_rules(problem), *_constructions(problem)]
        if placement_count(problem) <= self.exhaustive_below:
            steps.append(Step("exhaustive", options=(("max_placements", self.exhaustive_below),)))
        return [*steps, *_exact(problem)]

    def _improve(self, search: Search, found: list[Solution]) -> None:
        """Rounds of search that suit the objective, each twice as long; where there is none, hill climbing."""
        objective = search.problem.objective
        if isinstance(objective, Throughput) and objective.microbatches is None:
            for part in _rounds(search):
                Anneal(moves=self.moves << part).improve(search, part=part)
            _prove_by_program(search)
        elif _searches_orders(search.problem) and search.best is not None:
            for part in _rounds(search):
                LocalSearch(effort=self.effort << part).improve(search, _pool(search, found), part=part)
        if not search.done and len(search.problem.graph) <= LARGE:
            climb(search, patience=self.patience)


def _rounds(search: Search) -> Iterator[int]:
    """Numbers of rounds until the search is done or several in a row were in vain."""
    part = vain = 0
    while not search.done and vain < VAIN_ROUNDS and search.gap > CLOSE:
        before = search.best_seconds
        yield part
        vain = 0 if search.best_seconds < before * (1 - STALLED) else vain + 1
        part += 1


def _rules(problem: Problem) -> list[Step]:
    """What people do by hand."""
    quick = [Step("single"), Step("even"), Step("balanced"), Step("greedy_support"), Step("fit_memory")]
    return quick if len(problem.graph) > LARGE else [*quick, Step("split"), Step("hf_sequential")]


def _constructions(problem: Problem) -> list[Step]:
    """Quick ways to build a placement from nothing."""
    if isinstance(problem.objective, Latency) and problem.objective.execution != "dataflow":
        return []
    if len(problem.graph) > HUGE:
        return [Step("chunks", 0.3), Step("dfs-sticky", 0.3), Step("heft", 0.3)]
    names = ["chunks", "dfs-sticky", "heft"]
    if isinstance(problem.objective, Latency):
        names += ["etf", "m-etf", "m-sct", "peft"]
    most = 0.6 if len(problem.graph) > MANY else 0.3  # the larger the graph, the more constructions decide
    return [*(Step(name, 0.2) for name in names), Step("multilevel", most)]


def _exact(problem: Problem) -> list[Step]:
    """Solvers that prove what they find, where the problem is small enough for them."""
    objective = problem.objective
    if len(problem.graph) > LARGE:
        return (
            [Step("mincut")] if isinstance(objective, Latency) and objective.execution == "sequential" else []
        )
    if isinstance(objective, Throughput):
        if objective.microbatches is not None:
            return []
        orders = 16 if problem.unit_count <= 3000 else 2
        stages = [Step("linear-dp", 0.2, (("orders", orders),))]
        proof = Step("ideals", 0.3, (("max_pairs", 100_000_000), ("orders", orders)))
        return [*stages, proof] if problem.unit_count <= 3000 else stages
    if objective.execution == "sequential":
        return [Step("mincut")]
    if objective.execution == "offload":
        program = [Step("latency-mip", 0.6)] if problem.unit_count <= 150 else []
        return [Step("offload-linear", 0.6), *program]
    if runs_in_turn(problem):
        return [Step("mincut", 0.5)]
    small = problem.unit_count <= 16 and len(problem.graph) <= 64 and len(problem.cluster) <= 8
    return [Step("latency-cp", 0.5)] if small else []


def _searches_orders(problem: Problem) -> bool:
    objective = problem.objective
    return (
        isinstance(objective, Latency)
        and objective.execution == "dataflow"
        and not isinstance(objective.policy, Placeto)
    )


def _pool(search: Search, found: list[Solution]) -> list[Schedule]:
    """The incumbent and the best different placements beside it, each with the order in which it runs."""
    ranked = sorted(found, key=lambda solution: solution.objective_seconds)
    placements = dict.fromkeys([search.solution().placement, *(solution.placement for solution in ranked)])
    return [schedule_of(placement, "auto") for placement in list(placements)[:POOL]]


def _prove_by_program(search: Search) -> None:
    """Try to prove the incumbent of a tiny problem, or of a small one if there is a clock to stop the attempt."""
    problem = search.problem
    size = problem.unit_count * len(problem.cluster)
    small = size <= (TINY_PROGRAM if search.budget.seconds is None else PROGRAM_SIZE)
    if small and not search.done and search.gap > CLOSE:
        with limited(search, seconds=PROGRAM_SECONDS):
            ThroughputMip(contiguity="any").improve(search)
