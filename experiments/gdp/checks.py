"""Every acceptance check of the experiment with its measured value, and the page of tables and checks."""

from __future__ import annotations

import math
from itertools import product

from suite import GDP12
from tables import (
    COLUMNS,
    Cells,
    Rows,
    ablation_table,
    all_seconds,
    geometric,
    main_table,
    middle,
    of,
    order_means,
    order_table,
    rows,
    seconds,
    speed_table,
    zero_table,
)

Check = tuple[str, str, bool | str | None, str]
SEEDS = 3  # that the checks ask for
MEASURED = (0.034, 0.42)  # CPU seconds of a pass over 1,000 and 10,000 operators that speed is held against


def checks(cells: Cells) -> list[Check]:
    """(id, what, passed or None if not run or the words for it, measured)."""
    table = rows(cells)
    return [
        _over_expert(table),
        _over_hdp(table, polish=False),
        _over_hdp(table, polish=True),
        _over_long_hdp(cells, table),
        *(_search_speed(cells, *pair) for pair in product(("pretrained", "scratch", "gdp"), ("hdp", "hdp-long"))),
        _no_collapse(cells, table),
        _together(cells, table),
        *_ablations(cells),
        *_speed(cells),
        *_zero_rate(cells),
        *_references(cells),
        _search(table, "search"),
        _search(table, "auto"),
        *_orders(cells),
    ]


def on_seeds(passed: bool, seeds: int) -> bool | str:
    """A result that fewer seeds than asked for stand behind says so."""
    return f"pass on {seeds} of {SEEDS} seeds" if passed and seeds < SEEDS else passed


def _over_expert(table: Rows) -> Check:
    what = "geometric mean of t_expert / t of GDP + polish at least 1.16, worst seed at least 1.12"
    if len(table) < len(GDP12) or not all(row["GDP + polish"] for row in table.values()):
        return "G6", what, None, "not all graphs were run"
    each, own, sampled, copied = (
        geometric([row["expert"][0] / middle(row[column]) for row in table.values()])
        for column in ("GDP + polish", "GDP", "sampled", "copied")
    )
    worst = geometric([row["expert"][0] / max(row["GDP + polish"]) for row in table.values()])
    seeds = min(len(row["GDP + polish"]) for row in table.values())
    return (
        "G6", what, on_seeds(each >= 1.16 and worst >= 1.12, seeds),
        f"{each:.3f}, worst seeds {worst:.3f}, without polish {own:.3f}, samples of the policy alone {sampled:.3f}, "
        f"the copied constructions {copied:.3f}; seeds: {seeds}",
    )  # fmt: skip


def _over_hdp(table: Rows, *, polish: bool) -> Check:
    ours, theirs = ("GDP + polish", "HDP + polish") if polish else ("GDP", "HDP")
    what = (
        f"geometric mean of t_hdp / t at least 1.092 at equal CPU, {'with' if polish else 'without'} polish"
    )
    pairs = [(row[ours], row[theirs]) for row in table.values() if row[ours] and row[theirs]]
    if not pairs:
        return "G7", what, None, "not run"
    mean = geometric([middle(hdp) / middle(own) for own, hdp in pairs])
    worst = geometric([min(hdp) / max(own) for own, hdp in pairs])
    seeds = min(len(hdp) for _, hdp in pairs)
    return (
        "G7", what, on_seeds(mean >= 1.092, seeds),
        f"{mean:.3f} over {len(pairs)} graphs, our worst seed against its best {worst:.3f}; seeds of HDP: {seeds}",
    )  # fmt: skip


def _over_long_hdp(cells: Cells, table: Rows) -> Check:
    what = "the same without polish, HDP with 60 CPU seconds, one seed"
    pairs = [
        (middle(row["GDP"]), theirs[0]["value"])
        for name, row in table.items()
        if row["GDP"] and (theirs := of(cells, "hdp-long", name))
    ]
    if not pairs:
        return "G7", what, None, "not run"
    mean = geometric([theirs / ours for ours, theirs in pairs])
    return "G7", what, "reported", f"{mean:.3f} over {len(pairs)} graphs"


def _search_speed(cells: Cells, part: str, rival: str) -> Check:
    """Samples of HDP against those of GDP, to the best that HDP drew."""
    name = {"pretrained": "the pre-trained policy", "scratch": "50 updates from scratch",
            "gdp": "GDP after copying constructions"}[part]  # fmt: skip
    long = " in 60 CPU seconds" if rival == "hdp-long" else ""
    what = f"evaluations of HDP to its best sample{long} over those of {name} to the same value at least 15"
    ratios, missed = [], 0
    for one in GDP12:
        theirs, ours = of(cells, rival, one.name), of(cells, part, one.name)
        if not theirs or not ours or not theirs[0]["trail"]:
            continue
        spent, goal = theirs[0]["trail"][-1]
        reached = [count for count, value in ours[0]["trail"] if value <= goal]
        missed += not reached
        if reached:
            ratios.append(max(1, spent) / max(1, reached[0]))
    if not ratios and not missed:
        return "G8", what, None, "not run"
    mean = geometric(ratios) if ratios else 0.0
    passed: bool | str = mean >= 15 and not missed
    return (
        "G8", what, passed if part == "pretrained" else "reported",
        f"{mean:.2f} on {len(ratios)} graphs, not reached on {missed}",
    )  # fmt: skip


def _no_collapse(cells: Cells, table: Rows) -> Check:
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


def _together(cells: Cells, table: Rows) -> Check:
    what = "samples of one policy for all graphs within 5 % of those of GDP on each, at equal CPU in all"
    runs = list(cells.get("together", {}).values())
    if not runs or not all(row["GDP"] for row in table.values()):
        return "G12", what, None, "not run"
    ratios = {
        key: geometric(
            [(runs[0][key][name] or math.inf) / middle(row[column]) for name, row in table.items()]
        )
        for key, column in (("sampled", "sampled"), ("greedy", "greedy"), ("best", "GDP"))
    }
    return (
        "G12", what, ratios["sampled"] <= 1.05,
        f"t / t of one graph: samples {ratios['sampled']:.3f}, greedy {ratios['greedy']:.3f}, with what was copied "
        f"{ratios['best']:.3f}; {runs[0]['updates']} updates of 4 graphs",
    )  # fmt: skip


def _ablations(cells: Cells) -> list[Check]:
    what = "batch training without superposition is not better by more than 1 %"
    means = {
        name: geometric(all_seconds(of(cells, "batch-ablations", name), "greedy"))
        for name in ("whole", "without attention", "without superposition")
    }
    batch: Check = ("G13", what, None, "not run")
    if all(map(math.isfinite, means.values())):
        told = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
        passed = means["without superposition"] >= 0.99 * means["whole"]
        batch = ("G13", what, passed, f"greedy over the expert: {told}")
    what = "no single graph is faster by more than 1 % without one of the parts (median of the best samples)"
    better = []
    keys = [key.split(", ") for key in cells.get("ablations", {})]
    for graph in dict.fromkeys(key[0] for key in keys):
        whole = middle(all_seconds(of(cells, "ablations", graph, "whole"), "sampled"))
        for name in dict.fromkeys(key[1] for key in keys):
            own = middle(all_seconds(of(cells, "ablations", graph, name), "sampled"))
            if own < 0.99 * whole:
                better.append(f"{graph} {name} ({own / whole:.3f} of whole)")
    single: Check = (
        "G18",
        what,
        not better if keys else None,
        "; ".join(better) or ("none" if keys else "not run"),
    )
    return [batch, single]


def _speed(cells: Cells) -> list[Check]:
    what = "a pass and its gradient, devices alone, at least 80 % as fast as {} s for {} operators"
    found: list[Check] = []
    timed = sorted(cells.get("speed", {}).values(), key=lambda cell: cell["operators"])
    if len(timed) < 3:
        return [("G15", what.format(MEASURED[0], "1,000"), None, "not run")]
    for cell, goal, size in ((timed[0], MEASURED[0], "1,000"), (timed[-1], MEASURED[1], "10,000")):
        spent = cell["pass_cpu_seconds"]
        found.append(
            (
                "G15", what.format(goal, size), spent <= goal / 0.8,
                f"{spent:.4f} CPU s for {cell['operators']:,} (median of passes; limit {goal / 0.8:.4f} s), "
                f"the fastest {cell['fastest_pass_cpu_seconds']:.4f} s",
            )
        )  # fmt: skip
    cell = timed[1]
    found.append(
        (
            "G15", "with 256 samples and 5,000 operators the network takes longer than the simulator",
            cell["network_seconds"] > cell["simulator_seconds"],
            f"{cell['network_seconds']:.2f} s and {cell['simulator_seconds']:.2f} s at {cell['operators']:,} operators",
        )
    )  # fmt: skip
    return found


def _zero_rate(cells: Cells) -> list[Check]:
    what = "learning beats learning rate 0 at equal evaluations, every seed of every graph, {} of 64 samples"
    found = dict[str, dict[str, list[float]]]()  # updates, graph: time over that of rate 0
    for key, cell in cells.get("zero-rate", {}).items():
        name, rate, updates, seed = key.split(", ")
        blind = cells["zero-rate"].get(f"{name}, rate 0, {updates}, {seed}")
        if rate != "rate 0" and blind is not None:
            found.setdefault(updates, {}).setdefault(name, []).append(cell["best"] / blind["best"])
    if not found:
        return [("G16", what.format("updates"), None, "not run")]
    checks = list[Check]()
    for updates, graphs in found.items():
        told = ", ".join(f"{name} {sum(one < 1 for one in each)} of {len(each)}" for name, each in graphs.items())
        shares = [one for each in graphs.values() for one in each]
        measured = f"{told}; time over that of rate 0 {geometric(shares):.3f}"
        checks.append(("G16", what.format(updates), all(one < 1 for one in shares), measured))
    return checks


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


def _search(table: Rows, name: str) -> Check:
    what = f"against {name} at equal CPU (published as it comes out)"
    pairs = [(middle(row[name]), middle(row["GDP + polish"])) for row in table.values()
             if row[name] and row["GDP + polish"]]  # fmt: skip
    if not pairs:
        return "G19", what, None, "not run"
    mean = geometric([theirs / ours for theirs, ours in pairs])
    wins = sum(ours < theirs for theirs, ours in pairs)
    return (
        "G19",
        what,
        "reported",
        f"t_{name} / t {mean:.3f}; GDP + polish is faster on {wins} of {len(pairs)} graphs",
    )


def _orders(cells: Cells) -> list[Check]:
    found: list[Check] = []
    for rival, what in (
        ("devices only", "with priorities not slower than without, mean of the graphs at equal CPU"),
        ("random priorities", "random priorities are slower than learnt ones"),
        ("ranks only", "learnt priorities against upward ranks alone (published as it comes out)"),
    ):
        means = {
            column: order_means(cells, key) for column, key in (("GDP", "best"), ("GDP + polish", "polished"))
        }
        if not all("priorities" in mean and rival in mean for mean in means.values()):
            found.append(("G21", what, None, "not run"))
            continue
        ratios = {column: mean[rival] / mean["priorities"] for column, mean in means.items()}
        told = ", ".join(f"t / t of learnt ones {ratio:.3f} ({column})" for column, ratio in ratios.items())
        passed = min(ratios.values()) >= 1 if rival == "devices only" else ratios["GDP"] > 1
        found.append(("G21", what, "reported" if rival == "ranks only" else passed, told))
    return found


def told(cells: Cells) -> str:
    """All of it."""
    lines = [
        "# GDP on gdp12",
        "",
        "Seconds over those of the expert; below 1 is faster. Median over seeds, in brackets the worst of them.",
        "",
        *main_table(cells),
    ]
    for heading, table in (
        ("What GDP decides, and what that is worth before polish:", order_table(cells)),
        ("Without one part, on one graph each, 6 CPU seconds:", ablation_table(cells)),
        ("The policy of the package, asked once:", zero_table(cells)),
        ("Seconds of one pass over all operators with 16 samples, features and priorities apart:", speed_table(cells)),
    ):
        lines += ["", heading, "", *table] if table else []
    lines += ["", "| check | what | result | measured |", "|---|---|---|---|"]
    words: dict[bool | str | None, str] = {True: "pass", False: "**fail**", None: "not run"}
    lines += [
        f"| {name} | {what} | {words.get(passed, passed)} | {value} |"
        for name, what, passed, value in checks(cells)
    ]
    return "\n".join(lines) + "\n"
