"""What changes in the view of a plan when operators move: facts and columns that a page lays over those it has.

A page that shows a plan has all its names, its folded graph and its picture. `moved_view` is what it needs at once
after a move: who runs where and when, and what crosses. `later_view` may follow a moment later, because it takes far
longer: memory over time, slack, the text, and what further moves would do. Both are views whose header holds
`"patch": true`; `box` and `kind` of slices are those that the operators have in the view itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from stead.printing.wording import printable_lines
from stead.report.box_moves import BoxMoves, box_moves
from stead.report.columns import View
from stead.report.facts import Report, explain, moved_report
from stead.report.fold import Fold, fold
from stead.report.plan_view import (
    Edges,
    device_facts,
    move_facts,
    moving_box_columns,
    slack_column,
    value_facts,
)
from stead.report.slices import memory_columns, run_of, timed_columns, transfer_columns
from stead.report.text import summary

if TYPE_CHECKING:
    from stead.plan import Plan

WAITING = BoxMoves({}, "being simulated")


@dataclass(frozen=True)
class Basis:
    """A plan, and what it shares with all other placements of its problem."""

    plan: Plan

    @cached_property
    def report(self) -> Report:
        """Its facts."""
        return explain(self.plan)

    @cached_property
    def boxes(self) -> Fold:
        """Modules of its graph."""
        return fold(self.plan.problem.graph)

    @cached_property
    def edges(self) -> Edges:
        """What passes between them."""
        return Edges.of(self.boxes, self.plan.problem.graph)


def moved_view(basis: Basis, plan: Plan) -> View:
    """What another placement of the same problem changes at once."""
    run, report = run_of(plan), moved_report(basis.report, plan)
    devices = [device_facts(plan, run, d, facts, blocks=False) for d, facts in enumerate(report.devices)]
    header = {
        "patch": True, "text": "", "sensitivity": [], "sizes": [], "devices": devices,
        **value_facts(plan, report, run), **move_facts(plan, report, basis.boxes, WAITING),
    }  # fmt: skip
    columns = {
        **timed_columns(plan, run),
        **transfer_columns(run),
        **moving_box_columns(plan, run, basis.boxes, basis.edges),
    }
    return View(header, columns)


def later_view(basis: Basis, plan: Plan, *, moves_seconds: float) -> View:
    """What follows: at most so much CPU time goes into further moves."""
    run, report = run_of(plan), explain(plan)
    moves = box_moves(plan, basis.boxes, cpu_seconds=moves_seconds)
    devices = [device_facts(plan, run, d, facts) for d, facts in enumerate(report.devices)]
    header = {
        "patch": True, "text": printable_lines(summary(report)), "devices": devices,
        **move_facts(plan, report, basis.boxes, moves),
    }  # fmt: skip
    slack = slack_column(run, basis.boxes, len(plan.problem.graph))
    return View(header, {**memory_columns(plan, run), "bslack": slack})
