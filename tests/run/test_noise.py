"""Whether a gain is more than the noise of the costs that it was found with."""

from __future__ import annotations

import numpy as np
import pytest

from stead import BadInput, GraphBuilder, Placement
from stead.costs import ErrorBar, Profile
from stead.run.noise import Bars, bars_of, bars_of_profiles, gain_over, shrunk
from stead.run.tune import tune
from stead.run.tune_text import tuned_lines
from stead.testing import chain3, two_towers
from stead.testing.executors import SimulatedExecutor


def bars(problem, error: float = 0.0, shared: float = 0.0) -> Bars:
    seconds = problem.costs.seconds
    return Bars(seconds.copy(), np.full(seconds.shape, error), np.full(seconds.shape[1], shared))


def test_without_errors_the_gain_is_that_of_the_simulator() -> None:
    problem = two_towers()
    towers, single = Placement(problem, [0, 1, 0, 1, 0]), Placement(problem, [0] * 5)
    gain = gain_over(problem, bars(problem), towers, {"single": single})
    assert (gain.ratio, gain.low, gain.high) == (1.2, 1.2, 1.2)  # 9 s against 7.5 s
    assert gain.survives
    assert str(gain) == "1.20x over single (1.20x to 1.20x as costs may be)"


def test_a_gain_smaller_than_the_noise_of_its_costs_does_not_survive() -> None:
    problem = two_towers()
    towers, single = Placement(problem, [0, 1, 0, 1, 0]), Placement(problem, [0] * 5)
    gain = gain_over(problem, bars(problem, shared=0.5), towers, {"single": single})
    assert gain.ratio == 1.2
    assert not gain.survives
    assert str(gain).endswith("within noise")


def test_the_same_seed_draws_the_same_gain() -> None:
    problem = two_towers()
    asked = (problem, bars(problem, error=0.2), Placement(problem, [0, 1, 0, 1, 0]), {"0": Placement(problem, [0] * 5)})
    assert gain_over(*asked, seed=3) == gain_over(*asked, seed=3)
    assert gain_over(*asked, seed=3) != gain_over(*asked, seed=4)


def test_differences_within_the_error_become_those_of_the_kind() -> None:
    build = GraphBuilder()
    for v in range(4):
        build.operator(f"v{v}", kind="matmul")
    graph = build.build()
    seconds = np.array([[1.0, 2.0], [1.0, 2.2], [1.0, 1.8], [1.0, 2.0]])
    close = shrunk(graph, Bars(seconds, np.full((4, 2), 0.2), np.zeros(2)))
    ratios = close.seconds[:, 1] / close.seconds[:, 0]
    assert np.allclose(ratios, ratios[0])
    assert ratios[0] == pytest.approx((2.0 * 2.2 * 1.8 * 2.0) ** 0.25)  # their geometric mean
    sure = shrunk(graph, Bars(seconds, np.full((4, 2), 1e-4), np.zeros(2)))
    assert np.allclose(sure.seconds, seconds, rtol=1e-4)


def test_an_operator_that_is_clearly_different_stays_so() -> None:
    build = GraphBuilder()
    for v in range(9):
        build.operator(f"v{v}", kind="conv")
    seconds = np.ones((9, 2))
    seconds[0, 1] = 8.0
    kept = shrunk(build.build(), Bars(seconds, np.full((9, 2), 0.03), np.zeros(2)))
    assert kept.seconds[0, 1] / kept.seconds[0, 0] > 7.5


def test_a_plan_that_exploits_noise_of_equal_devices_is_within_noise() -> None:
    rng = np.random.default_rng(0)
    problem = two_towers()
    repeats = [2.0 * np.exp(rng.normal(0, 0.3, (6, 5))) for _ in range(2)]
    measured = shrunk(problem.graph, bars_of(repeats))
    assert np.allclose(measured.seconds[:, 0] / measured.seconds[:, 1], measured.seconds[0, 0] / measured.seconds[0, 1])


def test_error_bars_fall_with_the_number_of_repeats_and_know_what_repeats_share() -> None:
    slow = np.array([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [2.0, 2.0]])  # whole repeats are slow, never one operator
    found = bars_of([slow])
    assert np.allclose(found.error, 0.0)
    assert found.shared[0] == pytest.approx(np.log(2.0) / np.sqrt(3) / 2)  # deviation of 2 values each way, 4 repeats
    assert bars_of([np.tile(slow, (4, 1))]).shared[0] < 0.6 * found.shared[0]


def test_a_profile_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(BadInput, match="repeats and operators"):
        bars_of([np.ones(3)])
    problem = chain3()
    with pytest.raises(BadInput, match="nothing to compare"):
        gain_over(problem, bars(problem), Placement(problem, [0, 0, 0]), {})


def test_profiles_bring_their_error_bars() -> None:
    problem = chain3()
    timed = ErrorBar(4, 0.9, 1.0, 1.0, 0.2698)  # quartiles a fifth of 1.349 deviations apart
    profile = Profile("d1", {"a": 1.0, "b": 2.0}, error_bars={"a": timed}, total=timed)
    found = bars_of_profiles(problem.graph, problem.cluster, [profile])
    assert np.isnan(found.seconds[:, 0]).all()
    assert found.seconds[:2, 1].tolist() == [1.0, 2.0]
    assert found.error[0, 1] == found.shared[1] == pytest.approx(0.1)  # 0.2 for one of four timings
    assert found.error[1, 1] == 0.0


def test_tuning_from_a_profile_says_what_its_plan_is_worth() -> None:
    problem = two_towers()
    for shared, survives in ((0.0, True), (0.5, False)):
        tuned = tune(
            problem, measure=SimulatedExecutor(problem), bars=bars(problem, shared=shared), time_limit=None,
            evaluations=50, measurements=6,
        )  # fmt: skip
        assert tuned.profile_gain is not None
        assert tuned.profile_gain.survives == survives
        assert ("within noise" in dict(tuned_lines(tuned))["profile"]) != survives
