"""A benchmark as tables, on a screen and in Markdown: standings of solvers, then every instance."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

from stead.bench.results import Bench, Cell, Limit
from stead.cluster.quantities import format_seconds
from stead.files import read_text, write_text
from stead.printing.look import GOOD, Look
from stead.printing.table import Cell as Shown
from stead.printing.table import Column, Painted, in_seconds, table

BEGIN, END = "<!-- begin of `stead bench --markdown` -->", "<!-- end of `stead bench --markdown` -->"
_SIGNS = {"unsupported": "·", "infeasible": "no fit", "error": "error", "killed": "killed"}


def markdown(bench: Bench, title: str) -> str:
    """Tables, and the reasons of what went wrong."""
    parts = [
        title,
        "",
        "| solver | budget | solved | wins | mean ratio | worst ratio | CPU |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} s |" for row in _standings(bench)),
    ]
    for limit in bench.limits:
        parts += ["", *_instances(bench, limit)]
    failures = _failures(bench)
    if failures:
        parts += ["", "What went wrong:", "", *failures]
    return "\n".join(parts) + "\n"


def write_markdown(path: Path, text: str) -> None:
    """Put the tables between the marks of a file that has them; else make them the file."""
    if path.exists():
        old = read_text(path)
        if BEGIN in old and END in old:
            head, tail = old[: old.index(BEGIN)], old[old.index(END) :]
            text = f"{head}{BEGIN}\n{text}{tail}"
    write_text(path, text)


def limit_text(limit: Limit) -> str:
    """A budget in words."""
    seconds, evaluations = limit
    parts = [] if seconds is None else [f"{seconds:g} s"]
    if evaluations is not None:
        parts.append(f"{evaluations} evaluations")
    return " or ".join(parts) or "no limit"


def text_tables(bench: Bench, title: str, look: Look) -> str:
    """The same for a screen."""
    parts = [*look.wrapped(title.replace("`", "")), ""]
    columns = [
        Column("solver", least=12), Column("budget", least=8), Column("solved", right=True), Column("wins", right=True),
        Column("mean ratio", right=True), Column("worst ratio", right=True), Column("CPU", "s", right=True),
    ]  # fmt: skip
    parts += table(columns, _standings(bench), look)
    for limit in bench.limits:
        parts += ["", *_screen_instances(bench, limit, look)]
    failures = _failures(bench)
    if failures:
        parts += ["", "What went wrong:", *(piece for one in failures for piece in look.wrapped(one))]
    return "\n".join(parts)


def _screen_instances(bench: Bench, limit: Limit, look: Look) -> list[str]:
    """A row per instance, as many solvers beside each other as there is room for, the others below."""
    solvers = _solvers(bench, limit)
    time = in_seconds(median(bench.best.values()) if bench.best else 0.0, digits=4)
    lines = look.wrapped(f"Budget {limit_text(limit)}, each solver's median value over the best of all runs:")
    facts = [
        Column("instance", least=24), Column("operators", right=True, drop=1), Column("best", time.unit, right=True),
        Column("gap", "%", right=True),
    ]  # fmt: skip
    while solvers:
        shown = solvers[: max((look.columns - 60) // 14, 2)]
        solvers = solvers[len(shown) :]
        rows: list[list[Shown]] = []
        for name in bench.instances:
            best = bench.best.get(name)
            gap = f"{bench.gap(name, best) * 100:.1f}" if best is not None else "-"
            known = [name, _operators(bench, name), time(best) or "-", gap]
            rows.append([*known, *(screen_cell(bench, name, bench.cell(name, one, limit)) for one in shown)])
        lines += table([*facts, *(Column(one, "ratio", right=True, least=8) for one in shown)], rows, look)
    return lines


def screen_cell(bench: Bench, name: str, cell: Cell | None) -> Shown:
    """What came out as a cell of a table; empty where nothing has run."""
    text = _cell(bench, name, cell)
    return Painted(text.strip("*"), GOOD) if text.startswith("**") else text


def _standings(bench: Bench) -> list[list[str]]:
    rows = []
    for one in bench.standings():
        mean = f"{one.mean_ratio:.4f}" if one.solved else "-"
        worst = f"{one.worst_ratio:.3f}" if one.solved else "-"
        solved = f"{one.solved} of {one.asked}"
        rows.append(
            [one.solver, limit_text(one.limit), solved, str(one.wins), mean, worst, f"{one.cpu_seconds:.2f}"]
        )
    return rows


def _solvers(bench: Bench, limit: Limit) -> list[str]:
    return [name for name in bench.solvers if any(bench.cell(one, name, limit) for one in bench.instances)]


def _operators(bench: Bench, name: str) -> str:
    return str(bench.facts.get(name, {}).get("operators", "?"))


def _instances(bench: Bench, limit: Limit) -> list[str]:
    shown = _solvers(bench, limit)
    lines = [
        f"Budget {limit_text(limit)}, each column the median value over the best of all runs:",
        "",
        "| instance | operators | bound | best | gap | " + " | ".join(shown) + " |",
        "|---|---|---|---|---|" + "---|" * len(shown),
    ]
    for name in bench.instances:
        best = bench.best.get(name)
        bound, bound_name = bench.bounds.get(name, (0.0, ""))
        cells = [_cell(bench, name, bench.cell(name, solver, limit)) for solver in shown]
        known = [
            _operators(bench, name),
            f"{format_seconds(bound)} ({bound_name})" if bound else "-",
            format_seconds(best) if best is not None else "-",
            f"{bench.gap(name, best) * 100:.1f} %" if best is not None else "-",
        ]
        lines.append(f"| {name} | " + " | ".join([*known, *cells]) + " |")
    return lines


def _cell(bench: Bench, name: str, cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.value is None:
        return _SIGNS.get(cell.status, cell.status)
    ratio = bench.ratio(name, cell.value)
    text = f"{ratio:.3f}" if math.isfinite(ratio) else "-"
    return f"**{text}**" if ratio <= 1.0005 else text


def _failures(bench: Bench) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for record in bench.records:
        if record["status"] in ("error", "killed"):
            reason = " ".join(str(record.get("reason", "")).split())
            found.setdefault((record["solver"], reason), []).append(record["instance"])
    return [
        f"- {solver}: {reason} ({len(names)} runs, first {names[0]})"
        for (solver, reason), names in found.items()
    ]
