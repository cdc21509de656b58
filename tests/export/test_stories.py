"""What users do with exports, from the command line: place, export, load, verify; and what they find then."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "run"))
from small_files import save_ir, save_onnx

from stead.cli.main import exit_code
from stead.export.llama_rules import buffer_of, expert_tensors, layer_table, overrides_from
from stead.export.megatron import parts_of
from stead.export.tiny_gguf import tiny_gguf
from stead.export.torchtitan import check_parts
from stead.export.views import check_trace, memory_over
from stead.export.vllm import pp_indices
from stead.plan import Plan

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "models"
QUICK = ["--objective", "latency", "--evaluations", "200"]
slow = pytest.mark.slow
needs_transformers = pytest.mark.skipif(
    any(find_spec(package) is None for package in ("torch", "transformers", "accelerate")),
    reason="transformers or accelerate is not installed",
)
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


class User:
    """Somebody at a command line, in a folder of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def tries(self, *words: object) -> tuple[int, str, str]:
        """Exit code, what was printed, and what was said beside it."""
        code = exit_code([str(word) for word in words])
        told = self.capsys.readouterr()
        return code, told.out, told.err

    def does(self, *words: object) -> str:
        """What a command prints that has to work."""
        code, out, err = self.tries(*words)
        assert code == 0, err
        return out

    def verifies(self, *words: object) -> tuple[int, dict[str, Any]]:
        """Exit code and the three answers."""
        code, out, err = self.tries("verify", *words, "--json")
        assert out, err
        return code, json.loads(out)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> User:
    monkeypatch.chdir(tmp_path)
    return User(capsys)


# Mixed cards, one command


def device_file(path: Path, **memory_bytes: int) -> Path:
    """Accelerators of so many bytes beside a CPU."""
    cards = "".join(
        f'[[device]]\nname = "{name}"\nkind = "gpu"\nmemory = "{size}B"\nbandwidth = "400GB/s"\n'
        'flops = {fp32 = "8T"}\n'
        for name, size in memory_bytes.items()
    )
    host = '[[device]]\nname = "cpu"\nkind = "cpu"\nmemory = "64MiB"\nbandwidth = "50GB/s"\nflops = {fp32 = "1T"}\n'
    path.write_text(f'{cards}{host}[[link]]\nbetween = ["*", "*"]\nbandwidth = "12GB/s"\nlatency = "10us"\n')
    return path


def weights_of(model: Path) -> int:
    return sum(file.stat().st_size for file in model.glob("*.safetensors"))


SHAPE = ["--phase", "prefill", "--context", "8"]
ARCHITECTURES = [
    "gpt2", *(pytest.param(name, marks=slow) for name in ("llama", "qwen3", "t5", "mixtral", "llava"))
]  # fmt: skip


@needs_transformers
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_is_planned_for_mixed_devices_and_transformers_loads_it_so(
    name: str, models: Path, user: User, tmp_path: Path
) -> None:
    model = models / name
    size = weights_of(model)
    devices = device_file(tmp_path / "devices.toml", big=int(0.6 * size), small=int(0.35 * size))
    user.does("place", model, "-d", devices, *SHAPE, *QUICK, "--solver", "series", "--target", "hf")
    assert len(set(Plan.load(tmp_path / "plan.json").placement.devices.tolist())) > 1
    user.does("export", "plan.json", "--to", "hf", "-o", "out")
    assert "load.py" in (tmp_path / "out" / "README.txt").read_text()
    code, told = user.verifies("out/plan.json", "--to", "hf", "--set", f"model={model}")
    assert code == 0
    assert [told[one]["result"] for one in ("outputs", "placed", "memory")] == ["passed"] * 3, told
    assert "tokens identical" in told["outputs"]["detail"]
    assert "all where planned" in told["placed"]["detail"]


@needs_transformers
@pytest.mark.usefixtures("warm_checks")
def test_layers_on_the_cpu_compute_there_or_wait_there_as_the_user_says(
    models: Path, user: User, tmp_path: Path
) -> None:
    model = models / "qwen3"
    devices = device_file(tmp_path / "devices.toml", card=4 * weights_of(model))
    place = ["place", model, "-d", devices, *SHAPE, *QUICK, "--solver", "series", "--target", "hf"]
    user.does(*place, "--pin", "model.layers.2=cpu", "--pin", "model.layers.3=card")
    user.does("export", "plan.json", "--to", "hf", "-o", "computes")
    assert json.loads((tmp_path / "computes" / "device_map.stead.json").read_text())["model.layers.2"] == "cpu"
    code, told = user.verifies("plan.json", "--to", "hf", "--set", f"model={model}")
    assert code == 0
    assert "modules compute on the CPU" in told["placed"]["detail"]
    user.does("export", "plan.json", "--to", "hf", "--set", "cpu_means=offload", "-o", "waits")
    assert json.loads((tmp_path / "waits" / "device_map.json").read_text())["model.layers.2"] == "cpu"
    computes, waits = (Plan.load(tmp_path / name / "plan.json") for name in ("computes", "waits"))
    assert waits.solution.objective_seconds > computes.solution.objective_seconds  # its weights are copied each time


@needs_transformers
@pytest.mark.usefixtures("warm_checks")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_on_a_smaller_card_than_planned_the_set_up_is_told_to_run_out_of_memory(
    name: str, models: Path, user: User, tmp_path: Path
) -> None:
    model = models / name
    size = weights_of(model)
    devices = device_file(tmp_path / "devices.toml", big=4 * size, small=4 * size)
    user.does("place", model, "-d", devices, *SHAPE, *QUICK, "--solver", "series", "--target", "hf")
    user.does("export", "plan.json", "--to", "hf", "-o", "out")
    peak = int(Plan.load(tmp_path / "plan.json").trace.peak_bytes[0])
    smaller = device_file(tmp_path / "smaller.toml", big=int(0.95 * peak), small=4 * size)
    mapped = next((tmp_path / "out").glob("device_map*.json"))
    score = ["score", model, "-d", smaller, *SHAPE, "--evaluations", "20", "--from", "hf", mapped, "-o", "mine.json"]
    code, said, _ = user.tries(*score)
    assert code == 3
    assert "big is short by" in said
    code, told = user.verifies("mine.json", "--to", "hf", "--set", f"model={model}")
    assert code == 4, told
    assert told["memory"]["detail"].startswith("big is full: vdev:0 is out of memory")
    assert re.search(r"alive: .*weight \(\d+ bytes\)", told["memory"]["detail"]), told


def test_flags_of_llama_are_pasted_and_mean_the_plan(user: User, tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(tiny_gguf(6, experts=True))
    pins = [f"blk.{n}.experts=cpu" for n in (1, 4)]
    user.does(
        "place", file, "-d", "4090,3060+cpu 64GB", *QUICK, "--solver", "even", "--target", "llama",
        *(word for pin in pins for word in ("--pin", pin)),
    )  # fmt: skip
    flags = user.does("export", "plan.json", "--to", "llama", "--set", f"model={file}").strip()
    words = shlex.split(flags)
    counts = [int(one) for one in words[words.index("-ts") + 1].split(",")] if "-ts" in words else [7]
    table = layer_table(6, int(words[words.index("-ngl") + 1]), counts, len(counts))
    plan = Plan.load(tmp_path / "plan.json")
    named = dict(zip(plan.problem.graph.operator_names, plan.placement.devices.tolist(), strict=True))
    assert table == [*(named[f"blk.{n}.attn"] for n in range(6)), named["output"]]
    overrides = overrides_from(words[words.index("-ot") + 1])
    assert [n for n in range(6) if {buffer_of(name, overrides) for name in expert_tensors(n)} == {"CPU"}] == [1, 4]
    assert user.verifies("plan.json", "--to", "llama", "--set", f"model={file}")[0] == 0
    user.does(
        "score", file, "-d", "4090,3060+cpu 64GB", "--evaluations", "20", "--from", "llama", flags, "-o", "back.json"
    )
    assert Plan.load(tmp_path / "back.json").placement.devices.tolist() == plan.placement.devices.tolist()


def test_a_thousand_plans_of_layers_are_the_same_table_to_llama_and_to_vllm() -> None:
    random = np.random.default_rng(11)
    for _ in range(1000):
        layers, cards = int(random.integers(5, 81)), int(random.integers(1, 6))
        cuts = np.sort(random.choice(np.arange(1, layers), cards - 1, replace=False))
        counts = np.diff([0, *cuts.tolist(), layers]).tolist()
        wanted = np.repeat(np.arange(cards), counts).tolist()
        split = [*counts[:-1], counts[-1] + 1]  # the output goes with the last card
        assert layer_table(layers, layers + 1, split, cards) == [*wanted, cards - 1]
        bounds = [pp_indices(layers, rank, cards, ",".join(map(str, counts))) for rank in range(cards)]
        assert [rank for rank, (begin, end) in enumerate(bounds) for _ in range(begin, end)] == wanted


# Why is it on the CPU, and what should be where?


@pytest.mark.parametrize("target", ["ort", "trace", "llama"])
def test_the_command_that_place_prints_is_pasted_whatever_files_are_called(
    target: str, user: User, tmp_path: Path
) -> None:
    file = tmp_path / "models" / "my 'own' \"net\"."
    file.parent.mkdir()
    if target == "llama":
        file = file.with_suffix(".gguf")
        file.write_bytes(tiny_gguf(2, experts=False))
    else:
        pytest.importorskip("onnx")
        file = save_onnx(tmp_path).rename(file.with_suffix(".onnx"))
    said = user.does("place", file, "-d", "2x 3090", *QUICK, "--solver", "even", "--target", target,
                     "-o", "a plan.json")  # fmt: skip
    following = said.partition("next: ")[2].partition("\n")[0]
    commands = [shlex.split(one) for one in following.split(" | ")]
    assert [words[1] for words in commands] == ["export", "explain", "report"]
    for words in commands:
        user.does(*words[1:])
    assert (tmp_path / "out" / "README.txt").is_file() == (target != "llama")


@pytest.mark.parametrize("name", ["branching", *(pytest.param(one, marks=slow) for one in ("residual", "attention"))])
def test_openvino_runs_a_file_as_it_was_placed(name: str, user: User, tmp_path: Path) -> None:
    file = save_ir(name, tmp_path)
    user.does("place", file, "-d", "2x 3090+cpu", *QUICK, "--solver", "round-robin", "--target", "openvino")
    user.does("export", "plan.json", "--to", "openvino", "--set", f"model={file}", "-o", "out")
    assert {"model.xml", "model.bin", "affinity.json", "load.py"} <= {one.name for one in (tmp_path / "out").iterdir()}
    code, told = user.verifies("plan.json", "--to", "openvino", "--set", f"model={file}")
    assert code == 0
    assert [told[one]["result"] for one in ("outputs", "placed")] == ["passed"] * 2, told


@pytest.mark.parametrize("target", ["ort", "onnx"])
def test_an_onnx_file_is_cut_and_marked_as_it_was_placed(target: str, user: User, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = save_onnx(tmp_path)
    user.does("place", file, "-d", "2x 3090+cpu", *QUICK, "--solver", "round-robin", "--target", target)
    user.does("export", "plan.json", "--to", target, "--set", f"model={file}", "-o", "out")
    code, told = user.verifies("plan.json", "--to", target, "--set", f"model={file}")
    assert code == 0
    assert [told[one]["result"] for one in ("outputs", "placed")] == ["passed"] * 2, told
    assert "0.0e+00" in told["outputs"]["detail"]


def test_a_plan_is_looked_at_in_perfetto_and_model_explorer(user: User, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    file = save_onnx(tmp_path)
    user.does("place", file, "-d", "2x 3090+cpu", *QUICK, "--solver", "round-robin")
    user.does("export", "plan.json", "--to", "trace", "-o", "trace")
    events = json.loads(gzip.decompress((tmp_path / "trace" / "trace.json.gz").read_bytes()))["traceEvents"]
    check_trace(events)  # integer ids, no overlap on a device or a link, flows in pairs
    plan = Plan.load(tmp_path / "plan.json")
    limits = dict(enumerate(device.usable_bytes for device in plan.problem.cluster))
    assert memory_over(events, limits) == []
    ran = [one["name"] for one in events if one["ph"] == "X" and one["cat"] != "transfer"]
    assert sorted(ran) == sorted(plan.problem.graph.operator_names)
    user.does("export", "plan.json", "--to", "model-explorer", "-o", "overlay")
    overlay = json.loads((tmp_path / "overlay" / "placement.nd.json").read_text())
    shown = next(iter(overlay.values()))["results"]
    names, devices = plan.problem.graph.operator_names, plan.problem.cluster.names
    assert {name: shown[name]["value"] for name in names} == {
        name: devices[d] for name, d in zip(names, plan.placement.devices.tolist(), strict=True)
    }
    for target in ("trace", "model-explorer"):
        code, told = user.verifies("plan.json", "--to", target)
        assert (code, told["placed"]["result"]) == (0, "passed"), told


# Cut my model into uneven stages and prove it


@needs_torch
def test_a_program_is_cut_into_uneven_stages_and_trained_by_torch(programs: Path, user: User, tmp_path: Path) -> None:
    file = programs / "cnn.pt2"
    options = ["--set", f"model={file}", "--set", "train=true", "--set", "schedule=1f1b"]
    place = ["place", file, "-d", "2x 3090", *QUICK, "--target", "torch"]
    user.does(*place)
    names = Plan.load(tmp_path / "plan.json").problem.graph.operator_names
    cut = names.index("conv2d_4")
    pins = [f"{name}=3090:{int(v >= cut)}" for v, name in enumerate(names)]
    user.does(*place, *(word for pin in pins for word in ("--pin", pin)))
    user.does("export", "plan.json", "--to", "torch", *options, "-o", "out")
    first, second = json.loads((tmp_path / "out" / "stages.json").read_text())["stages"]
    assert len(first["params"]) > len(second["params"]) > 0
    code, told = user.verifies("out/plan.json", "--to", "torch", *options)
    assert code == 0
    assert told["outputs"]["result"] == "passed", told
    assert "2 processes, 1f1b, 4 micro-batches" in told["outputs"]["detail"]
    assert "gradients of 12 parameters" in told["outputs"]["detail"]


@slow
@needs_transformers
@pytest.mark.xfail(strict=True, reason="torch's own tracer cuts Llama into parts that do not get their inputs")
def test_torchs_own_tracer_cuts_llama(tmp_path: Path) -> None:
    program = (
        "import sys, torch\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "from torch_programs import made\n"
        "from torch.distributed.pipelining import SplitPoint, pipeline\n"
        "module, inputs = made('llama')\n"
        "pipe = pipeline(module.eval(), inputs, split_spec={'model.model.layers.2': SplitPoint.BEGINNING})\n"
        "with torch.no_grad():\n"
        "    assert torch.allclose(pipe(*inputs), module(*inputs), atol=1e-5)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True)


@pytest.mark.parametrize("stages", [2, pytest.param(4, marks=slow), pytest.param(8, marks=slow)])
def test_a_large_vocabulary_gets_uneven_stages_that_megatron_and_torchtitan_load(
    stages: int, user: User, tmp_path: Path
) -> None:
    cards = f"{stages}x A100-80GB"
    place = ["place", EXAMPLES / "llama-3-8b", "-d", cards, "-g", "throughput", "--evaluations", "400"]
    told = json.loads(user.does(*place, "--target", "megatron", "--json"))
    assert told
    plan = Plan.load(tmp_path / "plan.json")
    even = next(rule.objective_seconds for rule in plan.baselines if rule.name == "even")
    assert even is not None
    assert plan.solution.objective_seconds < even
    layout = shlex.split(user.does("export", "plan.json", "--to", "megatron"))[-1]
    assert [part.count("t") for part in parts_of(layout, layers=32)] != [32 // stages] * stages
    user.does("export", "plan.json", "--to", "torchtitan", "-o", "titan")
    parts = json.loads((tmp_path / "titan" / "parts.json").read_text())
    assert sum(len(one) for one in check_parts(parts, layers=32)) == 32
    for target in ("megatron", "torchtitan"):
        code, answers = user.verifies("plan.json", "--to", target)
        assert (code, answers["placed"]["result"]) == (0, "passed")


@pytest.mark.parametrize(("partition", "tightest"), [("16,16", 1), ("20,12", 0), ("8,24", 1)])
def test_vllm_is_told_how_much_cache_the_tightest_stage_has_room_for(
    partition: str, tightest: int, user: User, tmp_path: Path
) -> None:
    context, layer, table = 4096, 436_224_000, 1_050_673_152  # bytes of a layer, and of embedding or head
    score = ["score", EXAMPLES / "llama-3-8b", "-d", "2x A100-80GB", "--phase", "decode", "--context", context]
    user.does(*score, "--from", "vllm", partition, "--evaluations", "20", "-o", "mine.json")
    plan = Plan.load(tmp_path / "mine.json")
    layers = [int(one) for one in partition.split(",")]
    weights = [count * layer + table for count in layers]
    usable = [device.usable_bytes for device in plan.problem.cluster]
    per_token = 2 * 8 * 128 * 2  # keys and values of 8 heads of 128 in two bytes
    work = [
        int(peak) - weight - count * context * per_token
        for peak, weight, count in zip(plan.trace.peak_bytes, weights, layers, strict=True)
    ]
    assert all(0 <= one < 2**24 for one in work)  # what is left of the peak is small
    alone = [(u - w - o) / (n * per_token) for u, w, o, n in zip(usable, weights, work, layers, strict=True)]
    tokens = int(min(alone))
    assert int(np.argmin(alone)) == tightest
    code, told = user.verifies("mine.json", "--to", "vllm")
    assert code == 0
    room = float(re.search(r"room for ([\d.]+) times", told["memory"]["detail"])[1])  # type: ignore[index]
    assert room == pytest.approx(tokens / context, rel=0.01)


def test_1f1b_keeps_more_micro_batches_on_the_first_stage_than_on_the_last(user: User, tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = {"model_type": "llama", "vocab_size": 512, **sizes, "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    parts = [[f"model.layers.{n}"] for n in range(4)]
    parts[0].insert(0, "model.embed_tokens")
    parts[3] += ["model.norm", "lm_head"]
    (tmp_path / "parts.json").write_text(json.dumps(parts))
    held: dict[tuple[str, int], list[int]] = {}
    for schedule, microbatches in (("1f1b", 4), ("1f1b", 8), ("gpipe", 4), ("gpipe", 8)):
        user.does(
            "score", tmp_path, "-d", "4x 3090", "--phase", "train", "--context", "512", "-g", "throughput",
            "--microbatches", microbatches, "--schedule", schedule, "--from", "stages", "parts.json",
            "--evaluations", "20", "-o", "mine.json",
        )  # fmt: skip
        plan = Plan.load(tmp_path / "mine.json")
        held[schedule, microbatches] = plan.trace.peak_bytes.tolist()
    first, second, third, _ = held["1f1b", 4]
    assert first > second > third  # 4, 3 and 2 micro-batches in flight
    assert held["1f1b", 8][:3] == held["1f1b", 4][:3]  # as many as there are stages left, however many come
    assert held["gpipe", 8][0] > 1.5 * held["gpipe", 4][0]
