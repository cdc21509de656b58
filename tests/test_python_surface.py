"""What a Python user sees: short representations, tables, notebooks, errors that carry their fixes."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest

import stead
from stead.cluster import Cluster, Device, link_all
from stead.errors import Infeasible, MissingExtra
from stead.graph import GraphBuilder
from stead.plan import Plan
from stead.problem import Constraints, Placement, Problem, Throughput
from stead.sim import simulate
from stead.solvers import Solution
from stead.testing import two_towers
from stead.workloads.demo import demo_graph


def placed(problem: Problem, devices: list[int]) -> Plan:
    placement = Placement(problem, devices)
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


TOWERS = placed(two_towers(), [0, 1, 0, 1, 0])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (TOWERS, "Plan('tiny', latency: 7.5 s per step, no bound; operators d0: 3, d1: 2)"),
        (TOWERS.solution, "Solution(7.5 s, no bound, no solver)"),
        (
            replace(TOWERS.solution, solver="auto", found_by="heft"),
            "Solution(7.5 s, no bound, auto, found by heft)",
        ),
        (TOWERS.problem, "Problem('tiny': 5 operators on d0, d1; latency, dataflow, fifo)"),
        (TOWERS.problem.cluster, "Cluster(d0, d1; 2 links)"),
        (TOWERS.problem.costs, "Costs(5 operators on 2 devices, imported)"),
        (TOWERS.trace, "Trace(7.5 s, fifo, feasible)"),
        (
            stead.explain(TOWERS),
            "Report(latency, dataflow, fifo: 7.5 s per step, no bound, operators d0: 3, d1: 2)",
        ),
    ],
)
def test_a_value_is_one_short_line(value: object, expected: str) -> None:
    assert repr(value) == expected


def test_what_was_loaded_is_one_short_line() -> None:
    said = repr(stead.load("zoo:towers", ["3090", "3060"]))
    assert said == "Loaded(Graph('towers', 14 operators, 14 tensors) on Cluster(3090, 3060; 2 links))"


def test_no_representation_shows_an_array() -> None:
    plan = stead.place(demo_graph(), ["3090", "3060"], evaluations=50)
    values = (
        plan,
        plan.solution,
        plan.problem,
        plan.problem.costs,
        plan.problem.cluster,
        plan.trace,
        plan.placement,
    )
    assert all(len(repr(value)) < 160 and "\n" not in repr(value) for value in (*values, stead.explain(plan)))


def test_a_list_of_devices_means_what_the_text_means() -> None:
    listed = stead.place(demo_graph(), devices=["3090", "3060"], evaluations=50)
    written = stead.place(demo_graph(), devices="3090,3060", evaluations=50)
    assert listed.problem.fingerprint == written.problem.fingerprint


def test_a_notebook_shows_a_table_without_script_and_with_escaped_names() -> None:
    build = GraphBuilder("<script>alert(1)</script>")
    build.operator("<img src=x>")
    graph = build.build()
    cluster = Cluster((Device("<b>d0</b>"),))
    html = placed(Problem(graph, cluster, stead.Costs(graph, cluster, [[1.0]])), [0])._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert "<b>d0" not in html
    assert "&lt;img src=x&gt;" in html
    assert "<table>" in html


def test_a_notebook_never_shows_a_wall_of_rows() -> None:
    plan = stead.place(demo_graph(), "3090,3060", evaluations=50, granularity="operator")
    torn = placed(plan.problem, [v % 2 for v in range(219)])
    assert len(torn._repr_html_()) < 8000


def test_layers_are_rows_with_device_name_operators_bytes_and_seconds() -> None:
    rows = TOWERS.layers()
    assert [(row.device, row.name, row.operators, row.seconds) for row in rows] == [
        ("d0", "l1", 1, 2.0),
        ("d0", "l2", 1, 2.0),
        ("d0", "head", 1, 1.0),
        ("d1", "r1", 1, 2.0),
        ("d1", "r2", 1, 2.0),
    ]


def test_a_frame_has_one_row_per_operator() -> None:
    pytest.importorskip("pandas")
    frame = TOWERS.to_frame()
    assert frame.columns.tolist() == [
        "name", "kind", "module", "phase", "device", "start_seconds", "finish_seconds", "seconds", "weight_bytes",
        "kv_bytes",
    ]  # fmt: skip
    assert frame["device"].tolist() == ["d0", "d1", "d0", "d1", "d0"]
    assert frame["finish_seconds"].tolist() == [2.0, 2.0, 4.0, 4.0, 7.5]
    assert frame["start_seconds"].iloc[4] == 6.5  # 4 s and 2.5 s for the tensor of the other tower


def test_a_frame_of_a_pipeline_has_no_times() -> None:
    pytest.importorskip("pandas")
    plan = placed(two_towers().with_objective(Throughput()), [0, 1, 0, 1, 0])
    assert all(math.isnan(value) for value in plan.to_frame()["start_seconds"])


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r'plan.to_frame\(\) needs pandas: pip install "stead\[pandas\]"'):
        TOWERS.to_frame()


def test_a_plan_prints_what_the_commands_print() -> None:
    assert TOWERS.summary() == stead.summary(stead.explain(TOWERS))
    assert TOWERS.explain("head").startswith("head (no kind) is on d0")


def heavy(sizes: list[int]) -> stead.Graph:
    build = GraphBuilder("heavy")
    for v, size in enumerate(sizes):
        build.weight(f"w{v}", size_bytes=size, users=[build.operator(f"v{v}", flops=1e9)])
    return build.build()


def small_cluster() -> Cluster:
    rates = {"fp32": 1e12}
    devices = tuple(
        Device(name, memory_bytes=100, flops_per_second=rates, bytes_per_second=1e9) for name in ("a", "b")
    )
    return Cluster(devices, link_all(["a", "b"], bytes_per_second=1e9))


def test_an_error_that_nothing_fits_carries_fixes_that_were_tried() -> None:
    with pytest.raises(Infeasible) as caught:
        stead.place(heavy([90, 90, 30]), small_cluster(), evaluations=200)
    texts = [fix.text for fix in caught.value.fixes]
    assert texts == [
        "20 B more on a (20 bytes)",
        "20 B more on b (20 bytes)",
        "allow the cpu: add it to --devices",
    ]
    assert all(stead.place_problem(fix.problem).trace.feasible for fix in caught.value.fixes)


def test_fixes_are_looked_for_when_they_are_asked_for_and_once() -> None:
    asked: list[int] = []
    error = Infeasible("nothing fits")
    assert error.fixes == ()
    error.fixed_by(lambda: asked.append(1) or ["more memory"])  # type: ignore[func-returns-value, list-item]
    assert asked == []
    assert (error.fixes, error.fixes, asked) == (("more memory",), ("more memory",), [1])


def test_an_impossible_pin_is_the_fix() -> None:
    constraints = Constraints(pin=(("v0", "a"), ("v1", "a")))
    with pytest.raises(Infeasible) as caught:
        stead.place(heavy([90, 90]), small_cluster(), constraints=constraints, evaluations=200)
    assert "drop --pin v0=a" in [fix.text for fix in caught.value.fixes]


def test_blocks_that_cannot_stay_whole_are_offered_to_be_split() -> None:
    build = GraphBuilder("blocks")
    for n in range(2):
        for part in ("up", "down"):
            operator = build.operator(f"layers.{n}.{part}", module=f"layers.{n}.{part}", flops=1e9)
            build.weight(f"{n}.{part}", size_bytes=60 if n == 0 else 10, users=[operator])
    with pytest.raises(Infeasible) as caught:
        stead.place(build.build(), small_cluster(), evaluations=200, granularity="block")
    assert caught.value.fixes[0].text == "split blocks: --granularity operator"


def test_dir_shows_the_public_names_only() -> None:
    assert dir(stead) == sorted(stead.__all__)
