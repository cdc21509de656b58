"""Operators and transfers of one placement as tasks, and every order in which they can run.

A run is told by the sequence of operators on every device and of transfers on every channel: with these given, each
task begins as soon as what it waits for is there and its device or channel is free. Whatever a policy or an order of a
placement does is such a run, and every such run is a `ProgramOrder` that lists transfers. What a device carries itself
is no choice: it holds the device right behind the operator.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from stead.cluster.routes import BY_SENDER, NO_CHANNEL
from stead.problem import ProgramOrder
from stead.problem.in_ticks import Tables


@dataclass(frozen=True, slots=True)
class Task:
    """An operator, or one tensor on its way to one device."""

    item: int  # as a ProgramOrder lists it
    resource: int  # its device, or the number of devices + its channel; -1: it never waits for others
    busy_ticks: int  # that it holds the resource
    way_ticks: int  # until what waits for it may begin


@dataclass(slots=True)
class Tasks:
    """All tasks of a placement; operators come first, so task v is operator v."""

    tasks: list[Task] = field(default_factory=list)
    before: list[list[int]] = field(default_factory=list)  # [task]; tasks it waits for
    behind: list[list[int]] = field(default_factory=list)  # [task]; tasks that wait for it
    sends: dict[tuple[int, int], int] = field(default_factory=dict)  # (tensor, device): task

    @staticmethod
    def of(tables: Tables, on: Sequence[int]) -> Tasks:
        """The tasks of a placement whose operators can run and whose tensors have a way."""
        made = Tasks()
        carried = [0] * tables.operators  # ticks that the device of each operator carries what it has made
        sends: list[tuple[int, int, Task]] = []
        for t, p in enumerate(tables.producer):
            s, copy = on[p], 0
            for k in tables.destinations(t, on):
                item = tables.operators + t * tables.devices + k
                wire, channel = tables.wire(t, s, k), tables.channel[s][k]
                way = wire + tables.latency[s][k]
                if channel == BY_SENDER:
                    copy = max(copy, way)
                    sends.append((t, k, Task(item, -1, 0, carried[p] + way)))
                else:
                    resource = tables.devices + channel if channel != NO_CHANNEL else -1
                    sends.append((t, k, Task(item, resource, wire + tables.gap[s][k], way)))
            carried[p] += copy
        for v, d in enumerate(on):
            ticks = tables.duration[v][d]
            made._add(Task(v, d, ticks + carried[v], ticks))
        for t, k, task in sends:
            made.sends[t, k] = made._add(task)
        for t, p in enumerate(tables.producer):
            s = on[p]
            for k in tables.destinations(t, on):
                made._wait(p, made.sends[t, k])
            for v in tables.readers[t]:
                made._wait(p if on[v] == s else made.sends[t, on[v]], v)
        return made

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        self.before.append([])
        self.behind.append([])
        return len(self.tasks) - 1

    def _wait(self, first: int, then: int) -> None:
        self.behind[first].append(then)
        self.before[then].append(first)

    def order(self, sequence: Sequence[int]) -> ProgramOrder:
        """The order that lists tasks in a sequence."""
        return ProgramOrder(np.array([self.tasks[i].item for i in sequence], dtype=np.int32), sends=True)

    def by_time(self, begin: Sequence[int], end: Sequence[int]) -> list[int]:
        """Tasks sorted by begin and end; those of one moment so that nothing comes before what it waits for."""
        missing = [len(own) for own in self.before]
        ready = [(begin[i], end[i], i) for i, count in enumerate(missing) if not count]
        heapq.heapify(ready)
        sequence = []
        while ready:
            *_, i = heapq.heappop(ready)
            sequence.append(i)
            for j in self.behind[i]:
                missing[j] -= 1
                if not missing[j]:
                    heapq.heappush(ready, (begin[j], end[j], j))
        return sequence

    def tails(self) -> list[int]:  # [task]
        """Ticks from the begin of a task to the end of the last operator behind it, at least."""
        tails = [0] * len(self.tasks)
        for i in reversed(self.by_time([0] * len(tails), [0] * len(tails))):
            tails[i] = self.tasks[i].way_ticks + max((tails[j] for j in self.behind[i]), default=0)
        return tails


class EveryOrder:
    """Walks through all runs of a placement that end before a moment, each of them once.

    Lists of tasks that differ only in the order of neighbours with nothing to do with each other mean the same run.
    Of such neighbours a task that was tried first is left asleep (Godefroid's sleep sets) until something wakes it:
    one that holds the same resource, or that it waits for.
    """

    def __init__(self, tasks: Tasks, *, most_steps: int) -> None:
        self._tasks, self._tails, self._left = tasks, tasks.tails(), most_steps
        by_resource: dict[int, int] = {}
        for i, task in enumerate(tasks.tasks):
            if task.resource >= 0:
                by_resource[task.resource] = by_resource.get(task.resource, 0) | 1 << i
        self._disturbs = [by_resource.get(task.resource, 0) for task in tasks.tasks]  # [task]; tasks, as bits
        for i, behind in enumerate(tasks.behind):
            for j in behind:
                self._disturbs[i] |= 1 << j
                self._disturbs[j] |= 1 << i

    @property
    def complete(self) -> bool:
        """Whether nothing was left out for want of steps."""
        return self._left >= 0

    def before(self, limit_ticks: Callable[[], int]) -> Iterator[list[int]]:
        """Sequences of tasks that end before the limit, which may fall on the way."""
        count = len(self._tasks.tasks)
        missing = [len(own) for own in self._tasks.before]
        yield from self._walk([], missing, [0] * count, {}, 0, limit_ticks)

    def _walk(
        self,
        sequence: list[int],
        missing: list[int],
        ready: list[int],
        free: dict[int, int],
        asleep: int,
        limit: Callable[[], int],
    ) -> Iterator[list[int]]:
        tasks = self._tasks.tasks
        if len(sequence) == len(tasks):
            yield list(sequence)
            return
        open_now = [i for i, count in enumerate(missing) if count == 0]
        begins = {i: max(ready[i], free.get(tasks[i].resource, 0)) for i in open_now}
        if any(begins[i] + self._tails[i] >= limit() for i in open_now):
            return  # whatever comes first, this one cannot begin earlier
        for i in sorted(open_now, key=lambda i: (begins[i], i)):
            if asleep >> i & 1:
                continue
            self._left -= 1
            if self._left < 0:
                return
            task, begin = tasks[i], begins[i]
            now_missing, now_ready = missing.copy(), ready.copy()
            now_missing[i] = -1
            for j in self._tasks.behind[i]:
                now_missing[j] -= 1
                now_ready[j] = max(now_ready[j], begin + task.way_ticks)
            held = free if task.resource < 0 else {**free, task.resource: begin + task.busy_ticks}
            sequence.append(i)
            yield from self._walk(sequence, now_missing, now_ready, held, asleep & ~self._disturbs[i], limit)
            sequence.pop()
            asleep |= 1 << i
