"""explain(): the numbers that explain a plan. Nothing here prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices
from stead.costs import Source
from stead.errors import BadInput
from stead.graph import PHASES, Graph
from stead.graph.weights import resident_bytes
from stead.problem import Placement, Problem, matching
from stead.problem.ticks import TICKS_PER_SECOND
from stead.report.granularity import Levels
from stead.report.layers import LayerRow, layer_rows
from stead.report.shared_weights import NOTHING, RefreshFacts, TiedFacts, refresh_facts, tied_facts
from stead.sim import Move, Timeline, order_after, score_moves, simulate

if TYPE_CHECKING:
    from stead.plan import Plan

DOES_NOT_MATTER = 0.02  # what lies within this share of the plan is as good
MOST_OPERATORS_EXPLAINED = 200


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What one device does in a plan."""

    name: str
    model: str
    kind: str
    operators: int
    weight_bytes: int  # without caches of keys and values
    kv_bytes: int  # of those
    peak_bytes: int
    limit_bytes: int
    compute_seconds: float
    received_seconds: float
    sent_seconds: float

    @property
    def busy_seconds(self) -> float:
        """Compute and transfers together."""
        return self.compute_seconds + self.received_seconds + self.sent_seconds

    @property
    def headroom_bytes(self) -> int:
        """Memory left at the peak; negative means that it does not fit."""
        return self.limit_bytes - self.peak_bytes


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """One baseline beside the plan."""

    name: str
    objective_seconds: float | None
    reason: str
    times_plan: float  # inf where there is no value
    weight_bytes: tuple[int, ...]  # [device]; empty where there is no placement
    kv_bytes: tuple[int, ...]  # [device]; of caches of keys and values, which weight_bytes leave out
    changes: int


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Everything a summary or a page needs."""

    objective: str
    unit: str
    objective_seconds: float
    bound_seconds: float
    bound_name: str
    scope: str  # the placements that the bound holds for; empty: all
    order: str  # policy of the order that the plan brings; empty: none
    policy_seconds: float  # the objective where that order cannot be honoured
    shared: tuple[tuple[str, ...], ...]  # devices that share a stage, the one with its operators first
    gap: float
    feasible: bool
    problems: tuple[str, ...]
    solver: str
    found_by: str
    evaluations: int
    elapsed_seconds: float
    interrupted: bool
    stopped_by: str  # what ended the search: proved, finished, evaluations, time or interrupted; empty: not known
    source: str
    devices: tuple[DeviceFacts, ...]
    changes: int  # tensors sent from one device to another
    rules: tuple[RuleFacts, ...]
    operators: int
    tensors: int
    weight_bytes: int  # without caches of keys and values
    kv_bytes: int  # of those
    flops: float
    layers: tuple[LayerRow, ...]  # which layer is where
    levels: Levels | None  # whether blocks are whole; None where that was no question
    target: str  # the runtime that the plan was made for, and what had to move for it; empty: any
    tied: tuple[TiedFacts, ...] = ()  # weights that several devices share
    refreshed: RefreshFacts = NOTHING  # weights that are read elsewhere than updated
    timeline: Timeline | None = None  # of the run; None where the objective has none

    def __repr__(self) -> str:
        used = ", ".join(f"{device.name}: {device.operators}" for device in self.used)
        proof = f"gap {100 * self.gap:.1f} %" if self.bound_seconds > 0 else "no bound"
        return f"Report({self.objective}: {self.objective_seconds:.6g} s per {self.unit}, {proof}, operators {used})"

    @property
    def bottleneck(self) -> DeviceFacts:
        """The device with the most to do."""
        return max(self.devices, key=lambda device: device.busy_seconds)

    @property
    def used(self) -> tuple[DeviceFacts, ...]:
        """Devices that hold an operator."""
        return tuple(device for device in self.devices if device.operators)

    @property
    def best_rule(self) -> RuleFacts | None:
        """The baseline with the least seconds."""
        valued = [rule for rule in self.rules if rule.objective_seconds is not None]
        return min(valued, key=lambda rule: rule.objective_seconds or 0.0, default=None)

    @property
    def placement_matters(self) -> bool:
        """False only where no rule that works is away from the plan and nothing clearly better can exist."""
        valued = [rule for rule in self.rules if rule.objective_seconds is not None]
        away = any(abs(rule.times_plan - 1) > DOES_NOT_MATTER for rule in valued)
        proved = self.bound_seconds > 0 and not self.scope and self.gap <= DOES_NOT_MATTER
        return not valued or away or not proved

    @property
    def as_good(self) -> RuleFacts | None:
        """The simple rule that is as good as the plan, within a few percent, if there is one."""
        best = self.best_rule
        return best if best is not None and abs(best.times_plan - 1) <= DOES_NOT_MATTER else None

    @property
    def worst_rule(self) -> RuleFacts | None:
        """The baseline that works and takes the most seconds."""
        valued = [rule for rule in self.rules if rule.objective_seconds is not None]
        return max(valued, key=lambda rule: rule.objective_seconds or 0.0, default=None)

    @property
    def beaten_by(self) -> RuleFacts | None:
        """The simple rule that is clearly better than the plan, if there is one."""
        best = self.best_rule
        return best if best is not None and best.times_plan < 1 - DOES_NOT_MATTER else None


def explain(plan: Plan) -> Report:
    """The facts of a plan: devices, transfers, bound, and every baseline beside it."""
    problem, solution, trace = plan.problem, plan.solution, plan.trace
    graph = problem.graph
    devices = _devices(plan)
    rules = tuple(
        RuleFacts(
            name=rule.name,
            objective_seconds=rule.objective_seconds,
            reason=rule.reason,
            times_plan=_ratio(rule.objective_seconds, solution.objective_seconds),
            weight_bytes=() if rule.placement is None else resident_weights(problem, rule.placement),
            kv_bytes=() if rule.placement is None else resident_weights(problem, rule.placement, caches=True),
            changes=0
            if rule.placement is None
            else transfer_count(graph, rule.placement.devices, len(devices)),
        )
        for rule in plan.baselines
    )
    return Report(
        objective=problem.objective.describe(),
        unit=problem.objective.unit,
        objective_seconds=solution.objective_seconds,
        bound_seconds=solution.bound_seconds,
        bound_name=solution.bound_name,
        scope=solution.scope,
        order=plan.placement.order.name if plan.placement.order is not None else "",
        policy_seconds=simulate(problem, plan.placement.without_order).objective_seconds,
        shared=tuple(tuple(problem.cluster.names[d] for d in group) for group in plan.placement.replicas),
        gap=solution.gap,
        feasible=trace.feasible,
        problems=tuple(str(one) for one in trace.problems),
        solver=solution.solver,
        found_by=solution.found_by,
        evaluations=solution.evaluations,
        elapsed_seconds=solution.elapsed_seconds,
        interrupted=solution.interrupted,
        stopped_by=solution.stopped_by,
        source=problem.costs.source.label,
        devices=devices,
        changes=transfer_count(graph, plan.placement.devices, len(devices)),
        rules=rules,
        operators=len(graph),
        tensors=graph.tensor_count,
        weight_bytes=int(graph.weight_bytes[~graph.is_kv_cache].sum()),
        kv_bytes=graph.kv_cache_bytes,
        flops=float(graph.flops.sum()),
        tied=tied_facts(plan.placement, trace),
        refreshed=refresh_facts(plan.placement),
        layers=layer_rows(problem, plan.placement),
        levels=Levels.from_dict(plan.provenance.get("granularity")),
        target=_target(plan.provenance.get("target")),
        timeline=trace.timeline,
    )


def moved_report(before: Report, plan: Plan) -> Report:
    """The facts of another placement of the same problem, without those that take long: layers and tied weights."""
    solution, trace = plan.solution, plan.trace
    return replace(
        before,
        objective_seconds=solution.objective_seconds,
        bound_seconds=solution.bound_seconds,
        gap=solution.gap,
        feasible=trace.feasible,
        problems=tuple(str(one) for one in trace.problems),
        found_by=solution.found_by,
        interrupted=solution.interrupted,
        stopped_by=solution.stopped_by,
        devices=_devices(plan),
        rules=tuple(
            replace(rule, times_plan=_ratio(rule.objective_seconds, solution.objective_seconds))
            for rule in before.rules
        ),
        timeline=trace.timeline,
    )


def _devices(plan: Plan) -> tuple[DeviceFacts, ...]:
    problem, trace = plan.problem, plan.trace
    weights, caches = (resident_weights(problem, plan.placement, caches=own) for own in (False, True))
    return tuple(
        DeviceFacts(
            name=device.name,
            model=device.model,
            kind=device.kind,
            operators=int((plan.placement.devices == d).sum()),
            weight_bytes=weights[d],
            kv_bytes=caches[d],
            peak_bytes=int(trace.peak_bytes[d]),
            limit_bytes=device.usable_bytes,
            compute_seconds=float(trace.compute_seconds[d]),
            received_seconds=float(trace.received_seconds[d]),
            sent_seconds=float(trace.sent_seconds[d]),
        )
        for d, device in enumerate(problem.cluster)
    )


def _target(given: object) -> str:
    """What a plan's file says of its target; nothing where that cannot be understood."""
    text = given.get("text") if isinstance(given, Mapping) else None
    return text if isinstance(text, str) else ""


def resident_weights(
    problem: Problem, placement: Placement, *, caches: bool = False
) -> tuple[int, ...]:  # [device]
    """Bytes of weights on each device, tied weights once per device; or of caches of keys and values."""
    graph = problem.graph
    held = resident_bytes(graph, placement.devices, len(problem.cluster), among=graph.is_kv_cache == caches)
    return tuple(held.tolist())


def transfer_count(graph: Graph, devices: DeviceIndices, count: int) -> int:
    """Tensors sent between `count` devices, one per receiving device."""
    tensor = graph.tensor_of_read
    target = devices[graph.readers].astype(np.int64)
    away = target != devices[graph.tensor_producer[tensor]]
    return len(np.unique(tensor[away] * count + target[away]))


def _ratio(value: float | None, of: float) -> float:
    if value is None:
        return math.inf
    return value / of if of > 0 else (1.0 if value == 0 else math.inf)


@dataclass(frozen=True, slots=True)
class Alternative:
    """What would happen if an operator (and its unit) stood on a device."""

    device: str
    seconds: float  # of the operator there
    objective_seconds: float  # of the whole plan, re-simulated; inf where it does not work
    change_seconds: float  # against the plan
    reason: str  # unsupported | pinned | memory | transfer > gain | slower there | no change | better


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """Why an operator, or several that are moved as one, is where it is."""

    name: str
    kind: str
    module: str
    device: str
    source: str
    unit_size: int  # operators that must move along
    alternatives: tuple[Alternative, ...]  # [device]

    @property
    def here(self) -> Alternative:
        """The device that it is on."""
        return next(one for one in self.alternatives if one.device == self.device)

    @property
    def elsewhere(self) -> Alternative | None:
        """The best of the other devices; None where there is no other."""
        others = (one for one in self.alternatives if one.device != self.device)
        return min(others, key=lambda one: one.change_seconds, default=None)


@dataclass(frozen=True, slots=True)
class NamedReport:
    """Why all operators that fit a name are where they are."""

    together: OperatorReport  # as if they were one
    each: tuple[OperatorReport, ...]  # empty where there are too many
    count: int


def explain_operators(plan: Plan, name: str) -> tuple[OperatorReport, ...]:
    """Every operator that fits a name, pattern or module path, each with all devices re-simulated."""
    found = matching(plan.problem.graph, name)
    if len(found) > MOST_OPERATORS_EXPLAINED:
        raise BadInput(f"{len(found)} operators fit {name!r}; name at most {MOST_OPERATORS_EXPLAINED}")
    return tuple(_explained(plan, found[i : i + 1]) for i in range(len(found)))


def explain_named(plan: Plan, name: str) -> NamedReport:
    """What moving all that fits a name, pattern or module path does, and what moving each operator alone does."""
    found = matching(plan.problem.graph, name)
    together = _explained(plan, found)
    if len(found) == 1:
        return NamedReport(together, (together,), 1)
    together = replace(together, name=name, kind=f"{len(found)} operators", module="")
    each = explain_operators(plan, name) if len(found) <= MOST_OPERATORS_EXPLAINED else ()
    return NamedReport(together, each, len(found))


def _explained(plan: Plan, found: NDArray[np.int64]) -> OperatorReport:
    problem, graph, v = plan.problem, plan.problem.graph, int(found[0])
    names, devices = problem.cluster.names, plan.placement.devices
    here = sorted(set(devices[found].tolist()))
    along = np.isin(problem.units, problem.units[found])
    stay = Move(found[:1], int(devices[v]))
    moves = [stay, *(Move(found, d) for d in range(len(names)))]  # their units go along
    scores = score_moves(problem, plan.placement, moves)
    base = float(scores.seconds[0])
    alternatives = []
    for d, device in enumerate(names):
        total = float(scores.seconds[1 + d]) if scores.feasible[1 + d] else math.inf
        change = total - base
        reason = "here" if here == [d] else _reason(plan, along, d, change, int(scores.status[1 + d]))
        alternatives.append(Alternative(device, float(problem.costs.seconds[found, d].sum()), total, change, reason))
    return OperatorReport(
        name=graph.operator_names[v],
        kind=graph.kinds[v],
        module=graph.modules[v],
        device=", ".join(names[d] for d in here),
        source=Source(int(problem.costs.sources[v, devices[v]])).label,
        unit_size=int(along.sum()),
        alternatives=tuple(alternatives),
    )


def _reason(plan: Plan, unit: NDArray[np.bool_], d: int, change: float, status: int) -> str:
    """The one word that tells why operators are not on device d, checked by the move itself."""
    problem = plan.problem
    if not np.isfinite(problem.costs.seconds[unit, d]).all():
        return "unsupported"
    if not problem.allowed[unit, d].all():
        return "pinned"
    if status == 1:
        moved = plan.placement.devices.copy()
        moved[unit] = d
        short = simulate(problem, Placement(problem, moved, order_after(plan.placement, moved))).problems
        return "memory: " + "; ".join(str(one) for one in short)
    if not math.isfinite(change):
        return "no route"
    if change < 0:
        return "better"
    if change == 0:
        return "no change"
    now = problem.costs.seconds[unit, plan.placement.devices[unit]].sum()
    gain = float(now - problem.costs.seconds[unit, d].sum())
    return "transfer > gain" if gain > 0 else "slower there" if gain < 0 else "transfer"


def operator_columns(plan: Plan) -> dict[str, list[Any]]:
    """Columns of a table with one row per operator."""
    problem, graph, devices = plan.problem, plan.problem.graph, plan.placement.devices
    timeline = plan.trace.timeline
    unknown = [math.nan] * len(graph)
    caches = _caches_used(graph)
    return {
        "name": list(graph.operator_names),
        "kind": list(graph.kinds),
        "module": list(graph.modules),
        "phase": [PHASES[phase] for phase in graph.phases.tolist()],
        "device": [problem.cluster.names[d] for d in devices.tolist()],
        "start_seconds": unknown if timeline is None else (timeline.start_ticks / TICKS_PER_SECOND).tolist(),
        "finish_seconds": unknown if timeline is None else (timeline.finish_ticks / TICKS_PER_SECOND).tolist(),
        "seconds": problem.costs.seconds_on(devices).tolist(),
        "weight_bytes": (graph.parameter_bytes - caches).tolist(),
        "kv_bytes": caches.tolist(),
    }


def _caches_used(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Bytes of the caches of keys and values that each operator uses."""
    sizes = np.where(graph.is_kv_cache, graph.weight_bytes, 0)
    total = np.zeros(len(graph), dtype=np.int64)
    np.add.at(total, graph.weight_users, sizes[graph.weight_of_use])
    return total
