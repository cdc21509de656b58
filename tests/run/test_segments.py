"""Cutting a file by a placement."""

from __future__ import annotations

import numpy as np
import pytest

from stead import GraphBuilder
from stead.errors import BadInput
from stead.graph import Graph
from stead.run.segments import CutFile, FileNode, cut_file, running_order


def letters() -> tuple[Graph, CutFile]:
    """a -> b -> c -> d, c -> e; the file also has a bias that is part of b, a constant and a dead node."""
    build = GraphBuilder("letters")
    a = build.tensor(build.operator("a"), size_bytes=4)
    b = build.tensor(build.operator("b", reads=(a,)), size_bytes=4)
    c = build.tensor(build.operator("c", reads=(b,)), size_bytes=4)
    build.operator("d", reads=(c,))
    build.operator("e", reads=(c,))
    build.fold("b_bias", 1)
    graph = build.build()
    nodes = [
        FileNode("weight", (), ("w",), constant=True),
        FileNode("a", ("x", "w"), ("ta",)),
        FileNode("b", ("ta", "w"), ("tb0",)),
        FileNode("b_bias", ("tb0",), ("tb",)),
        FileNode("c", ("tb",), ("tc",)),
        FileNode("d", ("tc",), ("td",)),
        FileNode("e", ("tc",), ("te",)),
        FileNode("dead", ("ta",), ("tz",)),
    ]
    return graph, cut_file(graph, nodes, ["x"], ["td", "te"])


def devices(*given: int) -> np.ndarray:
    return np.array(given, dtype=np.uint8)


def test_a_segment_ends_where_it_sends_and_begins_where_it_receives() -> None:
    _, file = letters()
    found = file.segments(devices(0, 0, 1, 0, 1), range(5))
    assert [segment.nodes for segment in found] == [("a", "b", "b_bias"), ("c",), ("d",), ("e",)]
    assert [(segment.takes, segment.gives) for segment in found] == [
        (("x",), ("tb",)),
        (("tb",), ("tc",)),
        (("tc",), ("td",)),
        (("tc",), ("te",)),
    ]
    assert [segment.device for segment in found] == [0, 1, 0, 1]


def test_one_device_is_one_segment() -> None:
    _, file = letters()
    (whole,) = file.segments(devices(1, 1, 1, 1, 1), range(5))
    assert whole.gives == ("td", "te")
    assert whole.device == 1


def test_stages_of_a_pipeline_are_one_segment_each() -> None:
    _, file = letters()
    found = file.stages(devices(1, 1, 0, 0, 0), range(5), ["p", "q"])
    assert [(segment.device, segment.nodes) for segment in found] == [
        (1, ("a", "b", "b_bias")),
        (0, ("c", "d", "e")),
    ]


def test_a_placement_that_goes_back_and_forth_is_no_pipeline() -> None:
    _, file = letters()
    with pytest.raises(BadInput, match="not a pipeline: samples go back and forth between p and q"):
        file.stages(devices(0, 1, 0, 0, 0), range(5), ["p", "q"])


def test_a_node_without_operator_is_told_by_name() -> None:
    graph, _ = letters()
    with pytest.raises(BadInput, match='node "stranger" of the file belongs to no operator of letters'):
        cut_file(graph, [FileNode("stranger", ("x",), ("y",))], ["x"], ["y"])


def test_operators_run_as_the_timeline_begins_them_but_never_before_what_they_read() -> None:
    graph, _ = letters()
    assert running_order(graph, np.array([0.0, 1.0, 2.0, 5.0, 3.0])) == [0, 1, 2, 4, 3]
    assert running_order(graph, np.zeros(5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_segment_takes_was_given_before(seed: int) -> None:
    _, file = letters()
    have = {"x"}
    for segment in file.segments(np.random.default_rng(seed).integers(0, 3, 5).astype(np.uint8), range(5)):
        assert set(segment.takes) <= have
        have |= set(segment.gives)
    assert {"td", "te"} <= have
