"""place(): from a model and devices to a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import stead
from stead.cluster import cluster_from
from stead.errors import BadInput, Infeasible
from stead.placing.attempt import BASELINES
from stead.placing.place import place_problem, run_baselines
from stead.problem import Constraints, Latency, Objective, Problem, Throughput
from stead.solvers import Budget, Improvement, Solution, Solver, solver_class, solver_names
from stead.solvers.auto import Auto
from stead.testing import chain3, two_towers
from stead.workloads.demo import demo_graph


def test_a_graph_and_a_device_string_give_a_plan() -> None:
    plan = stead.place(demo_graph(), "3090,3060", objective="latency", evaluations=300)
    assert plan.trace.feasible
    assert 0 < plan.solution.bound_seconds <= plan.solution.objective_seconds


def test_auto_is_never_worse_than_a_baseline() -> None:
    plan = stead.place(demo_graph(), "3090,3060", objective="throughput", evaluations=100)
    values = [rule.objective_seconds for rule in plan.baselines if rule.objective_seconds is not None]
    assert plan.solution.objective_seconds <= min(values)


def test_every_baseline_has_a_value_or_a_reason() -> None:
    rules = run_baselines(chain3())
    assert [rule.name for rule in rules] == ["single:d0", "single:d1", *BASELINES]
    assert all((rule.objective_seconds is None) == bool(rule.reason) for rule in rules)


def test_a_model_without_devices_asks_for_them() -> None:
    with pytest.raises(BadInput, match="add --devices"):
        stead.place(demo_graph())


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(BadInput, match="latency or throughput"):
        stead.place(demo_graph(), "3090", objective="speed")


@dataclass(frozen=True)
class Interrupted:
    """A solver whose user loses patience at once."""

    name: str = "interrupted"

    def unsupported(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        raise KeyboardInterrupt


def test_an_interrupted_solver_leaves_the_best_baseline() -> None:
    plan = place_problem(two_towers(), solver=Interrupted())
    best = min(rule.objective_seconds for rule in plan.baselines if rule.objective_seconds is not None)
    assert plan.solution.interrupted
    assert plan.solution.objective_seconds == best


def test_the_bound_stands_beside_every_answer_of_any_solver() -> None:
    plan = place_problem(two_towers(), solver="round-robin")
    assert (plan.solution.bound_seconds, plan.solution.bound_name) == (7.5, "crowded path")


def test_rules_for_which_no_time_is_left_say_so() -> None:
    rules = run_baselines(chain3(), seconds=-1.0)
    assert {rule.reason for rule in rules} == {"left out: no time"}


def test_on_large_graphs_rules_that_take_no_time_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stead.placing.attempt.MANY_OPERATORS", 2)
    names = [rule.name for rule in run_baselines(chain3())]
    assert [name.startswith("hf-") for name in names] == [*[False] * (len(names) - 3), True, True, True]


LEARNED = {"colocrl", "hdp", "gdp", "placeto", "hsdag"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[Problem, Solver]]:
    """How often every solver is asked about every problem."""
    counted: Counter[tuple[Problem, Solver]] = Counter()

    def count(kind: type[Solver], solve: Callable[..., Solution]) -> None:
        def counting(self: Solver, problem: Problem, *given: object, **named: object) -> Solution:
            counted[problem, self] += 1
            return solve(self, problem, *given, **named)

        monkeypatch.setattr(kind, "solve", counting)

    kinds = {solver_class(name) for name in solver_names() if name not in LEARNED}
    for kind, solve in [(kind, kind.solve) for kind in kinds]:
        count(kind, solve)
    return counted


@pytest.mark.parametrize("objective", [Latency(), Throughput(), Latency(execution="sequential")])
@pytest.mark.parametrize("granularity", ["auto", "operator"])
def test_every_rule_and_construction_is_asked_once_about_every_problem(
    asked: Counter[tuple[Problem, Solver]], objective: Objective, granularity: str
) -> None:
    # Where blocks are placed first there are several problems: those of blocks, of operators and of clusters of both.
    # What is proved at once would leave nothing to search for.
    few = 2_000  # placements that are simulated one by one take longer than moves of a search
    plan = stead.place(
        demo_graph(), "3090,3060", objective=objective, evaluations=few if objective != Latency() else 16_000,
        time_limit=None,
        solver=Auto(effort=500, moves=100_000, exact=objective != Latency()), granularity=granularity,  # type: ignore[arg-type]
    )  # fmt: skip
    if granularity == "operator" and objective == Latency():
        assert {phase.name: phase.runs for phase in plan.solution.phases}["coarse levels"] > 1
    names = {solver.name for problem, solver in asked if problem is plan.problem}
    assert {"single:3090", "even", "balanced", "hf-sequential", "mtkahypar", "split"} <= names
    assert {solver.name: times for (_, solver), times in asked.items() if times > 1} == {}


def test_place_tells_of_steps_and_of_improvements() -> None:
    steps: list[str] = []
    better: list[Improvement] = []
    plan = stead.place(
        demo_graph(), "3090,3060", evaluations=100, on_step=steps.append, on_improvement=better.append
    )
    assert {"rule single:3090", "bounds", "heft"} <= set(steps)
    assert min(one.objective_seconds for one in better) == plan.solution.objective_seconds


def test_what_is_loaded_is_placed_without_reading_it_again() -> None:
    loaded = stead.load(demo_graph(), "3090,3060")
    made = [
        stead.place(loaded, objective=goal, evaluations=50, baselines=False) for goal in ("latency", "throughput")
    ]
    assert [plan.problem.objective.name for plan in made] == ["latency", "throughput"]
    assert {plan.provenance["devices"] for plan in made} == {"3090,3060"}
    with pytest.raises(BadInput, match="loaded already"):
        stead.place(loaded, cluster_from("3090")[0])


def test_phases_of_a_plan_are_those_of_rules_and_of_the_solver() -> None:
    plan = place_problem(two_towers(), solver="round-robin", budget=Budget(evaluations=50))
    assert [phase.name for phase in plan.solution.phases] == ["simple rules", "round-robin", "bounds"]
    # 9 s on one device, 7.5 s with one tower on each; round-robin crosses more often.
    assert plan.solution.phases[0].after_seconds == 7.5
    assert plan.solution.phases[1].after_seconds == plan.solution.objective_seconds


def test_a_plan_that_cannot_be_had_says_what_would_help() -> None:
    loaded = stead.load(demo_graph(), "3060")
    with pytest.raises(Infeasible) as caught:
        stead.place(loaded, evaluations=20, constraints=Constraints(), time_limit=2.0)
    assert any("more on 3060" in fix.text for fix in caught.value.fixes)
