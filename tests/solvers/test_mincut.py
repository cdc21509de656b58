"""mincut: sequential runs, exact for two devices, with a program beyond."""

from __future__ import annotations

import time

import numpy as np
import pytest

from stead.cluster import Cluster, Device, Link, link_all
from stead.contracts import SolverContract
from stead.costs import Costs
from stead.errors import Infeasible
from stead.graph import GraphBuilder
from stead.problem import Constraints, Latency, Problem
from stead.solvers import Budget, Solver
from stead.solvers.exact.exchange import exchange
from stead.solvers.exact.mincut import MinCut
from stead.solvers.exact.sequential import SequentialCosts
from stead.solvers.exhaustive import Exhaustive
from stead.testing import chain3, diamond, two_towers

SEQUENTIAL = Latency("sequential")

# Microseconds of ResNet-50 on one core, f32 / bf16, by block: conv1, conv2, conv3, shortcut.
STEM, POOL, MEAN, LAST = (2370, 1580), (199, 125), (32, 34), (659, 384)
BLOCKS = [
    [(256, 135), (2024, 1025), (990, 531), (954, 477)],
    [(927, 479), (2006, 1014), (1011, 527)],
    [(922, 469), (2005, 1014), (1006, 521)],
    [(1838, 927), (2066, 1048), (988, 505), (1903, 948)],
    [(924, 470), (1999, 1050), (976, 495)],
    [(920, 464), (1977, 1002), (986, 495)],
    [(924, 467), (1983, 999), (982, 497)],
    [(1850, 936), (2114, 1065), (985, 506), (1973, 986)],
    [(965, 478), (1964, 1011), (989, 499)],
    [(951, 482), (1961, 1013), (971, 514)],
    [(939, 484), (1969, 975), (979, 505)],
    [(943, 461), (1970, 991), (973, 501)],
    [(947, 475), (1942, 979), (974, 495)],
    [(1891, 940), (2341, 1113), (1047, 540), (2116, 1064)],
    [(1057, 524), (1961, 1032), (1039, 555)],
    [(1039, 551), (1983, 984), (1044, 547)],
]
FIRST_OF_THIRD = 8  # from this block on the third device is the quicker one


class _Resnet:
    """The graph, and per operator (f32 us, bf16 us, block)."""

    def __init__(self) -> None:
        self.build = GraphBuilder("resnet50")
        self.us: list[tuple[int, int, int]] = []
        x = self.operator("parameter", [], (3, 224))
        x = self.operator("relu", [self.convolution(x, (64, 112), STEM, 0)], (64, 112))
        x = self.operator("maxpool", [x], (64, 56), POOL, 0)
        for number, block in enumerate(BLOCKS):
            x = self.block(x, number, block)
        x = self.operator("mean", [x], (2048, 1), MEAN, 16)
        x = self.operator("reshape", [x], (2048, 1), block=16)
        x = self.operator("matmul", [x], (1000, 1), block=16)
        x = self.operator("add", [x], (1000, 1), LAST, 16)
        self.operator("result", [x], (1000, 1), block=16)
        self.graph = self.build.build()

    def operator(self, kind, reads, shape, us=(0, 0), block=0):
        operator = self.build.operator(f"{kind}{len(self.us)}", reads=reads)
        self.us.append((*us, block))
        channels, side = shape
        return self.build.tensor(operator, size_bytes=4 * channels * side * side)

    def convolution(self, x, shape, us, block):
        return self.operator("add", [self.operator("conv", [x], shape, us, block)], shape, block=block)

    def block(self, x, number, times):
        stage = sum(number >= first for first in (3, 7, 13))
        inner, side = 64 * 2**stage, 56 // 2**stage
        before = side * 2 if number in (3, 7, 13) else side
        y = self.convolution(x, (inner, before), times[0], number)
        y = self.operator("relu", [y], (inner, before), block=number)
        y = self.convolution(y, (inner, side), times[1], number)
        y = self.operator("relu", [y], (inner, side), block=number)
        y = self.convolution(y, (4 * inner, side), times[2], number)
        if len(times) == 4:
            x = self.convolution(x, (4 * inner, side), times[3], number)
        y = self.operator("add", [y, x], (4 * inner, side), block=number)
        return self.operator("relu", [y], (4 * inner, side), block=number)


def resnet50(columns: str) -> Problem:
    """The instance with some of the devices f32, bf16, mixed, third."""
    made = _Resnet()
    f32, bf16, block = np.array(made.us, dtype=float).T
    table = {
        "f32": f32,
        "bf16": bf16,
        "mixed": np.where(f32 > 1000, bf16, np.where(f32 > 0, 2 * f32 + 100, 0)),
        "third": np.where(block >= FIRST_OF_THIRD, 0.6, 1.6) * f32,
    }
    names = columns.split()
    links = link_all(names, bytes_per_second=5e9, latency_seconds=60e-6)
    cluster = Cluster(tuple(Device(name) for name in names), links)
    seconds = np.stack([table[name] for name in names], axis=1) * 1e-6
    return Problem(made.graph, cluster, Costs(made.graph, cluster, seconds), objective=SEQUENTIAL)


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
    assert solution.gap == 0


def test_a_tensor_is_paid_once_however_many_readers_it_has():
    # All on f32 takes 74.5710 ms on mixed; charging every edge would end at 56.0849 ms.
    solution = MinCut().solve(resnet50("f32 mixed"), Budget())
    assert solution.objective_seconds * 1e3 < 55.95


@pytest.mark.parametrize("equal_links", [True, False])
def test_two_devices_are_solved_as_well_as_by_trying_everything(equal_links):
    for seed in range(150):
        problem = random_problem(seed, devices=2, operators=7, equal_links=equal_links)
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
