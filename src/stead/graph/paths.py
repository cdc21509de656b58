"""Module call paths: which call of which module an operator belongs to.

`dec.1#7` is the eighth call of module `dec.1`; nested calls are joined by `/`, outermost first, as in
`dec.1#7/dec.1.gates#7`. A plain module path such as `model.layers.3.mlp` is a call whose number is not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a module."""

    module: str
    number: int = UNKNOWN  # counted from 0


def calls(path: str) -> tuple[Call, ...]:
    """The nested calls of a path, outermost first.

    >>> calls("dec.1#7/dec.1.gates#7")
    (Call(module='dec.1', number=7), Call(module='dec.1.gates', number=7))
    >>> calls("model.layers.3")
    (Call(module='model.layers.3', number=-1),)
    """
    return tuple(_call(part) for part in path.split("/") if part)


def module_path(path: str) -> str:
    """The innermost module of a call path as a plain path, whether inner calls repeat the outer path or not.

    >>> module_path("dec.1#7/dec.1.gates#7"), module_path("dec.1#7/gates#7"), module_path("encoder.block.2")
    ('dec.1.gates', 'dec.1.gates', 'encoder.block.2')
    """
    whole = ""
    for call in calls(path):
        if not whole or call.module == whole or call.module.startswith(f"{whole}."):
            whole = call.module
        else:
            whole = f"{whole}.{call.module}"
    return whole


def common_path(paths: Sequence[str]) -> str:
    """The longest path that all paths lie in.

    >>> common_path(["dec.1#7/dec.1.gates#7", "dec.1#7"]), common_path(["model.layers.3.mlp", "model.layers.31"])
    ('dec.1#7', 'model.layers')
    """
    shared: list[str] = []
    for parts in zip(*(re.split(r"(?=[./#])", path) for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(shared)


def _call(part: str) -> Call:
    module, mark, number = part.rpartition("#")
    if mark and number.isascii() and number.isdigit():
        return Call(module, int(number))
    return Call(part)
