"""replan(): devices were lost, added or changed; the best placement, counting what it takes to get there.

Two placements frame the answer: one in which everything stays that can (only what stood on lost devices is placed
anew), and one that is free. Between them parts are moved one by one, from either end, and the placement counts for
which `steps` times the seconds of a step plus the seconds of moving weights are least. So what is moved beyond need
never costs more than it saves over these steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead import clock
from stead.cluster import Cluster
from stead.errors import BadInput, Infeasible
from stead.placing.place import place_problem
from stead.placing.recost import recosted, with_known_names, with_seconds
from stead.placing.start_files import moved_to
from stead.placing.weight_moves import LOADED_AGAIN, Moving, Removal
from stead.plan import Plan, provenance
from stead.problem import Placement, Problem
from stead.report.granularity import Granularity, Levels
from stead.sim import simulate, simulate_many
from stead.sim.bounds import best_bound
from stead.solvers import Budget, Solution

STEPS = 10_000
LOAD_BYTES_PER_SECOND = 2e9  # of weights that no device holds any more
TIME_LIMIT_SECONDS = 30.0
STAY_SHARE, FREE_SHARE = 0.3, 0.4  # of the time, for the two placements that frame the answer
BOUND_SECONDS = 1.0  # for a bound over all placements
MOST_PARTS = 32  # that are moved one by one


@dataclass(frozen=True, slots=True)
class Way:
    """A placement on the new devices with what it takes to get there."""

    placement: Placement
    step_seconds: float
    moving: Moving
    found_by: str  # "stay", "free" or "between"

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "step_seconds": self.step_seconds, "moving_seconds": self.moving.seconds, "moved_bytes": self.moving.bytes,
            "kept_share": self.moving.kept_share, "found_by": self.found_by,
        }  # fmt: skip

    def total_seconds(self, steps: int) -> float:
        """Moving, and then so many steps."""
        return self.moving.seconds + steps * self.step_seconds


@dataclass(frozen=True, slots=True)
class Replanned:
    """The plan for the new devices, and what it was chosen over."""

    plan: Plan
    chosen: Way
    stay: Way | None  # as much as possible stays; None: that does not fit
    free: Way | None  # as if nothing had been loaded; None: nothing was found
    before_seconds: float  # of a step, on the old devices
    steps: int
    keep: float = 0.0

    def as_dict(self) -> dict[str, object]:
        """Plain data: the ways that were weighed, and the moves of the chosen one."""
        names = self.plan.problem.cluster.names
        ways = {"stay": self.stay, "free": self.free, "chosen": self.chosen}
        return {
            "steps": self.steps, "before_seconds": self.before_seconds, "saved_seconds": self.saved_seconds,
            "ways": {name: None if way is None else way.as_dict() for name, way in ways.items()},
            "moves": [
                {
                    "from": None if move.source == LOADED_AGAIN else names[move.source], "to": names[move.target],
                    "bytes": move.bytes, "seconds": move.seconds,
                    "weights": [self.plan.problem.graph.weight_names[w] for w in move.weights],
                }
                for move in self.chosen.moving.moves
            ],
        }  # fmt: skip

    @property
    def saved_seconds(self) -> float:
        """What moving more than need be saves over all steps, moving paid; 0 where nothing is moved beyond need."""
        if self.stay is None:
            return 0.0
        return self.stay.total_seconds(self.steps) - self.chosen.total_seconds(self.steps)


def replan(
    plan: Plan,
    cluster: Cluster,
    *,
    steps: int = STEPS,
    keep: float = 0.0,
    load_bytes_per_second: float = LOAD_BYTES_PER_SECOND,
    time_limit: float | None = TIME_LIMIT_SECONDS,
    evaluations: int | None = None,
    seed: int = 0,
    on_step: Callable[[str], None] | None = None,
) -> Replanned:
    """Place the model of a plan on other devices, so that moving its weights pays within so many steps.

    Devices are the same if they have the same name, or else the same model. At least the share `keep` of the bytes
    that devices which are still there hold stays where it is.
    """
    if steps < 1:
        raise BadInput(f"steps must be at least 1, got {steps}")
    if not 0.0 <= keep <= 1.0:
        raise BadInput(f"keep is a share between 0 and 1, got {keep:g}")
    if not load_bytes_per_second > 0:
        raise BadInput(f"weights are loaded at more than 0 bytes per second, got {load_bytes_per_second:g}")
    asked = _Question(plan, cluster, steps, keep, load_bytes_per_second, Budget(time_limit, evaluations), seed, on_step)
    return asked.answer()


class _Question:
    """One plan and the devices it is to go to."""

    def __init__(
        self, plan: Plan, cluster: Cluster, steps: int, keep: float, rate: float, budget: Budget, seed: int,
        on_step: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        self.plan, self.steps, self.keep, self.budget, self.seed = plan, steps, keep, budget, seed
        self.problem = recosted(plan.problem, with_known_names(plan.problem.cluster, cluster))
        index = {name: d for d, name in enumerate(self.problem.cluster.names)}
        where = np.array([index.get(name, -1) for name in plan.problem.cluster.names], dtype=np.int64)
        self.before: NDArray[np.int64] = where[plan.placement.devices]  # [operator]; -1 where its device is gone
        self.removal = Removal(self.problem, self.before, rate)
        self.began, self._on_step = clock.now(), on_step
        self.solved: dict[str, Plan] = {}  # by what found them

    def answer(self) -> Replanned:
        """The best way."""
        kept = self._staying()
        freed = self._free()
        ends = [way for way in (kept, freed) if way is not None]
        self._say("between the two")
        between = [way for start in ends for goal in ends if start is not goal for way in self._walk(start, goal)]
        ways = [*ends, *between]
        allowed = [way for way in ways if way.moving.kept_share >= self.keep]
        if not allowed:
            raise self._nothing(max((way.moving.kept_share for way in ways), default=None))
        chosen = min(allowed, key=lambda way: (way.total_seconds(self.steps), way.moving.bytes))
        before = self.plan.solution.objective_seconds
        return Replanned(self._planned(chosen), chosen, kept, freed, before, self.steps, self.keep)

    def _nothing(self, most: float | None) -> Infeasible:
        if most is None:
            return Infeasible("nothing was found that fits on these devices; add memory or a device", proved=False)
        return Infeasible(
            f"no placement was found that keeps {self.keep:.0%} of the loaded bytes where they are; the most was "
            f"{most:.1%}: lower --keep",
            proved=False,
        )

    def _staying(self) -> Way | None:
        """Everything stays that can; what cannot is placed anew."""
        self._say("what can stay")
        allowed = self.problem.allowed[np.arange(len(self.before)), np.maximum(self.before, 0)]
        stays = (self.before >= 0) & allowed
        if stays.all():
            return self._way(moved_to(self.plan.placement, self.problem, "the plan"), "stay")
        seconds = np.array(self.problem.costs.seconds)
        fixed = np.flatnonzero(stays)
        there = seconds[fixed, self.before[fixed]]
        seconds[fixed] = math.inf
        seconds[fixed, self.before[fixed]] = there
        try:
            pinned = with_seconds(self.problem, seconds)
        except Infeasible:  # units of which a part may not stay
            return None
        return self._solution(pinned, STAY_SHARE, "stay")

    def _free(self) -> Way | None:
        """The best placement as if nothing had been loaded."""
        self._say("all devices free")
        return self._solution(self.problem, FREE_SHARE, "free")

    def _solution(self, problem: Problem, share: float, name: str) -> Way | None:
        budget = self.budget
        evaluations = None if budget.evaluations is None else max(1, int(share * budget.evaluations))
        seconds = None if budget.seconds is None else share * budget.seconds
        try:
            plan = place_problem(
                problem, budget=Budget(seconds, evaluations), seed=self.seed, granularity=self._granularity
            )
        except Infeasible:
            return None
        self.solved[name] = plan
        placement = plan.placement
        return self._way(Placement(self.problem, placement.devices, placement.order), name)

    @property
    def _granularity(self) -> Granularity:
        """As the plan was made: by blocks where it was."""
        made = Levels.from_dict(self.plan.provenance.get("granularity"))
        return "block" if made is not None and made.level == "block" else "operator"

    def _way(self, placement: Placement, name: str) -> Way | None:
        """A placement as it runs on the new devices; None where it does not fit."""
        trace = simulate(self.problem, placement)
        if not trace.feasible:
            return None
        return Way(placement, trace.objective_seconds, self.removal.to(placement.devices), name)

    def _walk(self, start: Way, goal: Way) -> list[Way]:
        """Placements between two, part by part: every time the part that brings the least total."""
        at = np.array(start.placement.devices)
        parts = self._parts(at, goal.placement.devices)
        passed: list[Way] = []
        while len(parts) > 1 and not self._is_late():
            rows = np.repeat(at[None, :], len(parts), axis=0)
            for row, part in zip(rows, parts, strict=True):
                row[part] = goal.placement.devices[part]
            scores = simulate_many(self.problem, rows)
            ways = [
                Way(Placement(self.problem, row), float(seconds), self.removal.to(row), "between")
                for row, seconds, fits in zip(rows, scores.seconds, scores.feasible, strict=True)
                if fits
            ]
            fitting = np.flatnonzero(scores.feasible).tolist()
            if not ways:
                break
            best = min(range(len(ways)), key=lambda n: ways[n].total_seconds(self.steps))
            passed.append(ways[best])
            at = rows[fitting[best]]
            del parts[fitting[best]]
        return passed

    def _parts(self, start: NDArray[np.uint8], goal: NDArray[np.uint8]) -> list[NDArray[np.int64]]:
        """Operators that differ, whole units and neighbours together, in so many parts at most."""
        units = self.problem.units
        differ = np.unique(units[start != goal])
        return [
            np.flatnonzero(np.isin(units, part))
            for part in np.array_split(differ, min(MOST_PARTS, max(1, differ.size)))
            if part.size
        ]

    def _is_late(self) -> bool:
        limit = self.budget.seconds
        return limit is not None and self.budget.evaluations is None and clock.now() > self.began + limit

    def _planned(self, way: Way) -> Plan:
        """The way as a plan, with a bound over all placements on the new devices and their simple rules."""
        known = self.solved.get("free")
        solution = Solution(
            way.placement, way.step_seconds, solver="replan", found_by=way.found_by, seed=self.seed,
            elapsed_seconds=clock.now() - self.began,
        )  # fmt: skip
        lower = best_bound(self.problem, seconds=BOUND_SECONDS)
        solution = solution.with_bound(lower.seconds, lower.name)
        if known is not None and known.problem.units is self.problem.units and not known.solution.scope:
            solution = solution.with_bound(known.solution.bound_seconds, known.solution.bound_name)
        made = provenance(model=str(self.plan.provenance.get("model", "")), devices="", seed=self.seed)
        rules = () if known is None else known.baselines
        facts = {"steps": self.steps, **way.as_dict()}
        return Plan(self.problem, solution, rules, {**made, "replanned": facts})

    def _say(self, text: str) -> None:
        if self._on_step is not None:
            self._on_step(text)
