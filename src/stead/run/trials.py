"""Measured placements: bursts that are kept short, tried again when lost, remembered, freed of drift, and counted.

Notation    n runs of a burst, t[i] seconds of each, m the measured value of a placement
    n = min(5, floor(0.85 / t) - 1), at least 1: longer bursts are interrupted by the system
    m = min t[i] / drift        for steps; of a pipeline the median, which stands for the steady state
    drift = reference now / reference at first: one placement is measured again after every ten others
Drift below the noise of the reference is taken for noise and left alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.files import read_text
from stead.problem import Placement, Priority, Problem, Throughput
from stead.run.executor import Executor
from stead.sim import simulate

MOST_RUNS = 5
MOST_SAMPLES = 24  # of a pipeline
BURST_SECONDS = 0.85
REFERENCE_EVERY = 10  # measurements
LEAST_NOISE = 0.01  # relative; no machine repeats itself better

Measure = Callable[[Placement], float]


@dataclass(frozen=True, slots=True)
class Trial:
    """What one placement was measured to take."""

    placement: Placement
    seconds: float  # inf: it does not run; nan: every burst of it was lost
    runs: tuple[float, ...] = ()
    drift: float = 1.0
    bursts: int = 1  # that were spent on it, lost ones included

    @property
    def is_lost(self) -> bool:
        """Whether nothing is known of it."""
        return math.isnan(self.seconds)

    @property
    def counts(self) -> bool:
        """Whether it was timed."""
        return math.isfinite(self.seconds)

    @property
    def spread(self) -> float:
        """How much slower the median of its runs is than the fastest of them."""
        return median(self.runs) / min(self.runs) - 1 if self.counts and len(self.runs) > 1 else 0.0


class Trials:
    """Measures placements of a problem, each once unless asked again; `count` is all that was ever run.

    `by` is an executor, or a function from a placement to seconds: one that returns inf says that the placement does
    not run, nan that it was disturbed. `kept` is a file that measurements are added to and taken from, so that none is
    lost with the process.
    """

    def __init__(
        self,
        by: Executor | Measure,
        problem: Problem,
        *,
        limit: int | None = None,
        reference_every: int = REFERENCE_EVERY,
        kept: Path | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            raise BadInput(f"at least 1 measurement is needed, got {limit}")
        if not callable(by) and not hasattr(by, "burst"):
            raise BadInput("measure must be an executor or a function from a placement to seconds")
        self.problem, self.limit = problem, limit
        self.count = 0  # bursts, lost ones and those of the reference included
        self.hits = 0  # placements that were known
        self.lost = 0  # bursts
        self.drift = 1.0
        self.reference: Trial | None = None  # the first one that counts
        self.known: dict[str, Trial] = {}
        self._by, self._every, self._kept = by, reference_every, kept
        self._since = 0  # measurements since the reference was measured
        self._noises: list[float] = []
        self._remembered = _remembered(kept)

    @property
    def left(self) -> float:
        """Bursts that may still be run."""
        return math.inf if self.limit is None else self.limit - self.count

    @property
    def noise(self) -> float:
        """Relative error of one measurement: how far repeated ones were apart, or else their runs."""
        if self._noises:
            return max(LEAST_NOISE, float(median(self._noises)))
        spreads = [trial.spread for trial in self.known.values() if len(trial.runs) > 1]
        return max(LEAST_NOISE, 0.5 * float(median(spreads)) if spreads else LEAST_NOISE)

    def measure(self, placement: Placement, *, again: bool = False) -> Trial:
        """The measured seconds of a placement; `again` runs it once more, and the fastest of all runs counts."""
        key = key_of(placement)
        before = self.known.get(key)
        if before is not None and not again:
            self.hits += 1
            return before
        taken = self._taken_up(key, placement) if before is None else None
        if taken is not None:
            self._remember(key, taken)
            return taken
        self._watch_drift()
        trial = self._tried_twice(placement)
        if before is not None and before.counts and trial.counts:
            self._noises.append(abs(math.log(trial.seconds / before.seconds)))
            trial = _joined(before, trial)
        elif before is not None and before.counts:
            trial = before
        if not trial.is_lost:  # what was lost may be tried again
            self._remember(key, trial)
            self._keep(key, trial)
        return trial

    @property
    def times_operators(self) -> bool:
        """Whether it can be told how long every operator takes on a device that does everything."""
        return not callable(self._by) and len(self._by.workers) == len(self.problem.cluster)

    def operators_on(self, device: int, placement: Placement) -> tuple[Trial, NDArray[np.float64]]:  # [run, operator]
        """Seconds of every operator on a device that does everything: one burst, which measures that placement, too."""
        assert not callable(self._by)
        self.count += 1
        runs = runs_within(self._expected(placement), MOST_RUNS)
        seconds = np.asarray(self._by.profile(device, repeats=runs), dtype=np.float64)
        if seconds.ndim != 2 or seconds.shape[1] != len(self.problem.graph) or not len(seconds):
            self.lost += 1
            return Trial(placement, math.nan), np.zeros((0, len(self.problem.graph)))
        totals = tuple(seconds.sum(axis=1).tolist())
        before = self.known.get(key_of(placement))
        whole = median(totals) if self._is_pipeline else min(totals)
        trial = Trial(placement, whole / self.drift, totals, self.drift)
        trial = trial if before is None or not before.counts else _joined(before, trial)
        self._remember(key_of(placement), trial)
        self._keep(key_of(placement), trial)
        return trial, seconds

    def _watch_drift(self) -> None:
        """Measure the reference again when it is due."""
        first = self.reference
        if first is None or self._since < self._every or self.left < 2:
            return
        now = self._tried_twice(first.placement, drift=1.0)
        self._since = 0
        if now.counts:
            off = math.log(now.seconds / first.seconds)
            within = abs(off) <= 2 * max(self.noise, first.spread)
            if within:
                self._noises.append(abs(off))
            self.drift = 1.0 if within else math.exp(off)

    def _tried_twice(self, placement: Placement, *, drift: float | None = None) -> Trial:
        """One burst, and another one if the first is lost."""
        bursts = 0
        while bursts < 2 and (not bursts or self.left >= 1):
            bursts += 1
            self.count += 1
            runs = self._burst(placement)
            if runs is None:
                self.lost += 1
                continue
            drift = self.drift if drift is None else drift
            seconds = median(runs) if self._is_pipeline else min(runs)
            return Trial(placement, seconds / drift, tuple(runs), drift, bursts)
        return Trial(placement, math.nan, bursts=bursts)

    @property
    def _is_pipeline(self) -> bool:
        return isinstance(self.problem.objective, Throughput)

    def _burst(self, placement: Placement) -> tuple[float, ...] | None:
        """Seconds of some runs; None if they were lost."""
        by = self._by
        if callable(by):
            seconds = float(by(placement))
            if math.isnan(seconds):
                return None
            if seconds <= 0:
                raise BadInput(f"a placement takes more than 0 s, but measure returned {seconds:g}")
            return (seconds,)
        if self._is_pipeline:
            burst = by.pipeline(placement, samples=runs_within(self._expected(placement), MOST_SAMPLES))
        else:
            burst = by.burst(placement, runs=runs_within(self._expected(placement), MOST_RUNS))
        return None if burst.lost or not burst.seconds else burst.seconds

    def _expected(self, placement: Placement) -> float:
        """Seconds of one run, from what is known: predicted, times how far predictions were off."""
        predicted = predicted_seconds(self.problem, placement)
        timed = [trial for trial in self.known.values() if trial.counts]
        if not timed or not math.isfinite(predicted):
            return predicted if math.isfinite(predicted) else BURST_SECONDS
        offs = [trial.seconds / predicted_seconds(self.problem, trial.placement) for trial in timed[-MOST_RUNS:]]
        return predicted * float(median(offs))

    def _remember(self, key: str, trial: Trial) -> None:
        self.known[key] = trial
        if self.reference is None and trial.counts:
            self.reference = trial

    def _keep(self, key: str, trial: Trial) -> None:
        self._since += 1
        if self._kept is not None:
            row = {"key": key, "seconds": trial.seconds, "runs": trial.runs, "drift": trial.drift}
            with self._kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def _taken_up(self, key: str, placement: Placement) -> Trial | None:
        """What an earlier process measured, counted as a hit."""
        row = self._remembered.pop(key, None)
        if row is None:
            return None
        self.hits += 1
        return Trial(placement, row[0], row[1], row[2], 0)


def key_of(placement: Placement) -> str:
    """A name for all that decides how long a placement takes."""
    digest = hashlib.sha256(placement.devices.tobytes())
    order = placement.order
    if order is not None:
        pair = (order.position, order.transfer_position) if isinstance(order, Priority) else (order.order, None)
        digest.update(order.name.encode())
        for array in pair:
            digest.update(b"\1" if array is None else array.tobytes())
    digest.update(repr(placement.replicas).encode())
    return digest.hexdigest()[:32]


def runs_within(seconds: float, most: int) -> int:
    """Runs of so many seconds that fit into a burst beside the warm-up, one at least.

    >>> runs_within(0.05, 5), runs_within(0.2, 5), runs_within(3.0, 5)
    (5, 3, 1)
    """
    return max(1, min(most, math.floor(BURST_SECONDS / max(seconds, 1e-9)) - 1))


def predicted_seconds(problem: Problem, placement: Placement) -> float:
    """What the simulator says of a placement; inf where it cannot run."""
    own = placement
    if placement.problem is not problem:
        own = Placement(problem, placement.devices, placement.order, placement.replicas)
    return simulate(problem, own, memory="off").objective_seconds


def _joined(first: Trial, second: Trial) -> Trial:
    """Both measurements of one placement; the faster is nearer to the truth, as all that disturbs only slows down."""
    best = min(first, second, key=lambda one: one.seconds)
    runs = (*first.runs, *second.runs)
    return Trial(first.placement, best.seconds, runs, best.drift, first.bursts + second.bursts)


def _remembered(kept: Path | None) -> dict[str, tuple[float, tuple[float, ...], float]]:
    """Measurements of a file; a last line that a kill cut off is left out."""
    found: dict[str, tuple[float, tuple[float, ...], float]] = {}
    if kept is None or not kept.exists():
        return found
    for line in read_text(kept, too_large="is it a file of measurements?").splitlines():
        try:
            row = json.loads(line)
            found[str(row["key"])] = (float(row["seconds"]), tuple(map(float, row["runs"])), float(row["drift"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            break
    return found
