"""Programs that `torch.export.save` wrote (.pt2), read without torch.

Only JSON is read: the graph, and how weights are stored. docs/reference/formats.md says what becomes of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from stead.errors import BadGraph, BadInput
from stead.files import collector_paused
from stead.printing.wording import one_line, quoted, shown, shown_path
from stead.readers.base import Model
from stead.readers.common.checked_values import Wrong, about, list_of, name_of, object_of, text_of
from stead.readers.common.open_sizes import Given, check_shapes
from stead.readers.common.symbolic_sizes import SymbolicSizes
from stead.readers.known_formats import OfTable
from stead.readers.torch.aten import DTYPES, Value, values_in
from stead.readers.torch.aten_graph import Trace, build_graph
from stead.readers.torch.aten_record import (
    Layout,
    Recorder,
    bodies_note,
    body_price,
    clean_module,
    kind_of,
    runs_once,
    trips,
)
from stead.readers.torch.pt2_archive import read_archive

__all__ = ["Pt2"]

SCHEMA = 8  # major version of what torch 2.13 writes
MAX_NODES = 2**20
MAX_NESTING = 32  # graphs inside operators inside graphs
MAX_NUMBER = 2**62

_DTYPE_CODES: dict[int, str] = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16",
    29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu",
    34: "uint32", 35: "uint64",
}  # fmt: skip
_KEYWORD = 2  # kind of an argument


@dataclass(frozen=True, slots=True)
class Pt2(OfTable):
    """Reader of exported PyTorch programs; `shapes` sets open dimensions, by symbol or as "x[0]"."""

    name: ClassVar[str] = "pt2"

    shapes: Mapping[str, Given] = field(default_factory=dict)  # those that are left out are as in the example
    batch: int | None = None  # of open first dimensions

    def __post_init__(self) -> None:
        check_shapes(self.shapes, self.batch)

    def read(self, path: str | os.PathLike[str]) -> Model:
        """The graph in a file; no weight is loaded, nothing is unpickled."""
        where = shown_path(path)
        try:
            with about(where), collector_paused():
                documents = read_archive(path)
                sizes = SymbolicSizes(self.shapes, self.batch)
                return _Program(documents, one_line(Path(path).name).removesuffix(".pt2"), sizes).model()
        except BadGraph:
            raise
        except BadInput as error:
            known = str(error)
            raise BadInput(known if known.startswith(where) else f"{where}: {one_line(known)}") from None


class _Program:
    """One document on its way to a Model."""

    def __init__(self, documents: Mapping[str, Any], name: str, sizes: SymbolicSizes) -> None:
        self.documents = documents
        self.sizes = sizes
        self.record = Recorder(name)
        self.nodes_left = MAX_NODES
        self.depth = 0
        self.bodies: list[str] = []  # kinds of operators that stay whole although they hold graphs
        self.notes: list[str] = []

    def model(self) -> Model:
        top = object_of(self.documents["model"])
        self._check_version(top)
        module = _object_at(top, "graph_module")
        graph, signature = _object_at(module, "graph"), _object_at(module, "signature")
        scope = _Scope(self, graph)
        self._bind_inputs(scope, list_of(signature.get("input_specs")))
        outputs = scope.run()
        specs = list_of(signature.get("output_specs", []))
        self.record.trace.outputs = _user_outputs(specs, outputs)
        built = build_graph(self.record.trace)
        notes = (*built.notes(), *bodies_note(self.bodies), *self.sizes.notes(), *self.notes)
        return Model(built.graph, notes=notes, assumed=self.sizes.assumed)

    def _check_version(self, top: Mapping[str, Any]) -> None:
        version = object_of(top.get("schema_version"))
        major = version.get("major")
        if isinstance(major, bool) or not isinstance(major, int):
            raise Wrong(f"schema_version: major must be a number, got {shown(major)}")
        if major != SCHEMA:
            self.notes.append(
                f"the file has schema {one_line(str(major), 20)} and this reader is made for {SCHEMA}: "
                "look at the graph with care"
            )

    # Inputs and weights

    def _bind_inputs(self, scope: _Scope, specs: Sequence[Any]) -> None:
        memory: dict[Any, Value] = {}
        stored = self._stored()
        entries = [_spec(number, item) for number, item in enumerate(specs, 1)]
        for kind, given in entries:
            if kind == "user_input":
                scope.learn_sizes(given.get("arg"))
        self.sizes.check(also=scope.symbols())
        for kind, given in entries:
            if kind in _HELD:
                name = name_of(object_of(given.get("arg")).get("name"))
                title = name_of(given.get(_HELD[kind]))
                place = stored.get(title)
                value = self.record.weight(scope.layout(name), title, tied_to=memory.get(place))
                if place is not None:
                    memory.setdefault(place, value)
                scope.bind(name, value)
            elif kind == "user_input":
                for name in _tensor_names(given.get("arg")):
                    scope.bind(name, self.record.input(scope.layout(name)))

    def _stored(self) -> dict[str, Any]:
        """Where each weight is in the archive: the same place for two names of one tensor."""
        found: dict[str, Any] = {}
        for key in ("weights", "constants"):
            config = object_of(object_of(self.documents.get(key, {})).get("config", {}))
            for name, entry in config.items():
                meta = object_of(entry)
                place = meta.get("path_name")
                if isinstance(place, str):
                    found[name] = (key, place, repr(meta.get("tensor_meta"))[:2000])
        return found

    def inside(self, graph: Any) -> Trace:
        """What a graph inside an operator does, apart from everything around it."""
        outer, self.record = self.record, Recorder("")
        scope = _Scope(self, object_of(graph))
        for name in scope.input_names():
            scope.bind(name, self.record.input(scope.layout(name)))
        scope.run()
        inner, self.record = self.record, outer
        return inner.trace


class _Scope:
    """One graph of the file: its names, and what they stand for."""

    def __init__(self, program: _Program, graph: dict[str, Any]) -> None:
        self.program = program
        self.graph = graph
        self.metas = object_of(graph.get("tensor_values"))
        self.integers = object_of(graph.get("sym_int_values", {}))
        self.values: dict[str, Any] = {}

    def bind(self, name: str, value: Any) -> None:
        """Give a name its value."""
        if name in self.values:
            raise Wrong(f"{quoted(name)} is written twice")
        self.values[name] = value

    def input_names(self) -> list[str]:
        """Names of tensors that the graph is given."""
        return [name for item in list_of(self.graph.get("inputs")) for name in _tensor_names(item)]

    def run(self) -> Any:
        """Record every node; gives what the graph returns."""
        program = self.program
        program.depth += 1
        if program.depth > MAX_NESTING:
            raise Wrong(f"graphs are nested more than {MAX_NESTING} deep")
        for number, node in enumerate(list_of(self.graph.get("nodes")), 1):
            program.nodes_left -= 1
            if program.nodes_left < 0:
                raise Wrong(f"more than {MAX_NODES} nodes; coarsen the model first")
            try:
                self._node(object_of(node))
            except Wrong as wrong:
                raise Wrong(f"node {number}{_label(node)}: {wrong}") from None
        program.depth -= 1
        return [self.argument(item) for item in list_of(self.graph.get("outputs"))]

    # Sizes

    def learn_sizes(self, item: Any) -> None:
        """Take note of open dimensions of an input."""
        for name in _tensor_names(item):
            sizes = list_of(self._meta(name).get("sizes"))
            for axis, size in enumerate(sizes):
                expression = object_of(size).get("as_expr")
                if expression is not None:
                    self.program.sizes.learn(name, axis, *_expression(expression), len(sizes))
                else:
                    self.program.sizes.fixed(name, axis, object_of(size).get("as_int"), len(sizes))

    def symbols(self) -> list[str]:
        """Names that the ranges of the program mention."""
        top = object_of(self.program.documents["model"])
        return list(object_of(top.get("range_constraints") or {}))

    def _size(self, given: Any) -> int:
        size = object_of(given)
        if "as_expr" in size:
            return self.program.sizes.size(*_expression(size["as_expr"]))
        return _number(size.get("as_int"))

    def _meta(self, name: str) -> dict[str, Any]:
        if name not in self.metas:
            raise Wrong(f"nothing is known about tensor {quoted(name)}")
        return object_of(self.metas[name])

    def layout(self, name: str) -> Layout:
        """What the file says about a tensor."""
        meta = self._meta(name)
        try:
            code = meta.get("dtype")
            if not isinstance(code, int) or code not in _DTYPE_CODES:
                raise Wrong(f"elements of unknown type {shown(code)}")
            dtype, bits = DTYPES[_DTYPE_CODES[code]]
            shape = tuple(self._size(size) for size in list_of(meta.get("sizes")))
            strides = tuple(self._size(stride) for stride in list_of(meta.get("strides", [])))
            offset = self._size(meta.get("storage_offset", {"as_int": 0}))
        except Wrong as wrong:
            raise Wrong(f"tensor {quoted(name)}: {wrong}") from None
        return Layout(name, shape, dtype, bits, strides, offset)

    # Nodes

    def _node(self, node: dict[str, Any]) -> None:
        kind = kind_of(text_of(node.get("target")))
        arguments: list[Any] = []
        named: dict[str, Any] = {}
        for item in list_of(node.get("inputs")):
            entry = object_of(item)
            value = self.argument(entry.get("arg"))
            if entry.get("kind") == _KEYWORD:
                named[text_of(entry.get("name"))] = value
            else:
                arguments.append(value)
        results = _result_names(list_of(node.get("outputs")))
        bodies = [one for one in arguments if isinstance(one, _Body)]
        if runs_once(kind, len(bodies)):
            self._inline(bodies[0], arguments, results)
            return
        price, inner_bytes = None, 0.0
        if bodies:
            self.program.bodies.append(kind)
            times = trips(kind, arguments)
            price, inner_bytes = body_price([self.program.inside(body.graph) for body in bodies], times)
            arguments = [one for one in arguments if not isinstance(one, _Body)]
        name = text_of(node.get("name") or next(iter(results), kind))
        made = self.program.record.call(
            name,
            kind,
            arguments,
            named,
            [self.layout(name) for name in results],
            module=_module(node),
            price=price,
            inner_bytes=inner_bytes,
            function=text_of(node.get("target")),
        )
        for result, value in zip(results, made, strict=True):
            self.bind(result, value)

    def _inline(self, body: _Body, arguments: Sequence[Any], results: Sequence[str]) -> None:
        """Record the nodes of a graph inside an operator in the place of the operator."""
        inner = _Scope(self.program, object_of(body.graph))
        entries = list_of(inner.graph.get("inputs"))
        if len(entries) > len(arguments):
            raise Wrong(f"its graph wants {len(entries)} values, it has {len(arguments)}")
        for entry, value in zip(entries, arguments[len(arguments) - len(entries) :], strict=True):
            for name in _tensor_names(entry):
                inner.bind(name, value)
        returned = list(values_in(inner.run()))
        if len(returned) != len(results):
            raise Wrong(f"its graph returns {len(returned)} tensors, it has {len(results)} results")
        for name, value in zip(results, returned, strict=True):
            self.bind(name, value)

    def argument(self, item: Any) -> Any:
        """A tensor, a number, a text, a list of such, a graph, or None for what costs do not depend on."""
        entry = object_of(item)
        if len(entry) != 1:
            raise Wrong(f"an argument has one tag, got {len(entry)}")
        ((tag, given),) = entry.items()
        reader = _ARGUMENTS.get(tag)
        return reader(self, given) if reader else None

    def _tensor(self, given: Any) -> Any:
        name = name_of(object_of(given).get("name"))
        if name not in self.values:
            raise Wrong(f"reads {quoted(name)}, which nothing before it writes")
        return self.values[name]

    def _tensors(self, given: Any) -> list[Any]:
        return [self._tensor(item) for item in list_of(given)]

    def _nested_tensors(self, given: Any) -> list[Any]:
        return [self._tensors(item) for item in list_of(given)]

    def _optional(self, given: Any) -> Any:
        entry = object_of(given)
        return self._tensor(entry["as_tensor"]) if "as_tensor" in entry else None

    def _optionals(self, given: Any) -> list[Any]:
        return [self._optional(item) for item in list_of(given)]

    def _integer(self, given: Any) -> Any:
        """A number, or the name of one that depends on open sizes."""
        entry = object_of(given)
        if "as_int" in entry:
            return entry["as_int"]
        size = self.integers.get(text_of(entry.get("as_name", "")))
        try:
            return self._size(size) if size is not None else None
        except Wrong:
            return None  # costs do not hang on it

    def _integers(self, given: Any) -> list[Any]:
        return [self._integer(item) for item in list_of(given)]

    def _plain(self, given: Any) -> Any:
        return given

    def _graph(self, given: Any) -> _Body:
        return _Body(object_of(given).get("graph"))


@dataclass(frozen=True, slots=True)
class _Body:
    """A graph as an argument."""

    graph: Any


_ARGUMENTS: dict[str, Callable[[_Scope, Any], Any]] = {
    "as_tensor": _Scope._tensor,
    "as_tensors": _Scope._tensors,
    "as_nested_tensors": _Scope._nested_tensors,
    "as_optional_tensor": _Scope._optional,
    "as_optional_tensors": _Scope._optionals,
    "as_sym_int": _Scope._integer,
    "as_sym_ints": _Scope._integers,
    "as_graph": _Scope._graph,
    **dict.fromkeys(
        ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string", "as_strings"),
        _Scope._plain,
    ),
}
_HELD = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}


# Single values


def _object_at(owner: Mapping[str, Any], key: str) -> dict[str, Any]:
    if key not in owner:
        raise Wrong(f"the key {quoted(key)} is missing; is it a program that torch.export.save wrote?")
    try:
        return object_of(owner[key])
    except Wrong as wrong:
        raise Wrong(f"{key}: {wrong}") from None


def _label(node: Any) -> str:
    name = node.get("name") if isinstance(node, dict) else None
    return f" ({quoted(name)})" if isinstance(name, str) and name else ""


def _number(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MAX_NUMBER:
        raise Wrong(f"a size must be a whole number from 0 to 2^62, got {shown(given)}")
    return given


def _expression(given: Any) -> tuple[str, int | None]:
    """The text of a size and what it was in the example."""
    entry = object_of(given)
    hint = entry.get("hint")
    value = hint.get("as_int") if isinstance(hint, dict) else None
    return text_of(entry.get("expr_str")), None if value is None else _number(value)


def _spec(number: int, item: Any) -> tuple[str, dict[str, Any]]:
    entry = object_of(item)
    if len(entry) != 1:
        raise Wrong(f"input {number}: must have one kind, got {len(entry)}")
    ((kind, given),) = entry.items()
    return kind, object_of(given)


def _tensor_names(item: Any) -> list[str]:
    """The tensors that an argument of a graph brings: one, several or none."""
    entry = object_of(item)
    if "as_tensor" in entry:
        return [name_of(object_of(entry["as_tensor"]).get("name"))]
    if "as_tensors" in entry:
        return [name_of(object_of(one).get("name")) for one in list_of(entry["as_tensors"])]
    return []


def _result_names(outputs: Sequence[Any]) -> list[str]:
    """The tensors that a node writes."""
    names: list[str] = []
    for item in outputs:
        entry = object_of(item)
        names.extend(_tensor_names(entry))
        for key in ("as_optional_tensor", "as_optional_tensors"):
            given = entry.get(key)
            for one in given if isinstance(given, list) else [given] if given is not None else []:
                names.extend(_tensor_names(one))
    return names


def _user_outputs(specs: Sequence[Any], outputs: Sequence[Any]) -> list[Value]:
    """What the program returns to its user; new contents of buffers stay inside."""
    kept: list[Value] = []
    for position, value in enumerate(outputs):
        spec = object_of(specs[position]) if position < len(specs) else {"user_output": None}
        if "user_output" in spec or "loss_output" in spec:
            kept.extend(values_in(value))
    return kept


def _module(node: Mapping[str, Any]) -> str:
    """The innermost module: the second field of the last entry of the stack."""
    metadata = node.get("metadata")
    stack = metadata.get("nn_module_stack") if isinstance(metadata, dict) else None
    if not isinstance(stack, str) or len(stack) > 100_000:
        return ""
    fields = stack.rpartition(";")[2].split(",")
    return clean_module(fields[1]) if len(fields) > 1 else ""
