"""Checked fields of a plan file: whatever is wrong is told with the full name of its field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from stead.errors import SteadError
from stead.printing.wording import one_line, quoted, suggestion
from stead.readers.common.checked_values import Wrong, amount_of, object_of

Check = Callable[[Any], Any]


@contextmanager
def at(place: str) -> Iterator[None]:
    """Whatever is wrong inside is told with its place."""
    try:
        yield
    except Wrong as wrong:
        text = str(wrong)
        raise Wrong(f"{place}{text}" if text.startswith("[") else f"{place}: {text}") from None
    except SteadError as error:
        raise Wrong(f"{place}: {error}") from None


def fields_of(entry: object, checks: Mapping[str, Check], place: str, optional: Iterable[str] = ()) -> dict[str, Any]:
    """An object with exactly the keys that have checks, each of them checked and told by its full name."""
    with at(place or "the plan"):
        given = object_of(entry)
    prefix = f"{place}." if place else ""
    for key in given:
        if key not in checks:
            raise Wrong(f"{prefix}{one_line(key, 60)}: not a field of a plan{suggestion(key, checks)}")
    for key in checks:
        if key not in given and key not in optional:
            raise Wrong(f"{prefix}{key}: is missing")
    made = {}
    for key, value in given.items():
        with at(f"{prefix}{key}"):
            made[key] = checks[key](value)
    return made


def by_name(value: object, names: Iterable[str], check_one: Check, place: str) -> dict[str, Any]:
    """An object with a value for each name and no other."""
    with at(place):
        given = object_of(value)
    wanted = tuple(names)
    for name in given:
        if name not in wanted:
            raise Wrong(f"{place}[{quoted(name)}]: there is no such device{suggestion(name, wanted)}")
    made = {}
    for name in wanted:
        if name not in given:
            raise Wrong(f"{place}[{quoted(name)}]: is missing")
        with at(f"{place}[{quoted(name)}]"):
            made[name] = check_one(given[name])
    return made


def same(value: Any) -> Any:
    """Anything, looked at elsewhere."""
    return value


def seconds_of(value: object) -> float:
    """A finite number of seconds, not negative."""
    return float(amount_of(value))


def or_none(check_one: Check) -> Check:
    """The same check for what may be null."""
    return lambda value: None if value is None else check_one(value)
