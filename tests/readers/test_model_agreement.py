"""The same net from ONNX and from OpenVINO IR is the same graph; shapes are what onnx infers."""

from __future__ import annotations

import os
from pathlib import Path

import model_zoo
import numpy as np
import pytest
from model_files import FLOAT, Graph, node, onnx_model, tensor, value

from stead.readers.onnx.file import read_model
from stead.readers.onnx.reader import Onnx, _Assembly
from stead.readers.openvino.reader import OpenVino

NETS = {
    "cnn": (model_zoo.cnn, [("x", [4, 3, 32, 32])]),
    "transformer": (model_zoo.transformer, [("ids", [4, 16]), ("mask", [4, 1, 1, 16])]),
}


@pytest.fixture(scope="module")
def openvino():
    """The package, or a reason to skip."""
    return pytest.importorskip("openvino", reason="openvino is not installed: nothing to compare with")


@pytest.fixture(scope="module")
def onnx():
    """The package, or a reason to skip."""
    return pytest.importorskip("onnx", reason="onnx is not installed: nothing to compare with")


@pytest.fixture(scope="module", params=NETS)
def both(request, openvino, tmp_path_factory):
    """A net from both formats, batch 4."""
    make, inputs = NETS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "net.onnx").write_bytes(make())
    openvino.save_model(
        openvino.convert_model(folder / "net.onnx", input=inputs), folder / "net.xml", compress_to_fp16=False
    )
    return Onnx(shapes={"batch": 4}).read(folder / "net.onnx").graph, OpenVino().read(
        folder / "net.xml"
    ).graph


def test_both_formats_have_the_same_operators(both):
    assert len(both[0]) == len(both[1])


def test_both_formats_have_the_same_weights(both):
    assert both[0].weight_bytes.sum() == both[1].weight_bytes.sum()


def test_both_formats_have_the_same_flops(both):
    assert both[0].flops.sum() == both[1].flops.sum()


def test_both_formats_move_the_same_bytes(both):
    assert both[0].moved_bytes.sum() == both[1].moved_bytes.sum()


def test_both_formats_have_the_same_edges(both):
    assert len(both[0].edges) == len(both[1].edges)


def test_both_formats_know_the_same_modules(both):
    assert set(both[0].modules) == set(both[1].modules)


# OpenVINO alone


@pytest.fixture(scope="module")
def resnet50(openvino, tmp_path_factory):
    """ResNet-50, built layer by layer and saved with weights in fp16."""
    from openvino import opset1
    from openvino import opset13 as ops

    path = tmp_path_factory.mktemp("resnet") / "resnet50.xml"
    chance = np.random.default_rng(0)

    def conv(x, channels, size, stride):
        width = x.get_output_shape(0)[1]
        kernel = chance.standard_normal((channels, width, size, size), np.float32)
        pad = [size // 2] * 2
        y = ops.convolution(x, kernel, [stride, stride], pad, pad, [1, 1])
        return ops.add(y, chance.standard_normal((1, channels, 1, 1), dtype=np.float32))

    x = inputs = ops.parameter([1, 3, 224, 224], np.float32, "x")
    x = ops.relu(conv(x, 64, 7, 2))
    x = opset1.max_pool(x, [2, 2], [1, 1], [1, 1], [3, 3])
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = ops.relu(conv(x, 64 << stage, 1, 1))
            y = ops.relu(conv(y, 64 << stage, 3, stride))
            y = conv(y, 256 << stage, 1, 1)
            x = ops.relu(ops.add(y, x if block else conv(x, 256 << stage, 1, stride)))
    x = ops.reduce_mean(x, np.array([2, 3]), keep_dims=True)
    x = ops.reshape(x, np.array([1, 2048]), special_zero=False)
    x = ops.matmul(x, chance.standard_normal((1000, 2048), dtype=np.float32), False, True)
    x = ops.add(x, chance.standard_normal((1, 1000), dtype=np.float32))
    model = openvino.Model([ops.result(x)], [inputs], "resnet50")
    openvino.save_model(model, path)
    return path


def test_resnet50_has_396_layers_and_411_edges(resnet50):
    model = OpenVino().read(resnet50)
    assert model.notes == ("396 layers and 411 edges in the file, 122 operators after folding (fold=units)",)


@pytest.mark.parametrize(
    ("level", "operators", "edges"), [("nothing", 396, 411), ("constants", 178, 193), ("units", 122, 137)]
)
def test_resnet50_shrinks_as_more_is_folded(resnet50, level, operators, edges):
    graph = OpenVino(fold=level).read(resnet50).graph
    assert (len(graph), len(graph.edges)) == (operators, edges)


def test_resnet50_has_its_parameters_and_its_flops(resnet50):
    graph = OpenVino().read(resnet50).graph
    parameters = 25_557_032 - 26_560  # of scale and shift of each batch normalisation, the shift is left
    assert graph.weight_bytes.sum() == 2 * parameters
    products = sum(
        flops
        for flops, kind in zip(graph.flops, graph.kinds, strict=True)
        if kind in ("Convolution", "MatMul")
    )
    assert products / 2 == pytest.approx(4.09e9, rel=0.01)  # multiply-adds of the literature


def test_what_the_cpu_plugin_fuses_stays_together(openvino, tmp_path):
    from openvino import opset13 as ops

    inputs = ops.parameter([1, 4, 8, 8], np.float32, "x")
    y = ops.convolution(inputs, np.ones((4, 4, 3, 3), np.float32), [1, 1], [1, 1], [1, 1], [1, 1])
    y.set_friendly_name("conv")
    z = ops.relu(y)
    z.set_friendly_name("relu")
    openvino.save_model(
        openvino.Model([ops.result(z)], [inputs], "pair"), tmp_path / "pair.xml", compress_to_fp16=False
    )
    graph = OpenVino(fused=True).read(tmp_path / "pair.xml").graph
    conv, relu = (graph.operator(graph.index(name)) for name in ("conv", "relu"))
    assert conv.colocation == relu.colocation != ""


def test_several_open_dimensions_are_inferred_by_openvino(openvino, tmp_path):
    from openvino import opset13 as ops

    inputs = ops.parameter([-1, -1, 8], np.float32, "x")
    flat = ops.reshape(inputs, np.array([-1, 8]), special_zero=False)
    product = ops.matmul(flat, np.ones((8, 5), np.float32), False, False)
    product.set_friendly_name("product")
    openvino.save_model(openvino.Model([ops.result(product)], [inputs], "open"), tmp_path / "open.xml")
    name = inputs.get_friendly_name()
    graph = OpenVino(shapes={f"{name}[0]": 3, f"{name}[1]": 7}).read(tmp_path / "open.xml").graph
    product = graph.operator(graph.index("product"))
    assert graph.tensor(product.writes[0]).shape == (21, 5)


# ONNX alone


@pytest.mark.parametrize("make", [model_zoo.cnn, model_zoo.transformer])
def test_shapes_are_those_of_onnx(onnx, tmp_path, make):
    model = onnx.load_from_string(make())
    onnx.checker.check_model(model)
    for tensor_info in model.graph.input:
        tensor_info.type.tensor_type.shape.dim[0].dim_value = 4
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    expected = {
        info.name: tuple(size.dim_value for size in info.type.tensor_type.shape.dim)
        for info in (*inferred.graph.value_info, *inferred.graph.output)
        if all(size.HasField("dim_value") for size in info.type.tensor_type.shape.dim)
    }
    (tmp_path / "net.onnx").write_bytes(make())
    graph = Onnx(shapes={"batch": 4}, fold="views").read(tmp_path / "net.onnx").graph
    compared = [tensor for tensor in graph.tensors() if tensor.name in expected]
    assert len(compared) >= 10
    assert {tensor.name: tensor.shape for tensor in compared} == {t.name: expected[t.name] for t in compared}


def test_models_of_all_ir_versions_are_read(onnx, tmp_path):
    for version in range(3, 15):
        model = onnx.load_from_string(
            onnx_model(Graph([node("Relu", "x", "y")], [value("x", (2,))], [value("y", (2,))]))
        )
        model.ir_version = version
        (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
        assert len(Onnx().read(tmp_path / "net.onnx").graph) == 2


def test_weights_saved_beside_the_model_are_not_needed(onnx, tmp_path):
    data = bytes(4 * 64 * 64)
    model = onnx.load_from_string(
        onnx_model(
            Graph(
                [node("MatMul", "x w", "y")],
                [value("x", (2, 64))],
                [value("y", (2, 64))],
                [tensor("w", (64, 64), FLOAT, data)],
            )
        )
    )
    onnx.save_model(
        model, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0
    )
    Path(tmp_path / "net.data").unlink()
    assert Onnx().read(tmp_path / "net.onnx").graph.weight_bytes.tolist() == [4 * 64 * 64]


# What it does, at the size it has in the literature: multiply-adds in millions, parameters in millions.
KNOWN_NETS = {
    "bvlc_alexnet": (660, 61.0), "densenet121": (2870, 8.1), "inception_v1": (1430, 7.0), "resnet50": (4100, 25.6),
    "squeezenet": (350, 1.24), "vgg19": (19_630, 143.7), "zfnet512": (1490, 87.3),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN_NETS)
def test_nets_of_the_literature_have_their_known_sizes(onnx, name):
    """Nets that onnx brings along, without their weights."""
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"
    if not path.is_file():
        pytest.skip("this version of onnx does not bring its test models along")
    graph = Onnx().read(path).graph
    flops, parameters = KNOWN_NETS[name]
    assert graph.flops.sum() / 2e6 == pytest.approx(flops, rel=0.02)
    assert graph.weight_bytes.sum() / 4e6 == pytest.approx(parameters, rel=0.02)
    assert not any("guess" in note or "unknown" in note for note in Onnx().read(path).notes)


def test_shapes_of_small_models_that_torch_exported(onnx):
    """Models that onnx brings along: shapes of their results are hidden, then compared."""
    folder = Path(onnx.__file__).parent / "backend/test/data"
    files = [
        file
        for kind in ("pytorch-operator", "pytorch-converted")
        for file in folder.glob(f"{kind}/*/model.onnx")
    ]
    if not files:
        pytest.skip("this version of onnx does not bring its test models along")
    found = Tally()
    for file in files:
        found.compare(file.parent.name, onnx.load(file), ())
    assert found.wrong == []
    assert found.right >= 100


@pytest.mark.skipif("STEAD_FUZZ" not in os.environ, reason="takes 12 s; set STEAD_FUZZ to run it")
@pytest.mark.filterwarnings("ignore")
def test_shapes_and_types_of_all_standard_operators(onnx):
    """The examples that onnx tests operators with: shapes of their results are hidden, then compared."""
    from onnx.backend.test.case.node import collect_testcases

    found = Tally()
    for case in collect_testcases(None):
        found.compare(case.name, case.model, case.data_sets[0][0])
    assert found.wrong == []
    assert found.right > 2100


class Tally:
    """How many shapes and types were found out, and which ones wrongly."""

    # How many boxes or different numbers there are shows only when it runs: these give the most there can be.
    BOUNDS = frozenset(("NonMaxSuppression", "Unique", "Scan"))

    def __init__(self):
        self.right = 0
        self.wrong = []

    def compare(self, name, given, inputs):
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(given)
        expected = {}
        for info in model.graph.output:
            kind = info.type.tensor_type
            if info.type.WhichOneof("value") != "tensor_type":
                continue
            if kind.HasField("shape") and all(size.HasField("dim_value") for size in kind.shape.dim):
                expected[info.name] = (tuple(size.dim_value for size in kind.shape.dim), kind.elem_type)
            kind.ClearField("shape")
            kind.elem_type = 0
        for info, array in zip(model.graph.input, inputs, strict=False):
            if isinstance(array, np.ndarray) and array.size <= 1024 and array.dtype.kind in "iufb":
                stored = onnx.numpy_helper.from_array(array, info.name)
                if stored.data_type == info.type.tensor_type.elem_type:
                    model.graph.initializer.append(stored)
        known = _Assembly(read_model(model.SerializeToString()), Onnx(), name).evaluated()
        for output, (shape, code) in expected.items():
            value = known[output]
            if value.sure and (value.shape, value.element_type) == (shape, code):
                self.right += 1
            elif value.sure and model.graph.node[-1].op_type not in self.BOUNDS:
                self.wrong.append((name, value.shape, shape))
