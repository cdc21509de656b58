"""Each rule on problems small enough to check by hand, and the contract for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from strategies import problems

from stead.cluster import Cluster, Device, link_all
from stead.coarsen.blocks import layers_of
from stead.costs import Costs
from stead.errors import BadCluster, BadInput, Infeasible, SteadError
from stead.graph import GraphBuilder, Phase, TensorId
from stead.graph.paths import block_paths
from stead.problem import Constraints, Problem
from stead.sim import simulate
from stead.solvers import Budget, Solver, solver, solver_names
from stead.solvers.rules.simple import (
    Balanced,
    Bandwidth,
    Capacity,
    Even,
    FitMemory,
    GreedySupport,
    LargestN,
    Random,
    RoundRobin,
    Single,
    even_counts,
    largest_remainder,
    supported_islands,
)
from stead.testing import chain3, two_towers
from stead.testing.contracts import SolverContract

GIB = 2**30


def cluster_of(*devices: Device) -> Cluster:
    """Devices joined by free links."""
    return Cluster(devices, link_all([device.name for device in devices], bytes_per_second=float("inf")))


def chain(
    modules: Sequence[str],
    cluster: Cluster,
    *,
    seconds: ArrayLike | None = None,
    weights: Sequence[int] | None = None,
    constraints: Constraints | None = None,
    kinds: Mapping[int, str] | None = None,
) -> Problem:
    """Operators o0 -> o1 -> ... in the given modules; seconds per operator, or per operator and device."""
    build = GraphBuilder("chain")
    last: list[TensorId] = []
    for v, module in enumerate(modules):
        operator = build.operator(f"o{v}", module=module, reads=last, kind=(kinds or {}).get(v, ""))
        last = [build.tensor(operator, size_bytes=0)]
        if weights is not None and weights[v]:
            build.weight(f"w{v}", size_bytes=weights[v], users=[operator])
    graph = build.build()
    table = np.ones(len(modules)) if seconds is None else np.asarray(seconds, dtype=float)
    if table.ndim == 1:
        table = np.repeat(table[:, None], len(cluster), axis=1)
    return Problem(graph, cluster, Costs(graph, cluster, table), constraints=constraints)


def digits(solver: Solver, problem: Problem) -> str:
    """The devices a solver chooses, one digit per operator."""
    return "".join(map(str, solver.solve(problem, Budget()).placement.devices.tolist()))


RULES = [name for name in solver_names("rule") if name != "expert"]
TWO = cluster_of(Device("d0"), Device("d1"))
GPU_AND_CPU = cluster_of(Device("cpu", kind="cpu"), Device("gpu"))


@pytest.mark.parametrize(
    ("path", "block"),
    [
        ("model.embed_tokens", ""),
        ("model.layers.7", "model.layers.7"),
        ("model.layers.7.mlp.experts.3.up", "model.layers.7"),
        ("h.3.attn", "h.3"),
        ("encoder.block.2.layer.0", "encoder.block.2"),
        ("wrapper.0.h.1", "wrapper.0.h.1"),
    ],
)
def test_a_block_is_a_numbered_child_of_a_module_that_has_several(path: str, block: str) -> None:
    siblings = ["model.layers.0", "h.0", "encoder.block.0", "wrapper.0.h.0"]
    assert block_paths([path, *siblings])[0] == block


def test_a_model_of_one_layer_has_one_block() -> None:
    assert block_paths(["embed", "layers.0.mlp", "head"]) == ["", "layers.0", ""]


def test_embedding_and_head_go_with_the_first_and_the_last_layer() -> None:
    problem = chain(["embed", "layers.0", "layers.0.mlp", "layers.1", "norm", "head"], TWO)
    layers = layers_of(problem)
    assert layers.names == ("layers.0", "layers.1")
    assert layers.of_operator.tolist() == [0, 0, 0, 1, 1, 1]


def test_an_operator_without_inputs_goes_with_the_layer_that_reads_it_first() -> None:
    build = GraphBuilder()
    mask = build.tensor(build.operator("mask"), size_bytes=0)
    x = build.tensor(build.operator("a", module="layers.0"), size_bytes=0)
    build.operator("b", module="layers.1", reads=[x, mask])
    graph = build.build()
    problem = Problem(graph, TWO, Costs(graph, TWO, np.ones((3, 2))))
    by_name = dict(zip(graph.operator_names, layers_of(problem).of_operator.tolist(), strict=True))
    assert by_name == {"mask": 1, "a": 0, "b": 1}


def test_without_blocks_every_unit_is_a_layer() -> None:
    problem = chain(["", "", ""], TWO, constraints=Constraints(colocate=(("o0", "o1"),)))
    assert layers_of(problem).of_operator.tolist() == [0, 0, 1]


def training_pair() -> Problem:
    """f0 -> f1 -> b1 -> b0 -> u0, the backward operators without modules."""
    build = GraphBuilder()
    last: list[TensorId] = []
    rows: list[tuple[str, Phase, str]] = [
        ("f0", "forward", ""), ("f1", "forward", ""), ("b1", "backward", "f1"), ("b0", "backward", "f0"),
        ("u0", "update", ""),
    ]  # fmt: skip
    for name, phase, twin in rows:
        last = [build.tensor(build.operator(name, phase=phase, twin=twin, reads=last), size_bytes=0)]
    graph = build.build()
    return Problem(graph, TWO, Costs(graph, TWO, np.ones((5, 2))))


@pytest.mark.parametrize("rule", [Even(), Balanced(), RoundRobin(by="layer")])
def test_backward_operators_follow_their_forward_operator(rule: Solver) -> None:
    assert digits(rule, training_pair()) == "01100"  # the update follows what it reads, the gradient of f0


def test_single_takes_the_fastest_device() -> None:
    problem = chain(["", ""], TWO, seconds=[[2, 1], [2, 3]])
    assert digits(Single(), problem) == "00"
    assert Single().solve(problem, Budget()).objective_seconds == 4.0


def test_single_takes_the_device_it_is_given() -> None:
    assert digits(solver("single:d1"), chain3()) == "111"
    assert solver("single:d1").name == "single:d1"


def test_single_says_what_is_needed_and_what_there_is() -> None:
    small = cluster_of(Device("3060", memory_bytes=10 * GIB), Device("3090", memory_bytes=21 * GIB))
    problem = chain(["", ""], small, weights=[6 * GIB, 7 * GIB])
    with pytest.raises(Infeasible, match=r"does not fit: needs 13\.0 GiB, has 10\.0 GiB$") as raised:
        Single("3060").solve(problem, Budget())
    assert raised.value.short_bytes == {"3060": 3 * GIB}
    assert digits(Single(), problem) == "11"


def test_single_refuses_a_device_that_cannot_run_everything() -> None:
    problem = chain(["", ""], TWO, seconds=[[1.0, 1.0], [float("inf"), 1.0]], kinds={1: "Loop"})
    assert Single("d0").unsupported(problem) == "d0 cannot run 1 of 2 operators, first 'o1' (Loop)"
    assert digits(Single(), problem) == "11"


def test_single_names_the_device_it_does_not_know() -> None:
    with pytest.raises(BadCluster, match="did you mean 'd1'"):
        Single("d11").solve(chain3(), Budget())


def test_what_is_pinned_elsewhere_moves_and_is_noted() -> None:
    problem = chain3().with_constraints(Constraints(pin=(("b", "d1"),)))
    found = Single("d0").solve(problem, Budget())
    assert found.placement.devices.tolist() == [0, 1, 0]
    assert found.notes == ("1 operator moved: not allowed on the device the rule gives",)


def test_what_is_colocated_moves_together_and_is_noted() -> None:
    problem = chain3().with_constraints(Constraints(colocate=(("a", "c"),)))
    found = Even().solve(problem, Budget())
    assert found.placement.devices.tolist() == [0, 1, 0]
    assert found.notes == ()  # two units: {a, c} and {b}
    layered = chain(["h.0", "h.0", "h.1"], TWO, constraints=Constraints(colocate=(("o0", "o2"),)))
    found = Even().solve(layered, Budget())
    assert found.placement.devices.tolist() == [0, 0, 0]
    assert found.notes == ("1 operator moved: colocated with others",)


@pytest.mark.parametrize(
    ("layers", "stages", "counts"),
    [(32, 4, [8, 8, 8, 8]), (33, 4, [8, 8, 9, 8]), (35, 4, [9, 9, 9, 8]), (3, 5, [0, 1, 1, 1, 0])],
)
def test_even_gives_the_remainder_to_the_stages_before_the_last(
    layers: int, stages: int, counts: list[int]
) -> None:
    assert even_counts(layers, stages) == counts


def test_even_counts_layers_not_operators() -> None:
    problem = chain(["embed", "h.0", "h.0.mlp", "h.0.norm", "h.1", "head"], TWO)
    assert digits(Even(), problem) == "000011"


def test_stages_are_accelerators_unless_devices_are_named() -> None:
    both = cluster_of(Device("cpu", kind="cpu"), Device("gpu0"), Device("gpu1"))
    problem = chain([""] * 4, both)
    assert digits(Even(), problem) == "1122"
    assert digits(solver("even:gpu1,cpu"), problem) == "2200"


@pytest.mark.parametrize(
    ("total", "weights", "least", "shares"),
    [
        (40, [36, 96, 64, 96, 36], 1, [4, 12, 8, 12, 4]),
        (40, [264.4, 344.0, 308.7, 351.2, 177.6], 0, [7, 9, 9, 10, 5]),
        (3, [1, 1], 0, [2, 1]),
        (4, [100, 1, 1], 0, [4, 0, 0]),
        (4, [100, 1, 1], 1, [2, 1, 1]),
        (2, [2**62, 2**62, 2**62], 0, [1, 1, 0]),
    ],
)
def test_largest_remainder(total: int, weights: list[float], least: int, shares: list[int]) -> None:
    assert largest_remainder(total, weights, least=least) == shares


def test_capacity_follows_usable_memory() -> None:
    cluster = cluster_of(Device("d0", memory_bytes=8, reserve_bytes=5), Device("d1", memory_bytes=9))
    assert digits(Capacity(), chain([""] * 4, cluster)) == "0111"


def test_capacity_needs_a_layer_per_device() -> None:
    assert Capacity().unsupported(chain([""], TWO)) == "1 layers are too few for 2 devices"


def test_bandwidth_follows_memory_bandwidth() -> None:
    cluster = cluster_of(Device("d0", bytes_per_second=1e9), Device("d1", bytes_per_second=3e9))
    assert digits(Bandwidth(), chain([""] * 4, cluster)) == "0111"


def test_bandwidth_needs_to_know_it() -> None:
    assert Bandwidth().unsupported(chain3()) == "the memory bandwidth of d0 is not known"
    with pytest.raises(BadInput, match="bandwidth does not apply: the memory bandwidth of d0 is not known"):
        Bandwidth().solve(chain3(), Budget())


def test_balanced_cuts_where_half_of_the_work_is_done() -> None:
    assert digits(Balanced(), chain([""] * 4, TWO, seconds=[1, 1, 1, 3])) == "0001"


def test_balanced_gives_a_device_three_times_as_fast_three_times_the_work() -> None:
    assert digits(Balanced(), chain([""] * 8, TWO, seconds=[[3, 1]] * 8)) == "00111111"


def test_round_robin_deals_operators_or_layers() -> None:
    problem = chain(["h.0", "h.0", "h.1", "h.1", "h.2"], TWO)
    assert digits(RoundRobin(), problem) == "01010"
    assert digits(solver("round-robin:layer"), problem) == "00110"
    with pytest.raises(BadInput, match="by operator or layer"):
        RoundRobin(by="wheel")


def test_random_draws_only_allowed_devices_and_finds_the_best_of_eight() -> None:
    problem = chain3().with_constraints(Constraints(forbid=(("b", "d0"),)))
    found = Random(samples=64).solve(problem, Budget(), seed=3)
    assert found.objective_seconds == 4.0  # everything on d1, one of four placements
    assert found.evaluations == 64


def test_random_is_not_changed_by_how_many_are_drawn_at_once() -> None:
    few = Random(samples=70).solve(two_towers(), Budget(evaluations=65), seed=5)
    many = Random(samples=65).solve(two_towers(), Budget(), seed=5)
    assert few.placement == many.placement
    assert few.evaluations == many.evaluations == 65


def test_random_seeds_differ() -> None:
    draws = {Random(samples=1).solve(two_towers(), Budget(), seed=s).placement for s in range(8)}
    assert len(draws) > 1


def test_greedy_support_prefers_accelerators_in_order() -> None:
    inf = float("inf")
    cluster = cluster_of(Device("cpu", kind="cpu"), Device("npu", kind="npu"), Device("gpu"))
    problem = chain([""] * 3, cluster, seconds=[[1.0, 9.0, 9.0], [1.0, inf, 9.0], [1.0, inf, inf]])
    assert digits(GreedySupport(), problem) == "120"
    assert digits(solver("greedy-support:gpu,cpu"), problem) == "220"
    assert digits(solver("greedy-support:gpu"), problem) == "220"  # o2 needs the cpu


def islands_problem(unsupported: set[int]) -> Problem:
    """Ten operators in a chain, some of which the accelerator (device 1) does not support."""
    inf = float("inf")
    return chain([""] * 10, GPU_AND_CPU, seconds=[[1, inf if v in unsupported else 1] for v in range(10)])


@pytest.mark.parametrize(
    ("islands", "devices"), [(0, "0000000000"), (1, "0000011110"), (2, "0110011110"), (9, "0110011110")]
)
def test_largest_n_keeps_the_islands_with_most_operators(islands: int, devices: str) -> None:
    problem = islands_problem({0, 3, 4, 9})  # islands of 2 and 4 operators
    assert digits(solver(f"largest-n:{islands}"), problem) == devices


def test_an_island_never_waits_for_what_waits_for_it() -> None:
    build = GraphBuilder()
    a = build.tensor(build.operator("a"), size_bytes=0)
    b = build.tensor(build.operator("b", reads=[a]), size_bytes=0)
    build.operator("c", reads=[a, b])
    graph = build.build()
    assert supported_islands(graph, np.array([True, False, True])).tolist() == [0, 1, 2]


def test_islands_side_by_side_are_one_call() -> None:
    graph = two_towers().graph  # l1, r1, l2, r2, head
    assert supported_islands(graph, np.array([True, True, False, False, True])).tolist() == [0, 0, 1, 1, 2]


def test_largest_n_needs_an_accelerator() -> None:
    only = cluster_of(Device("cpu", kind="cpu"))
    assert LargestN().unsupported(chain([""], only)) == "there is no accelerator beside the CPUs"


def test_fit_memory_fills_from_the_back_and_leaves_the_first_layers_to_the_cpu() -> None:
    cluster = cluster_of(
        Device("cpu", kind="cpu"), Device("gpu0", memory_bytes=30), Device("gpu1", memory_bytes=50)
    )
    problem = chain([f"h.{i}" for i in range(8)], cluster, weights=[10] * 8)
    assert digits(FitMemory(margin_bytes=5), problem) == "00112222"


def test_fit_memory_puts_the_dense_parts_first_and_experts_where_room_is_left() -> None:
    cluster = cluster_of(Device("cpu", kind="cpu"), Device("gpu", memory_bytes=70))
    modules = [path for i in range(3) for path in (f"h.{i}.attention", f"h.{i}.experts.0")]
    problem = chain(modules, cluster, weights=[10, 40] * 3)
    assert digits(FitMemory(margin_bytes=0), problem) == "111010"  # 30 dense, then one layer of experts


def test_fit_memory_says_how_much_is_left_over_without_a_cpu() -> None:
    cluster = cluster_of(Device("d0", memory_bytes=25), Device("d1", memory_bytes=15))
    problem = chain([""] * 5, cluster, weights=[10] * 5)
    with pytest.raises(Infeasible, match="20 B of weights are left over") as raised:
        FitMemory(margin_bytes=0).solve(problem, Budget())
    assert raised.value.short_bytes == {"d0": 20}


def test_fit_memory_counts_a_shared_weight_once() -> None:
    build = GraphBuilder()
    a, b = build.operator("a"), build.operator("b")
    build.weight("tied", size_bytes=10, users=[a, b])
    graph = build.build()
    cluster = cluster_of(Device("cpu", kind="cpu"), Device("gpu", memory_bytes=10))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((2, 2))))
    assert digits(FitMemory(margin_bytes=0), problem) == "11"


@given(problem=st.one_of(problems(training=True), problems(colocate=True, runs_everywhere=True)))
def test_every_rule_gives_an_allowed_placement_or_an_error_of_its_own(problem: Problem) -> None:
    for name in RULES:
        try:
            found = solver(name).solve(problem, Budget(evaluations=20))
        except SteadError:
            continue
        devices = found.placement.devices
        assert problem.allowed[np.arange(len(devices)), devices].all(), name
        assert not found.placement.violations(), name
        assert found.objective_seconds == simulate(problem, found.placement).objective_seconds, name


class TestSingle(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Single()


class TestEven(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Even()


class TestCapacity(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Capacity()


class TestBandwidth(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Bandwidth()

    def problems(self) -> list[Problem]:
        cluster = cluster_of(Device("d0", bytes_per_second=1e9), Device("d1", bytes_per_second=2e9))
        return [*super().problems(), chain([""] * 5, cluster)]


class TestBalanced(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Balanced()


class TestRoundRobin(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return RoundRobin()


class TestRandom(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Random()


class TestGreedySupport(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return GreedySupport()


class TestLargestN(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return LargestN()

    def problems(self) -> list[Problem]:
        return [*super().problems(), islands_problem({0, 3, 4, 9})]


class TestFitMemory(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return FitMemory()
