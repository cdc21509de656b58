"""Two plans side by side: what differs in the question, in the answer, and which parts of the model moved."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.graph.paths import layer_names, module_paths
from stead.plan import Plan

MOST_PLANS = 4


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a plan has on one device."""

    device: str
    operators: int
    busy_seconds: float
    peak_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Operators of one layer that another plan has on another device."""

    layer: str
    source: str
    target: str
    operators: int
    seconds: float  # of these operators in the first plan


@dataclass(frozen=True, slots=True)
class Comparison:
    """Plans of one graph, the first being what the others are compared with."""

    names: tuple[str, ...]
    plans: tuple[Plan, ...]
    differs: tuple[str, ...]  # of the questions: "devices", "objective", "costs", "constraints"

    def ratio(self, number: int) -> float | None:
        """Seconds of a plan for one second of the first; None if they answer for different objectives."""
        first, other = self.plans[0], self.plans[number]
        if first.problem.objective.name != other.problem.objective.name or not first.solution.objective_seconds:
            return None
        return other.solution.objective_seconds / first.solution.objective_seconds

    def uses(self, number: int) -> tuple[DeviceUse, ...]:
        """What a plan has on each of its devices."""
        plan = self.plans[number]
        counts, trace = plan.placement.counts(), plan.trace
        return tuple(
            DeviceUse(
                device.name,
                counts[device.name],
                float(trace.busy_seconds[d]),
                int(trace.peak_bytes[d]),
                device.usable_bytes,
            )
            for d, device in enumerate(plan.problem.cluster)
        )

    def moved(self, number: int) -> tuple[Moved, ...]:
        """Layers that a plan has elsewhere than the first, those that take longest first."""
        first, other = self.plans[0], self.plans[number]
        seconds = _seconds(first)
        theirs = other.placement.by_name()
        graph, groups = first.problem.graph, defaultdict[tuple[str, str, str], list[int]](list)
        layers = layer_names(module_paths(graph))
        for v, (operator, device) in enumerate(first.placement.by_name().items()):
            if theirs[operator] != device:
                groups[layers[v] or operator, device, theirs[operator]].append(v)
        found = [Moved(*key, len(rows), float(seconds[rows].sum())) for key, rows in groups.items()]
        return tuple(sorted(found, key=lambda one: (-one.seconds, one.layer, one.source, one.target)))


def compare(plans: dict[str, Plan]) -> Comparison:
    """Two to four plans of one graph side by side; BadInput if their operators are not the same."""
    if not 2 <= len(plans) <= MOST_PLANS:
        raise BadInput(f"two to {MOST_PLANS} plans can be compared, got {len(plans)}")
    (name, first), *others = plans.items()
    known = set(first.problem.graph.operator_names)
    for other_name, other in others:
        names = set(other.problem.graph.operator_names)
        if names != known:
            alone = sorted(known ^ names)[0]
            raise BadInput(
                f"{name} and {other_name} place different graphs: {first.problem.graph.name} with {len(known)} "
                f"operators and {other.problem.graph.name} with {len(names)}; only one has {alone!r}"
            )
    problems = [plan.problem for plan in plans.values()]
    parts = {
        "graph": [problem.graph.fingerprint for problem in problems],
        "devices": [problem.cluster.fingerprint for problem in problems],
        "costs": [problem.costs.fingerprint for problem in problems],
        "objective": [problem.objective.describe() for problem in problems],
        "constraints": [repr(problem.constraints) for problem in problems],
    }
    differs = tuple(part for part, values in parts.items() if len(set(values)) > 1)
    return Comparison(tuple(plans), tuple(plans.values()), differs)


def _seconds(plan: Plan) -> NDArray[np.float64]:  # [operator]
    """What every operator takes where the plan has it."""
    seconds: NDArray[np.float64] = plan.problem.costs.seconds[
        np.arange(len(plan.problem.graph)), plan.placement.devices
    ]
    return seconds
