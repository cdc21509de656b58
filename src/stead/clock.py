"""The one clock: whatever has a time limit asks it, so that a test can let time pass as it likes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_sources: list[Callable[[], float]] = []


def now() -> float:
    """Seconds since some moment in the past."""
    return _sources[-1]() if _sources else time.monotonic()


@contextmanager
def read_from(source: Callable[[], float]) -> Iterator[None]:
    """Let `source` say what time it is.

    >>> with read_from(lambda: 7.0):
    ...     now()
    7.0
    """
    _sources.append(source)
    try:
        yield
    finally:
        _sources.pop()
