"""What a dispatched model holds beside its graph: masks, tables of positions, results that blocks keep."""

from __future__ import annotations

from typing import Any

import pytest

from stead.export.hf import HuggingFaceMap
from stead.export.hf_attention import attentions
from stead.export.hf_charges import ROOM
from stead.placing.loading import load
from stead.problem import Fifo, Latency, Priority, Problem, ProgramOrder, Throughput
from stead.readers.hf import HuggingFace

SIZES: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "torch_dtype": "float32",
}  # fmt: skip
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 128, "torch_dtype": "float32"}
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 128,
      "torch_dtype": "float32"}  # fmt: skip
TOKENS, STATE = 8, 8 * 64 * 4  # bytes of what a token stream is


def problem_of(kind: str, sizes: dict[str, Any] = SIZES, *, batch: int = 1, **more: Any) -> Problem:
    """A small model of a kind on two cards."""
    reader = HuggingFace(phase="prefill", context=TOKENS, batch=batch)
    return load(reader.from_config({"model_type": kind, **sizes, **more}), "2x 3090").problem(Latency())


def room_of(problem: Problem) -> int:
    """Bytes that are set aside on every card."""
    return int(HuggingFaceMap().charged(problem).cluster.devices[0].alias[ROOM])


@pytest.mark.parametrize(
    ("kind", "sizes", "more"),
    [
        ("llama", SIZES, {}),
        ("llama", SIZES, {"num_key_value_heads": 4}),
        ("qwen3", SIZES, {"head_dim": 16}),
        ("mistral", SIZES, {"sliding_window": 4}),
        ("phi3", SIZES, {}),
        ("gpt2", GPT2, {}),
        ("t5", T5, {}),
    ],
)
def test_attention_tells_how_wide_a_head_is(kind: str, sizes: dict[str, Any], more: dict[str, Any]) -> None:
    found = attentions(problem_of(kind, sizes, **more).graph)
    assert len(found) == (6 if kind == "t5" else 2)
    assert {one.head_width for one in found} == {16}


def test_one_sequence_has_a_mask_only_where_a_window_is_shorter() -> None:
    ids, tables, frequencies = 2 * 8 * TOKENS, 2 * TOKENS * 16 * 4, 2 * 8 * 4
    assert room_of(problem_of("llama")) == ids + tables + frequencies
    assert room_of(problem_of("gpt2", GPT2)) == ids
    assert room_of(problem_of("llama", batch=3)) == 3 * (ids + tables + 4 * TOKENS * TOKENS) + frequencies
    assert room_of(problem_of("mistral", sliding_window=TOKENS)) == ids + tables + frequencies
    assert room_of(problem_of("mistral", sliding_window=4)) == ids + tables + frequencies + 4 * TOKENS * TOKENS


def test_a_gate_and_a_way_up_in_one_tensor_are_there_beside_the_activated_gate() -> None:
    problem = problem_of("phi3")
    charged = HuggingFaceMap().charged(problem)
    wide = TOKENS * 128 * 4
    beside = [
        int(charged.costs.workspace_bytes[problem.graph.index(f"model.layers.1.mlp.{part}"), 0])
        for part in ("activation_fn", "gate_up_proj")
    ]
    assert beside[0] - beside[1] == wide + STATE  # and what the module was called with


def held_beside(problem: Problem, name: str) -> int:
    """Bytes that are charged with an operator that needs none itself, and was called with nothing that ended."""
    charged = HuggingFaceMap().charged(problem)
    return int(charged.costs.workspace_bytes[problem.graph.index(name), 0])


def test_a_block_keeps_what_was_looked_up_and_some_what_attention_returned() -> None:
    assert held_beside(problem_of("llama"), "model.layers.1.self_attn.q_proj") == STATE
    assert held_beside(problem_of("gpt2", GPT2), "transformer.h.1.attn.c_attn") == 3 * STATE  # two tables
    zeros = 4 * TOKENS * TOKENS * 4  # what attention to the encoder adds to its scores
    assert held_beside(problem_of("t5", T5), "encoder.block.1.layer.0.SelfAttention.q") == STATE  # its own table
    assert held_beside(problem_of("t5", T5), "decoder.block.1.layer.0.SelfAttention.q") == STATE + zeros


def test_distances_of_tokens_become_a_bias_when_queries_and_keys_are_there_already() -> None:
    charged = HuggingFaceMap().charged(problem_of("t5", T5))
    v = charged.graph.index("encoder.block.0.layer.0.SelfAttention.relative_attention_bias")
    bias = 4 * TOKENS * TOKENS * 4
    assert charged.costs.workspace_bytes[v, 0] == 49 * TOKENS * TOKENS + 8 * 2 * TOKENS - bias + 4 * STATE + STATE
    attention = [charged.graph.index(f"{part}.block.1.layer.0.SelfAttention") for part in ("encoder", "decoder")]
    first, second = (int(charged.costs.workspace_bytes[v, 0]) for v in attention)
    assert second - first == 2 * bias  # another copy, as it must not look ahead, and the zeros across


def test_modules_run_in_their_order_unless_the_user_says_otherwise() -> None:
    problem, target = problem_of("t5", T5), HuggingFaceMap()
    charged = target.charged(problem).objective
    assert isinstance(charged, Latency)
    assert isinstance(charged.policy, ProgramOrder)
    assert not charged.takes_orders
    chosen = Latency(policy=Priority())
    assert target.charged(problem.with_objective(chosen)).objective is chosen
    assert target.charged(problem.with_objective(Throughput())).objective == Throughput()
    assert isinstance(problem.objective, Latency)
    assert isinstance(problem.objective.policy, Fifo)
