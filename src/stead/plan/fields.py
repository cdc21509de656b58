"""What both sides of a plan file know: its version, what a simple rule found, and the fields of a solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stead.printing.wording import shown
from stead.problem import Placement
from stead.readers.common.checked_values import Wrong, flag_of, list_of, text_of
from stead.solvers.registry import current_name
from stead.solvers.solution import STOPPED_BY

FORMAT, VERSION = "stead.plan", 2
MAX_WHOLE = 2**64


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a simple rule gives for the same problem; `reason` says why there is no value."""

    name: str
    objective_seconds: float | None = None
    reason: str = ""
    placement: Placement | None = None


def whole_of(value: object) -> int:
    """A whole number between -2^64 and 2^64."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_WHOLE:
        raise Wrong(f"must be a whole number, got {shown(value)}")
    return value


def count_of(value: object) -> int:
    """A whole number of at least 0."""
    if whole_of(value) < 0:
        raise Wrong(f"must be at least 0, got {shown(value)}")
    return whole_of(value)


def texts_of(value: object) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(text_of(item) for item in list_of(value))


def solver_of(value: object) -> str:
    """The name of a solver, or none, spelled as it is now; older plans have `_` where names have `-`."""
    return current_name(text_of(value))


def stopped_by_of(value: object) -> str:
    """What ended a search; nothing where an older plan does not say."""
    if text_of(value) not in STOPPED_BY:
        raise Wrong(f"must be one of {', '.join(STOPPED_BY[1:])}, got {shown(value)}")
    return text_of(value)


# Fields of a Solution that a file holds under their own names, and their checks; one line adds one.
SOLUTION: dict[str, Callable[[Any], Any]] = {
    "solver": solver_of,
    "found_by": solver_of,
    "bound_name": text_of,
    "scope": text_of,
    "seed": whole_of,
    "evaluations": count_of,
    "interrupted": flag_of,
    "stopped_by": stopped_by_of,
    "notes": texts_of,
}
