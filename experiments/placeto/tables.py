"""The page of checks and tables, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from statistics import median
from typing import Any

import cells
from cells import HELD_OUT
from checks import Found, checks

SHOTS = (
    "untrained argmax", "argmax", "untrained best of 4", "best of 4", "untrained all starts", "all starts",
    "best of 64", "random", "starts", "heft", "climb",
)  # fmt: skip


def spread(values: list[float]) -> str:
    """Median and range."""
    if not values:
        return "-"
    numbers = (median(values), min(values), max(values))
    middle, least, most = (f"{one:.3f}" if isfinite(one) else "no room" for one in numbers)
    return f"{middle} ({least} to {most})"


def tables(found: Found) -> Iterator[str]:
    """Markdown."""
    yield "## Checks\n\n| id | expected | result | measured |\n|---|---|---|---|"
    for name, what, passed, value in checks(found):
        verdict = "not measured" if passed is None else "pass" if passed else "FAIL"
        yield f"| {name} | {what} | {verdict} | {value} |"
    for title, start in (("inception50, 4 devices", "inception"), ("towers, 2 devices", "towers")):
        yield f"\n## {title}: milliseconds, median and range over {len(found.all(start))} seeds\n"
        yield from per_graph_table(found, start)
    yield "\n## Zero-shot on graphs like Inception: run time / one device, mean of 8 graphs (2 and 8 devices: of 4)\n"
    yield "\"best of 4\" begins on the single device and at three random placements, \"all starts\" also at the two"
    yield "constructions, of which \"starts\" is the best as it is; \"best of 64\" goes on from there by sampling.\n"
    for start, devices in (("zero-shot", "4"), ("mixed devices", "2, 4 and 8")):
        yield f"\nTrained on {devices} devices, {len(found.all(start))} seeds:\n"
        yield from zero_shot_table(found, start)
    yield "\n## Ablations: trained on 4 devices with a quarter of the updates, mean of 4 graphs, range over seeds\n"
    keys = ("argmax", "best of 4", "all starts", "best of 64")
    yield f"| switch | seeds | {' | '.join(keys)} |\n|---|---:|{'---:|' * len(keys)}"
    for name in cells.ABLATIONS:
        rows = found.all(f"ablation {name}")
        values = [spread([sum(one[key] for one in row["same"]) / len(row["same"]) for row in rows]) for key in keys]
        yield f"| {name} | {len(rows)} | {' | '.join(values)} |"
    yield "\n## Families: held-out graphs, run time / one device, median and range\n"
    yield from family_table(found)


def per_graph_table(found: Found, start: str) -> Iterator[str]:
    """One row per method."""
    rows = found.all(start)
    yield "| method | best found | simulations | CPU-s |\n|---|---:|---:|---:|"
    if not rows:
        return
    count, cpu = int(median(found.column(start, "evaluations"))), median(found.column(start, "cpu"))
    if start == "inception":
        yield from heuristic_rows(found.rows.get("heuristics", {}))
    else:
        yield f"| one device | {rows[0]['single']:.3f} | | |"
    yield f"| placeto | {spread(found.column(start, 'best'))} | {count} | {cpu:.0f} |"
    yield f"| placeto, argmax alone | {spread(found.column(start, 'argmax'))} | | |"
    yield f"| placeto, learning rate 0 | {spread([row['rate_0']['best'] for row in rows])} | {count} | {median([row['rate_0']['cpu'] for row in rows]):.0f} |"  # noqa: E501
    faithful = found.all(f"faithful {start}")
    if faithful:
        fallen = sum(row["collapsed"] for row in faithful)
        values = spread([row["best"] for row in faithful])
        used, took = (
            median([row["evaluations"] for row in faithful]),
            median([row["cpu"] for row in faithful]),
        )
        yield f"| placeto faithful, {len(faithful)} seeds, {fallen} collapsed | {values} | {int(used)} | {took:.0f} |"
        yield f"| placeto faithful, argmax alone | {spread([row['argmax'] for row in faithful])} | | |"
    recurrent = found.all("colocrl") if start == "inception" else []
    if recurrent:
        used, took = (
            median([row["evaluations"] for row in recurrent]),
            median([row["cpu"] for row in recurrent]),
        )
        yield f"| colocrl, {len(recurrent)} seeds | {spread([row['best'] for row in recurrent])} | {int(used)} | {took:.0f} |"  # noqa: E501
    yield f"| random search | {spread(found.column(start, 'random'))} | {count} | |"
    for key, name in (("climb", "hill climbing"), ("climb_5100", "hill climbing")):
        values = [row[key] for row in rows]
        used, took = median([one["evaluations"] for one in values]), median([one["cpu"] for one in values])
        yield f"| {name} | {spread([one['best'] for one in values])} | {int(used)} | {took:.1f} |"
    equal = found.rows.get("equal seconds") if start == "inception" else None
    if equal:
        used = equal["random_evaluations"]
        yield f"| random search, 1 seed, as long as training | {equal['random']:.3f} | {used} | |"
        one = equal["climb"]
        used, took = one["evaluations"], one["cpu"]
        yield f"| hill climbing, 1 seed, as long as training | {one['best']:.3f} | {used} | {took:.0f} |"
    until = [row["until_1_percent"] for row in rows]
    yield f"\nSimulations until within 1 % of its own best: placeto {int(median(until))}" + (
        f", colocrl {int(median([row['until_1_percent'] for row in recurrent]))}." if recurrent else "."
    )


def heuristic_rows(row: dict[str, Any]) -> Iterator[str]:
    """What does not learn; where the judge allows neither search nor a bound, there is none."""
    for name in ("single", "expert", "metis", "heft", "m-etf", "search", "bound"):
        if row.get(name):
            took = row.get(f"{name} cpu")
            yield f"| {name} | {row[name]:.3f} | | {'' if took is None else f'{took:.1f}'} |"


def zero_shot_table(found: Found, start: str) -> Iterator[str]:
    """One row per way of using the policy, one column per number of devices."""
    rows = found.all(start)
    yield "| use | 4 devices | 2 devices | 8 devices |\n|---|---:|---:|---:|"
    for key in SHOTS if rows else ():
        columns = [
            spread([sum(one[key] for one in row[test]) / len(row[test]) for row in rows])
            for test in ("same", "2 devices", "8 devices")
        ]
        yield f"| {key} | {' | '.join(columns)} |"


def family_table(found: Found) -> Iterator[str]:
    """One row per family."""
    yield f"| family | graphs | {' | '.join(SHOTS)} |\n|---|---:|{'---:|' * len(SHOTS)}"
    for name in cells.FAMILIES:
        rows = found.all(f"family {name}")
        if rows:
            columns = [spread([one[key] for row in rows for one in row[name]]) for key in SHOTS]
            yield f"| {name} | {len(rows[0]['train'])} / {len(rows[0][name])} | {' | '.join(columns)} |"
    yield "\nTraining on single held-out graphs, milliseconds, median and range over seeds:\n"
    columns = ("seeds", "one device", "placeto", "rate 0", "random", "hill climbing", "heft", "colocrl, one seed")
    yield f"| graph | {' | '.join(columns)} | simulations |\n|---|---:|{'---:|' * len(columns)}"
    for name, graph in ((name, graph) for name in cells.FAMILIES for graph in HELD_OUT):
        rows = found.all(f"on {name} {graph}")
        if rows:
            first = rows[0]
            columns = [
                f"{first['single']:.3f}", spread([row["best"] for row in rows]),
                spread([row["rate_0"]["best"] for row in rows]), spread([row["random"] for row in rows]),
                spread([row["climb"]["best"] for row in rows]), f"{first['heft']:.3f}",
                f"{first['colocrl']['best']:.3f}" if "colocrl" in first else "-",
                f"{int(median(row['evaluations'] for row in rows))}",
            ]  # fmt: skip
            yield f"| {name} {graph} | {len(rows)} | {' | '.join(columns)} |"
