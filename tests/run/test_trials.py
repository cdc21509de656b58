"""Measuring placements: what is run, what is remembered and what is counted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from stead import BadInput, Placement
from stead.problem import Throughput
from stead.run.executor import Burst
from stead.run.trials import Trials, runs_within
from stead.testing import two_towers
from stead.testing.executors import SimulatedExecutor

TOWERS, SINGLE = [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]


def test_a_placement_is_measured_once_and_then_known() -> None:
    problem = two_towers()
    trials = Trials(SimulatedExecutor(problem), problem)
    for _ in range(3):
        assert trials.measure(Placement(problem, TOWERS)).seconds == 7.5
    assert (trials.count, trials.hits) == (1, 2)


def test_bursts_stay_below_the_limit_of_the_system() -> None:
    assert [runs_within(seconds, 5) for seconds in (0.01, 0.1, 0.2, 0.42, 5.0)] == [5, 5, 3, 1, 1]


def test_a_lost_burst_is_tried_once_more_and_then_says_nothing() -> None:
    problem = two_towers()
    once = Trials(SimulatedExecutor(problem, lose_every=2), problem)
    assert [once.measure(Placement(problem, row)).seconds for row in (TOWERS, SINGLE)] == [7.5, 9.0]
    assert (once.count, once.lost) == (3, 1)
    always = Trials(SimulatedExecutor(problem, lose_every=1), problem)
    trial = always.measure(Placement(problem, TOWERS))
    assert trial.is_lost
    assert not trial.counts
    assert (always.count, always.lost) == (2, 2)


def test_the_fastest_of_the_runs_counts() -> None:
    problem = two_towers()

    class Noisy(SimulatedExecutor):
        def burst(self, placement: Placement, *, runs: int) -> Burst:
            return Burst((9.0, 7.6, 8.0), "simulated")

    trial = Trials(Noisy(problem), problem).measure(Placement(problem, TOWERS))
    assert trial.seconds == 7.6
    assert trial.spread == pytest.approx(8.0 / 7.6 - 1)


def test_a_machine_that_slows_down_is_told_by_the_reference() -> None:
    problem = two_towers()
    slow = {"by": 1.0}

    def measure(placement: Placement) -> float:
        return slow["by"] * SimulatedExecutor(problem).burst(placement, runs=1).seconds[0]

    trials = Trials(measure, problem, reference_every=2)
    trials.measure(Placement(problem, SINGLE))  # 9 s: the reference
    trials.measure(Placement(problem, [1, 1, 1, 1, 1]))
    slow["by"] = 1.5
    assert trials.measure(Placement(problem, TOWERS)).seconds == pytest.approx(7.5)
    assert trials.drift == pytest.approx(1.5)
    assert trials.count == 4  # the reference twice


def test_a_function_may_say_that_a_placement_does_not_run() -> None:
    problem = two_towers()
    trials = Trials(lambda placement: math.inf, problem)
    trial = trials.measure(Placement(problem, TOWERS))
    assert not trial.is_lost
    assert not trial.counts
    with pytest.raises(BadInput, match="returned -1"):
        Trials(lambda placement: -1.0, problem).measure(Placement(problem, TOWERS))
    with pytest.raises(BadInput, match="an executor or a function"):
        Trials(3, problem)  # type: ignore[arg-type]


def test_measurements_outlive_the_process(tmp_path: Path) -> None:
    problem, kept = two_towers(), tmp_path / "measured.jsonl"
    Trials(SimulatedExecutor(problem), problem, kept=kept).measure(Placement(problem, TOWERS))
    with kept.open("a") as file:
        file.write('{"key": "cut o')
    again = Trials(SimulatedExecutor(problem), problem, kept=kept)
    assert again.measure(Placement(problem, TOWERS)).seconds == 7.5
    assert (again.count, again.hits) == (0, 1)


def test_throughput_is_measured_as_a_pipeline() -> None:
    problem = two_towers().with_objective(Throughput())
    executor = SimulatedExecutor(problem)
    trial = Trials(executor, problem).measure(Placement(problem, [0, 0, 0, 0, 1]))
    assert executor.bursts == 0
    assert trial.seconds == pytest.approx(8.0 + 2 * 2.5)  # two tensors leave the first stage, one after the other
