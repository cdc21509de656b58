"""Plans for clusters of more than 64 devices, part by part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stead
from stead.cluster import Cluster, Device, Level, cluster_from
from stead.costs import Costs, Roofline
from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder
from stead.plan import Plan
from stead.problem import Constraints, Latency, Objective, Placement, Problem, ProgramOrder, Throughput
from stead.sim import simulate
from stead.solvers import Budget, solver
from stead.solvers.large.hierarchical import Hierarchical
from stead.solvers.large.parts import (
    lifted,
    lifted_order,
    nodes_of,
    part_problem,
    representatives,
    window_problem,
)
from stead.solvers.large.spread import spreads
from stead.solvers.registry import REGISTRY
from stead.testing import two_towers

THOUSAND = "1024x A100-80GB in nodes of 8 @ 25GB/s in racks of 8 @ 12GB/s in sites of 4 @ 1GB/s"


def chain(operators: int, *, weight_bytes: int = 0) -> Graph:
    build = GraphBuilder("chain")
    reads = []
    for v in range(operators):
        operator = build.operator(f"v{v}", reads=reads, flops=1e12, dtype="fp16")
        reads = [build.tensor(operator, size_bytes=1000, kept=v == operators - 1)]
        if weight_bytes:
            build.weight(f"w{v}", size_bytes=weight_bytes, users=[operator])
    return build.build()


def asked(graph: Graph, devices: str = THOUSAND, objective: Objective | None = None, **how: object) -> Problem:
    cluster = cluster_from(devices)[0]
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=objective, **how)  # type: ignore[arg-type]


def mixed(devices: int = 65, objective: Objective | None = None) -> Problem:
    graph = two_towers().graph
    cluster = Cluster(
        tuple(Device(f"g:{d}", memory_bytes=2**30, bytes_per_second=1e9) for d in range(devices)),
        levels=(Level("node", 5, 1e9, 1e-6), Level("cluster", devices, 1e8, 1e-5)),
    )
    columns = np.arange(devices) // 5 % 2
    seconds = np.stack([np.full(len(graph), 2.0), np.ones(len(graph))], axis=1)
    return Problem(graph, cluster, Costs(graph, cluster, seconds, columns=columns), objective=objective)


@pytest.mark.parametrize("objective", [Latency(), Throughput(), Latency("sequential")], ids=str)
def test_every_solver_answers_or_says_that_it_takes_fewer(objective: Objective) -> None:
    problem, answered = mixed(objective=objective), []
    for name, entry in REGISTRY.items():
        if entry.kind == "learned":
            continue
        reason = solver(name).unsupported(problem)
        if reason is None:
            found = solver(name).solve(problem, Budget(evaluations=60))
            assert simulate(problem, found.placement).objective_seconds == found.objective_seconds
            answered.append(name)
    assert {"auto", "hierarchical", "single", "balanced"} <= set(answered)
    assert not {"heft", "search", "anneal", "linear-dp"} & set(answered)


def test_learned_solvers_say_that_they_take_fewer() -> None:
    pytest.importorskip("torch")
    for name, entry in REGISTRY.items():
        if entry.kind == "learned":
            assert "up to 64 devices, not 65" in (solver(name).unsupported(mixed()) or "")


def test_representatives_are_whole_nodes_of_every_kind() -> None:
    problem = mixed()
    chosen = representatives(problem, 10)
    assert chosen == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]  # the quick node and a slow one, which are nearest
    assert nodes_of(problem)[1] == [5, 6, 7, 8, 9]
    assert len(representatives(problem, 64)) == 64


def test_a_pinned_device_is_among_the_representatives() -> None:
    problem = asked(chain(4), constraints=Constraints(pin=(("v1", "a100-80gb:777"),)))
    assert 777 in representatives(problem, 16)
    found = Hierarchical(most=8).solve(problem, Budget(evaluations=200))
    assert found.placement.devices[1] == 777


def test_a_lifted_plan_has_the_value_that_it_has_on_its_part() -> None:
    problem = asked(chain(12))
    chosen = [3, 64, 700]
    part = part_problem(problem, chosen)
    row = np.array([0, 0, 1, 1, 2, 2, 0, 1, 2, 0, 1, 2], dtype=np.uint8)
    whole = lifted(problem, chosen, row)
    assert whole.tolist()[:5] == [3, 3, 64, 64, 700]
    small = simulate(part, Placement(part, row)).objective_ticks
    assert simulate(problem, Placement(problem, whole)).objective_ticks == small
    listed = [0, 1, 12 + 3 + 1, *range(2, 12)]  # tensor 1 goes to the second device of the part
    order = lifted_order(problem, chosen, ProgramOrder(np.array(listed, dtype=np.int32), sends=True))
    assert isinstance(order, ProgramOrder)
    assert order.order is not None
    assert order.order.tolist()[2] == 12 + 1024 + 64


def test_a_model_that_fills_hundreds_of_devices_is_spread_over_them() -> None:
    problem = asked(chain(400, weight_bytes=40 * 2**30))  # 15.6 TiB of weights; 64 devices have 4.6
    found = Hierarchical().solve(problem, Budget(evaluations=400))
    assert len(set(found.placement.devices.tolist())) == 400
    assert simulate(problem, found.placement).feasible


def test_a_pipeline_uses_all_devices_and_meets_its_bound() -> None:
    problem = asked(chain(2048), objective=Throughput("overlap"))
    found = Hierarchical().solve(problem, Budget(evaluations=100))
    assert len(set(found.placement.devices.tolist())) == 1024
    assert found.gap < 0.01


def test_pieces_are_as_long_as_devices_are_quick() -> None:
    problem = mixed(10, Throughput())
    row = next(iter(spreads(problem, list(range(10)))))  # five operators of 2 s on the slow node, 1 s on the quick one
    assert simulate(problem, Placement(problem, row)).compute_seconds.tolist() == [0.0] * 5 + [1.0] * 5


def test_in_a_window_only_what_it_holds_counts() -> None:
    problem = mixed(objective=Throughput())
    row = np.array([0, 5, 6, 7, 64], dtype=np.uint8)
    small, chosen, now = window_problem(problem, row, [5, 6], 4)
    assert chosen[:2] == [5, 6]
    assert len(small.cluster) <= 4
    trace = simulate(small, Placement(small, now))
    assert trace.compute_seconds[:2].tolist() == [1.0, 1.0]
    assert trace.compute_seconds[2:].sum() == 0.0
    assert small.allowed[1, :2].all()
    assert not small.allowed[0, :2].any()


def test_the_same_seed_gives_the_same_plan() -> None:
    problem = asked(chain(40), objective=Throughput())
    one, other = (Hierarchical().solve(problem, Budget(evaluations=300), 5) for _ in range(2))
    assert one.placement == other.placement
    assert one.evaluations == other.evaluations


def test_a_plan_on_a_thousand_devices_is_kept_and_read(tmp_path: Path) -> None:
    plan = stead.place(chain(1500), THOUSAND, objective=Throughput(), evaluations=60, baselines=False)
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again.placement == plan.placement
    assert again.problem.fingerprint == plan.problem.fingerprint
    assert int(again.placement.devices.max()) > 255
    assert (tmp_path / "plan.json").stat().st_size < 1_500_000
    assert stead.summary(stead.explain(again))


def test_parts_have_at_least_two_devices() -> None:
    with pytest.raises(BadInput, match="plans 2 to 64 devices at a time, got 1"):
        Hierarchical(most=1)
