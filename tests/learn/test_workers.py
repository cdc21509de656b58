"""Several processes do the work of one, to the same bits; what falls is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from small import grid  # noqa: E402

from stead.engine import opened_engine  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.learn.colocrl.method import ColocRL  # noqa: E402
from stead.learn.ground.one_shot import OneShot  # noqa: E402
from stead.learn.ground.solver import train_policy  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import one_thread  # noqa: E402
from stead.learn.ground.training_run import Run  # noqa: E402
from stead.learn.ground.workers import Spread  # noqa: E402


def learner() -> OneShot:
    method = ColocRL(hidden=16, graphs_per_step=3, algorithm="ppo", imitation=1)
    problems = [grid(layers=2, steps=steps) for steps in (3, 4, 5)]
    return method.learner(problems, 0, [Start.of(problem) for problem in problems])


def trained(subject: OneShot, updates: int = 3) -> list[Any]:
    with one_thread():
        metrics = [subject.update() for _ in range(updates)]
    told = [[row.best, row.mean, row.greedy, row.entropy, row.gradient] for row in metrics]
    return [told, [parameter.detach().numpy().tobytes() for parameter in subject.module.parameters()]]


def test_two_workers_learn_the_same_bits_as_one_process_also_when_one_is_killed() -> None:
    alone, shared = learner(), learner()
    with opened_engine("local:2") as engine:
        shared.workers = Spread(shared.replica(), engine)
        assert trained(shared, 2) == trained(alone, 2)
        os.kill(engine.fleet.process_ids()[0], signal.SIGKILL)
        assert trained(shared, 1) == trained(alone, 1)


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
    with opened_engine("local:1") as engine:
        subject.workers = Spread(broken, engine)
        with pytest.raises(AttributeError):
            subject.update()


def test_one_graph_cannot_be_shared_out(tmp_path: Path) -> None:
    run = Run(tmp_path / "p.safetensors", 1)
    with opened_engine("local:2") as engine, pytest.raises(BadInput, match="graphs_per_step"):
        train_policy(ColocRL(hidden=16), [grid()], ["a"], run, engine=engine)


def test_a_policy_file_is_the_same_for_any_number_of_processes(tmp_path: Path) -> None:
    problems, names = [grid(steps=3), grid(steps=3)], ["a", "a"]  # one graph twice: two controllers
    alone, shared = tmp_path / "alone.safetensors", tmp_path / "shared.safetensors"
    method = ColocRL(hidden=16, graphs_per_step=2)
    train_policy(method, problems, names, Run(alone, 2))
    with opened_engine("local:2") as engine:
        train_policy(method, problems, names, Run(shared, 2), engine=engine)
    assert alone.read_bytes() == shared.read_bytes()
