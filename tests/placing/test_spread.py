"""auto in rounds of tasks: true answers, shared incumbents and bounds, and counts that depend on the budget alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stead.costs import Costs
from stead.engine import Engine, Journal, Worker
from stead.engine.base import Reply
from stead.engine.calls import perform
from stead.errors import BadInput, Infeasible
from stead.placing.place import place_problem
from stead.placing.spread import WIDTH, Spread, width
from stead.problem import Problem
from stead.solvers import Budget
from stead.testing import chain3, diamond, tiny_cluster, tiny_problem, two_towers


class Here:
    """Workers that are this process; the last one that was asked replies first."""

    name = "here"

    def __init__(self, size: int) -> None:
        self._workers = [Worker(f"w{n}", "h") for n in range(size)]
        self._asked: deque[tuple[int, bytes]] = deque()
        self.count = 0

    def workers(self) -> Sequence[Worker]:
        return self._workers

    def send(self, worker: Worker, ticket: int, message: bytes) -> None:
        self._asked.append((ticket, message))

    def replies(self, seconds: float) -> Sequence[Reply]:
        if not self._asked:
            return ()
        ticket, message = self._asked.pop()
        self.count += 1
        return (Reply(ticket, perform(message)),)

    def abandon(self, worker: Worker, ticket: int) -> None:
        self._asked.clear()

    def close(self) -> None:
        pass


def spread(size: int = 3, journal: Journal | None = None) -> Spread:
    return Spread(Engine(Here(size)), journal)


@pytest.mark.parametrize(("problem", "optimum"), [(chain3(), 4.0), (diamond(), 7.0), (two_towers(), 7.5)])
def test_small_problems_are_solved_and_proved(problem: Problem, optimum: float) -> None:
    found = place_problem(problem, budget=Budget(None, 5000), spread=spread()).solution
    assert (found.objective_seconds, found.gap) == (optimum, 0.0)


def test_a_limit_of_time_gives_a_task_to_every_worker() -> None:
    found = place_problem(two_towers(), budget=Budget(20.0), spread=spread(2)).solution
    assert found.objective_seconds == 7.5
    assert width(Budget(1.0), Engine(Here(5))) == 5


def test_how_many_tasks_there_are_depends_on_the_evaluations_alone() -> None:
    for size in (1, 5):
        engine = Engine(Here(size))
        assert [width(Budget(None, count), engine) for count in (1, 1499, 3000, 10**6)] == [1, 1, 2, WIDTH]


def random_problem(seed: int) -> Problem:
    """Thirty operators in three layers, on three devices, where search has something to do."""
    draw = np.random.default_rng(seed)
    names = [f"v{n}" for n in range(30)]
    reads = {
        names[b]: [names[a] for a in draw.choice(np.arange(b // 10 * 10), 2, replace=False)] for b in range(10, 30)
    }
    return tiny_problem({name: float(draw.integers(1, 20)) for name in names}, reads, devices=3)


def answer(problem: Problem, size: int, journal: Journal | None = None) -> tuple[Any, ...]:
    found = place_problem(problem, budget=Budget(None, 6000), spread=spread(size, journal)).solution
    return found.placement, found.objective_seconds, found.bound_seconds, found.evaluations, found.stopped_by


def test_the_order_in_which_tasks_end_changes_nothing() -> None:
    problem = random_problem(1)
    first = answer(problem, 1)
    assert first[3] == 6000
    assert answer(problem, 2) == answer(problem, 5) == first


def test_what_a_journal_has_is_not_asked_again_and_damage_is_told(tmp_path: Path) -> None:
    problem, path = random_problem(2), tmp_path / "j"
    first = answer(problem, 2, Journal(path))
    fleet = Here(2)
    again = Spread(Engine(fleet), Journal(path))
    found = place_problem(problem, budget=Budget(None, 6000), spread=again).solution
    assert (found.placement, fleet.count) == (first[0], 0)
    path.write_text(path.read_text().replace('"bound": ', '"bound": 9', 1))
    with pytest.raises(BadInput, match=r"j:\d+: this line was changed"):
        Journal(path)


def test_where_nothing_fits_it_is_told() -> None:
    given, small = chain3(), tiny_cluster(2, memory_bytes=1)  # every tensor takes 4 bytes
    problem = Problem(given.graph, small, Costs(given.graph, small, given.costs.seconds))
    with pytest.raises(Infeasible) as expected:
        place_problem(problem, budget=Budget(None, 3000))
    with pytest.raises(Infeasible) as caught:
        place_problem(problem, budget=Budget(None, 3000), spread=spread())
    assert caught.value.proved == expected.value.proved
