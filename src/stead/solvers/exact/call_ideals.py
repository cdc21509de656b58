"""One call per accelerator, proved by dynamic programming over ideals with labels: for graphs that are nearly chains.

Calls that do not wait for each other in a circle can be listed so that everything before a call or a host operator is
an ideal (a set that holds all predecessors of its members). So every placement is a path through ideals: a step adds
one operator on a CPU or one call. What the rest needs to know of the past is a *label*: the accelerators used, when the
border of the ideal (members with a reader outside) is done, and the latest end so far. Of two labels of an ideal the
one that is nowhere better is dropped, and so is every label that cannot end before the incumbent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.solvers.exact.reduction import Reduced


@dataclass(frozen=True, slots=True)
class _Step:
    """A call, or an operator on a CPU (kind -1), that leads from one ideal to a larger one."""

    after: int  # ideal
    kind: int
    ticks: int
    waits_for: tuple[int, ...]  # nodes


@dataclass(frozen=True, slots=True, eq=False)
class _Label:
    """One way to have finished an ideal."""

    used: tuple[int, ...]  # [kind]; accelerators
    done: tuple[int, ...]  # [border node]; ticks
    end: int  # the latest end so far
    step: _Step | None
    before: _Label | None

    def is_no_worse(self, other: _Label) -> bool:
        return (
            self.end <= other.end
            and all(a <= b for a, b in zip(self.used, other.used, strict=True))
            and all(a <= b for a, b in zip(self.done, other.done, strict=True))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """What the labels say: whether all were looked at, and a placement of nodes below the limit if there is one."""

    complete: bool
    devices: NDArray[np.int64] | None  # [node]
    ticks: int


class CallIdeals:
    """The search; `host_ticks` and `host_device` are what a node takes on the CPU that runs it best, -1 if none may."""

    def __init__(self, reduced: Reduced, host_ticks: list[int], host_device: list[int]) -> None:
        self._reduced = reduced
        self._host, self._host_device = host_ticks, host_device
        self._all = (1 << reduced.count) - 1
        self._before = [0] * reduced.count  # [node]; direct predecessors, as bits
        self._behind = [0] * reduced.count
        for a, b in reduced.order.tolist():
            self._before[b] |= 1 << a
            self._behind[a] |= 1 << b
        readers = np.split(reduced.readers, reduced.reader_first[1:-1])
        self._reader_bits = [_bits(own) for own in readers] if len(reduced.tensor_source) else []
        users = np.split(reduced.users, reduced.user_first[1:-1])
        self._user_bits = [_bits(own) for own in users] if len(reduced.weight_bytes) else []
        self._sizes = reduced.weight_bytes.tolist()
        self._kinds = [j for j, kind in enumerate(reduced.kinds) if not kind.is_host]
        self._longest = self._longest_paths()
        self._steps_left = 0

    def below(self, limit_ticks: int, *, most_steps: int, stop: Callable[[], bool]) -> Examined:
        """The best placement with an end before `limit_ticks`; complete without one: there is none."""
        self._steps_left = most_steps
        best: _Label | None = None
        layers: list[dict[int, list[_Label]]] = [{} for _ in range(self._reduced.count + 1)]
        layers[0][0] = [_Label((0,) * len(self._kinds), (), 0, None, None)]
        for layer in layers:
            for ideal, labels in sorted(layer.items()):
                if ideal == self._all:
                    best = min(labels, key=lambda label: label.end)
                    continue
                border = self._border(ideal)
                for step in self._steps(ideal):
                    self._steps_left -= len(labels)
                    if self._steps_left < 0 or stop():
                        return Examined(False, None, limit_ticks)
                    for label in labels:
                        self._follow(
                            layers, label, dict(zip(border, label.done, strict=True)), step, limit_ticks
                        )
            layer_labels = layer.get(self._all)
            layer.clear()  # labels hold on to what they came from
            if layer_labels:
                layer[self._all] = layer_labels
        if best is None:
            return Examined(True, None, limit_ticks)
        return Examined(True, self._devices(best), best.end)

    def _longest_paths(self) -> list[int]:  # [node]
        """Ticks of the longest path from each node on, itself included, every node where it is quickest."""
        longest = [0] * self._reduced.count
        for v in range(self._reduced.count - 1, -1, -1):
            own = [
                int(self._reduced.ticks[v, j].sum()) for j in self._kinds if self._reduced.ticks[v, j, 0] >= 0
            ]
            quickest = min([*own, *([self._host[v]] if self._host[v] >= 0 else [])])
            longest[v] = quickest + max((longest[c] for c in _members(self._behind[v])), default=0)
        return longest

    def _rest(self, v: int, ideal: int) -> int:
        """Ticks that must pass once v is done: only readers outside the ideal are still to come."""
        return max(self._longest[c] for c in _members(self._behind[v] & ~ideal))

    def _border(self, ideal: int) -> list[int]:
        return [v for v in _members(ideal) if self._behind[v] & ~ideal]

    def _steps(self, ideal: int) -> Iterator[_Step]:
        """Everything that may come next."""
        for v in self._possible(ideal):
            if self._host[v] >= 0:
                yield _Step(ideal | 1 << v, -1, self._host[v], tuple(_members(self._before[v])))
        for position, j in enumerate(self._kinds):
            seen, waiting = {ideal}, [ideal]
            while waiting:
                reached = waiting.pop()
                for v in self._possible(reached):
                    after = reached | 1 << v
                    if after in seen or self._reduced.ticks[v, j, 0] < 0:
                        continue
                    seen.add(after)
                    if self._bytes(after & ~ideal) <= self._reduced.kinds[j].memory_bytes:
                        waiting.append(after)
                        yield self._call(ideal, after, position, j)

    def _possible(self, ideal: int) -> list[int]:
        """Nodes outside whose predecessors are all inside."""
        outside = _members(self._all & ~ideal)
        return [v for v in outside if not self._before[v] & ~ideal]

    def _bytes(self, held: int) -> int:
        return sum(size for size, users in zip(self._sizes, self._user_bits, strict=True) if users & held)

    def _call(self, ideal: int, after: int, position: int, j: int) -> _Step:
        reduced, held = self._reduced, after & ~ideal
        ticks = sum(int(reduced.ticks[v, j].sum()) for v in _members(held))
        for t, readers in enumerate(self._reader_bits):
            source = 1 << int(reduced.tensor_source[t])
            if source & held:
                ticks += int(reduced.send_ticks[t, j]) if readers & ~held else 0
            elif readers & held:
                ticks += int(reduced.receive_ticks[t, j])
        needed = 0
        for v in _members(held):
            needed |= self._before[v]
        return _Step(after, position, ticks, tuple(_members(needed & ideal)))

    def _follow(
        self,
        layers: list[dict[int, list[_Label]]],
        label: _Label,
        done: dict[int, int],
        step: _Step,
        limit: int,
    ) -> None:
        """Add the label that a step leads to, unless it is too late or another is no worse."""
        used = label.used
        if step.kind >= 0:
            kind = self._reduced.kinds[self._kinds[step.kind]]
            if used[step.kind] == len(kind.devices):
                return
            used = (*used[: step.kind], used[step.kind] + 1, *used[step.kind + 1 :])
        finish = max((done[u] for u in step.waits_for), default=0) + step.ticks
        border = self._border(step.after)
        times = tuple(done.get(v, finish) for v in border)
        end = max(label.end, finish)
        if end >= limit:
            return
        if any(x + self._rest(v, step.after) >= limit for x, v in zip(times, border, strict=True)):
            return
        made = _Label(used, times, end, step, label)
        others = layers[step.after.bit_count()].setdefault(step.after, [])
        if any(other.is_no_worse(made) for other in others):
            return
        others[:] = [other for other in others if not made.is_no_worse(other)]
        others.append(made)

    def _devices(self, label: _Label) -> NDArray[np.int64]:  # [node]
        devices = np.array(self._host_device, dtype=np.int64)
        while label.step is not None and label.before is not None:
            before = label.before.step.after if label.before.step is not None else 0
            if label.step.kind >= 0:
                kind = self._reduced.kinds[self._kinds[label.step.kind]]
                members = list(_members(label.step.after & ~before))
                devices[members] = kind.devices[label.used[label.step.kind] - 1]
            label = label.before
        return devices


def _bits(members: NDArray[np.int32]) -> int:
    """A set as bits."""
    return sum(1 << v for v in members.tolist())


def _members(bits: int) -> list[int]:
    """The numbers of the bits that are set, increasing."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
