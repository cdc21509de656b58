"""Small models in files that runtimes can run: a residual net, one with branches, a bit of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_random = np.random.default_rng


def _weights(seed: int, *shape: int) -> Any:
    return _random(seed).standard_normal(shape, dtype=np.float32) * np.float32(0.2)


def residual_ir() -> Any:
    """conv1, relu1, conv2, added to relu1, relu2: seven layers that compute."""
    ov, ops = pytest.importorskip("openvino"), pytest.importorskip("openvino.opset13")
    x = ops.parameter([1, 4, 12, 12], np.float32, name="x")
    same = ([1, 1], [1, 1], [1, 1], [1, 1])
    conv1 = ops.convolution(x, ops.constant(_weights(1, 8, 4, 3, 3), name="w1"), *same, name="conv1")
    relu1 = ops.relu(conv1, name="relu1")
    conv2 = ops.convolution(relu1, ops.constant(_weights(2, 8, 8, 3, 3), name="w2"), *same, name="conv2")
    total = ops.add(relu1, conv2, name="sum")
    relu2 = ops.relu(total, name="relu2")
    return ov.Model([ops.result(relu2, name="y")], [x], "residual")


def branching_ir() -> Any:
    """Two towers between a first and a last convolution, and a weight in fp16 that both towers read."""
    ov, ops = pytest.importorskip("openvino"), pytest.importorskip("openvino.opset13")
    x = ops.parameter([1, 8, 10, 10], np.float32, name="x")
    same = ([1, 1], [1, 1], [1, 1], [1, 1])
    shared = ops.constant(_weights(3, 8, 8, 3, 3).astype(np.float16), name="shared")
    wide = ops.convert(shared, "f32", name="wide")
    stem = ops.relu(
        ops.convolution(x, ops.constant(_weights(4, 8, 8, 3, 3), name="w"), *same, name="stem"), name="begin"
    )
    left = ops.relu(ops.convolution(stem, wide, *same, name="left"), name="left_relu")
    right = ops.sigmoid(ops.convolution(stem, wide, *same, name="right"), name="right_sigmoid")
    joined = ops.concat([left, right], 1, name="joined")
    out = ops.max_pool(joined, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], name="pool").output(0)
    return ov.Model([ops.result(out, name="y"), ops.result(left, name="also")], [x], "branching")


def attention_ir() -> Any:
    """Queries, keys and values of one head, their softmax, a projection and what was there before added."""
    ov, ops = pytest.importorskip("openvino"), pytest.importorskip("openvino.opset13")
    x = ops.parameter([1, 6, 16], np.float32, name="x")
    q, k, v = (
        ops.matmul(x, ops.constant(_weights(5 + i, 16, 16), name=f"w_{name}"), False, False, name=name)
        for i, name in enumerate("qkv")
    )
    scores = ops.matmul(q, k, False, True, name="scores")
    mixed = ops.matmul(ops.softmax(scores, 2, name="softmax"), v, False, False, name="mixed")
    out = ops.matmul(mixed, ops.constant(_weights(9, 16, 16), name="w_o"), False, False, name="out")
    return ov.Model([ops.result(ops.add(out, x, name="skip"), name="y")], [x], "attention")


IR_MODELS: dict[str, Callable[[], Any]] = {
    "residual": residual_ir,
    "branching": branching_ir,
    "attention": attention_ir,
}


def save_ir(name: str, folder: Path) -> Path:
    """One of the models as NAME.xml and NAME.bin."""
    path = folder / f"{name}.xml"
    pytest.importorskip("openvino").save_model(IR_MODELS[name](), path, compress_to_fp16=False)
    return path


def save_onnx(folder: Path) -> Path:
    """The residual net as an ONNX file, with a Shape that feeds a Reshape at the end."""
    onnx = pytest.importorskip("onnx")
    make, arrays, floats = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        make.make_node("Conv", ["x", "w1"], ["c1"], "conv1", **pads),
        make.make_node("Relu", ["c1"], ["r1"], "relu1"),
        make.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", **pads),
        make.make_node("Add", ["r1", "c2"], ["s"], "sum"),
        make.make_node("Relu", ["s"], ["r2"], "relu2"),
        make.make_node("Softmax", ["c1"], ["p"], "soft", axis=1),
        make.make_node("Shape", ["p"], ["size"], "shape"),
        make.make_node("Reshape", ["r2", "size"], ["t"], "reshape"),
        make.make_node("Mul", ["t", "p"], ["y"], "mul"),
    ]
    stored = [
        arrays.from_array(_weights(1, 8, 4, 3, 3), "w1"),
        arrays.from_array(_weights(2, 8, 8, 3, 3), "w2"),
    ]
    graph = make.make_graph(
        nodes,
        "residual",
        [make.make_tensor_value_info("x", floats, ["batch", 4, 12, 12])],
        [make.make_tensor_value_info("y", floats, None), make.make_tensor_value_info("r2", floats, None)],
        stored,
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    path = folder / "residual.onnx"
    onnx.save(model, path)
    return path
