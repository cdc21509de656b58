"""What a placement earns: the native simulator on threads, a cache of rows it has seen, rewards that are never NaN.

Notation    S placements, G groups, K devices
    rows      [S, G]  device of every group; a kind of scorer may read more from a row
    seconds   [S]     as the simulator scores them; inf where a placement cannot run at all
    overfull  [S]     largest share by which some device lacks memory; 1 where it cannot run for another reason
    run       [S]     seconds also where memory lacks; inf where it cannot run for another reason
    reward    [S]     higher is better; always finite

Who a row is owed to is said by whoever has it scored: a name of `OWN` where the network drew it, otherwise that of the
construction, the rule or the chance that made it. The best of the one and of the other are kept apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.errors import BadInput
from stead.problem import Placement, Problem
from stead.sim import Scores, simulate_many

Shape = Literal["sqrt", "log"]
REMEMBERED = 4096  # rows of the cache, which is part of a checkpoint
FAILING_SECONDS = 100.0  # of a placement that does not run, before the square root
Values = tuple[float, float, float, int]  # seconds, overfull, run seconds, which of several runs that is
OWN = ("prior", "sample", "greedy")  # what a network draws: before it has learnt from rewards, and afterwards


class ScorerNumbers(TypedDict):
    """What a scorer has counted, for a checkpoint."""

    evaluations: int
    hits: int
    best: list[float]  # seconds, run
    best_by: str
    start: list[float]
    start_by: str
    worst_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A row that works, and who it is owed to."""

    row: NDArray[np.uint8]
    seconds: float
    by: str  # one of OWN, or the name of a construction
    run: int = 0  # of several that a scorer makes of a row, the fastest


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What the simulator says about rows."""

    seconds: NDArray[np.float64]  # [row]; inf where infeasible
    overfull: NDArray[np.float64]  # [row]; 0 where feasible
    run_seconds: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # [row]; also where memory lacks

    @property
    def lost(self) -> NDArray[np.bool_]:  # [row]
        """Which rows nothing is known of, since they could not be timed just now: they earn nothing, good or bad."""
        return np.isnan(self.run_seconds) if len(self.run_seconds) else np.zeros(len(self.seconds), dtype=bool)

    @property
    def feasible(self) -> NDArray[np.bool_]:  # [row]
        """Which rows can be used."""
        return np.isfinite(self.seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A row that something else than the simulator has timed as well."""

    row: NDArray[np.uint8]
    seconds: float  # inf where it did not run, nan where it could not be timed
    simulated_seconds: float


class Evaluator(Protocol):
    """Whatever can say how long placements take, such as a runtime that is at hand."""

    def __call__(self, placements: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Seconds of placements [row, operator]; inf where one does not run, nan where that is not known just now."""


class Scorer:
    """Scores rows of group devices; identical rows are simulated once and counted apart.

    With `evaluate` seconds come from there instead of from the simulator.
    """

    runs = 1  # simulations of a row

    def __init__(
        self,
        problem: Problem,
        grouping: Grouping,
        *,
        threads: int = 0,
        evaluate: Evaluator | None = None,
        limit: int | None = None,
    ) -> None:
        self.problem = problem
        self.grouping = grouping
        self.threads = threads
        self.evaluate = evaluate
        self.limit = limit  # evaluations that there may ever be; None: as many as one likes
        self.evaluations = 0  # simulations, those before learning included; with `evaluate` measurements alone
        self.hits = 0  # rows that were known
        self.simulated_seconds = 0.0  # wall time spent in the simulator
        self.own: Found | None = None  # the best that the network drew
        self.start: Found | None = None  # the best that it was given or began at
        self.worst_seconds = 0.0  # of feasible rows
        self._known: dict[bytes, Values] = {}

    def score(self, rows: NDArray[np.uint8], by: str | Sequence[str] = "sample") -> Scored:
        """Seconds and overfull shares of rows, in their order; `by` says who they are owed to, all or one by one."""
        keys = keys_of(rows)
        fresh: dict[bytes, int] = {}
        for number, key in enumerate(keys):
            if key not in self._known and key not in fresh:
                fresh[key] = number
        table = {key: self._known[key] for key in keys if key in self._known}
        if fresh:
            table.update(zip(fresh, self._simulated(rows[list(fresh.values())]), strict=True))
        self.evaluations += self.runs * len(fresh)
        return self._concluded(rows, keys, table, fresh, by)

    def charge(self, simulations: int) -> None:
        """Count simulations that others made for this learner; where placements are measured, only that counts."""
        if self.evaluate is None:
            self.evaluations += simulations

    @property
    def left(self) -> int | None:
        """Evaluations that may still be made; None for no limit."""
        return None if self.limit is None else max(0, self.limit - self.evaluations)

    @property
    def best(self) -> NDArray[np.uint8] | None:  # a row
        """The best that the network drew; what it was given to begin with does not count."""
        return None if self.own is None else self.own.row

    @property
    def best_seconds(self) -> float:
        """Of the best that the network drew; inf while there is none."""
        return math.inf if self.own is None else self.own.seconds

    @property
    def incumbent(self) -> Found | None:
        """The best of all; what was there to begin with, unless the network is better."""
        works = [one for one in (self.start, self.own) if one is not None]
        return min(works, key=lambda one: one.seconds, default=None)

    def begin_with(self, row: NDArray[np.uint8], seconds: float, by: str) -> None:
        """Remember a construction that was scored elsewhere."""
        if math.isfinite(seconds) and (self.start is None or seconds < self.start.seconds):
            self.start = Found(row.copy(), seconds, by)

    def _concluded(
        self,
        rows: NDArray[np.uint8],
        keys: Sequence[bytes],
        table: Mapping[bytes, Values],
        fresh: Mapping[bytes, int],
        by: str | Sequence[str],
    ) -> Scored:
        """Remember what rows turned out to be, those of `fresh` just now."""
        self.hits += len(keys) - len(fresh)
        for key in fresh:
            if not math.isnan(table[key][2]):  # what was lost is tried again when it comes again
                self._known[key] = table[key]
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        values = np.array([table[key] for key in keys], dtype=np.float64).reshape(-1, 4)
        scored = Scored(values[:, 0], values[:, 1], values[:, 2])
        names = [by] * len(keys) if isinstance(by, str) else list(by)
        self._remember(rows, scored, names, values[:, 3].astype(int))
        return scored

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.grouping.count

    def whole(self, devices: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [row, width]
        """Rows that put groups on devices [row, group], and leave open whatever else a row may say."""
        return devices

    def lifted(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [row, operator]
        """The devices that rows stand for."""
        return self.grouping.lift(rows)

    def placement(self, row: NDArray[np.uint8], run: int = 0) -> Placement:
        """The placement that a row stands for; `run` says which one, where a scorer makes several of a row."""
        return Placement(self.problem, self.lifted(row[None, :])[0])

    def placed(self, found: Found) -> Placement:
        """The placement of something found."""
        return self.placement(found.row, found.run)

    def final_measure(self, measure: Evaluator, most: int) -> list[Measured]:
        """The best different rows that are remembered, at most so many, timed by `measure`; the fastest comes first."""
        if most < 1:
            raise BadInput(f"final_measure needs at least 1 placement to measure, got {most}")
        works = [(values[0], key) for key, values in self._known.items() if math.isfinite(values[0])]
        found = []
        for simulated, key in sorted(works, key=lambda one: one[0])[:most]:
            row = np.frombuffer(key, dtype=np.uint8)
            found.append(Measured(row, _tried_twice(measure, self.lifted(row[None, :])[0]), simulated))
        return sorted(found, key=lambda one: math.inf if math.isnan(one.seconds) else one.seconds)

    def _simulated(self, rows: NDArray[np.uint8]) -> list[Values]:
        begin = time.perf_counter()
        if self.evaluate is not None:
            found = _evaluated(self.evaluate, self.lifted(rows))
            self.simulated_seconds += time.perf_counter() - begin
            return [_as_values(one) for one in found]
        scores = simulate_many(self.problem, self.lifted(rows), threads=self.threads)
        self.simulated_seconds += time.perf_counter() - begin
        return self._values(scores)

    def _values(self, scores: Scores) -> list[Values]:
        limits = np.array([device.usable_bytes for device in self.problem.cluster], dtype=np.float64)
        shares = (np.maximum(scores.over_bytes, 0) / limits).max(axis=1)
        works = scores.feasible & np.isfinite(scores.seconds)
        seconds = np.where(works, scores.seconds, np.inf)
        overfull = np.where(works, 0.0, np.where(shares > 0, shares, 1.0))
        none = [0] * len(seconds)
        return list(zip(seconds.tolist(), overfull.tolist(), scores.seconds.tolist(), none, strict=True))

    def _remember(
        self, rows: NDArray[np.uint8], scored: Scored, names: Sequence[str], runs: NDArray[np.int_]
    ) -> None:
        if not len(rows) or not scored.feasible.any():
            return
        drawn = np.array([name in OWN for name in names])
        for own, before in ((True, self.own), (False, self.start)):
            seconds = np.where(drawn == own, scored.seconds, np.inf)
            winner = int(np.argmin(seconds))
            if seconds[winner] < (math.inf if before is None else before.seconds):
                found = Found(rows[winner].copy(), float(seconds[winner]), names[winner], int(runs[winner]))
                self.own, self.start = (found, self.start) if own else (self.own, found)
        self.worst_seconds = max(self.worst_seconds, float(scored.seconds[scored.feasible].max()))

    def state(self) -> tuple[dict[str, NDArray[np.generic]], ScorerNumbers]:
        """(arrays, numbers) from which `restore` goes on as if nothing had happened."""
        rows = np.frombuffer(b"".join(self._known), dtype=np.uint8).reshape(len(self._known), self.width)
        values = np.array(list(self._known.values()), dtype=np.float64).reshape(-1, 4)
        best, best_numbers, best_by = _kept(self.own)
        start, start_numbers, start_by = _kept(self.start)
        numbers: ScorerNumbers = {
            "evaluations": self.evaluations, "hits": self.hits, "best": best_numbers, "best_by": best_by,
            "start": start_numbers, "start_by": start_by, "worst_seconds": self.worst_seconds,
        }  # fmt: skip
        return {"rows": rows, "values": values, "best": best, "start": start}, numbers

    def restore(self, arrays: dict[str, NDArray[np.generic]], numbers: ScorerNumbers) -> None:
        """Take over what `state` gave."""
        rows, values = arrays["rows"].astype(np.uint8), arrays["values"].astype(np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width or values.shape != (len(rows), 4):
            raise BadInput(f"the checkpoint is of another graph: {self.grouping.count} groups are here")
        self._known = {
            row.tobytes(): (float(a), float(b), float(c), int(run))
            for row, (a, b, c, run) in zip(rows, values, strict=True)
        }
        self.own = _restored(arrays["best"], numbers["best"], numbers["best_by"])
        self.start = _restored(arrays["start"], numbers["start"], numbers["start_by"])
        self.evaluations, self.hits = int(numbers["evaluations"]), int(numbers["hits"])
        self.worst_seconds = numbers["worst_seconds"]


def keys_of(rows: NDArray[np.uint8]) -> list[bytes]:
    """What rows are known by."""
    return [row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.uint8)]


def _kept(found: Found | None) -> tuple[NDArray[np.uint8], list[float], str]:
    """(row, numbers, name) for a checkpoint."""
    if found is None:
        return np.zeros(0, dtype=np.uint8), [], ""
    return found.row, [found.seconds, float(found.run)], found.by


def _restored(row: NDArray[np.generic], numbers: Sequence[float], by: str) -> Found | None:
    if not row.size:
        return None
    seconds, run = numbers
    return Found(row.astype(np.uint8), float(seconds), str(by), int(run))


def _evaluated(evaluate: Evaluator, placements: NDArray[np.uint8]) -> list[float]:
    """Seconds of placements, asked for all at once; should that fail, one by one."""
    try:
        found = np.asarray(evaluate(placements), dtype=np.float64)
        if found.shape == (len(placements),):
            return [seconds if seconds > 0 or math.isnan(seconds) else math.inf for seconds in found.tolist()]
    except Exception:  # whatever a runtime does must not end the search
        pass
    return [_tried_twice(evaluate, one) for one in placements]


def _as_values(seconds: float) -> Values:
    """What is known of a row that was timed."""
    if math.isfinite(seconds):
        return seconds, 0.0, seconds, 0
    return math.inf, 1.0, seconds, 0


def _tried_twice(evaluate: Evaluator, placement: NDArray[np.uint8]) -> float:
    """Seconds of one placement; a runtime that fails on it twice counts as one on which it does not run."""
    for _ in range(2):
        try:
            seconds = float(np.asarray(evaluate(placement[None, :]), dtype=np.float64)[0])
        except Exception:  # whatever a runtime does must not end the search
            continue
        return seconds if seconds > 0 or math.isnan(seconds) else math.inf
    return math.inf


@dataclass(frozen=True, slots=True)
class Reward:
    """Run time as a number to be made large: -sqrt(t / reference) or -log(t / reference).

    With `failing_seconds` an infeasible placement earns what such a slow one would. Without, it earns 1 less than the
    worst feasible one seen, less the share by which memory lacks: explicit, and never better than what works.
    """

    shape: Shape = "sqrt"
    reference_seconds: float = 1.0
    failing_seconds: float | None = None

    def of(self, scored: Scored, worst_seconds: float) -> NDArray[np.float64]:  # [row]
        """Rewards; `worst_seconds` is that of the worst feasible placement seen."""
        reward = self.of_seconds(np.where(scored.feasible, scored.seconds, self.reference_seconds))
        if self.failing_seconds is not None:
            bad = np.full(len(reward), self.failing)
        else:
            slowest = max(worst_seconds, self.reference_seconds)
            bad = float(self.of_seconds(np.array([slowest]))[0]) - 1.0 - np.minimum(scored.overfull, 10.0)
        return np.where(scored.feasible, reward, bad)

    def of_seconds(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """The reward of run times."""
        ratio = np.maximum(seconds, 1e-15) / self.reference_seconds
        values: NDArray[np.float64] = -np.sqrt(ratio) if self.shape == "sqrt" else -np.log(ratio)
        return values

    @property
    def failing(self) -> float:
        """What a placement that does not run earns under `failing_seconds`."""
        return float(self.of_seconds(np.array([self.failing_seconds or FAILING_SECONDS]))[0])
