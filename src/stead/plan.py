"""Plan: a problem, the answer to it and where both come from; `plan_file` is the file users keep."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stead.plan_file import Baseline, is_plan, plan_document, read_plan, write_plan
from stead.problem import Placement, Problem
from stead.sim import Trace, simulate
from stead.solvers import Solution
from stead.version import __version__

__all__ = ["Baseline", "Plan", "is_plan", "provenance"]


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
        """Plain data, as a small plan's file holds them."""
        return plan_document(self.problem, self.solution, self.baselines, self.provenance)

    def save(self, path: str | Path) -> None:
        """Write the plan; the same problem, solver and seed give the same bytes, `repro` apart."""
        write_plan(path, self.problem, self.solution, self.baselines, self.provenance)

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan back; the placement is simulated again, and what does not belong together is an error."""
        read = read_plan(path)
        plan = Plan(read.problem, read.solution, read.baselines, read.provenance)
        plan.__dict__["trace"] = read.trace  # where cached_property keeps it
        return plan


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
