"""Placements in the form that the tools of Tarnawski et al. print and their expert files have.

    {"maxLoad": 17.8, "fpgas": [{"load": 17.8, "nodes": [1, 2]}, ...], "cpus": [{"load": 0.0, "nodes": []}]}

Nodes are ids; the n-th entry stands for the n-th accelerator or CPU. Loads are milliseconds, -1 if unknown.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.files import write_bytes
from stead.graph import BACKWARD, FORWARD, Graph
from stead.printing.wording import shown, shown_path
from stead.readers.base import Model
from stead.readers.common.checked_values import Wrong, about, list_of, object_of
from stead.readers.common.strict_json import json_text, read_json

UNKNOWN_LOAD_MS = -1.0


def read_split(path: str | os.PathLike[str], model: Model) -> dict[str, str]:
    """Device name by operator name, for a model that brings its own devices."""
    if model.cluster is None:
        raise BadInput(
            "a split belongs to a model with devices of its own; read one in the format msr-fiddle"
        )
    return split_placement(read_json(path), model.graph, place=shown_path(path), cluster=model.cluster)


def is_split(data: object) -> bool:
    """Whether plain data look like a split."""
    return isinstance(data, dict) and ("fpgas" in data or "cpus" in data)


def split_placement(
    data: object, graph: Graph, *, place: str = "split", cluster: Cluster | None = None
) -> dict[str, str]:
    """Device name by operator name; without a cluster devices are called fpga0, fpga1, ..., cpu0, ...

    Backward operators that the split leaves out follow the forward operators of their class, so that a
    training graph takes the split of its inference graph. `place` begins every error message.
    """
    with about(place):
        if not is_split(data):
            raise Wrong('not a split: it has neither "fpgas" nor "cpus"')
        split = _listed(object_of(data), graph, cluster)
        _follow(split, graph)
    return {name: split[name] for name in graph.operator_names}


def write_split(
    path: str | os.PathLike[str],
    split: Mapping[str, str],
    cluster: Cluster,
    *,
    load_ms: Mapping[str, float] | None = None,
    max_load_ms: float | None = None,
    total_latency_ms: float | None = None,
) -> None:
    """Write a placement (operator name to device name) of operators that have ids for names."""
    loads = load_ms or {}
    if not all(map(math.isfinite, (*loads.values(), max_load_ms or 0.0, total_latency_ms or 0.0))):
        raise BadInput("JSON has no infinity: a split with infinite or undefined loads cannot be written")
    nodes: dict[str, list[int]] = {name: [] for name in cluster.names}
    for operator, device in split.items():
        if not (operator.isascii() and operator.isdecimal()):
            raise BadInput(
                f"operator {operator!r}: this format knows operators by number; choose another format"
            )
        nodes[cluster.names[cluster.index(device)]].append(int(operator))
    document: dict[str, Any] = {}
    if max_load_ms is not None:
        document["maxLoad"] = float(max_load_ms)
    if total_latency_ms is not None:
        document["totalLatency"] = float(total_latency_ms)
    for key, names in _devices(cluster).items():
        document[key] = [
            {"load": float(loads.get(name, UNKNOWN_LOAD_MS)), "nodes": sorted(nodes[name])} for name in names
        ]
    write_bytes(path, json_text(document).encode())


def _devices(cluster: Cluster) -> dict[str, list[str]]:
    """Device names by the key that lists them."""
    return {
        "fpgas": [device.name for device in cluster if not device.is_host],
        "cpus": [device.name for device in cluster if device.is_host],
    }


def _listed(data: Mapping[str, Any], graph: Graph, cluster: Cluster | None) -> dict[str, str]:
    """What the split says, and nothing else."""
    known = set(graph.operator_names)
    split: dict[str, str] = {}
    for key in ("fpgas", "cpus"):
        for position, nodes in enumerate(_entries(data, key)):
            if not nodes:
                continue
            device = _device(key, position, cluster)
            for name in map(str, nodes):
                if name not in known:
                    raise Wrong(f"{key}: entry {position + 1}: the graph has no operator with id {name}")
                if name in split:
                    raise Wrong(f"{key}: entry {position + 1}: {split[name]} has node {name} already")
                split[name] = device
    return split


def _device(key: str, position: int, cluster: Cluster | None) -> str:
    """Name of the device that an entry stands for."""
    if cluster is None:
        return f"{key[:-1]}{position}"
    names = _devices(cluster)[key]
    if position >= len(names):
        raise Wrong(
            f"{key}: entry {position + 1} has operators, but there are {len(names)}; use a larger cluster"
        )
    return names[position]


def _entries(data: Mapping[str, Any], key: str) -> list[list[int]]:
    """Ids on each device of a kind."""
    entries: list[list[int]] = []
    try:
        for entry in list_of(data.get(key, [])):
            nodes = list_of(object_of(entry).get("nodes"))
            for node in nodes:
                if isinstance(node, bool) or not isinstance(node, int):
                    raise Wrong(f"nodes must be ids, got {shown(node)}")
            entries.append(nodes)
    except Wrong as wrong:
        raise Wrong(f"{key}: entry {len(entries) + 1}: {wrong}") from None
    return entries


def _follow(split: dict[str, str], graph: Graph) -> None:
    """Add the backward operators that follow their class; any other gap is an error."""
    operators = list(zip(graph.operator_names, graph.phases.tolist(), graph.colocation.tolist(), strict=True))
    leaders: dict[int, set[str]] = {}
    for name, phase, group in operators:
        if name in split and phase == FORWARD and group >= 0:
            leaders.setdefault(group, set()).add(split[name])
    missing: list[str] = []
    for name, phase, group in operators:
        if name in split:
            continue
        devices = leaders.get(group, set())
        if phase == BACKWARD and len(devices) == 1:
            split[name] = min(devices)
        else:
            missing.append(name)
    if missing:
        ids = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise Wrong(f"{len(missing)} of {len(graph)} operators are on no device ({ids}); list every id once")
