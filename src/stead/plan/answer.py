"""The answer in a plan file: the placement, how it was found, and what simple rules found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from stead.plan.checked_fields import at, fields_of, or_none, same, seconds_of
from stead.plan.fields import Baseline, count_of, solver_of
from stead.plan.question import groups_of, order_from
from stead.plan.rows import SECONDS, devices_type, row_of
from stead.printing.wording import quoted
from stead.problem import Placement, Problem
from stead.readers.common.checked_values import Wrong, list_of, name_of, text_of
from stead.solvers import Improvement, Solution
from stead.solvers.registry import current_name


def placement_from(problem: Problem, devices: object, order: object, replicas: object, place: str = "") -> Placement:
    """The placement that devices, order and shared stages of a file mean; `place` is where they stand."""
    prefix = f"{place}." if place else ""
    name = f"{place}.devices" if place else "placement"
    with at(name):
        if isinstance(devices, dict):
            row = Placement.from_names(problem, _names(devices)).devices
        else:
            row = row_of(devices, devices_type(len(problem.cluster)), len(problem.graph))
            if row.size and row.max() >= len(problem.cluster):
                raise Wrong(f"device {row.max()} is given, there are {len(problem.cluster)}")
    served = order_from(order, problem.graph, len(problem.cluster), f"{prefix}order") if order is not None else None
    with at(f"{prefix}replicas"):
        groups = [[problem.cluster.index(device) for device in group] for group in groups_of(replicas)]
    with at(name):
        return Placement(problem, row, served, groups)


def _names(devices: Mapping[str, Any]) -> dict[str, str]:
    made = {}
    for operator, device in devices.items():
        with at(f"[{quoted(operator)}]"):
            made[operator] = name_of(device)
    return made


def timing_from(repro: Mapping[str, Any], steps: int) -> tuple[float, NDArray[Any]]:
    """Seconds of the whole search and of every step of its trail; 0 where a file does not say."""
    with at("repro.elapsed_seconds"):
        elapsed = seconds_of(repro.get("elapsed_seconds", 0))
    with at("repro.trail_seconds"):
        return elapsed, row_of(repro.get("trail_seconds", [0] * steps), SECONDS, steps)


def trail_from(steps: Iterable[Any], timing: tuple[float, NDArray[Any]]) -> tuple[Improvement, ...]:
    """The trail of the search."""
    made = []
    for number, (step, elapsed) in enumerate(zip(steps, timing[1].tolist(), strict=True)):
        with at(f"trail[{number}]"):
            items = list_of(step)
            if len(items) != 4:
                raise Wrong(f"must be evaluations, value, bound and finder, got {len(items)} items")
            evaluations, value, bound, found_by = items
            made.append(
                Improvement(
                    elapsed, count_of(evaluations), seconds_of(value), seconds_of(bound), solver_of(found_by)
                )
            )
    return tuple(made)


def check_claims(solution: Solution, gap: float) -> None:
    """Refuse a bound above the value, and a gap that the two do not make."""
    if solution.bound_seconds > solution.objective_seconds:
        raise Wrong(
            f"bound_seconds: {solution.bound_seconds!r} is above objective_seconds, {solution.objective_seconds!r}"
        )
    if gap != solution.gap:
        raise Wrong(f"gap: value and bound make it {solution.gap!r}, the file says {gap!r}")


def baseline_from(problem: Problem, data: object, place: str) -> Baseline:
    """What a simple rule found, as the file says."""
    checks = {"name": name_of, "objective_seconds": or_none(seconds_of), "reason": text_of, "devices": same,
              "order": same, "replicas": same}  # fmt: skip
    given = fields_of(data, checks, place, ("order", "replicas"))
    value, devices = given["objective_seconds"], given["devices"]
    if (value is None) != (devices is None):
        raise Wrong(f"{place}: a value and devices come together or not at all")
    placement = None
    if devices is not None:
        placement = placement_from(problem, devices, given.get("order"), given.get("replicas", []), place)
    return Baseline(current_name(given["name"]), value, given["reason"], placement)
