"""Upward ranks: how much work still lies behind each operator, the usual order of list scheduling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.graph.order import upward_ranks
from stead.problem import Problem


def upward_rank(problem: Problem) -> NDArray[np.float64]:  # [operator]
    """Seconds from the start of each operator to the end of the graph, at mean costs (HEFT, Topcuoglu 2002).

    `rank(v) = mean over devices of seconds(v) + max over tensors t of v and readers c of (mean over pairs of
    devices of transfer(t) + rank(c))`; means over the devices that can run an operator and the pairs that have a route.
    Constraints do not count: what is pinned or kept together changes where operators run, not who goes first there.
    """
    seconds = _mean_of_columns(problem.costs.seconds, np.isfinite(problem.costs.seconds))
    return upward_ranks(problem.graph, seconds, _mean_transfer(problem))


def rank_positions(problem: Problem) -> NDArray[np.int32]:  # [operator]
    """Place of every operator in decreasing upward rank; ties by index."""
    position = np.empty(len(problem.graph), dtype=np.int32)
    position[np.argsort(-upward_rank(problem), kind="stable")] = np.arange(len(problem.graph), dtype=np.int32)
    return position


def _mean_transfer(problem: Problem) -> NDArray[np.float64]:  # [tensor]
    """Mean time of each tensor between two different devices that have a route."""
    routes, count = problem.routes, len(problem.cluster)
    open_pairs = np.isfinite(routes.latency_seconds) & ~np.eye(count, dtype=bool)
    if not open_pairs.any():
        return np.zeros(problem.graph.tensor_count)
    latency = float(np.mean(routes.latency_seconds[open_pairs]))
    if problem.costs.tensor_seconds is not None:
        return latency + problem.costs.tensor_seconds * float(np.mean(routes.hops[open_pairs]))
    seconds_per_byte = float(np.mean(1.0 / routes.bytes_per_second[open_pairs]))
    return latency + problem.graph.tensor_bytes.astype(np.float64) * seconds_per_byte


def _mean_of_columns(table: NDArray[np.float64], usable: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean of the usable entries of each row, added column by column: the same on every machine."""
    total = np.zeros(len(table))
    for column, use in zip(table.T, usable.T, strict=True):
        total += np.where(use, column, 0.0)
    return np.asarray(total / usable.sum(axis=1))
