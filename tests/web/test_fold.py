"""Folded graphs: every operator in one leaf, boxes that do not overlap, the same picture every time."""

from __future__ import annotations

import numpy as np
import pytest

from stead.graph import Graph, GraphBuilder
from stead.report.fold import MOST_BOXES, MOST_SHOWN, fold
from stead.report.layered import WIDEST, laid_out, layered
from stead.workloads.demo import demo_graph


def chain(modules: list[str], phases: list[str] | None = None) -> Graph:
    """Operators one after another in such modules."""
    build = GraphBuilder("chain")
    reads: list[int] = []
    for v, module in enumerate(modules):
        own = build.operator(f"v{v}", module=module, reads=reads, phase=phases[v] if phases else "forward")  # type: ignore[arg-type]
        reads = [build.tensor(own, size_bytes=4)]
    return build.build()


def leaves(graph: Graph) -> list[str]:
    folded = fold(graph)
    return [folded.path(box) for box in folded.leaf.tolist()]


def test_a_number_belongs_to_the_name_before_it() -> None:
    assert leaves(chain(["m.layers.0.mlp", "m.layers.0.att", "m.layers.1.mlp", "m.layers.1.att"])) == [
        "layers.0.mlp", "layers.0.att", "layers.1.mlp", "layers.1.att",
    ]  # fmt: skip


def test_loose_operators_go_to_the_module_that_reads_them_else_to_the_one_they_read() -> None:
    assert leaves(chain(["", "a", "", "b", ""])) == ["a", "a", "b", "b", "b"]


def test_operators_beside_the_boxes_of_their_module_go_to_the_box_that_reads_them() -> None:
    assert leaves(chain(["a.x", "a", "a.y", "b"])) == ["a.x", "a.y", "a.y", "b"]


def test_what_nobody_in_its_module_reads_or_makes_has_a_box_of_its_own() -> None:
    build = GraphBuilder("beside")
    for v, module in enumerate(["a.x", "a.y", "a", "b"]):
        build.operator(f"v{v}", module=module)
    assert leaves(build.build()) == ["a.x", "a.y", "a.·", "b"]


def test_more_than_sixteen_numbered_siblings_are_one_box() -> None:
    folded = fold(chain([*[f"layers.{n}.{part}" for n in range(17) for part in "ab"], "head"]))
    runs = [folded.names[box] for box in np.flatnonzero(folded.is_run)]
    assert runs == ["layers \N{MULTIPLICATION SIGN}17"]
    assert folded.path(int(folded.leaf[0])) == "layers.0.a"


def test_training_parts_into_phases_first() -> None:
    graph = chain(["a", "b", "b", "a"], ["forward", "forward", "backward", "backward"])
    assert leaves(graph) == ["forward.a", "forward.b", "backward.b", "backward.a"]


def test_a_graph_without_modules_is_shown_by_operators_or_stretches() -> None:
    assert leaves(chain(["", "", ""])) == ["v0", "v1", "v2"]
    many = fold(chain([""] * 600))
    assert len(many.names) == 61
    assert np.bincount(many.leaf)[1:].tolist() == [10] * 60


def many_modules(count: int) -> Graph:
    return chain([f"a{v % 7}.b{v % 31}.c{v % 83}.d{v}" for v in range(count)])


@pytest.mark.parametrize("graph", [demo_graph(), many_modules(30), many_modules(5000), chain([""])])
def test_every_operator_lies_in_one_leaf_and_pictures_stay_small(graph: Graph) -> None:
    folded = fold(graph)
    assert len(folded.leaf) == len(graph)
    assert not set(folded.leaf.tolist()) & set(folded.parents[1:].tolist())
    assert (folded.parents[1:] < np.arange(1, len(folded.names))).all()
    assert len(folded.names) <= MOST_BOXES
    shown = [b for b in range(1, len(folded.names)) if folded.is_open[folded.parents[b]] and not folded.is_open[b]]
    assert 1 <= len(shown) <= MOST_SHOWN
    assert np.array_equal(folded.sums(np.ones(len(graph)))[0], len(graph))


def test_very_many_modules_side_by_side_come_in_stretches() -> None:
    folded = fold(chain([f"part{v}" for v in range(100)]))
    assert folded.is_run.sum() == 25
    assert folded.names[1] == "part0 … part3"


def test_boxes_of_a_layer_stand_beside_each_other_and_forward_edges_lead_down() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        ranks = rng.random(40).tolist()
        edges = [(int(a), int(b)) for a, b in rng.integers(0, 40, (80, 2)) if a != b]
        places = layered(ranks, edges)
        assert places == layered(ranks, list(reversed(edges)))
        assert len(set(zip(places.layer, places.x, strict=True))) == 40
        widths = np.bincount(places.layer)
        assert widths.max() <= WIDEST
        assert all(places.layer[a] < places.layer[b] for a, b in edges if ranks[a] < ranks[b])


def test_layouts_are_the_same_every_time() -> None:
    graph = demo_graph()
    folded = fold(graph)
    pairs = np.unique(folded.leaf[graph.edges], axis=0)
    edges = pairs[pairs[:, 0] != pairs[:, 1]]
    first, second = (laid_out(folded, np.arange(len(graph), dtype=float), edges) for _ in range(2))
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])
