"""GDP: its network against loops, its estimator against enumeration, learning on small graphs, files; as a solver."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small import all_rows, grid, pair, resumes_to_the_same_bits  # noqa: E402

from stead.cluster import Cluster, Device, link_all  # noqa: E402
from stead.coarsen import single_groups  # noqa: E402
from stead.costs import Roofline  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.graph import GraphBuilder  # noqa: E402
from stead.learn.gdp import fast_ops  # noqa: E402
from stead.learn.gdp import method as gdp  # noqa: E402
from stead.learn.gdp.features import FEATURES, POSITIONS, graph_inputs  # noqa: E402
from stead.learn.gdp.method import CONSTRUCTIONS, GDP, PRESETS, nearest  # noqa: E402
from stead.learn.gdp.network import (  # noqa: E402
    GraphInputs,
    GraphPlacer,
    Layer,
    Neighbours,
    largest,
    loads,
    repaired,
)
from stead.learn.ground import tensor_file  # noqa: E402
from stead.learn.ground.ablation import varied  # noqa: E402
from stead.learn.ground.equal_devices import canonical, device_classes  # noqa: E402
from stead.learn.ground.losses import ppo_loss  # noqa: E402
from stead.learn.ground.one_shot import OneShot  # noqa: E402
from stead.learn.ground.placed_groups import (  # noqa: E402
    by_most_seconds,
    memory_room,
    placed_groups,
)
from stead.learn.ground.policy import NetworkPolicy, allowed_only  # noqa: E402
from stead.learn.ground.solver import PolicySolver, train_policy  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import network_arrays, one_thread  # noqa: E402
from stead.learn.ground.training_run import Run  # noqa: E402
from stead.problem import Constraints, Latency, Problem  # noqa: E402
from stead.sim import simulate_many  # noqa: E402
from stead.solvers import Budget, Solver, solver  # noqa: E402
from stead.testing import two_towers  # noqa: E402
from stead.testing.contracts import SolverContract  # noqa: E402
from stead.workloads.synthetic import synthetic  # noqa: E402

SMALL = varied(
    GDP(),
    policy="", hidden=16, heads=2, samples=32, updates=20, imitation=0, segment=16, polish=False, priorities=False
)  # fmt: skip


class TestGDP(SolverContract):
    """What every solver promises, here of one that trains on the problem."""

    @pytest.fixture
    def solver(self) -> Solver:
        return varied(SMALL, updates=3, imitation=1, polish=True)


def policy(options: GDP = SMALL, seed: int = 0) -> NetworkPolicy:
    return NetworkPolicy(options, options.network(2, seed), 2)


def learner(problem: Problem, options: GDP = SMALL, seed: int = 0) -> OneShot:
    return options.learner([problem], seed, [Start.of(problem)])


# G1 to G3: the network


def by_loop(layer: Layer, h: torch.Tensor, length: int) -> torch.Tensor:
    """One segment after another, the memory carried along, by the attention that torch documents."""
    found, memory = [], h[:0]
    for part in torch.split(h, length):
        seen = layer.key_value(torch.cat([memory.detach(), part]))
        query, key, value = (
            one.view(len(one), layer.heads, -1).transpose(0, 1)
            for one in (layer.query(part), *seen.chunk(2, dim=1))
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(query[None], key[None], value[None])[0]
        x = layer.norm(part + layer.out(mixed.transpose(0, 1).flatten(1)))
        found.append(layer.last_norm(x + layer.outer(torch.relu(layer.inner(x)))))
        memory = part
    return torch.cat(found)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 256, 1037, 10_000])
def test_batched_segments_are_the_loop_over_segments(count: int) -> None:  # G1
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([Layer(16, 2), Layer(16, 2)])
    given, weights = torch.randn(count, 16), torch.randn(count, 16)
    outputs, gradients = [], []
    with one_thread():
        for run in (lambda layer, h: layer(h, 128), lambda layer, h: by_loop(layer, h, 128)):
            out = h = given.clone().requires_grad_()
            layers.zero_grad()
            for layer in layers:
                out = run(layer, out)
            (out * weights).sum().backward()
            assert h.grad is not None
            outputs.append(out.detach())
            gradients.append([h.grad, *(one.grad.clone() for one in layers.parameters())])
        with torch.no_grad():
            in_blocks = layers[1](layers[0](given, 128), 128)
    assert torch.allclose(*outputs, atol=1e-5)
    assert torch.allclose(in_blocks, outputs[1], atol=1e-5)
    for first, second in zip(*gradients, strict=True):
        assert float((first - second).norm()) <= 1e-4 * float(second.norm()) + 1e-6


def test_what_is_two_segments_away_changes_no_bit() -> None:  # G2
    torch.manual_seed(0)
    layer, x = Layer(16, 2), torch.randn(60, 16)
    before = layer(x, 16)
    changed = x.clone()
    changed[:16] += 1.0
    after = layer(changed, 16)
    assert torch.equal(after[32:], before[32:])
    assert not torch.equal(after[16:32], before[16:32])  # the neighbouring segment does see it
    changed = x.clone()
    changed[48:] += 1.0
    assert torch.equal(layer(changed, 16)[:48], before[:48])  # nobody sees what comes later


def test_memory_carries_no_gradient() -> None:  # G2
    layer, x = Layer(16, 2), torch.randn(32, 16, requires_grad=True)
    layer(x, 16)[16:].sum().backward()
    assert x.grad is not None
    assert not x.grad[:16].any()
    assert x.grad[16:].any()


def renumbered(inputs: GraphInputs, order: np.ndarray) -> GraphInputs:  # type: ignore[type-arg]
    """The same graph with node order[i] as number i, and without features that depend on numbers."""
    place = np.argsort(order)
    numbers = inputs.numbers.clone()
    numbers[:, POSITIONS] = 0.0
    near = []
    for side in inputs.near:
        own = np.repeat(np.arange(len(order)), side.lengths.numpy())
        pairs = sorted(zip(place[own].tolist(), place[side.nodes.numpy()].tolist(), strict=True))
        near.append(Neighbours(torch.tensor([b for _, b in pairs]), side.lengths[order]))
    return replace(
        inputs, words=inputs.words[order], numbers=numbers[order], near=tuple(near), beside=inputs.beside[order],
        allowed=inputs.allowed[order],
    )  # fmt: skip


def test_another_order_of_nodes_permutes_the_logits() -> None:  # G3
    problem = grid(steps=3)
    options = varied(SMALL, segment=10_000)
    nodes = single_groups(problem.graph)
    inputs = graph_inputs(problem, nodes, nodes)
    rng = np.random.default_rng(0)
    order = rng.permutation(nodes.count)
    network = options.network(2, 0)
    same = renumbered(inputs, np.arange(nodes.count))
    first, second = network.logits(same), network.logits(renumbered(inputs, order))
    assert torch.allclose(first[order], second, atol=1e-5)
    assert float(first.detach().std()) > 1e-3


def test_the_largest_message_is_that_of_a_loop() -> None:
    torch.manual_seed(0)
    messages = torch.rand(5, 3)
    near = Neighbours(torch.tensor([1, 4, 0, 2, 3]), torch.tensor([2, 0, 3, 0, 0]))
    found = largest(messages, near)
    assert torch.equal(found[0], messages[[1, 4]].amax(dim=0))
    assert torch.equal(found[2], messages[[0, 2, 3]].amax(dim=0))
    assert not found[[1, 3, 4]].any()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_equal_messages_share_the_gradient(sign: float) -> None:
    messages = torch.tensor([[0.5, 0.2], [0.5, 0.7], [0.1, 0.7], [0.9, 0.7]], requires_grad=True)
    near = Neighbours(torch.tensor([0, 1, 2, 2, 3]), torch.tensor([3, 0, 2, 0]))
    (found,) = torch.autograd.grad((sign * largest(messages, near)).sum(), messages)
    assert torch.equal(sign * found, torch.tensor([[0.5, 0.0], [0.5, 0.5], [0.0, 1.0], [1.0, 0.5]]))


def test_gradients_of_messages_do_not_depend_on_how_many_nodes_are_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(0)
    messages = torch.rand(40, 8, generator=generator).mul(4).round().requires_grad_()  # many are equal
    lengths = torch.randint(0, 6, (40,), generator=generator)
    near = Neighbours(torch.randint(0, 40, (int(lengths.sum()),), generator=generator), lengths)
    weights = torch.rand(40, 8, generator=generator) - 0.5
    found = []
    for together in (4096, 7):
        monkeypatch.setattr(fast_ops, "AT_ONCE", together)
        found += torch.autograd.grad((weights * largest(messages, near)).sum(), messages)
    assert torch.equal(*found)
    rows = torch.split(messages.index_select(0, near.nodes), lengths.tolist())
    largest_of_rows = torch.stack([row.amax(dim=0) if len(row) else row.new_zeros(8) for row in rows])
    (expected,) = torch.autograd.grad((weights * largest_of_rows).sum(), messages)
    assert torch.allclose(found[0], expected, atol=1e-6)


def test_gates_begin_at_one_and_every_parameter_learns() -> None:
    with one_thread():
        own = learner(grid(steps=3))
        inputs = own.tasks[0].inputs
        gates = own.network.gated(own.network.embedded(inputs), inputs.whole)
        assert all(bool((gate == 1).all()) for gate in gates)
        before = network_arrays(own.module)
        own.update()
    unused = {"network.ordinal.weight"}  # rows of devices that are not there stay
    assert all(
        name in unused or not np.array_equal(before[name], value)
        for name, value in network_arrays(own.module).items()
    )


@pytest.mark.parametrize("switch", ["attention", "superposition"])
def test_parts_can_be_switched_off(switch: str) -> None:
    options = varied(SMALL, **{switch: False})  # type: ignore[arg-type]
    fewer = sum(p.numel() for p in options.network(2, 0).parameters())
    assert fewer < sum(p.numel() for p in SMALL.network(2, 0).parameters())
    with one_thread():
        assert learner(grid(steps=3), options).update().stepped


def test_features_do_not_depend_on_the_speed_of_the_cluster() -> None:
    problem = grid(steps=3)
    nodes = placed_groups(problem)
    slow = Cluster(
        tuple(
            Device(f"g{d}", memory_bytes=2**40, flops_per_second={"fp32": 4.6e11}, bytes_per_second=50e9,
                   launch_seconds=5e-5)
            for d in range(2)
        ),
        link_all(["g0", "g1"], bytes_per_second=1.2e9, latency_seconds=2e-4, gap_seconds=2e-4),
    )  # fmt: skip
    graph = problem.graph
    other = Problem(graph, slow, Roofline().costs(graph, slow), objective=Latency())
    first, second = graph_inputs(problem, nodes, nodes), graph_inputs(other, nodes, nodes)
    assert first.numbers.shape == (nodes.count, FEATURES)
    assert torch.allclose(first.numbers, second.numbers, atol=1e-4)
    assert torch.allclose(first.devices, second.devices, atol=1e-4)
    assert torch.allclose(first.whole, second.whole, atol=1e-4)


# G4, G5: symmetry and estimator


def test_the_towers_are_found_and_elites_differ_by_more_than_names() -> None:  # G4
    with one_thread():
        own = learner(two_towers(), varied(SMALL, learning_rate=3e-3))
        for _ in range(40):
            own.update()
        task = own.tasks[0]
        greedy = own.greedy(task)
    assert len(np.unique(greedy)) == 2
    assert task.scorer.best_seconds == 7.5
    rows = np.stack(task.elites.rows).astype(np.uint8)
    assert len(np.unique(canonical(rows, task.classes), axis=0)) == len(rows)


def test_the_first_ppo_gradient_is_the_policy_gradient() -> None:  # G5
    build = GraphBuilder("three")
    a = build.operator("a", flops=1e9)
    b = build.operator("b", flops=2e9, reads=[build.tensor(a, size_bytes=4)])
    build.operator("c", flops=3e9, reads=[build.tensor(b, size_bytes=4)])
    graph, cluster = build.build(), pair()
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
    network = varied(SMALL, actions="operator").network(2, 0)
    _, inputs = varied(SMALL, actions="operator", noise="alone").inputs(problem)  # shared noise has another gradient
    rows = torch.from_numpy(all_rows(3, 2).astype(np.int64))
    rewards = torch.tensor([0.3, -1.0, 2.0, 0.1, -0.4, 0.9, -2.0, 1.2])

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        found = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
        return torch.cat([g.flatten() for g in found if g is not None])

    with one_thread():
        log_p = network.likelihood(inputs, rows)[0].sum(dim=1)
        assert float(log_p.detach().exp().sum()) == pytest.approx(1.0, abs=1e-5)
        exact = gradient(-(log_p.exp() * rewards).sum())
        each = []
        generator = torch.Generator().manual_seed(0)
        for _ in range(200):
            actions, drawn = network.sample(inputs, 100, generator)
            now = network.likelihood(inputs, actions)[0]
            assert torch.allclose(now.sum(dim=1), drawn, atol=1e-5)
            reward = rewards[(actions * torch.tensor([4, 2, 1])).sum(dim=1)]
            each.append(gradient(ppo_loss(now, now.detach(), reward, torch.ones(100), 0.2)))
    found = torch.stack(each)
    error = found.std(dim=0) / len(each) ** 0.5
    assert bool(((found.mean(dim=0) - exact).abs() <= 4 * error + 1e-6).float().mean() > 0.995)


# Learning


def test_imitation_copies_its_target_and_rewards_keep_it() -> None:
    problem = grid()
    with one_thread():
        own = learner(problem, varied(SMALL, hidden=32, imitation=80, learning_rate=3e-3, level="unit"))
        own.update()
        built = own.tasks[0].scorer.evaluations  # by constructions and features
        for _ in range(79):
            own.update()
        target = own.tasks[0].target
        assert target is not None
        assert own.tasks[0].scorer.evaluations - built <= 79  # greedy placements, no samples
        agreement = (own.greedy(own.tasks[0]) == target).mean()
        for _ in range(15):
            own.update()
    single = solver("single").solve(problem, Budget(), 0).objective_seconds
    assert agreement > 0.9
    assert own.tasks[0].greedy_devices == 2  # G9
    assert own.tasks[0].greedy_seconds < single


def test_learning_lowers_the_mean_of_the_samples() -> None:
    with one_thread():
        own = learner(grid(), varied(SMALL, learning_rate=3e-3, level="unit", noise="alone"))
        means = [own.update().mean for _ in range(50)]
    assert np.mean(means[-8:]) < 0.9 * np.mean(means[:8])


@pytest.mark.parametrize("imitation", [0, 30])
def test_one_device_is_greedy_where_links_are_slow(imitation: int) -> None:  # G9
    problem = grid(pair(bytes_per_second=0.1e9, latency_seconds=1e-3))
    options = varied(SMALL, imitation=imitation, level="unit")
    with one_thread():
        own = learner(problem, options)
        for _ in range(60):
            own.update()
        greedy = own.greedy(own.tasks[0])
    assert len(set(greedy.tolist())) == 1


def test_one_policy_learns_from_clusters_of_several_sizes() -> None:
    problems = [grid(pair(devices=2), steps=3), grid(pair(devices=4), steps=4)]
    with one_thread():
        own = SMALL.learner(problems, 0, [Start.of(one) for one in problems])
        assert all(own.update().stepped for _ in range(3))
    assert all(task.scorer.evaluations > 0 for task in own.tasks)


def unequal(count: int) -> Cluster:
    names = [f"g{d}" for d in range(count)]
    return Cluster(
        tuple(
            Device(name, memory_bytes=2**34 * (1 + d), flops_per_second={"fp32": 1e12 * (1 + d)},
                   bytes_per_second=100e9 * (1 + d), launch_seconds=5e-6)
            for d, name in enumerate(names)
        ),
        link_all(names, bytes_per_second=12e9, latency_seconds=20e-6),
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_one_policy_places_on_1_to_16_unequal_devices(count: int) -> None:
    problem = grid(unequal(count), steps=3)
    placements = policy().propose(problem, 16, 0).placements
    assert allowed_only(problem, placements)
    assert len(np.unique(placements)) == min(count, len(np.unique(placements)))
    assert count == 1 or len(np.unique(placements)) > 1
    assert SMALL.unsupported(grid(pair(devices=17), steps=2)) == (
        "gdp (corrected) places on at most 16 devices, the problem has 17"
    )


def test_forbidden_devices_are_never_drawn() -> None:
    problem = grid()
    names = problem.graph.operator_names
    bound = problem.with_constraints(Constraints(pin=((names[0], "g1"), (names[5], "g0"))))
    for options in (SMALL, varied(SMALL, actions="operator"), varied(SMALL, variant="faithful")):
        assert allowed_only(bound, policy(options).propose(bound, 64, 0).placements)


def test_units_keep_operators_together_and_operators_may_part() -> None:
    graph, cluster = synthetic("transformer", layers=2, width=64, heads=2, length=16, training=True), pair()
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
    grouping = placed_groups(problem, most=20)
    together = policy(varied(SMALL, units=20)).propose(problem, 8, 0).placements
    for g in range(grouping.count):
        assert (together[:, grouping.members(g)] == together[:, grouping.members(g)[:1]]).all()
    apart = policy(varied(SMALL, actions="operator")).propose(problem, 8, 0).placements
    assert any(
        (apart[:, grouping.members(g)] != apart[:, grouping.members(g)[:1]]).any()
        for g in range(grouping.count)
    )


def test_units_without_room_move_until_they_fit() -> None:
    ample = grid()
    zeros = np.zeros((1, len(ample.graph)), dtype=np.uint8)
    peak = int(simulate_many(ample, zeros, memory="peak").peak_bytes[0, 0])
    problem = grid(pair(memory_bytes=int(0.6 * peak)))
    grouping = placed_groups(problem)
    room = memory_room(problem, grouping.group)
    assert room is not None
    allowed = torch.ones(grouping.count, 2, dtype=torch.bool)
    rows = torch.cat(
        [torch.zeros(1, grouping.count, dtype=torch.long), torch.randint(2, (7, grouping.count))]
    )
    assert bool((loads(rows, room)[0] > room.capacity).any())
    after = repaired(rows, room, allowed)
    assert bool((loads(after, room) <= room.capacity).all())
    assert torch.equal(repaired(after, room, allowed), after)
    fitted = (loads(rows, room) <= room.capacity).all(dim=1)
    assert torch.equal(after[fitted], rows[fitted])
    solution = varied(SMALL, updates=3).solve(problem, Budget(), 0)
    assert simulate_many(problem, solution.placement.devices[None, :]).feasible[0]


@pytest.mark.parametrize("level", ["unit", "operator"])
def test_the_network_sees_the_best_of_the_plain_cuts(level: str) -> None:
    problem = grid(pair(devices=4), layers=4, steps=12)
    grouping, inputs = varied(SMALL, level=level).inputs(problem)
    row = nearest(inputs)
    assert np.array_equal(canonical(row[None], device_classes(problem))[0], row)
    found = simulate_many(problem, grouping.lift(row[None])).seconds[0]
    single = solver("single").solve(problem, Budget(), 0).objective_seconds
    quarters = np.arange(grouping.count) * 4 // grouping.count
    assert found < 0.7 * single
    assert found < 0.7 * simulate_many(problem, grouping.lift(quarters[None].astype(np.uint8))).seconds[0]


def test_without_ordinals_equal_nodes_on_equal_devices_differ_by_the_cut_alone() -> None:
    options = varied(SMALL, ordinals=False, level="unit")
    _, inputs = options.inputs(grid(pair(devices=4), layers=4))
    network = options.network(4, 0)
    torch.nn.init.normal_(network.weigh.weight)
    assert float(network.logits(inputs).detach().std(dim=1).min()) > 0
    same = replace(inputs, beside=inputs.beside[:, :1].expand(-1, 4, -1).contiguous())
    assert float(network.logits(same).detach().std(dim=1).max()) < 1e-6
    assert not any(name.startswith(("ordinal", "device.")) for name in network.state_dict())


def test_a_construction_is_lowered_to_where_most_of_its_time_is() -> None:
    problem = two_towers()
    from stead.coarsen import Grouping

    towers = Grouping(problem.graph, [0, 1, 0, 1, 1])
    devices = np.array([0, 1, 0, 0, 1], dtype=np.uint8)  # of the right tower 3 s on d1, 2 s on d0
    assert by_most_seconds(problem, towers, devices).tolist() == [0, 1]


def test_slow_constructions_are_left_out_where_the_budget_is_short() -> None:
    problem = grid()
    for budget, copied in ((Budget(), True), (Budget(seconds=60), True), (Budget(seconds=1), False),
                           (Budget(evaluations=10**6), False)):  # fmt: skip
        names = SMALL._within(budget, problem).parts.copies.split(",")
        assert ("multilevel" in names) is copied
        assert "dfs-sticky" in names


def test_the_best_of_the_constructions_is_copied() -> None:
    problem = grid(layers=4, steps=8)
    options = varied(SMALL, imitation=1)
    values = {}
    for copies in (*CONSTRUCTIONS, ",".join(CONSTRUCTIONS)):
        task = learner(problem, varied(options, copies=copies)).tasks[0]
        values[copies] = min(task.elites.seconds)
    assert values.pop(",".join(CONSTRUCTIONS)) == min(values.values())
    assert len(set(values.values())) > 1  # or the choice would not matter


def test_faithful_is_what_the_paper_says() -> None:
    options = varied(SMALL, variant="faithful", samples=0)
    preset = PRESETS["faithful"]
    assert preset.training.elite_weight == 0.0
    with one_thread():
        own = learner(grid(steps=3), options)
        assert own.training.samples == 16
        assert own.tasks[0].grouping.count == grid(steps=3).unit_count
        assert own.tasks[0].reward.failing == -10.0
        assert own.update().stepped
    assert options.unsupported(grid(pair(devices=9), steps=2)) is not None


# G20: determinism, checkpoints, files


def trail(options: GDP, problem: Problem) -> list[tuple[int, float]]:
    solution = options.solve(problem, Budget(evaluations=300), 3)
    return [(step.evaluations, step.objective_seconds) for step in solution.trail]


def test_one_and_four_workers_give_the_same_trail() -> None:  # G20
    problem = grid()
    assert trail(varied(SMALL, threads=1), problem) == trail(varied(SMALL, threads=4), problem)


def found_by_a_small_network() -> str:
    own = varied(GDP(), policy="", hidden=16, heads=2, samples=32, updates=5, imitation=2, polish=False)
    return own.solve(grid(), Budget(), 7).placement.devices.tobytes().hex()


def test_another_process_with_one_thread_gives_the_same_placement() -> None:  # G20
    places = [str(Path(__file__).parent), *(path for path in sys.path if path)]
    seed = "21" if os.environ.get("PYTHONHASHSEED") == "20" else "20"
    there = subprocess.run(
        [sys.executable, "-c", "import test_gdp; print(test_gdp.found_by_a_small_network())"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert there.strip() == found_by_a_small_network()


@pytest.mark.parametrize("options", [SMALL, varied(SMALL, imitation=3), varied(SMALL, variant="faithful")])
def test_a_checkpoint_resumes_to_the_same_bits(options: GDP) -> None:  # G20
    problem = grid(steps=3)
    with one_thread():
        assert resumes_to_the_same_bits(lambda: learner(problem, options))


def test_a_policy_survives_its_file(tmp_path: Path) -> None:
    own = policy(seed=3)
    own.save(tmp_path / "p.safetensors")
    read = NetworkPolicy.load(tmp_path / "p.safetensors", GDP)
    first, second = (one.propose(grid(), 8, 1) for one in (own, read))
    assert np.array_equal(first.placements, second.placements)
    assert np.array_equal(first.log_probabilities, second.log_probabilities)


def test_training_several_graphs_writes_a_policy_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    options = varied(SMALL, imitation=2)
    train_policy(options, [grid(steps=2), grid(steps=3)], ["two", "three"], Run(path, 4), seed=1)
    problem = grid(pair(devices=3), steps=4)
    once = GDP(policy=str(path), polish=False).solve(problem, Budget(), 0)
    assert any(note.startswith("gdp greedy: ") for note in once.notes)
    more = GDP(policy=str(path), polish=False, fine_tune=3, samples=16).solve(problem, Budget(), 0)
    assert any(note.startswith("gdp: 3 updates") for note in more.notes)
    own = GDP(policy=str(path)).learner([problem], 0, [Start.of(problem)])  # with the network of the file
    assert own.network.shape == SMALL.shape


def test_the_policy_of_the_package_is_asked_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy().save(tmp_path / "p.safetensors")
    monkeypatch.setattr(gdp, "SHIPPED", tmp_path / "p.safetensors")
    asked = GDP(decoder="devices", polish=False).solve(grid(steps=3), Budget(), 0)
    assert any(note.startswith("gdp greedy: ") for note in asked.notes)
    trained = varied(SMALL, updates=2).solve(grid(steps=3), Budget(), 0)
    assert any(note.startswith("gdp: 2 updates") for note in trained.notes)
    monkeypatch.setattr(gdp, "SHIPPED", tmp_path / "missing")
    assert varied(SMALL, policy="pretrained")._file() is None


@pytest.mark.skipif(not gdp.SHIPPED.exists(), reason="built without the policy")
def test_the_policy_of_the_package_is_small_says_what_it_was_trained_on_and_places() -> None:
    assert gdp.SHIPPED.stat().st_size < 2**20
    document = tensor_file.load(gdp.SHIPPED)[1]
    assert len(document["trained"]["graphs"]) >= 15
    own = NetworkPolicy.load(gdp.SHIPPED, GDP)
    own.method = replace(own.method, noise="alone")  # with shared noise random weights draw as well as it does
    problem = grid(pair(devices=4), layers=4, steps=12)
    seconds = simulate_many(problem, own.propose(problem, 64, 0).placements).seconds
    blind = NetworkPolicy(own.method, own.method.network(4, 0), 4).propose(problem, 64, 0).placements
    assert seconds.min() < 0.8 * simulate_many(problem, blind).seconds.min()


def test_polish_is_a_step_of_its_own() -> None:
    problem = grid()
    plain = PolicySolver(policy(), samples=4).solve(problem, Budget(), 0)
    polished = PolicySolver(policy(), samples=4, polish=True).solve(problem, Budget(), 0)
    assert not any(note.startswith("polish") for note in plain.notes)
    assert any(note.startswith("polish") for note in polished.notes)
    assert polished.objective_seconds < plain.objective_seconds
    assert polished.found_by == f"{plain.found_by} + polish"


def test_wrong_options_are_bad_input() -> None:
    for wrong in (
        {"variant": "best"}, {"samples": -1}, {"hidden": 20}, {"level": "layer"}, {"actions": "group"}, {"units": 0},
    ):  # fmt: skip
        with pytest.raises(BadInput, match="gdp: "):
            varied(GDP(), **wrong)
    with pytest.raises(BadInput, match="no such file"):
        GDP(policy="missing.safetensors").solve(grid(steps=2), Budget(), 0)


def test_an_empty_graph_and_one_device_are_answered() -> None:
    graph, cluster = GraphBuilder("nothing").build(), pair()
    empty = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
    assert varied(SMALL, updates=1).solve(empty, Budget(), 0).objective_seconds == 0.0
    alone = grid(pair(devices=1), steps=2)
    assert set(varied(SMALL, updates=1).solve(alone, Budget(), 0).placement.devices.tolist()) == {0}


# G14: size


def test_fifty_thousand_operators_go_through_in_one_pass(capsys: pytest.CaptureFixture[str]) -> None:  # G14
    graph = synthetic("lstm-grid", operators=50_000, hidden=64, vocabulary=100, training=True)
    cluster = pair(devices=4)
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
    options = varied(GDP(), policy="", level="operator")
    with one_thread():
        network: GraphPlacer = options.network(4, 0)
        grouping, inputs = options.inputs(problem)
        generator = torch.Generator().manual_seed(0)
        begin = time.process_time()
        actions, log_p = network.sample(inputs, 16, generator, greedy=True)
        spent = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with capsys.disabled():
        print(
            f"\n{len(graph)} operators, {grouping.count} units: one pass {spent:.2f} CPU s, {peak / 2**30:.2f} GiB"
        )
    assert actions.shape == (16, 2 * grouping.count)  # devices and priorities
    assert bool(torch.isfinite(log_p).all())
    assert peak < 3 * 2**30
