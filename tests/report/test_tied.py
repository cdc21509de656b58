"""What a plan says about tied weights: a GPT-2 of 2 layers, width 64 and 512 words on devices 1 MB/s apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stead.cli.output import plan_document
from stead.cluster import Cluster, Device, Level, link_all
from stead.costs import Costs
from stead.graph import Graph
from stead.graph.paths import forward_anchors
from stead.plan import Plan
from stead.problem import Latency, Objective, Placement, Problem, Throughput
from stead.readers.hf import HuggingFace
from stead.report import explain, summary
from stead.sim import simulate
from stead.solvers import Solution

CONFIG = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 64,
    "n_head": 2,
    "n_layer": 2,
    "n_positions": 32,
    "vocab_size": 512,
}
WEIGHT = 512 * 64 * 2  # bf16


def plan_of(phase: Any, objective: Objective, granularity: Any = "layers") -> Plan:
    """The head and the loss with their way back on the second device, the rest on the first."""
    reader = HuggingFace(phase=phase, context=8, granularity=granularity)
    graph: Graph = reader.from_config(CONFIG).graph
    names = ("one", "two")
    cluster = Cluster(tuple(Device(name) for name in names), link_all(names, bytes_per_second=1e6))
    costs = Costs(graph, cluster, np.ones((len(graph), 2)))
    problem = Problem(graph, cluster, costs, objective=objective)
    heads = [v for v, name in enumerate(graph.operator_names) if name in ("lm_head", "loss")]
    placement = Placement(problem, np.isin(forward_anchors(graph), heads).astype(np.uint8))
    assert placement.violations() == []
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


@pytest.mark.parametrize("granularity", ["layers", "blocks"])
@pytest.mark.parametrize("objective", [Latency(), Throughput(microbatches=2, schedule="1f1b")])
def test_the_plan_says_where_a_tied_weight_is_and_what_its_all_reduce_takes(
    objective: Objective, granularity: Any
) -> None:
    plan = plan_of("train", objective, granularity)
    [tied] = explain(plan).tied
    assert (tied.name, tied.size_bytes, tied.devices) == ("transformer.wte.weight", WEIGHT, ("one", "two"))
    assert tied.sent_bytes == 2 * WEIGHT
    assert tied.all_reduce_seconds is not None
    assert tied.all_reduce_seconds >= WEIGHT / 1e6
    line = "transformer.wte.weight (64.0 KiB) is held by one and two: kept equal by one all-reduce per step ("
    assert f" tied     {line}" in summary(explain(plan))
    [written] = plan_document(plan)["tied"]
    assert (written["name"], written["devices"]) == (tied.name, ["one", "two"])
    assert written["all_reduce_seconds"] == tied.all_reduce_seconds


def test_without_a_time_line_the_bytes_are_told() -> None:
    plan = plan_of("train", Throughput())
    [tied] = explain(plan).tied
    assert tied.all_reduce_seconds is None
    assert "one all-reduce per step (128.0 KiB sent)" in summary(explain(plan))


def test_in_inference_a_tied_weight_is_only_held_twice() -> None:
    plan = plan_of("prefill", Latency())
    [tied] = explain(plan).tied
    assert not tied.is_trained
    text = summary(explain(plan))
    assert " tied     transformer.wte.weight (64.0 KiB) is held by one and two\n" in text


def test_a_weight_on_one_device_is_not_told() -> None:
    plan = plan_of("train", Latency())
    problem = plan.problem
    together = Placement(problem, np.zeros(len(problem.graph), dtype=np.uint8))
    alone = Plan(problem, Solution(together, simulate(problem, together).objective_seconds))
    assert explain(alone).tied == ()
    assert " tied " not in summary(explain(alone))


def test_a_weight_on_one_of_many_devices_is_not_told() -> None:
    graph, names = plan_of("prefill", Latency()).problem.graph, tuple(f"d{n}" for n in range(300))
    cluster = Cluster(tuple(Device(name) for name in names), levels=(Level("all", 300, bytes_per_second=1e6),))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((len(graph), 300))))
    late = Placement(problem, np.full(len(graph), 280))
    assert explain(Plan(problem, Solution(late, simulate(problem, late).objective_seconds))).tied == ()
