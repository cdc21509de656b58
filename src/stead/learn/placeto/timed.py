"""Scores of placements together with when their groups start and end: one run tells both.

Between two decisions the network looks at start times, so that a placement has to run whether it is known or not. What
ran is remembered while an episode lasts and forgotten at its end: nothing of it has to be saved.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.learn.ground.reward import Evaluator, Scored, Scorer, Values, keys_of
from stead.learn.placeto.features import Inputs
from stead.problem import Problem
from stead.sim import StartTimes

Spans = tuple[NDArray[np.float64], NDArray[np.float64]]  # first start and last end [row, group]


class TimedScorer(Scorer):
    """Scores rows, and says when their groups start and end."""

    def __init__(
        self,
        problem: Problem,
        grouping: Grouping,
        inputs: Inputs,
        *,
        threads: int = 0,
        evaluate: Evaluator | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(problem, grouping, threads=threads, evaluate=evaluate, limit=limit)
        self.inputs = inputs
        self.times = StartTimes(problem)
        self._spans: dict[bytes, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self._ran: dict[bytes, Values] = {}  # of the same rows, where one run tells both

    @property
    def runs_timed(self) -> int:
        """Simulations of a row that `timed` makes at most."""
        return 1 if self.times.judges or self.evaluate is not None else 2

    def begin(self) -> None:
        """Forget when groups of former placements started."""
        self._spans.clear()
        self._ran.clear()

    def timed(self, rows: NDArray[np.uint8], by: str | Sequence[str]) -> tuple[Scored, Spans]:
        """What `score` says, and when groups start and end."""
        keys = keys_of(rows)
        fresh: dict[bytes, int] = {}
        for number, key in enumerate(keys):
            if key not in self._spans and key not in fresh:
                fresh[key] = number
        new = rows[list(fresh.values())]
        if self.times.judges and self.evaluate is None:
            self._ran.update(zip(fresh, self._run(new, list(fresh)), strict=True))
            self.evaluations += len(fresh)
            scored = self._concluded(rows, keys, self._ran, fresh, by)
        else:
            scored = self.score(rows, by)
            begin = time.perf_counter()
            self._keep(list(fresh), *self.times.of(self.lifted(new)))
            self.simulated_seconds += time.perf_counter() - begin
            self.charge(len(fresh))
        start, finish = zip(*(self._spans[key] for key in keys), strict=True)
        return scored, (np.stack(start), np.stack(finish))

    def _run(self, rows: NDArray[np.uint8], keys: Sequence[bytes]) -> list[Values]:
        begin = time.perf_counter()
        scores, start, finish = self.times.scored(self.lifted(rows))
        self.simulated_seconds += time.perf_counter() - begin
        self._keep(keys, start, finish)
        return self._values(scores)

    def _keep(self, keys: Sequence[bytes], start: NDArray[np.float64], finish: NDArray[np.float64]) -> None:
        if len(keys):
            self._spans.update(zip(keys, zip(*self.inputs.spans(start, finish), strict=True), strict=True))
