"""Device maps of Hugging Face: what they can express, and what transformers and accelerate do with them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hf_models import NAMES, OTHERS

from stead.cluster import Cluster
from stead.errors import BadInput
from stead.export.base import Exporter
from stead.export.hf import HuggingFaceMap
from stead.export.hf_charges import ROOM
from stead.export.hf_modules import Modules, place_in_map
from stead.export.hf_verify import limit_of
from stead.export.placing import place_for
from stead.graph import GraphBuilder
from stead.placing.loading import Loaded, load
from stead.plan import Plan
from stead.problem import Latency, Placement, Problem
from stead.readers.hf import HuggingFace
from stead.sim import simulate
from stead.testing import tiny_layers
from stead.testing.exporters import ExporterContract, plan_of

HERE = Path(__file__).parent
DECODERS = ("llama", "gpt2", "mixtral", "qwen3")
TOKENS = 8  # with an image of 4 for the model that looks
DEVICES = """
[[device]]
name = "big"
kind = "gpu"
memory = "{big}B"
bandwidth = "500GB/s"
flops = {{fp32 = "10T"}}
[[device]]
name = "small"
kind = "gpu"
memory = "{small}B"
bandwidth = "300GB/s"
flops = {{fp32 = "5T"}}
[[device]]
name = "cpu"
kind = "cpu"
memory = "64MiB"
bandwidth = "50GB/s"
flops = {{fp32 = "1T"}}
[[link]]
between = ["*", "*"]
bandwidth = "12GB/s"
latency = "10us"
"""
needs_transformers = pytest.mark.skipif(
    any(find_spec(package) is None for package in ("torch", "transformers", "accelerate")),
    reason="transformers or accelerate is not installed",
)
warm = pytest.mark.usefixtures("warm_checks")  # one test of half precision starts a process of its own, as users do
GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 128, "n_embd": 64, "n_layer": 3,
    "n_head": 4, "n_positions": 128, "torch_dtype": "float32",
}  # fmt: skip


def devices_for(
    folder: Path, name: str, *, shares: tuple[float, float] = (0.6, 0.35), tokens: int = TOKENS, phase: str = "prefill"
) -> Loaded:
    """A model and two accelerators that hold so much of it, beside a CPU."""
    file = folder / f"{name}-{shares[0]}.toml"
    options = {"phase": phase, "context": tokens}
    weights = int(load(folder / name, "cpu", options=options).graph.weight_bytes.sum())
    big, small = (int(share * weights) for share in shares)
    file.write_text(DEVICES.format(big=big, small=small))
    return load(folder / name, str(file), options=options)


def small_gpt2(*, cpu: bool = False) -> Problem:
    """A model with a tied weight on two accelerators, the second of which may be a CPU."""
    model = HuggingFace(phase="prefill", context=8).from_config(dict(GPT2))
    return load(model, "3090,3060+cpu" if cpu else "2x 3090").problem(Latency())


def scattered(problem: Problem, seed: int, *, by_group: bool) -> Plan:
    """A plan at random, of whole groups or of operators."""
    random = np.random.default_rng(seed)
    groups = Modules(problem.graph).groups
    row = random.integers(0, len(problem.cluster), len(problem.graph))
    return plan_of(problem, (row[groups] if by_group else row).tolist())


class TestHuggingFaceMap(ExporterContract):
    @pytest.fixture
    def exporter(self) -> Exporter:
        return HuggingFaceMap()

    def problems(self) -> list[Problem]:
        return [*super().problems(), small_gpt2(), small_gpt2(cpu=True)]


class TestOffloading(TestHuggingFaceMap):
    @pytest.fixture
    def exporter(self) -> Exporter:
        return HuggingFaceMap(cpu_means="offload")


# What a map can express


def test_users_of_a_weight_stay_together_and_so_do_tables_that_are_added_up() -> None:
    problem = small_gpt2()
    constraints = HuggingFaceMap().constraints(problem.graph, problem.cluster)
    assert ("transformer.wte", "transformer.wpe", "lm_head") in constraints.colocate
    assert ("transformer.h.1",) in constraints.colocate
    assert len(constraints.colocate) == 1 + 3


def test_tables_of_a_captured_model_are_added_up_in_one_place() -> None:
    build = GraphBuilder("net")
    count = build.tensor(build.operator("arange", module="model"), size_bytes=4)
    words = build.operator("model.embed_tokens", module="model.embed_tokens")
    places = build.operator("model.embed_positions", module="model.embed_positions", reads=(count,))
    reads = [build.tensor(one, size_bytes=4) for one in (words, places)]
    x = build.tensor(build.operator("add", module="model", reads=reads, flops=1), size_bytes=4)
    build.operator("layer", module="model.layers.0", reads=(x,), flops=1)
    assert Modules(build.build()).groups.tolist() == [0, 0, 0, 0, 1]


def test_a_map_names_every_module_and_buffer() -> None:
    model = HuggingFace(phase="prefill", context=8).from_config({
        "model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 12,
        "num_attention_heads": 4, "torch_dtype": "float32",
    })  # fmt: skip
    problem = load(model, "2x 3090").problem(Latency())
    blocks = len(problem.graph) * [0]
    for v, key in enumerate(Modules(problem.graph).keys):
        blocks[v] = int(key in ("model.layers.10", "model.norm", "lm_head"))
    exporter = HuggingFaceMap()
    made = json.loads(str(exporter.export(plan_of(problem, blocks)).files["device_map.json"]))
    layers = {f"model.layers.{n}": int(n == 10) for n in range(12)}
    assert made == {"model.embed_tokens": 0, **layers, "model.norm": 1, "lm_head": 1, "model.rotary_emb": 0}
    assert place_in_map(made, "model.layers.1.mlp.up_proj.weight") == 0
    assert place_in_map(made, "model.layers.10.mlp.up_proj.weight") == 1


def test_a_block_in_two_places_is_refused_by_name_and_moved_on_demand() -> None:
    problem = tiny_layers()
    plan = plan_of(problem, [0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1])  # the mlp of layer 0 elsewhere
    exporter = HuggingFaceMap()
    with pytest.raises(BadInput, match=r"layers\.0 \(1 operator\) from d1 to d0: model\.layers\.0 is loaded as one"):
        exporter.export(plan)
    found = exporter.project(plan)
    assert found.placement.devices.tolist() == [0] * 9 + [1, 1]
    assert [move.operators for move in found.moves] == [1]


def test_a_tied_weight_in_two_places_is_moved_with_its_reason() -> None:
    problem = small_gpt2()
    row = [int(key in ("transformer.ln_f", "lm_head")) for key in Modules(problem.graph).keys]
    moves = HuggingFaceMap().project(plan_of(problem, row)).moves
    assert {move.what for move in moves} <= {"lm_head", "transformer.wte", "transformer.wpe"}
    assert all("shares weights" in move.why for move in moves)
    assert moves


def test_cpu_beside_accelerators_is_no_plain_map_unless_weights_only_wait_there() -> None:
    problem = small_gpt2(cpu=True)
    host = problem.cluster.names.index("cpu")
    row = [host if key == "transformer.h.1" else 0 for key in Modules(problem.graph).keys]
    plan = plan_of(problem, row)
    computes, waits = (HuggingFaceMap(cpu_means=means).export(plan) for means in ("compute", "offload"))
    assert sorted(computes.files) == ["device_map.stead.json", "load.py"]
    assert 'CPU_COMPUTES = "device_map.stead.json", 0, True, True' in str(computes.files["load.py"])
    assert sorted(waits.files) == ["device_map.json", "load.py"]
    assert json.loads(str(waits.files["device_map.json"]))["transformer.h.1"] == "cpu"
    everything = HuggingFaceMap().export(plan_of(problem, [host] * len(row)))
    assert sorted(everything.files) == ["device_map.json", "load.py"]  # a map of "cpu" alone does compute there


@pytest.mark.parametrize(
    ("head", "rest", "plain"),
    [("3090", "cpu", True), ("3060", "cpu", False), ("cpu", "cpu", False), ("3060", "3060", True)],
)
def test_weights_that_wait_go_to_the_planned_device_also_where_a_map_does_not_name_it(
    head: str, rest: str, plain: bool
) -> None:
    problem = small_gpt2(cpu=True)  # the 3090 is the main device
    names = problem.cluster.names
    row = [names.index(rest if key.startswith("transformer.h.") else head) for key in Modules(problem.graph).keys]
    made = HuggingFaceMap(cpu_means="offload").export(plan_of(problem, row))
    assert sorted(made.files) == [f"device_map{'' if plain else '.stead'}.json", "load.py"]
    file = f"device_map{'' if plain else '.stead'}.json"
    assert f'CPU_COMPUTES = "{file}", 0, {not plain}, False' in str(made.files["load.py"])


def test_the_main_device_has_room_for_what_passes_through_it_and_stays() -> None:
    problem = small_gpt2(cpu=True)
    computes, waits = (
        HuggingFaceMap(cpu_means=means).charged(problem).cluster.devices for means in ("compute", "offload")
    )
    assert [one.alias.get(ROOM) for one in waits[1:]] == [one.alias.get(ROOM) for one in computes[1:]]
    states, wide = 8 * 64 * 4, 8 * 256 * 4
    weights = (256 * 64 + 64) * 4  # of h.N.mlp.c_proj, which runs with most beside it
    alive = wide + 2 * states  # what it reads, what it makes, what that is added to
    held = wide + states  # what the module around it was called with, and what is kept of tables
    caches = 3 * 2 * states
    room = int(waits[0].alias[ROOM]) - int(computes[0].alias[ROOM])
    least = weights + alive + caches
    assert least <= room <= least + held + 2 * states


def test_experts_are_joined_before_the_rest_of_their_block_is_loaded() -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 128, "torch_dtype": "float32"}
    model = HuggingFace(phase="prefill", context=1).from_config({"model_type": "mixtral", **sizes, **experts})
    problem = HuggingFaceMap().charged(load(model, "2x 3090").problem(Latency()))
    v = problem.graph.index("model.layers.1.mlp.experts")
    third = 4 * 64 * 1024 * 4
    rest = (4 * 64 * 64 + 4 * 64 + 2 * 64) * 4  # attention, the router and two norms
    assert third - rest <= problem.costs.workspace_bytes[v, 0] <= third - rest + 8 * 64 * 4


def test_streamed_weights_and_returned_results_are_charged_once() -> None:
    problem = small_gpt2(cpu=True)
    graph, routes, names = problem.graph, problem.routes, problem.cluster.names
    main, host = 0, names.index("cpu")
    charged = HuggingFaceMap(cpu_means="offload").charged(problem)
    v = graph.index("transformer.h.1.mlp.c_fc")  # a weight of 64 x 256 and a bias of 256, 4 bytes each
    copied = 2 * routes.latency_seconds[host, main] + (64 * 256 + 256) * 4 / routes.bytes_per_second[host, main]
    assert charged.costs.seconds[v, host] == pytest.approx(problem.costs.seconds[v, main] + copied, rel=1e-12)
    head, other = graph.index("lm_head"), 1
    back = routes.latency_seconds[other, main] + 8 * 128 * 4 / routes.bytes_per_second[other, main]
    assert charged.costs.seconds[head, other] == pytest.approx(problem.costs.seconds[head, other] + back, rel=1e-12)
    assert charged.costs.seconds[head, main] == problem.costs.seconds[head, main]


def test_a_buffer_of_the_model_itself_is_in_the_map() -> None:
    build = GraphBuilder("net")
    x = build.tensor(build.operator("x", module="model"), size_bytes=4)
    head = build.operator("head", module="lm_head", reads=(x,), flops=1)
    add = build.operator("add", reads=(build.tensor(head, size_bytes=4),), flops=1)
    build.weight("lm_head.weight", size_bytes=8, users=[head])
    build.weight("final_logits_bias.buffer", size_bytes=4, users=[add])
    problem = load(build.build(), "2x 3090").problem(Latency())
    made = HuggingFaceMap().device_map(plan_of(problem, [0, 1, 1]))
    assert made == {"model": 0, "lm_head": 1, "final_logits_bias": 1}


def test_what_has_no_map_is_told_in_a_sentence() -> None:
    exporter = HuggingFaceMap()
    training = load(HuggingFace(phase="train", context=8).from_config(dict(GPT2)), "2x 3090").problem(Latency())
    assert "inference" in str(exporter.unsupported(training))
    with pytest.raises(BadInput, match=r"cpu_means is one of compute, offload, got 'ofload'; did you mean"):
        HuggingFaceMap(cpu_means="ofload")


def test_without_the_model_nothing_can_be_seen() -> None:
    verdict = HuggingFaceMap().verify(plan_of(tiny_layers(), [0] * 11))
    assert not verdict.failed
    assert verdict.outputs.result == "not checkable here"
    assert "model=FOLDER" in verdict.outputs.detail


def test_a_folder_without_weights_is_not_called_a_failure(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    problem = small_gpt2()
    verdict = HuggingFaceMap(model=str(tmp_path)).verify(plan_of(problem, [0] * len(problem.graph)))
    assert not verdict.failed
    assert "no weights to load" in verdict.outputs.detail


# What transformers and accelerate do


@needs_transformers
@warm
@pytest.mark.parametrize("name", NAMES)
def test_transformers_runs_a_plan_as_it_was_made_in_the_memory_that_was_planned(name: str, models: Path) -> None:
    exporter = HuggingFaceMap(model=str(models / name))
    plan = place_for(exporter, devices_for(models, name), objective=Latency(), solver="series")
    assert len(set(plan.placement.devices.tolist())) > 1
    peak = int(plan.trace.peak_bytes[0])
    verdict = exporter.verify(limited(plan, peak))
    assert verdict.outputs.result == "passed", verdict
    assert "tokens identical" in verdict.outputs.detail
    assert verdict.placed.result == "passed", verdict
    assert verdict.memory.result == "passed", verdict
    ledger = int(verdict.memory.detail.split()[1])
    assert 0.95 * peak <= ledger <= limit_of(limited(plan, peak).problem.cluster.devices[0])


@needs_transformers
@warm
@pytest.mark.parametrize("name", ["llama", *(pytest.param(one, marks=pytest.mark.slow) for one in NAMES[1:])])
def test_with_5_percent_less_than_planned_it_runs_out_of_memory_and_tensors_are_named(name: str, models: Path) -> None:
    exporter = HuggingFaceMap(model=str(models / name))
    plan = place_for(exporter, devices_for(models, name), objective=Latency(), solver="series")
    full = exporter.verify(limited(plan, int(0.95 * plan.trace.peak_bytes[0])))
    assert full.failed
    assert full.memory.result == "failed", full
    assert full.memory.detail.startswith("big is full: vdev:0 is out of memory")
    assert re.search(r"alive: .*\w+\.weight \(\d+ bytes\)", full.memory.detail), full.memory.detail


@needs_transformers
@warm
@pytest.mark.slow
def test_a_model_with_a_buffer_of_its_own_runs_as_planned(tmp_path: Path) -> None:
    subprocess.run([sys.executable, HERE / "hf_models.py", tmp_path, "bart"], check=True, capture_output=True)
    exporter = HuggingFaceMap(model=str(tmp_path / "bart"))
    problem = exporter.charged(devices_for(tmp_path, "bart", shares=(9.0, 9.0)).problem(Latency()))
    for seed in range(2):
        verdict = exporter.verify(scattered(problem, seed, by_group=True))
        assert (verdict.outputs.result, verdict.placed.result) == ("passed", "passed"), verdict


@needs_transformers
@warm
@pytest.mark.parametrize("name", ["llama", *(pytest.param(one, marks=pytest.mark.slow) for one in NAMES[1:])])
def test_long_prompts_fit_into_the_memory_that_was_planned_too(name: str, models: Path) -> None:
    exporter = HuggingFaceMap(model=str(models / name))
    devices = devices_for(models, name, shares=(1.0, 0.5), tokens=96)
    plan = place_for(exporter, devices, objective=Latency(), solver="series")
    peak = int(plan.trace.peak_bytes[0])
    verdict = exporter.verify(limited(plan, peak))
    assert not verdict.failed, verdict
    ledger = int(verdict.memory.detail.split()[1])
    assert ledger >= 0.9 * peak


@needs_transformers
@warm
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_long_prompts_do_not_fit_into_5_percent_less(name: str, models: Path) -> None:
    exporter = HuggingFaceMap(model=str(models / name))
    devices = devices_for(models, name, shares=(1.0, 0.5), tokens=96)
    plan = place_for(exporter, devices, objective=Latency(), solver="series")
    less = exporter.verify(limited(plan, int(0.95 * plan.trace.peak_bytes[0]))).memory
    assert less.result == "failed", less
    assert re.search(r"alive: .*\w+\.weight \(\d+ bytes\)", less.detail), less


@needs_transformers
@warm
@pytest.mark.slow
@pytest.mark.parametrize("tokens", [TOKENS, 96])
@pytest.mark.parametrize("name", OTHERS)
def test_models_of_other_families_run_as_planned_in_the_memory_that_was_planned(
    name: str, tokens: int, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, HERE / "hf_models.py", tmp_path, name], check=True, capture_output=True)
    exporter = HuggingFaceMap(model=str(tmp_path / name))
    devices = devices_for(tmp_path, name, shares=(1.0, 0.5), tokens=tokens)
    plan = place_for(exporter, devices, objective=Latency(), solver="series")
    verdict = exporter.verify(limited(plan, int(plan.trace.peak_bytes[0])))
    assert not verdict.failed, verdict
    assert verdict.memory.result == "passed", verdict


@needs_transformers
@warm
@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_a_step_with_full_caches_fits_into_what_was_planned_and_not_into_5_percent_less(
    name: str, models: Path
) -> None:
    exporter = HuggingFaceMap(model=str(models / name))
    devices = devices_for(models, name, shares=(0.9, 0.5), tokens=96, phase="decode")
    plan = place_for(exporter, devices, objective=Latency(), solver="series")
    peak = int(plan.trace.peak_bytes[0])
    verdict = exporter.verify(limited(plan, peak))
    assert verdict.memory.result == "passed", verdict
    assert not verdict.failed, verdict
    assert int(verdict.memory.detail.split()[1]) >= 0.95 * peak
    less = exporter.verify(limited(plan, int(0.95 * peak))).memory
    assert less.result == "failed"
    assert re.search(r"alive: .*\(\d+ bytes\)", less.detail), less


@needs_transformers
def test_a_plan_in_half_precision_is_held_to_its_own_bytes(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")  # virtual machines may name AMX and not have it
    exporter = HuggingFaceMap(model=str(models / "half"))
    plan = place_for(exporter, devices_for(models, "half"), objective=Latency(), solver="series")
    assert set(plan.problem.graph.dtypes) == {"bf16"}
    peak = int(plan.trace.peak_bytes[0])
    verdict = exporter.verify(limited(plan, peak))
    assert not verdict.failed, verdict  # in single precision it would need twice as much
    assert 0.95 * peak <= int(verdict.memory.detail.split()[1])


def limited(plan: Plan, usable: int) -> Plan:
    """The same plan on a first device with another memory."""
    problem = plan.problem.with_memory("big", usable)
    placement = Placement(problem, plan.placement.devices)
    seconds = simulate(problem, placement).objective_seconds
    return Plan(problem, replace(plan.solution, placement=placement, objective_seconds=seconds, bound_seconds=0.0))


@needs_transformers
@warm
@pytest.mark.slow
@pytest.mark.parametrize("means", ["compute", "offload"])
@pytest.mark.parametrize("name", NAMES)
def test_random_placements_run_as_planned_in_the_memory_that_was_planned(name: str, means: str, models: Path) -> None:
    exporter = HuggingFaceMap(model=str(models / name), cpu_means=means)
    loaded = devices_for(models, name, shares=(9.0, 9.0))
    for seed in range(5):
        plan = scattered(exporter.charged(loaded.problem(Latency())), seed, by_group=True)
        verdict = exporter.verify(limited(plan, max(1, int(plan.trace.peak_bytes[0]))))
        assert not verdict.failed, verdict
        assert verdict.placed.result == "passed", verdict
        assert verdict.memory.result == "passed", verdict


def test_clusters_of_two_cpus_are_refused() -> None:
    problem = tiny_layers()
    hosts = tuple(replace(device, kind="cpu") for device in problem.cluster)
    two = Cluster(hosts, problem.cluster.links)
    reason = HuggingFaceMap().unsupported(Problem(problem.graph, two, problem.costs))
    assert reason == "a device_map knows one CPU, and here are d0, d1"
