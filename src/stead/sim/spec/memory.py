"""What devices hold, in plain Python: the specification of memory, with and without a time line."""

from __future__ import annotations

from collections.abc import Sequence

from stead.problem.in_ticks import Tables
from stead.sim.spec.engine import Run


def peaks(run: Run) -> list[tuple[int, int]]:  # [device]
    """The most bytes held at once on each device, and the first moment at which they are."""
    tables, on = run.tables, run.on
    changes: list[list[tuple[int, int]]] = [[] for _ in range(tables.devices)]  # (time, bytes more or less)

    def hold(d: int, begin: int, end: int, size: int) -> None:
        if begin < end:
            changes[d] += [(begin, size), (end, -size)]

    def last_finish(t: int, d: int) -> int:
        return max((run.finish[v] for v in tables.readers[t] if on[v] == d), default=0)

    left = [0] * len(tables.producer)  # when the last copy of each tensor has arrived
    for x in run.transfers:
        left[x.tensor] = max(left[x.tensor], x.arrive)
        hold(x.target, x.begin, last_finish(x.tensor, x.target), tables.tensor_bytes[x.tensor])
    for t, p in enumerate(tables.producer):
        needed = max(run.finish[p], last_finish(t, on[p]), left[t])
        hold(on[p], run.start[p], run.makespan if tables.kept[t] else needed, tables.tensor_bytes[t])
    for v in range(tables.operators):
        hold(on[v], run.start[v], run.finish[v], tables.workspace[v][on[v]])

    result = []
    for held, own in zip(tables.resident_weights(on), changes, strict=True):
        peak, at = held, 0
        for time, change in sorted(own):  # at equal times frees come first, being negative
            held += change
            if held > peak:
                peak, at = held, time
        result.append((peak, at))
    return result


def standing_peaks(tables: Tables, on: Sequence[int]) -> list[int]:  # [device]
    """The most bytes held at once on each device when each runs its operators by index, over and over.

    Without a time line, a tensor that leaves stays to the end of its device's turn and one that comes is
    there from its beginning.
    """
    result = []
    for d, resident in enumerate(tables.resident_weights(on)):
        turn = [v for v in range(tables.operators) if on[v] == d]
        place = {v: i for i, v in enumerate(turn)}
        held = [tables.workspace[v][d] for v in turn]
        for t, p in enumerate(tables.producer):
            local = [place[v] for v in tables.readers[t] if on[v] == d]
            first, last = (place[p] if on[p] == d else 0), max(local, default=-1)
            if on[p] == d:
                last = max(last, first)
                if tables.kept[t] or len(local) < len(tables.readers[t]):
                    last = len(turn) - 1
            for i in range(first, last + 1):
                held[i] += tables.tensor_bytes[t]
        result.append(resident + max(held, default=0))
    return result
