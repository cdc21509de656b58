"""Weights that several devices hold: tied ones and trained ones, and what it takes to keep them equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices
from stead.cluster.devices import MAX_DEVICES
from stead.graph import FORWARD, REFRESH, UPDATE, Graph
from stead.graph.arrays import distinct_pairs
from stead.problem import Placement
from stead.problem.ticks import TICKS_PER_SECOND
from stead.readers.common.tied_weights import are_apart
from stead.sim import Trace

WORTH_SAYING = 0.01  # of the bytes of all weights; below that a weight in two places is no news


@dataclass(frozen=True, slots=True)
class TiedFacts:
    """A weight that modules on several devices share."""

    name: str
    size_bytes: int
    devices: tuple[str, ...]  # that hold it
    sent_bytes: int  # in the all-reduce of one step; 0 where nothing is trained
    all_reduce_seconds: float | None  # from its first transfer to its last; None without a time line

    @property
    def is_trained(self) -> bool:
        """Whether an all-reduce keeps it equal."""
        return self.sent_bytes > 0


@dataclass(frozen=True, slots=True)
class RefreshFacts:
    """Weights that are read elsewhere than updated."""

    weights: int
    transfers: int  # one for each device that reads a weight and does not update it
    sent_bytes: int  # per step


NOTHING = RefreshFacts(0, 0, 0)


def tied_facts(placement: Placement, trace: Trace) -> tuple[TiedFacts, ...]:
    """The tied weights that are on several devices, largest first."""
    graph, devices = placement.problem.graph, placement.devices
    names = placement.problem.cluster.names
    worth = WORTH_SAYING * float(graph.weight_bytes.sum())
    found: dict[tuple[int, ...], TiedFacts] = {}
    for w in np.flatnonzero(_spread(graph, devices)).tolist():
        users = graph.weight_users[graph.weight_user_first[w] : graph.weight_user_first[w + 1]]
        forward = users[graph.phases[users] == FORWARD]
        if not are_apart([graph.modules[v] for v in forward.tolist()]):
            continue
        sent = _exchanged(graph, devices, users)
        known = found.get(tuple(users.tolist()))  # gradients and moments have the users of their parameter
        name = graph.weight_names[w]
        if (known is not None and len(known.name) <= len(name)) or (
            not sent.size and graph.weight_bytes[w] < worth
        ):
            continue
        found[tuple(users.tolist())] = TiedFacts(
            name=name,
            size_bytes=int(graph.weight_bytes[w]),
            devices=tuple(names[d] for d in np.unique(devices[forward]).tolist()),
            sent_bytes=int(graph.tensor_bytes[sent].sum()),
            all_reduce_seconds=_seconds(trace, [graph.tensor_names[t] for t in sent.tolist()]),
        )
    return tuple(sorted(found.values(), key=lambda one: (-one.size_bytes, one.name)))


def _spread(graph: Graph, devices: DeviceIndices) -> NDArray[np.bool_]:  # [weight]
    """Weights with forward users on several devices."""
    forward = graph.phases[graph.weight_users] == FORWARD
    weight = graph.weight_of_use[forward]
    on = devices[graph.weight_users[forward]].astype(np.int64)
    lowest = np.full(len(graph.weight_bytes), MAX_DEVICES, dtype=np.int64)
    highest = np.full(len(graph.weight_bytes), -1, dtype=np.int64)
    np.minimum.at(lowest, weight, on)
    np.maximum.at(highest, weight, on)
    return highest > lowest


def _exchanged(graph: Graph, devices: DeviceIndices, users: NDArray[np.int32]) -> NDArray[np.int64]:
    """What users of a weight send each other in the update, once for each device that gets it."""
    own = np.zeros(len(graph), dtype=bool)
    own[users] = True
    tensor = graph.tensor_of_read
    producer, reader = graph.tensor_producer[tensor], graph.readers
    sent = own[producer] & own[reader] & (graph.phases[producer] == UPDATE) & (graph.tensor_bytes[tensor] > 0)
    sent &= devices[producer] != devices[reader]
    return distinct_pairs(tensor[sent], devices[reader[sent]])[0]


def _seconds(trace: Trace, tensors: Sequence[str]) -> float | None:
    """From the begin of the first transfer of some tensors to the end of the last."""
    run = trace.timeline
    if run is None or not tensors:
        return None
    wanted = set(tensors)
    names = run.problem.graph.tensor_names
    own = [x for x, t in enumerate(run.transfers.tensor.tolist()) if names[t] in wanted]
    if not own:
        return None
    begin, end = run.transfers.begin_ticks[own].min(), run.transfers.arrive_ticks[own].max()
    return float(end - begin) / TICKS_PER_SECOND


def refresh_facts(placement: Placement) -> RefreshFacts:
    """What is sent after the updates of a step so that the next one has the new weights."""
    graph, devices = placement.problem.graph, placement.devices
    if REFRESH not in graph.kinds:
        return NOTHING
    is_refresh = np.array([kind == REFRESH for kind in graph.kinds], dtype=bool)
    tensor, reader = graph.tensor_of_read, graph.readers
    sent = is_refresh[reader] & (devices[graph.tensor_producer[tensor]] != devices[reader])
    weight, _ = distinct_pairs(tensor[sent], devices[reader[sent]])
    return RefreshFacts(len(np.unique(weight)), len(weight), int(graph.tensor_bytes[weight].sum()))
