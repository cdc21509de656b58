"""Blocks of a path before the judge: with any path, cut anywhere, searched for as long as one likes.

`STEAD_FUZZ=5000 pytest tests/judge -k blocks_of_a_path` tries that many problems.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from brute import TooMany, Truth, every_placement, truth
from numpy.typing import NDArray
from problems import at_the_byte, branching, drawn

from stead import _native
from stead.errors import Infeasible
from stead.problem import Fifo, Latency, Priority, Problem, ProgramOrder
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim import simulate_many
from stead.sim.bounds import NEVER

FUZZ = int(os.environ.get("STEAD_FUZZ", "0"))
PARTS = 4
FIRST_SEED = 3_000_000 if FUZZ else 7_000
MOST_RUNS = 2_000
POLICIES = Fifo(), Priority(), ProgramOrder()


def dataflow(seed: int) -> Truth | None:
    """The truth about the problem of a seed; None if it is no dataflow latency or has too many runs."""
    try:
        problem = drawn(seed)
        if not isinstance(problem.objective, Latency) or problem.objective.execution != "dataflow":
            return None
        return truth(at_the_byte(problem, seed, most_runs=MOST_RUNS), most_runs=MOST_RUNS)
    except (Infeasible, TooMany):
        return None


def judged(part: int, problems: int) -> Iterator[tuple[int, Truth]]:
    """Seeds and truths of one of the parts."""
    seed, count = FIRST_SEED + part * 20 * problems, 0
    while count < -(-problems // PARTS):
        known = dataflow(seed)
        if known is not None:
            yield seed, known
            count += 1
        seed += 1


def some_path(problem: Problem, draw: np.random.Generator) -> NDArray[np.int32]:
    """A path of the graph: the heaviest one by weights that are drawn."""
    return _native.heaviest_path(problem.native, draw.random(len(problem.graph)))


def bound_seconds(problem: Problem, path: NDArray[np.int32], *, most_operators: int, steps: int) -> float:
    ticks = _native.block_chain_bound(
        problem.native, path=path, units=problem.units.astype(np.int32), most_operators=most_operators, steps=steps
    )
    return np.inf if ticks == NEVER else ticks / TICKS_PER_SECOND


def wrong(seed: int, problem: Problem, possible: float) -> list[str]:
    """Bounds that are above what is possible, by path and by how it was cut and searched."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(2):
        path = some_path(problem, draw)
        for most, steps in ((1, 1000), (2, 1000), (3, 1000), (64, 0), (64, 40), (64, 1_000_000)):
            seconds = bound_seconds(problem, path, most_operators=most, steps=steps)
            if seconds > possible:
                said = f"path {path.tolist()}, at most {most} operators, {steps} steps: {seconds} s"
                found.append(f"seed {seed}, {problem}: {said}, but {possible} s are possible")
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_blocks_of_a_path_take_no_longer_than_any_run(part):
    found = [text for seed, known in judged(part, FUZZ or 60) for text in wrong(seed, known.problem, known.optimum)]
    assert not found, "\n".join(found)


def best_of_all_placements(problem: Problem) -> float:
    """The least seconds of any placement in any of three orders, of which a bound knows nothing."""
    rows = every_placement(problem, 10_000)
    scores = [simulate_many(problem, rows, policy=policy, threads=1) for policy in POLICIES]
    return float(min(one.seconds[one.feasible].min(initial=np.inf) for one in scores))


@pytest.mark.parametrize("part", range(PARTS))
def test_blocks_of_a_path_take_no_longer_than_any_placement_of_branches(part):
    found: list[str] = []
    for seed in range(FIRST_SEED + part, FIRST_SEED + (FUZZ or 60), PARTS):
        with suppress(Infeasible, TooMany):
            problem = branching(seed)
            found += wrong(seed, problem, best_of_all_placements(problem))
    assert not found, "\n".join(found)


def test_most_optima_of_little_problems_are_proved_by_blocks():
    """So that a bound of nothing at all would not pass for a good one."""
    proved = [
        bound_seconds(
            known.problem, some_path(known.problem, np.random.default_rng(seed)), most_operators=64, steps=100_000
        )
        == known.optimum
        for seed, known in judged(0, 40 * PARTS)
    ]
    assert sum(proved) > len(proved) / 2
