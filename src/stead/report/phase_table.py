"""The phases of a search as a table: what each took and gained, and why the others did not run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from stead.printing.look import PLAIN, Look
from stead.printing.table import Cell, Column, Scale, in_seconds, table
from stead.solvers.phases import Phase


def phase_table(phases: Sequence[Phase], look: Look = PLAIN) -> list[str]:
    """One row per phase, in order; phases that did not run say why."""
    values = [phase.after_seconds for phase in phases if math.isfinite(phase.after_seconds)]
    scale = in_seconds(min(values, default=0.0), digits=4)
    columns = [
        Column("phase"),
        Column("runs", right=True, drop=2),
        Column("took", "s", right=True),
        Column("evaluations", right=True),
        Column("before", scale.unit, right=True),
        Column("after", scale.unit, right=True),
        Column("gain", "%", right=True),
        Column("what it does, or why it did not run", least=24, sentence=True, drop=1),
    ]
    rows: list[list[Cell]] = []
    for units, group in groupby(phases, key=lambda phase: phase.units):
        rows += [[f"{units}:", *[""] * 7]] if units else []
        rows += [_row(phase, scale) for phase in group]
    return table(columns, rows, look)


def _row(phase: Phase, scale: Scale) -> list[Cell]:
    if phase.why_not:
        return [phase.name, *[""] * 6, f"not run: {phase.why_not}"]
    gained = phase.gained_seconds
    share = f"{100 * gained / phase.before_seconds:.2f}" if math.isfinite(gained) and phase.before_seconds else "first"
    return [
        phase.name, str(phase.runs), f"{phase.seconds:.2f}", str(phase.evaluations), scale(phase.before_seconds),
        scale(phase.after_seconds), share, phase.does,
    ]  # fmt: skip
