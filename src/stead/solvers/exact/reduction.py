"""The problem behind a pipeline, without what does not matter: supernodes, tensors between them, kinds of devices.

The load of a device is its computing plus the tensors cut, so operators that must share a device can be one
*supernode*, tensors inside it vanish, and tensors of one supernode with the same readers are one. Devices that cannot
be told apart are one *kind*. All times are whole picoseconds (ticks), as in the simulator, so sums are exact.

Notation    v supernode, t tensor, j kind, S the supernodes of one device
    C(S)    sum of ticks[v, j]
    In(S)   sum of receive_ticks[t, j], source outside S, some reader in S
    Out(S)  sum of send_ticks[t, j], source in S, some reader outside S

Reference: Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient Algorithms for Device Placement of DNN
Graph Operators", NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead import _native
from stead.errors import BadInput
from stead.graph import FORWARD, PHASES, Graph
from stead.graph.arrays import distinct_pairs
from stead.graph.components import connected, strongly_connected, topological_numbers
from stead.graph.weights import resident
from stead.problem import Load, Problem, Throughput
from stead.problem.problem import alike
from stead.problem.ticks import to_ticks
from stead.sim.transfer_times import READ, WRITE, host_ticks, link_ticks
from stead.solvers.exact.merging import merged

Notion = Literal[
    "stages", "device", "any"
]  # what contiguity asks for: acyclic stages, each device alone, nothing
Merge = Literal["lossless", "published", "always", "off"]

UPDATE = PHASES.index("update")
CONTIGUOUS = "contiguous stages"  # the scope of bounds over acyclic stages
SCOPES: dict[Notion, str] = {
    "stages": CONTIGUOUS,
    "device": "each device contiguous, colocated operators as one",
    "any": "",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices that cannot be told apart."""

    devices: tuple[int, ...]
    memory_bytes: int
    is_host: bool


@dataclass(frozen=True, eq=False)
class Reduced:
    """Supernodes, the tensors between them and kinds of devices: all that loads depend on."""

    problem: Problem
    node_of: NDArray[np.int32]  # [operator]; supernodes are numbered along `order`
    kinds: tuple[Kind, ...]
    ticks: NDArray[np.int64]  # [node, kind, 2]; forward, later; -1 where it may not run
    order: NDArray[
        np.int32
    ]  # [edge, 2]; a before b, sorted; what contiguity obeys, empty if nothing is asked
    tensor_source: NDArray[np.int32]  # [tensor]
    tensor_late: NDArray[np.uint8]  # [tensor]; 1 if a backward or update operator writes it
    reader_first: NDArray[np.int64]  # [tensor + 1]
    readers: NDArray[np.int32]  # nodes other than the source, increasing
    receive_ticks: NDArray[np.int64]  # [tensor, kind]
    send_ticks: NDArray[np.int64]  # [tensor, kind]
    weight_bytes: NDArray[np.int64]  # [weight]
    user_first: NDArray[np.int64]  # [weight + 1]
    users: NDArray[np.int32]  # nodes, increasing
    exact: bool  # False: with these links the loads are only lower bounds
    lossless: bool  # False: a merge may have cost the optimum, so nothing is proved

    @property
    def count(self) -> int:
        """Number of supernodes."""
        return len(self.ticks)

    @cached_property
    def native(self) -> _native.Stages:
        """The same as the core holds it."""
        return _native.Stages(
            ticks=self.ticks,
            order=self.order,
            tensor_source=self.tensor_source,
            tensor_late=self.tensor_late,
            reader_first=self.reader_first,
            readers=self.readers,
            receive_ticks=self.receive_ticks,
            send_ticks=self.send_ticks,
            weight_bytes=self.weight_bytes,
            user_first=self.user_first,
            users=self.users,
            kind_count=np.array([len(kind.devices) for kind in self.kinds], dtype=np.int32),
            kind_memory=np.array([kind.memory_bytes for kind in self.kinds], dtype=np.int64),
        )

    def lift(self, device_of_node: ArrayLike) -> NDArray[np.uint8]:  # [operator]
        """The device of every operator, given one for every supernode."""
        lifted: NDArray[np.uint8] = np.asarray(device_of_node, dtype=np.uint8)[self.node_of]
        return lifted

    def lift_stages(
        self, stage_of_node: NDArray[np.int32], kind_of_stage: Sequence[int]
    ) -> NDArray[np.uint8]:  # [operator]
        """The device of every operator, given stages and their kinds; devices of a kind serve in order."""
        devices = np.array(self.devices_of_stages(kind_of_stage), dtype=np.uint8)
        return self.lift(devices[stage_of_node]) if len(devices) else self.lift(stage_of_node)

    def devices_of_stages(self, kind_of_stage: Sequence[int]) -> list[int]:
        """The first device of its kind that no earlier stage has, for every stage."""
        return [group[0] for group in self.groups_of_stages(kind_of_stage, [1] * len(kind_of_stage))]

    def groups_of_stages(self, kind_of_stage: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """The first so many devices of its kind that no earlier stage has, for every stage."""
        unused = [list(kind.devices) for kind in self.kinds]
        groups = []
        for j, size in zip(kind_of_stage, sizes, strict=True):
            groups.append(tuple(unused[j][:size]))
            del unused[j][:size]
        return groups

    def by_likeness(self) -> Reduced:
        """The same with kinds of which any two devices may share a stage: links within a kind are equal, too.

        Devices that are each like a third but not like each other cannot be sorted like that. Then a group is left
        out, and nothing is proved.
        """
        groups: list[tuple[int, list[int]]] = []  # kind, devices
        for j, kind in enumerate(self.kinds):
            first = len(groups)
            for d in kind.devices:
                home = next((g for _, g in groups[first:] if all(alike(self.problem, d, e) for e in g)), None)
                if home is None:
                    groups.append((j, [d]))
                else:
                    home.append(d)
        complete = not any(
            alike(self.problem, d, e)
            for (_, one), (_, other) in combinations(groups, 2)
            for d in one
            for e in other
        )
        columns = [j for j, _ in groups]
        return replace(
            self,
            kinds=tuple(replace(self.kinds[j], devices=tuple(own)) for j, own in groups),
            ticks=np.ascontiguousarray(self.ticks[:, columns]),
            receive_ticks=np.ascontiguousarray(self.receive_ticks[:, columns]),
            send_ticks=np.ascontiguousarray(self.send_ticks[:, columns]),
            lossless=self.lossless and complete,
        )


def steady_load(problem: Problem) -> Load:
    """What a device's load is made of."""
    assert isinstance(problem.objective, Throughput)
    return problem.objective.load


def not_steady(problem: Problem) -> str | None:
    """Why a problem has no reduced form, in one sentence; None if it has one."""
    unreachable = _unreachable(problem)
    if unreachable:
        return f"device {unreachable} cannot exchange tensors with others, which the load model takes for granted"
    return not_balanced(problem)


def not_balanced(problem: Problem) -> str | None:
    """Why loads do not decide about a problem, in one sentence; None if they do."""
    objective = problem.objective
    if not isinstance(objective, Throughput):
        return "it balances the load of pipelines; the objective is latency"
    if objective.microbatches is not None:
        return "it balances the load of full pipelines; a step of few micro-batches also fills and drains"
    return None


def reduce(problem: Problem, *, notion: Notion = "stages", merge: Merge = "lossless") -> Reduced:
    """The reduced problem for placements that are contiguous in the sense of `notion`.

    For `stages` the backward operators of a forward operator and the updates of its weights share its supernode:
    contiguity concerns the forward pass, and the rest follows. `merge` tells which supernodes without work join
    their only neighbour: `lossless` never changes the optimum, `published` and `always` may.

    >>> from stead.testing import chain3
    >>> reduce(chain3(Throughput())).count
    3
    """
    if merge not in get_args(Merge):
        raise BadInput(f"merge is one of {', '.join(get_args(Merge))}, got {merge!r}")
    graph = problem.graph
    label = _classes(problem, notion)
    before, after = _order(graph, label, notion)
    if notion != "any":
        label = _fused(label, before, after)
        before, after = label[before], label[after]
    table = _Times.of(problem)
    if merge != "off":
        label = merged(problem, label, before, after, table.device_ticks, merge)
        before, after = _labels(label, before, after)
    return _assembled(problem, table, *_numbered(label, before, after), lossless=merge in ("lossless", "off"))


# Supernodes


def _classes(problem: Problem, notion: Notion) -> NDArray[np.int64]:  # [operator]
    """The first operator of those that must share a device."""
    graph = problem.graph
    units = problem.unit_firsts[problem.units]
    if notion != "stages" or not graph.is_training:
        return units
    backward = np.flatnonzero(graph.twins >= 0)
    updates, trained = _updates(graph)
    first = np.concatenate([np.arange(len(graph)), backward, updates])
    second = np.concatenate([units, graph.twins[backward], trained])
    return connected(len(graph), first, second)


def _updates(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Update operators, and the first user of each weight that they update."""
    first_user = graph.weight_users[graph.weight_user_first[:-1]]
    user, of = graph.weight_users, np.repeat(first_user, np.diff(graph.weight_user_first))
    chosen = graph.phases[user] == UPDATE
    return user[chosen].astype(np.int64), of[chosen].astype(np.int64)


def _order(
    graph: Graph, label: NDArray[np.int64], notion: Notion
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What contiguity obeys, as (before, after) between classes: forward edges, and backward ones of orphans.

    A class of backward operators alone has no place in the forward pass. It gets one from its neighbours: what comes
    later in the backward pass comes earlier in the forward one.
    """
    if notion == "any":
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    producer, reader = graph.edges[:, 0], graph.edges[:, 1]
    late = graph.phases != FORWARD
    has_forward = np.zeros(len(graph), dtype=bool)
    has_forward[label[~late]] = True
    orphan = ~has_forward[label]
    forward = ~late[producer] & ~late[reader]
    mirrored = late[producer] & late[reader] & (orphan[producer] | orphan[reader])
    before = np.concatenate([label[producer[forward]], label[reader[mirrored]]])
    after = np.concatenate([label[reader[forward]], label[producer[mirrored]]])
    between = before != after
    return before[between], after[between]


def _fused(
    label: NDArray[np.int64], before: NDArray[np.int64], after: NDArray[np.int64]
) -> NDArray[np.int64]:  # [operator]
    """Classes on a common cycle become one: no stage can hold only part of it."""
    sources, targets = distinct_pairs(before, after)
    component = strongly_connected(len(label), sources, targets)
    first = np.full(len(label), len(label), dtype=np.int64)
    np.minimum.at(first, component, np.arange(len(label)))
    return first[component][label]


def _labels(
    label: NDArray[np.int64], before: NDArray[np.int64], after: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    before, after = label[before], label[after]
    between = before != after
    return before[between], after[between]


def _numbered(
    label: NDArray[np.int64], before: NDArray[np.int64], after: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Supernodes numbered along the order, by operator, and the order between these numbers."""
    names, node = np.unique(label, return_inverse=True)
    node = node.reshape(-1)
    dense = np.zeros(len(label), dtype=np.int64)
    dense[names] = np.arange(len(names))
    between = before != after
    sources, targets = distinct_pairs(dense[before[between]], dense[after[between]])
    numbers = topological_numbers(len(names), sources, targets)
    assert numbers is not None, "cycles are fused before supernodes are numbered"
    sources, targets = distinct_pairs(numbers[sources], numbers[targets])
    return numbers[node].astype(np.int32), np.stack([sources, targets], axis=1).astype(np.int32)


# Times


@dataclass(frozen=True, slots=True, eq=False)
class _Times:
    """Ticks of operators and tensors on every device."""

    device_ticks: NDArray[np.int64]  # [operator, device]; -1 where it may not run
    receive_ticks: NDArray[np.int64]  # [tensor, device]
    send_ticks: NDArray[np.int64]  # [tensor, device]
    exact: bool

    @staticmethod
    def of(problem: Problem) -> _Times:
        seconds = np.where(problem.allowed, problem.costs.seconds, 0.0)
        ticks = np.where(problem.allowed, to_ticks(seconds), -1)
        receive, send = _through_host(problem) if problem.cluster.routing == "host" else _direct(problem)
        exact = problem.cluster.routing == "host" or len(problem.cluster) <= 2
        return _Times(ticks, receive, send, exact)


def _unreachable(problem: Problem) -> str:
    """The name of a device that cannot exchange tensors with all others; empty if there is none."""
    routes, names = problem.routes, problem.cluster.names
    if problem.cluster.routing == "host":
        apart = np.isinf(routes.host_latency_seconds)
        alone = [d for d, device in enumerate(problem.cluster) if not device.is_host and apart[:, d].any()]
    else:
        apart = np.isinf(routes.latency_seconds)
        alone = [d for d in range(len(names)) if apart[d].any() or apart[:, d].any()]
    return names[alone[0]] if alone else ""


def _through_host(problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # [tensor, device] each
    """Ticks to read every tensor from host memory, and to write it there; nothing for devices that work in it."""
    devices = range(len(problem.cluster))
    read, written = (
        np.stack([host_ticks(problem, way, d) for d in devices], axis=1) for way in (READ, WRITE)
    )
    return read, written


def _direct(problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # [tensor, device] each
    """The least ticks to receive and to send every tensor: once, over the quickest link.

    With two devices that is what happens; with more, a tensor may be sent several times and over slower links.
    """
    devices = len(problem.cluster)
    most = np.iinfo(np.int64).max
    receive = np.full((problem.graph.tensor_count, devices), most, dtype=np.int64)
    send = receive.copy()
    for s in range(devices):
        for d in range(devices):
            if s != d:
                ticks = link_ticks(problem, s, d)
                np.minimum(send[:, s], ticks, out=send[:, s])
                np.minimum(receive[:, d], ticks, out=receive[:, d])
    if devices == 1:
        return np.zeros_like(receive), np.zeros_like(send)
    return receive, send


# The reduced problem


def _assembled(
    problem: Problem,
    times: _Times,
    node_of: NDArray[np.int32],
    order: NDArray[np.int32],
    *,
    lossless: bool,
) -> Reduced:
    count = int(node_of.max()) + 1 if len(node_of) else 0
    ticks = _node_ticks(problem.graph, node_of, count, times.device_ticks)
    tensors = _tensors(problem.graph, node_of, times)
    weights = _weights(problem.graph, node_of)
    kinds = _kinds(problem, ticks, tensors)
    firsts = [kind.devices[0] for kind in kinds]
    return Reduced(
        problem=problem,
        node_of=node_of,
        kinds=kinds,
        ticks=np.ascontiguousarray(ticks[:, firsts]),
        order=order,
        tensor_source=tensors.source,
        tensor_late=tensors.late,
        reader_first=tensors.reader_first,
        readers=tensors.readers,
        receive_ticks=np.ascontiguousarray(tensors.receive_ticks[:, firsts]),
        send_ticks=np.ascontiguousarray(tensors.send_ticks[:, firsts]),
        weight_bytes=weights.sizes,
        user_first=weights.user_first,
        users=weights.users,
        exact=times.exact,
        lossless=lossless,
    )


def _node_ticks(
    graph: Graph, node_of: NDArray[np.int32], count: int, device_ticks: NDArray[np.int64]
) -> NDArray[np.int64]:  # [node, device, 2]
    """Ticks of supernodes, forward and later; -1 where a member may not run."""
    barred = np.zeros((count, device_ticks.shape[1]), dtype=bool)
    np.logical_or.at(barred, node_of, device_ticks < 0)
    late = (graph.phases != FORWARD).astype(np.int64)
    by_phase = np.zeros((count, 2, device_ticks.shape[1]), dtype=np.int64)
    np.add.at(
        by_phase.reshape(count * 2, -1), 2 * node_of.astype(np.int64) + late, np.maximum(device_ticks, 0)
    )
    ticks = np.ascontiguousarray(by_phase.transpose(0, 2, 1))
    ticks[barred] = -1
    return ticks


@dataclass(frozen=True, slots=True, eq=False)
class _Tensors:
    """Tensors between supernodes."""

    source: NDArray[np.int32]  # [tensor]
    late: NDArray[np.uint8]  # [tensor]; 1 if a backward or update operator writes it
    reader_first: NDArray[np.int64]  # [tensor + 1]
    readers: NDArray[np.int32]  # supernodes
    receive_ticks: NDArray[np.int64]  # [tensor, device]
    send_ticks: NDArray[np.int64]  # [tensor, device]


def _tensors(graph: Graph, node_of: NDArray[np.int32], times: _Times) -> _Tensors:
    """Those with the same source, phase and readers added up."""
    tensor = graph.tensor_of_read
    source = node_of[graph.tensor_producer]
    outside = node_of[graph.readers] != source[tensor]
    tensor, reader = distinct_pairs(tensor[outside], node_of[graph.readers[outside]])
    late = (graph.phases[graph.tensor_producer] != FORWARD).astype(np.uint8)
    costs = times.receive_ticks.any(axis=1) | times.send_ticks.any(axis=1)
    groups: dict[tuple[int, int, bytes], list[int]] = {}
    first = np.searchsorted(tensor, np.arange(graph.tensor_count + 1)).tolist()
    reader = reader.astype(np.int32)
    for t in np.flatnonzero(costs).tolist():
        begin, end = first[t], first[t + 1]
        if begin < end:
            groups.setdefault((int(source[t]), int(late[t]), reader[begin:end].tobytes()), []).append(t)
    heads = [members[0] for members in groups.values()]
    sizes = [len(members) for members in groups.values()]
    members = np.array([t for group in groups.values() for t in group], dtype=np.int64)
    begins = (
        np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        if heads
        else np.zeros(0, dtype=np.int64)
    )
    lengths = [first[t + 1] - first[t] for t in heads]
    reader_first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    readers = [reader[first[t] : first[t + 1]] for t in heads]
    receive, send = (
        np.add.reduceat(table[members], begins, axis=0)
        if heads
        else np.zeros((0, table.shape[1]), dtype=np.int64)
        for table in (times.receive_ticks, times.send_ticks)
    )
    return _Tensors(
        source=source[heads].astype(np.int32),
        late=late[heads],
        reader_first=reader_first,
        readers=np.concatenate(readers).astype(np.int32) if readers else np.zeros(0, dtype=np.int32),
        receive_ticks=receive,
        send_ticks=send,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """Weights of supernodes."""

    sizes: NDArray[np.int64]  # [weight]; bytes
    user_first: NDArray[np.int64]  # [weight + 1]
    users: NDArray[np.int32]  # supernodes


def _weights(graph: Graph, node_of: NDArray[np.int32]) -> _Weights:
    """Those with the same users added up."""
    weight, user = resident(graph, node_of)
    first = np.searchsorted(weight, np.arange(len(graph.weight_bytes) + 1)).tolist()
    user = user.astype(np.int32)
    totals: dict[bytes, int] = {}
    for w, size in enumerate(graph.weight_bytes.tolist()):
        if size and first[w] < first[w + 1]:
            key = user[first[w] : first[w + 1]].tobytes()
            totals[key] = totals.get(key, 0) + size
    groups = [np.frombuffer(key, dtype=np.int32) for key in totals]
    user_first = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
    users = np.concatenate(groups).astype(np.int32) if groups else np.zeros(0, dtype=np.int32)
    return _Weights(np.array(list(totals.values()), dtype=np.int64), user_first, users)


def _kinds(problem: Problem, ticks: NDArray[np.int64], tensors: _Tensors) -> tuple[Kind, ...]:
    """Devices by what can be told of them, in order of their first device."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for d, device in enumerate(problem.cluster):
        columns = tuple(
            table[:, d].tobytes() for table in (ticks, tensors.receive_ticks, tensors.send_ticks)
        )
        groups.setdefault((*columns, device.usable_bytes, device.is_host), []).append(d)
    return tuple(
        Kind(
            tuple(devices),
            problem.cluster.devices[devices[0]].usable_bytes,
            problem.cluster.devices[devices[0]].is_host,
        )
        for devices in groups.values()
    )
