"""Pictures of plans: every event and every node as the plan has it."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from stead.errors import BadInput
from stead.export import exporter
from stead.export.views import check_trace, dot_text, memory_over
from stead.problem import Latency, Throughput
from stead.testing import tiny_layers
from stead.testing.exporters import drawn_plans, plan_of


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "objective", [Latency(), Throughput(microbatches=3), Throughput(microbatches=2, schedule="1f1b")]
)
def test_traces_have_no_overlaps_paired_flows_and_memory_within_limits(
    objective: Latency | Throughput, seed: int
) -> None:
    problem = tiny_layers(4, 3, objective=objective)
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(problem.graph) + 1, 2))
    plan = plan_of(problem, np.searchsorted(cuts, np.arange(len(problem.graph)), side="right").tolist())
    packed = exporter("trace").export(plan).files["trace.json.gz"]
    assert isinstance(packed, bytes)
    events = json.loads(gzip.decompress(packed))["traceEvents"]
    check_trace(events)
    assert memory_over(events, dict.fromkeys(range(3), 2**40)) == []
    assert sum(one["ph"] == "s" for one in events) == sum(one["ph"] == "f" for one in events)
    assert exporter("trace").verify(plan).placed.result == "passed"


def test_a_trace_that_is_wrong_is_told() -> None:
    event = {"ph": "X", "name": "a", "pid": 0, "tid": 0, "ts": 0.0, "dur": 2.0}
    for changed, why in (
        ([event, {**event, "ts": 1.0}], "overlap"),
        ([{**event, "dur": -1.0}], "negative"),
        ([{**event, "pid": "0"}], "whole numbers"),
        ([{**event, "ph": "s", "id": 3}], "flow"),
    ):
        with pytest.raises(BadInput, match=why):
            check_trace(changed)


def test_memory_beyond_a_limit_fails_the_check_of_a_trace() -> None:
    event = {"ph": "C", "name": "memory", "pid": 0, "tid": 0, "ts": 0.0, "args": {"bytes": 9}}
    assert memory_over([event], {0: 8}) == [0]
    plan = plan_of(tiny_layers().with_memory("d0", 20), [0] * 11)
    assert exporter("trace").verify(plan).memory.result == "failed"


def test_a_full_pipeline_has_no_time_line() -> None:
    plan = drawn_plans(tiny_layers(objective=Throughput()), 1)[0]
    with pytest.raises(BadInput, match="a full pipeline has no time line; plan with --microbatches"):
        exporter("trace").export(plan)


def test_graphs_for_graphviz_are_coloured_by_device_and_show_crossings(tmp_path: Path) -> None:
    plan = plan_of(tiny_layers(2), [0, 0, 0, 1, 1, 1, 1])
    text = dot_text(plan)
    assert text.count(" -> ") == 6
    assert text.count("color=red") == 1
    assert text.count("fillcolor") == 7
    assert exporter("dot").verify(plan).placed.result == "passed"
    if shutil.which("dot"):
        (tmp_path / "plan.dot").write_text(text)
        subprocess.run(["dot", "-Tsvg", tmp_path / "plan.dot", "-o", tmp_path / "plan.svg"], check=True)


def test_node_data_have_the_form_of_model_explorer() -> None:
    plan = plan_of(tiny_layers(2), [0, 0, 0, 1, 1, 1, 1])
    files = exporter("model-explorer", graph="main").export(plan).files
    data = json.loads(files["placement.nd.json"])["main"]
    assert data["results"]["lm_head"]["value"] == "d1"
    assert data["showExpandedSummaryOnGroupNode"] is True
    times = json.loads(files["time.nd.json"])["main"]
    assert times["results"]["lm_head"] == {"value": 1e6}
    assert [one["stop"] for one in times["gradient"]] == [0, 1]
    assert exporter("model-explorer").verify(plan).placed.result == "passed"


def test_model_explorers_own_classes_give_the_same_node_data() -> None:
    pytest.importorskip("model_explorer.node_data_builder", reason="ai-edge-model-explorer is not installed")
    answer = exporter("model-explorer").verify(drawn_plans(tiny_layers(), 2)[1]).placed
    assert "own classes" in answer.detail
