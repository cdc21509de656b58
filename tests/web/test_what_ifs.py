"""Moves, slack and sensitivity: every number of the page's what-ifs is the simulator's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stead.cluster import cluster_from
from stead.costs import Roofline
from stead.errors import BadInput
from stead.placing.place import place_problem
from stead.plan import Plan
from stead.problem import Constraints, Placement, Problem, Throughput
from stead.report.box_moves import box_moves
from stead.report.facts import explain_operators
from stead.report.fold import fold
from stead.report.sensitivity import FACTORS, sensitivity
from stead.report.slack import slack_ticks
from stead.sim import Move, score_moves, simulate
from stead.solvers import Budget, Solution
from stead.solvers.build.schedules import Schedule
from stead.testing import chain3, diamond, two_towers
from stead.workloads.demo import demo_graph


def given(problem: Problem, devices: list[int]) -> Plan:
    placement = Placement(problem, devices)
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


def demo_problem(devices: str = "3090,3060") -> Problem:
    graph, cluster = demo_graph(), cluster_from(devices)[0]
    return Problem(graph, cluster, Roofline().costs(graph, cluster))


def test_a_move_is_worth_what_the_simulator_says() -> None:
    problem = demo_problem()
    plan = place_problem(problem, budget=Budget(evaluations=50))
    boxes = fold(problem.graph)
    moves = box_moves(plan, boxes)
    assert moves.note == ""
    above = boxes.ancestors()[boxes.leaf]
    for box in list(moves.outcomes)[:8]:
        own = above[:, boxes.depths[box]] == box
        for d, (seconds, reason) in enumerate(moves.outcomes[box]):
            moved = plan.placement.devices.copy()
            moved[own] = d
            trace = simulate(problem, Placement(problem, moved, plan.placement.order))
            assert seconds == (trace.objective_seconds if trace.feasible else None)
            assert (reason == "here") == np.array_equal(moved, plan.placement.devices)


def test_an_order_that_lists_transfers_is_kept_for_the_operators_of_a_move() -> None:
    problem = demo_problem("2x A100-80GB")
    n, k = len(problem.graph), len(problem.cluster)
    halves = np.repeat(np.array([0, 1], dtype=np.uint8), [n // 2, n - n // 2])
    schedule = Schedule(halves, np.arange(n, dtype=np.int32), by_reader=True)
    placement = Placement(problem, halves, schedule.program(problem))
    plan = Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))
    last = n - 1
    rows = [halves.copy() for _ in range(k)]
    for d, row in enumerate(rows):
        row[last] = d
    scores = score_moves(problem, placement, [Move(np.array([last]), d) for d in range(k)])
    again = [Placement(problem, row, replace(schedule, devices=row).program(problem)) for row in rows]
    assert scores.seconds.tolist() == [simulate(problem, one).objective_seconds for one in again]
    report = explain_operators(plan, problem.graph.operator_names[last])[0]
    assert [one.objective_seconds for one in report.alternatives] == scores.seconds.tolist()
    assert box_moves(plan, fold(problem.graph)).outcomes


def test_whoever_must_share_a_device_moves_along() -> None:
    problem = two_towers().with_constraints(Constraints(colocate=(("l1", "l2"),)))
    together = Placement(problem, [0, 1, 0, 1, 0])
    scores = score_moves(problem, together, [Move(np.array([problem.graph.index("l1")]), 1)])
    assert scores.feasible.tolist() == [True]
    assert scores.seconds[0] == simulate(problem, Placement(problem, [1, 1, 1, 1, 0])).objective_seconds


def test_a_move_to_nowhere_is_refused() -> None:
    problem = chain3()
    with pytest.raises(BadInput, match="no device 2"):
        score_moves(problem, Placement(problem, [0, 0, 0]), [Move(np.array([0]), 2)])


def test_no_moves_give_no_rows() -> None:
    problem = chain3()
    assert len(score_moves(problem, Placement(problem, [0, 0, 0]), [])) == 0


def test_what_cannot_stand_there_says_why() -> None:
    problem = two_towers().with_constraints(Constraints(pin=(("l1", "d0"),)))
    boxes = fold(problem.graph)
    outcomes = box_moves(given(problem, [0, 1, 0, 1, 0]), boxes).outcomes
    pinned = int(boxes.leaf[problem.graph.index("l1")])
    assert outcomes[pinned][1] == (None, "pinned")


def test_boxes_beyond_the_time_are_absent_and_not_called_impossible() -> None:
    moves = box_moves(given(two_towers(), [0, 1, 0, 1, 0]), fold(two_towers().graph), cpu_seconds=1e-9)
    assert len(moves.outcomes) == 1
    assert moves.note == "computed for the 1 boxes with the most time"


def test_slack_is_how_late_an_operator_can_be() -> None:
    problem = two_towers()  # d0: l1, l2, head; d1: r1, r2, whose result crosses in 2.5 s
    timeline = simulate(problem, Placement(problem, [0, 1, 0, 1, 0])).timeline
    assert timeline is not None
    slack = dict(zip(problem.graph.operator_names, (slack_ticks(timeline) / 1e12).tolist(), strict=True))
    assert slack == {"l1": 2.5, "r1": 0.0, "l2": 2.5, "r2": 0.0, "head": 0.0}


def test_what_is_critical_has_no_slack() -> None:
    timeline = simulate(diamond(), Placement(diamond(), [0, 1, 1, 0])).timeline
    assert timeline is not None
    critical = [step.index for step in timeline.critical_path() if step.kind == "operator"]
    slack = slack_ticks(timeline)
    assert slack[critical].tolist() == [0] * len(critical)
    assert slack.min() >= 0


def test_curves_are_the_plan_on_another_machine() -> None:
    problem = demo_problem()
    plan = given(problem, [0] * 100 + [1] * (len(problem.graph) - 100))
    curves = {(curve.name, curve.what): curve.seconds for curve in sensitivity(plan)}
    assert {what for _, what in curves} == {"bandwidth", "FLOP/s", "memory bandwidth"}
    for seconds in curves.values():
        assert seconds[FACTORS.index(1.0)] == plan.solution.objective_seconds
    rates = curves[("3060", "memory bandwidth")]
    assert rates[0] is not None
    assert rates[-1] is not None
    assert rates[0] > plan.solution.objective_seconds > rates[-1]


def test_measured_costs_are_scaled_as_a_whole() -> None:
    curves = sensitivity(given(two_towers(Throughput()), [0, 1, 0, 1, 0]))
    speeds = [curve for curve in curves if curve.what == "speed"]
    assert {curve.name for curve in speeds} == {"d0", "d1"}
    slower = next(curve for curve in speeds if curve.name == "d0").seconds[FACTORS.index(0.5)]
    assert slower is not None
    assert slower > speeds[0].seconds[3]  # type: ignore[operator]
