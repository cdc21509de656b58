"""Values of files, checked: what is wrong is said in one sentence, and whoever knows the place adds it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from stead.errors import BadGraph, BadInput
from stead.graph import MAX_BYTES
from stead.printing.wording import one_line, quoted, shown, suggestion

MAX_DOUBLE = sys.float_info.max


class Wrong(Exception):
    """What is wrong with a value; whoever knows the place adds it and raises BadInput."""


@contextmanager
def about(place: str) -> Iterator[None]:
    """Whatever is wrong inside is told as an error about a file or another place."""
    try:
        yield
    except Wrong as wrong:
        raise BadInput(f"{place}: {wrong}") from None
    except BadGraph as error:
        raise BadGraph(f"{place}: {one_line(str(error))}") from None


def text_of(value: object) -> str:
    """A string, possibly empty."""
    if not isinstance(value, str):
        raise Wrong(f"must be text, got {shown(value)}")
    return value


def name_of(value: object) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise Wrong(f"must be a name, got {shown(value)}")
    return value


def amount_of(value: object) -> float:
    """A finite number of at least 0, whole or not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"must be a number, got {shown(value)}")
    if not 0 <= value <= MAX_DOUBLE:
        raise Wrong(f"must be a finite number of at least 0, got {shown(value)}")
    return value


def bytes_of(value: object) -> int:
    """A whole number from 0 to 2^62; 4e9 counts as one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_BYTES:
        raise Wrong(f"must be a whole number from 0 to 2^62, got {shown(value)}")
    return value


def flag_of(value: object) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise Wrong(f"must be true or false, got {shown(value)}")
    return value


def list_of(value: object) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise Wrong(f"must be a list, got {shown(value)}")
    return value


def object_of(value: object) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise Wrong(f"must be an object, got {shown(value)}")
    return value


def checked(
    entry: object,
    checks: Mapping[str, Callable[[Any], Any]],
    required: Iterable[str] = (),
    *,
    unknown: set[str] | None = None,
) -> dict[str, Any]:
    """An object with its values checked and converted, never changed itself; what is wrong is told with its key.

    A key without a check is an error, or is collected in `unknown` if that is given.
    """
    given = fields = object_of(entry)
    for key, value in given.items():
        check = checks.get(key)
        if check is None:
            if unknown is not None:
                unknown.add(key)
                continue
            raise Wrong(f"unknown key {quoted(key)}{suggestion(key, checks)}; known are {', '.join(checks)}")
        try:
            converted = check(value)
        except Wrong as wrong:
            raise Wrong(f"{key}: {wrong}") from None
        if converted is not value:
            if fields is given:
                fields = dict(given)  # copied only where it has to differ: most objects of a long file do not
            fields[key] = converted
    for key in required:
        if key not in fields:
            raise Wrong(f"the key {quoted(key)} is missing")
    return fields
