"""CP-SAT as an engine of integer programs: whole numbers throughout, so its bounds are exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.solvers.exact.programs.program import Incumbent, Outcome, Program, Proved, Report, Settings


class CpSat:
    """A program in the form of CP-SAT.

    One worker, or several that take turns in a fixed order, so that the same seed gives the same answer wherever it
    finishes by itself.
    """

    def __init__(self, program: Program, settings: Settings, seconds: float | None) -> None:
        from ortools.sat.python import cp_model

        self._model, self._variables = _rendered(program)
        self._solver = cp_model.CpSolver()
        parameters = self._solver.parameters
        parameters.random_seed = settings.seed % 2**31
        parameters.num_workers = settings.workers
        parameters.interleave_search = settings.workers > 1
        # A presolve step of 9.15 (at-most-one inside linear rows) loses solutions and then "proves" infeasibility or
        # a wrong optimum: google/or-tools issue 5293, and seen on pipelines. Without it presolve is right.
        parameters.presolve_inclusion_work_limit = 0
        # Objectives count picoseconds. A lone worker that knows no solution may raise its bound one by one, millions
        # of times (6 operators: hours); halving the range first, for a few conflicts each, leaves little to scan.
        parameters.binary_search_num_conflicts = 10
        parameters.catch_sigint_signal = False  # the thread that listens is the one to be interrupted
        if not settings.relaxes:
            parameters.linearization_level = 0
        if seconds is not None:
            parameters.max_time_in_seconds = seconds
        if settings.effort is not None:
            parameters.max_deterministic_time = settings.effort
        self._stopped = False

    def stop(self) -> None:
        """Make `solve` return soon."""
        self._stopped = True
        self._solver.stop_search()

    def solve(self, report: Report) -> Outcome:
        """Solve, reporting every incumbent and bound."""
        from ortools.sat.python import cp_model

        if self._stopped:
            return Outcome("stopped", 0)
        variables = self._variables
        solver = self._solver

        class Reporter(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(self) -> None:
                values = np.array([self.value(v) for v in variables], dtype=np.int64)
                report(Incumbent(values))

        solver.best_bound_callback = lambda bound: report(Proved(_whole(bound)))
        status = solver.solve(self._model, Reporter())
        if status == cp_model.INFEASIBLE:
            return Outcome("infeasible", 0)
        if status == cp_model.MODEL_INVALID:
            raise AssertionError(f"CP-SAT refuses the program: {self._model.validate()}")
        values = self._values() if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
        known = status != cp_model.UNKNOWN or solver.best_objective_bound > 0
        bound = _whole(solver.best_objective_bound) if known else 0
        return Outcome("optimal" if status == cp_model.OPTIMAL else "stopped", bound, values)

    def _values(self) -> NDArray[np.int64]:
        return np.array([self._solver.value(v) for v in self._variables], dtype=np.int64)


def _whole(bound: float) -> int:
    """A bound of CP-SAT is a whole number in a double; what is not is rounded so that it stays one."""
    return math.ceil(bound - 1e-6) if math.isfinite(bound) else 0


def _rendered(program: Program) -> tuple[Any, list[Any]]:
    """The model and its variables."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    variables = [
        model.new_bool_var("") if (low, high) == (0, 1) else model.new_int_var(low, high, "")
        for low, high in zip(program.low, program.high, strict=True)
    ]

    def literal(reference: int) -> Any:
        variable = variables[reference if reference >= 0 else ~reference]
        if not variable.is_boolean:  # a fixed binary variable
            variable = model.new_constant(program.low[reference if reference >= 0 else ~reference])
        return variable if reference >= 0 else ~variable

    for row in program.rows:
        total = cp_model.LinearExpr.weighted_sum([variables[v] for v in row.variables], row.coefficients)
        low = cp_model.INT_MIN if row.low is None else row.low
        high = cp_model.INT_MAX if row.high is None else row.high
        added = model.add_linear_constraint(total, low, high)
        if row.when:
            added.only_enforce_if([literal(one) for one in row.when])
    for clause in program.clauses:
        model.add_bool_or([literal(one) for one in clause])
    for choice in program.choices:
        model.add_exactly_one([literal(one) for one in choice])
    _add_intervals(model, program, variables, literal)
    model.minimize(
        cp_model.LinearExpr.weighted_sum([variables[v] for v in program.objective[0]], program.objective[1])
    )
    for v, value in program.hint.items():
        model.add_hint(variables[v], value)
    return model, variables


def _add_intervals(model: Any, program: Program, variables: list[Any], literal: Any) -> None:
    tasks = []
    for one in program.intervals:
        start, end = variables[one.start], variables[one.end]
        if one.present is None:
            tasks.append(model.new_interval_var(start, one.size, end, ""))
        else:
            tasks.append(model.new_optional_interval_var(start, one.size, end, literal(one.present), ""))
    for group in program.apart:
        model.add_no_overlap([tasks[i] for i in group])
