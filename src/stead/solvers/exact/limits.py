"""Limits for parts of a search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from stead.solvers.base import Search


@contextmanager
def limited(search: Search, *, seconds: float, evaluations: int | None = None) -> Iterator[None]:
    """Let a part of a search take at most so much longer and score at most so many more placements."""
    budget = search.budget
    end = search.elapsed_seconds + seconds
    most = None if evaluations is None else search.evaluations + max(1, evaluations)
    search.budget = replace(
        budget,
        seconds=end if budget.seconds is None else min(end, budget.seconds),
        evaluations=_smaller(most, budget.evaluations),
    )
    try:
        yield
    finally:
        search.budget = budget


def _smaller(first: int | None, second: int | None) -> int | None:
    given = [limit for limit in (first, second) if limit is not None]
    return min(given, default=None)
