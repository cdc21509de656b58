"""What `series` proves where memory is tight: the table of docs/solvers/exact.md.

    python benchmarks/series.py

Two cards; the larger one has room for a share of the weights beside the activations of the whole model.
"""

from __future__ import annotations

import time

import numpy as np

from stead import Budget, Latency, Placement, Problem, best_bound, load, simulate, solver
from stead.workloads.demo import demo_graph

CASES = (("gpt2-small", 0.5), ("bert-base", 0.6), ("resnet-50", 0.6), ("vit-base", 0.6), ("inception-v3", 0.6))


def tight(model: str, share: float) -> Problem:
    """A model whose weights do not all fit on the first card."""
    problem = load(f"zoo:{model}", "3090,3060").problem(Latency())
    weights = int(problem.graph.weight_bytes.sum())
    alone = simulate(problem, Placement(problem, np.zeros(len(problem.graph), dtype=np.int64)))
    return problem.with_memory("3090", int(share * weights) + int(alone.peak_bytes[0]) - weights)


def row(name: str, problem: Problem) -> str:
    """One line of the table; CPU seconds are those of `series` and the bounds that it begins with."""
    began = time.process_time()
    found = solver("series").solve(problem, Budget())
    spent = time.process_time() - began
    other = 1e3 * best_bound(problem).seconds
    return (
        f"| {name} | {len(problem.graph)} | {other:.2f} | {1e3 * found.bound_seconds:.4f} "
        f"| {1e3 * found.objective_seconds:.4f} | {found.gap:.2%} | {spent:.1f} |"
    )


def main() -> None:
    """Print the table."""
    print("| model | operators | other bounds, ms | `series`, ms | its plan, ms | gap | CPU s |")
    print("|---|---|---|---|---|---|---|")
    print(row("demo", load(demo_graph(), "3090,3060").problem(Latency())))
    for model, share in CASES:
        print(row(f"{model}, room for {share:.0%}", tight(model, share)))


if __name__ == "__main__":
    main()
