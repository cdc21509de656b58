"""What a placed graph does over time, in plain Python: the specification of the event engine.

Written for reading, with lists and heapq; the native core is compared with it bit for bit.
Letters: v operator, t tensor, p its producer, s source, k target, h channel; `on[v]` is the device of v.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from stead.cluster.routes import BY_SENDER
from stead.problem.in_ticks import Tables

NO_CAUSE = -(2**31)  # of an operator that started because the run did


class Transfer(NamedTuple):
    """One tensor on its way to one device."""

    tensor: int
    source: int
    target: int
    channel: int  # -1: none; -2: carried by its sender
    begin: int
    arrive: int


class Run:
    """What has happened so far, and from when on devices and channels are free."""

    def __init__(self, tables: Tables, on: Sequence[int]) -> None:
        self.tables, self.on = tables, on
        self.start, self.finish = [0] * tables.operators, [0] * tables.operators
        self.order: list[int] = []  # operators as they were processed
        self.transfers: list[Transfer] = []  # as they were booked
        self.ready = [0] * tables.operators
        self.missing = [len(inputs) for inputs in tables.inputs]
        self.device_free = [0] * tables.devices
        self.channel_free: dict[int, int] = defaultdict(int)

    @property
    def makespan(self) -> int:
        """The last finish of an operator."""
        return max(self.finish, default=0)

    def sources(self) -> list[int]:
        """Operators without inputs."""
        return [v for v, inputs in enumerate(self.tables.inputs) if not inputs]

    def execute(self, v: int) -> None:
        """Run v as soon as its inputs and its device are there; what the device carries itself comes right behind."""
        d = self.on[v]
        self.start[v] = max(self.ready[v], self.device_free[d])
        self.finish[v] = self.start[v] + self.tables.duration[v][d]
        self.device_free[d] = self.finish[v] + sum(self.carrying(t) for t in self.tables.outputs[v])
        self.order.append(v)

    def carrying(self, t: int) -> int:
        """How long the device of its producer copies t: once, until the last of those has it that it carries it to."""
        tables, s = self.tables, self.on[self.tables.producer[t]]
        carried = [k for k in tables.destinations(t, self.on) if tables.channel[s][k] == BY_SENDER]
        return max((tables.wire(t, s, k) + tables.latency[s][k] for k in carried), default=0)

    def hand_over(self, t: int, k: int, time: int) -> list[int]:
        """Give t to its readers on k; those that now have everything they read."""
        complete = []
        for v in self.tables.readers[t]:
            if self.on[v] == k:
                self.ready[v] = max(self.ready[v], time)
                self.missing[v] -= 1
                if self.missing[v] == 0:
                    complete.append(v)
        return complete

    def transfer(self, t: int, k: int) -> list[int]:
        """Move t to k; the readers that then have everything. A gap holds the channel, latency does not."""
        tables, p = self.tables, self.tables.producer[t]
        s, wire = self.on[p], tables.wire(t, self.on[p], k)
        h, begin = tables.channel[s][k], self.finish[p]
        if h == BY_SENDER:  # after the tensors of p before it
            begin += sum(self.carrying(u) for u in tables.outputs[p] if u < t)
        elif h != -1:
            begin = max(begin, self.channel_free[h])
            self.channel_free[h] = begin + wire + tables.gap[s][k]
        arrive = begin + wire + tables.latency[s][k]
        self.transfers.append(Transfer(t, s, k, h, begin, arrive))
        return self.hand_over(t, k, arrive)

    def send(self, v: int) -> list[int]:
        """Hand over the outputs of v where it ran, and move each once to every other device that reads it."""
        complete = []
        for t in self.tables.outputs[v]:
            complete += self.hand_over(t, self.on[v], self.finish[v])
            for k in self.tables.destinations(t, self.on):
                complete += self.transfer(t, k)
        return complete


def fifo(tables: Tables, on: Sequence[int]) -> Run:
    """Devices serve by (ready, v), channels by (finish of p, ready of p, p, t, first reader)."""
    run = Run(tables, on)
    starts = [(0, v) for v in run.sources()]
    finishes: list[tuple[int, int, int]] = []
    while starts or finishes:
        if finishes and (not starts or finishes[0][0] <= starts[0][0]):
            _, _, v = heapq.heappop(finishes)
            for reader in run.send(v):
                heapq.heappush(starts, (run.ready[reader], reader))
        else:
            ready, v = heapq.heappop(starts)
            run.execute(v)
            heapq.heappush(finishes, (run.finish[v], ready, v))
    return run


FINISH, RELEASE, FREE, READY = range(4)  # events of one moment, in the order in which they are processed


def priority(
    tables: Tables, on: Sequence[int], position: Sequence[int], transfer_position: Sequence[int] | None = None
) -> Run:
    """Idle devices start the ready operator of lowest position; so do channels if transfers have one.

    What a device carries itself has no position: it comes right behind its producer, in the order of tensors.
    """
    run = Run(tables, on)
    events = [(0, READY, v) for v in run.sources()]
    operators: dict[int, list[tuple[int, int]]] = defaultdict(list)  # waiting, by device
    transfers: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)  # waiting, by channel
    busy_devices: set[int] = set()
    busy_channels: set[int] = set()

    def announce(complete: list[int]) -> None:
        for v in complete:
            heapq.heappush(events, (run.ready[v], READY, v))

    def queue_outputs(v: int, rank: Sequence[int]) -> None:
        for t in tables.outputs[v]:
            announce(run.hand_over(t, on[v], run.finish[v]))
            for k in tables.destinations(t, on):
                h = tables.channel[on[v]][k]
                if h < 0:
                    announce(run.transfer(t, k))
                else:
                    first_reader = next(c for c in tables.readers[t] if on[c] == k)
                    heapq.heappush(transfers[h], (rank[t], first_reader, t, k))

    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, kind, which = heapq.heappop(events)
            if kind == READY:
                heapq.heappush(operators[on[which]], (position[which], which))
            elif kind == RELEASE:
                busy_channels.remove(which)
            elif kind == FREE:
                busy_devices.remove(which)
            else:
                heapq.heappush(events, (run.device_free[on[which]], FREE, on[which]))
                if transfer_position is None:
                    announce(run.send(which))
                else:
                    queue_outputs(which, transfer_position)
        for d in range(tables.devices):
            if operators[d] and d not in busy_devices:
                _, v = heapq.heappop(operators[d])
                run.execute(v)
                busy_devices.add(d)
                heapq.heappush(events, (run.finish[v], FINISH, v))
        for h in sorted(transfers):
            if transfers[h] and h not in busy_channels:
                *_, t, k = heapq.heappop(transfers[h])
                announce(run.transfer(t, k))
                busy_channels.add(h)
                heapq.heappush(events, (run.channel_free[h], RELEASE, h))
    return run


def program_order(tables: Tables, on: Sequence[int], order: Sequence[int], *, sends: bool = False) -> Run:
    """Devices and channels serve as listed; with `sends` item `operators + t * devices + k` moves t to k.

    What a device carries itself comes right behind its producer, wherever it is listed.
    """
    run = Run(tables, on)
    for item in order:
        if item >= tables.operators:
            t, k = divmod(item - tables.operators, tables.devices)
            s = on[tables.producer[t]]
            if k in tables.destinations(t, on) and tables.channel[s][k] != BY_SENDER:
                run.transfer(t, k)
        elif sends:
            run.execute(item)
            for t in tables.outputs[item]:
                run.hand_over(t, on[item], run.finish[item])
                for k in tables.destinations(t, on):
                    if tables.channel[on[item]][k] == BY_SENDER:
                        run.transfer(t, k)
        else:
            run.execute(item)
            run.send(item)
    return run


def causes(run: Run) -> tuple[list[int], list[int]]:
    """Of operators a tensor or -1 - the operator before; of transfers -1 (its producer) or the one before.

    Before a transfer that a device carries comes the last one that it carried from the same producer until then.
    """
    arrived = {(x.tensor, x.target): x.arrive for x in run.transfers}
    of_operator, before = [NO_CAUSE] * len(run.order), dict[int, int]()
    for v in run.order:
        if run.start[v] > run.ready[v]:
            of_operator[v] = -1 - before[run.on[v]]
        for t in reversed(run.tables.inputs[v] if run.start[v] == run.ready[v] else []):
            if arrived.get((t, run.on[v]), run.finish[run.tables.producer[t]]) == run.ready[v]:
                of_operator[v] = t  # the lowest one stays
        before[run.on[v]] = v
    of_transfer, last = [], dict[int | tuple[int, int], int]()
    for index, x in enumerate(run.transfers):
        p = run.tables.producer[x.tensor]
        place = (p, x.begin) if x.channel == BY_SENDER else x.channel
        of_transfer.append(-1 if x.begin == run.finish[p] else last[place])
        last[(p, x.arrive) if x.channel == BY_SENDER else x.channel] = index
    return of_operator, of_transfer
