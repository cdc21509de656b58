"""What the cells of the experiment say, as tables in Markdown."""

from __future__ import annotations

import math
from typing import Any

from suite import EXPERTS, GDP12

Cell = dict[str, Any]
Cells = dict[str, dict[str, Cell]]
Rows = dict[str, dict[str, list[float]]]
DECIDED = {
    "priorities": "devices and priorities",
    "devices only": "devices; first come, first served",
    "ranks only": "devices; upward ranks",
    "random priorities": "devices; random priorities",
}
COLUMNS = (
    "single", "METIS", "heft", "multilevel", "copied", "greedy", "sampled", "GDP", "GDP + polish", "search", "auto",
    "HDP", "HDP + polish", "bound",
)  # fmt: skip


def geometric(values: list[float]) -> float:
    """Their geometric mean; inf if one is, or if there are none."""
    if not values or not all(map(math.isfinite, values)):
        return math.inf
    return math.exp(sum(map(math.log, values)) / len(values))


def told_or_no_room(ratio: float) -> str:
    """A ratio, or that something did not fit."""
    return f"{ratio:.3f}" if math.isfinite(ratio) else "no room"


def seconds(cell: Cell | None, key: str) -> float | None:
    """A value of a cell: None if there is none yet, inf for what does not fit."""
    if cell is None or key not in cell:
        return None
    return math.inf if cell[key] is None else float(cell[key])


def of(cells: Cells, part: str, *words: str) -> list[Cell]:
    """The cells of a part whose keys have all these comma-separated words."""
    return [
        cell
        for key, cell in cells.get(part, {}).items()
        if set(words) <= set(key.split(", ")) and "error" not in cell
    ]


def all_seconds(cells: list[Cell], key: str) -> list[float]:
    return [seconds(cell, key) or math.inf for cell in cells]


def rows(cells: Cells) -> Rows:
    """[graph][column] -> seconds of every seed; expert included."""
    found: Rows = {}
    for one in GDP12:
        rule = cells.get("rules", {}).get(one.name)
        if rule is None:
            continue
        row = {"expert": [min(seconds(rule, name) or math.inf for name in EXPERTS)]}
        for column in ("single", "METIS", "heft", "multilevel", "bound"):
            row[column] = all_seconds([rule], column.lower())
        for column, key in (("copied", "copied"), ("greedy", "greedy"), ("sampled", "sampled"), ("GDP", "best"),
                            ("GDP + polish", "polished")):  # fmt: skip
            row[column] = all_seconds(of(cells, "gdp", one.name), key)
        for name in ("search", "auto"):
            row[name] = all_seconds(of(cells, "rivals", name, one.name), "value")
        for column, key in (("HDP", "value"), ("HDP + polish", "polished")):
            row[column] = all_seconds(of(cells, "hdp", one.name), key)
        found[one.name] = row
    return found


def middle(values: list[float]) -> float:
    """The median, the better one of two."""
    return sorted(values)[(len(values) - 1) // 2]


def told_ratio(values: list[float], expert: float) -> str:
    """Median over the expert; the worst of several seeds in brackets where it differs."""
    if not values:
        return ""
    shown = [
        f"{value / expert:.3f}" if math.isfinite(value) else "no room"
        for value in (middle(values), max(values))
    ]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} ({shown[1]})"


# Tables


def main_table(cells: Cells) -> list[str]:
    """Seconds over those of the expert; below 1 is faster."""
    table = rows(cells)
    shown = [column for column in COLUMNS if any(row[column] for row in table.values())]
    lines = [
        f"| graph | operators, devices | expert, ms | {' | '.join(shown)} |",
        f"|---|---|---:|{'---:|' * len(shown)}",
    ]
    for name, row in table.items():
        rule, expert = cells["rules"][name], row["expert"][0]
        values = [told_ratio(row[column], expert) for column in shown]
        size = f"{rule['operators']:,}, {rule['devices']}"
        lines.append(f"| {name} | {size} | {expert * 1e3:.1f} | {' | '.join(values)} |")
    means = []
    for column in shown:
        ratios = [middle(row[column]) / row["expert"][0] for row in table.values() if row[column]]
        mean = geometric(ratios)
        means.append(f"{mean:.3f}" if len(ratios) == len(table) and math.isfinite(mean) else "")
    return [*lines, f"| **geometric mean** | | | {' | '.join(means)} |"]


def order_means(cells: Cells, key: str) -> dict[str, float]:
    """[what is decided] -> mean over the graphs of medians over the expert; only where all graphs are there."""
    found: dict[str, float] = {}
    for name in DECIDED:
        ratios = [
            middle(all_seconds(runs, key)) / row["expert"][0]
            for graph, row in rows(cells).items()
            if (runs := ordered(cells, graph, name))
        ]
        if len(ratios) == len(GDP12):
            found[name] = geometric(ratios)
    return found


def ordered(cells: Cells, graph: str, name: str) -> list[Cell]:
    """Runs on a graph in which orders were decided in some way."""
    return of(cells, "gdp" if name == "priorities" else "orders", graph, name)


def order_table(cells: Cells) -> list[str]:
    """What priorities are worth, graph by graph, without polish; then means of all that was run on every graph."""
    lines = [f"| graph | {' | '.join(DECIDED.values())} |", f"|---|{'---:|' * len(DECIDED)}"]
    for graph, row in rows(cells).items():
        values = [
            told_ratio(all_seconds(ordered(cells, graph, name), "best"), row["expert"][0]) for name in DECIDED
        ]
        lines.append(f"| {graph} | {' | '.join(values)} |")
    for what, key in (
        ("copied", "copied"),
        ("sampled", "sampled"),
        ("GDP", "best"),
        ("GDP + polish", "polished"),
    ):
        means = order_means(cells, key)
        values = [told_or_no_room(means[name]) if name in means else "" for name in DECIDED]
        lines.append(f"| **geometric mean**, {what} | {' | '.join(values)} |")
    return lines if cells.get("orders") else []


def ablation_table(cells: Cells) -> list[str]:
    """One graph without one part; median of the seeds over the expert."""
    table = rows(cells)
    keys = [key.split(", ") for key in cells.get("ablations", {}) if key.split(", ")[0] in table]
    graphs, names = dict.fromkeys(key[0] for key in keys), dict.fromkeys(key[1] for key in keys)
    columns = [(graph, what) for graph in graphs for what in ("greedy", "sampled")]
    lines = [f"| | {' | '.join(f'{graph} {what}' for graph, what in columns)} | seeds |",
             f"|---|{'---:|' * (len(columns) + 1)}"]  # fmt: skip
    for name in names:
        values = [
            told_ratio(all_seconds(of(cells, "ablations", graph, name), what), table[graph]["expert"][0])
            for graph, what in columns
        ]
        lines.append(
            f"| {name} | {' | '.join(values)} | {len(of(cells, 'ablations', columns[0][0], name))} |"
        )
    return lines if names else []


def speed_table(cells: Cells) -> list[str]:
    """CPU seconds of passes by size, and what an update of 256 samples spends on network and simulator."""
    timed = sorted(cells.get("speed", {}).items(), key=lambda item: item[1]["operators"])
    if not timed:
        return []
    keys = ("pass_cpu_seconds", "fastest_pass_cpu_seconds", "network_seconds", "simulator_seconds")
    return [
        "| graph | operators | pass and gradient, median | fastest | update: network | update: simulator |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {name} | {cell['operators']:,} | {' | '.join(f'{cell[key]:.3f}' for key in keys)} |"
            for name, cell in timed
        ),
    ]


def zero_table(cells: Cells) -> list[str]:
    """The policy of the package, asked once; seconds over those of the expert."""
    shown = {"greedy": "greedy", "best of 64": "best_of_64", "untrained, best of 64": "untrained_best_of_64"}
    lines = [f"| graph | {' | '.join(shown)} |", f"|---|{'---:|' * len(shown)}"]
    table, ratios = rows(cells), []
    for name, cell in cells.get("zero-shot", {}).items() if table else ():
        expert = table[name]["expert"][0]
        ratios.append([(seconds(cell, key) or math.inf) / expert for key in shown.values()])
        lines.append(f"| {name} | {' | '.join(map(told_or_no_room, ratios[-1]))} |")
    means = [told_or_no_room(geometric(list(column))) for column in zip(*ratios, strict=True)]
    return [*lines, f"| **geometric mean** | {' | '.join(means)} |"] if ratios else []
