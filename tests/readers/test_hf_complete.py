"""What a capture does not see is added: idle weights are held, and experts that sleep are not read."""

from __future__ import annotations

import pytest

from stead.cluster import cluster_from
from stead.costs import Roofline
from stead.graph import Graph, GraphBuilder
from stead.graph.kernels import Kernel
from stead.readers.hf.complete import IDLE, Mixture, is_of_experts, with_idle_weights, with_sleeping_experts


def decoder() -> Graph:
    """An embedding and a head, which is two kernels; 100 and 200 bytes of weights."""
    build = GraphBuilder("decoder")
    embed = build.operator("text.embed", module="text.embed", moved_bytes=4)
    parts = [Kernel(60, 150), Kernel(40, 50, 0.5)]
    read = build.tensor(embed, size_bytes=4)
    head = build.operator("head", module="head", reads=[read], flops=100, moved_bytes=200, kernels=parts)
    build.weight("text.embed.weight", size_bytes=100, users=[embed])
    build.weight("head.weight", size_bytes=200, users=[head])
    return build.build()


TOWER = {"vision.patch.weight": 7, "vision.patch.bias": 1, "vision.norm.weight": 3}


def test_an_idle_vision_tower_keeps_its_weights_one_operator_per_module() -> None:
    graph = with_idle_weights(decoder(), TOWER, {})
    assert graph.operator_names == ("text.embed", "head", "vision.patch", "vision.norm")
    assert graph.kinds[2:] == (IDLE, IDLE)
    assert graph.modules[2:] == ("vision.patch", "vision.norm")
    assert graph.parameter_bytes.tolist() == [100, 200, 8, 3]
    assert {name: TOWER[name] for name in graph.weight_names[2:]} == TOWER


def test_what_is_idle_costs_nothing_and_the_rest_what_it_did() -> None:
    before, graph = decoder(), with_idle_weights(decoder(), TOWER, {})
    cluster, _ = cluster_from("3090")
    seconds = [Roofline().costs(one, cluster).seconds[:, 0].tolist() for one in (before, graph)]
    assert seconds[1] == [*seconds[0], 0.0, 0.0]
    assert graph.kernels_of(graph.index("head")) == (Kernel(60, 150), Kernel(40, 50, 0.5))
    assert graph.kernels_of(graph.index("vision.patch")) == ()


def test_an_idle_operator_takes_a_name_that_is_free_and_weights_can_be_renamed() -> None:
    graph = with_idle_weights(decoder(), {"head.bias": 5, "scale": 2}, {"head.weight": "lm_head.weight"})
    assert graph.operator_names[2:] == ("head#2", "idle")
    assert graph.weight_names == ("text.embed.weight", "lm_head.weight", "head.bias", "scale")


def experts(kind: str) -> Graph:
    """A product with the weights of four experts, 4000 bytes, that moves 1000 bytes besides."""
    build = GraphBuilder("experts")
    product = build.operator("product", kind=kind, flops=800, moved_bytes=5000)
    build.weight("mlp.experts.down_proj", size_bytes=4000, users=[product])
    return build.build()


@pytest.mark.parametrize(
    ("kind", "tokens", "flops", "moved"),
    [
        ("aten.mm", 1, 800, 1000 + 1000),  # one of four is read
        ("aten.mm", 2, 800, 1000 + 4000 * 7 / 16),  # each is asleep with probability 9 / 16
        ("aten.bmm", 1, 200, 250 + 1000),  # the capture computes with all four, one counts
    ],
)
def test_experts_that_sleep_are_not_read(kind: str, tokens: int, flops: float, moved: float) -> None:
    counts = {"mlp.experts.down_proj": 4}
    graph = with_sleeping_experts(experts(kind), Mixture(used=1, tokens=tokens, counts=counts))
    assert (graph.flops[0], graph.moved_bytes[0]) == (flops, pytest.approx(moved))
    assert graph.parameter_bytes[0] == 4000


@pytest.mark.parametrize("used", [0, 4])
def test_where_all_experts_work_or_their_number_is_unknown_nothing_changes(used: int) -> None:
    mixture = Mixture(used=used, tokens=1, counts={"mlp.experts.down_proj": 4})
    assert with_sleeping_experts(experts("aten.mm"), mixture) == experts("aten.mm")


def test_shared_experts_and_routers_are_no_experts() -> None:
    assert is_of_experts("model.layers.0.mlp.experts.gate_up_proj")
    assert not is_of_experts("model.layers.0.mlp.shared_experts.gate_proj.weight")
    assert not is_of_experts("experts")
