"""The sequence-to-sequence network: likelihoods, masks, and a gradient that is the one it claims to be."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small import all_rows, grid, pair  # noqa: E402

from stead.learn.colocrl.method import PRESETS, ColocRL  # noqa: E402
from stead.learn.ground.losses import moved_average, reinforce_loss  # noqa: E402
from stead.learn.ground.seq2seq import Inputs, Room, Seq2Seq  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import one_thread  # noqa: E402


def tiny(
    groups: int = 4, devices: int = 2, seed: int = 0, room: Room | None = None
) -> tuple[Seq2Seq, Inputs]:
    torch.manual_seed(seed)
    net = Seq2Seq(words=5, features=6, near=3, devices=devices, hidden=16, attention=8)
    inputs = Inputs(
        torch.rand(groups, 5),
        torch.randn(groups, 6),
        torch.rand(groups, 3),
        torch.rand(groups, groups).tril(-1),
        torch.ones(groups, devices, dtype=torch.bool),
        room,
    )
    return net, inputs


def tight_room(groups: int, devices: int, fit: int) -> Room:
    """Every group has a weight of its own of 1 byte; `fit` of them fit on each device."""
    return Room(
        torch.eye(groups, dtype=torch.uint8),
        torch.ones(groups, dtype=torch.float64),
        torch.zeros(groups, dtype=torch.float64),
        torch.full((devices,), float(fit), dtype=torch.float64),
    )


@pytest.mark.parametrize("room", [None, tight_room(4, 2, 3)], ids=["ample", "tight"])
def test_teacher_forced_likelihood_is_that_of_sampling(room: Room | None) -> None:  # C5
    net, inputs = tiny(room=room)
    actions, log_p = net.sample(inputs, 64, torch.Generator().manual_seed(1))
    forced = net.likelihood(inputs, actions)[0].sum(dim=1)
    assert float((forced - log_p).abs().max().detach()) < 1e-5


@pytest.mark.parametrize("variant", ["corrected", "faithful"])
def test_likelihoods_agree_on_a_real_graph(variant: str) -> None:  # C5
    options = ColocRL(variant=variant, hidden=32)
    with one_thread():
        _, inputs = options.inputs(grid())
        net = options.network(2, 0)
        actions, log_p = net.sample(inputs, 8, torch.Generator().manual_seed(1))
        forced = net.likelihood(inputs, actions)[0].sum(dim=1).detach()
    assert float((forced - log_p).abs().max()) < 1e-5


@pytest.mark.parametrize("room", [None, tight_room(4, 2, 3)], ids=["ample", "tight"])
def test_probabilities_of_all_placements_sum_to_one(room: Room | None) -> None:  # C5
    net, inputs = tiny(room=room)
    rows = torch.from_numpy(all_rows(4, 2).astype(np.int64))
    log_p = net.likelihood(inputs, rows)[0].sum(dim=1).detach()
    assert float(log_p.double().exp().sum()) == pytest.approx(1.0, abs=1e-5)


def test_a_device_that_cannot_run_a_group_has_probability_zero() -> None:  # C6
    net, inputs = tiny(groups=4, devices=3)
    inputs.allowed[2, 1] = False
    actions, _ = net.sample(inputs, 500, torch.Generator().manual_seed(1), greedy=True)
    assert not (actions[:, 2] == 1).any()
    rows = torch.tensor([[0, 0, 1, 0]])
    assert float(net.likelihood(inputs, rows)[0].sum().exp().detach()) == 0.0


def test_a_full_device_is_masked_and_the_least_overfull_one_is_the_way_out() -> None:
    room = tight_room(4, 2, 1)  # two groups fit, four must be placed
    allowed = torch.ones(4, 2, dtype=torch.bool)
    masks = room.masks(torch.tensor([[0, 1, 0, 1]]), allowed)
    assert masks[0].tolist() == [[True, True], [False, True], [True, False], [False, True]]


def test_a_weight_that_two_groups_share_counts_once() -> None:
    uses = torch.tensor([[1], [1]], dtype=torch.uint8)
    ones = torch.ones(1, dtype=torch.float64)
    room = Room(uses, ones, torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    masks = room.masks(torch.tensor([[0, 0]]), torch.ones(2, 2, dtype=torch.bool))
    assert masks[0].tolist() == [[True, True], [True, True]]


@pytest.mark.parametrize("baseline", ["none", "constant", "moving"])
def test_the_mean_of_single_sample_gradients_is_the_gradient_by_enumeration(baseline: str) -> None:  # C4
    net, inputs = tiny(groups=3)
    rows = torch.from_numpy(all_rows(3, 2).astype(np.int64))
    rewards = -np.sqrt(np.random.default_rng(5).uniform(0.5, 3.0, size=8))
    one = torch.ones(1)

    def gradient(row: int) -> np.ndarray:  # type: ignore[type-arg]
        net.zero_grad()
        reinforce_loss(net.likelihood(inputs, rows[row : row + 1])[0], -one, one).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]).double().numpy()

    each = np.stack([gradient(row) for row in range(8)])  # of log p
    with torch.no_grad():
        p = net.likelihood(inputs, rows)[0].sum(dim=1).double().exp().numpy()
    exact = (p * rewards) @ each
    drawn, _ = net.sample(inputs, 20_000, torch.Generator().manual_seed(3))
    index = (drawn @ torch.tensor([4, 2, 1])).numpy()
    base: float | None = {"none": 0.0, "constant": -1.2, "moving": -2.0}[baseline]
    advantage = np.zeros(len(index))
    for i, row in enumerate(index):
        advantage[i] = rewards[row] - (base or 0.0)
        if baseline == "moving":
            base = moved_average(base, rewards[[row]], 0.9)
    first = np.bincount(index, weights=advantage, minlength=8) / len(index)
    second = np.bincount(index, weights=advantage**2, minlength=8) / len(index)
    mean = first @ each
    error = np.sqrt(np.maximum(second @ each**2 - mean**2, 0.0) / len(index))
    large = np.abs(each).max(axis=0) > 1e-7  # where nothing depends on a parameter, rounding is all there is
    assert large.mean() > 0.5
    deviation = np.abs(mean - exact)[large] / (error[large] + 1e-9)
    assert deviation.max() < 4.0


def test_every_parameter_receives_a_gradient() -> None:  # B6
    options = ColocRL(hidden=32)
    with one_thread():
        learner = options.learner([grid()], 0, [Start.of(grid())])
        learner.update()
    assert [name for name, p in learner.module.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_other_features_are_another_policy() -> None:  # B7
    net, inputs = tiny()
    order = torch.tensor([2, 0, 3, 1])
    other = Inputs(inputs.counts[order], inputs.x[order], inputs.near[order], inputs.ties, inputs.allowed)
    rows = torch.zeros(1, 4, dtype=torch.int64)
    first, second = (net.likelihood(given, rows)[0].detach() for given in (inputs, other))
    assert not torch.allclose(first, second)


def test_large_graphs_are_computed_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    net, inputs = tiny(groups=12)
    actions, _ = net.sample(inputs, 5, torch.Generator().manual_seed(1))

    def found() -> list[torch.Tensor]:
        net.zero_grad()
        log_p, entropy = net.likelihood(inputs, actions)
        (log_p.sum() + entropy.sum()).backward()
        return [log_p.detach(), *(p.grad for p in net.parameters() if p.grad is not None)]

    whole = found()
    monkeypatch.setattr("stead.learn.ground.seq2seq.CHUNK", 200)
    monkeypatch.setattr("stead.learn.ground.seq2seq.KEPT", 0)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(whole, found(), strict=True))


def test_logits_stay_within_their_scale() -> None:
    net, inputs = tiny()
    rows = torch.from_numpy(all_rows(4, 2).astype(np.int64))
    assert float(net.logits(inputs, rows).abs().max().detach()) <= 5.0
    assert PRESETS["faithful"].temperature == 10.0


def test_equal_devices_are_masked_alike_by_a_problem_with_ample_memory() -> None:
    _, inputs = ColocRL(hidden=32).inputs(grid(pair(devices=3)))
    assert inputs.room is None
    assert inputs.allowed.shape[1] == 3
    assert inputs.allowed.all()
