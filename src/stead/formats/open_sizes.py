"""Dimensions that a file leaves open, and the numbers they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from stead.errors import BadInput
from stead.formats.folding import FOLDS
from stead.formats.op_costs import Shape
from stead.formats.strict_json import Wrong, one_line, quoted, suggestion

MAX_SIZE = 2**40  # of one dimension that the user sets

Dimension: TypeAlias = int | str  # a size, or the name of one that is not fixed; empty without a name


def check_options(shapes: Mapping[str, int], level: str) -> None:
    """BadInput if options of a reader make no sense."""
    if level not in FOLDS:
        raise BadInput(f"fold is one of {', '.join(FOLDS)}, got {level!r}")
    for name, size in shapes.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
            raise BadInput(f"shapes: {quoted(str(name))} must be a whole number from 1 to 2^40, got {size!r}")


class Sizes:
    """The numbers that open dimensions stand for."""

    def __init__(self, given: Mapping[str, int]) -> None:
        self._given = given
        self._open: dict[str, int] = {}  # name: number, of every open dimension of an input
        self._other_names: set[str] = set()

    def of_input(self, name: str, dimensions: Iterable[Dimension]) -> Shape:
        """The shape of an input."""
        shape = []
        for axis, size in enumerate(dimensions):
            if isinstance(size, str):
                place = f"{name}[{axis}]"
                self._other_names.add(place)
                key = size if size and place not in self._given else place
                size = self._open.setdefault(key, self._given.get(key, 1))
            shape.append(size)
        return tuple(shape)

    def declared(self, dimensions: Iterable[Dimension]) -> Shape | None:
        """What a file says about a value inside, if that is a number everywhere."""
        sizes = [self._open.get(size, -1) if isinstance(size, str) else size for size in dimensions]
        return None if -1 in sizes else tuple(sizes)

    def check(self) -> None:
        """Wrong if a number was given for a dimension that is not open."""
        known = {**self._open, **dict.fromkeys(self._other_names)}
        for name in self._given:
            if name not in known:
                listed = ", ".join(quoted(one) for one in list(self._open)[:8]) or "none"
                near = suggestion(name, known)
                raise Wrong(f"shapes: no open dimension {quoted(name)}{near}; open in this file: {listed}")

    def notes(self) -> Iterator[str]:
        """A sentence about dimensions that were taken as 1."""
        silent = [name for name in self._open if name not in self._given]
        if silent:
            shown = ", ".join(one_line(name, 60) for name in silent[:8])
            more = ", ..." if len(silent) > 8 else ""
            yield f"open dimensions are taken as 1: {shown}{more}; set them with the option `shapes`"
