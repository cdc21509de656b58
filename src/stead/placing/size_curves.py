"""What a placement takes at other batches and contexts: its model is read again, and it is simulated there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from stead.errors import SteadError
from stead.placing.what_if import SIZES, Changes, cases_of
from stead.plan import Plan
from stead.workloads.zoo import is_unrolled

AMOUNTS = {"batch": (1, 64, 8, 2, 16, 4, 32), "context": (512, 32768, 4096, 1024, 8192, 2048, 16384)}  # ends first
MOST_OPERATORS = 20_000  # of a model that is read again for a picture
MOST_BYTES = 32 * 2**20  # of its file


def size_curves(plan: Plan, *, cpu_seconds: float = 2.0, zoo_only: bool = False) -> list[dict[str, Any]]:
    """For batch and for context: amounts, and the seconds of the same placement (None where it does not work).

    As many points as so much CPU time allows; nothing where the model cannot be read again, or has no such size.
    """
    end = time.process_time() + cpu_seconds
    if cpu_seconds <= 0 or len(plan.problem.graph) > MOST_OPERATORS or not is_readable(plan, zoo_only=zoo_only):
        return []
    curves = []
    for what in sizes_of(plan, zoo_only=zoo_only):
        found: dict[int, float | None] = {}
        for amount in AMOUNTS[what]:
            if time.process_time() > end:
                break
            try:
                (case,) = cases_of(plan, Changes(sets=(f"{what}={amount}",)))
            except SteadError:
                break  # such a model has no such size
            found[amount] = case.seconds
        if len({value for value in found.values() if value is not None}) > 1:
            amounts = sorted(found)
            curves.append({"what": what, "amounts": amounts, "seconds": [found[amount] for amount in amounts]})
    return curves


def sizes_of(plan: Plan, *, zoo_only: bool = False) -> list[str]:
    """Sizes that the model of a plan may be read again at; a placement says nothing of operators that it has not."""
    if not is_readable(plan, zoo_only=zoo_only):
        return []
    model = str(plan.provenance["source"]["model"])
    unrolled = model.startswith("zoo:") and is_unrolled(model)
    return [what for what in SIZES if what != "context" or not unrolled]


def is_readable(plan: Plan, *, zoo_only: bool = False) -> bool:
    """Whether a plan says what its model was read from, and that is in the zoo or a small file that is still there."""
    source = plan.provenance.get("source")
    model = source.get("model") if isinstance(source, dict) else None
    if not isinstance(model, str):
        return False
    if model.startswith("zoo:"):
        return True
    return not zoo_only and Path(model).is_file() and Path(model).stat().st_size <= MOST_BYTES
