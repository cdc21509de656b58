"""What a plan says about weights that are read elsewhere than updated."""

from __future__ import annotations

import numpy as np

from stead.cli.output import plan_document
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.plan import Plan
from stead.problem import Placement, Problem
from stead.report import explain, layer_rows, summary
from stead.sim import simulate
from stead.solvers import Solution
from stead.testing.tiny import tiny_cluster


def plan_of(on: dict[str, int]) -> Plan:
    """Two layers, each f -> b, and the update of its weight of 8 bytes."""
    build = GraphBuilder("layers")
    last = []
    for n in range(2):
        f = build.operator(f"f{n}", reads=last, module=f"layers.{n}.mlp")
        last = [build.tensor(f, size_bytes=4)]
        b = build.operator(f"b{n}", reads=last, phase="backward", twin=f"f{n}", module=f"layers.{n}.mlp")
        u = build.operator(f"u{n}", reads=[build.tensor(b, size_bytes=4)], phase="update", module=f"layers.{n}.mlp")
        build.weight(f"w{n}", size_bytes=8, users=[f, b, u])
    graph, cluster = build.build(), tiny_cluster()
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((len(graph), 2))))
    row = [on[name.removesuffix(".refresh")] for name in graph.operator_names]
    placement = Placement(problem, row)
    assert placement.violations() == []
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


def test_a_plan_says_how_many_updated_weights_travel():
    plan = plan_of({"f0": 0, "b0": 0, "u0": 1, "f1": 0, "b1": 1, "u1": 1})
    report = explain(plan)
    assert (report.refreshed.weights, report.refreshed.transfers, report.refreshed.sent_bytes) == (2, 2, 16)
    assert " refresh  2 updated weights go to readers on other devices: 16 B per step\n" in summary(report)
    assert plan_document(plan)["refreshed"] == {"weights": 2, "transfers": 2, "sent_bytes": 16}


def test_nothing_is_said_where_nothing_travels():
    plan = plan_of({"f0": 0, "b0": 0, "u0": 0, "f1": 1, "b1": 1, "u1": 1})
    assert explain(plan).refreshed.weights == 0
    assert " refresh " not in summary(explain(plan))


def test_what_receives_a_weight_is_counted_with_its_reader_in_the_list_of_layers():
    """Only the backward operator of the second layer is elsewhere: its refresh is there, too, and no row of its own."""
    plan = plan_of({"f0": 0, "b0": 0, "u0": 0, "f1": 0, "b1": 1, "u1": 0})
    rows = layer_rows(plan.problem, plan.placement)
    assert [(row.device, row.numbers, row.phase, row.operators) for row in rows] == [
        ("d0", (0, 1), "", 8), ("d1", (1,), "backward", 2)
    ]  # fmt: skip
