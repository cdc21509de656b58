"""Ways to find a placement: baselines, splits, search, and the portfolio that chooses among them."""

from stead.solvers.base import (
    Budget,
    Improvement,
    Search,
    Solution,
    Solver,
    solver,
    solver_class,
    solver_names,
)

__all__ = ["Budget", "Improvement", "Search", "Solution", "Solver", "solver", "solver_class", "solver_names"]
