"""Reader of the inputs published with Tarnawski et al. 2020 (NeurIPS; arXiv 2006.16423).

A node becomes an operator whose name is the node's id as text, since splits list ids; the node's own name
becomes the module path. All out-edges of a node are one tensor: `cost` is the time to move the node's output
between accelerator and host memory, whoever reads it. Tensors have no bytes; their time is kept as given.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from stead.cluster import UNLIMITED_BYTES, Cluster, Device, Link, link_both_ways
from stead.cluster.devices import MAX_DEVICES
from stead.costs import Given
from stead.errors import BadInput
from stead.files import collector_paused
from stead.graph import Graph, GraphBuilder, OperatorId
from stead.printing.wording import quoted, shown, shown_path
from stead.readers.base import Model
from stead.readers.common.checked_values import Wrong, about, amount_of, checked, list_of, text_of
from stead.readers.common.strict_json import read_json, stem
from stead.readers.known_formats import OfTable
from stead.readers.msr.expert_split import is_split, read_split, split_placement, write_split

__all__ = ["MsrFiddle", "Repair", "host_cluster", "is_split", "read_split", "split_placement", "write_split"]

Repair = Literal["nothing", "backward-edges"]

COST_TOLERANCE_MS = 1e-6
SIZE_TOLERANCE_BYTES = 1e-6
FASTEST_LINK_BYTES_PER_SECOND = 1e12  # no accelerator reaches its host's memory faster than this


@dataclass(frozen=True, slots=True)
class MsrFiddle(OfTable):
    """Reader of throughput and latency inputs.

    `cost_scale` multiplies every edge cost: 1000 undoes a slip of units in some published files. `repair`
    turns the backward edges of layer graphs round, which are published pointing forward. Never unasked.
    """

    cost_scale: float = 1.0
    repair: Repair = "nothing"
    name: ClassVar[str] = "msr-fiddle"

    def __post_init__(self) -> None:
        if not 0 < self.cost_scale < math.inf:
            raise BadInput(f"cost_scale must be a positive number, got {self.cost_scale}")
        if self.repair not in get_args(Repair):
            raise BadInput(f"repair is one of {', '.join(get_args(Repair))}, got {self.repair!r}")

    def read(self, path: str | os.PathLike[str]) -> Model:
        """Graph, seconds and cluster of a file."""
        with about(shown_path(path)), collector_paused():
            return self._model(stem(path), read_json(path))

    def _model(self, name: str, document: object) -> Model:
        file = _parsed(document)
        if self.repair == "backward-edges":
            _check_mirrored(file)
        graph, tensor_ms = _built(name, file, turned=self.repair == "backward-edges")
        return Model(graph, self._given(graph, file, tensor_ms), file.cluster, tuple(self._notes(file)))

    def _given(self, graph: Graph, file: _File, tensor_ms: Mapping[str, float]) -> Given:
        nodes = [file.nodes[int(name)] for name in graph.operator_names]
        cpu = np.array([node.cpu_ms for node in nodes], dtype=np.float64)
        fpga = np.array([node.fpga_ms if node.supported else math.inf for node in nodes], dtype=np.float64)
        costs = np.array([tensor_ms.get(name, 0.0) for name in graph.tensor_names], dtype=np.float64)
        with np.errstate(over="ignore"):
            tensor_seconds = costs * self.cost_scale / 1e3
        if not np.isfinite(tensor_seconds).all():
            raise Wrong(
                f"edge costs times cost_scale {self.cost_scale:g} are infinite; use a smaller cost_scale"
            )
        return Given({"cpu": cpu / 1e3, "fpga": fpga / 1e3}, tensor_seconds=tensor_seconds)

    def _notes(self, file: _File) -> list[str]:
        """What was done to the file, and what looks wrong about it."""
        notes = list(file.notes)
        if self.cost_scale != 1:
            notes.append(f"edge costs are multiplied by {self.cost_scale:g} (cost_scale)")
        rate = file.bytes_per_ms * 1e3 / self.cost_scale
        if rate > FASTEST_LINK_BYTES_PER_SECOND:
            notes.append(
                f"edge costs and sizes imply links of {rate / 1e12:.3g} TB/s: probably seconds written as "
                "milliseconds, so that transfers come out free; cost_scale=1000 repairs that"
            )
        if self.repair == "backward-edges":
            notes.append(
                "backward edges are turned round, one tensor each, and backward operators wait for the "
                "forward operators of their class (repair)"
            )
        elif file.backward_edges and not file.turning_edges and not _unmirrored(file):
            notes.append(
                "backward edges point the same way as forward ones, and nothing leads from forward to "
                'backward pass: loads are right, simulated times wrong; repair="backward-edges" helps'
            )
        return notes


def host_cluster(fpgas: int, cpus: int, memory_bytes: int = UNLIMITED_BYTES) -> Cluster:
    """Equal accelerators fpga0, fpga1, ... and CPUs of unlimited memory, joined by host memory.

    Links take no time by themselves: these files say for each tensor how long it takes.

    >>> host_cluster(2, 1).names
    ('fpga0', 'fpga1', 'cpu0')
    """
    accelerators = [Device(f"fpga{d}", kind="fpga", memory_bytes=memory_bytes) for d in range(fpgas)]
    hosts = [Device(f"cpu{d}", kind="cpu") for d in range(cpus)]
    links: list[Link] = []
    for accelerator in accelerators:
        for host in hosts:
            links += link_both_ways(accelerator.name, host.name, bytes_per_second=math.inf)
    return Cluster((*accelerators, *hosts), tuple(links), routing="host")


# The file


@dataclass(frozen=True, slots=True)
class _Node:
    identity: int
    name: str
    cpu_ms: float
    fpga_ms: float
    supported: bool
    backward: bool
    size_bytes: int
    colour: int | None


@dataclass(slots=True)
class _File:
    """A checked input."""

    nodes: dict[int, _Node]
    cluster: Cluster
    readers: dict[int, list[int]] = field(default_factory=dict)  # by node whose output they read
    cost_ms: dict[int, float] = field(default_factory=dict)  # of each output
    bytes_per_ms: float = 0.0  # typical rate of the edges that say their size; 0 if none does
    notes: list[str] = field(default_factory=list)

    @property
    def edges(self) -> list[tuple[int, int]]:
        return [(source, reader) for source, readers in self.readers.items() for reader in readers]

    @property
    def backward_edges(self) -> list[tuple[int, int]]:
        """Edges within the backward pass."""
        return [(source, reader) for source, reader in self.edges if self.nodes[source].backward]

    @property
    def turning_edges(self) -> list[tuple[int, int]]:
        """Edges from the forward to the backward pass."""
        return [
            (source, reader)
            for source, reader in self.edges
            if self.nodes[reader].backward and not self.nodes[source].backward
        ]

    def classes(self) -> dict[int, list[_Node]]:
        """Nodes of every colour class; a node without one belongs to none."""
        members: dict[int, list[_Node]] = {}
        for node in self.nodes.values():
            if node.colour is not None:
                members.setdefault(node.colour, []).append(node)
        return members


def _flag(value: object) -> bool:
    """true, false, 0 or 1: files mix them."""
    if value is not True and value is not False and (not isinstance(value, int) or value not in (0, 1)):
        raise Wrong(f"must be true, false, 0 or 1, got {shown(value)}")
    return bool(value)


def _identity(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise Wrong(f"must be a whole number of at least 0, got {shown(value)}")
    return value


def _optional_colour(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wrong(f"must be a whole number, got {shown(value)}")
    return value


def _optional_text(value: object) -> str:
    return "" if value is None else text_of(value)


def _ignored(value: object) -> None:
    """A key for people who debug; nothing depends on it."""


def _size_if_known(value: object) -> float:
    """Bytes of an edge, which only serve to judge its cost; 0 if they cannot."""
    return float(value) if isinstance(value, int | float) and 0 < value < UNLIMITED_BYTES else 0.0


_TOP: Mapping[str, Callable[[Any], Any]] = {
    "maxSizePerFPGA": amount_of,
    "maxFPGAs": _identity,
    "maxCPUs": _identity,
    "nodes": list_of,
    "edges": list_of,
}
_NODE: Mapping[str, Callable[[Any], Any]] = {
    "id": _identity,
    "name": _optional_text,
    "supportedOnFpga": _flag,
    "isBackwardNode": _flag,
    "cpuLatency": amount_of,
    "fpgaLatency": amount_of,
    "size": amount_of,
    "colorClass": _optional_colour,
    "layerId": _ignored,
}
_EDGE: Mapping[str, Callable[[Any], Any]] = {
    "sourceId": _identity,
    "destId": _identity,
    "cost": amount_of,
    "size": _size_if_known,
}


def _parsed(document: object) -> _File:
    unknown: set[str] = set()
    top = checked(document, _TOP, ("maxSizePerFPGA", "maxFPGAs", "nodes", "edges"), unknown=unknown)
    notes: list[str] = []
    file = _File(_nodes(top["nodes"], unknown, notes), _cluster(top, notes), notes=notes)
    _add_edges(file, top["edges"], unknown)
    if unknown:
        notes.append(f"ignored keys: {', '.join(quoted(key) for key in sorted(unknown)[:10])}")
    return file


def _cluster(top: Mapping[str, Any], notes: list[str]) -> Cluster:
    """The devices of the file; where it is silent about CPUs one, since something must own host memory."""
    fpgas, memory = top["maxFPGAs"], top["maxSizePerFPGA"]
    cpus = top.get("maxCPUs", 1)
    if "maxCPUs" not in top:
        notes.append('the file has no "maxCPUs"; it is taken to mean one CPU')
    if not 1 <= fpgas + cpus <= MAX_DEVICES:
        raise Wrong(f"maxFPGAs + maxCPUs must lie in 1..{MAX_DEVICES}, got {shown(fpgas)} + {shown(cpus)}")
    if memory < 1:
        raise Wrong(f"maxSizePerFPGA: must be at least 1 byte, got {shown(memory)}")
    return host_cluster(fpgas, cpus, int(min(memory, UNLIMITED_BYTES)))


def _nodes(entries: Sequence[object], unknown: set[str], notes: list[str]) -> dict[int, _Node]:
    nodes: dict[int, _Node] = {}
    rounded = 0
    required = ("id", "supportedOnFpga", "isBackwardNode", "cpuLatency", "fpgaLatency")
    for number, entry in enumerate(entries, 1):
        try:
            fields = checked(entry, _NODE, required, unknown=unknown)
            if fields["id"] in nodes:
                raise Wrong("an earlier node has the same id; ids must differ")
            size, exact = _whole_bytes(fields.get("size", 0.0))
        except Wrong as wrong:
            identity = entry.get("id") if isinstance(entry, dict) else None
            label = f" (id {shown(identity)})" if identity is not None else ""
            raise Wrong(f"node {number}{label}: {wrong}") from None
        rounded += not exact
        nodes[fields["id"]] = _Node(
            identity=fields["id"],
            name=fields.get("name", ""),
            cpu_ms=fields["cpuLatency"],
            fpga_ms=fields["fpgaLatency"],
            supported=fields["supportedOnFpga"],
            backward=fields["isBackwardNode"],
            size_bytes=size,
            colour=fields.get("colorClass"),
        )
    if rounded:
        notes.append(f"sizes of {rounded} nodes are not whole bytes and are rounded up")
    return nodes


def _whole_bytes(size: float) -> tuple[int, bool]:
    """Bytes, rounded up unless whole but for the last digits, and whether they were whole."""
    if size > UNLIMITED_BYTES:
        raise Wrong(f"size: must be at most 2^62 bytes, got {shown(size)}")
    nearest = round(size)
    exact = abs(size - nearest) <= SIZE_TOLERANCE_BYTES
    return (nearest if exact else math.ceil(size)), exact


def _add_edges(file: _File, entries: Sequence[object], unknown: set[str]) -> None:
    rates: list[float] = []
    for number, entry in enumerate(entries, 1):
        try:
            fields = checked(entry, _EDGE, ("sourceId", "destId", "cost"), unknown=unknown)
            source, reader, cost = fields["sourceId"], fields["destId"], fields["cost"]
            _check_edge(file, source, reader, cost)
        except Wrong as wrong:
            raise Wrong(f"edge {number}: {wrong}") from None
        file.readers.setdefault(source, []).append(reader)
        file.cost_ms.setdefault(source, cost)
        if fields.get("size") and cost > 0 and not file.nodes[source].backward:
            rates.append(fields["size"] / cost)
    file.bytes_per_ms = statistics.median(rates) if rates else 0.0


def _check_edge(file: _File, source: int, reader: int, cost: float) -> None:
    for key, identity in (("sourceId", source), ("destId", reader)):
        if identity not in file.nodes:
            raise Wrong(f"{key}: no node has id {identity}")
    if source == reader:
        raise Wrong(f"leads from node {source} to itself; leave it out")
    if file.nodes[source].backward and not file.nodes[reader].backward:
        raise Wrong(
            f"leads from backward node {source} to forward node {reader}; only the other way makes sense"
        )
    known = file.cost_ms.get(source, cost)
    if abs(cost - known) > COST_TOLERANCE_MS:
        raise Wrong(
            f"node {source} has out-edges of cost {known:.12g} and {cost:.12g}; "
            "the cost belongs to the node's output and must be the same on all of them"
        )


# The graph


def _built(name: str, file: _File, *, turned: bool) -> tuple[Graph, dict[str, float]]:
    """The graph, and milliseconds by name of tensor."""
    build = GraphBuilder(name)
    twins = _twins(file)
    added: dict[int, OperatorId] = {}
    for identity, node in file.nodes.items():
        added[identity] = build.operator(
            str(identity),
            module=node.name,
            phase="backward" if node.backward else "forward",
            twin=twins.get(identity, ""),
            colocate="" if node.colour is None else f"class {node.colour}",
        )
        if node.size_bytes:
            build.weight(f"{identity}.weight", size_bytes=node.size_bytes, users=[added[identity]])
    tensor_ms: dict[str, float] = {}
    for source, readers in file.readers.items():
        if turned and file.nodes[source].backward:
            continue
        output = build.tensor(added[source], size_bytes=0)
        tensor_ms[str(source)] = file.cost_ms[source]
        for reader in readers:
            build.read(added[reader], output)
    if turned:
        _add_turned_edges(build, file, added, tensor_ms)
    return build.build(), tensor_ms


def _twins(file: _File) -> dict[int, str]:
    """The forward operator of every backward node whose class has one of each."""
    twins: dict[int, str] = {}
    for members in file.classes().values():
        forward = [node.identity for node in members if not node.backward]
        backward = [node.identity for node in members if node.backward]
        if len(forward) == len(backward) == 1:
            twins[backward[0]] = str(forward[0])
    return twins


def _unmirrored(file: _File) -> str:
    """A backward edge that does not copy the direction of a forward edge, in words; empty if all do."""
    nodes = file.nodes
    forward = {(nodes[u].colour, nodes[v].colour) for u, v in file.edges if not nodes[v].backward}
    for u, v in file.backward_edges:
        colours = nodes[u].colour, nodes[v].colour
        if None in colours or colours not in forward:
            return f"{u} -> {v}"
    return ""


def _check_mirrored(file: _File) -> None:
    """Refuse to turn edges that do not need it."""
    if not file.backward_edges:
        raise Wrong("there are no backward edges to repair; read the file without repair")
    if file.turning_edges:
        source, reader = file.turning_edges[0]
        raise Wrong(
            f"edge {source} -> {reader} leads into the backward pass, so backward edges point the right way; "
            "read the file without repair"
        )
    if edge := _unmirrored(file):
        raise Wrong(f"backward edge {edge} copies no forward edge and may be right; read without repair")


def _add_turned_edges(
    build: GraphBuilder, file: _File, added: Mapping[int, OperatorId], tensor_ms: dict[str, float]
) -> None:
    """Gradients flow against the edges, one from each consumer, once the forward operators are done."""
    for source, reader in dict.fromkeys(file.backward_edges):
        name = f"{reader}->{source}"
        tensor_ms[name] = file.cost_ms[source]
        build.read(added[source], build.tensor(added[reader], size_bytes=0, name=name))
    for members in file.classes().values():
        forward = [added[node.identity] for node in members if not node.backward]
        for node in members:
            if node.backward:
                for earlier in forward:
                    build.follow(added[node.identity], earlier)
