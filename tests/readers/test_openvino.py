"""OpenVINO IR: what becomes an operator, what is folded, what it costs, what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from model_files import Ir

from stead.errors import BadInput, MissingExtra
from stead.readers import read
from stead.readers.common.op_costs import attention
from stead.readers.openvino.reader import OpenVino


@pytest.fixture
def save_ir(here):
    """Writes a model with an empty .bin of the right size and gives the path."""

    def write(ir, name="net.xml", weights=True):
        Path(name).write_text(ir.xml() if isinstance(ir, Ir) else ir, encoding="utf-8")
        if weights and isinstance(ir, Ir):
            with Path(name).with_suffix(".bin").open("wb") as file:
                file.truncate(ir.offset)
        return name

    return write


def convolution(half=False):
    """x, a convolution with bias, a ReLU, y; half: weights in fp16, converted."""
    ir = Ir()
    ir.add("Parameter", "x", (1, 4, 10, 10), shape="1,4,10,10", element_type="f32")
    names = ["w", "b"]
    for name, shape in (("w", (8, 4, 3, 3)), ("b", (1, 8, 1, 1))):
        ir.constant(name, shape, *(("f16",) if half else ("f32",)), bits=16 if half else 32)
        if half:
            ir.add("Convert", f"{name}32", shape, name, destination_type="f32")
            names = ["w32", "b32"]
    ir.add("Convolution", "conv", (1, 8, 10, 10), f"x {names[0]}", strides="1,1", pads_begin="1,1")
    ir.add("Add", "bias", (1, 8, 10, 10), f"conv {names[1]}", auto_broadcast="numpy")
    ir.add("ReLU", "relu", (1, 8, 10, 10), "bias")
    ir.add("Result", "y", None, "relu")
    return ir


def operator(graph, name):
    return graph.operator(graph.index(name))


def test_constants_biases_and_results_are_folded(save_ir):
    model = OpenVino().read(save_ir(convolution()))
    graph = model.graph
    assert graph.operator_names == ("x", "conv", "relu")
    assert operator(graph, "conv").flops == 2 * 800 * 36 + 800
    assert operator(graph, "conv").moved_bytes == 4 * (400 + 800 + 288 + 8)
    assert dict(graph.folded) == {"w": "conv", "b": "conv", "bias": "conv", "y": "relu"}
    assert graph.tensor(2).kept
    assert model.notes[0] == "7 layers and 6 edges in the file, 3 operators after folding (fold=units)"


def test_converted_constants_are_weights_of_their_stored_size(save_ir):
    graph = OpenVino().read(save_ir(convolution(half=True))).graph
    assert graph.operator_names == ("x", "conv", "relu")
    assert operator(graph, "conv").parameter_bytes == 2 * (288 + 8)
    assert graph.folded["w32"] == "conv"


@pytest.mark.parametrize(
    ("level", "names"),
    [
        ("nothing", {"x", "w", "b", "conv", "bias", "relu", "y"}),
        ("constants", {"x", "conv", "bias", "relu", "y"}),
        ("views", {"x", "conv", "bias", "relu"}),
    ],
)
def test_less_can_be_folded(save_ir, level, names):
    assert set(OpenVino(fold=level).read(save_ir(convolution())).graph.operator_names) == names


def test_groups_are_a_dimension_of_the_kernel(save_ir):
    ir = Ir()
    ir.add("Parameter", "x", (1, 4, 10, 10))
    ir.constant("w", (2, 4, 2, 3, 3))
    ir.add("GroupConvolution", "conv", (1, 8, 10, 10), "x w")
    ir.constant("t", (2, 4, 3, 2, 2))
    ir.add("GroupConvolutionBackpropData", "up", (1, 6, 20, 20), "conv t")
    ir.add("Result", "y", None, "up")
    graph = OpenVino().read(save_ir(ir)).graph
    assert operator(graph, "conv").flops == 2 * 800 * 18
    assert operator(graph, "up").flops == 2 * 800 * 12


def test_a_transposed_operand_is_contracted_along_its_other_side(save_ir):
    ir = Ir()
    ir.add("Parameter", "a", (7, 3))
    ir.add("Parameter", "b", (7, 5))
    ir.add("MatMul", "c", (3, 5), "a b", transpose_a="true", transpose_b="false")
    ir.add("Result", "y", None, "c")
    assert operator(OpenVino().read(save_ir(ir)).graph, "c").flops == 2 * 15 * 7


def test_attention_has_a_formula(save_ir):
    ir = Ir()
    for name, shape in (("q", (2, 3, 4)), ("k", (2, 5, 4)), ("v", (2, 5, 6))):
        ir.add("Parameter", name, shape)
    ir.add("ScaledDotProductAttention", "mix", (2, 3, 6), "q k v", causal="false")
    ir.add("Result", "y", None, "mix")
    assert operator(OpenVino().read(save_ir(ir)).graph, "mix").flops == attention(2, 3, 5, 4, 6)


def test_a_recurrent_layer_has_a_formula(save_ir):
    ir = Ir()
    ir.add("Parameter", "x", (1, 10, 3))
    ir.add("Parameter", "h", (1, 1, 2))
    ir.add("Parameter", "c", (1, 1, 2))
    ir.constant("length", (1,), "i64", bits=64)
    for name, shape in (("w", (1, 8, 3)), ("r", (1, 8, 2)), ("b", (1, 8))):
        ir.constant(name, shape)
    ir.add("LSTMSequence", "lstm", (1, 1, 10, 2), "x h c length w r b", hidden_size=2, direction="forward")
    ir.add("Result", "y", None, "lstm")
    graph = OpenVino().read(save_ir(ir)).graph
    assert operator(graph, "lstm").flops == 10 * 4 * 2 * (2 * 5 + 4)
    assert operator(graph, "lstm").parameter_bytes == 4 * (24 + 16 + 8)


@pytest.mark.parametrize(("kind", "gates"), [("LSTMCell", 4), ("GRUCell", 3), ("RNNCell", 1)])
def test_a_recurrent_cell_costs_the_products_of_its_gates(save_ir, kind, gates):
    """5 samples, 3 inputs, 2 states: for each gate and state 3 + 2 multiply-adds and one function of 4."""
    ir = Ir()
    ir.add("Parameter", "x", (5, 3), shape="5,3", element_type="f32")
    states = ["h", "c"] if kind == "LSTMCell" else ["h"]
    for state in states:
        ir.add("Parameter", state, (5, 2), shape="5,2", element_type="f32")
    ir.constant("w", (2 * gates, 3))
    ir.constant("r", (2 * gates, 2))
    ir.constant("b", (2 * gates,))
    ir.add(kind, "cell", (5, 2), f"x {' '.join(states)} w r b", hidden_size=2)
    ir.add("Result", "y", None, "cell")
    graph = OpenVino().read(save_ir(ir)).graph
    assert operator(graph, "cell").flops == 5 * gates * 2 * (2 * (3 + 2) + 4)
    assert operator(graph, "cell").parameter_bytes == 4 * 2 * gates * (3 + 2 + 1)


@pytest.mark.parametrize(("kind", "gates"), [("GRUSequence", 3), ("RNNSequence", 1)])
def test_a_recurrent_layer_costs_its_steps(save_ir, kind, gates):
    ir = Ir()
    ir.add("Parameter", "x", (1, 10, 3), shape="1,10,3", element_type="f32")
    ir.add("Parameter", "h", (1, 1, 2), shape="1,1,2", element_type="f32")
    ir.constant("length", (1,), "i64", bits=64)
    ir.constant("w", (1, 2 * gates, 3))
    ir.constant("r", (1, 2 * gates, 2))
    ir.constant("b", (1, 2 * gates))
    ir.add(kind, "layer", (1, 1, 10, 2), "x h length w r b", hidden_size=2, direction="forward")
    ir.add("Result", "y", None, "layer")
    assert operator(OpenVino().read(save_ir(ir)).graph, "layer").flops == 10 * gates * 2 * (2 * (3 + 2) + 4)


def test_a_loop_runs_its_body_once_per_slice(save_ir):
    body = Ir()
    body.add("Parameter", "slice", (1, 1, 8))
    body.constant("packed", (8, 8), "f16", bits=16)
    body.add("Convert", "w", (8, 8), "packed", destination_type="f32")  # of a constant: no work of a trip
    body.add("MatMul", "product", (1, 1, 8), "slice w")
    body.add("Result", "out", None, "product")
    inside = body.xml().partition("<layers>")[2].removesuffix("</net>")
    port_map = (
        '<port_map><input external_port_id="0" internal_layer_id="0" axis="1" part_size="1"/></port_map>'
    )
    ir = Ir()
    ir.add("Parameter", "x", (1, 6, 8))
    ir.add("TensorIterator", "loop", (1, 6, 8), "x", body=f"{port_map}<body><layers>{inside}</body>")
    ir.add("Result", "y", None, "loop")
    graph = OpenVino().read(save_ir(ir)).graph
    assert operator(graph, "loop").flops == 6 * 2 * 8 * 8
    assert operator(graph, "loop").parameter_bytes == 128
    assert operator(graph, "loop").moved_bytes == 6 * (32 + 256 + 32) + 192 + 192  # of each trip, and of the whole


def test_unknown_kinds_cost_their_bytes_and_are_told(save_ir):
    ir = Ir()
    ir.add("Parameter", "x", (4,))
    ir.add("Frobnicate", "f", (8,), "x")
    ir.add("Result", "y", None, "f")
    model = OpenVino().read(save_ir(ir))
    assert operator(model.graph, "f").moved_bytes == 16 + 32
    assert "1 operators of unknown kinds have a price by their bytes alone: Frobnicate 1" in model.notes


def test_large_constants_at_one_place_are_one_weight(save_ir):
    ir = Ir()
    ir.add("Parameter", "x", (1, 1024))
    for name in ("w1", "w2"):
        ir.constant(name, (1024, 1024), offset=0)
    for name in ("b1", "b2"):
        ir.constant(name, (1, 1024), offset=2**22)
    ir.add("MatMul", "m1", (1, 1024), "x w1")
    ir.add("Add", "a1", (1, 1024), "m1 b1")
    ir.add("MatMul", "m2", (1, 1024), "a1 w2")
    ir.add("Add", "a2", (1, 1024), "m2 b2")
    ir.add("Result", "y", None, "a2")
    model = OpenVino().read(save_ir(ir))
    assert sorted(model.graph.weight_bytes.tolist()) == [
        4096,
        4096,
        2**22,
    ]  # equal biases are chance, not a tie
    assert (
        "1 constants share their place in the .bin file with another and are taken as one weight"
        in model.notes
    )


def test_a_variable_is_written_where_it_is_read(save_ir):
    ir = Ir()
    ir.add("Parameter", "x", (1, 8))
    ir.add("ReadValue", "past", (1, 8), "x", variable_id="cache")
    ir.add("Concat", "both", (1, 16), "past x", axis=1)
    ir.add("Assign", "keep", (1, 8), "both", variable_id="cache")
    ir.add("Result", "y", None, "both")
    graph = OpenVino().read(save_ir(ir)).graph
    assert operator(graph, "past").colocation == operator(graph, "keep").colocation == "variable cache"


# Open dimensions


def dynamic():
    ir = Ir()
    ir.add("Parameter", "x", (-1, -1, 8), shape="?,?,8", element_type="f32")
    ir.constant("w", (8, 5))
    ir.add("MatMul", "m", (-1, -1, 5), "x w")
    ir.add("Result", "y", None, "m")
    return ir


def test_open_dimensions_are_1_and_told(save_ir):
    model = OpenVino().read(save_ir(dynamic()))
    assert model.graph.tensor(1).shape == (1, 1, 5)
    assert model.notes[1:] == ("1 results inside have open dimensions too, taken as 1",)
    assert [(one.name, one.size) for one in model.assumed] == [("x[0]", 1), ("x[1]", 1)]


def test_one_size_for_all_open_dimensions_needs_no_package(save_ir):
    for shapes in ({"x[0]": 4, "x[1]": 4}, {"x": (4, 4, 8)}):
        assert OpenVino(shapes=shapes).read(save_ir(dynamic())).graph.tensor(1).shape == (4, 4, 5)


def test_several_sizes_need_the_package(save_ir, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtra, match=r'pip install "stead\[openvino\]"'):
        OpenVino(shapes={"x[0]": 4, "x[1]": 7}).read(save_ir(dynamic()))


def test_units_of_the_runtime_need_the_package(save_ir, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtra, match=r'pip install "stead\[openvino\]"'):
        OpenVino(fused=True).read(save_ir(convolution()))


def test_a_dimension_that_is_not_open_is_refused(save_ir, refusal):
    said = refusal(OpenVino(shapes={"x[2]": 4}).read, save_ir(dynamic()))
    assert said.startswith('net.xml: shapes: no open dimension "x[2]"')


# Finding the reader


def test_a_file_is_recognised_by_name_or_by_contents(save_ir):
    assert len(read(save_ir(convolution())).graph) == 3
    assert len(read(save_ir(convolution(), "no-suffix")).graph) == 3


def test_reading_needs_no_package(save_ir):
    path = save_ir(convolution())
    code = f"import sys; from stead.readers import read; read({path!r}); print('openvino' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_without_the_bin_file_sizes_are_as_the_xml_says(save_ir):
    model = OpenVino().read(save_ir(convolution(), weights=False))
    assert model.graph.weight_bytes.sum() == 4 * (288 + 8)
    assert "net.bin is missing; sizes of weights are as the .xml says" in model.notes


# Files that are refused


def test_a_bin_file_that_is_too_short_is_refused(save_ir, refusal):
    path = save_ir(convolution())
    Path("net.bin").write_bytes(b"\0" * 100)
    assert refusal(OpenVino().read, path) == (
        'net.xml: layer "w" lies beyond the end of net.bin; the two files do not belong together or one is cut off'
    )


BOMB = '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "aaaa">]><net name="&a;"><layers/></net>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "document types and entities are refused"),
        ('<!DOCTYPE net SYSTEM "file:///etc/passwd"><net/>', "document types and entities are refused"),
        ("", "the file is empty"),
        ("<net", "line 1, column 1: not XML: unclosed token"),
        ("<net><layers>", "not XML: no element found"),
        ("<graph/>", 'the root must be "net", got "graph"'),
        ("<a>" * 100_000, 'the root must be "net"'),
        (f"<net>{'<a>' * 100_000}", "elements are nested more than 200 deep"),
        ('<net name="&undefined;"/>', "not XML: undefined entity"),
        ('<?xml version="1.0" encoding="klingon"?><net/>', "not XML"),
        ('<net><layers><layer name="a" type="X"/></layers></net>', 'line 1: a layer has no "id"'),
        ("<net/>", "there is nothing to place"),
        (
            '<net><layers><layer id="0" type="Parameter"/><layer id="0" type="Parameter"/></layers></net>',
            "two layers have the same id",
        ),
    ],
)
def test_what_is_no_model_is_refused(save_ir, refusal, text, message):
    assert message in refusal(OpenVino().read, save_ir(text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<dim>10</dim>", "<dim>ten</dim>", '"ten" is not a size'),
        ("<dim>10</dim>", "<dim>-7</dim>", "a size of -7 makes no sense"),
        ("<dim>10</dim>", f"<dim>{2**63}</dim>", "makes no sense"),
        ("<dim>10</dim>", f"<dim>{'9' * 5000}</dim>", "is not a size"),
        ("<dim>10</dim>", f"<dim>{2**40}</dim>", "2^62 make no sense"),
        ("<dim>10</dim>", "<dim>1</dim>" * 70, "more than 64 dimensions"),
        ('to-layer="3"', 'to-layer="99"', 'an edge names layer "99", which does not exist'),
        ('from-port="2"', 'from-port="7"', "gets nothing to read"),
        ('from-layer="0" from-port="0"', 'from-layer="5" from-port="1"', "the graph has a cycle"),
        ('size="1152"', 'size="-5"', 'must be a whole number from 0 to 2^62, got "-5"'),
        ('offset="0"', 'offset="x"', "must be a whole number"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(save_ir, refusal, old, new, message):
    text = convolution().xml()
    assert old in text
    said = refusal(OpenVino().read, save_ir(text.replace(old, new)))
    assert said.startswith("net.xml: ")
    assert message in said


def test_a_file_cut_anywhere_is_refused(save_ir):
    whole = convolution().xml()
    for end in range(0, len(whole) - 1, 7):
        with pytest.raises(BadInput, match=r"^net\.xml: "):
            OpenVino().read(save_ir(whole[:end]))
