"""What moves change in a view: the same as a view of the moved plan says, and nothing that a page has already."""

from __future__ import annotations

import numpy as np
import pytest

import stead
from stead.errors import BadInput
from stead.report.columns import View
from stead.report.plan_view import view
from stead.serve.sessions import Moves, Session
from stead.sim import simulate

FIXED = {"box", "kind", "names", "kinds", "bparent", "blayer", "bx", "bflags", "bops", "bweights", "bout", "boxes",
         "esrc", "edst", "ebytes"}  # fmt: skip
LATER = ("patch", "text", "devices", "moves_note")


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(stead.place("zoo:transformer", "3090,3060", evaluations=60))


def all_moves(session: Session) -> list[Moves]:
    boxes = range(0, len(session.boxes.names), 7)
    return [((box, device),) for box in boxes for device in (0, 1)] + [((3, 1), (5, 0), (3, 0))]


def test_a_patch_says_what_a_view_of_the_moved_plan_says(session: Session) -> None:
    for moves in (((2, 1),), ((4, 1), (2, 0))):
        whole = view(session.with_moves(moves), moves_seconds=0.0, sensitivity_seconds=0.0)
        first, later = View.from_bytes(session.moved_bytes(moves)), View.from_bytes(session.later_bytes(moves))
        assert not FIXED & set(first.columns)
        assert set(first.columns) | set(later.columns) | FIXED == set(whole.columns)
        for patch in (first, later):
            for name in patch.columns:
                assert np.array_equal(patch[name], whole[name], equal_nan=name == "bslack"), name
        now = {key: value for key, value in first.header.items() if key not in LATER}
        assert now.items() <= View.from_bytes(whole.as_bytes()).header.items()
        assert later.header["text"] == whole.header["text"]


def test_a_score_is_what_the_simulator_says(session: Session) -> None:
    problem = session.plan.problem
    for moves in all_moves(session):
        try:
            said = session.score(moves)
        except BadInput:
            continue  # what may not stand there
        trace = simulate(problem, session.moved(moves))
        assert (said["seconds"], said["feasible"]) == (trace.objective_seconds, trace.feasible)


def test_plans_after_moves_keep_their_trace(session: Session) -> None:
    plan = session.with_moves(((2, 1),))
    assert plan is session.with_moves(((2, 1),))
    assert plan.trace.objective_seconds == plan.solution.objective_seconds
