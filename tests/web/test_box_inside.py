"""What lies in a box, level by level, also below what a view holds."""

from __future__ import annotations

import numpy as np
import pytest

from stead.cluster import cluster_from
from stead.costs import Roofline
from stead.graph import Graph, GraphBuilder
from stead.plan import Plan
from stead.problem import Placement, Problem
from stead.report.box_inside import MOST_LISTED, inside
from stead.report.fold import MOST_BOXES, fold
from stead.sim import simulate
from stead.solvers import Solution
from stead.workloads.demo import demo_graph


def halves(graph: Graph) -> Plan:
    """Every other operator on the second device."""
    cluster, _ = cluster_from("3090,3060")
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
    placement = Placement(problem, np.arange(len(graph)) % 2)
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


def chain(modules: list[str]) -> Graph:
    build, reads = GraphBuilder("chain"), list[int]()
    for v, module in enumerate(modules):
        own = build.operator(f"v{v}", module=module, reads=reads, flops=1e9)
        reads = [build.tensor(own, size_bytes=4)]
    return build.build()


def test_every_operator_of_a_box_lies_in_one_row_with_all_its_time() -> None:
    plan = halves(demo_graph())
    boxes = fold(plan.problem.graph)
    work = plan.trace.compute_seconds.sum()
    for box in range(len(boxes.names)):
        rows = inside(plan, boxes, box)
        assert sum(row["operators"] for row in rows) == len(boxes.operators_in(box))
        if box == 0:
            assert sum(sum(row["seconds"]) for row in rows) == pytest.approx(work)


def test_levels_that_hold_nothing_but_the_next_are_passed_over() -> None:
    plan = halves(chain(["m.net.a.x", "m.net.a.y", "m.net.b", "head"]))
    boxes = fold(plan.problem.graph)
    assert [row["name"] for row in inside(plan, boxes, 0)] == ["m", "head"]
    (box,) = (b for b in range(len(boxes.names)) if boxes.names[b] == "m")
    rows = inside(plan, boxes, box)
    assert [(row["name"], row["operators"], row["range"]) for row in rows] == [("a", 2, [0, 1]), ("b", 1, [2, 2])]
    assert [row["operator"] for row in rows] == [None, "v2"]


def test_where_no_module_is_deeper_there_are_operators() -> None:
    plan = halves(chain(["a", "a", "b"]))
    boxes = fold(plan.problem.graph)
    (box,) = (b for b in range(len(boxes.names)) if boxes.names[b] == "a")
    assert [row["name"] for row in inside(plan, boxes, box)] == ["v0", "v1"]


def test_what_a_view_has_no_room_for_is_found_all_the_same() -> None:
    modules = [f"layers.{n}.part.{p}.step.{s}" for n in range(40) for p in range(6) for s in range(12)]
    plan = halves(chain(modules))
    boxes = fold(plan.problem.graph)
    assert len(boxes.names) < len(set(modules)) <= MOST_BOXES * 2
    leaf = int(boxes.leaf[0])
    deeper = inside(plan, boxes, leaf)
    assert [row["name"] for row in deeper[:2]] == ["step.0", "step.1"]


def test_very_many_operators_end_in_one_row() -> None:
    plan = halves(chain(["a"] * (MOST_LISTED + 20)))
    (last,) = inside(plan, fold(plan.problem.graph), 1)[MOST_LISTED:]
    assert (last["name"], last["operators"]) == ("20 more", 20)
