"""Units of a model: the calls of modules that people would place as a whole, such as one cell at one step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence


def unit_calls(modules: Sequence[str], patterns: Sequence[str]) -> list[str]:  # [operator]
    """The outermost unit each operator lies in, from module paths; empty outside of all units.

    A pattern matches modules; its first group is the unit, so that a unit may be known by its parts. What names a
    module and no call of it, such as the update of a parameter, goes with the call if there is only one.

    >>> unit_calls(["cells.0#7/gates#7", "cells.0#7", "head#0", ""], [r"(cells\\.\\d+)"])
    ['cells.0#7', 'cells.0#7', '', '']
    """
    compiled = [re.compile(pattern) for pattern in patterns]
    paths = {path: list(_nested(path)) for path in dict.fromkeys(modules)}
    units = {
        match.group(1)
        for nested in paths.values()
        for module, _ in nested
        for pattern in compiled
        if (match := pattern.fullmatch(module))
    }
    calls_of: dict[str, set[str]] = {unit: set() for unit in units}
    unit_of: dict[str, str] = {}
    for path, nested in paths.items():
        module, call = next((found for found in nested if found[0] in units), ("", ""))
        unit_of[path] = call
        if call != module:
            calls_of[module].add(call)
    only = {module: call for module, calls in calls_of.items() if len(calls) == 1 for call in calls}
    return [only.get(unit_of[path], unit_of[path]) for path in modules]


def _nested(path: str) -> Iterator[tuple[str, str]]:
    """(module, call) of everything a path lies in, outermost first; a plain path counts as a call of each part.

    >>> list(_nested("cells.0#7/gates#7"))
    [('cells', 'cells'), ('cells.0', 'cells.0#7'), ('cells.0.gates', 'cells.0#7/gates#7')]
    """
    whole, calls = "", ""
    for part in path.split("/"):
        inner = part.partition("#")[0]
        steps = inner.split(".")
        for end in range(1, len(steps) + 1):
            module = ".".join(steps[:end])
            call = part if end == len(steps) else module
            yield _joined(whole, module, "."), _joined(calls, call, "/")
        whole, calls = _joined(whole, inner, "."), _joined(calls, part, "/")


def _joined(before: str, after: str, mark: str) -> str:
    return f"{before}{mark}{after}" if before else after
