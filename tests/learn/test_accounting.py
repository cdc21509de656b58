"""What learned methods say of themselves: every simulation is counted, no budget is exceeded, and credit is due."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")

from small import grid, pair

from stead import _native
from stead.learn.colocrl.method import ColocRL
from stead.learn.gdp.method import GDP
from stead.learn.ground.ablation import varied
from stead.learn.ground.policy import Cut, Proposal, Seen
from stead.learn.ground.reward import OWN
from stead.learn.ground.solver import Learns, PolicySolver, train_policy
from stead.learn.ground.task import Start
from stead.learn.ground.torch_state import one_thread
from stead.learn.ground.training_loop import Metrics, Trainee
from stead.learn.ground.training_run import Run, progress_line, read_log
from stead.learn.hdp.method import HDP
from stead.learn.hsdag.method import HSDAG
from stead.learn.placeto.method import Placeto
from stead.placing.place import place_problem
from stead.plan import Plan
from stead.problem import Latency, Problem, Throughput
from stead.report.learning_curve import curve_of
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution
from stead.testing import two_towers

BATCHES = ("simulate_many", "sequential_many", "offload_many", "loads_many")  # of rows
COPIES = "expert,chunks,heft,cut"
SMALL_GDP: dict[str, Any] = {"hidden": 16, "layers": 1, "heads": 2, "rounds": 1, "samples": 8, "copies": COPIES}
LEARNERS: dict[str, Learns] = {
    "colocrl": ColocRL(updates=3, hidden=16),
    "colocrl that copies": ColocRL(updates=3, hidden=16, imitation=2),
    "colocrl faithful": ColocRL("faithful", updates=3, hidden=16),
    "colocrl by walks": ColocRL(updates=2, samples=4, hidden=16, decoder="walk"),
    "hdp": HDP(updates=3, hidden=16, groups=4),
    "hdp faithful": HDP("faithful", updates=3, hidden=16, groups=16),
    "gdp that copies": varied(GDP(policy="", updates=4, imitation=2, polish=False), **SMALL_GDP),
    "gdp from scratch": varied(GDP(policy="", updates=3, imitation=0, polish=False), **SMALL_GDP),
    "gdp faithful": varied(GDP("faithful", policy="", updates=2, polish=False), **SMALL_GDP),
    "gdp pretrained": GDP(decoder="devices", polish=False),
    "gdp fine-tuned": varied(GDP(decoder="devices", fine_tune=2, samples=8, polish=False), copies=COPIES),
    "gdp by walks, pretrained": GDP(polish=False),
    "gdp by walks": varied(GDP(policy="", updates=2, samples=4, decoder="walk", polish=False), hidden=16),
    "gdp by walks, fine-tuned": GDP(decoder="walk", fine_tune=2, samples=4, polish=False),
    "hsdag": HSDAG(evaluations=30, hidden=16, portfolio=False),
    "hsdag faithful": HSDAG("faithful", evaluations=40, portfolio=False),
    "placeto": Placeto(policy="", updates=2, episodes=2),
    "placeto that copies": varied(Placeto(policy="", updates=2, episodes=4, imitation=1, teacher=64), led=2),
    "placeto faithful": Placeto("faithful", updates=2, episodes=2),
    "placeto pretrained": Placeto(decoder="episodes"),
    "placeto by walks, pretrained": Placeto(),
    "placeto by walks": Placeto(policy="", updates=2, episodes=2, decoder="walk"),
}
SMALL = grid(layers=2, steps=2)


@pytest.fixture(autouse=True)
def _on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


class Meter:
    """Counts rows where they are handed to the native simulator."""

    def __init__(self) -> None:
        self.rows = 0
        self.running = True


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    """Every simulation counts but the one that explains why nothing fits."""
    counted = Meter()

    def watched(name: str, rows: Callable[[Any], int]) -> None:
        real = getattr(_native, name)

        def wrapped(problem: Any, placements: Any, *args: Any, **options: Any) -> Any:
            counted.rows += rows(placements) if counted.running else 0
            return real(problem, placements, *args, **options)

        monkeypatch.setattr(_native, name, wrapped)

    for name in BATCHES:
        watched(name, len)
    watched("simulate", lambda _: 1)
    walks = _native.walks

    def walked(*given: Any, **options: Any) -> Any:
        found = walks(*given, **options)
        counted.rows += sum(walk.simulations for walk in found) if counted.running else 0
        return found

    monkeypatch.setattr(_native, "walks", walked)
    explain = Search._infeasible

    def explained(self: Search) -> Any:
        counted.running = False
        try:
            return explain(self)
        finally:
            counted.running = True

    monkeypatch.setattr(Search, "_infeasible", explained)
    return counted


def tight() -> Problem:
    """One device is too small, two are enough."""
    return grid(pair(memory_bytes=int(1.5 * 2**30)), layers=4, steps=2)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_row_that_was_simulated_is_counted(name: str, meter: Meter) -> None:
    solution = LEARNERS[name].solve(SMALL, Budget(), 0)
    assert solution.evaluations == meter.rows > 3


@pytest.mark.parametrize("name", LEARNERS)
def test_a_budget_of_evaluations_is_never_exceeded(name: str, meter: Meter) -> None:
    for most in (1, 3, 9, 60):
        meter.rows = 0
        solution = LEARNERS[name].solve(SMALL, Budget(evaluations=most), 0)
        assert meter.rows <= most
        assert solution.evaluations == meter.rows


@pytest.mark.parametrize("name", ["colocrl", "hdp", "gdp that copies", "hsdag", "placeto", "gdp pretrained"])
def test_rules_that_do_not_fit_are_counted_too(name: str, meter: Meter) -> None:
    problem = tight()
    solution = LEARNERS[name].solve(problem, Budget(), 0)
    assert solution.evaluations == meter.rows


@pytest.mark.parametrize("name", ["hsdag", "placeto"])
def test_other_objectives_are_counted_too(name: str, meter: Meter) -> None:
    for objective in (Throughput(), Latency(execution="sequential")):
        meter.rows = 0
        solution = LEARNERS[name].solve(SMALL.with_objective(objective), Budget(), 0)
        assert solution.evaluations == meter.rows


@pytest.mark.parametrize("name", [name for name in LEARNERS if "pretrained" not in name and "tuned" not in name])
def test_a_learner_counts_what_comes_before_its_first_update(name: str, meter: Meter) -> None:
    problem = SMALL
    own = LEARNERS[name].learner([problem], 0, [Start.of(problem)])
    assert own.evaluations == meter.rows
    told = own.update()
    assert told.evaluations == meter.rows


def credited(solution: Solution) -> set[str]:
    """Who improvements are owed to."""
    return {step.found_by for step in solution.trail} | {solution.found_by}


UNTRAINED = [name for name in LEARNERS if "pretrained" not in name and "tuned" not in name]


@pytest.mark.parametrize("name", UNTRAINED)
def test_random_weights_without_updates_are_credited_with_nothing(name: str) -> None:
    method = LEARNERS[name]
    idle: Any = varied(method, **({"evaluations": 0} if isinstance(method, HSDAG) else {"updates": 0}))
    solution = idle.solve(SMALL, Budget(), 1)
    assert not {who for who in credited(solution) if re.search(r"sample|greedy", who)}
    assert any("it has learnt from no reward" in note for note in solution.notes)


def test_a_learning_rate_of_0_is_a_prior_for_ever() -> None:
    solution = varied(ColocRL(updates=4, hidden=16), learning_rate=0.0).solve(SMALL, Budget(), 0)
    assert credited(solution) <= {"single", "expert", "balanced", "colocrl prior"}
    assert "colocrl prior" in credited(solution)  # it follows neighbours before anything is learnt


def test_a_policy_that_was_written_before_the_first_update_is_credited_with_nothing(tmp_path: Path) -> None:
    problem, path = SMALL, tmp_path / "p.safetensors"
    train_policy(LEARNERS["gdp from scratch"], [problem], ["grid"], Run(path, 0))
    solution = GDP(policy=str(path), polish=False).solve(problem, Budget(), 0)
    assert not {who for who in credited(solution) if re.search(r"sample|greedy", who)}


def test_what_gdp_copies_is_owed_to_the_construction() -> None:
    """A network with random weights is given constructions, and none of what they reach is its own."""
    method = varied(GDP(policy="", updates=0, polish=False), **SMALL_GDP)
    problem = SMALL
    solution = method.solve(problem, Budget(), 0)
    assert solution.found_by in {"chunks", "heft", "cut"}
    assert solution.evaluations > 10  # constructions are simulated, too
    own = method.learner([problem], 0, [Start.of(problem)])
    assert own.tasks[0].scorer.own is None
    assert own.tasks[0].scorer.start is not None
    assert own.tasks[0].scorer.start.seconds == solution.objective_seconds


class Follower:
    """A policy that proposes what it was shown, and nothing else."""

    name, taught = "follower", True
    row = np.array([0, 1, 0, 1, 0], dtype=np.uint8)  # 7.5 s

    def unsupported(self, problem: Problem) -> str | None:
        return None

    def looks(self, problem: Problem) -> int:
        return 4

    def propose(self, problem: Problem, samples: int, seed: int) -> Proposal:
        rows = np.repeat(self.row[None, :], samples, axis=0)
        return Proposal(rows, np.zeros(samples), greedy=0, seen=Seen(4, Cut("cut", self.row, 7.5)))


def test_the_cut_that_a_policy_is_shown_and_follows_is_owed_to_the_cut() -> None:
    solution = PolicySolver(Follower(), samples=3, baselines=()).solve(two_towers(), Budget(), 0)
    assert (solution.objective_seconds, solution.found_by) == (7.5, "cut")
    assert solution.evaluations == 4 + 1 + 1  # what it looked at, the greedy placement, one different sample
    assert "follower was shown cut: 7.50 s" in solution.notes
    assert {step.found_by for step in solution.trail} == {"cut"}


def test_a_policy_whose_look_costs_more_than_is_left_is_not_asked() -> None:
    solution = PolicySolver(Follower()).solve(two_towers(), Budget(evaluations=6), 0)
    assert solution.evaluations <= 6
    assert any("not asked, since looking at the problem takes up to 4 evaluations" in note for note in solution.notes)


@pytest.mark.parametrize("name", ["colocrl that copies", "gdp that copies", "placeto that copies"])
def test_best_never_rises_and_is_not_what_was_copied(name: str) -> None:
    problems = [SMALL, two_towers()]
    own = LEARNERS[name].learner(problems, 0, [Start.of(one) for one in problems])
    told = [own.update() for _ in range(4)]
    bests = [one.best for one in told if one.best is not None]
    assert bests == sorted(bests, reverse=True)
    for task in own.tasks:
        assert task.scorer.own is None or task.scorer.own.by in OWN
        assert task.scorer.start is None or task.scorer.start.by not in OWN
    assert told[-1].start is not None


def test_what_was_not_scored_is_neither_0_nor_infinite(tmp_path: Path) -> None:
    """Nothing runs: the log has nulls, the progress line has dashes, and the curve is drawn nevertheless."""
    lines = list[str]()

    def fails(placements: NDArray[np.uint8]) -> NDArray[np.float64]:
        return np.full(len(placements), np.inf)

    def report(told: Metrics, own: Trainee) -> None:
        lines.append(progress_line(told, own, 1.0))

    path = tmp_path / "p.safetensors"
    train_policy(LEARNERS["colocrl"], [SMALL], ["grid"], Run(path, 2), report=report, evaluate=fails)
    rows = read_log(path.with_suffix(".jsonl"))
    assert [(row["best"], row["mean"], row["greedy"]) for row in rows] == [(None, None, None)] * 2
    assert "best -  mean -  greedy -" in lines[0]
    assert "inf" not in lines[0]
    assert "nan" not in path.with_suffix(".svg").read_text()


@pytest.mark.parametrize("name", ["colocrl", "hdp", "gdp from scratch", "hsdag", "placeto", "gdp by walks"])
def test_a_plan_that_was_learnt_keeps_its_curve(name: str, tmp_path: Path) -> None:
    plan = place_problem(SMALL, solver=LEARNERS[name], budget=Budget(evaluations=2000))
    steps = plan.solution.learning
    assert [step.update for step in steps] == list(range(1, len(steps) + 1)) != []
    best = [step.best_seconds for step in steps if step.best_seconds is not None]
    assert best == sorted(best, reverse=True)
    assert best[-1] >= plan.solution.objective_seconds
    plan.save(tmp_path / "plan.json")
    curve = curve_of(Plan.load(tmp_path / "plan.json").provenance)
    assert curve == curve_of(plan.provenance)
    assert curve["update"] == [step.update for step in steps]
