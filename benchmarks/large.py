"""Large clusters: what plans take and how far they are from their bounds, by devices and by operators.

    python benchmarks/large.py devices       # 64 to 1,024 devices, about 10,000 operators
    python benchmarks/large.py operators     # 10,000 to 1,000,000 operators, 1,024 devices
    python benchmarks/large.py simulation    # one simulation, by devices
"""

from __future__ import annotations

import resource
import sys
import time
from itertools import pairwise

import numpy as np

from stead.cluster import Cluster, cluster_from
from stead.placing.loading import load
from stead.problem import Latency, Objective, Problem, Throughput
from stead.sim import lower_bounds, simulate_many
from stead.solvers import Budget, solver

MODEL = "zoo:lstm-grid?operators={}"
EVALUATIONS = 2000
GOALS: tuple[tuple[str, Objective], ...] = (("latency", Latency()), ("throughput", Throughput()))


def cluster_of(devices: int) -> Cluster:
    """So many A100 in nodes of 8 and racks of 64."""
    racks = " in racks of 8 @ 12GB/s" if devices > 64 else ""
    return cluster_from(f"{devices}x A100-80GB in nodes of 8 @ 25GB/s{racks}")[0]


def planned(operators: int, devices: int) -> None:
    """Print a line for each goal: CPU seconds of each step, the value and the bound."""
    loaded = load(MODEL.format(operators), cluster_of(devices))
    for goal, objective in GOALS:
        clock = [time.process_time()]
        problem = loaded.problem(objective)
        assert problem.native.devices == devices
        clock.append(time.process_time())
        bound = lower_bounds(problem, seconds=1.0)[0]
        clock.append(time.process_time())
        found = solver("auto").solve(problem, Budget(evaluations=EVALUATIONS))
        clock.append(time.process_time())
        spent = " ".join(f"{late - early:8.2f}" for early, late in pairwise(clock))
        used = len(np.unique(found.placement.devices))
        print(
            f"{len(problem.graph):8} {devices:5} {goal:10} {spent} {1e3 * found.objective_seconds:10.3f} "
            f"{1e3 * bound.seconds:10.3f} {used:5} {found.found_by:12} {peak_gib():5.1f}", flush=True,
        )  # fmt: skip


def peak_gib() -> float:
    """Most memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def header() -> None:
    """Print what the columns are."""
    print("operators devices goal    problem   bounds     plan   value ms   bound ms  used found by      GiB")


def by_devices() -> None:
    """A model of about 10,000 operators on ever more devices."""
    header()
    for devices in (64, 128, 256, 512, 1024):
        planned(10_000, devices)


def by_operators() -> None:
    """Ever larger models on 1,024 devices."""
    header()
    for operators in (10_000, 100_000, 1_000_000):
        planned(operators, 1024)


def simulation() -> None:
    """CPU of one simulation of a model that is spread over all devices."""
    for operators in (1_000, 10_000, 50_000):
        for devices in (8, 64, 65, 256, 1024):
            loaded = load(MODEL.format(operators), cluster_of(devices) if devices % 8 == 0 else odd_cluster(devices))
            problem = loaded.problem(Latency())
            print(f"{operators:7} operators {devices:5} devices: {1e3 * seconds_of(problem):8.3f} ms", flush=True)


def odd_cluster(devices: int) -> Cluster:
    """One more device than a mask holds: what the step from one word to many costs."""
    return cluster_from(f"{devices}x A100-80GB in nodes of {devices}")[0]


def seconds_of(problem: Problem, rows: int = 20) -> float:
    """CPU seconds of one simulation, of several that differ."""
    count, devices = len(problem.graph), len(problem.cluster)
    row = np.arange(count) * devices // count
    placements = np.stack([(row + shift) % devices for shift in range(rows)]).astype(np.uint16)
    simulate_many(problem, placements[:1], threads=1)
    began = time.process_time()
    simulate_many(problem, placements, threads=1)
    return (time.process_time() - began) / rows


if __name__ == "__main__":
    chosen = {"devices": by_devices, "operators": by_operators, "simulation": simulation}
    for name in sys.argv[1:] or list(chosen):
        chosen[name]()
