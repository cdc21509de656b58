"""Which transfer goes first: what remains to be gained once devices and the order of operators are settled.

The native search knows transfers in the order in which they are sent. Policy `priority` can also say which of the
waiting ones a channel serves first; that is searched here, one transfer at a time, by simulation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.problem import Priority
from stead.sim import simulate
from stead.solvers.build.schedules import takes_orders
from stead.solvers.search_state import Search

FARTHEST = 12  # places that a transfer moves at most


def order_transfers(search: Search, *, tries: int, part: int = 0) -> None:
    """Let channels serve first what is read first, then move single transfers while that helps."""
    problem, devices = search.problem, search.best
    if devices is None or not takes_orders(problem) or search.done:
        return
    position = _positions(search)
    graph = problem.graph
    tensor = graph.tensor_of_read
    crosses = devices[graph.readers] != devices[graph.tensor_producer[tensor]]
    sent = np.unique(tensor[crosses])
    if len(sent) < 2:
        return
    first_read = np.full(graph.tensor_count, len(graph), dtype=np.int64)
    np.minimum.at(first_read, tensor[crosses], position[graph.readers[crosses]])
    queue = np.argsort(first_read, kind="stable")  # sent ones first
    rng = np.random.default_rng((search.seed, part))
    best = search.offer(devices, order=Priority(position, _ranks(queue)), found_by="transfers")
    for _ in range(tries):
        if search.done:
            break
        moved = _moved(queue, int(rng.integers(len(sent))), int(rng.integers(len(sent))), rng)
        found = search.offer(devices, order=Priority(position, _ranks(moved)), found_by="transfers")
        if found <= best:
            queue, best = moved, found


def _positions(search: Search) -> NDArray[np.int32]:  # [operator]
    """The order in which the incumbent runs, as positions."""
    trace = simulate(search.problem, search.solution().placement, memory="off")
    return _ranks(np.asarray(trace.order))


def _ranks(queue: NDArray[np.int64]) -> NDArray[np.int32]:
    rank = np.empty(len(queue), dtype=np.int32)
    rank[queue] = np.arange(len(queue), dtype=np.int32)
    return rank


def _moved(queue: NDArray[np.int64], at: int, to: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The queue with one entry a few places earlier or later."""
    to = int(np.clip(to, at - FARTHEST, at + FARTHEST))
    return np.insert(np.delete(queue, at), to, queue[at])
