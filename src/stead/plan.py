"""Plan: a problem, the answer to it and where both come from; the file users keep."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.costs import Costs
from stead.errors import BadInput
from stead.formats.base import read_json
from stead.formats.json_graph import graph_as_dict, graph_from_dict
from stead.problem import (
    POLICIES,
    Constraints,
    Fifo,
    Latency,
    Objective,
    Order,
    Placement,
    Priority,
    Problem,
    ProgramOrder,
    Throughput,
)
from stead.sim import Trace, simulate
from stead.solvers import Solution
from stead.version import __version__

FORMAT, VERSION = "stead.plan", 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a simple rule gives for the same problem; `reason` says why there is no value."""

    name: str
    objective_seconds: float | None = None
    reason: str = ""
    placement: Placement | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """A placed problem.

    `provenance` says how it was made (model, devices as given, seed, versions); everything else is checked against
    the problem when a plan is loaded.
    """

    problem: Problem
    solution: Solution
    baselines: tuple[Baseline, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def placement(self) -> Placement:
        """One device per operator."""
        return self.solution.placement

    @cached_property
    def trace(self) -> Trace:
        """The plan as the simulator runs it."""
        return simulate(self.problem, self.placement)

    @property
    def best_baseline(self) -> Baseline | None:
        """The best of the simple rules, if any of them works."""
        valued = [baseline for baseline in self.baselines if baseline.objective_seconds is not None]
        return min(valued, key=lambda baseline: baseline.objective_seconds or 0.0, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the plan file."""
        problem, solution = self.problem, self.solution
        return {
            "format": FORMAT,
            "version": VERSION,
            "solver": solution.solver,
            "found_by": solution.found_by,
            "objective": objective_as_dict(problem.objective),
            "objective_seconds": solution.objective_seconds,
            "bound_seconds": solution.bound_seconds,
            "bound_name": solution.bound_name,
            "scope": solution.scope,
            "gap": solution.gap,
            "seed": solution.seed,
            "evaluations": solution.evaluations,
            "interrupted": solution.interrupted,
            "notes": list(solution.notes),
            "placement": self.placement.by_name(),
            "order": _order_as_dict(self.placement.order),
            "replicas": [[problem.cluster.names[d] for d in group] for group in self.placement.replicas],
            "baselines": [
                {"name": one.name, "objective_seconds": one.objective_seconds, "reason": one.reason,
                 "devices": None if one.placement is None else one.placement.devices.tolist()}
                for one in self.baselines
            ],
            "hashes": {
                "graph": problem.graph.fingerprint,
                "devices": problem.cluster.fingerprint,
                "costs": problem.costs.fingerprint,
                "problem": problem.fingerprint,
            },
            "problem": {
                "graph": graph_as_dict(problem.graph),
                "cluster": problem.cluster.as_dict(),
                "costs": _costs_as_dict(problem),
                "constraints": {"pin": problem.constraints.pin, "forbid": problem.constraints.forbid,
                                "colocate": problem.constraints.colocate},
            },
            "repro": dict(self.provenance),
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the plan; the same problem, solver and seed give the same bytes, `repro.time` apart."""
        target = Path(path)
        try:
            text = json.dumps(_without_infinities(self.as_dict()), separators=(",", ":"), allow_nan=False)
            scratch = target.with_name(f".{target.name}.part")
            scratch.write_text(text + "\n", encoding="utf-8")
            scratch.replace(target)  # an old plan is never left half overwritten
        except OSError as error:
            raise BadInput(f"cannot write {target}: {error.strerror or error}") from None

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan back; anything that does not belong together is an error."""
        data = read_json(Path(path))
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise BadInput(f"{path} is not a plan; `stead place MODEL --devices D -o plan.json` writes one")
        if not isinstance(data.get("version"), int) or data["version"] > VERSION:
            raise BadInput(
                f"{path} is a plan of version {data.get('version')}; this stead reads up to {VERSION}"
            )
        try:
            return _from_dict(data, str(path))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise BadInput(
                f"{path}: the plan is damaged ({type(error).__name__}: {error}); make it again"
            ) from None


def provenance(*, model: str, devices: str, seed: int) -> dict[str, Any]:
    """How a plan is made here and now."""
    return {
        "model": model,
        "devices": devices,
        "seed": seed,
        "stead": __version__,
        "python": platform.python_version(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def objective_as_dict(objective: Objective) -> dict[str, Any]:
    """Plain data of an objective; policies with arrays of their own are named only."""
    if isinstance(objective, Latency):
        return {
            "name": "latency",
            "execution": objective.execution,
            "policy": objective.policy.name,
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


def objective_from_dict(data: Mapping[str, Any]) -> Objective:
    """The inverse of `objective_as_dict`."""
    options = {key: value for key, value in data.items() if key != "name"}
    if data["name"] == "latency":
        policy = POLICIES.get(options.pop("policy", "fifo"), Fifo)()
        return Latency(policy=policy, **options)
    return Throughput(**options)


def _order_as_dict(order: Order | None) -> dict[str, Any] | None:
    """Plain data of the order that a placement brings."""
    if order is None:
        return None
    fields = ("position", "transfer_position") if isinstance(order, Priority) else ("order", "sends")
    values = {key: getattr(order, key) for key in fields}
    return {"policy": order.name} | {
        key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in values.items()
    }


def _order_from_dict(data: Mapping[str, Any] | None) -> Order | None:
    """The inverse of `_order_as_dict`."""
    if data is None:
        return None
    if data["policy"] == "priority":
        return Priority(data["position"], data["transfer_position"])
    return ProgramOrder(data["order"], data["sends"])


def _costs_as_dict(problem: Problem) -> dict[str, Any]:
    costs = problem.costs

    def columns(table: NDArray[Any]) -> dict[str, list[Any]]:
        return {name: table[:, d].tolist() for d, name in enumerate(problem.cluster.names)}

    return {
        "seconds": columns(costs.seconds),
        "sources": columns(costs.sources),
        "workspace_bytes": columns(costs.workspace_bytes) if costs.workspace_bytes.any() else None,
        "tensor_seconds": None if costs.tensor_seconds is None else costs.tensor_seconds.tolist(),
    }


def _costs_from_dict(data: Mapping[str, Any], graph: Any, cluster: Cluster) -> Costs:
    def table(key: str, dtype: type) -> Any:
        columns = [data[key][name] for name in cluster.names]
        return np.array([[math.inf if x is None else x for x in column] for column in columns], dtype=dtype).T

    return Costs(
        graph,
        cluster,
        np.ascontiguousarray(table("seconds", np.float64)).reshape(len(graph), len(cluster)),
        workspace_bytes=None if data["workspace_bytes"] is None else table("workspace_bytes", np.int64),
        sources=table("sources", np.uint8).reshape(len(graph), len(cluster)),
        tensor_seconds=None
        if data["tensor_seconds"] is None
        else np.array(data["tensor_seconds"], dtype=np.float64),
    )


def _from_dict(data: Mapping[str, Any], path: str) -> Plan:
    parts = data["problem"]
    graph = graph_from_dict(parts["graph"], place=path)
    cluster = Cluster.from_dict(parts["cluster"])
    constraints = Constraints(
        tuple((name, device) for name, device in parts["constraints"]["pin"]),
        tuple((name, device) for name, device in parts["constraints"]["forbid"]),
        tuple(tuple(group) for group in parts["constraints"]["colocate"]),
    )
    costs = _costs_from_dict(parts["costs"], graph, cluster)
    problem = Problem(
        graph, cluster, costs, objective=objective_from_dict(data["objective"]), constraints=constraints
    )
    if data["hashes"]["problem"] != problem.fingerprint:
        raise BadInput(f"{path}: the plan was changed after it was made (its hashes differ); make it again")
    solution = Solution(
        placement=Placement(
            problem,
            Placement.from_names(problem, data["placement"]).devices,
            _order_from_dict(data.get("order")),
            [[cluster.index(name) for name in group] for group in data.get("replicas", [])],
        ),
        objective_seconds=float(data["objective_seconds"]),
        bound_seconds=float(data["bound_seconds"]),
        bound_name=data["bound_name"],
        scope=data.get("scope", ""),
        solver=data["solver"],
        found_by=data["found_by"],
        seed=data["seed"],
        evaluations=data["evaluations"],
        interrupted=data["interrupted"],
        notes=tuple(data["notes"]),
    )
    baselines = tuple(
        Baseline(
            one["name"],
            one["objective_seconds"],
            one["reason"],
            None if one["devices"] is None else Placement(problem, np.array(one["devices"], dtype=np.int64)),
        )
        for one in data["baselines"]
    )
    return Plan(problem, solution, baselines, data["repro"])


def _without_infinities(value: Any) -> Any:
    """JSON has no infinity: null stands for it in costs ("cannot run") and in rates ("no limit")."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(item) for item in value]
    return value
