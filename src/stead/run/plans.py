"""From a plan back to the model that it places, and from its devices to workers of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stead.errors import BadInput
from stead.plan import Plan
from stead.printing.wording import one_line
from stead.run.cores import default_workers
from stead.run.executor import Worker
from stead.run.subject import FromPt2, FromZoo, Subject


def subject_of(plan: Plan, model: str = "") -> Subject:
    """The model of a plan, to be run: what the plan was made from, or `model` in its place."""
    source = plan.provenance.get("source")
    known = source if isinstance(source, Mapping) else {}
    text = model or str(known.get("model") or "")
    options = known.get("options")
    reading: dict[str, Any] = dict(options) if isinstance(options, Mapping) and not model else {}
    if not text:
        raise BadInput("the plan does not say what it was made from; add --model zoo:NAME or --model FILE.pt2")
    if text.startswith("zoo:"):
        return FromZoo(text, reading)
    if Path(text).suffix != ".pt2":
        raise BadInput(
            f"{one_line(text, 200)} cannot be run with torch; give a model of the zoo or a .pt2 file with --model"
        )
    if not Path(text).is_file():
        raise BadInput(f"the plan was made from {one_line(text, 200)}, which is not there; add --model FILE.pt2")
    if reading:
        raise BadInput(
            f"{one_line(text, 200)} runs at the sizes of its example, the plan was made with {', '.join(reading)} set; "
            "export it at those sizes and place it again"
        )
    return FromPt2(str(Path(text).resolve()))


def workers_for(plan: Plan, given: Sequence[Worker] = (), *, oversubscribe: bool = False) -> tuple[Worker, ...]:
    """One worker for each device of a plan, in the order of its devices."""
    count = len(plan.problem.cluster)
    if not given:
        return default_workers(count, oversubscribe=oversubscribe)
    if len(given) < count:
        raise BadInput(f"the plan has {count} devices, --on names {len(given)} workers; name one for each device")
    return tuple(given[:count])
