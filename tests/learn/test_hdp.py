"""HDP: groups and devices are one likelihood, the gradient is the one it claims to be, and it learns."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small import grid, pair, resumes_to_the_same_bits  # noqa: E402

from stead.errors import BadInput  # noqa: E402
from stead.learn.ground.ablation import varied  # noqa: E402
from stead.learn.ground.features import operator_table  # noqa: E402
from stead.learn.ground.losses import reinforce_loss  # noqa: E402
from stead.learn.ground.one_shot import OneShot  # noqa: E402
from stead.learn.ground.policy import NetworkPolicy, allowed_only  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import network_arrays, one_thread  # noqa: E402
from stead.learn.hdp.method import HDP, neighbour_positions  # noqa: E402
from stead.learn.hdp.network import Hierarchical, Operators  # noqa: E402
from stead.problem import Constraints, Problem  # noqa: E402
from stead.solvers import Budget, Solver, solver  # noqa: E402
from stead.testing import tiny_problem, two_towers  # noqa: E402
from stead.testing.contracts import SolverContract  # noqa: E402

SMALL = HDP(hidden=16, groups=8, updates=20)


class TestHDP(SolverContract):
    """What every solver promises."""

    @pytest.fixture
    def solver(self) -> Solver:
        return varied(HDP(), hidden=8, groups=4, updates=3, init="random")


def learner(problem: Problem, options: HDP = SMALL, seed: int = 0) -> OneShot:
    return options.learner([problem], seed, [Start.of(problem)])


def four() -> Problem:
    return tiny_problem({"a": 1, "b": 2, "c": 3, "d": 1}, {"b": ["a"], "c": ["a"], "d": ["b", "c"]})


def tiny() -> tuple[Hierarchical, Operators]:
    options = HDP(hidden=8, groups=2)
    return options.network(2, 1), options.inputs(four())[1]


def all_actions(operators: int = 4, groups: int = 2, devices: int = 2) -> torch.Tensor:
    """Every grouping with every device of the groups it uses; 0 for the others."""
    rows = []
    for labels in product(range(groups), repeat=operators):
        used = sorted(set(labels))
        for chosen in product(range(devices), repeat=len(used)):
            whole = [0] * groups
            for group, device in zip(used, chosen, strict=True):
                whole[group] = device
            rows.append([*labels, *whole])
    return torch.tensor(rows)


def test_probabilities_of_all_groupings_and_devices_sum_to_one() -> None:  # C5
    net, inputs = tiny()
    log_p = net.likelihood(inputs, all_actions())[0].sum(dim=1).detach()
    assert float(log_p.double().exp().sum()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("variant", ["corrected", "faithful"])
def test_the_likelihood_of_samples_is_that_of_drawing_them(variant: str) -> None:  # C5
    options = varied(SMALL, variant=variant)
    with one_thread():
        _, inputs = options.inputs(grid())
        net = options.network(2, 0)
        actions, log_p = net.sample(inputs, 9, torch.Generator().manual_seed(1), greedy=True)
        forced = net.likelihood(inputs, actions)[0].sum(dim=1).detach()
    assert float((forced - log_p).abs().max()) < 1e-3  # sums over thousands of choices of size 1
    assert (
        len(torch.unique(actions[:, : len(inputs.x)], dim=0)) == 3
    )  # greedy, and two groupings of four each


def test_the_mean_of_single_sample_gradients_is_the_gradient_by_enumeration() -> None:  # C4, both networks
    net, inputs = tiny()
    rows = all_actions()
    rewards = -np.sqrt(np.random.default_rng(5).uniform(0.5, 3.0, size=len(rows)))
    one = torch.ones(1)

    def gradient(row: int) -> np.ndarray:  # type: ignore[type-arg]
        net.zero_grad(set_to_none=False)
        reinforce_loss(net.likelihood(inputs, rows[row : row + 1])[0], -one, one).backward()
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]
        return torch.cat([g.flatten() for g in found]).double().numpy()

    each = np.stack([gradient(row) for row in range(len(rows))])  # of log p
    with torch.no_grad():
        p = net.likelihood(inputs, rows)[0].sum(dim=1).double().exp().numpy()
    exact = (p * rewards) @ each
    net.per_grouping = 1
    with one_thread():
        drawn, _ = net.sample(inputs, 2_000, torch.Generator().manual_seed(3))
    known = {tuple(row): n for n, row in enumerate(rows.tolist())}
    index = np.array([known[tuple(row)] for row in drawn.tolist()])
    advantage = rewards + 1.2  # a constant baseline
    share = np.bincount(index, minlength=len(rows)) / len(index)
    mean = (share * advantage) @ each
    error = np.sqrt(np.maximum((share * advantage**2) @ each**2 - mean**2, 0.0) / len(index))
    large = np.abs(each).max(axis=0) > 1e-6
    assert (np.abs(mean - exact)[large] / (error[large] + 1e-9)).max() < 4.0
    names = [name for name, value in net.named_parameters() for _ in range(value.numel())]
    moved = {name.split(".")[0] for name, big in zip(names, large, strict=True) if big}
    assert {"words", "grouper", "placer"} <= moved


def test_four_placements_of_one_grouping_give_the_published_estimators() -> None:
    net, inputs = tiny()
    actions, _ = net.sample(inputs, 4, torch.Generator().manual_seed(2))
    assert len(torch.unique(actions[:, :4], dim=0)) == 1
    reward = torch.tensor([1.0, -2.0, 0.5, 3.0])
    net.zero_grad()
    reinforce_loss(net.likelihood(inputs, actions)[0], reward, torch.ones(4)).backward()
    joint = [p.grad.clone() for p in net.grouper.parameters() if p.grad is not None]
    net.zero_grad()
    grouped = net.likelihood(inputs, actions)[0][0, :4].sum()
    (-reward.mean() * grouped).backward()
    own = [p.grad for p in net.grouper.parameters() if p.grad is not None]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(joint, own, strict=True))


def test_the_grouper_is_not_affine() -> None:  # B4
    net, _ = tiny()
    with torch.no_grad():
        flat = [net.grouper(s * torch.ones(1, net.grouper[0].in_features)) for s in (-3.0, 0.0, 3.0)]
    assert not torch.allclose(flat[0] + flat[2], 2 * flat[1], atol=1e-3)


def test_every_parameter_receives_a_gradient() -> None:  # B6
    with one_thread():
        own = learner(grid())
        own.update()
    assert [name for name, p in own.module.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_an_operator_lists_all_its_producers_and_readers() -> None:  # B1
    problem = four()
    found = neighbour_positions(operator_table(problem), np.arange(4))
    assert found[3, :3].tolist() == pytest.approx([1 / 3, 2 / 3, -1.0])
    assert found[0, 6:9].tolist() == pytest.approx([1 / 3, 2 / 3, -1.0])


def test_the_grouper_begins_with_the_rules() -> None:
    problem = grid()
    with one_thread():
        own = learner(problem, varied(SMALL, groups=16))
        task = own.tasks[0]
        labels = HDP(groups=16)._rule_groups(task)
        dealt = own.network.group_logits(task.inputs).argmax(dim=1)
        blind = learner(problem, varied(SMALL, groups=16, init="random"))
        by_chance = blind.network.group_logits(task.inputs).argmax(dim=1)
    assert float((dealt == labels).float().mean()) > 0.8
    assert float((by_chance == labels).float().mean()) < 0.5


def test_learning_lowers_the_mean_of_the_samples() -> None:
    with one_thread():
        own = learner(grid(), varied(SMALL, hidden=32, groups=16, learning_rate=3e-3))
        means = [own.update().mean for _ in range(80)]
    assert np.mean(means[-10:]) < 0.95 * np.mean(means[:10])


def test_it_finds_the_two_towers() -> None:
    assert HDP(hidden=16, groups=4, updates=60).solve(two_towers(), Budget(), 0).objective_seconds == 7.5


def test_one_device_is_returned_where_links_are_slow() -> None:
    problem = grid(pair(bytes_per_second=0.1e9, latency_seconds=1e-3))
    single = solver("single").solve(problem, Budget(), 0).objective_seconds
    assert varied(SMALL, updates=3).solve(problem, Budget(), 0).objective_seconds <= single


def test_an_operator_never_lands_where_it_cannot_run() -> None:
    problem = grid()
    some = problem.graph.operator_names[7]
    held = Problem(
        problem.graph,
        problem.cluster,
        problem.costs,
        objective=problem.objective,
        constraints=Constraints(forbid=((some, "g0"),)),
    )
    with one_thread():
        grouping, inputs = SMALL.inputs(held)
        net = SMALL.network(2, 0)
        actions, _ = net.sample(inputs, 40, torch.Generator().manual_seed(1), greedy=True)
        rows = net.placements(inputs, actions).numpy().astype(np.uint8)
    assert allowed_only(held, grouping.lift(rows))


@pytest.mark.parametrize("variant", ["corrected", "faithful"])
def test_a_checkpoint_resumes_to_the_same_bits(variant: str) -> None:
    options, problem = varied(SMALL, variant=variant), grid(steps=3)
    with one_thread():
        assert resumes_to_the_same_bits(lambda: learner(problem, options))


def test_a_saved_policy_proposes_the_same(tmp_path: Path) -> None:
    own = NetworkPolicy(SMALL, SMALL.network(2, 3), 2)
    own.save(tmp_path / "p.safetensors")
    read = NetworkPolicy.load(tmp_path / "p.safetensors", HDP)
    assert network_arrays(read.network).keys() == network_arrays(own.network).keys()
    first, second = (one.propose(grid(), 5, 2) for one in (own, read))
    assert np.array_equal(first.placements, second.placements)
    assert read.unsupported(grid(pair(devices=3))) is not None


@pytest.mark.parametrize("options", [{"variant": "best"}, {"init": "none"}, {"groups": 0}, {"hidden": 7}])
def test_bad_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="hdp"):
        varied(HDP(), **options)
