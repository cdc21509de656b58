"""Walks by the opinions of networks: zero is list scheduling, what is forbidden stays so, and learning resumes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from small import grid, pair, resumes_to_the_same_bits

from stead import Budget, Problem, Throughput
from stead.errors import BadInput
from stead.learn.colocrl.method import ColocRL
from stead.learn.gdp.method import GDP
from stead.learn.ground.ablation import varied
from stead.learn.ground.placed_groups import placed_groups
from stead.learn.ground.solver import Learns, train_policy
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.learn.ground.training_run import Run
from stead.learn.placeto.method import Placeto
from stead.learn.walk import opinion_climb, opinion_solver
from stead.learn.walk.made_problems import Scope, made_problem
from stead.learn.walk.method import Walk
from stead.learn.walk.opinion_climb import OpinionClimb
from stead.learn.walk.opinion_loop import OpinionLoop, opinions_of
from stead.learn.walk.opinions import OpinedGrounds
from stead.learn.walk.walk_steps import Step
from stead.placing.loading import load
from stead.problem import Constraints, Latency
from stead.sim import simulate

UNTAUGHT: dict[str, Learns] = {
    "colocrl": ColocRL(updates=2, samples=4, hidden=16, decoder="walk"),
    "gdp": varied(GDP(policy="", updates=2, samples=4, decoder="walk", polish=False), hidden=16),
    "placeto": Placeto(policy="", updates=2, episodes=2, decoder="walk"),
}


def made(seed: int) -> Problem:
    """One of two devices: ColocRL's networks serve the number that they were trained for."""
    while len((problem := made_problem(seed, Scope(least=40, most=200)).problem).cluster) != 2:
        seed += 1000
    return problem


def written(name: str, path: Path, updates: int = 0) -> Learns:
    """A policy after so many updates, ready to be asked."""
    method: Any = UNTAUGHT[name]
    train_policy(method, [made(50_000_000)], ["made"], Run(path, updates))
    return varied(method, policy=str(path))


@pytest.mark.parametrize("name", UNTAUGHT)
def test_a_network_that_has_learnt_nothing_is_list_scheduling_and_gets_no_credit(name: str, tmp_path: Path) -> None:
    asked = written(name, tmp_path / "p.safetensors")
    for seed in range(50_000_001, 50_000_004):
        problem = made(seed)
        found, listed = asked.solve(problem, Budget()), Walk(policy="zero", walks=16).solve(problem, Budget())
        assert found.objective_seconds <= listed.objective_seconds
        if found.found_by.startswith(name):
            assert found.found_by.startswith(f"{name} prior, variant")
            assert found.objective_seconds == listed.objective_seconds
            assert np.array_equal(found.placement.devices, listed.placement.devices)


@pytest.mark.parametrize("name", UNTAUGHT)
def test_opinions_are_zero_at_first_and_change_with_updates(name: str) -> None:
    problem = made_problem(50_000_002, Scope(least=40, most=200)).problem
    with one_thread():
        own: Any = UNTAUGHT[name].learner([problem], 0, [Start.of(problem)])
        assert not opinions_of(own.thinks, own.tasks[0].inputs).any()
        for _ in range(6):  # small shakes may change no walk at all
            own.update()
        assert opinions_of(own.thinks, own.tasks[0].inputs).any()


def test_names_of_equal_devices_do_not_keep_opinions_at_zero() -> None:
    problem = grid(layers=2, steps=4)  # two equal devices: what opposite shakes find are mirror images
    with one_thread():
        own: Any = UNTAUGHT["colocrl"].learner([problem], 0, [Start.of(problem)])
        for _ in range(4):
            own.update()
        assert opinions_of(own.thinks, own.tasks[0].inputs).any()


@pytest.mark.parametrize("name", UNTAUGHT)
def test_opinions_are_learnt_to_the_same_bits_after_a_break(name: str) -> None:
    problems = [grid(layers=2, steps=2), made(50_000_003)]
    starts = [Start.of(problem) for problem in problems]
    with one_thread():
        assert resumes_to_the_same_bits(lambda: UNTAUGHT[name].learner(problems, 3, starts))


def climbing(name: str, **changed: Any) -> Any:
    """A network that learns by selection, as on large problems, on a small one."""
    problem = made(50_000_003)
    own: Any = varied(UNTAUGHT[name], **changed).learner([problem], 0, [Start.of(problem)])  # type: ignore[type-var]
    return OpinionClimb(own.module, own.thinks, own.tasks, own.training)


@pytest.mark.parametrize("name", UNTAUGHT)
def test_climbing_resumes_to_the_same_bits_after_a_break(name: str) -> None:
    with one_thread():
        assert resumes_to_the_same_bits(lambda: climbing(name))


def test_one_large_problem_is_learnt_by_selection_where_devices_have_no_names() -> None:
    chosen = {}
    for operators, name in product((500, 4000), ("gdp", "colocrl")):
        problem = load(f"zoo:layered?operators={operators}", "2x 3090").problem(Latency())
        own: Any = UNTAUGHT[name].learner([problem], 0, [Start.of(problem)])
        chosen[operators, name] = type(own)
    by_slopes = dict.fromkeys([(500, "gdp"), (500, "colocrl"), (4000, "colocrl")], OpinionLoop)
    assert chosen == by_slopes | {(4000, "gdp"): OpinionClimb}


@pytest.mark.parametrize("name", UNTAUGHT)
def test_on_one_problem_the_walk_of_the_network_never_gets_longer(name: str) -> None:
    with one_thread():
        own = climbing(name)
        lengths, stepped = [], []
        for _ in range(12):
            stepped.append(own.update().stepped)
            lengths.append(own.tasks[0].greedy_seconds)
        assert any(stepped)
        for before, after, was_better in zip(lengths, lengths[1:], stepped, strict=False):
            assert after < before if was_better else after == before


@pytest.mark.parametrize("name", UNTAUGHT)
def test_shakes_move_opinions_as_far_as_they_say(name: str) -> None:
    with one_thread():
        own = climbing(name)
        u, b = own.thinks.codes(own.tasks[0].inputs)
        moved = np.einsum("pbh,mh,mkb->pmk", *(one.detach().numpy() for one in (own._scaled(u, b), u, b)))
        apart = np.sqrt(((moved - moved.mean(axis=2, keepdims=True)) ** 2).mean(axis=(1, 2)))
        assert apart == pytest.approx([0.5 * 10**0.5, 0.05], rel=1e-4)  # two pairs: the strongest and the weakest


def test_the_strength_that_helped_is_the_next_one() -> None:
    with one_thread():
        own = climbing("gdp")
        for _ in range(8):
            before = own.strength
            told = own.update()
            could = [before * 10**0.5, before * 0.1] if told.stepped else [before]
            assert any(own.strength == pytest.approx(one) for one in could)


def test_where_nothing_helps_for_long_another_kind_of_walk_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[Step]()
    monkeypatch.setattr(OpinedGrounds, "walk_rows", _remembered(OpinedGrounds.walk_rows, used))
    monkeypatch.setattr(opinion_climb, "VAIN", 2)
    with one_thread():
        own = climbing("gdp")
        scorer = own.tasks[0].scorer
        scorer.kinds = Step(0), Step(0, 4.0)
        monkeypatch.setattr(scorer, "walked", _never_better(scorer.walked))
        for _ in range(5):
            own.update()
    assert used == [Step(0), Step(0), Step(0, 4.0), Step(0, 4.0), Step(0)]


def _never_better(walked: Any) -> Any:
    def told(opinions: Any, by: Any) -> Any:
        scored, rows = walked(np.repeat(opinions[:1], len(opinions), axis=0), by)
        return scored, rows

    return told


def test_at_learning_rate_0_nothing_is_kept_and_nothing_credited_to_learning() -> None:
    with one_thread():
        own = climbing("gdp", learning_rate=0.0)
        for _ in range(6):
            assert not own.update().stepped
        assert (own.taught, own.strength) == (False, 0.5)
        assert not opinions_of(own.thinks, own.tasks[0].inputs).any()
        assert own.tasks[0].scorer.own.by == "prior"


def test_strong_opinions_decide_but_never_for_a_device_that_is_forbidden() -> None:
    free = grid(pair(devices=3), layers=2, steps=3)
    first = free.graph.operator_names[0]
    problem = free.with_constraints(Constraints(pin=((first, free.cluster.devices[1].name),)))
    grouping = placed_groups(problem)
    grounds = OpinedGrounds(problem, grouping.group)
    wanted = np.zeros((2, grouping.count, 3))
    wanted[1, :, 2] = 50.0
    grounds.take(wanted)
    _, loud = grounds.walk_rows(Step(0))
    assert problem.allowed[np.arange(len(problem.graph)), loud.devices].all()
    assert loud.devices[0] == 1
    assert (loud.devices == 2).sum() > len(problem.graph) // 2


def test_opinions_that_are_no_numbers_count_nothing() -> None:
    problem = grid(layers=2, steps=2)
    grouping = placed_groups(problem)
    grounds = OpinedGrounds(problem, grouping.group)
    grounds.take(np.stack([np.zeros((grouping.count, 2)), np.full((grouping.count, 2), np.nan)]))
    quiet, broken = grounds.walk_rows(Step(0))
    assert np.array_equal(quiet.devices, broken.devices)


def test_what_fine_tuning_finds_is_what_the_simulator_says(tmp_path: Path) -> None:
    asked = written("gdp", tmp_path / "p.safetensors", updates=1)
    problem = made(50_000_005)
    found = varied(asked, fine_tune=2).solve(problem, Budget())  # type: ignore[type-var]
    assert simulate(problem, found.placement).objective_seconds == pytest.approx(found.objective_seconds, rel=1e-12)


def test_fine_tuning_is_rewarded_by_the_kind_of_walk_that_was_best_with_the_opinions_of_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = written("gdp", tmp_path / "p.safetensors", updates=1)
    best, used = Step(0, 2.0, 0.0, "min", 0), []
    monkeypatch.setattr(opinion_solver, "walk_by_opinions", lambda *_, **__: (best, Step(0)))
    monkeypatch.setattr(OpinedGrounds, "walk_rows", _remembered(OpinedGrounds.walk_rows, used))
    varied(asked, fine_tune=2).solve(made(50_000_005), Budget())  # type: ignore[type-var]
    assert set(used) == {best}


def _remembered(walk_rows: Any, used: list[Step]) -> Any:
    def remembering(grounds: OpinedGrounds, step: Step, **options: Any) -> Any:
        used.append(step)
        return walk_rows(grounds, step, **options)

    return remembering


@pytest.mark.parametrize(("method", "other"), [(GDP(polish=False), "devices"), (Placeto(), "episodes")])
def test_the_policy_of_the_package_walks_where_it_can_unless_told_otherwise(method: Any, other: str) -> None:
    problem = grid(layers=2, steps=2)
    asked, told = (replace(method, decoder=decoder).solve(problem, Budget()) for decoder in ("", "walk"))
    assert asked.found_by == told.found_by
    assert np.array_equal(asked.placement.devices, told.placement.devices)
    assert method.decided(problem).decoder == "walk"
    assert method.decided(problem.with_objective(Throughput())).decoder == other
    assert method.unsupported(problem.with_objective(Throughput())) is None
    assert replace(method, variant="faithful").decided(problem).decoder == other
    assert not replace(method, policy="").decided(problem).decoder  # whoever trains anew trains what the paper has
    for options in ({"noise": "alone"},) if other == "devices" else ({"imitation": 1}, {"teacher": 8}):
        assert replace(method, **options).decided(problem).decoder == other


@pytest.mark.parametrize("name", ["gdp", "placeto"])
def test_a_file_says_how_its_network_is_decoded(name: str, tmp_path: Path) -> None:
    asked = written(name, tmp_path / "p.safetensors", updates=1)
    for decoder in ("", "walk"):
        found = varied(asked, fine_tune=1, decoder=decoder).solve(made(50_000_005), Budget())  # type: ignore[type-var]
        assert np.isfinite(found.objective_seconds)
    other = {"gdp": "devices", "placeto": "episodes"}[name]
    with pytest.raises(BadInput, match=f"has opinions that walks follow; leave out decoder={other}"):
        varied(asked, decoder=other).solve(made(50_000_005), Budget())  # type: ignore[type-var]


def test_what_walks_cannot_place_is_said_in_one_line() -> None:
    problem = grid(layers=2, steps=2).with_objective(Throughput())
    for method in (ColocRL(decoder="walk"), GDP(decoder="walk", policy=""), Placeto(decoder="walk", policy="")):
        assert method.unsupported(problem) == "it schedules for the latency of dataflow execution only"
        with pytest.raises(BadInput, match="decoder=walk cannot place"):
            method.learner([problem], 0, [Start.of(problem)])
    with pytest.raises(BadInput, match="walks follow the corrected variant"):
        GDP("faithful", decoder="walk")
    with pytest.raises(BadInput, match="decoder"):
        Placeto(decoder="walks")
