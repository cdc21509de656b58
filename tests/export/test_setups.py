"""Set-ups that people have, as placements; what was exported comes back as it was."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from layered import layered, plan_by_layers

from stead.cli.main import exit_code
from stead.errors import BadInput
from stead.export import TARGETS, exporter
from stead.export.placing import for_target
from stead.export.present_setup import score_setup
from stead.export.setups import read_setup
from stead.placing.loading import load
from stead.problem import Latency, Problem, Throughput
from stead.readers import write_graph
from stead.readers.hf import HuggingFace
from stead.solvers import Budget, Solution, solver
from stead.testing.exporters import drawn_plans, plan_of
from stead.workloads.demo import demo_graph

MODELS = Path(__file__).parents[2] / "examples" / "models"


def written(tmp_path: Path, content: object) -> str:
    (tmp_path / "setup.json").write_text(json.dumps(content))
    return str(tmp_path / "setup.json")


@pytest.mark.parametrize("experts", [False, True])
def test_exports_for_llama_come_back(experts: bool) -> None:
    for plan in drawn_plans(layered(5, 3, experts=experts), 12):
        ready = for_target(plan, exporter("llama")).plan
        text = exporter("llama").export(ready).text
        assert read_setup("llama", text, ready.problem).placement.devices.tolist() == ready.placement.devices.tolist()


@pytest.mark.parametrize("target", ["vllm", "megatron", "torchtitan"])
def test_exports_of_stages_come_back(target: str, tmp_path: Path) -> None:
    problem = layered(6, 3, host=False)
    for cuts in ((2, 4), (1, 5), (3, 4)):
        devices = np.searchsorted(cuts, np.arange(6), side="right").tolist()
        plan = plan_by_layers(problem, devices, before=0)
        bundle = exporter(target).export(plan)
        texts, tool = [bundle.text], target
        if target == "vllm":
            words = shlex.split(bundle.text)
            texts.append(next(word.partition("=")[2] for word in words if word.startswith("VLLM_PP")))
        elif target == "megatron":
            texts.append(shlex.split(bundle.text)[-1])
        else:
            texts, tool = [written(tmp_path, json.loads(bundle.files["parts.json"]))], "stages"
        for text in texts:  # all that is printed, or what counts of it
            assert read_setup(tool, text, problem).placement.devices.tolist() == plan.placement.devices.tolist()


def test_a_command_of_vllm_says_in_which_order_it_sees_the_cards() -> None:
    problem = layered(6, 3, host=False)
    plan = plan_by_layers(problem, [2, 2, 2, 0, 1, 1], before=2)
    text = exporter("vllm").export(plan).text
    assert "CUDA_VISIBLE_DEVICES=2,0,1" in text
    assert read_setup("vllm", text, problem).placement == plan.placement
    for wrong in ("7,0,1", "a,b,c", "0,0,1", "0,1"):
        with pytest.raises(BadInput, match="CUDA_VISIBLE_DEVICES"):
            read_setup("vllm", text.replace("2,0,1", wrong), problem)


@pytest.mark.parametrize(
    ("tool", "text"),
    [("hf", '{"": 299}'), ("stages", "named.json"), ("megatron", "Et" + 298 * "|t" + "|tL")],
)
def test_devices_beyond_the_first_256_keep_their_numbers(tool: str, text: str, tmp_path: Path) -> None:
    problem = layered(300, 300, host=False)
    if tool == "stages":
        text = written(tmp_path, {problem.cluster.names[299]: ["model", "lm_head"]})
    last = read_setup(tool, text, problem).placement.devices[-1]
    assert last == 299


def devices_of(problem: Problem, setup: dict[str, object], tmp_path: Path) -> dict[str, str]:
    return read_setup("hf", written(tmp_path, setup), problem).placement.by_name()


def test_a_device_map_places_modules_by_their_longest_name(tmp_path: Path) -> None:
    problem = layered(2, 2)
    setup = {"model": 0, "model.layers.1": 1, "model.layers.1.mlp": "cpu", "lm_head": "cuda:1", "model.rotary_emb": 0}
    assert devices_of(problem, setup, tmp_path) == {
        "model.embed_tokens": "d1", "model.layers.0.self_attn": "d1", "model.layers.0.mlp": "d1",
        "model.layers.1.self_attn": "d2", "model.layers.1.mlp": "d0", "model.norm": "d1", "lm_head": "d2",
    }  # fmt: skip


def test_a_device_map_is_read_as_python_prints_it() -> None:
    problem = layered(2, 2)
    printed = "{'model': 0, 'model.layers.1': 'cuda:1', 'lm_head': 1}"
    found = read_setup("hf", printed, problem).placement
    assert found == read_setup("hf", printed.replace("'", '"'), problem).placement
    stages = "[['tok_embeddings', 'layers.0', 'norm'], ['layers.1', 'lm_head']]"
    assert read_setup("stages", stages, problem).placement == found
    unknown = ("{'model': device(type='cpu'}", "{'model': device(type='tpu')}", "{'model': 0", "{'model': [0]}")
    for wrong in (*unknown, "{1: 'cuda:0'}", "['model']"):
        with pytest.raises(BadInput):
            read_setup("hf", wrong, problem)


def test_what_torch_prints_as_a_cpu_computes_and_the_word_waits() -> None:
    problem = layered(2, 2)
    computes, waits = (
        read_setup("hf", f"{{'model': device(type='cuda', index=0), 'lm_head': {cpu}}}", problem)
        for cpu in ("device(type='cpu')", "'cpu'")
    )
    assert computes.placement == waits.placement
    assert computes.placement.by_name()["lm_head"] == "d0"
    assert (computes.options, waits.options) == ({}, {"cpu_means": "offload"})


@pytest.mark.parametrize("word", ["auto", "balanced", "balanced_low_0", "sequential"])
def test_words_of_transformers_are_placements_by_its_rules(word: str) -> None:
    problem = load(MODELS / "llama-3-8b", "3060,3090+cpu").problem(Latency())
    found = read_setup("hf", word, problem)
    rule = {"auto": "hf-auto", "balanced": "hf-auto"}.get(word, f"hf-{word.replace('_', '-')}")
    wanted = solver(rule).solve(problem, Budget()).placement
    assert found.placement.devices.tolist() == wanted.devices.tolist()
    assert found.options == {}  # nothing is left for the CPU
    assert "in the order of the devices" in found.notes[0]


def test_what_transformers_leaves_to_the_cpu_is_streamed() -> None:
    problem = load(MODELS / "llama-3-8b", "3060+cpu").problem(Latency())
    found = read_setup("hf", "auto", problem)
    assert set(found.placement.by_name().values()) == {"3060", "cpu"}
    assert found.options == {"cpu_means": "offload"}
    assert "streamed" in found.notes[-1]


def test_a_set_up_may_be_one_device_or_the_map_itself() -> None:
    problem = layered(2, 2)
    for text, device in (("cuda:1", "d2"), ("0", "d1"), ("cpu", "d0"), (' {"": 1}', "d2")):
        assert set(read_setup("hf", text, problem).placement.by_name().values()) == {device}
    parts = '[["tok_embeddings", "layers.0"], ["layers.1", "norm", "lm_head"]]'
    assert read_setup("stages", parts, problem).placement.by_name()["model.layers.1.mlp"] == "d2"
    with pytest.raises(BadInput, match=r"the given set-up: line 1, column \d+: not JSON"):
        read_setup("hf", '{"model": 0,', problem)


def test_the_cpu_in_a_device_map_is_said_to_stream(tmp_path: Path) -> None:
    found = read_setup("hf", written(tmp_path, {"model": 0, "lm_head": "cpu"}), layered(2, 2))
    assert found.options == {"cpu_means": "offload"}
    assert "streamed" in found.notes[0]
    assert read_setup("hf", written(tmp_path, {"": "cpu"}), layered(2, 2)).options == {}


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        ({"model.layrs": 0}, "no module 'model.layrs'; did you mean 'model.layers'"),
        ({"model": 0}, "no module in the map holds 'lm_head'"),
        ({"": 2}, "accelerator 2, there are 2"),
        ({"": "disk"}, "on the disk, which is not simulated"),
        ({"": "tpu"}, "'tpu', which is no device"),
        ({"": True}, "True, which is no device"),
        ([], "a device_map gives modules their devices"),
    ],
)
def test_a_device_map_that_makes_no_sense_is_told(setup: object, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=why):
        read_setup("hf", written(tmp_path, setup), layered(2, 2))


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("-m x.gguf -ngl 99 -ts 1,1 -fit off", [0, 1, 1, 1, 2, 2]),  # five layers with the output, three and two
        ("--n-gpu-layers 3 --tensor-split=2,1", [0, 0, 0, 1, 1, 2]),
        ("-ngl 3 -dev CUDA1 -c 4096", [0, 0, 0, 2, 2, 2]),
        ("-ngl 0", [0] * 6),
        ("-ngl all -dev CUDA1,CUDA0 -ts 1,4", [0, 2, 1, 1, 1, 1]),
    ],
)
def test_flags_of_llama_mean_devices_of_layers(flags: str, wanted: list[int]) -> None:
    problem = layered(4, 2)
    row = read_setup("llama", flags, problem).placement.devices.tolist()
    assert [row[0], *(row[1 + 2 * n] for n in range(4)), row[-1]] == wanted


def test_experts_can_be_on_the_cpu_in_three_ways() -> None:
    problem = layered(3, 1, experts=True)
    experts = [n for n, kind in enumerate(problem.graph.kinds) if kind == "Experts"]
    for flags, wanted in (("-cmoe", [0, 0, 0]), ("-ncmoe 2", [0, 0, 1]), (r"-ot 'blk\.1\..*exps=CPU'", [1, 0, 1])):
        row = read_setup("llama", f"-ngl 99 {flags}", problem).placement.devices
        assert row[experts].tolist() == wanted


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("-ngl", "-ngl needs a value"),
        ("-ngl 2 -ts a,b", "-ts needs numbers"),
        ("-ngl 2 -ts 1,1,1", "3 parts for 2 devices"),
        ("-ngl 2 -dev CUDA7", "no device 'CUDA7'; did you mean"),
        ("-ngl 2 -ot exps", "-ot needs PATTERN=BUFFER"),
        ("-ngl 2 -ot '(=CPU'", "is no pattern"),
        ("-sm row", "-sm layer can be read"),
        ("-fit on", "modelled for one accelerator"),
        ("'", "cannot read the flags"),
    ],
)
def test_flags_that_make_no_sense_are_told(flags: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        read_setup("llama", flags, layered(2, 2))


def test_stages_by_name_of_device_and_in_the_words_of_the_model(tmp_path: Path) -> None:
    problem = layered(2, 2, host=False)
    setup = {"d1": ["model.embed_tokens", "model.layers.0"], "d0": ["layers.1", "model.norm", "lm_head"]}
    found = read_setup("stages", written(tmp_path, setup), problem).placement.devices.tolist()
    assert found == [1, 1, 1, 0, 0, 0, 0]
    for wrong, why in (
        ([["tok_embeddings", "layers.0"], ["layers.1", "layers.0", "norm", "lm_head"]], "'layers.0' is named twice"),
        ([["tok_embeddings", "layers.0"], ["layers.1"]], "no stage holds 'model.norm'"),
        ([["tok_embedding"]], "no module 'tok_embedding'; did you mean 'tok_embeddings'"),
        ([[], [], []], "3 lists of names for 2 devices"),
    ):
        with pytest.raises(BadInput, match=why):
            read_setup("stages", written(tmp_path, wrong), problem)


def test_virtual_stages_of_megatron_go_round() -> None:
    problem = layered(4, 2, host=False)
    found = read_setup("megatron", "Et|t|t|tL", problem).placement.devices.tolist()
    assert found == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1]


def test_score_shows_a_set_up_beside_what_stead_would_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph("demo.json", demo_graph())
    score = ["score", "demo.json", "-d", "3090,3060", "--from", "vllm", "20,4", "--evaluations", "200"]
    code = exit_code([*score, "-o", "mine.json"])
    out = capsys.readouterr().out
    assert code == 0
    assert "given (vllm)" in out
    assert " verdict  " in out
    assert exit_code(["export", "mine.json", "--to", "vllm"]) == 0
    assert "VLLM_PP_LAYER_PARTITION=20,4" in capsys.readouterr().out
    assert exit_code([*score, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tool"] == "vllm"
    assert found["baselines"][0]["name"] == "stead"
    assert found["better_seconds"] <= found["objective_seconds"]


def test_a_set_up_that_does_not_fit_ends_with_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph("demo.json", demo_graph())
    code = exit_code(["score", "demo.json", "-d", "3090,3060", "--from", "vllm", "1,23", "--evaluations", "100"])
    assert code == 3
    assert "this set-up does not fit" in capsys.readouterr().out


@pytest.mark.skipif("hf" not in TARGETS, reason="there is no target for transformers")
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt2-xl", "qwen3-30b-a3b"])
def test_device_maps_come_back(model: str, tmp_path: Path) -> None:
    problem = load(MODELS / model, "3090,3060,cpu 512GB").problem(Latency())
    row = np.sort(np.random.default_rng(0).integers(0, 3, len(problem.graph))).tolist()
    ready = for_target(plan_of(problem, row), exporter("hf")).plan
    (name, content), *_ = [item for item in exporter("hf").export(ready).files.items() if "device_map" in item[0]]
    (tmp_path / name).write_text(str(content))
    found = read_setup("hf", str(tmp_path / name), problem)
    assert found.placement.devices.tolist() == ready.placement.devices.tolist()
    assert found.options == {}


def test_a_module_that_only_holds_a_shared_weight_is_read_and_noted_where_it_is_elsewhere(tmp_path: Path) -> None:
    sizes = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    config = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], **sizes, "torch_dtype": "float32"}
    model = HuggingFace(phase="prefill", context=8).from_config(config)
    problem = load(model, "2x 3090").problem(Latency())
    made = exporter("hf").export(plan_of(problem, [1] * len(problem.graph))).files["device_map.json"]
    assert json.loads(str(made))["shared"] == 1
    found = read_setup("hf", str(made), problem)
    assert (set(found.placement.devices.tolist()), found.notes) == ({1}, ())
    apart = read_setup("hf", json.dumps({**json.loads(str(made)), "shared": 0}), problem)
    assert set(apart.placement.devices.tolist()) == {1}
    assert apart.notes == ("shared.weight counts where it is used, not on 3090:0",)


def test_a_set_up_is_held_to_what_was_proved_of_all_that_its_tool_can_load() -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 5, "num_attention_heads": 4}
    config = {"model_type": "llama", "vocab_size": 128, **sizes, "torch_dtype": "float32"}
    loaded = load(HuggingFace(context=64).from_config(config), "3090,3060")

    def scored(tool: str, text: str) -> Solution:
        return score_setup(tool, text, loaded, objective=Throughput(), evaluations=100).plan.solution

    best, worse = scored("vllm", "3,2"), scored("vllm", "4,1")
    assert best.gap == 0
    assert 0 < worse.gap < 1
    assert worse.bound_seconds == best.bound_seconds
    assert worse.scope == "what vllm can load"
    split = {"model": 0, "model.layers.3.mlp": 1, "lm_head": 0}  # which no plan for hf can have
    assert scored("hf", json.dumps(split)).scope == ""
