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
from stead.placing.loading import load
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
)
from stead.solvers.large.pieces import spreads
from stead.solvers.large.traffic import Traffic
from stead.solvers.large.windows import window_around, window_problem
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
    window = window_problem(problem, row, [5, 6], 4)
    small, now = window.problem, window.now
    assert window.devices[:2] == (5, 6)
    assert len(small.cluster) <= 4
    trace = simulate(small, Placement(small, now))
    assert trace.compute_seconds[:2].tolist() == [1.0, 1.0]
    assert trace.compute_seconds[2:].sum() == 0.0
    assert window.operators.tolist() == [1, 2]
    assert small.allowed[window.first : window.first + 2, :2].all()
    assert not small.allowed[: window.first, :2].any()
    now = now.copy()
    now[window.first] = 1
    assert window.placed(row, now).tolist() == [0, 6, 6, 7, 64]


def test_a_window_has_the_node_of_the_busiest_device_and_whom_it_talks_to() -> None:
    problem = mixed(objective=Throughput())
    traffic = Traffic(problem, np.array([0, 20, 5, 7, 33], dtype=np.uint8))  # l1, r1, l2, r2, head
    # l1 is sent from 0 to 5 and l2 from 5 to 33; 5 to 9 are a node, 4 and 10 hold nothing and are next to it
    assert window_around(traffic, 5, [5, 6, 7, 8, 9], 9) == [0, 3, 4, 5, 6, 7, 8, 9, 33]
    assert traffic.exchanged_seconds(5)[[0, 33]].tolist() == pytest.approx([1e-5 + 4e-8] * 2)


def test_a_window_counts_what_its_devices_exchange_with_the_others() -> None:
    problem = asked(chain(40), objective=Throughput())
    row = (np.arange(40) // 2 * 7 % 90).astype(np.uint16)
    window = window_problem(problem, row, sorted({int(d) for d in row[10:20]}), 16)
    small, whole = (simulate(one, Placement(one, on)) for one, on in ((window.problem, window.now), (problem, row)))
    count = len(set(row[10:20].tolist()))
    for mine, all_of_it in ((small.compute_seconds, whole.compute_seconds), (small.busy_seconds, whole.busy_seconds)):
        assert mine[:count].tolist() == all_of_it[list(window.devices[:count])].tolist()


def test_units_stay_together_in_a_window() -> None:
    problem = asked(chain(12), objective=Throughput(), constraints=Constraints(colocate=(("v2", "v5"),)))
    row = np.array([0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 70, 70], dtype=np.uint16)
    window = window_problem(problem, row, [1, 2], 4)
    units = window.problem.units[window.first : window.first + len(window.operators)]
    assert window.operators.tolist() == [2, 3, 4, 5, 6, 7]
    assert units[0] == units[3]
    assert len(set(units.tolist())) == 5


def test_a_pipeline_is_divided_by_what_its_devices_exchange() -> None:
    """One operator feeds forty, which takes less time in its node: 41 devices are worse than one node."""
    build = GraphBuilder("hub")
    hub = build.operator("hub", flops=1e9, dtype="fp16")
    for v in range(40):
        build.operator(f"v{v}", reads=[build.tensor(hub, size_bytes=10**6)], flops=1e9, dtype="fp16")
    problem = asked(build.build(), "128x A100-80GB in nodes of 8 @ 25GB/s", objective=Throughput())
    rows = list(spreads(problem, list(range(128))))
    values = [simulate(problem, Placement(problem, row)).objective_seconds for row in rows]
    settled = next(n for n, row in enumerate(rows) if n and values[n] == min(values))
    assert values[settled] < 0.7 * values[0]
    assert set(rows[settled].tolist()) <= set(range(8))


def test_a_weight_that_all_share_does_not_keep_a_pipeline_apart() -> None:
    build, reads = GraphBuilder("tied"), []
    operators = []
    for v in range(64):
        operators.append(build.operator(f"v{v}", reads=reads, flops=1e12, dtype="fp16"))
        reads = [build.tensor(operators[v], size_bytes=1000, kept=v == 63)]
    build.weight("w", size_bytes=30 * 2**30, users=operators)  # for each of them: 1.9 TB
    problem = asked(build.build(), "128x A100-80GB in nodes of 8 @ 25GB/s", objective=Throughput())
    row = next(iter(spreads(problem, list(range(16)))))
    assert np.bincount(row).tolist() == [4] * 16
    assert simulate(problem, Placement(problem, row)).feasible


def test_a_part_that_is_too_small_for_all_work_is_not_planned() -> None:
    problem = asked(chain(300), "128x A100-80GB in nodes of 8 @ 25GB/s", objective=Throughput("overlap"))
    found = Hierarchical(most=16).solve(problem, Budget(evaluations=200))
    assert [note.split(":")[0] for note in found.notes if "too few" in note] == ["8 devices", "16 devices"]
    assert found.gap < 0.3  # 300 equal operators: three on some devices, two on the others


def test_a_pipeline_with_a_hub_is_proved_to_a_third() -> None:
    """An unrolled LSTM looks all its steps up in one operator, which has to send them: no bound on work sees that."""
    cluster = "128x A100-80GB in nodes of 8 @ 25GB/s"
    problem = load("zoo:lstm-grid?operators=600", cluster).problem(Throughput())
    found = Hierarchical(most=8).solve(problem, Budget(evaluations=120))
    assert found.bound_name == "neighbours"
    assert found.gap < 1 / 3


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
