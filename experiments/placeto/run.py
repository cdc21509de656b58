"""Placeto again: acceptance checks with measured values, and the tables of its page.

    python experiments/placeto/run.py [--quick] [--only NAME] [--most-minutes M] [--tables]

Every cell is saved when it is done (results/results.json, with --quick results/quick.json) and passed over when it is
there already: stop whenever you like and run again. --tables measures nothing. Cells that are missing are shown as "-".
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import cells

HERE = Path(__file__).parent
INCEPTION = {"family": "branches", "devices": 4, "judge": "placeto"}
TOWERS = {"family": "towers", "devices": 2, "judge": "placeto"}
SEEDS, FEW_SEEDS = range(5), range(3)
ON_ONE_GRAPH = 40  # updates; the thresholds are for 100
Cell = tuple[str, Callable[..., Any], dict[str, Any]]


def branches(seeds: range, devices: int = 4) -> list[dict[str, Any]]:
    """Graphs like Inception, judged by the published simulator."""
    return [{**INCEPTION, "devices": devices, "seed": seed} for seed in seeds]


def zero_shot(updates: int, seed: int, tests: int, others: int, **options: Any) -> dict[str, Any]:
    """Eight graphs to train on, others to place: on as many devices, and some on other numbers of devices."""
    other = {f"{k} devices": branches(range(101, 101 + others), k) for k in (2, 8)} if others else {}
    return {
        "train": branches(range(1, 9)),
        "test": {"same": branches(range(101, 101 + tests)), **other},
        "options": {"updates": updates, **options},
        "seed": seed,
    }


def plan(quick: bool) -> Iterator[Cell]:
    """All cells, the most important ones first, further seeds last."""
    u = 4 if quick else 100
    yield "speed 50", cells.speed, {"groups": 50}
    yield "heuristics", cells.heuristics, {"given": None}
    yield "zero-shot 0", cells.zero_shot, zero_shot(u, 0, 1 if quick else 8, 1 if quick else 4)
    yield from trained_on_one(range(1 if quick else 5), u if quick else ON_ONE_GRAPH)
    for name in ("enas-rnn", "nmt", "enas-cnn"):
        sizes = (1, 1, 1, 1, 1) if quick else (32, 8, 8, 20, 1)
        names = ("updates", "train", "test", "per_graph_updates", "trained")
        given = {"name": name, "seed": 0, **dict(zip(names, sizes, strict=True))}
        yield f"family {name} 0", cells.family, given
    yield from small_ones(quick, u)
    if not quick:
        for seed in (1, 2):
            yield f"zero-shot {seed}", cells.zero_shot, zero_shot(u, seed, 8, 4)
    for seed in range(1) if quick else FEW_SEEDS:
        yield f"colocrl {seed}", cells.colocrl, {"given": None, "evaluations": 10 * u, "seed": seed}
    for name, switch in cells.ABLATIONS.items():
        yield f"ablation {name}", cells.zero_shot, zero_shot(u // 4, 0, 1 if quick else 4, 0, **switch)
    seconds = 2.0 if quick else 45.0
    yield "equal seconds", cells.equal_seconds, {"model": INCEPTION, "seconds": seconds, "seed": 0}
    for seed in range(1) if quick else SEEDS:
        options = {"variant": "faithful", "updates": 2 * u}
        yield f"faithful towers {seed}", cells.learn_one, {"model": TOWERS, "options": options, "seed": seed}
    if not quick:
        yield "speed 256", cells.speed, {"groups": 256}


def trained_on_one(seeds: range, updates: int) -> Iterator[Cell]:
    """Training on the graph of 50 operators, and what costs as many simulations."""
    for seed in seeds:
        options = {"updates": updates}
        given = {"model": INCEPTION, "options": options, "seed": seed, "controls": True}
        yield f"inception {seed}", cells.learn_one, given


def small_ones(quick: bool, u: int) -> Iterator[Cell]:
    """Cells of less than a minute."""
    seeds, few = (range(1), range(1)) if quick else (SEEDS, FEW_SEEDS)
    for seed in seeds:
        given = {"model": TOWERS, "options": {"updates": 2 * u}, "seed": seed, "controls": True}
        yield f"towers {seed}", cells.learn_one, given
    for seed in seeds:
        yield f"product {seed}", cells.product, {"seed": seed, "updates": u // 4}
    for seed in seeds:
        yield f"memory {seed}", cells.memory, {"seed": seed, "updates": max(1, u // 10)}
    for seed in few:
        for goal, updates in (("last", 60), ("cut", 100)):
            for variant in ("corrected", "faithful"):
                given = {"goal": goal, "variant": variant, "seed": seed, "updates": u if quick else updates}
                yield f"sanity {goal} {variant} {seed}", cells.sanity, given
    for judge in ("fifo", "placeto"):
        yield f"exploit {judge}", cells.exploit, {"judge": judge, "seed": 0, "updates": u // 3}
    options = {"variant": "faithful", "updates": 4 * u}
    yield "faithful inception 0", cells.learn_one, {"model": INCEPTION, "options": options, "seed": 0}


def measure(quick: bool, path: Path, only: str, most_seconds: float) -> dict[str, Any]:
    """Run what is missing, until the time is up."""
    found = load(path)
    begin = time.monotonic()
    for name, function, arguments in plan(quick):
        if name in found or only not in name:
            continue
        if time.monotonic() - begin > most_seconds:
            print("the time is up; run again to go on", file=sys.stderr)
            break
        if "given" in arguments:
            arguments = {**arguments, "given": cells.problem(**INCEPTION)}
        started = time.process_time()
        found[name] = function(**arguments)
        print(f"{name}: {time.process_time() - started:.0f} CPU-s", file=sys.stderr, flush=True)
        found = {**load(path), name: found[name]}  # another process may have added to it
        half = path.with_suffix(".part")
        half.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        half.replace(path)
    return found


def load(path: Path) -> dict[str, Any]:
    """Cells that are there already."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


# Checks


class Found:
    """Cells by name."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows

    def all(self, start: str) -> list[dict[str, Any]]:
        """Cells of one kind, one per seed."""
        return [row for name, row in self.rows.items() if name.rpartition(" ")[0] == start]

    def column(self, start: str, key: str) -> list[float]:
        """One number of each."""
        return [row[key] for row in self.all(start)]


def checks(found: Found) -> Iterator[tuple[str, str, bool | None, str]]:
    """(id, what is expected, whether it is so, what was measured); None: not measured."""

    def judged(name: str, what: str, rows: Any, passed: Callable[[], bool], told: Callable[[], str]) -> Any:
        return (name, what, passed(), told()) if rows else (name, what, None, "-")

    for goal in ("last", "cut"):
        for variant in ("corrected", "faithful"):
            values = found.column(f"sanity {goal} {variant}", "end")
            yield judged(
                "P9",
                f"{goal}, {variant}: 1 in all seeds",
                values,
                lambda v=values: max(v) == 1.0,
                lambda v=values: told(v),
            )
    rows = found.all("towers")
    values = found.column("towers", "argmax")
    yield judged(
        "P10", "towers: argmax <= 0.72 in at least 4 of 5 seeds", rows,
        lambda: sum(v <= 0.72 for v in values) >= 0.8 * len(values), lambda: told(values),
    )  # fmt: skip
    best = found.column("towers", "best")
    yield judged(
        "P10", "towers: best seen <= 0.684 in all", rows, lambda: max(best) <= 0.684, lambda: told(best)
    )
    yield from inception_checks(found, judged)
    yield from transfer_checks(found, judged)
    yield from product_checks(found, judged)
    yield from family_checks(found, judged)


def inception_checks(found: Found, judged: Any) -> Iterator[Any]:
    """P11, P12, P16 to P18."""
    rows = found.all("inception")
    values, best = found.column("inception", "argmax"), found.column("inception", "best")
    yield judged(
        "P11",
        "inception50, 40 updates: argmax <= 11.0 in all",
        rows,
        lambda: max(values) <= 11.0,
        lambda: told(values),
    )
    yield judged(
        "P11", "argmax uses at least 2 devices in all", rows,
        lambda: min(found.column("inception", "argmax_devices")) >= 2,
        lambda: told(found.column("inception", "argmax_devices")),
    )  # fmt: skip
    yield judged(
        "P11", "40 updates: median of best seen <= 9.6", rows, lambda: median(best) <= 9.6, lambda: told(best)
    )
    yield judged(
        "P11", "no alarm", rows, lambda: not any(found.column("inception", "alarms")),
        lambda: told(found.column("inception", "alarms")),
    )  # fmt: skip
    faithful = found.all("faithful inception")
    yield judged(
        "P12", "faithful, 400 updates: labelled if collapsed", faithful, lambda: True,
        lambda: f"argmax {faithful[0]['argmax']:.2f} on {faithful[0]['argmax_devices']} devices, "
        f"best {faithful[0]['best']:.2f}, {'' if faithful[0]['collapsed'] else 'not '}collapsed",
    )  # fmt: skip
    fifo, published = (found.rows.get(f"exploit {judge}") for judge in ("fifo", "placeto"))
    yield judged(
        "P16", "chain judged by fifo stays on one device", fifo, lambda: fifo["argmax_devices"] == 1,
        lambda: f"{fifo['argmax_devices']} devices",
    )  # fmt: skip
    yield judged(
        "P16", "judged by the published simulator it may spread", published, lambda: True,
        lambda: f"{published['argmax_devices']} devices, {published['argmax']:.3f} against "
        f"{published['single']:.3f} ms on one",
    )  # fmt: skip
    memory = found.all("memory")
    yield judged(
        "P17", "what is returned fits, in all", memory,
        lambda: all(row["returned_fits"] and row["feasible"] for row in memory),
        lambda: f"{sum(row['returned_fits'] for row in memory)} of {len(memory)}",
    )  # fmt: skip
    for groups, limit in ((50, 1.2), (256, 15.0)):
        row = found.rows.get(f"speed {groups}")
        yield judged(
            "P18", f"update of {groups} groups: <= {limit} CPU-s, simulator < 20 %", row,
            lambda row=row, limit=limit: row["cpu"] <= limit and row["simulator_share"] < 0.2,
            lambda row=row: f"{row['cpu']:.2f} CPU-s, {row['simulator_share']:.0%}",
        )  # fmt: skip


def transfer_checks(found: Found, judged: Any) -> Iterator[Any]:
    """P13 and P14."""
    rows = found.all("zero-shot")

    def means(key: str, test: str = "same") -> list[float]:
        return [sum(one[key] for one in row[test]) / len(row[test]) for row in rows]

    def worst() -> list[float]:
        return [max(one["best of 4"] for one in row["same"]) for row in rows]

    yield judged(
        "P13", "zero-shot: mean argmax <= 0.88 of one device", rows, lambda: max(means("argmax")) <= 0.88,
        lambda: told(means("argmax")),
    )  # fmt: skip
    yield judged(
        "P13", "untrained: mean argmax >= 1.05", rows, lambda: min(means("untrained argmax")) >= 1.05,
        lambda: told(means("untrained argmax")),
    )  # fmt: skip
    yield judged(
        "P13", "no graph above 1.05 for best of 4", rows, lambda: max(worst()) <= 1.05, lambda: told(worst())
    )
    for test in ("2 devices", "8 devices"):
        yield judged(
            "P14", f"trained with 4, used with {test}: mean best of 4 <= 0.95", rows,
            lambda test=test: max(means("best of 4", test)) <= 0.95, lambda test=test: told(means("best of 4", test)),
        )  # fmt: skip


def product_checks(found: Found, judged: Any) -> Iterator[Any]:
    """P15."""
    rows = found.all("product")
    wins = [row["polished"] <= row["climb"]["best"] and row["polished"] <= 9.3 for row in rows]
    yield judged(
        "P15", "with polish <= 9.3 ms and <= hill climbing, 4 of 5 seeds", rows, lambda: sum(wins) >= 0.8 * len(wins),
        lambda: f"{told([row['polished'] for row in rows])} against {told([row['climb']['best'] for row in rows])}",
    )  # fmt: skip
    yield judged(
        "P15", "never worse than a baseline", rows,
        lambda: all(row["polished"] <= row["best_baseline"] for row in rows),
        lambda: f"{len(rows)} seeds",
    )  # fmt: skip


def family_checks(found: Found, judged: Any) -> Iterator[Any]:
    """P19."""
    for name in cells.FAMILIES:
        row = found.rows.get(f"family {name} 0")
        yield judged(
            "P19", f"{name}: trains in <= 20 minutes on 2 cores", row, lambda row=row: row["cpu"] <= 1200,
            lambda row=row: f"{row['cpu']:.0f} CPU-s",
        )  # fmt: skip
        yield judged(
            "P19", f"{name}: zero-shot beats random and one device on >= 80 %", row,
            lambda row=row, name=name: share_won(row[name]) >= 0.8,
            lambda row=row, name=name: f"{share_won(row[name]):.0%}",
        )  # fmt: skip
        yield judged(
            "P19", f"{name}: zero-shot fits on every held-out graph", row,
            lambda row=row, name=name: all(one["best of 4"] < inf for one in row[name]),
            lambda row=row, name=name: f"{sum(one['best of 4'] < inf for one in row[name])} of {len(row[name])}",
        )  # fmt: skip
        yield judged(
            "P19", f"{name}: zero-shot median <= 1.10 of per-graph training", row,
            lambda row=row, name=name: median(against_training(row, name)) <= 1.1,
            lambda row=row, name=name: told(against_training(row, name)),
        )  # fmt: skip
        yield judged(
            "P19", f"{name}: per graph better than rate 0 and random", row,
            lambda row=row: all(g["best"] < min(g["rate_0"]["best"], g["random"]) for g in row["per graph"]),
            lambda row=row: "; ".join(
                f"{g['best']:.2f} against {g['rate_0']['best']:.2f}, {g['random']:.2f}" for g in row["per graph"]
            ),
        )  # fmt: skip


def share_won(rows: list[dict[str, Any]]) -> float:
    """Held-out graphs on which the policy beats one device and random placements."""
    return sum(row["best of 4"] < min(1.0, row["random"]) for row in rows) / len(rows)


def against_training(row: dict[str, Any], name: str) -> list[float]:
    """Zero-shot against training on the graph itself."""
    pairs = zip(row[name], row["per graph"], strict=False)
    return [shot["best of 4"] * one["single"] / min(one["best"], one["argmax"]) for shot, one in pairs]


# Tables


def told(values: list[float]) -> str:
    """Numbers for people."""
    return ", ".join(f"{value:.4g}" for value in values)


def spread(values: list[float]) -> str:
    """Median and range."""
    if not values:
        return "-"
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def tables(found: Found) -> Iterator[str]:
    """Markdown."""
    yield "## Checks\n\n| id | expected | result | measured |\n|---|---|---|---|"
    for name, what, passed, value in checks(found):
        verdict = "not measured" if passed is None else "pass" if passed else "FAIL"
        yield f"| {name} | {what} | {verdict} | {value} |"
    for title, start in (("inception50, 4 devices", "inception"), ("towers, 2 devices", "towers")):
        yield f"\n## {title}: milliseconds, median and range over {len(found.all(start))} seeds\n"
        yield from per_graph_table(found, start)
    yield "\n## Zero-shot on graphs like Inception: run time / one device, mean of 8 graphs\n"
    yield from zero_shot_table(found)
    yield "\n## Ablations: the same after a quarter of the updates, 4 graphs, one seed\n"
    yield "| switch | argmax | best of 4 | best of 64 |\n|---|---:|---:|---:|"
    for name in cells.ABLATIONS:
        row = found.rows.get(f"ablation {name}")
        values = ["-"] * 3 if row is None else [
            f"{sum(one[key] for one in row['same']) / len(row['same']):.3f}"
            for key in ("argmax", "best of 4", "best of 64")
        ]  # fmt: skip
        yield f"| {name} | {' | '.join(values)} |"
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
    """What does not learn."""
    for name in ("single", "expert", "metis", "heft", "m-etf", "search", "bound"):
        if name in row:
            value = "-" if row[name] is None else f"{row[name]:.3f}"
            took = row.get(f"{name} cpu")
            yield f"| {name} | {value} | | {'' if took is None else f'{took:.1f}'} |"


def zero_shot_table(found: Found) -> Iterator[str]:
    """One row per way of using the policy, one column per number of devices."""
    rows = found.all("zero-shot")
    tests = ("same", "2 devices", "8 devices")
    yield "| use | 4 devices, as trained | 2 devices | 8 devices |\n|---|---:|---:|---:|"
    keys = (
        "untrained argmax",
        "untrained best of 4",
        "argmax",
        "best of 4",
        "best of 64",
        "random",
        "heft",
        "climb",
    )
    for key in keys:
        columns = [
            spread([sum(one[key] for one in row[test]) / len(row[test]) for row in rows]) for test in tests
        ]
        yield f"| {key} | {' | '.join(columns)} |"


def family_table(found: Found) -> Iterator[str]:
    """One row per family."""
    keys = ("untrained best of 4", "best of 4", "best of 64", "random", "heft", "climb")
    yield f"| family | graphs | {' | '.join(keys)} |\n|---|---:|{'---:|' * len(keys)}"
    for name in cells.FAMILIES:
        row = found.rows.get(f"family {name} 0")
        if row is not None:
            columns = [spread([one[key] for one in row[name]]) for key in keys]
            yield f"| {name} | {len(row['train'])} / {len(row[name])} | {' | '.join(columns)} |"
    yield "\nTraining on single held-out graphs, milliseconds:\n"
    yield "| family | one device | placeto | rate 0 | random | hill climbing | heft | colocrl | simulations |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name in cells.FAMILIES:
        for one in found.rows.get(f"family {name} 0", {}).get("per graph", []):
            values = (
                one["single"], one["best"], one["rate_0"]["best"], one["random"], one["climb"]["best"], one["heft"],
                one["colocrl"]["best"],
            )  # fmt: skip
            yield f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} | {one['evaluations']} |"


def main() -> int:
    """Measure what is missing, then print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--quick", action="store_true", help="a few updates of everything, in one or two minutes"
    )
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--most-minutes", type=float, default=1e9)
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    given = parser.parse_args()
    path = HERE / "results" / ("quick.json" if given.quick else "results.json")
    path.parent.mkdir(exist_ok=True)
    rows = load(path) if given.tables else measure(given.quick, path, given.only, 60 * given.most_minutes)
    found = Found(rows)
    text = "\n".join(tables(found))
    print(text)
    if not given.quick:
        (path.parent / "README.md").write_text(f"# Results\n\n{text}\n", encoding="utf-8")
    return 1 if any(passed is False for _, _, passed, _ in checks(found)) and not given.quick else 0


if __name__ == "__main__":
    raise SystemExit(main())
