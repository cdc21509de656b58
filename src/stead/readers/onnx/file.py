"""What an ONNX file holds, without the package `onnx`: nodes, attributes, shapes, and of weights only the size.

Numbers of fields are those of onnx.proto. Data of tensors is read only where it is short, because shapes may
depend on it; weights in the file are passed over, weights in other files are never opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.printing.wording import quoted
from stead.readers.common.checked_values import Wrong
from stead.readers.common.file_nodes import MAX_RANK, checked_size
from stead.readers.common.op_costs import Shape, elements
from stead.readers.common.open_sizes import Dimension
from stead.readers.common.protobuf import Bytes, Field, Wire, signed

MAX_NODES = 2**20
MAX_NESTING = 32  # bodies of loops inside bodies of loops
MAX_CONTENT = 1024  # elements of a tensor whose numbers are read
MAX_LIST = 2**16  # items of an attribute that are kept; nothing that decides shapes is longer


@dataclass(frozen=True, slots=True)
class ElementType:
    """How elements of a tensor are stored."""

    dtype: str  # as stead calls it
    bits: int
    numpy: str = ""  # how numpy calls it; empty where numbers are not read


ELEMENT_TYPES: dict[int, ElementType] = {
    1: ElementType("fp32", 32, "<f4"),
    2: ElementType("int8", 8, "u1"),
    3: ElementType("int8", 8, "i1"),
    4: ElementType("int16", 16, "<u2"),
    5: ElementType("int16", 16, "<i2"),
    6: ElementType("int32", 32, "<i4"),
    7: ElementType("int64", 64, "<i8"),
    8: ElementType("string", 128),
    9: ElementType("bool", 8, "?"),
    10: ElementType("fp16", 16, "<f2"),
    11: ElementType("fp64", 64, "<f8"),
    12: ElementType("int32", 32, "<u4"),
    13: ElementType("int64", 64, "<u8"),
    14: ElementType("complex64", 64),
    15: ElementType("complex128", 128),
    16: ElementType("bf16", 16),
    17: ElementType("fp8", 8),
    18: ElementType("fp8", 8),
    19: ElementType("fp8", 8),
    20: ElementType("fp8", 8),
    21: ElementType("int4", 4),
    22: ElementType("int4", 4),
    23: ElementType("fp4", 4),
    24: ElementType("fp8", 8),
    25: ElementType("int2", 2),
    26: ElementType("int2", 2),
}
FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9


@dataclass(slots=True, eq=False)
class TensorData:
    """A stored tensor: its size always, its numbers where they are few."""

    name: str = ""
    shape: Shape = ()
    element_type: int = 0
    size_bytes: int = 0
    content: NDArray[Any] | None = None
    external: bool = False


@dataclass(slots=True, eq=False)
class ValueInfo:
    """What the file says about a tensor."""

    name: str
    element_type: int = 0
    dimensions: tuple[Dimension, ...] | None = None  # None: it does not say


@dataclass(slots=True, eq=False)
class NodeData:
    """One node."""

    kind: str = ""
    name: str = ""
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    module: str = ""  # from the scopes that torch writes
    attribute_bytes: int = 0  # of long attributes: the trees of a forest are not initialisers

    def integer(self, name: str, default: int) -> int:
        """A whole number among its attributes."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> list[int]:
        """Whole numbers among its attributes; empty without them."""
        value = self.attributes.get(name)
        return value if isinstance(value, list) and all(isinstance(item, int) for item in value) else []

    def text(self, name: str, default: str = "") -> str:
        """A string among its attributes."""
        value = self.attributes.get(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else default

    def graphs(self) -> list[GraphData]:
        """Its bodies."""
        return [value for value in self.attributes.values() if isinstance(value, GraphData)]


@dataclass(slots=True, eq=False)
class GraphData:
    """A graph, or the body of a loop, a branch or a function."""

    name: str = ""
    nodes: list[NodeData] = field(default_factory=list)
    initializers: list[TensorData] = field(default_factory=list)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    values: dict[str, ValueInfo] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ModelData:
    """A whole file."""

    graph: GraphData
    opset: int = 0  # of the standard operators
    functions: dict[tuple[str, str], GraphData] = field(default_factory=dict)  # by (domain, kind)


def read_model(data: Bytes) -> ModelData:
    """The structure of a file; Wrong if there is none."""
    return _Parser(data).model()


_QUOTED = re.compile(r"'([^']*)'")


class _Parser:
    def __init__(self, data: Bytes) -> None:
        self.wire = Wire(data)
        self.nodes_left = MAX_NODES
        self.tensors_left = 4 * MAX_NODES
        self.depth = 0

    def model(self) -> ModelData:
        graph: GraphData | None = None
        made = ModelData(GraphData())
        for number, value, end in self.wire.fields(0, len(self.wire.data)):
            if number == 7:
                if graph is not None:
                    raise Wrong("two graphs; the file is damaged")
                graph = self._graph(value, end)
            elif number == 8:
                domain, version = self._operator_set(value, end)
                if domain in ("", "ai.onnx"):
                    made.opset = version
            elif number == 25:
                key, body = self._function(value, end)
                made.functions[key] = body
        if graph is None:
            raise Wrong("no graph; is it an ONNX file?")
        made.graph = graph
        return made

    def _operator_set(self, start: int, end: int) -> tuple[str, int]:
        domain, version = "", 0
        for number, value, stop in self.wire.message(start, end):
            if number == 1:
                domain = self.wire.text(value, stop)
            elif number == 2 and stop < 0:
                version = value
        return domain, version

    def _function(self, start: int, end: int) -> tuple[tuple[str, str], GraphData]:
        body = GraphData()
        domain = ""
        for number, value, stop in self.wire.message(start, end):
            if number == 1:
                body.name = self.wire.text(value, stop)
            elif number == 4:
                body.inputs.append(ValueInfo(self.wire.text(value, stop)))
            elif number == 5:
                body.outputs.append(ValueInfo(self.wire.text(value, stop)))
            elif number == 7:
                body.nodes.append(self._node(value, stop))
            elif number == 10:
                domain = self.wire.text(value, stop)
        return (domain, body.name), body

    def _graph(self, start: int, end: int) -> GraphData:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise Wrong(f"graphs are nested more than {MAX_NESTING} deep")
        graph = GraphData()
        for number, value, stop in self.wire.message(start, end):
            if number == 1:
                graph.nodes.append(self._node(value, stop))
            elif number == 2:
                graph.name = self.wire.text(value, stop)
            elif number == 5:
                graph.initializers.append(self._tensor(value, stop))
            elif number == 11:
                graph.inputs.append(self._value(value, stop))
            elif number == 12:
                graph.outputs.append(self._value(value, stop))
            elif number == 13:
                info = self._value(value, stop)
                graph.values[info.name] = info
            elif number == 15:
                graph.initializers.append(self._sparse_tensor(value, stop))
        self.depth -= 1
        return graph

    def _node(self, start: int, end: int) -> NodeData:
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise Wrong(f"more than {MAX_NODES} nodes; coarsen the graph first")
        node = NodeData()
        text = self.wire.text
        for number, value, stop in self.wire.message(start, end):
            if number == 1:
                node.inputs.append(text(value, stop))
            elif number == 2:
                node.outputs.append(text(value, stop))
            elif number == 3:
                node.name = text(value, stop)
            elif number == 4:
                node.kind = text(value, stop)
            elif number == 5:
                self._attribute(node, value, stop)
            elif number == 7:
                node.domain = text(value, stop)
            elif number == 9:
                self._metadata(node, value, stop)
        if not node.kind:
            raise Wrong(f"node {quoted(node.name)} at byte {start} has no operator type; the file is damaged")
        return node

    def _metadata(self, node: NodeData, start: int, end: int) -> None:
        """The module path, which torch's exporter writes as a list of scopes that ends in the node itself."""
        key = ""
        for number, value, stop in self.wire.message(start, end):
            if number == 1:
                key = self.wire.text(value, stop)
            elif number == 2 and key == "pkg.torch.onnx.name_scopes" and stop - value < 4096:
                scopes = _QUOTED.findall(self.wire.text(value, stop))
                node.module = scopes[-2] if len(scopes) > 1 else ""

    def _attribute(self, node: NodeData, start: int, end: int) -> None:
        name = ""
        found: Any = None
        many: list[Any] = []
        for number, value, stop in self.wire.message(start, end):
            if number == 1:
                name = self.wire.text(value, stop)
            elif number in _LISTS:
                many.extend(islice(_LISTS[number](self, value, stop), MAX_LIST - len(many)))
            elif number in _SCALARS:
                found = _SCALARS[number](self, value, stop)
        if found is not None or many:  # else it is an attribute of the function that the node is in
            node.attributes[name] = many if found is None else found
        if many and end - start > MAX_CONTENT:
            node.attribute_bytes += end - start

    def _float(self, start: int, end: int) -> float:
        numbers = self.wire.floats(start, end)
        return numbers[0] if numbers else 0.0

    def _integer(self, value: int, end: int) -> int:
        if end >= 0:
            raise Wrong(f"byte {value} should start a number; the file is damaged")
        return signed(value)

    def _string(self, start: int, end: int) -> bytes:
        if end < 0:
            raise Wrong("a number where a string should be; the file is damaged")
        return self.wire.data[start : min(end, start + MAX_LIST)]

    def _count_tensor(self) -> None:
        self.tensors_left -= 1
        if self.tensors_left < 0:
            raise Wrong(f"more than {4 * MAX_NODES} tensors; coarsen the graph first")

    def _value(self, start: int, end: int) -> ValueInfo:
        self._count_tensor()
        info = ValueInfo("")
        for number, value, stop in self.wire.message(start, end):
            if number == 1:
                info.name = self.wire.text(value, stop)
            elif number == 2:
                for kind, inner, inner_stop in self.wire.message(value, stop):
                    if kind in (1, 8):  # a dense or a sparse tensor; not a sequence, a map or an optional
                        self._tensor_type(info, inner, inner_stop)
        return info

    def _tensor_type(self, info: ValueInfo, start: int, end: int) -> None:
        for number, value, stop in self.wire.message(start, end):
            if number == 1 and stop < 0:
                info.element_type = value if value in ELEMENT_TYPES else 0
            elif number == 2:
                dimensions = islice(self.wire.message(value, stop), MAX_RANK + 1)
                info.dimensions = tuple(self._dimension(field) for field in dimensions)
                if len(info.dimensions) > MAX_RANK:
                    raise Wrong(
                        f"{quoted(info.name)} has {len(info.dimensions)} dimensions; at most {MAX_RANK}"
                    )

    def _dimension(self, field: Field) -> Dimension:
        found: Dimension = ""
        for number, value, stop in self.wire.message(field[1], field[2]):
            if number == 1:
                size = self._integer(value, stop)
                found = size if size >= 0 else ""  # some exporters write -1 for a size that is not fixed
            elif number == 2:
                found = self.wire.text(value, stop)
        return found

    def _sparse_tensor(self, start: int, end: int) -> TensorData:
        """A sparse initialiser: dense to look at, as large as its values and their positions."""
        parts: list[TensorData] = []
        shape: list[int] = []
        for number, value, stop in self.wire.message(start, end):
            if number in (1, 2):
                parts.append(self._tensor(value, stop))
            elif number == 3:
                shape.extend(islice(self.wire.numbers(value, stop), MAX_RANK + 1))
        if not parts:
            raise Wrong("a sparse tensor without values; the file is damaged")
        dense = TensorData(parts[0].name, tuple(shape), parts[0].element_type)
        checked_size(f"tensor {quoted(dense.name)}", dense.shape, _element(dense).bits)
        dense.size_bytes = sum(part.size_bytes for part in parts)
        return dense

    def _tensor(self, start: int, end: int) -> TensorData:
        self._count_tensor()
        tensor = TensorData()
        shape: list[int] = []
        data: list[Field] = []
        for number, value, stop in self.wire.message(start, end):
            if number == 1:
                shape.extend(islice(self.wire.numbers(value, stop), MAX_RANK + 1))
                if len(shape) > MAX_RANK:
                    raise Wrong(f"a tensor at byte {start} has more than {MAX_RANK} dimensions")
            elif number == 2 and stop < 0:
                tensor.element_type = value
            elif number == 8:
                tensor.name = self.wire.text(value, stop)
            elif number in _DATA:
                if len(data) <= MAX_CONTENT:
                    data.append((number, value, stop))
            elif number == 14 and value == 1:
                tensor.external = True
        tensor.shape = tuple(shape)
        what = f"tensor {quoted(tensor.name)}"
        tensor.size_bytes = checked_size(what, tensor.shape, _element(tensor).bits)
        if elements(tensor.shape) <= MAX_CONTENT and not tensor.external:
            tensor.content = self._content(tensor, data)
        return tensor

    def _content(self, tensor: TensorData, data: Sequence[Field]) -> NDArray[Any] | None:
        """The numbers of a short tensor; None where they are of no use or do not fit the shape."""
        kind = _element(tensor).numpy
        if not kind:
            return None
        try:
            if len(data) == 1 and data[0][0] == 9:
                flat = np.frombuffer(self.wire.data[data[0][1] : data[0][2]], dtype=kind)
            else:
                numbers: list[Any] = []
                for number, value, stop in data:
                    found = self.wire.floats(value, stop) if number == 4 else self.wire.numbers(value, stop)
                    numbers.extend(islice(found, MAX_CONTENT + 1))
                if kind in ("<f2", "<f8"):
                    return None  # bits in fields of another type; nothing needs them
                flat = np.array(numbers).astype(kind)
            return flat.reshape(tensor.shape)
        except (ValueError, OverflowError, TypeError):
            return None


def _element(tensor: TensorData) -> ElementType:
    found = ELEMENT_TYPES.get(tensor.element_type)
    if found is None:
        raise Wrong(f"tensor {quoted(tensor.name)} has elements of unknown type {tensor.element_type}")
    return found


_DATA = frozenset((4, 5, 7, 9, 10, 11))  # float, int32, int64, raw, double, uint64
_SCALARS: dict[int, Callable[[_Parser, int, int], Any]] = {
    2: _Parser._float,
    3: _Parser._integer,
    4: _Parser._string,
    5: _Parser._tensor,
    6: _Parser._graph,
    22: _Parser._sparse_tensor,
}
_LISTS: dict[int, Callable[[_Parser, int, int], Iterable[Any]]] = {
    7: lambda parser, value, stop: parser.wire.floats(value, stop),
    8: lambda parser, value, stop: parser.wire.numbers(value, stop),
    9: lambda parser, value, stop: [parser._string(value, stop)],
    11: lambda parser, value, stop: [parser._graph(value, stop)],
}
