"""Plan: a problem, the answer to it and where both come from."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from stead import report
from stead.errors import MissingExtra
from stead.plan.fields import Baseline
from stead.plan.writing import plan_document, write_plan
from stead.problem import Placement, Problem
from stead.sim import Trace, simulate
from stead.solvers import Solution
from stead.version import __version__


@dataclass(frozen=True, eq=False, repr=False)
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

    def traced(self, trace: Trace) -> Plan:
        """The same plan whose trace is known already: that of its placement."""
        made = replace(self)
        vars(made)["trace"] = trace
        return made

    @property
    def best_baseline(self) -> Baseline | None:
        """The best of the simple rules, if any of them works."""
        valued = [baseline for baseline in self.baselines if baseline.objective_seconds is not None]
        return min(valued, key=lambda baseline: baseline.objective_seconds or 0.0, default=None)

    def __repr__(self) -> str:
        held = ", ".join(f"{name}: {count}" for name, count in self.placement.counts().items() if count)
        return (
            f"Plan({self.problem.graph.name!r}, {self.problem.objective.name}: {self.solution.objective_seconds:.6g} s "
            f"per {self.problem.objective.unit}, {self.solution.proof}; operators {held})"
        )

    def _repr_html_(self) -> str:
        """The plan as a notebook shows it: a small table without script."""
        return report.card(self)

    def view(self) -> report.View:
        """What the report shows, as arrays: slices, transfers, memory, boxes; see `stead.report.columns`."""
        return report.view(self)

    def show(self, height: int = 900) -> report.Frame:
        """The whole report, for the last line of a notebook's cell."""
        return report.Frame(report.page(self), height)

    def layers(self) -> list[report.LayerRow]:
        """Which layer is where: one row for what a device holds of a kind of layer, exceptions last."""
        return sorted(report.layer_rows(self.problem, self.placement), key=lambda row: row.exception)

    def summary(self) -> str:
        """The plan in one screen of text."""
        return report.summary(report.explain(self))

    def explain(self, name: str) -> str:
        """Why the operators that fit a name, a pattern or a module path are where they are."""
        return report.named_text(report.explain_named(self, name))

    def to_frame(self) -> Any:
        """A pandas table with one row per operator; times are NaN where the objective has no time line."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise MissingExtra("pandas", "pandas", "plan.to_frame()") from None
        return pandas.DataFrame(report.operator_columns(self))

    def apply(self, module: Any, inputs: Any = None, *, devices: Mapping[str, str] | None = None) -> Any:
        """A torch module that runs on the devices of the plan; see `stead.export.apply`."""
        run = import_module("stead.export.apply").apply  # exporters know plans, and not the other way round
        return run(self, module, inputs, devices=devices)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as a small plan's file holds them."""
        return plan_document(self.problem, self.solution, self.baselines, self.provenance)

    def save(self, path: str | Path) -> None:
        """Write the plan; the same problem, solver and seed give the same bytes, `repro` apart."""
        write_plan(path, self.problem, self.solution, self.baselines, self.provenance)

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan back; the placement is simulated again, and what does not belong together is an error."""
        from stead.plan.reading import read_plan

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
