"""Phases of a search: which there are, what each did and gained, with which moves, and why the others did not run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from stead import clock

if TYPE_CHECKING:
    from stead.solvers import Search

ENDS = {
    "interrupted": "interrupted before",
    "proved": "the best was proved before",
    "time": "no time was left",
    "evaluations": "no evaluations were left",
}


@dataclass(frozen=True, slots=True)
class MoveKind:
    """What moves of one kind came to.

    Gains count every time a schedule became shorter, from every start and also where annealing had made it longer
    before, so that all kinds together gain more than the search as a whole. They are what shares of work are given by.
    """

    name: str
    tried: int = 0
    kept: int = 0
    seconds: float = 0.0  # of the search, by the share of its work
    gain: float = 0.0  # shares of the schedules that became shorter, all together

    def __add__(self, other: MoveKind) -> MoveKind:
        return MoveKind(
            self.name, self.tried + other.tried, self.kept + other.kept, self.seconds + other.seconds,
            self.gain + other.gain,
        )  # fmt: skip


Kinds = tuple[MoveKind, ...]


def joined(*several: Kinds) -> Kinds:
    """Kinds of several searches together, those of one name added up.

    >>> joined((MoveKind("swap", tried=3), MoveKind("shift", tried=2)), (MoveKind("swap", tried=4),))[0].tried
    7
    """
    found: dict[str, MoveKind] = {}
    for kind in chain(*several):
        found[kind.name] = found[kind.name] + kind if kind.name in found else kind
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Phase:
    """What one phase of a search does, and once it is over what came of it, all its runs together."""

    name: str
    does: str  # names of solvers, or what it is in words
    limit: str = ""  # how much of the budget it may take; empty: all that is left
    why_not: str = ""  # why it does not run; empty: it does, or did
    runs: int = 0
    seconds: float = 0.0
    evaluations: int = 0
    before_seconds: float = math.inf  # the objective when it first began; inf: nothing was found yet
    after_seconds: float = math.inf  # and when it last ended
    gained_seconds: float = 0.0  # by its own runs; inf where it found the first placement of all
    raised_seconds: float = 0.0  # the same of the bound
    units: str = ""  # what is placed, where a search places blocks first and then operators
    parts: tuple[Phase, ...] = ()  # solvers that it asked, its rounds, its new starts; in order
    kinds: Kinds = ()  # of moves

    def __str__(self) -> str:
        limit = f" ({self.limit})" if self.limit else ""
        return f"{self.name}: {f'not run: {self.why_not}' if self.why_not else self.does + limit}"

    def with_part(self, part: Phase) -> Phase:
        """With a part added, or put in the place of the one of its name."""
        others = tuple(part if one.name == part.name else one for one in self.parts)
        return replace(self, parts=others if part in others else (*others, part))


class Phases:
    """A record of every phase of one search, in the order of its table."""

    def __init__(self, search: Search, table: list[Phase]) -> None:
        self._search = search
        self._rows = {phase.name: phase for phase in table}
        self._running = ""  # the name of a phase

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Count the enclosed work as a run of the phase, however it ends."""
        self._running = name
        with self._counted(lambda: self._rows[name], lambda row: self._rows.update({name: row})):
            yield

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the enclosed work as a part of the phase that is running, too."""
        whole = self._running

        def found() -> Phase:
            return next((one for one in self._rows[whole].parts if one.name == name), Phase(name, ""))

        with self._counted(found, lambda part: self._rows.update({whole: self._rows[whole].with_part(part)})):
            yield

    @contextmanager
    def _counted(self, found: Callable[[], Phase], keep: Callable[[Phase], None]) -> Iterator[None]:
        """Add the enclosed work to what is found afterwards, and keep that."""
        search = self._search
        began, evaluations = clock.now(), search.evaluations
        before, bound = search.best_seconds, search.bound_seconds
        others, search.kinds = search.kinds, ()
        try:
            yield
        finally:
            row, after, own = found(), search.best_seconds, search.kinds
            search.kinds = joined(others, own)
            keep(
                replace(
                    row,
                    why_not="",
                    runs=row.runs + 1,
                    seconds=row.seconds + clock.now() - began,
                    evaluations=row.evaluations + search.evaluations - evaluations,
                    before_seconds=row.before_seconds if row.runs else before,
                    after_seconds=after,
                    gained_seconds=row.gained_seconds + (before - after if after < before else 0.0),
                    raised_seconds=row.raised_seconds + search.bound_seconds - bound,
                    kinds=joined(row.kinds, own),
                )
            )

    def skipped(self, name: str, why_not: str) -> None:
        """Remember why the phase did not run this time; what it did another time counts more."""
        if not self._rows[name].runs:
            self._rows[name] = replace(self._rows[name], why_not=why_not)

    def skipped_part(self, name: str, why_not: str) -> None:
        """Remember why a part of the phase that is running was left out."""
        row = self._rows[self._running]
        self._rows[self._running] = row.with_part(Phase(name, "", why_not=why_not))

    def ended(self) -> tuple[Phase, ...]:
        """All rows; those that never had their turn say what ended the search before."""
        why = ENDS.get(self._search.stopped_by, "search ended before")
        return tuple(row if row.runs or row.why_not else replace(row, why_not=why) for row in self._rows.values())
