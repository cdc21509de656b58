"""ONNX files: what becomes an operator, what is folded, what it costs, what is refused."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from model_files import (
    FLOAT16,
    INT4,
    INT64,
    Graph,
    attribute,
    integers,
    node,
    onnx_function,
    onnx_model,
    pb,
    tensor,
    value,
)

from stead.errors import BadInput
from stead.readers import read
from stead.readers.common.assumed_sizes import Assumed
from stead.readers.common.op_costs import SOFTMAX_FLOPS, attention
from stead.readers.onnx.reader import Onnx


@pytest.fixture
def save_onnx(here):
    """Writes a model and gives the path."""

    def write(graph, name="net.onnx", **options):
        Path(name).write_bytes(graph if isinstance(graph, bytes) else onnx_model(graph, **options))
        return name

    return write


@pytest.fixture
def graph_of(save_onnx):
    """The graph that a model is read as."""

    def made(graph, *, functions=(), opset=17, **options):
        return Onnx(**options).read(save_onnx(graph, functions=functions, opset=opset)).graph

    return made


def chain(*nodes, stored=(), shape=(2, 8), out="y"):
    """A graph from x of the given shape to y."""
    return Graph(nodes, [value("x", shape)], [value(out)], stored)


def kinds(graph):
    return [kind for kind in graph.kinds if kind != "Input"]


def operator(graph, name):
    return graph.operator(graph.index(name))


# Names


def test_a_node_without_a_name_is_called_by_its_first_output(graph_of):
    graph = graph_of(chain(node("Relu", "x", "a"), node("Sqrt", "a", "y", "root"), shape=(1,)), fold="views")
    assert graph.operator_names == ("x", "a", "root")


def test_equal_names_are_made_to_differ(graph_of):
    graph = graph_of(chain(node("Relu", "x", "a", "same"), node("Conv", "a w", "y", "same"),
                           stored=[tensor("w", (1, 2, 1))], shape=(1, 2, 4)))  # fmt: skip
    assert graph.operator_names == ("x", "same", "same#2")


def test_an_input_gives_way_to_a_node_of_its_name(graph_of):
    assert graph_of(chain(node("Relu", "x", "y", "x"))).operator_names == ("x:input", "x")


def test_the_module_path_is_in_the_name(graph_of):
    graph = graph_of(
        chain(node("MatMul", "x w", "y", "/model/layers.0/attn/MatMul"), stored=[tensor("w", (8, 8))])
    )
    assert graph.modules == ("", "model.layers.0.attn")


def test_the_module_path_is_in_the_scopes_that_torch_writes(graph_of):
    scopes = "['', 'layers.3', 'layers.3.mlp', 'linear_1']"
    graph = graph_of(
        chain(node("MatMul", "x w", "y", "node_linear", scopes=scopes), stored=[tensor("w", (8, 8))])
    )
    assert graph.modules[1] == "layers.3.mlp"


def test_without_any_path_the_name_of_the_weight_tells(graph_of):
    graph = graph_of(chain(node("MatMul", "x layer1.0.fc.weight", "y", "MatMul_0"),
                           stored=[tensor("layer1.0.fc.weight", (8, 8))]))  # fmt: skip
    assert graph.modules[1] == "layer1.0.fc"


# Weights


def test_an_initialiser_is_a_weight_of_the_size_it_is_stored_in(graph_of):
    graph = graph_of(chain(node("MatMul", "x w", "y"), stored=[tensor("w", (8, 5), FLOAT16)]))
    assert (graph.weight_names, graph.weight_bytes.tolist()) == (("w",), [80])


def test_packed_elements_are_counted_in_bits(graph_of):
    cast = node("Cast", "w", "wide", to=1)
    graph = graph_of(chain(cast, node("MatMul", "x wide", "y"), stored=[tensor("w", (8, 5), INT4)]))
    assert graph.weight_bytes.tolist() == [20]


def test_a_tied_initialiser_is_one_weight_with_two_users(graph_of):
    nodes = (
        node("Gather", "table x", "a"),
        node("Transpose", "table", "t", perm=[1, 0]),
        node("MatMul", "a t", "y"),
    )
    graph = graph_of(Graph(nodes, [value("x", (3,), INT64)], [value("y")], [tensor("table", (100, 8))]))
    assert graph.weight_bytes.tolist() == [3200]
    assert graph.parameter_bytes.tolist() == [0, 3200, 3200]


def test_a_lookup_reads_the_rows_it_writes(graph_of):
    graph = graph_of(Graph([node("Gather", "table x", "y")], [value("x", (3,), INT64)], [value("y")],
                           [tensor("table", (100, 8))]))  # fmt: skip
    assert operator(graph, "y").moved_bytes == 3 * 8 + 3 * 32 + 3 * 32


def test_weights_in_other_files_are_counted_and_not_opened(graph_of):
    graph = graph_of(chain(node("MatMul", "x w", "y"), stored=[tensor("w", (8, 2**28), external=True)]))
    assert graph.weight_bytes.tolist() == [2**33]


def test_settings_and_single_numbers_are_no_weights(graph_of):
    stored = [integers("target", [4, 4]), tensor("half", (), data=b"\0\0\0?"), tensor("low", ())]
    nodes = node("Reshape", "x target", "a"), node("Mul", "a half", "b"), node("Clip", "b low", "y")
    assert graph_of(chain(*nodes, stored=stored)).weight_bytes.sum() == 0


# Folding


def test_arithmetic_on_shapes_is_folded(graph_of):
    nodes = [
        node("Shape", "x", "s", "shape"), node("Gather", "s zero", "b", "pick"), node("Unsqueeze", "b at", "u", "lift"),
        node("Concat", "u rest", "target", "join", axis=0), node("Reshape", "x target", "r", "reshape"),
        node("MatMul", "r w", "y", "product"),
    ]  # fmt: skip
    stored = [integers("zero", 0), integers("at", [0]), integers("rest", [2, 4]), tensor("w", (4, 3))]
    graph = graph_of(chain(*nodes, stored=stored))
    assert graph.operator_names == ("x", "product")
    assert graph.tensor(1).shape == (2, 2, 3)
    assert graph.folded["reshape"] == "x"
    assert graph.folded["join"] == graph.folded["shape"] == "x"


def test_a_returned_view_keeps_the_tensor_behind_it(graph_of):
    graph = graph_of(
        chain(node("Relu", "x", "a", "relu"), node("Flatten", "a", "y", "flat"), shape=(2, 3, 4))
    )
    assert graph.operator_names == ("x", "relu")
    assert graph.tensor(1).kept


def test_a_bias_is_part_of_its_product(graph_of):
    nodes = node("MatMul", "x w", "a", "product"), node("Add", "b a", "y", "bias")
    graph = graph_of(chain(*nodes, stored=[tensor("w", (8, 5)), tensor("b", (5,))]))
    assert kinds(graph) == ["MatMul"]
    assert operator(graph, "product").flops == 2 * 2 * 5 * 8 + 2 * 5
    assert operator(graph, "product").parameter_bytes == 160 + 20
    assert graph.folded["bias"] == "product"


def test_a_bias_stays_apart_when_others_read_the_product(graph_of):
    nodes = node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("Add", "a c", "y")
    graph = graph_of(chain(*nodes, stored=[tensor("w", (8, 5)), tensor("b", (5,))]))
    assert kinds(graph) == ["MatMul", "Add"]


def test_an_addition_of_two_tensors_is_an_operator(graph_of):
    nodes = node("MatMul", "x w", "a"), node("Add", "a x", "y")
    assert kinds(graph_of(chain(*nodes, stored=[tensor("w", (8, 8))]))) == ["MatMul", "Add"]


def attention_nodes():
    """q, k, v of 2 heads, 3 queries, 5 keys; scaled and masked."""
    nodes = [
        node("MatMul", "q k", "scores", "scores"), node("Div", "scores eight", "scaled", "scale"),
        node("Add", "scaled mask", "masked", "mask"), node("Softmax", "masked", "p", "softmax", axis=-1),
        node("MatMul", "p v", "y", "mix"),
    ]  # fmt: skip
    inputs = [
        value("q", (1, 2, 3, 4)),
        value("k", (1, 2, 4, 5)),
        value("v", (1, 2, 5, 6)),
        value("mask", (3, 5)),
    ]
    return Graph(nodes, inputs, [value("y")], [tensor("eight", (), data=b"\0\0\0A")])


def test_attention_is_one_operator_that_costs_what_the_formula_says(graph_of):
    graph = graph_of(attention_nodes())
    assert kinds(graph) == ["Attention"]
    assert operator(graph, "mix").flops == attention(2, 3, 5, 4, 6)
    assert {graph.folded[name] for name in ("scores", "scale", "mask", "softmax")} == {"mix"}
    assert len(operator(graph, "mix").reads) == 4


def test_attention_stays_in_parts_when_only_views_are_folded(graph_of):
    graph = graph_of(attention_nodes(), fold="views")
    assert kinds(graph) == ["MatMul", "Div", "Add", "Softmax", "MatMul"]
    assert graph.flops.sum() == 240 + 30 + 30 + 30 * SOFTMAX_FLOPS + 360


def test_a_guard_against_nan_is_part_of_attention(graph_of):
    """As torch exports it: where the softmax is not a number, zero."""
    nodes = [
        node("MatMul", "q k", "s"), node("Softmax", "s", "p", axis=-1), node("IsNaN", "p", "bad"),
        node("Where", "bad zero p", "good"), node("MatMul", "good v", "y"),
    ]  # fmt: skip
    inputs = [value("q", (1, 2, 3, 4)), value("k", (1, 2, 4, 5)), value("v", (1, 2, 5, 6))]
    graph = graph_of(Graph(nodes, inputs, [value("y")], [tensor("zero", ())]))
    assert kinds(graph) == ["Attention"]
    assert operator(graph, "y").flops == attention(2, 3, 5, 4, 6)


def test_a_batch_normalisation_is_part_of_its_convolution(graph_of):
    stored = [tensor("w", (8, 2, 1)), *(tensor(name, (8,)) for name in "abcd")]
    nodes = node("Conv", "x w", "t", "conv"), node("BatchNormalization", "t a b c d", "y", "norm")
    graph = graph_of(chain(*nodes, stored=stored, shape=(1, 2, 5)))
    assert kinds(graph) == ["Conv"]
    assert operator(graph, "conv").flops == 2 * 40 * 2 + 2 * 40


def test_dropout_whose_mask_nobody_reads_is_a_view(graph_of):
    nodes = node("Dropout", "x", "a mask", "drop"), node("MatMul", "a w", "y")
    graph = graph_of(chain(*nodes, stored=[tensor("w", (8, 5))]))
    assert kinds(graph) == ["MatMul"]
    assert graph.folded["drop"] == "x"


def test_what_is_picked_from_a_constant_is_kept_instead_of_it(graph_of):
    nodes = node("Gather", "table first", "row"), node("Add", "x row", "y")
    graph = graph_of(chain(*nodes, stored=[tensor("table", (512, 8)), integers("first", [0, 1])]))
    assert (graph.weight_names, graph.weight_bytes.tolist()) == (("row",), [64])


GELU = [
    node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "d"),
    node("Mul", "d half", "y"),
]  # fmt: skip
NUMBERS = [tensor(name, (), data=b"\0\0\x80?") for name in ("root", "one", "half", "two", "eps")]
NORM = [
    node("ReduceMean", "x", "m", axes=[-1]), node("Sub", "x m", "d"), node("Pow", "d two", "s"),
    node("ReduceMean", "s", "v", axes=[-1]), node("Add", "v eps", "e"), node("Sqrt", "e", "r"), node("Div", "d r", "n"),
    node("Mul", "n gamma", "g"), node("Add", "g beta", "y"),
]  # fmt: skip


def test_a_function_written_out_is_one_operator(graph_of):
    graph = graph_of(chain(*GELU, stored=NUMBERS))
    assert kinds(graph) == ["Mul"]
    assert operator(graph, "y").flops == 16 * 8
    assert operator(graph, "y").moved_bytes == 64 + 64


def test_a_normalisation_written_out_is_one_operator(graph_of):
    graph = graph_of(chain(*NORM, stored=[*NUMBERS, tensor("gamma", (8,)), tensor("beta", (8,))]))
    assert len(graph) == 2
    assert operator(graph, "y").parameter_bytes == 64


def test_a_chain_with_two_results_stays_apart(graph_of):
    nodes = (
        node("Exp", "x", "a"),
        node("Log", "a", "b"),
        node("MatMul", "a w", "c"),
        node("MatMul", "b w", "d"),
    )
    graph = graph_of(Graph(nodes, [value("x", (8, 8))], [value("c"), value("d")], [tensor("w", (8, 8))]))
    assert kinds(graph) == ["Exp", "Log", "MatMul", "MatMul"]


def test_pooling_at_the_end_is_no_part_of_a_chain(graph_of):
    nodes = node("Relu", "x", "a"), node("ReduceMean", "a", "b", axes=[1]), node("MatMul", "b w", "y")
    assert kinds(graph_of(chain(*nodes, stored=[tensor("w", (1, 3))]))) == ["Relu", "ReduceMean", "MatMul"]


def test_nothing_folded_shows_every_node_and_every_constant(graph_of):
    nodes = node("Identity", "x", "a"), node("MatMul", "a w", "y")
    graph = graph_of(chain(*nodes, stored=[tensor("w", (8, 5))]), fold="nothing")
    assert sorted(graph.operator_names) == ["a", "w", "x", "y"]
    assert graph.parameter_bytes.sum() == 160


def test_nodes_that_nobody_needs_are_left_out_and_counted(save_onnx):
    nodes = node("Relu", "x", "y"), node("Exp", "x", "unread"), node("Log", "unread", "either")
    model = Onnx().read(save_onnx(chain(*nodes)))
    assert len(model.graph) == 2
    assert "2 nodes were left out: nobody reads their results" in model.notes


def test_random_numbers_are_not_constants(graph_of):
    nodes = node("RandomNormal", "", "r", shape=[2, 8]), node("Add", "x r", "y")
    assert kinds(graph_of(chain(*nodes))) == ["RandomNormal", "Add"]


# Costs


def test_a_convolution_costs_what_its_shapes_say(graph_of):
    conv = node("Conv", "x w b", "y", group=2, pads=[1, 1, 1, 1], strides=[2, 2])
    graph = graph_of(chain(conv, stored=[tensor("w", (8, 2, 3, 3)), tensor("b", (8,))], shape=(1, 4, 10, 10)))
    assert graph.tensor(1).shape == (1, 8, 5, 5)
    assert operator(graph, "y").flops == 2 * 200 * 18 + 200
    assert operator(graph, "y").moved_bytes == 4 * (400 + 200 + 144 + 8)


def test_a_recurrent_layer_has_a_formula(graph_of):
    lstm = node("LSTM", "x w r", "y", hidden_size=2)
    graph = graph_of(chain(lstm, stored=[tensor("w", (1, 8, 3)), tensor("r", (1, 8, 2))], shape=(10, 1, 3)))
    assert graph.tensor(1).shape == (10, 1, 1, 2)
    assert operator(graph, "y").flops == 10 * 4 * 2 * (2 * 5 + 4)


def test_unknown_kinds_cost_their_bytes_and_are_told(save_onnx):
    model = Onnx().read(save_onnx(chain(node("Frobnicate", "x", "y", domain="com.example"))))
    assert operator(model.graph, "y").moved_bytes == 64 + 64
    assert "1 operators of unknown kinds have a price by their bytes alone: Frobnicate 1" in model.notes
    assert any(note.startswith("shapes of 1 results are guesses") for note in model.notes)


def test_the_file_tells_the_shape_where_no_rule_does(graph_of):
    nodes = [node("Frobnicate", "x", "a", domain="com.example"), node("Relu", "a", "y")]
    graph = graph_of(Graph(nodes, [value("x", (2, 8))], [value("y")], values=[value("a", (2, 3))]))
    assert graph.tensor(1).shape == graph.tensor(2).shape == (2, 3)


def test_a_rule_beats_a_stale_shape_in_the_file(save_onnx):
    graph = Graph([node("Relu", "x", "y")], [value("x", (8, 3))], [value("y", (1, 3))])
    model = Onnx().read(save_onnx(graph))
    assert model.graph.tensor(1).shape == (8, 3)
    assert "1 shapes in the file contradict its inputs; inferred ones are used" in model.notes


def test_long_attributes_are_weights_too(graph_of):
    forest = node("TreeEnsemble", "x", "y", domain="ai.onnx.ml", nodes_splits=list(range(2000)))
    assert graph_of(chain(forest)).weight_bytes.sum() > 2000


# Open dimensions

OPEN = Graph(
    [node("MatMul", "x w", "y")], [value("x", ("batch", "", 8))], [value("y")], [tensor("w", (8, 5))]
)


def test_open_dimensions_have_their_usual_size_and_are_told(save_onnx):
    model = Onnx().read(save_onnx(OPEN))
    assert model.graph.tensor(1).shape == (1, 128, 5)
    assert model.assumed == (Assumed("batch", 1, "batch"), Assumed("x[1]", 128, "sequence"))


def test_open_dimensions_are_set_by_name_place_or_input(graph_of):
    assert graph_of(OPEN, shapes={"batch": 4, "x[1]": 7}).tensor(1).shape == (4, 7, 5)
    assert graph_of(OPEN, shapes={"x[0]": 4}).tensor(1).shape == (4, 128, 5)
    assert graph_of(OPEN, shapes={"x": (4, 7, 8)}).tensor(1).shape == (4, 7, 5)
    assert graph_of(OPEN, batch=4).tensor(1).shape == (4, 128, 5)


def test_what_is_set_is_not_assumed(save_onnx):
    assert Onnx(shapes={"x": (4, 7, 8)}).read(save_onnx(OPEN)).assumed == ()
    assert [one.name for one in Onnx(batch=4).read(save_onnx(OPEN)).assumed] == ["x[1]"]


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ({"x": (4, 7)}, 'shapes: "x" has 3 dimensions (batchx?x8), got 4x7'),
        ({"x": (4, 7, 9)}, 'shapes: dimension 2 of "x" is 8 in the file, not 9'),
        ({"x": (4, 7, 8), "y": 3}, 'no open dimension "y"'),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(save_onnx, refusal, shapes, told):
    assert told in refusal(Onnx(shapes=shapes).read, save_onnx(OPEN))


def test_a_batch_needs_an_open_first_dimension(save_onnx, refusal):
    fixed = Graph([node("Relu", "x", "y")], [value("x", (1, 3, "height", "width"))], [value("y")])
    assert refusal(Onnx(batch=8).read, save_onnx(fixed)) == (
        'net.onnx: batch: no input has an open first dimension; "x" is 1x3xheightxwidth in the file; '
        "export the model with one"
    )
    assert [one.size for one in Onnx().read(save_onnx(fixed)).assumed] == [224, 224]


def test_sizes_that_follow_from_others_are_computed(save_onnx):
    decoder = Graph(
        [node("Add", "mask total", "y")],
        [
            value("mask", ("batch", "past_sequence_length + 1")),
            value("past", ("batch", "past_sequence_length")),
            value("ids", ("batch", "sequence_length")),
            value("total", ("batch", "total_sequence_length")),
        ],
        [value("y")],
    )
    model = Onnx(shapes={"past_sequence_length": 31, "sequence_length": 2}).read(save_onnx(decoder))
    shapes = {model.graph.tensor_names[t]: model.graph.tensor(t).shape for t in range(model.graph.tensor_count)}
    assert shapes["mask"] == (1, 32)
    assert shapes["total"] == (1, 33)


def test_a_dimension_that_is_not_open_is_refused_with_advice(save_onnx, refusal):
    assert refusal(Onnx(shapes={"bach": 4}).read, save_onnx(OPEN)) == (
        'net.onnx: shapes: no open dimension "bach"; did you mean \'batch\'?; open in this file: "batch", "x[1]"'
    )


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "4", 2**41])
def test_a_size_that_makes_no_sense_is_refused(refusal, size):
    assert "must be a whole number from 1 to 2^40" in refusal(Onnx, shapes={"batch": size})


def test_an_unknown_way_to_fold_is_refused(refusal):
    assert (
        refusal(Onnx, fold="everything")
        == "fold is one of nothing, constants, views, units, got 'everything'"
    )


# Bodies


def loop_graph(trips):
    nodes = node("MatMul", "h w", "h2"), node("Identity", "h2", "each"), node("Identity", "c", "c2")
    inputs = value("i", (), INT64), value("c", (), 9), value("h")
    body = Graph(nodes, inputs, [value("c2"), value("h2"), value("each")])
    loop = node("Loop", "n _ x", "y all", "loop", body=body)
    inputs = [value("x", (2, 8))] if trips is not None else [value("x", (2, 8)), value("n", (), INT64)]
    stored = [tensor("w", (8, 8)), *([integers("n", trips)] if trips is not None else [])]
    return Graph([loop], inputs, [value("y"), value("all")], stored)


def test_a_loop_is_one_operator_that_costs_all_its_trips(save_onnx):
    model = Onnx().read(save_onnx(loop_graph(6)))
    loop = operator(model.graph, "loop")
    assert (loop.kind, loop.flops) == ("Loop", 6 * 2 * 2 * 8 * 8)
    assert loop.parameter_bytes == 256
    assert [model.graph.tensor(t).shape for t in loop.writes] == [(2, 8), (6, 2, 8)]
    assert any(
        note.startswith("Loop 1: each one operator that stands for its body (3 nodes") for note in model.notes
    )


def test_a_loop_of_unknown_length_counts_once(save_onnx):
    model = Onnx().read(save_onnx(loop_graph(None)))
    assert operator(model.graph, "loop").flops == 256
    assert any(note.endswith("loops of unknown length count once") for note in model.notes)


def test_a_scan_runs_once_per_slice(graph_of):
    body = Graph(
        [node("Add", "s e", "s2"), node("Identity", "s2", "o")],
        [value("s"), value("e")],
        [value("s2"), value("o")],
    )
    scan = node("Scan", "init x", "last y", "scan", body=body, num_scan_inputs=1)
    graph = graph_of(Graph([scan], [value("init", (4,)), value("x", (9, 4))], [value("last"), value("y")]))
    assert operator(graph, "scan").flops == 9 * 4
    assert [graph.tensor(t).shape for t in operator(graph, "scan").writes] == [(4,), (9, 4)]


def test_a_branch_costs_the_costlier_side_and_holds_both(graph_of):
    cheap = Graph([node("Add", "x c", "a")], (), [value("a")], [tensor("c", (8,)), tensor("unused", (10,))])
    costly = Graph([node("MatMul", "x w", "b")], (), [value("b")], [tensor("w", (8, 8))])
    either = node("If", "cond", "y", "either", then_branch=cheap, else_branch=costly)
    graph = graph_of(Graph([either], [value("x", (2, 8)), value("cond", (), 9)], [value("y")]))
    assert operator(graph, "either").flops == 256
    assert operator(graph, "either").parameter_bytes == 32 + 256


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_costs_its_steps_in_both_directions(graph_of, kind, gates):
    """10 steps of 5 samples, 3 inputs, 2 states: for each gate and state 3 + 2 multiply-adds and a function of 4."""
    for directions, word in ((1, "forward"), (2, "bidirectional")):
        layer = node(kind, "x w r", "y", hidden_size=2, direction=word)
        stored = [tensor("w", (directions, 2 * gates, 3)), tensor("r", (directions, 2 * gates, 2))]
        graph = graph_of(chain(layer, stored=stored, shape=(10, 5, 3)))
        assert graph.flops.sum() == directions * 10 * 5 * gates * 2 * (2 * (3 + 2) + 4)


def test_of_an_unknown_branch_the_costlier_one_counts_and_it_is_said(save_onnx):
    branches = {
        side: Graph([node(kind, "x", side)], (), [value(side)])
        for side, kind in (("then_branch", "Relu"), ("else_branch", "Tanh"))
    }
    either = node("If", "cond", "y", "either", **branches)
    model = Onnx().read(
        save_onnx(Graph([either], [value("x", (2, 8)), value("cond", (), 9)], [value("y")]))
    )
    assert operator(model.graph, "either").flops == 4 * 16
    assert any(note.endswith("; of two branches the costlier one counts") for note in model.notes)


def test_constants_in_a_body_are_weights_and_what_is_made_of_them_is_folded(graph_of):
    """x times the transposed sum of two stored matrices: one product per trip, 256 bytes held, no addition."""
    body = Graph(
        [
            node("Constant", "", "w", value=tensor("w", (8, 8))),
            node("Constant", "", "half", value=tensor("half", ())),
            node("Constant", "", "axes", value=tensor("axes", (1,), 7)),
            node("Add", "w v", "sum"),
            node("Transpose", "sum", "turned"),
            node("MatMul", "carried turned", "product"),
            node("Mul", "product half", "scaled"),
            node("Unsqueeze", "scaled axes", "wide"),
            node("Squeeze", "wide axes", "next"),
            node("Identity", "cond", "again"),
        ],
        [value("i", (), 7), value("cond", (), 9), value("carried", (2, 8))],
        [value("again"), value("next")],
        [tensor("v", (8, 8))],
    )
    loop = node("Loop", "n _ x", "y", "loop", body=body)
    graph = graph_of(Graph([loop], [value("x", (2, 8))], [value("y")], [integers("n", 5)]))
    assert operator(graph, "loop").flops == 5 * (2 * 2 * 8 * 8 + 2 * 8)
    assert operator(graph, "loop").parameter_bytes == 256  # the sum, which takes the place of both


def test_constants_around_a_body_are_weights_of_its_operator(graph_of):
    inside = Graph([node("Transpose", "w", "t"), node("MatMul", "x t", "a")], (), [value("a")])
    other = Graph([node("Relu", "x", "b")], (), [value("b")])
    either = node("If", "cond", "y", "either", then_branch=inside, else_branch=other)
    inputs = [value("x", (2, 8)), value("cond", (), 9)]
    graph = graph_of(Graph([either], inputs, [value("y")], [tensor("w", (8, 8))]))
    assert (operator(graph, "either").flops, operator(graph, "either").parameter_bytes) == (256, 256)
    assert len(operator(graph, "either").reads) == 2


def test_a_function_is_one_operator_that_costs_its_body(graph_of):
    twice = onnx_function("Twice", "a b", "c", [node("MatMul", "a b", "t"), node("MatMul", "t b", "c")])
    graph = graph_of(
        chain(node("Twice", "x w", "y", domain="own"), stored=[tensor("w", (8, 8))]), functions=[twice]
    )
    assert (kinds(graph), operator(graph, "y").flops) == (["Twice"], 2 * 256)


# Finding the reader


def test_a_file_is_recognised_by_name_or_by_contents(save_onnx):
    graph = chain(node("Relu", "x", "y"))
    assert len(read(save_onnx(graph)).graph) == 2
    assert len(read(save_onnx(graph, name="no-suffix")).graph) == 2


def test_reading_needs_no_package(save_onnx):
    path = save_onnx(chain(node("Relu", "x", "y")))
    code = f"import sys; from stead.readers import read; read({path!r}); print({{'onnx', 'torch'}} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_placing_loads_no_reader_of_another_format(save_onnx):
    path = save_onnx(chain(node("Relu", "x", "y")))
    code = f"""
        import sys
        from stead.cli.main import exit_code
        code = exit_code(["place", {path!r}, "-d", "3090,3060", "-g", "latency", "--solver", "single"])
        names = [name.split(".") for name in sys.modules if name.startswith("stead.readers.")]
        print(code, *sorted({{name[2] for name in names}}))
    """
    said = subprocess.check_output([sys.executable, "-c", textwrap.dedent(code)], text=True).splitlines()[-1]
    assert said == "0 base common known_formats native onnx"  # plans hold graphs in the native format


def test_5000_nodes_are_read_within_two_seconds_of_cpu_time(save_onnx):
    nodes, stored = [], []
    for i in range(1000):
        path, before = f"/layers.{i}", f"r{i - 1}" if i else "x"
        nodes += [
            node("MatMul", f"{before} w{i}", f"m{i}", f"{path}/MatMul"),
            node("Add", f"m{i} b{i}", f"a{i}", f"{path}/Add"),
            node("Shape", f"a{i}", f"s{i}"),
            node("Reshape", f"a{i} s{i}", f"v{i}"),
            node("Relu", f"v{i}", f"r{i}", f"{path}/Relu"),
        ]
        stored += [
            tensor(f"w{i}", (64, 64), data=bytes(4 * 64 * 64)),
            tensor(f"b{i}", (64,), data=bytes(256)),
        ]
    path = save_onnx(Graph(nodes, [value("x", (1, 64))], [value("r999")], stored))
    code = f"""
        import time
        from stead.readers import read
        assert len(read({path!r}).graph) == 2001
        print(time.process_time())
    """
    seconds = subprocess.check_output([sys.executable, "-c", textwrap.dedent(code)], text=True)
    assert float(seconds) < 2.0


# Files that are refused


def test_a_cycle_is_named(save_onnx, refusal):
    graph = chain(
        node("Add", "x b", "a", "first"), node("Relu", "a", "b", "second"), node("Relu", "b", "y", "third")
    )
    assert refusal(Onnx().read, save_onnx(graph)) == 'net.onnx: the graph has a cycle through "first"'


def test_nodes_may_come_in_any_order(graph_of):
    graph = graph_of(
        chain(node("Sqrt", "b", "y"), node("Relu", "a", "b"), node("Exp", "x", "a")), fold="views"
    )
    assert graph.operator_names == ("x", "a", "b", "y")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (chain(node("Relu", "z", "y", "r")), 'node "r" reads "z", which nothing writes'),
        (chain(node("Relu", "x", "z")), 'the output "y" is written by no node'),
        (
            chain(node("Relu", "x", "y"), node("Exp", "x", "y")),
            '"y" is written twice; names of tensors must differ',
        ),
        (
            chain(node("Relu", "x", "y"), stored=[tensor("", (1,))]),
            "an initialiser has no name; the file is damaged",
        ),
        (chain(node("Relu", "x", "y"), stored=[tensor("w", (-1,))]), 'tensor "w" has a negative dimension'),
        (chain(node("Relu", "x", "y"), stored=[tensor("w", (2**40, 2**40))]), "2^62 make no sense"),
        (
            chain(node("Relu", "x", "y"), stored=[tensor("w", (1,), 99)]),
            'tensor "w" has elements of unknown type 99',
        ),
        (chain(node("Relu", "x", "y"), stored=[tensor("w", (1,) * 65)]), "has more than 64 dimensions"),
        (chain(node("Relu", "x", "y"), shape=(2**62, 4)), "more than 2^62 make no sense"),
        (
            chain(node("Expand", "x s", "y"), stored=[integers("s", [2**40, 2**40, 1, 1])]),
            "more than 2^62 make no sense",
        ),
        (chain(node("", "x", "y")), "has no operator type"),
        (
            Graph([node("Constant", "", "y", value=tensor("", (4,)))], (), [value("y")]),
            "there is nothing to place",
        ),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused(save_onnx, refusal, graph, message):
    said = refusal(Onnx().read, save_onnx(graph))
    assert said.startswith("net.onnx: ")
    assert message in said


def test_a_file_cut_anywhere_is_refused_or_read(save_onnx):
    whole = onnx_model(attention_nodes())
    refused = 0
    for end in range(len(whole)):
        with contextlib.suppress(BadInput):
            Onnx().read(save_onnx(whole[:end]))
            continue
        refused += 1
    assert refused > 0.95 * len(whole)  # what is cut off at the end may be of no importance


def test_bodies_nested_without_end_are_refused(save_onnx, refusal):
    inner = Graph([node("Relu", "x", "a")], (), [value("a")])
    for _ in range(40):
        inner = Graph([node("If", "c", "a", then_branch=inner)], (), [value("a")])
    assert refusal(Onnx().read, save_onnx(inner)) == "net.onnx: graphs are nested more than 32 deep"


def test_a_function_that_calls_itself_is_refused(save_onnx, refusal):
    own = onnx_function("Own", "a", "b", [node("Own", "a", "b", domain="own")])
    path = save_onnx(chain(node("Own", "x", "y", domain="own")), functions=[own])
    assert refusal(Onnx().read, path) == "net.onnx: functions or bodies are nested more than 32 deep"


def test_functions_that_unfold_without_end_are_refused_soon(save_onnx, refusal, monkeypatch):
    monkeypatch.setattr("stead.readers.onnx.inference.MAX_EVALUATED", 20_000)
    functions = [onnx_function("F0", "a", "b", [node("Relu", "a", "b")])]
    for i in range(1, 25):
        calls = [node(f"F{i - 1}", "a", "t", domain="own"), node(f"F{i - 1}", "t", "b", domain="own")]
        functions.append(onnx_function(f"F{i}", "a", "b", calls))
    path = save_onnx(chain(node("F24", "x", "y", domain="own")), functions=functions)
    assert refusal(Onnx().read, path) == "net.onnx: functions and bodies unfold to more than 20000 nodes"


def test_endless_fields_are_refused(save_onnx, refusal, monkeypatch):
    monkeypatch.setattr("stead.readers.common.protobuf.MAX_FIELDS", 1000)
    monkeypatch.setattr("stead.readers.common.protobuf.Wire.__init__", _wire_with_few_fields)
    assert "more than 1000 fields" in refusal(Onnx().read, save_onnx(pb(1, 8) * 2000))


def _wire_with_few_fields(self, data):
    self.data, self.fields_left = data, 1000


def test_a_constant_of_many_constants_becomes_one(graph_of):
    nodes, stored = [], [tensor("c0", (8,))]
    for i in range(200):
        nodes.append(node("Add", f"c{i} k{i}", f"c{i + 1}"))
        stored.append(tensor(f"k{i}", (8,)))
    graph = graph_of(chain(*nodes, node("Add", "x c200", "y"), stored=stored))
    assert len(graph.weight_bytes) <= 65


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\x08", b"hello world", b"\xff" * 100, pb(1, 8), pb(7, b""), pb(7, 5)]
)
def test_what_is_no_model_is_refused(here, refusal, data):
    Path("net.onnx").write_bytes(data)
    assert refusal(Onnx().read, "net.onnx").startswith("net.onnx: ")


def test_an_attribute_of_any_type_is_survived(graph_of):
    odd = (
        pb(5, attribute("axis", "text")) + pb(5, attribute("perm", [9, 9])) + pb(5, pb(1, "g") + pb(11, b""))
    )
    graph_of(Graph([node("Transpose", "x", "y") + odd], [value("x", (2, 8))], [value("y")]))
