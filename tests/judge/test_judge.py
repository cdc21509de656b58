"""Every solver before a judge that knows the truth: all placements in all orders of problems small enough for that.

A value is the simulator's, a bound is below everything that its scope speaks of, "infeasible, proved" is said only
where nothing fits, and a solver that claims to be exact has the optimum. `STEAD_FUZZ=5000 pytest tests/judge` tries
that many problems, other ones than the few of every run.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from brute import TooMany, Truth, every_placement, every_run, truth
from problems import at_the_byte, drawn
from verdicts import LEARNED, candidates, wrong_bounds, wrong_claims

from stead.errors import Infeasible
from stead.problem import Latency, Placement, ProgramOrder
from stead.problem.in_ticks import Tables
from stead.sim import simulate
from stead.sim.spec.engine import fifo, program_order
from stead.solvers.base import REGISTRY
from stead.testing import tiny_problem

FUZZ = int(os.environ.get("STEAD_FUZZ", "0"))
PROBLEMS = FUZZ or 160
BLOCKS = 16
FIRST_SEED = 1_000_000 if FUZZ else 0
MOST_RUNS = 20_000 if FUZZ else 4_000


def hostile(seed: int) -> Truth | None:
    """The truth about the problem of a seed; None if there is no such problem or it has too many runs."""
    try:
        problem = at_the_byte(drawn(seed), seed, most_runs=MOST_RUNS)
        return truth(problem, most_runs=MOST_RUNS)
    except (Infeasible, TooMany):
        return None


def complaints(seed: int, known: Truth) -> list[str]:
    """Everything that is said about a problem and is not so."""
    problem = known.problem
    found = [f"seed {seed}, {problem}: {text}" for text in wrong_bounds(problem, known)]
    for one in candidates(problem, seed):
        said = wrong_claims(one, problem, known, seed % 7)
        found += [f"seed {seed}, {problem}, {one}: {text}" for text in said]
    return found


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_is_claimed_that_is_not_so(block):
    found, seed, judged = [], FIRST_SEED + block * 10 * PROBLEMS, 0
    while judged < -(-PROBLEMS // BLOCKS):
        known = hostile(seed)
        if known is not None:
            found += complaints(seed, known)
            judged += 1
        seed += 1
    assert not found, "\n".join(found)


def test_every_solver_that_does_not_learn_comes_before_the_judge():
    judged = set()
    for seed in range(FIRST_SEED, FIRST_SEED + 400):
        try:
            problem = drawn(seed)
        except Infeasible:
            continue
        judged |= {one.name for one in candidates(problem, seed)}
    assert judged == {name for name, where in REGISTRY.items() if not where.startswith(LEARNED)}


def test_two_independent_operators_on_one_device_have_two_runs():
    problem = tiny_problem({"a": 1, "b": 2}, {}, devices=1)
    assert truth(problem, most_runs=10).run_count == 2


def test_of_two_transfers_on_one_channel_either_may_be_first():
    # a and b on d0, c and d on d1 read one each: the devices have two runs each, and so has the channel, but
    # of these eight those are no runs in which c waits for d, whose tensor waits for c's.
    problem = tiny_problem({"a": 1, "b": 2, "c": 1, "d": 1}, {"c": ["a"], "d": ["b"]})
    row = np.array([[0, 0, 1, 1]], dtype=np.uint8)
    owner, _ = every_run(problem, row, 100)
    assert len(owner) == 8


def test_the_judge_and_the_specification_agree_on_every_run():
    """The scores that the judge goes by are those of the plain-Python reference."""
    compared = 0
    for seed in range(60):
        try:
            problem = drawn(seed)
            if not isinstance(problem.objective, Latency) or not problem.objective.takes_orders:
                continue
            rows = every_placement(problem, 300)
            owner, orders = every_run(problem, rows, 300)
        except (Infeasible, TooMany):
            continue
        tables = Tables(problem)
        for i, order in zip(owner[::7], orders[::7], strict=True):
            on = rows[i].tolist()
            said = simulate(
                problem, Placement(problem, rows[i], ProgramOrder(order, sends=True)), memory="off"
            )
            run = program_order(tables, on, order.tolist(), sends=True)
            assert said.objective_seconds == run.makespan / 1e12, seed
            compared += 1
    assert compared > 50


def test_the_policy_is_one_of_the_runs():
    """What fifo does is among the runs that the judge lists, to the last start."""
    for seed in range(40):
        try:
            problem = drawn(seed)
            if not isinstance(problem.objective, Latency) or not problem.objective.takes_orders:
                continue
            rows = every_placement(problem, 60)
            owner, orders = every_run(problem, rows, 3000)
        except (Infeasible, TooMany):
            continue
        tables = Tables(problem)
        for number in set(owner.tolist()):
            on = rows[number].tolist()
            runs = [
                program_order(tables, on, order.tolist(), sends=True).start
                for order in orders[owner == number]
            ]
            assert fifo(tables, on).start in runs, seed
