"""How long a device works that has its share of the largest units: a bound by counting, not by weighing.

`area` cuts work into pieces. Few large units cannot be spread like that: of 25 layers on 6 devices five share one.

Notation    N units, p[v,d] ticks of v on d, b[v] bytes of v, M[d] bytes of d
    s[d,j]  sum of the j smallest p[v,d] of N; never if v may not run there, or if the j smallest b[v] exceed M[d]

A device that works for T at most has at most as many units of N as there are j with s[d,j] <= T. All units of N have
a device, so at least |N| of the numbers s[d,j], over all devices, are T or less: T is no less than the |N|-th smallest
of them. N is the n units that take longest where they are quickest, for every n up to a few per device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PER_DEVICE = 16  # units to count: with more of them weighing is about as good
NEVER = np.iinfo(np.int64).max


def counting_bound(
    ticks: NDArray[np.int64],  # [unit, device]; -1 where it may not run
    unit_bytes: NDArray[np.int64],  # [unit]; what it brings to the memory of its device
    capacity_bytes: NDArray[np.int64],  # [device]
) -> int:
    """Ticks that some device works at least, if every device does one thing at a time."""
    count, devices = ticks.shape
    possible = np.where(ticks < 0, NEVER, ticks)
    least = possible.min(axis=1, initial=NEVER)
    if not count or not devices or (least == NEVER).any():
        return 0
    largest = np.argsort(-least, kind="stable")[: PER_DEVICE * devices]
    if float(ticks.max()) * len(largest) >= NEVER:
        return 0  # sums would not be exact
    kinds, number = np.unique(
        np.vstack([possible[largest], capacity_bytes[None, :]]), axis=1, return_counts=True
    )
    best = 0
    for n in range(1, len(largest) + 1):
        sums = _least_sums(kinds[:n], unit_bytes[largest[:n]], kinds[-1])
        every = np.repeat(sums, number, axis=1).ravel()
        best = max(best, int(np.partition(every, n - 1)[n - 1]))
        if best == NEVER:
            return 0  # nothing fits, which is for others to say
    return best


def _least_sums(
    ticks: NDArray[np.int64], unit_bytes: NDArray[np.int64], capacity_bytes: NDArray[np.int64]
) -> NDArray[np.int64]:  # [j - 1, device]
    """What j of the units take together at least; NEVER where so many cannot be there."""
    ranked = np.sort(ticks, axis=0)  # what may not run there comes last
    sums = np.where(ranked == NEVER, 0, ranked).cumsum(axis=0)
    fits = np.sort(unit_bytes).cumsum()[:, None] <= capacity_bytes[None, :]
    return np.where(fits & (ranked < NEVER), sums, NEVER)
