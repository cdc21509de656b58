"""Several models in one graph."""

from __future__ import annotations

import numpy as np
import pytest
from hf_configs import small

from stead.cluster import Cluster, Device, link_all
from stead.costs import Given, Roofline
from stead.errors import BadInput
from stead.problem import Latency, Placement, Problem
from stead.readers.base import Model
from stead.readers.hf import HuggingFace, joined
from stead.sim import simulate
from stead.solvers import Budget, solver
from stead.testing import chain3

VISION = HuggingFace().from_config(small("vit", "ViTModel"), name="eye")
TEXT = HuggingFace(phase="prefill", context=20).from_config(small("llama"), name="mouth")


def both() -> Model:
    """A tower whose pooled result the embedding of a language model waits for."""
    return joined(
        {"vision": VISION, "text": TEXT}, links=[("vision.pooler.activation", "text.model.embed_tokens")]
    )


def test_names_and_modules_have_the_model_in_front() -> None:
    graph = both().graph
    assert graph.name == "vision+text"
    assert graph.modules[graph.index("text.model.layers.0.mlp_add")] == "text.model.layers.0"
    assert "vision.layers.0.mlp.fc1.weight" in graph.weight_names
    assert graph.folded["text.model.rotary_emb"] == "text.model.embed_tokens"


def test_nothing_is_lost_or_counted_twice() -> None:
    graph, parts = both().graph, (VISION.graph, TEXT.graph)
    assert len(graph) == sum(len(part) for part in parts)
    assert graph.flops.sum() == pytest.approx(sum(part.flops.sum() for part in parts))
    assert sum(graph.weight_bytes.tolist()) == sum(sum(part.weight_bytes.tolist()) for part in parts)


def test_a_link_is_a_tensor_that_the_other_model_reads() -> None:
    graph = both().graph
    read = graph.operator(graph.index("text.model.embed_tokens")).reads
    assert [graph.tensor_names[t] for t in read] == ["vision.pooler.activation"]


def test_without_links_the_models_run_side_by_side() -> None:
    graph = joined({"a": chain3().graph, "b": chain3().graph}).graph
    assert graph.edges.tolist() == [[0, 1], [1, 2], [3, 4], [4, 5]]


def test_notes_say_which_model_they_are_about() -> None:
    assert [note.partition(":")[0] for note in both().notes[:2]] == ["vision", "text"]


def test_training_graphs_keep_their_twins_and_groups() -> None:
    one = HuggingFace(phase="train", context=4).from_config(small("gpt2"))
    graph = joined({"a": one, "b": one}).graph
    back = graph.operator(graph.index("b.lm_head.backward"))
    assert graph.operator_names[back.twin] == "b.lm_head"
    assert back.colocation == "b.lm_head"


def test_two_models_are_placed_on_two_devices_at_once() -> None:
    graph = joined({"a": TEXT, "b": TEXT}).graph
    devices = tuple(
        Device(name, memory_bytes=10**9, bytes_per_second=1e9, flops_per_second={"bf16": 1e9})
        for name in ("x", "y")
    )
    cluster = Cluster(devices, link_all(["x", "y"], bytes_per_second=1e6, latency_seconds=1.0))
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())
    alone = simulate(problem, solver("single").solve(problem, Budget()).placement).objective_seconds
    split = np.array([name.startswith("b.") for name in graph.operator_names], dtype=np.uint8)
    assert simulate(problem, Placement(problem, split)).objective_seconds == pytest.approx(alone / 2)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([("a.c", "a.x")], "a link names operator 'a.x', which no model has"),
        ([("b.c", "a.a")], "a link names operator 'b.c', which no model has; did you mean 'a.c'"),
        ([("a.c", "a.a")], "the graph has a cycle"),
    ],
)
def test_links_that_make_no_sense_are_refused(links: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        joined({"a": chain3().graph}, links=links)


def test_models_with_seconds_of_their_own_are_refused() -> None:
    given = Given({"gpu": np.ones(3)})
    with pytest.raises(BadInput, match="model 'a' brings seconds of its own"):
        joined({"a": Model(chain3().graph, given)})
    with pytest.raises(BadInput, match="nothing to join"):
        joined({})
    with pytest.raises(BadInput, match="a model without a name"):
        joined({"": chain3().graph})
