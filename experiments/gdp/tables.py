"""What the cells of the experiment say: tables as Markdown, and every check with its measured value."""

from __future__ import annotations

import math
from typing import Any

from suite import EXPERTS, GDP12

Cell = dict[str, Any]
Cells = dict[str, dict[str, Cell]]
Check = tuple[str, str, bool | str | None, str]
SEEDS = 3  # that the checks ask for
COLUMNS = (
    "single", "METIS", "heft", "multilevel", "copied", "greedy", "sampled", "GDP", "GDP + polish", "search", "auto",
    "HDP", "HDP + polish", "bound",
)  # fmt: skip


def geometric(values: list[float]) -> float:
    """Their geometric mean; inf if one is, or if there are none."""
    if not values or not all(map(math.isfinite, values)):
        return math.inf
    return math.exp(sum(map(math.log, values)) / len(values))


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


def rows(cells: Cells) -> dict[str, dict[str, list[float]]]:
    """[graph][column] -> seconds of every seed; expert included."""
    found: dict[str, dict[str, list[float]]] = {}
    for one in GDP12:
        rule = cells.get("rules", {}).get(one.name)
        if rule is None:
            continue
        row: dict[str, list[float]] = {"expert": [min(seconds(rule, name) or math.inf for name in EXPERTS)]}
        for column, key in (("single", "single"), ("METIS", "metis"), ("heft", "heft"), ("multilevel", "multilevel"),
                            ("bound", "bound")):  # fmt: skip
            row[column] = [value for value in [seconds(rule, key)] if value is not None]
        for column, key in (("copied", "copied"), ("greedy", "greedy"), ("sampled", "sampled"), ("GDP", "best"),
                            ("GDP + polish", "polished")):  # fmt: skip
            row[column] = [seconds(cell, key) or math.inf for cell in of(cells, "gdp", one.name)]
        for name in ("search", "auto"):
            row[name] = [seconds(cell, "value") or math.inf for cell in of(cells, "rivals", name, one.name)]
        for column, key in (("HDP", "value"), ("HDP + polish", "polished")):
            row[column] = [seconds(cell, key) or math.inf for cell in of(cells, "hdp", one.name)]
        found[one.name] = row
    return found


def main_table(cells: Cells) -> list[str]:
    """Seconds over those of the expert: median over seeds; below 1 is faster."""
    table, shown = rows(cells), list(COLUMNS)
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


def zero_table(cells: Cells) -> list[str]:
    """The policy of the package, asked once; seconds over those of the expert."""
    shown = {"greedy": "greedy", "best of 64": "best_of_64", "untrained, best of 64": "untrained_best_of_64"}
    lines = [f"| graph | {' | '.join(shown)} |", f"|---|{'---:|' * len(shown)}"]
    table, ratios = rows(cells), []
    for name, cell in cells.get("zero-shot", {}).items():
        expert = table[name]["expert"][0]
        ratios.append([(seconds(cell, key) or math.inf) / expert for key in shown.values()])
        values = [f"{one:.3f}" if math.isfinite(one) else "no room" for one in ratios[-1]]
        lines.append(f"| {name} | {' | '.join(values)} |")
    means = [geometric(list(column)) for column in zip(*ratios, strict=True)]
    return (
        [*lines, f"| **geometric mean** | {' | '.join(f'{mean:.3f}' for mean in means)} |"] if ratios else []
    )


def middle(values: list[float]) -> float:
    """The median, the better one of two."""
    return sorted(values)[(len(values) - 1) // 2]


def told_ratio(values: list[float], expert: float) -> str:
    if not values:
        return ""
    ratio = middle(values) / expert
    return f"{ratio:.3f}" if math.isfinite(ratio) else "no room"


def checks(cells: Cells) -> list[Check]:
    """(id, what, passed or None if not run or the words for it, measured)."""
    table = rows(cells)
    found = [
        _over_expert(table),
        _over_hdp(table, polish=False),
        _over_hdp(table, polish=True),
        _search_speed(cells),
    ]
    return [
        *found,
        _no_collapse(cells, table),
        *_ablations(cells),
        _zero_rate(cells),
        *_references(cells),
        _search(table),
    ]


def on_seeds(passed: bool, seeds: int) -> bool | str:
    """A result that fewer seeds than asked for stand behind says so."""
    return f"pass on {seeds} of {SEEDS} seeds" if passed and seeds < SEEDS else passed


def _over_expert(table: dict[str, dict[str, list[float]]]) -> Check:
    what = "geometric mean of t_expert / t of GDP + polish at least 1.16, worst seed at least 1.12"
    full = len(table) == len(GDP12) and all(row["GDP + polish"] for row in table.values())
    if not full:
        return "G6", what, None, "not all graphs were run"
    each = [row["expert"][0] / middle(row["GDP + polish"]) for row in table.values()]
    worst = [row["expert"][0] / max(row["GDP + polish"]) for row in table.values()]
    own = [row["expert"][0] / middle(row["GDP"]) for row in table.values()]
    copied = [row["expert"][0] / middle(row["copied"]) for row in table.values()]
    sampled = [row["expert"][0] / middle(row["sampled"]) for row in table.values()]
    counts = {len(row["GDP + polish"]) for row in table.values()}
    return (
        "G6", what, on_seeds(geometric(each) >= 1.16 and geometric(worst) >= 1.12, min(counts)),
        f"{geometric(each):.3f}, worst seeds {geometric(worst):.3f}, without polish {geometric(own):.3f}, samples of "
        f"the policy alone {geometric(sampled):.3f}, the copied constructions {geometric(copied):.3f}; "
        f"seeds: {min(counts)}",
    )  # fmt: skip


def _over_hdp(table: dict[str, dict[str, list[float]]], *, polish: bool) -> Check:
    ours, theirs = ("GDP + polish", "HDP + polish") if polish else ("GDP", "HDP")
    what = (
        f"geometric mean of t_hdp / t at least 1.092 at equal CPU, {'with' if polish else 'without'} polish"
    )
    pairs = [(row[ours], row[theirs]) for row in table.values() if row[ours] and row[theirs]]
    if not pairs:
        return "G7", what, None, "no solver hdp"
    mean = geometric([middle(theirs) / middle(ours) for ours, theirs in pairs])
    return "G7", what, mean >= 1.092, f"{mean:.3f} over {len(pairs)} graphs"


def _search_speed(cells: Cells) -> Check:
    what = "evaluations of HDP to its best over those of the pre-trained policy to the same value at least 15"
    ratios, missed = [], 0
    for one in GDP12:
        theirs, ours = of(cells, "hdp", one.name), of(cells, "pretrained", one.name)
        if not theirs or not ours or not theirs[0]["trail"]:
            continue
        spent, goal = theirs[0]["trail"][-1]
        reached = [count for count, value in ours[0]["trail"] if value is not None and value <= goal]
        missed += not reached
        if reached:
            ratios.append(spent / max(1, reached[0]))
    if not ratios and not missed:
        return "G8", what, None, "no solver hdp or no pre-trained policy"
    mean = geometric(ratios) if ratios else 0.0
    return (
        "G8",
        what,
        mean >= 15 and not missed,
        f"{mean:.2f} on {len(ratios)} graphs, not reached on {missed}",
    )


def _no_collapse(cells: Cells, table: dict[str, dict[str, list[float]]]) -> Check:
    what = "greedy uses several devices and beats the best single device wherever that is 5 % from the best known"
    bad, seen = [], 0
    for name, row in table.items():
        single = seconds(cells["rules"][name], "single")
        runs = of(cells, "gdp", name)
        known = [value for column in COLUMNS[:-1] for value in row[column]]
        if single is None or not runs or min(known) > 0.95 * single:
            continue
        seen += len(runs)
        failed = [
            run
            for run in runs
            if run["greedy_devices"] < 2 or not (seconds(run, "greedy") or math.inf) < single
        ]
        bad += [name] * len(failed)
    return (
        "G9",
        what,
        None if not seen else on_seeds(not bad, len(of(cells, "gdp", GDP12[0].name))),
        f"{seen - len(bad)} of {seen} runs{': not ' + ', '.join(bad) if bad else ''}",
    )


def _ablations(cells: Cells) -> list[Check]:
    what = "batch training without superposition is not better by more than 1 %"
    means = {
        name: geometric([seconds(cell, "greedy") or math.inf for cell in of(cells, "ablations", name)])
        for name in ("whole", "without attention", "without superposition")
    }
    if not all(map(math.isfinite, means.values())):
        return [("G13", what, None, "not run")]
    told = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
    return [
        (
            "G13",
            what,
            means["without superposition"] >= 0.99 * means["whole"],
            f"greedy over the expert: {told}",
        )
    ]


def _zero_rate(cells: Cells) -> Check:
    what = "learning beats learning rate 0 at equal evaluations, every seed of every graph"
    wins, seen, shares = 0, 0, []
    for key, cell in cells.get("zero-rate", {}).items():
        name, rate, seed = key.split(", ")
        blind = cells["zero-rate"].get(f"{name}, rate 0, {seed}")
        if rate == "rate 0" or blind is None:
            continue
        seen += 1
        wins += cell["best"] < blind["best"]
        shares.append(cell["best"] / blind["best"])
    told = f"{wins} of {seen}, time over that of rate 0 {geometric(shares):.3f}" if seen else "not run"
    return "G16", what, None if not seen else wins == seen, told


def _references(cells: Cells) -> list[Check]:
    found: list[Check] = []
    names = dict.fromkeys(key.split(", ")[0] for key in cells.get("reference", {}))
    for name in names:
        runs = of(cells, "reference", name)
        greedy = "after" in name
        good = [run["best"] <= run["goal"] and (not greedy or (run["greedy"] or 9) <= 0.627) for run in runs]
        values = ", ".join(
            f"{run['best']:.3f} (greedy {run['greedy'] or math.inf:.3f}) in {run['cpu_seconds']:.0f} s"
            for run in runs
        )
        limit = runs[0]["limit_seconds"]
        what = f"{name}: at most {runs[0]['goal']} of a single device within {limit:.0f} s"
        found.append(("G17", what, all(good), values))
    return found or [("G17", "reference runs", None, "not run")]


def _search(table: dict[str, dict[str, list[float]]]) -> Check:
    what = "against local search at equal CPU (published as it comes out)"
    pairs = [(middle(row["search"]), middle(row["GDP + polish"])) for row in table.values()
             if row["search"] and row["GDP + polish"]]  # fmt: skip
    if not pairs:
        return "G19", what, None, "not run"
    mean = geometric([theirs / ours for theirs, ours in pairs])
    wins = sum(ours < theirs for theirs, ours in pairs)
    return (
        "G19",
        what,
        "reported",
        f"t_search / t {mean:.3f}; GDP + polish is faster on {wins} of {len(pairs)} graphs",
    )


def told(cells: Cells) -> str:
    """All of it."""
    lines = [
        "# GDP on gdp12",
        "",
        "Seconds over those of the expert; below 1 is faster. Median over seeds.",
        "",
    ]
    lines += [*main_table(cells), "", "The policy of the package, asked once:", "", *zero_table(cells)]
    lines += ["", "| check | what | result | measured |", "|---|---|---|---|"]
    words: dict[bool | str | None, str] = {True: "pass", False: "**fail**", None: "not run"}
    lines += [
        f"| {name} | {what} | {words.get(passed, passed)} | {value} |"
        for name, what, passed, value in checks(cells)
    ]
    return "\n".join(lines) + "\n"
