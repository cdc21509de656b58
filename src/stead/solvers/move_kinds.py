"""Kinds of moves of a local search: how often each was tried, what it took and what it returned."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain


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
