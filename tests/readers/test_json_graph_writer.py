"""What is written can be read, and is the same."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stead.costs import Given
from stead.graph import PHASES, Graph, GraphBuilder
from stead.readers import graph_text, read, write_graph
from stead.workloads.demo import demo_graph

names = st.text(st.sampled_from('ab:^.é\n"\\'), min_size=1, max_size=3)
amounts = st.floats(0, 1e300) | st.integers(0, 2**60).map(float) | st.just(-0.0)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of up to 6 operators whose names collide wherever they may."""
    build = GraphBuilder(draw(names))
    tensors, operators = [], []
    owners = draw(st.lists(names, unique=True, max_size=6))
    for owner in owners:
        added = build.operator(
            owner,
            kind=draw(st.sampled_from(["", "Conv"])),
            module=draw(st.sampled_from(["", "m.1"])),
            dtype=draw(st.sampled_from(["fp32", "fp16"])),
            phase=draw(st.sampled_from(PHASES)),
            twin=draw(st.sampled_from(["", *owners])),
            colocate=draw(st.sampled_from(["", "x", "y"])),
            flops=draw(amounts),
            moved_bytes=draw(amounts),
            reads=draw(st.lists(st.sampled_from(tensors), max_size=3)) if tensors else (),
            after=draw(st.lists(st.sampled_from(operators), max_size=2)) if operators else (),
        )
        operators.append(added)
        for _ in range(draw(st.integers(0, 3))):
            label = draw(st.sampled_from(["", f"^{owner}", *owners, "t"]))
            size = draw(st.sampled_from([0, 0, 1, 2**62]))
            shape, dtype = draw(st.sampled_from([((), ""), ((2, 0), "fp16"), ((1,), ""), ((), "fp32")]))
            kept = draw(st.booleans())
            tensors.append(
                build.tensor(added, size_bytes=size, kept=kept, name=label, shape=shape, dtype=dtype)
            )
        for source in draw(st.lists(names, max_size=2)):
            build.fold(source, added)
    for _ in range(draw(st.integers(0, 4)) if operators else 0):
        users = draw(st.lists(st.sampled_from(operators), min_size=1, max_size=3))
        label = draw(names | st.just(f"{owners[users[0]]}.weight"))
        build.weight(label, size_bytes=draw(st.integers(0, 3)), users=users)
    return build.build()


@st.composite
def priced(draw: st.DrawFn) -> tuple[Graph, Given]:
    """Graphs with seconds."""
    graph = draw(graphs())
    count = len(graph)
    seconds = amounts | st.just(math.inf) | st.just(math.nan)
    keys = st.sampled_from(["gpu", "cpu", "*", "gpu0"])
    columns = draw(st.dictionaries(keys, st.lists(seconds, min_size=count, max_size=count), max_size=3))
    workspace = draw(
        st.dictionaries(keys, st.lists(st.integers(-1, 5), min_size=count, max_size=count), max_size=3)
    )
    tensors = graph.tensor_count
    travel = draw(st.none() | st.lists(amounts, min_size=tensors, max_size=tensors))
    return graph, Given(
        {key: np.array(column, dtype=np.float64) for key, column in columns.items()},
        {key: np.array(column, dtype=np.int64) for key, column in workspace.items()},
        None if travel is None else np.array(travel, dtype=np.float64),
    )


@settings(suppress_health_check=list(HealthCheck))
@given(case=priced())
def test_any_graph_comes_back_to_the_last_bit(tmp_path: Path, case: tuple[Graph, Given]):
    graph, prices = case
    write_graph(tmp_path / "graph.json", graph, prices)
    model = read(tmp_path / "graph.json")
    assert model.graph.fingerprint == graph.fingerprint
    back = model.given or Given({})
    silent = np.full(len(graph), math.nan)
    for key in {*prices.columns, *back.columns}:
        assert prices.columns.get(key, silent).tobytes() == back.columns.get(key, silent).tobytes()
    for v in range(len(graph)):
        bytes_by_key = {key: column[v] for key, column in prices.workspace.items() if column[v] >= 0}
        if any(bytes_by_key.values()):
            assert {
                key: column[v] for key, column in back.workspace.items() if column[v] >= 0
            } == bytes_by_key
        else:
            assert all(column[v] <= 0 for column in back.workspace.values())
    if graph.tensor_count and prices.tensor_seconds is not None and back.tensor_seconds is not None:
        assert back.tensor_seconds.tobytes() == prices.tensor_seconds.tobytes()
    else:
        assert back.tensor_seconds is None or not back.tensor_seconds.any()


@pytest.mark.parametrize("name", ["demo.json", "demo.json.gz"])
def test_the_demo_graph_comes_back(here, name):
    graph = demo_graph()
    write_graph(name, graph)
    assert read(name).graph.fingerprint == graph.fingerprint


def test_equal_graphs_give_equal_files_also_compressed(here):
    write_graph("one.json.gz", demo_graph())
    write_graph("two.json.gz", demo_graph())
    assert Path("one.json.gz").read_bytes() == Path("two.json.gz").read_bytes()


def test_defaults_are_left_out_and_every_operator_has_a_line():
    build = GraphBuilder("pair")
    a = build.operator("a", flops=2e9)
    build.operator("b", reads=[build.tensor(a, size_bytes=4)])
    build.weight("a.weight", size_bytes=7, users=[a])
    assert graph_text(build.build()) == (
        '{\n"format": "stead.graph",\n"version": 1,\n"name": "pair",\n"operators": [\n'
        '{"name": "a", "flops": 2000000000, "outputs": [{"bytes": 4}], "parameters": 7},\n'
        '{"name": "b", "reads": ["a"]}\n]\n}\n'
    )


def test_what_is_written_is_standard_json(here):
    write_graph("demo.json", demo_graph())
    assert json.loads(Path("demo.json").read_text())["format"] == "stead.graph"


def test_seconds_of_another_graph_are_refused(here, refusal):
    prices = Given({"gpu": np.zeros(3)})
    assert refusal(write_graph, "demo.json", demo_graph(), prices) == (
        "column 'gpu' has shape (3,), the graph has 219 operators"
    )
    prices = Given({}, tensor_seconds=np.zeros(3))
    assert "tensor seconds have shape (3,)" in refusal(write_graph, "demo.json", demo_graph(), prices)
    prices = Given({"gpu": np.full(219, -1.0)})
    assert refusal(write_graph, "demo.json", demo_graph(), prices) == "column 'gpu' has negative seconds"


def test_a_place_that_cannot_be_written_is_one_line(here, refusal):
    assert refusal(write_graph, "no/folder.json", demo_graph()) == (
        "cannot write no/folder.json: there is no folder no; make it first"
    )


def test_a_name_that_is_no_text_is_refused(here, refusal):
    build = GraphBuilder("odd")
    build.operator("\ud83d")
    assert "half a character" in refusal(write_graph, "odd.json", build.build())
