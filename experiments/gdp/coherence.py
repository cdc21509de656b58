"""What GDP's samples gain when units do not roll their dice alone: noise per layer, per segment, and both in turn.

    python experiments/gdp/coherence.py [--seeds 5] [--evaluations 200]

`gdp` with each value of its option `noise` (src/stead/learn/gdp/coherence.py), five families on four equal devices,
equal evaluations, starts included; `copied` after ten updates that copy constructions, frozen; `not learnt` by random
weights (learning rate 0); `learnt` from rewards alone; `learnt, after copying` as `gdp` is. Cells are kept in
results/coherence; the lab book and the page get the table.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from comparison import Cells, bound, median_of, reference_cluster, solved, spread  # noqa: E402
from controls import ONE, Row, taught  # noqa: E402
from pages import fill  # noqa: E402

from stead import Problem  # noqa: E402
from stead.costs import Roofline  # noqa: E402
from stead.learn.ground.ablation import varied  # noqa: E402
from stead.problem import Latency  # noqa: E402
from stead.workloads.synthetic import synthetic  # noqa: E402

GRAPHS: dict[str, dict[str, int]] = {
    "lstm-grid": {"layers": 4, "steps": 10}, "inception": {"operators": 300, "seed": 1},
    "transformer": {"operators": 300}, "branches": {"seed": 101}, "series-parallel": {"operators": 300, "seed": 1},
}  # fmt: skip
NOISES = ("alone", "layers", "segments", "mixed")
WAYS = {
    "copied": ({}, True), "not learnt": ({"imitation": 0, "learning_rate": 0.0}, False),
    "learnt": ({"imitation": 0}, False), "learnt, after copying": ({}, False),
}  # fmt: skip
ROWS = {
    f"{way}: {noise}": Row(varied(ONE, noise=noise, **options), frozen=frozen)
    for way, (options, frozen) in WAYS.items()
    for noise in NOISES
}


def main() -> None:
    """Compute what is missing, then fill the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=200)
    given = parser.parse_args()
    cells, cluster = Cells(HERE / "results" / "coherence"), reference_cluster(4)
    table: dict[str, list[str]] = {}
    logs: dict[str, list[float]] = {}
    sizes = {}

    def tell(label: str, cell: str, ratio: float) -> None:
        table.setdefault(label, []).append(cell)
        logs.setdefault(label, []).append(math.log(ratio))

    for name, options in GRAPHS.items():
        graph = synthetic(name, training=True, **options)
        problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
        sizes[name], single = len(graph), solved("single", problem)["seconds"]
        starts = []
        for label, row in ROWS.items():
            work = partial(taught, row, problem, evaluations=given.evaluations)
            key = f"{name} | {label} | {given.evaluations}"
            found = [cells.get(f"{key} | {seed}", partial(work, seed=seed)) for seed in range(given.seeds)]
            tell(label, spread(found, single), median_of(found)[0] / single)
            starts += [one["starts"] / single for one in found]
        tell("starts", f"{min(starts):.3f}", min(starts))
        best = bound(problem)["seconds"] / single
        tell("bound", f"{best:.3f}", best)
    named = " | ".join(f"{name}, {size} operators" for name, size in sizes.items())
    lines = [f"| run time / one device | {named} | geometric mean |", "|---|" + "---:|" * (len(GRAPHS) + 1)]
    for label in ("starts", *ROWS, "bound"):
        mean = math.exp(sum(logs[label]) / len(logs[label]))
        lines.append(f"| {label} | {' | '.join(table[label])} | {mean:.3f} |")
    print("\n".join(lines))
    for page in ("experiments/gdp/README.md", "docs/learned/gdp.md"):
        fill(page, "coherence", lines)


if __name__ == "__main__":
    main()
