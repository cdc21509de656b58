"""ColocRL: groups, rewards, learning on small graphs, determinism, files; and as a solver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small import grid, pair, rnnlm  # noqa: E402

from stead.coarsen import colocate, colocate_single_consumers, limited  # noqa: E402
from stead.errors import BadInput  # noqa: E402
from stead.graph import GraphBuilder  # noqa: E402
from stead.learn.colocrl.method import PRESETS, ColocRL  # noqa: E402
from stead.learn.ground import tensor_file  # noqa: E402
from stead.learn.ground.ablation import varied  # noqa: E402
from stead.learn.ground.one_shot import OneShot  # noqa: E402
from stead.learn.ground.placed_groups import memory_room, placed_groups  # noqa: E402
from stead.learn.ground.policy import NetworkPolicy, allowed_only  # noqa: E402
from stead.learn.ground.solver import PolicySolver, train_policy  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import load_network, network_arrays, one_thread  # noqa: E402
from stead.learn.ground.training_run import Run, read_log  # noqa: E402
from stead.placing.loading import load  # noqa: E402
from stead.problem import Constraints, Latency, Problem  # noqa: E402
from stead.sim import simulate, simulate_many  # noqa: E402
from stead.solvers import Budget, Solver, solver  # noqa: E402
from stead.testing import two_towers  # noqa: E402
from stead.testing.contracts import SolverContract  # noqa: E402
from stead.workloads.synthetic import synthetic  # noqa: E402

SMALL = ColocRL(hidden=32, updates=30)


class TestColocRL(SolverContract):
    """What every solver promises."""

    @pytest.fixture
    def solver(self) -> Solver:
        return ColocRL(hidden=16, updates=3)


# C1 to C3: groups


@pytest.mark.parametrize("steps", [5, 40])
@pytest.mark.parametrize("layers", [2, 4, 8])
def test_groups_have_the_closed_forms(layers: int, steps: int) -> None:  # C1
    graph = synthetic("lstm-grid", layers=layers, steps=steps, hidden=16, training=True)
    assert len(colocate(graph)) == steps * (layers + 1) + 1
    graph = synthetic("nmt", layers=layers, source_steps=steps, target_steps=steps, hidden=64)
    assert len(colocate(graph)) == steps * (2 * layers + 3) + 3


def test_the_language_model_of_the_zoo_has_121_groups() -> None:  # C1
    assert len(colocate(rnnlm().graph)) == 40 * 3 + 1


def test_single_consumers_join_once() -> None:  # C2
    build = GraphBuilder("chain")
    a = build.operator("a")
    b = build.operator("b", reads=[build.tensor(a, size_bytes=4)])
    build.operator("c", reads=[build.tensor(b, size_bytes=4)])
    assert len(colocate_single_consumers(build.build())) == 1
    from stead.testing import diamond

    assert colocate_single_consumers(diamond().graph).group.tolist() == [0, 1, 1, 1]


def test_repeated_on_groups_single_consumers_swallow_a_forward_graph() -> None:  # C2, why it is done once
    grouping = colocate_single_consumers(load("zoo:rnnlm-2", pair()).graph)
    count = grouping.count
    label = np.arange(count)
    edges = np.unique(grouping.group[grouping.graph.edges], axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    for _ in range(count):
        pairs = np.unique(label[edges], axis=0)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        readers = np.bincount(pairs[:, 0], minlength=count) if len(pairs) else np.zeros(count)
        only = pairs[readers[pairs[:, 0]] == 1] if len(pairs) else pairs
        if not len(only):
            break
        label[label == only[0, 0]] = only[0, 1]
    assert len(np.unique(label)) == 1
    assert count > 1


def test_no_group_is_above_its_share_and_every_group_has_a_device() -> None:  # C3
    problem = grid()
    grouping = limited(problem, colocate(problem.graph), most_share=0.1)
    seconds = problem.costs.seconds[:, 0]
    shares = np.bincount(grouping.group, weights=seconds) / seconds.sum()
    ties = np.bincount(colocate_ties(problem), weights=seconds) / seconds.sum()
    assert (shares <= max(0.1, float(ties.max())) + 1e-12).all()


def colocate_ties(problem: Problem) -> np.ndarray:  # type: ignore[type-arg]
    from stead.coarsen import colocate_constraints

    return colocate_constraints(problem.graph).group


def test_backward_operators_are_where_their_forward_operators_are() -> None:  # C3
    problem = grid()
    with one_thread():
        placements = policy().propose(problem, 16, 0).placements
    twins = np.flatnonzero(problem.graph.twins >= 0)
    assert (placements[:, twins] == placements[:, problem.graph.twins[twins]]).all()


def test_constraints_of_the_user_are_kept_and_forbidden_devices_never_drawn() -> None:  # C3, C6
    problem = grid()
    names = problem.graph.operator_names
    free = placed_groups(problem)
    a, b = names[int(free.members(0)[0])], names[int(free.members(free.count - 1)[0])]
    bound = problem.with_constraints(Constraints(pin=((a, "g1"),), colocate=((a, b),)))
    grouping = placed_groups(bound)
    assert grouping.group[bound.graph.index(a)] == grouping.group[bound.graph.index(b)]
    placements = policy().propose(bound, 32, 0).placements
    assert allowed_only(bound, placements)
    assert (placements[:, bound.graph.index(b)] == 1).all()


def test_heavy_blocks_fall_apart_level_by_level() -> None:
    problem = load("zoo:inception-v3?phase=train", pair()).problem(Latency())
    blocks = colocate(problem.graph)
    groups = placed_groups(problem)
    assert len(blocks) == 17  # one per block, in which branches could not run side by side
    assert 60 < len(groups) < 130
    convolutions = {name.rpartition("/")[0] for name in problem.graph.modules if name.endswith("/conv#0")}
    assert len(convolutions) == 94


def test_too_many_groups_are_joined() -> None:
    assert placed_groups(grid(steps=40), most=30).count <= 30


# Learning


def policy(options: ColocRL = SMALL, devices: int = 2, seed: int = 0) -> NetworkPolicy:
    return NetworkPolicy(options, options.network(devices, seed), devices)


def learner(problem: Problem, options: ColocRL = SMALL, seed: int = 0) -> OneShot:
    return options.learner([problem], seed, [Start.of(problem)])


def test_it_finds_the_two_towers() -> None:
    solution = ColocRL(hidden=16, updates=40).solve(two_towers(), Budget(), 0)
    assert solution.objective_seconds == 7.5


def test_learning_lowers_the_mean_of_the_samples() -> None:
    with one_thread():
        own = learner(grid(), varied(SMALL, samples=16, learning_rate=3e-3))
        means = [own.update().mean for _ in range(50)]
    assert np.mean(means[-8:]) < 0.93 * np.mean(means[:8])


def test_one_device_is_found_where_links_are_slow() -> None:  # C10, small
    problem = grid(pair(bytes_per_second=0.1e9, latency_seconds=1e-3))
    options = varied(SMALL, samples=16, learning_rate=3e-3)
    with one_thread():
        own = learner(problem, options)
        for _ in range(60):
            own.update()
        greedy = own.greedy(own.tasks[0])
    assert len(set(greedy.tolist())) == 1
    single = solver("single").solve(problem, Budget(), 0).objective_seconds
    assert varied(SMALL, updates=5).solve(problem, Budget(), 0).objective_seconds <= single


def test_it_does_not_stay_on_one_device_where_two_are_better() -> None:
    problem = grid(steps=8)
    with one_thread():
        own = learner(problem, varied(SMALL, learning_rate=3e-3))
        for _ in range(120):
            own.update()
        load_network(own.module, own.policy_arrays())
        greedy = own.greedy(own.tasks[0])
    single = solver("single").solve(problem, Budget(), 0).objective_seconds
    assert len(set(greedy.tolist())) == 2
    assert simulate_many(problem, own.tasks[0].grouping.lift(greedy[None, :])).seconds[0] < 0.85 * single


def test_learning_rate_zero_changes_no_parameter() -> None:
    own = learner(grid(), varied(SMALL, learning_rate=0.0))
    before = network_arrays(own.module)
    metrics = own.update()
    assert not metrics.stepped
    assert all(np.array_equal(before[name], value) for name, value in network_arrays(own.module).items())


def test_infeasible_samples_after_exploration_change_no_parameter_bit() -> None:  # C6
    problem = grid(pair(memory_bytes=2**28))
    own = learner(problem)
    own.version = own.training.explore
    before = network_arrays(own.module)
    metrics = own.update()
    assert metrics.infeasible == 1.0
    assert not metrics.stepped
    assert all(np.array_equal(before[name], value) for name, value in network_arrays(own.module).items())
    assert own.tasks[0].scorer.best is None


def test_infeasible_samples_teach_while_exploring() -> None:
    own = learner(grid(pair(memory_bytes=2**28)))
    assert own.update().stepped


def test_with_too_little_memory_on_each_device_decoding_fills_both() -> None:
    ample = grid()
    peak = simulate_many(ample, np.zeros((1, len(ample.graph)), dtype=np.uint8), memory="peak").peak_bytes[
        0, 0
    ]
    problem = grid(pair(memory_bytes=int(0.8 * peak)))
    grouping = placed_groups(problem)
    assert memory_room(problem, grouping.group) is not None
    with one_thread():
        own = learner(problem, varied(SMALL, samples=32))
        first = own.update()
    assert first.infeasible < 1.0
    assert own.tasks[0].scorer.best is not None


def test_the_faithful_baseline_begins_at_the_failing_signal() -> None:
    own = learner(grid(), varied(SMALL, variant="faithful"))
    assert own.tasks[0].average == pytest.approx(-10.0)  # -sqrt(100 s)
    assert own.tasks[0].reward.reference_seconds == 1.0
    own.update()
    assert own.tasks[0].average is not None
    assert own.tasks[0].average > -10.0


@pytest.mark.parametrize("algorithm", ["reinforce", "ppo"])
def test_several_graphs_are_learned_from_at_once(algorithm: str) -> None:
    options = varied(SMALL, algorithm=algorithm)
    with one_thread():
        problems = [grid(), grid(steps=3)]
        own = options.learner(problems, 0, [Start.of(one) for one in problems])
        seen = [own.update() for _ in range(6)]
    assert all(metrics.stepped for metrics in seen)
    assert all(task.scorer.evaluations > 0 for task in own.tasks)


def test_imitation_copies_the_expert() -> None:
    problem = grid()
    with one_thread():
        own = learner(problem, varied(SMALL, imitation=60, learning_rate=1e-2))
        for _ in range(60):
            own.update()
        greedy = own.greedy(own.tasks[0])
    target = own.tasks[0].target
    assert target is not None
    assert (greedy == target).mean() > 0.9


# C13: determinism, checkpoints


def trail(options: ColocRL, problem: Problem) -> list[tuple[int, float]]:
    solution = options.solve(problem, Budget(evaluations=120), 3)
    return [(step.evaluations, step.objective_seconds) for step in solution.trail]


def test_one_and_four_workers_give_the_same_trail() -> None:  # C13
    problem = grid()
    assert trail(varied(SMALL, threads=1), problem) == trail(varied(SMALL, threads=4), problem)


@pytest.mark.parametrize("variant", ["corrected", "faithful"])
def test_a_checkpoint_resumes_to_the_same_bits(variant: str) -> None:  # C13
    options, problem = varied(SMALL, variant=variant), grid()
    with one_thread():
        whole = learner(problem, options)
        told = [comparable(whole) for _ in range(8)]
        begun = learner(problem, options)
        for _ in range(4):
            begun.update()
        arrays, numbers = begun.state()
        resumed = learner(problem, options)
        resumed.restore(arrays, numbers)
        assert [comparable(resumed) for _ in range(4)] == told[4:]
    first, second = whole.state(), resumed.state()
    assert first[1] == second[1]
    assert all(np.array_equal(first[0][name], second[0][name]) for name in first[0])


def comparable(own: OneShot) -> dict[str, object]:
    return {name: value for name, value in own.update().as_dict().items() if not name.endswith("_seconds")}


def trained_policy(path: str | Path, updates: int = 24) -> None:
    run = Run(Path(path), updates, resume=True, every=3)
    train_policy(ColocRL(hidden=32), [grid()], ["grid"], run, seed=5)


def test_a_killed_run_resumes_to_the_same_policy(tmp_path: Path) -> None:  # C13
    places = [str(Path(__file__).parent), *(path for path in sys.path if path)]
    whole, killed = tmp_path / "whole.safetensors", tmp_path / "killed.safetensors"
    trained_policy(whole)
    victim = subprocess.Popen(
        [sys.executable, "-c", "import sys, test_colocrl; test_colocrl.trained_policy(sys.argv[1])", str(killed)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )
    kept = tmp_path / "killed.checkpoint.safetensors"
    while not kept.exists() and victim.poll() is None:
        time.sleep(0.005)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    assert not killed.exists(), "the run was too short to be killed"
    trained_policy(killed)
    assert whole.read_bytes() == killed.read_bytes()
    rows = [read_log(path.with_suffix(".jsonl")) for path in (whole, killed)]
    assert [row["update"] for row in rows[1]] == list(range(1, 25))
    assert [row["best"] for row in rows[0]] == [row["best"] for row in rows[1]]
    assert [row["update"] for row in rows[1] if "lines" in row] == [1]  # what a curve is drawn beside, once


# Policies and their files


def test_a_policy_survives_its_file(tmp_path: Path) -> None:
    own = policy(seed=3)
    own.save(tmp_path / "p.safetensors")
    read = NetworkPolicy.load(tmp_path / "p.safetensors", ColocRL)
    first, second = (one.propose(grid(), 8, 1) for one in (own, read))
    assert np.array_equal(first.placements, second.placements)
    assert np.array_equal(first.log_probabilities, second.log_probabilities)


def test_other_readers_of_safetensors_read_the_file(tmp_path: Path) -> None:
    loader = pytest.importorskip("safetensors.torch")
    own = policy()
    own.save(tmp_path / "p.safetensors")
    found = loader.load_file(tmp_path / "p.safetensors")
    assert all(
        np.array_equal(found[name].numpy(), value) for name, value in network_arrays(own.network).items()
    )


@pytest.mark.parametrize("cut", [0, 4, 100, -1, -1000])
def test_a_damaged_file_is_bad_input(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "p.safetensors"
    policy().save(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(BadInput, match="damaged"):
        NetworkPolicy.load(path, ColocRL)


def test_a_foreign_file_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    tensor_file.save(path, {"network.x": np.zeros(3, dtype=np.float32)}, {"policy": "placeto"})
    with pytest.raises(BadInput, match="placeto"):
        NetworkPolicy.load(path, ColocRL)
    with pytest.raises(BadInput, match="no such file"):
        NetworkPolicy.load(tmp_path / "missing", ColocRL)


def test_a_policy_for_two_devices_refuses_three() -> None:
    reason = PolicySolver(policy()).unsupported(grid(pair(devices=3)))
    assert reason == "the policy was trained for 2 devices, the problem has 3"


def test_the_solver_around_a_policy_is_never_worse_than_a_baseline_and_says_who_won() -> None:
    problem = grid()
    solution = PolicySolver(policy(), samples=8).solve(problem, Budget(), 0)
    baselines = [solver(name).solve(problem, Budget(), 0).objective_seconds for name in ("single", "expert")]
    assert solution.objective_seconds <= min(baselines)
    assert solution.found_by in {"single", "expert", "balanced", "colocrl prior", "colocrl greedy", "colocrl sample"}
    assert any(note.startswith("colocrl greedy: ") for note in solution.notes)


def test_polish_is_off_unless_asked_for() -> None:
    problem = grid()
    plain = PolicySolver(policy(), samples=4).solve(problem, Budget(), 0)
    polished = PolicySolver(policy(), samples=4, polish=True).solve(problem, Budget(), 0)
    assert not any(note.startswith("polish") for note in plain.notes)
    assert any(note.startswith("polish") for note in polished.notes)
    assert polished.objective_seconds <= plain.objective_seconds
    assert simulate(problem, polished.placement).objective_seconds == polished.objective_seconds


def test_a_run_writes_policy_log_and_curve(tmp_path: Path) -> None:
    run = Run(tmp_path / "p.safetensors", 6, every=2)
    train_policy(SMALL, [grid(), grid(steps=3)], ["five", "three"], run, seed=1)
    assert NetworkPolicy.load(run.output, ColocRL).unsupported(grid()) is None
    assert len(read_log(run.beside(".jsonl"))) == 6
    assert "<polyline" in run.beside(".svg").read_text()
    assert tensor_file.load(run.output)[1]["trained"]["graphs"][0]["name"] == "five"


def test_resuming_with_another_seed_is_an_error(tmp_path: Path) -> None:
    output = tmp_path / "p.safetensors"
    train_policy(SMALL, [grid()], ["g"], Run(output, 2), seed=1)
    with pytest.raises(BadInput, match="other seed"):
        train_policy(SMALL, [grid()], ["g"], Run(output, 4, resume=True), seed=2)


def test_wrong_options_are_bad_input() -> None:
    for wrong in ({"variant": "best"}, {"samples": 0}, {"hidden": 33}, {"algorithm": "sarsa"}):
        with pytest.raises(BadInput):
            ColocRL(**wrong)  # type: ignore[arg-type]
    assert PRESETS["faithful"].training.elite_weight == 0.0
