"""Real engines, started here on loopback: the same bits for any of them and any number of workers, whoever dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleets import KINDS, needs, started, victim, wait_for

from stead.engine import Blob, Engine, EngineFailed, Outcome, Progress, Task, opened_engine
from stead.errors import MissingExtra
from stead.placing.loading import load
from stead.placing.place import place_problem
from stead.placing.spread import Spread
from stead.problem import objective_from
from stead.solvers import Budget
from stead.testing import engine_tasks as tasks

EVALUATIONS = 3000  # two tasks a round, three rounds


def placed(engine: Engine, **how: Any) -> tuple[Any, ...]:
    """What a plan says, time apart."""
    problem = load("zoo:lstm-grid?operators=100", "3090,3060").problem(objective_from("latency"))
    found = place_problem(problem, budget=Budget(None, EVALUATIONS), spread=Spread(engine), **how).solution
    trail = [(step.evaluations, step.objective_seconds, step.bound_seconds, step.found_by) for step in found.trail]
    exact = found.objective_seconds.hex(), found.bound_seconds.hex(), found.evaluations
    return found.placement.devices.tobytes(), exact, trail


@pytest.fixture(scope="module")
def expected() -> tuple[Any, ...]:
    with opened_engine("local:1") as engine:
        return placed(engine)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_is_the_same_for_any_engine_and_number_of_workers(kind: str, expected: tuple[Any, ...]) -> None:
    """What one worker finds is expected of three; the next test has two."""
    with started(kind, workers := 3) as engine:
        blob = Blob.of([1, 2])
        found = engine.map([Task.of("s", tasks.shared_sum, n, blobs=(blob,)) for n in range(6)])
        assert [one.value for one in found] == [3, 4, 5, 6, 7, 8]
        wait_for(engine, workers)
        assert placed(engine) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_killed_loses_its_task_alone(kind: str, expected: tuple[Any, ...], tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(outcome: Outcome, at: Progress) -> None:
        seen.append(at.lost)

    with started(kind, 2) as engine:
        some = [Task.of("d", tasks.killed_at_first, str(tmp_path / "mark"), n) for n in range(4)]
        assert [one.value for one in engine.map(some, watch=watch)] == [0, 2, 4, 6]
        assert seen[-1] >= 1
        with victim(engine):
            assert placed(engine) == expected


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_that_does_not_answer_is_told_in_one_line(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(kind)
    if kind == "ray":
        monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "1")
        pytest.importorskip("grpc", reason="addresses of Ray need grpcio")
    with pytest.raises((EngineFailed, MissingExtra)) as caught:
        opened_engine(f"{kind}://127.0.0.1:9")
    assert "\n" not in str(caught.value)


def test_ray_without_a_free_cpu_is_told_at_once() -> None:
    needs("ray")
    with started("ray", 1) as held:
        held.workers()
        with pytest.raises(EngineFailed, match=r"none of its 1 CPUs is free"):
            opened_engine("ray")
