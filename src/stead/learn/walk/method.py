"""`walk`: list scheduling by rules that were learned on made-up problems; the best of a few walks, in milliseconds.

The native walk (core/build/walk.h) is HEFT with a learned say in which operator comes next and which device it takes.
A policy file holds rules and a plan of walks that complete each other; the policy that comes with the package was
trained by `stead train walk` and experiments/walk. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import BadInput
from stead.learn.walk.walk_plans import WALKS
from stead.learn.walk.walk_rules import SHIPPED, Grounds, Rules, Step
from stead.problem import Latency, PlacetoDispatch, Problem
from stead.sim import simulate_many
from stead.solvers.build.chunks import Chunks
from stead.solvers.build.list_scheduling import Heft
from stead.solvers.build.schedules import Schedule, offer_schedule
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

PRETRAINED = "pretrained"  # the policy that comes with the package
ZERO = "zero"  # nothing learned: list scheduling, with a plan of walks that was chosen for it
AT_ONCE = 4  # walks between two looks at the clock
OFFERED = 6  # of the walks, whose length the core already knows
NOISE = 0.25  # of logits, in walks beyond the plan
LEAST_SECONDS = 0.5  # for the first walks, whatever the time limit: an answer is better than none
MOST_RETRIES = 3  # with less room, where nothing fits
PER_WALK = 2  # simulations: as it was walked, and in the order of ranks
MOST_WALKS = 100_000
NOT_BUILT = -2  # of the core, for ticks: time was up before


@few_devices
@dataclass(frozen=True, slots=True)
class Walk:
    """Best of a few walks by learned rules: which operator comes next, and which device it takes.

    Rules with zero weights are HEFT, and `found_by` says which kind of rule found the placement. Walks beyond the plan
    of the policy repeat it with noise that the seed decides.
    """

    name: ClassVar[str] = "walk"

    policy: str = PRETRAINED  # a file, the policy of the package, or "zero": list scheduling alone
    walks: int = WALKS
    with_heft: bool = False  # whether the heft family is asked, too
    threads: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.walks <= MOST_WALKS:
            raise BadInput(f"walk takes 1 to {MOST_WALKS} walks, got {self.walks}")
        if not self.policy:
            raise BadInput(f"walk needs a policy: a file, {PRETRAINED!r} or {ZERO!r}")
        if self.threads < 0:
            raise BadInput(f"threads must be 0 (all cores) or more, got {self.threads}")

    def unsupported(self, problem: Problem) -> str | None:
        """It builds schedules, and was trained on the latency of dataflow execution."""
        objective = problem.objective
        if not isinstance(objective, Latency) or objective.execution != "dataflow":
            return "it schedules for the latency of dataflow execution only"
        if isinstance(objective.policy, PlacetoDispatch):
            return "it does not know the rules of Placeto's simulator"
        return None

    @property
    def rules(self) -> Rules:
        """What the policy says."""
        rules = Rules.load(SHIPPED if self.policy in (PRETRAINED, ZERO) else Path(self.policy))
        return rules.without_learning() if self.policy == ZERO else rules

    def train(
        self,
        output: Path,
        *,
        problems: int,
        given: Sequence[Problem],
        updates: int,
        seed: int,
        resume: bool = False,
        every: int = 25,
        report: Callable[[int, dict[str, float]], None] | None = None,
    ) -> dict[str, object]:
        """Carry the policy on (from zero weights if it is "zero") and write it to a file; what came out, for people."""
        from stead.learn.walk.walk_training import Recipe, train_rules

        for problem in given:
            if (reason := self.unsupported(problem)) is not None:
                raise BadInput(f"walk cannot learn from {problem.graph.name}: {reason}")
        return train_rules(
            output, Recipe(updates, seed, walks=self.walks), problems=problems, given=given, resume=resume, every=every,
            start=None if self.policy == ZERO else self.rules, report=report,
        )  # fmt: skip

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Walk, score the most promising walks, make them fit if none does."""
        search = started(self, problem, budget, seed)
        rules = self.rules
        with search.interruptible():
            grounds = Grounds(problem)
            tries = self._tries(search, rules.plans[grounds.kind])
            if tries:
                self._offer(search, self._walked(search, grounds, rules, tries))
            else:
                search.notes.append("too few evaluations for a walk: chunks instead")
                search.try_solver(Chunks())
            if search.best is None and not search.done and tries:
                self._make_fit(search, grounds, rules, tries)
            if self.with_heft and not search.done:
                search.try_solver(Heft())
        return search.solution()

    def _tries(self, search: Search, plan: tuple[Step, ...]) -> list[_Try]:
        """Walks to go on, no more than there are evaluations for; the last evaluation scores what they find."""
        left = search.remaining_evaluations
        count = self.walks if left is None else min(self.walks, max((left - 1) // PER_WALK, min(left - 1, 1)))
        retime = left is None or left > PER_WALK
        return [_Try(n, plan[n % len(plan)], n >= len(plan), retime) for n in range(count)]

    def _walked(
        self,
        search: Search,
        grounds: Grounds,
        rules: Rules,
        tries: list[_Try],
        limit_bytes: NDArray[np.int64] | None = None,
    ) -> list[tuple[_native.Walk, Schedule]]:
        """Walks that there was time for with their schedules, the best first; a few in any case."""
        found: list[tuple[int, _native.Walk, Schedule]] = []
        for grouping, some in _portions(tries):
            if found and search.done:
                break
            seconds = max(0.0 if found else LEAST_SECONDS, search.remaining_seconds)
            variants = [one.native(search.seed) for one in some]
            walks = grounds.walk(
                grouping, rules.weights, variants, limit_bytes=limit_bytes, seconds=seconds, threads=self.threads
            )
            for one, walk in zip(some, walks, strict=True):
                search.evaluations += walk.simulations
                if walk.ticks != NOT_BUILT:
                    told = f"walk, {rules.name_of(one.step.rule)}, variant {one.number + 1}"
                    found.append((one.number, walk, Schedule(walk.devices, walk.order, told)))
        found.sort(key=lambda row: (row[1].ticks < 0, row[1].over_bytes, row[1].ticks, row[0]))
        return [(walk, schedule) for _, walk, schedule in found]

    def _offer(self, search: Search, found: list[tuple[_native.Walk, Schedule]]) -> None:
        """Score the best different placements, each in its order and in those of the objective."""
        seen: set[bytes] = set()
        for _, schedule in found:
            if len(seen) == OFFERED or (search.current is not None and search.done):
                break
            if schedule.devices.tobytes() not in seen:
                seen.add(schedule.devices.tobytes())
                offer_schedule(search, schedule)

    def _make_fit(self, search: Search, grounds: Grounds, rules: Rules, tries: list[_Try]) -> None:
        """Walk again with as much less room as was missing; let list scheduling repair what still does not fit."""
        limit = grounds.limit_bytes
        for _ in range(MOST_RETRIES):
            left = search.remaining_evaluations
            if search.current is None or search.done or (left is not None and left <= 1 + AT_ONCE * PER_WALK):
                break
            peak = simulate_many(search.problem, search.current[None, :], memory="peak").peak_bytes[0]
            search.evaluations += 1
            limit = np.maximum(0, limit - np.maximum(0, peak - grounds.limit_bytes))
            self._offer(search, self._walked(search, grounds, rules, tries[:AT_ONCE], limit))
            if search.best is not None:
                return
        if not search.done:
            search.notes.append("no walk fits into memory: heft instead")
            search.try_solver(Heft())


@dataclass(frozen=True, slots=True)
class _Try:
    """A walk of a solve."""

    number: int
    step: Step
    noisy: bool
    retime: bool

    def native(self, seed: int) -> _native.WalkVariant:
        """The same as the core takes it."""
        own = (seed * 1_000_003 + self.number) % 2**64
        return self.step.native(noise=NOISE if self.noisy else 0.0, seed=own, retime=self.retime)


def _portions(tries: list[_Try]) -> Iterator[tuple[int, list[_Try]]]:
    """(grouping, tries) in the order of the plan, as many at once as share a grouping."""
    for begin in range(0, len(tries), AT_ONCE):
        some = tries[begin : begin + AT_ONCE]
        for grouping in dict.fromkeys(one.step.grouping for one in some):
            yield grouping, [one for one in some if one.step.grouping == grouping]
