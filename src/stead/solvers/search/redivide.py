"""Improve a balanced placement by dividing anew what two devices share, by an integer program.

Annealing moves a few units at a time; a program for the busiest device and one other finds the best of all ways to
divide what both hold, in a fraction of a second, since nearly all variables are fixed. Where no partner helps, three
devices are taken. Every step lowers the largest load or takes one device from those that have it.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stead.costs import Costs
from stead.problem import Placement, Problem
from stead.sim import simulate
from stead.solvers.exact.throughput_mip import ThroughputMip
from stead.solvers.part_budgets import limited
from stead.solvers.search_state import Search

STEP_SECONDS = 1.0  # for the division of two devices; three times that for three
MOST_DEVICES = 3


def redivide(search: Search) -> None:
    """Divide the load of the busiest device anew while that helps and the budget of the search lasts."""
    size = 2
    while size <= min(MOST_DEVICES, len(search.problem.cluster)) and not search.done:
        size = 2 if any(_improved(search, chosen) for chosen in _choices(search, size)) else size + 1


def _choices(search: Search, size: int) -> list[tuple[int, ...]]:
    """The busiest device with others, those with the least load first."""
    if search.best is None:
        return []
    trace = simulate(search.problem, Placement(search.problem, search.best))
    first, *others = np.argsort(-trace.busy_seconds, kind="stable").tolist()
    return [(first, *rest) for rest in combinations(others[::-1], size - 1)]


def _improved(search: Search, chosen: tuple[int, ...]) -> bool:
    """Whether the best division of what some devices hold is better than the incumbent, which it then is."""
    before, devices = search.best_seconds, search.best
    seconds = STEP_SECONDS * 3 ** (len(chosen) - 2)
    if search.done or devices is None or min(search.effort, search.spare_seconds) < STEP_SECONDS:
        return False
    inner = Search(
        _restricted(search.problem, devices, chosen), search.rest_of_budget(), solver="redivide", seed=search.seed
    )
    with limited(inner, seconds=min(seconds, search.effort)):
        inner.offer(devices)
        ThroughputMip(contiguity="any", engine="highs").improve(inner)
    search.effort -= min(seconds, search.effort)
    search.evaluations += inner.evaluations
    if inner.best is not None and inner.best_seconds < before:
        search.offer(inner.best, found_by="redivide")
    return search.best_seconds < before


def _restricted(problem: Problem, devices: NDArray[np.uint8], chosen: tuple[int, ...]) -> Problem:
    """The problem in which only what is on the chosen devices may change, and only among them."""
    here = np.arange(len(problem.cluster))
    free = np.isin(devices, chosen)[:, None] & np.isin(here, chosen)[None, :]
    seconds = np.where(free | (devices[:, None] == here[None, :]), problem.costs.seconds, np.inf)
    costs = Costs(
        problem.graph,
        problem.cluster,
        seconds,
        workspace_bytes=problem.costs.workspace_bytes,
        tensor_seconds=problem.costs.tensor_seconds,
    )
    return Problem(
        problem.graph, problem.cluster, costs, objective=problem.objective, constraints=problem.constraints
    )
