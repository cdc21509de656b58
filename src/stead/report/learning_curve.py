"""The learning curve of a plan that a learner found: kept with how the plan was made, and drawn beside its search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from stead.solvers.solution import LearningStep

KEPT = "learning"  # in the provenance of a plan
MOST_DRAWN = 400  # updates of a curve
COLUMNS = tuple(one.name for one in fields(LearningStep))


def curve_document(steps: Sequence[LearningStep]) -> dict[str, list[float | None]]:
    """Updates as columns, as a plan's file holds them."""
    return {name: [_number(getattr(step, name)) for step in steps] for name in COLUMNS}


def curve_of(provenance: Mapping[str, Any]) -> dict[str, list[float | None]]:
    """The columns to draw, the last update among them; nothing where a plan has none, or none that can be read."""
    given = provenance.get(KEPT)
    if not isinstance(given, Mapping) or not all(isinstance(given.get(name), list) for name in COLUMNS):
        return {}
    count = len(given["update"])
    if not count or any(len(given[name]) != count for name in COLUMNS):
        return {}
    step = -(-count // MOST_DRAWN)
    drawn = [*range(0, count - 1, step), count - 1]
    return {name: [_number(given[name][i]) for i in drawn] for name in COLUMNS}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
