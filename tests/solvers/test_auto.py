"""`auto` as a table of phases, its tuning, and answers that are asked for once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, repeat

import numpy as np
import pytest

from stead import Budget, Infeasible, Latency, Problem, Roofline, Solution, Throughput, cluster_from
from stead.errors import BadInput
from stead.problem import Constraints, Fifo, Objective
from stead.report.phase_table import kind_table, phase_table
from stead.solvers import Search, solver
from stead.solvers.auto import Auto, _Run, first_of_each
from stead.solvers.auto_steps import Tuning
from stead.solvers.build.schedules import Schedule
from stead.solvers.phases import Phases
from stead.solvers.rules.simple import Even
from stead.solvers.search.search import ScheduleSearch
from stead.solvers.solution import Answers
from stead.testing import tiny_problem, two_towers
from stead.workloads import synthetic

PHASES = [
    "bounds", "start", "first answers", "coarse levels first", "rules", "constructions", "exact", "shifting stages",
    "strips", "coarse levels", "search", "transfers", "annealing", "dividing anew first", "early program", "proofs",
    "dividing anew", "integer program", "climbing", "starting again",
]  # fmt: skip
ROUNDS = {
    "latency": {"coarse levels", "search", "transfers"},
    "throughput": {
        "annealing", "dividing anew first", "early program", "proofs", "dividing anew", "integer program",
    },
}  # fmt: skip


@pytest.mark.parametrize("objective", [Latency(), Throughput(), Throughput(microbatches=2)])
def test_the_table_is_whole_and_says_why_a_phase_does_not_apply(objective: Objective) -> None:
    table = Auto().steps_for(two_towers(objective))
    assert [row.name for row in table] == PHASES
    applies = {row.name for row in table if not row.why_not}
    assert all(str(row).startswith(f"{row.name}: not run: ") for row in table if row.why_not)
    whole = isinstance(objective, Latency) or objective.microbatches is None
    assert {name for names in ROUNDS.values() for name in names} & applies == (
        ROUNDS[objective.name] if whole else set()
    )
    assert ("shifting stages" in applies) != whole


def test_phases_add_up_to_the_search() -> None:
    solution = Auto(exhaustive_below=0, exact=False).solve(two_towers(), Budget(evaluations=400))
    ran = [phase for phase in solution.phases if phase.runs]
    assert [phase.name for phase in solution.phases] == PHASES
    assert sum(phase.evaluations for phase in ran) == solution.evaluations
    assert min(phase.after_seconds for phase in ran) == solution.objective_seconds == 7.5
    assert all(bool(phase.runs) != bool(phase.why_not) for phase in solution.phases)


def test_parts_of_a_phase_are_what_it_asked_its_rounds_and_new_starts() -> None:
    solution = quick().solve(unproved(), Budget(evaluations=20_000))
    phases = {phase.name: phase for phase in solution.phases}
    asked = [part.name for part in phases["rules"].parts]
    assert asked == phases["rules"].does.split(", ")
    assert [part.name for part in phases["search"].parts] == [
        f"round {number + 1}" for number in range(phases["search"].runs)
    ]
    assert [part.name for part in phases["starting again"].parts][:2] == ["new start 1", "new start 2"]
    for name in ("rules", "search", "starting again"):
        parts, whole = phases[name].parts, phases[name]
        assert sum(part.evaluations for part in parts) == whole.evaluations
        assert sum(part.seconds for part in parts) <= whole.seconds
    assert sum(part.gained_seconds for part in phases["search"].parts) == pytest.approx(
        phases["search"].gained_seconds, abs=1e-12
    )


def test_kinds_of_moves_belong_to_the_phases_that_made_them() -> None:
    solution = quick().solve(unproved(), Budget(evaluations=20_000))
    phases = {phase.name: phase for phase in solution.phases}
    for name in ("search", "starting again"):
        kinds = phases[name].kinds
        assert sum(kind.tried for kind in kinds) > 100
        assert sum(kind.seconds for kind in kinds) <= phases[name].seconds
        assert sum(part.tried for one in phases[name].parts for part in one.kinds) == sum(k.tried for k in kinds)
    assert not phases["rules"].kinds


def test_the_table_of_kinds_shows_what_moves_took_and_returned() -> None:
    phases = quick().solve(unproved(), Budget(evaluations=20_000)).phases
    lines = kind_table(phases)
    assert lines[0].split() == ["move", "tried", "kept", "took", "share", "gain", "gain/s"]
    assert {line[1:].split("  ")[0] for line in lines[2:]} <= {kind.name for phase in phases for kind in phase.kinds}
    assert any(line.startswith(" one unit ") for line in lines)
    assert kind_table([phase for phase in phases if phase.name == "rules"]) == []


def test_a_phase_that_the_budget_leaves_nothing_for_says_so() -> None:
    phases = {one.name: one for one in Auto().solve(two_towers(Throughput()), Budget(evaluations=1)).phases}
    assert phases["rules"].runs == 1
    assert phases["annealing"].why_not == "no evaluations were left"
    assert phases["search"].why_not == "only for the latency of dataflow execution"


def test_the_table_of_phases_shows_time_gain_and_reasons() -> None:
    # One device takes 9 s and that is what the first rule finds; with a tower on each it is 7.5 s.
    phases = Auto(exhaustive_below=0).solve(two_towers(), Budget(evaluations=400)).phases
    lines = phase_table(phases)
    assert lines[0].split() == [
        "phase", "runs", "took", "evaluations", "after", "gain", "gain/s", "bound", "what", "it", "does,", "or", "why",
        "it", "did", "not", "run",
    ]  # fmt: skip
    (rules,) = (line for line in lines if line.startswith(" rules"))
    assert "single, even, balanced" in rules
    assert "first" in rules.split()
    (bounds,) = (line for line in lines if line.startswith(" bounds"))
    assert "100.00" in bounds.split()  # of 7.5 s are proved at once
    assert any("not run: no solver was named to begin with" in line for line in lines)


def test_every_number_of_the_tuning_can_be_set_by_name() -> None:
    chosen = solver("auto", pool="20", first_share="0.5", patience=64)
    assert isinstance(chosen, Auto)
    assert chosen == Auto(patience=64, tuning=Tuning(pool=20, first_share=0.5))
    with pytest.raises(BadInput, match="did you mean 'pool'"):
        solver("auto", pol="20")
    with pytest.raises(BadInput, match="option pool needs a value of type int"):
        solver("auto", pool="many")
    with pytest.raises(BadInput, match="not negative"):
        solver("auto", pool="-1")


@pytest.mark.parametrize(("quick", "size_decides"), [(0, False), (1300, True)])
def test_a_program_that_is_quick_comes_before_dividing_anew(quick: int, size_decides: bool) -> None:
    chosen, problem = Auto(tuning=Tuning(quick_program=quick)), two_towers(Throughput())
    search = Search(problem, Budget(evaluations=10), solver="auto")
    (row,) = (row for row in chosen.steps_for(problem) if row.name == "dividing anew first")
    why_not = row.not_now(_Run(chosen, search, Phases(search, [])))
    assert ("units times devices" in why_not) is size_decides


def test_the_tuning_changes_the_search() -> None:
    problem = two_towers()
    rounds = {}
    for most in (0, 1):
        chosen = Auto(exhaustive_below=0, exact=False, effort=50, tuning=Tuning(vain_rounds=most, close=0.0))
        phases = {one.name: one for one in chosen.solve(problem, Budget(evaluations=2000)).phases}
        rounds[most] = phases["search"].runs
    assert rounds[0] == 0


def test_series_is_left_out_where_it_cannot_raise_the_bound() -> None:
    # A wide graph over slow links: few operators stand on the chain, and the longest path is below the bound by area.
    graph = synthetic("layered", operators=120, width=24, seed=1)
    cluster, _ = cluster_from("2x 3090")
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
    said = {}
    for quick in (119, 120):  # operators that take next to no time
        chosen = Auto(exhaustive_below=0, effort=50, tuning=Tuning(quick_series=quick))
        phases = {one.name: one for one in chosen.solve(problem, Budget(evaluations=300)).phases}
        (series,) = phases["exact"].parts
        said[quick] = series.runs, series.why_not
    assert said == {119: (0, "blocks of its chain cannot raise the bound"), 120: (1, "")}


@pytest.mark.parametrize("little", [0.0, 4.0])
def test_proofs_that_take_longer_than_what_is_counted_are_left_out(little: float) -> None:
    graph = synthetic("layered", operators=60, seed=1)
    cluster, _ = cluster_from("3090,3060")
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
    chosen = Auto(exhaustive_below=0, tuning=Tuning(little_seconds=little))
    phases = {one.name: one for one in chosen.solve(problem, Budget(evaluations=200)).phases}
    (series,) = (part for part in phases["exact"].parts if part.name == "series")
    assert bool(series.runs) == bool(little)
    assert series.why_not == ("" if little else "it would take longer than is left for it")


@dataclass(frozen=True)
class Counted:
    """Puts everything on one device and counts how often it is asked."""

    name: str = "counted"
    fails: bool = False
    stopped_by: str = "finished"
    times: list[int] = field(default_factory=list, compare=False)

    def unsupported(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        self.times.append(seed)
        if self.fails:
            Search(problem, budget, solver=self.name).offer_many(np.zeros((5, len(problem.graph)), dtype=np.uint8))
            raise Infeasible("too little memory")
        found = Even().solve(problem, Budget(), seed)
        return Solution(found.placement, found.objective_seconds, evaluations=5, stopped_by=self.stopped_by)  # type: ignore[arg-type]


def test_a_solver_is_asked_once_about_a_problem() -> None:
    answers, counted, problem = Answers(), Counted(), two_towers()
    first = answers.ask(counted, problem, Budget(), 0)
    assert answers.ask(counted, problem, Budget(), 0) is first
    answers.ask(counted, problem, Budget(), 1)
    answers.ask(counted, two_towers(), Budget(), 1)
    assert counted.times == [0, 1, 1]


def test_an_answer_that_a_limit_cuts_is_asked_for_anew() -> None:
    counted, problem = Counted(), two_towers()
    answers = Answers()
    answers.ask(counted, problem, Budget(), 0)
    answers.ask(counted, problem, Budget(evaluations=6), 0)
    assert len(counted.times) == 1
    answers.ask(counted, problem, Budget(evaluations=5), 0)
    assert len(counted.times) == 2
    cut = Counted(stopped_by="evaluations")
    for _ in range(2):
        answers.ask(cut, problem, Budget(), 0)
    assert len(cut.times) == 2


def test_that_nothing_was_found_is_known_unless_a_limit_was_the_reason() -> None:
    answers, failing, problem = Answers(), Counted(fails=True), two_towers()
    for allowed, times in ((4, 1), (5, 2), (6, 3), (6, 3), (None, 3), (5, 4)):  # it takes 5
        with pytest.raises(Infeasible):
            answers.ask(failing, problem, Budget(evaluations=allowed), 0)
        assert len(failing.times) == times


def test_solvers_within_solvers_share_their_answers() -> None:
    counted = Counted()
    search = Search(two_towers(), Budget(evaluations=100), solver="outer")
    search.try_solver(counted)
    inner = Search(search.problem, search.rest_of_budget(), solver="inner")
    inner.try_solver(counted)
    assert len(counted.times) == 1
    assert (search.evaluations, inner.evaluations) == (5, 5)


def test_what_is_left_of_a_budget_goes_to_new_starts() -> None:
    problem = unproved()
    phases = {one.name: one for one in quick().solve(problem, Budget(evaluations=20_000)).phases}
    assert phases["starting again"].runs == 1
    assert phases["starting again"].evaluations > 0


def test_without_a_limit_nothing_is_started_again() -> None:
    phases = {one.name: one for one in quick().solve(unproved(), Budget()).phases}
    assert phases["starting again"].why_not == "no limit to be used up"


def test_a_search_that_ends_before_its_budget_says_that_it_stalled() -> None:
    solution = quick().solve(unproved(), Budget(evaluations=400_000))
    assert solution.stopped_by == "finished"
    assert any(note.startswith("stalled: ") for note in solution.notes)


@pytest.mark.parametrize("objective", [Latency(), Throughput()])
def test_eight_times_the_evaluations_never_lead_to_less(objective: Objective) -> None:
    problem = unproved().with_objective(objective)
    few, many = (replace(quick(), exact=False).solve(problem, Budget(evaluations=n)) for n in (3_000, 24_000))
    assert many.phases[0].name == "less effort first"
    assert many.phases[0].after_seconds == few.objective_seconds  # to the bit: it is that very run
    assert many.objective_seconds <= few.objective_seconds
    assert many.evaluations <= 24_000


def test_where_every_operator_has_one_device_new_starts_come_to_an_end() -> None:
    """Restarts that evaluate nothing would go on for ever: what is left of the budget cannot be spent."""
    problem = tiny_problem({"a": 5, "b": 1, "c": 5}, {"c": ["b"]})  # c waits for b, and b for a: no bound says so
    fixed = problem.with_constraints(Constraints(pin=(("a", "d0"), ("b", "d0"), ("c", "d1"))))
    fixed = fixed.with_objective(Latency(policy=Fifo(), order="policy"))
    solution = quick().solve(fixed, Budget(evaluations=3000))
    assert solution.gap > 0.1
    assert solution.stopped_by == "finished"


@pytest.mark.parametrize("objective", [Latency(), Latency(execution="sequential"), Throughput()])
def test_new_starts_never_lose_the_incumbent(objective: Objective) -> None:
    problem = unproved().with_objective(objective)
    few, many = (quick().solve(problem, Budget(evaluations=count)) for count in (600, 4_000))
    assert many.objective_seconds <= few.objective_seconds


def quick() -> Auto:
    """Short rounds, no proofs."""
    tuning = Tuning(tiny_program=0, program_size=0, attempt_effort=1)
    return Auto(exhaustive_below=0, effort=50, moves=2000, patience=64, exact=False, tuning=tuning)


def unproved() -> Problem:
    """Operators side by side, with no bound that meets the optimum."""
    cluster, _ = cluster_from("2x 3090 + 3060")
    graph = synthetic("layered", operators=30, width=6, seed=3)
    return Problem(graph, cluster, Roofline().costs(graph, cluster))


def test_a_small_graph_is_searched_from_more_starts_than_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Below 40 evaluations per operator there is one start: of 9,000, 300 operators have 30 each and 40 have 225.
    improve = ScheduleSearch.improve
    pools: dict[int, int] = {}  # by operators, the first of each

    def counted(self: ScheduleSearch, search: Search, pool: list[Schedule], **how: bool) -> list[Schedule]:
        pools.setdefault(len(search.problem.graph), len(pool))
        return improve(self, search, pool, **how)

    monkeypatch.setattr(ScheduleSearch, "improve", counted)
    cluster, _ = cluster_from("2x 3090,3060")
    for operators in (40, 300):
        graph = synthetic("layered", operators=operators, seed=1)
        problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
        Auto(exact=False, tuning=Tuning(coarse_share=0.0, ample_coarse_share=0.0)).solve(
            problem, Budget(evaluations=9000)
        )
    small, large = pools.values()
    assert large == 1 < small


@pytest.mark.parametrize(("evaluations", "starts"), [(2000, 2), (22_000, 4)])
def test_a_graph_that_is_searched_window_by_window_begins_with_a_start_per_5000_evaluations(
    evaluations: int, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    improve = ScheduleSearch.improve
    pools: list[int] = []

    def counted(self: ScheduleSearch, search: Search, pool: list[Schedule], **how: bool) -> list[Schedule]:
        pools.extend([len(pool)] if search.problem is problem else [])  # not those of coarser graphs
        return improve(self, search, pool, **how)

    monkeypatch.setattr(ScheduleSearch, "improve", counted)
    monkeypatch.setattr("stead.solvers.rounds.SMALL", 100)  # operators from which on windows count
    cluster, _ = cluster_from("2x 3090,3060")
    graph = synthetic("layered", operators=120, seed=1)
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
    quiet = Tuning(coarse_share=0.0, ample_coarse_share=0.0)
    Auto(exact=False, tuning=quiet).solve(problem, Budget(evaluations=evaluations))
    assert pools[0] == starts


def test_of_equal_placements_the_best_keeps_its_rank() -> None:
    assert first_of_each(["a1", "b2", "a3", "c4", "b5"], key=lambda one: one[:1].encode()) == ["a1", "b2", "c4"]


def test_attempts_begin_elsewhere_and_search_goes_on_from_crossings_of_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    improve, begun = ScheduleSearch.improve, list[tuple[str, int]]()

    def noted(self: ScheduleSearch, search: Search, pool: list[Schedule], **how: bool) -> list[Schedule]:
        if search.problem is problem:  # not a coarser one
            begun.append((pool[0].name, self.effort))
        return improve(self, search, pool, **how)

    monkeypatch.setattr(ScheduleSearch, "improve", noted)
    tuning = replace(quick().tuning, coarse_share=0.0, ample_coarse_share=0.0, attempts=3, crossing_effort=1)
    problem = unproved()
    replace(quick(), tuning=tuning).solve(problem, Budget(evaluations=2_000))
    known, drawn, *crossed = begun
    assert known == ("auto", 50)
    assert drawn[0] not in ("auto", "crossing", "search")
    assert drawn[1] == 50
    assert crossed[0] == ("crossing", 30)  # an evaluation per operator


def test_search_goes_on_from_the_best_of_all_that_it_ever_left(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rounds that begin with constructions may end worse than those before them: the third one does here.
    left = chain([3.0, 2.0, 5.0, 4.0], repeat(9.0))
    begun: list[float] = []  # with what searches begin that go on from what others left

    def worse(
        self: ScheduleSearch, search: Search, pool: list[Schedule], *, part: int = 0, settled: bool = False
    ) -> list[Schedule]:
        if settled:
            begun.append(min(one.seconds for one in pool))
        search.evaluations += 100
        seconds = next(left)
        return [replace(pool[0], devices=np.full(30, number, np.uint8), seconds=seconds + number) for number in (0, 1)]

    monkeypatch.setattr(ScheduleSearch, "improve", worse)
    tuning = Tuning(coarse_share=0.0, ample_coarse_share=0.0, construction_share=0.1, transfer_tries=0, one_round=0.0)
    auto = Auto(effort=1, patience=1, exact=False, exhaustive_below=0, tuning=tuning)
    auto.solve(unproved(), Budget(evaluations=900))
    assert begun[:3] == [3.0, 2.0, 2.0]
