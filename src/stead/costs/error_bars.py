"""Error bars: what several timings of one thing say about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stead.errors import BadInput


@dataclass(frozen=True, slots=True)
class ErrorBar:
    """How often something was timed, and how the timings lie: other programs only ever make it slower."""

    samples: int
    minimum_seconds: float
    quartile_seconds: float  # a quarter of the timings is faster
    median_seconds: float
    spread_seconds: float  # from the lower to the upper quartile

    @staticmethod
    def of(seconds: ArrayLike) -> ErrorBar:
        """What timings say.

        >>> ErrorBar.of([5.0, 1.0, 2.0, 3.0, 4.0])
        ErrorBar(samples=5, minimum_seconds=1.0, quartile_seconds=2.0, median_seconds=3.0, spread_seconds=2.0)
        """
        given = np.asarray(seconds, dtype=np.float64)
        if not given.size:
            raise BadInput("nothing was timed: an error bar needs a timing")
        low, middle, high = (float(value) for value in np.percentile(given, (25, 50, 75)))
        return ErrorBar(int(given.size), float(given.min()), low, middle, high - low)

    @property
    def relative_spread(self) -> float:
        """The spread as a share of the median; 0 for what takes no time."""
        return self.spread_seconds / self.median_seconds if self.median_seconds > 0 else 0.0
