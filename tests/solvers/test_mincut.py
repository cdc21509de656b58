"""mincut: sequential runs, exact for two devices, with a program beyond."""

from __future__ import annotations

import time

import numpy as np
import pytest

from stead.cluster import Cluster, Device, Link, link_all
from stead.costs import Costs
from stead.errors import Infeasible
from stead.graph import GraphBuilder
from stead.problem import Constraints, Latency, Placement, Problem
from stead.sim import simulate
from stead.solvers import Budget, Solver
from stead.solvers.exact.exchange import exchange
from stead.solvers.exact.exhaustive import Exhaustive
from stead.solvers.exact.mincut import MinCut
from stead.solvers.exact.sequential import SequentialCosts
from stead.testing import chain3, diamond, two_towers
from stead.testing.contracts import SolverContract
from stead.workloads.resnet50_measured import resnet50_measured

SEQUENTIAL = Latency("sequential")


def resnet50(columns: str) -> Problem:
    """The instance with some of the devices f32, bf16, mixed, third."""
    return Problem(*resnet50_measured(columns), objective=SEQUENTIAL)


def random_problem(seed, *, devices, operators, equal_links, memory=None):
    """Fan-out, several outputs, colocation, unsupported operators, missing links."""
    rng = np.random.default_rng(seed)
    build, tensors = GraphBuilder("random"), []
    for v in range(operators):
        chosen = rng.choice(len(tensors), size=min(len(tensors), int(rng.integers(0, 4))), replace=False)
        group = "x" if rng.random() < 0.15 else ""
        operator = build.operator(f"v{v}", reads=[tensors[i] for i in chosen], colocate=group)
        tensors += [
            build.tensor(operator, size_bytes=int(rng.integers(0, 2000))) for _ in range(rng.integers(1, 3))
        ]
        if memory is not None:
            build.weight(f"w{v}", size_bytes=10_000, users=[operator])
    graph = build.build()
    names = [f"d{d}" for d in range(devices)]
    links = link_all(names, bytes_per_second=1e9, latency_seconds=1e-7)
    if not equal_links:
        links = tuple(
            Link(a, b, float(rng.choice([3e8, 1e9, 2e9])), float(rng.choice([0, 1e-7, 5e-7])))
            for a in names
            for b in names
            if a != b and rng.random() < 0.9
        )
    room = {} if memory is None else {"memory_bytes": memory}
    cluster = Cluster(tuple(Device(name, **room) for name in names), links)
    seconds = rng.integers(0, 3000, size=(operators, devices)) * 1e-9
    seconds[:, 1:][rng.random((operators, devices - 1)) < 0.1] = np.inf
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=SEQUENTIAL)


def least(problem):
    """The optimum by trying everything; None if nothing works."""
    try:
        return Exhaustive().solve(problem, Budget()).objective_seconds
    except Infeasible:
        return None


class TestMinCut(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return MinCut()

    def problems(self) -> list[Problem]:
        return [make(SEQUENTIAL) for make in (chain3, diamond, two_towers)] + [chain3()]


@pytest.mark.parametrize(
    ("columns", "milliseconds"),
    [("f32 bf16", 38.8880), ("f32 mixed", 55.9495), ("f32 third", 61.6662), ("mixed third", 58.2960)],
)
def test_resnet50_on_two_devices_is_the_known_optimum(columns, milliseconds):
    problem = resnet50(columns)
    assert (len(problem.graph), len(problem.graph.edges)) == (178, 193)
    solution = MinCut().solve(problem, Budget())
    assert solution.objective_seconds * 1e3 == pytest.approx(milliseconds, abs=5e-5)
    assert solution.gap == 0
    assert solution.bound_name in ("minimum cut", "total work")


def test_resnet50_on_three_devices_is_the_known_optimum():
    solution = MinCut().solve(resnet50("f32 mixed third"), Budget())
    assert solution.objective_seconds * 1e3 == pytest.approx(51.9483, abs=5e-5)
    assert 0 < solution.gap < 2e-6  # floating point proves no more, and whole numbers take too long here


def charged_by_edge(problem):
    """The same problem with a tensor of its own for every reader, so that readers on one device pay one by one."""
    graph = problem.graph
    build, copies = GraphBuilder(graph.name), {}
    for v, name in enumerate(graph.operator_names):
        reads = graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist()
        operator = build.operator(name, reads=[copies[t, v] for t in reads])
        for t in range(graph.tensor_first[v], graph.tensor_first[v + 1]):
            readers = graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]].tolist()
            for reader in readers:
                copies[t, reader] = build.tensor(operator, size_bytes=int(graph.tensor_bytes[t]))
    other, cluster = build.build(), problem.cluster
    return Problem(other, cluster, Costs(other, cluster, problem.costs.seconds), objective=SEQUENTIAL)


def test_a_tensor_is_paid_once_however_many_readers_it_has():
    problem = resnet50("f32 mixed")
    by_edge = MinCut().solve(charged_by_edge(problem), Budget()).placement.devices
    found = simulate(problem, Placement(problem, by_edge)).objective_seconds
    assert found * 1e3 == pytest.approx(56.0849, abs=5e-5)
    assert MinCut().solve(problem, Budget()).objective_seconds < found


@pytest.mark.parametrize("equal_links", [True, False])
def test_two_devices_are_solved_as_well_as_by_trying_everything(equal_links):
    for seed in range(300):
        problem = random_problem(seed, devices=2, operators=4 + seed % 8, equal_links=equal_links)
        optimum = least(problem)
        if optimum is None:
            with pytest.raises(Infeasible):
                MinCut().solve(problem, Budget())
            continue
        solution = MinCut().solve(problem, Budget())
        assert solution.objective_seconds == optimum, seed
        assert solution.gap == 0, seed


@pytest.mark.parametrize("equal_links", [True, False])
@pytest.mark.parametrize("engine", ["highs", "cp-sat"])
def test_three_devices_are_solved_as_well_as_by_trying_everything(equal_links, engine):
    for seed in range(25):
        problem = random_problem(seed, devices=3, operators=6, equal_links=equal_links)
        optimum = least(problem)
        if optimum is not None:
            solution = MinCut(engine=engine).solve(problem, Budget())
            assert solution.objective_seconds == optimum, seed
            assert solution.gap == 0, seed


@pytest.mark.parametrize("devices", [2, 3])
def test_scarce_memory_is_solved_as_well_as_by_trying_everything(devices):
    for seed in range(20):
        problem = random_problem(seed, devices=devices, operators=6, equal_links=True, memory=48_000)
        optimum = least(problem)
        if optimum is None:
            continue
        solution = MinCut().solve(problem, Budget())
        assert solution.bound_seconds <= optimum, seed
        if solution.gap == 0:
            assert solution.objective_seconds == optimum, seed


def test_exchanges_between_two_of_three_devices_never_beat_the_optimum_nor_leave_it():
    for seed in range(30):
        problem = random_problem(seed, devices=3, operators=6, equal_links=False)
        optimum = least(problem)
        if optimum is None:
            continue
        costs = SequentialCosts.of(problem)
        best = Exhaustive().solve(problem, Budget()).placement.devices[problem.unit_firsts].astype(np.int64)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            found = exchange(costs, best, a, b)
            assert found is not None
            assert found[0] / 1e12 == optimum


def test_exchanges_alone_are_optimal_on_nearly_all_small_problems():
    optimal = total = 0
    for seed in range(120):
        problem = random_problem(seed, devices=3, operators=4 + seed % 5, equal_links=True)
        optimum = least(problem)
        if optimum is None:
            continue
        found = MinCut(max_variables=1).solve(problem, Budget()).objective_seconds
        assert found >= optimum, seed
        optimal, total = optimal + (found == optimum), total + 1
    assert total > 60
    assert optimal >= 0.95 * total


def test_pins_are_kept():
    problem = resnet50("f32 bf16").with_constraints(Constraints(pin=(("conv*", "f32"),)))
    solution = MinCut().solve(problem, Budget())
    assert solution.gap == 0
    convolutions = [v for v, name in enumerate(problem.graph.operator_names) if name.startswith("conv")]
    assert not solution.placement.devices[convolutions].any()


def test_many_devices_and_operators_end_with_an_honest_gap():
    problem = random_problem(0, devices=4, operators=400, equal_links=True)
    solution = MinCut(max_variables=100).solve(problem, Budget())
    assert 0 < solution.bound_seconds < solution.objective_seconds
    assert any("no program" in note for note in solution.notes)


def test_cuts_around_single_devices_are_bounds():
    for seed in range(20):
        problem = random_problem(seed, devices=3, operators=6, equal_links=seed % 2 == 0)
        optimum = least(problem)
        if optimum is not None:
            solution = MinCut(max_variables=1).solve(problem, Budget())
            assert solution.bound_seconds <= optimum <= solution.objective_seconds, seed


def test_twenty_thousand_operators_on_two_devices_take_seconds():
    rng = np.random.default_rng(0)
    build, tensors = GraphBuilder("large"), []
    for v in range(20_000):
        reads = {int(i) for i in rng.integers(max(0, v - 40), max(1, v), size=2)} if v else set()
        tensors.append(
            build.tensor(build.operator(f"v{v}", reads=[tensors[i] for i in sorted(reads)]), size_bytes=1000)
        )
    graph = build.build()
    cluster = Cluster((Device("a"), Device("b")), link_all(["a", "b"], bytes_per_second=1e9))
    seconds = rng.integers(1, 3000, size=(len(graph), 2)) * 1e-9
    problem = Problem(graph, cluster, Costs(graph, cluster, seconds), objective=SEQUENTIAL)
    begin = time.process_time()
    solution = MinCut().solve(problem, Budget())
    assert solution.gap == 0
    assert time.process_time() - begin < 20


def test_a_chain_runs_in_turn_whatever_the_rules() -> None:
    problem = chain3()
    assert MinCut().unsupported(problem) is None
    found = MinCut().solve(problem, Budget())
    assert found.objective_seconds == 4.0
    assert found.gap == 0
    assert MinCut().unsupported(diamond()) is not None
