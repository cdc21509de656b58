"""Why operators are where they are, as text; computes nothing new."""

from __future__ import annotations

import math

from stead.printing.look import BAD, GOOD, PLAIN, Look, device_style
from stead.printing.table import Cell, Column, Painted, Scale, in_seconds, table
from stead.report.facts import Alternative, NamedReport, OperatorReport


def operator_text(report: OperatorReport, look: Look = PLAIN, *, asked: int = 1) -> str:
    """Why an operator, or so many that were asked for as one, is where it is, one line per device."""
    module = f", module {report.module}" if report.module else ""
    moves = f"; {report.unit_size} operators move together" if report.unit_size > asked else ""
    head = f"{report.name} ({report.kind or 'no kind'}{module}) is on {report.device}"
    finite = [one for one in report.alternatives if math.isfinite(one.objective_seconds)]
    own = in_seconds(max((one.seconds for one in report.alternatives if math.isfinite(one.seconds)), default=0))
    whole = in_seconds(max((one.objective_seconds for one in finite), default=0))
    change = in_seconds(max((abs(one.change_seconds) for one in finite), default=0))
    columns = [
        Column("device", least=12),
        Column("itself", own.unit, right=True),
        Column("whole plan", whole.unit, right=True),
        Column("change", change.unit, right=True),
        Column("why", least=20, sentence=True),
    ]
    rows: list[list[Cell]] = []
    for d, one in enumerate(report.alternatives):
        here, works = one.device == report.device, math.isfinite(one.objective_seconds)
        sign = "+" if one.change_seconds > 0 else ""
        moved: Cell = ""
        if works and not here:
            moved = Painted(f"{sign}{change(one.change_seconds)}", BAD if one.change_seconds > 0 else GOOD)
        rows.append([
            Painted(f"{'>' if here else ' '} {one.device}", device_style(d)),
            own(one.seconds) if math.isfinite(one.seconds) else "cannot run",
            whole(one.objective_seconds) if works else "-",
            moved,
            one.reason if works else f"does not work: {one.reason}",
        ])  # fmt: skip
    first = look.fitted([f"{head}   costs: {report.source}{moves}"])
    return "\n".join([*first, *table(columns, rows, look)])


def named_text(report: NamedReport, look: Look = PLAIN) -> str:
    """Why all that fits a name is where it is: what moving all of it does, then one line for each operator."""
    together = operator_text(report.together, look, asked=report.count)
    if report.count == 1:
        return together
    if not report.each:
        return f"{together}\n\n{report.count} operators are too many to show one by one; name fewer"
    return f"{together}\n\n{_one_by_one(report, look)}"


def _one_by_one(report: NamedReport, look: Look) -> str:
    """A line for each operator; what moving it alone does, unless all of them move together in any case."""
    apart = any(one.unit_size < report.together.unit_size for one in report.each)
    own = in_seconds(max(one.here.seconds for one in report.each))
    changes = [abs(one.elsewhere.change_seconds) for one in report.each if one.elsewhere is not None]
    change = in_seconds(max(filter(math.isfinite, changes), default=0))
    columns = [
        Column("operator", least=12), Column("kind", least=8), Column("device", least=8),
        Column("itself", own.unit, right=True),
    ]  # fmt: skip
    if apart:
        columns += [Column("moved alone", change.unit, right=True), Column("to", least=8), Column("why", least=16)]
    rows: list[list[Cell]] = []
    for one in report.each:
        rows.append([one.name, one.kind, one.device, own(one.here.seconds)])
        if apart:
            rows[-1] += ["", "", ""] if one.elsewhere is None else _moved(one.elsewhere, change)
    return "\n".join(table(columns, rows, look))


def _moved(one: Alternative, change: Scale) -> list[Cell]:
    if not math.isfinite(one.change_seconds):
        return ["-", one.device, f"does not work: {one.reason}"]
    worse = one.change_seconds > 0
    return [
        Painted(f"{'+' if worse else ''}{change(one.change_seconds)}", BAD if worse else GOOD), one.device, one.reason,
    ]  # fmt: skip
