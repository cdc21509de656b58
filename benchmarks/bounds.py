"""What some bounds add to the others: tables of docs/solvers/exact.md.

    python benchmarks/bounds.py offload [DIR]    chains of calls
    python benchmarks/bounds.py latency          blocks of a path

The instances of suite `small` of that objective, and with DIR the latency inputs of Tarnawski et al. 2020.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

from stead import Budget, lower_bounds, solver
from stead.bench.instances import SUITES, Instance, published_inputs

SECONDS = {"offload": 3.0, "latency": 10.0}  # for a plan
BOUND_SECONDS = {"offload": math.inf, "latency": 1.0}  # for all bounds
NEW = {"offload": ("chain of calls", "chain of calls in memory"), "latency": ("blocks of a path",)}


def row(instance: Instance) -> str:
    """One line of the table; CPU seconds are those of all bounds together."""
    problem, new_names = instance.problem(), NEW[instance.objective]
    began = time.process_time()
    found = lower_bounds(problem, seconds=BOUND_SECONDS[instance.objective])
    spent = time.process_time() - began
    others = max(bound.seconds for bound in found if bound.name not in new_names)
    new = max(bound.seconds for bound in found if bound.name in new_names)
    value = solver("auto").solve(problem, Budget(seconds=SECONDS[instance.objective])).objective_seconds
    gaps = [f"{(value - bound) / value:.1%}" for bound in (others, max(others, new))]
    return (
        f"| {instance.name} | {len(problem.graph)} | {1e3 * value:.3f} | {1e3 * others:.3f} | {1e3 * new:.3f} "
        f"| {gaps[0]} | {gaps[1]} | {spent:.2f} |"
    )


def main() -> None:
    """Print the table."""
    objective, *folders = sys.argv[1:] or ["offload"]
    if objective not in NEW:
        sys.exit(f"which bounds? one of {', '.join(NEW)}, got {objective!r}")
    instances = [one for one in SUITES["small"].instances if one.objective == objective]
    for folder in folders:
        instances += [one for one in published_inputs(Path(folder)) if one.objective == objective]
    print("| instance | operators | plan, ms | other bounds, ms | new, ms | gap before | now | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for instance in instances:
        print(row(instance), flush=True)


if __name__ == "__main__":
    main()
