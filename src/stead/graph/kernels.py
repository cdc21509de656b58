"""Kernels: what operators run, where that is not one kernel each.

An operator that stands for several, such as a block of a model, takes as long as its kernels one after another. A
kernel that runs by chance, such as that of an expert which only some tokens wake, is launched less than once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.errors import BadGraph

ROUNDING = 1e-6  # relative difference between an operator's amounts and the sum over its kernels


class Kernel(NamedTuple):
    """A part of an operator that is limited by arithmetic or by memory, as a whole."""

    flops: float
    moved_bytes: float
    launches: float = 1.0  # to expect


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """The kernels of every operator of a graph, in the order in which they run."""

    first: NDArray[np.int32]  # [operator + 1]; those of v are first[v] .. first[v + 1] - 1
    flops: NDArray[np.float64]  # [kernel]
    moved_bytes: NDArray[np.float64]  # [kernel]
    launches: NDArray[np.float64]  # [kernel]

    def __post_init__(self) -> None:
        for array in self.arrays:
            array.setflags(write=False)

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All of it."""
        return self.first, self.flops, self.moved_bytes, self.launches

    @property
    def operator(self) -> NDArray[np.int32]:  # [kernel]
        """Whose kernel it is."""
        return np.repeat(np.arange(len(self.first) - 1, dtype=np.int32), np.diff(self.first))

    def of(self, v: int) -> list[Kernel]:
        """The kernels of one operator."""
        own = slice(int(self.first[v]), int(self.first[v + 1]))
        columns = (self.flops[own].tolist(), self.moved_bytes[own].tolist(), self.launches[own].tolist())
        return [Kernel(*row) for row in zip(*columns, strict=True)]

    def picked(self, operators: NDArray[np.integer]) -> Kernels:
        """The kernels of some operators, in their order."""
        counts = np.diff(self.first)[operators]
        first = starts_of(counts)
        chosen = np.repeat(self.first[operators] - first[:-1], counts) + np.arange(first[-1])
        return Kernels(first, self.flops[chosen], self.moved_bytes[chosen], self.launches[chosen])

    def longer(self, more: int) -> Kernels:
        """The same with operators behind them that run nothing."""
        first = np.concatenate([self.first, np.full(more, self.first[-1], dtype=np.int32)])
        return Kernels(first, self.flops, self.moved_bytes, self.launches)

    def grouped(
        self, group: NDArray[np.integer], count: int, dropped: NDArray[np.bool_] | None = None
    ) -> Kernels:
        """The kernels of groups of operators, each with those of its members in order; some may do nothing there."""
        own = group[self.operator]
        order = np.argsort(own, kind="stable")
        if dropped is not None:
            order = order[~dropped[self.operator[order]]]
            own = own[~dropped[self.operator]]
        first = starts_of(np.bincount(own, minlength=count))
        return Kernels(first, self.flops[order], self.moved_bytes[order], self.launches[order])


def kernels_from_lists(
    lists: Sequence[Sequence[Kernel]], flops: NDArray[np.float64], moved_bytes: NDArray[np.float64]
) -> Kernels | None:
    """Kernels of operators with these amounts; an empty list means one kernel, and None that all have one."""
    if not any(lists):
        return None
    rows: list[Kernel] = []
    counts = []
    for own, work, traffic in zip(lists, flops.tolist(), moved_bytes.tolist(), strict=True):
        found = own or ([Kernel(work, traffic)] if work or traffic else [])
        rows += found
        counts.append(len(found))
    table = np.array(rows, dtype=np.float64).reshape(-1, len(Kernel._fields))
    return Kernels(starts_of(counts), table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())


def check_kernels(
    kernels: Kernels, names: Sequence[str], flops: NDArray[np.float64], moved_bytes: NDArray[np.float64]
) -> None:
    """Refuse kernels that are not those of operators with these amounts."""
    for what, own, total in (
        ("flops", kernels.flops, flops),
        ("bytes moved", kernels.moved_bytes, moved_bytes),
        ("launches", kernels.launches, None),
    ):
        bad = np.flatnonzero(~(np.isfinite(own) & (own >= 0)))
        if bad.size:
            name = names[kernels.operator[bad[0]]]
            raise BadGraph(f"operator {name!r}: {what} of a kernel must be a finite number of at least 0")
        if total is None:
            continue
        summed = np.bincount(kernels.operator, weights=own, minlength=len(names))
        off = np.flatnonzero(np.abs(summed - total) > ROUNDING * np.maximum(summed, total))
        if off.size:
            v = int(off[0])
            raise BadGraph(
                f"operator {names[v]!r}: its kernels have {summed[v]:.6g} {what} together, it has {total[v]:.6g}; "
                "make them equal"
            )


def kernels_or_one(kernels: Kernels | None, v: int, flops: float, moved_bytes: float) -> Iterator[Kernel]:
    """The kernels of an operator, by default one that does everything; none where there is nothing to do."""
    if kernels is not None:
        yield from kernels.of(v)
    elif flops or moved_bytes:
        yield Kernel(flops, moved_bytes)


def starts_of(counts: ArrayLike) -> NDArray[np.int32]:  # [owner + 1]
    """Where the items of every owner begin if they stand one after another, and where the last ones end."""
    sizes = np.asarray(counts, dtype=np.int64)
    first = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=first[1:])
    return first
