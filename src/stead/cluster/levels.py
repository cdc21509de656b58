"""Levels: how a large cluster is joined, said once for all its nodes, racks and sites in place of pair by pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadCluster

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Level:
    """Groups of `size` devices in a row that are joined alike: nodes, racks of nodes, sites of racks.

    Two devices have the link of the smallest group that holds both.
    """

    name: str
    size: int  # devices of a group
    bytes_per_second: float
    latency_seconds: float = 0.0
    gap_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip() or not self.name.isprintable():
            raise BadCluster(f"a level needs a printable name, got {self.name!r}")
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 2:
            raise BadCluster(f"level {self.name}: groups of {self.size!r} devices; give a whole number of 2 or more")
        if not self.bytes_per_second > 0:
            raise BadCluster(f"level {self.name}: bandwidth must be positive, got {self.bytes_per_second}")
        for what, seconds in (("latency", self.latency_seconds), ("gap", self.gap_seconds)):
            if not 0 <= seconds < math.inf:
                raise BadCluster(f"level {self.name}: {what} must be a finite number of at least 0, got {seconds}")
        for name in ("bytes_per_second", "latency_seconds", "gap_seconds"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def as_dict(self) -> dict[str, object]:
        """Plain data: what files and fingerprints are made of."""
        return {
            "name": self.name,
            "size": self.size,
            "bytes_per_second": self.bytes_per_second,
            "latency_seconds": self.latency_seconds,
            "gap_seconds": self.gap_seconds,
        }


def check_levels(levels: Sequence[Level], devices: int) -> None:
    """BadCluster unless groups of each level are made of whole groups of the one before, and the last holds all."""
    for inner, outer in pairwise(levels):
        if outer.size <= inner.size or outer.size % inner.size:
            raise BadCluster(
                f"level {outer.name} has groups of {outer.size} devices, which groups of {inner.size} "
                f"(level {inner.name}) cannot fill; give a larger multiple"
            )
    if levels[-1].size < devices:
        raise BadCluster(
            f"the last level, {levels[-1].name}, joins {levels[-1].size} of {devices} devices; "
            "add one that joins them all"
        )


def fill_links(levels: Sequence[Level], latency: Table, rate: Table, gap: Table) -> None:
    """Write the links of all pairs, [source, target], coarsest first so that the smallest common group says it."""
    count = len(latency)
    for level in reversed(levels):
        for begin in range(0, count, level.size):
            block = slice(begin, begin + level.size), slice(begin, begin + level.size)
            latency[block], rate[block], gap[block] = (
                level.latency_seconds, level.bytes_per_second, level.gap_seconds,
            )  # fmt: skip
