"""Plans as documents and as files: readable line by line where they are small, packed where they are large."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.files import AnyPath, plain, write_bytes
from stead.plan.checksums import with_checksums
from stead.plan.fields import FORMAT, SOLUTION, VERSION, Baseline
from stead.plan.rows import BYTES, INDICES, SECONDS, SMALL, as_row, devices_type
from stead.problem import Latency, Objective, Order, Priority, Problem, ProgramOrder
from stead.readers.native.npz import graph_as_npz
from stead.readers.native.reader import graph_as_dict
from stead.solvers import Solution

PACKED_FROM = 1_000  # operators
_WIDTH = 110


def write_plan(
    path: AnyPath,
    problem: Problem,
    solution: Solution,
    baselines: Sequence[Baseline],
    provenance: Mapping[str, Any],
) -> None:
    """Write a plan; the same problem, solver and seed give the same bytes, `repro` apart."""
    write_bytes(path, plan_bytes(problem, solution, baselines, provenance))


def plan_bytes(
    problem: Problem, solution: Solution, baselines: Sequence[Baseline], provenance: Mapping[str, Any]
) -> bytes:
    """A plan as its file holds it."""
    packed = len(problem.graph) >= PACKED_FROM
    document = plan_document(problem, solution, baselines, provenance, packed=packed)
    return plan_text(with_checksums(document)).encode()


def plan_document(
    problem: Problem,
    solution: Solution,
    baselines: Sequence[Baseline],
    provenance: Mapping[str, Any],
    *,
    packed: bool = False,
) -> dict[str, Any]:
    """Plain data of a plan; `packed` turns lists with an item per operator into texts."""
    placement, cluster, trail = solution.placement, problem.cluster, solution.trail
    document = {
        "format": FORMAT,
        "version": VERSION,
        **{name: getattr(solution, name) for name in SOLUTION},
        "objective": _objective(problem.objective, packed),
        "objective_seconds": solution.objective_seconds,
        "bound_seconds": solution.bound_seconds,
        "gap": solution.gap,
        "placement": as_row(placement.devices, devices_type(len(cluster)), packed=True)
        if packed
        else placement.by_name(),
        "order": order_document(placement.order, packed),
        "replicas": [[cluster.names[d] for d in group] for group in placement.replicas],
        "trail": [
            [step.evaluations, step.objective_seconds, step.bound_seconds, step.found_by] for step in trail
        ],
        "baselines": [_baseline(one, packed) for one in baselines],
        "hashes": {
            "graph": problem.graph.fingerprint,
            "devices": cluster.fingerprint,
            "costs": problem.costs.fingerprint,
            "problem": problem.fingerprint,
        },
        "problem": {
            "graph": _graph(problem, packed),
            "cluster": cluster.as_dict(),
            "costs": _costs(problem, packed),
            "constraints": {
                "pin": problem.constraints.pin,
                "forbid": problem.constraints.forbid,
                "colocate": problem.constraints.colocate,
            },
        },
        "repro": {
            **provenance,
            "elapsed_seconds": solution.elapsed_seconds,
            "trail_seconds": [step.elapsed_seconds for step in trail],
        },
    }
    return {key: plain(value) for key, value in document.items()}


def _objective(objective: Objective, packed: bool) -> dict[str, Any]:
    if isinstance(objective, Latency):
        policy = objective.policy
        ordered = isinstance(policy, Priority | ProgramOrder) and any(
            isinstance(getattr(policy, name), np.ndarray) for name in policy.__dataclass_fields__
        )
        return {
            "name": "latency",
            "execution": objective.execution,
            "policy": order_document(policy, packed) if ordered else policy.name,  # type: ignore[arg-type]
            "pieces": objective.pieces,
            "order": objective.order,
        }
    return {
        "name": "throughput",
        "load": objective.load,
        "microbatches": objective.microbatches,
        "schedule": objective.schedule,
        "samples_per_update": objective.samples_per_update,
    }


def order_document(order: Order | None, packed: bool) -> dict[str, Any] | None:
    """An order as a file holds it."""

    def row(values: NDArray[Any] | None) -> str | list[Any] | None:
        return None if values is None else as_row(values, INDICES, packed=packed)

    if order is None:
        return None
    if isinstance(order, Priority):
        return {
            "policy": order.name,
            "position": row(order.position),
            "transfer_position": row(order.transfer_position),
        }
    length = 0 if order.order is None else len(order.order)  # with sends it is not that of the graph
    return {"policy": order.name, "order": row(order.order), "length": length, "sends": order.sends}


def _baseline(one: Baseline, packed: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": one.name, "objective_seconds": one.objective_seconds, "reason": one.reason}
    if one.placement is None:
        return {**entry, "devices": None}
    kept = devices_type(len(one.placement.problem.cluster))
    entry["devices"] = as_row(one.placement.devices, kept, packed=packed)
    if one.placement.order is not None:
        entry["order"] = order_document(one.placement.order, packed)
    if one.placement.replicas:
        names = one.placement.problem.cluster.names
        entry["replicas"] = [[names[d] for d in group] for group in one.placement.replicas]
    return entry


def _graph(problem: Problem, packed: bool) -> dict[str, Any]:
    if not packed:
        return graph_as_dict(problem.graph)
    return {"npz": base64.b64encode(graph_as_npz(problem.graph)).decode()}


def _costs(problem: Problem, packed: bool) -> dict[str, Any]:
    costs, names = problem.costs, problem.cluster.names
    first = {c: names[d] for d, c in reversed(list(enumerate(costs.columns.tolist())))}  # device of each column
    like = {name: first[c] for name, c in zip(names, costs.columns.tolist(), strict=True) if first[c] != name}

    def columns(table: NDArray[Any], dtype: str) -> dict[str, Any]:
        return {first[c]: as_row(table[:, c], dtype, packed=packed) for c in range(table.shape[1])}

    return {
        "seconds": columns(costs.column_seconds, SECONDS),
        "sources": columns(costs.column_sources, SMALL),
        "workspace_bytes": columns(costs.column_workspace_bytes, BYTES)
        if costs.column_workspace_bytes.any()
        else None,
        **({"like": like} if like else {}),
        "tensor_seconds": None
        if costs.tensor_seconds is None
        else as_row(costs.tensor_seconds, SECONDS, packed=packed),
    }


# Lines


def plan_text(document: Mapping[str, Any]) -> str:
    """JSON with a line for every operator, device, link, rule and key, so that two plans can be compared by `diff`."""
    return _block(document, 0) + "\n"


def _block(value: Any, depth: int) -> str:
    line = _line(value)
    if depth > 0 and (len(line) + depth <= _WIDTH or not isinstance(value, dict | list)):
        return line
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, list):
        nested = any(isinstance(item, dict | list) for item in value)
        lines = [_line(item) for item in value] if nested else _filled(value, depth)
        return f"[{inner}{f',{inner}'.join(lines)}{outer}]"
    lines = [f"{_line(key)}: {_block(item, depth + 1)}" for key, item in value.items()]
    return f"{{{inner}{f',{inner}'.join(lines)}{outer}}}"


def _filled(values: Sequence[Any], depth: int) -> list[str]:
    """Numbers in lines of equal width, many to a line."""
    lines, width = [""], _WIDTH - depth
    for text in map(_line, values):
        if not lines[-1]:
            lines[-1] = text
        elif len(lines[-1]) + len(text) + 2 <= width:
            lines[-1] += f", {text}"
        else:
            lines.append(text)
    return lines


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
