"""Inference graphs of modules: operators, weights, names, sizes."""

from __future__ import annotations

import resource
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from stead.errors import BadInput
from stead.graph import Graph
from stead.readers.torch.exported import from_exported, from_torch, module_path

torch = pytest.importorskip("torch", reason="exports PyTorch modules")

from torch import nn  # noqa: E402
from torch_models import Bert, FusedLstm, ResNet, RnnLm, Tied  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """torch warns of its own future."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def weights_of(graph: Graph) -> dict[str, int]:
    return dict(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True))


def kinds_of(graph: Graph) -> list[str]:
    return [one.kind for one in graph.operators()]


def test_a_small_net_has_its_layers_as_operators():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval()
    graph = from_torch(net, torch.zeros(3, 4), name="net").graph
    assert [(one.name, one.kind, one.module, one.flops) for one in graph.operators()] == [
        ("input", "input", "", 0.0),
        ("linear", "aten.linear", "0", 2 * 3 * 4 * 6 + 18),
        ("relu", "aten.relu", "1", 18),
        ("linear_1", "aten.linear", "2", 2 * 3 * 6 * 2 + 6),
    ]
    assert weights_of(graph) == {"0.weight": 96, "0.bias": 24, "2.weight": 48, "2.bias": 8}
    assert graph.name == "net"


def test_tensors_have_shapes_types_and_bytes():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU()).eval().half()
    graph = from_torch(net, torch.zeros(3, 4, dtype=torch.float16)).graph
    relu = graph.operator(graph.index("relu"))
    assert relu.dtype == "fp16"
    tensor = graph.tensor(relu.writes[0])
    assert (tensor.shape, tensor.dtype, tensor.size_bytes, tensor.kept) == ((3, 6), "fp16", 36, True)


def test_parameters_of_resnet_50_are_exact_and_need_no_memory():
    with torch.device("meta"):
        net = ResNet((3, 4, 6, 3), width=64, classes=1000).eval()
        image = torch.zeros(1, 3, 224, 224)
    graph = from_torch(net, image).graph
    parameters = {name for name, _ in net.named_parameters()}
    assert sum(size for name, size in weights_of(graph).items() if name in parameters) == 4 * 25_557_032
    products = sum(one.flops for one in graph.operators() if one.kind in ("aten.conv2d", "aten.linear"))
    assert products == pytest.approx(2 * 4.089e9, rel=1e-3)  # multiply-adds of the literature


def test_a_giant_is_read_without_its_weights():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.device("meta"):
        net = nn.Sequential(*(nn.Linear(100_000, 100_000) for _ in range(4)))
        x = torch.zeros(1, 100_000)
    graph = from_torch(net, x).graph
    assert sum(weights_of(graph).values()) == 4 * 4 * (100_000**2 + 100_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_tied_weights_are_one_weight_with_two_users():
    graph = from_torch(Tied().eval(), torch.zeros(3, 4, dtype=torch.long)).graph
    assert list(weights_of(graph).values()) == [4 * 9 * 4]
    assert {graph.operator_names[v] for v in graph.weight_users.tolist()} == {"embedding", "linear"}


def test_a_step_of_an_unrolled_net_is_charged_for_its_slice_alone():
    graph = from_torch(RnnLm(layers=1).eval(), torch.zeros(3, 5, dtype=torch.long)).graph
    embedding = graph.operator(graph.index("embedding"))
    assert [int(graph.tensor_bytes[t]) for t in embedding.writes] == [
        4 * 3 * 8
    ] * 5  # the whole is 4 * 3 * 5 * 8


@pytest.mark.parametrize(
    ("cell", "gates"), [(nn.LSTMCell, 4), (nn.GRUCell, 3), (nn.RNNCell, 1)], ids=lambda one: str(one)
)
def test_a_recurrent_cell_costs_the_products_of_its_gates(cell, gates):
    """5 samples, 3 inputs, 2 states: for each gate and state 3 + 2 multiply-adds and one function of 4."""
    graph = from_torch(cell(3, 2).eval(), torch.zeros(5, 3)).graph
    assert graph.flops.sum() == 5 * gates * 2 * (2 * (3 + 2) + 4)


def test_an_lstm_layer_is_one_operator():
    graph = from_torch(FusedLstm().eval(), torch.zeros(3, 4, dtype=torch.long)).graph
    assert kinds_of(graph).count("aten.lstm") == 1


def test_names_of_views_lead_to_the_operator_they_are_part_of():
    graph = from_torch(Bert(layers=1).eval(), torch.zeros(2, 6, dtype=torch.long)).graph
    assert graph.folded["view"].startswith("linear")
    assert all(name in graph.operator_names for name in graph.folded.values())


def test_modules_of_layers_are_paths():
    graph = from_torch(Bert(layers=2).eval(), torch.zeros(2, 6, dtype=torch.long)).graph
    modules = [one.module for one in graph.operators() if one.kind == "aten.linear"]
    assert modules[:4] == ["layers.0.query", "layers.0.key", "layers.0.value", "layers.0.out"]
    assert modules[-1] == "head"


def test_a_module_that_is_called_twice_keeps_its_path():
    assert module_path({"k": ("layers.0@1.norm", "LayerNorm")}) == "layers.0.norm"
    assert module_path(None) == ""


def test_arguments_by_name_and_exported_programs_give_the_same_graph():
    net, tokens = Bert(layers=1).eval(), torch.zeros(2, 6, dtype=torch.long)
    by_name = from_torch(net, {"tokens": tokens}).graph
    exported = torch.export.export(net, (tokens,), strict=False)
    assert from_torch(net, (tokens,)).graph == by_name == from_exported(exported, name="Bert").graph


def test_training_mode_is_remarked():
    net = Bert(layers=1, dropout=0.1)
    note = "the module is in training mode, and so is its graph; call eval() first for inference"
    tokens = torch.zeros(2, 6, dtype=torch.long)
    assert from_torch(net, tokens).notes == (note,)
    assert from_torch(net.eval(), tokens).notes == ()


def test_open_dimensions_are_as_in_the_example_or_as_set():
    net, x = nn.Linear(4, 6).eval(), torch.zeros(3, 4)
    rows = torch.export.Dim("rows", min=2, max=100)
    model = from_torch(net, x, dynamic_shapes=({0: rows},))
    assert model.graph.flops.sum() == 2 * 3 * 4 * 6 + 18
    assert [(one.name, one.size) for one in model.assumed] == [("input[0]", 3)]
    larger = from_torch(net, x, dynamic_shapes=({0: rows},), shapes={"input[0]": 30})
    assert larger.graph.flops.sum() == 10 * model.graph.flops.sum()
    with pytest.raises(BadInput, match=r'no open dimension "input\[1\]"'):
        from_torch(net, x, dynamic_shapes=({0: rows},), shapes={"input[1]": 30})


def test_a_model_that_cannot_be_exported_is_refused_in_one_line():
    class Branching(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(BadInput, match=r"Branching: torch\.export cannot follow it: ") as caught:
        from_torch(Branching(), torch.zeros(3))
    assert str(caught.value).isprintable()
    assert caught.value.__cause__ is not None


def test_inputs_of_another_kind_are_refused():
    with pytest.raises(BadInput, match="example inputs must be a tuple, a mapping or a tensor, got int"):
        from_torch(nn.Linear(2, 2), 3)
