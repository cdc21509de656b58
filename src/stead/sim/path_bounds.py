"""A path that no memory can hold: it changes device, and every change takes a transfer. See core/bounds/cut_path.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.problem import Problem
from stead.problem.ticks import TICKS_PER_SECOND

NEVER = np.iinfo(np.int64).max


def runs_in_memory(problem: Problem, *, host: bool) -> float:
    """The most seconds that one of a few paths takes at least; `host`: tensors pass host memory."""
    if not len(problem.graph):
        return 0.0
    least = least_seconds(problem)
    weights = problem.graph.parameter_bytes.astype(np.float64)
    wishes = [least]
    if weights.any():
        wishes.append(weights)
        wishes.append(least / max(float(least.max()), 1e-30) + weights / float(weights.max()))
    paths = {tuple(heaviest_path(problem, wish).tolist()) for wish in wishes}
    ticks = max(
        _native.least_run_ticks(problem.native, np.array(path, dtype=np.int32), through_host=host)
        for path in paths
    )
    return np.inf if ticks == NEVER else ticks / TICKS_PER_SECOND


def least_seconds(problem: Problem) -> NDArray[np.float64]:  # [operator]
    """Seconds of every operator on the device that runs it quickest."""
    seconds: NDArray[np.float64] = np.where(problem.allowed, problem.costs.seconds, np.inf).min(
        axis=1, initial=np.inf
    )
    return seconds


def heaviest_path(problem: Problem, weight: NDArray[np.float64]) -> NDArray[np.int32]:
    """The path of greatest sum of `weight` [operator], in order."""
    return _native.heaviest_path(problem.native, weight)
