"""What integer programs share: scales, the two engines on one description, and how a search hears of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from small_pipelines import SLOW

from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import GraphBuilder
from stead.problem import Problem, Throughput
from stead.readers import host_cluster
from stead.solvers import Budget
from stead.solvers.exact.ideals import Ideals
from stead.solvers.exact.prefix_mip import PrefixMip
from stead.solvers.exact.programs.highs import HiGHS
from stead.solvers.exact.programs.load_rows import LoadRows
from stead.solvers.exact.programs.program import (
    Incumbent,
    Outcome,
    Program,
    Proved,
    Scale,
    Settings,
    make_backend,
    run,
)
from stead.solvers.exact.reduction import reduce
from stead.solvers.search_state import Search
from stead.testing import chain3

ENGINES = ("cp-sat", "highs")


# Scales


def test_the_scale_is_the_greatest_common_divisor_where_that_is_exact():
    scale = Scale.of([np.array([6_000, 9_000, -1]), np.array([0, 12_000])], upper=10**9)
    assert (scale, scale.down(9_000), scale.seconds(2)) == (Scale(3_000, True), 3, 6e-9)


def test_ticks_too_large_for_exact_totals_are_rounded_down():
    scale = Scale.of([np.array([2**60 + 1, 2**59])], upper=2**61)
    assert not scale.exact
    assert scale.step <= 2**61 * 1e-7
    assert scale.down(2**60 + 1) * scale.step <= 2**60 + 1


def test_a_rounded_program_still_gives_a_bound_that_holds():
    # Two operators of 2**58 + 1 and 2**58 + 3 ticks on one device: nothing is below their sum.
    scale = Scale.of([np.array([2**58 + 1, 2**58 + 3])], upper=2**60)
    assert (scale.down(2**58 + 1) + scale.down(2**58 + 3)) * scale.step <= 2**59 + 4


# Engines


def knapsack() -> Program:
    """Least cost of covering 10 with items of 6, 5, 4 at 7, 5, 4: the last two, for 9."""
    program = Program()
    items = [program.binary() for _ in range(3)]
    program.row(items, [6, 5, 4], low=9)
    program.minimise(items, [7, 5, 4])
    return program


def solved(program: Program, engine: str) -> Outcome:
    return make_backend(program, Settings(engine), None).solve(lambda message: None)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_finds_and_proves_the_optimum(engine):
    outcome = solved(knapsack(), engine)
    assert (outcome.status, outcome.bound, outcome.values.tolist()) == ("optimal", 9, [0, 1, 1])


def test_counting_alone_finds_and_proves_the_optimum():
    outcome = make_backend(knapsack(), Settings("cp-sat", relaxes=False), None).solve(lambda message: None)
    assert (outcome.status, outcome.bound, outcome.values.tolist()) == ("optimal", 9, [0, 1, 1])


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_says_that_a_program_has_no_solution(engine):
    program = knapsack()
    program.row([0, 1, 2], [1, 1, 1], high=1)
    assert solved(program, engine).status == "infeasible"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_holds_only_where_its_literals_are_true(engine):
    # T >= 5 if a, T >= 3 if not a; not a is dear: min(5, 3 + 1).
    program = Program()
    a, top = program.binary(), program.integer(0, 9, implied=True)
    program.row([top], [1], low=5, when=[a])
    program.row([top], [1], low=3, when=[~a])
    program.minimise([top, a], [1, -1])
    outcome = solved(program, engine)
    assert outcome.bound == 3
    assert outcome.values.tolist() == [0, 3]


@pytest.mark.parametrize("engine", ENGINES)
def test_clauses_choices_and_fixed_variables_mean_the_same_to_both_engines(engine):
    # Exactly one of a, b, c; c is fixed to 0; a implies d; d costs 5, b costs 3.
    program = Program()
    a, b, c, d = (program.binary() for _ in range(4))
    program.exactly_one([a, b, c])
    program.fix(c, 0)
    program.implies(a, d)
    program.clause([~b, ~d, c])
    program.minimise([a, b, d], [1, 3, 5])
    assert solved(program, engine).values.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_both_engines_agree_with_all_assignments_of_a_random_program(seed):
    rng = np.random.default_rng(seed)
    program = Program()
    variables = [program.binary() for _ in range(7)]
    for _ in range(4):
        coefficients = rng.integers(-9, 10, size=7).tolist()
        literal = int(rng.integers(0, 7))
        when = [[], [literal], [~literal]][int(rng.integers(0, 3))]
        program.row(variables, coefficients, low=int(rng.integers(-12, 6)), high=18, when=when)
    program.clause([int(v) if rng.random() < 0.5 else ~int(v) for v in rng.choice(7, 3, replace=False)])
    costs = rng.integers(1, 50, size=7).tolist()
    program.minimise(variables, costs)
    allowed = [
        sum(c * x for c, x in zip(costs, values, strict=True))
        for values in itertools.product((0, 1), repeat=7)
        if satisfies(program, values)
    ]
    for engine in ENGINES:
        outcome = solved(program, engine)
        found = None if outcome.values is None else int(np.array(costs) @ outcome.values)
        assert (outcome.status, found) == (("optimal", min(allowed)) if allowed else ("infeasible", None))


def satisfies(program: Program, values) -> bool:
    def true(literal):
        return bool(values[literal]) if literal >= 0 else not values[~literal]

    for row in program.rows:
        total = sum(c * values[v] for v, c in zip(row.variables, row.coefficients, strict=True))
        if all(true(one) for one in row.when) and not row.low <= total <= row.high:
            return False
    return all(any(true(one) for one in clause) for clause in program.clauses)


def test_tasks_one_at_a_time_are_for_cp_sat_alone():
    program = Program()
    starts, ends = [program.integer(0, 9) for _ in range(3)], [program.integer(0, 9) for _ in range(3)]
    program.no_overlap([program.interval(s, 2, e) for s, e in zip(starts, ends, strict=True)])
    last = program.integer(0, 9)
    for end in ends:
        program.row([last, end], [1, -1], low=0)
    program.minimise([last], [1])
    assert solved(program, "cp-sat").bound == 6
    with pytest.raises(BadInput, match="use engine = cp-sat"):
        HiGHS(program, Settings("highs"), None)


def test_an_unknown_engine_is_refused():
    with pytest.raises(BadInput, match="engine is one of cp-sat, highs; got 'scip'"):
        make_backend(Program(), Settings("scip"), None)


# Listening


class Scripted:
    """An engine that says what it is told to."""

    def __init__(self, messages, outcome):
        self.messages, self.outcome = messages, outcome

    def solve(self, report):
        for message in self.messages:
            report(message)
        return self.outcome

    def stop(self):
        pass


def listened(monkeypatch, messages, outcome, *, budget=None, hint=False):
    """A search on chain3 that heard an engine whose three variables are the devices."""
    search = Search(chain3(Throughput()), budget or Budget(), solver="scripted")
    program = Program()
    for _ in range(3):
        program.binary()
    if hint:
        program.hint = {0: 0, 1: 0, 2: 0}
    monkeypatch.setattr(
        "stead.solvers.exact.programs.program.make_backend", lambda *given: Scripted(messages, outcome)
    )
    answer = run(
        program,
        search,
        Settings(),
        place=lambda values: values.astype(np.uint8),
        bound_seconds=float,
        bound_name="scripted",
    )
    return search, answer


def values(*devices):
    return np.array(devices, dtype=np.int64)


def test_every_incumbent_and_every_bound_is_an_improvement(monkeypatch):
    messages = [Incumbent(values(0, 1, 0)), Proved(2), Incumbent(values(0, 0, 0)), Proved(3)]
    search, _ = listened(monkeypatch, messages, Outcome("stopped", 3))
    steps = [(step.objective_seconds, step.bound_seconds) for step in search.solution().trail]
    # a | b | a: device 1 computes 2 s, receives 2.5 s and sends 2.5 s; device 0 does 2 + 5 as well.
    assert steps == [(7.0, 0.0), (7.0, 2.0), (4.0, 2.0), (4.0, 3.0)]


def test_an_engine_is_not_believed_that_calls_a_known_solution_infeasible(monkeypatch):
    search, answer = listened(monkeypatch, [], Outcome("infeasible", 0), hint=True)
    assert answer.status == "stopped"
    assert "has a known solution" in search.notes[0]


def test_a_bound_above_a_known_value_is_not_believed(monkeypatch):
    messages = [Incumbent(values(0, 0, 0)), Proved(5)]
    search, _ = listened(monkeypatch, messages, Outcome("optimal", 5))
    assert (search.bound_seconds, len(search.notes)) == (0.0, 1)


def test_incumbents_beyond_the_evaluations_allowed_are_not_heard(monkeypatch):
    messages = [Incumbent(values(0, 1, 0)), Incumbent(values(0, 0, 0))]
    search, _ = listened(monkeypatch, messages, Outcome("optimal", 4), budget=Budget(evaluations=1))
    assert (search.evaluations, search.best_seconds) == (1, 7.0)


def test_what_an_engine_finds_after_the_proof_is_not_heard(monkeypatch):
    # Whether it had the time for another incumbent before it stopped would be chance, and so the count.
    messages = [Incumbent(values(0, 0, 0)), Proved(4)]
    search, _ = listened(monkeypatch, messages, Outcome("stopped", 4, values(1, 1, 1)))
    assert (search.evaluations, search.best_seconds, search.bound_seconds) == (1, 4.0, 4.0)


def test_a_failing_engine_fails_the_search(monkeypatch):
    class Failing(Scripted):
        def solve(self, report):
            raise RuntimeError("out of memory")

    monkeypatch.setattr("stead.solvers.exact.programs.program.make_backend", lambda *given: Failing([], None))
    search = Search(chain3(Throughput()), Budget(), solver="scripted")
    with pytest.raises(RuntimeError, match="out of memory"):
        run(Program(), search, Settings(), place=np.asarray, bound_seconds=None, bound_name="")


# Loads


def test_the_objective_is_two_variables_where_passes_alternate():
    problem = chain3(Throughput(load="fwbw"))
    assert len(LoadRows.of(reduce(problem), "fwbw", upper_ticks=None).tops) == 2


# Engines against each other, and against dynamic programming: releases of HiGHS have been wrong on such programs.


def contiguous_problem(seed: int, operators: int = 40) -> Problem:
    """A random pipeline of many operators on three accelerators that pass tensors through host memory."""
    rng = np.random.default_rng(seed)
    build = GraphBuilder("random")
    tensors = []
    for v in range(operators):
        recent = tensors[-6:]
        reads = [t for t in recent if rng.random() < 0.3] or recent[-1:]
        operator = build.operator(f"v{v}", reads=reads)
        tensors.append(build.tensor(operator, size_bytes=0))  # only weights count for memory
        build.weight(f"w{v}", size_bytes=int(rng.integers(1, 10)), users=[operator])
    graph = build.build()
    cluster = host_cluster(3, 0, memory_bytes=int(graph.weight_bytes.sum() * 0.45))
    seconds = np.repeat(rng.integers(1, 100, size=(operators, 1)).astype(float), 3, axis=1)
    tensor_seconds = rng.integers(1, 40, size=graph.tensor_count).astype(float)
    costs = Costs(graph, cluster, seconds, tensor_seconds=tensor_seconds)
    return Problem(graph, cluster, costs, objective=Throughput())


def check_engines(seed):
    problem = contiguous_problem(seed)
    expected = Ideals().solve(problem, Budget())
    assert expected.gap == 0
    for engine in ENGINES:
        solution = PrefixMip(engine=engine).solve(problem, Budget(seconds=60))
        assert solution.objective_seconds == expected.objective_seconds, engine
        assert solution.gap <= 2e-6, engine


@pytest.mark.parametrize("seed", range(4))
def test_engines_and_dynamic_programming_agree_on_a_random_pipeline(seed):
    check_engines(seed)


@SLOW
@pytest.mark.parametrize("seed", range(4, 40))
def test_engines_and_dynamic_programming_agree_on_many_random_pipelines(seed):
    check_engines(seed)
