"""`auto`: everything at hand that fits the question, cheapest first, until the gap is closed or the budget is spent.

First a list of steps, which is a function of the problem alone and can be read (`Auto().steps_for(problem)`): rules,
constructions, exact solvers where the problem is small enough for them. Then search with growing effort from the best
of what they found, until that no longer helps. All share one incumbent and one bound; a bound that holds for some
placements only is not taken for one over all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from stead.errors import BadInput
from stead.problem import Latency, Placement, PlacetoDispatch, Problem, Throughput
from stead.sim import simulate, simulate_many
from stead.solvers.build.schedules import Schedule
from stead.solvers.exact.exhaustive import placement_count
from stead.solvers.exact.mincut import runs_in_turn
from stead.solvers.exact.throughput_mip import ThroughputMip
from stead.solvers.part_budgets import limited, limited_share
from stead.solvers.registry import solver
from stead.solvers.search.anneal import Anneal
from stead.solvers.search.climb import climb
from stead.solvers.search.coarse_to_fine import descend
from stead.solvers.search.redivide import redivide
from stead.solvers.search.search import WORK_PER_SECOND, ScheduleSearch, schedule_of
from stead.solvers.search.stages import shift_stages
from stead.solvers.search.transfers import order_transfers
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution, Solver

HURRY = 2e-4  # seconds per operator below which coarser graphs come before constructions
PARTITIONING = 6e-5  # seconds per operator that a partitioner takes
LARGE = 20_000  # operators beyond which only what takes about linear time is tried
HUGE = 200_000
POOL = 10  # placements that search begins with; a good end may begin at a poor one
LEAST_EFFORT = 800  # evaluations for each of them
START_SHARE = 0.3  # of the time, for the solver that one asks to begin with
CONSTRUCTION_SHARE = 0.35  # of the time that is left, for all of them
COARSE_SHARE = 0.5  # of the time that is left, for search on coarser graphs
FIRST_SHARE = 0.75  # of the time that is left, for annealing before anything is to be proved
TRANSFER_TRIES = 200  # evaluations for the order of transfers where the first round of search gains nothing
STALLED = 1e-3  # improvement of a round, relative, below which it was in vain
VAIN_ROUNDS = 3  # in a row, after which search ends
CLOSE = 1e-4  # gap that is not worth more rounds
MOVES_PER_SECOND = 4_000_000  # of annealing
TINY_PROGRAM, PROGRAM_SIZE = 300, 3000  # units times devices
PROGRAM_SECONDS = 20.0
LEAST_REDIVIDING = 4.0  # seconds


@dataclass(frozen=True, slots=True)
class Step:
    """One member of a portfolio and the share of the remaining budget that it may take."""

    name: str
    share: float = 1.0
    options: tuple[tuple[str, object], ...] = ()
    least_seconds: float = 0.0  # that must be left for one that cannot be stopped

    def solver(self) -> Solver:
        """The member itself."""
        return solver(self.name, **dict(self.options))


@dataclass(frozen=True, slots=True)
class Auto:
    """Bounds, then the steps that suit objective and size, then search in rounds of doubled effort.

    It ends early when the gap is next to nothing, and when several rounds in a row improved next to nothing.
    """

    exhaustive_below: int = 20_000  # placements
    effort: int = 40_000  # evaluations of the first round of search
    moves: int = 4_000_000  # of the first round of annealing
    patience: int = 4096  # placements without improvement before climbing ends
    start: str = ""  # another solver to begin with, such as gdp; search goes on from its placement, too
    exact: bool = True  # whether solvers that prove what they find take part

    def __post_init__(self) -> None:
        if self.start == self.name:
            raise BadInput("auto: start is another solver, such as gdp")
        if self.start:
            solver(self.start)  # an unknown one is told now

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "auto"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Return the best placement any member finds, with the best bound."""
        return self.solve_from({}, problem, budget, seed)

    def solve_from(
        self, known: Mapping[str, Solution], problem: Problem, budget: Budget, seed: int = 0
    ) -> Solution:
        """The same with what rules found before, by name: they are not asked again.

        What does not work on this problem is left out.
        """
        search = Search(problem, budget, solver=self.name, seed=seed)
        with search.interruptible():
            known = that_work(known, problem)
            found = _taken(search, known, _rules(problem))
            search.relax()
            found += _tried(search, [*self._start(), *(step for step in _rules(problem) if step.name not in known)])
            coarse: list[Schedule] = []
            if _searches_orders(problem) and search.spare_seconds < HURRY * len(problem.graph):
                coarse = descend(search, share=COARSE_SHARE, effort=self.effort // 2)
            with limited_share(search, CONSTRUCTION_SHARE):
                found += _tried(search, _constructions(problem))
            found += _tried(search, self._exact(problem))
            self._improve(search, found, coarse)
        return search.solution()

    def steps_for(self, problem: Problem) -> list[Step]:
        """The members for a problem, in order; search comes last."""
        return [*self._start(), *_rules(problem), *_constructions(problem), *self._exact(problem)]

    def _start(self) -> list[Step]:
        if not self.start:
            return []
        polishes = hasattr(solver(self.start), "polish")  # which is what comes next here
        return [Step(self.start, START_SHARE, (("polish", False),) if polishes else ())]

    def _exact(self, problem: Problem) -> list[Step]:
        if not self.exact:
            return []
        if placement_count(problem) > self.exhaustive_below:
            return _exact(problem)
        everything = Step("exhaustive", options=(("max_placements", self.exhaustive_below),))
        return [everything, *_exact(problem)]

    def _improve(self, search: Search, found: list[Solution], coarse: list[Schedule]) -> None:
        """Rounds of search that suit the objective, each twice as long; where there is none, hill climbing."""
        objective = search.problem.objective
        if isinstance(objective, Throughput) and objective.microbatches is None:
            self._balance(search)
            _prove_by_program(search)
        elif _searches_orders(search.problem) and search.best is not None:
            self._search_orders(search, found, coarse)
        elif isinstance(objective, Throughput):
            search.doing("shifting stages")
            shift_stages(search)
        if not search.done and len(search.problem.graph) <= LARGE:
            search.doing("climbing")
            climb(search, patience=self.patience)

    def _balance(self, search: Search) -> None:
        """Anneal; after the first round try proofs, and where it gains nothing divide anew what busy devices hold."""
        for part in _rounds(search):
            search.doing(f"annealing, round {part + 1}")
            began, before = search.elapsed_seconds, search.best_seconds
            with limited_share(search, 1.0 if part else FIRST_SHARE):
                Anneal(moves=_moves(search, self.moves << part)).improve(search, part=part)
            stalled = search.best_seconds > before * (1 - STALLED)
            if part == 0:
                _tried(search, _proofs(search.problem))
            if stalled and search.budget.seconds is not None and _program_size(search) <= PROGRAM_SIZE:
                spent = 0.0 if search.counts else search.elapsed_seconds - began
                with limited(search, seconds=max(LEAST_REDIVIDING, spent)):
                    search.doing("dividing anew")
                    redivide(search)

    def _search_orders(self, search: Search, found: list[Solution], coarse: list[Schedule]) -> None:
        """Search from what constructions and coarser graphs say and, in every second round, from the best of all."""
        ranked = sorted(found, key=lambda solution: solution.objective_seconds)
        placements = list(dict.fromkeys(solution.placement for solution in ranked))[:POOL]
        starts = [schedule_of(placement, "auto") for placement in placements]
        best: list[Schedule] = []
        for part in _rounds(search):
            search.doing(f"search, round {part + 1}")
            effort, pool, before = self.effort << part, best, search.best_seconds
            with limited(search, seconds=_round_seconds(search, effort)):
                if part % 2 == 0:
                    if part or not coarse:
                        coarse = descend(search, share=COARSE_SHARE, effort=effort // 2, part=part)
                    pool = _in_turn(coarse, starts)[: _most_starts(search, effort)]
                best = [*ScheduleSearch(effort=effort).improve(search, pool, part=part), *best][:POOL]
            if search.best_seconds > before * (1 - STALLED):
                order_transfers(search, tries=TRANSFER_TRIES << part, part=part)


def _tried(search: Search, steps: list[Step]) -> list[Solution]:
    """What the members find, until the search is done."""
    found: list[Solution] = []
    for step in steps:
        if search.done:
            break
        if search.spare_seconds < step.least_seconds:
            continue
        search.doing(step.name)
        solution = search.try_solver(step.solver(), share=step.share)
        found += [solution] if solution is not None else []
    return found


def that_work(known: Mapping[str, Solution], problem: Problem) -> dict[str, Solution]:
    """What is known and works on a problem, with the simulator's seconds: a start may come from anywhere."""
    found = {}
    for name, solution in known.items():
        seconds = _seconds_of(solution.placement, problem)
        if seconds < math.inf:
            same = seconds == solution.objective_seconds
            found[name] = solution if same else replace(solution, objective_seconds=seconds)
    return found


def _seconds_of(placement: Placement, problem: Problem) -> float:
    """What the simulator says, without a trace if that can be; inf if the placement does not work."""
    if placement.replicas:
        trace = simulate(problem, placement)
        return trace.objective_seconds if trace.feasible else math.inf
    scores = simulate_many(problem, placement.devices[None, :], policy=placement.order)
    return float(scores.seconds[0]) if scores.feasible[0] else math.inf


def _taken(search: Search, known: Mapping[str, Solution], rules: list[Step]) -> list[Solution]:
    """What known rules found; those that would be tried anyway cost the evaluations that they would have cost."""
    own = [known[step.name] for step in rules if step.name in known]
    for solution in own:
        search.adopt(solution)
    for solution in known.values():
        search.adopt(replace(solution, evaluations=0))
    return own


def _in_turn(one: list[Schedule], other: list[Schedule]) -> list[Schedule]:
    """The first of both, the second of both, and so on."""
    pairs = zip_longest(one, other)
    return [schedule for pair in pairs for schedule in pair if schedule is not None]


def _most_starts(search: Search, effort: int) -> int:
    """As many as the time that is left suffices for."""
    evaluations = min(effort, search.spare_seconds * WORK_PER_SECOND / len(search.problem.graph))
    return min(POOL, max(2, int(evaluations / LEAST_EFFORT)))


def _round_seconds(search: Search, effort: int) -> float:
    """How long a round may take: to the end if the next one, of twice the effort, could not end before."""
    if search.spare_seconds == math.inf:
        return math.inf
    seconds = effort * len(search.problem.graph) / WORK_PER_SECOND
    return math.inf if search.spare_seconds < 3 * seconds else 2 * seconds


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
    quick = [Step("single"), Step("even"), Step("balanced"), Step("greedy-support"), Step("fit-memory")]
    return quick if len(problem.graph) > LARGE else [*quick, Step("split"), Step("hf-sequential")]


def _constructions(problem: Problem) -> list[Step]:
    """Quick ways to build a placement from nothing, the best one first where time may be short."""
    if isinstance(problem.objective, Latency) and problem.objective.execution != "dataflow":
        return []
    if len(problem.graph) > HUGE:
        return [Step("chunks", 0.3), Step("dfs-sticky", 0.3), Step("heft")]
    if _searches_orders(problem):
        others = "m-etf", "peft", "dfs-sticky", "m-sct", "chunks"
        return [Step("heft"), *(Step(name, 0.5) for name in others)]
    built = [*(Step(name, 0.2) for name in ("chunks", "dfs-sticky", "heft")), Step("multilevel")]
    if isinstance(problem.objective, Throughput):
        return [Step("mtkahypar", least_seconds=PARTITIONING * len(problem.graph)), *built]
    return built


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
        return [Step("linear-dp", 0.2, (("orders", 16 if problem.unit_count <= 3000 else 2),))]
    if objective.execution == "sequential":
        return [Step("mincut")]
    if objective.execution == "offload":
        if problem.unit_count > 150:
            return [Step("offload-linear")]  # its own local search is better than the climbing that comes last
        return [Step("offload-linear", 0.6), Step("latency-mip", 0.6)]
    if runs_in_turn(problem):
        return [Step("mincut", 0.5)]
    small = problem.unit_count <= 16 and len(problem.graph) <= 64 and len(problem.cluster) <= 8
    return [Step("latency-cp", 0.5)] if small else []


def _proofs(problem: Problem) -> list[Step]:
    """Solvers for full pipelines that take long to prove what search has often found before."""
    if problem.unit_count > 3000:
        return []
    return [Step("ideals", 0.3, (("max_pairs", 100_000_000), ("orders", 16)))]


def _searches_orders(problem: Problem) -> bool:
    objective = problem.objective
    return (
        isinstance(objective, Latency)
        and objective.execution == "dataflow"
        and not isinstance(objective.policy, PlacetoDispatch)
    )


def _moves(search: Search, moves: int) -> int:
    """So many moves, or as many as there is time for if a round of twice as many would not end."""
    most = search.spare_seconds * MOVES_PER_SECOND
    return int(most) if most < 3 * moves else moves


def _program_size(search: Search) -> int:
    return search.problem.unit_count * len(search.problem.cluster)


def _prove_by_program(search: Search) -> None:
    """Try to prove the incumbent of a tiny problem, or of a small one if there is a clock to stop the attempt."""
    small = _program_size(search) <= (TINY_PROGRAM if search.budget.seconds is None else PROGRAM_SIZE)
    if small and not search.done and search.gap > CLOSE:
        search.doing("integer program")
        with limited(search, seconds=PROGRAM_SECONDS):
            ThroughputMip(contiguity="any").improve(search)
