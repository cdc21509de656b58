"""Moves per second of the native local search beside simulating every neighbour in full, in one run.

    python benchmarks/search.py [--devices 4] [--sizes 1000 10000 50000]

Rates are per CPU second of one thread, at a state that has been searched for a while; a neighbour is given up as soon
as it is known to be worse. "in full" simulates neighbours with one operator moved under policy program_order, "one
operator" judges the same ones between checkpoints, "search" counts moves of all kinds with all that belongs to them.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from graphs import layered_problem
from numpy.typing import NDArray

from stead import Problem, _native

MOVES = 2000
WORK = 20_000_000


def searched(problem: Problem) -> tuple[NDArray[np.uint8], NDArray[np.int32], int, float]:
    """(devices, order, ticks, moves per second) of a second search that goes on from a first one."""
    count, devices = len(problem.graph), len(problem.cluster)
    states = (np.arange(count) * devices // count).astype(np.uint8)[None, :]
    orders = np.arange(count, dtype=np.int32)[None, :]
    for _ in range(2):
        begin = time.process_time()
        found = _native.search(
            problem.native,
            problem.units,
            starts=states,
            start_orders=orders,
            budget=WORK,
            seconds=600.0,
            threads=1,
            pool=1,
        )
        rate = found.moves / (time.process_time() - begin)
        best = found.pool[0]
        states, orders = best.devices[None, :], best.order[None, :]
    return best.devices, best.order, best.ticks, rate


def row(size: int, devices: int) -> str:
    """All rates of one size."""
    problem = layered_problem(size, devices)
    state, order, ticks, search = searched(problem)
    rng = np.random.default_rng(0)
    moved = rng.integers(size, size=MOVES).astype(np.int32)
    targets = ((state[moved] + rng.integers(1, devices, size=MOVES)) % devices).astype(np.uint8)
    few = max(32, min(MOVES, 4_000_000 // size))
    rows = np.repeat(state[None, :], few, axis=0)
    rows[np.arange(few), moved[:few]] = targets[:few]
    begin = time.process_time()
    full = _native.simulate_many(
        problem.native, rows, policy="program_order", order=order, memory="off", cutoff_ticks=ticks, threads=1
    ).ticks
    in_full = few / (time.process_time() - begin)
    begin = time.process_time()
    judged = _native.decode_moves(
        problem.native,
        placement=state,
        order=order,
        operators=moved,
        targets=targets,
        kept=np.zeros(MOVES, np.uint8),
        cutoff_ticks=ticks,
    )
    one_operator = MOVES / (time.process_time() - begin)
    if not np.array_equal(full, judged[:few]):
        raise SystemExit("the decoder disagrees with the simulator")
    return (
        f"| {size} | {in_full:.0f} | {one_operator:.0f} | {one_operator / in_full:.1f}x | {search:.0f} | "
        f"{search / in_full:.1f}x |"
    )


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 50_000])
    options = parser.parse_args()
    print(f"moves per second, {options.devices} devices\n")
    print("| operators | in full | one operator | | search | |\n|---|---|---|---|---|---|")
    for size in options.sizes:
        print(row(size, options.devices), flush=True)


if __name__ == "__main__":
    main()
