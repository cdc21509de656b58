"""Writing graphs in stead's own format, so that reading them gives an equal graph and equal seconds."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stead.costs import Given
from stead.errors import BadGraph, BadInput
from stead.files import write_bytes
from stead.graph import PHASES, Graph
from stead.graph.kernels import Kernel
from stead.printing.wording import shown_path
from stead.readers.common.strict_json import json_text

FORMAT = "stead.graph"
VERSION = 1
EVERY_DEVICE = "*"


def write_graph(path: str | os.PathLike[str], graph: Graph, given: Given | None = None) -> None:
    """Write a graph, and seconds if there are any; reading it gives an equal graph and equal seconds."""
    try:
        data = graph_text(graph, given).encode()
    except UnicodeEncodeError:
        raise BadGraph(f"{shown_path(path)}: a name holds half a character (a lone surrogate)") from None
    write_bytes(path, data)


def graph_text(graph: Graph, given: Given | None = None) -> str:
    """The file that `write_graph` writes: one line per operator and weight."""
    return json_text(graph_as_dict(graph, given))


def graph_as_dict(graph: Graph, given: Given | None = None) -> dict[str, Any]:
    """Plain data of a graph, as its file has them; what has its default is left out."""
    if given is not None:
        _check_given(graph, given)
    weights, parameters = _split_weights(graph)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "operators": list(_operator_entries(graph, given, parameters)),
        "weights": weights,
        "folded": dict(graph.folded),
    }
    return {key: value for key, value in document.items() if value or key in ("name", "operators")}


def _check_given(graph: Graph, given: Given) -> None:
    """Refuse seconds of another graph and seconds that cannot be read again."""
    for name, column in (*given.columns.items(), *given.workspace.items()):
        if column.shape != (len(graph),):
            raise BadInput(f"column {name!r} has shape {column.shape}, the graph has {len(graph)} operators")
    if given.tensor_seconds is not None and given.tensor_seconds.shape != (graph.tensor_count,):
        raise BadInput(f"tensor seconds have shape {given.tensor_seconds.shape}, not ({graph.tensor_count},)")
    for name, column in given.columns.items():
        if (column < 0).any():
            raise BadInput(f"column {name!r} has negative seconds")


def _split_weights(graph: Graph) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Weights for the list of weights, and bytes by operator for the key "parameters"."""
    listed: list[dict[str, Any]] = []
    parameters: dict[int, int] = {}
    first, names = graph.weight_user_first.tolist(), graph.operator_names
    for w, (name, size) in enumerate(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True)):
        users = graph.weight_users[first[w] : first[w + 1]].tolist()
        if len(users) == 1 and name == own_weight(names[users[0]]) and users[0] not in parameters:
            parameters[users[0]] = size
        else:
            listed.append({"name": name, "bytes": size, "users": [names[v] for v in users]})
    return listed, parameters


def _operator_entries(
    graph: Graph, given: Given | None, parameters: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    control = _control_tensors(graph, given)
    references = _references(graph)
    producer = graph.tensor_producer.tolist()
    first = graph.read_first.tolist()
    for v, name in enumerate(graph.operator_names):
        read = graph.read_tensors[first[v] : first[v + 1]].tolist()
        entry = {
            "name": name,
            "kind": graph.kinds[v],
            "module": graph.modules[v],
            "dtype": graph.dtypes[v] if graph.dtypes[v] != "fp32" else "",
            "phase": PHASES[graph.phases[v]] if graph.phases[v] else "",
            "twin": graph.operator_names[graph.twins[v]] if graph.twins[v] >= 0 else "",
            "colocate": graph.colocation_names[graph.colocation[v]] if graph.colocation[v] >= 0 else "",
            "flops": _number(graph.flops[v]),
            "bytes": _number(graph.moved_bytes[v]),
            "kernels": _kernel_entries(graph, v),
            "reads": [references[t] for t in read if t not in control],
            "after": [graph.operator_names[producer[t]] for t in read if t in control],
            "outputs": _output_entries(graph, given, v, control),
            "seconds": _seconds_entry(given, v),
            "workspace_bytes": _workspace_entry(given, v),
        }
        kept = {key: value for key, value in entry.items() if value or _is_minus_zero(value)}
        if v in parameters:
            kept["parameters"] = parameters[v]
        yield kept


def _kernel_entries(graph: Graph, v: int) -> list[list[float]]:
    """FLOPs, bytes moved and launches of every kernel; nothing where the operator is one."""
    if graph.kernels is None:
        return []
    own = graph.kernels.of(v)
    whole = Kernel(float(graph.flops[v]), float(graph.moved_bytes[v]))
    return [] if own == [whole] else [[_number(amount) for amount in kernel] for kernel in own]


def _output_entries(graph: Graph, given: Given | None, v: int, control: set[int]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    first = int(graph.tensor_first[v])
    for t in range(first, int(graph.tensor_first[v + 1])):
        if t in control:
            continue
        entry: dict[str, Any] = {}
        if graph.tensor_names[t] != default_name(graph.operator_names[v], t - first):
            entry["name"] = graph.tensor_names[t]
        entry["bytes"] = int(graph.tensor_bytes[t])
        if graph.tensor_kept[t]:
            entry["kept"] = True
        if graph.tensor_shapes[t]:
            entry["shape"] = [int(size) for size in graph.tensor_shapes[t]]
        if graph.tensor_dtypes[t]:
            entry["dtype"] = graph.tensor_dtypes[t]
        if given is not None and given.tensor_seconds is not None:
            entry["seconds"] = _number(given.tensor_seconds[t])
        entries.append(entry)
    return entries


def _control_tensors(graph: Graph, given: Given | None) -> set[int]:
    """Tensors that "after" brings back exactly: last of its producer, empty, untimed, no second bond."""
    control: set[int] = set()
    seconds = np.zeros(graph.tensor_count)
    if given is not None and given.tensor_seconds is not None:
        seconds = given.tensor_seconds
    bare = (graph.tensor_bytes == 0) & (graph.tensor_kept == 0) & (seconds == 0) & ~np.signbit(seconds)
    for t in np.flatnonzero(bare).tolist():
        v = int(graph.tensor_producer[t])
        if graph.tensor_shapes[t] or graph.tensor_dtypes[t]:
            continue
        if t + 1 < graph.tensor_first[v + 1] or graph.tensor_names[t] != f"^{graph.operator_names[v]}":
            continue
        begin, end = int(graph.reader_first[t]), int(graph.reader_first[t + 1])
        readers_of_data = graph.readers[graph.reader_first[graph.tensor_first[v]] : begin]
        if begin < end and not np.isin(graph.readers[begin:end], readers_of_data).any():
            control.add(t)
    return control


def _references(graph: Graph) -> list[Any]:
    """How "reads" points to each tensor: by name, or by position where two tensors have the same name."""
    seen: set[str] = set()
    shared = {name for name in graph.tensor_names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]
    references: list[Any] = list(graph.tensor_names)
    if shared:
        for t, producer in enumerate(graph.tensor_producer.tolist()):
            if graph.tensor_names[t] in shared:
                position = t - int(graph.tensor_first[producer])
                references[t] = {"operator": graph.operator_names[producer], "output": position}
    return references


def _seconds_entry(given: Given | None, v: int) -> dict[str, float | None]:
    """Seconds by device; null where the operator cannot run, nothing where nothing is known."""
    if given is None:
        return {}
    values = {device: float(column[v]) for device, column in given.columns.items()}
    return {
        device: None if math.isinf(value) else _number(value)
        for device, value in values.items()
        if not math.isnan(value)
    }


def _workspace_entry(given: Given | None, v: int) -> int | dict[str, int]:
    if given is None:
        return 0
    known = {device: int(column[v]) for device, column in given.workspace.items() if column[v] >= 0}
    if not any(known.values()):
        return 0
    return known[EVERY_DEVICE] if list(known) == [EVERY_DEVICE] else known


def _number(value: float) -> float:
    """The same number, without a decimal point where it needs none."""
    number = float(value)
    whole = number.is_integer() and abs(number) < 2**53 and not _is_minus_zero(number)
    return int(number) if whole else number


def _is_minus_zero(value: object) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


def default_name(operator: str, position: int) -> str:
    """What an output is called that has no name of its own.

    >>> default_name("split", 0), default_name("split", 1)
    ('split', 'split:1')
    """
    return operator if position == 0 else f"{operator}:{position}"


def own_weight(operator: str) -> str:
    """What the weight behind the key "parameters" is called."""
    return f"{operator}.weight"
