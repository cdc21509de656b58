"""Measured rewards, for all that learns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from stead import BadInput, Costs, Placement, Problem, simulate
from stead.learn.colocrl.method import ColocRL
from stead.learn.gdp.method import GDP
from stead.learn.ground.reward import Scorer
from stead.learn.ground.solver import train_policy
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.learn.ground.training_run import Run
from stead.learn.hdp.method import HDP
from stead.learn.hsdag.method import HSDAG
from stead.learn.placeto.method import Placeto
from stead.run.measured_reward import MeasuredReward
from stead.testing import two_towers
from stead.testing.executors import SimulatedExecutor

LEARNERS: dict[str, Any] = {
    "colocrl": ColocRL(hidden=16, samples=8),
    "hdp": HDP(hidden=16, samples=8, groups=8),
    "placeto": Placeto(policy="", episodes=4),
    "gdp": GDP(policy="", samples=8),
    "hsdag": HSDAG(hidden=16, samples=8),
}
TOWERS, SINGLE = [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]


def rows(*given: list[int]) -> np.ndarray[Any, Any]:
    return np.array(given, dtype=np.uint8)


def twice(problem: Problem) -> Problem:
    """A machine that takes twice as long for everything that is computed."""
    return Problem(problem.graph, problem.cluster, Costs(problem.graph, problem.cluster, 2 * problem.costs.seconds))


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_finds_the_best_placement_by_measuring(name: str) -> None:
    problem = two_towers()
    reward = MeasuredReward(SimulatedExecutor(twice(problem), noise=0.02), problem)
    with one_thread():
        learner = LEARNERS[name].learner([problem], 0, [Start.of(problem, reward)], evaluate=reward)
        for _ in range(12):
            learner.update()
    task = learner.tasks[0]
    found = simulate(twice(problem), Placement(twice(problem), task.scorer.placement(task.scorer.best).devices))
    assert found.objective_seconds == 8 + 2.5 + 2  # the towers apart: 12.5 s, on one device 18 s
    assert task.scorer.best_seconds == pytest.approx(12.5, rel=0.1)
    assert task.known["single"] == pytest.approx(18.0, rel=0.1)  # measured as well
    assert reward.trials.count > 0


@pytest.mark.parametrize("name", LEARNERS)
def test_the_same_seed_gives_the_same_answer(name: str) -> None:
    problem = two_towers()
    answers = []
    for _ in range(2):
        reward = MeasuredReward(SimulatedExecutor(problem), problem)
        with one_thread():
            learner = LEARNERS[name].learner([problem], 3, [Start.of(problem, reward)], evaluate=reward)
            told = [learner.update().mean for _ in range(3)]
        answers.append((told, reward.trials.count, reward.trials.hits))
    assert answers[0] == answers[1]


def test_a_placement_is_run_once_however_often_it_is_drawn() -> None:
    problem = two_towers()
    executor = SimulatedExecutor(problem)
    reward = MeasuredReward(executor, problem)
    assert reward(rows(TOWERS, SINGLE, TOWERS)).tolist() == [7.5, 9.0, 7.5]
    assert reward(rows(TOWERS)).tolist() == [7.5]
    assert executor.bursts == reward.trials.count == 2  # the reference is the single device
    assert reward.trials.hits == 3


def test_mixed_rewards_measure_the_best_and_one_other_and_scale_the_rest() -> None:
    problem = two_towers()
    executor = SimulatedExecutor(twice(problem))
    reward = MeasuredReward(executor, problem, kind="mixed", every=2)
    first = reward(rows(TOWERS, SINGLE, [1, 1, 1, 1, 1]))
    assert first[0] == 12.5  # measured
    assert reward.trials.count <= 3
    assert reward.scale == pytest.approx(2.0, rel=0.2)
    count = reward.trials.count
    second = reward(rows([0, 1, 0, 1, 1]))
    assert reward.trials.count == count
    assert second[0] == pytest.approx(7.5 * reward.scale)
    assert reward.simulated >= 1


def test_a_lost_burst_teaches_nothing_and_is_tried_again_later() -> None:
    problem = two_towers()
    from stead.learn.ground.placed_groups import placed_groups

    executor = SimulatedExecutor(problem, lose_every=1)
    reward = MeasuredReward(executor, problem)
    scorer = Scorer(problem, placed_groups(problem), evaluate=reward)
    row = scorer.grouping.lower(rows(TOWERS)[0])[None, :]
    scored = scorer.score(row)
    assert scored.lost.all()
    assert not scored.feasible.any()
    executor.lose_every = 0
    assert scorer.score(row).seconds.tolist() == [7.5]
    assert reward.trials.lost == 4  # reference and row, twice each


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_go_on_where_bursts_are_lost(name: str) -> None:
    problem = two_towers()
    reward = MeasuredReward(SimulatedExecutor(problem, lose_every=2), problem)
    with one_thread():
        learner = LEARNERS[name].learner([problem], 0, [Start.of(problem, reward)], evaluate=reward)
        told = [learner.update() for _ in range(3)]
    assert all(np.isfinite(metrics.gradient) for metrics in told)
    assert reward.trials.lost > 0


def test_what_does_not_fit_is_never_run() -> None:
    problem = two_towers().with_memory("d1", 1)
    executor = SimulatedExecutor(problem)
    reward = MeasuredReward(executor, problem)
    assert reward(rows(TOWERS)).tolist() == [np.inf]
    assert executor.bursts == 1  # the reference


def test_the_winner_is_measured_once_more() -> None:
    problem = two_towers()
    executor = SimulatedExecutor(problem)
    reward = MeasuredReward(executor, problem)
    reward(rows(TOWERS))
    before = executor.bursts
    found = reward.confirm(Placement(problem, TOWERS))
    assert (found.seconds, found.bursts) == (7.5, 1)
    assert executor.bursts == before + 1


def test_an_interrupt_keeps_what_was_measured_and_training_goes_on_from_it(tmp_path: Path) -> None:
    problem = two_towers()
    calls = 0

    def measure(placement: Placement) -> float:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return simulate(problem, placement).objective_seconds

    def trained(folder: Path, by: Any, *, resume: bool) -> tuple[Any, MeasuredReward]:
        reward = MeasuredReward(by, problem, kept=folder / "p.measured.jsonl")
        run = Run(folder / "p.safetensors", 4, resume, every=1)
        return train_policy(LEARNERS["colocrl"], [problem], ["towers"], run, evaluate=reward), reward

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, measure, resume=False)
    kept = [json.loads(line) for line in (tmp_path / "p.measured.jsonl").read_text().splitlines()]
    assert len(kept) == 3
    resumed, reward = trained(tmp_path, measure, resume=True)
    assert reward.trials.hits >= 1
    whole = tmp_path / "whole"
    whole.mkdir()
    straight, _ = trained(whole, lambda one: simulate(problem, one).objective_seconds, resume=False)
    assert resumed.tasks[0].scorer.best_seconds == straight.tasks[0].scorer.best_seconds
    assert (tmp_path / "p.safetensors").read_bytes() == (whole / "p.safetensors").read_bytes()


def test_measured_rewards_are_of_one_model(tmp_path: Path) -> None:
    problem = two_towers()
    reward = MeasuredReward(SimulatedExecutor(problem), problem)
    with pytest.raises(BadInput, match="one model"):
        train_policy(
            LEARNERS["colocrl"], [problem] * 2, ["a", "b"], Run(tmp_path / "p.safetensors", 1), evaluate=reward
        )
    with pytest.raises(BadInput, match="measured or mixed"):
        MeasuredReward(SimulatedExecutor(problem), problem, kind="mesured")  # type: ignore[arg-type]
