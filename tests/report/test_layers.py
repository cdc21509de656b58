"""Which layer goes where: ranges, parts, exceptions; every operator in one row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from stead.cli.main import exit_code
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.graph import Graph, GraphBuilder
from stead.plan import Plan
from stead.problem import Placement, Problem
from stead.report import LayerRow, explain, layer_rows, page
from stead.report.facts import resident_weights
from stead.report.layer_text import layer_table, layer_texts
from stead.sim import simulate
from stead.solvers import Solution


def chain(modules: Sequence[str], *, names: Sequence[str] | None = None) -> Graph:
    """Operators one after another, each with a weight of 10 bytes, called by their modules."""
    build, tensor = GraphBuilder("chain"), None
    for v, module in enumerate(modules):
        name = names[v] if names else module
        operator = build.operator(name, module=module, reads=[] if tensor is None else [tensor])
        build.weight(f"{name}.weight", size_bytes=10, users=[operator])
        tensor = build.tensor(operator, size_bytes=4)
    return build.build()


def problem_of(graph: Graph) -> Problem:
    """One second per operator on `gpu`, two on `cpu`, three on `npu`."""
    names = ("gpu", "cpu", "npu")
    cluster = Cluster(tuple(Device(name) for name in names), link_all(names, bytes_per_second=1e9))
    return Problem(graph, cluster, Costs(graph, cluster, np.tile([1.0, 2.0, 3.0], (len(graph), 1))))


def rows_of(graph: Graph, devices: Sequence[int]) -> tuple[LayerRow, ...]:
    problem = problem_of(graph)
    return layer_rows(problem, Placement(problem, list(devices)))


def decoder(blocks: int) -> Graph:
    """An embedding, so many blocks of attention and mlp, a norm and a head."""
    inner = [f"model.layers.{n}.{part}" for n in range(blocks) for part in ("self_attn", "mlp")]
    return chain(["model.embed_tokens", *inner, "model.norm", "lm_head"])


def test_blocks_are_told_as_ranges_beside_the_modules_around_them() -> None:
    rows = rows_of(decoder(4), [0] * 7 + [1] * 4)
    assert layer_texts(rows) == ["gpu: embed_tokens, layers 0-2", "cpu: layers 3, norm, lm_head"]
    assert [(row.operators, row.weight_bytes, row.seconds) for row in rows] == [
        (1, 10, 1.0),
        (6, 60, 6.0),
        (2, 20, 4.0),
        (1, 10, 2.0),
        (1, 10, 2.0),
    ]


def test_a_module_that_stands_apart_from_its_block_is_an_exception() -> None:
    assert layer_texts(rows_of(decoder(2), [0, 0, 0, 1, 0, 0, 1])) == [
        "gpu: embed_tokens, layers 0-1, norm",
        "cpu: lm_head",
        "except layers.1.self_attn on cpu",
    ]


def test_the_same_part_of_several_blocks_is_one_exception() -> None:
    graph = chain([f"layers.{n}.{part}" for n in range(5) for part in ("norm", "attn", "mlp")] + ["head"])
    rows = rows_of(graph, [0, 0, 1] * 3 + [0] * 6 + [1])
    assert layer_texts(rows)[-1] == "except mlp of layers 0-2 on cpu"


def test_experts_that_live_apart_are_said_in_one_rule() -> None:
    parts = ("self_attn", "mlp.gate", "mlp.experts.0", "mlp.experts.1", "mlp.experts.2")
    graph = chain(["embed", *(f"layers.{n}.{part}" for n in range(3) for part in parts), "head"])
    rows = rows_of(graph, [0, *[0, 0, 1, 1, 1] * 2, *[0] * 5, 1])
    assert layer_texts(rows) == ["gpu: embed, layers 0-2", "cpu: head, mlp.experts of layers 0-1"]
    assert not any(row.exception for row in rows)


def test_a_device_that_holds_parts_only_says_so_in_its_own_line() -> None:
    graph = chain([f"layers.{n}.{part}" for n in range(3) for part in ("norm", "attn", "mlp")])
    assert layer_texts(rows_of(graph, [0, 0, 1] * 2 + [0] * 3)) == [
        "gpu: layers 0-2",
        "cpu: mlp of layers 0-1",
    ]


def test_two_stacks_are_told_apart_by_their_names() -> None:
    stacks = [f"{side}.block.{n}" for side in ("encoder", "decoder") for n in range(3)]
    assert layer_texts(rows_of(chain(["shared", *stacks, "lm_head"]), [0] * 4 + [1] * 4)) == [
        "gpu: shared, encoder.block 0-2",
        "cpu: decoder.block 0-2, lm_head",
    ]


def test_a_graph_without_modules_is_told_by_stretches_of_its_order() -> None:
    graph = chain([""] * 20, names=[f"conv{v}" for v in range(20)])
    rows = rows_of(graph, [0] * 8 + [1] * 11 + [0])
    assert layer_texts(rows) == ["gpu: conv0 … conv7, conv19", "cpu: conv8 … conv18"]


def test_never_a_wall_of_names() -> None:
    graph = chain([""] * 1000, names=[f"conv{v}" for v in range(1000)])
    lines = layer_texts(rows_of(graph, [v % 2 for v in range(1000)]))
    assert len(lines) == 2
    assert all(
        len(text) < 160 and "and 492 more; `stead explain PLAN` lists all" in text for text in lines
    )


def test_many_exceptions_are_counted() -> None:
    graph = chain(
        ["embed", *(f"layers.{n}.{part}" for n in range(40) for part in "abcdefghijklmnopq"), "head"]
    )
    inner = [1 if part % 2 else 0 for _ in range(40) for part in range(17)]
    lines = layer_texts(rows_of(graph, [0, *inner, 1]))
    assert lines[:2] == ["gpu: embed, layers 0-39", "cpu: head"]
    (apart,) = lines[2:]  # eight of 17 parts of every block, five of them are named
    assert apart.startswith("except on cpu: b of layers 0-39, d of layers 0-39, ")
    assert apart.endswith("j of layers 0-39 and 3 more; `stead explain PLAN` lists all")


def test_forward_operators_decide_and_a_backward_pass_elsewhere_is_an_exception() -> None:
    build, tensor = GraphBuilder("train"), None
    for n in range(3):
        operator = build.operator(
            f"layers.{n}.mlp", module=f"layers.{n}.mlp", reads=[tensor] if tensor else []
        )
        tensor = build.tensor(operator, size_bytes=4)
    for n in (2, 1, 0):
        back = build.operator(
            f"layers.{n}.mlp.backward", reads=[tensor], phase="backward", twin=f"layers.{n}.mlp"
        )
        tensor = build.tensor(back, size_bytes=4)
    rows = rows_of(build.build(), [0, 0, 1, 1, 1, 1])
    assert layer_texts(rows) == ["gpu: layers 0-1", "cpu: layers 2", "except backward of layers 0-1 on cpu"]


def test_an_operator_without_a_module_counts_with_a_neighbour_on_its_device() -> None:
    graph = chain(["embed", "layers.0", "", "layers.1", "head"], names=["e", "a", "mask", "b", "h"])
    assert layer_texts(rows_of(graph, [0, 0, 1, 1, 1])) == ["gpu: embed, layers 0", "cpu: layers 1, head"]


@pytest.mark.parametrize("seed", range(20))
def test_every_operator_and_every_weight_of_a_device_is_in_one_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = ["", "embed", "head.a", "head", "model", *(f"model.layers.{n}{part}" for n in range(4) for part in
            ("", ".mlp", ".mlp.up", ".attn.q", ".mlp.experts.1"))]  # fmt: skip
    graph = chain([str(rng.choice(pool)) for _ in range(40)], names=[f"v{v}" for v in range(40)])
    problem = problem_of(graph)
    placement = Placement(problem, rng.integers(0, 3, size=40))
    rows = layer_rows(problem, placement)
    assert sum(row.operators for row in rows) == 40
    held = [sum(row.weight_bytes for row in rows if row.device == name) for name in problem.cluster.names]
    assert held == list(resident_weights(problem, placement))
    assert len({(row.device, row.name) for row in rows}) == len(rows)


def test_the_whole_map_is_what_explain_prints_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = given(decoder(30), [v % 2 for v in range(63)])
    path = tmp_path / "plan.json"
    plan.save(path)
    assert exit_code(["explain", str(path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    table = layer_table(explain(plan).layers)
    assert printed[: len(table)] == table
    assert exit_code(["explain", str(path), "--json"]) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    assert sum(row["operators"] for row in layers) == 63


def test_the_page_begins_with_the_layers_and_escapes_their_names() -> None:
    graph = chain(["<b>embed", "layers.0", "layers.1"])
    html = page(given(graph, [0, 0, 1]))
    assert "<b>embed" not in html
    assert "&lt;b&gt;embed" in html
    plain = html[html.index('<div id="plain">') :]
    assert plain.index("is proved") < plain.index("Which layer goes where") < plain.index("<h2>Beside")


def given(graph: Graph, devices: Sequence[int]) -> Plan:
    problem = problem_of(graph)
    placement = Placement(problem, list(devices))
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))
