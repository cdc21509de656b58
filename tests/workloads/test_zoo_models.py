"""The models of the zoo: they have the published sizes, compute what their papers say, and become graphs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_zoo import TINY, tiny

from stead.errors import BadInput
from stead.graph import PHASES, Graph
from stead.workloads import Spec, get, names, parse
from stead.workloads import graph_cache as cache

torch = pytest.importorskip("torch", reason="models of the zoo need torch")

# torch warns about its own plans when it exports
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)

SLOW = pytest.mark.slow
LIKE_OTHERS = ("nasnet",)  # the code of amoebanet with another list of cells
FAMILIES = [pytest.param(family, marks=[SLOW] * (family in LIKE_OTHERS)) for family in TINY]
UPDATE = PHASES.index("update")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny tensors are slower on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.cache
def captured(family: str, mode: str = "inference") -> Graph:
    """The graph of a tiny model; capturing all of them takes half a minute, so nobody does it twice."""
    return tiny(family, mode=mode).capture()


def built(family: str, **options: object) -> tuple[object, tuple[object, ...], object]:
    return tiny(family, **options).torch(device="cpu")  # type: ignore[arg-type]


# Sizes


@pytest.mark.parametrize("name", names())
def test_the_catalogue_counts_the_parameters_of_the_model(name: str) -> None:
    spec = parse(name)
    module, _, _ = spec.torch()
    counted = sum(parameter.numel() for parameter in module.parameters())
    assert cache.catalogue()[spec.fingerprint].parameters == counted


def test_parameters_of_translation_follow_from_its_layers() -> None:
    module, _, _ = parse("gnmt-4").torch()
    h, v = 1024, 32_000
    cells = (
        2 * 2 * h + 3 * h + 2 * 2 * h + 4 * 3 * h
    )  # inputs and states: both ways, 3 further layers, decoder
    attention = h * h + h * h + h  # keys, queries, scores
    expected = 2 * v * h + 4 * h * cells + 9 * 4 * h + attention + v * h + v
    assert sum(parameter.numel() for parameter in module.parameters()) == expected


# What they compute


@pytest.mark.parametrize("family", ["rnnlm", "rnnlm_fused", "transformer_xl", "wavenet", "gpt2", "llama"])
def test_nobody_looks_ahead(family: str) -> None:
    module, (words,), _ = built(family)
    before = module(words)
    other = words.clone()
    other[:, -1] = (other[:, -1] + 1) % int(words.max() + 1)
    changed = (module(other) - before).abs().amax(dim=(0, 2))
    assert changed[:-1].max() < 1e-6
    assert changed[-1] > 1e-6


@pytest.mark.parametrize("family", ["gnmt", "t5"])
def test_a_translation_looks_at_all_of_the_source_and_only_back_in_the_target(family: str) -> None:
    module, (source, target), _ = built(family)
    before = module(source, target)
    other = target.clone()
    other[:, -1] = (other[:, -1] + 1) % 11
    changed = (module(source, other) - before).abs().amax(dim=(0, 2))
    assert changed[:-1].max() < 1e-6
    assert changed[-1] > 1e-6
    source = source.clone()
    source[:, -1] = (source[:, -1] + 1) % 11
    assert (module(source, target) - before).abs().amax(dim=(0, 2)).min() > 1e-7


def test_segments_remember_the_one_before() -> None:
    module, (words,), _ = built("transformer_xl")
    before = module(words)
    other = words.clone()
    other[:, 0] = (other[:, 0] + 1) % 13
    changed = (module(other) - before).abs().amax(dim=(0, 2))
    assert changed[4:8].min() > 1e-7  # the second segment of 4


def test_relative_scores_are_those_of_the_distance() -> None:
    from stead.workloads.models.transformer_xl import _shifted

    length, reach = 3, 5
    scores = torch.arange(length * reach, dtype=torch.float32).view(1, 1, length, reach)
    shifted = _shifted(scores)
    for i in range(length):
        for j in range(reach - length + i + 1):  # column c stands for the distance reach - 1 - c
            assert shifted[0, 0, i, j] == scores[0, 0, i, length - 1 - i + j]


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "mixtral", "vit"])
def test_attention_in_one_operator_computes_the_same(family: str) -> None:
    eager, inputs, _ = built(family, attention="eager")
    fused, _, _ = built(family, attention="fused")
    fused.load_state_dict(eager.state_dict())
    assert torch.allclose(eager(*inputs), fused(*inputs), atol=1e-5)


def test_experts_with_room_for_all_words_are_the_weighted_sum_of_two() -> None:
    from stead.workloads.models.mixtral import Experts

    torch.manual_seed(0)
    layer = Experts(width=8, inner=12, experts=4, chosen=2, slack=2.0)
    x = torch.randn(2, 5, 8)
    words = x.view(10, 8)
    best, which = layer.router(words).topk(2)
    shares = best.softmax(-1)
    expected = torch.stack(
        [
            sum(share * layer.experts[int(e)](word) for share, e in zip(row, chosen, strict=True))
            for word, row, chosen in zip(words, shares, which, strict=True)
        ]
    )
    assert torch.allclose(layer(x).view(10, 8), expected, atol=1e-5)


def test_experts_take_no_more_words_than_their_capacity() -> None:
    graph = captured("mixtral")
    gates = [v for v in range(len(graph)) if graph.modules[v] == "layers.0.feed_forward.experts.1.gate"]
    shapes = [graph.tensor_shapes[graph.tensor_first[v]] for v in gates]
    assert shapes == [(8, 12)]  # 2 of 4 experts for 2 x 6 words: 6 each, and a quarter more


def test_every_expert_is_an_operator_of_its_own() -> None:
    experts = {unit for unit in tiny("mixtral").units(captured("mixtral")) if ".experts." in unit}
    assert len(experts) == 2 * 4


def test_the_same_seed_gives_the_same_weights_and_inputs_and_spares_the_global_state() -> None:
    state = torch.random.get_rng_state()
    first, (words, _), _ = tiny("gnmt").torch(device="cpu", seed=3)
    again, (same, _), _ = tiny("gnmt").torch(device="cpu", seed=3)
    assert torch.equal(words, same)
    assert torch.equal(first.projection.weight, again.projection.weight)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_nothing_is_allocated_on_meta() -> None:
    module, inputs, loss = parse("llama-70b").torch()
    assert {tensor.device.type for tensor in (*module.parameters(), *inputs, loss.targets)} == {"meta"}


def test_numbers_have_the_type_that_is_asked_for() -> None:
    module, (pictures,), _ = tiny("vit", dtype="bf16").torch()
    assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}
    assert pictures.dtype == torch.bfloat16


def test_sizes_that_do_not_go_together_are_told() -> None:
    with pytest.raises(BadInput, match="mixtral"):
        get("mixtral", **{**TINY["mixtral"], "chosen": 9}).capture()


# Graphs


@pytest.mark.parametrize("family", FAMILIES)
def test_an_inference_graph_holds_the_weights_once(family: str) -> None:
    graph = captured(family)
    module, _, _ = tiny(family).torch()
    held = sum(tensor.numel() * tensor.itemsize for tensor in module.parameters())
    buffers = sum(tensor.numel() * tensor.itemsize for tensor in module.buffers())
    assert held <= graph.weight_bytes.sum() <= held + buffers
    assert not graph.is_training
    assert graph.flops.sum() > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_training_graph_has_all_phases_and_dropout(family: str) -> None:
    spec, graph = tiny(family, mode="training"), captured(family, "training")
    assert set(graph.phases.tolist()) == {0, 1, 2}
    dropped = sum("bernoulli" in kind or "dropout" in kind for kind in graph.kinds)
    noisy = any(spec.values.get(key) for key in ("dropout", "drop_path"))
    assert (dropped > 0) == noisy


@pytest.mark.parametrize("family", FAMILIES)
def test_a_captured_step_gives_the_loss_and_a_gradient_for_every_parameter(family: str) -> None:
    from stead.readers.torch.capture import capture

    module, inputs, loss = tiny(family, mode="training", noise=False).torch(device="cpu")
    parameters = dict(module.named_parameters())
    tape = capture(module, inputs, loss, targets=(loss.targets,), update="none")
    replayed = tape.replay(module, inputs, (loss.targets,))
    value = loss(module(*inputs))
    wanted = torch.autograd.grad(value, list(parameters.values()))
    assert torch.allclose(replayed.loss, value, rtol=1e-5)
    for name, gradient in zip(parameters, wanted, strict=True):
        error = (replayed.gradients[name] - gradient).abs().max()
        assert error <= 1e-4 * gradient.abs().max() + 1e-6, name


def test_without_update_there_is_none() -> None:
    graph = tiny("rnnlm", mode="training", update="none").capture()
    assert UPDATE not in graph.phases
    assert captured("rnnlm", "training").weight_bytes.sum() > graph.weight_bytes.sum()


# Units


@pytest.mark.parametrize("layers", [1, 3])
def test_units_of_a_language_model_are_cells_projections_and_the_embedding(layers: int) -> None:
    assert unit_counts(tiny("rnnlm", layers=layers, steps=4)) == {4 * (layers + 1) + 1}


@pytest.mark.parametrize("layers", [1, 3])
def test_units_of_a_translation_are_its_cells_attention_and_projections(layers: int) -> None:
    assert unit_counts(tiny("gnmt", layers=layers, steps=4)) == {4 * (2 * layers + 3) + 3}


@pytest.mark.parametrize(
    ("family", "count"),
    [
        ("inception_v3", 94 + 1),
        ("resnet", 53 + 1),
        ("transformer_xl", 3 * (2 + 2)),  # embedding, 2 layers and projection of 3 segments
        ("bert", 2 + 2),  # layers, embeddings, head
        ("amoebanet", 2 + 3 + 2 + 2),  # stem cells, normal cells, reductions; first convolution, classifier
        ("t5", 2 * 2 + 4 + 1),  # layers of both sides; embedding twice, two biases, head
    ],
)
def test_units_of_other_families_are_convolutions_layers_and_cells(family: str, count: int) -> None:
    graph = captured(family, "training")
    units = tiny(family, mode="training").units(graph)
    assert len(forward_units(graph, units)) == count


def unit_counts(spec: Spec) -> set[int]:
    """How many units some forward operator lies in, for inference and for training."""
    modes = [get(spec.family, mode=mode, **spec.values) for mode in ("inference", "training")]
    graphs = [one.capture() for one in modes]
    return {len(forward_units(graph, one.units(graph))) for one, graph in zip(modes, graphs, strict=True)}


def forward_units(graph: Graph, units: list[str]) -> set[str]:
    return {units[v] for v in np.flatnonzero(graph.phases == 0).tolist() if units[v]}


# The same everywhere

_SCRIPT = """
import warnings
warnings.simplefilter("ignore")
from tiny_zoo import tiny
print(tiny("gnmt").capture().fingerprint)
for family in ("gnmt", "bert"):
    print(tiny(family, mode="training").capture().fingerprint)
"""


def test_a_graph_is_the_same_in_another_process_with_another_hash_seed() -> None:
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, env=environment
    )
    own = [captured("gnmt"), captured("gnmt", "training"), captured("bert", "training")]
    assert done.stdout.split() == [graph.fingerprint for graph in own]


@pytest.mark.skipif(
    cache.torch_version() != cache.catalogue_torch(),
    reason="graphs were captured by another version of torch",
)
@pytest.mark.parametrize("name", ["rnnlm-2?phase=train", "bert-base?phase=train", "bert-base"])
def test_shipped_graphs_are_those_that_are_captured_now(name: str) -> None:
    """If this fails, a model or the capture has changed: python -m stead.workloads.shipping makes them anew."""
    spec = parse(name)
    assert spec.capture().fingerprint == cache.catalogue()[spec.fingerprint].graph
