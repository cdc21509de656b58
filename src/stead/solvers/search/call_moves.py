"""Local search on calls of accelerators: connected nodes move from one call to another, or to a host.

A climb ends where no such move helps. Then a few moves at random lead away from there, and the next climb begins; where
it ends, search goes on if that is hardly worse than the incumbent, which is kept apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.graph.arrays import distinct_pairs
from stead.problem import Problem
from stead.solvers.exact.reduction import Reduced
from stead.solvers.search_state import Search

BATCH = 32  # variants that are scored together
LARGEST = 64  # nodes that move at once
ACROSS = 0.8  # share of moves across a border between calls; the others go to any device
TO_HOST = 0.15  # ... of moves that go to a host
EXCHANGED = 0.1  # ... of moves that swap two calls
BREADTH = 0.7  # how often a set of nodes grows at its oldest node, not its newest
KICK = 2, 5  # moves that lead away from where a climb ended, from and below
FOUND_BY = "local search"
CLIMB = 2000  # placements without improvement that end a climb
WORSE = 0.005  # than the incumbent, relative, from where search still goes on


def improve_calls(search: Search, reduced: Reduced, *, patience: int, part: int = 0) -> None:
    """Climb from the incumbent, over and over, until so many placements in a row were in vain.

    `part` changes what is drawn.
    """
    assert search.best is not None
    rng = np.random.default_rng((search.seed, part))
    moves = CallMoves.of_nodes(reduced)
    if not moves.divide(search.best):  # a path comes back to a call, as where a supernode has no device
        moves = CallMoves.of_units(search.problem)
    tries = min(CLIMB, patience)
    here, _ = _climbed(search, moves, moves.devices(search.best), search.best_seconds, rng, tries)
    best, since = search.best_seconds, search.evaluations
    while search.evaluations - since < patience and not search.done:
        kicked = moves.kicked(here, rng)
        seconds = search.offer(moves.lift(kicked), found_by=FOUND_BY)
        if seconds < np.inf:
            found, seconds = _climbed(search, moves, kicked, seconds, rng, tries)
            here = found if seconds <= search.best_seconds * (1 + WORSE) else here
        if search.best_seconds < best:
            best, since = search.best_seconds, search.evaluations


def _climbed(
    search: Search,
    moves: CallMoves,
    devices: NDArray[np.uint8],  # [node]
    seconds: float,
    rng: np.random.Generator,
    tries: int,
) -> tuple[NDArray[np.uint8], float]:
    """Where moves that help lead to, and its seconds; `tries` in vain end it."""
    failed = 0
    while failed < tries and not search.done:
        rows = moves.neighbours(devices, rng)
        scored = search.offer_many(moves.lift(rows), found_by=FOUND_BY)
        failed += len(rows)
        if scored.size and scored.min() < seconds:
            devices, seconds, failed = rows[scored.argmin()], float(scored.min()), 0
    return devices, seconds


class CallMoves:
    """Variants of a placement of nodes, each of which has a device that may run it."""

    def __init__(
        self,
        node_of: NDArray[np.int32],  # [operator]
        allowed: NDArray[np.bool_],  # [node, device]
        edges: NDArray[np.int64],  # [edge, 2]; nodes
        hosts: list[int],
    ) -> None:
        self._node_of, self._allowed, self._edges, self._hosts = node_of, allowed, edges, hosts
        self._first_operator = np.unique(node_of, return_index=True)[1]  # [node]
        self._next = _neighbour_lists(len(allowed), edges)
        self._devices_of = [np.flatnonzero(may).tolist() for may in allowed]

    @staticmethod
    def of_nodes(reduced: Reduced) -> CallMoves:
        """Supernodes move as a whole."""
        kind_of = {d: j for j, kind in enumerate(reduced.kinds) for d in kind.devices}
        allowed = (reduced.ticks[:, :, 0] >= 0)[:, [kind_of[d] for d in range(len(kind_of))]]
        hosts = [kind.devices[0] for kind in reduced.kinds if kind.is_host]
        return CallMoves(reduced.node_of, allowed, reduced.order.astype(np.int64), hosts)

    @staticmethod
    def of_units(problem: Problem) -> CallMoves:
        """Units move as a whole."""
        before, after = problem.units[problem.graph.edges].T.astype(np.int64)
        pairs = distinct_pairs(before[before != after], after[before != after])
        hosts = [d for d, device in enumerate(problem.cluster) if device.is_host]
        return CallMoves(problem.units, problem.unit_allowed, np.stack(pairs, axis=1), hosts)

    def divide(self, placement: NDArray[np.uint8]) -> bool:
        """Whether every node of a placement of operators is whole."""
        return np.array_equal(self.lift(self.devices(placement)), placement)

    def devices(self, placement: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [node]
        """Devices of nodes, given those of operators."""
        return placement[self._first_operator]

    def lift(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [..., operator]
        """Devices of operators, given those of nodes."""
        return rows[..., self._node_of]

    def neighbours(
        self, devices: NDArray[np.uint8], rng: np.random.Generator, count: int = BATCH
    ) -> NDArray[np.uint8]:  # [count, node]
        """Variants, each with a connected set of nodes of one device moved elsewhere."""
        rows = np.repeat(devices[None, :], count, axis=0)
        crossing = self._edges[devices[self._edges[:, 0]] != devices[self._edges[:, 1]]]
        held: list[int] = devices.tolist()
        sizes = (LARGEST ** rng.random(count)).astype(int).tolist()
        for row, drawn, most in zip(rows, rng.random((count, 7)).tolist(), sizes, strict=True):
            if len(crossing) and drawn[0] < ACROSS:
                edge = crossing[int(drawn[1] * len(crossing))].tolist()
                seed, towards = edge if drawn[2] < 0.5 else edge[::-1]
                target = held[towards]
            else:
                seed = int(drawn[1] * len(held))
                target = _one_of(self._devices_of[seed], drawn[2])
            if self._hosts and drawn[3] < TO_HOST:
                target = _one_of(self._hosts, drawn[4])
            moved = self._grown(seed, held, most, deep=drawn[5] >= BREADTH)
            moved = moved[self._allowed[moved, target]]
            if drawn[6] < EXCHANGED:
                row[devices == target] = held[seed]
            row[moved] = target
            if drawn[6] < EXCHANGED:
                torn = ~self._allowed[np.arange(len(row)), row]
                row[torn] = devices[torn]
        return rows

    def kicked(self, devices: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:  # [node]
        """The same placement after a few random moves."""
        for _ in range(rng.integers(*KICK)):
            devices = self.neighbours(devices, rng, 1)[0]
        return devices

    def _grown(self, seed: int, held: list[int], most: int, *, deep: bool) -> NDArray[np.int64]:
        """Up to `most` connected nodes of one device around one of them."""
        grown, waiting, first = {seed}, [seed], 0
        while first < len(waiting) and len(grown) < most:
            if deep:
                v = waiting.pop()
            else:
                v = waiting[first]
                first += 1
            for other in self._next[v]:
                if other not in grown and held[other] == held[seed] and len(grown) < most:
                    grown.add(other)
                    waiting.append(other)
        return np.array(sorted(grown), dtype=np.int64)


def _one_of(choices: list[int], drawn: float) -> int:
    """The choice that a number in [0, 1) says."""
    return choices[int(drawn * len(choices))]


def _neighbour_lists(count: int, edges: NDArray[np.int64]) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges.tolist():
        lists[a].append(b)
        lists[b].append(a)
    return lists
