"""`walk`: list scheduling by rules that were learned on made-up problems; the best of a few walks, in milliseconds.

The native walk (core/build/walk.h) is HEFT with a learned say in which operator comes next and which device it takes.
A policy file holds rules and a plan of walks that complete each other; the policy that comes with the package was
trained by `stead train walk` and experiments/walk. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from stead.errors import BadInput
from stead.learn.walk.walk_rules import Grounds, Rules, shipped_rules, shipped_zero
from stead.learn.walk.walk_steps import Planned, Step
from stead.learn.walk.walking import Found, Walking
from stead.problem import Latency, PlacetoDispatch, Problem
from stead.sim import simulate
from stead.solvers.build.list_scheduling import Heft
from stead.solvers.build.schedules import Schedule
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

PRETRAINED = "pretrained"  # the policy that comes with the package
ZERO = "zero"  # nothing learned: list scheduling, with a plan of walks that was chosen for it
ANSWER_WALKS = 32  # about three times the CPU of the heft family
MOST_WALKS = 100_000


@few_devices
@dataclass(frozen=True, slots=True)
class Walk:
    """Best of a few walks by learned rules: which operator comes next, and which device it takes.

    Rules with zero weights are HEFT, and `found_by` says which kind of rule found the placement. Walks beyond the plan
    of the policy repeat it with noise that the seed decides.
    """

    name: ClassVar[str] = "walk"

    policy: str = PRETRAINED  # a file, the policy of the package, or "zero": list scheduling alone
    walks: int = ANSWER_WALKS
    with_heft: bool = False  # whether the heft family is asked first, so that walks may go on from its schedule
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
        if self.policy == ZERO:
            return shipped_zero()
        return shipped_rules() if self.policy == PRETRAINED else Rules.load(Path(self.policy))

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
            plan = rules.plans[grounds.kind]
            known = self._heft(search, grounds, plan) if self.with_heft else ()
            if not search.done or search.current is None:
                told = rules.told
                Walking(search, grounds, rules.weights, plan, told, self.walks, self.threads, known).run()
        return search.solution()

    def _heft(self, search: Search, grounds: Grounds, plan: tuple[Planned, ...]) -> tuple[Found, ...]:
        """The schedule of the heft family, as walks go on from it; none if nothing fits."""
        found = search.try_solver(Heft())
        if found is None or search.done or not len(search.problem.graph):
            return ()
        trace = simulate(search.problem, found.placement)
        search.evaluations += 1
        assert trace.timeline is not None
        order = np.argsort(trace.timeline.start_ticks, kind="stable").astype(np.int32)
        schedule = Schedule(found.placement.devices.astype(np.uint8), order, found.found_by)
        first = next(walk for walk in plan if isinstance(walk, Step))
        step = replace(first, grouping=grounds.coarsest(schedule.devices))
        return (Found(-1, step, schedule, trace.objective_ticks, after=" after heft"),)
