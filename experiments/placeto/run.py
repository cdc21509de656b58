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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import cells
from cells import HELD_OUT
from checks import Found, checks
from tables import tables

HERE = Path(__file__).parent
INCEPTION = {"family": "branches", "devices": 4, "judge": "placeto"}
TOWERS = {"family": "towers", "devices": 2, "judge": "placeto"}
SEEDS, FEW_SEEDS = range(5), range(3)
FAMILY = {"updates": 160, "imitation": 160, "led": 8, "teacher": 2000}  # training on a family: copies alone
OF_FAMILY = {"enas-cnn": {"updates": 64, "imitation": 64, "teacher": 10_000}}  # 256 groups: twice the CPU per update
ON_ONE = {"updates": 48, "imitation": 48}  # training on a held-out graph alone; nothing climbs there
ON_ONE_OF = {"enas-cnn": {"groups": 128}}  # a quarter of the time of 256, five seeds of it
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
