"""Graphs from configurations: what is in them, and what it costs. Numbers are worked out for a llama of width 64."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hf_configs import LLAMA_7B, SMALL_CLASSES, Values, small

from stead.errors import BadInput
from stead.graph import Graph, Operator
from stead.readers import read, reader_of
from stead.readers.base import Model
from stead.readers.common.tied_weights import ALL_REDUCE
from stead.readers.hf import HuggingFace
from stead.readers.hf.training import ADAM_FLOPS, ADAM_TRAFFIC

DECODE = HuggingFace(context=10)


def made(values: Values, reader: HuggingFace | None = None) -> Graph:
    """The graph of a configuration."""
    return (reader or HuggingFace()).from_config(values).graph


def operator(graph: Graph, name: str) -> Operator:
    """An operator by name."""
    return graph.operator(graph.index(name))


def weights(graph: Graph) -> dict[str, int]:
    """Bytes of all weights by name."""
    return dict(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True))


def users(graph: Graph, weight: str) -> list[str]:
    """The operators that use a weight."""
    w = graph.weight_names.index(weight)
    first, last = graph.weight_user_first[w : w + 2]
    return [graph.operator_names[v] for v in graph.weight_users[first:last]]


# What is in a graph


def test_a_layer_has_the_modules_of_transformers_in_the_order_they_run() -> None:
    graph = made(small("llama"))
    inside = [name for name in graph.operator_names if name.startswith("model.layers.1.")]
    assert inside == [
        f"model.layers.1.{name}"
        for name in (
            "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn",
            "self_attn.o_proj", "attention_add", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj",
            "mlp.act_fn", "mlp.down_proj", "mlp_add",
        )
    ]  # fmt: skip
    outside = [name for name in graph.operator_names if ".layers." not in name]
    assert outside == ["model.embed_tokens", "model.norm", "lm_head"]


def test_sums_belong_to_the_module_whose_forward_adds() -> None:
    assert operator(made(small("llama")), "model.layers.0.mlp_add").module == "model.layers.0"


def test_the_residual_stream_is_one_tensor_with_two_readers() -> None:
    graph = made(small("llama"))
    (written,) = operator(graph, "model.layers.0.mlp_add").writes
    readers = [graph.operator_names[v] for v in graph.tensor(written).readers]
    assert readers == ["model.layers.1.input_layernorm", "model.layers.1.attention_add"]
    assert graph.tensor(written).shape == (1, 1, 64)


def test_rotary_tables_go_with_the_embedding() -> None:
    assert dict(made(small("llama")).folded) == {"model.rotary_emb": "model.embed_tokens"}


def test_a_tied_head_shares_one_weight_with_the_embedding() -> None:
    graph = made(small("qwen3"))
    assert users(graph, "model.embed_tokens.weight") == ["model.embed_tokens", "lm_head"]
    assert "lm_head.weight" not in graph.weight_names


def test_what_a_model_returns_is_kept() -> None:
    graph = made(small("llama"), HuggingFace(batch=3))
    kept = [tensor for tensor in graph.tensors() if tensor.kept]
    assert [(tensor.name, tensor.shape, tensor.size_bytes) for tensor in kept] == [
        ("lm_head", (3, 1, 128), 768)
    ]


@pytest.mark.parametrize(("name", "architecture"), SMALL_CLASSES)
@pytest.mark.parametrize("phase", ["infer", "prefill", "train"])
def test_every_architecture_is_one_connected_computation(name: str, architecture: str, phase: Any) -> None:
    graph = made(small(name, architecture), HuggingFace(phase=phase))
    idle = (graph.flops == 0) & (graph.moved_bytes == 0)
    unread = [
        tensor.name
        for tensor in graph.tensors()
        if not tensor.readers and not tensor.kept and not idle[tensor.producer]
    ]
    # The tower of LLaVA ends in a norm that nobody reads: an earlier layer's result is wanted.
    for_nobody = ["post_layernorm"] if name == "llava" and phase != "infer" else []
    assert [tensor.rpartition(".")[2] for tensor in unread] == for_nobody
    assert any(tensor.kept for tensor in graph.tensors())


# Costs of one decoded token


def test_a_projection_reads_its_weight_and_a_row_and_writes_a_row() -> None:
    found = operator(made(small("llama")), "model.layers.0.self_attn.q_proj")
    assert found.flops == 2 * 64 * 64
    assert found.moved_bytes == 64 * 64 * 2 + 64 * 2 + 64 * 2
    assert found.parameter_bytes == 64 * 64 * 2


def test_attention_reads_the_cache_that_lies_beside_it() -> None:
    graph = made(small("llama"), DECODE)
    found = operator(graph, "model.layers.0.self_attn")
    cache = 10 * 2 * 2 * 16 * 2  # tokens, keys and values, shared heads, width, bytes
    assert weights(graph)["model.layers.0.self_attn.kv_cache"] == cache
    assert users(graph, "model.layers.0.self_attn.kv_cache") == ["model.layers.0.self_attn"]
    assert found.moved_bytes == cache + (64 + 32 + 32 + 64) * 2
    # scores and mixing, softmax, rotation of queries and keys
    assert found.flops == 2 * 4 * 10 * (16 + 16) + 8 * 4 * 10 + 3 * (4 + 2) * 16


def test_a_context_of_nothing_is_an_empty_cache() -> None:
    graph = made(small("llama"), HuggingFace(context=0))
    assert (graph.kv_cache_bytes, graph.is_kv_cache.any()) == (0, False)


def test_decoding_looks_back_at_4096_tokens_or_what_the_model_takes_and_says_so() -> None:
    def found(values: Values) -> tuple[int, str]:
        model = HuggingFace().from_config(values)
        return model.graph.kv_cache_bytes // (3 * 2 * 2 * 16 * 2), model.notes[0]

    tokens, note = found(small("llama"))
    assert (tokens, "context 4096 (default; --context N)" in note) == (4096, True)
    tokens, note = found({**small("llama"), "max_position_embeddings": 512})
    assert (tokens, "context 512 (default; --context N)" in note) == (512, True)
    assert "context 10," in DECODE.from_config(small("llama")).notes[0]


def test_caches_are_told_from_parameters() -> None:
    graph = made(small("llama"), DECODE)
    assert graph.kv_cache_bytes == 3 * 1280
    assert int(graph.weight_bytes[~graph.is_kv_cache].sum()) == 217_984


def test_a_window_limits_the_cache() -> None:
    graph = made(small("mistral"), HuggingFace(context=100))
    assert weights(graph)["model.layers.0.self_attn.kv_cache"] == 8 * 2 * 2 * 16 * 2


def test_layers_with_and_without_a_window_take_turns() -> None:
    caches = weights(made(small("gemma2"), HuggingFace(context=100)))
    tokens = [caches[f"model.layers.{i}.self_attn.kv_cache"] // (2 * 2 * 32 * 2) for i in range(3)]
    assert tokens == [8, 100, 8]


def test_a_batch_multiplies_caches_and_rows_but_not_weights() -> None:
    one, four = (made(small("llama"), replace(DECODE, batch=batch)) for batch in (1, 4))
    assert weights(four)["model.layers.0.self_attn.kv_cache"] == 4 * 1280
    name = "model.layers.0.mlp.down_proj"
    assert operator(four, name).flops == 4 * operator(one, name).flops
    assert operator(four, name).parameter_bytes == operator(one, name).parameter_bytes


def test_with_weights_alone_moved_bytes_are_those_of_weights_and_caches() -> None:
    graph = made(small("llama"), HuggingFace(context=10, traffic="weights"))
    tables = operator(graph, "model.embed_tokens").parameter_bytes
    assert graph.moved_bytes.sum() == sum(graph.weight_bytes.tolist()) - tables


def test_looking_up_moves_rows_and_not_the_table() -> None:
    found = operator(made(small("llama"), HuggingFace(batch=3)), "model.embed_tokens")
    assert (found.flops, found.moved_bytes, found.parameter_bytes) == (0, 2 * 3 * 64 * 2, 128 * 64 * 2)


@pytest.mark.parametrize(
    ("dtype", "factor"), [("fp32", 2), ("float32", 2), ("fp16", 1), ("int8", 0.5), ("int4", 0.25)]
)
def test_weights_have_the_wanted_type(dtype: str, factor: float) -> None:
    plain, other = (made(LLAMA_7B, HuggingFace(context=0, dtype=one)) for one in ("", dtype))
    assert sum(other.weight_bytes.tolist()) == factor * sum(plain.weight_bytes.tolist())


def test_narrow_weights_compute_in_bf16() -> None:
    graph = made(small("llama"), HuggingFace(dtype="int4", context=10))
    assert set(graph.dtypes) == {"bf16"}
    assert weights(graph)["model.layers.0.self_attn.kv_cache"] == 1280


def test_the_type_is_that_of_the_configuration_or_bf16() -> None:
    assert set(made({**small("llama"), "torch_dtype": "float16"}).dtypes) == {"fp16"}
    assert set(made({**small("llama"), "dtype": "float32"}).dtypes) == {"fp32"}
    assert set(made(small("llama")).dtypes) == {"bf16"}


# Prompts


def test_a_prompt_of_2048_tokens_takes_29_teraflop_in_llama_7b() -> None:
    graph = made(LLAMA_7B, HuggingFace(phase="prefill", context=2048))
    assert graph.flops.sum() == pytest.approx(29.26e12, rel=0.01)


def test_a_prompt_fills_the_cache() -> None:
    graph = made(small("llama"), HuggingFace(phase="prefill", context=10))
    assert weights(graph)["model.layers.0.self_attn.kv_cache"] == 1280
    assert graph.tensor(operator(graph, "lm_head").writes[0]).shape == (1, 10, 128)


def test_a_prompt_without_a_length_has_what_the_model_takes_up_to_2048() -> None:
    def tokens(values: Values) -> int:
        graph = made(values, HuggingFace(phase="prefill"))
        return graph.tensor(0).shape[1]

    assert tokens(LLAMA_7B) == 2048
    assert tokens(small("gpt2")) == 64
    assert tokens(small("roberta")) == 64  # two of its 66 positions are never used


# Experts


@pytest.mark.parametrize(
    ("groups", "inside"),
    [
        (1, ["gate", "experts"]),
        (2, ["gate", "experts.0-1", "experts.2-3", "combine"]),
        (4, ["gate", "experts.0", "experts.1", "experts.2", "experts.3", "combine"]),
    ],
)
def test_the_experts_of_a_layer_are_one_operator_or_equal_groups(groups: int, inside: list[str]) -> None:
    graph = made(small("mixtral"), HuggingFace(expert_groups=groups))
    names = [name for name in graph.operator_names if "layers.0.mlp." in name]
    assert [name.removeprefix("model.layers.0.mlp.") for name in names] == inside
    assert {graph.modules[graph.index(name)] for name in names if "experts" in name} == {
        "model.layers.0.mlp.experts"
    }
    held = [size for name, size in weights(graph).items() if "layers.0.mlp.experts" in name]
    assert (len(held), sum(held)) == (2 * groups, 4 * 3 * 64 * 96 * 2)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_one_token_reads_and_launches_as_many_experts_as_it_uses(groups: int) -> None:
    graph = made(small("mixtral"), HuggingFace(traffic="weights", expert_groups=groups))
    own = [v for v, name in enumerate(graph.operator_names) if "layers.0.mlp.experts" in name]
    assert graph.moved_bytes[own].sum() == 2 * 3 * 64 * 96 * 2
    assert sum(graph.kernels_of(v)[0].launches for v in own) == 2


def test_many_tokens_read_nearly_all_experts_and_work_with_two_each() -> None:
    graph = made(small("mixtral"), HuggingFace(traffic="weights", batch=3, expert_groups=4))
    found = operator(graph, "model.layers.0.mlp.experts.0")
    assert found.moved_bytes == (1 - 0.5**3) * found.parameter_bytes
    assert found.flops == 1.5 * (6 * 64 * 96 + 6 * 96)  # tokens, three products, function and gate


def test_an_expert_reads_and_writes_the_rows_of_its_tokens_only() -> None:
    graph = made(small("mixtral"), HuggingFace(phase="prefill", context=32, expert_groups=4))
    found = operator(graph, "model.layers.0.mlp.experts.0")
    read = (1 - 0.5**32) * found.parameter_bytes
    assert found.moved_bytes == pytest.approx(read + 2 * 16 * 64 * 2)  # half of 32 tokens, in and out


def test_groups_of_experts_must_be_equal() -> None:
    with pytest.raises(
        BadInput, match="4 experts do not fall into 3 equal groups; take expert_groups 1, 2 or 4"
    ):
        made(small("mixtral"), HuggingFace(expert_groups=3))


def test_a_narrow_cache_holds_one_vector_for_keys_and_values() -> None:
    graph = made(small("deepseek_v3"), DECODE)
    assert weights(graph)["model.layers.0.self_attn.kv_cache"] == 10 * (16 + 8) * 2


def test_a_shared_expert_works_for_every_token_and_some_layers_are_dense() -> None:
    graph = made(small("qwen2_moe"))
    assert operator(graph, "model.layers.0.mlp.shared_expert.up_proj").flops == 2 * 64 * 56
    assert "model.layers.1.mlp.experts" not in graph.operator_names
    assert operator(graph, "model.layers.1.mlp.up_proj").parameter_bytes == 64 * 96 * 2


# Encoders, and decoders behind them


def test_an_encoder_runs_its_longest_input() -> None:
    model = HuggingFace().from_config(small("bert"))
    assert "prefill: 1 sequence, context 64 (default; --context N)" in model.notes[0]
    assert not [name for name in model.graph.weight_names if name.endswith("kv_cache")]


def test_while_the_decoder_writes_the_encoder_only_needs_room() -> None:
    graph = made(small("t5"), HuggingFace(context=10))
    idle = [graph.operator(v) for v, name in enumerate(graph.operator_names) if name.startswith("encoder.")]
    assert {(one.flops, one.moved_bytes, one.reads, one.writes) for one in idle} == {(0, 0, (), ())}
    assert operator(graph, "encoder.block.0.layer.0.SelfAttention.q").parameter_bytes == 64 * 64 * 2


def test_keys_of_the_source_are_made_once_and_kept() -> None:
    graph = made(small("t5"), HuggingFace(context=10))
    cross = "decoder.block.0.layer.1.EncDecAttention"
    assert operator(graph, f"{cross}.k").flops == 0
    assert operator(graph, f"{cross}.q").flops == 2 * 64 * 64
    assert weights(graph)[f"{cross}.kv_cache"] == 10 * 2 * 4 * 16 * 2
    prompt = made(small("t5"), HuggingFace(context=10, phase="prefill"))
    assert operator(prompt, f"{cross}.k").flops == 10 * 2 * 64 * 64


def test_all_users_of_a_shared_table_share_one_weight() -> None:
    found = users(made(small("t5")), "shared.weight")
    assert found == ["encoder.embed_tokens", "decoder.embed_tokens", "lm_head"]


@pytest.mark.parametrize("name", ["bart", "mbart", "pegasus", "marian"])
def test_kin_of_bart_decode_with_an_idle_encoder_and_two_caches_per_layer(name: str) -> None:
    graph = made(small(name), DECODE)
    caches = [size for label, size in weights(graph).items() if label.endswith("kv_cache")]
    assert caches == [10 * 2 * 64 * 2] * 6  # tokens, keys and values, width, bytes: of itself and of the encoder
    path = "model.encoder.layers.1.fc1"
    assert operator(graph, path).flops == operator(graph, path).moved_bytes == 0
    assert weights(graph)[f"{path}.weight"] == 64 * 96 * 2
    assert users(graph, "model.shared.weight") == [
        "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head",
    ]  # fmt: skip
    assert weights(graph)["final_logits_bias.buffer"] == 128 * 2


def test_whisper_looks_at_its_whole_window_of_sound() -> None:
    caches = weights(made(small("whisper"), HuggingFace(context=5)))
    assert caches["model.decoder.layers.0.encoder_attn.kv_cache"] == 50 * 2 * 4 * 16 * 2
    assert caches["model.decoder.layers.0.self_attn.kv_cache"] == 5 * 2 * 4 * 16 * 2


def test_an_image_is_cut_into_patches_and_a_class_token() -> None:
    graph = made(small("vit"))
    assert graph.tensor(operator(graph, "vit.embeddings.patch_embeddings.projection").writes[0]).shape == (
        1,
        16,
        32,
    )
    assert graph.tensor(operator(graph, "vit.embeddings.add").writes[0]).shape == (1, 17, 32)
    assert graph.tensor(operator(graph, "classifier").writes[0]).shape == (1, 2)


def test_a_vision_tower_and_a_language_model_are_one_graph() -> None:
    graph = made(small("llava"), HuggingFace(phase="prefill", context=20))
    merge = operator(graph, "model.merge_image_features")
    producers = [graph.operator_names[graph.tensor(t).producer] for t in merge.reads]
    assert producers == ["model.multi_modal_projector.linear_2", "model.language_model.embed_tokens"]
    image = graph.tensor(operator(graph, "model.multi_modal_projector.linear_2").writes[0])
    assert image.shape == (1, 16, 64)  # the class token is dropped
    last_used = graph.tensor(operator(graph, "model.multi_modal_projector.linear_1").reads[0])
    assert graph.operator_names[last_used.producer] == "model.vision_tower.encoder.layers.1.mlp_add"


def test_the_tower_is_idle_while_tokens_are_written() -> None:
    graph = made(small("llava"))
    assert operator(graph, "model.vision_tower.encoder.layers.0.mlp.fc1").moved_bytes == 0
    assert "model.merge_image_features" not in graph.operator_names
    assert operator(graph, "model.language_model.layers.0.mlp.up_proj").moved_bytes > 0


# Training


def test_training_keeps_weights_gradients_and_two_moments() -> None:
    graph = made(small("llama"), HuggingFace(phase="train", context=8))
    plain = sum(made(small("llama"), HuggingFace(context=0)).weight_bytes.tolist())
    assert sum(graph.weight_bytes.tolist()) == 4 * plain


def test_going_backward_takes_twice_the_arithmetic() -> None:
    graph = made(small("llama"), HuggingFace(phase="train", context=8))
    forward, backward = (operator(graph, f"lm_head{suffix}") for suffix in ("", ".backward"))
    assert backward.flops == 2 * forward.flops
    assert (backward.phase, backward.twin) == ("backward", forward.index)
    assert operator(graph, "lm_head.update").phase == "update"


def test_an_operator_its_gradient_and_its_update_share_a_device() -> None:
    graph = made(small("gpt2"), HuggingFace(phase="train", context=8))
    names = (
        "transformer.h.0.mlp.c_fc",
        "transformer.h.0.mlp.c_fc.backward",
        "transformer.h.0.mlp.c_fc.update",
    )
    assert len({operator(graph, name).colocation for name in names}) == 1


def test_the_uses_of_a_tied_weight_need_not_share_a_device() -> None:
    graph = made(small("gpt2"), HuggingFace(phase="train", context=8))
    weight = "transformer.wte.weight"
    groups = []
    for use in ("transformer.wte", "lm_head"):
        names = (use, f"{use}.backward", f"{weight}.sum@{use}", f"{weight}.update@{use}")
        groups.append({operator(graph, name).colocation for name in names})
    assert [len(group) for group in groups] == [1, 1]
    assert groups[0] != groups[1]
    assert {"transformer.wte", "lm_head", f"{weight}.update@lm_head"} <= set(users(graph, weight))


def test_the_shares_of_an_update_are_one_update_together() -> None:
    graph = made(small("gpt2"), HuggingFace(phase="train", context=8))
    weight = "transformer.wte.weight"
    shares = [operator(graph, f"{weight}.update@{use}") for use in ("transformer.wte", "lm_head")]
    assert sum(share.moved_bytes for share in shares) == ADAM_TRAFFIC * weights(graph)[weight]
    assert sum(share.flops for share in shares) == ADAM_FLOPS * weights(graph)[weight] / 2  # bf16
    assert {share.moved_bytes for share in shares} == {shares[0].moved_bytes}


def test_a_tied_weight_is_summed_up_in_the_update_and_weighs_what_its_gradient_weighs() -> None:
    graph = made(small("opt"), HuggingFace(phase="train", context=8))
    weight = "model.decoder.embed_tokens.weight"
    sent = [tensor for tensor in graph.tensors() if tensor.name.startswith(f"{weight}.gradient@")]
    assert [tensor.size_bytes for tensor in sent] == 2 * [weights(graph)[weight]]
    for tensor in sent:
        assert graph.operator(tensor.producer).phase == "update"
        assert graph.operator(tensor.producer).kind == ALL_REDUCE


def test_encoder_decoder_and_head_of_a_t5_update_a_third_each() -> None:
    graph = made(small("t5"), HuggingFace(phase="train", context=8))
    uses = ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
    shares = [operator(graph, f"shared.weight.update@{use}") for use in uses]
    assert [share.moved_bytes for share in shares] == 3 * [ADAM_TRAFFIC * weights(graph)["shared.weight"] / 3]
    assert len({share.colocation for share in shares}) == 3


def test_activations_wait_for_the_way_back() -> None:
    graph = made(small("llama"), HuggingFace(phase="train", context=8))
    normed = graph.tensor(operator(graph, "model.layers.0.input_layernorm").writes[0])
    readers = [graph.operator_names[v] for v in normed.readers]
    assert "model.layers.0.self_attn.q_proj.backward" in readers


# Coarser graphs


def test_blocks_are_embedding_layers_norm_and_head() -> None:
    graph = made(LLAMA_7B, HuggingFace(granularity="blocks"))
    layers = [f"model.layers.{i}" for i in range(32)]
    assert list(graph.operator_names) == ["model.embed_tokens", *layers, "model.norm", "lm_head"]
    assert graph.folded["model.layers.3.mlp.up_proj"] == "model.layers.3"


@pytest.mark.parametrize("name", ["llama", "mixtral", "t5", "llava", "bert"])
@pytest.mark.parametrize("phase", ["infer", "prefill", "train"])
def test_blocks_cost_what_their_operators_cost(name: str, phase: Any) -> None:
    fine, coarse = (
        made(small(name), HuggingFace(phase=phase, granularity=granularity))
        for granularity in ("layers", "blocks")
    )
    assert len(coarse) < len(fine) / 3
    assert coarse.flops.sum() == pytest.approx(fine.flops.sum())
    assert coarse.moved_bytes.sum() == pytest.approx(fine.moved_bytes.sum())
    assert sorted(coarse.weight_bytes.tolist()) == sorted(fine.weight_bytes.tolist())
    assert sum(tensor.kept for tensor in coarse.tensors()) == sum(tensor.kept for tensor in fine.tensors())


def test_a_block_of_training_and_its_way_back_share_a_device() -> None:
    graph = made(small("llama"), HuggingFace(phase="train", context=8, granularity="blocks"))
    names = ("model.layers.1", "model.layers.1.backward", "model.layers.1.update")
    assert len({operator(graph, name).colocation for name in names}) == 1
    assert operator(graph, "model.layers.1.backward").twin == graph.index("model.layers.1")


# Reading


def test_a_folder_with_a_configuration_is_a_model(here: Path) -> None:
    Path("tiny").mkdir()
    Path("tiny/config.json").write_text(json.dumps(small("llama")))
    model = read("tiny")
    assert model.graph == read("tiny/config.json").graph
    assert model.graph.name == "tiny"
    assert len(model.graph) == 3 * 13 + 3


def test_a_configuration_of_any_name_is_recognised_by_its_contents(save: Callable[..., str]) -> None:
    assert read(save(small("gpt2"), "gpt2-config.json")).graph.name == "gpt2"
    assert not HuggingFace().sniff(b'{"format": "stead.graph"}')
    assert not HuggingFace().sniff(b'\x00"model_type":')


def test_options_are_fields_of_the_reader(save: Callable[..., str]) -> None:
    path = save(small("llama"), "config.json")
    wanted = read(path, options={"batch": "2", "context": "10", "phase": "prefill"}).graph
    assert wanted == HuggingFace(batch=2, context=10, phase="prefill").read(path).graph
    assert wanted == replace(reader_of("huggingface"), batch=2, context=10, phase="prefill").read(path).graph  # type: ignore[type-var]


def test_notes_say_what_was_assumed() -> None:
    first, *rest = DECODE.from_config(small("mixtral")).notes
    assert first == (
        "mixtral, decode: one token for 1 sequence, context 10, bf16; computed from the configuration"
    )
    assert "experts are counted as if all were equally likely to be used" in rest


def test_a_large_model_takes_a_fraction_of_a_second_and_no_other_package(here: Path) -> None:
    values = {**LLAMA_7B, "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
              "intermediate_size": 28672, "num_key_value_heads": 8}  # fmt: skip
    Path("config.json").write_text(json.dumps(values))
    code = (
        "import sys, stead; graph = stead.read('config.json').graph; "
        "print(len(graph), *{'torch', 'transformers', 'safetensors'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1043"]
    started = time.process_time()
    HuggingFace().read("config.json")
    assert time.process_time() - started < 1


# Weights beside the configuration


def tensor_file(path: str, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """A safetensors file with a header and nothing else."""
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
        for name, (dtype, shape) in tensors.items()
    }
    data = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    Path(path).write_bytes(len(data).to_bytes(8, "little") + data)


@pytest.fixture
def tiny(here: Path) -> Path:
    """A folder with a configuration, which is the current one."""
    Path("config.json").write_text(json.dumps(small("llama")))
    return here


def test_files_tell_the_shapes_of_weights(tiny: Path) -> None:
    tensor_file("model.safetensors", {"model.embed_tokens.weight": ("F32", [160, 64])})  # padded
    model = read("config.json")
    assert weights(model.graph)["model.embed_tokens.weight"] == 160 * 64 * 4  # nothing else tells the type
    assert "1 of 30 parameters are sized after the safetensors files" in model.notes
    assert (
        weights(HuggingFace(dtype="bf16").read("config.json").graph)["model.embed_tokens.weight"] == 160 * 64 * 2
    )


def test_quantised_matrices_come_in_several_tensors(tiny: Path) -> None:
    path = "model.layers.0.self_attn.q_proj"
    tensor_file(
        "model.safetensors",
        {
            f"{path}.qweight": ("I32", [8, 64]),
            f"{path}.scales": ("F16", [1, 64]),
            f"{path}.bias": ("F16", [64]),
        },
    )
    found = weights(HuggingFace(dtype="fp16").read("config.json").graph)
    assert found[f"{path}.weight"] == 8 * 64 * 4 + 64 * 2
    assert found["model.layers.1.self_attn.q_proj.weight"] == 64 * 64 * 2


def test_experts_in_files_are_found_by_their_old_names(here: Path) -> None:
    Path("config.json").write_text(json.dumps(small("mixtral")))
    path = "model.layers.0.block_sparse_moe.experts.1"
    tensor_file(
        "model.safetensors", {f"{path}.{one}.weight": ("F8_E4M3", [96, 64]) for one in ("w1", "w2", "w3")}
    )
    found = weights(read("config.json", options={"expert_groups": 4}).graph)
    together = weights(read("config.json").graph)
    assert together["model.layers.0.mlp.experts.down_proj"] == 3 * 96 * 64 * 2 + 96 * 64
    assert found["model.layers.0.mlp.experts.gate_up_proj[1]"] == 2 * 96 * 64
    assert found["model.layers.0.mlp.experts.down_proj[1]"] == 96 * 64
    assert found["model.layers.0.mlp.experts.down_proj[0]"] == 96 * 64 * 2


def test_an_index_leads_to_several_files_and_missing_ones_are_told(tiny: Path) -> None:
    tensor_file("a.safetensors", {"lm_head.weight": ("BF16", [130, 64])})
    index = {"weight_map": {"lm_head.weight": "a.safetensors", "model.norm.weight": "b.safetensors"}}
    Path("model.safetensors.index.json").write_text(json.dumps(index))
    model = read("config.json")
    assert weights(model.graph)["lm_head.weight"] == 130 * 64 * 2
    assert (
        "1 files that model.safetensors.index.json names are not there, such as b.safetensors" in model.notes
    )


def test_pickled_weights_are_left_alone_and_told(tiny: Path) -> None:
    Path("pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    model: Model = read("config.json")
    assert model.notes[-1] == "pytorch_model.bin: pickled weights are never opened, safetensors only"
