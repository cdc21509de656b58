"""A problem to learn from: what is known of it beforehand, its groups, judge and reward, and what is remembered."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.errors import Infeasible
from stead.learn.ground.equal_devices import device_classes
from stead.learn.ground.reward import Evaluator, Reward, Scorer, ScorerNumbers
from stead.learn.ground.tensor_file import Arrays
from stead.problem import Problem
from stead.sim.bounds import best_bound
from stead.solvers.registry import solver
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

MOST_ELITES = 32
REFERENCES = ("single", "expert")  # the best of them is what rewards are relative to
Inputs = TypeVar("Inputs", covariant=True)  # what its network reads


class TaskNumbers(ScorerNumbers):
    """What is remembered of a task in numbers, for a checkpoint."""

    average: float | None
    greedy_seconds: float
    greedy_devices: int


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What is known about a problem before anything is learnt."""

    known: dict[str, float]  # seconds of the baselines that fit
    best: NDArray[np.uint8] | None  # [operator]; the best placement of them
    best_by: str = ""  # which of them that is
    evaluations: int = 0  # simulations that it took and nobody has counted yet
    measurements: int = 0  # the same, where placements are measured
    limit: int | None = None  # evaluations that a learner may make, what comes before learning included; None: any

    @staticmethod
    def of(problem: Problem, evaluate: Evaluator | None = None) -> Start:
        """Solve the baselines that rewards are relative to; `evaluate` times them instead of the simulator."""
        found: dict[str, float] = {}
        best: NDArray[np.uint8] | None = None
        best_by, evaluations, measurements = "", 0, 0
        for name in REFERENCES:
            solution, spent = constructed(problem, name, Budget())
            evaluations += spent
            if solution is None:
                continue
            seconds = solution.objective_seconds
            if evaluate is not None:
                seconds, measurements = float(evaluate(solution.placement.devices[None, :])[0]), measurements + 1
                if not math.isfinite(seconds):
                    continue
            if best is None or seconds < min(found.values()):
                best, best_by = solution.placement.devices, name
            found[name] = seconds
        return Start(found, best, best_by, evaluations, measurements)

    def reference_seconds(self, problem: Problem) -> float:
        """The best of them; where none fits, the slowest single device without a memory limit."""
        return max(min(self.known.values(), default=slowest_single(problem) or 1.0), 1e-12)


def constructed(problem: Problem, name: str, budget: Budget) -> tuple[Solution | None, int]:
    """(what a solver finds, simulations that it took); None where it does not apply or nothing of it fits."""
    found, evaluations = attempted(problem, name, budget)
    return (found if isinstance(found, Solution) else None), evaluations


def attempted(problem: Problem, name: str, budget: Budget) -> tuple[Solution | Infeasible | None, int]:
    """(what a solver finds or why nothing of it fits, simulations that it took); None where it does not apply.

    What fails has been simulated as well: it is counted by the search that a budget shows.
    """
    made, searches = solver(name), list[Search]()
    if made.unsupported(problem) is not None:
        return None, 0
    try:
        found = made.solve(problem, replace(budget, on_search=searches.append), 0)
    except Infeasible as error:
        return error, searches[0].evaluations if searches else 0
    return found, found.evaluations


def slowest_single(problem: Problem) -> float:
    """Seconds of the slowest device that can run everything, one operator after the other; 0 if none can."""
    seconds = problem.costs.seconds.sum(axis=0)
    return float(seconds[np.isfinite(seconds)].max(initial=0.0))


class Elites:
    """The best different choices ever scored; read within a band above the best."""

    def __init__(self, most: int = MOST_ELITES) -> None:
        self.most = most
        self.rows: list[NDArray[np.int64]] = []  # [choice]
        self.seconds: list[float] = []

    def offer(self, rows: NDArray[np.int64], seconds: NDArray[np.float64]) -> None:
        """Remember feasible rows that are among the best."""
        known = {row.tobytes() for row in self.rows}
        for row, value in zip(rows, seconds.tolist(), strict=True):
            if math.isfinite(value) and row.tobytes() not in known:
                known.add(row.tobytes())
                self.rows.append(row.copy())
                self.seconds.append(value)
        order = sorted(range(len(self.rows)), key=lambda i: self.seconds[i])[
            : self.most
        ]  # stable: old ones first
        self.rows, self.seconds = [self.rows[i] for i in order], [self.seconds[i] for i in order]

    def within(self, band: float) -> NDArray[np.int64]:  # [elite, choice]
        """Elites at most that share slower than the best."""
        if not self.rows:
            return np.zeros((0, 0), dtype=np.int64)
        count = sum(value <= self.seconds[0] * (1 + band) for value in self.seconds)
        return np.stack(self.rows[:count])


@dataclass(slots=True, eq=False)
class Task(Generic[Inputs]):
    """One grouped problem, with all that is remembered about it."""

    grouping: Grouping
    inputs: Inputs
    scorer: Scorer
    reward: Reward
    start: Start
    target: NDArray[np.int64] | None = None  # [choice]; for imitation, equal devices named by first use
    copied: str = ""  # the construction that the target is
    average: float | None = None  # the moving average of rewards
    notes: tuple[str, ...] = ()  # what a reader of the result should know
    elites: Elites = field(default_factory=Elites)
    greedy_seconds: float = math.inf  # of the last greedy placement
    greedy_devices: int = 0  # that it uses
    name: str = ""
    classes: NDArray[np.int64] = field(init=False)  # [device]
    bound_seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.name or self.problem.graph.name
        self.classes = device_classes(self.problem)
        self.scorer.charge(self.start.evaluations)
        self.scorer.evaluations += self.start.measurements
        self.bound_seconds = best_bound(self.problem).seconds

    @property
    def problem(self) -> Problem:
        """What is placed."""
        return self.scorer.problem

    @property
    def known(self) -> dict[str, float]:
        """Seconds of baselines."""
        return self.start.known

    @property
    def best_known_seconds(self) -> float:
        """Of anything scored so far, baselines included."""
        found = self.scorer.incumbent
        return min([math.inf if found is None else found.seconds, *self.known.values()])

    def state(self) -> tuple[Arrays, TaskNumbers]:
        """(arrays, numbers) from which `restore` goes on as if nothing had happened."""
        arrays, numbers = self.scorer.state()
        rows = self.elites.rows
        kept: Arrays = {
            **arrays,
            "elites": np.stack(rows) if rows else np.zeros((0, 0), dtype=np.int64),
            "elite_seconds": np.array(self.elites.seconds, dtype=np.float64),
        }
        return kept, {
            **numbers,
            "average": self.average,
            "greedy_seconds": self.greedy_seconds,
            "greedy_devices": self.greedy_devices,
        }

    def restore(self, arrays: Arrays, numbers: TaskNumbers) -> None:
        """Take over what `state` gave."""
        self.scorer.restore(arrays, numbers)
        self.elites.rows = list(arrays["elites"].astype(np.int64))
        self.elites.seconds = arrays["elite_seconds"].astype(np.float64).tolist()
        self.average, self.greedy_seconds = numbers["average"], numbers["greedy_seconds"]
        self.greedy_devices = numbers["greedy_devices"]
