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
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import cells

HERE = Path(__file__).parent
INCEPTION = {"family": "branches", "devices": 4, "judge": "placeto"}
TOWERS = {"family": "towers", "devices": 2, "judge": "placeto"}
SEEDS, FEW_SEEDS = range(5), range(3)
FAMILY = {"updates": 160, "imitation": 160, "led": 8, "teacher": 2000}  # training on a family: copies alone
OF_FAMILY = {"enas-cnn": {"updates": 64, "imitation": 64, "teacher": 10_000}}  # 256 groups: twice the CPU per update
ON_ONE = {"updates": 48, "imitation": 48}  # training on a held-out graph alone; nothing climbs there
ON_ONE_OF = {"enas-cnn": {"groups": 128}}  # a quarter of the time of 256, five seeds of it
HELD_OUT = range(1000, 1003)  # graphs that are also trained on one by one; the first of them with all seeds
SHOTS = (
    "untrained argmax", "argmax", "untrained best of 4", "best of 4", "untrained all starts", "all starts",
    "best of 64", "random", "starts", "heft", "climb",
)  # fmt: skip
Cell = tuple[str, Callable[..., Any], dict[str, Any]]


def branches(seeds: range, devices: int = 4) -> list[dict[str, Any]]:
    """Graphs like Inception, judged by the published simulator."""
    return [{**INCEPTION, "devices": devices, "seed": seed} for seed in seeds]


def zero_shot(
    updates: int, seed: int, tests: int, others: int, trained: tuple[int, ...] = (4,), **options: Any
) -> dict[str, Any]:
    """Eight graphs to train on, others to place: on as many devices, and some on other numbers of devices."""
    other = {f"{k} devices": branches(range(101, 101 + others), k) for k in (2, 8)} if others else {}
    return {
        "train": [branches(range(n, n + 1), trained[n % len(trained)])[0] for n in range(1, 9)],
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
    yield from families(quick)
    yield from small_ones(quick, u)
    yield from trained_on_one(range(1) if quick else SEEDS, u)
    for seed in range(1) if quick else FEW_SEEDS:
        if seed:
            yield f"zero-shot {seed}", cells.zero_shot, zero_shot(u, seed, 8, 4)
        mixed = zero_shot(u, seed, 1 if quick else 8, 1 if quick else 4, (2, 4, 8))
        yield f"mixed devices {seed}", cells.zero_shot, mixed
    for seed in range(1) if quick else FEW_SEEDS:
        yield f"colocrl {seed}", cells.colocrl, {"given": None, "evaluations": 10 * u, "seed": seed}
    for seed in range(1) if quick else FEW_SEEDS:
        for name, switch in cells.ABLATIONS.items():
            given = zero_shot(u // 4, seed, 1 if quick else 4, 0, **switch)
            yield f"ablation {name} {seed}", cells.zero_shot, given
    seconds = 2.0 if quick else 45.0
    yield "equal seconds", cells.equal_seconds, {"model": INCEPTION, "seconds": seconds, "seed": 0}
    for seed in range(1) if quick else SEEDS:
        options = {"variant": "faithful", "updates": 2 * u}
        yield f"faithful towers {seed}", cells.learn_one, {"model": TOWERS, "options": options, "seed": seed}
    if not quick:
        yield "speed 256", cells.speed, {"groups": 256}


def families(quick: bool) -> Iterator[Cell]:
    """Training on a family and placing other graphs of it; training on those one by one."""
    for name in cells.FAMILIES:
        sizes = {"train": 1, "test": 1} if quick else {"train": cells.TRAINED_ON, "test": cells.TESTED_ON}
        options = {**FAMILY, "updates": 1} if quick else {**FAMILY, **OF_FAMILY.get(name, {})}
        yield f"family {name} 0", cells.family, {"name": name, "seed": 0, "options": options, **sizes}
    runs = [(HELD_OUT[0], seed) for seed in SEEDS] + [(graph, 0) for graph in HELD_OUT[1:]]
    for graph, seed in runs[:1] if quick else runs:
        for name in cells.FAMILIES:
            options = {"updates": 2, "imitation": 1} if quick else {**ON_ONE, **ON_ONE_OF.get(name, {})}
            simulations = (100 if quick else 1000) if seed == 0 and graph == HELD_OUT[0] else 0
            given = {"name": name, "graph": graph, "seed": seed, "options": options, "evaluations": simulations}
            yield f"on {name} {graph} {seed}", cells.on_held_out, given


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
        "inception50, 100 updates: argmax <= 11.0 in all",
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
        "P11", "100 updates: median of best seen <= 9.6", rows, lambda: median(best) <= 9.6, lambda: told(best)
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
        "P13", "zero-shot: mean argmax <= 0.88 of one device", rows, lambda: fmean(means("argmax")) <= 0.88,
        lambda: f"{fmean(means('argmax')):.3f}; seeds {told(means('argmax'))}",
    )  # fmt: skip
    yield judged(
        "P13", "untrained: mean argmax >= 1.05", rows, lambda: fmean(means("untrained argmax")) >= 1.05,
        lambda: f"{fmean(means('untrained argmax')):.3f}; seeds {told(means('untrained argmax'))}",
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
    """P19; a policy is asked from all starts, as the solver does."""
    for name in cells.FAMILIES:
        rows = found.all(f"family {name}")
        shots = [one for row in rows for one in row[name]]
        yield judged(
            "P19", f"{name}: trains in <= 20 minutes on 2 cores", rows,
            lambda rows=rows: max(row["cpu"] for row in rows) <= 1200,
            lambda rows=rows: f"{max(row['cpu'] for row in rows):.0f} CPU-s",
        )  # fmt: skip
        yield judged(
            "P19", f"{name}: zero-shot beats random and one device on >= 80 %", shots,
            lambda shots=shots: share_won(shots, "all starts") >= 0.8,
            lambda shots=shots: f"{share_won(shots, 'all starts'):.0%}, from the single device and at random "
            f"{share_won(shots, 'best of 4'):.0%}",
        )  # fmt: skip
        yield judged(
            "P19", f"{name}: zero-shot fits on every held-out graph", shots,
            lambda shots=shots: all(one["all starts"] < inf for one in shots),
            lambda shots=shots: f"{sum(one['all starts'] < inf for one in shots)} of {len(shots)}",
        )  # fmt: skip
        ratios = against_training(found, name)
        yield judged(
            "P19", f"{name}: zero-shot median <= 1.10 of per-graph training", ratios,
            lambda ratios=ratios: median(ratios) <= 1.1, lambda ratios=ratios: told(ratios),
        )  # fmt: skip
        alone = found.all(f"on {name} {HELD_OUT[0]}")
        yield judged(
            "P19", f"{name}: per graph better than rate 0 and random, medians", alone,
            lambda alone=alone: controls(alone)[0] < min(controls(alone)[1:]),
            lambda alone=alone: "{:.3f} against {:.3f}, {:.3f}".format(*controls(alone)) + f", {len(alone)} seeds",
        )  # fmt: skip


def share_won(rows: list[dict[str, Any]], key: str) -> float:
    """Held-out graphs on which the policy beats one device and random placements."""
    return sum(row[key] < min(1.0, row["random"]) for row in rows) / len(rows)


def controls(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Medians over seeds of training, of learning rate 0 and of random search, in milliseconds."""
    return (
        median(row["best"] for row in rows),
        median(row["rate_0"]["best"] for row in rows),
        median(row["random"] for row in rows),
    )


def against_training(found: Found, name: str) -> list[float]:
    """Zero-shot, median over policies, against training on the graph itself, median over seeds; one per graph."""
    ratios = []
    for n, graph in enumerate(HELD_OUT):
        alone = found.all(f"on {name} {graph}")
        shots = [row[name][n] for row in found.all(f"family {name}") if n < len(row[name])]
        if alone and shots:
            shot = median(one["all starts"] * one["single"] for one in shots)
            ratios.append(shot / median(min(one["best"], one["argmax"]) for one in alone))
    return ratios


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
    """What does not learn."""
    for name in ("single", "expert", "metis", "heft", "m-etf", "search", "bound"):
        if name in row:
            value = "-" if row[name] is None else f"{row[name]:.3f}"
            took = row.get(f"{name} cpu")
            yield f"| {name} | {value} | | {'' if took is None else f'{took:.1f}'} |"


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
