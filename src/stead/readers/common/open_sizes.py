"""Dimensions that a file leaves open, and the numbers they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stead.errors import BadInput
from stead.printing.wording import quoted, suggestion
from stead.readers.common.assumed_sizes import Assumed, usual_size
from stead.readers.common.checked_values import Wrong
from stead.readers.common.file_nodes import MAX_RANK
from stead.readers.common.folding import FOLDS
from stead.readers.common.op_costs import Shape
from stead.readers.common.symbolic_sizes import size_of_expression, symbols_of

MAX_SIZE = 2**40  # of one dimension that the user sets

Dimension: TypeAlias = int | str  # a size, or the name of one that is not fixed; empty without a name
Given: TypeAlias = int | tuple[int, ...]  # what a user sets: one dimension, or the shape of an input

_EXPRESSION = re.compile(r"(?=.*[-+*/])(?!.*(?<!\w)[0-9]+[A-Za-z_])[A-Za-z_0-9 +*/()-]{1,200}", re.ASCII)


def check_options(shapes: Mapping[str, Given], level: str, batch: int | None = None) -> None:
    """BadInput if options of a reader make no sense."""
    if level not in FOLDS:
        raise BadInput(f"fold is one of {', '.join(FOLDS)}, got {level!r}")
    check_shapes(shapes, batch)


def check_shapes(shapes: Mapping[str, Given], batch: int | None = None) -> None:
    """BadInput if a size that a user sets makes no sense."""
    for name, given in shapes.items():
        for size in given if isinstance(given, tuple) else (given,):
            if not _is_size(size):
                raise BadInput(
                    f"shapes: {quoted(str(name))} must be a whole number from 1 to 2^40, got {size!r}"
                )
        if isinstance(given, tuple) and len(given) > MAX_RANK:
            raise BadInput(f"shapes: {quoted(str(name))} has {len(given)} dimensions; at most {MAX_RANK} make sense")
    if batch is not None and not _is_size(batch):
        raise BadInput(f"batch must be a whole number from 1 to 2^40, got {batch!r}")


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= MAX_SIZE


@dataclass(frozen=True, slots=True)
class OpenInput:
    """An input as the file describes it."""

    name: str
    dimensions: Sequence[Dimension]
    whole_numbers: bool = False  # indices or tokens, not measurements


class Sizes:
    """The numbers that open dimensions stand for: as the user sets them, else as they usually are.

    >>> sizes = Sizes({"batch": 8})
    >>> sizes.shapes([OpenInput("ids", ["batch", "seq"], True), OpenInput("mask", ["batch", "seq + 1"])])
    [(8, 128), (8, 129)]
    >>> sizes.assumed
    (Assumed(name='seq', size=128, kind='sequence'),)
    """

    def __init__(self, given: Mapping[str, Given], batch: int | None = None, *, usual: bool = True) -> None:
        self._given = given
        self._batch = batch
        self._usual = usual  # False: what nobody sets is 1
        self._open: dict[str, int] = {}  # name: number, of every open dimension of an input
        self._kinds: dict[str, str] = {}  # name: kind of what is open
        self._set: set[str] = set()  # names in `_open` that the user set
        self._other_names: set[str] = set()

    def shapes(self, inputs: Sequence[OpenInput]) -> list[Shape]:
        """The shapes of all inputs; Wrong if a number is given for what is not open."""
        for one in inputs:
            self._learn_shape(one)
        for one in inputs:
            for axis, size in enumerate(one.dimensions):
                if isinstance(size, str) and not _EXPRESSION.fullmatch(size):
                    self._learn(one, axis, size)
        for one in inputs:
            for axis, size in enumerate(one.dimensions):
                if isinstance(size, str) and _EXPRESSION.fullmatch(size):
                    self._learn_expression(one, axis, size)
        self._add_totals()
        self._check(inputs)
        return [
            tuple(
                self._open[self._key(one, axis, size)] if isinstance(size, str) else size
                for axis, size in enumerate(one.dimensions)
            )
            for one in inputs
        ]

    def _key(self, one: OpenInput, axis: int, size: str) -> str:
        place = f"{one.name}[{axis}]"
        return place if not size or place in self._set else size

    def _learn_shape(self, one: OpenInput) -> None:
        """An input whose whole shape is given: its open dimensions are set by it."""
        given = self._given.get(one.name)
        if given is None or (one.name in one.dimensions and isinstance(given, int)):
            return
        shape = given if isinstance(given, tuple) else (given,)
        if len(shape) != len(one.dimensions):
            raise Wrong(
                f"shapes: {quoted(one.name)} has {len(one.dimensions)} dimensions ({_shown(one.dimensions)}), "
                f"got {_shown(shape)}"
            )
        for axis, (size, number) in enumerate(zip(one.dimensions, shape, strict=True)):
            if isinstance(size, str):
                key = size or f"{one.name}[{axis}]"
                if self._open.setdefault(key, number) != number:
                    raise Wrong(f"shapes: {quoted(key)} would be both {self._open[key]} and {number}")
                self._set.add(key)
            elif size != number:
                raise Wrong(
                    f"shapes: dimension {axis} of {quoted(one.name)} is {size} in the file, not {number}; "
                    "export the model with that dimension open"
                )

    def _learn(self, one: OpenInput, axis: int, name: str) -> None:
        place = f"{one.name}[{axis}]"
        self._other_names.add(place)
        if isinstance(self._given.get(place), int):
            self._open[place] = int(self._given[place])  # type: ignore[arg-type]
            self._set.add(place)
            if name:
                self._open.setdefault(name, self._open[place])
            return
        self._settle(name or place, *usual_size(name, axis, len(one.dimensions), whole_numbers=one.whole_numbers))

    def _learn_expression(self, one: OpenInput, axis: int, text: str) -> None:
        """A size that follows from others, such as `past_sequence_length + 1`."""
        for symbol in sorted(symbols_of(text)):
            self._settle(symbol, *usual_size(symbol, 1))
        computed = size_of_expression(text, self._open)
        if computed is None:
            self._learn(one, axis, text)
        elif isinstance(self._given.get(text), int):
            self._settle(text, "", 1)
        else:
            self._open.setdefault(text, computed)
            self._set.add(text)  # nothing about it is assumed

    def _settle(self, key: str, kind: str, usual: int) -> None:
        if key in self._open:
            return
        given = self._given.get(key)
        self._kinds[key] = kind
        if isinstance(given, int):
            self._open[key] = given
            self._set.add(key)
        elif kind == "batch" and self._batch is not None:
            self._open[key] = self._batch
            self._set.add(key)
        else:
            self._open[key] = usual if self._usual else 1

    def _add_totals(self) -> None:
        """`total_sequence_length` is what there was and what is new, if nobody says otherwise."""
        free = {name: self._open[name] for name, kind in self._kinds.items() if kind == "sequence"}
        past = [size for name, size in free.items() if "past" in name.lower()]
        fresh = [size for name, size in free.items() if not re.search("past|total", name.lower())]
        for name in free:
            if "total" in name.lower() and name not in self._set and len(past) == 1 and len(fresh) == 1:
                self._open[name] = past[0] + fresh[0]
                self._set.add(name)  # nothing more is assumed by it

    def declared(self, dimensions: Iterable[Dimension]) -> Shape | None:
        """What a file says about a value inside, if that is a number everywhere."""
        sizes = [self._open.get(size, -1) if isinstance(size, str) else size for size in dimensions]
        return None if -1 in sizes else tuple(sizes)

    def _check(self, inputs: Sequence[OpenInput]) -> None:
        """Wrong if a number was given for a dimension that is not open."""
        names = {one.name for one in inputs}
        known = {**self._open, **dict.fromkeys(self._other_names), **dict.fromkeys(names)}
        for name in self._given:
            if name not in known:
                listed = ", ".join(quoted(one) for one in list(self._open)[:8]) or "none"
                near = suggestion(name, known)
                raise Wrong(f"shapes: no open dimension {quoted(name)}{near}; open in this file: {listed}")
        if self._batch is not None and "batch" not in self._kinds.values():
            fixed = next((one for one in inputs if one.dimensions), None)
            shown = f"; {quoted(fixed.name)} is {_shown(fixed.dimensions)}" if fixed else ""
            raise Wrong(
                f"batch: no input has an open first dimension{shown} in the file; export the model with one"
            )

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """Open dimensions that nobody set."""
        names = [name for name in self._kinds if name not in self._set]
        telling = self._usual or len(names) == 1  # where all are 1, changing one alone says little
        return tuple(
            Assumed(name, self._open[name], self._kinds[name] if telling else "") for name in names
        )


def _shown(dimensions: Iterable[Dimension]) -> str:
    return "x".join(str(size) if size != "" else "?" for size in dimensions) or "a scalar"
