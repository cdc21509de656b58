"""place(): the one call that goes from a model and devices to a Plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stead import clock
from stead.cluster import Cluster
from stead.costs import Profile
from stead.errors import BadInput, Infeasible, did_you_mean
from stead.graph import Graph
from stead.placing.attempt import LEAST_RULE_SECONDS, Attempt, run_baselines
from stead.placing.loading import Loaded, load
from stead.plan import Baseline, Plan, provenance
from stead.problem import Constraints, Objective, Placement, Problem, objective_from
from stead.readers import Model
from stead.report.granularity import GRANULARITIES, Granularity, Levels
from stead.report.learning_curve import KEPT as LEARNING
from stead.report.learning_curve import curve_document
from stead.sim import Bound
from stead.sim.bounds import best_bound
from stead.solvers import Budget, Improvement, Solution, Solver
from stead.solvers import solver as solver_named
from stead.solvers.auto import START, Auto
from stead.solvers.events import Event
from stead.solvers.search_state import BOUND_SHARE
from stead.solvers.solution import Answers
from stead.solvers.whole_blocks import (
    BLOCKS,
    EXPERT_GROUPS,
    experts_together,
    is_language_model,
    said_of_all,
    whole_blocks,
)

if TYPE_CHECKING:
    from stead.placing.spread import Spread

Start = Callable[[Problem], Placement]  # a placement to begin with, once the problem is known

TIME_LIMIT_SECONDS = 60.0
BLOCK_SHARE = 0.7  # of a budget, for whole blocks where operators are looked at, too
HUGE = 200_000  # operators from which on the time limit leaves room for what follows: telling of a plan and writing it
TELLING_SECONDS, TELLING_SHARE = 1.6e-5, 0.25  # per operator, and at most of the time limit
LEAST_FIX_SECONDS, FIX_SHARE = 1.0, 0.05  # for a look at what would help, whatever the search has left of the time


def place(
    model: str | Path | Graph | Model | Loaded,
    devices: str | Path | Cluster | Sequence[str] | None = None,
    *,
    objective: str | Objective = "latency",
    solver: str | Solver = "auto",
    time_limit: float | None = TIME_LIMIT_SECONDS,
    evaluations: int | None = None,
    seed: int = 0,
    constraints: Constraints | None = None,
    baselines: bool = True,
    options: Mapping[str, Any] | None = None,
    profiles: Sequence[Profile] = (),
    granularity: Granularity = "auto",
    on_improvement: Callable[[Improvement], None] | None = None,
    on_step: Callable[[str], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    start: Start | None = None,
    spread: Spread | None = None,
) -> Plan:
    """Find the best placement of a model on devices.

    `model` is what `load` takes, or what it gave. `options` are those of the model's reader, `profiles` measured
    seconds that correct analytic ones. `granularity` "block" keeps the blocks of a model whole, as runtimes load them,
    "operator" places every operator by itself, and "auto" splits the blocks of language models only where that pays.
    `on_improvement`, `on_step` and `on_event` are told of progress; an interrupt, wherever it comes, leaves the best
    plan so far. `start` gives a placement of the problem for `auto` to begin with, `spread` an engine to search on.
    Where nothing fits, `fixes` of the error are the smallest changes that help, looked for when asked for.

    >>> from stead.workloads.demo import demo_graph
    >>> plan = place(demo_graph(), "3090,3060", objective="latency", evaluations=200)
    >>> plan.solution.gap < 1
    True
    """
    if not isinstance(model, Loaded):
        loaded = load(model, devices, options=options, profiles=profiles)
    elif devices is not None or options or profiles:
        raise BadInput(f"{model.model_name} is loaded already; give devices, options and profiles to load()")
    else:
        loaded = model
    goal = objective_from(objective) if isinstance(objective, str) else objective
    constraints, began = constraints or Constraints(), clock.now()
    try:
        return place_problem(
            loaded.problem(goal, constraints),
            solver=solver,
            budget=Budget(
                _search_seconds(time_limit, len(loaded.graph)), evaluations, on_improvement, on_step, on_event=on_event
            ),
            seed=seed,
            baselines=baselines,
            made_from=(loaded.model_name, loaded.devices_text),
            granularity=granularity,
            source=loaded.source.as_dict() if loaded.source is not None else None,
            start=start,
            spread=spread,
        )
    except Infeasible as error:
        limit = TIME_LIMIT_SECONDS if time_limit is None else time_limit
        seconds = max(began + limit - clock.now(), LEAST_FIX_SECONDS, FIX_SHARE * limit)
        whole = granularity == "block"
        from stead.placing.remedies import remedies  # a whole room of its own, for where nothing fits

        error.fixed_by(lambda: remedies(loaded, goal, constraints, whole_blocks=whole, seconds=seconds))
        raise


def _search_seconds(time_limit: float | None, operators: int) -> float | None:
    """The time limit, on huge graphs less what it takes to tell of the plan and to write it.

    >>> _search_seconds(60.0, 100_000), _search_seconds(60.0, 500_000), _search_seconds(60.0, 1_000_000)
    (60.0, 52.0, 45.0)
    """
    if time_limit is None or operators < HUGE:
        return time_limit
    return time_limit - min(TELLING_SHARE * time_limit, TELLING_SECONDS * operators)


def place_problem(
    problem: Problem,
    *,
    solver: str | Solver = "auto",
    budget: Budget | None = None,
    seed: int = 0,
    baselines: bool = True,
    made_from: tuple[str, str] = ("", ""),
    granularity: Granularity = "operator",
    source: Mapping[str, Any] | None = None,
    start: Start | None = None,
    spread: Spread | None = None,
) -> Plan:
    """Solve a problem, baselines first so that there is an answer from the beginning.

    `source` is what the model was read from, for those who want to run it; `start` gives a placement of the problem,
    which `auto` begins with and never falls behind.
    The time limit is one for both; where evaluations are limited, it only ends them. An interrupt, wherever it comes,
    leaves the best placement so far.
    """
    if granularity not in GRANULARITIES:
        near = did_you_mean(granularity, GRANULARITIES)
        raise BadInput(f"granularity is one of {', '.join(GRANULARITIES)}, got {granularity!r}{near}")
    chosen = solver_named(solver) if isinstance(solver, str) else solver
    whole = replace(budget or Budget(TIME_LIMIT_SECONDS), answers=Answers())  # every rule is asked once
    if start is not None and not isinstance(chosen, Auto):
        raise BadInput(f"solver {chosen.name} cannot begin with a placement; only auto can")
    if spread is not None and not isinstance(chosen, Auto):
        raise BadInput(f"solver {chosen.name} is not spread over an engine; only auto is")
    began_with = None if start is None else start(problem)
    question = _Question(chosen, whole, seed, baselines, clock.now(), began_with, spread)
    if granularity == "operator" or (granularity == "auto" and not is_language_model(problem.graph)):
        plan, made = question.answer(problem, question.budget), {}
    else:
        plan, levels = _by_blocks(problem, question, may_split=granularity == "auto")
        made = {"granularity": levels.as_dict()}
    model, devices = made_from
    if source is not None:
        made = {**made, "source": dict(source)}
    if plan.solution.learning:
        made = {**made, LEARNING: curve_document(plan.solution.learning)}
    return replace(plan, provenance={**provenance(model=model, devices=devices, seed=seed), **made})


@dataclass(frozen=True, slots=True)
class _Question:
    """How a problem is to be solved, whatever its granularity."""

    solver: Solver
    budget: Budget
    seed: int
    baselines: bool
    began: float  # by the clock
    start: Placement | None = None  # that `auto` begins with
    spread: Spread | None = None  # over whose workers `auto` searches

    @property
    def left_seconds(self) -> float:
        """What is left of the time limit; inf where there is none."""
        limit = self.budget.seconds
        return math.inf if limit is None else max(0.0, self.began + limit - clock.now())

    def answer(self, problem: Problem, budget: Budget) -> Plan:
        """The plan for one problem within a budget."""
        reason = self.solver.unsupported(problem)
        if reason is not None:
            raise BadInput(f"solver {self.solver.name} cannot take this problem: {reason}")
        attempt = Attempt(problem, self.solver, budget, self.seed, known=self.known(problem), spread=self.spread)
        solution = attempt.run(baselines=self.baselines)
        return Plan(problem, solution, tuple(attempt.rules))

    def known(self, problem: Problem) -> dict[str, Solution]:
        """The placement to begin with; that of a problem with other units may not work, and is then left out."""
        if self.start is None:
            return {}
        same = Placement(problem, self.start.devices, self.start.order, self.start.replicas)
        return {START: Solution(same, math.inf, solver=START, found_by=START)}

    def share(self, share: float) -> Budget:
        """A part of the whole budget; where evaluations count, time only ends the search."""
        budget, left = self.budget, self.left_seconds
        if budget.evaluations is not None:
            evaluations = max(1, int(share * budget.evaluations))
            return replace(budget, seconds=None if budget.seconds is None else left, evaluations=evaluations)
        return replace(budget, seconds=None if budget.seconds is None else min(left, share * budget.seconds))

    def rules(self, problem: Problem) -> tuple[Baseline, ...]:
        """What simple rules find in the time that is left, if they are asked for; nothing after an interrupt."""
        if not self.baselines:
            return ()
        seconds = max(LEAST_RULE_SECONDS, self.left_seconds)
        try:
            return run_baselines(problem, seed=self.seed, seconds=seconds, answers=self.budget.answers)
        except KeyboardInterrupt:
            return ()

    def bounded(self, problem: Problem, found: Solution) -> tuple[Solution, Bound]:
        """What was found, and a bound over all placements for a small share of the time; none after an interrupt."""
        limit, counts = self.budget.seconds, self.budget.evaluations is not None
        share = math.inf if limit is None or counts else BOUND_SHARE * limit
        if not found.interrupted:
            try:
                return found, best_bound(problem, seconds=share, within=self.left_seconds)
            except KeyboardInterrupt:
                found = replace(found, interrupted=True, stopped_by="interrupted")
        return found, Bound("none", 0.0, "")


def _heard_of(units: str, budget: Budget) -> Budget:
    """The same budget, whose events say that bounds hold for such units only."""
    tell = budget.on_event
    if tell is None:
        return budget

    def told(event: Event) -> None:
        tell(replace(event, scope=f"{event.scope} of {units}" if event.scope else units))

    return replace(budget, on_event=told)


def _by_blocks(problem: Problem, question: _Question, *, may_split: bool) -> tuple[Plan, Levels]:
    """The plan for whole blocks, or where splitting them pays that for operators, and what both levels give."""
    fine = experts_together(problem)
    try:
        coarse = whole_blocks(problem)
        if may_split and question.solver.unsupported(coarse) is not None:
            plan = _by_operators(problem, fine, question, question.budget)
            return plan, Levels("operator", may_split, None, None, 0.0)
        budget = question.share(BLOCK_SHARE if may_split else 1.0)
        blocks = question.answer(coarse, _heard_of(BLOCKS, budget))
    except Infeasible:
        if not may_split:
            raise
        plan = _by_operators(problem, fine, question, question.share(1.0))
        return plan, Levels("operator", may_split, None, plan.solution.objective_seconds, 0.0)
    return _split_where_it_pays(problem, fine, blocks, question, may_split=may_split)


def _by_operators(problem: Problem, fine: Problem, question: _Question, budget: Budget) -> Plan:
    """The plan for operators where there is none for whole blocks; experts that stay together prove nothing of all."""
    if fine is problem:
        return question.answer(problem, budget)
    try:
        plan = question.answer(fine, _heard_of(EXPERT_GROUPS, budget))
    except Infeasible as error:
        error.proved = False
        raise
    solution, bound = question.bounded(problem, plan.solution)
    return replace(plan, solution=said_of_all(solution, bound=bound, units=EXPERT_GROUPS))


def _split_where_it_pays(
    problem: Problem, fine: Problem, blocks: Plan, question: _Question, *, may_split: bool
) -> tuple[Plan, Levels]:
    """The plan for whole blocks, or that for operators if it is better by enough."""
    found, bound = question.bounded(problem, blocks.solution)
    whole = said_of_all(found, bound=bound, units=BLOCKS)
    levels = Levels("block", may_split, whole.objective_seconds, None, bound.seconds)
    finer = None
    if may_split and levels.may_pay and not whole.interrupted:
        try:
            finer = _split(fine, blocks, question, units="" if fine is problem else EXPERT_GROUPS)
        except KeyboardInterrupt:
            whole = replace(whole, interrupted=True, stopped_by="interrupted")
    if finer is None:
        return replace(blocks, solution=whole), levels
    levels = replace(levels, operator_seconds=finer.objective_seconds)
    if not levels.pays:
        return replace(blocks, solution=_with_effort(whole, whole, finer)), levels
    if fine is problem:
        said = finer.with_bound(bound.seconds, bound.name)
    else:
        said = said_of_all(finer, bound=bound, units=EXPERT_GROUPS)
    plan = Plan(fine, _with_effort(said, whole, finer), question.rules(fine))
    if isinstance(question.solver, Auto):
        plan = _no_worse(plan)
        levels = replace(levels, operator_seconds=plan.solution.objective_seconds)
    return plan, replace(levels, level="operator")


def _no_worse(plan: Plan) -> Plan:
    """A plan, or its best rule with all that is proved if that is better."""
    rule, found = plan.best_baseline, plan.solution
    if rule is None or rule.placement is None or rule.objective_seconds is None:
        return plan
    seconds = rule.objective_seconds
    if seconds >= found.objective_seconds:
        return plan
    step = Improvement(found.elapsed_seconds, found.evaluations, seconds, found_by=rule.name)
    better = replace(
        found,
        placement=rule.placement,
        objective_seconds=seconds,
        bound_seconds=min(found.bound_seconds, seconds),
        found_by=rule.name,
        trail=(*found.trail, step),
    )
    return replace(plan, solution=better)


def _with_effort(solution: Solution, *spent: Solution) -> Solution:
    """A solution that says what was spent on all levels, and whether time cut one of them."""
    cut = any(one.stopped_by == "time" for one in spent)
    return replace(
        solution,
        stopped_by="time" if cut else solution.stopped_by,
        evaluations=sum(one.evaluations for one in spent),
        elapsed_seconds=sum(one.elapsed_seconds for one in spent),
        interrupted=any(one.interrupted for one in spent),
        phases=tuple(
            replace(phase, units=units)
            for one, units in zip(spent, (BLOCKS, "operators"), strict=True)
            for phase in one.phases
        ),
    )


def _split(problem: Problem, blocks: Plan, question: _Question, *, units: str) -> Solution | None:
    """What the solver finds for operators, beginning with the plan for blocks; None if that is nothing.

    `units` are what stays together all the same; empty: nothing.
    """
    budget = question.share(1 - BLOCK_SHARE)
    budget = _heard_of(units, budget) if units else budget
    if budget.seconds == 0.0 or question.solver.unsupported(problem) is not None:
        return None
    found = blocks.solution
    placement = Placement(problem, found.placement.devices, found.placement.order, found.placement.replicas)
    known = replace(found, placement=placement, bound_seconds=0.0, bound_name="", scope="", stopped_by="")
    try:
        both = {**question.known(problem), "blocks": known}
        attempt = Attempt(problem, question.solver, budget, question.seed, known=both, spread=question.spread)
        return attempt.run(baselines=False)
    except Infeasible:
        return None
