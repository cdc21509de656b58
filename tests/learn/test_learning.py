"""Learning on the reference instance, RNNLM-2 on two equal devices; minutes, so with STEAD_SLOW=1 alone."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

pytest.importorskip("torch")

from small import pair, rnnlm

from stead.learn.colocrl.method import ColocRL
from stead.learn.ground.ablation import varied
from stead.learn.ground.one_shot import OneShot
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.problem import Problem
from stead.solvers import Budget, solver

pytestmark = pytest.mark.skipif(os.environ.get("STEAD_SLOW") != "1", reason="takes minutes; set STEAD_SLOW=1")
CPU_SECONDS = float(os.environ.get("STEAD_LEARN_SECONDS", "60"))


def single_seconds(problem: Problem) -> float:
    return solver("single").solve(problem, Budget(), 0).objective_seconds


def trained(options: ColocRL, problem: Problem, *, cpu_seconds: float, seed: int = 0) -> OneShot:
    with one_thread():
        own = options.learner([problem], seed, [Start.of(problem)])
        begin = time.process_time()
        while time.process_time() - begin < cpu_seconds:
            own.update()
    return own


def after(options: ColocRL, problem: Problem, *, evaluations: int, seed: int) -> float:
    """Best sample after so many evaluations."""
    with one_thread():
        own = options.learner([problem], seed, [Start.of(problem)])
        while own.evaluations + options.samples < evaluations:
            own.update()
    return own.tasks[0].scorer.best_seconds


def test_learning_beats_learning_rate_zero_at_equal_evaluations() -> None:  # C7, without the prior
    problem = rnnlm()
    single = single_seconds(problem)
    pairs = [
        [
            after(varied(varied(ColocRL(), follow=0.0), learning_rate=rate), problem, evaluations=2000, seed=seed)
            / single
            for rate in (1e-3, 0.0)
        ]
        for seed in range(5)
    ]
    learned, blind = np.array(pairs).T
    assert (learned < blind).all(), pairs
    assert np.median(blind) - np.median(learned) >= 0.1, pairs


def test_the_reference_run_reaches_070_of_a_single_device() -> None:  # C8
    problem = rnnlm()
    own = trained(ColocRL(), problem, cpu_seconds=CPU_SECONDS)
    assert own.tasks[0].scorer.best_seconds <= 0.70 * single_seconds(problem)


def test_with_polish_it_reaches_061() -> None:  # C8
    problem = rnnlm()
    solution = ColocRL(polish=True).solve(problem, Budget(seconds=2 * CPU_SECONDS), 0)
    assert solution.objective_seconds <= 0.61 * single_seconds(problem)


def test_the_faithful_temperature_collapses() -> None:  # C9
    problem = rnnlm()
    own = trained(ColocRL(variant="faithful"), problem, cpu_seconds=CPU_SECONDS)
    greedy = own.tasks[0].scorer.score(own.greedy(own.tasks[0])[None, :]).seconds[0]
    assert greedy >= 0.9 * single_seconds(problem)


def test_one_device_is_greedy_where_links_are_slow() -> None:  # C10
    problem = rnnlm(pair(bytes_per_second=0.1e9, latency_seconds=1e-3))
    own = trained(ColocRL(), problem, cpu_seconds=CPU_SECONDS)
    assert len(set(own.greedy(own.tasks[0]).tolist())) == 1
