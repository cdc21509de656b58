"""How the budget of `auto` is dealt out to rounds of search."""

from __future__ import annotations

import pytest

from stead.cluster.describe import cluster_from
from stead.costs import Roofline
from stead.problem import Latency, Objective, Problem, Throughput
from stead.solvers import Budget
from stead.solvers.auto_steps import Tuning
from stead.solvers.rounds import Rounds
from stead.solvers.search_state import Search
from stead.workloads import synthetic


def rounds(evaluations: int, objective: Objective | None = None, **tuning: float) -> tuple[Rounds, Search]:
    """Of a graph of 300 operators, for which an attempt takes 60,000 evaluations."""
    cluster, _ = cluster_from("2x 3090")
    graph = synthetic("layered", operators=300, seed=1)
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=objective or Latency())
    search = Search(problem, Budget(evaluations=evaluations), solver="auto")
    return Rounds(search, Tuning(**tuning), effort=40_000), search  # type: ignore[arg-type]


def played(one: Rounds, search: Search) -> list[tuple[str, int]]:
    """What each round begins with and the evaluations it takes, until none are left."""
    found = []
    while (left := search.remaining_evaluations) and len(found) < 20:
        number = len(found)
        begins = "best" if one.goes_on(number) else "drawn" if one.draws(number) else "known"
        spent = min(left, one.effort(number))
        found.append((begins, spent))
        search.evaluations += spent
    return found


def test_with_little_time_there_is_one_long_round() -> None:
    one, search = rounds(149_000)
    assert not one.are_attempts
    assert played(one, search) == [("known", 149_000)]


def test_with_more_there_are_attempts_and_what_is_left_goes_on_from_the_best() -> None:
    one, search = rounds(150_000)
    assert played(one, search) == [("known", 60_000), ("drawn", 60_000), ("best", 30_000)]


def test_after_five_attempts_search_goes_on_from_the_best_and_effort_is_doubled() -> None:
    one, search = rounds(900_000)
    kinds, efforts = zip(*played(one, search), strict=True)
    assert kinds == ("known", "drawn", "known", "drawn", "known", "best", "known", "drawn", "known", "drawn", "best")[
        : len(kinds)
    ]
    assert efforts[:7] == (60_000,) * 6 + (120_000,)
    assert sum(efforts) == 900_000


@pytest.mark.parametrize("evaluations", [200_000, 10_000_000])
def test_pipelines_and_large_graphs_have_rounds_of_doubled_effort(
    evaluations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one, search in (rounds(evaluations, Throughput()), rounds(evaluations)):
        if not isinstance(search.problem.objective, Throughput):
            monkeypatch.setattr("stead.solvers.rounds.SMALL", 299)
        assert not one.are_attempts
        assert [one.share(number) for number in range(3)] == [40_000, 80_000, 160_000]
        assert [one.goes_on(number) for number in range(4)] == [False, True, False, True]
        assert not one.draws(1)


def test_an_attempt_takes_no_less_than_the_first_round_that_was_asked_for() -> None:
    one, _ = rounds(400_000, attempt_effort=100)
    assert one.attempt == 40_000
