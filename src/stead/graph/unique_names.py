"""Names that differ: the second `conv` becomes `conv#2`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Names:
    """Makes names differ, from each other and from those that are taken already.

    >>> names = Names(["conv"])
    >>> [names.unique(name) for name in ("conv", "relu", "conv")]
    ['conv#2', 'relu', 'conv#3']
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._count: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        """The name itself if it is new, else with a number."""
        made = name
        while made in self._taken:
            self._count[name] += 1
            made = f"{name}#{self._count[name] + 1}"
        self._taken.add(made)
        return made
