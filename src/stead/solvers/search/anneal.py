"""The least largest load without any rule about contiguity, by simulated annealing.

Every unit may be on any device, so a device may hold pieces from all over the graph: the pipeline then visits it
several times per sample, which costs nothing but transfers. The core keeps the loads of all devices up to date move by
move and tries some million moves per second: of one unit, of two together or against each other, of connected blocks.
Its score is the sum over devices of (load / best value so far)^16, its temperature falls geometrically, and chains
begin at what contiguous stages and earlier rounds have found, at balanced and at random placements.

Reference for the kind of placement: Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient Algorithms
for Device Placement of DNN Graph Operators", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.problem import Problem
from stead.sim import simulate_many
from stead.solvers.build.split import Split
from stead.solvers.exact.reduction import not_balanced, steady_load
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search, reraise
from stead.solvers.solution import Budget, Solution

ROUNDS = 6  # each as long as all before it
CHAINS = 6  # of every round


@few_devices
@dataclass(frozen=True, slots=True)
class Anneal:
    """Anneals placements of units on the load of the busiest device.

    It ends by itself after `moves` moves. One evaluation of a budget stands for one simulated placement or for
    `moves_per_evaluation` moves, which take about the same time. The same seed gives the same answer unless a time
    limit comes first.
    """

    name: ClassVar[str] = "anneal"
    moves: int = 40_000_000
    moves_per_evaluation: int = 100
    threads: int = 0  # 0: all cores; the answer does not depend on it

    def unsupported(self, problem: Problem) -> str | None:
        """It balances loads of full pipelines, on every cluster."""
        return not_balanced(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Start from contiguous stages, then anneal in rounds that grow."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            search.relax()
            _start(search)
            self.improve(search)
        return search.solution()

    def improve(self, search: Search, *, part: int = 0, afresh: bool = False) -> None:
        """Anneal in rounds that begin at the best placement so far; `part` changes what is drawn.

        Where the simulator asks for it, later rounds leave more room. `afresh` the incumbent is left alone: the first
        round begins with nothing, later ones with what those before it found.
        """
        problem = search.problem
        if not problem.unit_count:
            return
        room = np.array([device.usable_bytes for device in problem.cluster], dtype=np.int64)
        first = own = None if afresh else search.current
        for number, moves in enumerate(self._rounds(search)):
            found = _native.balance(
                problem.native,
                problem.units,
                load=steady_load(problem),
                starts=_starts(problem, [own if afresh else search.current, first]),
                restarts=CHAINS,
                seed=(search.seed + (number + ROUNDS * part) * 2**32) % 2**64,
                moves=moves,
                seconds=search.remaining_seconds,
                room_bytes=room,
                threads=self.threads,
            )
            search.evaluations += math.ceil(found.moves / self.moves_per_evaluation)
            own = found.devices[problem.units]
            room -= _offer(search, own)
            np.maximum(room, 0, out=room)
            reraise(found.raised)

    def _rounds(self, search: Search) -> Iterator[int]:
        """Numbers of moves that double from round to round and end with the budget."""
        tried, since = 0, search.elapsed_seconds
        for doublings in range(ROUNDS - 1, -1, -1):
            total = self.moves
            left = search.remaining_evaluations
            if left is not None:  # the last evaluation is for what is found
                total = min(total, tried + (left - 1 - doublings) * self.moves_per_evaluation)
            if math.isfinite(search.spare_seconds) and tried:
                rate = tried / max(search.elapsed_seconds - since, 1e-3)
                total = min(total, tried + int(rate * search.spare_seconds))
            moves = (total >> doublings) - tried
            if search.done or moves < 1:
                continue
            tried += moves
            yield moves


def _start(search: Search) -> None:
    """Contiguous stages, which annealing alone may miss where communication is dear."""
    from stead.solvers.exact.ideals import LinearDP  # late: it in turn may begin with what is found here

    for member in (Split(), LinearDP()):
        if not search.done:
            search.try_solver(member)


def _starts(
    problem: Problem, placements: list[NDArray[np.uint8] | None]
) -> NDArray[np.uint8]:  # [start, unit]
    """Different placements of operators as such of units."""
    rows: list[NDArray[np.uint8]] = []
    for devices in placements:
        if devices is not None and not any(np.array_equal(devices, other) for other in rows):
            rows.append(devices)
    if not rows:
        return np.zeros((0, problem.unit_count), dtype=np.uint8)
    return np.ascontiguousarray(np.stack(rows)[:, problem.unit_firsts])


def _offer(search: Search, devices: NDArray[np.uint8]) -> NDArray[np.int64]:  # [device]
    """Score a placement; the bytes that are missing on every device once activations count too."""
    if math.isfinite(search.offer(devices, found_by="anneal")):
        return np.zeros(len(search.problem.cluster), dtype=np.int64)
    over: NDArray[np.int64] = simulate_many(search.problem, devices[None, :]).over_bytes[0]
    return over
