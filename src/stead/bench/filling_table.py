"""The table of a benchmark while it is being filled: a row per instance and budget, a column per solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from stead.bench.child import BOUND
from stead.bench.results import Bench, Record
from stead.bench.runner import Job
from stead.bench.tables import limit_text, screen_cell
from stead.printing.look import Look
from stead.printing.table import Cell, Column, table

T = TypeVar("T")
_HEADER = 3  # lines before the rows: the count, titles and units
_SOLVER = 14  # columns that a solver usually takes


def filling_lines(jobs: Sequence[Job], records: Sequence[Record], look: Look, room: int) -> list[str]:
    """How many runs have ended, and their values over the best so far, in so many lines.

    Where there are more rows or solvers than room, those about the run that ended last are shown.
    """
    found = Bench(records)
    wanted = [job for job in jobs if job.solver != BOUND]
    rows = list(dict.fromkeys((job.instance, (job.seconds, job.evaluations)) for job in wanted))
    solvers = list(dict.fromkeys(job.solver for job in wanted))
    ended = [record for record in found.records if record["solver"] != BOUND]
    row, column = 0, 0
    if ended:
        last = ended[-1]
        row = rows.index((last["instance"], (last["seconds"], last["evaluations_limit"])))
        column = solvers.index(last["solver"])
    shown = _around(rows, row, room - _HEADER)
    named = _around(solvers, column, max((look.columns - 40) // _SOLVER, 2))
    columns = [
        Column("instance", least=16), Column("budget", least=6, drop=1),
        *(Column(name, "ratio", right=True, least=6) for name in named),
    ]  # fmt: skip
    cells: list[list[Cell]] = [
        [name, limit_text(limit), *(screen_cell(found, name, found.cell(name, one, limit)) or "." for one in named)]
        for name, limit in shown
    ]
    return [f" {len(records)} of {len(jobs)} runs", *table(columns, cells, look)]


def _around(values: Sequence[T], middle: int, most: int) -> Sequence[T]:
    """At most so many neighbours of a value and itself."""
    most = max(most, 1)
    begin = min(max(middle - most // 2, 0), max(len(values) - most, 0))
    return values[begin : begin + most]
