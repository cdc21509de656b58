"""A node of an ONNX file with what is known about its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stead.readers.common.op_costs import Shape, words
from stead.readers.onnx.file import FLOAT, INT64, NodeData, TensorData


class Unclear(Exception):
    """The rule cannot tell, or the operands make no sense to it."""


@dataclass(slots=True)
class Known:
    """What is known about a value."""

    shape: Shape
    element_type: int = FLOAT
    content: NDArray[Any] | None = None
    sure: bool = True  # False: the shape is a guess
    fixed: bool = False  # it is stored in the file, or made of what is


@dataclass(slots=True)
class Site:
    """A node with what is known about its operands."""

    node: NodeData
    inputs: Sequence[Known | None]  # None: left out
    opset: int
    outputs: list[Known] = field(default_factory=list)  # once they are known

    def has(self, position: int) -> bool:
        """Whether an operand is there."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def known(self, position: int) -> Known:
        """What is known about an operand."""
        found = self.inputs[position] if position < len(self.inputs) else None
        if found is None:
            raise Unclear
        return found

    def shape(self, position: int) -> Shape:
        """Shape of an operand."""
        return self.known(position).shape

    def content(self, position: int) -> NDArray[Any]:
        """Numbers of an operand."""
        found = self.known(position).content
        if found is None:
            raise Unclear
        return found

    def numbers(self, position: int, attribute: str) -> list[int]:
        """Whole numbers that are an operand in newer and an attribute in older versions; empty without them."""
        if self.has(position):
            return [int(number) for number in self.content(position).reshape(-1)]
        return self.node.integers(attribute)

    def shapes(self) -> list[Shape]:
        """Shapes of all operands that are there."""
        return [one.shape for one in self.inputs if one is not None]


Rule: TypeAlias = Callable[[Site], Sequence[Shape]]  # shapes of results, as many as it can tell


def rules(rule: Rule, kinds: str) -> dict[str, Rule]:
    """One rule for several kinds."""
    return dict.fromkeys(words(kinds), rule)


def axis_of(site: Site, default: int, rank: int) -> int:
    """The attribute "axis", counted from the front."""
    axis = site.node.integer("axis", default)
    if not -rank <= axis < max(rank, 1):
        raise Unclear
    return axis % rank if rank else 0


def broadcast(*shapes: Shape) -> Shape:
    """The shape that operands of these shapes are stretched to.

    >>> broadcast((4, 1, 3), (2, 1))
    (4, 2, 3)
    """
    result = []
    for sizes in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise Unclear
        result.append(wide.pop() if wide else 1)
    return tuple(reversed(result))


def constant_data(node: NodeData) -> TensorData:
    """What a Constant node holds."""
    for name, value in node.attributes.items():
        if isinstance(value, TensorData):
            return value
        if name == "value_int" and isinstance(value, int):
            return TensorData("", (), INT64, 8, np.array(value, dtype=np.int64))
        if name == "value_float" and isinstance(value, float):
            return TensorData("", (), FLOAT, 4, np.array(value, dtype=np.float32))
        if name == "value_ints" and isinstance(value, list):
            return TensorData("", (len(value),), INT64, 8 * len(value), np.array(value, dtype=np.int64))
        if name == "value_floats" and isinstance(value, list):
            return TensorData("", (len(value),), FLOAT, 4 * len(value), np.array(value, dtype=np.float32))
        if name == "value_string":
            return TensorData("", (), 8, 16)
        if name == "value_strings" and isinstance(value, list):
            return TensorData("", (len(value),), 8, 16 * len(value))
    raise Unclear
