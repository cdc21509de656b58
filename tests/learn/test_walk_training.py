"""Rules of the walk: problems by seed, evolution that resumes to the same bits, plans, and the file that holds them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from stead.errors import BadInput
from stead.learn.ground import tensor_file
from stead.learn.walk import walk_training
from stead.learn.walk.evolution import Evolution, GivenProblems, Ground, MadeProblems, Strategy, evolve
from stead.learn.walk.made_problems import AMPLE_BYTES, FAMILIES, HELD_OUT, TRAINED_ON, Scope, made_problem
from stead.learn.walk.walk_plans import candidates, lengths_of, taken
from stead.learn.walk.walk_rounds import AGAINS, Progress, grown
from stead.learn.walk.walk_rules import KINDS, SHIPPED, Grounds, Kind, Rules, weight_count
from stead.learn.walk.walk_steps import AT_ONCE, Again, Planned, Step, listed, read_walk
from stead.learn.walk.walk_training import Member, Recipe, chosen, train_rules
from stead.testing import two_towers

SMALL = Scope(least=30, most=120)
QUICK = Evolution(generations=6, pairs=4, batch=4)


def test_a_seed_gives_the_same_problem_again_and_other_seeds_give_others() -> None:
    prints = [made_problem(seed, SMALL).problem.fingerprint for seed in range(60)]
    assert prints[:5] == [made_problem(seed, SMALL).problem.fingerprint for seed in range(5)]
    assert len(set(prints)) == 60


def test_problems_are_of_all_sorts() -> None:
    made = [made_problem(seed, Scope(least=15, most=400)) for seed in range(150)]
    problems = [one.problem for one in made]
    assert {one.family for one in made} == set(TRAINED_ON)
    assert {len(problem.cluster) for problem in problems} >= {2, 3, 4, 8, 12, 16}
    assert {problem.graph.is_training for problem in problems} == {True, False}
    tight = [problem.cluster.devices[0].memory_bytes < AMPLE_BYTES for problem in problems]
    assert 20 < sum(tight) < 60
    assert {Grounds(problem).kind for problem in problems} >= set(KINDS[:4])


def test_families_that_are_held_out_never_come_up_and_can_be_asked_for() -> None:
    assert not set(HELD_OUT) & set(TRAINED_ON)
    for family in HELD_OUT:
        assert made_problem(0, Scope((family,), least=30, most=1500)).family == family
    assert set(FAMILIES) == {*HELD_OUT, *TRAINED_ON}


def test_large_problems_can_be_made() -> None:
    problem = made_problem(2, Scope(("layered",), least=45_000, most=50_000)).problem
    assert 40_000 <= len(problem.graph) <= 55_000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"families": ("layerd",)}, "did you mean 'layered'"),
        ({"least": 3}, "15 to 50000"),
        ({"least": 99, "most": 50}, "got 99 to 50"),
    ],
)
def test_a_scope_is_checked(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Scope(**wrong)  # type: ignore[arg-type]


def test_evolution_makes_walks_shorter() -> None:
    source = MadeProblems(12, SMALL)
    strategy = Strategy(Evolution(generations=25, pairs=8, batch=12), source, 0)
    while strategy.generation < 25:
        strategy.advance()
    weights = np.stack([np.zeros(weight_count()), strategy.rule])
    lengths = np.array([Ground(source.problem(n), n).lengths(weights) for n in range(12)])
    assert strategy.walks == 25 * 16 * 12
    assert lengths[:, 1].mean() < lengths[:, 0].mean() - 0.01


def test_a_rule_beside_rivals_counts_only_what_it_adds() -> None:
    source, rivals = MadeProblems(4, SMALL), np.zeros((1, weight_count()))
    strategy = Strategy(QUICK, source, 0, rivals=rivals)
    bad = np.random.default_rng(0).normal(size=(1, weight_count()))
    counted, best = strategy._counted(0, bad)[0], strategy.ground(0).best_of(rivals)
    assert counted <= best
    assert best - counted < np.log(2) / 30  # no more than a tie is worth


def test_a_run_that_was_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = evolve(Strategy(QUICK, MadeProblems(8, SMALL), 3), tmp_path / "whole.safetensors", resume=False)
    kept = tmp_path / "cut.safetensors"
    killed = Strategy(QUICK, MadeProblems(8, SMALL), 3)
    for generation in range(5):
        killed.advance()
        if generation == 3:
            killed.save(kept)  # the fifth generation is lost
    again = Strategy(QUICK, MadeProblems(8, SMALL), 3)
    assert np.array_equal(evolve(again, kept, resume=True), whole)
    assert (tmp_path / "whole.safetensors").read_bytes() == kept.read_bytes()


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / "kept.safetensors"
    Strategy(QUICK, MadeProblems(8, SMALL), 3).save(kept)
    for other in (
        Strategy(QUICK, MadeProblems(8, SMALL), 4),
        Strategy(QUICK, MadeProblems(9, SMALL), 3),
        Strategy(QUICK, GivenProblems([two_towers()]), 3),
        Strategy(QUICK, MadeProblems(8, SMALL), 3, start=np.ones(weight_count())),
        Strategy(QUICK, MadeProblems(8, SMALL), 3, rivals=np.zeros((1, weight_count()))),
    ):
        with pytest.raises(BadInput, match="another run"):
            other.restore(kept)
    arrays, document = tensor_file.load(kept)
    for name, value in (("theta", np.zeros(3)), ("momentum", np.full(weight_count(), np.nan))):
        tensor_file.save(kept, {**arrays, name: value}, document)
        with pytest.raises(BadInput, match="damaged"):
            Strategy(QUICK, MadeProblems(8, SMALL), 3).restore(kept)
    tensor_file.save(kept, arrays, {**document, "generation": "six"})
    with pytest.raises(BadInput, match="damaged"):
        Strategy(QUICK, MadeProblems(8, SMALL), 3).restore(kept)


@pytest.mark.parametrize("wrong", [{"pairs": 0}, {"batch": 0}, {"generations": -1}, {"sigma": 0.0}, {"rate": np.nan}])
def test_options_of_evolution_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="must"):
        Evolution(**wrong)  # type: ignore[arg-type]


def test_training_needs_a_problem() -> None:
    with pytest.raises(BadInput, match="at least one"):
        Strategy(QUICK, GivenProblems([]), 0)


def test_plans_take_walks_that_complete_each_other() -> None:
    lengths = np.array([[1.0, 1.1, 5.0], [4.0, 4.1, 3.5]])
    assert taken(lengths, 2) == [0, 2]  # 2 helps where 0 is weak; 1 is second best and adds nothing
    assert taken(lengths, 9) == [0, 2, 1]


def test_averages_are_not_tried_where_all_devices_are_alike() -> None:
    alike, unlike = (candidates([0], Kind(1, alike)) for alike in (True, False))
    assert {step.average for step in alike} == {"mean"}
    assert len(unlike) == 3 * len(alike) == 15


def test_a_kind_that_no_problem_was_of_gets_all_rules_in_turn() -> None:
    rules, ratio = chosen(np.zeros((2, weight_count())), [Grounds(made_problem(0, SMALL).problem)], 8, {})
    plan = rules.plans[Kind(2, False, large=True)]
    assert [walk.rule for walk in plan if isinstance(walk, Step)] == [0, 1, 0, 1]
    assert plan[4:] == AGAINS[:4]
    assert ratio <= 1.0


def grown_here(count: int) -> tuple[tuple[Planned, ...], list[float], list[Grounds]]:
    """A plan for six made-up problems, of list scheduling with two weights of transfers."""
    problems = [Grounds(made_problem(seed, SMALL).problem) for seed in range(6)]
    weights, steps = np.zeros((1, weight_count())), [Step(0), Step(0, 4.0)]
    lengths = np.array([lengths_of(grounds, weights, steps) for grounds in problems])
    return *grown(steps, lengths, weights, problems, count), problems


def test_a_plan_goes_on_with_walks_that_help_where_those_before_them_stand() -> None:
    begun, before, _ = grown_here(2)
    plan, after, problems = grown_here(2 + AT_ONCE + 1)
    assert set(begun) == {Step(0), Step(0, 4.0)}
    assert plan[:2] == begun
    assert set(plan[2:]) <= set(AGAINS)
    assert len(plan) == 2 + AT_ONCE + 1
    assert all(now <= then for now, then in zip(after, before, strict=True))
    assert np.mean(after) < np.mean(before)
    weights = np.zeros((1, weight_count()))
    assert after == [Progress(grounds, weights, plan).length for grounds in problems]


def test_a_plan_has_no_step_twice() -> None:
    plan, _, _ = grown_here(40)
    assert [isinstance(walk, Step) for walk in plan].count(True) == 2


@pytest.mark.parametrize("walk", [Step(3, 2.0, 1.0, "min", 1), Again(), Again(0.5, 0.25, 2.0, 0.1, True)])
def test_a_walk_of_a_plan_is_read_as_it_was_written(walk: Step | Again) -> None:
    assert read_walk(listed(walk)) == walk


AGAIN = asdict(Again())


@pytest.mark.parametrize(
    "wrong",
    [{}, {**AGAIN, "more": 1.0}, {**AGAIN, "tail": True}, {**AGAIN, "tail": -1.0}, {**AGAIN, "finest": 1.0},
     {**AGAIN, "noise": np.nan}, [0, 1.0, 0.0, "mode", 0], [0.5, 1.0, 0.0, "mean", 0],
     [0, "1", 0.0, "mean", 0]],
)  # fmt: skip
def test_what_is_no_walk_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="no w"):
        read_walk(wrong)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A recipe that takes a second."""
    monkeypatch.setattr(walk_training, "MEMBERS", (Member(30, 120), Member(30, 120, 0.5)))
    monkeypatch.setattr(walk_training, "PLAN_SCOPE", SMALL)
    return Recipe(generations=2, seed=1, walks=5, least_planned=1, most_looked_at=8, most_looked_at_large=0)


def test_a_training_run_can_be_killed_at_any_time_and_writes_the_same_file(tmp_path: Path, quick: Recipe) -> None:
    train_rules(tmp_path / "whole.safetensors", quick, problems=4)

    def stop(rule: int, row: dict[str, float]) -> None:
        if rule == 2:
            raise KeyboardInterrupt

    cut = tmp_path / "cut.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_rules(cut, quick, problems=4, report=stop, every=1)
    train_rules(cut, quick, problems=4, resume=True, every=1)
    assert cut.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    logs = [(tmp_path / f"{name}.rule1.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    assert [len(log) for log in logs] == [2, 2]


def test_training_goes_on_from_a_policy_on_graphs_of_ones_own(tmp_path: Path, quick: Recipe) -> None:
    first = tmp_path / "first.safetensors"
    train_rules(first, quick, problems=4)
    found = train_rules(
        tmp_path / "own.safetensors", quick, given=[made_problem(1, SMALL).problem], start=Rules.load(first)
    )
    assert found["judged"] == "1 of your graphs"
    assert float(str(found["ratio"])) <= 1.0
    with pytest.raises(BadInput, match="give one of them"):
        train_rules(first, quick)


def test_a_policy_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    rules, path = Rules.load(SHIPPED), tmp_path / "walk.safetensors"
    rules.save(path)
    again = Rules.load(path)
    assert path.read_bytes() == SHIPPED.read_bytes()
    assert (again.plans, again.zero_plans, again.trained) == (rules.plans, rules.zero_plans, rules.trained)
    control = [walk for plan in rules.without_learning().plans.values() for walk in plan]
    assert {walk.rule for walk in control if isinstance(walk, Step)} == {0}


def test_files_without_walks_that_go_on_are_still_read(tmp_path: Path) -> None:
    arrays, document = tensor_file.load(SHIPPED)
    path, plan = tmp_path / "walk.safetensors", [[0, 1.0, 0.0, "mean", 0]]
    plans = {str(kind): plan for kind in KINDS if not kind.large}
    tensor_file.save(path, arrays, {**document, "format": 1, "plans": plans, "zero_plans": plans})
    assert Rules.load(path).plans == {kind: (Step(0),) for kind in KINDS}


def test_walks_of_files_without_shakes_are_not_shaken() -> None:
    given = {name: value for name, value in AGAIN.items() if name != "shake"}
    assert read_walk({**given, "tail": 0.5}) == Again(tail=0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "gdp"}, "holds a policy 'gdp'"),
        ({"format": 4}, "other features"),
        ({"shape": [1, 2, 3, 4]}, "other features"),
        ({"plans": {}}, "plans are needed"),
        ({"plans": []}, "does not say which walks"),
        ({"plans": {"1 alike": [[0, 1.0]]}}, "does not say which walks"),
        ({"plans": {"5 alike": []}}, "does not say which walks"),
        ({"plans": {"1 alike": [{"tail": 1.0}]}}, "does not say which walks"),
        ({"trained": 3}, "does not say which walks"),
    ],
)
def test_a_file_that_says_something_else_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    arrays, document = tensor_file.load(SHIPPED)
    path = tmp_path / "walk.safetensors"
    tensor_file.save(path, arrays, {**document, **change})
    with pytest.raises(BadInput, match=message) as caught:
        Rules.load(path)
    assert "\n" not in str(caught.value)


def test_rules_are_checked() -> None:
    rules = Rules.load(SHIPPED)
    wrong = [
        (rules.weights[:, :-1], rules.plans), (rules.weights[1:], rules.plans),
        (np.where(rules.weights, np.inf, 0.0), rules.plans), (rules.weights[:1], rules.plans),
        (rules.weights, {**rules.plans, KINDS[0]: ()}), (rules.weights, {**rules.plans, KINDS[0]: (Again(),)}),
        (rules.weights, {**rules.plans, KINDS[0]: (Step(99),)}),
        (rules.weights, {**rules.plans, KINDS[0]: (Step(0, grouping=1),)}),
    ]  # fmt: skip
    for weights, plans in wrong:
        with pytest.raises(BadInput):
            Rules(weights, plans, rules.zero_plans)
