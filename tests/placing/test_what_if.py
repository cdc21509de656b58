"""What if: the same placement re-simulated in other circumstances, and the best one found anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stead.cli.main import exit_code
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Roofline, Source
from stead.errors import BadInput
from stead.graph import GraphBuilder
from stead.placing.place import place, place_problem
from stead.placing.plans_compared import compare
from stead.placing.what_if import Changes, cases_of, outcome_of
from stead.plan import Plan
from stead.problem import Constraints, Placement, Problem
from stead.solvers import Budget, Solution
from stead.testing import chain3, two_towers
from stead.workloads.demo import demo_graph


def plan_of(problem: Problem, devices: list[int]) -> Plan:
    from stead.sim import simulate

    placement = Placement(problem, devices)
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


def priced() -> Problem:
    """a (100 FLOP) -> b (300 FLOP) on two devices of 100 FLOP/s; 4 bytes between them take 4 s."""
    build = GraphBuilder()
    a = build.tensor(build.operator("a", flops=100.0), size_bytes=4)
    build.operator("b", flops=300.0, reads=(a,))
    graph = build.build()
    devices = tuple(Device(name, flops_per_second={"fp32": 100.0}) for name in ("d0", "d1"))
    cluster = Cluster(devices, link_all(("d0", "d1"), bytes_per_second=1.0))
    return Problem(graph, cluster, Roofline().costs(graph, cluster))


def test_a_faster_device_runs_the_same_placement_faster_and_may_earn_another() -> None:
    plan = plan_of(priced(), [0, 0])  # 1 + 3 s
    (case,) = cases_of(plan, Changes(sets=("d1.flops=4x",)))
    outcome = outcome_of(case, Budget(evaluations=50))
    assert case.seconds == 4.0
    assert outcome.solved is not None
    assert outcome.solved.solution.objective_seconds == 1.0  # both on d1
    assert outcome.moved == 2


def test_a_faster_link_shortens_what_crosses_it() -> None:
    plan = plan_of(two_towers(), [0, 1, 0, 1, 0])  # 4 + 2.5 + 1 s
    (case,) = cases_of(plan, Changes(sets=("links.bandwidth=2x",)))
    assert case.seconds == 6.5


def test_measured_seconds_are_scaled_as_analytic_ones_change() -> None:
    problem = priced()
    seconds = problem.costs.seconds * 1.5
    costs = Costs(problem.graph, problem.cluster, seconds, sources=[[Source.MEASURED] * 2] * 2)
    plan = plan_of(Problem(problem.graph, problem.cluster, costs), [0, 0])  # 6 s
    (case,) = cases_of(plan, Changes(sets=("d0.flops=2x",)))
    assert case.seconds == 3.0
    assert case.problem.costs.source == Source.ANALYTIC


def test_more_memory_changes_no_time() -> None:
    plan = plan_of(two_towers(), [0, 1, 0, 1, 0])
    (case,) = cases_of(plan, Changes(sets=("d0.memory=1TiB",)))
    assert case.seconds == 7.5


def test_a_device_more_leaves_the_plan_as_it_is_with_its_order_and_sends() -> None:
    plan = place("zoo:lstm-grid?layers=2,steps=3,phase=train", "2x 3090", evaluations=2000)
    assert plan.placement.order is not None
    (case,) = cases_of(plan, Changes(adds=("3060",)))
    assert case.problem.cluster.names == ("3090:0", "3090:1", "3060")
    assert case.seconds == plan.solution.objective_seconds


def test_a_device_less_says_what_was_there_and_is_solved_anew() -> None:
    plan = plan_of(two_towers(), [0, 1, 0, 1, 0])
    (case,) = cases_of(plan, Changes(removes=("d1",)))
    outcome = outcome_of(case, Budget(evaluations=50))
    assert (case.seconds, case.trouble) == (None, "2 operators are on d1, which is not among d0")
    assert outcome.solved is not None
    assert outcome.solved.solution.objective_seconds == 9.0


def test_solving_anew_is_never_worse_than_the_plan_itself() -> None:
    plan = place(demo_graph(), "3090,3060", evaluations=3000)
    for case in cases_of(plan, Changes(sweep="links.bandwidth=0.25x..4x")):
        outcome = outcome_of(case, Budget(evaluations=1))
        assert case.seconds is not None
        assert outcome.solved is not None
        assert outcome.solved.solution.objective_seconds <= case.seconds


def test_a_model_is_read_again_at_every_batch_of_a_sweep(tmp_path: Path) -> None:
    plan = place("zoo:lstm-grid?layers=2,steps=3,phase=train", "2x 3090", evaluations=30, options={"batch": 8})
    cases = cases_of(plan, Changes(sweep="batch=4..16"))
    assert [case.label for case in cases] == ["4", "8", "16"]
    assert cases[1].seconds == plan.solution.objective_seconds
    work = [float(case.problem.graph.flops.sum()) for case in cases]
    assert work[0] < work[1] == float(plan.problem.graph.flops.sum()) < work[2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (Changes(), "nothing is changed"),
        (Changes(sets=("d1.flops=2x",)), "d1 has no FLOP/s to change"),
        (Changes(sets=("d1.bandwidth=2x",)), "no limit that could be multiplied"),
        (Changes(sets=("d1.bandwidth=1GB/s",)), "d1 cannot be priced, and it changes"),
        (Changes(adds=("3090",)), "3090 cannot be priced, and it is new"),
        (Changes(removes=("d0", "d1")), "no device would be left"),
        (Changes(removes=("d0",)), "a pin or forbid of 'l1' there"),
        (Changes(sets=("batch=4",)), "does not say what it was read from"),
        (Changes(sweep="links.bandwidth=2x..1x"), "a range goes up"),
        (Changes(sweep="batch=" + ",".join(str(n) for n in range(1, 70))), "1 to 64 points"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(changes: Changes, said: str) -> None:
    pinned = two_towers().with_constraints(Constraints(pin=(("l1", "d0"),)))
    plan = plan_of(two_towers() if "left" in said else pinned, [0, 1, 0, 1, 0])
    with pytest.raises(BadInput, match=said):
        cases_of(plan, changes)


def test_a_sweep_is_text_json_and_a_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, curve = str(tmp_path / "plan.json"), tmp_path / "curve.svg"
    plan_of(two_towers(), [0, 1, 0, 1, 0]).save(path)
    wanted = ["what-if", path, "--sweep", "links.bandwidth=1x,2x", "--evaluations", "50"]
    assert exit_code([*wanted, "--curve", str(curve)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith((" 1x", " 2x"))]
    assert [row[:3] for row in rows] == [["1x", "7.50", "7.50"], ["2x", "6.50", "6.50"]]
    assert curve.read_text().count("<circle") == 4
    assert exit_code([*wanted, "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [(case["kept_seconds"], case["solved_seconds"]) for case in cases] == [(7.5, 7.5), (6.5, 6.5)]


def test_the_plan_found_anew_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, new = str(tmp_path / "plan.json"), str(tmp_path / "new.json")
    plan_of(priced(), [0, 0]).save(path)
    assert exit_code(["what-if", path, "--set", "d1.flops=4x", "--evaluations", "50", "-o", new]) == 0
    assert Plan.load(new).solution.objective_seconds == 1.0


def test_plans_are_compared_by_value_device_and_layer(tmp_path: Path) -> None:
    problem = two_towers()
    found = compare({"a": plan_of(problem, [0, 0, 0, 0, 0]), "b": plan_of(problem, [0, 1, 0, 1, 0])})
    assert found.differs == ()
    assert found.ratio(1) == 7.5 / 9
    assert [(use.device, use.operators, use.busy_seconds) for use in found.uses(1)] == [
        ("d0", 3, 5.0), ("d1", 2, 4.0),
    ]  # fmt: skip
    assert [(one.layer, one.source, one.target, one.seconds) for one in found.moved(1)] == [
        ("r1", "d0", "d1", 2.0), ("r2", "d0", "d1", 2.0),
    ]  # fmt: skip


def test_plans_of_different_graphs_are_not_compared() -> None:
    with pytest.raises(BadInput, match="only one has 'a'"):
        compare({"a": plan_of(chain3(), [0, 0, 0]), "b": plan_of(two_towers(), [0] * 5)})


def test_compare_prints_what_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, row in (("a.json", [0, 0, 0, 0, 0]), ("b.json", [0, 1, 0, 1, 0])):
        plan_of(two_towers(), row).save(tmp_path / name)
    assert exit_code(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    said = capsys.readouterr().out
    assert "2 operators moved" in said
    assert "0.833x" in said
    assert exit_code(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["plans"][1]["moved"]) == 2


def test_a_plan_for_the_changed_question_says_so_when_compared() -> None:
    plan = plan_of(two_towers(), [0, 1, 0, 1, 0])
    (case,) = cases_of(plan, Changes(sets=("links.bandwidth=2x",)))
    other = place_problem(case.problem, budget=Budget(evaluations=20))
    assert compare({"a": plan, "b": other}).differs == ("devices",)
