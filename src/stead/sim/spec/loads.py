"""Loads of a full pipeline and sequential runs, in plain Python: the specification of both.

Letters: v operator, t tensor, p its producer, s source, k target, d device; `on[v]` is the device of v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stead.problem.in_ticks import READ, WRITE, Tables
from stead.sim.spec.engine import Run, Transfer


@dataclass
class Loads:
    """Ticks that each device spends on one sample, forward and backward apart."""

    compute: list[list[int]]  # [device][phase]; updates count as backward
    received: list[list[int]]  # a tensor counts as its producer's phase
    sent: list[list[int]]

    def value(self, load: str) -> int:
        """The load of the busiest device, as an objective counts it."""
        total = [[c + r + s for c, r, s in zip(*row, strict=True)] for row in self._by_device()]
        sums = [[sum(part) for part in row] for row in self._by_device()]
        if load == "sum":
            return max(sum(phases) for phases in total)
        if load == "overlap":
            return max(max(compute, received + sent) for compute, received, sent in sums)
        if load == "duplex":
            return max(max(row) for row in sums)
        return max(forward for forward, _ in total) + max(backward for _, backward in total)

    def _by_device(self) -> list[tuple[list[int], list[int], list[int]]]:
        return list(zip(self.compute, self.received, self.sent, strict=True))


def loads(tables: Tables, on: Sequence[int]) -> Loads:
    """What every device has to do for one sample of a pipeline that is kept full."""
    result = Loads(*([[0, 0] for _ in range(tables.devices)] for _ in range(3)))
    phase = [min(phase, 1) for phase in tables.phase]
    for v, d in enumerate(on):
        result.compute[d][phase[v]] += tables.duration[v][d]
    for t, p in enumerate(tables.producer):
        s, targets = on[p], tables.destinations(t, on)
        if targets and tables.through_host:  # written once, however many devices read it
            result.sent[s][phase[p]] += tables.host_ticks(WRITE, t, s)
        for k in targets:
            if tables.through_host:
                result.received[k][phase[p]] += tables.host_ticks(READ, t, k)
            else:
                way = tables.wire(t, s, k) + tables.latency[s][k]
                result.sent[s][phase[p]] += way
                result.received[k][phase[p]] += way
    return result


def sequential(tables: Tables, on: Sequence[int]) -> Run:
    """One operator or transfer at a time over the whole cluster; a tensor is copied once it is there."""
    run, clock = Run(tables, on), 0
    for v, d in enumerate(on):
        run.order.append(v)
        run.start[v], clock = clock, clock + tables.duration[v][d]
        run.finish[v] = clock
        for t in tables.outputs[v]:
            for k in tables.destinations(t, on):
                begin, clock = clock, clock + tables.wire(t, d, k) + tables.latency[d][k]
                run.transfers.append(Transfer(t, d, k, -1, begin, clock))
    return run
