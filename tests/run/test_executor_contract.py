"""The double of an executor that tests and users measure with."""

from __future__ import annotations

import numpy as np

from stead import Placement
from stead.run.executor import Executor
from stead.testing import two_towers
from stead.testing.executors import SimulatedExecutor


def test_a_simulated_executor_takes_as_long_as_the_truth() -> None:
    problem = two_towers()
    executor: Executor = SimulatedExecutor(problem)
    with executor:
        burst = executor.burst(Placement(problem, [0, 1, 0, 1, 0]), runs=3)
    assert burst.seconds == (7.5, 7.5, 7.5)
    assert np.array_equal(executor.profile(0, repeats=2), np.tile([2.0, 2.0, 2.0, 2.0, 1.0], (2, 1)))


def test_noise_only_slows_down_and_lost_bursts_say_so() -> None:
    problem = two_towers()
    executor = SimulatedExecutor(problem, noise=0.2, lose_every=2)
    first, second = (executor.burst(Placement(problem, [0] * 5), runs=4) for _ in range(2))
    assert all(seconds >= 9.0 for seconds in first.seconds)
    assert not first.lost
    assert second.lost == "lost on purpose"
    assert second.seconds == ()
