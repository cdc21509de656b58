"""OpenVINO models (IR, an .xml file with a .bin file beside it) to graphs, without the package `openvino`.

Shapes are in the file; weights are in the .bin file, whose size is looked at and nothing more. Two things need
the package: several open dimensions of different sizes, and the units that the CPU plugin runs as one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from stead.errors import MissingExtra
from stead.files import collector_paused
from stead.graph import MAX_BYTES
from stead.graph.unique_names import Names
from stead.printing.wording import one_line, quoted, shown_path
from stead.readers.base import Model
from stead.readers.common.checked_values import Wrong, about
from stead.readers.common.file_nodes import Node, Source, checked_size, computed_in, module_of
from stead.readers.common.folding import Fold, fold
from stead.readers.common.op_costs import Shape, elements
from stead.readers.common.open_sizes import Given, OpenInput, Sizes, check_options
from stead.readers.common.protobuf import mapped
from stead.readers.known_formats import OfTable
from stead.readers.openvino.file import Layer, Net, Port, read_net
from stead.readers.openvino.work import ASIDE, IMPURE, cost, element_type, is_view, joins

__all__ = ["OpenVino"]

_SHARED_BYTES = 2**20  # two constants of at least this size at one place in the .bin file are one weight


@dataclass(frozen=True, slots=True)
class OpenVino(OfTable):
    """Reader of OpenVINO models: one operator per layer, constants, views and bias additions folded."""

    name: ClassVar[str] = "openvino"

    # Open dimensions as "input[0]", shapes by input; 1 if absent.
    shapes: Mapping[str, Given] = field(default_factory=dict)
    fold: Fold = "units"
    fused: bool = False  # compile with the CPU plugin and keep together what it fuses; needs openvino
    batch: int | None = None  # of open first dimensions

    def __post_init__(self) -> None:
        check_options(self.shapes, self.fold, self.batch)

    def read(self, path: str | os.PathLike[str]) -> Model:
        """The graph in a file; weights are not loaded unless `fused` asks for compiling."""
        with about(shown_path(path)), collector_paused():
            with mapped(path) as data:
                if not len(data):
                    raise Wrong("the file is empty; save the model again")
                net = read_net(data)
            return _Assembly(net, self, path).model()


class _Assembly:
    """One file on its way to a Model."""

    def __init__(self, net: Net, reader: OpenVino, path: str | os.PathLike[str]) -> None:
        self.net = net
        self.reader = reader
        self.path = Path(path)
        self.weights_bytes = self._size_of_weights()
        self.source = Source(net.name or one_line(self.path.stem))
        self.sizes = Sizes(reader.shapes, reader.batch, usual=False)
        self.names = Names()
        self.values: dict[tuple[str, str], int] = {}  # (layer, port): value
        self.shared: dict[tuple[int, int], int] = {}  # (offset, bytes) in the .bin file: value
        self.ties = 0
        self.bodies: Counter[str] = Counter()
        self.endless = 0
        self.open_results = 0
        self.open_number = 1

    def model(self) -> Model:
        """Everything in order: sizes, values, then nodes that read them."""
        self._settle_sizes()
        reads = self._edges()
        for layer in self.net.layers:
            for position, port in enumerate(layer.outputs):
                self._add_value(layer, port, position)
        for layer in self.net.layers:
            self._add_node(layer, reads)
        if self.reader.fused:
            self.source.colocate = {**self._states(), **_fused_units(self.path, self.names_of_layers)}
        else:
            self.source.colocate = self._states()
        folded = fold(self.source, self.reader.fold)
        counted = f"{len(self.net.layers)} layers and {len(self.net.edges)} edges in the file"
        notes = [f"{counted}, {len(folded.graph)} operators after folding (fold={self.reader.fold})"]
        notes += [*self._notes(), *folded.notes()]
        return Model(folded.graph, notes=tuple(notes), assumed=self.sizes.assumed)

    def _notes(self) -> Iterator[str]:
        if self.weights_bytes is None:
            yield f"{one_line(self.path.with_suffix('.bin').name)} is missing; sizes of weights are as the .xml says"
        if self.ties:
            yield f"{self.ties} constants share their place in the .bin file with another and are taken as one weight"
        if self.bodies:
            kinds = ", ".join(f"{one_line(kind, 60)} {count}" for kind, count in self.bodies.most_common(6))
            text = f"{kinds}: each one operator that stands for its body"
            yield f"{text}; loops of unknown length count once" if self.endless else text
        if self.open_results:
            yield f"{self.open_results} results inside have open dimensions too, taken as {self.open_number}"

    def _size_of_weights(self) -> int | None:
        try:
            return self.path.with_suffix(".bin").stat().st_size
        except (OSError, ValueError):
            return None

    # Open dimensions

    def _settle_sizes(self) -> None:
        """Replace every -1 by a number."""
        parameters = [layer for layer in self.net.layers if layer.kind == "Parameter" and layer.outputs]
        numbers: set[int] = set()
        given = [[size if size >= 0 else "" for size in layer.outputs[0].shape] for layer in parameters]
        inputs = [OpenInput(layer.name, shape) for layer, shape in zip(parameters, given, strict=True)]
        for layer, before, found in zip(parameters, given, self.sizes.shapes(inputs), strict=True):
            layer.outputs[0].shape[:] = found
            numbers.update(size for size, was in zip(found, before, strict=True) if was == "")
        ports = [port for layer in self.net.layers for port in layer.outputs if -1 in port.shape]
        if not ports:
            return
        if len(numbers) > 1:
            self._infer({layer.name: tuple(layer.outputs[0].shape) for layer in parameters})
            ports = [port for layer in self.net.layers for port in layer.outputs if -1 in port.shape]
        self.open_number = numbers.pop() if len(numbers) == 1 else 1
        self.open_results = len(ports)
        for port in ports:
            port.shape[:] = [self.open_number if size < 0 else size for size in port.shape]

    def _infer(self, inputs: Mapping[str, Shape]) -> None:
        """Shapes as openvino infers them from the shapes of the inputs."""
        found = _reshaped(self.path, inputs)
        for layer in self.net.layers:
            for position, port in enumerate(layer.outputs):
                known = found.get((layer.name, position))
                if -1 in port.shape and known is not None and len(known) == len(port.shape):
                    port.shape[:] = known

    # Values and nodes

    def _edges(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Where each input port gets its data from."""
        known = {layer.id for layer in self.net.layers}
        if len(known) < len(self.net.layers):
            raise Wrong("two layers have the same id; the file is damaged")
        reads: dict[tuple[str, str], tuple[str, str]] = {}
        for from_layer, from_port, to_layer, to_port in self.net.edges:
            for end in (from_layer, to_layer):
                if end not in known:
                    raise Wrong(f"an edge names layer {quoted(end)}, which does not exist")
            if (to_layer, to_port) in reads:
                raise Wrong(f"two edges lead to port {quoted(to_port)} of layer {quoted(to_layer)}")
            reads[to_layer, to_port] = (from_layer, from_port)
        return reads

    def _add_value(self, layer: Layer, port: Port, position: int) -> None:
        if (layer.id, port.id) in self.values:
            raise Wrong(f"layer {quoted(layer.name)} has two ports {quoted(port.id)}")
        dtype, bits = element_type(port.precision or layer.data.get("element_type", ""))
        shape = tuple(port.shape)
        size = checked_size(f"a result of layer {quoted(layer.name)}", shape, bits)
        name = layer.name if len(layer.outputs) == 1 else f"{layer.name}:{position}"
        self.values[layer.id, port.id] = self.source.value(name, shape, dtype, size)

    def _add_node(self, layer: Layer, edges: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        reads = []
        for port in layer.inputs:
            end = edges.get((layer.id, port.id))
            if end not in self.values:
                raise Wrong(f"port {quoted(port.id)} of layer {quoted(layer.name)} gets nothing to read")
            reads.append(self.values[end])
            port.shape[:] = self.source.values[reads[-1]].shape  # open sizes are numbers there
        writes = [self.values[layer.id, port.id] for port in layer.outputs]
        node = Node(self.names.unique(layer.name or f"{layer.kind}_{layer.id}"), layer.kind, reads, writes)
        node.module = module_of(layer.name)
        node.dtype = self._dtype(reads, writes)
        self._settle_role(node, layer)
        self.source.nodes.append(node)

    def _settle_role(self, node: Node, layer: Layer) -> None:
        if layer.kind == "Parameter":
            node.role = "input"
        elif layer.kind == "Result":
            node.role = "output"
            node.writes = []
        elif layer.kind == "Const":
            node.role = "stored"
            self._settle_constant(node, layer)
        elif layer.kind == "ShapeOf":
            node.role = "known"
        elif layer.bodies:
            self._settle_body(node, layer)
        else:
            price = cost(layer)
            node.role = "view" if is_view(layer) else "operator"
            node.flops, node.picks, node.priced = price.flops, price.picks, price.known
            node.aside = ASIDE.get(layer.kind, frozenset())
            node.pure = layer.kind not in IMPURE
            node.joins = joins(layer.kind)
            if layer.kind == "Assign":
                node.writes = []  # it is there for what it keeps, not for what it returns

    def _settle_constant(self, node: Node, layer: Layer) -> None:
        """The size of a constant; a large one at the place of another is the same weight."""
        where = f"layer {quoted(layer.name)}"
        place = tuple(_whole(f"{where}: {key}", layer.data.get(key, "")) for key in ("offset", "size"))
        offset, size = place
        if self.weights_bytes is not None and offset + size > self.weights_bytes:
            raise Wrong(
                f"{where} lies beyond the end of {one_line(self.path.with_suffix('.bin').name)}; "
                "the two files do not belong together or one is cut off"
            )
        if not node.writes:
            raise Wrong(f"{where} has no output")
        v = node.writes[0]
        self.source.values[v].size_bytes = size
        if size < _SHARED_BYTES or self.reader.fold == "nothing":
            return
        first = self.shared.setdefault((offset, size), v)
        if first != v:
            self.ties += 1
            node.role, node.reads = "view", [first]

    def _settle_body(self, node: Node, layer: Layer) -> None:
        self.bodies[layer.kind] += 1
        costs = [self._body_cost(body) for body in layer.bodies]
        trips = _trips(layer)
        self.endless += layer.kind == "Loop" and trips is None
        flops, moved = max((flops, moved) for flops, moved, _, _ in costs)
        node.flops, node.inner_bytes = flops * (trips or 1), moved * (trips or 1)
        weights = [weight for *_, held, _ in costs for weight in held]
        node.inner_weights = [(f"{node.name}/{name}", size) for name, size in weights]
        node.priced = all(priced for *_, priced in costs)
        node.pure = False
        node.aside = ASIDE.get(layer.kind, frozenset())

    def _body_cost(self, net: Net) -> tuple[float, float, list[tuple[str, int]], bool]:
        """FLOPs, bytes, weights and whether all prices are known, of one run of a body."""
        flops = moved = 0.0
        weights: list[tuple[str, int]] = []
        priced = True
        fixed = _fixed_layers(net)
        for layer in net.layers:
            for port in (*layer.inputs, *layer.outputs):
                port.shape[:] = [max(size, 1) for size in port.shape]
            if layer.kind == "Const":
                if elements(layer.result()) > 1:
                    size = _whole(f"layer {quoted(layer.name)}: size", layer.data.get("size", ""))
                    weights.append((layer.name, size))
            elif layer.id in fixed:
                continue  # computed from constants, once
            elif layer.bodies:
                inner = [self._body_cost(body) for body in layer.bodies]
                trips = _trips(layer) or 1
                flops += trips * max(one[0] for one in inner)
                moved += trips * max(one[1] for one in inner)
                weights += [weight for one in inner for weight in one[2]]
                priced &= all(one[3] for one in inner)
            elif layer.kind not in ("Parameter", "Result", "ShapeOf") and not is_view(layer):
                price = cost(layer)
                flops += price.flops
                priced &= price.known
                moved += sum(_port_bytes(layer, port) for port in (*layer.inputs, *layer.outputs))
        return flops, moved, weights, priced

    def _dtype(self, reads: list[int], writes: list[int]) -> str:
        """What a layer computes in: the type of its result, or of its operand where that is a number and this not."""
        made = self.source.values[writes[0]].dtype if writes else ""
        given = self.source.values[reads[0]].dtype if reads else made
        return computed_in(given, made) or given or "fp32"

    def _states(self) -> dict[str, str]:
        """A variable lives where it is written: its reader and its writer stay together."""
        named = zip(self.source.nodes, self.net.layers, strict=True)
        return {
            node.name: f"variable {layer.data['variable_id']}"
            for node, layer in named
            if layer.kind in ("ReadValue", "Assign") and layer.data.get("variable_id")
        }

    @property
    def names_of_layers(self) -> set[str]:
        """Names of all nodes."""
        return {node.name for node in self.source.nodes}


def _fixed_layers(net: Net) -> set[str]:
    """Layers of a body whose results are the same in every run: constants, and what is computed from them alone."""
    feeds: dict[str, list[str]] = {}
    for source, _, target, _ in net.edges:
        feeds.setdefault(target, []).append(source)
    fixed = {layer.id for layer in net.layers if layer.kind == "Const"}
    for layer in net.layers:  # written in topological order
        own = feeds.get(layer.id, ())
        if own and layer.kind not in IMPURE and not layer.bodies and all(source in fixed for source in own):
            fixed.add(layer.id)
    return fixed


def _port_bytes(layer: Layer, port: Port) -> int:
    return checked_size(f"layer {quoted(layer.name)}", tuple(port.shape), element_type(port.precision)[1])


def _whole(what: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 20 or int(text) > MAX_BYTES:
        raise Wrong(f"{what} must be a whole number from 0 to 2^62, got {quoted(text)}")
    return int(text)


def _trips(layer: Layer) -> int | None:
    """How often the body of a loop runs, from how it cuts its operands or joins its results; None if nobody knows."""
    ports = {port.id: port for port in (*layer.inputs, *layer.outputs)}
    for entry in layer.port_map:
        port = ports.get(entry.get("external_port_id", ""))
        try:
            axis, part = int(entry["axis"]), abs(int(entry.get("part_size", "1"))) or 1
            if port is not None:
                return port.shape[axis] // part
        except (KeyError, ValueError, IndexError):
            continue
    return None


# With the package


def _openvino(purpose: str) -> ModuleType:
    try:
        return import_module("openvino")
    except ImportError:
        raise MissingExtra("openvino", "openvino", purpose) from None


def _reshaped(path: Path, inputs: Mapping[str, Shape]) -> dict[tuple[str, int], Shape]:
    """Shapes of all results by (layer, number), with inputs of the given shapes."""
    openvino = _openvino("an OpenVINO model with open dimensions of different sizes")
    try:
        model = openvino.Core().read_model(path)
        by_name = {parameter.get_friendly_name(): parameter for parameter in model.get_parameters()}
        model.reshape(
            {by_name[name].output(0): list(shape) for name, shape in inputs.items() if name in by_name}
        )
        return {
            (op.get_friendly_name(), i): tuple(
                size.get_length() if size.is_static else -1 for size in op.output(i).get_partial_shape()
            )
            for op in model.get_ops()
            for i in range(op.get_output_size())
            if op.output(i).get_partial_shape().rank.is_static
        }
    except RuntimeError as error:
        raise Wrong(f"openvino cannot reshape it: {one_line(str(error), 300)}") from None


def _fused_units(path: Path, known: set[str]) -> dict[str, str]:
    """For every layer that the CPU plugin runs together with others, the name of that unit."""
    openvino = _openvino("asking OpenVINO which operators it fuses")
    try:
        compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        units = {
            op.get_friendly_name(): str(op.get_rt_info()["originalLayersNames"].astype(str)).split(",")
            for op in compiled.get_runtime_model().get_ordered_ops()
            if "originalLayersNames" in op.get_rt_info()
        }
    except RuntimeError as error:
        raise Wrong(f"openvino cannot compile it: {one_line(str(error), 300)}") from None
    groups: dict[str, str] = {}
    for unit, layers in units.items():
        for layer in layers:
            if layer in known:
                groups.setdefault(layer, f"fused {unit}")
    return groups
