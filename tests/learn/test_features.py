"""Features: finite, bounded, alike for frameworks, built without loops over operators; rewards that are never NaN."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")

from small import grid, pair

from stead.coarsen import colocate, single_groups
from stead.costs import Roofline
from stead.graph import GraphBuilder
from stead.learn.ground.equal_devices import canonical, device_classes
from stead.learn.ground.features import (
    NUMBERS,
    VOCABULARY,
    WORDS,
    group_features,
    operator_table,
    width,
    word_of,
)
from stead.learn.ground.losses import Linear, advantages, ppo_loss
from stead.learn.ground.placed_groups import placed_groups
from stead.learn.ground.policy import Proposal
from stead.learn.ground.reward import Reward, Scored, Scorer
from stead.learn.ground.task import Elites
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.sim import simulate_many
from stead.testing import tiny_problem, two_towers
from stead.workloads import names
from stead.workloads.synthetic import FAMILIES, synthetic


def problem_of(graph: object, devices: int = 2) -> Problem:
    cluster = pair(devices=devices)
    return Problem(graph, cluster, Roofline().costs(graph, cluster))  # type: ignore[arg-type]


@pytest.mark.parametrize("family", FAMILIES)
def test_features_of_every_family_are_finite_and_bounded(family: str) -> None:  # B3
    problem = problem_of(synthetic(family))
    for grouping in (colocate(problem.graph), single_groups(problem.graph)):
        found = group_features(problem, operator_table(problem), grouping.group.astype(np.int64), columns=64)
        stacked = found.stacked
        assert stacked.shape == (grouping.count, width(2))
        assert np.isfinite(stacked).all()
        assert np.abs(stacked).max() <= 10.0
        assert np.abs(found.counts).max() == 1.0
        assert np.isfinite(found.adjacency).all()
        assert 0 <= found.adjacency.min() <= found.adjacency.max() <= 1.0


@pytest.mark.parametrize(
    "name", [name for name in names() if name in ("inception-v3", "bert-base", "gnmt-2", "t5-small")]
)
def test_features_of_the_zoo_are_finite_and_bounded(name: str) -> None:  # B3
    problem = load(f"zoo:{name}", pair()).problem(Latency())
    stacked = group_features(
        problem, operator_table(problem), colocate(problem.graph).group.astype(np.int64), columns=256
    ).stacked
    assert np.isfinite(stacked).all()
    assert np.abs(stacked).max() <= 10.0


def test_huge_and_empty_operators_stay_bounded() -> None:
    build = GraphBuilder("huge")
    a = build.operator("a", flops=1e300, moved_bytes=1e300)
    build.operator("b", reads=[build.tensor(a, size_bytes=2**61)])
    problem = problem_of(build.build())
    stacked = group_features(
        problem, operator_table(problem), single_groups(problem.graph).group.astype(np.int64), columns=2
    ).stacked
    assert np.isfinite(stacked).all()


def test_an_operator_with_three_producers_lists_three() -> None:  # B1
    problem = tiny_problem({"a": 1, "b": 1, "c": 1, "d": 1}, {"d": ["a", "b", "c"]})
    found = group_features(
        problem, operator_table(problem), single_groups(problem.graph).group.astype(np.int64), columns=4
    )
    assert np.count_nonzero(found.adjacency[3, 4:]) == 3
    assert found.adjacency[3, 4:].sum() == pytest.approx(1.0)
    assert np.count_nonzero(found.adjacency[3, :4]) == 0


def test_a_group_of_one_kind_has_one_count() -> None:  # B2
    problem = tiny_problem({"a": 1, "b": 1}, {"b": ["a"]})
    found = group_features(problem, operator_table(problem), np.zeros(2, dtype=np.int64), columns=2)
    assert found.counts.shape == (1, VOCABULARY)
    assert np.count_nonzero(found.counts) == 1
    assert found.numbers.shape == (1, NUMBERS)


def test_seconds_add_up_over_a_group_and_are_relative_to_the_fastest() -> None:
    problem = two_towers()
    found = group_features(
        problem, operator_table(problem), single_groups(problem.graph).group.astype(np.int64), columns=5
    )
    assert (found.relative == 0).all()  # equal devices


def test_frameworks_share_words() -> None:
    assert word_of("aten.mm") == word_of("MatMul") == word_of("onnx::Gemm") == WORDS.index("matmul")
    assert word_of("aten._log_softmax_backward_data") == WORDS.index("logsoftmax")
    assert word_of("aten.embedding_dense_backward") == WORDS.index("embedding")
    assert word_of("aten.convert") == WORDS.index("cast")
    assert len(WORDS) <= word_of("Frobnicate") < VOCABULARY


def test_grouping_features_takes_milliseconds() -> None:  # B5
    problem = problem_of(synthetic("lstm-grid", operators=40_000, training=True))
    table, grouping = operator_table(problem), placed_groups(problem)
    assert grouping.count <= 256
    best = min(
        _timed(lambda: group_features(problem, table, grouping.group.astype(np.int64), columns=256))
        for _ in range(5)
    )
    assert best < 0.05  # about 0.01 s on a busy core; a loop over operators takes ten times that


def _timed(call: object) -> float:
    begin = time.process_time()
    call()  # type: ignore[operator]
    return time.process_time() - begin


# Rewards


def test_identical_rows_are_simulated_once_and_counted_apart() -> None:
    problem = two_towers()
    scorer = Scorer(problem, single_groups(problem.graph))
    rows = np.array([[0, 1, 0, 1, 0], [0] * 5, [0, 1, 0, 1, 0]], dtype=np.uint8)
    assert scorer.score(rows).seconds.tolist() == [7.5, 9.0, 7.5]
    assert (scorer.evaluations, scorer.hits) == (2, 1)
    scorer.score(rows[:1])
    assert (scorer.evaluations, scorer.hits) == (2, 2)
    assert scorer.best_seconds == 7.5


def test_too_little_memory_is_an_explicit_signal_and_never_the_best() -> None:  # B8
    problem = two_towers().with_memory("d1", 3)
    scorer = Scorer(problem, single_groups(problem.graph))
    scored = scorer.score(np.array([[0] * 5, [0, 1, 0, 1, 0]], dtype=np.uint8))
    assert scored.feasible.tolist() == [True, False]
    assert scored.overfull[1] > 0
    assert scorer.best_seconds == 9.0
    reward = Reward("sqrt", 9.0).of(scored, scorer.worst_seconds)
    assert reward[0] == -1.0
    assert reward[1] < -2.0


@pytest.mark.parametrize("shape", ["sqrt", "log"])
def test_rewards_are_finite_and_fall_with_run_time(shape: str) -> None:
    scored = Scored(np.array([1e-12, 1.0, 2.0, np.inf]), np.array([0.0, 0.0, 0.0, np.inf]))
    for failing in (None, 100.0):
        reward = Reward(shape, 1.0, failing).of(scored, 2.0)  # type: ignore[arg-type]
        assert np.isfinite(reward).all()
        assert (np.diff(reward) < 0).all()


def test_a_scorer_is_restored_with_its_cache() -> None:
    problem = grid()
    grouping = colocate(problem.graph)
    first, second = Scorer(problem, grouping), Scorer(problem, grouping)
    rows = np.random.default_rng(0).integers(0, 2, (5, grouping.count)).astype(np.uint8)
    first.score(rows)
    second.restore(*first.state())
    second.score(rows)
    assert (second.evaluations, second.hits) == (5, 5)
    assert second.best_seconds == first.best_seconds


# Small tools of training


def test_equal_devices_are_renamed_by_first_use() -> None:
    classes = device_classes(two_towers())
    assert classes.tolist() == [0, 0]
    rows = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1]], dtype=np.uint8)
    assert canonical(rows, classes).tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert canonical(rows, np.array([0, 1])).tolist() == rows.tolist()


def test_unequal_devices_keep_their_names() -> None:
    assert device_classes(two_towers().with_memory("d1", 100)).tolist() == [0, 1]


def test_elites_are_the_best_different_rows_within_a_band() -> None:
    elites = Elites(most=3)
    rows = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [0, 1]], dtype=np.uint8)
    elites.offer(rows, np.array([1.02, 1.0, np.inf, 2.0, 1.0]))
    assert elites.seconds == [1.0, 1.02, 2.0]
    assert elites.within(0.03).tolist() == [[0, 1], [0, 0]]


def test_advantages_are_standardised_or_against_a_baseline() -> None:
    reward, weight = np.array([-1.0, -2.0, -50.0]), np.array([1.0, 1.0, 0.0])
    assert advantages(reward, weight, None).tolist() == pytest.approx([1.0, -1.0, 0.0])
    assert advantages(reward, weight, -3.0).tolist() == [2.0, 1.0, 0.0]
    assert advantages(reward, 0 * weight, None).tolist() == [0.0, 0.0, 0.0]


def test_a_schedule_is_linear_and_then_constant() -> None:
    assert [Linear(1.0, 0.0, 10).at(n) for n in (0, 5, 10, 20)] == [1.0, 0.5, 0.0, 0.0]


def test_ppo_takes_advantages_per_placement_and_per_step() -> None:
    import torch

    log_p, old = torch.log(torch.tensor([[0.6, 0.5]])), torch.log(torch.tensor([[0.5, 0.5]]))
    weight = torch.ones(1)
    assert float(ppo_loss(log_p, old, torch.tensor([1.0]), weight, 0.1)) == pytest.approx(-2.1)
    assert float(ppo_loss(log_p, old, torch.tensor([[-1.0, 0.0]]), weight, 0.1)) == pytest.approx(1.2)


def test_a_proposal_is_checked() -> None:
    with pytest.raises(ValueError, match="log probabilities"):
        Proposal(np.zeros((2, 3), dtype=np.uint8), np.zeros(1))
    with pytest.raises(ValueError, match="uint8"):
        Proposal(np.zeros((2, 3), dtype=np.int64), np.zeros(2))  # type: ignore[arg-type]


def test_a_runtime_that_fails_now_and_then_ends_nothing() -> None:  # C14
    problem = grid(steps=3)
    grouping = placed_groups(problem)
    simulated = Scorer(problem, grouping)
    rows = np.random.default_rng(0).integers(0, 2, (60, grouping.count)).astype(np.uint8)
    honest = simulated.score(rows).seconds
    calls = 0

    def runtime(placements: NDArray[np.uint8]) -> NDArray[np.float64]:
        nonlocal calls
        calls += 1
        if calls % 10 == 0:
            raise TimeoutError("the device did not answer")
        return simulate_many(problem, placements).seconds

    measured = Scorer(problem, grouping, evaluate=runtime).score(rows)
    assert np.array_equal(measured.seconds, honest)  # tried again, every time
    broken = Scorer(problem, grouping, evaluate=lambda placements: np.full(len(placements), np.nan))
    scored = broken.score(rows)
    assert not scored.feasible.any()
    assert broken.best is None
    assert np.isfinite(Reward("sqrt", 1.0).of(scored, broken.worst_seconds)).all()
