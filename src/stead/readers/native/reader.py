"""stead's own graph format: versioned JSON that people can read and write.

docs/reference/formats.md describes every key.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stead.costs import Given
from stead.files import collector_paused
from stead.graph import PHASES, Graph, GraphBuilder, OperatorId, TensorId
from stead.graph.kernels import Kernel
from stead.printing.wording import one_line, quoted, shown, shown_path, suggestion
from stead.readers.base import Model
from stead.readers.common.checked_values import (
    Wrong,
    about,
    amount_of,
    bytes_of,
    checked,
    flag_of,
    list_of,
    name_of,
    object_of,
    text_of,
)
from stead.readers.common.strict_json import read_json, stem
from stead.readers.known_formats import OfTable
from stead.readers.native.writer import (
    EVERY_DEVICE,
    FORMAT,
    VERSION,
    default_name,
    graph_as_dict,
    graph_text,
    own_weight,
    write_graph,
)

__all__ = ["FORMAT", "VERSION", "JsonGraph", "graph_as_dict", "graph_from_dict", "graph_text", "write_graph"]


@dataclass(frozen=True, slots=True)
class JsonGraph(OfTable):
    """Reader of stead's own graphs."""

    name: ClassVar[str] = "stead-json"

    def read(self, path: str | os.PathLike[str]) -> Model:
        """The graph in a file, and the seconds it gives; updated weights reach their readers (see `refreshed`)."""
        with collector_paused():
            return _assembled(read_json(path), shown_path(path), stem(path), refresh=True)


def graph_from_dict(data: object, *, place: str) -> Graph:
    """The graph in plain data such as `graph_as_dict` gives, as it is; `place` begins every error message."""
    return _assembled(data, place, "graph", refresh=False).graph


def _assembled(document: object, place: str, default_name: str, *, refresh: bool) -> Model:
    with about(place), collector_paused():
        return _Assembly(default_name).model(document, refresh=refresh)


# Checks of single values


def _phase(value: object) -> str:
    phase = text_of(value)
    if phase not in PHASES:
        raise Wrong(f"must be one of {', '.join(PHASES)}, got {shown(value)}")
    return phase


def _names(value: object) -> list[str]:
    names = list_of(value)
    for name in names:
        name_of(name)
    return names


def _reads(value: object) -> list[Any]:
    """Names of tensors, or objects that point to an output by its position."""
    references = list_of(value)
    for reference in references:
        if isinstance(reference, dict):
            checked(reference, _POSITION, ("operator", "output"))
        else:
            name_of(reference)
    return references


def _outputs(value: object) -> list[dict[str, Any]]:
    given = outputs = list_of(value)
    for number, output in enumerate(given):
        try:
            converted = checked(output, _OUTPUT, ("bytes",))
        except Wrong as wrong:
            raise Wrong(f"output {number}: {wrong}") from None
        if converted is not output:
            if outputs is given:
                outputs = list(given)
            outputs[number] = converted
    return outputs


def _by_device(check: Callable[[object], Any]) -> Callable[[object], dict[str, Any]]:
    """A check of an object whose keys are device names, models or kinds."""

    def check_all(value: object) -> dict[str, Any]:
        by_device: dict[str, Any] = {}
        for device, item in object_of(value).items():
            try:
                by_device[name_of(device)] = check(item)
            except Wrong as wrong:
                raise Wrong(f"{quoted(device)}: {wrong}") from None
        return by_device

    return check_all


def _position(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Wrong(f"must be the number of an output, from 0, got {shown(value)}")
    return value


def _shape(value: object) -> list[int]:
    return [bytes_of(size) for size in list_of(value)]


def _kernels(value: object) -> list[Kernel]:
    """[FLOPs, bytes moved, launches] of every kernel."""
    found = []
    for number, row in enumerate(list_of(value)):
        try:
            amounts = [amount_of(amount) for amount in list_of(row)]
        except Wrong as wrong:
            raise Wrong(f"kernel {number}: {wrong}") from None
        if len(amounts) != len(Kernel._fields):
            raise Wrong(f"kernel {number}: must be FLOPs, bytes moved and launches, got {shown(row)}")
        found.append(Kernel(*amounts))
    return found


def _folded(value: object) -> dict[str, str]:
    """Names of the source that are part of an operator, and the names of those operators."""
    return {source: name_of(operator) for source, operator in object_of(value).items()}


def _seconds(value: object) -> float:
    return math.inf if value is None else amount_of(value)


def _workspace(value: object) -> dict[str, int]:
    return _workspace_by_device(value) if isinstance(value, dict) else {EVERY_DEVICE: bytes_of(value)}


_workspace_by_device = _by_device(bytes_of)

_TOP: Mapping[str, Callable[[Any], Any]] = {
    "format": text_of,
    "version": bytes_of,
    "name": text_of,
    "operators": list_of,
    "weights": list_of,
    "folded": _folded,
}
_OPERATOR: Mapping[str, Callable[[Any], Any]] = {
    "name": name_of,
    "kind": text_of,
    "module": text_of,
    "dtype": name_of,
    "phase": _phase,
    "twin": text_of,
    "colocate": text_of,
    "flops": amount_of,
    "bytes": amount_of,
    "kernels": _kernels,
    "parameters": bytes_of,
    "reads": _reads,
    "after": _names,
    "outputs": _outputs,
    "seconds": _by_device(_seconds),
    "workspace_bytes": _workspace,
}
_OPTIONS = {  # of GraphBuilder.operator, by key
    "kind": "kind",
    "module": "module",
    "dtype": "dtype",
    "phase": "phase",
    "twin": "twin",
    "colocate": "colocate",
    "flops": "flops",
    "bytes": "moved_bytes",
    "kernels": "kernels",
}
_OUTPUT: Mapping[str, Callable[[Any], Any]] = {
    "name": name_of,
    "bytes": bytes_of,
    "kept": flag_of,
    "shape": _shape,
    "dtype": text_of,
    "seconds": amount_of,
}
_POSITION: Mapping[str, Callable[[Any], Any]] = {"operator": name_of, "output": _position}
_WEIGHT: Mapping[str, Callable[[Any], Any]] = {"name": name_of, "bytes": bytes_of, "users": _names}


# Reading


class _Assembly:
    """One document on its way to a Model: operators and tensors first, then what refers to them by name."""

    def __init__(self, default_name: str) -> None:
        self.default_name = default_name
        self.build = GraphBuilder()
        self.entries: list[dict[str, Any]] = []  # [operator in file order]
        self.operators: dict[str, OperatorId] = {}
        self.tensors: dict[str, TensorId] = {}
        self.tensor_count = 0
        self.shared_names: set[str] = set()  # names of more than one tensor
        self.first_output: list[int] = []  # [operator in file order]; tensors are numbered as they are added

    def model(self, document: object, *, refresh: bool) -> Model:
        """Check everything and build."""
        top = checked(_of_known_version(document), _TOP, ("operators",))
        self.build.name = top.get("name", self.default_name)
        for number, entry in enumerate(top["operators"], 1):
            self._add_operator(number, entry)
        for number, fields in enumerate(self.entries, 1):
            try:
                self._connect(OperatorId(number - 1), fields)
            except Wrong as wrong:
                raise Wrong(f"operator {number} ({quoted(fields['name'])}): {wrong}") from None
        for number, entry in enumerate(top.get("weights", ()), 1):
            self._add_weight(number, entry)
        for source, operator in top.get("folded", {}).items():
            self.build.fold(source, self._operator(f"folded: {quoted(source)}", operator))
        graph = self.build.build(refresh=refresh)
        return Model(graph, self._given(graph))

    def _add_operator(self, number: int, entry: object) -> None:
        try:
            fields = checked(entry, _OPERATOR, ("name",))
            name: str = fields["name"]
            if name in self.operators:
                raise Wrong(f"operator {self.operators[name] + 1} has the same name; names must differ")
        except Wrong as wrong:
            given = entry.get("name") if isinstance(entry, dict) else None
            label = f" ({quoted(given)})" if isinstance(given, str) else ""
            raise Wrong(f"operator {number}{label}: {wrong}") from None
        options = {_OPTIONS[key]: value for key, value in fields.items() if key in _OPTIONS}
        added = self.build.operator(name, **options)
        self.operators[name] = added
        self.entries.append(fields)
        self.first_output.append(self.tensor_count)
        for position, output in enumerate(fields.get("outputs", ())):
            self._add_tensor(added, output.get("name") or default_name(name, position), output)
        if "parameters" in fields:
            self.build.weight(own_weight(name), size_bytes=fields["parameters"], users=[added])

    def _add_tensor(self, producer: OperatorId, name: str, output: Mapping[str, Any]) -> None:
        tensor = self.build.tensor(
            producer,
            size_bytes=output["bytes"],
            kept=output.get("kept", False),
            name=name,
            shape=output.get("shape", ()),
            dtype=output.get("dtype", ""),
        )
        if name in self.tensors:
            self.shared_names.add(name)
        self.tensors[name] = tensor
        self.tensor_count += 1

    def _connect(self, operator: OperatorId, fields: Mapping[str, Any]) -> None:
        for reference in fields.get("reads", ()):
            self.build.read(operator, self._tensor(reference))
        for earlier in fields.get("after", ()):
            self.build.follow(operator, self._operator("after", earlier))
        if fields.get("twin"):
            self._operator("twin", fields["twin"])

    def _tensor(self, reference: str | dict[str, Any]) -> TensorId:
        if isinstance(reference, dict):
            return self._output(reference["operator"], reference["output"])
        if reference in self.shared_names:
            raise Wrong(
                f"reads: two tensors are called {reference!r}; rename one, "
                'or write {"operator": ..., "output": ...} with the number of the output'
            )
        tensor = self.tensors.get(reference)
        if tensor is None:
            raise Wrong(f"reads: no tensor '{one_line(reference, 60)}'{self._tensor_advice(reference)}")
        return tensor

    def _tensor_advice(self, reference: str) -> str:
        """What to write instead of the name of a tensor that does not exist."""
        if reference not in self.operators:
            return suggestion(reference, self.tensors)
        own = self.entries[self.operators[reference]].get("outputs", ())
        if own:
            return f"; outputs of that operator have names, the first {quoted(own[0]['name'])}"
        return '; that operator has no "outputs": give it some, or wait for it with "after"'

    def _output(self, owner: str, number: int) -> TensorId:
        operator = self._operator("reads", owner)
        count = len(self.entries[operator].get("outputs", ()))
        if number >= count:
            raise Wrong(f"reads: operator {quoted(owner)} has {count} outputs, none with number {number}")
        return TensorId(self.first_output[operator] + number)

    def _operator(self, key: str, name: str) -> OperatorId:
        found = self.operators.get(name)
        if found is None:
            raise Wrong(f"{key}: no operator '{one_line(name, 60)}'{suggestion(name, self.operators)}")
        return found

    def _add_weight(self, number: int, entry: object) -> None:
        try:
            fields = checked(entry, _WEIGHT, ("name", "bytes", "users"))
            users = [self._operator("users", user) for user in fields["users"]]
            if not users:
                raise Wrong("users: must name at least one operator; leave the weight out")
        except Wrong as wrong:
            given = entry.get("name") if isinstance(entry, dict) else None
            label = f" ({quoted(given)})" if isinstance(given, str) else ""
            raise Wrong(f"weight {number}{label}: {wrong}") from None
        self.build.weight(fields["name"], size_bytes=fields["bytes"], users=users)

    def _given(self, graph: Graph) -> Given | None:
        """Seconds and workspace in the order of the graph; None if the file has neither."""
        columns = self._columns(graph, "seconds", math.nan, np.float64)
        workspace = self._columns(graph, "workspace_bytes", -1, np.int64)
        tensor_seconds = self._tensor_seconds(graph)
        if not columns and not workspace and tensor_seconds is None:
            return None
        return Given(columns, workspace, tensor_seconds)

    def _columns(self, graph: Graph, key: str, silent: float, dtype: type[Any]) -> dict[str, NDArray[Any]]:
        columns: dict[str, NDArray[Any]] = {}
        speaking = [(fields["name"], fields[key]) for fields in self.entries if key in fields]
        if not speaking:
            return columns
        position = {name: v for v, name in enumerate(graph.operator_names)}
        for name, by_device in speaking:
            for device, value in by_device.items():
                if device not in columns:
                    columns[device] = np.full(len(graph), silent, dtype=dtype)
                columns[device][position[name]] = value
        return columns

    def _tensor_seconds(self, graph: Graph) -> NDArray[np.float64] | None:
        """Seconds of every tensor; all outputs give them or none does, control dependencies take none.

        What the file does not know of, an updated weight on its way, travels at the pace of what it does.
        """
        outputs = {fields["name"]: fields["outputs"] for fields in self.entries if "outputs" in fields}
        timed = sum("seconds" in output for own in outputs.values() for output in own)
        if not timed:
            return None
        seconds = np.full(graph.tensor_count, math.nan)
        for v, name in enumerate(graph.operator_names):
            for position, output in enumerate(outputs.get(name, ())):
                if "seconds" not in output:
                    raise Wrong(
                        f"operator {self.operators[name] + 1} ({quoted(name)}): output {position}: "
                        'the key "seconds" is missing, which other outputs have; give it to all or to none'
                    )
                seconds[graph.tensor_first[v] + position] = output["seconds"]
        unknown = np.isnan(seconds)
        pace = seconds[~unknown].sum() / max(1, graph.tensor_bytes[~unknown].sum())
        seconds[unknown] = pace * graph.tensor_bytes[unknown]
        return seconds


def _of_known_version(document: object) -> dict[str, Any]:
    """The document, if it says that it is a graph of a version that can be read."""
    if not isinstance(document, dict):
        raise Wrong(f"the file must hold one object, got {shown(document)}")
    if document.get("format") != FORMAT:
        raise Wrong(f'the key "format" must be "{FORMAT}", got {shown(document.get("format"))}')
    version = document.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise Wrong(f'the key "version" must be a number from 1 to {VERSION}, got {shown(version)}')
    if version > VERSION:
        raise Wrong(f"version {shown(version)} is newer than what this stead reads ({VERSION}); update stead")
    return document
