"""What commands print for scripts: JSON documents on stdout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stead.plan import Plan
    from stead.report import LayerRow, OperatorReport


def print_json(document: Any) -> None:
    """One JSON document on stdout; numbers JSON has no word for are null."""
    from stead.files import plain

    print(json.dumps(plain(document), indent=1, allow_nan=False))


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
        "stopped_by": solution.stopped_by,
        "layers": [layer_document(row) for row in report.layers],
        "granularity": None if report.levels is None else report.levels.as_dict(),
        "target": report.target or None,
        "placement_matters": report.placement_matters,
        "as_good_rule": None if report.as_good is None else report.as_good.name,
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
                "kv_bytes": device.kv_bytes,
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
        "refreshed": {
            "weights": report.refreshed.weights,
            "transfers": report.refreshed.transfers,
            "sent_bytes": report.refreshed.sent_bytes,
        },
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


def layer_document(row: LayerRow) -> dict[str, Any]:
    """What one device holds of a kind of layer, with the keys that scripts rely on."""
    return {
        "device": row.device,
        "name": row.name,
        "label": row.label,
        "numbers": list(row.numbers),
        "part": row.part or None,
        "phase": row.phase or None,
        "exception": row.exception,
        "operators": row.operators,
        "weight_bytes": row.weight_bytes,
        "kv_bytes": row.kv_bytes,
        "seconds": row.seconds,
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
