"""What the whole run would take if a box stood elsewhere: every number re-simulated, none guessed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stead.report.fold import Fold
from stead.sim import Move, Status, score_moves
from stead.sim.moved import moved_devices

if TYPE_CHECKING:
    from stead.plan import Plan

Outcome = tuple[float | None, str]  # seconds of the whole plan, None where it does not work, and one word why
_STATUS = {
    Status.MEMORY: "memory",
    Status.UNREACHABLE: "no route",
    Status.CYCLIC: "stages wait for each other",
    Status.TORN: "must share a device",
}


@dataclass(frozen=True, slots=True)
class BoxMoves:
    """Outcomes by box and device; a box that is not here was not computed."""

    outcomes: Mapping[int, tuple[Outcome, ...]]
    note: str = ""  # why boxes are missing


def box_moves(plan: Plan, fold: Fold, *, cpu_seconds: float = 2.0) -> BoxMoves:
    """Every device for every box, those with the most time first, until so much CPU time is spent."""
    problem = plan.problem
    if plan.placement.replicas:
        return BoxMoves({}, "devices share a stage here, and moves of such plans are not simulated")
    if len(problem.cluster) < 2:
        return BoxMoves({}, "there is one device only")
    if plan.trace.objective_ticks < 0:
        return BoxMoves({}, "the plan itself cannot run")
    placed = problem.costs.seconds[np.arange(len(problem.graph)), plan.placement.devices]
    work = fold.sums(np.where(np.isfinite(placed), placed, 0.0))
    above = fold.ancestors()[fold.leaf]
    order = sorted(range(1, len(fold.names)), key=lambda box: (-work[box], fold.depths[box], box))
    seen = _visible_first(order, fold)
    outcomes: dict[int, tuple[Outcome, ...]] = {}
    end = time.process_time() + cpu_seconds
    for box in seen:
        if outcomes and time.process_time() > end:
            return BoxMoves(outcomes, f"computed for the {len(outcomes)} boxes with the most time")
        own = np.flatnonzero(above[:, fold.depths[box]] == box)
        if len(own):
            outcomes[box] = _outcomes(plan, own)
    return BoxMoves(outcomes)


def _visible_first(order: list[int], fold: Fold) -> list[int]:
    """Boxes of the first picture before all others."""
    first = [box for box in order if fold.is_open[fold.parents[box]] and not fold.is_open[box]]
    return first + [box for box in order if box not in set(first)]


def _outcomes(plan: Plan, own: NDArray[np.int64]) -> tuple[Outcome, ...]:  # [device]
    """Of one box."""
    problem, devices = plan.problem, plan.placement.devices
    targets = [d for d in range(len(problem.cluster)) if problem.allowed[own, d].all()]
    scores = score_moves(problem, plan.placement, [Move(own, d) for d in targets]) if targets else None
    found: list[Outcome] = []
    for d in range(len(problem.cluster)):
        if d not in targets:
            able = np.isfinite(problem.costs.seconds[own, d]).all()
            found.append((None, "pinned" if able else "unsupported"))
            continue
        assert scores is not None
        row = targets.index(d)
        seconds, status = float(scores.seconds[row]), Status(int(scores.status[row]))
        if status != Status.OK:
            found.append((None, _STATUS.get(status, "unsupported")))
            continue
        moved = np.flatnonzero(moved_devices(problem, devices, Move(own, d)) != devices)
        found.append((seconds, _reason(plan, moved, d, seconds)))
    return tuple(found)


def _reason(plan: Plan, moved: NDArray[np.int64], d: int, seconds: float) -> str:
    """One word for what a move does, as `explain_operators` says it of single operators."""
    if not len(moved):
        return "here"
    change = seconds - plan.solution.objective_seconds
    if math.isclose(seconds, plan.solution.objective_seconds, rel_tol=1e-12):
        return "no change"
    if change < 0:
        return "better"
    costs = plan.problem.costs.seconds
    gain = float(costs[moved, plan.placement.devices[moved]].sum() - costs[moved, d].sum())
    return "transfer > gain" if gain > 0 else "slower there" if gain < 0 else "transfer"
