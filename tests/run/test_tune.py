"""The loop: believe, measure, correct, place again."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from stead import BadInput, Costs, Latency, Placement, Plan, Problem, RunFailed, load, simulate
from stead.placing.recost import with_seconds
from stead.run.tune import Round, tune
from stead.solvers import Budget, solver
from stead.testing import chain3, two_towers
from stead.testing.executors import SimulatedExecutor


def distorted(problem: Problem, seed: int, sigma: float = 0.35) -> Problem:
    """The truth behind costs that are wrong by a factor per device and one per kind and device."""
    rng = np.random.default_rng(seed)
    kinds = list(dict.fromkeys(problem.graph.kinds))
    row = [kinds.index(kind) for kind in problem.graph.kinds]
    logs = rng.normal(0, sigma, len(problem.cluster)) + rng.normal(0, sigma, (len(kinds), len(problem.cluster)))[row]
    seconds = problem.costs.seconds * np.exp(logs)
    return Problem(problem.graph, problem.cluster, Costs(problem.graph, problem.cluster, seconds))


def true_seconds(truth: Problem, placement: Placement) -> float:
    return simulate(truth, Placement(truth, placement.devices, placement.order)).objective_seconds


@pytest.fixture(scope="module")
def transformer_xl() -> Problem:
    return load("zoo:transformer-xl-2", "3090,3060").problem(Latency())


def test_from_wrong_costs_it_comes_near_the_plan_of_the_truth(transformer_xl: Problem) -> None:
    truth = distorted(transformer_xl, 0)
    executor = SimulatedExecutor(truth, noise=0.03)
    tuned = tune(transformer_xl, measure=executor, time_limit=None, evaluations=600)
    full = solver("auto").solve(truth, Budget(None, 600), 0).objective_seconds
    untuned = solver("auto").solve(transformer_xl, Budget(None, 600), 0).placement
    assert true_seconds(truth, tuned.plan.placement) < 1.03 * full
    assert true_seconds(truth, untuned) > 1.1 * full
    assert tuned.measurements == executor.bursts <= 20
    assert tuned.calibrated.error < 0.1 * tuned.calibrated.prior_error


def test_the_same_seed_gives_the_same_answer() -> None:
    problem = two_towers()
    truth = distorted(problem, 1)
    one, two = (
        tune(problem, measure=SimulatedExecutor(truth, noise=0.02), time_limit=None, evaluations=50, seed=5)
        for _ in range(2)
    )
    assert one.plan.placement == two.plan.placement
    assert one.measured_seconds == two.measured_seconds
    assert [[c.as_dict() for c in part.candidates] for part in one.rounds] == [
        [c.as_dict() for c in part.candidates] for part in two.rounds
    ]


def test_measured_and_predicted_are_kept_apart_in_the_plan(tmp_path: Path) -> None:
    problem = two_towers()
    measure = lambda placement: 3 * simulate(problem, placement).objective_seconds  # noqa: E731
    tuned = tune(problem, measure=measure, time_limit=None, evaluations=50)
    tuned.plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    said = again.provenance["tuned"]
    assert said["measured_seconds"] == 22.5
    assert said["prior_seconds"] == 7.5
    assert said["predicted_seconds"] == again.solution.objective_seconds == pytest.approx(22.5, rel=0.02)
    assert again.placement.counts() in ({"d0": 3, "d1": 2}, {"d0": 2, "d1": 3})


def test_a_chain_stays_on_one_device_and_the_gain_is_within_noise() -> None:
    problem = chain3()
    tuned = tune(problem, measure=SimulatedExecutor(problem, noise=0.02), time_limit=None, evaluations=50)
    assert len(set(tuned.plan.placement.devices.tolist())) == 1
    assert tuned.is_within_noise


def test_measurements_are_limited_and_the_winner_is_measured_twice() -> None:
    problem = two_towers()
    calls: list[bytes] = []

    def measure(placement: Placement) -> float:
        calls.append(placement.devices.tobytes())
        return simulate(problem, placement).objective_seconds

    tuned = tune(problem, measure=measure, measurements=5, time_limit=None, evaluations=50)
    assert tuned.measurements == len(calls) <= 5
    assert calls.count(tuned.plan.placement.devices.tobytes()) >= 2
    with pytest.raises(BadInput, match="at least 1 measurement"):
        tune(problem, measure=measure, measurements=0)


def test_an_interrupt_leaves_the_best_that_was_measured() -> None:
    problem = two_towers()
    count = 0

    def measure(placement: Placement) -> float:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return simulate(problem, placement).objective_seconds

    tuned = tune(problem, measure=measure, time_limit=None, evaluations=50)
    assert tuned.stopped_by == "interrupted"
    assert tuned.plan.solution.interrupted
    assert tuned.measured_seconds == 7.5


def test_lost_bursts_do_not_end_it() -> None:
    problem = two_towers()
    executor = SimulatedExecutor(problem, lose_every=3)
    tuned = tune(problem, measure=executor, time_limit=None, evaluations=50)
    assert tuned.measured_seconds == 7.5
    assert tuned.measurements == executor.bursts
    assert tuned.plan.provenance["tuned"]["lost"] > 0
    with pytest.raises(RunFailed, match="could be timed"):
        tune(problem, measure=SimulatedExecutor(problem, lose_every=1), time_limit=None, evaluations=50)


def test_placements_that_do_not_run_are_passed_over() -> None:
    problem = two_towers()

    def measure(placement: Placement) -> float:
        alone = len(set(placement.devices.tolist())) == 1
        return simulate(problem, placement).objective_seconds if alone else math.inf

    assert tune(problem, measure=measure, time_limit=None, evaluations=50).measured_seconds == 9.0


def test_every_round_says_what_it_believed_and_what_it_saw() -> None:
    problem, told = two_towers(), list[Round]()
    measure = lambda placement: 2 * simulate(problem, placement).objective_seconds  # noqa: E731
    tuned = tune(problem, measure=measure, time_limit=None, evaluations=50, on_round=told.append)
    assert tuple(told) == tuned.rounds
    first = {one.name: one for one in told[0].candidates}
    assert first["single:d0"].believed_seconds == 9.0
    assert first["single:d0"].trial.seconds == 18.0
    assert told[0].error == pytest.approx(math.log(2))
    assert all(part.error < 0.05 for part in told[1:])


def test_a_time_limit_ends_it_after_the_measurement_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = two_towers()
    now = [0.0]
    monkeypatch.setattr("stead.clock.now", lambda: now[0])

    def measure(placement: Placement) -> float:
        now[0] += 10.0
        return simulate(problem, placement).objective_seconds

    tuned = tune(problem, measure=measure, time_limit=25.0, evaluations=50)
    assert tuned.stopped_by == "time"
    assert tuned.measurements == 3


def test_a_problem_has_its_devices() -> None:
    with pytest.raises(BadInput, match="devices already"):
        tune(two_towers(), "3090", measure=lambda placement: 1.0)


def test_an_executor_tells_operator_by_operator_what_factors_cannot_say() -> None:
    """Costs that no factor per device and kind could correct: every operator is wrong by a factor of its own."""
    believed = two_towers()
    rng = np.random.default_rng(5)
    truth = with_seconds(believed, believed.costs.seconds * rng.lognormal(0.0, 1.0, believed.costs.seconds.shape))
    executor = SimulatedExecutor(truth)
    tuned = tune(believed, measure=executor, time_limit=None, evaluations=200)
    best = solver("auto").solve(truth, Budget(None, 200), 0).objective_seconds
    assert true_seconds(truth, tuned.plan.placement) == pytest.approx(best)
    assert tuned.predicted_seconds == pytest.approx(tuned.measured_seconds, rel=0.01)
    assert [one.name for one in tuned.rounds[0].candidates] == ["single:d0", "single:d1"]
    assert tuned.measurements == executor.bursts <= 20


def test_without_enough_measurements_for_every_operator_placements_are_measured_as_a_whole() -> None:
    problem = two_towers()
    executor = SimulatedExecutor(problem)
    tuned = tune(problem, measure=executor, time_limit=None, evaluations=50, measurements=5)
    assert "plan" in [one.name for one in tuned.rounds[0].candidates]
    assert tuned.measurements == executor.bursts <= 5
