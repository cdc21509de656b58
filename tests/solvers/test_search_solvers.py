"""split, climb, exhaustive, auto and the Search they share."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.graph import GraphBuilder
from stead.placing.attempt import Attempt
from stead.problem import Constraints, Latency, Placement, Problem, Throughput
from stead.sim import simulate
from stead.solvers import Budget, Improvement, Search, Solution, Solver, solver, solver_names
from stead.solvers.auto import Auto
from stead.solvers.build.split import Split
from stead.solvers.exact.exhaustive import Exhaustive, placement_count
from stead.solvers.search.climb import Climb
from stead.testing import chain3, diamond, two_towers
from stead.testing.contracts import SolverContract


class TestSplit(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Split()


class TestClimb(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Climb()


class TestExhaustive(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Exhaustive()


class TestAuto(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Auto()


def chain(
    seconds: list[list[float]], *, memory: list[int] | None = None, objective: object = None
) -> Problem:
    """A chain with one row of seconds per operator, 10 bytes of weights each, free links."""
    build = GraphBuilder("chain")
    tensor = None
    for v in range(len(seconds)):
        operator = build.operator(f"v{v}", reads=[] if tensor is None else [tensor])
        tensor = build.tensor(operator, size_bytes=0)
        build.weight(f"w{v}", size_bytes=10, users=[operator])
    graph = build.build()
    names = [f"d{d}" for d in range(len(seconds[0]))]
    devices = tuple(
        Device(name, memory_bytes=(memory or [10**6] * len(names))[d]) for d, name in enumerate(names)
    )
    cluster = Cluster(devices, link_all(names, bytes_per_second=math.inf))
    return Problem(graph, cluster, Costs(graph, cluster, np.array(seconds)), objective=objective)  # type: ignore[arg-type]


def test_a_split_balances_unequal_devices() -> None:
    # One device is twice as fast: 4 + 2 operators give 4 s on each, and nothing else does.
    problem = chain([[1.0, 2.0]] * 6, objective=Throughput())
    solution = Split().solve(problem, Budget())
    assert (solution.objective_seconds, solution.placement.counts()) == (4.0, {"d0": 4, "d1": 2})


def test_a_split_may_take_devices_in_another_order() -> None:
    # The head only runs on d1, the tail only on d0.
    inf = math.inf
    problem = chain([[inf, 1.0], [1.0, 1.0], [1.0, inf]])
    assert Split().solve(problem, Budget()).objective_seconds == 3.0


def test_a_split_keeps_memory() -> None:
    # Two operators fit the fast device: 1 + 1 + 5 + 5.
    problem = chain([[1.0, 5.0]] * 4, memory=[20, 10**6])
    assert Split().solve(problem, Budget()).objective_seconds == 12.0


def test_many_devices_are_split_in_order_of_speed() -> None:
    problem = chain([[1.0 + d / 100 for d in range(14)]] * 28, objective=Throughput())
    assert Split(states=10).solve(problem, Budget()).objective_seconds <= 2.3


def test_thinned_cuts_still_give_a_complete_split() -> None:
    problem = chain([[1.0, 1.0]] * 100, objective=Throughput())
    assert Split(cuts=16).solve(problem, Budget()).objective_seconds <= 54.0


@pytest.mark.parametrize("objective", [Latency(), Latency(execution="sequential"), Throughput()])
@pytest.mark.parametrize("make", [chain3, diamond, two_towers])
def test_auto_proves_tiny_problems(make: object, objective: object) -> None:
    problem = make(objective)  # type: ignore[operator]
    auto = Auto().solve(problem, Budget())
    assert auto.gap == 0
    assert auto.objective_seconds == Exhaustive().solve(problem, Budget()).objective_seconds


def test_auto_leaves_out_what_cannot_be_stopped_when_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain([[1.0 + v % 7 / 8, 2.0 + v % 5 / 4] for v in range(30)], objective=Throughput())
    (step,) = (one for row in Auto().steps_for(problem) for one in row.steps if one.name == "mtkahypar")
    assert 0 < step.least_seconds < 0.1
    asked: list[str] = []
    tried = Search.try_solver

    def noted(search: Search, member: Solver, *, share: float = 1.0) -> object:
        asked.append(member.name)
        return tried(search, member, share=share)

    monkeypatch.setattr(Search, "try_solver", noted)
    for seconds, expected in ((10.0, True), (None, True), (step.least_seconds / 2, False)):
        asked.clear()
        with suppress(Infeasible):  # a millisecond may be over before anything is found
            Auto().solve(problem, Budget(seconds=seconds))
        assert ("mtkahypar" in asked) == expected


def test_the_optima_are_those_worked_out_by_hand() -> None:
    assert [
        Exhaustive().solve(make(), Budget()).objective_seconds for make in (chain3, diamond, two_towers)
    ] == [4, 7, 7.5]


def test_exhaustive_refuses_what_it_cannot_finish() -> None:
    assert "16 placements, more than max_placements = 10" in (Exhaustive(10).unsupported(diamond()) or "")


def test_units_and_pins_shrink_the_number_of_placements() -> None:
    constraints = Constraints(pin=(("a", "d0"),), colocate=(("b", "c"),))
    assert placement_count(diamond().with_constraints(constraints)) == pytest.approx(4)


def test_auto_finds_a_placement_only_climbing_can_find() -> None:
    # Weights of 10 in memories of 20 and 20; what must share a device makes every contiguous split overflow.
    problem = chain([[1.0, 1.0]] * 4, memory=[20, 20]).with_constraints(Constraints(colocate=(("v0", "v3"),)))
    solution = Auto(exhaustive_below=0).solve(problem, Budget())
    assert solution.placement.devices[0] == solution.placement.devices[3] != solution.placement.devices[1]


def test_auto_begins_with_the_solver_that_it_is_told() -> None:
    problem = Problem(chain3().graph, chain3().cluster, chain3().costs, objective=Latency())
    told = Auto(start="largest-n", exhaustive_below=0)
    assert [row.does for row in told.steps_for(problem) if row.name == "start"] == ["largest-n"]
    assert told.solve(problem, Budget(evaluations=1)).found_by == "largest-n:1"
    assert Auto(exhaustive_below=0).solve(problem, Budget(evaluations=1)).found_by == "single"
    with pytest.raises(BadInput, match="another solver"):
        Auto(start="auto")
    with pytest.raises(BadInput, match="no solver"):
        Auto(start="nobody")


def test_nothing_that_fits_is_infeasible_with_numbers() -> None:
    problem = chain([[1.0, 1.0]] * 3, memory=[15, 15])
    with pytest.raises(Infeasible) as caught:
        Auto().solve(problem, Budget())
    assert sum(caught.value.short_bytes.values()) > 0


def test_the_trail_falls_and_progress_is_told() -> None:
    told: list[Improvement] = []
    solution = Climb().solve(two_towers(), Budget(evaluations=500, on_improvement=told.append))
    values = [step.objective_seconds for step in solution.trail]
    assert values == sorted(values, reverse=True)
    assert told == list(solution.trail)


def test_an_evaluation_budget_is_kept() -> None:
    search = Search(two_towers(), Budget(evaluations=3), solver="test")
    assert len(search.offer_many(np.zeros((5, 5), dtype=np.uint8))) == 3
    assert search.done


def test_an_interrupt_keeps_the_incumbent() -> None:
    search = Search(chain3(), Budget(), solver="test")
    search.offer([0, 0, 0])
    with search.interruptible():
        raise KeyboardInterrupt
    assert search.solution().interrupted


def test_an_interrupt_without_incumbent_ends_the_search() -> None:
    search = Search(chain3(), Budget(), solver="test")
    with pytest.raises(KeyboardInterrupt), search.interruptible():
        raise KeyboardInterrupt


def test_the_gap_is_the_share_that_could_be_saved() -> None:
    solution = Exhaustive().solve(two_towers(), Budget())
    assert solution.gap == 0
    search = Search(two_towers(), Budget(), solver="test")
    search.offer([0, 1, 0, 1, 0])
    search.raise_bound(5.0, "path")
    assert search.solution().gap == pytest.approx(1 / 3)


def test_options_come_from_text_and_are_checked() -> None:
    assert solver("split", cuts="12") == Split(cuts=12)
    with pytest.raises(BadInput, match="has no option 'cut'; did you mean 'cuts'"):
        solver("split", cut="12")
    with pytest.raises(BadInput, match="option cuts needs a value of type int, got 'many'"):
        solver("split", cuts="many")


def test_an_unknown_solver_is_answered_with_a_suggestion() -> None:
    with pytest.raises(BadInput, match="no solver 'autoo'; did you mean 'auto'"):
        solver("autoo")


def test_every_registered_solver_can_be_made() -> None:
    assert all(solver(name).name.split(":")[0] == name for name in solver_names())


def test_the_value_of_a_solution_is_the_simulators() -> None:
    solution = Auto().solve(two_towers(Throughput()), Budget())
    assert (
        solution.objective_seconds == simulate(two_towers(Throughput()), solution.placement).objective_seconds
    )


def test_auto_leaves_out_known_placements_that_do_not_work() -> None:
    problem = Problem(
        (given := two_towers()).graph, given.cluster, given.costs, constraints=Constraints(pin=(("head", "d0"),))
    )
    astray = Placement(problem, [1, 0, 1, 0, 1])  # 7.5 s if head could run on d1
    known = {"mine": Solution(astray, 7.5, solver="mine")}
    for found in (
        Auto().solve(problem, Budget(evaluations=1), known=known),
        Attempt(problem, Auto(), Budget(evaluations=1), 0, known=known).run(baselines=False),
    ):
        assert simulate(problem, found.placement).feasible


def test_auto_goes_by_the_simulators_seconds_of_a_known_placement() -> None:
    towers = Placement(two_towers(), [0, 1, 0, 1, 0])
    known = {"mine": Solution(towers, 1.0, solver="mine")}  # which is too good to be true
    assert Auto().solve(two_towers(), Budget(evaluations=1), known=known).objective_seconds == 7.5


def test_a_rule_of_the_same_name_does_not_replace_a_better_known_placement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stead.placing.attempt.BASELINES", ("even",))
    towers = Placement(two_towers(), [0, 1, 0, 1, 0])
    known = {"even": Solution(towers, 7.5, solver="mine")}
    attempt = Attempt(two_towers(), Auto(exact=False), Budget(evaluations=1), 0, known=known)
    assert attempt.run(baselines=True).objective_seconds == 7.5
