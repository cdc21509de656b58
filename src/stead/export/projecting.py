"""What a target moves and what that costs; and plans for the placements that it can express."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stead.cluster.quantities import format_seconds
from stead.errors import BadInput, Infeasible
from stead.export.base import Move, Projection
from stead.plan import Plan
from stead.printing.wording import quoted
from stead.problem import Placement, Problem
from stead.sim import simulate
from stead.solvers import Improvement

MOST_NAMED = 3  # moves that one line names


def _refuse_what_does_not_fit(plan: Plan, projection: Projection, target: str) -> None:
    """Infeasible where a plan that fits would not do so any more."""
    trace = simulate(projection.placement.problem, projection.placement)
    if trace.feasible or not plan.trace.feasible:
        return
    raise Infeasible(
        f"{target} could only run this plan in a way that does not work: {told(projection)}; then {trace.problems[0]}"
    )


class Named(Protocol):
    """Whatever has the name of a target."""

    @property
    def name(self) -> str:
        """Its name on the command line."""


def projected(
    plan: Plan,
    problem: Problem,
    row: NDArray[np.integer[Any]],
    *,
    group: Callable[[int], str],
    name: Callable[[list[int]], str],
    why: Callable[[int], str],
) -> Projection:
    """The projection of a plan onto the devices of `row`, simulated again in the charged `problem`.

    Operators that move are told by `group` (of each: a layer, a module), source, target and `why`; `name` says in words
    what the operators of one such move are. Orders are left behind: no runtime takes them, what is ready runs. Devices
    that share a stage are refused: they would be left behind, too.
    """
    refuse_replicas(plan)
    names = problem.cluster.names
    before = plan.placement.devices
    moved: dict[tuple[str, int, int, str], list[int]] = {}
    for v in np.flatnonzero(before != row).tolist():
        moved.setdefault((group(v), int(before[v]), int(row[v]), why(v)), []).append(v)
    moves = tuple(
        Move(name(members), len(members), names[source], names[target], reason)
        for (_, source, target, reason), members in moved.items()
    )
    placement = Placement(problem, row)
    after = simulate(problem, placement).objective_seconds
    return Projection(placement, moves, plan.solution.objective_seconds, after)


def refuse_replicas(plan: Plan) -> None:
    """BadInput where devices share a stage: no target knows that."""
    if plan.placement.replicas:
        group = plan.placement.replicas[0]
        names = " and ".join(plan.problem.cluster.names[d] for d in group)
        shared = operators_named(plan.problem, np.flatnonzero(np.isin(plan.placement.devices, group)).tolist())
        raise BadInput(f"{names} share a stage of this plan, {shared}, which this target cannot express")


def share_of_time(
    problem: Problem, row: NDArray[np.integer[Any]], group: NDArray[np.int32], count: int
) -> NDArray[np.int64]:  # [group]
    """The device on which each of `count` groups spends most of its time, the first of equals; -1 for empty groups."""
    inside = np.flatnonzero(group >= 0)
    spent = np.zeros((count, len(problem.cluster)))
    # Operators that take no time still say where their group is.
    seconds = problem.costs.seconds[inside, row[inside]]
    np.add.at(spent, (group[inside], row[inside]), np.where(np.isfinite(seconds), seconds, 0.0) + 1e-15)
    return np.where(spent.max(axis=1, initial=0.0) > 0, spent.argmax(axis=1), -1)


def moved_plan(plan: Plan, projection: Projection, *, target: str) -> Plan:
    """The plan that a projection makes; what was proved of the first still holds as far as it did."""
    if projection.placement == plan.placement and projection.placement.problem is plan.problem:
        return plan
    seconds, found = projection.seconds_after, plan.solution
    _refuse_what_does_not_fit(plan, projection, target)
    by = found.found_by if projection.is_same else f"cuts for {target}"
    step = Improvement(found.elapsed_seconds, found.evaluations, seconds, found_by=by)
    solution = replace(
        found,
        placement=projection.placement,
        objective_seconds=seconds,
        bound_seconds=min(found.bound_seconds, seconds),
        found_by=by,
        trail=(*found.trail, step) if found.trail else (),
    )
    problem = projection.placement.problem
    # What rules found under other charges cannot stand beside it.
    return Plan(problem, solution, plan.baselines if problem is plan.problem else (), plan.provenance)


def refuse_moves(exporter: Named, projection: Projection) -> None:
    """BadInput that names what cannot be exported as it is, why, and what moving it costs; nothing if all can."""
    if projection.is_same:
        return
    raise BadInput(
        f"{exporter.name} cannot express this plan as it is: {told(projection)}; {cost_of(projection)}; "
        f"give --legalize to move them, or plan with `stead place --target {exporter.name}`"
    )


def told(projection: Projection) -> str:
    """The first few moves in words."""
    first = "; ".join(str(one) for one in projection.moves[:MOST_NAMED])
    more = len(projection.moves) - MOST_NAMED
    return f"{first}; and {more} more" if more > 0 else first


def cost_of(projection: Projection) -> str:
    """What the moves cost, in words."""
    before, after = projection.seconds_before, projection.seconds_after
    if not np.isfinite(after):
        return "moved there it would not run"
    change = f" ({100 * (after / before - 1):+.1f} %)" if before > 0 else ""
    return f"moving takes it from {format_seconds(before)} to {format_seconds(after)}{change}"


def part_of(problem: Problem, members: list[int], called: str, count: int) -> str:
    """What moves of something that has `count` operators and is `called` so: all of it, or operators by name."""
    return called if len(members) == count else f"{operators_named(problem, members)} of {called}"


def operators_named(problem: Problem, members: list[int]) -> str:
    """Operators by name, the first of many."""
    first = quoted(problem.graph.operator_names[members[0]])
    return first if len(members) == 1 else f"{first} and {len(members) - 1} more"
