"""One attempt at a problem: simple rules first, then a solver; whenever one asks, the best so far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from stead import clock
from stead.errors import Infeasible, SteadError
from stead.plan import Baseline
from stead.problem import Problem
from stead.sim.bounds import best_bound
from stead.solvers import Budget, Improvement, Search, Solution, Solver, solver, solver_names
from stead.solvers.auto import Auto, that_work
from stead.solvers.events import Event, Incumbent
from stead.solvers.phases import Phase
from stead.solvers.solution import Answers

if TYPE_CHECKING:
    from stead.placing.spread import Spread

BASELINES = (*(name for name in solver_names("rule") if name != "single"), "metis", "mtkahypar")
MANY_OPERATORS = 20_000  # beyond, rules that walk through trees of modules come after those that take no time
RULE_SHARE = 0.5  # of a time limit, for baselines
LARGE_RULE_SHARE = 0.2  # the same for graphs of so many operators, on which search needs the time more
DOUBTFUL_SHARE = 0.8  # of what is left of it where no rule fits: the rest is for a look at what would help
LEAST_RULE_SECONDS = 0.5  # that baselines may take before others are left out, however short the time limit is
LEAST_BOUND_SECONDS = 0.5  # for a bound at the end where the solver gives none


def run_baselines(
    problem: Problem, *, seed: int = 0, seconds: float = math.inf, answers: Answers | None = None
) -> tuple[Baseline, ...]:
    """Every simple rule, with its value or the reason why it has none; none begins after so many seconds.

    Rules that are among the `answers` are not asked again.
    """
    return tuple(rule for rule, _ in _outcomes(problem, seed, seconds, Budget(answers=answers or Answers())))


def _outcomes(
    problem: Problem, seed: int, seconds: float, whole: Budget
) -> Iterator[tuple[Baseline, Solution | None]]:
    """What rules find, one by one, each within what is left of the time."""
    end = clock.now() + seconds
    for name in _rules_in_order(problem):
        left = end - clock.now()
        if left < 0:
            yield Baseline(name, reason="left out: no time"), None
            continue
        if whole.on_step is not None:
            whole.on_step(f"rule {name}")
        yield _baseline(problem, name, seed, Budget(None if left == math.inf else left, answers=whole.answers))


def _rules_in_order(problem: Problem) -> list[str]:
    names = [*(f"single:{device}" for device in problem.cluster.names), *BASELINES]
    if len(problem.graph) <= MANY_OPERATORS:
        return names
    return sorted(names, key=lambda name: name.startswith("hf-"))


def _baseline(problem: Problem, name: str, seed: int, budget: Budget) -> tuple[Baseline, Solution | None]:
    rule = solver(name)
    reason = rule.unsupported(problem)
    if reason is not None:
        return Baseline(name, reason=reason), None
    try:
        found = (budget.answers or Answers()).ask(rule, problem, budget, seed)
    except SteadError as error:
        said = str(error).removeprefix(f"{rule.name} found no placement that works: ")
        return Baseline(name, reason=said), None
    return Baseline(name, found.objective_seconds, placement=found.placement), found


class Attempt:
    """One placement of a problem: what rules and the solver have found so far, whenever one asks."""

    def __init__(
        self,
        problem: Problem,
        chosen: Solver,
        budget: Budget,
        seed: int,
        known: Mapping[str, Solution] = MappingProxyType({}),
        spread: Spread | None = None,
    ) -> None:
        self._spread = spread
        self.rules: list[Baseline] = []
        self._budget = budget if budget.answers is not None else replace(budget, answers=Answers())
        self._problem, self._chosen, self._seed = problem, chosen, seed
        self._known = that_work(known, problem)  # what rules found, by name
        self._searches: list[Search] = []
        self._phases: list[Phase] = []
        self._began = clock.now()

    def run(self, *, baselines: bool) -> Solution:
        """The solver's answer with a bound; `auto` never returns less than a rule found."""
        try:
            if baselines:
                self._run_rules()
            found = self._bounded(self._solve())
        except KeyboardInterrupt:
            best = self._best_so_far()
            if best is None:
                raise
            found = best
        return replace(found, phases=(*self._phases, *found.phases))

    @property
    def _spent(self) -> float:
        return clock.now() - self._began

    def _run_rules(self) -> None:
        limit = math.inf if self._budget.seconds is None else self._budget.seconds
        share = limit if self._budget.evaluations is not None else max(self._rule_share * limit, LEAST_RULE_SECONDS)
        try:
            for rule, found in _outcomes(self._problem, self._seed, share, self._budget):
                self.rules.append(rule)
                self._tell_rule(rule)
                if found is not None:
                    self._tell(found)
                    before = self._known.get(rule.name, found)
                    self._known[rule.name] = min(found, before, key=lambda one: one.objective_seconds)
                    if found.interrupted:
                        raise KeyboardInterrupt
        finally:
            best = min((one.objective_seconds for one in self._known.values()), default=math.inf)
            count = sum(one.evaluations for one in self._known.values())
            ran = Phase("simple rules", f"{len(self.rules)} rules", runs=1, seconds=self._spent, evaluations=count)
            self._phases.append(replace(ran, after_seconds=best, gained_seconds=math.inf))

    def _tell(self, found: Solution) -> None:
        """Let who watches know of a rule that is better than those before."""
        best = min((one.objective_seconds for one in self._known.values()), default=math.inf)
        if self._budget.on_improvement is not None and found.objective_seconds < best:
            step = Improvement(self._spent, len(self.rules), found.objective_seconds, found_by=found.solver)
            self._budget.on_improvement(step)

    def _tell_rule(self, rule: Baseline) -> None:
        """Let who watches know what a rule gives; for `auto`, which takes the best of them, it is a start."""
        if self._budget.on_event is None:
            return
        seconds = math.inf if rule.objective_seconds is None else rule.objective_seconds
        count = len(self.rules)
        event = Event("baseline", count, seconds, found_by=rule.name, reason=rule.reason)
        self._budget.on_event(event)
        if rule.placement is not None and isinstance(self._chosen, Auto):
            held = Incumbent(rule.placement.devices, rule.placement.order, rule.placement.replicas)
            self._budget.on_event(replace(event, kind="improvement", incumbent=held))

    @property
    def _rule_share(self) -> float:
        return LARGE_RULE_SHARE if len(self._problem.graph) > MANY_OPERATORS else RULE_SHARE

    def _solve(self) -> Solution:
        """Run the solver with what rules leave of the budget."""
        budget = replace(self._rest(), on_search=self._searches.append)
        began = clock.now()
        try:
            if isinstance(self._chosen, Auto) and self._spread is not None:
                return self._spread.solve(self._chosen, self._problem, budget, self._seed, known=self._known)
            if isinstance(self._chosen, Auto):
                return self._chosen.solve(self._problem, budget, self._seed, known=self._known)
            found = self._chosen.solve(self._problem, budget, self._seed)
        except Infeasible:
            rule = self._best_rule()
            if rule is None or not isinstance(self._chosen, Auto):
                raise
            ended = self._searches[0].stopped_by if self._searches else "time"
            return replace(rule, stopped_by="finished" if ended == "proved" else ended)
        ran = Phase(self._chosen.name, "the solver that was asked for", runs=1, seconds=clock.now() - began)
        value = found.objective_seconds
        ran = replace(ran, evaluations=found.evaluations, after_seconds=value, gained_seconds=math.inf)
        return replace(found, phases=found.phases or (ran,))

    def _rest(self) -> Budget:
        """What is left for the solver: half of a time limit at least, unless the clock may only end the search."""
        if self._budget.seconds is None:
            return self._budget
        left = self._budget.seconds - self._spent
        if self._budget.evaluations is None:
            left = max(left, RULE_SHARE * self._budget.seconds)
            if self.rules and not self._known:
                left *= DOUBTFUL_SHARE
        return replace(self._budget, seconds=max(0.0, left))

    def _bounded(self, solution: Solution) -> Solution:
        """The solution with a bound over all placements if the solver gives none; an interrupt leaves it without."""
        if solution.bound_seconds > 0.0 or solution.interrupted:
            return solution
        limit, began = math.inf if self._budget.seconds is None else self._budget.seconds, clock.now()
        try:
            if self._budget.on_step is not None:
                self._budget.on_step("bounds")
            left = max(LEAST_BOUND_SECONDS, limit - self._spent)
            bound = best_bound(self._problem, seconds=limit, within=left)
        except KeyboardInterrupt:
            return replace(solution, interrupted=True, stopped_by="interrupted")
        value, spent = solution.objective_seconds, clock.now() - began
        ran = Phase("bounds", "what holds whatever the placement", "", "", 1, spent, 0, value, value)
        return replace(solution.with_bound(bound.seconds, bound.name), phases=(*solution.phases, ran))

    def _best_so_far(self) -> Solution | None:
        """The incumbent of the solver, or the best rule if that is better and the solver may use it."""
        search = self._searches[0] if self._searches else None
        if search is not None and search.best is not None:
            search.interrupted = True
            return search.solution()
        rule = self._best_rule()
        return None if rule is None else replace(rule, interrupted=True, stopped_by="interrupted")

    def _best_rule(self) -> Solution | None:
        best = min(self._known.items(), key=lambda item: item[1].objective_seconds, default=None)
        if best is None:
            return None
        name, found = best
        step = Improvement(0.0, 1, found.objective_seconds, found_by=name)
        return Solution(
            found.placement, found.objective_seconds, solver=self._chosen.name, found_by=name, seed=self._seed,
            evaluations=1, elapsed_seconds=self._spent, trail=(step,),
        )  # fmt: skip
