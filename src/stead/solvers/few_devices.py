"""What solvers say that keep a bit or a column for every device, where a cluster has more than they take."""

from __future__ import annotations

from functools import wraps
from typing import TypeVar

from stead.cluster.classes import SOLVER_DEVICES
from stead.problem import Problem
from stead.solvers.solution import Solver

S = TypeVar("S", bound=Solver)


def few_devices(kind: type[S]) -> type[S]:
    """The class of a solver that takes clusters of up to 64 devices; of larger ones it says so before all else."""
    asked = kind.unsupported

    @wraps(asked)
    def unsupported(self: S, problem: Problem) -> str | None:
        if len(problem.cluster) > SOLVER_DEVICES:
            given = len(problem.cluster)
            return f"it takes up to {SOLVER_DEVICES} devices, not {given}; auto and hierarchical take more"
        return asked(self, problem)

    setattr(kind, "unsupported", unsupported)  # noqa: B010 (a method of a class that is not known yet)
    return kind
