"""Events of a search: members of a portfolio are heard, bounds come before placements, and a search can go on."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from stead import clock
from stead.cli.main import exit_code
from stead.errors import BadInput
from stead.placing.event_log import EventLog
from stead.placing.place import place_problem
from stead.placing.start_files import start_from
from stead.problem import Placement, Problem
from stead.solvers import Budget, Event, Search, Solution, solver
from stead.solvers.events import Incumbent
from stead.testing import chain3, diamond, two_towers
from stead.workloads.demo import demo_graph

DEMO = ["place", "zoo:lstm-grid?layers=2,steps=3,phase=train", "-d", "2x 3090", "-g", "latency"]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class Member:
    """Finds one placement after another, and proves a bound over some or all placements on its way."""

    rows: tuple[tuple[int, ...], ...]
    scope: str = ""
    name: str = "member"

    def unsupported(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        search = Search(problem, budget, solver=self.name, scope=self.scope)
        search.raise_bound(5.0, "by hand")
        for row in self.rows:
            search.offer(np.array(row, dtype=np.uint8))
        return search.solution()


def heard_of(member: Member) -> list[tuple[str, float, float]]:
    told: list[Event] = []
    search = Search(two_towers(), Budget(on_event=told.append), solver="outer")
    search.try_solver(member)
    return [(one.kind, one.objective_seconds, one.bound_seconds) for one in told]


def test_without_a_file_nobody_listens_and_no_member_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[Budget] = []
    solve = Member.solve
    monkeypatch.setattr(Member, "solve", lambda self, problem, budget, seed: (
        budgets.append(budget), solve(self, problem, budget, seed))[1])  # fmt: skip
    listener = EventLog(None).listener
    Search(two_towers(), Budget(on_event=listener), solver="outer").try_solver(Member(((0, 1, 0, 1, 0),)))
    assert (listener, [budget.on_event for budget in budgets]) == (None, [None])


def test_a_member_is_heard_through_the_outer_search_and_its_answer_is_no_news() -> None:
    heard = heard_of(Member(((0, 0, 0, 0, 0), (0, 1, 0, 1, 0))))
    assert heard == [("bound", math.inf, 5.0), ("improvement", 9.0, 5.0), ("improvement", 7.5, 5.0)]


def test_what_a_member_proves_of_fewer_placements_is_not_handed_on() -> None:
    heard = heard_of(Member(((0, 0, 0, 0, 0),), scope="contiguous stages"))
    assert heard == [("improvement", 9.0, 0.0)]


def test_a_bound_is_told_before_anything_is_found() -> None:
    told: list[Event] = []
    search = Search(chain3(), Budget(on_event=told.append), solver="outer")
    search.relax()
    assert (told[0].kind, told[0].objective_seconds, told[0].bound_seconds) == ("bound", math.inf, 4.0)


@pytest.mark.parametrize("problem", [chain3(), diamond(), two_towers()], ids=["chain3", "diamond", "two_towers"])
def test_no_event_claims_more_than_the_optimum_and_the_last_one_is_the_answer(problem: Problem) -> None:
    told: list[Event] = []
    best = solver("exhaustive").solve(problem, Budget()).objective_seconds
    budget = Budget(evaluations=500, on_event=told.append)
    plan = place_problem(problem, budget=budget)
    searched = [one for one in told if one.kind != "baseline"]
    assert all(one.bound_seconds <= best <= one.objective_seconds for one in searched)
    assert searched[-1].objective_seconds == plan.solution.objective_seconds


def test_rules_are_events_with_their_value_or_the_reason_why_they_have_none() -> None:
    told: list[Event] = []
    plan = place_problem(two_towers(), budget=Budget(evaluations=50, on_event=told.append))
    rules = {one.found_by: (one.objective_seconds, one.reason) for one in told if one.kind == "baseline"}
    wanted = {
        one.name: (math.inf if one.objective_seconds is None else one.objective_seconds, one.reason)
        for one in plan.baselines
    }
    assert rules == wanted


def test_placements_are_written_at_most_once_a_second_and_the_last_one_always(tmp_path: Path) -> None:
    time = [0.0]
    path = tmp_path / "events.jsonl"
    with clock.read_from(lambda: time[0]), EventLog(path) as log:
        log.begin("place", devices=("d0", "d1"))
        for number in range(25):
            time[0] = 0.1 * number
            held = Incumbent(np.array([number % 2], dtype=np.uint8))
            log.heard(Event("improvement", number, 100.0 - number, incumbent=held))
    found = [line for line in lines(path) if line["kind"] == "incumbent"]
    assert [line["objective"] for line in found] == [100.0, 90.0, 80.0, 76.0]


def test_the_heart_beats_while_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stead.placing.event_log.INTERVAL_SECONDS", 0.01)
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.heard(Event("bound", 3, bound_seconds=2.0, bound_name="area"))
        while not any(line["kind"] == "heartbeat" for line in lines(path)):
            pass
    beat = next(line for line in lines(path) if line["kind"] == "heartbeat")
    assert (beat["objective"], beat["bound"], beat["bound_name"]) == (None, 2.0, "area")


def test_the_heart_stops_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stead.placing.event_log.INTERVAL_SECONDS", 0.001)
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        for number in range(50):
            log.heard(Event("improvement", number, 100.0 - number))
            sleep(0.001)
        log.end(0)
        sleep(0.1)  # while a result is printed
    assert "heartbeat" in {line["kind"] for line in lines(path)}
    assert lines(path)[-1]["kind"] == "end"


def test_a_disk_that_fails_ends_the_file_and_not_the_command(tmp_path: Path) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

    log = EventLog(tmp_path / "events.jsonl")
    with log:
        log._file = Full()  # type: ignore[assignment]
        log.doing("search")
        log.doing("search on")
    assert "No space left on device" in log.failure


def test_a_search_goes_on_from_the_last_placement_of_a_file_of_events(tmp_path: Path) -> None:
    path, problem = tmp_path / "events.jsonl", two_towers()
    with EventLog(path) as log:
        log.begin("place", devices=problem.cluster.names, graph=problem.graph.fingerprint)
        held = Incumbent(np.array([0, 1, 0, 1, 0], dtype=np.uint8))
        log.heard(Event("improvement", 1, 7.5, incumbent=held))
    with path.open("a") as file:
        file.write('{"t": 3, "kind": "incum')  # as a killed process leaves it
    plan = place_problem(problem, budget=Budget(evaluations=1), baselines=False, start=start_from(path))
    assert (plan.solution.objective_seconds, plan.solution.found_by) == (7.5, "start")


def test_a_start_of_another_model_is_refused(tmp_path: Path) -> None:
    place_problem(chain3(), budget=Budget(evaluations=9)).save(tmp_path / "plan.json")
    with pytest.raises(BadInput, match="it places 0 of the 5 operators"):
        place_problem(two_towers(), budget=Budget(evaluations=9), start=start_from(tmp_path / "plan.json"))


def test_a_start_that_splits_blocks_is_left_out_where_they_stay_whole() -> None:
    from stead.placing.place import place

    def alternating(problem: Problem) -> Placement:
        return Placement(problem, np.arange(len(problem.graph)) % 2)

    plan = place(demo_graph(), "3090,3060", evaluations=20, granularity="block", start=alternating)
    assert plan.trace.feasible
    assert plan.solution.found_by != "start"


def test_place_writes_events_from_begin_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.jsonl"
    wanted = [*DEMO, "--evaluations", "50", "--events", str(path), "-o", str(tmp_path / "plan.json")]
    assert exit_code(wanted) == 0
    found = lines(path)
    assert [found[0]["kind"], found[1]["kind"], found[-1]["kind"]] == ["begin", "goal", "end"]
    assert found[-1] == {
        "t": found[-1]["t"], "kind": "end", "exit": 0, "written": [str(tmp_path / "plan.json")], "interrupted": False,
    }  # fmt: skip
    improved = [line for line in found if line["kind"] == "improvement"]
    assert list(improved[0]) == [
        "t", "kind", "objective", "bound", "bound_name", "scope", "evaluations", "found_by",
    ]  # fmt: skip


def test_an_error_is_the_last_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.jsonl"
    wanted = [*DEMO, "--solver", "mincut", "--evaluations", "5", "--events", str(path), "-o", str(tmp_path / "p.json")]
    assert exit_code(wanted) == 2
    assert lines(path)[-1]["exit"] == 2
    assert "mincut" in lines(path)[-1]["message"]


def test_a_solver_that_cannot_begin_somewhere_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "plan.json")
    assert exit_code([*DEMO, "--evaluations", "20", "-o", plan]) == 0
    capsys.readouterr()
    assert exit_code([*DEMO, "--solver", "heft", "--start", plan, "-o", plan]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "stead: solver heft cannot begin with a placement; only auto can"
    )
