"""Words for messages: names, values and paths on one line, and what may have been meant."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable

from stead.errors import did_you_mean
from stead.printing.printable import printable


def one_line(text: str, most: int = 1000) -> str:
    """The text without line breaks and other unprintable characters, cut if it is very long."""
    return printable(text if len(text) <= most else f"{text[:most]}...")


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as the user gave it, on one line whatever it contains."""
    return one_line(os.fspath(path))


def quoted(name: str) -> str:
    """A name in double quotes, cut if it is long.

    >>> quoted("conv3")
    '"conv3"'
    """
    return f'"{one_line(name, 60)}"'


def shown(value: object) -> str:
    """A short word for any value that JSON can hold."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return one_line(json.dumps(value), 40)


def suggestion(given: str, known: Iterable[str]) -> str:
    """`did_you_mean` among names of about the same length: quick enough for a million of them."""
    if len(given) > 200:
        return ""
    near = (name for name in known if abs(len(name) - len(given)) <= 4)
    return did_you_mean(given, itertools.islice(near, 10_000))
