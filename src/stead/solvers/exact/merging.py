"""Supernodes without work that join their only neighbour.

Why that costs nothing: let a take no time and have b as its only neighbour, over all tensors and the whole order.
Then a is a source or a sink next to b. Moving it to b's device keeps every stage contiguous and every prefix closed,
adds no work, and can only remove transfers. Memory must not stand in the way: either a weighs nothing, or everything
fits on every device.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stead.graph import FORWARD
from stead.problem import Problem


def merged(
    problem: Problem,
    label: NDArray[np.int64],  # [operator]
    before: NDArray[np.int64],  # [order edge]
    after: NDArray[np.int64],
    device_ticks: NDArray[np.int64],  # [operator, device]; -1 where it may not run
    rule: Literal["lossless", "published", "always"],
) -> NDArray[np.int64]:  # [operator]
    """Labels of supernodes after merging. `published` looks at neither support nor memory, `always` not at memory."""
    merging = _Merging(problem, label, before, after, device_ticks, rule)
    merging.run()
    return merging.labels(label)


class _Merging:
    """Supernodes that join each other until none can."""

    def __init__(
        self,
        problem: Problem,
        label: NDArray[np.int64],
        before: NDArray[np.int64],
        after: NDArray[np.int64],
        device_ticks: NDArray[np.int64],
        rule: Literal["lossless", "published", "always"],
    ) -> None:
        graph = problem.graph
        self.published = rule == "published"
        names = np.unique(label).tolist()
        edges = label[graph.edges]
        if self.published:  # the rule knows forward neighbours and forbids backward ones
            late = graph.phases != FORWARD
            turning = edges[late[graph.edges[:, 1]] & ~late[graph.edges[:, 0]]]
            self.barred = set(turning[turning[:, 0] != turning[:, 1]].ravel().tolist())
            edges = np.stack([before, after], axis=1)
        else:
            self.barred = set()
            edges = np.concatenate([edges, np.stack([before, after], axis=1)])
        self.neighbours: dict[int, set[int]] = {name: set() for name in names}
        for a, b in edges.tolist():
            if a != b:
                self.neighbours[a].add(b)
                self.neighbours[b].add(a)
        self.devices, self.idle = _abilities(label, device_ticks)
        self.heavy = _heavy(problem, label) if rule == "lossless" else set()
        self.into: dict[int, int] = {}

    def run(self) -> None:
        """Join whatever may join, in the order of labels, until nothing may."""
        waiting = deque(self.neighbours)
        while waiting:
            a = waiting.popleft()
            if a in self.into or not self._may_join(a):
                continue
            (b,) = self.neighbours[a]
            self._join(a, b)
            waiting.append(b)

    def labels(self, label: NDArray[np.int64]) -> NDArray[np.int64]:  # [operator]
        """The label that every operator ends with."""
        final = np.arange(len(label))
        for a in self.into:
            b = a
            while b in self.into:
                b = self.into[b]
            final[a] = b
        return final[label]

    def _may_join(self, a: int) -> bool:
        if a not in self.idle or a in self.heavy or a in self.barred or len(self.neighbours[a]) != 1:
            return False
        (b,) = self.neighbours[a]
        return self.published or self.devices[b] & ~self.devices[a] == 0

    def _join(self, a: int, b: int) -> None:
        self.into[a] = b
        self.neighbours[b].discard(a)
        self.devices[b] &= self.devices[a]
        if b in self.idle and a not in self.idle:
            self.idle.discard(b)
        if a in self.heavy:
            self.heavy.add(b)


def _abilities(label: NDArray[np.int64], device_ticks: NDArray[np.int64]) -> tuple[dict[int, int], set[int]]:
    """Devices that may run each supernode, as bits, and the supernodes that take no time on any of them."""
    bits: dict[int, int] = {}
    allowed = device_ticks >= 0
    powers = [1 << d for d in range(allowed.shape[1])]
    rows = [sum(power for power, may in zip(powers, row, strict=True) if may) for row in allowed.tolist()]
    for name, row in zip(label.tolist(), rows, strict=True):
        bits[name] = bits.get(name, row) & row
    busy = set(label[np.flatnonzero((device_ticks > 0).any(axis=1))].tolist())
    return bits, set(bits) - busy


def _heavy(problem: Problem, label: NDArray[np.int64]) -> set[int]:
    """Supernodes with weights, if not everything fits on every device."""
    graph = problem.graph
    total = int(graph.weight_bytes.sum())
    if all(total <= device.usable_bytes for device in problem.cluster):
        return set()
    weight = np.repeat(graph.weight_bytes, np.diff(graph.weight_user_first))
    return set(label[graph.weight_users[weight > 0]].tolist())
