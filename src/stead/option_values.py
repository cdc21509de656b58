"""Values of options from texts: what `--set` and `--read` give becomes what the option of a solver or reader holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def option_value(given: Any, default: Any) -> Any:
    """What is given, a text as the type of the option's default; ValueError if it is no such text.

    >>> option_value("3", 1), option_value("True", False), option_value("batch=8", {}), option_value("3", "")
    (3, True, {'batch': 8}, '3')
    """
    if not isinstance(given, str):
        return given
    if isinstance(default, bool):
        if given.lower() not in ("true", "false"):
            raise ValueError(f"neither true nor false: {given}")
        return given.lower() == "true"
    if isinstance(default, int | float):
        return type(default)(given)
    return sizes_from(given) if isinstance(default, Mapping) else given


def sizes_from(text: str) -> dict[str, int | tuple[int, ...]]:
    """Sizes by name as a command line gives them; ValueError if they are none.

    >>> sizes_from("batch=8,x=1x3")
    {'batch': 8, 'x': (1, 3)}
    """
    return {name: size_from(size) for name, _, size in (part.rpartition("=") for part in text.split(","))}


def size_from(text: str) -> int | tuple[int, ...]:
    """A size as a command line gives it; ValueError if it is none.

    >>> size_from("8"), size_from("1x3x224x224")
    (8, (1, 3, 224, 224))
    """
    sizes = tuple(int(part) for part in text.split("x"))
    return sizes if len(sizes) > 1 else sizes[0]
