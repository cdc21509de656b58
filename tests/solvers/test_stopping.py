"""What ends a search: counts that no clock touches, a time limit that is kept, an interrupt that loses nothing."""

from __future__ import annotations

import math

import pytest
from goals import NAMES, OBJECTIVES, PAIRS, refusal, small_problem

from stead import clock
from stead.errors import Infeasible
from stead.problem import Problem
from stead.solvers import Budget, Solution, Solver, solver

TAKEN = [(name, objective) for name, objective in PAIRS if objective != "1f1b"]  # stops as gpipe does
PIPELINES = {"ideals", "linear-dp", "prefix-mip", "throughput-mip", "anneal", "pipedream", "local-search"}
CALLS = {"latency-mip", "offload-linear", "greedy-offload", "max-load-split"}
EVALUATIONS = 120
SLOW_FACTORS = 10, 30
# That a solver may take from the end of its time to its answer. One that it asks at that very moment counts its own
# time from then on and does not see the jump: the 13 orders of linear-dp, two polls each, are the most of that.
POLLS = 40 + 26


class FakeClock:
    """A clock that goes on by `step` seconds whenever it is asked, and may jump or raise at one of its polls."""

    def __init__(self, step: float = 0.0, *, jump_at: float = math.inf, raise_at: float = math.inf) -> None:
        self.polls = 0
        self._step, self._jump_at, self._raise_at = step, jump_at, raise_at

    def __call__(self) -> float:
        self.polls += 1
        if self.polls == self._raise_at:
            raise KeyboardInterrupt
        return self.polls * self._step + (1e6 if self.polls > self._jump_at else 0.0)


def supported(name: str, objective: str) -> tuple[Solver, Problem]:
    """A solver and a problem that it can take; skipped where its package is not installed."""
    chosen, given = solver(name), small_problem(objective)
    reason = chosen.unsupported(given)
    if reason is not None:
        pytest.skip(reason)
    return chosen, given


def answer(chosen: Solver, given: Problem, budget: Budget) -> Solution | None:
    """What a solver finds; None where it finds nothing."""
    try:
        return chosen.solve(given, budget, 5)
    except Infeasible:
        return None


def said(found: Solution | None) -> tuple[object, ...]:
    """All of an answer but the clock's part."""
    if found is None:
        return ()
    return (
        found.placement, found.objective_seconds, found.bound_seconds, found.scope, found.evaluations,
        found.stopped_by, found.found_by,
    )  # fmt: skip


def test_no_other_pairs_of_solver_and_goal_are_left_out_here() -> None:
    refused = {goal: {name for name in NAMES if refusal(name, goal) is not None} for goal in OBJECTIVES}
    for some in refused.values():
        some.remove("exhaustive")  # 3^32 placements of this problem are too many for it
    pipelines = CALLS | {"latency-cp", "mincut", "search", "series"}
    assert refused == {
        "latency": PIPELINES | CALLS | {"mincut"},
        "sequential": PIPELINES | CALLS | {"latency-cp", "search", "series"},
        "offload": PIPELINES | {"latency-cp", "mincut", "search", "series"},
        "throughput": pipelines,
        "gpipe": pipelines | PIPELINES,
        "1f1b": pipelines | PIPELINES,
    }


@pytest.mark.parametrize(("name", "objective"), TAKEN)
def test_a_slower_machine_gives_the_same_answer_as_long_as_the_limit_is_not_reached(
    name: str, objective: str
) -> None:
    chosen, given = supported(name, objective)
    quick = FakeClock(1e-3)
    with clock.read_from(quick):
        first = answer(chosen, given, Budget(1e9, EVALUATIONS))
    limit = 100 * quick.polls * 1e-3  # three times what the slowest of these machines needs
    for factor in SLOW_FACTORS:
        with clock.read_from(FakeClock(1e-3 * factor)):
            found = answer(chosen, given, Budget(limit, EVALUATIONS))
        assert said(found) == said(first)


@pytest.mark.parametrize(("name", "objective"), TAKEN)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_once_its_time_is_up_a_solver_ends_soon_with_what_it_has(
    name: str, objective: str, share: float
) -> None:
    chosen, given = supported(name, objective)
    whole = FakeClock()
    with clock.read_from(whole):
        answer(chosen, given, Budget(1.0, EVALUATIONS))
    late = FakeClock(jump_at=max(1, int(share * whole.polls)))
    with clock.read_from(late):
        found = answer(chosen, given, Budget(1.0, EVALUATIONS))
    assert found is None or found.stopped_by in ("time", "proved")
    assert late.polls - share * whole.polls < POLLS


@pytest.mark.parametrize(("name", "objective"), TAKEN)
def test_an_interrupt_leaves_the_best_placement_so_far(name: str, objective: str) -> None:
    chosen, given = supported(name, objective)
    whole = FakeClock()
    with clock.read_from(whole):
        complete = answer(chosen, given, Budget(1.0, EVALUATIONS))
    for k in sorted({int(share * whole.polls) for share in (0.3, 0.6, 0.95)} - {0}):
        heard: list[float] = []
        budget = Budget(1.0, EVALUATIONS, on_improvement=lambda step, heard=heard: heard.append(step.objective_seconds))
        with clock.read_from(FakeClock(raise_at=k)):
            try:
                found = chosen.solve(given, budget, 5)
            except (KeyboardInterrupt, Infeasible):
                assert not heard or complete is None  # there was nothing to lose
                continue
        assert found.objective_seconds <= min(heard, default=math.inf)
        assert found.stopped_by == "interrupted" or found.placement == complete.placement  # type: ignore[union-attr]
