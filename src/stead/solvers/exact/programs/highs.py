"""HiGHS as an engine of integer programs: floating point, so its bounds are taken with a margin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.solvers.exact.programs.program import Incumbent, Outcome, Program, Proved, Report, Row, Settings

MARGIN = 1e-6  # share of a bound taken off before it is rounded up to whole units
LEAST_MARGIN = 1e-9  # at least this share of the objective's upper bound
ENTRIES_PER_SECOND = 2_000_000  # of the matrix, one look at each per node of the search, for a limit in work
LARGEST = 1e4  # greatest coefficient after scaling; tolerances of HiGHS are absolute


class HiGHS:
    """A program in the form of HiGHS: rows that hold only under literals are relaxed by what bounds leave them."""

    def __init__(self, program: Program, settings: Settings, seconds: float | None) -> None:
        import highspy  # type: ignore[import-untyped]

        if program.intervals:
            raise BadInput("HiGHS knows no tasks; use engine = cp-sat")
        self._program = program
        self._scales = _column_scales(program)
        self._upper = max(program.most(*program.objective), 1)
        self._unit = _objective_unit(program, self._scales)
        self._stopped = False
        self._highs = highs = highspy.Highs()
        highs.silent()
        model = _rendered(program, self._scales, self._unit)
        highs.passModel(model)
        for option, value in {
            "threads": settings.workers,
            "parallel": "off" if settings.workers == 1 else "on",
            "random_seed": settings.seed % 2**31,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.0,
            "mip_feasibility_tolerance": 1e-7,
        }.items():
            highs.setOptionValue(option, value)
        if seconds is not None:
            highs.setOptionValue("time_limit", seconds)
        if settings.effort is not None:  # it knows no limit of work but nodes, and those of large programs take longer
            nodes = settings.effort * ENTRIES_PER_SECOND / max(1, len(model.a_matrix_.value_))
            highs.setOptionValue("mip_max_nodes", max(1, min(2**31 - 1, int(nodes))))
        if program.hint:
            indices = np.fromiter(program.hint, dtype=np.int32)
            values = np.array([value / self._scales[v] for v, value in program.hint.items()])
            highs.setSolution(len(indices), indices, values)

    def stop(self) -> None:
        """Make `solve` return soon."""
        self._stopped = True

    def solve(self, report: Report) -> Outcome:
        """Solve, reporting every incumbent and bound."""
        import highspy

        last = 0

        def improved(event: Any) -> None:
            report(Incumbent(self._values(np.array(event.data_out.mip_solution))))

        def watch(event: Any) -> None:
            nonlocal last
            bound = self._bound(event.data_out.mip_dual_bound)
            if bound > last:
                last = bound
                report(Proved(bound))
            if self._stopped:
                event.interrupt()

        self._highs.cbMipImprovingSolution.subscribe(improved)
        self._highs.cbMipInterrupt.subscribe(watch)
        self._highs.cbSimplexInterrupt.subscribe(lambda event: event.interrupt() if self._stopped else None)
        self._highs.run()
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return Outcome("infeasible", 0)
        info = self._highs.getInfo()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        values = self._values(np.array(self._highs.getSolution().col_value)) if found else None
        done = status == highspy.HighsModelStatus.kOptimal
        return Outcome("optimal" if done else "stopped", self._bound(info.mip_dual_bound), values)

    def _values(self, columns: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.rint(columns * self._scales).astype(np.int64)

    def _bound(self, bound: float) -> int:
        """A proved number of units: less by a margin for floating point, then up, as the objective is whole."""
        if not math.isfinite(bound) or bound <= 0:
            return 0
        units = bound * self._unit
        return max(0, math.ceil(units - max(MARGIN * units, LEAST_MARGIN * self._upper)))


def _column_scales(program: Program) -> NDArray[np.float64]:  # [variable]
    """Units per column: continuous variables of a large range are counted coarsely."""
    span = np.array([max(abs(low), abs(high)) for low, high in zip(program.low, program.high, strict=True)])
    scales = np.ones(len(span))
    large = np.array(program.implied, dtype=bool) & (span > LARGEST)
    scales[large] = span[large] / LARGEST
    return scales


def _objective_unit(program: Program, scales: NDArray[np.float64]) -> float:
    """What the objective is divided by, so that its greatest coefficient is 1."""
    return (
        max((abs(c) * float(scales[v]) for v, c in zip(*program.objective, strict=True)), default=1.0) or 1.0
    )


def _rendered(program: Program, scales: NDArray[np.float64], objective_unit: float) -> Any:
    """The program as columns and rows of floating-point numbers."""
    import highspy

    rows = _all_rows(program)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program), len(rows)
    lp.col_lower_ = np.array(program.low, dtype=float) / scales
    lp.col_upper_ = np.array(program.high, dtype=float) / scales
    cost = np.zeros(len(program))
    np.add.at(cost, program.objective[0], program.objective[1])
    lp.col_cost_ = cost * scales / objective_unit
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kContinuous if implied else kinds.kInteger for implied in program.implied]
    lower, upper = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
    starts, indices, values = [0], [], []
    for r, row in enumerate(rows):
        coefficients = np.array(row.coefficients, dtype=float) * scales[row.variables]
        size = max(1.0, float(np.abs(coefficients).max(initial=0.0)) / LARGEST)
        indices += row.variables
        values.append(coefficients / size)
        starts.append(len(indices))
        if row.low is not None:
            lower[r] = row.low / size
        if row.high is not None:
            upper[r] = row.high / size
    matrix = lp.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.num_col_, matrix.num_row_ = len(program), len(rows)
    matrix.start_ = np.array(starts, dtype=np.int32)
    matrix.index_ = np.array(indices, dtype=np.int32)
    matrix.value_ = np.concatenate(values) if values else np.zeros(0)
    lp.row_lower_, lp.row_upper_ = lower, upper
    return lp


def _all_rows(program: Program) -> list[Row]:
    """Rows that always hold: clauses and choices written as sums, conditions as big constants."""
    rows = []
    for row in program.rows:
        rows += [row] if not row.when else _relaxed(program, row)
    for clause in program.clauses:
        negated = sum(literal < 0 for literal in clause)
        variables = [literal if literal >= 0 else ~literal for literal in clause]
        rows.append(Row(variables, [1 if literal >= 0 else -1 for literal in clause], 1 - negated, None, ()))
    rows += [Row(choice, [1] * len(choice), 1, 1, ()) for choice in program.choices]
    return rows


def _relaxed(program: Program, row: Row) -> list[Row]:
    """One row per side, given away where a literal is false: by just as much as bounds of variables allow."""
    rows = []
    sides = []
    if row.low is not None:
        sides.append((row.coefficients, row.low))
    if row.high is not None:
        sides.append(([-c for c in row.coefficients], -row.high))
    for coefficients, low in sides:
        away = low - program.least(
            row.variables, coefficients
        )  # sum >= low - away * (literals that are false)
        if away <= 0:
            continue
        variables, scaled = list(row.variables), list(coefficients)
        for literal in row.when:
            variables.append(literal if literal >= 0 else ~literal)
            scaled.append(-away if literal >= 0 else away)
            low -= away if literal >= 0 else 0
        rows.append(Row(*_merged(variables, scaled), low, None, ()))
    return rows


def _merged(variables: list[int], coefficients: list[int]) -> tuple[list[int], list[int]]:
    """Each variable once."""
    total: dict[int, int] = {}
    for v, c in zip(variables, coefficients, strict=True):
        total[v] = total.get(v, 0) + c
    return list(total), list(total.values())
