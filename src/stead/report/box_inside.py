"""What lies in a box: the next level of modules, or operators, also below what a view holds.

A view ends at 2,000 boxes; what is deeper is asked for box by box, and computed from module paths when it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stead.problem.ticks import TICKS_PER_SECOND
from stead.report.columns import shown_name
from stead.report.fold import OWN, Fold, operator_paths
from stead.report.slices import run_of

if TYPE_CHECKING:
    from stead.plan import Plan

MOST_LISTED = 500


def inside(plan: Plan, boxes: Fold, box: int) -> list[dict[str, Any]]:
    """The next level of a box: every operator of it in exactly one row, rows in the order of their first operator.

    A row says its module, or its operator where nothing is deeper; beyond `MOST_LISTED` the rest is one row.
    """
    own, graph = boxes.operators_in(box), plan.problem.graph
    names = _next_level([_below(parts, _levels(boxes, box)) for parts in _paths_of(plan, own)])
    if names is None:
        names = [graph.operator_names[v] for v in own.tolist()]
    first: dict[str, int] = {}
    row = np.array([first.setdefault(name, len(first)) for name in names], dtype=np.int64)
    listed = list(first)
    if len(listed) > MOST_LISTED:
        row = np.minimum(row, MOST_LISTED)
        listed = [*listed[:MOST_LISTED], f"{len(listed) - MOST_LISTED} more"]
    seconds, critical = _seconds(plan, own)
    return [
        {
            "name": shown_name(name),
            "operators": int((row == number).sum()),
            "range": _range(own[row == number]),
            "operator": _only(plan, own[row == number]),
            "seconds": seconds[row == number].sum(axis=0).tolist(),
            "critical_seconds": float(critical[row == number].sum()),
        }
        for number, name in enumerate(listed)
    ]


def _paths_of(plan: Plan, own: NDArray[np.int64]) -> list[tuple[str, ...]]:
    paths = operator_paths(plan.problem.graph)
    return [paths[v] for v in own.tolist()]


def _levels(boxes: Fold, box: int) -> list[str]:
    """Names from the outermost box to this one; runs of siblings are no level of a module path."""
    names: list[str] = []
    while box:
        if not boxes.is_run[box]:
            names.append(boxes.names[box])
        box = int(boxes.parents[box])
    return names[::-1]


def _below(parts: tuple[str, ...], levels: list[str]) -> tuple[str, ...] | None:
    """What of a path is deeper than a box; None for operators that only keep it company.

    Boxes leave out levels that hold nothing but the next one, so their names are some of those of the path.
    """
    at = 0
    for name in levels:
        if name not in parts[at:]:
            return None
        at = parts.index(name, at) + 1
    return parts[at:]


def _next_level(rests: list[tuple[str, ...] | None]) -> list[str] | None:
    """The row that every operator belongs to; None where no path goes deeper."""
    while any(rests):
        heads = {rest[0] for rest in rests if rest}
        if len(heads) > 1 or not all(rests):
            return [rest[0] if rest else OWN for rest in rests]
        rests = [rest[1:] if rest else None for rest in rests]  # a level that holds nothing but the next one
    return None


def _seconds(plan: Plan, own: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Run time of operators by device, and what of it is on the critical path."""
    run, devices = run_of(plan), len(plan.problem.cluster)
    place = np.full(len(plan.problem.graph), -1)
    place[own] = np.arange(len(own))
    mine = np.flatnonzero(place[run.origin] >= 0)
    long = (run.finish_ticks - run.start_ticks)[mine] / TICKS_PER_SECOND
    at = place[run.origin[mine]]
    seconds, critical = np.zeros((len(own), devices)), np.zeros(len(own))
    np.add.at(seconds, (at, run.devices[mine]), long)
    np.add.at(critical, at, long * run.critical_slices[mine])
    return seconds, critical


def _only(plan: Plan, own: NDArray[np.int64]) -> str | None:
    """The name of an operator that is alone in its row: what can be explained."""
    return plan.problem.graph.operator_names[int(own[0])] if len(own) == 1 else None


def _range(own: NDArray[np.int64]) -> list[int] | None:
    """The first and the last of operators that follow each other: what a move by hand may name; else None."""
    if not len(own) or int(own[-1] - own[0]) + 1 != len(own):
        return None
    return [int(own[0]), int(own[-1])]
