"""The walks of one answer: as many as a budget allows, the best of them scored, made to fit where none does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.learn.walk.walk_rules import Grounds, Step
from stead.sim import simulate_many
from stead.solvers.build.chunks import Chunks
from stead.solvers.build.list_scheduling import Heft
from stead.solvers.build.schedules import Schedule, offer_schedule
from stead.solvers.search_state import Search

AT_ONCE = 4  # walks between two looks at the clock
OFFERED = 6  # of the walks, whose length the core already knows
NOISE = 0.25  # of logits, in walks beyond the plan
LEAST_SECONDS = 0.5  # for the first walks, whatever the time limit: an answer is better than none
MOST_RETRIES = 3  # with less room, where nothing fits
PER_WALK = 2  # simulations: as it was walked, and in the order of ranks
NOT_BUILT = -2  # of the core, for ticks: time was up before


@dataclass(frozen=True, slots=True)
class Walking:
    """Walks over one problem, by a plan and what it names; `told` says who finds what a step finds."""

    search: Search
    grounds: Grounds
    weights: NDArray[np.float64]  # [rule, weight]
    plan: tuple[Step, ...]
    told: Callable[[Step], str]
    walks: int
    threads: int = 0

    def run(self) -> None:
        """Walk, score the most promising walks, make them fit if none does."""
        search, tries = self.search, self._tries()
        if not tries:
            search.notes.append("too few evaluations for a walk: chunks instead")
            search.try_solver(Chunks())
            return
        self._offer(self._walked(tries))
        if search.best is None and not search.done:
            self._make_fit(tries)

    def _tries(self) -> list[_Try]:
        """Walks to go on, no more than there are evaluations for; the last evaluation scores what they find."""
        left = self.search.remaining_evaluations
        count = self.walks if left is None else min(self.walks, max((left - 1) // PER_WALK, min(left - 1, 1)))
        retime = left is None or left > PER_WALK
        return [_Try(n, self.plan[n % len(self.plan)], n >= len(self.plan), retime) for n in range(count)]

    def _walked(
        self, tries: list[_Try], limit_bytes: NDArray[np.int64] | None = None
    ) -> list[tuple[_native.Walk, Schedule]]:
        """Walks that there was time for with their schedules, the best first; a few in any case."""
        search, grounds = self.search, self.grounds
        found: list[tuple[int, _native.Walk, Schedule]] = []
        for grouping, some in _portions(tries):
            if found and search.done:
                break
            seconds = max(0.0 if found else LEAST_SECONDS, search.remaining_seconds)
            variants = [one.native(search.seed, grounds.opinion_row) for one in some]
            walks = grounds.walk(
                grouping, self.weights, variants, limit_bytes=limit_bytes, seconds=seconds, threads=self.threads
            )
            for one, walk in zip(some, walks, strict=True):
                search.evaluations += walk.simulations
                if walk.ticks != NOT_BUILT:
                    told = f"{self.told(one.step)}, variant {one.number + 1}"
                    found.append((one.number, walk, Schedule(walk.devices, walk.order, told)))
        found.sort(key=lambda row: (row[1].ticks < 0, row[1].over_bytes, row[1].ticks, row[0]))
        return [(walk, schedule) for _, walk, schedule in found]

    def _offer(self, found: list[tuple[_native.Walk, Schedule]]) -> None:
        """Score the best different placements, each in its order and in those of the objective."""
        search = self.search
        seen: set[bytes] = set()
        for _, schedule in found:
            if len(seen) == OFFERED or (search.current is not None and search.done):
                break
            if schedule.devices.tobytes() not in seen:
                seen.add(schedule.devices.tobytes())
                offer_schedule(search, schedule)

    def _make_fit(self, tries: list[_Try]) -> None:
        """Walk again with as much less room as was missing; let list scheduling repair what still does not fit."""
        search, full = self.search, self.grounds.limit_bytes
        limit = full
        for _ in range(MOST_RETRIES):
            left = search.remaining_evaluations
            if search.current is None or search.done or (left is not None and left <= 1 + AT_ONCE * PER_WALK):
                break
            peak = simulate_many(search.problem, search.current[None, :], memory="peak").peak_bytes[0]
            search.evaluations += 1
            limit = np.maximum(0, limit - np.maximum(0, peak - full))
            self._offer(self._walked(tries[:AT_ONCE], limit))
            if search.best is not None:
                return
        if not search.done:
            search.notes.append("no walk fits into memory: heft instead")
            search.try_solver(Heft())


@dataclass(frozen=True, slots=True)
class _Try:
    """A walk of an answer."""

    number: int
    step: Step
    noisy: bool
    retime: bool

    def native(self, seed: int, opinion: int) -> _native.WalkVariant:
        """The same as the core takes it."""
        own = (seed * 1_000_003 + self.number) % 2**64
        noise = NOISE if self.noisy else 0.0
        return self.step.native(noise=noise, seed=own, retime=self.retime, opinion=opinion)


def _portions(tries: list[_Try]) -> Iterator[tuple[int, list[_Try]]]:
    """(grouping, tries) in the order of the plan, as many at once as share a grouping."""
    for begin in range(0, len(tries), AT_ONCE):
        some = tries[begin : begin + AT_ONCE]
        for grouping in dict.fromkeys(one.step.grouping for one in some):
            yield grouping, [one for one in some if one.step.grouping == grouping]
