"""GDP on the graphs of its paper: tables against expert, METIS, search and the bound, and the checks that follow.

    python experiments/gdp/run.py [--quick] [--only PART] [--seeds 5] [--few 3] [--seconds 8] [--most-minutes 1000]

Parts: rules, gdp, orders, hdp, hdp-long, rivals, zero-shot, pretrained, scratch, together, ablations, batch-ablations,
zero-rate, speed, reference. Every cell is kept in results/cells.json as soon as it is done and is skipped when the
command is given again; results/README.md has the tables. The process keeps to one core; learning uses --seconds of CPU
time, polish gets half as much on top, rivals as much as both together. Limits of wall time are stretched by what a busy
machine takes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import cells as make
from cells import ORDERS, REFERENCES, VARIANTS, Cell, named
from checks import told
from suite import GDP12

from stead.errors import SteadError
from stead.learn.gdp.method import SHIPPED

RESULTS = Path(__file__).resolve().parent / "results"
RIVALS = ("search", "auto")
BLIND = ("RNNLM-2", "GNMT-2", "Inception-v3")  # on which learning is compared with learning rate 0
BLIND_UPDATES = (40, 300)  # the solver makes 300
ABLATED = ("RNNLM-2", "GNMT-2")
ABLATION_SECONDS = 6.0
LONG = 60.0  # seconds of HDP: in those that GDP has it makes no update on the largest graphs
TIMED = ("Transformer-XL-2", "RNNLM-4", "AmoebaNet")  # about 1,000, 5,000 and 10,000 operators
Job = tuple[str, str, Callable[[], Cell]]


def jobs(given: argparse.Namespace) -> Iterator[Job]:
    """(part, key, what to do) of every cell; keys say all that a value depends on."""
    chosen = [one for one in GDP12 if one.quick or not given.quick]
    seconds, few = given.seconds, range(given.few)
    for one in chosen:
        yield "rules", one.name, partial(make.rules, one)
    for order in ORDERS:
        seeds = {"priorities": range(given.seeds), "devices only": few}.get(order, range(1))
        for seed in seeds:
            for one in chosen:
                key = f"{one.name}, {order}, {seconds:g} s, seed {seed}"
                part = "gdp" if order == ORDERS[0] else "orders"
                yield part, key, partial(make.gdp_one, one, order, seed, seconds)
    for seed in few:
        for one in chosen:
            key = f"{one.name}, {seconds:g} s, seed {seed}"
            yield "hdp", key, partial(make.hdp, one, seed, seconds)
    for one in () if given.quick else chosen:
        yield "hdp-long", f"{one.name}, {LONG:g} s, seed 0", partial(make.hdp, one, 0, LONG, polish=False)
    for name in RIVALS:
        for one in chosen:
            yield (
                "rivals",
                f"{name}, {one.name}, {seconds:g} s, seed 0",
                partial(make.rival, name, one, 0, seconds),
            )
    for one in chosen if SHIPPED.exists() else ():
        yield "zero-shot", one.name, partial(make.zero_shot, one)
        for part in ("pretrained", "scratch"):
            yield part, f"{one.name}, seed 0", partial(make.tuned, one, 0, scratch=part == "scratch")
    if not given.quick:
        yield "together", f"{seconds:g} s each, seed 0", partial(make.together, 0, seconds)
    yield from details(given, few)


def details(given: argparse.Namespace, few: range) -> Iterator[Job]:
    """Ablations, controls, speed and reference runs."""
    for seed in few:
        for graph in ABLATED[: 1 if given.quick else None]:
            for name in VARIANTS:
                key = f"{graph}, {name}, {ABLATION_SECONDS:g} s, seed {seed}"
                yield "ablations", key, partial(make.ablation, named(graph), name, seed, ABLATION_SECONDS)
    updates = 20 if given.quick else 60
    for name in list(VARIANTS)[:3]:
        for seed in few:
            key = f"{name}, {updates} updates, seed {seed}"
            yield "batch-ablations", key, partial(make.batch_ablation, name, seed, updates)
    for updates, name in product(BLIND_UPDATES[: 1 if given.quick else None], BLIND[: 1 if given.quick else None]):
        for seed in range(2 if given.quick else 5):
            for rate in (1e-3, 0.0):
                key = f"{name}, rate {rate:g}, {updates} updates, seed {seed}"
                yield "zero-rate", key, partial(make.zero_rate, named(name), rate, seed, updates)
    for name in TIMED[: 1 if given.quick else None]:
        yield "speed", name, partial(make.speed, named(name))
    for name in () if given.quick else REFERENCES:
        for seed in range(3 if "after" in name else 1):
            key = f"{name}, {given.reference_share:g} of the seconds, seed {seed}"
            yield "reference", key, partial(make.reference, name, seed, given.reference_share)


def plain(cell: Cell) -> Cell:
    """As JSON has it: what does not fit is null."""
    return {
        key: None if isinstance(value, float) and math.isinf(value) else value for key, value in cell.items()
    }


def kept(path: Path) -> dict[str, dict[str, Cell]]:
    """The cells that are done."""
    return json.loads(path.read_text()) if path.exists() else {}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="three graphs, seconds each, into results/quick.json"
    )
    parser.add_argument("--only", action="append", default=[], help="a part; may be given repeatedly")
    parser.add_argument("--seconds", type=float, default=8.0, help="of learning per graph")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--few", type=int, default=3, help="seeds of HDP, of orders that are not learnt, of ablations"
    )
    parser.add_argument(
        "--reference-share", type=float, default=1.0, help="of the seconds of the reference runs"
    )
    parser.add_argument(
        "--most-minutes", type=float, default=1000.0, help="then stop; give the command again to go on"
    )
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.seeds, given.few = min(given.seconds, 3.0), 1, 1
    return given


def main() -> None:
    given = arguments()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    path = RESULTS / ("quick.json" if given.quick else "cells.json")
    make.warm_up()
    begin = time.monotonic()
    for part, key, work in jobs(given):
        if (given.only and part not in given.only) or key in kept(path).get(part, {}):
            continue
        if time.monotonic() - begin > 60 * given.most_minutes:
            print("out of time; give the command again to go on")
            break
        try:
            cell = plain(work())
        except SteadError as error:
            cell = {"error": str(error)}
        cells = kept(path)  # another process may have added to it meanwhile
        cells.setdefault(part, {})[key] = cell
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(cells, indent=1))
        fresh.replace(path)
        print(f"{part}: {key}: {json.dumps(cell)[:160]}", flush=True)
    text = told(kept(path))
    print(text)
    if not given.quick:
        (RESULTS / "README.md").write_text(text)


if __name__ == "__main__":
    main()
