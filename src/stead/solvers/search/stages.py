"""Stages of a pipeline of micro-batches, moved as a whole: borders shift along the model, devices change places.

A move of one operator mostly makes two devices wait for each other, which costs a pipeline more than it gains, and each
try is the simulation of a whole step. What helps is to shift the border between two stages by some operators, backward
ones following their forward operators, and to let two devices exchange their stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stead.solvers.build.schedules import mirrored_groupings
from stead.solvers.search_state import Search

MOST_BORDERS = 24  # beyond, a placement is no pipeline of stages
STRIDE = 3  # from one distance of a shift to the next
FEW_BORDERS = 6  # up to which several in a row are shifted at once


def shift_stages(search: Search) -> None:
    """Shift borders and exchange devices of what a search holds while that helps, if it consists of stages."""
    devices = search.current
    for unit_of in mirrored_groupings(search.problem):
        if devices is not None and len(_borders(devices, unit_of)) <= MOST_BORDERS:
            devices = _climbed(search, devices, unit_of)


def _climbed(
    search: Search, devices: NDArray[np.uint8], unit_of: NDArray[np.int32]
) -> NDArray[np.uint8]:  # [operator]
    """Where steps to the best neighbour lead."""
    best = math.inf
    while not search.done:
        rows = list(_neighbours(search, devices, unit_of))
        if not rows:
            break
        distinct = np.unique(np.stack(rows), axis=0)
        seconds = search.offer_many(distinct, found_by="stages")
        if not len(seconds) or seconds.min() >= best:
            break
        best, devices = float(seconds.min()), distinct[int(seconds.argmin())]
    return devices


def _borders(devices: NDArray[np.uint8], unit_of: NDArray[np.int32]) -> NDArray[np.int64]:
    """Units, in the order of forward operators, that are on another device than the one before."""
    return np.flatnonzero(np.diff(devices[np.unique(unit_of, return_index=True)[1]])) + 1


def _neighbours(
    search: Search, devices: NDArray[np.uint8], unit_of: NDArray[np.int32]
) -> Iterator[NDArray[np.uint8]]:  # [operator]
    """Variants of a placement: borders shifted by 1, 3, 9, ... units, and pairs of devices exchanged."""
    problem = search.problem
    firsts = np.unique(unit_of, return_index=True)[1]
    allowed = np.ones((len(firsts), len(problem.cluster)), dtype=bool)
    np.logical_and.at(allowed, unit_of, problem.allowed)
    where = devices[firsts]  # [unit]; in the order of forward operators
    for variant in (*_shifted(where), *_exchanged(where)):
        if allowed[np.arange(len(variant)), variant].all() and not np.array_equal(variant, where):
            yield variant[unit_of]


def _shifted(where: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:  # [unit]
    """One border shifted, or several in a row by the same: then work goes from the first stage to the last of them."""
    borders = np.flatnonzero(np.diff(where)) + 1
    stage_devices = where[np.concatenate([[0], borders])] if len(where) else where
    for i in range(len(borders)):
        for j in range(i + 1, len(borders) + 1 if len(borders) <= FEW_BORDERS else i + 2):
            count = 1
            while count < len(where):
                for by in (count, -count):
                    shifted = borders.copy()
                    shifted[i:j] += by
                    ends = np.concatenate([[0], shifted, [len(where)]])
                    if (np.diff(ends) > 0).all():
                        yield np.repeat(stage_devices, np.diff(ends))
                count *= STRIDE


def _exchanged(where: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:  # [unit]
    used = np.unique(where).tolist()
    for a, b in combinations(used, 2):
        variant = where.copy()
        variant[where == a], variant[where == b] = b, a
        yield variant
