"""Compute graphs that others have published, as problems under the rules that they were published with.

A benchmark is pointed to a folder of them (`--inputs DIR`); nothing of them is part of stead.

Tarnawski et al. 2020   JSON below `latency-inputs` and `throughput-inputs`, as stead reads it anyway
Piper (2021)            JSON whose nodes have `TMPCs`: full pipelines on equal devices, the first configuration without
                        tensor parallelism; both ends pay for an edge, there and back; memory for one micro-batch
DOPPLER (2026)          text: latency on four equal devices whose transfers never queue
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Source
from stead.errors import BadInput
from stead.files import read_text
from stead.graph import Graph, GraphBuilder, TensorId
from stead.graph.arrays import distinct_pairs
from stead.graph.components import topological_numbers
from stead.problem import Latency, Problem, Throughput
from stead.readers.common.strict_json import read_json

DOPPLER_DEVICES = 4
DOPPLER_UNIT = 1e-12  # seconds; its costs have no unit, so that ratios are all that matters
AMPLE_BYTES = 2**50
NUMBERS = re.compile(r"\d+")
COSTS = re.compile(r"\s*(\d+)\s*,\s*(\d+)\s*,?\s*")


def problem_of_others(path: Path) -> Problem | None:
    """The problem in a file of Piper or DOPPLER; None for every other kind of file."""
    if path.suffix == ".txt":
        return doppler_problem(path)
    if path.suffix == ".json" and is_piper(path):
        return piper_problem(path)
    return None


def is_piper(path: Path) -> bool:
    """Whether a file looks like an input of Piper."""
    return '"TMPCs"' in read_text(path)


def is_doppler(path: Path) -> bool:
    """Whether a text file begins like a graph of DOPPLER: a number, three lines of numbers, pairs of costs."""
    lines = read_text(path).splitlines()
    listed = all(re.fullmatch(r"[\d,\s]*", line) for line in lines[:4])
    return len(lines) > 4 and lines[0].strip().isdigit() and listed and COSTS.fullmatch(lines[4]) is not None


def doppler_problem(path: Path, *, devices: int = DOPPLER_DEVICES) -> Problem:
    """A graph of DOPPLER under its simulator's rules: equal devices, transfers that take time but never queue.

    Lines: nodes including inputs; the inputs, which are neither placed nor counted; sources of edges; their targets;
    then for each node its cost and the cost of sending its output. Lists are taken as published, whatever is between
    their numbers.
    """
    if not is_doppler(path):
        raise BadInput(
            f"{path}: not a graph of DOPPLER: a number of nodes, lists of inputs, sources and targets, then costs"
        )
    total, inputs, sources, targets, *rest = read_text(path).splitlines()
    costs = [COSTS.fullmatch(line) for line in rest if line.strip()]
    if not all(costs):
        raise BadInput(f"{path}: a line after the fourth is not `cost,cost of sending`")
    table = np.array([[int(part) for part in one.groups()] for one in costs if one], dtype=float) * DOPPLER_UNIT
    expected = int(total) - len(NUMBERS.findall(inputs))
    if len(table) != expected:
        raise BadInput(f"{path}: {expected} nodes are to be placed, but there are costs of {len(table)}")
    ends = [np.array([int(n) for n in NUMBERS.findall(line)], dtype=np.int64) for line in (sources, targets)]
    if len(ends[0]) != len(ends[1]):
        raise BadInput(f"{path}: {len(ends[0])} sources of edges, but {len(ends[1])} targets")
    edges = _edges(path, len(table), *ends)
    order = _topological(path, len(table), edges)
    build = GraphBuilder(path.stem)
    tensors: dict[int, TensorId] = {}
    for v in order:
        operator = build.operator(f"node {v}", reads=[tensors[u] for u in edges[edges[:, 1] == v, 0].tolist()])
        tensors[v] = build.tensor(operator, size_bytes=0)
    graph, names = build.build(), [f"device {d}" for d in range(devices)]
    cluster = Cluster(
        tuple(Device(name, memory_bytes=AMPLE_BYTES) for name in names),
        link_all(names, bytes_per_second=float("inf"), latency_seconds=0.0),
        contention="none",
    )
    seconds = np.repeat(table[order, :1], devices, axis=1)
    return Problem(graph, cluster, _given(graph, cluster, seconds, table[order, 1]), objective=Latency())


def piper_problem(path: Path) -> Problem:
    """An input of Piper as a full pipeline: whole nodes on devices, without tensor and data parallelism."""
    document = read_json(path)
    try:
        nodes = {int(node["id"]): _vanilla(path, node) for node in document["nodes"]}
        wires = [(int(e["sourceId"]), int(e["destId"]), float(e["communicationCost"])) for e in document["edges"]]
        count, memory = int(document["maxDevices"]), int(document["maxMemoryPerDevice"])
        rate = float(document["bandwidth"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: not an input of Piper: {type(error).__name__} {error}") from None
    place = {node: v for v, node in enumerate(nodes)}
    for source, target, _ in wires:
        if source not in place or target not in place:
            raise BadInput(f"{path}: edge {source} to {target} names a node that is not listed")
    ends = np.array([(place[a], place[b]) for a, b, _ in wires], dtype=np.int64).reshape(-1, 2)
    order = _topological(path, len(nodes), _edges(path, len(nodes), ends[:, 0], ends[:, 1]))
    build, listed = GraphBuilder(path.stem), list(nodes)
    sent: dict[int, TensorId] = {}
    for v in order:
        reads = [sent[e] for e in np.flatnonzero(ends[:, 1] == v).tolist()]
        operator = build.operator(f"node {listed[v]}", reads=reads)
        config = nodes[listed[v]]
        held = round(config["memoryUsageA"] + config["memoryUsageB"])
        build.weight(f"memory of node {listed[v]}", size_bytes=held, users=[operator])
        for e in np.flatnonzero(ends[:, 0] == v).tolist():  # forward, and its gradient back
            sent[e] = build.tensor(operator, size_bytes=round(2 * wires[e][2]))
    graph, names = build.build(), [f"device {d}" for d in range(count)]
    cluster = Cluster(
        tuple(Device(name, memory_bytes=memory) for name in names),
        link_all(names, bytes_per_second=rate, latency_seconds=0.0),
    )
    seconds = np.array([[float(nodes[listed[v]]["timePerSample"])] * count for v in order])
    return Problem(graph, cluster, _given(graph, cluster, seconds), objective=Throughput())


def _given(
    graph: Graph, cluster: Cluster, seconds: NDArray[np.float64], tensor_seconds: NDArray[np.float64] | None = None
) -> Costs:
    """Costs as a file has them."""
    sources = np.full(seconds.shape, Source.IMPORTED, dtype=np.uint8)
    return Costs(graph, cluster, seconds, sources=sources, tensor_seconds=tensor_seconds)


def _vanilla(path: Path, node: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first configuration of a node on one device."""
    alone: Sequence[Mapping[str, Any]] = node["TMPCs"].get("1", ())
    if not alone:
        raise BadInput(f"{path}: node {node['id']} has no configuration for one device (TMPCs of degree 1)")
    return alone[0]


def _edges(
    path: Path, count: int, sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> NDArray[np.int64]:  # [edge, 2]
    """Edges between nodes that there are, each once."""
    every = np.column_stack([sources, targets]).reshape(-1, 2)
    if every.size and every.max() >= count:
        raise BadInput(f"{path}: an edge names node {every.max()}, but nodes are 0 to {count - 1}")
    loops = np.flatnonzero(every[:, 0] == every[:, 1])
    if loops.size:
        raise BadInput(f"{path}: node {every[loops[0], 0]} reads its own output")
    return np.unique(every, axis=0)


def _topological(path: Path, count: int, edges: NDArray[np.int64]) -> list[int]:
    """Nodes so that every one comes after those it reads from."""
    numbers = topological_numbers(count, *distinct_pairs(edges[:, 0], edges[:, 1]))
    if numbers is None:
        raise BadInput(f"{path}: nodes wait for each other in a circle")
    return [int(v) for v in np.argsort(numbers)]
