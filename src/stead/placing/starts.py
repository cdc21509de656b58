"""Placements to begin with: those of a plan, or the last one in a file of events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stead.errors import BadInput
from stead.files import AnyPath, read_text
from stead.placing.event_log import FORMAT
from stead.placing.place import Start
from stead.plan import Plan
from stead.plan.answer import placement_from
from stead.printing.wording import one_line, shown_path
from stead.problem import Placement, Problem
from stead.readers.common.checked_values import Wrong

_ADVICE = "give a plan or a file of `stead place --events`, of the same model on the same devices"


def start_from(path: AnyPath) -> Start:
    """What begins with the placement in a file; the file is read now, the placement checked with its problem."""
    where, text = shown_path(path), read_text(path)
    if f'"{FORMAT}"' not in text.partition("\n")[0]:
        plan = Plan.load(Path(path))
        return lambda problem: moved_to(plan.placement, problem, where)
    begins, incumbent = _last_incumbent(text)
    if incumbent is None:
        raise BadInput(f"{where}: no placement was found before it ended; leave out --start")

    def start(problem: Problem) -> Placement:
        if begins.get("graph") != problem.graph.fingerprint or begins.get("devices") != list(problem.cluster.names):
            raise BadInput(f"{where}: its placement is of another model or of other devices; {_ADVICE}")
        try:
            return placement_from(
                problem, incumbent.get("placement"), incumbent.get("order"), incumbent.get("replicas", [])
            )
        except Wrong as wrong:
            raise BadInput(f"{where}: {one_line(str(wrong))}; {_ADVICE}") from None

    return start


def moved_to(placement: Placement, problem: Problem, where: str) -> Placement:
    """The same operators on devices of the same names; its order, too, where graph and devices are the same."""
    old = placement.problem
    same = old.graph.fingerprint == problem.graph.fingerprint and old.cluster.names == problem.cluster.names
    if same:
        return Placement(problem, placement.devices, placement.order, placement.replicas)
    missing = sorted(set(placement.by_name().values()) - set(problem.cluster.names))
    if missing:
        there = ", ".join(problem.cluster.names)
        raise BadInput(f"{where}: operators are on {missing[0]!r}, which is not among {there}")
    known = set(problem.graph.operator_names)
    named = {operator: device for operator, device in placement.by_name().items() if operator in known}
    if len(named) < len(problem.graph):
        raise BadInput(
            f"{where}: it places {len(named)} of the {len(problem.graph)} operators of {problem.graph.name}; {_ADVICE}"
        )
    return Placement.from_names(problem, named)


def _last_incumbent(text: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The last placement and the question it answers; lines that are cut off or damaged are passed over."""
    begins: dict[str, Any] = {}
    found: tuple[dict[str, Any], dict[str, Any] | None] = ({}, None)
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind = event.get("kind") if isinstance(event, dict) else None
        if kind == "begin":
            begins = event
        elif kind == "incumbent":
            found = begins, event
    return found
