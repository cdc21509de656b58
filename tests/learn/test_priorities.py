"""The second head of GDP: classes as orders, what they are worth, learning them, files and checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small import grid, pair, resumes_to_the_same_bits  # noqa: E402

from stead.coarsen import single_groups  # noqa: E402
from stead.costs import Costs, Roofline, Source  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.graph import GraphBuilder  # noqa: E402
from stead.learn.gdp.method import GDP  # noqa: E402
from stead.learn.ground import tensor_file  # noqa: E402
from stead.learn.ground.ablation import varied  # noqa: E402
from stead.learn.ground.one_shot import OneShot  # noqa: E402
from stead.learn.ground.policy import NetworkPolicy, Proposal, allowed_only, document_of  # noqa: E402
from stead.learn.ground.priorities import CLASSES, MIDDLE, OrderedScorer, Ranks  # noqa: E402
from stead.learn.ground.reward import Scorer  # noqa: E402
from stead.learn.ground.solver import PolicySolver  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import network_arrays, one_thread  # noqa: E402
from stead.problem import Constraints, Latency, Placement, Priority, Problem, Throughput  # noqa: E402
from stead.sim import simulate, simulate_many  # noqa: E402
from stead.sim.ranks import rank_positions  # noqa: E402
from stead.solvers import Budget  # noqa: E402
from stead.testing import tiny_cluster, tiny_problem  # noqa: E402

SMALL = varied(
    GDP(),
    policy="", hidden=16, heads=2, samples=32, updates=20, imitation=0, segment=16, polish=False, priorities=True
)  # fmt: skip

EACH = varied(SMALL, actions="operator")  # an operator is a unit


def misleading() -> Problem:
    """p(4) -> s(1, or 23 on d1) and q(4) -> r(10); p and q must be on d0: 18.5 s as they come, 14.5 s with q first.

    The rank of p is higher, because it counts the mean of what s takes on both devices. Twelve operators that take no
    time stand behind them in the order.
    """
    own = {"p": (4, 4), "s": (1, 23), "q": (4, 4), "r": (10, 10)} | {f"idle{i}": (0, 0) for i in range(12)}
    build = GraphBuilder("misleading")
    for first, second in (("p", "s"), ("q", "r")):
        build.operator(second, reads=[build.tensor(build.operator(first), size_bytes=0)])
    for name in list(own)[4:]:
        build.operator(name)
    graph, cluster = build.build(), tiny_cluster()
    table = np.array([own[name] for name in graph.operator_names], dtype=np.float64)
    sources = np.full(table.shape, Source.IMPORTED, dtype=np.uint8)
    problem = Problem(graph, cluster, Costs(graph, cluster, table, sources=sources), objective=Latency())
    pins = [("p", "d0"), ("q", "d0"), *((name, "d1") for name in own if name.startswith("idle"))]
    return problem.with_constraints(Constraints(pin=tuple(pins)))


def learner(problem: Problem, options: GDP = SMALL, seed: int = 0) -> OneShot:
    return options.learner([problem], seed, [Start.of(problem)])


# Classes as orders


def test_the_middle_class_is_the_order_of_ranks() -> None:
    problem = grid()
    ranks = Ranks(problem, single_groups(problem.graph))
    middle = np.full((2, len(problem.graph)), MIDDLE, dtype=np.uint8)
    assert np.array_equal(ranks.positions(middle), np.stack([rank_positions(problem)] * 2))


def test_a_lower_class_moves_a_unit_forward_and_positions_stay_a_permutation() -> None:
    problem = grid()
    count = len(problem.graph)
    ranks = Ranks(problem, single_groups(problem.graph))
    v = int(np.argsort(rank_positions(problem))[count // 2])
    classes = np.full((CLASSES, count), MIDDLE, dtype=np.uint8)
    classes[:, v] = np.arange(CLASSES)
    found = ranks.positions(classes)
    assert all(sorted(row) == list(range(count)) for row in found.tolist())
    assert (np.diff(found[:, v]) > 0).all()
    others = np.delete(found, v, axis=1)
    assert (np.argsort(others, axis=1) == np.argsort(others[MIDDLE])).all()  # they keep their order


def test_rows_with_orders_of_their_own_are_scored_as_each_by_itself() -> None:
    problem, rng = grid(), np.random.default_rng(0)
    rows = rng.integers(0, 2, (5, len(problem.graph))).astype(np.uint8)
    positions = np.stack([rng.permutation(len(problem.graph)) for _ in rows]).astype(np.int32)
    scores = simulate_many(problem, rows, positions=positions)
    one_by_one = [
        simulate(problem, Placement(problem, row, Priority(place))).objective_seconds
        for row, place in zip(rows, positions, strict=True)
    ]
    assert scores.seconds.tolist() == one_by_one
    with pytest.raises(BadInput, match="not both"):
        simulate_many(problem, rows, positions=positions, policy=Priority())
    loads = tiny_problem({"a": 1}, {}, objective=Throughput())
    with pytest.raises(BadInput, match="policy belongs to dataflow latency"):
        simulate_many(loads, np.zeros((1, 1), dtype=np.uint8), positions=np.zeros((1, 1), dtype=np.int32))


def test_a_row_is_worth_the_better_of_its_own_order_and_the_policy() -> None:
    problem = misleading()
    names = list(problem.graph.operator_names)
    grouping = single_groups(problem.graph)
    devices = np.array([[int(name[0] in "ri") for name in names]], dtype=np.uint8)
    ordered, plain = OrderedScorer(problem, grouping), Scorer(problem, grouping)
    first = ordered.whole(devices)
    q_first = first.copy()
    q_first[0, len(names) + names.index("q")] = 0
    assert plain.score(devices).seconds.tolist() == [18.5]
    assert simulate_many(problem, devices, policy=Priority()).seconds.tolist() == [18.5]
    assert ordered.score(np.concatenate([first, q_first])).seconds.tolist() == [18.5, 14.5]
    assert ordered.evaluations == 4  # every row is simulated in two ways
    assert ordered.own is not None
    assert (ordered.own.run, ordered.placement(first[0]).order) == (1, None)  # the order of the row is faster
    assert simulate(problem, ordered.placed(ordered.own)).objective_seconds == 14.5


# Learning them


def test_learning_finds_the_order_that_matters() -> None:
    problem = misleading()
    without = varied(EACH, priorities=False).solve(problem, Budget(), 0)
    found = EACH.solve(problem, Budget(), 0)
    assert without.objective_seconds == 18.5
    assert found.objective_seconds == 14.5
    assert isinstance(found.placement.order, Priority)
    assert simulate(problem, found.placement).objective_seconds == 14.5
    with one_thread():
        own = learner(problem, EACH, seed=1)
        shares = []
        for updates in (0, 60):
            for _ in range(updates):
                own.update()
            actions, _ = own.network.sample(own.tasks[0].inputs, 64, torch.Generator().manual_seed(0))
            seconds = own.tasks[0].scorer.score(own.rows(own.tasks[0], actions)).seconds
            shares.append(float((seconds == 14.5).mean()))
    assert shares[0] < 0.2
    assert shares[1] > 0.5  # the policy has learnt it


def test_actions_are_devices_and_classes_and_every_parameter_learns() -> None:
    problem = grid(pair(devices=3), steps=3)
    for level in ("unit", "operator"):
        with one_thread():
            own = learner(problem, varied(SMALL, level=level))
            own.update()
        task, network = own.tasks[0], own.network
        actions, log_p = network.sample(task.inputs, 6, torch.Generator().manual_seed(0), greedy=True)
        units = task.grouping.count
        assert actions.shape == (6, 2 * units)
        assert int(actions[:, :units].max()) < 3
        assert set(actions[0, units:].tolist()) == {MIDDLE}  # the likeliest class
        each, entropy = network.likelihood(task.inputs, actions)
        assert each.shape == entropy.shape == (6, 2 * units)
        assert torch.allclose(each.sum(dim=1), log_p, atol=1e-4)
        assert network.ordering.head.weight.abs().sum() > 0


def test_masks_memory_and_problems_without_orders_are_respected() -> None:
    problem = grid()
    names = problem.graph.operator_names
    bound = problem.with_constraints(Constraints(pin=((names[0], "g1"), (names[5], "g0"))))
    proposal = NetworkPolicy(SMALL, SMALL.network(2, 0), 2).propose(bound, 16, 0)
    assert allowed_only(bound, proposal.placements)
    assert proposal.positions is not None
    peak = int(
        simulate_many(problem, np.zeros((1, len(names)), dtype=np.uint8), memory="peak").peak_bytes[0, 0]
    )
    tight = grid(pair(memory_bytes=int(0.7 * peak)))
    with one_thread():
        own = learner(tight)
        assert own.update().infeasible < 1
    loads = grid()
    loads = Problem(loads.graph, loads.cluster, loads.costs, objective=Throughput())
    assert NetworkPolicy(SMALL, SMALL.network(2, 0), 2).propose(loads, 4, 0).positions is None
    assert varied(SMALL, updates=2).solve(loads, Budget(), 0).placement.order is None


def test_elites_with_other_names_of_devices_keep_their_classes() -> None:
    own = learner(grid(steps=2))
    task, units = own.tasks[0], own.tasks[0].grouping.count
    actions, _ = own.network.sample(task.inputs, 4, torch.Generator().manual_seed(0))
    swapped = own.network.renamed(task.inputs, actions, torch.tensor([[1, 0]] * 4))
    assert torch.equal(swapped[:, :units], 1 - actions[:, :units])
    assert torch.equal(swapped[:, units:], actions[:, units:])


def test_the_same_seed_gives_the_same_answer_within_the_evaluations() -> None:
    found = [
        varied(SMALL, imitation=2).solve(grid(steps=3), Budget(evaluations=500), seed=4) for _ in range(2)
    ]
    assert found[0].objective_seconds == found[1].objective_seconds
    assert np.array_equal(found[0].placement.devices, found[1].placement.devices)
    assert all(one.evaluations <= 500 for one in found)


@pytest.mark.parametrize("imitation", [0, 3])
def test_a_checkpoint_resumes_to_the_same_bits(imitation: int) -> None:
    problem, options = grid(steps=3), varied(SMALL, imitation=imitation)
    with one_thread():
        assert resumes_to_the_same_bits(lambda: learner(problem, options))


def test_a_policy_with_priorities_survives_its_file_and_is_asked(tmp_path: Path) -> None:
    problem = misleading()
    with one_thread():
        own = learner(problem, EACH, seed=1)
        for _ in range(40):
            own.update()
    trained = NetworkPolicy(EACH, own.network, 2)
    trained.save(tmp_path / "p.safetensors")
    read = NetworkPolicy.load(tmp_path / "p.safetensors", GDP)
    first, second = (one.propose(problem, 8, 1) for one in (trained, read))
    assert first.positions is not None
    assert second.positions is not None
    assert np.array_equal(first.positions, second.positions)
    asked = PolicySolver(read, samples=8).solve(problem, Budget(), 0)
    assert asked.objective_seconds == 14.5
    assert isinstance(asked.placement.order, Priority)
    few = PolicySolver(read, samples=8).solve(problem, Budget(evaluations=12), 0)
    assert few.evaluations <= 12


def test_a_file_that_does_not_name_priorities_has_none(tmp_path: Path) -> None:
    own = NetworkPolicy(varied(SMALL, priorities=False), varied(SMALL, priorities=False).network(2, 0), 2)
    arrays, document = network_arrays(own.network), document_of(own.method, 2)
    del document["options"]["priorities"]
    tensor_file.save(tmp_path / "p.safetensors", arrays, document)
    read = NetworkPolicy.load(tmp_path / "p.safetensors", GDP)
    assert read.propose(grid(), 4, 0).positions is None


def test_the_faithful_variant_leaves_the_order_alone() -> None:
    faithful = varied(SMALL, variant="faithful")
    assert NetworkPolicy(faithful, faithful.network(2, 0), 2).propose(grid(), 4, 0).positions is None


def test_wrong_uses_are_bad_input() -> None:
    with pytest.raises(BadInput, match="do not fit placements"):
        Proposal(np.zeros((1, 2), dtype=np.uint8), np.zeros(1), positions=np.zeros((1, 3), dtype=np.int32))


def test_an_empty_graph_and_one_device_are_answered() -> None:
    graph, cluster = GraphBuilder("nothing").build(), pair()
    empty = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
    assert varied(SMALL, updates=1).solve(empty, Budget(), 0).objective_seconds == 0.0
    alone = grid(pair(devices=1), steps=2)
    assert set(varied(SMALL, updates=1).solve(alone, Budget(), 0).placement.devices.tolist()) == {0}
