"""What can go wrong, as types.

SteadError
+-- BadInput        a file or an argument makes no sense (also a ValueError)
|   +-- BadGraph    a cycle, a tensor without producer, a negative size
|   +-- BadCluster  an unknown device, no route, memory that is not positive
+-- MissingExtra    an optional package is not installed (also an ImportError)
+-- RunFailed       a real run could not be started or finished: a worker died, shared memory is full
|   +-- PlacementNotHonoured   a runtime put operators elsewhere than planned
+-- Infeasible      no placement meets the constraints: bytes missing by device, proved or merely not found

Renamed is no error but a warning: a name still works, and has a newer one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class SteadError(Exception):
    """Base of every error that stead raises on purpose."""


class BadInput(SteadError, ValueError):
    """A file or an argument makes no sense; the message says what, where and what to do."""


class BadGraph(BadInput):
    """A graph that cannot be: a cycle, a tensor without producer, a negative size."""


class BadCluster(BadInput):
    """A cluster that cannot be: an unknown device, no route, memory that is not positive."""


class MissingExtra(SteadError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs {package}: pip install "stead[{extra}]"')
        self.package = package
        self.extra = extra


class RunFailed(SteadError):
    """A real run could not be started or finished; the message says what happened and what to do."""


class PlacementNotHonoured(RunFailed):
    """A runtime put operators elsewhere than planned; `differing` maps their names to (planned, found)."""

    def __init__(self, message: str, differing: Mapping[str, tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.differing: dict[str, tuple[str, str]] = dict(differing or {})


class Infeasible(SteadError):
    """No placement meets the constraints.

    `short_bytes` says how much memory is missing on which device, `placement` is the device array that misses the
    least; `proved` is False when a placement was merely not found. `fixes` are the smallest changes that help, each
    with its `text` and the `problem` as it then is; they are looked for when they are first asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        short_bytes: Mapping[str, int] | None = None,
        placement: object = None,
        proved: bool = False,
    ) -> None:
        super().__init__(message)
        self.short_bytes: dict[str, int] = dict(short_bytes or {})
        self.placement: Any = placement
        self.proved = proved
        self._find_fixes: Callable[[], Iterable[Any]] = tuple
        self._fixes: tuple[Any, ...] | None = None

    def fixed_by(self, find: Callable[[], Iterable[Any]]) -> None:
        """Say how to look for changes that help."""
        self._find_fixes, self._fixes = find, None

    @property
    def fixes(self) -> tuple[Any, ...]:
        """Changes that were tried and help; empty where none is known."""
        if self._fixes is None:
            self._fixes = tuple(self._find_fixes())
        return self._fixes


class Renamed(FutureWarning):
    """A name still works, and has a newer one that the message tells."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A clause that offers the closest known names, or an empty string; never a decision.

    >>> did_you_mean("gpu00", ["gpu0", "cpu"])
    "; did you mean 'gpu0'?"
    """
    close = difflib.get_close_matches(given, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
