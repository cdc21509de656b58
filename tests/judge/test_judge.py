"""Every solver before a judge that knows the truth: all placements in all orders of problems small enough for that.

A value is the simulator's, a bound is below everything that its scope speaks of, "infeasible, proved" is said only
where nothing fits, and a solver that claims to be exact has the optimum; the same for plans by blocks and by operators
with their rules, and for searches that begin with known placements. `STEAD_FUZZ=5000 pytest tests/judge` tries that
many problems, other ones than the few of every run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from brute import TooMany, Truth, every_placement, every_run, truth
from plans import questions, wrong_from_starts, wrong_plan
from problems import at_the_byte, drawn
from verdicts import Candidate, candidates, wrong_bounds, wrong_claims

from stead.errors import Infeasible
from stead.problem import Latency, Placement, ProgramOrder
from stead.problem.in_ticks import Tables
from stead.sim import simulate
from stead.sim.spec.engine import fifo, program_order
from stead.solvers import Budget
from stead.solvers.exact.programs.cp_sat import CpSat
from stead.solvers.registry import REGISTRY, solver
from stead.solvers.whole_blocks import whole_blocks
from stead.testing import tiny_problem

FUZZ = int(os.environ.get("STEAD_FUZZ", "0"))
PROBLEMS = FUZZ or 160
PARTS = 16
FIRST_SEED = 1_000_000 if FUZZ else 0
MOST_RUNS = 20_000 if FUZZ else 4_000


def hostile(seed: int, *, blocks: bool = False) -> Truth | None:
    """The truth about the problem of a seed; None if there is no such problem or it has too many runs."""
    try:
        problem = at_the_byte(drawn(seed, blocks=blocks), seed, most_runs=MOST_RUNS)
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


def complaints_about_plans(seed: int, known: Truth) -> list[str]:
    """Everything that plans and searches from known placements say about a problem with blocks and is not so."""
    problem = known.problem
    found = [f"seed {seed}, {problem}, {text}" for text in wrong_from_starts(problem, known, seed)]
    for question in questions(problem, seed):
        said = wrong_plan(question, problem, known, seed % 7)
        found += [f"seed {seed}, {problem}, {question}: {text}" for text in said]
    return found


def judged(part: int, *, problems: int, blocks: bool) -> Iterator[tuple[int, Truth]]:
    """Seeds and truths of one of the parts that problems are tried in."""
    seed, count = FIRST_SEED + part * 10 * problems, 0
    while count < -(-problems // PARTS):
        known = hostile(seed, blocks=blocks)
        if known is not None:
            yield seed, known
            count += 1
        seed += 1


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_claimed_that_is_not_so(part):
    found = [text for one in judged(part, problems=PROBLEMS, blocks=False) for text in complaints(*one)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_plan_claims_what_is_not_so(part):
    found = [
        text for one in judged(part, problems=PROBLEMS, blocks=True) for text in complaints_about_plans(*one)
    ]
    assert not found, "\n".join(found)


SERIES = tuple(
    Candidate("series", options)
    for options in ((), (("max_configurations", 4),), (("max_configurations", 16), ("tries", 3)))
)


LOADS = tuple(
    Candidate("throughput-mip", (("anneal_moves", 100), ("engine", engine), ("links", links)))
    for engine in ("best", "cp-sat", "highs")
    for links in ("each", "quickest")
)


def takes(name: str, seed: int) -> bool:
    """Whether a solver takes the problem of a seed, which is quicker to find out than the truth about it."""
    try:
        return solver(name).unsupported(drawn(seed)) is None
    except Infeasible:
        return False


def wrong_of(every: tuple[Candidate, ...], part: int, *, problems: int, in_turn: bool = False) -> list[str]:
    """What bounds and solvers say that is not so, of a quarter of so many problems that these take.

    They are asked about all problems, or `in_turn` one about each.
    """
    wanted, seed, found = problems // 4, 2 * FIRST_SEED + part * 1_000_000, []
    while wanted:
        seed += 1
        known = hostile(seed) if takes(every[0].name, seed) else None
        if known is not None:
            wanted -= 1
            said = [("bounds", text) for text in wrong_bounds(known.problem, known)]
            asked = (every[seed % len(every)],) if in_turn else every
            said += [(str(one), text) for one in asked for text in wrong_claims(one, known.problem, known, seed % 7)]
            found += [f"seed {seed}, {known.problem}, {one}: {text}" for one, text in said]
    return found


@pytest.mark.parametrize("part", range(4))
def test_series_claims_nothing_that_is_not_so(part):
    """Every problem that it takes, whole and with blocks taken apart."""
    found = wrong_of(SERIES, part, problems=FUZZ or 80)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("part", range(4))
def test_programs_about_loads_claim_nothing_that_is_not_so(part):
    """Every full pipeline, with bounds, cover inequalities and either engine alone."""
    found = wrong_of(LOADS, part, problems=FUZZ or 40, in_turn=True)
    assert not found, "\n".join(found)


PARTS_OF_CLUSTERS = (Candidate("hierarchical", (("most", 2),), evaluations=200),)


@pytest.mark.parametrize("part", range(4))
def test_plans_part_by_part_claim_nothing_that_is_not_so(part):
    """Two devices at a time are a part of most of these clusters; bounds by classes of devices are asked, too."""
    found = wrong_of(PARTS_OF_CLUSTERS, part, problems=FUZZ or 80)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("seed", "candidate"),
    [
        (1_600_448, Candidate("prefix-mip")),
        (2_800_864, Candidate("latency-cp", (("max_steps", 3),), evaluations=3000)),
    ],
)
def test_a_program_about_a_handful_of_operators_does_not_scan_its_objective(seed, candidate, monkeypatch):
    """CP-SAT raised the bounds of both by one picosecond thousands of times a second, and had millions to go."""
    reports, solve = [], CpSat.solve
    monkeypatch.setattr(
        CpSat, "solve", lambda self, report: solve(self, lambda one: (reports.append(one), report(one)))
    )
    problem = at_the_byte(drawn(seed), seed, most_runs=20_000)
    made = solver(candidate.name, **dict(candidate.options))
    with suppress(Infeasible):  # the program knows less about memory than the simulator
        made.solve(problem, Budget(seconds=20, evaluations=candidate.evaluations), seed % 7)
    assert 0 < len(reports) < 1000


def test_every_solver_that_does_not_learn_comes_before_the_judge():
    judged = set()
    for seed in range(FIRST_SEED, FIRST_SEED + 400):
        try:
            problem = drawn(seed)
        except Infeasible:
            continue
        judged |= {one.name for one in candidates(problem, seed)}
    assert judged == {name for name, one in REGISTRY.items() if one.kind != "learned"}


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


def test_the_blocks_that_were_drawn_are_the_units_that_plans_keep_whole():
    """Operators of one block that may run on the same devices are a unit, and so are its experts."""
    seen = 0
    for seed in range(300):
        try:
            problem = drawn(seed, blocks=True)
            coarse = whole_blocks(problem)
        except Infeasible:
            continue
        graph = problem.graph
        bound = len(graph.colocation_names) or problem.constraints.colocate
        layers = {path.split(".")[1] for path in graph.modules if path.startswith("layers.")}
        if graph.is_training or bound or "" in graph.modules or len(layers) < 2:
            continue
        wanted = [
            (path.split(".")[:2], "experts" in path, may)
            for path, may in zip(graph.modules, problem.allowed.tolist(), strict=True)
        ]
        units = coarse.units.tolist()
        for a, b in itertools.combinations(range(len(graph)), 2):
            assert (units[a] == units[b]) == (wanted[a] == wanted[b]), seed
        seen += 1
    assert seen > 30
