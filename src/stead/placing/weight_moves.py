"""What it takes to go from one placement to another while weights are loaded: which bytes travel, and how long.

A weight that a device will hold and did not hold comes from the device that held it and has the fastest way there;
where no such device is left, it is loaded again. Transfers of one channel wait for each other, channels work side by
side, and everything that is loaded again comes from one place.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem

LOADED_AGAIN = -1  # in place of a device


@dataclass(frozen=True, slots=True)
class Move:
    """All weights that one device gets from another."""

    source: int  # a device; LOADED_AGAIN: none holds them any more
    target: int
    weights: tuple[int, ...]
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Moving:
    """The way from one placement to another."""

    moves: tuple[Move, ...]
    seconds: float  # until the last weight has arrived
    kept_bytes: int  # that stay where they are
    held_bytes: int  # that devices which are still there held

    @property
    def bytes(self) -> int:
        """All that travels."""
        return sum(move.bytes for move in self.moves)

    @property
    def kept_share(self) -> float:
        """Of what devices that are still there held."""
        return self.kept_bytes / self.held_bytes if self.held_bytes else 1.0


class Removal:
    """Prices of the ways from one placement on devices that may be gone to placements of a problem."""

    def __init__(self, problem: Problem, before: NDArray[np.int64], load_bytes_per_second: float) -> None:
        """`before` is the device of each operator in `problem`, -1 for one that is gone."""
        graph, count = problem.graph, len(problem.cluster)
        self.problem, self._rate = problem, load_bytes_per_second
        self._uses, self._users = graph.weight_of_use, graph.weight_users
        self._held = self._holders(before)  # [weight, device]
        routes = problem.routes
        with np.errstate(divide="ignore"):
            each_byte = np.where(np.isinf(routes.latency_seconds), np.inf, 1.0 / routes.bytes_per_second)
        np.fill_diagonal(each_byte, np.inf)
        reach = np.where(self._held[:, :, None], each_byte[None, :, :], np.inf)  # [weight, source, target]
        self._source = np.where(np.isinf(reach.min(axis=1)), LOADED_AGAIN, reach.argmin(axis=1))
        self._per_byte, self._count = each_byte, count

    def _holders(self, devices: NDArray[np.int64]) -> NDArray[np.bool_]:
        held = np.zeros((len(self.problem.graph.weight_bytes), len(self.problem.cluster)), dtype=bool)
        placed = devices[self._users] >= 0
        held[self._uses[placed], devices[self._users][placed]] = True
        return held

    def to(self, devices: NDArray[np.uint8]) -> Moving:
        """What it takes to get to a placement."""
        sizes = self.problem.graph.weight_bytes
        wanted = self._holders(devices.astype(np.int64))
        arriving = wanted & ~self._held
        pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
        for weight, target in np.argwhere(arriving).tolist():
            pairs[int(self._source[weight, target]), target].append(weight)
        moves: list[Move] = []
        busy: dict[tuple[int, int], float] = defaultdict(float)
        routes = self.problem.routes
        for (source, target), weights in sorted(pairs.items()):
            total = int(sizes[weights].sum())
            if source == LOADED_AGAIN:
                seconds, channel = total / self._rate, (LOADED_AGAIN, LOADED_AGAIN)
            else:
                latency = float(routes.latency_seconds[source, target])
                seconds = latency + total * float(self._per_byte[source, target])
                shared = int(routes.channel[source, target])
                channel = (shared, shared) if shared >= 0 else (self._count + source, target)
            busy[channel] += seconds
            moves.append(Move(source, target, tuple(weights), total, seconds))
        held = int((sizes[:, None] * self._held).sum())
        kept = int((sizes[:, None] * (self._held & wanted)).sum())
        return Moving(tuple(moves), max(busy.values(), default=0.0), kept, held)
