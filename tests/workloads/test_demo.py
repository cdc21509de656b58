"""The bundled model is what its description says."""

from __future__ import annotations

import time

import pytest

from stead.workloads import demo
from stead.workloads.demo import demo_graph


def test_weights_are_about_14_gigabytes():
    graph = demo_graph()
    sizes = dict(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True))
    caches = sum(size for name, size in sizes.items() if name.endswith(".kv_cache"))
    # 24 layers of 4 w^2 + 3 w h, two tables of v w, 49 norms of w, at 2 bytes; w = 4608, h = 12288, v = 96000
    assert sum(sizes.values()) - caches == 2 * (
        24 * (4 * 4608**2 + 3 * 4608 * 12288) + 2 * 96000 * 4608 + 49 * 4608
    )
    assert sum(sizes.values()) - caches == pytest.approx(14.0e9, rel=0.01)
    assert caches == 24 * 2 * 4 * 8192 * 4608 * 2


def test_it_needs_two_cards():
    total = sum(demo_graph().weight_bytes.tolist())
    assert 24 * 2**30 < total < 34 * 2**30


def test_it_has_modules_to_speak_of():
    graph = demo_graph()
    assert len(graph) == 24 * 9 + 3
    assert graph.operator(graph.index("layers.3.mlp.up")).module == "layers.3.mlp"
    assert len(set(graph.modules)) == 2 * 24 + 3


def test_attention_reads_only_what_was_said_so_far():
    graph = demo_graph()
    core = graph.operator(graph.index("layers.0.attention.core"))
    assert core.parameter_bytes == 4 * 2 * demo.CONVERSATIONS * 2048 * 4608 * 2
    assert core.moved_bytes == pytest.approx(core.parameter_bytes / 4, rel=0.01)


def test_a_product_has_two_flops_per_weight_and_conversation():
    graph = demo_graph()
    assert graph.operator(graph.index("layers.0.mlp.gate")).flops == 2 * 4 * 4608 * 12288


def test_only_the_scores_of_the_next_token_are_kept():
    graph = demo_graph()
    assert [tensor.name for tensor in graph.tensors() if tensor.kept] == ["head"]


def test_it_is_the_same_every_time_and_quickly_there():
    first = demo_graph()
    started = time.process_time()
    second = demo_graph()
    assert time.process_time() - started < 2  # 4 ms on an idle core
    assert first.fingerprint == second.fingerprint
