"""ColocRL beside its controls: does it learn, how far does it come, and what does the same effort buy elsewhere?

    python experiments/colocrl/run.py [tables|shown|checks|all] [--out experiments/colocrl/results] [--quick]

`tables` computes and prints the tables of README.md, `shown` prints what is there of them, `checks` the acceptance
checks, one line each with the measured value. Cells that are already in the results are not computed again. `--quick`
takes one seed and few evaluations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from comparison import (
    Cells,
    Instance,
    Study,
    annealed_groups,
    arguments,
    learned,
    median_of,
    reference_cluster,
    solved,
    told,
)
from pages import fill

from stead import Problem
from stead.learn.colocrl.method import ColocRL
from stead.learn.ground.ablation import varied
from stead.learn.hdp.method import HDP
from stead.placing.loading import load
from stead.problem import Latency
from stead.readers import graph_as_dict, graph_from_dict

LAB_BOOK, PAGE = "experiments/colocrl/README.md", "docs/learned/colocrl.md"
INSTANCES = (
    Instance("RNNLM-2 on 2 devices", "zoo:rnnlm-2?phase=train", 2),
    Instance("Inception-v3 on 2 devices", "zoo:inception-v3?phase=train", 2),
    Instance("GNMT-2 on 2 devices, tight memory", "zoo:gnmt-2?phase=train", 2, room=1.15),
)
EVALUATIONS = dict(zip((one.name for one in INSTANCES), (2000, 1000, 400), strict=True))
WALKS = ColocRL(decoder="walk")
VARIANTS = {
    "colocrl, decoder=walk": WALKS,
    "colocrl, decoder=walk, learning rate 0": replace(WALKS, learning_rate=0.0),
    "colocrl": ColocRL(),
    "colocrl, learning rate 0": ColocRL(learning_rate=0.0),
    "colocrl without following": varied(ColocRL(), follow=0.0),
    "colocrl without following, learning rate 0": varied(ColocRL(), follow=0.0, learning_rate=0.0),
    "colocrl, faithful": ColocRL(variant="faithful"),
}
BESIDE = {
    "expert": "expert", "metis": "METIS", "random": "random placements", "annealing": "annealing, same evaluations",
    "search": "`search`, same evaluations",
}  # fmt: skip
WALK_ROWS = {
    "colocrl, decoder=walk": "`decoder=walk`",
    "colocrl, decoder=walk, learning rate 0": "learning rate 0: shaken, not learnt",
    "zero opinions: 16 walks": "opinions of zero: 16 walks of list scheduling", "heft": "the heft family",
    **BESIDE, "search, at most the CPU of colocrl, decoder=walk": "`search`, at most the same CPU", "bound": "bound",
}  # fmt: skip
PAPER_ROWS = {
    "colocrl": "`colocrl`", "colocrl, learning rate 0": "learning rate 0: prior alone",
    "colocrl without following": "without following neighbours",
    "colocrl without following, learning rate 0": "the same, learning rate 0", "colocrl, faithful": "faithful",
    **BESIDE, "search, at most the CPU of colocrl": "`search`, at most the same CPU", "bound": "bound",
}  # fmt: skip
CPU_SECONDS = 60.0
LONG = {10_000: 1}  # evaluations of C12 and seeds: one takes six minutes, of 75,000 it would be forty
ORDERS = 5  # of C15


def study(folder: Path, *, quick: bool) -> Study:
    """What the tables show."""
    return Study(
        Cells(folder),
        INSTANCES[:1] if quick else INSTANCES,
        {name: 100 if quick else limit for name, limit in EVALUATIONS.items()},
        VARIANTS,
        seeds=range(1) if quick else range(5),
        few=("colocrl, faithful",),
        polished="colocrl",
        matched=("colocrl", "colocrl, decoder=walk"),
        beside={"heft": ("heft", {}), "zero opinions: 16 walks": ("walk", {"policy": "zero"})},
    )


def rnnlm(*, slow_links: bool = False) -> Problem:
    """The reference instance; with slow links one device is best."""
    cluster = (
        reference_cluster(2, bytes_per_second=0.1e9, latency_seconds=1e-3)
        if slow_links
        else reference_cluster(2)
    )
    return load(INSTANCES[0].model, cluster).problem(Latency())


def reordered(problem: Problem, seed: int) -> Problem:
    """The same graph with its operators listed in a random topological order, which groups then follow."""
    graph, rng = problem.graph, np.random.default_rng(seed)
    waits = np.bincount(graph.edges[:, 1], minlength=len(graph))
    readers: list[list[int]] = [[] for _ in range(len(graph))]
    for producer, reader in graph.edges.tolist():
        readers[producer].append(reader)
    ready, order = np.flatnonzero(waits == 0).tolist(), []
    while ready:
        v = ready.pop(int(rng.integers(len(ready))))
        order.append(v)
        for reader in readers[v]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    document = graph_as_dict(graph)
    document["operators"] = [document["operators"][v] for v in order]
    other = graph_from_dict(document, place="another order")
    return load(other, problem.cluster).problem(Latency())


def checks(own: Study) -> None:
    """The acceptance checks that need minutes; the others are tests."""
    cells, first = own.cells, INSTANCES[0]
    single = solved("single", rnnlm())["seconds"]
    for with_prior in ("", " without following"):
        pairs = [
            (a["seconds"] / single, b["seconds"] / single)
            for a, b in zip(
                own.rows(first, f"colocrl{with_prior}"),
                own.rows(first, f"colocrl{with_prior}, learning rate 0"),
                strict=True,
            )
        ]
        won = sum(a < b for a, b in pairs)
        apart = sorted(b for _, b in pairs)[len(pairs) // 2] - sorted(a for a, _ in pairs)[len(pairs) // 2]
        told(
            f"C7{with_prior}",
            won == len(pairs) and apart >= 0.1,
            f"won {won} of {len(pairs)}, medians {apart:.3f} apart",
        )
    found = cells.get("C8", lambda: learned(ColocRL(), rnnlm(), seed=0, cpu_seconds=CPU_SECONDS))
    told("C8", found["seconds"] / single <= 0.70, f"{found['seconds'] / single:.3f} of one device")
    found = cells.get(
        "C8 polished", lambda: solved("colocrl", rnnlm(), seconds=CPU_SECONDS, updates=200, polish=True)
    )
    told(
        "C8 with polish", found["seconds"] / single <= 0.61, f"{found['seconds'] / single:.3f} of one device"
    )
    faithful = ColocRL(variant="faithful")
    found = cells.get("C9", lambda: learned(faithful, rnnlm(), seed=0, cpu_seconds=CPU_SECONDS))
    told(
        "C9",
        found["greedy_seconds"] / single >= 0.9,
        f"greedy {found['greedy_seconds'] / single:.3f} of one device",
    )
    slow = cells.get(
        "C10", lambda: learned(ColocRL(), rnnlm(slow_links=True), seed=0, cpu_seconds=CPU_SECONDS)
    )
    told("C10", slow["greedy_devices"] == 1, f"greedy on {slow['greedy_devices']} devices")
    tight = INSTANCES[-1]
    expert = median_of(own.rows(tight, "expert"))[0]
    alone = median_of(own.rows(tight, "colocrl"))[0]
    found = cells.get(
        "C11", lambda: solved("colocrl", tight.problem(), seconds=2 * CPU_SECONDS, updates=50, polish=True)
    )
    told(
        "C11",
        expert / found["seconds"] >= 1.2,
        f"{100 * (expert / found['seconds'] - 1):.1f} % faster than the expert with polish, "
        f"samples alone {100 * (expert / alone - 1):.1f} %",
    )
    ways: dict[str, Callable[[int, int], Any]] = {
        "colocrl": lambda limit, seed: learned(ColocRL(), rnnlm(), seed=seed, evaluations=limit),
        "hdp": lambda limit, seed: learned(HDP(), rnnlm(), seed=seed, evaluations=limit),
        "annealing": lambda limit, seed: annealed_groups(rnnlm(), seed=seed, evaluations=limit),
        "search": lambda limit, seed: solved("search", rnnlm(), seed=seed, evaluations=limit),
    }
    for (limit, seeds), (name, way) in product(LONG.items(), ways.items()):
        rows = [cells.get(f"C12 {limit} | {name} | {seed}", partial(way, limit, seed)) for seed in range(seeds)]
        middle, low, high = (value / single for value in median_of(rows))
        spent = f"{median_of(rows, 'cpu_seconds')[0]:.1f} CPU s"
        print(f"C12  {name}, {limit} evaluations: {middle:.3f} ({low:.3f} to {high:.3f}) of one device, {spent}")
    limit = own.evaluations[first.name]
    found_by_order = [
        cells.get(
            f"C15 order {order}",
            lambda order=order: learned(ColocRL(), reordered(rnnlm(), order), seed=0, evaluations=limit),
        )["seconds"]
        / single
        for order in range(ORDERS)
    ]
    apart = max(found_by_order) / min(found_by_order) - 1
    told(
        "C15",
        apart < 0.07,
        f"{100 * apart:.1f} % between {ORDERS} random orders: {', '.join(f'{value:.3f}' for value in found_by_order)}",
    )
    shares = [row["network_share"] for one in INSTANCES for row in own.rows(one, "colocrl")]
    told("time in the network", min(shares) > 0.8, f"at least {100 * min(shares):.1f} %")


def show(own: Study, *, fills: bool) -> None:
    """Print the tables, and put those into pages whose rows are all there."""
    if fills:
        for page in (LAB_BOOK, PAGE):
            fill(page, "walks", own.summary(WALK_ROWS))
    if fills and all(own.rows(one, name) for one in INSTANCES for name in VARIANTS):
        own.fill(LAB_BOOK)
        for page in (LAB_BOOK, PAGE):
            fill(page, "paper", own.summary(PAPER_ROWS))
    print("\n".join(line for one in own.instances for line in (f"### {one.name}", "", *own.table(one), "")))


def main() -> None:
    """Compute, then print."""
    given = arguments(__doc__ or "", Path(__file__).parent / "results")
    own = study(given.out, quick=given.quick)
    if given.what in ("tables", "all"):
        own.run()
    if given.what != "checks":
        show(own, fills=not given.quick)
    if given.what in ("checks", "all") and not given.quick:
        checks(own)


if __name__ == "__main__":
    main()
