"""The nodes and values of a model file, as every reader hands them to `fold`."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from stead.errors import BadGraph
from stead.graph import MAX_BYTES
from stead.printing.wording import quoted
from stead.readers.common.checked_values import Wrong
from stead.readers.common.op_costs import Shape, elements, is_elementwise, is_reduction

Role: TypeAlias = Literal["operator", "input", "output", "stored", "known", "view"]
# Part of a unit as: a convolution or normalisation, a matrix product, a softmax, a reduction, an elementwise
# operator, one of those that, by constants, scales or shifts the result of an anchor or product.
Joins: TypeAlias = Literal["", "anchor", "product", "softmax", "reduction", "elementwise", "affine"]

MAX_RANK = 64
_COMPUTING = frozenset(("fp64", "fp32", "fp16", "bf16", "fp8", "int8", "int4"))


@dataclass(slots=True)
class Value:
    """A tensor in a file."""

    name: str
    shape: Shape
    dtype: str
    size_bytes: int


@dataclass(slots=True)
class Node:
    """A node of a file: what it reads and writes, and what it would cost as an operator."""

    name: str  # empty: not a node in the file, and not remembered when folded
    kind: str
    reads: Sequence[int] = ()  # values
    writes: Sequence[int] = ()  # values
    role: Role = "operator"  # stored: data in the file; known: follows from shapes alone; view: moves nothing
    module: str = ""
    dtype: str = "fp32"
    flops: float = 0.0
    picks: bool = False  # it reads no more of its first operand than it writes
    priced: bool = True  # False: nobody knows its FLOPs
    pure: bool = True  # the same operands give the same results
    aside: frozenset[int] = frozenset()  # positions in `reads` of shapes, axes and other settings: no weights
    joins: Joins = ""  # how it may become part of a unit
    inner_bytes: float = 0.0  # moved by operators inside it
    inner_weights: Sequence[tuple[str, int]] = ()  # (name, bytes) held by operators inside it


@dataclass(slots=True)
class Source:
    """The nodes and values of a file, to be folded into a Graph."""

    name: str
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)  # values that the model returns
    colocate: Mapping[str, str] = field(default_factory=dict)  # name of a node: name of its group

    def value(self, name: str, shape: Shape, dtype: str, size_bytes: int) -> int:
        """Add a value."""
        self.values.append(Value(name, shape, dtype, size_bytes))
        return len(self.values) - 1


def checked_size(what: str, shape: Shape, bits: int) -> int:
    """Bytes of a tensor, or Wrong if the shape makes no sense."""
    if len(shape) > MAX_RANK:
        raise Wrong(f"{what} has {len(shape)} dimensions; at most {MAX_RANK} make sense")
    if any(size < 0 for size in shape):
        raise Wrong(f"{what} has a negative dimension")
    size = -(-elements(shape) * bits // 8)
    if size > MAX_BYTES:
        raise Wrong(f"{what} would have {size:.3g} bytes; more than 2^62 make no sense")
    return size


def computed_in(given: str, made: str) -> str:
    """The type that a node computes in: that of its result, or of its operand where that is a number and this not."""
    return given if made not in _COMPUTING and given in _COMPUTING else made


def joins_as(kind: str, anchors: Set[str], products: Set[str], affine: Set[str]) -> Joins:
    """How a kind may become part of a unit, given the kinds of a format that begin one."""
    if kind in anchors:
        return "anchor"
    if kind in products:
        return "product"
    if kind.lower() == "softmax":
        return "softmax"
    if kind in affine:
        return "affine"
    if is_reduction(kind):
        return "reduction"
    return "elementwise" if is_elementwise(kind) else ""


def module_of(name: str) -> str:
    """The path of modules in the name of a node; empty without one.

    >>> module_of("/model/layers.0/attn/MatMul"), module_of("/layer1/layer1.0/conv1/Conv"), module_of("Add_3")
    ('model.layers.0.attn', 'layer1.0.conv1', '')
    >>> module_of("__module.layers.0.conv1/aten::_convolution/Convolution")
    'layers.0.conv1'
    """
    name = name.removeprefix("__module.").removesuffix("/WithoutBiases")  # which openvino adds
    parts = [part for part in name.split("/")[:-1] if part]
    path: list[str] = []
    for part in parts:
        if "::" in part:
            break
        if path and part.startswith(f"{path[-1]}."):  # a Sequential names its children by its own full path
            path.pop()
        path.append(part)
    return ".".join(path)


def in_order(nodes: Sequence[Node], count: int) -> list[int]:
    """Nodes so that each comes after those it reads from, in the given order where that is one."""
    producer = [-1] * count
    for n, node in enumerate(nodes):
        for v in node.writes:
            producer[v] = n
    if all(producer[v] < n for n, node in enumerate(nodes) for v in node.reads):
        return list(range(len(nodes)))
    parents = [{producer[v] for v in node.reads} - {-1} for node in nodes]
    children: list[list[int]] = [[] for _ in nodes]
    for n, own in enumerate(parents):
        for parent in own:
            children[parent].append(n)
    missing = [len(own) for own in parents]
    ready = [n for n, waits in enumerate(missing) if not waits]
    order: list[int] = []
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for child in children[n]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, child)
    if len(order) < len(nodes):
        raise BadGraph(f"the graph has a cycle through {_on_a_cycle(nodes, parents, missing)}")
    return order


def _on_a_cycle(nodes: Sequence[Node], parents: Sequence[set[int]], missing: Sequence[int]) -> str:
    n = next(n for n, waits in enumerate(missing) if waits)
    seen: set[int] = set()
    while n not in seen:
        seen.add(n)
        n = min(parent for parent in parents[n] if missing[parent])
    return quoted(nodes[n].name or nodes[n].kind)
