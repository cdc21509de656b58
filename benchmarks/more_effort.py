"""Does `auto` get worse with more effort? The same seed with evaluations that double, on small graphs.

    python benchmarks/more_effort.py [--seeds 3]

Phases are dealt shares of the budget and annealing cools as slowly as it allows, so that a run with more evaluations is
not a longer version of the run with fewer. Printed is how often twice or eight times as many led to a longer schedule,
and by how much at most.
"""

from __future__ import annotations

import argparse
import statistics

from stead.placing.loading import load
from stead.problem import Latency, Problem, Throughput
from stead.solvers import Budget
from stead.solvers.auto import Auto

GRAPHS = (
    "lstm-grid?operators=300,phase=train", "lstm-grid?operators=1000,phase=train",
    "inception?operators=1000,phase=train", "transformer?operators=1000,phase=train", "layered?operators=500",
)  # fmt: skip
DEVICES = "2x A100-80GB + 2x 3090"
EVALUATIONS = tuple(1000 << n for n in range(7))
FACTORS = (2, 8)


def problems() -> list[tuple[str, Problem]]:
    """Graphs for latency, and two as full pipelines."""
    loaded = {name: load(f"zoo:{name}", DEVICES) for name in GRAPHS}
    found = [(f"latency {name}", one.problem(Latency())) for name, one in loaded.items()]
    return found + [(f"throughput {name}", loaded[name].problem(Throughput())) for name in GRAPHS[1:3]]


def main() -> None:
    """Print a row for every graph, then the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    print(f"| median of {len(seeds)} seeds, ms | {' | '.join(f'{n:,}' for n in EVALUATIONS)} |")
    print("|---|" + "---:|" * len(EVALUATIONS))
    changes: dict[int, list[float]] = {factor: [] for factor in FACTORS}
    for name, problem in problems():
        found = {
            (seed, n): Auto().solve(problem, Budget(evaluations=n), seed).objective_seconds
            for seed in seeds
            for n in EVALUATIONS
        }
        medians = [1e3 * statistics.median(found[seed, n] for seed in seeds) for n in EVALUATIONS]
        print(f"| {name} | {' | '.join(f'{value:.4g}' for value in medians)} |", flush=True)
        for factor, own in changes.items():
            own += [found[key[0], key[1] * factor] / found[key] for key in found if key[1] * factor <= EVALUATIONS[-1]]
    for factor, own in changes.items():
        worse = [change for change in own if change > 1 + 1e-9]
        print(
            f"\n{factor} times the evaluations: worse in {len(worse)} of {len(own)} pairs, "
            f"by {max(worse, default=1) - 1:.2%} at most and {statistics.median(worse or [1]) - 1:.2%} in their median"
        )


if __name__ == "__main__":
    main()
