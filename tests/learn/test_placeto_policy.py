"""Placeto: network, masks, features, returns, episodes, gradients, memory, determinism, files; and as a solver."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small import all_rows, grid, pair  # noqa: E402
from walks import inception, k80s, towers  # noqa: E402

from stead.coarsen import single_groups  # noqa: E402
from stead.costs import Costs, Roofline, Source  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.graph import GraphBuilder  # noqa: E402
from stead.learn.ground import tensor_file  # noqa: E402
from stead.learn.ground.ablation import varied  # noqa: E402
from stead.learn.ground.collapse_alarm import COLLAPSED_UPDATES, collapsed  # noqa: E402
from stead.learn.ground.equal_devices import canonical  # noqa: E402
from stead.learn.ground.losses import ppo_loss, reinforce_loss  # noqa: E402
from stead.learn.ground.policy import NetworkPolicy, allowed_only  # noqa: E402
from stead.learn.ground.solver import train_policy  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import network_arrays, one_thread  # noqa: E402
from stead.learn.ground.training_run import Run, read_log  # noqa: E402
from stead.learn.placeto.episodes import State, penalised, returns_to_go  # noqa: E402
from stead.learn.placeto.features import View, inputs_of, reachable, visits  # noqa: E402
from stead.learn.placeto.learner import EpisodeTraining, PlacetoLearner, random_rows  # noqa: E402
from stead.learn.placeto.method import PRESETS, SHIPPED, Placeto, PlacetoPolicy, known_rows  # noqa: E402
from stead.learn.placeto.network import PlacetoNet, log_probabilities  # noqa: E402
from stead.problem import Constraints, Latency, Problem  # noqa: E402
from stead.problem import PlacetoDispatch as Published  # noqa: E402
from stead.sim import simulate_many  # noqa: E402
from stead.solvers import Budget, Solver, solver  # noqa: E402
from stead.testing import chain3, diamond, two_towers  # noqa: E402
from stead.testing.contracts import SolverContract  # noqa: E402
from stead.workloads.synthetic import synthetic  # noqa: E402


@pytest.fixture(autouse=True)
def _on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


SMALL = Placeto(policy="", updates=4, episodes=4)
FAITHFUL = varied(SMALL, variant="faithful")


class TestPlaceto(SolverContract):
    """What every solver promises."""

    @pytest.fixture
    def solver(self) -> Solver:
        return Placeto(policy="", updates=2, episodes=2)


def learner(problem: Problem, options: Placeto = SMALL, seed: int = 0) -> PlacetoLearner:
    return options.learner([problem], seed, [Start.of(problem)])


def parameters(options: Placeto, devices: int) -> int:
    return sum(value.numel() for value in options.network(devices, 0).parameters())


# P1: the network


@pytest.mark.parametrize(("devices", "count"), [(2, 15_962), (4, 26_338), (8, 54_842)])
def test_the_published_network_has_the_published_size(devices: int, count: int) -> None:  # P1
    assert parameters(FAITHFUL, devices) == count


def test_the_corrected_network_does_not_grow_with_devices() -> None:  # P1
    net = PlacetoNet(features=7, device_features=6)
    assert sum(value.numel() for value in net.parameters()) == 9281
    assert parameters(SMALL, 2) == parameters(SMALL, 8) == 9281 + 2 * 64


def test_without_messages_a_group_does_not_hear_of_its_neighbours() -> None:
    own = learner(towers())
    e = torch.rand(7, 1, 14)
    other = e.clone()
    other[:, :, 1] += 1.0  # the first operator of a tower
    for options, heard in ((SMALL, True), (varied(SMALL, messages=False), False)):
        net = options.network(2, 0)
        with torch.no_grad():
            first, second = (net.embedded(own.tasks[0].inputs, x) for x in (e, other))
        assert bool((first[:, :, 2] != second[:, :, 2]).any()) == heard  # the second operator of that tower
        assert torch.equal(first[:, :, 10], second[:, :, 10])  # the other tower, in no case


# P2: returns


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("intermediate", [2, 1, -1]),
        ("log", [0.22314, 0.11778, -0.13353]),
    ],
)
def test_returns_are_those_of_the_table(mode: str, expected: list[float]) -> None:  # P2
    rho = np.array([[10.0], [9.0], [7.0], [8.0]])
    assert returns_to_go(rho, mode)[:, 0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("mode", ["intermediate", "log"])
def test_what_only_gets_faster_is_only_rewarded(mode: str) -> None:  # P2, the sign
    rho = np.sort(np.random.default_rng(0).random((9, 5)) + 0.1, axis=0)[::-1].copy()
    assert (returns_to_go(rho, mode) > 0).all()


def test_the_published_penalty_caps_every_placement() -> None:  # P2
    rho = np.log([10.0, 9.0, 7.0, 8.0])
    missing = np.array([0.0, 9.0, 20.0, 0.0]) - 8.0
    found = penalised(rho, missing, weight=2.0, most=10.0)
    assert found == pytest.approx([2.30259, 4.19722, 10, 2.07944], abs=1e-5)


# P3: who reaches whom


def test_reach_is_the_closure_of_networkx() -> None:  # P3
    networkx = pytest.importorskip("networkx")
    for seed in range(50):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 30))
        pairs = np.argwhere(rng.random((count, count)) < 0.12)
        edges = pairs[pairs[:, 0] < pairs[:, 1]] if seed % 2 else pairs[pairs[:, 0] != pairs[:, 1]]
        graph = networkx.DiGraph()
        graph.add_nodes_from(range(count))
        graph.add_edges_from(edges.tolist())
        before, after = reachable(count, edges)
        for v in range(count):
            assert set(np.flatnonzero(before[v])) == networkx.ancestors(graph, v)
            assert set(np.flatnonzero(after[v])) == networkx.descendants(graph, v)


def test_every_other_group_is_before_behind_or_beside() -> None:  # P3
    problem = inception()
    inputs = inputs_of(problem, single_groups(problem.graph), View(mean=False))
    assert (inputs.reach.sum(dim=(0, 2)) == 49).all()
    assert (inputs.reach.sum(dim=0) <= 1).all()


def test_reach_of_many_groups_is_quick() -> None:  # P3: loops over pairs would take minutes here
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(0, 2000, (5000, 2)), axis=1)
    before, after = reachable(2000, edges[edges[:, 0] != edges[:, 1]])
    assert np.array_equal(before, after.T)
    assert before.any()


def test_training_graphs_are_seen_through_their_forward_operators() -> None:
    problem = grid()
    grouping, inputs = SMALL.inputs(problem)
    assert not grouping.is_acyclic
    assert inputs.peers.any()  # one layer at a step, another at the step before
    raw = inputs_of(problem, grouping, View(raw=True))
    assert raw.peers.sum() < inputs.peers.sum()
    level = np.empty(grouping.count, dtype=np.int64)
    level[visits(problem, grouping)] = np.arange(grouping.count)
    forward = inputs.near[1].numpy().T > 0  # [group, successor]
    assert all(level[u] < level[v] for u, v in np.argwhere(forward))


def test_a_random_traversal_visits_every_group_once() -> None:
    order = varied(SMALL, traversal="random").inputs(inception())[1].order
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))


# P4: features


@pytest.mark.parametrize("problem", [inception(), grid(), towers(policy=Published())], ids=["i", "g", "t"])
def test_features_stay_within_one_at_every_step(problem: Problem) -> None:  # P4
    own = learner(problem)
    walk, rng = own.walks[0], np.random.default_rng(0)
    for _ in range(5):
        state = State(walk, random_rows(own.tasks[0], rng, 20))  # 100 episodes
        for v in walk.inputs.order.tolist():
            e, _, f, mask = state.look(v)
            for values in (e, f):
                assert bool(torch.isfinite(values).all())
                assert float(values.abs().max()) <= 1.0 + 1e-6
            assert bool(mask.any(dim=1).all())
            state.move(v, rng.integers(0, walk.inputs.devices, 20))


def test_published_features_are_divided_by_the_maximum_of_their_column() -> None:  # P4, D3
    own = learner(inception(), FAITHFUL)
    state = State(own.walks[0], np.zeros((1, 50), dtype=np.uint8))
    first, last = (state.look(v)[0][4, 0].numpy() for v in (0, 49))
    assert first.max() == pytest.approx(1.0)
    assert last.max() == 0.0
    assert last.min() == pytest.approx(-1e6 * state.start[0].max(), rel=1e-5)  # microseconds, not scaled
    middle = state.look(45)[0][4, 0].numpy()
    assert middle.min() < -1.0


def test_device_features_say_where_inputs_readers_and_load_are() -> None:
    own = learner(diamond())
    state = State(own.walks[0], np.array([[0, 1, 1, 0]], dtype=np.uint8))
    f = state.look(1)[2][0].numpy()  # b of a(1) -> b(2), c(3) -> d(1)
    assert f[:, 0].tolist() == [1.0, 0.0]  # reads from a
    assert f[:, 1].tolist() == [1.0, 0.0]  # is read by d
    assert f[:, 2] == pytest.approx([2 / 5, 3 / 5])  # a and d, c
    assert f[:, 3].tolist() == [0.0, 1.0]  # c is beside it
    assert f[:, 4].tolist() == [0.0, 1.0]  # where it is
    assert f[:, 5].tolist() == [0.0, 0.0]  # nothing beside it was visited
    assert f[:, 6].tolist() == [1.0, 1.0]
    state.move(2, np.array([1]))
    assert state.look(1)[2][0, :, 5].tolist() == [0.0, 1.0]


def test_without_start_times_nothing_is_told_about_them() -> None:
    own = learner(inception(), varied(SMALL, start_times=False))
    state = State(own.walks[0], random_rows(own.tasks[0], np.random.default_rng(0), 2))
    assert not state.look(3)[0][[4, 6]].any()


# P5, P6: symmetry and batches


def logits_of(options: Placeto, problem: Problem, rows: np.ndarray, v: int) -> torch.Tensor:  # type: ignore[type-arg]
    own = learner(problem, options)
    with torch.no_grad():
        return own.network(own.tasks[0].inputs, *State(own.walks[0], rows).look(v))


def test_permuted_devices_give_permuted_logits() -> None:  # P5
    problem = inception()
    rows = np.random.default_rng(0).integers(0, 4, (6, 50)).astype(np.uint8)
    names = np.array([2, 0, 3, 1], dtype=np.uint8)  # new name of every device
    for v in (0, 20, 49):
        before, after = (logits_of(SMALL, problem, r, v) for r in (rows, names[rows]))
        assert torch.allclose(before, after[:, torch.from_numpy(names.astype(np.int64))], atol=1e-5)


def test_a_one_hot_head_knows_devices_by_name() -> None:  # why the shared head exists
    rows = np.zeros((1, 50), dtype=np.uint8)
    before, after = (logits_of(varied(SMALL, one_hot=True), inception(), r, 20) for r in (rows, rows + 1))
    assert not torch.allclose(before, after[:, [1, 0, 2, 3]], atol=1e-3)


def test_operators_in_another_order_get_the_same_logits() -> None:  # P5
    first, second = shuffled_pair()
    rows = np.array([[0, 1, 1, 1, 0, 0]], dtype=np.uint8)  # nothing is ready at the same moment
    moved = np.zeros_like(rows)
    moved[0, second[1]] = rows[0, first[1]]
    for name in range(6):
        a = logits_of(SMALL, first[0], rows, first[1][name])
        b = logits_of(SMALL, second[0], moved, second[1][name])
        assert torch.allclose(a, b, atol=1e-5)


def shuffled_pair() -> list[tuple[Problem, list[int]]]:
    """One graph with two numberings of its operators, and where each of them is: two chains of 1, 2 and 4, 3 s."""
    found = []
    for order in ([0, 1, 2, 3, 4, 5], [3, 0, 4, 1, 2, 5]):
        build, tensors = GraphBuilder("two"), {}
        reads = {1: 0, 2: 1, 4: 3, 5: 4}
        for name in order:
            made = build.operator(f"v{name}", reads=[tensors[reads[name]]] if name in reads else [])
            tensors[name] = build.tensor(made, size_bytes=4 + name)
        graph, cluster = build.build(), pair()
        seconds = np.array([[1.0 + int(n[1:])] * 2 for n in graph.operator_names])
        sources = np.full(seconds.shape, Source.IMPORTED, dtype=np.uint8)
        problem = Problem(graph, cluster, Costs(graph, cluster, seconds, sources=sources))
        found.append((problem, [graph.index(f"v{name}") for name in range(6)]))
    return found


@pytest.mark.parametrize("options", [SMALL, FAITHFUL, varied(SMALL, sum_pooling=True)])
def test_rows_of_a_batch_do_not_touch_each_other(options: Placeto) -> None:  # P6, D4, D5
    problem = inception()
    rows = np.random.default_rng(1).integers(0, 4, (5, 50)).astype(np.uint8)
    together = logits_of(options, problem, rows, 30)
    for n in range(5):
        assert torch.allclose(
            together[n : n + 1], logits_of(options, problem, rows[n : n + 1], 30), atol=1e-5
        )


def test_rows_at_different_groups_use_their_own_masks() -> None:  # P6, D4
    own = learner(inception())
    state = State(own.walks[0], np.random.default_rng(1).integers(0, 4, (1, 50)).astype(np.uint8))
    steps = [state.look(v) for v in (3, 30)]
    both = [torch.cat([a, b], dim=1 if n == 0 else 0) for n, (a, b) in enumerate(zip(*steps, strict=True))]
    inputs = own.tasks[0].inputs
    with torch.no_grad():
        together = own.network(inputs, *both)
        for n, step in enumerate(steps):
            assert torch.allclose(together[n : n + 1], own.network(inputs, *step), atol=1e-5)


def test_graphs_have_baselines_of_their_own() -> None:  # P6, D6
    problems = [inception(), inception(2)]
    own = FAITHFUL.learner(problems, 0, [Start.of(one) for one in problems])
    for _ in range(3):
        own.update()
    alone = learner(problems[0], FAITHFUL)
    alone.update()
    assert [len(history) for history in own.history] == [2, 1]
    assert {len(history[0]) for history in own.history} == {task.grouping.count for task in own.tasks}
    assert np.array_equal(own.history[0][0], alone.history[0][0])


# P7: gradients


def gradient(own: PlacetoLearner) -> torch.Tensor:
    return torch.cat([value.grad.reshape(-1) for value in own.network.parameters() if value.grad is not None])


def rolled(own: PlacetoLearner) -> tuple[object, torch.Tensor]:
    walk, rng = own.walks[0], np.random.default_rng(0)
    starts = random_rows(own.tasks[0], rng, own.training.episodes)
    generator = torch.Generator().manual_seed(1)
    episodes = walk.run(own.network, starts, generator, greedy=np.zeros(len(starts), dtype=bool))
    return episodes, torch.from_numpy(rng.normal(size=(len(episodes.steps), len(starts)))).float()


def test_the_loss_in_chunks_is_the_loss_of_every_choice(monkeypatch: pytest.MonkeyPatch) -> None:  # P7
    own = learner(towers(), FAITHFUL)
    episodes, advantage = rolled(own)
    monkeypatch.setattr("stead.learn.placeto.learner.CHUNK", 3000)
    own.network.zero_grad()
    chunks = list(own._losses(own.walks[0], episodes, slice(0, own.training.episodes), advantage, 0.5))
    assert len(chunks) > 1
    for loss in chunks:
        loss.backward()
    found = gradient(own)
    total = torch.zeros_like(found)
    for t, step in enumerate(episodes.steps):  # one choice after another: gradients scaled by the advantage
        for b in range(own.training.episodes):
            own.network.zero_grad()
            log_p, _ = log_probabilities(own.network(own.tasks[0].inputs, *step)[b : b + 1])
            p = log_p.exp()
            entropy = -(p * torch.log(p + 1e-3)).sum()
            chosen = log_p[0, episodes.actions[t][b]]
            (-advantage[t, b] * chosen - 0.5 * entropy).backward()
            total += gradient(own)
    assert torch.allclose(found, total, atol=1e-5, rtol=1e-4)


def test_one_epoch_of_ppo_is_reinforce() -> None:  # P7
    log_p = torch.log(torch.tensor([[0.3], [0.6], [0.1]])).requires_grad_()
    advantage, ones = torch.tensor([1.0, -2.0, 0.5]), torch.ones(3)
    ppo = torch.autograd.grad(ppo_loss(log_p, log_p.detach(), advantage, ones, 0.2), log_p)[0]
    plain = torch.autograd.grad(reinforce_loss(log_p, advantage, ones), log_p)[0]
    assert torch.allclose(ppo, plain, atol=1e-7)
    losses = []
    for algorithm in ("ppo", "reinforce"):
        own = learner(towers(), varied(SMALL, algorithm=algorithm))
        episodes, weights = rolled(own)
        own.network.zero_grad()
        for loss in own._losses(own.walks[0], episodes, slice(0, own.training.episodes), weights, 0.02):
            loss.backward()
        losses.append(gradient(own))
    assert torch.allclose(*losses, atol=1e-6)


# P8: episodes


def test_an_episode_is_what_the_simulator_says(monkeypatch: pytest.MonkeyPatch) -> None:  # P8
    problem = inception()
    own = learner(problem)
    walk, task = own.walks[0], own.tasks[0]
    seen = []
    move = State.move

    def watched(self: State, v: int, devices: np.ndarray) -> None:  # type: ignore[type-arg]
        before, counted = self.rows.copy(), task.scorer.evaluations + task.scorer.hits
        move(self, v, devices)
        changed = int((before != self.rows).any(axis=1).sum())
        assert task.scorer.evaluations + task.scorer.hits - counted == changed
        assert ((before != self.rows).sum(axis=1) <= 1).all()
        seen.append(self.rows.copy())

    monkeypatch.setattr(State, "move", watched)
    begin = task.scorer.evaluations
    starts = random_rows(task, np.random.default_rng(0), 3)
    nobody = np.zeros(3, dtype=bool)
    episodes = walk.run(own.network, starts, torch.Generator().manual_seed(0), greedy=nobody)
    assert task.scorer.evaluations - begin <= 3 * 51
    fresh = simulate_many(problem, np.concatenate([starts, *seen])).seconds.reshape(51, 3)
    assert np.array_equal(episodes.rho, fresh)
    assert np.array_equal(episodes.best_seconds, fresh.min(axis=0))
    assert task.scorer.incumbent is not None
    assert task.scorer.incumbent.seconds == fresh.min()
    assert task.scorer.best_seconds == fresh[1:].min()  # where episodes begin is nothing that a policy chose
    assert simulate_many(problem, episodes.best_rows).seconds.tolist() == episodes.best_seconds.tolist()


def test_sweeps_end_when_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    own = learner(towers())

    def stays(inputs: object, e: object, v: object, f: torch.Tensor, mask: object) -> torch.Tensor:
        return f[:, :, 4]  # the device where a group is

    monkeypatch.setattr(own.network, "forward", stays)
    before = own.tasks[0].scorer.evaluations
    row, _ = own.swept_once(own.tasks[0])
    assert np.array_equal(row, own.known[0][0])
    assert own.tasks[0].scorer.evaluations == before + 1


# P11, P12: collapse


def test_the_alarm_sounds_when_a_policy_always_says_device_0(monkeypatch: pytest.MonkeyPatch) -> None:  # P11
    own = learner(towers(), varied(SMALL, learning_rate=0.0, episodes=2))

    def first(inputs: object, e: object, v: object, f: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.tensor([9.0, 0.0]).expand(mask.shape)

    monkeypatch.setattr(own.network, "forward", first)
    told = [own.update().alarms for _ in range(COLLAPSED_UPDATES)]
    assert told[-2:] == [0, 1]
    assert own.alarm.loud_until == 2 * COLLAPSED_UPDATES - 1
    assert collapsed(own.tasks[0])


def test_a_second_alarm_goes_back_to_the_best_network(monkeypatch: pytest.MonkeyPatch) -> None:
    own = learner(towers(), varied(SMALL, learning_rate=0.0, episodes=2))
    best = {name: value + 1 for name, value in network_arrays(own.network).items()}
    own.kept, own.kept_ratio = best, 0.0
    own.alarm.raised, own.alarm.collapsed_updates = 1, COLLAPSED_UPDATES - 1
    own.tasks[0].greedy_devices = 1

    def first(inputs: object, e: object, v: object, f: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.tensor([9.0, 0.0]).expand(mask.shape)

    monkeypatch.setattr(own.network, "forward", first)
    own.update()
    assert own.alarm.raised == 2
    assert all(np.array_equal(best[name], value) for name, value in network_arrays(own.network).items())


def test_a_collapsed_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:  # P12
    def first(
        self: PlacetoNet, inputs: object, e: object, v: object, f: object, mask: torch.Tensor
    ) -> torch.Tensor:
        return torch.tensor([9.0, 0.0, 0.0, 0.0]).expand(mask.shape)

    monkeypatch.setattr(PlacetoNet, "forward", first)
    solution = varied(SMALL, learning_rate=0.0, updates=4).solve(inception(), Budget(), 0)
    note = next(note for note in solution.notes if note.startswith("placeto:"))
    assert "; collapsed onto one device" in note


# Learning


def test_it_finds_the_two_towers() -> None:
    assert Placeto(policy="", updates=5).solve(two_towers(), Budget(), 0).objective_seconds == 7.5


def test_learning_lowers_the_ends_of_episodes() -> None:
    own = learner(towers(policy=Published()), Placeto(updates=30, learning_rate=3e-3))
    means = [own.update().mean for _ in range(30)]
    assert np.mean(means[-8:]) < 0.9 * np.mean(means[:8])


@pytest.mark.parametrize("variant", ["corrected", "faithful"])
@pytest.mark.parametrize("algorithm", ["reinforce", "ppo"])
def test_every_way_of_learning_changes_the_network(variant: str, algorithm: str) -> None:
    own = learner(diamond(), varied(Placeto(), variant=variant, episodes=3, algorithm=algorithm))
    before = network_arrays(own.network)
    assert own.update().stepped
    assert any((before[name] != value).any() for name, value in network_arrays(own.network).items())


@pytest.mark.parametrize(
    "switch",
    [
        {"messages": False}, {"split": False}, {"peers": False}, {"one_hot": True}, {"sum_pooling": True},
        {"traversal": "random"}, {"start_times": False},
    ],
)  # fmt: skip
def test_every_ablation_learns(switch: dict[str, object]) -> None:
    own = learner(two_towers(), varied(SMALL, **switch))  # type: ignore[arg-type]
    assert own.update().stepped
    assert all(np.isfinite(value).all() for value in network_arrays(own.network).values())


def test_imitation_leads_every_episode_to_the_best_placement_known() -> None:
    own = learner(inception(), varied(SMALL, imitation=1, led=SMALL.episodes))
    starts = own._starts(0, np.random.default_rng(0))
    led = own._led(0, starts)
    best, classes = own.tasks[0].scorer.incumbent, own.tasks[0].classes
    assert led is not None
    assert best is not None
    assert (canonical(led, classes) == canonical(best.row[None, :], classes)).all()
    told = own.update()
    assert told.mean == pytest.approx(own.tasks[0].scorer.score(own.known[0]).seconds.min() / 12.242e-3)
    assert told.stepped


def test_episodes_that_are_not_led_learn_from_rewards_beside_imitation() -> None:
    learnt = []
    for led in (1, 2, SMALL.episodes):
        own = learner(inception(), varied(SMALL, imitation=1, led=led))
        learn, taught = own._learn, []

        def watched(walk, episodes, rows, advantage=None, *, learn=learn, taught=taught):  # type: ignore[no-untyped-def]
            taught.append((rows.start, rows.stop, None if advantage is None else advantage.shape))
            return learn(walk, episodes, rows, advantage)

        own._learn = watched  # type: ignore[method-assign]
        own.update()
        learnt.append(taught)
    groups, count = own.tasks[0].grouping.count, SMALL.episodes
    assert learnt[0] == [(1, count, (groups, count - 1)), (0, 1, None)]
    assert learnt[1] == [(2, count, (groups, count - 2)), (0, 2, None)]
    assert learnt[2] == [(0, count, None)]


def test_imitation_leaves_equal_devices_in_place() -> None:
    own = learner(inception(), SMALL)
    own.tasks[0].scorer.score(own.known[0])
    best = own.tasks[0].scorer.best
    assert best is not None
    exchanged = np.array([2, 3, 1, 0], dtype=np.uint8)[best][None, :]
    assert np.array_equal(own._led(0, exchanged), exchanged)


def test_imitation_teaches_where_it_leads() -> None:
    problem = towers(policy=Published())
    options = Placeto(updates=40, imitation=40)
    own = learner(problem, options)
    before = own.swept_once(own.tasks[0])[1]
    for _ in range(options.updates):
        own.update()
    assert own.swept_once(own.tasks[0])[1] < 0.6 * before


def test_hill_climbing_improves_what_is_copied_once() -> None:
    own = learner(inception(), varied(SMALL, imitation=2, teacher=320))
    scorer = own.tasks[0].scorer
    scorer.score(own.known[0], by=own.known_by[0])
    assert scorer.start is not None
    before, begun = scorer.start.seconds, own.evaluations
    told = [own.update() for _ in range(2)]
    assert scorer.start.seconds < before
    assert scorer.start.by in ("climb on groups", "led step")
    assert told[0].evaluations - begun > 300
    assert told[1].evaluations - told[0].evaluations < 300
    assert told[0].evaluations - begun <= own.evaluations_per_update


def test_nothing_is_copied_where_nothing_fits() -> None:
    own = learner(inception(memory_bytes=2**20, training=True), varied(SMALL, imitation=4))
    assert own._led(0, own._starts(0, np.random.default_rng(0))) is None
    assert own.update().stepped


def test_learning_rate_zero_changes_no_parameter() -> None:
    own = learner(towers(), varied(SMALL, learning_rate=0.0))
    before = network_arrays(own.network)
    assert not own.update().stepped
    assert all(np.array_equal(before[name], value) for name, value in network_arrays(own.network).items())


def test_the_rate_of_imitation_falls_before_rewards_count() -> None:
    plan = EpisodeTraining(updates=30, imitation=10)
    assert plan.rate(0) == plan.rate(6) == 3e-3
    assert plan.rate(9) < 2e-3
    assert plan.rate(10) == plan.rate(23) == 1e-3
    assert plan.rate(29) < 5e-4
    assert EpisodeTraining(updates=10, imitation=99).rate(9) < 2e-3


def test_rates_and_weights_fall_as_planned() -> None:
    corrected, faithful = (replace(PRESETS[v].training, updates=100) for v in ("corrected", "faithful"))
    assert [corrected.rate(u) for u in (0, 70, 85, 100)] == pytest.approx([1e-3, 1e-3, 5.5e-4, 1e-4])
    assert [corrected.entropy_weight(u) for u in (0, 35, 99)] == pytest.approx([0.02, 0.01, 0.001])
    assert [faithful.rate(u) for u in (0, 50, 100)] == pytest.approx([1e-3, 5.5e-4, 1e-4])
    assert [faithful.entropy_weight(u) for u in (0, 35, 70)] == pytest.approx([1.0, 0.5, 0.0])
    assert replace(EpisodeTraining(), learning_rate=0.0).rate(99) == 0.0


# P17: memory, permissions, small cases


def test_overfull_placements_cost_more_and_are_never_best() -> None:  # P17
    own = learner(tight())
    walk, task = own.walks[0], own.tasks[0]
    rows = np.zeros((1, task.grouping.count), dtype=np.uint8)
    scored = task.scorer.score(rows)
    assert not scored.feasible[0]
    assert walk.price(scored)[0] == pytest.approx(scored.run_seconds[0] * (1 + 10 * scored.overfull[0]))
    assert task.scorer.best is None


def tight(share: float = 0.7) -> Problem:
    """The graph of 50 operators as it trains, outputs kept for the backward pass: no device can hold all of it."""
    ample = inception(training=True)
    zeros = np.zeros((1, len(ample.graph)), dtype=np.uint8)
    peak = int(simulate_many(ample, zeros, memory="peak").peak_bytes[0, 0])
    return inception(memory_bytes=int(share * peak), training=True)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_returned_fits(seed: int) -> None:  # P17
    problem = tight()
    solution = Placeto(policy="", updates=1, episodes=2).solve(problem, Budget(), seed)
    assert simulate_many(problem, solution.placement.devices[None, :]).feasible[0]
    assert solution.placement.devices.max() > 0


def test_devices_without_room_for_weights_are_masked() -> None:
    graph = synthetic("lstm-grid", layers=2, steps=2, hidden=256)
    cluster = k80s(2, memory_bytes=int(0.8 * graph.weight_bytes.sum()))
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
    own = learner(problem)
    inputs = own.tasks[0].inputs
    assert inputs.room is not None
    state = State(own.walks[0], np.zeros((1, inputs.groups), dtype=np.uint8))
    masks = [state.look(v)[3][0].tolist() for v in range(inputs.groups)]
    assert [False, True] in masks  # the full device is not chosen again
    free = [state.look(v)[2][0, :, 7].tolist() for v in range(inputs.groups)]
    assert all(first < 0 <= second for first, second in free)


def test_forbidden_devices_are_never_chosen() -> None:
    problem = inception().with_constraints(Constraints(pin=(("v3", "g2"),), forbid=(("v*", "g0"),)))
    own = learner(problem)
    for _ in range(2):
        own.update()
    rows = [own.greedy(own.tasks[0]), *own.known[0], *random_rows(own.tasks[0], np.random.default_rng(0), 9)]
    assert allowed_only(problem, own.tasks[0].grouping.lift(np.stack(rows)))
    assert (np.stack(rows)[:, 3] == 2).all()


def test_known_starts_are_the_single_device_and_constructions() -> None:
    problem = inception()
    rows = known_rows(learner(problem).tasks[0]).rows
    assert set(rows[0]) == {0}
    for row, name in zip(rows[1:], ("chunks", "heft"), strict=True):  # every operator is a group of its own here
        assert np.array_equal(row, solver(name).solve(problem, Budget(), 0).placement.devices)


def test_half_of_the_episodes_begin_at_random() -> None:
    own = learner(inception(), varied(SMALL, episodes=8))
    starts = own._starts(0, np.random.default_rng(0))
    spread = [len(set(row.tolist())) == 4 and (np.diff(row.astype(int)) < 0).any() for row in starts]
    assert spread[:4] == [True] * 4
    assert not all(spread[4:])
    fixed = learner(inception(), FAITHFUL)
    first, second = (fixed._starts(0, np.random.default_rng(n)) for n in range(2))
    assert np.array_equal(first, second)
    assert (first == first[0]).all()


def test_episodes_are_compared_with_those_from_the_same_kind_of_start() -> None:
    own = learner(inception(), varied(SMALL, episodes=8))
    assert own.kinds.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    starts = own._starts(0, np.random.default_rng(0))
    assert np.array_equal(starts[4], starts[5])
    assert np.array_equal(starts[6], starts[7])
    rho = np.exp([[1.0] * 8, [4.0, 3.0, 2.0, 1.0, 9.0, 7.0, 5.0, 5.0]])
    advantage = own._advantages(0, rho)[0]
    expected = np.array([-1.5, -0.5, 0.5, 1.5, -1.0, 1.0, 0.0, 0.0])
    assert advantage == pytest.approx(expected / expected.std())


def test_one_device_and_no_operator_are_no_trouble() -> None:
    alone = inception(devices=1)
    assert Placeto(policy="", updates=1).solve(alone, Budget(), 0).objective_seconds == pytest.approx(12.242e-3)
    with one_thread():
        assert learner(alone).update().greedy == pytest.approx(1.0)
    graph = GraphBuilder("empty").build()
    empty = Problem(graph, pair(), Roofline().costs(graph, pair()))
    assert Placeto(policy="", updates=1).solve(empty, Budget(), 0).objective_seconds == 0.0
    assert not learner(empty).update().stepped


# P20: determinism, checkpoints


def trail(options: Placeto, problem: Problem) -> list[tuple[int, float, str]]:
    solution = options.solve(problem, Budget(evaluations=600), 3)
    return [(step.evaluations, step.objective_seconds, step.found_by) for step in solution.trail]


def test_one_and_two_threads_give_the_same_trail() -> None:  # P20
    problem = inception()
    options = varied(SMALL, episodes=2)
    first = trail(varied(options, threads=1), problem)
    assert first == trail(varied(options, threads=2), problem)
    assert [found_by for *_, found_by in first] == ["single", "heft"]  # no step of so few made it better


@pytest.mark.parametrize(("variant", "imitation"), [("corrected", 0), ("corrected", 4), ("faithful", 0)])
def test_a_checkpoint_resumes_to_the_same_bits(variant: str, imitation: int) -> None:
    options = varied(SMALL, variant=variant, updates=8, imitation=imitation)
    problems = [towers(), inception(2, devices=2)]

    def made() -> PlacetoLearner:
        return options.learner(problems, 0, [Start.of(one) for one in problems])

    with one_thread():
        whole, begun, resumed = made(), made(), made()
        told = [comparable(whole) for _ in range(6)]
        for _ in range(3):
            begun.update()
        resumed.restore(*begun.state())
        assert [comparable(resumed) for _ in range(3)] == told[3:]
    first, second = whole.state(), resumed.state()
    assert first[1] == second[1]
    assert first[0].keys() == second[0].keys()
    assert all(np.array_equal(first[0][name], second[0][name]) for name in first[0])


def comparable(own: PlacetoLearner) -> dict[str, object]:
    return {name: value for name, value in own.update().as_dict().items() if not name.endswith("_seconds")}


def test_a_stopped_run_writes_the_same_policy(tmp_path: Path) -> None:
    whole, halved = tmp_path / "whole.safetensors", tmp_path / "halved.safetensors"
    train_policy(SMALL, [towers()], ["towers"], Run(whole, 6, every=3), seed=5)

    class Killed(Exception):
        pass

    def stop(metrics: object, own: PlacetoLearner) -> None:
        if own.version == 5:
            raise Killed

    with pytest.raises(Killed):
        train_policy(SMALL, [towers()], ["towers"], Run(halved, 6, every=3), seed=5, report=stop)
    assert not halved.exists()
    train_policy(SMALL, [towers()], ["towers"], Run(halved, 6, resume=True, every=3), seed=5)
    assert whole.read_bytes() == halved.read_bytes()
    assert [row["update"] for row in read_log(halved.with_suffix(".jsonl"))] == list(range(1, 7))


# Policies and their files


def trained(path: Path, options: Placeto = SMALL, problems: list[Problem] | None = None) -> Path:
    given = problems or [towers(), inception(2)]
    train_policy(options, given, [f"graph {n}" for n in range(len(given))], Run(path, 2), seed=1)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of graphs on 2 and on 4 devices."""
    return trained(tmp_path_factory.mktemp("policies") / "p.safetensors")


def test_a_policy_places_other_graphs_on_other_numbers_of_devices(path: Path) -> None:
    for problem in (inception(3, devices=3), grid(pair(devices=8))):
        solution = Placeto(policy=str(path)).solve(problem, Budget(), 0)
        baselines = [solver(name).solve(problem, Budget(), 0) for name in ("single", "expert")]
        assert solution.objective_seconds <= min(one.objective_seconds for one in baselines)
        assert any("placeto: 0 updates" in note for note in solution.notes)


def test_a_policy_can_be_tuned_on_a_graph(path: Path) -> None:
    solution = Placeto(policy=str(path), fine_tune=2, episodes=2).solve(inception(), Budget(), 0)
    assert any("placeto: 2 updates" in note for note in solution.notes)


def test_a_policy_keeps_a_budget_of_evaluations(path: Path) -> None:
    for evaluations in (60, 300):
        for options in (Placeto(policy=str(path)), varied(SMALL, episodes=2)):
            assert options.solve(inception(), Budget(evaluations=evaluations), 0).evaluations <= evaluations


def test_proposals_begin_with_the_argmax_and_are_repeatable(path: Path) -> None:
    policy = PlacetoPolicy.load(path)
    problem = inception(4)
    first, second = (policy.propose(problem, 5, 7) for _ in range(2))
    assert first.greedy == 0
    assert first.placements.shape == (5, len(problem.graph))
    assert np.array_equal(first.placements, second.placements)
    assert (first.log_probabilities[1:] < 0).all()
    assert not np.array_equal(first.placements, policy.propose(problem, 5, 8).placements)


def test_a_policy_with_an_output_per_device_refuses_other_numbers(tmp_path: Path) -> None:
    path = trained(tmp_path / "p.safetensors", FAITHFUL, [towers()])
    reason = Placeto("faithful", policy=str(path)).unsupported(inception())
    assert reason == "the policy was trained for 2 devices, the problem has 4"
    with pytest.raises(BadInput, match="one number of devices"):
        FAITHFUL.learner([towers(), inception()], 0, [Start({}, None)] * 2)


def test_the_options_of_the_file_decide_what_is_seen(tmp_path: Path) -> None:
    path = trained(tmp_path / "p.safetensors", varied(SMALL, split=False, start_times=False))
    own = Placeto(policy=str(path)).learner([inception()], 0, [Start({}, None)])
    assert own.network.parts == 1
    assert not own.observation.start_times


def test_the_file_of_another_policy_is_bad_input(tmp_path: Path) -> None:
    from stead.learn.colocrl.method import ColocRL

    path = tmp_path / "c.safetensors"
    method = ColocRL(hidden=4)
    NetworkPolicy(method, method.network(2, 0), 2).save(path)
    with pytest.raises(BadInput, match="colocrl"):
        Placeto(policy=str(path)).solve(towers(), Budget(), 0)


def test_the_policy_of_the_package_says_what_it_learnt_from() -> None:
    _, document = tensor_file.load(SHIPPED)
    graphs = [graph["name"] for graph in document["trained"]["graphs"]]
    assert len(graphs) > 10
    assert not any(held_out in name for name in graphs for held_out in ("nmt", "transformer-xl", "wavenet"))
    assert SHIPPED.stat().st_size < 100_000


def test_the_policy_of_the_package_is_asked_for_episodes() -> None:
    cluster = k80s(4)
    graph = synthetic("enas-rnn", seed=1000)
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
    solution = Placeto(decoder="episodes").solve(problem, Budget(), 0)
    assert any(note.startswith("placeto: 0 updates") for note in solution.notes)
    single = solver("single").solve(problem, Budget(), 0).objective_seconds
    policy = PlacetoPolicy.load(SHIPPED)
    own = policy.learner(problem, 0)
    assert own.evaluated(own.tasks[0])[1] < 0.85 * single  # without constructions to begin with


def test_the_policy_of_the_package_can_be_tuned() -> None:
    for decoder in ("", "episodes"):
        solution = Placeto(decoder=decoder, fine_tune=2, episodes=2).solve(inception(), Budget(), 0)
        assert any("placeto: 2 updates" in note for note in solution.notes)


def test_polish_is_off_unless_asked_for() -> None:
    problem = inception()
    plain, polished = (
        varied(SMALL, updates=1, episodes=2, polish=on).solve(problem, Budget(), 0) for on in (False, True)
    )
    assert not any(note.startswith("polish") for note in plain.notes)
    assert polished.objective_seconds <= plain.objective_seconds
    assert any(note.startswith("polish") for note in polished.notes)


def test_every_best_step_is_the_best_of_all_placements_of_three_operators() -> None:
    problem = chain3()
    solution = Placeto(policy="", updates=3).solve(problem, Budget(), 0)
    assert solution.objective_seconds == simulate_many(problem, all_rows(3, 2)).seconds.min()


def test_trails_fall() -> None:
    solution = varied(SMALL, updates=2, episodes=2).solve(inception(), Budget(), 0)
    values = [step.objective_seconds for step in solution.trail]
    assert all(a >= b for a, b in pairwise(values))
    assert math.isfinite(values[-1])


def test_wrong_options_are_bad_input() -> None:
    for wrong in (
        {"variant": "best"}, {"episodes": 1}, {"algorithm": "sarsa"}, {"traversal": "dfs"},
        {"groups": 5000}, {"learning_rate": -1.0}, {"learning_rate": math.nan},
        {"imitation": -1}, {"led": 0}, {"fine_tune": 3, "variant": "faithful"}, {"fine_tune": 3, "policy": ""},
    ):  # fmt: skip
        with pytest.raises(BadInput, match="placeto"):
            varied(Placeto(), **wrong)
