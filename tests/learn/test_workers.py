"""Several processes do the work of one, to the same bits; what falls is told."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from small import grid  # noqa: E402

from stead.errors import BadInput, SteadError  # noqa: E402
from stead.learn.colocrl.method import ColocRL  # noqa: E402
from stead.learn.ground.one_shot import OneShot  # noqa: E402
from stead.learn.ground.ray_workers import Actors  # noqa: E402
from stead.learn.ground.solver import train_policy  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import one_thread  # noqa: E402
from stead.learn.ground.training_run import Run  # noqa: E402
from stead.learn.ground.workers import Processes, hands, in_order  # noqa: E402


def learner() -> OneShot:
    method = ColocRL(hidden=16, graphs_per_step=3, algorithm="ppo", imitation=1)
    problems = [grid(layers=2, steps=steps) for steps in (3, 4, 5)]
    return method.learner(problems, 0, [Start.of(problem) for problem in problems])


def trained(subject: OneShot, updates: int = 3) -> list[Any]:
    with one_thread():
        metrics = [subject.update() for _ in range(updates)]
    told = [[row.best, row.mean, row.greedy, row.entropy, row.gradient] for row in metrics]
    return [told, [parameter.detach().numpy().tobytes() for parameter in subject.module.parameters()]]


def test_two_processes_learn_the_same_bits_as_one_and_one_that_falls_is_told() -> None:
    alone, shared = learner(), learner()
    with Processes(shared.replica(), 2) as workers:
        shared.workers = workers
        assert len(multiprocessing.active_children()) == 2
        assert trained(shared) == trained(alone)
        multiprocessing.active_children()[0].kill()
        with pytest.raises(SteadError, match=r"ended unexpectedly \(exit code -9"):
            shared.update()
    assert multiprocessing.active_children() == []


def test_a_parameter_that_is_held_fixed_stays() -> None:
    subject = learner()
    fixed, *others = subject.module.parameters()
    fixed.requires_grad_(False)
    before, beside = fixed.clone(), [parameter.detach().clone() for parameter in others]
    subject.update()
    assert torch.equal(fixed, before)
    assert not all(torch.equal(now, then) for now, then in zip(others, beside, strict=True))


def test_an_error_of_the_network_reaches_the_learner() -> None:
    subject = learner()
    replica = subject.replica()
    broken = type(replica)(replica.network, [None] * 3, replica.clip_ratio)
    with Processes(broken, 1) as workers:
        subject.workers = workers
        with pytest.raises(AttributeError):
            subject.update()


def test_ray_actors_learn_the_same_bits_as_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    alone, shared = learner(), learner()
    with Actors(shared.replica(), 2) as workers:
        shared.workers = workers
        assert trained(shared) == trained(alone)


def test_what_is_dealt_out_comes_back_in_order() -> None:
    for count in (1, 2, 3, 7):
        calls = [(n,) for n in range(7)]
        assert in_order(hands(calls, count)) == calls


def test_one_graph_cannot_be_shared_out(tmp_path: Path) -> None:
    run = Run(tmp_path / "p.safetensors", 1)
    with pytest.raises(BadInput, match="graphs_per_step"):
        train_policy(ColocRL(hidden=16), [grid()], ["a"], run, processes=2)
    with pytest.raises(BadInput, match="at least 1"):
        train_policy(ColocRL(hidden=16), [grid()], ["a"], run, processes=0)


def test_a_policy_file_is_the_same_for_any_number_of_processes(tmp_path: Path) -> None:
    problems, names = [grid(steps=3), grid(steps=3)], ["a", "a"]  # one graph twice: two controllers
    files = []
    for count in (1, 2):
        files.append(tmp_path / f"{count}.safetensors")
        method = ColocRL(hidden=16, graphs_per_step=2)
        train_policy(method, problems, names, Run(files[-1], 2), processes=count)
    assert files[0].read_bytes() == files[1].read_bytes()
