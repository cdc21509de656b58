"""Where integer programs start: quick placements that are contiguous in the sense asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.errors import Infeasible
from stead.graph.arrays import distinct_pairs
from stead.graph.components import topological_numbers
from stead.solvers.exact.ideals import cut_orders
from stead.solvers.exact.reduction import Reduced
from stead.solvers.search_state import Search

ANNEALING_SHARE = 0.4  # of a budget
DRAWN = 10  # random orders to cut, besides the usual ones


def start_in_stages(search: Search, reduced: Reduced) -> None:
    """Begin with the best cut of several orders of the reduced problem."""
    search.relax()
    cut_orders(search, reduced, seed=search.seed, drawn=DRAWN)


def start_anywhere(search: Search, moves: int) -> None:
    """Begin with what annealing makes of contiguous stages in so many moves, and in part of the budget."""
    from stead.solvers.search.anneal import Anneal

    search.relax()
    share = search.rest_of_budget(ANNEALING_SHARE)
    try:
        search.adopt(Anneal(moves=moves, threads=1).solve(search.problem, share, search.seed))
    except Infeasible as error:
        if error.placement is not None:
            search.offer(error.placement, found_by="anneal")


def stages_of(
    reduced: Reduced, device_of_node: NDArray[np.uint8]
) -> tuple[NDArray[np.int32], list[int]] | None:
    """The stage of every supernode and the kind of every stage; None if stages wait for each other in a circle."""
    used, stage = np.unique(device_of_node, return_inverse=True)
    stage = stage.reshape(-1)
    before, after = stage[reduced.order[:, 0]], stage[reduced.order[:, 1]]
    between = before != after
    numbers = topological_numbers(len(used), *distinct_pairs(before[between], after[between]))
    if numbers is None:
        return None
    kind_of = {d: k for k, kind in enumerate(reduced.kinds) for d in kind.devices}
    kinds = [0] * len(used)
    for number, d in zip(numbers.tolist(), used.tolist(), strict=True):
        kinds[number] = kind_of[d]
    return numbers[stage].astype(np.int32), kinds


def reaches(reduced: Reduced, here: NDArray[np.bool_]) -> NDArray[np.bool_] | None:  # [device, node]
    """Whether a supernode is on a device or before something there; None if a path leaves a device and comes back."""
    ahead = here.copy()
    for a, b in reduced.order[::-1].tolist():  # sorted by the first end, so what follows b is known
        ahead[:, a] |= ahead[:, b]
    a, b = reduced.order[:, 0], reduced.order[:, 1]
    return None if (here[:, a] & ~here[:, b] & ahead[:, b]).any() else ahead
