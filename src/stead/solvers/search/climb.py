"""Hill climbing from a start: batches of neighbours, scored by the simulator on all cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem
from stead.solvers.build.split import Split
from stead.solvers.few_devices import few_devices
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

BATCH = 64


@few_devices
@dataclass(frozen=True, slots=True)
class Climb:
    """Moves units, runs of units and pairs of units while that helps.

    Stops by itself after `patience` placements without improvement, so that the same seed gives the same answer
    whenever the clock does not intervene.
    """

    name: ClassVar[str] = "climb"
    patience: int = 4096

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Climb from the best contiguous split."""
        search = Search(problem, budget, solver=self.name, seed=seed)
        with search.interruptible():
            search.relax()
            search.try_solver(Split())
            climb(search, patience=self.patience)
        return search.solution()


def climb_to_fit(search: Search, *, patience: int = 4096) -> None:
    """Climb only until some placement works."""
    climb(search, patience=patience, until_feasible=True)


def climb(search: Search, *, patience: int, until_feasible: bool = False) -> None:
    """Improve what a search holds, memory first, until nothing has helped for `patience` placements."""
    problem = search.problem
    if search.current is None or problem.unit_count == 0 or len(problem.cluster) < 2:
        return
    rng = np.random.default_rng(search.seed)
    firsts, allowed = problem.unit_firsts, problem.unit_allowed
    movable = np.flatnonzero(allowed.sum(axis=1) > 1)
    if not movable.size:
        return
    failed = 0
    while failed < patience and not search.done and not (until_feasible and search.best is not None):
        before = search.score
        rows = _neighbours(search.current[firsts], allowed, movable, rng)
        search.offer_many(rows[:, problem.units], found_by="climb")
        failed = 0 if search.score < before else failed + len(rows)


def climb_again(search: Search, *, patience: int, kicks: int, part: int = 0) -> None:
    """Leave the incumbent by random moves and climb from there, so many times; `part` changes what is drawn."""
    problem = search.problem
    firsts, allowed = problem.unit_firsts, problem.unit_allowed
    movable = np.flatnonzero(allowed.sum(axis=1) > 1)
    if not movable.size or len(problem.cluster) < 2:
        return
    rng = np.random.default_rng((search.seed, part, 1))
    for _ in range(kicks):
        if search.done or search.best is None:
            break
        here = _kicked(search.best[firsts], allowed, movable, rng)
        seconds = search.offer(here[problem.units], found_by="climb")
        failed = 0 if np.isfinite(seconds) else patience
        while failed < patience and not search.done:
            rows = _neighbours(here, allowed, movable, rng)
            scored = search.offer_many(rows[:, problem.units], found_by="climb")
            failed += len(rows)
            if scored.size and scored.min() < seconds:
                here, seconds, failed = rows[scored.argmin()], float(scored.min()), 0


def _kicked(
    unit_devices: NDArray[np.uint8],
    allowed: NDArray[np.bool_],
    movable: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.uint8]:  # [unit]
    """The same placement with a few runs of units on other devices."""
    kicked = unit_devices.copy()
    for unit in rng.choice(movable, size=rng.integers(2, 5)):
        run = slice(unit, unit + rng.integers(1, 2 + len(movable) // 8))
        target = rng.choice(np.flatnonzero(allowed[unit]))
        kicked[run] = np.where(allowed[run, target], target, kicked[run])
    return kicked


def _neighbours(
    unit_devices: NDArray[np.uint8],
    allowed: NDArray[np.bool_],
    movable: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.uint8]:  # [BATCH, unit]
    """Variants of a placement: one unit moved, a run of units moved, or two units exchanged."""
    rows = np.repeat(unit_devices[None, :], BATCH, axis=0)
    kinds = rng.integers(3, size=BATCH)
    picks = rng.choice(movable, size=(BATCH, 2))
    lengths = np.minimum(2 ** rng.uniform(1, np.log2(len(unit_devices) + 1), size=BATCH), len(unit_devices))
    for row, kind, (unit, other), length in zip(rows, kinds, picks, lengths.astype(int), strict=True):
        if kind == 2 and allowed[unit, row[other]] and allowed[other, row[unit]]:
            row[unit], row[other] = row[other], row[unit]
            continue
        target = rng.choice(np.flatnonzero(allowed[unit]))
        run = slice(unit, unit + (length if kind == 1 else 1))
        row[run] = np.where(allowed[run, target], target, row[run])
    return rows
