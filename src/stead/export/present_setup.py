"""How good a set-up is that somebody already has, beside what could be had with the same tool."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stead.cluster.quantities import format_seconds
from stead.errors import Infeasible
from stead.export.placing import place_for
from stead.export.setups import Setup, read_setup
from stead.export.targets import TARGETS, exporter
from stead.placing.loading import Loaded
from stead.placing.place import place
from stead.plan import Baseline, Plan, provenance
from stead.problem import Objective, Placement
from stead.report.text import line
from stead.sim import simulate
from stead.sim.bounds import best_bound
from stead.solvers import Solution

WORTH_IT = 0.02  # what a plan must save before it is called better


@dataclass(frozen=True, slots=True)
class Scored:
    """A set-up as a plan, and the best that was found beside it."""

    plan: Plan
    target: str
    better_seconds: float | None  # None: nothing was found
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """One line: what a plan of stead would save."""
        now, best = self.plan.solution.objective_seconds, self.better_seconds
        if not self.plan.trace.feasible:
            rest = "" if best is None else f"; `stead place --target {self.target}` finds {format_seconds(best)}"
            return line("verdict", f"this set-up does not fit{rest}")
        if best is None or best >= now * (1 - WORTH_IT):
            return line("verdict", "nothing better was found: keep it")
        times = f"{now / best:.2f}x faster" if best > 0 else "faster"
        command = f"stead place --target {self.target}" if self.target in TARGETS else "stead place"
        return line("verdict", f"{command} finds {format_seconds(best)}, {times}")


def score_setup(
    tool: str,
    text: str,
    loaded: Loaded,
    *,
    objective: Objective,
    time_limit: float | None = 10.0,
    evaluations: int | None = None,
    seed: int = 0,
) -> Scored:
    """Simulate a set-up, and search for the best that the same tool could load within the limits."""
    problem = loaded.problem(objective)
    setup = read_setup(tool, text, problem)
    if setup.target in TARGETS:
        problem = exporter(setup.target, **setup.options).charged(problem)
    placement = Placement(problem, setup.placement.devices)
    seconds = simulate(problem, placement).objective_seconds
    found = _best(setup, loaded, objective, time_limit, evaluations, seed)
    bound = best_bound(problem)
    solution = Solution(
        placement, seconds, bound_seconds=min(bound.seconds, seconds), bound_name=bound.name, solver=f"given ({tool})",
        evaluations=1,
    )  # fmt: skip
    if found is not None and _is_one_of(found, placement):
        solution = _held_to(solution, found, setup.target)
    made = provenance(model=loaded.model_name, devices=loaded.devices_text, seed=seed)
    plan = Plan(problem, solution, (), made)
    if found is None:
        return Scored(plan, setup.target, None, setup.notes)
    rules = tuple(
        replace(rule, placement=None if rule.placement is None else Placement(problem, rule.placement.devices))
        for rule in (Baseline("stead", found.solution.objective_seconds, placement=found.placement), *found.baselines)
    )
    return Scored(replace(plan, baselines=rules), setup.target, found.solution.objective_seconds, setup.notes)


def _is_one_of(found: Plan, placement: Placement) -> bool:
    """Whether what was proved on the way to a plan holds for a placement, too: it fits, and the tool can load it."""
    problem, devices = found.problem, placement.devices
    whole = bool((devices == devices[problem.unit_firsts][problem.units]).all())
    allowed = bool(problem.allowed[np.arange(len(devices)), devices].all())
    return whole and allowed and simulate(placement.problem, placement).feasible


def _held_to(solution: Solution, found: Plan, target: str) -> Solution:
    """A set-up with the bound of the best plan for its tool, where that is the higher one."""
    proved = found.solution
    if proved.scope or proved.bound_seconds <= solution.bound_seconds:
        return solution
    seconds = min(proved.bound_seconds, solution.objective_seconds)
    return replace(
        solution, bound_seconds=seconds, bound_name=proved.bound_name, scope=f"what {target} can load"
    )


def _best(
    setup: Setup, loaded: Loaded, objective: Objective, time_limit: float | None, evaluations: int | None, seed: int
) -> Plan | None:
    """The best plan for the tool of a set-up; any plan where the tool is no target; None if nothing fits."""
    try:
        if setup.target in TARGETS:
            target = exporter(setup.target, **setup.options)
            if target.unsupported(loaded.problem(objective)) is None:
                return place_for(
                    target, loaded, objective=objective, time_limit=time_limit, evaluations=evaluations, seed=seed
                )
        return place(loaded, objective=objective, time_limit=time_limit, evaluations=evaluations, seed=seed)
    except Infeasible:
        return None
