"""Placements of torch models on real workers: the same numbers, bit for bit, whatever is where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from models import Branches, SmallCNN, Transformer, seeded, token_loss  # noqa: E402
from torch import nn  # noqa: E402

from stead import Placement, Problem, Roofline, cluster_from  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.run.cores import default_workers  # noqa: E402
from stead.run.executor import Numerics  # noqa: E402
from stead.run.torch_executor import KEPT_PROGRAMS, TorchExecutor  # noqa: E402


def two_workers() -> Any:
    return default_workers(2, oversubscribe=True)


def problem_of(graph: Any, devices: str = "2x 3090") -> Problem:
    cluster, _ = cluster_from(devices)
    return Problem(graph, cluster, Roofline().costs(graph, cluster))


def random_placements(problem: Problem, count: int, seed: int = 0) -> Iterator[Placement]:
    draw = np.random.default_rng(seed)
    for _ in range(count):
        share = draw.uniform(0.1, 0.9)
        yield Placement(problem, (draw.random(len(problem.graph)) < share).astype(np.int64))


@contextmanager
def training(make: Any, inputs: Any, loss: Any, targets: Any, update: str) -> Iterator[TorchExecutor]:
    with TorchExecutor.of_module(
        seeded(make), inputs, two_workers(), loss_fn=loss, targets=targets, update=update, timing="normal",
        oversubscribe=True,
    ) as executor:  # fmt: skip
        yield executor


def pictures() -> tuple[Any, Any]:
    torch.manual_seed(1)
    return torch.randn(4, 3, 12, 12), torch.randint(0, 10, (4,))


@pytest.fixture(scope="module")
def cnn() -> Iterator[TorchExecutor]:
    images, classes = pictures()
    with training(SmallCNN, (images,), nn.functional.cross_entropy, (classes,), "sgd") as executor:
        yield executor


@pytest.fixture(scope="module")
def transformer() -> Iterator[TorchExecutor]:
    torch.manual_seed(1)
    tokens = torch.randint(0, 20, (2, 6))
    with training(Transformer, (tokens,), token_loss, (tokens.flip(0),), "adam") as executor:
        yield executor


@pytest.fixture(scope="module")
def branches() -> Iterator[TorchExecutor]:
    torch.manual_seed(1)
    with TorchExecutor.of_module(
        seeded(Branches).eval(), (torch.randn(1, 3, 12, 12),), two_workers(), export=True, oversubscribe=True,
        timing="normal",
    ) as executor:  # fmt: skip
        yield executor


@pytest.mark.parametrize("name", ["cnn", "transformer", "branches"])
def test_random_placements_give_the_numbers_of_one_worker_bit_for_bit(
    name: str, request: pytest.FixtureRequest
) -> None:
    executor: TorchExecutor = request.getfixturevalue(name)
    for placement in random_placements(problem_of(executor.graph), 22):
        verdict = executor.check(placement)
        assert verdict.tolerance == 0.0
        assert verdict.max_abs == 0.0


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_five_losses_of_training_are_those_of_one_worker(name: str, request: pytest.FixtureRequest) -> None:
    executor: TorchExecutor = request.getfixturevalue(name)
    alone = executor.train_losses(None, steps=5)
    assert len(set(alone)) == 5
    for placement in random_placements(problem_of(executor.graph), 30, seed=7):
        assert executor.train_losses(placement, steps=5) == alone


@pytest.mark.parametrize(
    ("relatives", "tolerance", "asked", "passes"),
    [([0.5, 1e-5], 1e-4, 2, True), ([0.5, 0.4, 0.3, 0.0], 1e-4, 3, False), ([0.5, 0.0], 0.0, 1, False)],
    ids=["rounding turned one input", "wrong on all", "alike: bit for bit at once"],
)
def test_only_what_is_wrong_on_three_inputs_is_wrong_on_unlike_workers(
    relatives: list[float], tolerance: float, asked: int, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = [Numerics(one, one, tolerance) for one in relatives]
    left = iter(verdicts)
    monkeypatch.setattr(TorchExecutor, "_compared", lambda self, placement, steps: next(left))
    found = TorchExecutor.__new__(TorchExecutor).check(None)  # type: ignore[arg-type]
    assert found is verdicts[asked - 1]
    assert found.passed is passes


def test_losses_are_those_of_the_module_itself(cnn: TorchExecutor) -> None:
    images, classes = pictures()
    module = seeded(SmallCNN)
    found = cnn.train_losses(None, steps=3)
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-2)
    losses = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(3):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(module(images), classes)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    finally:
        torch.set_num_threads(threads)
    assert found == tuple(losses)


def test_a_burst_has_as_many_steps_as_asked_for(branches: TorchExecutor) -> None:
    burst = branches.burst(next(random_placements(problem_of(branches.graph), 1)), runs=3)
    assert burst.timing_mode in ("quiet", "cputime")
    assert burst.lost or (len(burst.seconds) == 3 and min(burst.seconds) > 0)


def test_what_a_step_takes_is_asked_once_though_programs_come_and_go(
    branches: TorchExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    go = branches._go
    monkeypatch.setattr(branches, "_go", lambda loaded, **more: asked.append(loaded.number) or go(loaded, **more))
    many = list(random_placements(problem_of(branches.graph), KEPT_PROGRAMS + 2, seed=11))
    for placement in (*many, *many):
        branches.burst(placement, runs=1)
    assert len(asked) <= len(many)


def test_the_simple_alternatives_are_measured_alike(branches: TorchExecutor) -> None:
    found = branches.alone(0, runs=2), branches.replicas(runs=2), branches.threads(runs=2)
    assert all(burst.lost or len(burst.seconds) == 2 for burst in found)


def test_a_profile_has_a_time_for_every_operator_that_runs_something(branches: TorchExecutor) -> None:
    seconds = branches.profile(1, repeats=2)
    assert seconds.shape == (2, len(branches.graph))
    runs = np.array([kind != "input" for kind in branches.graph.kinds])
    assert (seconds[:, runs] > 0).all()
    assert (seconds[:, ~runs] == 0).all()


def test_a_placement_of_another_model_is_refused_in_one_line(
    branches: TorchExecutor, cnn: TorchExecutor
) -> None:
    placement = next(random_placements(problem_of(cnn.graph), 1))
    with pytest.raises(BadInput, match="does not place"):
        branches.burst(placement, runs=1)
