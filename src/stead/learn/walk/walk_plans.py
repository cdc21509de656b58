"""Which walks to try: of many rules, biases, averages and groupings the few that complete each other.

Every candidate walks over problems that no rule was trained on; then walks are taken one by one, each time the one that
makes the mean logarithm of the best length the least. Problems with one, two and three groupings have plans of their
own, since what is worth trying differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stead.learn.walk.evolution import judged
from stead.learn.walk.made_problems import Scope, made_problem
from stead.learn.walk.walk_rules import AVERAGES, MOST_GROUPINGS, Grounds, Step

BIASES = (1.0, 2.0, 4.0, 0.5, 10.0)
FORESIGHTS = (0.0, 1.0)
WALKS = 16
Lengths = dict[int, NDArray[np.float64]]  # by the number of groupings: [problem, candidate]


def candidates(rules: Sequence[int], groupings: int) -> list[Step]:
    """All walks that could be tried: what a unit brings later matters in large units alone."""
    return [
        Step(rule, bias, foresight, average, grouping)
        for rule, bias, foresight, average, grouping in product(
            rules, BIASES, FORESIGHTS, AVERAGES, range(groupings)
        )
        if grouping or not foresight
    ]


def measured(weights: NDArray[np.float64], rules: Sequence[int], seeds: Iterable[int], scope: Scope) -> Lengths:
    """Logarithms of the lengths of every candidate on the problems of the seeds."""
    rows: dict[int, list[NDArray[np.float64]]] = {count: [] for count in range(1, MOST_GROUPINGS + 1)}
    for seed in seeds:
        grounds = Grounds(made_problem(seed, scope).problem)
        count = len(grounds.unit_groups)
        rows[count].append(lengths_of(grounds, weights, candidates(rules, count)))
    return {count: np.array(found) for count, found in rows.items()}


def lengths_of(grounds: Grounds, weights: NDArray[np.float64], steps: Sequence[Step]) -> NDArray[np.float64]:
    """Logarithms of the lengths of walks over one problem."""
    found = np.full(len(steps), np.inf)
    for grouping in sorted({step.grouping for step in steps}):
        rows = [n for n, step in enumerate(steps) if step.grouping == grouping]
        walks = grounds.walk(grouping, weights, [steps[n].native() for n in rows])
        found[rows] = [judged(walk, grounds) for walk in walks]
    return found


def taken(lengths: NDArray[np.float64], count: int) -> list[int]:
    """Candidates (columns) one by one, each the one that helps most where those before it stand.

    >>> taken(np.array([[1.0, 3.0, 2.0], [9.0, 3.0, 5.0]]), 2)
    [1, 0]
    """
    best = np.full(len(lengths), np.inf)
    chosen: list[int] = []
    for _ in range(min(count, lengths.shape[1])):
        means = np.minimum(best[:, None], lengths).mean(axis=0)
        means[chosen] = np.inf
        chosen.append(int(np.argmin(means)))
        best = np.minimum(best, lengths[:, chosen[-1]])
    return chosen


def planned(lengths: Mapping[int, NDArray[np.float64]], rules: Sequence[int], count: int = WALKS) -> dict[int, tuple[Step, ...]]:
    """A plan for every number of groupings."""
    plans = {}
    for groupings, rows in lengths.items():
        steps = candidates(rules, groupings)
        order = taken(rows, count) if len(rows) else list(range(min(count, len(steps))))
        plans[groupings] = tuple(steps[n] for n in order)
    return plans
