"""Larger models for OpenVINO than those of `small_files`: a residual net, a transformer, a detector with skips.

They have the shapes of their kind and some 60 to 110 layers that compute, so that placements at random fall into many
parts; they are for runs that take minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


class Net:
    """Layers of a model on their way into a file, with weights at random."""

    def __init__(self) -> None:
        pytest.importorskip("openvino")
        self.ops: Any = pytest.importorskip("openvino.opset13")
        self.random = np.random.default_rng(0)

    def weight(self, *shape: int, scale: float) -> Any:
        """A constant."""
        return self.ops.constant(self.random.standard_normal(shape, dtype=np.float32) * np.float32(scale))

    def convolution(self, x: Any, wide: int, size: int = 3, stride: int = 1) -> Any:
        """A convolution with its bias and a ReLU."""
        deep, pad = int(x.get_output_shape(0)[1]), size // 2
        kernel = self.weight(wide, deep, size, size, scale=1 / np.sqrt(deep * size * size))
        made = self.ops.convolution(x, kernel, [stride] * 2, [pad] * 2, [pad] * 2, [1, 1])
        return self.ops.relu(self.ops.add(made, self.weight(1, wide, 1, 1, scale=0.1)))

    def linear(self, x: Any, wide: int) -> Any:
        """A product with its bias."""
        deep = int(x.get_output_shape(0)[-1])
        product = self.ops.matmul(x, self.weight(deep, wide, scale=1 / np.sqrt(deep)), False, False)
        return self.ops.add(product, self.weight(wide, scale=0.1))

    def norm(self, x: Any) -> Any:
        """A normalisation of rows with a scale."""
        last = self.ops.constant(np.array([-1]))
        return self.ops.multiply(self.ops.mvn(x, last, True, 1e-5, "inside_sqrt"), self.weight(1, scale=1.0))

    def shaped(self, x: Any, *shape: int) -> Any:
        """The same numbers in another shape."""
        return self.ops.reshape(x, self.ops.constant(np.array(shape)), False)

    def turned(self, x: Any, *order: int) -> Any:
        """The same numbers with dimensions in another order."""
        return self.ops.transpose(x, self.ops.constant(np.array(order)))


def residual_net(net: Net) -> tuple[Any, list[Any]]:
    """Nine blocks of two convolutions at three widths, with skips; then pooling and a head."""
    x = net.ops.parameter([1, 3, 32, 32], np.float32, name="x")
    stream = net.convolution(x, 8)
    for wide in (8, 16, 32):
        for block in range(3):
            stride = 2 if block == 0 and wide > 8 else 1
            worked = net.convolution(net.convolution(stream, wide, stride=stride), wide)
            skip = net.convolution(stream, wide, 1, stride) if stride > 1 else stream
            stream = net.ops.relu(net.ops.add(worked, skip))
    pooled = net.ops.reduce_mean(stream, net.ops.constant(np.array([2, 3])), False)
    return x, [net.linear(pooled, 10)]


def transformer_net(net: Net) -> tuple[Any, list[Any]]:
    """Four layers of attention with four heads and a feed-forward part."""
    tokens, wide, heads = 12, 32, 4
    x = net.ops.parameter([1, tokens, wide], np.float32, name="x")
    stream: Any = x
    for _ in range(4):
        normed = net.norm(stream)
        parts = (net.turned(net.shaped(net.linear(normed, wide), 1, tokens, heads, 8), 0, 2, 1, 3) for _ in range(3))
        queries, keys, values = parts
        scores = net.ops.multiply(net.ops.matmul(queries, keys, False, True), net.ops.constant(np.float32(8**-0.5)))
        mixed = net.turned(net.ops.matmul(net.ops.softmax(scores, 3), values, False, False), 0, 2, 1, 3)
        stream = net.ops.add(stream, net.linear(net.shaped(mixed, 1, tokens, wide), wide))
        worked = net.ops.gelu(net.linear(net.norm(stream), 4 * wide), "erf")
        stream = net.ops.add(stream, net.linear(worked, wide))
    return x, [net.norm(stream)]


def detector_net(net: Net) -> tuple[Any, list[Any]]:
    """A backbone, a way up and a way down with concatenations, and heads at three sizes, as YOLO has them."""
    x = net.ops.parameter([1, 3, 64, 64], np.float32, name="x")
    stream, seen = net.convolution(x, 8, stride=2), []
    for wide in (16, 24, 32):
        stream = net.convolution(stream, wide, stride=2)
        left, right = net.convolution(stream, wide // 2, 1), net.convolution(stream, wide // 2, 1)
        for _ in range(2):
            right = net.ops.add(right, net.convolution(net.convolution(right, wide // 2, 1), wide // 2))
        stream = net.convolution(net.ops.concat([left, right], 1), wide, 1)
        seen.append(stream)
    up = [seen[2]]
    for skip in (seen[1], seen[0]):
        high = int(skip.get_output_shape(0)[2])
        grown = net.ops.interpolate(
            up[-1], net.ops.constant(np.array([high, high])), "nearest", "sizes",
            axes=net.ops.constant(np.array([2, 3])),
        )  # fmt: skip
        up.append(net.convolution(net.ops.concat([grown, skip], 1), int(skip.get_output_shape(0)[1])))
    down = [up[2]]
    for skip in (up[1], up[0]):
        wide = int(skip.get_output_shape(0)[1])
        down.append(net.convolution(net.ops.concat([net.convolution(down[-1], wide, stride=2), skip], 1), wide))
    return x, [net.ops.sigmoid(net.convolution(one, 18, 1)) for one in down]


LARGER: dict[str, Callable[[Net], tuple[Any, list[Any]]]] = {
    "residual net": residual_net,
    "transformer": transformer_net,
    "detector": detector_net,
}


def save_larger(name: str, folder: Path) -> Path:
    """One of the models as NAME.xml and NAME.bin."""
    ov = pytest.importorskip("openvino")
    given, results = LARGER[name](Net())
    path = folder / f"{name.replace(' ', '_')}.xml"
    ov.save_model(ov.Model([ov.opset13.result(one) for one in results], [given], name), path, compress_to_fp16=False)
    return path
