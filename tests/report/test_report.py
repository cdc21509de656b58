"""Facts and their rendering."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import GraphBuilder
from stead.placing.place import place_problem, run_baselines
from stead.plan import Plan
from stead.printing.look import Look
from stead.problem import Constraints, Placement, Problem, Throughput
from stead.report import (
    Report,
    RuleFacts,
    explain,
    explain_named,
    explain_operators,
    named_text,
    operator_text,
    page,
    summary,
)
from stead.report.chrome_trace import chrome_trace, write_trace
from stead.sim import simulate
from stead.solvers import Budget, Solution
from stead.testing import chain3, diamond, two_towers


def given_plan(problem: Problem, devices: list[int]) -> Plan:
    """A plan with a placement of one's own."""
    placement = Placement(problem, devices)
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


def test_the_facts_of_a_plan_are_those_of_its_trace() -> None:
    report = explain(given_plan(two_towers(), [0, 1, 0, 1, 0]))
    assert (report.objective_seconds, report.changes) == (7.5, 1)
    assert sorted((device.operators, device.compute_seconds) for device in report.devices) == [
        (2, 4.0),
        (3, 5.0),
    ]


def test_a_tensor_sent_to_two_readers_on_one_device_counts_once() -> None:
    assert explain(given_plan(diamond(), [0, 1, 1, 0])).changes == 3


def lone_operator() -> Problem:
    """One operator that takes a second on either of two equal devices."""
    build = GraphBuilder()
    build.operator("a")
    graph = build.build()
    cluster = Cluster((Device("d0"), Device("d1")), link_all(["d0", "d1"], bytes_per_second=1.0))
    return Problem(graph, cluster, Costs(graph, cluster, np.ones((1, 2))))


def test_placement_does_not_matter_where_every_rule_is_as_good_and_nothing_better_exists() -> None:
    report = explain(place_problem(lone_operator()))
    assert (report.placement_matters, report.gap) == (False, 0.0)
    assert "placement does not matter here" in summary(report)


def test_placement_matters_where_one_rule_is_as_good_and_another_is_far_away() -> None:
    report = explain(place_problem(chain3()))  # 4 s on one device, 6.5 s in two parts
    assert report.placement_matters
    assert report.as_good is not None
    assert report.as_good.name == "single:d0"
    assert report.worst_rule is not None
    assert report.worst_rule.objective_seconds is not None
    assert report.worst_rule.objective_seconds >= 6.5
    text = summary(report)
    assert "placement does not matter" not in text
    assert "the simple rule single:d0 is as good" in text
    assert "<b>As good:</b> the simple rule single:d0" in page(place_problem(chain3()))


@pytest.mark.parametrize(
    "bound",
    [{"bound_seconds": 0.9}, {"bound_seconds": 1.0, "scope": "contiguous stages"}, {"bound_seconds": 0.0}],
)
def test_nobody_says_that_placement_does_not_matter_without_a_proof(bound: dict[str, object]) -> None:
    plan = place_problem(lone_operator())
    unproved = replace(plan.solution, **bound)  # type: ignore[arg-type]
    report = explain(Plan(plan.problem, unproved, plan.baselines))
    assert report.placement_matters
    assert "is as good" in summary(report)


def test_a_plan_without_a_rule_within_two_percent_has_none_as_good() -> None:
    plan = place_problem(two_towers())  # 7.5 s; 9 s on one device
    lone = Plan(
        plan.problem, plan.solution, tuple(rule for rule in plan.baselines if rule.name.startswith("single"))
    )
    report = explain(lone)
    assert report.placement_matters
    assert report.as_good is None


def with_rules(seconds: list[float | None]) -> Report:
    """The facts of a plan of 7.5 s beside rules r0, r1, ... of so many seconds."""
    report = explain(given_plan(two_towers(), [0, 1, 0, 1, 0]))
    rules = tuple(
        RuleFacts(f"r{i}", value, "" if value else "too large", (value or math.inf) / 7.5, (0, 0), (0, 0), i)
        for i, value in enumerate(seconds)
    )
    return replace(report, rules=rules)


def test_rules_within_half_a_percent_share_a_row() -> None:
    lines = summary(with_rules([8.0, 8.039, 8.041, 9.0])).splitlines()
    (first,) = [line for line in lines if line.startswith("   r0 ")]
    assert first.split()[1:] == ["8.00", "0.125", "0", "0", "0", "1.07x", "slower", "also:", "r1"]
    assert sum(line.startswith(("   r2 ", "   r3 ")) for line in lines) == 2


def test_rules_refused_for_the_same_reason_share_a_row() -> None:
    lines = summary(with_rules([None, 8.0, None])).splitlines()
    assert [line.split() for line in lines if "r0" in line] == [["r0,", "r2", "too", "large"]]


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_of_a_summary_is_wider_than_the_screen(width: int) -> None:
    build = GraphBuilder("long names")
    for v in range(12):
        build.operator(f"model.layers.{v}." + "block." * 30 + "up_proj", flops=1e9)
    graph = build.build()
    names = [f"accelerator-with-a-very-long-name-{'x' * 60}-{d}" for d in range(12)]
    cluster = Cluster(tuple(Device(name) for name in names), link_all(names, bytes_per_second=1e9))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((12, 12))))
    plan = place_problem(problem, budget=Budget(evaluations=50))
    report = with_rules([7.6, 7.61, None, 700.0])
    long = replace(report, rules=tuple(replace(rule, name=rule.name * 40, reason="why " * 80) for rule in report.rules))
    look = Look(width, wraps=True)
    texts = [summary(explain(plan), look), summary(long, look)]
    texts += [operator_text(one, look) for one in explain_operators(plan, "*")]
    texts.append(named_text(explain_named(plan, "*"), look))
    for text in texts:
        words = [line for line in text.splitlines() if len(line) > width]
        assert [line for line in words if max(map(len, line.split())) < width - 12] == []


def test_names_cannot_steer_a_terminal() -> None:
    build = GraphBuilder("evil")
    build.operator("a\x1b]0;owned\x07\u202eb\r\u2028", flops=1, kind="k\x9b31m")
    graph = build.build()
    cluster = Cluster((Device("d\x9b2J\u202e"),))
    plan = place_problem(Problem(graph, cluster, Costs(graph, cluster, np.ones((1, 1)))))
    (report,) = explain_operators(plan, "*")
    for colour in (False, True):
        look = Look(colour=colour)
        text = summary(explain(plan), look) + operator_text(report, look)
        left = re.sub(r"\x1b\[[0-9;]+m", "", text) if colour else text
        assert [sign for sign in left if not sign.isprintable() and sign != "\n"] == []
        assert "d\\x9b2J\\u202e" in text


def test_moving_an_operator_costs_what_the_simulator_says() -> None:
    plan = given_plan(two_towers(), [0, 1, 0, 1, 0])
    for operator in plan.problem.graph.operators():
        (report,) = explain_operators(plan, operator.name)
        for d, one in enumerate(report.alternatives):
            moved = plan.placement.devices.copy()
            moved[operator.index] = d
            expected = simulate(plan.problem, Placement(plan.problem, moved)).objective_seconds - 7.5
            assert one.change_seconds == pytest.approx(expected, abs=1e-12)


def reason(problem: Problem, devices: list[int], name: str, device: str) -> str:
    (report,) = explain_operators(given_plan(problem, devices), name)
    return next(one.reason for one in report.alternatives if one.device == device)


def uneven(**options: object) -> Problem:
    """a -> b; b runs twice as fast on d1, which a tensor reaches in 10 s; each weighs 10 bytes."""
    build = GraphBuilder()
    a = build.operator("a")
    x = build.tensor(a, size_bytes=10)
    b = build.operator("b", reads=[x])
    build.weight("wa", size_bytes=10, users=[a])
    build.weight("wb", size_bytes=10, users=[b])
    graph = build.build()
    small = options.pop("small", 10**9)
    cluster = Cluster(
        (Device("d0", memory_bytes=10**9), Device("d1", memory_bytes=small)),  # type: ignore[arg-type]
        link_all(["d0", "d1"], bytes_per_second=1.0),
    )
    seconds = np.array([[1.0, options.pop("a_there", 2.0)], [2.0, 1.0]])
    return Problem(graph, cluster, Costs(graph, cluster, seconds), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("problem", "name", "expected"),
    [
        (uneven(), "b", "transfer > gain"),
        (uneven(), "a", "slower there"),
        (uneven(a_there=math.inf), "a", "unsupported"),
        (uneven(constraints=Constraints(pin=(("a", "d0"),))), "a", "pinned"),
        (uneven(small=5), "b", "memory: d1 is short by"),
    ],
)
def test_every_reason_is_the_right_one(problem: Problem, name: str, expected: str) -> None:
    assert reason(problem, [0, 0], name, "d1").startswith(expected)


def test_a_pattern_that_fits_too_much_is_refused() -> None:
    build = GraphBuilder()
    for v in range(300):
        build.operator(f"v{v}")
    graph = build.build()
    cluster = Cluster((Device("d0"),))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((300, 1))))
    with pytest.raises(BadInput, match="300 operators fit"):
        explain_operators(given_plan(problem, [0] * 300), "*")


def test_a_name_that_fits_several_tells_what_moving_all_of_them_does() -> None:
    """Both of the left tower beside the right one: 8 s of work, then r2's tensor crosses in 2.5 s, then the head."""
    report = explain_named(given_plan(two_towers(), [0, 1, 0, 1, 0]), "l*")
    assert (report.together.device, report.count) == ("d0", 2)
    assert [one.seconds for one in report.together.alternatives] == [4.0, 4.0]
    assert [one.objective_seconds for one in report.together.alternatives] == [7.5, 11.5]
    assert [one.reason for one in report.together.alternatives] == ["here", "transfer"]
    assert [one.name for one in report.each] == ["l1", "l2"]


def test_operators_on_several_devices_are_nowhere_as_a_whole() -> None:
    report = explain_named(given_plan(two_towers(), [0, 1, 0, 1, 0]), "*1")
    assert report.together.device == "d0, d1"
    assert "here" not in [one.reason for one in report.together.alternatives]
    lines = named_text(report).splitlines()
    assert lines[0].startswith("*1 (2 operators) is on d0, d1")
    assert [line.split()[:2] for line in lines if " l1 " in line or " r1 " in line] == [["l1", "d0"], ["r1", "d1"]]


def test_more_than_can_be_shown_are_explained_as_one() -> None:
    build = GraphBuilder("many")
    for v in range(300):
        build.operator(f"op{v}", flops=1)
    graph = build.build()
    cluster = Cluster((Device("one"),))
    plan = place_problem(Problem(graph, cluster, Costs(graph, cluster, np.ones((300, 1)))))
    assert "300 operators are too many to show one by one" in named_text(explain_named(plan, "*"))


def test_operator_text_names_every_device() -> None:
    (report,) = explain_operators(given_plan(two_towers(), [0, 1, 0, 1, 0]), "head")
    text = operator_text(report)
    assert "head (no kind) is on d0" in text
    assert text.splitlines()[3].split() == [">", "d0", "1.00", "7.50", "here"]


def test_trace_events_do_not_overlap_within_a_thread() -> None:
    events = chrome_trace(given_plan(two_towers(), [0, 1, 0, 1, 0]).trace)["traceEvents"]
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    assert len(lanes) == 3
    for spans in lanes.values():
        spans.sort()
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_a_trace_says_what_is_critical_and_which_micro_batch_it_is() -> None:
    plan = given_plan(two_towers(Throughput(microbatches=2)), [0, 1, 0, 1, 0])
    events = chrome_trace(plan.trace)["traceEvents"]
    ran = [one for one in events if one["ph"] == "X" and one["tid"] == 0]
    assert sorted(one["args"]["microbatch"] for one in ran) == [0] * 5 + [1] * 5
    told = {one["name"] for one in ran if one["args"].get("critical")}
    assert told == {step.name for step in plan.trace.critical_path() if step.kind == "operator"}
    assert [one["ph"] for one in events if one["ph"] in "sf"] == ["s", "f"] * 2


def test_counters_of_a_trace_sum_to_the_memory_of_the_device() -> None:
    plan = given_plan(diamond(), [0, 1, 1, 0])
    counters = [one for one in chrome_trace(plan.trace)["traceEvents"] if one["ph"] == "C" and one["pid"] == 1]
    assert max(sum(one["args"].values()) for one in counters) == plan.trace.peak_bytes[1]


def test_a_packed_trace_is_the_same_trace(tmp_path: Path) -> None:
    trace = given_plan(diamond(), [0, 1, 1, 0]).trace
    write_trace(trace, tmp_path / "t.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes())) == chrome_trace(trace)


def test_a_rule_that_beats_the_plan_is_named() -> None:
    problem = two_towers(Throughput())
    rules = run_baselines(problem)
    worst = max(
        (rule for rule in rules if rule.placement is not None), key=lambda rule: rule.objective_seconds or 0.0
    )
    assert worst.placement is not None
    solution = Solution(
        worst.placement, worst.objective_seconds or 0.0, solver="given", scope="contiguous stages"
    )
    report = explain(Plan(problem, solution, rules, {}))
    assert report.beaten_by is not None
    assert report.placement_matters
    assert f"the rule {report.beaten_by.name} is better" in summary(report)
    assert "given looks at contiguous stages only" in summary(report)
