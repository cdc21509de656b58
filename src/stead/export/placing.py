"""Plans for a target: the search sees only what the target can express, and pays what it really does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from stead import clock
from stead.errors import BadInput, Infeasible
from stead.export.base import ChoosesItself, Exporter, Projection
from stead.export.projecting import cost_of, moved_plan, told
from stead.placing.loading import Loaded
from stead.placing.place import LEAST_FIX_SECONDS, TIME_LIMIT_SECONDS, Start, place_problem
from stead.placing.remedies import remedies
from stead.plan import Plan
from stead.problem import Constraints, Objective
from stead.solvers import Budget, Event, Improvement, Solver


@dataclass(frozen=True, slots=True)
class Targeted:
    """A plan that a target can express, and what had to move for it."""

    plan: Plan
    projection: Projection


def place_for(
    exporter: Exporter,
    loaded: Loaded,
    *,
    objective: Objective,
    constraints: Constraints | None = None,
    solver: str | Solver = "auto",
    time_limit: float | None = TIME_LIMIT_SECONDS,
    evaluations: int | None = None,
    seed: int = 0,
    on_improvement: Callable[[Improvement], None] | None = None,
    on_step: Callable[[str], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    start: Start | None = None,
) -> Plan:
    """The best plan found that a target can express; it says so itself (`target` in its provenance).

    Options are those of `place`. Where nothing fits, `fixes` of the error are the smallest changes that help.
    """
    asked, began = loaded.problem(objective, constraints), clock.now()
    reason = exporter.unsupported(asked)
    if reason is not None:
        raise BadInput(f"{exporter.name} cannot take this model: {reason}")
    both = _both(asked.constraints, exporter.constraints(asked.graph, asked.cluster))
    try:
        found = place_problem(
            exporter.charged(asked.with_constraints(both)),
            solver=solver,
            budget=Budget(time_limit, evaluations, on_improvement, on_step, on_event=on_event),
            seed=seed,
            made_from=(loaded.model_name, loaded.devices_text),
            start=start,
        )
    except Infeasible as error:
        limit = TIME_LIMIT_SECONDS if time_limit is None else time_limit
        seconds = max(began + limit - clock.now(), LEAST_FIX_SECONDS)
        error.fixed_by(lambda: remedies(loaded, objective, both, whole_blocks=False, seconds=seconds))
        raise
    projection = exporter.project(found)
    plan = moved_plan(found, projection, target=exporter.name)
    if isinstance(exporter, ChoosesItself):
        plan = replace(plan, baselines=(*plan.baselines, exporter.own_choice(plan.problem)))
    return replace(plan, provenance={**plan.provenance, "target": _said(exporter, projection)})


def for_target(plan: Plan, exporter: Exporter) -> Targeted:
    """A plan as a target can express it, whatever has to move."""
    reason = exporter.unsupported(plan.problem)
    if reason is not None:
        raise BadInput(f"{exporter.name} cannot take this plan: {reason}")
    projection = exporter.project(plan)
    made = moved_plan(plan, projection, target=exporter.name)
    if made is plan:
        return Targeted(plan, projection)
    return Targeted(replace(made, provenance={**made.provenance, "target": _said(exporter, projection)}), projection)


def _both(first: Constraints, second: Constraints) -> Constraints:
    return Constraints.of([*first.items(), *second.items()])


def _said(exporter: Exporter, projection: Projection) -> dict[str, Any]:
    """What the plan's file keeps of the target."""
    text = exporter.name
    if not projection.is_same:
        text = f"{exporter.name}; moved after the search: {told(projection)}; {cost_of(projection)}"
    return {"name": exporter.name, "moves": len(projection.moves), "text": text}
