"""Plans, a round of walks at a time: those that begin anew and those that go on from the best one so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.learn.walk.evolution import judged
from stead.learn.walk.walk_plans import taken, walked
from stead.learn.walk.walk_rules import Grounds, shaken
from stead.learn.walk.walk_steps import AT_ONCE, Again, Planned, Step, rounds
from stead.solvers.build.schedules import Schedule

AGAINS = tuple(
    Again(tail, cling, noise, shake, finest)
    for finest, (noise, shake), cling, tail in product(
        (False, True), ((0.0, 0.0), (0.3, 0.0), (0.0, 0.3), (0.3, 0.3)), (0.0, 1.0), (0.0, 0.5, 1.0)
    )
)

Tried = tuple[Step, NDArray[np.float64], _native.Walk]  # with the weights of its rule


class Progress:
    """The best walk so far over one problem, while a plan is followed."""

    def __init__(self, grounds: Grounds, weights: NDArray[np.float64], plan: Sequence[Planned] = ()) -> None:
        self.grounds, self.weights = grounds, weights
        self.length = np.inf  # its logarithm
        self.best: tuple[Step, NDArray[np.float64], Schedule] | None = None  # with the weights of its rule
        self._draw = np.random.default_rng(len(grounds.problem.graph))
        for numbers in rounds(plan):
            self.keep(self.tried([plan[n] for n in numbers]))

    def tried(self, walks: Sequence[Planned]) -> list[Tried]:
        """What a round of walks finds from where it stands; nothing while there is nothing to go on from."""
        steps, guide = [walk for walk in walks if isinstance(walk, Step)], None
        rows = [self.weights[step.rule] for step in steps]
        if not steps and self.best is not None:
            best, row, guide = self.best
            again = [walk for walk in walks if isinstance(walk, Again)]
            steps = [walk.after(best) for walk in again]
            rows = [shaken(row, walk.shake, self._draw) if walk.shake else row for walk in again]
        if not steps:
            return []
        numbered = [replace(step, rule=n) for n, step in enumerate(steps)]
        return list(zip(steps, rows, walked(self.grounds, np.stack(rows), numbered, guide), strict=True))

    def lengths(self, walks: Sequence[Planned]) -> list[float]:
        """Logarithms of the lengths of walks from where it stands; infinite while there is nothing to go on from."""
        found = self.tried(walks)
        return [judged(walk, self.grounds) for _, _, walk in found] if found else [np.inf] * len(walks)

    def keep(self, found: Sequence[Tried]) -> None:
        """Stand where the best of these walks ends, if that is better."""
        for step, row, walk in found:
            if (length := judged(walk, self.grounds)) < self.length:
                self.length, self.best = length, (step, row, Schedule(walk.devices, walk.order))


def grown(
    steps: Sequence[Step],
    lengths: NDArray[np.float64],  # [problem, step]; their logarithms
    weights: NDArray[np.float64],
    problems: Sequence[Grounds],
    count: int,
) -> tuple[tuple[Planned, ...], list[float]]:
    """(a plan of so many walks, lengths that it reaches), a round at a time.

    A round is of steps that begin anew or of walks that go on from the best one, whichever leaves the mean of the best
    lengths the least. Without a problem to tell, half of a plan are the first steps.
    """
    if not problems:
        anew = steps[: math.ceil(count / 2)]
        return (*anew, *AGAINS[: count - len(anew)]), []
    progress = [Progress(grounds, weights) for grounds in problems]
    plan: tuple[Planned, ...] = ()
    while len(plan) < count:
        more, best = min(AT_ONCE, count - len(plan)), np.array([one.length for one in progress])
        left = [n for n, step in enumerate(steps) if step not in plan]
        ways = [_helpful([steps[n] for n in left], lengths[:, left], more, best)] if left else []
        if plan:
            ways.append(_helpful(AGAINS, np.array([one.lengths(AGAINS) for one in progress]), more, best))
        _, chosen = min(ways, key=lambda way: way[0])
        for one in progress:
            one.keep(one.tried(chosen))
        plan += chosen
    return plan, [one.length for one in progress]


def _helpful(
    walks: Sequence[Planned], lengths: NDArray[np.float64], count: int, best: NDArray[np.float64]
) -> tuple[float, tuple[Planned, ...]]:
    """(the mean that they leave, the walks that help most)."""
    order = taken(lengths, count, best)
    return float(np.minimum(best, lengths[:, order].min(axis=1)).mean()), tuple(walks[n] for n in order)
