"""Rewards from measured time: what learners take for `evaluate`, so that they need not know how anything is measured.

`measured` times every new placement. `mixed` asks the simulator, and of every tenth batch times the best row and one at
random: how far the simulator is off there scales what it says of all others. Either way a placement is timed once, a
reference placement tells drift (see trials.py), a burst that is lost twice is no reward at all, and everything that ran
is counted in `trials.count`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, did_you_mean
from stead.problem import Placement, Problem
from stead.run.executor import Executor
from stead.run.trials import Measure, Trial, Trials
from stead.sim import simulate_many
from stead.solvers import Budget, solver

RewardKind = Literal["simulated", "measured", "mixed"]
REWARDS: tuple[RewardKind, ...] = get_args(RewardKind)
EVERY = 10  # batches, of which one is measured where the simulator stands in between
REMEMBERED = 50  # measurements that the scale of the simulator is taken from


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A placement that was measured once more before anything is said about it."""

    placement: Placement
    seconds: float  # nan: it could not be timed
    bursts: int


class MeasuredReward:
    """Seconds of placements [row, operator]: call it, or give it as `evaluate`.

    `by` is an executor or a function from a placement to seconds. What memory or constraints forbid is not run and
    takes forever. `kept` is a file that measurements outlive the process in.
    """

    def __init__(
        self,
        by: Executor | Measure,
        problem: Problem,
        *,
        kind: RewardKind = "measured",
        every: int = EVERY,
        seed: int = 0,
        limit: int | None = None,
        kept: Path | None = None,
        on_trial: Callable[[Trial], None] | None = None,
    ) -> None:
        if kind not in ("measured", "mixed"):
            close = did_you_mean(str(kind), REWARDS)
            raise BadInput(f"a measured reward is measured or mixed, got {kind!r}{close}")
        if every < 1:
            raise BadInput(f"every must be at least 1, got {every}")
        self.problem, self.kind, self.every = problem, kind, every
        self.trials = Trials(by, problem, limit=limit, kept=kept)
        self.batches = 0  # that were asked for
        self.simulated = 0  # rows that only the simulator judged
        self._offs: list[float] = []  # log of measured by simulated, the latest last
        self._rng = np.random.default_rng((seed, 15))
        self._on_trial = on_trial

    def __call__(self, placements: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Seconds of rows; inf where one cannot run, nan where it could not be timed."""
        self.batches += 1
        self._begin()
        scores = simulate_many(self.problem, placements)
        predicted = np.where(scores.feasible, scores.seconds, math.inf)
        if self.kind == "measured":
            return np.array([self._timed(row, told) for row, told in zip(placements, predicted.tolist(), strict=True)])
        return self._mixed(placements, predicted)

    @property
    def scale(self) -> float:
        """What the simulator's seconds are multiplied by to be those of the machine."""
        return math.exp(median(self._offs)) if self._offs else 1.0

    def confirm(self, placement: Placement) -> Confirmed:
        """Measure a placement once more, however often it was: of many the fastest was lucky."""
        known, before = Placement(self.problem, placement.devices), self.trials.count
        trial = self.trials.measure(known)
        again = self.trials.measure(known, again=True)
        fresh = [one.seconds for one in (trial, again) if one.counts]
        return Confirmed(placement, min(fresh, default=math.nan), self.trials.count - before)

    def _begin(self) -> None:
        """Measure the reference first: the fastest single device."""
        if self.trials.reference is None and not self.trials.known and self.batches == 1:
            simple = solver("single").solve(self.problem, Budget(), 0)
            self._timed(simple.placement.devices, simple.objective_seconds)

    def _timed(self, row: NDArray[np.uint8], predicted: float) -> float:
        if not math.isfinite(predicted):
            return math.inf
        if self.trials.left < 1:
            return predicted * self.scale  # nothing may be run any more
        trial = self.trials.measure(Placement(self.problem, row))
        if self._on_trial is not None:
            self._on_trial(trial)
        if trial.counts and predicted > 0:
            self._offs = [*self._offs, math.log(trial.seconds / predicted)][-REMEMBERED:]
        return trial.seconds

    def _mixed(self, placements: NDArray[np.uint8], predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        works = np.flatnonzero(np.isfinite(predicted))
        timed: dict[int, float] = {}
        if works.size and (self.batches - 1) % self.every == 0:
            best = int(works[np.argmin(predicted[works])])
            drawn = int(self._rng.choice(works))
            for row in dict.fromkeys((best, drawn)):
                timed[row] = self._timed(placements[row], float(predicted[row]))
        seconds = predicted * self.scale
        self.simulated += len(placements) - len(timed)
        for row, value in timed.items():
            if not math.isnan(value):
                seconds[row] = value
        return np.asarray(seconds)
