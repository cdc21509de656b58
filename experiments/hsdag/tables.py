"""The tables, from cells that are done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from cells import ERROR, MEASURED, OPTIONS
from ir_models import IR_MODELS
from suite import GRAPHS, NAMES

from stead.learn.hsdag.method import HSDAG

Rows = list[dict[str, Any]]


def tables(done: dict[str, Any]) -> str:
    """All of them."""
    parts = (ablation, options, measured, encoders, models, loop, transferred)
    return "\n\n".join(part(done) for part in parts)


def table(title: str, words: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        [f"## {title}", "", words, "", *(f"| {' | '.join(map(str, cells))} |" for cells in lines)]
    )


def bests(rows: Rows) -> list[float]:
    return [row["best"] for row in rows]


def spread(values: list[float]) -> str:
    return f"{min(values):.2f} / {statistics.median(values):.2f} / {max(values):.2f}"


def wins(first: Rows, second: Rows) -> int:
    return sum(a["best"] < b["best"] for a, b in zip(first, second, strict=True))


def against(own: Rows, zero: Rows) -> list[str]:
    """Learning, learning rate 0, and on how many seeds the first is better."""
    return [spread(bests(own)), spread(bests(zero)), f"{wins(own, zero)} of {len(own)}"]


def ablation(done: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for graph in GRAPHS:
        for features in ("cost", "structure"):
            for grouping in ("learned", "none"):
                own, zero = (done[f"ablation {graph} {features} {grouping} {rate}"] for rate in ("lr", "0"))
                rows.append([graph, features, grouping, *against(own, zero)])
        rows.append([graph, "", "random chunks", "", spread(bests(done[f"chunks {graph}"])), ""])
    return table(
        "Ablation",
        "ms, least / median / most of the best samples after 500 evaluations.",
        ["graph", "features", "grouping", "learning", "rate 0", "wins"],
        rows,
    )


def options(done: dict[str, Any]) -> str:
    rows = []
    for graph in GRAPHS:
        named = {"none": f"ablation {graph} cost learned"} | {one: f"option {graph} {one}" for one in OPTIONS}
        for name, cell in named.items():
            own, zero = done[f"{cell} lr"], done[f"{cell} 0"]
            spent = statistics.median(row["cpu_seconds"] for row in own)
            updates = [row.get("updates", HSDAG().updates) for row in own]
            rows.append(
                [graph, name, *against(own, zero), f"{min(updates)} to {max(updates)}", f"{spent:.1f}"]
            )
    return table(
        "Options",
        "Off by default; cost features, learned groups.",
        ["graph", "option", "learning", "rate 0", "wins", "updates", "CPU s"],
        rows,
    )


def measured(done: dict[str, Any]) -> str:
    rows = []
    for graph in GRAPHS:
        own = done[f"measured last {graph}"]
        liked, best, exact = (spread([row[key] for row in own]) for key in ("liked", "best", "exact"))
        rows.append([graph, liked, best, f"{sum(r['best'] < r['liked'] for r in own)} of {len(own)}", exact])
    return table(
        "Measuring the best at the end",
        f"A stand-in for a runtime: seconds of every operator and device times exp({ERROR} x normal). ms there, of the "
        f"sample that the simulator likes best and of the fastest of its {MEASURED} favourites.",
        [
            "graph",
            "best by the simulator",
            "fastest of the measured",
            "better, seeds",
            "optimum of what is measured",
        ],
        rows,
    )


def encoders(done: dict[str, Any]) -> str:
    rows = []
    for graph in GRAPHS:
        others = [done[f"encoder {graph} {name}"] for name in ("gat", "gin")]
        own = [done[f"ablation {graph} cost learned lr"], *others]
        rows.append([graph, *(spread(bests(one)) for one in own)])
    return table("Encoders", "ms, as above.", ["graph", "gcn", "gat", "gin"], rows)


def models(done: dict[str, Any]) -> str:
    rows = []
    for name in IR_MODELS:
        for kind in ("plain", "mixed"):
            cell = done[f"table {name} {kind}"]
            others, own = cell["rivals"], cell["learned"]
            assert others["mincut"]["bound"] == others["mincut"]["ms"]
            rules = [*(f"single:{device}" for device in NAMES), "greedy-support", "heft"]
            values = [f"{others[one]['ms']:.3f}" for one in rules]
            for one in ("climb", "auto", "mincut"):
                values.append(f"{others[one]['ms']:.3f} ({others[one]['cpu_seconds']:.3f})")
            spent = statistics.median(row["cpu_seconds"] for row in own)
            best, *rest = against(own, cell["rate 0"])
            rows.append([f"{name} {kind}", cell["operators"], *values, f"{best} ({spent:.1f})", *rest])
    head = ["instance", "operators", "cpu only", "accelerator only", "greedy support", "heft"]
    head += ["climb (CPU s)", "auto (CPU s)", "min-cut = bound (CPU s)", "hsdag (CPU s)", "rate 0", "wins"]
    words = (
        "ms; `hsdag` is the policy's own best sample after 500 evaluations, least / median / most of the seeds, and so "
        "is rate 0. `climb` (local search) and `auto` may take the CPU seconds that `hsdag` took. What the minimum cut "
        "finds is also the bound that it proves."
    )
    return table("The paper's models", words, head, rows)


def loop(done: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['best']:.2f}", f"{row['rejected']:.0%}", row["groups"][1:]]
        for name in ("lr", "0", "index order")
        for row in done[f"published {name}"]
    ]
    return table(
        "The published loop",
        "ResNet-50 as IR of 396 layers, measured times, constants for nothing.",
        ["", "best of 500, each seed", "rejected", "samples with 1, 2, 3, ... groups"],
        rows,
    )


def transferred(done: dict[str, Any]) -> str:
    rows = []
    for name, row in done["transfer"].items():
        pair = [f"{row[one]['greedy']:.2f}, {row[one]['best of 64']:.2f}" for one in ("trained", "untrained")]
        rows.append([name, *pair, f"{row['single']:.2f}", f"{row['exact']:.2f}"])
    made = table(
        "Without training on the graph",
        "Trained on the other two models (mixed), one seed; ms.",
        ["held out", "trained: preferred, best of 64", "untrained", "best single", "exact"],
        rows,
    )
    three = spread(bests(done["devices 3"]))
    return f"{made}\n\nThree devices (`f32 mixed third`, optimum 51.95): {three}."
