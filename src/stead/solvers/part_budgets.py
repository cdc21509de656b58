"""Limits for parts of a search."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TypeVar

from stead.solvers.search_state import Search

T = TypeVar("T", int, float)


@contextmanager
def limited(search: Search, *, seconds: float, evaluations: int | None = None) -> Iterator[None]:
    """Let a part of a search take at most so much longer and score at most so many more placements.

    Where evaluations are counted, the seconds are those of `Search.effort`, which no clock measures.
    """
    budget, effort = search.budget, search.effort
    timed = math.isfinite(seconds) and not search.counts
    end = search.elapsed_seconds + seconds if timed else None
    most = None if evaluations is None else search.evaluations + max(1, evaluations)
    search.budget = replace(
        budget,
        seconds=_smaller(end, budget.seconds),
        evaluations=_smaller(most, budget.evaluations),
    )
    search.effort = min(effort, seconds) if search.counts else effort
    try:
        yield
    finally:
        search.budget, search.effort = budget, effort


def limited_share(search: Search, share: float) -> AbstractContextManager[None]:
    """Let a part of a search take at most a share of what is left of the budget."""
    left = search.rest_of_budget(share)
    seconds = math.inf if left.seconds is None or search.counts else left.seconds
    return limited(search, seconds=seconds, evaluations=left.evaluations)


def _smaller(first: T | None, second: T | None) -> T | None:
    given = [limit for limit in (first, second) if limit is not None]
    return min(given, default=None)
