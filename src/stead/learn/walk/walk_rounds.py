"""Walks of a plan that go on from the best one so far, a round at a time: what each finds, and which ones help most."""

from __future__ import annotations

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

ANEW_SHARE = 0.5  # of the walks of a plan, that begin anew
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

    def keep(self, found: Sequence[Tried]) -> None:
        """Stand where the best of these walks ends, if that is better."""
        for step, row, walk in found:
            if (length := judged(walk, self.grounds)) < self.length:
                self.length, self.best = length, (step, row, Schedule(walk.devices, walk.order))


def continued(
    plan: tuple[Planned, ...], weights: NDArray[np.float64], problems: Sequence[Grounds], count: int
) -> tuple[tuple[Planned, ...], list[float]]:
    """(a plan of so many walks, lengths that it reaches): behind those given the ones that go on best from them."""
    progress = [Progress(grounds, weights, plan) for grounds in problems]
    running = [one for one in progress if one.best is not None]
    while len(plan) < count:
        more = min(AT_ONCE, count - len(plan))
        order: Sequence[int] = range(more)
        if running:
            lengths = np.array([[judged(walk, one.grounds) for _, _, walk in one.tried(AGAINS)] for one in running])
            order = taken(lengths, more, np.array([one.length for one in running]))
        chosen = tuple(AGAINS[n] for n in order)
        for one in running:
            one.keep(one.tried(chosen))
        plan += chosen
    return plan, [one.length for one in progress]
