"""Evaluations per second of the native simulator beside its plain-Python specification, in one run.

    python benchmarks/simulator.py [--devices 4] [--sizes 1000 10000 50000]

Rates are per CPU second of one thread, the best of several repetitions; the column "2 threads" is wall time of two
threads against one and means something only on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from graphs import flipped_blocks, layered_problem

from stead import Placement, ProgramOrder, screen_many, simulate, simulate_many
from stead.problem.in_ticks import Tables
from stead.sim.spec.engine import fifo as reference_fifo


def best_rate(
    work: Callable[[], object], evaluations: int, clock: Callable[[], float], repeats: int = 5
) -> float:
    """Most evaluations per second over several repetitions."""
    work()
    times = []
    for _ in range(repeats):
        begin = clock()
        work()
        times.append(clock() - begin)
    return evaluations / min(times)


def row(size: int, devices: int) -> str:
    """All rates of one size."""
    problem = layered_problem(size, devices)
    rows = flipped_blocks(problem, max(32, min(2048, 2_000_000 // size)))
    order = simulate(problem, Placement(problem, rows[0])).order
    count, cpu, wall = len(rows), time.process_time, time.perf_counter

    def many(threads: int = 1, memory: str = "off", policy: object = None) -> Callable[[], object]:
        return lambda: simulate_many(problem, rows, policy=policy, memory=memory, threads=threads)  # type: ignore[arg-type]

    tables = Tables(problem)
    reference = best_rate(lambda: reference_fifo(tables, rows[0].tolist()), 1, cpu, 3)
    fifo = best_rate(many(), count, cpu)
    peaks = best_rate(many(memory="peak"), count, cpu)
    program = best_rate(many(policy=ProgramOrder()), count, cpu)
    screen = best_rate(lambda: screen_many(problem, rows, order=order, threads=1), count, cpu)
    alike = layered_problem(size, devices, equal=True)
    screen_alike = best_rate(lambda: screen_many(alike, rows, order=order, threads=1), count, cpu)
    two_threads = best_rate(many(threads=2), count, wall) / best_rate(many(), count, wall)
    return (
        f"| {size} | {reference:.1f} | {fifo:.0f} | {fifo / reference:.0f}x | {peaks:.0f} | {program:.0f} | "
        f"{screen:.0f} | {screen_alike:.0f} | {two_threads:.2f}x |"
    )


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 50_000])
    options = parser.parse_args()
    print(f"evaluations per second, {options.devices} devices, blocks with 10 % of the operators moved at random\n")
    titles = ["operators", "reference", "fifo", "against it", "with peaks", "program order", "screen", "equal devices"]
    print(f"| {' | '.join([*titles, '2 threads'])} |")
    print("|---" * (len(titles) + 1) + "|")
    for size in options.sizes:
        print(row(size, options.devices), flush=True)


if __name__ == "__main__":
    main()
