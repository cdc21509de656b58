"""place(): the one call that goes from a model and devices to a Plan."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stead.cluster import Cluster
from stead.costs import Profile
from stead.errors import BadInput, Infeasible, SteadError
from stead.formats import Model
from stead.graph import Graph
from stead.loading import load
from stead.plan import Baseline, Plan, provenance
from stead.problem import Constraints, Latency, Objective, Problem, Throughput
from stead.sim.bounds import best_bound
from stead.solvers import Budget, Improvement, Solution, Solver, solver

BASELINES = (
    "hf_auto", "hf_sequential", "hf_balanced_low_0", "capacity", "bandwidth", "even", "balanced", "round_robin",
    "random", "expert", "greedy_support", "largest_n", "fit_memory", "metis", "mtkahypar",
)  # fmt: skip
TIME_LIMIT_SECONDS = 60.0
LEAST_RULE_SECONDS = 2.0  # that baselines may take before others are left out, however short the time limit is


def objective_named(name: str) -> Objective:
    """Latency or throughput by name, with default options.

    >>> objective_named("throughput").describe()
    'throughput, load sum'
    """
    if name == "latency":
        return Latency()
    if name == "throughput":
        return Throughput()
    raise BadInput(f"an objective is latency or throughput, got {name!r}")


def place(
    model: str | Path | Graph | Model,
    devices: str | Path | Cluster | None = None,
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
) -> Plan:
    """Find the best placement of a model on devices.

    `options` are those of the model's reader, `profiles` measured seconds that correct analytic ones.

    >>> from stead.workloads.demo import demo_graph
    >>> plan = place(demo_graph(), "3090,3060", objective="latency", evaluations=200)
    >>> plan.solution.gap < 1
    True
    """
    loaded = load(model, devices, options=options, profiles=profiles)
    wanted = objective_named(objective) if isinstance(objective, str) else objective
    return place_problem(
        loaded.problem(wanted, constraints),
        solver=solver,
        budget=Budget(time_limit, evaluations),
        seed=seed,
        baselines=baselines,
        made_from=(loaded.model_name, loaded.devices_text),
    )


def place_problem(
    problem: Problem,
    *,
    solver: str | Solver = "auto",
    budget: Budget | None = None,
    seed: int = 0,
    baselines: bool = True,
    made_from: tuple[str, str] = ("", ""),
) -> Plan:
    """Solve a problem, baselines first so that there is an answer from the beginning."""
    chosen = solver_of(solver)
    reason = chosen.unsupported(problem)
    if reason is not None:
        raise BadInput(f"solver {chosen.name} cannot take this problem: {reason}")
    budget = budget or Budget(TIME_LIMIT_SECONDS)
    seconds = math.inf if budget.seconds is None else max(budget.seconds, LEAST_RULE_SECONDS)
    rules = run_baselines(problem, seed=seed, seconds=seconds) if baselines else ()
    solution = _solve(problem, chosen, budget, seed, rules)
    if solution.bound_seconds == 0.0:
        bound = best_bound(problem, seconds=seconds)
        solution = solution.with_bound(bound.seconds, bound.name)
    model, devices = made_from
    return Plan(problem, solution, rules, provenance(model=model, devices=devices, seed=seed))


def solver_of(given: str | Solver) -> Solver:
    """A solver by name, or the given one."""
    return solver(given) if isinstance(given, str) else given


def run_baselines(
    problem: Problem,
    *,
    seed: int = 0,
    names: Sequence[str] = BASELINES,
    watch: Callable[[Baseline], None] | None = None,
    seconds: float = math.inf,
) -> tuple[Baseline, ...]:
    """Every simple rule, with its value or the reason why it has none; none begins after so many seconds."""
    singles = [f"single:{name}" for name in problem.cluster.names]
    results, end = [], time.monotonic() + seconds
    for name in (*singles, *names):
        late = time.monotonic() > end
        result = Baseline(name, reason="left out: no time") if late else _baseline(problem, name, seed)
        results.append(result)
        if watch is not None:
            watch(result)
    return tuple(results)


def _baseline(problem: Problem, name: str, seed: int) -> Baseline:
    rule = solver(name)
    reason = rule.unsupported(problem)
    if reason is not None:
        return Baseline(name, reason=reason)
    try:
        found = rule.solve(problem, Budget(), seed)
    except SteadError as error:
        return Baseline(name, reason=str(error).removeprefix(f"{rule.name} found no placement that works: "))
    return Baseline(name, found.objective_seconds, placement=found.placement)


def _solve(
    problem: Problem, chosen: Solver, budget: Budget, seed: int, rules: Sequence[Baseline]
) -> Solution:
    """Run the solver; `auto` never returns less than a rule found, and an interrupt leaves the best rule."""
    valued = [rule for rule in rules if rule.objective_seconds is not None and rule.placement is not None]
    best = min(valued, key=lambda rule: rule.objective_seconds or 0.0, default=None)
    try:
        solution = chosen.solve(problem, budget, seed)
    except KeyboardInterrupt:
        if best is None:
            raise
        return replace(_from_rule(best, chosen, seed), interrupted=True)
    except Infeasible:
        if best is None or chosen.name != "auto":
            raise
        return _from_rule(best, chosen, seed)
    if (
        best is not None
        and chosen.name == "auto"
        and (best.objective_seconds or 0.0) < solution.objective_seconds
    ):
        fallback = _from_rule(best, chosen, seed).with_bound(solution.bound_seconds, solution.bound_name)
        return replace(fallback, evaluations=solution.evaluations, elapsed_seconds=solution.elapsed_seconds)
    return solution


def _from_rule(rule: Baseline, chosen: Solver, seed: int) -> Solution:
    assert rule.placement is not None
    assert rule.objective_seconds is not None
    step = Improvement(0.0, 1, rule.objective_seconds, found_by=rule.name)
    return Solution(
        rule.placement, rule.objective_seconds, solver=chosen.name, found_by=rule.name, seed=seed, evaluations=1,
        trail=(step,),
    )  # fmt: skip
