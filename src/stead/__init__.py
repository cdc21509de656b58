"""stead: device placement for neural networks.

A model and a description of devices go in; a placed, simulated, bounded and explained plan comes out.

>>> import stead
>>> problem = stead.testing.two_towers()
>>> stead.simulate(problem, stead.Placement(problem, [0, 1, 0, 1, 0])).objective_seconds
7.5

Names are imported when they are first used, so that `import stead` and `stead --help` cost next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stead.lazy import first_use

if TYPE_CHECKING:
    from stead import plot, testing
    from stead.cluster import Cluster, Device, Link, cluster_from, link_all, link_both_ways
    from stead.costs import Costs, CostSource, Given, Roofline, Source
    from stead.errors import BadCluster, BadGraph, BadInput, Infeasible, MissingExtra, RunFailed, SteadError
    from stead.graph import Graph, GraphBuilder, Operator, Tensor
    from stead.placing.loading import load
    from stead.placing.place import place, place_problem
    from stead.plan import Baseline, Plan
    from stead.problem import (
        Constraints,
        Fifo,
        Latency,
        Placement,
        PlacetoDispatch,
        Priority,
        Problem,
        ProgramOrder,
        Throughput,
    )
    from stead.readers import Model, read, write_graph
    from stead.readers.torch.capture import from_capture
    from stead.readers.torch.exported import from_torch
    from stead.report import OperatorReport, Report, explain, explain_operators, operator_text, page, summary
    from stead.run.tune import Tuned, tune
    from stead.sim import Bound, Scores, Trace, best_bound, lower_bounds, screen_many, simulate, simulate_many
    from stead.solvers import Budget, Improvement, Search, Solution, Solver, solver, solver_names
    from stead.version import __version__

_HOME = {
    "stead.plot": ("plot",),
    "stead.testing": ("testing",),
    "stead.placing.place": ("place", "place_problem"),
    "stead.cluster": ("Cluster", "Device", "Link", "cluster_from", "link_all", "link_both_ways"),
    "stead.costs": ("CostSource", "Costs", "Given", "Roofline", "Source"),
    "stead.errors": ("BadCluster", "BadGraph", "BadInput", "Infeasible", "MissingExtra", "RunFailed", "SteadError"),
    "stead.readers": ("Model", "read", "write_graph"),
    "stead.readers.torch.capture": ("from_capture",),
    "stead.readers.torch.exported": ("from_torch",),
    "stead.graph": ("Graph", "GraphBuilder", "Operator", "Tensor"),
    "stead.placing.loading": ("load",),
    "stead.plan": ("Baseline", "Plan"),
    "stead.problem": (
        "Constraints", "Fifo", "Latency", "Placement", "PlacetoDispatch", "Priority", "Problem", "ProgramOrder",
        "Throughput",
    ),
    "stead.report": ("OperatorReport", "Report", "explain", "explain_operators", "operator_text", "page", "summary"),
    "stead.run.tune": ("Tuned", "tune"),
    "stead.sim": (
        "Bound", "Scores", "Trace", "best_bound", "lower_bounds", "screen_many", "simulate", "simulate_many",
    ),
    "stead.solvers": ("Budget", "Improvement", "Search", "Solution", "Solver", "solver", "solver_names"),
    "stead.version": ("__version__",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "BadCluster", "BadGraph", "BadInput", "Baseline", "Bound", "Budget", "Cluster", "Constraints", "CostSource",
    "Costs", "Device", "Fifo", "Given", "Graph", "GraphBuilder", "Improvement", "Infeasible", "Latency", "Link",
    "MissingExtra", "Model", "Operator", "OperatorReport", "Placement", "PlacetoDispatch", "Plan", "Priority",
    "Problem", "ProgramOrder", "Report", "Roofline", "RunFailed", "Scores", "Search", "Solution", "Solver", "Source",
    "SteadError", "Tensor", "Throughput", "Trace", "Tuned", "__version__", "best_bound", "cluster_from", "explain",
    "explain_operators", "from_capture", "from_torch", "link_all", "link_both_ways",
    "load", "lower_bounds", "operator_text", "page", "place", "place_problem", "plot", "read",
    "screen_many", "simulate",
    "simulate_many", "solver", "solver_names", "summary", "testing", "tune", "write_graph",
]  # fmt: skip


_first_use = first_use(__name__, _MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name == "Placeto":
        import warnings

        message = "stead.Placeto is now called stead.PlacetoDispatch: the solver `placeto` is another class"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        name = "PlacetoDispatch"
    return _first_use(name)


def __dir__() -> list[str]:
    return sorted(__all__)
