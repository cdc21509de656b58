"""What targets have in common that take any placement of the operators of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.export.base import Answer, Exporter, Granularity, Projection
from stead.export.projecting import operators_named, projected, refuse_moves
from stead.graph import Graph
from stead.plan import Plan
from stead.printing.wording import quoted, shown_path
from stead.problem import Constraints, Latency, Placement, Problem
from stead.run.segments import running_order
from stead.sim import simulate


class ByOperator:
    """Everything can be expressed, and runs as it is planned, on all devices that the consumer has a name for."""

    __slots__ = ()
    granularity: ClassVar[Granularity] = "operator"

    def banned(self, cluster: Cluster) -> dict[int, str]:
        """Devices that the consumer cannot use, with the reason; a subclass may know some."""
        return {}

    def constraints(self, graph: Graph, cluster: Cluster) -> Constraints:
        """Every operator may be anywhere that the consumer can use."""
        return Constraints(forbid=tuple(("*", cluster.names[d]) for d in self.banned(cluster)))

    def charged(self, problem: Problem) -> Problem:
        """The problem as it is."""
        return problem

    def project(self, plan: Plan) -> Projection:
        """The plan as it is, but for what is on devices that the consumer cannot use: that goes where it is fastest."""
        problem, before = plan.problem, plan.placement.devices
        banned = self.banned(problem.cluster)
        stays = np.isin(before, list(banned), invert=True)
        row = np.where(stays, before, self._fastest(problem, banned)[problem.units]) if banned else before
        return projected(
            plan, problem, row.astype(before.dtype), group=lambda v: "",
            name=lambda members: operators_named(problem, members), why=lambda v: banned[int(before[v])],
        )  # fmt: skip

    def _fastest(self, problem: Problem, banned: Mapping[int, str]) -> NDArray[np.int64]:  # [unit]
        """The device on which the operators of each unit take the least time, of those that can be used."""
        seconds = np.zeros((problem.unit_count, len(problem.cluster)))
        np.add.at(seconds, problem.units, problem.costs.seconds)
        seconds[:, list(banned)] = np.inf
        stuck = np.flatnonzero(np.isinf(seconds.min(axis=1))[problem.units])
        if stuck.size:
            named = operators_named(problem, stuck.tolist())
            raise BadInput(f"{named} can run nowhere else: {next(iter(banned.values()))}")
        found: NDArray[np.int64] = seconds.argmin(axis=1)
        return found


def ready(exporter: Exporter, plan: Plan, missing: str | None) -> None:
    """BadInput where a plan cannot be exported: by its kind, for lack of a file (`missing` says so), or as it is."""
    reason = exporter.unsupported(plan.problem) or missing
    if reason is not None:
        raise BadInput(f"{exporter.name} cannot take this plan: {reason}")
    refuse_moves(exporter, exporter.project(plan))


def no_file(model: str, suffix: str) -> str | None:
    """Why there is no file to export from; None if there is one."""
    if not model:
        return f"the model is not in the plan: give its file as the option model=FILE{suffix}"
    return None if Path(model).is_file() else f"{shown_path(model)} is no file; give the one that the plan was made of"


def check_same(planned: Graph, read: Graph, model: str) -> None:
    """BadInput where a file is not the one that a plan was made of."""
    if planned.operator_names == read.operator_names:
        return
    strange = next((name for name in read.operator_names if name not in set(planned.operator_names)), None)
    what = f"the plan has no {quoted(strange)}" if strange else "it has fewer operators"
    raise BadInput(f"{shown_path(model)} is not what the plan was made of: {what}")


def order_of(plan: Plan) -> list[int]:
    """Operators in an order in which one run of a placement begins them."""
    once = plan.problem.with_objective(Latency())  # other objectives have no time line
    return running_order(once.graph, simulate(once, Placement(once, plan.placement.devices)).start_seconds)


def elsewhere(cluster: Cluster) -> Answer:
    """What is said about memory where devices are played by one CPU."""
    return Answer("not checkable here", f"{', '.join(cluster.names)} are played by the CPU, which shares its memory")
