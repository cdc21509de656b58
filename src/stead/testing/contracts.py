"""What every solver promises, as checks that say how to repair what fails; for stead and for plug-ins.

    class TestMine(SolverContract):
        @pytest.fixture
        def solver(self) -> Solver:
            return Mine()

or, without a test framework, `check_solver(Mine())`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import numpy as np

from stead.errors import Infeasible, SteadError
from stead.problem import Problem, Throughput
from stead.sim import simulate
from stead.solvers import Budget, Solution, Solver
from stead.testing import chain3, diamond, two_towers

EVALUATIONS = 50
COUNTED = Budget(evaluations=EVALUATIONS)
LIMIT_SECONDS = 0.2
GRACE_SECONDS = 5.0  # what a busy machine may add to a time limit

_IN_A_NEW_PROCESS = """
import pickle, sys
from stead.testing.contracts import placements_found, tiny_problems
print(placements_found(pickle.loads(bytes.fromhex(sys.argv[1])), tiny_problems()))
"""


def tiny_problems() -> list[Problem]:
    """Problems one can draw, for both objectives."""
    return [make(objective) for make in (chain3, diamond, two_towers) for objective in (None, Throughput())]


def check_solver(solver: Solver, problems: Sequence[Problem] | None = None) -> None:
    """Check everything a solver promises; the AssertionError says what is wrong and what to do."""
    given = tiny_problems() if problems is None else problems
    check_refusals(solver, given)
    check_answers(solver, given)
    check_infeasible(solver)
    check_same_seed(solver, given)
    check_other_process(solver)
    check_time_limit(solver, given)


def check_refusals(solver: Solver, problems: Sequence[Problem]) -> None:
    """`unsupported` is None or a sentence, and `solve` of a refused problem is an error of stead."""
    _require(bool(solver.name), "a solver needs a name")
    for problem in problems:
        reason = solver.unsupported(problem)
        if reason is None:
            continue
        sentence = isinstance(reason, str) and len(reason.split()) >= 2
        _require(sentence, f"unsupported returns None or a sentence that says why, got {reason!r}")
        try:
            solver.solve(problem, COUNTED, 0)
        except SteadError:
            continue
        _require(False, f"{solver.name} refuses {problem} but solves it; raise BadInput: {reason}")


def check_answers(solver: Solver, problems: Sequence[Problem]) -> None:
    """An answer is complete, keeps all constraints, fits, and says of itself what the simulator says."""
    for problem in _supported(solver, problems):
        solution = solver.solve(problem, COUNTED, 0)
        devices = solution.placement.devices
        where = f"{solver.name} on {problem}"
        _require(devices.shape == (len(problem.graph),), f"{where}: place every operator once")
        allowed = bool(problem.allowed[np.arange(len(devices)), devices].all())
        _require(allowed, f"{where}: an operator is on a forbidden device; look at problem.allowed")
        _require(not solution.placement.violations(), f"{where}: keep the operators of a unit together")
        trace = simulate(problem, solution.placement)
        _require(trace.feasible, f"{where}: {trace.problems}; raise Infeasible instead")
        _require(
            solution.objective_seconds == trace.objective_seconds,
            f"{where}: claims {solution.objective_seconds} s, but the simulator says "
            f"{trace.objective_seconds} s; score placements with Search.offer",
        )
        _check_account(solution, where)


def check_infeasible(solver: Solver) -> None:
    """Where nothing fits, `solve` raises Infeasible with the bytes that are missing."""
    problem = chain3()
    for device in problem.cluster.names:
        problem = problem.with_memory(device, 3)  # every tensor has 4 bytes
    if solver.unsupported(problem) is not None:
        return
    try:
        found = solver.solve(problem, COUNTED, 0)
    except Infeasible as error:
        missing = list(error.short_bytes.values())
        told = bool(missing) and min(missing) > 0
        _require(told, f"{solver.name}: short_bytes says how much is missing where, got {error.short_bytes}")
        return
    _require(False, f"{solver.name} returns {found.placement}, which does not fit; raise Infeasible")


def check_same_seed(solver: Solver, problems: Sequence[Problem]) -> None:
    """The same seed and number of evaluations give the same placements."""
    first, second = (placements_found(solver, problems) for _ in range(2))
    _require(
        first == second,
        f"{solver.name} gives {first}, then {second}; draw only from np.random.default_rng(seed) and keep "
        "nothing between calls",
    )


def check_other_process(solver: Solver) -> None:
    """Another process with another hash seed gives the same placements."""
    here = placements_found(solver, tiny_problems())
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "21" if os.environ.get("PYTHONHASHSEED") == "20" else "20",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, "-c", _IN_A_NEW_PROCESS, pickle.dumps(solver).hex()]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    _require(run.returncode == 0, f"{solver.name} fails in a new process: {run.stderr}")
    there = run.stdout.strip()
    _require(
        there == here,
        f"{solver.name} gives {here} here and {there} in another process; never depend on the order of a "
        "set or on hash()",
    )


def check_time_limit(solver: Solver, problems: Sequence[Problem]) -> None:
    """A time limit is kept; to find nothing in time is no fault."""
    for problem in _supported(solver, problems):
        begin = time.monotonic()
        with suppress(Infeasible):
            solver.solve(problem, Budget(seconds=LIMIT_SECONDS), 0)
        spent = time.monotonic() - begin
        _require(
            spent < LIMIT_SECONDS + GRACE_SECONDS,
            f"{solver.name} took {spent:.1f} s where {LIMIT_SECONDS} s were allowed; ask Search.done often",
        )


def placements_found(solver: Solver, problems: Sequence[Problem]) -> str:
    """The devices that a solver chooses, as digits."""
    found = [solver.solve(problem, COUNTED, 7).placement.devices for problem in _supported(solver, problems)]
    return " ".join("".join(map(str, devices.tolist())) for devices in found)


class SolverContract:
    """Tests of one solver; a subclass has a fixture `solver`, and may add problems of its own."""

    def problems(self) -> list[Problem]:
        """The problems that the solver is tried on."""
        return tiny_problems()

    def test_it_refuses_with_a_sentence(self, solver: Solver) -> None:
        """`unsupported` is None or a sentence."""
        check_refusals(solver, self.problems())

    def test_its_answers_are_what_the_simulator_says(self, solver: Solver) -> None:
        """Answers are complete, allowed, feasible and honest."""
        check_answers(solver, self.problems())

    def test_too_little_memory_is_infeasible_with_numbers(self, solver: Solver) -> None:
        """Infeasible says what is missing."""
        check_infeasible(solver)

    def test_the_same_seed_gives_the_same_placement(self, solver: Solver) -> None:
        """Same seed, same placement."""
        check_same_seed(solver, self.problems())

    def test_another_process_gives_the_same_placement(self, solver: Solver) -> None:
        """Also with another hash seed."""
        check_other_process(solver)

    def test_a_time_limit_is_kept(self, solver: Solver) -> None:
        """It stops in time."""
        check_time_limit(solver, self.problems())


def _supported(solver: Solver, problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if solver.unsupported(problem) is None]


def _check_account(solution: Solution, where: str) -> None:
    """Bound, trail and number of evaluations fit each other."""
    value, trail = solution.objective_seconds, solution.trail
    _require(0 <= solution.bound_seconds <= value, f"{where}: the bound is greater than the value it bounds")
    counted = 0 < solution.evaluations <= EVALUATIONS
    _require(counted, f"{where}: spent {solution.evaluations} evaluations where {EVALUATIONS} were allowed")
    ends_well = bool(trail) and trail[-1].objective_seconds == value
    _require(ends_well, f"{where}: the trail must end in the value: {trail}")
    for earlier, later in pairwise(trail):
        falls = later.objective_seconds <= earlier.objective_seconds
        _require(falls and later.evaluations >= earlier.evaluations, f"{where}: the trail must fall: {trail}")


def _require(condition: bool, otherwise: str) -> None:
    """An AssertionError that `python -O` does not remove."""
    if not condition:
        raise AssertionError(otherwise)
