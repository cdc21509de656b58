"""What commands print: documents on stdout, progress on stderr."""

from __future__ import annotations

import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stead.plan import Plan
    from stead.report import OperatorReport
    from stead.solvers import Improvement

PATIENCE_SECONDS = 0.5  # before the first progress line
INTERVAL_SECONDS = 0.25  # between progress lines


def print_json(document: Any) -> None:
    """One JSON document on stdout; numbers JSON has no word for are null."""
    print(json.dumps(_plain(document), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan with the keys that scripts rely on."""
    from stead.report import explain

    report, solution = explain(plan), plan.solution
    seconds = {"unit": "s", "source": report.source, "rel_err": None, "n": 0}
    return {
        "solver": solution.solver,
        "found_by": solution.found_by,
        "objective": plan.problem.objective.name,
        "objective_detail": plan.problem.objective.describe(),
        "objective_seconds": solution.objective_seconds,
        "bound_seconds": solution.bound_seconds,
        "bound_name": solution.bound_name,
        "scope": solution.scope,
        "order": report.order,
        "policy_seconds": report.policy_seconds,
        "gap": solution.gap,
        "feasible": report.feasible,
        "problems": list(report.problems),
        "interrupted": solution.interrupted,
        "placement_matters": report.placement_matters,
        "elapsed_seconds": solution.elapsed_seconds,
        "evaluations": solution.evaluations,
        "seed": solution.seed,
        "transfers": report.changes,
        "placement": plan.placement.by_name(),
        "devices": {
            device.name: {
                "model": device.model,
                "operators": device.operators,
                "load_seconds": device.busy_seconds,
                "busy_seconds": device.compute_seconds,
                "received_seconds": device.received_seconds,
                "sent_seconds": device.sent_seconds,
                "weight_bytes": device.weight_bytes,
                "peak_bytes": device.peak_bytes,
                "limit_bytes": device.limit_bytes,
            }
            for device in report.devices
        },
        "tied": [
            {
                "name": one.name,
                "bytes": one.size_bytes,
                "devices": list(one.devices),
                "sent_bytes": one.sent_bytes,
                "all_reduce_seconds": one.all_reduce_seconds,
            }
            for one in report.tied
        ],
        "baselines": [
            {"name": rule.name, "objective_seconds": rule.objective_seconds, "reason": rule.reason or None}
            for rule in report.rules
        ],
        "labels": {
            "objective_seconds": seconds,
            "bound_seconds": seconds,
            "load_seconds": seconds,
            "busy_seconds": seconds,
            "peak_bytes": {"unit": "B", "source": report.source, "rel_err": None, "n": 0},
        },
        "notes": list(solution.notes),
    }


def operator_document(report: OperatorReport) -> dict[str, Any]:
    """One explained operator with the keys that scripts rely on."""
    return {
        "name": report.name,
        "kind": report.kind,
        "module": report.module,
        "device": report.device,
        "source": report.source,
        "unit_size": report.unit_size,
        "alternatives": [
            {
                "device": one.device,
                "seconds": one.seconds,
                "objective_seconds": one.objective_seconds,
                "change_seconds": one.change_seconds,
                "reason": one.reason,
            }
            for one in report.alternatives
        ],
    }


class Progress:
    """One line on stderr that says how far a search is; silent unless a person watches."""

    def __init__(self, limit_seconds: float | None) -> None:
        self._limit = limit_seconds
        self._started = self._last = time.monotonic()
        self._shown = False
        self._watched = sys.stderr.isatty()

    def __call__(self, step: Improvement) -> None:
        """Show one improvement, but not too often."""
        now = time.monotonic()
        if not self._watched or now - self._started < PATIENCE_SECONDS or now - self._last < INTERVAL_SECONDS:
            return
        from stead.cluster.units import format_seconds

        self._last, self._shown = now, True
        value = step.objective_seconds
        gap = (value - step.bound_seconds) / value if value > 0 else 0.0
        limit = "" if self._limit is None else f" of {self._limit:g}"
        print(
            f"\r\x1b[K {format_seconds(value)}  bound {format_seconds(step.bound_seconds)}  gap {gap * 100:.1f} %  "
            f"{step.elapsed_seconds:.1f}{limit} s  {step.evaluations} evaluations  Ctrl-C keeps the best",
            end="", file=sys.stderr, flush=True,
        )  # fmt: skip

    def close(self) -> None:
        """Wipe the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
