"""`auto`: everything at hand that fits the question, cheapest first, until the gap is closed or the budget is spent.

It is a table of phases, which is a function of the problem alone and can be read (`Auto().steps_for(problem)`): rules,
constructions, exact solvers where the problem is small enough for them, then rounds of search with growing effort from
the best of what they found, until that no longer helps; what is left of the budget goes to new starts. All share one
incumbent and one bound; a bound that holds for some placements only is not taken for one over all. What each phase took
and gained is part of the solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, groupby, zip_longest
from types import MappingProxyType
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import SOLVER_DEVICES
from stead.errors import BadInput
from stead.problem import Placement, Problem, Throughput
from stead.sim import simulate, simulate_many
from stead.solvers.auto_steps import (
    Step,
    Tuning,
    constructions,
    first_answers,
    has_program_of,
    is_full_pipeline,
    late_provers,
    provers,
    rules,
    searches_orders,
)
from stead.solvers.build.list_scheduling import drawn_schedules
from stead.solvers.build.schedules import Schedule
from stead.solvers.exact.exhaustive import placement_count
from stead.solvers.exact.offload import lacks_time_for_calls, not_offload, reduced_calls
from stead.solvers.exact.reduction import Reduced
from stead.solvers.exact.throughput_mip import ThroughputMip
from stead.solvers.part_budgets import limited, limited_share
from stead.solvers.phases import Phase, Phases
from stead.solvers.registry import solver
from stead.solvers.rounds import Rounds
from stead.solvers.search.anneal import Anneal
from stead.solvers.search.call_moves import improve_calls
from stead.solvers.search.climb import climb, climb_again
from stead.solvers.search.coarse_to_fine import Ladder, descend
from stead.solvers.search.crossing import crossed
from stead.solvers.search.redivide import redivide
from stead.solvers.search.search import WORK_PER_SECOND, ScheduleSearch, schedule_of
from stead.solvers.search.stages import shift_stages
from stead.solvers.search.strips import layers, search_strips
from stead.solvers.search.transfers import order_transfers
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

ELITES = 2  # of a new start, and of all before it, from which search goes on together
NESTED_SHARE = 1 / 8  # of counted evaluations, for a run that is whole by itself ...
LEAST_NESTED = 24_000  # ... where so many are counted: fewer are spent in a second or two
NEW_PARTS = 2**20  # new starts draw other numbers than any round
CROSSED = 2**24  # crossings draw others than either
BUILDING = ("bounds", "start", "first answers", "rules", "constructions", "exact")  # rows that need no incumbent
T = TypeVar("T")
START = "start"  # what a placement is known by that search begins with


@dataclass(frozen=True, slots=True)
class Row(Phase):
    """A row of the table of `auto`: a phase that is still to be run."""

    run: Callable[[_Run, Row], None] = field(default=lambda run, row: None, repr=False, compare=False)
    not_now: Callable[[_Run], str] = field(default=lambda run: "", repr=False, compare=False)  # why, at its turn
    steps: tuple[Step, ...] = ()
    each_round: bool = False

    @property
    def record(self) -> Phase:
        """What is known of the phase before it runs."""
        return Phase(self.name, self.does, self.limit, self.why_not)


@dataclass(frozen=True, slots=True)
class Auto:
    """Bounds, then the steps that suit objective and size, then search in rounds of doubled effort.

    It ends early when the gap is next to nothing, and when several rounds in a row improved next to nothing.
    """

    name: ClassVar[str] = "auto"
    exhaustive_below: int = 20_000  # placements
    effort: int = 40_000  # evaluations of the first round of search
    moves: int = 4_000_000  # of the first round of annealing
    patience: int = 4096  # placements without improvement before climbing ends
    start: str = ""  # another solver to begin with, such as gdp; search goes on from its placement, too
    exact: bool = True  # whether solvers that prove what they find take part
    tuning: Tuning = Tuning()  # noqa: RUF009 (a frozen value)

    def __post_init__(self) -> None:
        if self.start == self.name:
            raise BadInput("auto: start is another solver, such as gdp")
        if self.start:
            solver(self.start)  # an unknown one is told now

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(
        self,
        problem: Problem,
        budget: Budget,
        seed: int = 0,
        *,
        known: Mapping[str, Solution] = MappingProxyType({}),
        goes_on: bool = False,
    ) -> Solution:
        """Return the best placement any phase finds, with the best bound; never less than what is `known` before.

        What is known and does not work on this problem is left out. One that `goes_on` searches from what is known and
        builds nothing anew.
        """
        search = Search(problem, budget, solver=self.name, seed=seed)
        table = self.steps_for(problem)
        if goes_on:
            table = [replace(row, why_not="built before") if row.name in BUILDING else row for row in table]
        elif (budget.evaluations or 0) >= LEAST_NESTED:
            does, limit = "all of this with fewer evaluations", f"{NESTED_SHARE:.1%} of them"
            table.insert(0, Row("less effort first", does, limit, run=_Run.solve_with_less))
        run = _Run(self, search, Phases(search, [row.record for row in table]))
        with search.interruptible():
            run.known = known = that_work(known, problem)
            own = [step.name for row in table for step in row.steps if step.name in known]  # first, as without `known`
            for name in dict.fromkeys([*own, *known]):
                search.adopt(replace(known[name], evaluations=0))
            run.begin_with(known.get(START))
            for each_round, rows in groupby(table, key=lambda row: row.each_round):
                (run.rounds if each_round else run.once)([row for row in rows if not row.why_not])
        search.phases = run.phases.ended()
        return search.solution()

    def steps_for(self, problem: Problem) -> list[Row]:
        """The whole table for a problem, in order; rows that do not apply say why."""
        tuning, objective = self.tuning, problem.objective
        if len(problem.cluster) > SOLVER_DEVICES:
            bounds = Row("bounds", "what holds whatever the placement", "a tenth of the time", run=_Run.bound)
            return [bounds, _asks("part by part", (Step("hierarchical"),))]
        full = is_full_pipeline(problem)
        no_orders = "" if searches_orders(problem) else "only for the latency of dataflow execution"
        not_full = "" if full else "only for the throughput of full pipelines"
        no_stages = "" if isinstance(objective, Throughput) and not full else "only for pipelines of micro-batches"
        above = f"units times devices are more than {tuning.program_size}"
        no_program = not_full or ("" if has_program_of(problem, tuning.program_size) else above)
        many = f"more than {tuning.large} operators" if len(problem.graph) > tuning.large else ""
        no_exact = "too large to prove anything" if self.exact else "switched off"
        coarse, coarse_share = "search on graphs of clusters", f"{tuning.coarse_share:.0%} of what is left"
        return [
            Row("bounds", "what holds whatever the placement", "a tenth of the time", run=_Run.bound),
            _asks("start", self._start(), "no solver was named to begin with",
                  f"{tuning.start_share:.0%} of what is left"),
            _asks("first answers", first_answers(problem), no_orders, not_now=_Run.has_time),
            Row("coarse levels first", coarse, coarse_share, no_orders, run=_Run.levels, not_now=_Run.has_time),
            _asks("rules", rules(problem, tuning), run=_Run.follow_rules),
            _asks("constructions", constructions(problem, tuning), "only for dataflow execution and throughput",
                  f"{tuning.construction_share:.0%} of what is left", run=_Run.construct),
            _asks("exact", self._exact(problem), no_exact),
            Row("shifting stages", "borders of stages", why_not=no_stages, run=_Run.shift),
            Row("strips", "search on layers cut along time", f"{tuning.strip_share:.0%} of what is left", no_orders,
                run=_Run.strips, not_now=_Run.is_not_unrolled),
            Row("coarse levels", coarse, f"in every second round, {coarse_share}", no_orders,
                run=_Run.levels, not_now=_Run.levels_rest, each_round=True),
            Row("search", "moves of devices and in the order", f"{self.effort} evaluations, doubled each round",
                no_orders, run=_Run.search_orders, each_round=True),
            Row("transfers", "the order of transfers", f"{tuning.transfer_tries} evaluations, doubled each round",
                no_orders, run=_Run.order_transfers, not_now=_Run.has_gained, each_round=True),
            Row("annealing", "moves and swaps of units", f"{self.moves} moves, doubled each round", not_full,
                run=_Run.anneal, each_round=True),
            Row("dividing anew first", "what some busy devices hold",
                f"first round, {tuning.dividing_share:.0%} of what is left", no_program,
                run=_Run.redivide_first, not_now=_Run.may_not_redivide_first, each_round=True),
            Row("early program", "throughput-mip", f"first round, up to {tuning.program_share:.0%} of what is left",
                no_program, run=_Run.prove_early, not_now=_Run.may_not_prove_early, each_round=True),
            _asks("proofs", late_provers(problem, tuning), not_full or no_exact, "after the first round",
                  not_now=_Run.is_later, each_round=True),
            Row("dividing anew", "what some busy devices hold", "as long as its round", no_program,
                run=_Run.redivide, not_now=_Run.may_not_redivide, each_round=True),
            Row("integer program", "throughput-mip", f"{tuning.program_seconds:g} s", no_program,
                run=_Run.prove_by_program, not_now=_Run.may_not_prove),
            Row("climbing", "moves of one unit", f"{self.patience} placements without improvement", many,
                run=_Run.climb),
            Row("starting again", "from what is drawn anew", f"{tuning.vain_work:g} times as long as all before it",
                "" if full or not no_orders else many, run=_Run.start_again, not_now=_Run.has_no_reason),
        ]  # fmt: skip

    def _start(self) -> tuple[Step, ...]:
        if not self.start:
            return ()
        polishes = hasattr(solver(self.start), "polish")  # which is what comes next here
        return (Step(self.start, self.tuning.start_share, (("polish", False),) if polishes else ()),)

    def _exact(self, problem: Problem) -> tuple[Step, ...]:
        if not self.exact:
            return ()
        if placement_count(problem) > self.exhaustive_below:
            return provers(problem, self.tuning)
        everything = Step("exhaustive", options=(("max_placements", self.exhaustive_below),))
        return (everything, *provers(problem, self.tuning))


@dataclass(frozen=True, slots=True, eq=False)
class _Knowing:
    """`auto` with what is known before, as a solver among others."""

    auto: Auto
    known: Mapping[str, Solution]

    @property
    def name(self) -> str:
        """The name it is called by."""
        return self.auto.name

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """What `auto` finds."""
        return self.auto.solve(problem, budget, seed, known=self.known)


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


class _Run:
    """One solve: the table at work, and what its phases hand to each other."""

    def __init__(self, auto: Auto, search: Search, phases: Phases) -> None:
        self.search, self.phases = search, phases
        self._auto, self._tuning = auto, auto.tuning
        self._rounds = Rounds(search, auto.tuning, auto.effort)
        self.known: Mapping[str, Solution] = {}
        self._found: list[Solution] = []  # by steps
        self._layers: NDArray[np.int64] | None = None  # [operator]; of an unrolled network
        self._strips: list[Schedule] = []  # what pieces of layers say
        self._coarse: list[Schedule] = []  # what coarser graphs say
        self._starts: list[Schedule] = []  # what steps say, best first
        self._elites: list[Schedule] = []  # of all that search left, best first
        self._part = 0  # the round
        self._began = self._ends = 0.0  # the round, in elapsed seconds
        self._before_seconds = math.inf  # the objective at its beginning
        self._stalled = False
        self._over = False

    @cached_property
    def _in_a_hurry(self) -> bool:
        """Whether bounds have left too little time for rules and constructions first."""
        return self.search.spare_seconds < self._tuning.hurry * len(self.search.problem.graph)

    @cached_property
    def _calls(self) -> Reduced | None:
        """Supernodes of calls, where accelerators are called and there is time to make them."""
        search = self.search
        none = not_offload(search.problem) is not None or lacks_time_for_calls(search)
        return None if none else reduced_calls(search.problem)

    @cached_property
    def _ladder(self) -> Ladder:
        """The coarser graphs, each made when it is first searched."""
        return Ladder()

    def begin_with(self, given: Solution | None) -> None:
        """Let search go on from a placement that was given."""
        self._found += [given] if given is not None else []

    def once(self, rows: list[Row]) -> None:
        """Run phases one after another."""
        for row in rows:
            self._do(row)

    def rounds(self, rows: list[Row]) -> None:
        """Run phases in turn, over and over, until the search is done or several rounds in a row were in vain."""
        search, tuning, vain = self.search, self._tuning, 0
        for row in rows:
            if search.best is None and searches_orders(search.problem):
                self.phases.skipped(row.name, "nothing was found that fits")
                vain = tuning.vain_rounds
            elif search.gap <= tuning.close and not search.done:
                self.phases.skipped(row.name, "the gap is next to nothing")
        while rows and not search.done and vain < tuning.vain_rounds and search.gap > tuning.close:
            self._before_seconds, self._began = search.best_seconds, search.elapsed_seconds
            self._ends = self._began + self._rounds.seconds(self._part)
            for row in rows:
                self._do(row)
            vain = 0 if search.best_seconds < self._before_seconds * (1 - tuning.stalled) else vain + 1
            self._part += 1

    def _do(self, row: Row) -> None:
        """Run a phase if it is its turn; the bound is raised even if the search is done."""
        self._over = self._over or (self.search.done and row.name != "bounds")  # then the clock is left alone
        if self._over:
            return
        why_not = row.not_now(self)
        if why_not:
            self.phases.skipped(row.name, why_not)
            return
        if not row.steps:
            self.search.doing(f"{row.name}, round {self._part + 1}" if row.each_round else row.name)
        with self.phases.running(row.name), self._round_of(row):
            row.run(self, row)

    def _round_of(self, row: Row) -> AbstractContextManager[None]:
        """What is done in a round counts as a part of its phase, unless the solvers do that it asks."""
        one_of_many = row.each_round and not row.steps
        return self.phases.part(f"round {self._part + 1}") if one_of_many else nullcontext()

    def has_time(self) -> str:
        """Whether there is time for rules and constructions first."""
        return "" if self._in_a_hurry else "time is not short"

    def levels_rest(self) -> str:
        """Whether it is the turn of single operators alone."""
        if self._part and (self._rounds.goes_on(self._part) or self._rounds.are_attempts):
            return "in the first of several attempts" if self._rounds.are_attempts else "every second round"
        return "they came first" if self._coarse and not self._part else ""

    def is_not_unrolled(self) -> str:
        """Whether few operators share a weight, or there are too many to look."""
        problem, most = self.search.problem, self._tuning.huge
        if len(problem.graph) > most:
            return f"more than {most} operators"
        self._layers = layers(problem)
        return "no weight is used in many steps" if self._layers is None else ""

    def has_gained(self) -> str:
        """Whether the search of this round was worth it."""
        return "" if self._stalled else "every round of search gained"

    def is_later(self) -> str:
        """Whether the first round is over."""
        return "after the first round" if self._part else ""

    def may_not_redivide(self) -> str:
        """Whether dividing anew has no clock to stop it, or no reason."""
        return self.has_gained() or ("" if self.search.budget.seconds is not None else "no clock to stop it")

    def may_not_redivide_first(self) -> str:
        """Whether a program would rather prove what annealing has found, or the first round is over."""
        if has_program_of(self.search.problem, self._tuning.quick_program):
            return f"units times devices are no more than {self._tuning.quick_program}"
        if self._part:
            return "in the first round only"
        return "" if self.search.budget.seconds is not None else "no clock to stop it"

    def may_not_prove(self) -> str:
        """Whether a program would take too long, or is not worth it."""
        if self.search.gap <= self._tuning.close:
            return "the gap is next to nothing"
        tiny = has_program_of(self.search.problem, self._tuning.tiny_program)
        return "" if tiny or self.search.budget.seconds is not None else "no clock to stop it"

    def has_no_reason(self) -> str:
        """Whether there is nothing to start again for: no budget to be spent, or nothing to be had."""
        if self.search.best is None:
            return "nothing was found that fits"
        if self.search.gap <= self._tuning.close:
            return "the gap is next to nothing"
        return "" if self.search.counts or self.search.budget.seconds is not None else "no limit to be used up"

    def may_not_prove_early(self) -> str:
        """Whether the first round is over, or no clock gives out shares."""
        if self.search.counts or self.search.budget.seconds is None:
            return "no clock to give it a share"
        if not has_program_of(self.search.problem, self._tuning.early_program):
            return f"units times devices are more than {self._tuning.early_program}"
        return "in the first round only" if self._part else self.may_not_prove()

    def solve_with_less(self, row: Row) -> None:
        """Find what a run with a share of the evaluations finds, so that more of them never lead to less.

        Shares of phases and the cooling of search depend on the budget: a longer run is not a shorter one that goes on.
        """
        solution = self.search.try_solver(_Knowing(self._auto, self.known), share=NESTED_SHARE)
        self._found += [solution] if solution is not None else []

    def bound(self, row: Row) -> None:
        """Raise the bound."""
        self.search.relax()

    def try_steps(self, row: Row) -> None:
        """Ask the solvers of a phase, until the search is done."""
        search = self.search
        for step in row.steps:
            if search.done:
                break
            if self._lacks_time_for(step):
                self.phases.skipped_part(step.name, "it would take longer than is left for it")
                continue
            search.doing(step.name)
            in_vain = step.in_vain(search.problem, search.bound_seconds)
            if in_vain:
                self.phases.skipped_part(step.name, in_vain)
                continue
            share = step.counted_share if search.counts and step.counted_share else step.share
            with self.phases.part(step.name):
                solution = search.try_solver(step.solver(), share=share)
            self._found += [solution] if solution is not None else []

    def _lacks_time_for(self, step: Step) -> bool:
        """Whether less is left than a step needs; counted evaluations are as good as the seconds that they take.

        What needs little is done however few are counted, as proofs of small problems are worth more than that.
        """
        search, pace = self.search, WORK_PER_SECOND / max(1, len(self.search.problem.graph))
        if search.remaining_evaluations is None:
            return search.spare_seconds < step.least_seconds
        if step.least_seconds <= self._tuning.little_seconds:
            return False
        return search.remaining_evaluations / pace < step.least_seconds

    def follow_rules(self, row: Row) -> None:
        """Ask rules of thumb; in a hurry within a share, as there are better answers already."""
        share = self._tuning.rule_share if self._in_a_hurry and self.search.best is not None else 1.0
        with limited_share(self.search, share):
            self.try_steps(row)

    def construct(self, row: Row) -> None:
        """Build placements from nothing, within a share of what is left."""
        with limited_share(self.search, self._tuning.construction_share):
            self.try_steps(row)

    def shift(self, row: Row) -> None:
        """Shift the borders of stages."""
        shift_stages(self.search)

    def strips(self, row: Row) -> None:
        """Search pieces of layers, where a network is unrolled."""
        self._strips = search_strips(self.search, self._layers, self._constructed(), share=self._tuning.strip_share)

    def levels(self, row: Row) -> None:
        """Search coarser graphs, in a round within what that may take."""
        tuning, effort = self._tuning, self._rounds.share(self._part)
        timed = not self.search.counts and math.isfinite(self.search.spare_seconds)
        large = row.each_round and not self._rounds.small
        ample = timed and (large or self._rounds.evaluations_left() >= tuning.ample)
        share = tuning.ample_coarse_share if ample else tuning.coarse_share
        with self._within_round() if row.each_round else nullcontext():
            self._coarse = descend(self.search, self._ladder, share=share, effort=effort // 2, part=self._part)

    def search_orders(self, row: Row) -> None:
        """Search from what constructions and coarser graphs say, from what is drawn anew, or from the best of all."""
        effort, part = self._rounds.effort(self._part), self._part
        if not part:
            self._starts = self._constructed(self._strips)
        with self._within_round():
            if self._rounds.goes_on(part):
                self._go_on(self._elites, effort, part)
            else:
                pool = self._first_states(self._rounds.most_starts(effort))
                self._keep(ScheduleSearch(effort=effort).improve(self.search, pool, part=part))
        self._stalled = self._has_stalled()

    def _go_on(self, best: list[Schedule], effort: int, part: int) -> None:
        """Search from the best of all or, where there are several attempts, again and again from crossings of them."""
        search, tuning = self.search, self._tuning
        if not self._rounds.are_attempts:
            self._keep(ScheduleSearch(effort=effort).improve(search, best, part=part, settled=True))
            return
        each, end = tuning.crossing_effort * len(search.problem.graph), search.evaluations + effort
        for number in count():
            before = search.evaluations
            crossings = crossed(search.problem, self._elites, tuning.crossings, (search.seed, part, number, 4))
            one = ScheduleSearch(effort=min(each, end - before))
            self._keep(one.improve(search, crossings or best, part=part + CROSSED * (number + 1), settled=True)[:1])
            if search.done or search.evaluations == before or search.evaluations >= end:
                break

    def _first_states(self, most: int) -> list[Schedule]:
        """What a round that begins anew begins with: what steps say or, in every second attempt, what is drawn."""
        if self._rounds.draws(self._part):
            return drawn_schedules(self.search, most, part=self._part)
        coarse = self._coarse if self._rounds.small else self._coarse[:1]
        return _in_turn(coarse, self._starts)[:most]

    def _constructed(self, others: Sequence[Schedule] = ()) -> list[Schedule]:
        """What steps say and others found, best first."""
        ranked = sorted(self._found, key=lambda solution: solution.objective_seconds)
        different = first_of_each(ranked, key=lambda solution: solution.placement.devices.tobytes())
        built = [(one.objective_seconds, schedule_of(one.placement, "auto")) for one in different[: self._tuning.pool]]
        both = sorted([*built, *((one.seconds, one) for one in others)], key=lambda pair: pair[0])
        return [schedule for _, schedule in both[: self._tuning.pool]]

    def order_transfers(self, row: Row) -> None:
        """Look for a better order of transfers."""
        tries = self._tuning.transfer_tries << self._rounds.doublings(self._part)
        order_transfers(self.search, tries=tries, part=self._part)

    def anneal(self, row: Row) -> None:
        """Anneal, in the first round not to the end."""
        search = self.search
        with limited_share(search, 1.0 if self._part else self._tuning.first_share):
            Anneal(moves=self._rounds.moves(self._auto.moves << self._part)).improve(search, part=self._part)
        self._stalled = self._has_stalled()

    def redivide(self, row: Row) -> None:
        """Divide anew what busy devices hold."""
        search = self.search
        spent = 0.0 if search.counts else search.elapsed_seconds - self._began
        with limited(search, seconds=max(self._tuning.least_redividing, spent)):
            redivide(search)

    def redivide_first(self, row: Row) -> None:
        """Divide anew what annealing could not improve, before a program takes long over a poor incumbent."""
        with limited_share(self.search, self._tuning.dividing_share):
            redivide(self.search)

    def prove_by_program(self, row: Row) -> None:
        """Try to prove the incumbent."""
        with limited(self.search, seconds=self._tuning.program_seconds):
            ThroughputMip(contiguity="any").improve(self.search)

    def prove_early(self, row: Row) -> None:
        """Try to prove what a first round of annealing has found."""
        before = self.search.elapsed_seconds
        with limited_share(self.search, self._tuning.program_share):
            ThroughputMip(contiguity="any", links="quickest").improve(self.search)
        self._began += self.search.elapsed_seconds - before  # what the round took without it

    def climb(self, row: Row) -> None:
        """Climb until nothing improves any more."""
        climb(self.search, patience=self._auto.patience)

    def start_again(self, row: Row) -> None:
        """Search from what is drawn anew until the budget is spent or all has been in vain for long.

        The incumbent is left alone, so that it is not found again; only then search goes on from the best of both.
        """
        search, tuning = self.search, self._tuning
        problem, vain, since, idle = search.problem, 0, search.evaluations, False
        for number in count():
            worked = idle or search.evaluations >= (1 + tuning.vain_work) * since
            if search.done or (vain >= tuning.vain_restarts and worked) or search.gap <= tuning.close:
                break
            before, spent = search.best_seconds, search.evaluations
            with self.phases.part(f"new start {number + 1}"):
                if searches_orders(problem):
                    self._search_again(self._rounds.new_start << number // 2, NEW_PARTS + 2 * number)
                elif is_full_pipeline(problem):
                    self._anneal_again(self._auto.moves << number // 2, NEW_PARTS + 2 * number)
                elif self._calls is not None and search.best is not None:
                    improve_calls(search, self._calls, patience=tuning.call_tries, part=NEW_PARTS + number)
                else:
                    climb_again(search, patience=tuning.kick_tries, kicks=tuning.kicks, part=number)
            vain, since = (vain + 1, since) if search.best_seconds >= before else (0, search.evaluations)
            idle = search.evaluations == spent  # there is nothing to try: more restarts would never end
        if vain and not search.done:
            search.notes.append(f"stalled: {vain} new starts in a row found nothing better")

    def _search_again(self, effort: int, part: int) -> None:
        """Search orders from constructions that are drawn, then from the best of these and of all before."""
        search, one = self.search, ScheduleSearch(effort=effort)
        found = one.improve(search, drawn_schedules(search, self._rounds.most_starts(effort), part=part), part=part)
        elites = [*found[:ELITES], *self._elites[:ELITES]]
        self._keep(found)
        self._go_on(elites, effort, part + 1)

    def _keep(self, found: list[Schedule]) -> None:
        """Take up what a search left among the best of all; a later one that found less pushes nothing out."""
        ranked = sorted([*found, *self._elites], key=lambda schedule: schedule.seconds)
        self._elites = first_of_each(ranked, key=lambda schedule: schedule.devices.tobytes())[: self._tuning.pool]

    def _anneal_again(self, moves: int, part: int) -> None:
        """Anneal from nothing, then from the best of all."""
        Anneal(moves=moves).improve(self.search, part=part, afresh=True)
        Anneal(moves=moves).improve(self.search, part=part + 1)

    def _has_stalled(self) -> bool:
        return self.search.best_seconds > self._before_seconds * (1 - self._tuning.stalled)

    def _within_round(self) -> AbstractContextManager[None]:
        return limited(self.search, seconds=self._ends - self.search.elapsed_seconds)


def _asks(
    name: str,
    steps: tuple[Step, ...],
    why_none: str = "",
    limit: str = "",
    *,
    run: Callable[[_Run, Row], None] = _Run.try_steps,
    not_now: Callable[[_Run], str] = lambda run: "",
    each_round: bool = False,
) -> Row:
    """A row that asks solvers; where there are none to ask, one that says why."""
    does = ", ".join(step.name for step in steps)
    return Row(
        name, does, limit, "" if steps else why_none, run=run, not_now=not_now, steps=steps, each_round=each_round
    )


def first_of_each(ranked: list[T], key: Callable[[T], bytes]) -> list[T]:
    """The first of those with equal keys, in their order."""
    found: dict[bytes, T] = {}
    for one in ranked:
        found.setdefault(key(one), one)
    return list(found.values())


def _in_turn(one: list[Schedule], other: list[Schedule]) -> list[Schedule]:
    """The first of both, the second of both, and so on."""
    pairs = zip_longest(one, other)
    return [schedule for pair in pairs for schedule in pair if schedule is not None]
