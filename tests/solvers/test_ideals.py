"""Contiguous optima: published inputs, tiny traps, and the definition itself on random problems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_pipelines import (
    DATA,
    LOADS,
    NO_DATA,
    best_by_definition,
    from_instance,
    published,
    random_instance,
    reference,
)

from stead.cluster import Cluster, Device, link_both_ways
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.graph import GraphBuilder
from stead.placing.loading import load
from stead.placing.place import place_problem
from stead.problem import Latency, Load, Problem, Throughput
from stead.readers import host_cluster
from stead.solvers import Budget, Solver
from stead.solvers.exact.ideals import Ideals, LinearDP
from stead.solvers.exact.prefix_mip import PrefixMip
from stead.solvers.exact.reduction import reduce
from stead.solvers.exact.throughput_mip import ThroughputMip
from stead.testing import chain3, two_towers
from stead.testing.contracts import SolverContract
from stead.workloads.synthetic import synthetic

SEEDS = 200


class TestIdeals(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Ideals(threads=1)


class TestLinearDP(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return LinearDP()


# Published inputs


@NO_DATA
@pytest.mark.parametrize("name", list(reference()["throughput"]))
def test_published_optima_come_out_with_their_proof(name: str) -> None:
    row = reference()["throughput"][name]
    assert reduce(published(name)).count == row["supernodes"]
    for key, milliseconds in row["optimum_acyclic_stages"].items():
        load_name: Load = "fwbw" if key.startswith("forward_max") else key.partition("_")[0]
        problem = published(name, load=load_name, cost_scale=1000.0 if key.endswith("x1000") else 1.0)
        found = Ideals().solve(problem, Budget())
        assert found.objective_seconds * 1e3 == pytest.approx(milliseconds, rel=1e-6), key
        assert found.gap == 0, key
        assert found.scope == "contiguous stages"


@NO_DATA
@pytest.mark.parametrize("name", list(reference().get("throughput_sweep", {})))
def test_published_sweeps_over_devices_come_out(name: str) -> None:
    path = str(DATA / "throughput-inputs" / f"{name}.json")
    memory = int(reference()["throughput"][name]["memory_bytes"])
    for key, milliseconds in reference()["throughput_sweep"][name].items():
        fpgas, cpus = (int(part.partition("=")[2]) for part in key.split(","))
        problem = load(path, host_cluster(fpgas, cpus, memory)).problem(Throughput())
        if milliseconds is None:
            with pytest.raises(Infeasible) as caught:
                Ideals().solve(problem, Budget())
            assert min(caught.value.short_bytes.values()) > 0
            continue
        found = Ideals().solve(problem, Budget())
        assert found.objective_seconds * 1e3 == pytest.approx(milliseconds, rel=1e-6), key
        assert found.gap == 0, key


# Traps


@NO_DATA
def test_a_cyclic_quotient_is_no_pipeline(tmp_path: Path) -> None:
    problem = from_instance(reference()["tiny"]["cyclic_quotient"]["instance"], tmp_path)
    assert Ideals().solve(problem, Budget()).objective_seconds == pytest.approx(6e-3)


@NO_DATA
@pytest.mark.parametrize(
    ("merge", "milliseconds"), [("lossless", 1.5), ("off", 1.5), ("always", 1.5), ("published", 100)]
)
def test_only_the_published_merge_forgets_what_cannot_run(
    merge: str, milliseconds: float, tmp_path: Path
) -> None:
    problem = from_instance(reference()["tiny"]["trivial_merge"]["instance"], tmp_path)
    found = Ideals(merge=merge).solve(problem, Budget())  # type: ignore[arg-type]
    assert found.objective_seconds == pytest.approx(milliseconds / 1e3)


# Random problems


def random_problem(seed: int, folder: Path) -> Problem:
    return from_instance(random_instance(seed), folder, load=LOADS[seed % len(LOADS)])


def test_it_equals_the_definition(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        problem = random_problem(seed, tmp_path)
        best = best_by_definition(problem, "stages")
        try:
            found = Ideals(threads=1).solve(problem, Budget())
        except Infeasible:
            assert best == float("inf"), seed
            continue
        assert found.objective_seconds == best, seed
        assert found.gap == 0, seed


def test_merging_supernodes_costs_nothing(tmp_path: Path) -> None:
    for seed in range(0, SEEDS, 2):
        problem = random_problem(seed, tmp_path)
        try:
            values = [
                Ideals(threads=1, merge=merge).solve(problem, Budget()).objective_seconds
                for merge in ("lossless", "off")
            ]
        except Infeasible:
            continue
        assert values[0] == values[1], seed


def test_one_order_is_never_better_than_all_and_threads_change_nothing(tmp_path: Path) -> None:
    for seed in range(0, SEEDS, 4):
        problem = random_problem(seed, tmp_path)
        try:
            linear = LinearDP().solve(problem, Budget())
        except Infeasible:
            continue
        exact = Ideals(threads=1).solve(problem, Budget())
        assert exact.objective_seconds <= linear.objective_seconds
        assert Ideals(threads=2).solve(problem, Budget()).placement == exact.placement


# Limits


@pytest.mark.parametrize(
    "limit", [{"max_bytes": 2**16}, {"max_pairs": 100_000}], ids=lambda limit: next(iter(limit))
)
def test_too_many_ideals_end_in_a_placement_with_a_gap(limit: dict[str, int]) -> None:
    problem = load(synthetic("lstm-grid", operators=400), "4x 3090").problem(Throughput())
    found = Ideals(**limit).solve(problem, Budget())  # type: ignore[arg-type]
    assert 0 < found.bound_seconds < found.objective_seconds
    assert next(iter(limit)) in found.notes[-1]


def test_latency_is_refused_with_a_reason() -> None:
    assert "latency" in (Ideals().unsupported(chain3(Latency())) or "")
    with pytest.raises(BadInput, match="does not apply"):
        Ideals().solve(two_towers(Latency()), Budget())


# Exact solvers against each other


@pytest.mark.parametrize("seed", range(6))
def test_exact_solvers_agree_on_24_operators_and_4_devices(seed: int, tmp_path: Path) -> None:
    instance = random_instance(1000 + seed, most_nodes=24, training=False) | {"maxFPGAs": 3, "maxCPUs": 1}
    problem = from_instance(instance, tmp_path, load=LOADS[seed % 3])
    solvers = (
        Ideals(),
        PrefixMip(),
        ThroughputMip(contiguity="device", anneal_moves=100_000),
        ThroughputMip(contiguity="any", anneal_moves=100_000),
    )
    stages, prefix, device, anything = (one.solve(problem, Budget(seconds=20)) for one in solvers)
    assert stages.gap == prefix.gap == 0
    assert stages.objective_seconds == prefix.objective_seconds
    assert anything.objective_seconds <= device.objective_seconds <= stages.objective_seconds
    assert anything.bound_seconds <= device.objective_seconds


def two_operators_on_three_devices(**rates: float) -> Problem:
    """x takes 3 ms and y 1 ms on each of a, b and c, whose links have the rates that are given."""
    links = tuple(link for pair, rate in rates.items() for link in link_both_ways(*pair, bytes_per_second=rate))
    build = GraphBuilder("two")
    build.tensor(build.operator("x"), size_bytes=1)
    build.operator("y")
    graph, cluster = build.build(), Cluster(tuple(Device(name) for name in "abc"), links)
    costs = Costs(graph, cluster, np.repeat([[3e-3], [1e-3]], 3, axis=1))
    return Problem(graph, cluster, costs, objective=Throughput())


def test_devices_with_unequal_links_do_not_share_a_stage():
    # b and c each have 3 GB/s at best, but a reaches c faster than b: they are no replicas of each other.
    solution = Ideals(replicas=2).solve(two_operators_on_three_devices(ab=1e9, ac=2e9, bc=3e9), Budget())
    assert (solution.objective_seconds, solution.bound_seconds) == (3e-3, 3e-3)
    assert solution.placement.replicas == ()


def test_equal_devices_share_a_stage_beside_unequal_ones():
    # a and b are equal, c is linked to both at half their rate: x on a and b takes 1.5 ms per sample.
    solution = Ideals(replicas=2).solve(two_operators_on_three_devices(ab=2e9, ac=1e9, bc=1e9), Budget())
    assert (solution.objective_seconds, solution.placement.replicas) == (1.5e-3, ((0, 1),))


def test_a_bound_on_single_devices_says_nothing_about_shared_stages():
    # The largest operator takes 3 ms on one device, but two devices that share it let a sample pass every 1.5 ms.
    build = GraphBuilder("one")
    build.operator("x")
    graph, cluster = (
        build.build(),
        Cluster((Device("a"), Device("b")), link_both_ways("a", "b", bytes_per_second=1e9)),
    )
    costs = Costs(graph, cluster, np.full((1, 2), 3e-3))
    problem = Problem(graph, cluster, costs, objective=Throughput())
    plan = place_problem(problem, solver=Ideals(replicas=2, merge="always"), baselines=False)
    assert (plan.solution.objective_seconds, plan.solution.bound_seconds) == (1.5e-3, 0.0)
