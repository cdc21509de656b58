"""Ways to find a placement: baselines, splits, search, and the portfolio that chooses among them.

Names are imported when they are first used: the registry can be asked without loading what solvers need.
"""

from typing import TYPE_CHECKING

from stead.lazy import first_use

if TYPE_CHECKING:
    from stead.solvers.events import Event
    from stead.solvers.registry import solver, solver_class, solver_names
    from stead.solvers.search_state import Search
    from stead.solvers.solution import Budget, Improvement, Solution, Solver

__all__ = [
    "Budget",
    "Event",
    "Improvement",
    "Search",
    "Solution",
    "Solver",
    "solver",
    "solver_class",
    "solver_names",
]

__getattr__ = first_use(
    __name__,
    {
        **dict.fromkeys(("solver", "solver_class", "solver_names"), "stead.solvers.registry"),
        "Event": "stead.solvers.events",
        "Search": "stead.solvers.search_state",
        **dict.fromkeys(("Budget", "Improvement", "Solution", "Solver"), "stead.solvers.solution"),
    },
)
