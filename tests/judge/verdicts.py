"""What a solver says about a problem, held against the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from brute import Truth
from problems import ample

from stead.errors import Infeasible, SteadError
from stead.problem import Latency, PlacetoDispatch, Problem, Throughput
from stead.sim import Bound, lower_bounds, simulate
from stead.sim.bounds import bounds_by_classes
from stead.solvers import Budget, Solution, solver
from stead.solvers.registry import REGISTRY

ENGINES = ("cp-sat", "highs")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A solver with options, and the evaluations it gets."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    evaluations: int | None = None

    def solve(self, problem: Problem, seed: int) -> Solution | None:
        """Its answer; None if it says that it does not take the problem."""
        made = solver(self.name, **dict(self.options))
        if made.unsupported(problem) is not None:
            return None
        return made.solve(problem, Budget(evaluations=self.evaluations), seed)


PROVING = (
    Candidate("latency-cp", evaluations=3000),
    Candidate("latency-cp", (("max_steps", 3),), evaluations=3000),
    Candidate("exhaustive"),
    Candidate("exhaustive", evaluations=20),
    Candidate("auto", evaluations=400),
    Candidate("series"),
    Candidate("series", (("max_configurations", 4),)),
    Candidate("mincut"),
    Candidate("mincut", (("engine", "cp-sat"),)),
    Candidate("mincut", (("max_variables", 1),)),
    Candidate("latency-mip"),
    Candidate("latency-mip", (("subgraphs", 2),)),
    Candidate("latency-mip", (("max_steps", 1),)),
    Candidate("ideals"),
    Candidate("ideals", (("merge", "off"),)),
    Candidate("ideals", (("merge", "published"),)),
    Candidate("ideals", (("replicas", 2),)),
    Candidate("ideals", (("max_pairs", 3),)),
    Candidate("prefix-mip"),
    Candidate("prefix-mip", (("engine", "highs"),)),
    *(
        Candidate("throughput-mip", (("anneal_moves", 500), ("contiguity", how), ("engine", engine)))
        for how in ("any", "device")
        for engine in ("best", *ENGINES)
    ),
)
_PROVED = {one.name for one in PROVING}
_OPTIONS: dict[str, tuple[tuple[str, Any], ...]] = {"anneal": (("moves", 2000),), "hierarchical": (("most", 2),)}
OTHERS = tuple(
    Candidate(name, _OPTIONS.get(name, ()), evaluations=300)
    for name, one in REGISTRY.items()
    if name not in _PROVED and one.kind != "learned"
)


def candidates(problem: Problem, seed: int, *, proving: int = 5, others: int = 4) -> list[Candidate]:
    """Some of those that take a problem, others for every seed."""
    draw = Random(seed)
    chosen = []
    for pool, most in ((PROVING, proving), (OTHERS, others)):
        shuffled = draw.sample(pool, len(pool))
        able = [one for one in shuffled if solver(one.name, **dict(one.options)).unsupported(problem) is None]
        chosen += able[:most]
    return chosen


def wrong_bounds(problem: Problem, truth: Truth) -> list[str]:
    """Complaints about bounds that hold whatever the placement."""
    try:
        bounds = [*lower_bounds(problem), *_by_classes(problem)]
    except Infeasible as error:
        return [f"bounds say {error}, but {truth.optimum} s are possible"] if truth.optimum < math.inf else []
    return [
        f"bound {bound.name} of {bound.seconds} s, but {truth.optimum} s are possible"
        for bound in bounds
        if bound.seconds > truth.optimum
    ]


def _by_classes(problem: Problem) -> list[Bound]:
    """What would be said of a cluster that is too large for the other bounds."""
    if isinstance(problem.objective, Latency) and isinstance(problem.objective.policy, PlacetoDispatch):
        return []
    return [replace(bound, name=f"{bound.name} by classes") for bound in bounds_by_classes(problem)]


def wrong_claims(candidate: Candidate, problem: Problem, truth: Truth, seed: int) -> list[str]:
    """Complaints about what one solver says."""
    try:
        solution = candidate.solve(problem, seed)
    except Infeasible as error:
        return _wrong_refusal(candidate, error, truth)
    except SteadError as error:
        return [f"it takes the problem and then says {error}"]
    if solution is None:
        return []
    return [
        *wrong_value(solution, problem, truth),
        *wrong_bound(solution, truth),
        *_missed_optimum(candidate, solution, problem, truth),
    ]


def _wrong_refusal(candidate: Candidate, error: Infeasible, truth: Truth) -> list[str]:
    if error.proved and truth.optimum < math.inf:
        return [f"it calls the problem infeasible, but {truth.optimum} s are possible"]
    everything = candidate.name == "exhaustive" and candidate.evaluations is None
    if everything and truth.by_policy.min(initial=math.inf) < math.inf:
        return ["it tried everything and missed a placement that fits"]
    return []


def wrong_value(solution: Solution, problem: Problem, truth: Truth) -> list[str]:
    """Complaints about a placement and its seconds."""
    trace = simulate(problem, solution.placement)
    found = []
    if not trace.feasible:
        found.append(f"its placement is not feasible: {trace.problems[0]}")
    if trace.objective_seconds != solution.objective_seconds:
        found.append(f"it says {solution.objective_seconds} s, the simulator {trace.objective_seconds} s")
    found += solution.placement.violations()
    if not solution.placement.replicas and solution.objective_seconds < truth.optimum:
        found.append(f"it has {solution.objective_seconds} s, below all runs: {truth.optimum} s")
    return found


def wrong_bound(solution: Solution, truth: Truth) -> list[str]:
    """Complaints about what is proved."""
    possible = truth.best_among(solution.scope)
    if possible is None:
        return [f"nobody knows what {solution.scope!r} means"]
    if solution.bound_seconds > possible:
        among = f" among {solution.scope}" if solution.scope else ""
        return [
            f"bound {solution.bound_name!r} of {solution.bound_seconds} s{among} with {solution.objective_seconds} s "
            f"in hand, but {possible} s are possible"
        ]
    return []


def _missed_optimum(candidate: Candidate, solution: Solution, problem: Problem, truth: Truth) -> list[str]:
    """Solvers that claim to be exact have the optimum where only time could keep them from it."""
    if candidate.options or (candidate.evaluations is not None and candidate.name != "latency-cp"):
        return []
    possible = None
    if candidate.name == "exhaustive":
        possible = float(truth.by_policy.min(initial=math.inf))
    elif ample(problem) and candidate.name in ("latency-cp", "mincut", "throughput-mip"):
        possible = truth.optimum
    elif ample(problem) and candidate.name == "latency-mip":
        possible = truth.best_among("one call per accelerator")
    elif ample(problem) and candidate.name in ("ideals", "prefix-mip") and _exact_loads(problem):
        possible = truth.best_among("contiguous stages")
    if possible is None or solution.objective_seconds <= possible:
        return []
    return [f"it has {solution.objective_seconds} s and claims to be exact, but {possible} s are possible"]


def _exact_loads(problem: Problem) -> bool:
    objective = problem.objective
    assert isinstance(objective, Throughput | Latency)
    return problem.cluster.routing == "host" or len(problem.cluster) <= 2
