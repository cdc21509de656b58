"""Mixtures of experts cost the same by experts, by groups of them, by modules and by blocks, on any one device."""

from __future__ import annotations

import pytest
from hf_configs import MIXTURES, QWEN3_30B_A3B, Values, small

from stead.cluster import cluster_from
from stead.costs import Roofline
from stead.formats.hf import HuggingFace
from stead.formats.hf.step import Phase

WITHIN = 0.05
QUARTERS = 4  # small mixtures have four experts, each its own quarter


def seconds(values: Values, reader: HuggingFace, card: str = "A100-80GB") -> float:
    """Of all operators one after another on one device."""
    cluster, _ = cluster_from(card)
    return float(Roofline().costs(reader.from_config(values).graph, cluster).seconds.sum())


def by_granularity(values: Values, phase: Phase, batch: int, experts: int, card: str) -> list[float]:
    """By experts, by quarters, by modules, by blocks."""
    cuts = (("layers", experts), ("layers", QUARTERS), ("layers", 1), ("blocks", 1))
    return [
        seconds(values, HuggingFace(batch, phase=phase, granularity=cut, expert_groups=groups), card)  # type: ignore[arg-type]
        for cut, groups in cuts
    ]


@pytest.mark.parametrize("card", ["A100-80GB", "cpu"])
@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("phase", ["decode", "prefill", "train"])
@pytest.mark.parametrize("name", MIXTURES)
def test_every_mixture_costs_the_same_at_every_granularity(
    name: str, phase: Phase, batch: int, card: str
) -> None:
    found = by_granularity(small(name), phase, batch, 4, card)
    assert max(found) <= (1 + WITHIN) * min(found)


@pytest.mark.parametrize(("phase", "batch"), [("decode", 1), ("decode", 64), ("prefill", 1)])
def test_qwen3_30b_a3b_costs_the_same_by_128_experts_and_by_blocks(phase: Phase, batch: int) -> None:
    found = by_granularity(QWEN3_30B_A3B, phase, batch, 128, "A100-80GB")
    assert max(found) <= (1 + WITHIN) * min(found)


def test_a_token_of_qwen3_30b_a3b_reads_eight_experts_of_every_layer() -> None:
    graph = HuggingFace(context=0, traffic="weights").from_config(QWEN3_30B_A3B).graph
    expert = 3 * 2048 * 768 * 2
    layer = graph.index("model.layers.7.mlp.experts")
    assert graph.parameter_bytes[layer] == 128 * expert
    assert graph.moved_bytes[layer] == pytest.approx(8 * expert)
    assert graph.kernels_of(layer)[0].launches == pytest.approx(8)
    # A batch of 64 wakes 128 (1 - (120/128)^64) = 125.94 of them.
    many = HuggingFace(batch=64, context=0, traffic="weights").from_config(QWEN3_30B_A3B).graph
    assert many.moved_bytes[layer] / expert == pytest.approx(125.942, abs=1e-3)


def test_on_one_card_it_takes_8_milliseconds_however_it_is_cut() -> None:
    # 6.5 GB of weights and caches at 2039 GB/s, and 21 launches of 5 microseconds in each of 48 layers
    assert seconds(QWEN3_30B_A3B, HuggingFace()) == pytest.approx(8.24e-3, rel=0.01)
