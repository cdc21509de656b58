"""The values in a plan file compared with those that the simulator finds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stead.errors import SteadError
from stead.plan.checked_fields import at
from stead.plan.fields import Baseline
from stead.problem import Placement, Problem
from stead.readers.common.checked_values import Wrong
from stead.sim import Trace, simulate, simulate_many
from stead.solvers import Solution


def scored(solution: Solution, *, sealed: bool) -> tuple[Solution, Trace]:
    """The solution with the value that the simulator finds; another one in the file is refused, or told if sealed."""
    trace = _run(solution.placement, "placement" if solution.placement.order is None else "order")
    found, claimed = trace.objective_seconds, solution.objective_seconds
    if not math.isfinite(found):
        raise Wrong(f"placement: cannot run: {'; '.join(str(problem) for problem in trace.problems)}")
    if not sealed and not trace.feasible:
        raise Wrong(f"placement: {'; '.join(str(problem) for problem in trace.problems)}")
    if found == claimed:
        return solution, trace
    if not sealed:
        raise Wrong(f"objective_seconds: the file says {claimed!r}, the simulator finds {found!r}")
    note = f"scored again: the file says {claimed!r} s, this version finds {found!r} s; its bound is left out"
    told = replace(
        solution, objective_seconds=found, bound_seconds=0.0, bound_name="", scope="", notes=(*solution.notes, note)
    )
    return told, trace


def values_of(problem: Problem, baselines: Iterable[Baseline]) -> list[float | None]:
    """What the simulator finds for each rule, None for one without a placement; plain placements in one go."""
    values: list[float | None] = []
    plain: list[tuple[int, NDArray[np.uint8]]] = []
    for number, one in enumerate(baselines):
        placement = one.placement
        if placement is not None and placement.order is None and not placement.replicas:
            plain.append((number, placement.devices))
        values.append(None if placement is None else math.inf)
        if placement is not None and (placement.order is not None or placement.replicas):
            values[-1] = _run(placement, f"baselines[{number}]").objective_seconds
    if plain:
        with at("baselines"):
            scores = simulate_many(problem, np.stack([row for _, row in plain]), memory="off")
        for (number, _), seconds in zip(plain, scores.seconds.tolist(), strict=True):
            values[number] = seconds
    return values


def scored_baseline(one: Baseline, found: float | None, place: str, *, sealed: bool) -> Baseline:
    """The rule with the value that the simulator finds; another one in the file is refused unless sealed."""
    if found == one.objective_seconds or found is None:
        return one
    if not sealed:
        raise Wrong(f"{place}: the file says {one.objective_seconds!r}, the simulator finds {found!r}")
    return replace(one, objective_seconds=found if math.isfinite(found) else None)


def _run(placement: Placement, place: str) -> Trace:
    try:
        return simulate(placement.problem, placement)
    except (SteadError, ValueError, TypeError) as error:
        raise Wrong(f"{place}: cannot be simulated: {error}") from None
