"""Ticks: the whole picoseconds that the simulator counts, so that sums are exact and ties are ties."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

TICKS_PER_SECOND = 1e12


def to_ticks(seconds: ArrayLike) -> NDArray[np.int64]:
    """Finite seconds as whole ticks, halves to the even neighbour.

    >>> to_ticks([1e-12, 2.5e-12])
    array([1, 2])
    """
    return np.rint(np.asarray(seconds) * TICKS_PER_SECOND).astype(np.int64)
