"""Small nets as ONNX files, to be compared across formats and packages; weights differ, so none are merged."""

from __future__ import annotations

import random
import struct

from model_files import FLOAT, INT64, Graph, integers, node, onnx_model, tensor, value


class Net:
    """Collects nodes and weights; names of results are returned so that calls can be strung together."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.stored: list[bytes] = []
        self.count = 0
        self.chance = random.Random(0)

    def weight(self, name: str, *shape: int) -> str:
        count = 1
        for size in shape:
            count *= size
        data = struct.pack(f"<{count}f", *(self.chance.uniform(-1, 1) for _ in range(count)))
        self.stored.append(tensor(name, shape, FLOAT, data))
        return name

    def number(self, amount: float) -> str:
        name = f"number{len(self.stored)}"
        self.stored.append(tensor(name, (), FLOAT, struct.pack("<f", amount)))
        return name

    def whole(self, *numbers: int) -> str:
        name = f"whole{len(self.stored)}"
        self.stored.append(integers(name, numbers))
        return name

    def __call__(self, kind: str, inputs: str, name: str, output: str = "", **attributes: object) -> str:
        out = output or f"{name}_out"
        self.nodes.append(node(kind, inputs, out, name, **attributes))
        return out


def cnn() -> bytes:
    """Plain, depthwise, pointwise and transposed convolutions, a residual, pooling, Swish, a classifier."""
    net = Net()
    x = net("Conv", f"x {net.weight('stem.weight', 16, 3, 3, 3)} {net.weight('stem.bias', 16)}", "/stem/Conv",
            pads=[1, 1, 1, 1], strides=[2, 2])  # fmt: skip
    x = net("MaxPool", net("Relu", x, "/stem/Relu"), "/pool/MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    y = net("Conv", f"{x} {net.weight('dw.weight', 16, 1, 3, 3)} {net.weight('dw.bias', 16)}", "/block/dw/Conv",
            pads=[1, 1, 1, 1], group=16)  # fmt: skip
    y = net("Clip", f"{y} {net.number(0.0)} {net.number(6.0)}", "/block/dw/Clip")
    y = net(
        "Conv", f"{y} {net.weight('pw.weight', 16, 16, 1, 1)} {net.weight('pw.bias', 16)}", "/block/pw/Conv"
    )
    x = net("Add", f"{x} {y}", "/block/Add")
    x = net("ConvTranspose", f"{x} {net.weight('up.weight', 16, 8, 2, 2)} {net.weight('up.bias', 8)}",
            "/up/ConvTranspose", strides=[2, 2])  # fmt: skip
    x = net("Mul", f"{x} {net('Sigmoid', x, '/act/Sigmoid')}", "/act/Mul")
    x = net("Concat", f"{x} {net('AveragePool', x, '/avg/AveragePool', kernel_shape=[3, 3], pads=[1, 1, 1, 1])}",
            "/Concat", axis=1)  # fmt: skip
    x = net("Flatten", net("GlobalAveragePool", x, "/gap/GlobalAveragePool"), "/Flatten")
    x = net(
        "Gemm", f"{x} {net.weight('fc.weight', 10, 16)} {net.weight('fc.bias', 10)}", "/fc/Gemm", transB=1
    )
    net("Softmax", x, "/Softmax", "y", axis=1)
    return onnx_model(
        Graph(net.nodes, [value("x", ("batch", 3, 32, 32))], [value("y", ("batch", 10))], net.stored)
    )


def transformer(layers: int = 2, width: int = 64, heads: int = 4, length: int = 16) -> bytes:
    """Embedding, attention with a mask and shapes computed as torch does, GELU written out, a classifier."""
    net = Net()
    x = net("Gather", f"{net.weight('embed.weight', 100, width)} ids", "/embed/Gather")
    x = net("Add", f"{x} {net.weight('position.weight', length, width)}", "/Add")
    for i in range(layers):
        path = f"/layers.{i}"
        y = _norm(net, x, f"{path}/ln1", width)
        q, k, v = (_heads(net, y, f"{path}/attn/{part}", width, heads, part) for part in "qkv")
        scores = net(
            "Div", f"{net('MatMul', f'{q} {k}', f'{path}/attn/MatMul')} {net.number(4.0)}", f"{path}/attn/Div"
        )
        scores = net(
            "Softmax", net("Add", f"{scores} mask", f"{path}/attn/Add"), f"{path}/attn/Softmax", axis=-1
        )
        y = net(
            "Transpose",
            net("MatMul", f"{scores} {v}", f"{path}/attn/MatMul_1"),
            f"{path}/attn/Transpose",
            perm=[0, 2, 1, 3],
        )
        y = net("Reshape", f"{y} {net.whole(0, 0, width)}", f"{path}/attn/Reshape")
        x = net("Add", f"{x} {_linear(net, y, f'{path}/attn/o', width, width)}", f"{path}/Add")
        y = _linear(net, _norm(net, x, f"{path}/ln2", width), f"{path}/mlp/up", width, 4 * width)
        x = net(
            "Add",
            f"{x} {_linear(net, _gelu(net, y, f'{path}/mlp'), f'{path}/mlp/down', 4 * width, width)}",
            f"{path}/Add_1",
        )
    x = net("ReduceMean", x, "/ReduceMean", axes=[1], keepdims=0)
    net("Gemm", f"{x} {net.weight('head.weight', width, 7)} {net.weight('head.bias', 7)}", "/head/Gemm", "y")
    inputs = [value("ids", ("batch", length), INT64), value("mask", ("batch", 1, 1, length))]
    return onnx_model(Graph(net.nodes, inputs, [value("y", ("batch", 7))], net.stored))


def _linear(net: Net, x: str, path: str, inputs: int, outputs: int) -> str:
    y = net("MatMul", f"{x} {net.weight(f'{path}.weight', inputs, outputs)}", f"{path}/MatMul")
    return net("Add", f"{net.weight(f'{path}.bias', outputs)} {y}", f"{path}/Add")


def _norm(net: Net, x: str, path: str, width: int) -> str:
    weights = f"{net.weight(f'{path}.weight', width)} {net.weight(f'{path}.bias', width)}"
    return net("LayerNormalization", f"{x} {weights}", f"{path}/LayerNormalization", axis=-1)


def _heads(net: Net, x: str, path: str, width: int, heads: int, part: str) -> str:
    y = _linear(net, x, path, width, width)
    shape = net("Shape", y, f"{path}/Shape")
    sizes = [
        net("Unsqueeze", f"{net('Gather', f'{shape} {net.whole(axis)}', f'{path}/Gather_{axis}')} {net.whole(1)}",
            f"{path}/Unsqueeze_{axis}")
        for axis in (0, 1)
    ]  # fmt: skip
    sizes = [net("Squeeze", f"{size} {net.whole(1)}", f"{path}/Squeeze_{i}") for i, size in enumerate(sizes)]
    target = net(
        "Concat",
        f"{sizes[0]} {sizes[1]} {net.whole(heads)} {net.whole(width // heads)}",
        f"{path}/Concat",
        axis=0,
    )
    y = net("Reshape", f"{y} {target}", f"{path}/Reshape")
    return net("Transpose", y, f"{path}/Transpose", perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])


def _gelu(net: Net, x: str, path: str) -> str:
    y = net("Erf", net("Div", f"{x} {net.number(2**0.5)}", f"{path}/Div"), f"{path}/Erf")
    y = net("Mul", f"{x} {net('Add', f'{y} {net.number(1.0)}', f'{path}/Add_gelu')}", f"{path}/Mul")
    return net("Mul", f"{y} {net.number(0.5)}", f"{path}/Mul_1")
