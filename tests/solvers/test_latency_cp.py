"""latency-cp: placement and schedule at once, judged by the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from stead.cluster import Cluster, Device, Link, link_all
from stead.costs import Costs
from stead.errors import Infeasible
from stead.graph import GraphBuilder
from stead.problem import Constraints, Latency, PlacetoDispatch, Priority, Problem, ProgramOrder, Throughput
from stead.problem.in_ticks import Tables
from stead.solvers import Budget, Solver
from stead.solvers.exact.exhaustive import Exhaustive
from stead.solvers.exact.latency_cp import LatencyCp, interchangeable
from stead.testing import chain3, diamond, tiny_cluster, tiny_problem, two_towers
from stead.testing.contracts import SolverContract

CONTENTIONS = ("link", "bus", "sender", "receiver", "none", "pair")


def random_problem(seed, *, contention, policy=None, memory=None):
    """Two or three devices, seven operators, ties, fan-out, colocation, missing and unequal links."""
    rng = np.random.default_rng(seed)
    devices = 2 + seed % 2
    build, tensors = GraphBuilder("random"), []
    for v in range(7):
        chosen = rng.choice(len(tensors), size=min(len(tensors), int(rng.integers(0, 3))), replace=False)
        group = "x" if rng.random() < 0.15 else ""
        operator = build.operator(f"v{v}", reads=[tensors[i] for i in chosen], colocate=group)
        for _ in range(rng.integers(1, 3)):
            tensors.append(build.tensor(operator, size_bytes=int(rng.choice([0, 500, 1000, 1500]))))
        build.weight(f"w{v}", size_bytes=10_000, users=[operator])
    graph, names = build.build(), [f"d{d}" for d in range(devices)]
    links = link_all(names, bytes_per_second=1e9, latency_seconds=1e-7, gap_seconds=1e-7)
    if rng.random() < 0.5:
        links = tuple(
            Link(a, b, float(rng.choice([3e8, 1e9])), float(rng.choice([0, 5e-7])))
            for a in names
            for b in names
            if a != b and rng.random() < 0.9
        )
    room = {} if memory is None else {"memory_bytes": memory}
    cluster = Cluster(tuple(Device(name, **room) for name in names), links, contention=contention)
    seconds = rng.choice([0, 1000, 1000, 2000, 2500], size=(7, devices)) * 1e-9
    if rng.random() < 0.5:
        seconds[:] = seconds[:, :1]
    objective = Latency() if policy is None else Latency(policy=policy)
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=objective)


class TestLatencyCp(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return LatencyCp()


@pytest.mark.parametrize(("make", "seconds"), [(chain3, 4.0), (diamond, 7.0), (two_towers, 7.5)])
def test_tiny_problems_are_proved(make, seconds):
    solution = LatencyCp().solve(make(), Budget())
    assert solution.objective_seconds == seconds
    assert solution.gap == 0


@pytest.mark.parametrize("contention", CONTENTIONS)
def test_it_finds_and_proves_what_trying_everything_finds(contention):
    for seed in range(6):
        problem = random_problem(seed, contention=contention)
        try:
            optimum = Exhaustive().solve(problem, Budget()).objective_seconds
        except Infeasible:
            continue
        solution = LatencyCp().solve(problem, Budget())
        assert solution.objective_seconds == optimum, seed
        assert solution.gap == 0, seed


@pytest.mark.parametrize("policy", [Priority(), ProgramOrder()])
def test_other_policies_are_judged_by_their_own_rules(policy):
    for seed in range(5):
        problem = random_problem(seed, contention="link", policy=policy)
        optimum = Exhaustive().solve(problem, Budget()).objective_seconds
        solution = LatencyCp().solve(problem, Budget())
        assert solution.bound_seconds <= optimum, seed
        assert solution.objective_seconds == optimum, seed


def test_scarce_memory_is_kept():
    for seed in range(6):
        problem = random_problem(seed, contention="link", memory=45_000)
        try:
            optimum = Exhaustive().solve(problem, Budget()).objective_seconds
        except Infeasible:
            continue
        solution = LatencyCp().solve(problem, Budget())
        assert solution.bound_seconds <= optimum, seed
        assert solution.objective_seconds == optimum, seed


def test_where_the_policy_takes_a_bad_order_the_value_is_the_policys_and_the_proof_holds():
    # b and c are ready together on one device. The order by index runs b first, though c has the longer way to go:
    # any order allows 1 + 3 + 2 + 3 s, but that is not what fifo does.
    seconds = {"a": 1, "b": 3, "c": 2, "d": 3}
    problem = tiny_problem(seconds, {"b": ["a"], "c": ["a"], "d": ["c"]}, devices=2)
    solution = LatencyCp().solve(problem, Budget())
    assert solution.objective_seconds == Exhaustive().solve(problem, Budget()).objective_seconds
    assert solution.gap == 0


def test_equal_devices_are_one_class_and_unequal_links_split_it():
    problem = two_towers()
    assert interchangeable(problem, Tables(problem)) == [[0, 1]]
    cluster = Cluster(
        tuple(Device(name) for name in "abc"),
        (*link_all("ab", bytes_per_second=1e9), *link_all("ac", bytes_per_second=1e9), Link("b", "c", 1e8)),
    )
    unequal = Problem(problem.graph, cluster, Costs(problem.graph, cluster, np.ones((5, 3))))
    assert interchangeable(unequal, Tables(unequal)) == [[0], [1], [2]]


def test_it_says_what_it_does_not_take():
    assert "dataflow" in str(LatencyCp().unsupported(chain3(Throughput())))
    assert "Placeto" in str(LatencyCp().unsupported(chain3(Latency(policy=PlacetoDispatch()))))
    assert "more than max_tasks = 5" in str(LatencyCp(max_tasks=5).unsupported(chain3()))


def one_order_fits() -> Problem:
    """v0, v1 -> v2 and v0 -> v3: weights and outputs leave one placement and one order that is best."""
    build = GraphBuilder("one order fits")
    v0, v1 = build.operator("v0"), build.operator("v1", colocate="x")
    large = build.tensor(v1, size_bytes=4000)
    build.tensor(v1, size_bytes=1000, kept=True)
    v2 = build.operator("v2", reads=[large])
    build.tensor(v2, size_bytes=5000)
    v3 = build.operator("v3", after=[v0], colocate="x")
    build.weight("w0", size_bytes=9000, users=[v0, v3])
    build.weight("w1", size_bytes=8000, users=[v1, v3])
    graph = build.build()
    devices = Device("d0", memory_bytes=9000), Device("d1", memory_bytes=22_000)
    cluster = Cluster(devices, (Link("d1", "d0", 3e8, 1e-6),), contention="pair")
    seconds = np.array([[5, 1], [3, 1], [3, 1], [5, 1]]) * 1e-6
    costs = Costs(graph, cluster, seconds, tensor_seconds=np.array([0, 5, 7, 7]) * 1e-6)
    return Problem(graph, cluster, costs, objective=Latency())


def test_a_placement_that_is_best_in_another_order_is_found_and_proved():
    # All on d1 would take 4 us, but 17,000 B of weights and 10,000 B of outputs do not fit into 22,000 B. v2 on d0
    # leaves 17,000 + 4,000 + 1,000 B: v1 runs 0..1 us, its 4,000 B arrive at 1 + 5 + 1, v2 ends at 10 us. The policy
    # runs v0 first and ends at 11 us.
    solution = LatencyCp().solve(one_order_fits(), Budget())
    assert (solution.objective_seconds, solution.bound_seconds, solution.scope) == (1e-5, 1e-5, "")
    assert Exhaustive().solve(one_order_fits(), Budget()).objective_seconds == 1.1e-5


def test_a_placement_with_more_orders_than_it_may_look_at_is_not_excluded():
    solution = LatencyCp(max_steps=1).solve(one_order_fits(), Budget())
    assert solution.bound_seconds == 4e-6  # all on d1, whose four operators may run in many orders


def two_transfers() -> Problem:
    """a(1) on d0 sends 4 bytes for c, then 4 bytes for b; b(2) and then c(1) run on d1."""
    build = GraphBuilder("two transfers")
    a = build.operator("a")
    for_c, for_b = build.tensor(a, size_bytes=4), build.tensor(a, size_bytes=4)
    b = build.operator("b", reads=[for_b])
    build.operator("c", reads=[for_c, build.tensor(b, size_bytes=0)])
    graph, cluster = build.build(), tiny_cluster()
    costs = Costs(graph, cluster, np.array([[1, 1], [2, 2], [1, 1]]))
    pins = Constraints(pin=(("a", "d0"), ("b", "d1"), ("c", "d1")))
    return Problem(graph, cluster, costs, constraints=pins)


def test_the_order_of_transfers_alone_can_matter():
    # In the order of tensors b starts at 1 + 2 + 2.5 = 5.5 s and c ends at 8.5 s; the other way round b starts at
    # 3.5 s, c at 5.5 s, when both its inputs are there, and ends at 6.5 s.
    solution = LatencyCp().solve(two_transfers(), Budget())
    assert (solution.objective_seconds, solution.gap, solution.scope) == (6.5, 0.0, "")
    tried = Exhaustive().solve(two_transfers(), Budget())
    assert (tried.objective_seconds, tried.scope) == (8.5, "placements without an order of their own")


def test_devices_that_need_unequal_workspace_cannot_change_places():
    problem = two_towers()
    workspace = np.zeros((5, 2), dtype=np.int64)
    workspace[0, 1] = 1
    costs = Costs(problem.graph, problem.cluster, problem.costs.seconds, workspace_bytes=workspace)
    unequal = Problem(problem.graph, problem.cluster, costs)
    assert interchangeable(unequal, Tables(unequal)) == [[0], [1]]
