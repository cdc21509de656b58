"""Pipelines of layers: what is written down means the plan, by each framework's own rule."""

from __future__ import annotations

import ast
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from layered import drawn_counts, layered, plan_by_layers

from stead.errors import BadInput, Infeasible
from stead.export import exporter
from stead.export.deepspeed import bounds
from stead.export.megatron import Megatron, own_parts, parts_of
from stead.export.placing import for_target, place_for
from stead.export.stage_targets import Stage, StageTarget
from stead.export.torchtitan import Torchtitan, check_parts
from stead.export.vllm import Vllm, pp_indices
from stead.placing.loading import load
from stead.plan import Plan
from stead.problem import Throughput
from stead.testing.exporters import plan_of

MODELS = Path(__file__).parents[2] / "examples" / "models"


def read_back(name: str, plan: Plan, layers: int, stages: int) -> list[tuple[bool, range, bool]]:
    """Embedding, layers and head of every stage, as the framework of a target understands its export."""
    bundle = exporter(name).export(plan)
    if name == "vllm":
        partition = re.search(r"VLLM_PP_LAYER_PARTITION=(\S+)", bundle.text)
        assert partition is not None
        assert f"--pipeline-parallel-size {stages}" in bundle.text
        found = [pp_indices(layers, rank, stages, partition[1]) for rank in range(stages)]
        return [(rank == 0, range(*one), rank == stages - 1) for rank, one in enumerate(found)]
    if name == "megatron":
        parts = parts_of(shlex.split(bundle.text)[-1], layers=layers)
        counts = [part.count("t") for part in parts]
        begins = [sum(counts[:n]) for n in range(len(parts))]
        return [
            ("E" in part, range(begin, begin + count), "L" in part)
            for part, begin, count in zip(parts, begins, counts, strict=True)
        ]
    if name == "torchtitan":
        names = json.loads(str(bundle.files["parts.json"]))
        ranges = check_parts(names, layers=layers)
        return [
            ("tok_embeddings" in part, one, "lm_head" in part) for part, one in zip(names, ranges, strict=True)
        ]
    code = str(bundle.files["planned_pipeline.py"])
    parts = ast.literal_eval(re.search(r"PARTS = (\[.*?\])", code)[1])  # type: ignore[index]
    return [
        (begin == 0, range(max(0, begin - 1), min(layers, end - 1)), end == layers + 2)
        for begin, end in pairwise(parts)
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["vllm", "megatron", "torchtitan", "deepspeed"])
def test_random_plans_come_back_from_what_is_written(name: str, seed: int) -> None:
    """Each seed 105 plans, 420 for each target."""
    random = np.random.default_rng(seed)
    for _ in range(105):
        layers = int(random.integers(4, 12))
        stages = int(random.integers(1, 5))
        problem = layered(layers, stages, host=False)
        counts = drawn_counts(random, layers, stages, empty=False)
        order = random.permutation(stages).tolist()
        plan = plan_by_layers(problem, np.repeat(order, counts).tolist(), before=order[0])
        begins = [sum(counts[:n]) for n in range(stages)]
        wanted = [
            (n == 0, range(begin, begin + count), n == stages - 1)
            for n, (begin, count) in enumerate(zip(begins, counts, strict=True))
        ]
        assert read_back(name, plan, layers, stages) == wanted


@pytest.mark.parametrize("name", ["megatron", "torchtitan", "deepspeed"])
def test_embedding_and_head_can_have_stages_of_their_own(name: str) -> None:
    problem = layered(4, 3, host=False)
    plan = plan_by_layers(problem, [1, 1, 1, 1, 2], before=0)
    found = read_back(name, plan, 4, 3)
    assert [(one[0], len(one[1]), one[2]) for one in found] == [(True, 0, False), (False, 4, False), (False, 0, True)]


def test_the_layout_of_the_documentation_is_written_for_a_plan_of_that_shape() -> None:
    plan = plan_by_layers(layered(32, 4, host=False), [0] * 7 + [1] * 9 + [2] * 9 + [3] * 7, before=0)
    assert Megatron().export(plan).text == (
        "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Ettttttt|ttttttttt|ttttttttt|tttttttL'"
    )


def test_layouts_with_repetitions_are_read() -> None:
    assert parts_of("Et*3|(tt|)*2,tL", layers=8) == ["Ettt", "tt", "tt", "tL"]
    for wrong, why in (("tE|tL", "begins with E"), ("Ett|t", "ends with L"), ("EttL", "2 layers"), ("ExL", "letters")):
        with pytest.raises(BadInput, match=why):
            parts_of(wrong, layers=3)


def test_the_rule_of_vllm_refuses_what_vllm_refuses() -> None:
    assert [pp_indices(6, rank, 2, "4,2") for rank in range(2)] == [(0, 4), (4, 6)]
    assert [pp_indices(10, rank, 4) for rank in range(4)] == [(0, 2), (2, 5), (5, 8), (8, 10)]
    with pytest.raises(BadInput, match="sum to 5, which does not match 6"):
        pp_indices(6, 0, 2, "1,4")
    with pytest.raises(BadInput, match="3 parts do not match 2"):
        pp_indices(6, 0, 2, "1,4,1")


@pytest.mark.parametrize("target", [Megatron(), Torchtitan(), Vllm()])
def test_cpus_beside_cards_are_no_stages(target: StageTarget) -> None:
    problem = layered(4, 2)
    with pytest.raises(BadInput, match="makes no pipeline stage of a CPU"):
        target.stages(plan_by_layers(problem, [0, 0, 1, 1], before=0))
    assert {device for _, device in target.constraints(problem.graph, problem.cluster).forbid} == {"d0"}


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_uneven_stages_of_a_large_vocabulary_beat_even_ones(stages: int) -> None:
    loaded = load(MODELS / "llama-3-8b", f"{stages}x A100-80GB")
    plan = place_for(Megatron(), loaded, objective=Throughput(), evaluations=400, time_limit=None)
    even = next(rule.objective_seconds for rule in plan.baselines if rule.name == "even")
    assert even is not None
    assert plan.solution.objective_seconds < even
    layout = shlex.split(Megatron().export(plan).text)[-1]
    assert len(parts_of(layout, layers=32)) <= stages
    names = json.loads(str(Torchtitan().export(plan).files["parts.json"]))
    flat = [name for part in names for name in part]
    assert sorted(flat) == sorted({"tok_embeddings", "norm", "lm_head", *(f"layers.{n}" for n in range(32))})


def test_bounds_of_deepspeed_count_the_ends() -> None:
    assert bounds([Stage("a", True, range(3), False), Stage("b", False, range(3, 4), True)], 4) == [0, 4, 6]


def test_megatrons_own_class_reads_the_layouts() -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    plan = plan_by_layers(layered(5, 3, host=False), [0, 0, 1, 2, 2], before=0)
    answer = Megatron().verify(plan).placed
    assert answer.result == "passed"
    assert "PipelineParallelLayerLayout" in answer.detail
    assert own_parts("tE|tL", 2, 2)[0] == []
    random = np.random.default_rng(0)
    for _ in range(420):
        layers, stages = int(random.integers(2, 41)), int(random.integers(1, 9))
        counts = drawn_counts(random, layers + 2, stages, empty=True)
        whole = f"E{'t' * layers}L"
        text = "|".join(whole[sum(counts[:n]) : sum(counts[: n + 1])] for n in range(stages))
        assert own_parts(text, stages, layers)[0] == parts_of(text, layers=layers)


def test_vllms_own_function_splits_as_its_rule_does(monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("vllm.distributed.utils", reason="vLLM is not installed")
    random = np.random.default_rng(0)
    for _ in range(420):
        layers, stages = int(random.integers(1, 81)), int(random.integers(1, 9))
        text = ",".join(map(str, drawn_counts(random, layers, stages, empty=True)))
        monkeypatch.setenv("VLLM_PP_LAYER_PARTITION", text)
        for rank in range(stages):
            assert utils.get_pp_indices(layers, rank, stages) == pp_indices(layers, rank, stages, text)


def test_a_plan_that_would_not_fit_any_more_is_refused() -> None:
    problem = layered(3, 3, host=False)
    for name in problem.cluster.names:
        problem = problem.with_memory(name, 34)  # three operators of 8 bytes and two results of 4, not four operators
    plan = plan_of(problem, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert plan.trace.feasible
    with pytest.raises(Infeasible, match=r"vllm could only run this plan .* layer 2 .* is short by"):
        for_target(plan, Vllm())  # head, norm and the last layer are four operators


def test_a_device_without_layers_helps_where_nothing_else_fits() -> None:
    problem = layered(6, 3, host=False)
    for name in problem.cluster.names:
        problem = problem.with_memory(name, 70)  # seven operators and what flows between them
    row = [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 2, 0, 1, 2]
    plan = plan_of(problem, row)
    assert plan.trace.feasible
    assert for_target(plan, Megatron()).plan.trace.feasible
