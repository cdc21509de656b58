"""Stages that several equal devices share, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import GraphBuilder
from stead.plan import Plan
from stead.problem import Latency, Placement, Problem, Throughput
from stead.report import explain, summary
from stead.sim import simulate
from stead.solvers import Budget, Solution
from stead.solvers.exact.ideals import Ideals


def pipeline(objective: Throughput | None = None, *, training: bool = False, devices: int = 3) -> Problem:
    """a (1 s) -> b (6 s) -> c (1 s) with 4-byte tensors, 10 bytes of weights in b; links of 4 bytes/s."""
    build = GraphBuilder()
    tensor = None
    for name in "abc":
        operator = build.operator(name, reads=[] if tensor is None else [tensor])
        tensor = build.tensor(operator, size_bytes=4)
        if name == "b":
            build.weight("w", size_bytes=10, users=[operator])
    if training:
        build.operator("update", phase="update", reads=[tensor] if tensor is not None else [])
    graph = build.build()
    names = [f"d{d}" for d in range(devices)]
    cluster = Cluster(tuple(map(Device, names)), link_all(names, bytes_per_second=4.0))
    seconds = [[1.0] * devices, [6.0] * devices, [1.0] * devices] + [[0.0] * devices] * training
    return Problem(
        graph, cluster, Costs(graph, cluster, np.array(seconds)), objective=objective or Throughput()
    )


def test_two_devices_that_share_a_stage_halve_its_load() -> None:
    problem = pipeline()
    placed = [0, 1, 0]  # b alone: 6 s, one tensor in, one out
    assert simulate(problem, Placement(problem, placed)).objective_seconds == 8.0
    assert simulate(problem, Placement(problem, placed, replicas=[(1, 2)])).objective_seconds == 4.0


def test_training_keeps_the_weights_equal_once_per_update() -> None:
    for samples, sync in ((1, 4 * 0.5 * 10 / 4), (5, 4 * 0.5 * 10 / 4 / 5)):
        problem = pipeline(Throughput(samples_per_update=samples), training=True)
        shared = Placement(problem, [0, 1, 0, 0], replicas=[(1, 2)])
        assert simulate(problem, shared).objective_seconds == 4.0 + sync


@pytest.mark.parametrize(
    ("replicas", "message"),
    [([(1, 0)], "operators of its own"), ([(1, 7)], "indices"), ([(1, 2), (2,)], "one stage at most")],
)
def test_nonsense_groups_are_refused(replicas: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Placement(pipeline(), [0, 1, 0], replicas=replicas)


def test_unequal_devices_cannot_share() -> None:
    problem = pipeline().with_memory("d2", 5)
    with pytest.raises(BadInput, match="not equal"):
        Placement(problem, [0, 1, 0], replicas=[(1, 2)])


def test_only_full_pipelines_have_shared_stages() -> None:
    with pytest.raises(BadInput, match="full pipeline"):
        Placement(pipeline().with_objective(Latency()), [0, 1, 0], replicas=[(1, 2)])


def test_shared_stages_survive_in_a_plan(tmp_path: Path) -> None:
    problem = pipeline()
    placement = Placement(problem, [0, 1, 0], replicas=[(1, 2)])
    Plan(problem, Solution(placement, 4.0, solver="given"), (), {}).save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").placement == placement


def test_the_dynamic_program_shares_stages_where_that_pays() -> None:
    # All on one device that three share: 8 / 3 s; stages would have to send tensors.
    found = Ideals(replicas=3).solve(pipeline(), Budget())
    assert found.placement.replicas == ((0, 1, 2),)
    assert found.objective_seconds == pytest.approx(8 / 3)
    assert found.gap == 0
    assert Ideals().solve(pipeline(), Budget()).objective_seconds == 8.0


def test_a_report_says_who_shares_a_stage() -> None:
    problem = pipeline()
    placement = Placement(problem, [0, 1, 0], replicas=[(1, 2)])
    report = explain(Plan(problem, Solution(placement, 4.0, solver="given"), (), {}))
    assert report.shared == (("d1", "d2"),)
    assert "d1, d2 take samples in turn" in summary(report)


def test_nobody_can_share_a_stage_with_no_device() -> None:
    with pytest.raises(BadInput, match="replicas of at least 1"):
        Ideals(replicas=0)
