"""How CPU seconds grow with operators, tensors and devices: reading, bounds, constructions, search, all of `auto`.

    python benchmarks/scale.py [--sizes 1000 10000 50000] [--devices 2 4 8] [--family layered] [--evaluations 200]

`auto` is given a budget in evaluations, so that its work is the same everywhere; an evaluation is one pass over all
operators. Compare rows with each other, not with other machines.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

from stead import Budget, Latency, best_bound
from stead.placing.loading import load
from stead.solvers import solver
from stead.workloads.synthetic import synthetic


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def row(family: str, size: int, devices: int, evaluations: int) -> str:
    """All times of one problem."""
    graph = synthetic(family, operators=size)
    problem = load(graph, f"{devices}x A100-80GB").problem(Latency())
    native = cpu_seconds(lambda: problem.native)
    bounds = cpu_seconds(lambda: best_bound(problem))
    heft, multilevel = (
        cpu_seconds(lambda name=name: solver(name).solve(problem, Budget(), 0))
        for name in ("heft", "multilevel")
    )
    auto = cpu_seconds(lambda: solver("auto").solve(problem, Budget(evaluations=evaluations), 0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cells = [f"{seconds:.2f}" for seconds in (native, bounds, heft, multilevel, auto)]
    return f"| {len(graph)} | {graph.tensor_count} | {devices} | {' | '.join(cells)} | {peak:.0f} |"


def main() -> None:
    """Print one row per size and number of devices."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 50_000])
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--family", default="layered")
    parser.add_argument("--evaluations", type=int, default=200)
    given = parser.parse_args()
    print(f"CPU seconds, {given.family} graphs, latency, auto with {given.evaluations} evaluations\n")
    print("| operators | tensors | devices | arrays | bounds | heft | multilevel | auto | MB so far |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in given.sizes:
        for devices in given.devices:
            print(row(given.family, size, devices, given.evaluations), flush=True)


if __name__ == "__main__":
    main()
