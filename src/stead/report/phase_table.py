"""The phases of a search as a table: what each took and gained, and why the others did not run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from stead.printing.look import PLAIN, Look
from stead.printing.table import Cell, Column, Scale, in_seconds, table
from stead.solvers.phases import MoveKind, Phase, joined

MOST_PARTS = 8  # of a phase that have a row each; the others share one
LEAST_SHARE = 0.01  # of the time of all phases, for a row of a part that returned nothing, and ...
LEAST_SECONDS = 0.01


def phase_table(phases: Sequence[Phase], look: Look = PLAIN) -> list[str]:
    """One row per phase, in order, with its parts below; phases that did not run say why."""
    best = min((phase.after_seconds for phase in phases), default=math.inf)
    scale = in_seconds(best if math.isfinite(best) else 0.0, digits=4)
    columns = [
        Column("phase"),
        Column("runs", right=True, drop=3),
        Column("took", "s", right=True),
        Column("evaluations", right=True, drop=2),
        Column("after", scale.unit, right=True),
        Column("gain", "%", right=True),
        Column("gain/s", "%/s", right=True),
        Column("bound", "+%", right=True),  # of the best value
        Column("what it does, or why it did not run", least=24, sentence=True, drop=1),
    ]
    rows: list[list[Cell]] = []
    least = max(LEAST_SECONDS, LEAST_SHARE * sum(phase.seconds for phase in phases))
    for units, group in groupby(phases, key=lambda phase: phase.units):
        rows += [[f"{units}:", *[""] * 8]] if units else []
        for phase in group:
            rows.append(_row(phase, phase.name, scale, best))
            rows += [_row(part, f"  {part.name}", scale, best) for part in _shown_parts(phase, least)]
    return table(columns, rows, look)


def kind_table(phases: Sequence[Phase], look: Look = PLAIN) -> list[str]:
    """One row per kind of move over all phases, the one that took longest first; nothing where none was tried."""
    kinds = [kind for kind in joined(*(phase.kinds for phase in phases)) if kind.tried]
    if not kinds:
        return []
    columns = [
        Column("move"),
        Column("tried", right=True),
        Column("kept", right=True),
        Column("took", "s", right=True),
        Column("share", "%", right=True),
        Column("gain", "%", right=True),
        Column("gain/s", "%/s", right=True),
    ]
    whole = sum(kind.seconds for kind in kinds)
    ranked = sorted(kinds, key=lambda kind: -kind.seconds)
    return table(columns, [_kind_row(kind, whole) for kind in ranked], look)


def _kind_row(kind: MoveKind, whole: float) -> list[Cell]:
    share = kind.seconds / whole if whole else 0.0
    return [
        kind.name, str(kind.tried), str(kind.kept), f"{kind.seconds:.2f}", _percent(share, 1), _percent(kind.gain, 1),
        _rate(kind.gain, kind.seconds),
    ]  # fmt: skip


def _shown_parts(phase: Phase, least_seconds: float) -> list[Phase]:
    """Parts that say more than the phase itself: those that returned something or took long, then the others as one."""
    if len(phase.parts) == 1 and phase.parts[0].runs:
        return []
    told = [
        part for part in phase.parts
        if part.why_not or part.gained_seconds > 0 or part.raised_seconds > 0 or part.seconds >= least_seconds
    ]  # fmt: skip
    told.sort(key=lambda part: (part.gained_seconds, part.raised_seconds, part.seconds), reverse=True)
    shown = [part for part in phase.parts if part in told[:MOST_PARTS]]
    others = [part for part in phase.parts if part not in shown]
    return [*shown, _together(others, phase)] if others and shown else shown


def _together(parts: list[Phase], whole: Phase) -> Phase:
    """Several parts of a phase as one."""
    ran = [part for part in parts if part.runs]
    return Phase(
        f"{len(parts)} other{'s' if len(parts) > 1 else ''}", "", runs=sum(part.runs for part in ran),
        seconds=sum(part.seconds for part in ran), evaluations=sum(part.evaluations for part in ran),
        before_seconds=whole.before_seconds, after_seconds=whole.after_seconds,
        gained_seconds=sum(part.gained_seconds for part in ran),
        raised_seconds=sum(part.raised_seconds for part in ran),
    )  # fmt: skip


def _row(phase: Phase, name: str, scale: Scale, best_seconds: float) -> list[Cell]:
    if phase.why_not:
        return [name, *[""] * 7, f"not run: {phase.why_not}"]
    gained, before = phase.gained_seconds, phase.before_seconds
    known = math.isfinite(gained) and before > 0
    share = gained / before if known and math.isfinite(before) else 0.0
    raised = phase.raised_seconds / best_seconds if best_seconds > 0 else 0.0
    return [
        name, str(phase.runs), f"{phase.seconds:.2f}", str(phase.evaluations), scale(phase.after_seconds),
        _percent(share, 2) if known else "first", _rate(share, phase.seconds), _percent(raised, 2) if raised else "",
        phase.does,
    ]  # fmt: skip


def _percent(share: float, decimals: int) -> str:
    return f"{100 * share:.{decimals}f}"


def _rate(share: float, seconds: float) -> str:
    """Gain per second; nothing where nothing was gained."""
    return f"{100 * share / max(seconds, 1e-3):.1f}" if share > 0 else ""
