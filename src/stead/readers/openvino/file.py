"""What the .xml file of an OpenVINO model holds, without the package `openvino`.

The parser of the standard library is told to refuse document types and entities, so that no file can expand to
more than it is. The .bin file with the weights is never opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from xml.parsers import expat

from stead.graph import MAX_BYTES
from stead.printing.wording import one_line, quoted
from stead.readers.common.checked_values import Wrong
from stead.readers.common.file_nodes import MAX_RANK
from stead.readers.common.op_costs import Shape
from stead.readers.common.protobuf import Bytes

MAX_LAYERS = 2**20
MAX_EDGES = 2**23
MAX_DEPTH = 200

_CHUNK_BYTES = 2**20
_SKIPPED = frozenset(("rt_info", "meta_data"))
_BODIES = frozenset(("body", "then_body", "else_body"))


@dataclass(slots=True, eq=False)
class Port:
    """One input or output of a layer; a size of -1 is open."""

    id: str
    precision: str = ""
    shape: list[int] = field(default_factory=list)
    names: str = ""


@dataclass(slots=True, eq=False)
class Layer:
    """One layer."""

    id: str
    name: str
    kind: str
    data: dict[str, str] = field(default_factory=dict)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    bodies: list[Net] = field(default_factory=list)
    port_map: list[dict[str, str]] = field(default_factory=list)  # how a loop cuts its operands into slices

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers among its attributes; empty without one."""
        text = self.data.get(name, "")
        try:
            return tuple(int(part) for part in text.split(",") if part.strip())
        except ValueError:
            return ()

    def flag(self, name: str) -> bool:
        """A yes or no among its attributes."""
        return self.data.get(name, "").strip().lower() in ("true", "1")

    def shape(self, position: int) -> Shape:
        """Shape of an operand; IndexError if it is missing."""
        return tuple(self.inputs[position].shape)

    def result(self, position: int = 0) -> Shape:
        """Shape of a result; IndexError if it is missing."""
        return tuple(self.outputs[position].shape)


@dataclass(slots=True, eq=False)
class Net:
    """Layers and the edges between their ports."""

    name: str = ""
    layers: list[Layer] = field(default_factory=list)
    edges: list[tuple[str, str, str, str]] = field(default_factory=list)  # from layer, port, to layer, port


def read_net(data: Bytes) -> Net:
    """The net in a file; Wrong if there is none."""
    return _Parser().parsed(data)


class _Parser:
    def __init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = _refuse_doctype
        self.parser.EntityDeclHandler = _refuse_doctype
        self.parser.buffer_text = True
        self.path: list[str] = []
        self.skipped = 0  # depth inside an element that is of no interest
        self.nets: list[Net] = []  # the net, then bodies inside each other
        self.layers: list[Layer] = []  # the layer being read in each of them
        self.dimension: list[str] | None = None
        self.layers_left = MAX_LAYERS
        self.edges_left = MAX_EDGES

    def parsed(self, data: Bytes) -> Net:
        try:
            for start in range(0, len(data), _CHUNK_BYTES):
                self.parser.Parse(data[start : start + _CHUNK_BYTES], False)
            self.parser.Parse(b"", True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise Wrong(f"line {error.lineno}, column {error.offset + 1}: not XML: {reason}") from None
        except (UnicodeError, LookupError):  # an encoding that nobody knows
            raise Wrong("not XML: its encoding is unknown") from None
        if not self.nets:
            raise Wrong('the root must be "net"; is it an OpenVINO model?')
        return self.nets[0]

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self.skipped or tag in _SKIPPED:
            self.skipped += 1
            return
        parent = self.path[-1] if self.path else ""
        if not parent and tag != "net":
            raise Wrong(f'the root must be "net", got {quoted(tag)}; is it an OpenVINO model?')
        self.path.append(tag)
        if len(self.path) > MAX_DEPTH:
            raise Wrong(f"elements are nested more than {MAX_DEPTH} deep")
        handle = _STARTS.get((parent, tag))
        if handle is not None:
            handle(self, tag, attributes)

    def _end(self, tag: str) -> None:
        if self.skipped:
            self.skipped -= 1
            return
        self.path.pop()
        parent = self.path[-1] if self.path else ""
        if tag == "layer" and parent == "layers":
            self.layers.pop()
        elif tag in _BODIES and parent == "layer":
            self.nets.pop()
        elif tag == "dim" and self.dimension is not None:
            self._add_dimension("".join(self.dimension))
            self.dimension = None

    def _text(self, text: str) -> None:
        if self.dimension is not None:
            self.dimension.append(text)

    def _net(self, tag: str, attributes: dict[str, str]) -> None:
        self.nets.append(Net(attributes.get("name", "")))

    def _body(self, tag: str, attributes: dict[str, str]) -> None:
        body = Net(tag)
        self.layers[-1].bodies.append(body)
        self.nets.append(body)

    def _layer(self, tag: str, attributes: dict[str, str]) -> None:
        self.layers_left -= 1
        if self.layers_left < 0:
            raise Wrong(f"more than {MAX_LAYERS} layers; coarsen the graph first")
        for key in ("id", "type"):
            if not attributes.get(key):
                raise Wrong(f'line {self.parser.CurrentLineNumber}: a layer has no "{key}"')
        layer = Layer(attributes["id"], attributes.get("name", ""), attributes["type"])
        self.nets[-1].layers.append(layer)
        self.layers.append(layer)

    def _data(self, tag: str, attributes: dict[str, str]) -> None:
        self.layers[-1].data = attributes

    def _port(self, tag: str, attributes: dict[str, str]) -> None:
        layer = self.layers[-1]
        port = Port(
            attributes.get("id", ""), attributes.get("precision", ""), names=attributes.get("names", "")
        )
        (layer.inputs if self.path[-2] == "input" else layer.outputs).append(port)

    def _dimension(self, tag: str, attributes: dict[str, str]) -> None:
        self.dimension = []

    def _add_dimension(self, text: str) -> None:
        layer = self.layers[-1]
        ports = layer.inputs if self.path[-2] == "input" else layer.outputs
        where = f"line {self.parser.CurrentLineNumber}, layer {quoted(layer.name)}"
        shape = ports[-1].shape
        if not text.strip().lstrip("-").isdecimal() or len(text) > 30:
            raise Wrong(f"{where}: {quoted(one_line(text, 40))} is not a size")
        size = int(text)
        if not -1 <= size <= MAX_BYTES:
            raise Wrong(f"{where}: a size of {size} makes no sense")
        if len(shape) >= MAX_RANK:
            raise Wrong(f"{where}: more than {MAX_RANK} dimensions")
        shape.append(size)

    def _edge(self, tag: str, attributes: dict[str, str]) -> None:
        self.edges_left -= 1
        if self.edges_left < 0:
            raise Wrong(f"more than {MAX_EDGES} edges; coarsen the graph first")
        ends = tuple(attributes.get(key, "") for key in ("from-layer", "from-port", "to-layer", "to-port"))
        self.nets[-1].edges.append((ends[0], ends[1], ends[2], ends[3]))

    def _slice(self, tag: str, attributes: dict[str, str]) -> None:
        self.layers[-1].port_map.append({**attributes, "way": tag})


def _refuse_doctype(*arguments: object) -> None:
    raise Wrong("document types and entities are refused; an OpenVINO model has none")


_STARTS: dict[tuple[str, str], Callable[[_Parser, str, dict[str, str]], None]] = {
    ("", "net"): _Parser._net,
    ("layers", "layer"): _Parser._layer,
    ("layer", "data"): _Parser._data,
    ("input", "port"): _Parser._port,
    ("output", "port"): _Parser._port,
    ("port", "dim"): _Parser._dimension,
    ("edges", "edge"): _Parser._edge,
    ("port_map", "input"): _Parser._slice,
    ("port_map", "output"): _Parser._slice,
    **{("layer", tag): _Parser._body for tag in _BODIES},
}
