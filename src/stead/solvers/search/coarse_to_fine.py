"""Search on graphs of clusters, from coarse to fine: what `auto` begins its search of large orders with.

Each level has half as many clusters as the one below. On the coarsest one constructions are cheap and one move of a
search changes much; what it finds is handed down as devices and order, beside what constructions find there, and the
search goes on with smaller pieces. The level of single operators is left to the caller.

Where time is too short to build all levels there is one, straight above the operators: on large graphs of a quarter as
many clusters, which takes a third of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stead.coarsen.clustering import cluster_problem
from stead.coarsen.grouping import Grouping
from stead.problem import Problem
from stead.solvers.build.schedules import Schedule, offer_schedule
from stead.solvers.part_budgets import limited_share
from stead.solvers.phases import joined
from stead.solvers.registry import solver
from stead.solvers.search.search import ScheduleSearch, schedule_of
from stead.solvers.search_state import Search

LEVELS = 3
FEWEST = 32  # clusters of the coarsest level
LEAST_FEWER = 0.75  # clusters of a level, as a share of those below; else it is not worth having
CONSTRUCTIONS = "heft", "etf", "cut", "dfs-sticky", "peft", "single"
CONSTRUCTION_SHARE = 0.4  # of the budget of a level
WORTH_SEARCHING = 1.05  # value of constructions at most, over the incumbent of the finest level
HOPELESS = 1.4  # times that value: after the first construction no other is tried
HANDED_DOWN = 3  # schedules per level
ALL_LEVELS_SECONDS = 5e-5  # per operator: half of it builds all levels, the rest searches them
ONE_LEVEL_SECONDS = 2e-5  # per operator: the same for only one
ONE_LEVEL_SHARE = 0.85  # of the time that is left at most, but twice the share given: search on operators gets nowhere
LARGE = 20_000  # operators of which the only level has a quarter, not half


class Ladder:
    """Groupings and the problems of placing groups, each of the problem before; built when first climbed."""

    def __init__(self) -> None:
        self._levels: list[tuple[Grouping, Problem]] | None = None

    def levels(self, search: Search, *, only: bool) -> list[tuple[Grouping, Problem]]:
        """All levels, or where time is up those that there are; with `only` just one unless all are there."""
        if self._levels is not None:
            return self._levels
        if only:
            return list(_ladder(search, 1, 4 if len(search.problem.graph) > LARGE else 2))
        levels = list(_ladder(search, LEVELS, 2))
        if not search.out_of_time:
            self._levels = levels
        return levels


def descend(
    search: Search, ladder: Ladder | None = None, *, share: float, effort: int, part: int = 0
) -> list[Schedule]:
    """Schedules of operators that search on coarser graphs finds, best first; they have been offered.

    It takes a share of what is left of the budget, twice that where time suffices for one level alone, and no more than
    `effort` evaluations, of which one on a graph of clusters counts as the share of operators that it decodes. `part`
    changes what is drawn. Who descends again brings the ladder.
    """
    problem = search.problem
    short = share * search.spare_seconds < ALL_LEVELS_SECONDS * len(problem.graph)
    share = min(ONE_LEVEL_SHARE, 2 * share) if short else share
    if share * search.spare_seconds < ONE_LEVEL_SECONDS * len(problem.graph):
        return []
    budget = search.rest_of_budget(share)
    most = effort if budget.evaluations is None else min(effort, budget.evaluations)
    end = math.inf if budget.seconds is None else search.elapsed_seconds + budget.seconds
    levels = (ladder or Ladder()).levels(search, only=short)
    carried: list[Schedule] = []
    for left in range(len(levels), 0, -1):
        grouping, coarse = levels[left - 1]
        parts = 1 if search.counts else left
        seconds, scale = (end - search.elapsed_seconds) / parts, len(coarse.graph) / len(problem.graph)
        evaluations = int(most / len(levels) / scale)
        if not search.done and seconds > 0 and evaluations > 0:
            limit = replace(
                budget,
                seconds=seconds if math.isfinite(seconds) else None,
                evaluations=evaluations if budget.evaluations else None,
            )
            inner = Search(coarse, limit, solver="levels", seed=search.seed)
            carried = _searched(inner, carried, WORTH_SEARCHING * search.best_seconds, evaluations, part)
            search.evaluations += math.ceil(inner.evaluations * scale)
            search.kinds = joined(search.kinds, inner.kinds)
        carried = [_lifted(grouping, schedule) for schedule in carried[:HANDED_DOWN]]
    for schedule in carried:
        offer_schedule(search, schedule)
    return carried


def _ladder(search: Search, levels: int, fewer: int) -> Iterator[tuple[Grouping, Problem]]:
    """Groupings and the problems of placing groups, each of the problem before with so many times fewer."""
    problem = search.problem
    for _ in range(levels):
        count = len(problem.graph) // fewer
        if count < FEWEST or search.out_of_time:
            return
        grouping = cluster_problem(problem, count)
        grouping = grouping if grouping.is_acyclic else grouping.fused()
        if not 1 < grouping.count <= LEAST_FEWER * len(problem.graph):
            return
        problem = grouping.coarse(problem, merge=True)
        yield grouping, problem


def _searched(
    search: Search, carried: list[Schedule], worth_seconds: float, effort: int, part: int
) -> list[Schedule]:
    """What a search from constructions and from what was handed down finds; nothing if they are too poor for it."""
    for schedule in carried:
        offer_schedule(search, schedule)
    if search.done:
        return carried
    pool = list(carried)
    with limited_share(search, CONSTRUCTION_SHARE):
        for name in CONSTRUCTIONS:
            solution = None if search.done else search.try_solver(solver(name), share=0.5)
            pool += [schedule_of(solution.placement, name)] if solution is not None else []
            if search.best_seconds > HOPELESS * worth_seconds:
                break
    if search.best_seconds > worth_seconds:
        return []
    return ScheduleSearch(effort=effort).improve(search, pool, part=part)


def _lifted(grouping: Grouping, schedule: Schedule) -> Schedule:
    """Devices and order of operators: group by group, within each by number."""
    place = np.empty(len(schedule.order), dtype=np.int64)
    place[schedule.order] = np.arange(len(place))
    order = np.argsort(place[grouping.group], kind="stable").astype(np.int32)
    return Schedule(grouping.lift(schedule.devices), order, "levels")
