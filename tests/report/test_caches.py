"""Caches of keys and values are told from weights: in facts, tables, rows of layers, frames, and by `stead doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stead.cli.main import exit_code
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.graph import Graph, GraphBuilder
from stead.plan import Plan
from stead.problem import Placement, Problem
from stead.readers import write_graph
from stead.report import explain, operator_columns, page, summary
from stead.report.layer_text import layer_table
from stead.sim import simulate
from stead.solvers import Solution

MIB = 2**20


def two_blocks(*, caches: bool = True) -> Graph:
    """Attention with 3 MiB of weights and 5 MiB of keys and values in each of two blocks, then a head of 7 MiB."""
    build = GraphBuilder("two blocks")
    reads = []
    for n in range(2):
        name = f"layers.{n}.attn"
        attention = build.operator(name, module=name, reads=reads, flops=1e9, dtype="fp16")
        build.weight(f"{name}.weight", size_bytes=3 * MIB, users=[attention])
        if caches:
            build.weight(f"{name}.kv_cache", size_bytes=5 * MIB, users=[attention])
        reads = [build.tensor(attention, size_bytes=4)]
    head = build.operator("head", module="head", reads=reads, flops=1e9, dtype="fp16")
    build.weight("head.weight", size_bytes=7 * MIB, users=[head])
    return build.build()


def plan_of(graph: Graph) -> Plan:
    """The first block on one device, the rest on another."""
    cluster = Cluster((Device("a"), Device("b")), link_all(["a", "b"], bytes_per_second=1e9))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((3, 2))))
    placement = Placement(problem, [0, 1, 1])
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


def test_facts_have_caches_apart_from_weights() -> None:
    report = explain(plan_of(two_blocks()))
    assert (report.weight_bytes, report.kv_bytes) == (13 * MIB, 10 * MIB)
    held = [(device.weight_bytes, device.kv_bytes) for device in report.devices]
    assert held == [(3 * MIB, 5 * MIB), (10 * MIB, 5 * MIB)]


def test_the_table_of_devices_has_a_column_for_caches_where_there_are_any() -> None:
    lines = summary(explain(plan_of(two_blocks()))).splitlines()
    first = next(n for n, text in enumerate(lines) if text.startswith(" device "))
    column = lines[first].index("KV") + len("KV")
    cells = [text[:column].split()[-1] for text in lines[first + 1 : first + 4]]
    assert cells == ["MiB", "5.00", "5.00"]
    assert any("weights 13.0 MiB   KV cache 10.0 MiB" in text for text in lines)
    assert "KV" not in summary(explain(plan_of(two_blocks(caches=False))))


def test_rows_of_layers_have_caches_apart_from_weights() -> None:
    rows = plan_of(two_blocks()).layers()
    assert [(row.name, row.weight_bytes // MIB, row.kv_bytes // MIB) for row in rows] == [
        ("layers 0", 3, 5),
        ("layers 1", 3, 5),
        ("head", 7, 0),
    ]
    assert "KV" in layer_table(rows)[0].split()
    assert "KV" not in layer_table(plan_of(two_blocks(caches=False)).layers())[0].split()


def test_the_page_has_a_column_for_caches_where_there_are_any() -> None:
    assert page(plan_of(two_blocks())).count("<th>KV</th>") == 1
    assert "<th>KV</th>" not in page(plan_of(two_blocks(caches=False)))


def test_a_frame_has_caches_apart_from_weights() -> None:
    columns = operator_columns(plan_of(two_blocks()))
    assert columns["weight_bytes"] == [3 * MIB, 3 * MIB, 7 * MIB]
    assert columns["kv_bytes"] == [5 * MIB, 5 * MIB, 0]


def test_place_and_doctor_say_how_much_is_cached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tmp_path / "model.json")
    write_graph(model, two_blocks())
    assert exit_code(["doctor", model]) == 0
    [memory] = [text for text in capsys.readouterr().out.splitlines() if text.startswith(" memory")]
    assert memory.split(maxsplit=1)[1] == f"parameters 13.0 MiB ({13 * MIB} bytes), KV cache 10.0 MiB"
    assert exit_code(["doctor", model, "-d", "3090"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-1] == "fits"
    assert exit_code(["doctor", model, "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert (counted["parameter_bytes"], counted["kv_bytes"]) == (13 * MIB, 10 * MIB)
    assert exit_code(["place", model, "-d", "3090,3060", "--json"]) == 0
    placed = json.loads(capsys.readouterr().out)["latency"]
    assert sum(row["kv_bytes"] for row in placed["layers"]) == 10 * MIB
    assert sum(device["kv_bytes"] for device in placed["devices"].values()) == 10 * MIB
