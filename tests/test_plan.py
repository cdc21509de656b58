"""Plans: the file users keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stead.api import place_problem
from stead.errors import BadInput
from stead.plan import Plan
from stead.problem import (
    Constraints,
    Latency,
    Objective,
    Order,
    Placement,
    Priority,
    ProgramOrder,
    Throughput,
)
from stead.solvers import Budget, Solution
from stead.testing import two_towers


def plan_for(objective: Objective | None = None, **options: object) -> Plan:
    return place_problem(two_towers(objective), budget=Budget(evaluations=500), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "objective",
    [
        Latency(),
        Latency(policy=Priority()),
        Latency(execution="sequential"),
        Throughput("overlap"),
        Throughput(microbatches=2),
    ],
)
def test_a_plan_read_back_is_the_plan(objective: Objective, tmp_path: Path) -> None:
    plan = plan_for(objective)
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert (again.placement, again.problem.fingerprint) == (plan.placement, plan.problem.fingerprint)
    assert again.trace.objective_seconds == plan.solution.objective_seconds
    assert [rule.objective_seconds for rule in again.baselines] == [
        rule.objective_seconds for rule in plan.baselines
    ]


@pytest.mark.parametrize("order", [Priority([1, 0, 2, 3, 4]), ProgramOrder([1, 0, 2, 3, 4])])
def test_the_order_of_a_plan_survives(order: Order, tmp_path: Path) -> None:
    problem = two_towers()
    placement = Placement(problem, [0, 0, 0, 1, 0], order)
    plan = Plan(problem, Solution(placement, 10.0, solver="given"), (), {})
    plan.save(tmp_path / "plan.json")
    read = Plan.load(tmp_path / "plan.json")
    assert read.placement == placement
    assert read.trace.objective_seconds == 10.0


def test_the_same_question_gives_the_same_bytes_but_for_the_time(tmp_path: Path) -> None:
    texts = []
    for name in ("a.json", "b.json"):
        plan_for().save(tmp_path / name)
        data = json.loads((tmp_path / name).read_text())
        data["repro"].pop("time")
        texts.append(json.dumps(data))
    assert texts[0] == texts[1]


def test_constraints_survive(tmp_path: Path) -> None:
    constraints = Constraints(pin=(("head", "d1"),), colocate=(("l1", "l2"),))
    place_problem(two_towers().with_constraints(constraints)).save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").problem.constraints == constraints


def test_a_plan_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan_for().save(path)
    data = json.loads(path.read_text())
    data["problem"]["costs"]["seconds"]["d0"][0] = 1e-9
    path.write_text(json.dumps(data))
    with pytest.raises(BadInput, match="changed after it was made"):
        Plan.load(path)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "",
        "nonsense",
        '{"format": "stead.plan", "version": 1}',
        '{"format": "stead.plan", "version": 99}',
    ],
)
def test_files_that_are_no_plans_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(BadInput):
        Plan.load(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write"):
        plan_for().save(tmp_path / "missing" / "plan.json")


def test_a_failed_write_leaves_the_old_plan_alone(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan_for().save(path)
    before = path.read_bytes()
    (tmp_path / ".plan.json.part").mkdir()
    with pytest.raises(BadInput):
        plan_for().save(path)
    assert path.read_bytes() == before
