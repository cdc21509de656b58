"""Formulas against what transformers builds and torch records; skipped where they are not installed.

Small configurations always, published ones with STEAD_SLOW=1.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hf_configs import LLAMA_7B, RESNET, SMALL_CLASSES, SWIN, Values, small

from stead.errors import BadInput
from stead.graph import Graph
from stead.readers.hf import HuggingFace
from stead.readers.hf.step import Phase

torch = pytest.importorskip("torch", reason="needs torch: pip install 'stead[hf]'")
transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'stead[hf]'")

NO_WEIGHTS = re.compile(r"(kv_cache|\.buffer|\.gradients|\.moments)$")
EXPERT = re.compile(r"\[\d+\]$")


@cache
def empty_model(name: str, architecture: str) -> Any:
    """A model of transformers without weights."""
    transformers.utils.logging.set_verbosity(50)
    values = small(name, architecture)
    config = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
    with torch.device("meta"):
        return getattr(transformers, architecture)._from_config(config, dtype=torch.bfloat16)


def parameters(graph: Graph) -> dict[str, int]:
    """Bytes by name of parameter, experts of a layer together."""
    found: dict[str, int] = {}
    for name, size in zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True):
        if not NO_WEIGHTS.search(name):
            whole = EXPERT.sub("", name)
            found[whole] = found.get(whole, 0) + size
    return found


@pytest.mark.parametrize(("name", "architecture"), SMALL_CLASSES)
def test_parameters_are_those_of_transformers_to_the_byte(name: str, architecture: str) -> None:
    module = empty_model(name, architecture)
    found = parameters(HuggingFace().from_config(small(name, architecture)).graph)
    names: dict[int, list[str]] = {}  # a tied parameter has several
    for label, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(label)
    expected = {id(p): p.numel() * 2 for p in module.parameters()}
    matched = {key: [found.pop(label) for label in labels if label in found] for key, labels in names.items()}
    assert found == {}, "parameters that transformers does not have"
    assert matched == {key: [size] for key, size in expected.items()}


@pytest.mark.parametrize(("name", "architecture"), SMALL_CLASSES)
def test_modules_are_those_of_transformers(name: str, architecture: str) -> None:
    known = {path for path, _ in empty_model(name, architecture).named_modules()}
    for phase in ("infer", "prefill"):
        graph = HuggingFace(phase=phase).from_config(small(name, architecture)).graph
        assert set(graph.modules) <= known
        assert {module for module in graph.folded} <= known


def test_a_configuration_that_transformers_wrote_is_read() -> None:
    written = json.loads(transformers.LlamaConfig(**small("llama")).to_json_string())
    reader = HuggingFace(context=10)
    assert reader.from_config(written).graph == reader.from_config(small("llama")).graph


def work(values: Values, phase: Phase, context: int) -> tuple[Graph, Graph]:
    """The graph by formulas and the captured one, operator by operator."""
    graphs = [
        HuggingFace(batch=2, phase=phase, context=context, granularity=granularity).from_config(values).graph
        for granularity in ("layers", "operators")
    ]
    return graphs[0], graphs[1]


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "vit", "mixtral", "t5", "whisper", "bart", "mbart"])
def test_arithmetic_is_what_torch_records(name: str) -> None:
    context = 0 if name == "vit" else 32
    by_formula, captured = work(small(name), "prefill", context)
    assert by_formula.flops.sum() == pytest.approx(captured.flops.sum(), rel=0.02)


def test_both_routes_assume_the_same_prompt_and_know_the_same_limit() -> None:
    values = {**small("t5", "T5EncoderModel"), "n_positions": 24}
    by_formula, captured = work(values, "prefill", 0)
    assert by_formula.flops.sum() == pytest.approx(captured.flops.sum(), rel=0.02)
    with pytest.raises(BadInput, match="positions for 64 tokens, not for a context of 65"):
        HuggingFace(granularity="operators", phase="prefill", context=65).from_config(small("gpt2"))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_step_of_decoding_is_captured_with_its_cache(name: str) -> None:
    by_formula, captured = work(small(name), "decode", 10)
    caches = [
        sum(size for label, size in zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True)
            if label.endswith("kv_cache"))
        for graph in (by_formula, captured)
    ]  # fmt: skip
    assert caches[0] == caches[1] > 0
    assert by_formula.flops.sum() == pytest.approx(captured.flops.sum(), rel=0.02)


def test_a_training_step_is_what_torch_records() -> None:
    by_formula, captured = work(small("gpt2"), "train", 16)
    assert by_formula.flops.sum() == pytest.approx(captured.flops.sum(), rel=0.02)
    assert sum(by_formula.weight_bytes.tolist()) == sum(captured.weight_bytes.tolist())


@pytest.mark.parametrize("values", [SWIN, RESNET], ids=["swin", "resnet"])
def test_architectures_without_formulas_are_captured(values: Values) -> None:
    model = HuggingFace(batch=2).from_config(values)
    assert "captured with transformers" in model.notes[0]
    module = transformers.AutoModelForImageClassification.from_config(
        transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
    )
    bytes_in_bf16 = 2 * sum(parameter.numel() for parameter in module.parameters())
    held = [name for name, _ in module.named_parameters()]
    sizes = dict(zip(model.graph.weight_names, model.graph.weight_bytes.tolist(), strict=True))
    assert sum(sizes[name] for name in held) == bytes_in_bf16


def test_runs_of_one_module_are_one_operator() -> None:
    model = HuggingFace().from_config({**small("llama", "LlamaForSequenceClassification"), "pad_token_id": 0})
    graph: Graph = model.graph
    norm = graph.operator(graph.index("model.layers.0.input_layernorm"))
    assert norm.kind == "Block"
    assert norm.parameter_bytes == 64 * 2


def test_parts_that_take_no_part_are_told() -> None:
    model = HuggingFace(granularity="operators", phase="prefill", context=32).from_config(small("llava"))
    assert "59 parameters of" in model.notes[1]
    assert "take no part, such as model.vision_tower" in model.notes[1]
    graph = model.graph
    idle = [v for v in range(len(graph)) if graph.kinds[v] == "Idle"]
    assert not graph.flops[idle].any()
    tower = [name for name in graph.weight_names if name.startswith("model.vision_tower.")]
    sizes = dict(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True))
    held = sum(sizes[name] for name in tower)
    assert graph.parameter_bytes[[v for v in idle if "vision_tower" in graph.modules[v]]].sum() == held > 0


@pytest.mark.parametrize(
    ("values", "reader", "message"),
    [
        ({"model_type": "nonsense"}, HuggingFace(), 'knows no model_type "nonsense"'),
        (
            {"model_type": "x", "auto_map": {"AutoModel": "m.M"}},
            HuggingFace(),
            "code of its own, which is never run",
        ),
        ({**SWIN, "num_heads": [5, 7]}, HuggingFace(), "torch.export cannot follow it"),
        ({**SWIN, "depths": "many"}, HuggingFace(), "transformers refuses the configuration"),
        ({**SWIN}, HuggingFace(dtype="int4"), "models are captured in fp64, fp32, bf16, fp16, not in int4"),
        ({**SWIN}, HuggingFace(phase="decode"), "no step of decoding of a swin model can be captured"),
        (
            {**small("llama"), "num_hidden_layers": 5000},
            HuggingFace(granularity="operators"),
            "num_hidden_layers: must be a whole number from 0 to 1000, got 5000",
        ),
    ],
)
def test_what_cannot_be_captured_is_one_line(values: Values, reader: HuggingFace, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        reader.from_config(values, name="config.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("config.json: ")
    assert str(caught.value).isprintable()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "has_formulas"),
    [
        ("BertModel", True), ("GPT2LMHeadModel", True), ("LlamaForCausalLM", True),
        ("T5ForConditionalGeneration", True), ("WhisperForConditionalGeneration", True),
        ("ViTForImageClassification", True),
        ("SwinForImageClassification", False), ("MixtralForCausalLM", True), ("Qwen3ForCausalLM", True),
        ("ResNetForImageClassification", False),
    ],
)  # fmt: skip
def test_ten_architectures_of_full_size_have_all_weights_and_the_arithmetic_of_the_formulas(
    architecture: str, has_formulas: bool
) -> None:
    kind = getattr(transformers, architecture)
    config = kind.config_class()
    values = {**json.loads(config.to_json_string()), "architectures": [architecture], "dtype": "bfloat16"}
    with torch.device("meta"):
        expected = {name: 2 * p.numel() for name, p in kind(config).named_parameters()}
    captured = HuggingFace(granularity="operators", phase="prefill").from_config(values).graph
    held = dict(zip(captured.weight_names, captured.weight_bytes.tolist(), strict=True))
    assert {name: held.get(name) for name in expected} == expected
    if has_formulas:
        by_formula = HuggingFace(phase="prefill").from_config(values).graph
        assert by_formula.flops.sum() == pytest.approx(captured.flops.sum(), rel=0.01)


@pytest.mark.slow
def test_llama_7b_captured_takes_29_teraflop() -> None:
    model = HuggingFace(granularity="operators", phase="prefill", context=2048).from_config(LLAMA_7B)
    assert model.graph.flops.sum() == pytest.approx(29.26e12, rel=0.01)
