"""What chains of calls add to the other bounds on offloaded runs: the table of docs/solvers/exact.md.

    python benchmarks/offload_bounds.py [DIR]

The instances of suite `small`, and with DIR the latency inputs of Tarnawski et al. 2020.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from stead import Budget, lower_bounds, solver
from stead.bench.instances import SUITES, Instance, published_inputs

SECONDS = 3.0  # for a plan
NEW = ("chain of calls", "chain of calls in memory")


def row(instance: Instance) -> str:
    """One line of the table; CPU seconds are those of all bounds together."""
    problem = instance.problem()
    began = time.process_time()
    found = lower_bounds(problem)
    spent = time.process_time() - began
    others = max(bound.seconds for bound in found if bound.name not in NEW)
    new = max(bound.seconds for bound in found if bound.name in NEW)
    value = solver("auto").solve(problem, Budget(seconds=SECONDS)).objective_seconds
    gaps = [f"{(value - bound) / value:.1%}" for bound in (others, max(others, new))]
    return (
        f"| {instance.name} | {len(problem.graph)} | {1e3 * value:.3f} | {1e3 * others:.3f} | {1e3 * new:.3f} "
        f"| {gaps[0]} | {gaps[1]} | {spent:.2f} |"
    )


def main() -> None:
    """Print the table."""
    instances = [one for one in SUITES["small"].instances if one.objective == "offload"]
    if len(sys.argv) > 1:
        instances += [one for one in published_inputs(Path(sys.argv[1])) if one.objective == "offload"]
    print("| instance | operators | plan, ms | other bounds, ms | chain, ms | gap before | now | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for instance in instances:
        print(row(instance), flush=True)


if __name__ == "__main__":
    main()
