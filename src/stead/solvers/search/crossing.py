"""Schedules that are one good schedule in a stretch of time and another everywhere else: starts of a search.

What makes a schedule good is often decided here and there apart, so that one is better at the beginning and another one
at the end. Search from the best of them keeps what it has; search from a few that cross two of them takes the better
parts of both, if what happens where they meet can be repaired, which a short search tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem
from stead.sim.class_bounds import device_classes
from stead.solvers.build.schedules import Schedule

MATES = 6  # of the best schedules, of which pairs are drawn
LEAST_OTHER = 0.005  # of the work that must be elsewhere than in either parent, to be worth a search
TRIES = 4  # draws for each schedule that is asked for
SHORTEST, LONGEST = 0.1, 0.5  # of the order, that a stretch of the other parent takes
FIRST_CUT, LAST_CUT = 0.15, 0.85  # of the order, where one parent ends and the other begins


def crossed(problem: Problem, found: Sequence[Schedule], count: int, seed: Sequence[int]) -> list[Schedule]:
    """At most so many schedules, each crossed from two of the best of `found` (best first); the order is the better's.

    Equal devices of the other parent are renamed first, so that both agree on as much work as possible. There are none
    where parents agree on nearly everything, or where tensors would have no way.
    """
    parents, crossings = found[:MATES], list[Schedule]()
    if len(parents) < 2:
        return crossings
    rng = np.random.default_rng(seed)
    work = np.where(np.isfinite(problem.costs.seconds), problem.costs.seconds, np.inf).min(axis=1)
    classes, firsts = device_classes(problem), np.unique(problem.units, return_index=True)[1]
    for _ in range(TRIES * count):
        one, other = sorted(rng.choice(len(parents), 2, replace=False).tolist())
        better, mate = parents[one], parents[other].devices
        position = np.empty(len(better.order), dtype=np.int64)
        position[better.order] = np.arange(len(position))
        taken = _stretch(len(position), rng)[position[firsts]]
        mate = _renamed(mate, better.devices, work, classes)
        devices = np.where(taken, mate[firsts], better.devices[firsts])[problem.units].astype(better.devices.dtype)
        least_other = min(work[devices != parent].sum() for parent in (better.devices, mate))
        if least_other >= LEAST_OTHER * work.sum() and _has_ways(problem, devices):
            crossings.append(replace(better, devices=devices, name="crossing", seconds=np.inf))
        if len(crossings) == count:
            break
    return crossings


def _stretch(length: int, rng: np.random.Generator) -> NDArray[np.bool_]:  # [position]
    """Positions that the other parent decides: all before or behind a cut, or a window."""
    place = np.arange(length) / length
    if rng.random() < 0.5:
        behind = place >= rng.uniform(FIRST_CUT, LAST_CUT)
        return behind if rng.random() < 0.5 else ~behind
    width = rng.uniform(SHORTEST, LONGEST)
    begin = rng.uniform(0.0, 1.0 - width)
    return (place >= begin) & (place < begin + width)


def _renamed(
    devices: NDArray[np.uint8], like: NDArray[np.uint8], work: NDArray[np.float64], classes: NDArray[np.int64]
) -> NDArray[np.uint8]:  # [operator]
    """Devices with equal ones renamed so that they agree with others on much of the work: the largest share first."""
    count = len(classes)
    shared = np.zeros((count, count))
    np.add.at(shared, (devices, like), work)
    name, left = np.arange(count), {(d, e) for d in range(count) for e in range(count) if classes[d] == classes[e]}
    while left:
        best = max(left, key=lambda pair: (shared[pair], -pair[0], -pair[1]))
        name[best[0]] = best[1]
        left = {pair for pair in left if pair[0] != best[0] and pair[1] != best[1]}
    return name[devices].astype(devices.dtype)


def _has_ways(problem: Problem, devices: NDArray[np.uint8]) -> bool:
    """Whether every tensor can be sent to those who read it."""
    graph, tensor = problem.graph, problem.graph.tensor_of_read
    sources, targets = devices[graph.tensor_producer[tensor]], devices[graph.readers]
    return bool(np.isfinite(problem.routes.latency_seconds[sources, targets]).all())
