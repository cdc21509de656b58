"""Ticks: the whole picoseconds that the simulator counts, so that sums are exact and ties are ties."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

TICKS_PER_SECOND = 1e12
MOST_TICKS = 2**62  # what lasts longer lasts so long, here and in the core: sums that reach it are refused


def to_ticks(seconds: ArrayLike) -> NDArray[np.int64]:
    """Finite seconds as whole ticks, halves to the even neighbour.

    >>> to_ticks([1e-12, 2.5e-12])
    array([1, 2])
    >>> int(to_ticks(1e300)) == MOST_TICKS
    True
    """
    given = np.minimum(np.asarray(seconds), MOST_TICKS / TICKS_PER_SECOND)  # first: a product could be infinite
    ticks: NDArray[np.float64] = np.minimum(np.rint(given * TICKS_PER_SECOND), float(MOST_TICKS))
    return ticks.astype(np.int64)
