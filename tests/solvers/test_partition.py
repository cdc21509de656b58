"""Graph partitioners: balanced parts, few crossings, nothing where it must not be."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import problems

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import BadInput, Infeasible, MissingExtra
from stead.graph import GraphBuilder, TensorId
from stead.problem import Constraints, Problem, Throughput
from stead.sim import simulate
from stead.solvers import Budget, Solver, solver
from stead.solvers.build.partition import Metis, MtKahypar, _matched, _UnitGraph
from stead.testing import chain3, tiny_problem, two_towers
from stead.testing.contracts import SolverContract

pytest.importorskip("pymetis")
pytest.importorskip("mtkahypar")
BOTH = [Metis(), MtKahypar()]


def ring_of_cliques(
    *, speeds: tuple[float, ...] = (1.0, 1.0), memory: tuple[int, ...] | None = None, weight_bytes: int = 10,
    constraints: Constraints | None = None,
) -> Problem:  # fmt: skip
    """Four groups of six operators, each reading all earlier ones of its group; thin links between groups."""
    build = GraphBuilder("cliques")
    link: list[TensorId] = []
    for group in range(4):
        inside: list[TensorId] = []
        for member in range(6):
            reads = [*inside, *(link if member == 0 else [])]
            operator = build.operator(f"g{group}m{member}", reads=reads)
            build.weight(f"w{group}m{member}", size_bytes=weight_bytes, users=[operator])
            inside.append(build.tensor(operator, size_bytes=100))
        link = [build.tensor(operator, size_bytes=1)]
    graph = build.build()
    sizes = memory or (2**40,) * len(speeds)
    names = [f"d{d}" for d in range(len(speeds))]
    cluster = Cluster(
        tuple(Device(name, memory_bytes=size) for name, size in zip(names, sizes, strict=True)),
        link_all(names, bytes_per_second=1000.0),
    )
    seconds = np.tile(1.0 / np.array(speeds), (len(graph), 1))
    return Problem(graph, cluster, Costs(graph, cluster, seconds), constraints=constraints)


def by_group(solver: Solver, problem: Problem, *, seed: int = 0) -> list[set[int]]:
    """The devices that each group of six is on."""
    devices = solver.solve(problem, Budget(), seed).placement.devices.tolist()
    return [set(devices[i : i + 6]) for i in range(0, len(devices), 6)]


@pytest.mark.parametrize("partitioner", BOTH)
def test_groups_stay_whole_and_every_device_gets_half(partitioner: Solver) -> None:
    groups = by_group(partitioner, ring_of_cliques())
    assert all(len(group) == 1 for group in groups)
    assert sorted(group.pop() for group in groups) == [0, 0, 1, 1]


@pytest.mark.parametrize("partitioner", BOTH)
def test_a_device_three_times_as_fast_gets_three_groups_of_four(partitioner: Solver) -> None:
    groups = by_group(partitioner, ring_of_cliques(speeds=(1.0, 3.0)))
    assert sorted(group.pop() for group in groups) == [0, 1, 1, 1]


@pytest.mark.parametrize("partitioner", [Metis(weigh="bytes"), MtKahypar(weigh="bytes")])
def test_bytes_can_weigh_the_edges(partitioner: Solver) -> None:
    assert sorted(group.pop() for group in by_group(partitioner, ring_of_cliques())) == [0, 0, 1, 1]


@pytest.mark.parametrize("partitioner", BOTH)
@given(problem=problems(training=True))
@settings(max_examples=30)
def test_any_answer_is_allowed_and_what_the_simulator_says(partitioner: Solver, problem: Problem) -> None:
    try:
        found = partitioner.solve(problem, Budget())
    except Infeasible:
        return
    devices = found.placement.devices
    assert problem.allowed[np.arange(len(devices)), devices].all()
    assert found.objective_seconds == simulate(problem, found.placement).objective_seconds


def test_a_solution_is_labelled_by_its_partitioner() -> None:
    assert [one.solve(chain3(), Budget()).solver for one in BOTH] == ["metis", "mtkahypar"]


@pytest.mark.parametrize("partitioner", BOTH)
def test_nothing_is_printed_even_where_parts_stay_empty(
    partitioner: Solver, capfd: pytest.CaptureFixture[str]
) -> None:
    heavy = {f"o{v}": 1000.0 if v == 0 else 0.001 for v in range(6)}
    problem = tiny_problem(heavy, {f"o{v}": [f"o{v - 1}"] for v in range(1, 6)}, devices=8)
    found = partitioner.solve(problem, Budget())
    assert len(found.placement.devices) == 6
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("partitioner", BOTH)
def test_the_same_seed_gives_the_same_partition(partitioner: Solver) -> None:
    problem = ring_of_cliques(speeds=(1.0, 1.3, 2.0))
    first, second = (partitioner.solve(problem, Budget(), 5).placement for _ in range(2))
    assert first == second


@pytest.mark.parametrize("partitioner", BOTH)
def test_nothing_is_where_it_must_not_be(partitioner: Solver) -> None:
    constraints = Constraints(
        pin=(("g0m3", "d1"), ("g3m0", "d0")), forbid=(("g1*", "d0"),), colocate=(("g2m0", "g0m3"),)
    )
    problem = ring_of_cliques(constraints=constraints)
    found = partitioner.solve(problem, Budget())
    devices = found.placement.devices
    assert problem.allowed[np.arange(len(devices)), devices].all()
    assert not found.placement.violations()


@pytest.mark.parametrize("partitioner", BOTH)
def test_operators_that_only_the_cpu_can_run_are_moved_there(partitioner: Solver) -> None:
    build = GraphBuilder()
    last: list[TensorId] = []
    for v in range(6):
        last = [build.tensor(build.operator(f"o{v}", reads=last), size_bytes=4)]
    graph = build.build()
    names = ["cpu", "g0", "g1"]
    cluster = Cluster(
        (Device("cpu", kind="cpu"), Device("g0"), Device("g1")), link_all(names, bytes_per_second=1e9)
    )
    seconds = np.ones((6, 3))
    seconds[2, 1:] = np.inf
    found = partitioner.solve(Problem(graph, cluster, Costs(graph, cluster, seconds)), Budget())
    assert found.placement.devices[2] == 0
    assert (found.placement.devices[[0, 1, 3, 4, 5]] > 0).all()
    assert found.notes == ("1 operator moved: not allowed on the device the rule gives",)


@pytest.mark.parametrize("partitioner", BOTH)
def test_what_does_not_fit_is_moved_and_noted(partitioner: Solver) -> None:
    problem = ring_of_cliques(memory=(9_000, 40_000), weight_bytes=1000)  # half of the weights are 12,000
    found = partitioner.solve(problem, Budget())
    assert simulate(problem, found.placement).feasible
    assert any("does not fit into memory" in note for note in found.notes)


@pytest.mark.parametrize("kind", [Metis, MtKahypar])
def test_without_repair_it_is_infeasible_with_numbers(kind: type[Metis | MtKahypar]) -> None:
    problem = ring_of_cliques(memory=(9_000, 40_000), weight_bytes=1000)
    with pytest.raises(Infeasible) as raised:
        kind(repair=False).solve(problem, Budget())
    assert raised.value.short_bytes["d0"] >= 3_000


@pytest.mark.parametrize("kind", [Metis, MtKahypar])
def test_a_missing_package_is_named(kind: type[Metis | MtKahypar], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kind.package, None)
    monkeypatch.setattr("stead.solvers.build.partition.find_spec", lambda name: None)
    partitioner = kind()
    install = f'needs {kind.package}: pip install "stead[partition]"'
    assert partitioner.unsupported(chain3()) == install
    with pytest.raises(MissingExtra) as raised:
        partitioner.solve(chain3(), Budget())
    assert install in str(raised.value)


@pytest.mark.parametrize("kind", [Metis, MtKahypar])
def test_a_package_that_cannot_be_loaded_is_told_and_passed_over(
    kind: type[Metis | MtKahypar], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(package: str) -> object:
        raise ImportError("failed to map segment from shared object")

    monkeypatch.setattr("stead.solvers.build.partition.import_module", broken)
    problem = two_towers(Throughput())
    assert "cannot be loaded (failed to map segment" in (kind().unsupported(problem) or "")
    with pytest.raises(BadInput, match="is installed, but cannot be loaded"):
        kind().solve(problem, Budget())
    assert solver("auto").solve(problem, Budget(seconds=1)).objective_seconds > 0


def test_the_first_option_is_how_transfers_are_weighed() -> None:
    assert solver("metis:bytes") == Metis(weigh="bytes")
    assert solver("mtkahypar", imbalance="0.1") == MtKahypar(imbalance=0.1)
    with pytest.raises(BadInput, match="by seconds or bytes"):
        Metis(weigh="hops")
    with pytest.raises(BadInput, match="between 0 and 1"):
        MtKahypar(imbalance=3)


def test_one_device_needs_no_partition() -> None:
    assert Metis(devices="d1").solve(two_towers(), Budget()).placement.devices.tolist() == [1] * 5


def test_an_edge_weighs_all_tensors_between_two_units() -> None:
    build = GraphBuilder()
    a = build.operator("a")
    x, y = build.tensor(a, size_bytes=30), build.tensor(a, size_bytes=10)
    build.operator("b", reads=[x, y])
    build.operator("c", reads=[x])
    graph = build.build()
    cluster = Cluster((Device("d0"), Device("d1")), link_all(["d0", "d1"], bytes_per_second=1.0))
    units = _UnitGraph(Problem(graph, cluster, Costs(graph, cluster, np.ones((3, 2)))), [0, 1], "seconds")
    lower, higher, weight = units.edges
    assert list(zip(lower.tolist(), higher.tolist(), strict=True)) == [(0, 1), (0, 2)]
    assert weight[0] / weight[1] == pytest.approx(40 / 30)
    pins, weight = units.hyperedges
    assert pins == [[0, 1, 2], [0, 1]]
    assert weight[0] / weight[1] == pytest.approx(30 / 10)
    first, neighbours, _ = units.adjacency(np.arange(3))
    assert first.tolist() == [0, 2, 3, 4]
    assert neighbours.tolist() == [1, 2, 0, 0]
    first, neighbours, _ = units.adjacency(np.array([0, 2]))
    assert first.tolist() == [0, 1, 2]
    assert neighbours.tolist() == [1, 0]


def test_among_equal_devices_the_part_with_most_bytes_gets_the_most_memory() -> None:
    parts, held = np.array([0, 0, 1, 2]), np.array([5, 5, 30, 7])
    usable = np.array([100, 50, 70])
    # parts hold 10, 30 and 7 bytes; devices 0 and 2 are equally fast
    assert _matched(np.array([0.25, 0.5, 0.25]), usable, parts, held).tolist() == [0, 1, 2]
    assert _matched(np.array([0.25, 0.5, 0.25]), usable[::-1], parts, held).tolist() == [2, 1, 0]


class TestMetis(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Metis()


class TestMtKahypar(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return MtKahypar()


def parallel_chains(length: int) -> Problem:
    """Two chains that work at the same time: halves of equal work, of which one cut is idle half of the time."""
    build = GraphBuilder("chains")
    for chain in range(2):
        reads: list[TensorId] = []
        for place in range(length):
            reads = [build.tensor(build.operator(f"c{chain}v{place}", reads=reads), size_bytes=1)]
    graph = build.build()
    names = ["d0", "d1"]
    cluster = Cluster(tuple(Device(name) for name in names), link_all(names, bytes_per_second=1000.0))
    return Problem(graph, cluster, Costs(graph, cluster, np.ones((len(graph), 2))))


def test_every_slice_of_time_is_balanced() -> None:
    problem = parallel_chains(8)
    devices = Metis(slices=4).solve(problem, Budget()).placement.devices.reshape(2, 8)
    for begin in range(0, 8, 2):
        assert np.bincount(devices[:, begin : begin + 2].ravel(), minlength=2).tolist() == [2, 2]


def test_slices_keep_chains_that_run_in_parallel_apart() -> None:
    problem = parallel_chains(8)
    assert Metis(slices=4).solve(problem, Budget()).objective_seconds == 8.0


@given(problem=problems(training=True))
@settings(max_examples=30)
def test_slices_keep_constraints_and_memory(problem: Problem) -> None:
    try:
        found = Metis(slices=3).solve(problem, Budget())
    except Infeasible:
        return
    assert simulate(problem, found.placement).feasible
    assert not found.placement.violations()


@pytest.mark.parametrize("slices", [0, 65])
def test_the_number_of_slices_is_checked(slices: int) -> None:
    with pytest.raises(BadInput, match="slices"):
        Metis(slices=slices)


class TestMetisSlices(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Metis(slices=4)


def test_a_partition_that_there_is_no_time_for_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stead.solvers.build.partition.KAHYPAR_SECONDS", 1.0)  # 24 operators: more than a minute
    monkeypatch.setattr("stead.solvers.build.partition._thread_pool", None)
    with pytest.raises(Infeasible, match="mtkahypar found no placement within the time limit"):
        MtKahypar().solve(ring_of_cliques(), Budget(20.0))
