"""Opinions of a network in a walk: what it thinks of every group on every device is added to list scheduling.

Notation    M groups that a network reads, U units that a walk places, K devices, R rows
    z  [R, M, K]  opinions of the network        those of a unit are the mean over its operators

With opinions of zero a walk is list scheduling, to the bit; devices that may not run a unit, or have no room for it,
are never chosen, whatever the opinion.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.learn.walk.walk_rules import Grounds, shipped_zero, weight_count
from stead.learn.walk.walk_steps import Step
from stead.learn.walk.walking import Walking
from stead.problem import Problem
from stead.solvers.search_state import Search

MOST_OPINION = 100.0  # a network that runs away must not end a walk with an error


class OpinedGrounds(Grounds):
    """A problem as walks see it, with opinions of one or several rows."""

    def __init__(self, problem: Problem, group: NDArray[np.int32]) -> None:
        super().__init__(problem)
        self.group = group.astype(np.int64)  # [operator]
        self._given = np.zeros((0, 0, 0))  # [row, group, device]
        self._shares: dict[int, _Shares] = {}

    @property
    def opinion_row(self) -> int:  # type: ignore[override]
        """The first one, for walks of an answer."""
        return 0

    def take(self, opinions: NDArray[np.floating]) -> None:  # [row, group, device]
        """From now on walks may name these rows."""
        self._given = np.clip(np.nan_to_num(opinions.astype(np.float64)), -MOST_OPINION, MOST_OPINION)

    def opinions(self, grouping: int) -> NDArray[np.float64]:  # [row, unit * device]
        """Means over the operators of units."""
        if grouping not in self._shares:
            self._shares[grouping] = _Shares(self.unit_groups[grouping], self.group)
        return self._shares[grouping].means(self._given).reshape(len(self._given), -1)

    def walk_rows(self, step: Step, *, threads: int = 0) -> list[_native.Walk]:
        """A walk for each row of opinions, as one step goes; nothing else is learned about it."""
        weights = np.zeros((1, weight_count()))
        variants = [step.native(opinion=row) for row in range(len(self._given))]
        return self.walk(step.grouping, weights, variants, threads=threads)


class _Shares:
    """How much of every unit of a walk lies in every group of a network."""

    def __init__(self, unit_of: NDArray[np.int32], group: NDArray[np.int64]) -> None:
        groups = int(group.max(initial=0)) + 1
        pair, count = np.unique(unit_of.astype(np.int64) * groups + group, return_counts=True)
        self._unit, self._group = pair // groups, pair % groups
        self._first = np.flatnonzero(np.diff(self._unit, prepend=-1))
        size = np.bincount(unit_of).astype(np.float64)
        self._share = (count / size[self._unit])[:, None]  # [pair, 1]

    def means(self, opinions: NDArray[np.float64]) -> NDArray[np.float64]:  # [row, unit, device]
        if not len(self._first):
            return opinions[:, :0]
        return np.add.reduceat(opinions[:, self._group] * self._share, self._first, axis=1)


def walk_by_opinions(
    search: Search, grounds: OpinedGrounds, opinions: NDArray[np.floating], *, name: str, walks: int, threads: int
) -> tuple[Step, ...]:
    """The best of some walks of list scheduling with the opinions of a network [group, device]; kinds, best first."""
    rules = shipped_zero()
    grounds.take(opinions[None])
    return Walking(search, grounds, rules.weights, rules.plans[grounds.kind], lambda _: name, walks, threads).run()
