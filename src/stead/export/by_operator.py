"""What targets have in common that take any placement of the operators of a file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.export.base import Answer, Granularity, Projection
from stead.export.projecting import operators_named, projected
from stead.graph import Graph
from stead.plan import Plan
from stead.printing.wording import quoted, shown_path
from stead.problem import Constraints, Problem


class ByOperator:
    """Everything can be expressed, and runs as it is planned."""

    __slots__ = ()
    granularity: ClassVar[Granularity] = "operator"

    def constraints(self, graph: Graph, cluster: Cluster) -> Constraints:
        """None: every operator may be anywhere."""
        return Constraints()

    def charged(self, problem: Problem) -> Problem:
        """The problem as it is."""
        return problem

    def project(self, plan: Plan) -> Projection:
        """The plan as it is."""
        return projected(
            plan, plan.problem, plan.placement.devices, group=str,
            name=lambda members: operators_named(plan.problem, members), why=lambda v: "",
        )  # fmt: skip


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


def elsewhere(cluster: Cluster) -> Answer:
    """What is said about memory where devices are played by one CPU."""
    return Answer("not checkable here", f"{', '.join(cluster.names)} are played by the CPU, which shares its memory")
