"""What users get, held against the truth: plans by operators and by blocks, and searches from what is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

from brute import WHOLE, Truth
from verdicts import Candidate, candidates, wrong_bound, wrong_value

from stead.errors import Infeasible, SteadError
from stead.placing.attempt import Attempt
from stead.placing.place import place_problem
from stead.plan import Plan
from stead.problem import Placement, Problem
from stead.report.granularity import Granularity, Levels
from stead.sim import simulate
from stead.solvers import Budget, Solution, solver
from stead.solvers.auto import Auto
from stead.solvers.whole_blocks import BLOCKS, EXPERT_GROUPS, is_language_model

AUTO = (Candidate("auto", evaluations=400), Candidate("auto", evaluations=40), Candidate("auto", evaluations=8))
SCOPES = ("placements without an order of their own", "contiguous stages", BLOCKS)
RULES = ("single", "even", "blocks", "mine")  # two that `auto` would try itself, and two that it has never heard of


@dataclass(frozen=True, slots=True)
class Question:
    """How a plan is asked for."""

    by: Candidate
    granularity: Granularity
    baselines: bool

    def plan(self, problem: Problem, seed: int) -> Plan:
        """What a user gets."""
        return place_problem(
            problem,
            solver=solver(self.by.name, **dict(self.by.options)),
            budget=Budget(evaluations=self.by.evaluations),
            seed=seed,
            baselines=self.baselines,
            granularity=self.granularity,
        )


def questions(problem: Problem, seed: int) -> list[Question]:
    """One for every granularity, others for every seed: most to `auto`, which is what users ask."""
    draw = Random(seed)
    others = candidates(problem, seed, proving=2, others=1)
    levels: tuple[Granularity, ...] = ("operator", "block", "auto")
    return [Question(draw.choice((*AUTO, *others)), level, draw.random() < 0.6) for level in levels]


def wrong_plan(question: Question, problem: Problem, truth: Truth, seed: int) -> list[str]:
    """Complaints about what one plan says."""
    try:
        plan = question.plan(problem, seed)
    except Infeasible as error:
        return _wrong_refusal(question, error, truth)
    except SteadError as error:
        return [] if "cannot take this problem" in str(error) else [f"it says {error}"]
    solution = plan.solution
    on_problem = Placement(problem, solution.placement.devices, solution.placement.order, solution.placement.replicas)
    return [
        *wrong_value(replace(solution, placement=on_problem), problem, truth),
        *solution.placement.violations(),
        *wrong_bound(solution, truth),
        *_wrong_end(solution),
        *_wrong_rules(question, plan),
        *_wrong_levels(question, plan, problem, truth),
    ]


def _wrong_refusal(question: Question, error: Infeasible, truth: Truth) -> list[str]:
    """Who asks for blocks is told about blocks; who does not, about everything."""
    possible = (truth.of(BLOCKS) if question.granularity == "block" else truth).optimum
    if error.proved and possible < math.inf:
        return [f"it calls the problem infeasible, but {possible} s are possible"]
    return []


def _wrong_end(solution: Solution) -> list[str]:
    """What is said of the search and its gap agrees with the bound."""
    found = []
    if solution.bound_seconds > solution.objective_seconds:
        found.append(f"bound of {solution.bound_seconds} s above its own {solution.objective_seconds} s")
    if (solution.gap == 0.0) != (solution.objective_seconds <= solution.bound_seconds) or not 0 <= solution.gap <= 1:
        found.append(f"gap {solution.gap} with {solution.objective_seconds} s, bound {solution.bound_seconds} s")
    if solution.stopped_by == "proved" and solution.gap > 0:
        found.append(f"it stopped with a proof and a gap of {solution.gap}")
    return found


def _wrong_rules(question: Question, plan: Plan) -> list[str]:
    """Rules have the simulator's value on the problem of the plan, and none beats `auto`."""
    found = []
    for rule in plan.baselines:
        if rule.objective_seconds is None or rule.placement is None:
            continue
        trace = simulate(plan.problem, rule.placement)
        if not trace.feasible or trace.objective_seconds != rule.objective_seconds:
            found.append(f"rule {rule.name} says {rule.objective_seconds} s, the simulator {trace.objective_seconds} s")
        found += [f"rule {rule.name}: {text}" for text in Placement(plan.problem, rule.placement.devices).violations()]
        if question.by.name == "auto" and rule.objective_seconds < plan.solution.objective_seconds:
            found.append(
                f"rule {rule.name} has {rule.objective_seconds} s, the plan {plan.solution.objective_seconds} s"
            )
    return found


def _wrong_levels(question: Question, plan: Plan, problem: Problem, truth: Truth) -> list[str]:
    """What is said about blocks and operators."""
    levels = Levels.from_dict(plan.provenance.get("granularity"))
    asked = question.granularity == "block" or (question.granularity == "auto" and is_language_model(problem.graph))
    if levels is None:
        return ["it says nothing about blocks"] if asked else []
    found, solution = [], plan.solution
    kept = WHOLE[BLOCKS if levels.level == "block" else EXPERT_GROUPS](problem)
    found += [f"{levels.level} level: {text}" for text in Placement(kept, solution.placement.devices).violations()]
    if question.granularity == "block" and levels.level != "block":
        found.append("it splits blocks though they were to stay whole")
    if levels.bound_seconds > truth.optimum:
        found.append(f"no placement is below {levels.bound_seconds} s, it says, but {truth.optimum} s are possible")
    own = levels.block_seconds if levels.level == "block" else levels.operator_seconds
    if own is not None and own != solution.objective_seconds:
        found.append(f"{levels.level} level has {own} s, the plan {solution.objective_seconds} s")
    shared = bool(solution.placement.replicas)
    if levels.block_seconds is not None and not shared and levels.block_seconds < truth.of(BLOCKS).optimum:
        found.append(f"whole blocks have {levels.block_seconds} s, below all runs: {truth.of(BLOCKS).optimum} s")
    return found


# Searches that begin with what is known


def starts(problem: Problem, truth: Truth, seed: int) -> dict[str, Solution]:
    """Placements to begin with: good, poor, and such that do not work; some know a bound among fewer placements."""
    draw = Random(seed)
    known = {}
    for name in draw.sample(RULES, draw.randint(1, len(RULES))):
        placement = Placement(problem, truth.rows[draw.randrange(len(truth.rows))])
        if draw.random() < 0.3:
            placement = Placement(problem, [draw.randrange(len(problem.cluster)) for _ in problem.graph.operators()])
        elif truth.optimum < math.inf and draw.random() < 0.3:
            placement = truth.best_run()
        known[name] = _as_solution(placement, truth, draw)
    return known


def _as_solution(placement: Placement, truth: Truth, draw: Random) -> Solution:
    """A start with the simulator's value and perhaps the best that can be said among fewer placements."""
    seconds = simulate(placement.problem, placement).objective_seconds
    found = Solution(placement, seconds, solver="start", evaluations=draw.choice((0, 1, 5)))
    scope = draw.choice(SCOPES)
    best = None if scope == BLOCKS and not any(placement.problem.graph.modules) else truth.best_among(scope)
    if best is None or not best <= seconds or draw.random() < 0.5:
        return found
    return replace(found, bound_seconds=min(best, seconds), bound_name="of a start", scope=scope)


def wrong_from_starts(problem: Problem, truth: Truth, seed: int) -> list[str]:
    """Complaints about what `auto` makes of known placements, by itself and in an attempt."""
    draw = Random(seed + 1)
    if not len(truth.rows):
        return []
    known = starts(problem, truth, seed)
    works = [
        one.objective_seconds
        for one in known.values()
        if simulate(problem, one.placement).feasible and not one.placement.violations()
    ]
    budget = Budget(evaluations=draw.choice((1, 8, 40, 400)))
    rules = draw.random() < 0.3
    asked = {
        "auto": lambda: Auto().solve(problem, budget, seed, known=known),
        "attempt": lambda: Attempt(problem, Auto(), budget, seed, known=known).run(baselines=rules),
    }
    found = []
    for name, solve in asked.items():
        try:
            solution = solve()
        except Infeasible as error:
            found += [f"{name}: it was given a placement that works and says {error}"] if works else []
            continue
        said = [*wrong_value(solution, problem, truth), *wrong_bound(solution, truth), *_wrong_end(solution)]
        if works and solution.objective_seconds > min(works):
            said.append(f"it has {solution.objective_seconds} s, but was given {min(works)} s")
        found += [f"{name} from {sorted(known)}: {text}" for text in said]
    return found
