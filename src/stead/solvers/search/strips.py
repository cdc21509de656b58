"""Search on strips: for recurrent networks, what shares a weight is cut along time into a few pieces.

An unrolled network has few weights and many steps. Good plans give each device a layer, or some of the steps of one, so
that weights and their gradients stay where they are; single operators and clusters of neighbours do not lead there, as
all steps of a layer would have to move one after another. Here a unit is a piece of a layer, with the backward part,
the updates and what follows it without weights of its own. There are but a few dozen of them, so that a short search
from drawn divisions of the line (layer by layer, each in the order of time) gets far; its best plans are starts for the
search on operators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stead.coarsen.colocation import forward_operators
from stead.graph.components import connected
from stead.problem import Problem
from stead.solvers.build.schedules import Schedule, joined_units, where_allowed
from stead.solvers.part_budgets import limited_share
from stead.solvers.search.search import ScheduleSearch
from stead.solvers.search_state import Search

PIECES = 2, 4, 16  # of the work of a device
LEAST_SHARED = 8  # operators per weight, on average over those that have one, for a network to count as unrolled
DRAWN = 12  # divisions of the line to begin with
EFFORT = 600  # evaluations for each number of pieces
HANDED_ON = 3


@dataclass(frozen=True, slots=True, eq=False)
class Strips:
    """Units that are pieces of layers, and the layer of each."""

    unit_of: NDArray[np.int32]  # [operator]
    layer: NDArray[np.int64]  # [unit]
    work: NDArray[np.float64]  # [unit, device]; seconds, inf where it cannot run


def search_strips(
    search: Search, layer: NDArray[np.int64] | None, known: list[Schedule], *, share: float
) -> list[Schedule]:
    """Schedules that a search on pieces of layers finds, best first; they have been offered.

    It takes a share of what is left of the budget; the first of what is `known` gives the order to begin with.
    """
    if layer is None or not known:
        return []
    found: list[Schedule] = []
    with limited_share(search, share):
        for number, pieces in enumerate(PIECES):
            if search.done:
                break
            strips = cut(search.problem, layer, pieces)
            rng = np.random.default_rng((search.seed, number, 3))
            wanted = [one.devices[_firsts(strips)] for one in found] + [_divided(strips, rng) for _ in range(DRAWN)]
            rows = [where_allowed(search.problem, one, strips.unit_of) for one in wanted]
            pool = [replace(known[0], devices=row, name="strips") for row in rows]
            with limited_share(search, 1 / (len(PIECES) - number)):
                better = ScheduleSearch(effort=EFFORT).improve(search, pool, units=strips.unit_of)
            ranked = sorted([*better, *found], key=lambda schedule: schedule.seconds)
            found = ranked[:HANDED_ON]
    return found


def layers(problem: Problem) -> NDArray[np.int64] | None:  # [operator]
    """A number for each set of weights that are used together; None where weights are not shared by many operators.

    What has no weight belongs to where its largest input comes from, backward parts and updates to what they belong to.
    """
    graph = problem.graph
    forward = forward_operators(graph)
    users = np.diff(graph.weight_user_first)
    if not users.any():
        return None
    first = np.repeat(graph.weight_users[graph.weight_user_first[:-1][users > 0]], users[users > 0])
    owner = connected(len(graph), first.astype(np.int64), graph.weight_users.astype(np.int64))
    has_weight = np.zeros(len(graph), dtype=bool)
    has_weight[graph.weight_users] = True
    own = has_weight & (forward == np.arange(len(graph)))
    if own.sum() < LEAST_SHARED * len(np.unique(owner[own])):
        return None
    layer = np.where(own, owner, -1)
    largest = np.full(len(graph), -1, dtype=np.int64)
    by_reader = np.argsort(graph.readers, kind="stable")  # whose producers come before them
    tensor, reader = graph.tensor_of_read[by_reader], graph.readers[by_reader]
    edges = zip(
        graph.tensor_producer[tensor].tolist(), reader.tolist(), graph.tensor_bytes[tensor].tolist(), strict=True
    )
    for source, target, size in edges:
        if not own[target] and layer[source] >= 0 and size > largest[target]:
            layer[target], largest[target] = layer[source], size
    return np.unique(layer[forward], return_inverse=True)[1].astype(np.int64)


def cut(problem: Problem, layer: NDArray[np.int64], pieces: int) -> Strips:
    """Layers cut along time, so that a device has the work of about so many pieces."""
    forward, seconds = forward_operators(problem.graph), problem.costs.seconds
    can_run = np.isfinite(seconds)
    mean = np.where(can_run, seconds, 0.0).sum(axis=1) / np.maximum(1, can_run.sum(axis=1))
    work = np.bincount(forward, weights=mean, minlength=len(layer))  # of forward operators with all that follows them
    largest = work.sum() / (pieces * len(problem.cluster))
    piece = np.zeros(len(layer), dtype=np.int64)
    for one in range(int(layer.max()) + 1):
        members = np.flatnonzero((layer == one) & (forward == np.arange(len(layer))))
        ends = np.cumsum(work[members])
        if len(members) and ends[-1] > 0:
            count = max(1, round(ends[-1] / largest))
            piece[members] = np.minimum(count - 1, (ends - work[members]) * count / ends[-1])
    piece = piece[forward]
    _, first, label = np.unique(layer * (int(piece.max()) + 1) + piece, return_index=True, return_inverse=True)
    unit_of = joined_units(problem, np.arange(len(layer)), first[label])
    units = int(unit_of.max()) + 1
    of_unit = np.zeros((units, len(problem.cluster)))
    np.add.at(of_unit, unit_of, seconds)
    layer_of = np.zeros(units, dtype=np.int64)
    layer_of[unit_of] = layer
    return Strips(unit_of, layer_of, of_unit)


def _divided(strips: Strips, rng: np.random.Generator) -> NDArray[np.uint8]:  # [unit]
    """A device for each piece: the line of pieces, layers in an order that is drawn, is dealt out device by device."""
    units, devices = strips.work.shape
    place = rng.permutation(int(strips.layer.max()) + 1)
    line = np.lexsort((np.arange(units), place[strips.layer]))
    finite = np.where(np.isfinite(strips.work), strips.work, strips.work[np.isfinite(strips.work)].max(initial=0.0))
    speed = 1.0 / np.maximum(finite.sum(axis=0), 1e-30)
    order = rng.permutation(devices)
    share = np.cumsum(speed[order]) / speed.sum()
    mean = finite.mean(axis=1)[line]
    middle = (np.cumsum(mean) - mean / 2) / max(mean.sum(), 1e-30)
    chosen = np.empty(units, dtype=np.uint8)
    chosen[line] = order[np.minimum(devices - 1, np.searchsorted(share, middle))]
    return chosen


def _firsts(strips: Strips) -> NDArray[np.int64]:  # [unit]
    """The first operator of each unit."""
    return np.unique(strips.unit_of, return_index=True)[1]
