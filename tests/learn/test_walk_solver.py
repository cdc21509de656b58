"""Solver `walk`: it keeps the rules of solvers, says who found what, counts every simulation, needs no torch."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stead import Budget, Latency, Problem, Throughput, solver
from stead.errors import BadInput
from stead.learn.walk import walking
from stead.learn.walk.made_problems import Scope, made_problem
from stead.learn.walk.method import Walk
from stead.learn.walk.walk_rules import KINDS, SHIPPED, Grounds, Rules, shaken, weight_scales
from stead.learn.walk.walk_steps import Again, Step
from stead.sim import simulate
from stead.solvers import search_state
from stead.solvers.build.list_scheduling import Heft
from stead.testing import chain3, two_towers
from stead.testing.contracts import SolverContract

UNSEEN = range(40_000_000, 40_000_012)


def problem_of(seed: int, least: int = 60, most: int = 400) -> Problem:
    return made_problem(seed, Scope(least=least, most=most)).problem


class TestContract(SolverContract):
    @pytest.fixture
    def solver(self) -> Walk:
        return Walk()


def test_the_policy_of_the_package_is_ahead_of_zero_weights_on_unseen_problems() -> None:
    logs = []
    for seed in UNSEEN:
        found = [
            Walk(policy=policy).solve(problem_of(seed), Budget()).objective_seconds
            for policy in ("pretrained", "zero")
        ]
        logs.append(math.log(found[0] / found[1]))
    assert np.mean(logs) < -0.005


def test_found_by_tells_learned_rules_from_zero_weights() -> None:
    found = {Walk().solve(problem_of(seed), Budget()).found_by for seed in UNSEEN}
    assert any(name.startswith("walk, learned rule") for name in found)
    for seed in UNSEEN[:4]:
        control = Walk(policy="zero").solve(problem_of(seed), Budget())
        assert control.found_by.startswith("walk, zero weights")


def test_a_policy_without_learning_is_never_credited(tmp_path: Path) -> None:
    rules, path = Rules.load(SHIPPED), tmp_path / "untrained.safetensors"
    Rules(np.zeros_like(rules.weights), rules.plans, rules.zero_plans).save(path)
    for seed in UNSEEN[:3]:
        assert "zero weights" in Walk(policy=str(path)).solve(problem_of(seed), Budget()).found_by
    draw = np.random.default_rng(0)
    random = np.concatenate([rules.weights[:1], draw.normal(size=rules.weights[1:].shape)])
    plans = {kind: (Step(1),) for kind in KINDS}
    Rules(random, plans, rules.zero_plans).save(path)
    found = Walk(policy=str(path), walks=1).solve(problem_of(3), Budget())
    assert found.found_by == "walk, untrained rule 1, variant 1"


@pytest.mark.parametrize("evaluations", [1, 2, 3, 4, 5, 9, 40, None])
def test_every_simulation_counts_and_no_budget_is_exceeded(
    evaluations: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0
    simulate_many, walk = search_state.simulate_many, Grounds.walk

    def counting(problem: Problem, rows: Any, **options: Any) -> Any:
        nonlocal counted
        counted += len(rows)
        return simulate_many(problem, rows, **options)

    def walked(self: Grounds, *given: Any, **options: Any) -> Any:
        nonlocal counted
        walks = walk(self, *given, **options)
        counted += sum(one.simulations for one in walks)
        return walks

    for module in (search_state, walking):
        monkeypatch.setattr(module, "simulate_many", counting)
    monkeypatch.setattr(Grounds, "walk", walked)
    found = Walk().solve(problem_of(7), Budget(evaluations=evaluations))
    assert found.evaluations == counted
    assert evaluations is None or counted <= evaluations


def test_heft_in_the_pool_is_never_behind_heft() -> None:
    for seed in UNSEEN[:4]:
        problem = problem_of(seed)
        heft = Heft().solve(problem, Budget()).objective_seconds
        assert Walk(with_heft=True).solve(problem, Budget()).objective_seconds <= heft


def test_walks_go_on_from_the_schedule_of_heft_where_that_is_best(tmp_path: Path) -> None:
    rules, path = Rules.load(SHIPPED), tmp_path / "again.safetensors"
    draw = np.random.default_rng(0).normal(scale=1e-9, size=(1, rules.weights.shape[1]))  # one walk of HEFT, about
    plans = {kind: (Step(1), Again(), Again(tail=0.5)) for kind in KINDS}
    Rules(np.concatenate([rules.weights[:1], draw]), plans, rules.zero_plans).save(path)
    found = [Walk(policy=str(path), walks=3, with_heft=True).solve(problem_of(s), Budget()).found_by for s in UNSEEN]
    assert any(one.startswith("walk, untrained rule 1 after heft, variant") for one in found)
    assert any(one.startswith("heft") for one in found)


def test_a_plan_that_goes_on_is_never_behind_its_beginning() -> None:
    for seed in UNSEEN[:6]:
        whole, begun = (Walk(walks=walks).solve(problem_of(seed), Budget()) for walks in (16, 8))
        assert whole.objective_seconds <= begun.objective_seconds


def test_more_walks_repeat_the_plan_with_noise_that_the_seed_decides() -> None:
    problem = problem_of(3)
    few, many = (Walk(walks=walks).solve(problem, Budget(), 1).objective_seconds for walks in (16, 80))
    assert many <= few
    again = [Walk(walks=80, threads=threads).solve(problem, Budget(), 1) for threads in (1, 3)]
    assert np.array_equal(again[0].placement.devices, again[1].placement.devices)


def test_who_walks_with_shaken_weights_says_so_and_those_that_go_on_from_it_too(tmp_path: Path) -> None:
    rules, path = Rules.load(SHIPPED), tmp_path / "shaken.safetensors"
    plans = {kind: (Step(0), *[Again(shake=0.3)] * 12, *[Again()] * 4) for kind in KINDS}
    Rules(rules.weights[:1], plans, plans).save(path)
    found = [Walk(policy=str(path), walks=17).solve(problem_of(seed), Budget()).found_by for seed in UNSEEN]
    numbers = {int(one.rsplit(" ", 1)[1]) for one in found if one.startswith("walk, zero weights shaken, variant ")}
    assert min(numbers) <= 13  # shaken itself
    assert max(numbers) > 13  # goes on from one that is
    assert all(one.startswith(("walk, zero weights shaken, ", "walk, zero weights, variant 1")) for one in found)


def test_weights_are_shaken_by_the_seed_and_the_number_of_the_walk_alone() -> None:
    row = np.zeros(Rules.load(SHIPPED).weights.shape[1])
    one, same, other = (shaken(row, 0.3, np.random.default_rng([seed, 4])) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert np.std(one / weight_scales()) == pytest.approx(0.3, rel=0.1)


def test_large_problems_have_a_plan_of_their_own() -> None:
    grounds = [Grounds(problem_of(5, least, 3 * least)) for least in (60, 3000)]
    assert [one.kind.large for one in grounds] == [False, True]


def test_what_does_not_fit_is_walked_again_with_less_room() -> None:
    ample = problem_of(11)
    found = Walk().solve(ample, Budget())
    peak = simulate(ample, found.placement).peak_bytes
    tight = ample
    for name in ample.cluster.names:
        tight = tight.with_memory(name, int(0.9 * max(peak)))
    answer = Walk().solve(tight, Budget())
    assert simulate(tight, answer.placement).feasible


def test_it_schedules_for_latency_alone() -> None:
    assert "latency" in str(Walk().unsupported(chain3(Throughput())))
    assert Walk().unsupported(chain3(Latency())) is None


@pytest.mark.parametrize("wrong", [{"walks": 0}, {"policy": ""}, {"threads": -1}])
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        replace(Walk(), **wrong)


def test_a_policy_that_is_not_there_is_one_line() -> None:
    with pytest.raises(BadInput, match=r"nowhere\.safetensors"):
        solver("walk", policy="nowhere.safetensors").solve(two_towers(), Budget())


def test_the_policy_of_the_package_is_read_once_and_nobody_can_change_it() -> None:
    assert Walk().rules is Walk(walks=4).rules
    with pytest.raises(ValueError, match="read-only"):
        Walk().rules.weights[0] = 1.0


def test_it_needs_no_torch() -> None:
    code = (
        "import sys, stead; from stead.testing import two_towers; "
        "print(stead.solver('walk').solve(two_towers(), stead.Budget()).objective_seconds, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["7.5", "False"]
