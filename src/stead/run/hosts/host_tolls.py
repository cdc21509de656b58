"""Tolls: what sending and receiving over a network takes from the cores that compute at both ends.

A link between cards moves bytes by itself. A network moves them by the processor: systems copy, cut and check what
passes, so that a core which sends or receives computes more slowly meanwhile. One host streams messages to another
while both compute (`Post.stream`), and what that costs is charged to operators:

    seconds[v] += sending * bytes[t]       for every output t of v and every other host that reads it
    seconds[v] += receiving * bytes[t]     for every input t from another host that v is the first to read on its own

Transfers themselves go on beside compute, as the simulator has it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stead.placing.recost import with_seconds
from stead.problem import Placement, Problem
from stead.run.hosts.host_crew import HostCrew
from stead.run.hosts.host_links import pings
from stead.run.hosts.host_messages import Stream

SIZE_BYTES = 2**19
COUNT = 30  # the kernel counts hundredths of a second: right to a third of a millisecond a message
_PINGS = 5
_LONGEST_SECONDS, _LEAST_BYTES = 0.06, 2**15  # over slow links messages are smaller, as far as that makes sense
_MARGIN = 1.2  # computing beside a message by how long it takes: it must not outlast that
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Toll:
    """Seconds of computing per byte that passes, at the two ends of the way from one host to another."""

    source: int  # number of a host
    target: int
    sending: float
    receiving: float


def measure_tolls(
    crew: HostCrew, *, size_bytes: int = SIZE_BYTES, count: int = COUNT, on_step: Callable[[str], None] | None = None
) -> tuple[Toll, ...]:
    """Both ways between any two hosts, by the first worker of each."""
    first = {h: crew.host_of.index(h) for h in sorted(set(crew.host_of))}
    found = []
    for hosts in itertools.combinations(first, 2):
        if on_step is not None:
            on_step(f"computing beside messages between {' and '.join(crew.agents.names[h] for h in hosts)}")
        pair = (first[hosts[0]], first[hosts[1]])
        size = size_bytes
        while (longest := max(pings(crew, pair, size, _PINGS))) > _LONGEST_SECONDS and size > _LEAST_BYTES:
            size //= 2
        for source, target in (hosts, hosts[::-1]):
            ends = (first[source], first[target])
            answers = crew.tell(
                {
                    own: Stream(other, own == ends[0], size, count, _MARGIN * longest, _TIMEOUT_SECONDS)
                    for own, other in (ends, ends[::-1])
                },
                seconds=_TIMEOUT_SECONDS,
            )
            sending, receiving = (answers[end].value / size for end in ends)
            found.append(Toll(source, target, sending, receiving))
    return tuple(found)


def with_tolls(problem: Problem, placement: Placement, tolls: Sequence[Toll], host_of: Sequence[int]) -> Problem:
    """The same question with what a placement makes its operators pay; `host_of` every device."""
    graph = problem.graph
    device = placement.devices
    host = np.asarray(host_of)[device]  # [operator]
    by_way = {(toll.source, toll.target): toll for toll in tolls}
    seconds = problem.costs.seconds.copy()
    for t, producer in enumerate(graph.tensor_producer):
        home = int(host[producer])
        readers = graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]]
        for away in sorted({int(host[v]) for v in readers} - {home}):
            toll = by_way[home, away]
            first = next(v for v in readers if host[v] == away)
            seconds[producer, device[producer]] += toll.sending * graph.tensor_bytes[t]
            seconds[first, device[first]] += toll.receiving * graph.tensor_bytes[t]
    return with_seconds(problem, seconds)
