"""What solvers are and give: Solver, the Budget it may spend, and the Solution with its trail of improvements."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from stead.errors import BadInput, Infeasible
from stead.problem import Placement, Problem

if TYPE_CHECKING:
    from stead.solvers.events import Event
    from stead.solvers.phases import Phase
    from stead.solvers.search_state import Search

StoppedBy = Literal["", "proved", "finished", "evaluations", "time", "interrupted"]  # "": not known
STOPPED_BY: tuple[str, ...] = get_args(StoppedBy)


@dataclass(frozen=True, slots=True)
class Improvement:
    """One moment at which the incumbent or the bound became better."""

    elapsed_seconds: float
    evaluations: int
    objective_seconds: float
    bound_seconds: float = 0.0
    found_by: str = ""


@dataclass(frozen=True, slots=True)
class LearningStep:
    """What one update of a learner says of itself; None where nothing was drawn that runs."""

    update: int
    evaluations: int
    best_seconds: float | None  # of all that it has drawn
    greedy_seconds: float | None
    mean_seconds: float | None  # of what this update drew
    entropy: float  # nats per choice


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a search; it stops at whichever comes first, None is no limit.

    Where evaluations are limited, everything on the way is decided and cut by counts, and the seconds are only the end
    of it all: the same seed gives the same answer on any machine that gets there in time.
    `on_improvement` is called with every Improvement and `on_step` with what is being done, for progress displays;
    `on_search` is given the Search at its beginning: whatever happens to the solver, its incumbent can be asked for.
    `on_event` is called with every Event: better values and bounds as soon as anyone in a portfolio has them.
    `answers` are what other solvers have said before: they are not asked again.
    """

    seconds: float | None = None
    evaluations: int | None = None
    on_improvement: Callable[[Improvement], None] | None = field(default=None, compare=False)
    on_step: Callable[[str], None] | None = field(default=None, compare=False)
    on_search: Callable[[Search], None] | None = field(default=None, compare=False)
    answers: Answers | None = field(default=None, compare=False, repr=False)
    on_event: Callable[[Event], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 <= self.seconds < math.inf:
            raise BadInput(f"a time limit must be a finite number of seconds, got {self.seconds}")
        if self.evaluations is not None and self.evaluations < 1:
            raise BadInput(f"a budget allows at least 1 evaluation, got {self.evaluations}")


@dataclass(frozen=True, slots=True, repr=False)
class Solution:
    """The best placement found and what is known about it."""

    placement: Placement
    objective_seconds: float  # as the simulator scores it
    bound_seconds: float = 0.0  # proved lower bound; 0 when nothing is proved
    bound_name: str = ""
    scope: str = ""  # that the bound holds for, e.g. "contiguous stages"; empty: all without shared stages
    trail: tuple[Improvement, ...] = ()
    solver: str = ""
    found_by: str = ""  # the member of a portfolio that found the placement
    seed: int = 0
    evaluations: int = 0
    elapsed_seconds: float = 0.0
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    stopped_by: StoppedBy = ""  # what ended the search
    phases: tuple[Phase, ...] = field(default=(), compare=False)  # with time and gain; not part of a plan's file
    learning: tuple[LearningStep, ...] = field(default=(), compare=False)  # of a solver that learnt on this problem

    def __repr__(self) -> str:
        by = self.solver if self.found_by in ("", self.solver) else f"{self.solver}, found by {self.found_by}"
        return f"Solution({self.objective_seconds:.6g} s, {self.proof}, {by or 'no solver'})"

    @property
    def proof(self) -> str:
        """What is proved, in two words."""
        return f"gap {100 * self.gap:.1f} %" if self.bound_seconds > 0 else "no bound"

    @property
    def gap(self) -> float:
        """The share of the objective that could at most still be saved; 0 means proved optimal."""
        if self.objective_seconds <= self.bound_seconds:
            return 0.0
        return (self.objective_seconds - self.bound_seconds) / self.objective_seconds

    def with_bound(self, bound_seconds: float, bound_name: str) -> Solution:
        """The same solution with a bound over all placements, if that says more than the one it has.

        Such bounds know nothing of devices that share a stage.
        """
        if bound_seconds <= self.bound_seconds or self.placement.replicas:
            return self
        bound = min(bound_seconds, self.objective_seconds)
        return replace(self, bound_seconds=bound, bound_name=bound_name, scope="")


class Solver(Protocol):
    """Turns a Problem into a Solution within a Budget."""

    @property
    def name(self) -> str:
        """The name it is called by."""

    def unsupported(self, problem: Problem) -> str | None:
        """Why this solver cannot take `problem`, in one sentence; None if it can."""

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Search until done or until `budget` is spent."""


WHOLE = "finished", "proved"  # ends of a search that no limit has cut short


class Answers:
    """Answers by problem, solver and seed; one that a limit cut, or would cut this time, is asked for anew."""

    def __init__(self) -> None:
        # With the evaluations that it took to find the answer, or to find that there is none.
        self._known: dict[tuple[Problem, Solver, int], tuple[Solution | Infeasible, int]] = {}

    def ask(self, solver: Solver, problem: Problem, budget: Budget, seed: int) -> Solution:
        """What the solver answers; that it finds nothing is raised, again if it is known."""
        key = problem, solver, seed
        try:
            answer, evaluations = self._known.get(key, (None, 0))
        except TypeError:  # a solver that cannot be told from others of its kind
            return solver.solve(problem, budget, seed)
        if answer is None or (budget.evaluations is not None and evaluations >= budget.evaluations):
            answer = self._asked(key, budget)
        if isinstance(answer, Infeasible):
            raise answer
        return answer

    def _asked(self, key: tuple[Problem, Solver, int], budget: Budget) -> Solution | Infeasible:
        problem, solver, seed = key
        searches: list[Search] = []
        try:
            found = solver.solve(problem, replace(budget, on_search=searches.append), seed)
        except Infeasible as error:
            if searches and searches[0].stopped_by in WHOLE:
                self._known[key] = error, searches[0].evaluations
            return error.with_traceback(None)
        if found.stopped_by in WHOLE:
            self._known[key] = found, found.evaluations
        return found
