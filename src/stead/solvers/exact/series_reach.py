"""How far `series` can get on a problem at most, found out before it is run.

Its bound is the least sum over a chain of blocks, whatever the devices of their operators; so any one way through the
chain whose weights fit limits it from above. Here the way is to put every block on one device as a whole and to stay
there as long as there is room. That takes a fraction of the time of the tables that `series` makes of all ways.
"""

from __future__ import annotations

import math

import numpy as np

from stead.problem import Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.bounds import heaviest_path, least_seconds
from stead.solvers.exact.series import Series
from stead.solvers.exact.series_blocks import NEVER, NOWHERE, Block, Tables, blocks

WORTH_PLACING = 0.5  # operators in blocks, as a share of all, from which on its plans are worth having, too


def series_in_vain(problem: Problem, bound_seconds: float) -> str:
    """Why `series` could neither raise a bound nor place most operators; empty where it may.

    A graph that is no chain leaves few operators in blocks, and what it places by them is seldom any good.
    """
    if Series().unsupported(problem) is not None or not len(problem.graph):
        return ""
    path = heaviest_path(problem, least_seconds(problem))
    tables, most = Tables(problem), bound_seconds * TICKS_PER_SECOND
    for thinned in (False, True):
        chain = blocks(problem, path, Series().max_configurations, thinned=thinned)
        if sum(len(block.operators) for block in chain) >= WORTH_PLACING * len(problem.graph):
            return ""
        if _reach_ticks(problem, tables, chain, most) > most:
            return ""
    return "blocks of its chain cannot raise the bound"


def _reach_ticks(problem: Problem, tables: Tables, chain: list[Block], most: float) -> float:
    """Ticks of one way through a chain; inf where it finds none that fits, or none up to `most`."""
    room = np.array([device.usable_bytes for device in problem.cluster], dtype=np.int64)
    if int(tables.weights.sum()) > int(room.sum()):
        return math.inf
    held, running = np.zeros_like(room), np.zeros_like(room)
    everywhere = np.arange(len(room), dtype=np.uint8)
    here, total = NOWHERE, 0
    for block in chain:
        operators = list(block.operators)
        weight = int(tables.weights[operators].sum())
        beside = np.maximum(running, tables.running[operators].max(axis=0))
        may = problem.allowed[operators].all(axis=0) & (held + weight + beside <= room)
        if block.head >= 0 and problem.units[block.head] in problem.units[operators]:
            may &= everywhere == here  # it is kept together with what comes before
        whole = np.repeat(everywhere[:, None], len(operators), axis=1)
        took = np.where(may, tables.least_ticks(block, whole, here), NEVER)
        following = int(took.argmin())
        total += int(took[following])
        if total > most:
            return math.inf
        held[following] += weight
        running[following] = beside[following]
        here = following if block.end >= 0 else NOWHERE
    return total
