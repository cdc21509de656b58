"""Placements to begin with: those of a plan, or the last one in a file of events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from stead.errors import BadInput
from stead.files import AnyPath, read_text
from stead.placing.event_log import FORMAT
from stead.placing.place import Start
from stead.plan import Plan
from stead.plan.answer import placement_from
from stead.printing.wording import one_line, shown_path
from stead.problem import Order, Placement, Problem, ProgramOrder
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
    """The same operators on devices of the same names, in the same order where operators and tensors are the same."""
    old, new = placement.problem, problem
    names = old.cluster.names
    used = {*placement.devices.tolist(), *(d for group in placement.replicas for d in group)}
    missing = [names[d] for d in sorted(used) if names[d] not in new.cluster.names]
    if missing:
        count = int((placement.devices == names.index(missing[0])).sum())
        there = ", ".join(new.cluster.names)
        raise BadInput(f"{where}: {count} operators are on {missing[0]}, which is not among {there}")
    index = [new.cluster.index(name) if name in new.cluster.names else -1 for name in names]
    if old.graph.operator_names == new.graph.operator_names:
        devices = np.array(index, dtype=np.int64)[placement.devices]
        order = _order_on(placement.order, old, new, index) if _same_tensors(old, new) else None
        return Placement(new, devices, order, [[index[d] for d in group] for group in placement.replicas])
    known = set(new.graph.operator_names)
    named = {operator: device for operator, device in placement.by_name().items() if operator in known}
    if len(named) < len(new.graph):
        raise BadInput(
            f"{where}: it places {len(named)} of the {len(new.graph)} operators of {new.graph.name}; {_ADVICE}"
        )
    return Placement.from_names(new, named)


def _same_tensors(old: Problem, new: Problem) -> bool:
    return old.graph is new.graph or np.array_equal(old.graph.tensor_producer, new.graph.tensor_producer)


def _order_on(order: Order | None, old: Problem, new: Problem, index: list[int]) -> Order | None:
    """The order with sends to the same devices, which may have other numbers."""
    if not isinstance(order, ProgramOrder) or not order.sends or order.order is None:
        return order
    operators, items = len(old.graph), order.order.astype(np.int64)
    tensor, device = np.divmod(items - operators, len(old.cluster))
    moved = operators + tensor * len(new.cluster) + np.array(index, dtype=np.int64)[device]
    return ProgramOrder(np.where(items < operators, items, moved).astype(np.int32), sends=True)


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
