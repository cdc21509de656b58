"""Granularity: whole blocks for language models, operators only where that pays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import stead
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.graph import Graph, GraphBuilder
from stead.placing.loading import load
from stead.placing.place import BLOCK_SHARE, place_problem
from stead.plan import Baseline
from stead.problem import Constraints, Latency, Placement, Problem, Throughput
from stead.report import explain, summary
from stead.report.granularity import Levels
from stead.sim import simulate
from stead.solvers import Budget, Solution
from stead.solvers.whole_blocks import (
    BLOCKS,
    EXPERT_GROUPS,
    experts_together,
    is_language_model,
    whole_blocks,
)
from stead.testing import two_towers
from stead.workloads.demo import demo_graph


def decoder(*, blocks: int = 2, experts: int = 0, weight_bytes: int = 10) -> Graph:
    """embed, then blocks of attention, mlp and experts, then head; every operator has a weight."""
    build = GraphBuilder("decoder")

    def add(module: str, kind: str, reads: list[stead.graph.TensorId]) -> stead.graph.TensorId:
        operator = build.operator(module, kind=kind, module=module, reads=reads, flops=1e9)
        build.weight(f"{module}.weight", size_bytes=weight_bytes, users=[operator])
        return build.tensor(operator, size_bytes=4)

    stream = add("embed", "Embedding", [])
    for n in range(blocks):
        stream = add(f"layers.{n}.self_attn", "Attention", [stream])
        mixed = [add(f"layers.{n}.mlp.experts.{e}", "MatMul", [stream]) for e in range(experts)]
        stream = add(f"layers.{n}.mlp", "MatMul", [stream, *mixed])
    add("head", "MatMul", [stream])
    return build.build()


def on_two(graph: Graph, seconds: np.ndarray | None = None, **options: object) -> Problem:
    """Two devices, one second per operator unless said otherwise, and links that take next to nothing."""
    memory = options.pop("memory_bytes", (10**9, 10**9))
    devices = tuple(Device(f"d{n}", memory_bytes=size) for n, size in enumerate(memory))  # type: ignore[arg-type, var-annotated]
    cluster = Cluster(devices, link_all(["d0", "d1"], bytes_per_second=1e12))
    table = np.ones((len(graph), 2)) if seconds is None else seconds
    return Problem(graph, cluster, Costs(graph, cluster, table), **options)  # type: ignore[arg-type]


def units(problem: Problem) -> set[frozenset[str]]:
    names = problem.graph.operator_names
    return {
        frozenset(names[v] for v in np.flatnonzero(problem.units == u)) for u in range(problem.unit_count)
    }


def test_the_units_are_blocks_and_the_modules_around_them() -> None:
    assert units(whole_blocks(on_two(decoder()))) == {
        frozenset({"embed"}),
        frozenset({"layers.0.self_attn", "layers.0.mlp"}),
        frozenset({"layers.1.self_attn", "layers.1.mlp"}),
        frozenset({"head"}),
    }


def test_the_experts_of_a_block_are_a_unit_of_their_own() -> None:
    found = units(whole_blocks(on_two(decoder(blocks=2, experts=3))))
    assert frozenset(f"layers.1.mlp.experts.{e}" for e in range(3)) in found
    assert frozenset({"layers.1.self_attn", "layers.1.mlp"}) in found
    assert len(found) == 6


def test_operators_of_a_mixture_keep_the_experts_of_a_block_together() -> None:
    problem = on_two(decoder(blocks=2, experts=3))
    found = units(experts_together(problem))
    assert frozenset(f"layers.0.mlp.experts.{e}" for e in range(3)) in found
    assert frozenset({"layers.0.mlp"}) in found
    assert len(found) == 8  # embed, head, and of every block attention, mlp and experts
    plain = on_two(decoder())
    assert experts_together(plain) is plain


def test_auto_never_tears_the_experts_of_a_block_apart() -> None:
    graph = decoder(blocks=2, experts=2)
    fast = np.ones((len(graph), 2))  # every first expert is faster on d1, every second one on d0
    for v, name in enumerate(graph.operator_names):
        if name.endswith("experts.0"):
            fast[v] = 2.0, 0.5
        elif name.endswith("experts.1"):
            fast[v] = 0.5, 2.0
    problem = on_two(graph, fast)
    torn = place_problem(problem, granularity="operator", budget=Budget(evaluations=500))
    kept = place_problem(problem, granularity="auto", budget=Budget(evaluations=500))
    assert torn.solution.objective_seconds < 7.1 < kept.solution.objective_seconds
    of_experts = [v for v, name in enumerate(graph.operator_names) if "layers.0.mlp.experts" in name]
    assert len({int(kept.placement.devices[v]) for v in of_experts}) == 1
    assert kept.solution.bound_seconds <= torn.solution.objective_seconds or kept.solution.scope


def test_a_pin_inside_a_block_leaves_the_rest_of_the_block_free() -> None:
    pinned = on_two(decoder(), constraints=Constraints(pin=(("layers.0.mlp", "d1"),)))
    found = whole_blocks(pinned)
    assert frozenset({"layers.0.mlp"}) in units(found)
    assert found.allowed.sum(axis=1).tolist() == [2, 2, 1, 2, 2, 2]


def test_a_graph_without_modules_has_no_blocks_to_keep_whole() -> None:
    with pytest.raises(BadInput, match="no blocks to keep whole"):
        place_problem(two_towers(), granularity="block")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("zoo:bert-base", {}, True),
        ("zoo:t5-small", {}, True),
        ("zoo:gpt2-small", {"phase": "train"}, True),
        ("zoo:gnmt-2", {}, False),
        ("zoo:vit-base", {}, False),
        ("zoo:resnet-50", {}, False),
        ("zoo:wavenet-2x18", {}, False),
    ],
)
def test_a_language_model_looks_words_up_and_attends_in_its_blocks(
    name: str, options: dict[str, str], expected: bool
) -> None:
    assert is_language_model(load(name, "3090", options=options).graph) == expected


def test_the_passes_of_a_training_step_stay_with_their_block() -> None:
    problem = load("zoo:gpt2-small", "3090,3060", options={"phase": "train"}).problem(Throughput())
    found = whole_blocks(problem)
    of_block = {
        int(found.units[v])
        for v, name in enumerate(problem.graph.modules)
        if name.split("/")[0].partition("#")[0].startswith("layers.7.") or name.startswith("layers.7#")
    }
    assert len(of_block) == 1
    assert found.unit_count == 18  # 12 blocks, two embeddings, dropout, norm, head and loss


def test_auto_keeps_blocks_whole_where_operators_gain_less_than_the_share() -> None:
    plan = place_problem(on_two(decoder()), granularity="auto", budget=Budget(evaluations=500))
    assert plan.problem.unit_count == 4
    levels = explain(plan).levels
    assert levels is not None
    assert (levels.level, levels.block_seconds) == ("block", 6.0)  # six operators in a row
    assert "splitting them could save 0.0 % at most" in summary(explain(plan))


def uneven(gain: float) -> Problem:
    """Every attention is faster on d1, every mlp on d0: whole blocks take 1 + 2 * 2 + 1 = 6 s at best."""
    graph = decoder()
    seconds = np.ones((6, 2))
    for v, name in enumerate(graph.operator_names):
        if "self_attn" in name:
            seconds[v, 1] -= gain
        elif "mlp" in name:
            seconds[v, 1] += gain
    return on_two(graph, seconds)


def test_auto_splits_blocks_where_that_pays() -> None:
    plan = place_problem(uneven(0.5), granularity="auto", budget=Budget(evaluations=500))
    levels = explain(plan).levels
    assert levels is not None
    assert (levels.level, levels.block_seconds) == ("operator", 6.0)
    assert levels.operator_seconds == pytest.approx(5.0)  # two attentions of half a second
    assert plan.problem.unit_count == 6
    assert "split where it pays; whole blocks would be 6.00 s (+20.0 %)" in summary(explain(plan))


def test_a_gain_that_is_proved_to_be_small_is_not_looked_for() -> None:
    plan = place_problem(uneven(0.1), granularity="auto", budget=Budget(evaluations=500))
    levels = explain(plan).levels
    assert levels is not None
    assert (levels.level, levels.operator_seconds) == ("block", None)
    assert "splitting them could save 3.3 % at most" in summary(explain(plan))  # 5.8 s of 6 s


def test_a_gain_below_the_share_is_said_but_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stead.placing.place.best_bound", lambda problem, seconds, within: stead.Bound("none", 0.0, ""))
    plan = place_problem(uneven(0.1), granularity="auto", budget=Budget(evaluations=500))
    levels = explain(plan).levels
    assert levels is not None
    assert levels.level == "block"
    assert levels.operator_seconds == pytest.approx(5.8)
    said = "operator level would be 5.80 s (-3.3 %): not worth splitting blocks; --granularity operator"
    assert said in summary(explain(plan))


def test_what_is_proved_for_whole_blocks_is_not_said_of_all_placements() -> None:
    plan = place_problem(uneven(0.1), granularity="block", budget=Budget(evaluations=500))
    assert plan.solution.objective_seconds == pytest.approx(6.0)
    finest = place_problem(uneven(0.1), granularity="operator", budget=Budget(evaluations=500))
    assert finest.solution.objective_seconds == pytest.approx(5.8)
    if plan.solution.bound_seconds > finest.solution.objective_seconds:
        assert plan.solution.scope.endswith(BLOCKS)
    assert explain(plan).placement_matters


def test_operator_level_is_what_it_always_was() -> None:
    plan = place_problem(uneven(0.1), granularity="operator", budget=Budget(evaluations=500))
    assert plan.problem.unit_count == 6
    assert explain(plan).levels is None
    assert "granularity" not in plan.provenance


def test_a_graph_that_is_no_language_model_is_placed_by_operators() -> None:
    assert explain(place_problem(two_towers(), granularity="auto")).levels is None


def test_blocks_that_fit_nowhere_whole_are_split() -> None:
    split = on_two(wide_block(), memory_bytes=(20, 20))
    with pytest.raises(Infeasible):
        place_problem(split, granularity="block", budget=Budget(evaluations=200))
    levels = explain(place_problem(split, granularity="auto", budget=Budget(evaluations=200))).levels
    assert levels is not None
    assert levels.text == "split: no placement of whole blocks was found that fits"


def mixture(*, expert_bytes: int, part_bytes: int) -> Problem:
    """Two devices of 17 bytes, a block with two experts that are faster apart, and a block of nothing."""
    build = GraphBuilder("mixture")
    parts = dict.fromkeys(("0.attn", "0.mlp"), part_bytes)
    parts |= dict.fromkeys(("0.experts.0", "0.experts.1"), expert_bytes) | {"1.attn": 0}
    tensor = build.tensor(build.operator("embed", kind="Embedding", module="embed"), size_bytes=1)
    for part, size in parts.items():
        name = f"layers.{part}"
        operator = build.operator(name, kind="Attention", module=name, reads=[tensor])
        build.weight(f"{name}.weight", size_bytes=size, users=[operator])
        tensor = build.tensor(operator, size_bytes=0)
    graph = build.build()
    seconds = np.ones((len(graph), 2))
    seconds[graph.index("layers.0.experts.0")] = 2.0, 0.5
    seconds[graph.index("layers.0.experts.1")] = 0.5, 2.0
    return on_two(graph, seconds, memory_bytes=(17, 17))


def test_what_is_proved_for_whole_groups_of_experts_is_not_said_of_all_placements() -> None:
    problem = mixture(expert_bytes=4, part_bytes=9)  # 18 bytes of attention and mlp fit nowhere whole
    torn = place_problem(problem, granularity="operator", budget=Budget(evaluations=500)).solution
    kept = place_problem(problem, granularity="auto", budget=Budget(evaluations=500)).solution
    assert torn.objective_seconds == pytest.approx(5.0)  # four of 1 s and both experts in half a second
    assert kept.objective_seconds == pytest.approx(6.5)
    assert kept.bound_seconds <= torn.objective_seconds or kept.scope == EXPERT_GROUPS


def test_experts_that_fit_nowhere_together_are_no_proof_that_nothing_fits() -> None:
    problem = mixture(expert_bytes=9, part_bytes=0)  # together 18 bytes
    with pytest.raises(Infeasible) as refused:
        place_problem(problem, granularity="auto", budget=Budget(evaluations=500))
    assert not refused.value.proved
    torn = place_problem(problem, granularity="operator", budget=Budget(evaluations=500))
    assert torn.trace.feasible


def wide_block() -> Graph:
    """Two blocks: one of 30 bytes, which is more than a device of 20 has, and one without weights."""
    build = GraphBuilder("wide")
    tensor = build.tensor(build.operator("embed", kind="Embedding", module="embed"), size_bytes=1)
    for n, parts in enumerate((("attn", "up", "down"), ("attn",))):
        for part in parts:
            operator = build.operator(
                f"layers.{n}.{part}", kind="Attention", module=f"layers.{n}.{part}", reads=[tensor]
            )
            tensor = build.tensor(operator, size_bytes=1)
            if len(parts) > 1:
                build.weight(f"layers.{n}.{part}.weight", size_bytes=9, users=[operator])
    return build.build()


@dataclass(frozen=True)
class Watching:
    """A solver that puts everything on the first device and remembers its budgets."""

    budgets: list[Budget]
    name: str = "watching"

    def unsupported(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        self.budgets.append(budget)
        placement = Placement(problem, [0] * len(problem.graph))
        return Solution(
            placement, simulate(problem, placement).objective_seconds, solver=self.name, evaluations=1
        )


def test_most_of_the_budget_goes_to_whole_blocks_and_a_share_to_operators() -> None:
    watching = Watching([])
    plan = place_problem(uneven(0.5), solver=watching, granularity="auto", budget=Budget(evaluations=1000))
    assert [budget.evaluations for budget in watching.budgets] == [int(BLOCK_SHARE * 1000), 300]
    assert plan.solution.evaluations == 2
    watching.budgets.clear()
    place_problem(uneven(0.5), solver=watching, granularity="block", budget=Budget(evaluations=1000))
    assert [budget.evaluations for budget in watching.budgets] == [1000]


@dataclass(frozen=True)
class Late(Watching):
    """It is done with whole blocks in time, and with operators it is not."""

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        is_late = problem.unit_count == len(problem.graph)
        return replace(Watching.solve(self, problem, budget, seed), stopped_by="time" if is_late else "finished")


def test_a_plan_of_whole_blocks_says_that_time_cut_the_look_at_operators() -> None:
    plan = place_problem(uneven(0.5), solver=Late([]), granularity="auto", baselines=False)
    assert plan.problem.unit_count == 4
    assert "stopped by: time" in summary(explain(plan))


@dataclass(frozen=True)
class Impatient(Watching):
    """Its user loses patience when operators are looked at."""

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        if problem.unit_count == len(problem.graph):
            raise KeyboardInterrupt
        return Watching.solve(self, problem, budget, seed)


def test_an_interrupt_at_operator_level_leaves_the_plan_of_whole_blocks() -> None:
    plan = place_problem(uneven(0.5), solver=Impatient([]), granularity="auto", baselines=False)
    assert plan.problem.unit_count == 4
    assert plan.solution.interrupted


def test_an_interrupt_while_operators_are_bounded_leaves_the_plan_of_whole_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(problem: Problem, seconds: float, within: float) -> stead.Bound:
        raise KeyboardInterrupt

    monkeypatch.setattr("stead.placing.place.best_bound", interrupted)
    plan = place_problem(uneven(0.5), granularity="auto", budget=Budget(evaluations=100))
    assert plan.problem.unit_count == 4
    assert plan.solution.stopped_by == "interrupted"


def test_no_rule_beats_the_plan_of_auto_that_splits_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    best = Placement(uneven(0.5), [0, 1, 0, 1, 0, 0])
    rule = Baseline("clever", simulate(best.problem, best).objective_seconds, placement=best)
    monkeypatch.setattr("stead.placing.place.run_baselines", lambda problem, seed, seconds, answers: (rule,))
    half = Placement(uneven(0.5), [0, 1, 0, 0, 0, 0])
    found = Solution(half, simulate(half.problem, half).objective_seconds, solver="auto", bound_seconds=5.0)
    monkeypatch.setattr("stead.placing.place._split", lambda problem, blocks, question, units: found)
    plan = place_problem(uneven(0.5), granularity="auto", budget=Budget(evaluations=100))
    assert plan.solution.objective_seconds == rule.objective_seconds < found.objective_seconds
    assert (plan.solution.found_by, plan.placement.devices.tolist()) == ("clever", best.devices.tolist())


def test_a_plan_remembers_its_granularity(tmp_path: Path) -> None:
    plan = place_problem(uneven(0.1), granularity="auto", budget=Budget(evaluations=500))
    plan.save(tmp_path / "plan.json")
    again = stead.Plan.load(tmp_path / "plan.json")
    assert explain(again).levels == explain(plan).levels
    assert again.problem.unit_count == 4


@pytest.mark.parametrize("data", [None, 3, {}, {"level": "atom"}, {"level": "block", "block_seconds": "x"}])
def test_what_cannot_be_understood_about_granularity_says_nothing(data: object) -> None:
    assert Levels.from_dict(data) is None


def test_an_unknown_granularity_is_refused() -> None:
    with pytest.raises(BadInput, match="did you mean 'block'"):
        stead.place(demo_graph(), "3090", granularity="blocks")  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_plan_at_every_granularity() -> None:
    first, second = (
        stead.place(demo_graph(), ["3090", "3060"], objective="latency", evaluations=2000, time_limit=None)
        for _ in range(2)
    )
    assert first.placement == second.placement
    assert first.provenance["granularity"] == second.provenance["granularity"]


def test_a_model_of_the_demo_can_be_kept_whole() -> None:
    plan = stead.place(demo_graph(), "3090,3060", objective=Latency(), evaluations=2000, granularity="block")
    assert not any(row.part for row in plan.layers())
    assert replace(plan, baselines=()).trace.feasible
