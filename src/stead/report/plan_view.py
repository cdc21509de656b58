"""The view of a plan: facts, folded graph, time line, memory and what-ifs, in the format of `columns`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices
from stead.cluster.devices import UNLIMITED_BYTES
from stead.graph import Graph
from stead.printing.wording import printable, printable_lines
from stead.problem.ticks import TICKS_PER_SECOND
from stead.report.box_moves import BoxMoves, box_moves
from stead.report.columns import Column, View, array_column, names_column, shown_name
from stead.report.facts import DeviceFacts, Report, explain
from stead.report.fold import Fold, fold
from stead.report.layered import laid_out
from stead.report.learning_curve import curve_of
from stead.report.link_facts import link_facts
from stead.report.sensitivity import FACTORS, sensitivity
from stead.report.slack import slack_ticks
from stead.report.slices import (
    Run,
    critical_facts,
    memory_columns,
    run_of,
    slice_columns,
    transfer_columns,
)
from stead.report.text import summary
from stead.report.verdict import verdict

if TYPE_CHECKING:
    from stead.plan import Plan

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_TRAIL = 2_000
OPEN, RUN_OF_SIBLINGS = 1, 2


def view(
    plan: Plan,
    *,
    moves_seconds: float = 2.0,
    sensitivity_seconds: float = 2.0,
    exports: Sequence[tuple[str, str]] = (),
    report: Report | None = None,
    sizes: Sequence[Mapping[str, Any]] = (),
) -> View:
    """What pages show of a plan.

    At most so much CPU time goes into moves of boxes and into curves (0: none); what was not computed is absent.
    `exports` are names of targets with the command for each, `sizes` curves over batch and context, which whoever can
    read the model again brings along.
    """
    report = report or explain(plan)
    run, boxes = run_of(plan), fold(plan.problem.graph)
    moves = box_moves(plan, boxes, cpu_seconds=moves_seconds) if moves_seconds > 0 else BoxMoves({}, "not asked for")
    curves = sensitivity(plan, cpu_seconds=sensitivity_seconds) if sensitivity_seconds > 0 else ()
    solution = plan.solution
    header = {
        "graph": shown_name(plan.problem.graph.name),
        "operators": report.operators,
        "objective": report.objective,
        "unit": report.unit,
        "source": report.source,
        "solver": solution.solver,
        "evaluations": report.evaluations,
        "elapsed_seconds": report.elapsed_seconds,
        **value_facts(plan, report, run),
        **move_facts(plan, report, boxes, moves),
        "devices": [device_facts(plan, run, d, facts) for d, facts in enumerate(report.devices)],
        "sensitivity": [
            {"name": shown_name(curve.name), "what": curve.what, "factors": FACTORS,
             "seconds": [_short(value) for value in curve.seconds]}
            for curve in curves
        ],
        "sizes": list(sizes),
        "learning": {key: [_short(one) for one in values] for key, values in curve_of(plan.provenance).items()},
        "exports": [{"name": name, "command": printable(command)} for name, command in exports],
        "provenance": _provenance(plan.provenance),
        "text": printable_lines(summary(report)),
    }
    columns = {
        **slice_columns(plan, run, boxes.leaf),
        **transfer_columns(run),
        **memory_columns(plan, run),
        **_box_columns(plan, run, boxes),
    }
    return View(header, columns)


def value_facts(plan: Plan, report: Report, run: Run) -> dict[str, Any]:
    """Facts of the header that follow from where operators are."""
    solution = plan.solution
    return {
        "value": _finite(report.objective_seconds),
        "bound": {"seconds": report.bound_seconds, "name": report.bound_name, "scope": report.scope}
        if report.bound_seconds > 0
        else None,
        "gap": report.gap if math.isfinite(report.gap) else None,
        "found_by": solution.found_by,
        "stopped_by": report.stopped_by,
        "timed": run.timeline is not None,
        "unit_ticks": run.unit_ticks,
        "span_seconds": run.span_ticks / TICKS_PER_SECOND,
        "rules": [
            {"name": shown_name(rule.name), "seconds": rule.objective_seconds, "reason": printable_lines(rule.reason),
             "times": _finite(rule.times_plan)}
            for rule in report.rules
        ],
        "links": link_facts(plan, run),
        "critical": critical_facts(run),
        "trail": [
            [round(step.elapsed_seconds, 4), step.evaluations, _finite(step.objective_seconds), step.bound_seconds,
             step.found_by]
            for step in solution.trail[-MOST_TRAIL:]
        ],
    }  # fmt: skip


def move_facts(plan: Plan, report: Report, boxes: Fold, moves: BoxMoves) -> dict[str, Any]:
    """Facts of the header that rest on moves of boxes: the verdict, whose remedies are such moves, and all of them."""
    return {
        "verdict": verdict(plan, report, boxes, moves).as_dict(),
        "moves": {
            str(box): [[_rounded(seconds, report.objective_seconds), reason] for seconds, reason in outcomes]
            for box, outcomes in moves.outcomes.items()
        },
        "moves_note": moves.note,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rounded(seconds: float | None, whole: float) -> float | None:
    """Seconds as exact as a page shows their difference to those of the plan: with no more digits than that takes."""
    if seconds is None or seconds == whole or not math.isfinite(whole):
        return seconds
    return round(seconds, 3 - math.floor(math.log10(abs(seconds - whole))))


def _short(value: float | None) -> float | None:
    """A point of a curve: more digits cannot be seen, and take half of its bytes."""
    return None if value is None else float(f"{value:.6g}")


def letter(d: int) -> str:
    """What a device is told by beside its colour: A, B, ..., Z, AA, ..."""
    return letter(d // 26 - 1) + LETTERS[d % 26] if d >= 26 else LETTERS[d]


def device_facts(plan: Plan, run: Run, d: int, facts: DeviceFacts, *, blocks: bool = True) -> Mapping[str, Any]:
    """One device; with `blocks`, also what lives there at its peak."""
    trace = plan.trace
    span = run.span_ticks / TICKS_PER_SECOND
    limited = facts.limit_bytes < UNLIMITED_BYTES // 4
    said: dict[str, Any] = {
        "name": shown_name(facts.name),
        "letter": letter(d),
        "model": shown_name(facts.model),
        "operators": facts.operators,
        "busy": min(1.0, float(trace.compute_seconds[d] if run.timeline is not None else trace.busy_seconds[d]) / span),
        "compute_seconds": _finite(facts.compute_seconds),
        "received_seconds": _finite(facts.received_seconds),
        "sent_seconds": _finite(facts.sent_seconds),
        "limit": facts.limit_bytes if limited else None,
        "peak": facts.peak_bytes if facts.peak_bytes >= 0 else None,
        "weights": facts.weight_bytes,
        "kv": facts.kv_bytes,
        "activations": max(0, facts.peak_bytes - facts.weight_bytes - facts.kv_bytes),
        "peak_at": None,
        "blocks": [],
    }
    if blocks and trace.memory_known and facts.operators:
        peak = trace.blocks_at_peak(facts.name)
        if peak.at_seconds is not None:
            said["peak_at"] = int(peak.at_seconds * TICKS_PER_SECOND) // run.unit_ticks
        said["blocks"] = [[shown_name(block.name), block.kind, block.size_bytes] for block in peak.blocks]
    return said


def _provenance(given: Mapping[str, Any]) -> dict[str, str]:
    """What a plan's file says of its making, where it is short."""
    plain = {key: value for key, value in given.items() if isinstance(value, str | int | float | bool)}
    return {shown_name(str(key)): shown_name(str(value)) for key, value in plain.items()}


def _box_columns(plan: Plan, run: Run, boxes: Fold) -> dict[str, Column]:
    """The folded graph: what every box holds, where it is drawn, and what passes between leaves."""
    graph = plan.problem.graph
    begin, _ = _spans(run, len(graph))
    made = _sums(graph.tensor_producer, graph.tensor_bytes, len(graph))
    edges = Edges.of(boxes, graph)
    layer, x = laid_out(boxes, begin.astype(np.float64), edges.pairs)
    flags = boxes.is_open * OPEN + boxes.is_run * RUN_OF_SIBLINGS
    return {
        "bparent": array_column("u2", boxes.parents),
        "blayer": array_column("u2", layer),
        "bx": array_column("f4", x),
        "bflags": array_column("u1", flags),
        "bops": array_column("u4", boxes.sums(np.ones(len(graph)))),
        "bweights": array_column("f4", boxes.sums(_weights(graph))),
        "bout": array_column("f4", boxes.sums(made)),
        "boxes": names_column(boxes.names),
        "bslack": slack_column(run, boxes, len(graph)),
        **moving_box_columns(plan, run, boxes, edges),
        "esrc": array_column("u2", edges.pairs[:, 0]),
        "edst": array_column("u2", edges.pairs[:, 1]),
        "ebytes": array_column("f4", edges.carried),
    }


def moving_box_columns(plan: Plan, run: Run, boxes: Fold, edges: Edges) -> dict[str, Column]:
    """What another placement changes of boxes, but for slack."""
    operators, devices = len(plan.problem.graph), len(plan.problem.cluster)
    begin, end = _spans(run, operators)
    long = (run.finish_ticks - run.start_ticks) / TICKS_PER_SECOND
    seconds = _sums(run.origin * devices + run.devices, long, operators * devices).reshape(operators, devices)
    critical = _sums(run.origin, long * run.critical_slices, operators)
    return {
        "bcrit": array_column("f4", boxes.sums(critical)),
        "bbegin": array_column("u4", run.units(_ticks(boxes.least(begin.astype(np.float64))))),
        "bend": array_column("u4", run.units(_ticks(-boxes.least(-end.astype(np.float64))))),
        "bsec": array_column("f4", boxes.sums(seconds).ravel()),
        "ecross": array_column("f4", edges.crossing(plan.placement.devices)),
    }


def _ticks(found: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole ticks; 0 for boxes that hold nothing."""
    return np.where(np.isfinite(found), found, 0.0).astype(np.int64)


def _spans(run: Run, operators: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # [operator]
    """When each operator begins first and ends last, over all micro-batches."""
    begin = np.full(operators, np.iinfo(np.int64).max)
    end = np.zeros(operators, dtype=np.int64)
    np.minimum.at(begin, run.origin, run.start_ticks)
    np.maximum.at(end, run.origin, run.finish_ticks)
    return begin, end


def _weights(graph: Graph) -> NDArray[np.float64]:  # [operator]
    """Bytes of weights, each with its first user, so that boxes sum to the model."""
    first = graph.weight_users[graph.weight_user_first[:-1].clip(max=max(len(graph.weight_users) - 1, 0))]
    used = np.diff(graph.weight_user_first) > 0
    return _sums(first[used], graph.weight_bytes[used], len(graph))


def _sums(index: NDArray[Any], values: NDArray[Any], count: int) -> NDArray[np.float64]:
    """Values added up by index."""
    return np.bincount(index, weights=values, minlength=count).astype(np.float64)


def slack_column(run: Run, boxes: Fold, operators: int) -> Column:
    """The least slack in each box, in seconds; NaN where there are no times."""
    if run.timeline is None or run.timeline.execution != "dataflow":
        return array_column("f4", np.full(len(boxes.names), np.nan))
    least = np.full(operators, np.inf)
    np.minimum.at(least, run.origin, slack_ticks(run.timeline) / TICKS_PER_SECOND)
    found = boxes.least(least)
    return array_column("f4", np.where(np.isfinite(found), found, np.nan))


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """What passes between leaves of a fold; a tensor counts once per pair."""

    graph: Graph
    pairs: NDArray[np.int64]  # [edge, 2]; leaves
    carried: NDArray[np.float64]  # [edge]; bytes
    reads: NDArray[np.int64]  # those that pass from one leaf to another
    edge: NDArray[np.int64]  # [read of `reads`]

    @staticmethod
    def of(boxes: Fold, graph: Graph) -> Edges:
        """All edges of a graph, by source and target."""
        tensor, count = graph.tensor_of_read, len(boxes.names)
        source, target = boxes.leaf[graph.tensor_producer[tensor]], boxes.leaf[graph.readers]
        reads = np.flatnonzero(source != target)
        pairs, edge = np.unique((source * count + target)[reads], return_inverse=True)
        made = Edges(graph, np.stack([pairs // count, pairs % count], axis=1), np.zeros(len(pairs)), reads, edge)
        return replace(made, carried=made._bytes(np.arange(len(reads))))

    def crossing(self, devices: DeviceIndices) -> NDArray[np.float64]:  # [edge]
        """Bytes that pass to another device."""
        producer = self.graph.tensor_producer[self.graph.tensor_of_read[self.reads]]
        return self._bytes(np.flatnonzero(devices[producer] != devices[self.graph.readers[self.reads]]))

    def _bytes(self, among: NDArray[np.int64]) -> NDArray[np.float64]:  # [edge]
        tensors = max(self.graph.tensor_count, 1)
        once = np.unique(self.edge[among] * tensors + self.graph.tensor_of_read[self.reads[among]])
        return _sums(once // tensors, self.graph.tensor_bytes[once % tensors], len(self.pairs))
