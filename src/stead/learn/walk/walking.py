"""The walks of one answer: as many as a budget allows, the best of them scored, made to fit where none does.

Walks go in rounds: those of a plan that go on from the best one wait for the rounds before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.learn.walk.walk_rules import Grounds, shaken
from stead.learn.walk.walk_steps import ANEW, AT_ONCE, Planned, Step, rounds
from stead.sim import simulate_many
from stead.solvers.build.chunks import Chunks
from stead.solvers.build.list_scheduling import Heft
from stead.solvers.build.schedules import Schedule, offer_schedule
from stead.solvers.search_state import Search

OFFERED = 6  # of the walks, whose length the core already knows
NOISE = 0.25  # of logits, in walks beyond the plan
SHAKE = 0.3  # of weights, in the same: all that a walk decides differs in the same way, not each by itself
LEAST_SECONDS = 0.5  # for the first walks, whatever the time limit: an answer is better than none
MOST_RETRIES = 3  # with less room, where nothing fits
PER_WALK = 3  # simulations: as it was walked, and in two orders by ranks
NOT_BUILT = -2  # of the core, for ticks: time was up before


@dataclass(frozen=True, slots=True)
class Walking:
    """Walks over one problem, by a plan and what it names; `told` says who finds what a step finds."""

    search: Search
    grounds: Grounds
    weights: NDArray[np.float64]  # [rule, weight]
    plan: tuple[Planned, ...]
    told: Callable[[Step], str]
    walks: int
    threads: int = 0
    known: tuple[Found, ...] = ()  # schedules that are there, to go on from while no walk is better

    def run(self) -> tuple[Step, ...]:
        """Walk, score the most promising walks, make them fit if none does; their steps, begun anew, best first."""
        search, tries = self.search, self._tries()
        if not tries:
            search.notes.append("too few evaluations for a walk: chunks instead")
            search.try_solver(Chunks())
            return ()
        found = self._walked(tries)
        self._offer(found)
        if search.best is None and not search.done:
            self._make_fit(tries)
        return tuple(dict.fromkeys(replace(one.step, again=None) for one in found if one.ticks >= 0))

    def _tries(self) -> list[_Try]:
        """Walks to go on, no more than there are evaluations for; the last evaluation scores what they find."""
        left = self.search.remaining_evaluations
        count = self.walks if left is None else min(self.walks, max((left - 1) // PER_WALK, min(left - 1, 1)))
        retime = left is None or left > PER_WALK
        return [_Try(n, self.plan[n % len(self.plan)], n >= len(self.plan), retime) for n in range(count)]

    def _walked(self, tries: list[_Try], limit_bytes: NDArray[np.int64] | None = None) -> list[Found]:
        """What walks find that there was time for, the best first; a few in any case."""
        found: list[Found] = []
        for numbers in rounds([one.walk for one in tries]):
            best = min([*found, *self.known], key=Found.standing, default=None)
            for grouping, some in _by_grouping([tries[n] for n in numbers], best):
                if found and self.search.done:
                    break
                seconds = max(0.0 if found else LEAST_SECONDS, self.search.remaining_seconds)
                found += self._found(grouping, some, best, limit_bytes, seconds)
        return sorted(found, key=Found.standing)

    def _found(
        self,
        grouping: int,
        some: list[tuple[_Try, Step]],
        best: Found | None,
        limit_bytes: NDArray[np.int64] | None,
        seconds: float,
    ) -> Iterator[Found]:
        """What walks over one grouping find in so many seconds."""
        search, grounds = self.search, self.grounds
        guide = best if any(step.again for _, step in some) else None
        rows = [one.weights(step, best, self.weights, search.seed) for one, step in some]
        variants = [
            one.native(replace(step, rule=n), search.seed, grounds.opinion_row) for n, (one, step) in enumerate(some)
        ]
        walks = grounds.walk(
            grouping, np.stack(rows), variants,
            guide=None if guide is None else guide.schedule, limit_bytes=limit_bytes, seconds=seconds,
            threads=self.threads,
        )  # fmt: skip
        after = "" if guide is None else guide.after
        for (one, step), row, walk in zip(some, rows, walks, strict=True):
            search.evaluations += walk.simulations
            if walk.ticks == NOT_BUILT:
                continue
            other = "" if np.array_equal(row, self.weights[step.rule]) else " shaken"
            told = f"{self.told(step)}{other}{after}, variant {one.number + 1}"
            schedule = Schedule(walk.devices, walk.order, told)
            yield Found(one.number, step, schedule, walk.ticks, walk.over_bytes, after, row)

    def _offer(self, found: list[Found]) -> None:
        """Score the best different placements, each in its order and in those of the objective."""
        search = self.search
        seen: set[bytes] = set()
        for one in found:
            if len(seen) == OFFERED or (search.current is not None and search.done):
                break
            if one.schedule.devices.tobytes() not in seen:
                seen.add(one.schedule.devices.tobytes())
                offer_schedule(search, one.schedule)

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


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A schedule, and the step that leads to it."""

    number: int  # of the walk
    step: Step
    schedule: Schedule
    ticks: int  # negative where it cannot run
    over_bytes: int = 0
    after: str = ""  # what it goes on from, if that was no walk
    weights: NDArray[np.float64] | None = None  # of its rule; None: as the policy has them

    def standing(self) -> tuple[bool, int, int, int]:
        """What is compared: the least is best."""
        return self.ticks < 0, self.over_bytes, self.ticks, self.number


@dataclass(frozen=True, slots=True)
class _Try:
    """A walk of an answer."""

    number: int
    walk: Planned
    noisy: bool
    retime: bool

    def step(self, best: Found | None) -> Step | None:
        """What it is once the best before it is known; None while there is nothing that it could go on from."""
        if isinstance(self.walk, Step):
            return self.walk
        return self.walk.after(best.step) if best is not None and best.ticks >= 0 else None

    def weights(
        self, step: Step, best: Found | None, rules: NDArray[np.float64], seed: int
    ) -> NDArray[np.float64]:  # [weight]
        """Those of its rule, or of the best walk that it goes on from, shaken if it says so."""
        known = best.weights if step.again and best is not None else None
        row: NDArray[np.float64] = rules[step.rule] if known is None else known
        shake = max((step.again or ANEW).shake, SHAKE if self.noisy else 0.0)
        return shaken(row, shake, np.random.default_rng([seed, self.number])) if shake else row

    def native(self, step: Step, seed: int, opinion: int) -> _native.WalkVariant:
        """The same as the core takes it."""
        own = (seed * 1_000_003 + self.number) % 2**64
        noise = NOISE if self.noisy else 0.0
        return step.native(noise=noise, seed=own, retime=self.retime, opinion=opinion)


def _by_grouping(tries: list[_Try], best: Found | None) -> list[tuple[int, list[tuple[_Try, Step]]]]:
    """(grouping, tries with their steps), those that can go on."""
    some = [(one, step) for one in tries if (step := one.step(best)) is not None]
    groupings = dict.fromkeys(step.grouping for _, step in some)
    return [(grouping, [one for one in some if one[1].grouping == grouping]) for grouping in groupings]
