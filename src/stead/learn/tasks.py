"""A problem to learn from: its groups, its judge, its reward, and all that is remembered about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.learn.checkpoints import Arrays
from stead.learn.rewards import Reward, Scorer
from stead.learn.symmetry import device_classes
from stead.problem import Problem

MOST_ELITES = 32


class Elites:
    """The best different choices ever scored; read within a band above the best."""

    def __init__(self, most: int = MOST_ELITES) -> None:
        self.most = most
        self.rows: list[NDArray[np.int64]] = []  # [choice]
        self.seconds: list[float] = []

    def offer(self, rows: NDArray[np.int64], seconds: NDArray[np.float64]) -> None:
        """Remember feasible rows that are among the best."""
        known = {row.tobytes() for row in self.rows}
        for row, value in zip(rows, seconds.tolist(), strict=True):
            if math.isfinite(value) and row.tobytes() not in known:
                known.add(row.tobytes())
                self.rows.append(row.copy())
                self.seconds.append(value)
        order = sorted(range(len(self.rows)), key=lambda i: self.seconds[i])[
            : self.most
        ]  # stable: old ones first
        self.rows, self.seconds = [self.rows[i] for i in order], [self.seconds[i] for i in order]

    def within(self, band: float) -> NDArray[np.int64]:  # [elite, choice]
        """Elites at most that share slower than the best."""
        if not self.rows:
            return np.zeros((0, 0), dtype=np.int64)
        count = sum(value <= self.seconds[0] * (1 + band) for value in self.seconds)
        return np.stack(self.rows[:count])


@dataclass(slots=True)
class Task:
    """One grouped problem, with all that is remembered about it."""

    name: str
    problem: Problem
    grouping: Grouping
    inputs: Any  # what its network reads
    scorer: Scorer
    reward: Reward
    known: dict[str, float] = field(default_factory=dict)  # seconds of baselines
    bound_seconds: float = 0.0
    target: NDArray[np.int64] | None = None  # [choice]; for imitation, equal devices named by first use
    elites: Elites = field(default_factory=Elites)
    average: float | None = None  # the moving average of rewards
    greedy_seconds: float = math.inf  # of the last greedy placement
    greedy_devices: int = 0  # that it uses
    notes: tuple[str, ...] = ()  # what a reader of the result should know
    classes: NDArray[np.int64] = field(init=False)  # [device]

    def __post_init__(self) -> None:
        self.classes = device_classes(self.problem)

    @property
    def best_known_seconds(self) -> float:
        """Of anything scored so far, baselines included."""
        return min([self.scorer.best_seconds, *self.known.values()])

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """(arrays, numbers) from which `restore` goes on as if nothing had happened."""
        arrays, numbers = self.scorer.state()
        rows = self.elites.rows
        kept: Arrays = {
            **arrays,
            "elites": np.stack(rows) if rows else np.zeros((0, 0), dtype=np.int64),
            "elite_seconds": np.array(self.elites.seconds, dtype=np.float64),
        }
        own = {name: getattr(self, name) for name in ("average", "greedy_seconds", "greedy_devices")}
        return kept, {**numbers, **own}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self.scorer.restore(arrays, numbers)
        self.elites.rows = list(arrays["elites"].astype(np.int64))
        self.elites.seconds = arrays["elite_seconds"].astype(np.float64).tolist()
        for name in ("average", "greedy_seconds", "greedy_devices"):
            setattr(self, name, numbers[name])
