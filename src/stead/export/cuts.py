"""The best stretches: which device takes how many of some items in a row, searched through the simulator.

Items are what a loader puts one after another (layers, perhaps with embedding and head); every device takes one
stretch of them, in some order of devices. Two devices are looked at completely; with more, one cut at a time is moved
to where it is best until none moves any more, from several beginnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices
from stead.problem import Problem
from stead.sim import simulate_many

MOST_PERMUTED = 4  # devices of which every order is tried
MOST_ROUNDS = 20  # of moving every cut once


@dataclass(frozen=True, slots=True)
class Stretches:
    """So many items in a row for each device."""

    devices: tuple[int, ...]  # in the order of their stretches; every device once
    counts: tuple[int, ...]  # [position in `devices`]

    def of_items(self) -> NDArray[np.int64]:  # [item]
        """The device of every item."""
        return np.repeat(np.array(self.devices, dtype=np.int64), self.counts)

    @property
    def used(self) -> Stretches:
        """Without devices that take nothing."""
        kept = [(d, n) for d, n in zip(self.devices, self.counts, strict=True) if n]
        return Stretches(tuple(d for d, _ in kept), tuple(n for _, n in kept))


def stretches_of(devices: Sequence[int]) -> Stretches | None:
    """The stretches that devices of items make; None if a device has several.

    >>> stretches_of([1, 1, 0])
    Stretches(devices=(1, 0), counts=(2, 1))
    >>> stretches_of([1, 0, 1]) is None
    True
    """
    order: list[int] = []
    counts: list[int] = []
    for d in devices:
        if order and order[-1] == d:
            counts[-1] += 1
        elif d in order:
            return None
        else:
            order.append(d)
            counts.append(1)
    return Stretches(tuple(order), tuple(counts))


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Operators that are placed by items, and where all others stay."""

    problem: Problem
    item: NDArray[np.int32]  # [operator]; -1: stays as in `base`
    count: int
    base: DeviceIndices  # [operator]

    def row(self, stretches: Stretches) -> DeviceIndices:  # [operator]
        """The devices of all operators."""
        placed = np.append(stretches.of_items(), 0)
        return np.where(self.item >= 0, placed[self.item], self.base).astype(self.base.dtype)

    def nearest(
        self, used: Sequence[int], others: Sequence[int], *, like: Sequence[int], first: int | None = None
    ) -> Stretches | None:
        """The best stretches for the devices that a plan uses; where nothing fits those, for the others, too."""
        found = self.best(used, like=like, first=first)
        more = [d for d in others if d not in used]
        if more and (found is None or simulate_many(self.problem, self.row(found)[None]).over_bytes.any()):
            found = self.best([*used, *more], like=like, first=first) or found
        return found

    def best(
        self, devices: Sequence[int], *, like: Sequence[int] = (), first: int | None = None
    ) -> Stretches | None:
        """The best stretches for some devices; None if nothing can run at all.

        `like` are devices of items that the search begins near; between equals, fewer operators leave `base`. A device
        that is `first` has the first stretch, if any. What does not fit is taken only where nothing fits, and then
        what lacks least.
        """
        rest = [d for d in devices if d != first]
        head = () if first is None or first not in devices else (first,)
        found: dict[Stretches, tuple[float, ...]] = {}
        for order in _orders(rest, like):
            for counts in self._beginnings((*head, *order), like):
                self._descend(Stretches((*head, *order), counts), found)
        if not found:
            return None
        best = min(found, key=lambda one: (found[one], one.devices, one.counts))
        return best if found[best][1] < float("inf") else None

    def _beginnings(self, order: tuple[int, ...], like: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Counts to begin with: as many as now, the same for all, and by speed."""
        if like:
            yield tuple(sum(d == one for d in like) for one in order)
        seconds = np.array([self.problem.costs.seconds[self.item >= 0, d].sum() for d in order])
        yield _shares(np.ones(len(order)), self.count)
        usable = np.isfinite(seconds)
        yield _shares(np.where(usable, 1 / np.maximum(np.where(usable, seconds, 1.0), 1e-12), 0.0), self.count)

    def _descend(self, begin: Stretches, found: dict[Stretches, tuple[float, ...]]) -> None:
        """Move one cut after another to its best place until none moves."""
        here = begin
        if sum(here.counts) != self.count or here in found:
            return
        for _ in range(MOST_ROUNDS):
            before = here
            for cut in range(max(1, len(here.counts) - 1)):
                tried = list(dict.fromkeys(_moved(here, cut)))
                self._score([one for one in tried if one not in found], found)
                here = min(tried, key=lambda one: (found[one], one.counts))
            if here == before:
                return

    def _score(self, tried: Sequence[Stretches], found: dict[Stretches, tuple[float, ...]]) -> None:
        """Add the values of stretches: bytes that are missing, seconds, and operators elsewhere than in `base`."""
        if not tried:
            return
        rows = np.stack([self.row(one) for one in tried])
        scores = simulate_many(self.problem, rows)
        allowed = np.all(self.problem.allowed[np.arange(rows.shape[1]), rows], axis=1).tolist()
        away = (rows != self.base).sum(axis=1).tolist()
        for n, one in enumerate(tried):
            seconds = float(scores.seconds[n]) if allowed[n] else float("inf")
            found[one] = (float(scores.over_bytes[n].sum()), seconds, float(away[n]))


def _orders(devices: Sequence[int], like: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Orders of devices: all of a few, else as they stand, and by where their items are now."""
    if len(devices) <= MOST_PERMUTED:
        return permutations(devices)
    placed = {d: float(np.mean([n for n, one in enumerate(like) if one == d] or [len(like)])) for d in devices}
    return dict.fromkeys([tuple(devices), tuple(sorted(devices, key=lambda d: (placed[d], d)))])


def _shares(weights: NDArray[np.float64], count: int) -> tuple[int, ...]:
    """`count` items in proportion to weights, whole numbers by rounding the borders."""
    total = float(weights.sum()) or 1.0
    borders = [round(count * part / total) for part in accumulate(weights.tolist())]
    borders[-1] = count
    return tuple(np.diff([0, *borders]).tolist())


def _moved(here: Stretches, cut: int) -> Iterator[Stretches]:
    """All places of the cut between two neighbouring stretches."""
    counts = list(here.counts)
    if len(counts) == 1:
        yield here
        return
    both = counts[cut] + counts[cut + 1]
    for left in range(both + 1):
        yield Stretches(here.devices, (*counts[:cut], left, both - left, *counts[cut + 2 :]))
