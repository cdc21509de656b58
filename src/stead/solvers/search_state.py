"""What every anytime solver needs: a Search that scores placements, keeps the best, and knows when to stop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead import clock
from stead.cluster.classes import DeviceIndices, device_type
from stead.errors import Infeasible
from stead.problem import Order, Placement, Problem
from stead.sim import Scores, Shortfall, best_bound, simulate, simulate_many
from stead.solvers.events import Event, Incumbent
from stead.solvers.phases import Kinds, Phase
from stead.solvers.solution import Answers, Budget, Improvement, LearningStep, Solution, Solver, StoppedBy

BOUND_SHARE = 0.1  # of a time limit, for bounds
MANY_OPERATORS = 2000  # beyond, the first placement is scored alone to see how long that takes
BATCH_SECONDS = 0.2  # that placements are scored at a time before the clock is asked again
Replicas = tuple[tuple[int, ...], ...]  # groups of devices that share a stage, the one with operators first


class Search:
    """The incumbent of one solve: scores placements, keeps the best, counts, and knows when to stop."""

    def __init__(
        self, problem: Problem, budget: Budget, *, solver: str, seed: int = 0, scope: str = ""
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.solver = solver
        self.seed = seed
        self.scope = scope  # the placements among which bounds hold; empty: all
        self.best: DeviceIndices | None = None
        self.best_order: Order | None = None
        self.best_replicas: Replicas = ()
        self.best_seconds = math.inf
        self.found_by = ""
        self.bound_seconds = 0.0
        self.bound_name = ""
        self.evaluations = 0
        self.interrupted = False
        self.notes: list[str] = []
        self.phases: tuple[Phase, ...] = ()
        self.kinds: Kinds = ()  # of moves of local search, so far
        self.learning: list[LearningStep] = []
        self.answers = Answers() if budget.answers is None else budget.answers
        self._trail: list[Improvement] = []
        self.counts = budget.evaluations is not None  # then the clock decides nothing but the end
        self.effort = math.inf  # seconds of work for engines that count their work, where the budget counts too
        self._started = clock.now()
        self._late = False  # a time limit has cut something
        self._device_type = device_type(len(problem.cluster))
        self._seconds_per_row = 0.0  # of the last placements that were scored
        self._least_bad: tuple[int, DeviceIndices] | None = None  # bytes over all limits, placement
        self._told = Event("improvement", scope=scope)  # what who watches knows
        if budget.on_search is not None:
            budget.on_search(self)

    @property
    def current(self) -> DeviceIndices | None:  # [operator]
        """The incumbent, or while there is none the placement that misses memory by the least."""
        if self.best is not None:
            return self.best
        return self._least_bad[1] if self._least_bad is not None else None

    @property
    def score(self) -> tuple[float, float]:
        """What a search lowers: (bytes over the limits, seconds), compared in this order."""
        if self.best is not None:
            return 0.0, self.best_seconds
        return (float(self._least_bad[0]) if self._least_bad is not None else math.inf), math.inf

    @property
    def gap(self) -> float:
        """The share of the incumbent that could at most still be saved; 1 without an incumbent."""
        if self.best is None or self.best_seconds <= 0:
            return 0.0 if self.best is not None else 1.0
        return max(0.0, 1 - self.bound_seconds / self.best_seconds)

    @property
    def elapsed_seconds(self) -> float:
        """Wall time since the search began."""
        return clock.now() - self._started

    @property
    def remaining_seconds(self) -> float:
        """Seconds left; inf for no limit. What may be done in them is a matter of `spare_seconds`."""
        limit = self.budget.seconds
        return math.inf if limit is None else max(0.0, limit - self.elapsed_seconds)

    @property
    def spare_seconds(self) -> float:
        """Seconds to plan with; inf where evaluations are counted, so that no plan depends on the clock."""
        return math.inf if self.counts else self.remaining_seconds

    @property
    def remaining_evaluations(self) -> int | None:
        """Evaluations left; None for no limit."""
        limit = self.budget.evaluations
        return None if limit is None else max(0, limit - self.evaluations)

    @property
    def done(self) -> bool:
        """Whether the budget is spent, the user interrupted, or the incumbent is proved optimal."""
        budget = self.budget
        return (
            self.interrupted
            or self.best_seconds <= self.bound_seconds
            or (budget.evaluations is not None and self.evaluations >= budget.evaluations)
            or self.out_of_time
        )

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit has been reached."""
        limit = self.budget.seconds
        if limit is None or self.elapsed_seconds < limit:
            return False
        self._late = True
        return True

    def lacks_time(self, seconds: float) -> bool:
        """Whether less time is left than something takes that cannot be stopped: then the time limit cuts it."""
        lacks = self.remaining_seconds < seconds
        self._late |= lacks
        return lacks

    def doing(self, what: str) -> None:
        """Tell who watches what comes next."""
        if self.budget.on_step is not None:
            self.budget.on_step(what)

    def rest_of_budget(self, share: float = 1.0) -> Budget:
        """A share of what is left of the budget, for another solver; of the time all, where evaluations count."""
        evaluations = self.remaining_evaluations
        seconds = None if self.budget.seconds is None else self.remaining_seconds
        return Budget(
            seconds=seconds if seconds is None or self.counts else share * seconds,
            evaluations=None if evaluations is None else max(1, int(share * evaluations)),
            answers=self.answers,
        )

    def offer(self, devices: ArrayLike, *, order: Order | None = None, found_by: str = "") -> float:
        """Score one placement, keep it if it is the best; its seconds, or inf if it is infeasible or too late."""
        row = Placement(self.problem, devices, order).devices
        scored = self.offer_many(row[None, :], order=order, found_by=found_by)
        return float(scored[0]) if len(scored) else math.inf

    def offer_replicas(self, devices: ArrayLike, replicas: Replicas, *, found_by: str = "") -> float:
        """Score one placement whose stages several devices share; its seconds, or inf."""
        if self.remaining_evaluations == 0:
            return math.inf
        placement = Placement(self.problem, devices, replicas=replicas)
        trace = simulate(self.problem, placement)
        self.evaluations += 1
        if not trace.feasible:
            return math.inf
        if trace.objective_seconds < self.best_seconds:
            self.best, self.best_seconds = placement.devices.copy(), trace.objective_seconds
            self.best_order, self.best_replicas = None, placement.replicas
            self.found_by = found_by or self.solver
            self._note_improvement()
        return trace.objective_seconds

    def offer_many(
        self, rows: DeviceIndices, *, order: Order | None = None, found_by: str = ""
    ) -> NDArray[np.float64]:  # [row]
        """Score placements, all in the given order, keep the best feasible one; seconds, inf where infeasible."""
        allowed = self.remaining_evaluations
        if allowed is not None:
            rows = rows[:allowed]
        portions = [
            self._score(rows[begin : begin + count], order, found_by) for begin, count in self._portions(len(rows))
        ]
        return np.concatenate([np.zeros(0), *portions])

    def _portions(self, rows: int) -> Iterator[tuple[int, int]]:
        """(first, count) of rows to score at a time: as many as take a moment, until all are done or time is up."""
        begin = 0
        while begin < rows and (begin == 0 or not self.out_of_time):
            slow = self.budget.seconds is not None and self._seconds_per_row > 0
            count = max(1, int(BATCH_SECONDS / self._seconds_per_row)) if slow else rows
            if self.budget.seconds is not None and not slow and len(self.problem.graph) > MANY_OPERATORS:
                count = 1
            count, since = min(count, rows - begin), clock.now()
            yield begin, count
            self._seconds_per_row = max(0.0, clock.now() - since) / count
            begin += count

    def _score(
        self, rows: DeviceIndices, order: Order | None, found_by: str
    ) -> NDArray[np.float64]:  # [row]
        scores = simulate_many(self.problem, np.ascontiguousarray(rows, dtype=self._device_type), policy=order)
        self.evaluations += len(rows)
        seconds = np.where(scores.feasible, scores.seconds, np.inf)
        winner = int(np.argmin(seconds))
        if seconds[winner] < self.best_seconds:
            self.best, self.best_seconds = rows[winner].copy(), float(seconds[winner])
            self.best_order, self.best_replicas = order, ()
            self.found_by = found_by or self.solver
            self._note_improvement()
        if self.best is None:
            self._remember_least_bad(rows, scores)
        return seconds

    def try_solver(self, member: Solver, *, share: float = 1.0) -> Solution | None:
        """Let another solver use a share of what is left of the budget; that it finds nothing is only noted."""
        if member.unsupported(self.problem) is not None:
            return None
        try:
            hears = None if self.budget.on_event is None else self._hear
            budget = replace(self.rest_of_budget(share), on_event=hears)
            solution = self.answers.ask(member, self.problem, budget, self.seed)
            self.adopt(solution)
            return solution
        except Infeasible as error:
            self.notes.append(f"{member.name}: {error}")
            if error.placement is not None:
                self.offer(error.placement, found_by=member.name)
            return None

    def adopt(self, solution: Solution) -> None:
        """Take over what another solver found, and what it proved unless that holds for fewer placements."""
        self.evaluations += solution.evaluations
        self.interrupted |= solution.interrupted
        self._late |= self.counts and solution.stopped_by == "time"
        if solution.scope in ("", self.scope):
            self.raise_bound(solution.bound_seconds, solution.bound_name)
        if solution.objective_seconds < self.best_seconds:
            self.best = solution.placement.devices.copy()
            self.best_order, self.best_replicas = solution.placement.order, solution.placement.replicas
            self.best_seconds = solution.objective_seconds
            self.found_by = solution.found_by or solution.solver
            self._note_improvement()

    def raise_bound(self, seconds: float, name: str) -> None:
        """Remember a proved lower bound if it is better than the one known."""
        if seconds > self.bound_seconds:
            self.bound_seconds, self.bound_name = seconds, name
            if self.best is not None:
                self._note_improvement()
            else:
                self._tell()

    def relax(self) -> None:
        """Raise the bound to the best one that holds whatever the placement, with a small share of the time."""
        self.doing("bounds")
        limit = self.budget.seconds
        share = math.inf if limit is None or self.counts else BOUND_SHARE * limit
        bound = best_bound(self.problem, seconds=share, within=self.remaining_seconds)
        self.raise_bound(bound.seconds, bound.name)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C end the enclosed work without losing the incumbent; without one it ends the program."""
        try:
            yield
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.interrupted = True

    def solution(self) -> Solution:
        """The incumbent with everything known about it; Infeasible if there is none.

        An interrupt at this very moment is heard, too, and loses nothing.
        """
        with self.interruptible():
            return self._solution()
        return self._solution()

    def _solution(self) -> Solution:
        if self.best is None:
            raise self._infeasible()
        placement = Placement(self.problem, self.best, self.best_order, self.best_replicas)
        return Solution(
            placement=placement,
            objective_seconds=self.best_seconds,
            bound_seconds=min(self.bound_seconds, self.best_seconds),
            bound_name=self.bound_name,
            scope=self.scope,
            trail=tuple(self._trail),
            solver=self.solver,
            found_by=self.found_by,
            seed=self.seed,
            evaluations=self.evaluations,
            elapsed_seconds=self.elapsed_seconds,
            interrupted=self.interrupted,
            notes=tuple(self.notes),
            stopped_by=self.stopped_by,
            phases=self.phases,
            learning=tuple(self.learning),
        )

    @property
    def stopped_by(self) -> StoppedBy:
        """What has ended the search, or would if it ended now."""
        if self.interrupted:
            return "interrupted"
        if self.best_seconds <= self.bound_seconds:
            return "proved"
        if self.out_of_time or self._late:
            return "time"
        return "evaluations" if self.remaining_evaluations == 0 else "finished"

    def _note_improvement(self) -> None:
        step = Improvement(
            self.elapsed_seconds, self.evaluations, self.best_seconds, self.bound_seconds, self.found_by
        )
        self._trail.append(step)
        if self.budget.on_improvement is not None:
            self.budget.on_improvement(step)
        self._tell()

    def _tell(self) -> None:
        """Let who watches know where the search stands."""
        if self.budget.on_event is None:
            return
        best = None if self.best is None else Incumbent(self.best, self.best_order, self.best_replicas)
        self._hand_on(
            Event(
                "improvement",
                self.evaluations,
                self.best_seconds,
                self.bound_seconds,
                self.bound_name,
                self.scope,
                self.found_by,
                incumbent=best,
            )
        )

    def _hear(self, told: Event) -> None:
        """Hand on what another solver says of this problem while it works; its answer is adopted when it ends."""
        if told.kind != "baseline":
            self._hand_on(replace(told, evaluations=self.evaluations + told.evaluations))

    def _hand_on(self, event: Event) -> None:
        joined = self._told.joined(event)
        if joined is not None and self.budget.on_event is not None:
            self._told = joined
            self.budget.on_event(joined)

    def _remember_least_bad(self, rows: DeviceIndices, scores: Scores) -> None:
        """Keep the placement that misses memory by the least, to say what is missing."""
        missing = np.where(scores.status == 1, scores.over_bytes.sum(axis=1), np.iinfo(np.int64).max)
        least = int(np.argmin(missing))
        if self._least_bad is None or missing[least] < self._least_bad[0]:
            self._least_bad = int(missing[least]), rows[least].copy()

    def _infeasible(self) -> Infeasible:
        if self._least_bad is None:
            late = " within the time limit" if self.stopped_by == "time" else ""
            return Infeasible(f"{self.solver} found no placement{late}")
        trace = simulate(self.problem, Placement(self.problem, self._least_bad[1]))
        short = {
            problem.device: problem.bytes_over for problem in trace.problems if isinstance(problem, Shortfall)
        }
        reasons = "; ".join(str(problem) for problem in trace.problems)
        return Infeasible(
            f"{self.solver} found no placement that works: {reasons}",
            short_bytes=short,
            placement=self._least_bad[1],
        )


def reraise(raised: object) -> None:
    """Raise what a signal handler raised while the core was searching, now that what it found is safe."""
    if isinstance(raised, BaseException):
        raise raised
