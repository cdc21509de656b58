"""Which walks to try: of many rules, biases, averages and groupings the few that complete each other.

Every candidate walks over problems that no rule was trained on; then walks are taken one by one, each time the one that
makes the mean logarithm of the best length the least. Problems of every kind have plans of their own: with more
groupings there is more to try, and averages of costs matter where devices differ. These are walks that begin anew;
walk_rounds.py has those that go on from the best of them, and makes plans of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.learn.walk.evolution import judged
from stead.learn.walk.walk_rules import KINDS, Grounds, Kind
from stead.learn.walk.walk_steps import AVERAGES, Step
from stead.solvers.build.schedules import Schedule

BIASES = (1.0, 2.0, 4.0, 0.5, 10.0)
LARGE_BIASES = (1.0, 4.0, 10.0)  # of large problems, whose walks take long
FORESIGHTS = (0.0, 1.0)
WALKS = 16
Lengths = dict[Kind, NDArray[np.float64]]  # [problem, candidate]


def candidates(rules: Sequence[int], kind: Kind) -> list[Step]:
    """All walks that could be tried: what a unit brings later matters in large units alone."""
    biases, averages = (LARGE_BIASES, AVERAGES[:1]) if kind.large else (BIASES, AVERAGES)
    return [
        Step(rule, bias, foresight, average, grouping)
        for rule, bias, foresight, average, grouping in product(
            rules, biases, FORESIGHTS, averages[:1] if kind.alike else averages, range(kind.groupings)
        )
        if grouping or not foresight
    ]


def measured(weights: NDArray[np.float64], rules: Sequence[int], problems: Iterable[Grounds]) -> Lengths:
    """Logarithms of the lengths of every candidate on every problem."""
    rows: dict[Kind, list[NDArray[np.float64]]] = {kind: [] for kind in KINDS}
    for grounds in problems:
        rows[grounds.kind].append(lengths_of(grounds, weights, candidates(rules, grounds.kind)))
    return {kind: np.array(found).reshape(len(found), len(candidates(rules, kind))) for kind, found in rows.items()}


def lengths_of(grounds: Grounds, weights: NDArray[np.float64], steps: Sequence[Step]) -> NDArray[np.float64]:
    """Logarithms of the lengths of walks over one problem."""
    return np.array([judged(walk, grounds) for walk in walked(grounds, weights, steps)])


def walked(
    grounds: Grounds, weights: NDArray[np.float64], steps: Sequence[Step], guide: Schedule | None = None
) -> list[_native.Walk]:
    """A walk for each step; `guide` is what those go on from that go on from another one."""
    found: dict[int, _native.Walk] = {}
    for grouping in sorted({step.grouping for step in steps}):
        rows = [n for n, step in enumerate(steps) if step.grouping == grouping]
        variants = [steps[n].native() for n in rows]
        walks = grounds.walk(grouping, weights, variants, guide=guide)
        found |= zip(rows, walks, strict=True)
    return [found[n] for n in range(len(steps))]


def taken(lengths: NDArray[np.float64], count: int, begin: NDArray[np.float64] | None = None) -> list[int]:
    """Candidates (columns) one by one, each the one that helps most where those before it, and `begin`, stand.

    >>> taken(np.array([[1.0, 3.0, 2.0], [9.0, 3.0, 5.0]]), 2)
    [1, 0]
    """
    best = np.full(len(lengths), np.inf) if begin is None else begin
    chosen: list[int] = []
    for _ in range(min(count, lengths.shape[1])):
        means = np.minimum(best[:, None], lengths).mean(axis=0)
        means[chosen] = np.inf
        chosen.append(int(np.argmin(means)))
        best = np.minimum(best, lengths[:, chosen[-1]])
    return chosen
