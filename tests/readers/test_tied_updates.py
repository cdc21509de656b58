"""Captured training steps of tied weights: each use has its gradient and its share of the update."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stead.graph import Graph, GraphBuilder, refreshed
from stead.graph.kernels import Kernel
from stead.readers import graph_from_dict
from stead.readers.common.tied_updates import part_updates
from stead.readers.common.tied_weights import ALL_REDUCE, are_apart
from stead.readers.native.writer import graph_text
from stead.readers.torch.capture import capture

torch = pytest.importorskip("torch", reason="captures PyTorch modules")

from torch import nn  # noqa: E402
from torch_models import FAMILIES, Tied, entropy  # noqa: E402

MATRIX = 4 * 9 * 4  # bytes


class Shared(nn.Module):
    """One matrix for both sides and for the head, as T5 has it."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Embedding(9, 4)
        self.head = nn.Linear(4, 9, bias=False)
        self.head.weight = self.shared.weight

    def forward(self, tokens: Any) -> Any:
        return self.head(torch.tanh(self.shared(tokens)) * self.shared(tokens + 0))


def recorded(module: Any, update: Any = "adam") -> tuple[Graph, Graph]:
    """The graph as torch recorded it, and as it is given to users."""
    tokens = torch.zeros(3, 4, dtype=torch.long)
    tape = capture(module, (tokens,), entropy, targets=(tokens,), update=update)
    return tape.build().graph, tape.model().graph


def group(graph: Graph, name: str) -> str:
    return graph.operator(graph.index(name)).colocation


@pytest.mark.parametrize("update", ["sgd", "adam"])
def test_each_use_is_bound_to_its_share_of_the_update(update: Any) -> None:
    before, graph = recorded(Tied(), update)
    [old] = {before.colocation_names[before.colocation[v]] for v in range(len(before)) if before.phases[v] == 2}
    assert old == "parameter embedding.weight"
    uses = {use: group(graph, use) for use in ("embedding", "mm")}
    assert len(set(uses.values())) == 2
    assert group(graph, "embedding.weight.update@mm") == uses["mm"]
    updates = [v for v in range(len(before)) if before.phases[v] == 2]
    assert {group(graph, before.operator_names[v]) for v in updates} == {uses["embedding"]}


@pytest.mark.parametrize("update", ["sgd", "adam"])
def test_the_work_of_a_step_stays_what_torch_does(update: Any) -> None:
    before, graph = recorded(Tied(), update)
    assert graph.flops.sum() == pytest.approx(before.flops.sum())
    assert graph.moved_bytes.sum() == pytest.approx(before.moved_bytes.sum())
    assert sorted(graph.weight_bytes.tolist()) == sorted(before.weight_bytes.tolist())
    free = [v for v in range(len(graph)) if graph.kinds[v] == ALL_REDUCE]
    assert not graph.moved_bytes[free].any()
    assert len(graph) == len(before) + 4 + 1  # hand on and sum up at both ends, one more share of the update


def halves(flops: float, moved: float) -> list[Kernel]:
    return [Kernel(flops / 2, moved / 2, 0.5), Kernel(flops / 2, moved / 2, 3)] if flops or moved else []


def test_operators_of_several_kernels_keep_them_and_shares_have_their_part_of_each() -> None:
    plain, parted = recorded(Tied())
    lists = [halves(*amounts) for amounts in zip(plain.flops.tolist(), plain.moved_bytes.tolist(), strict=True)]
    document = json.loads(graph_text(plain))
    for entry, own in zip(document["operators"], lists, strict=True):
        entry["kernels"] = [list(kernel) for kernel in own]
    graph = part_updates(graph_from_dict(document, place="graph"))
    assert graph.operator_names == parted.operator_names
    updates = [v for v in range(len(plain)) if plain.phases[v] == 2]
    share = graph.index("embedding.weight.update@mm")
    for v in set(range(len(graph))) - {share}:
        amounts = float(graph.flops[v]), float(graph.moved_bytes[v])
        assert list(graph.kernels_of(v)) == halves(*amounts)
    assert len(graph.kernels_of(share)) == sum(len(lists[v]) for v in updates)
    assert sum(kernel.moved_bytes for kernel in graph.kernels_of(share)) == pytest.approx(graph.moved_bytes[share])


def test_gradients_are_summed_up_at_each_use_before_they_meet() -> None:
    _, graph = recorded(Tied())
    sent = [tensor for tensor in graph.tensors() if graph.kinds[tensor.producer] == ALL_REDUCE and tensor.size_bytes]
    assert [tensor.size_bytes for tensor in sent] == [MATRIX, MATRIX]
    for tensor in sent:
        sender = graph.operator(tensor.producer)
        made_by = {graph.tensor(t).producer for t in sender.reads if graph.tensor_bytes[t]}
        [source] = made_by
        assert graph.phases[source] == 1  # so that micro-batches are added up before anything is sent
        assert graph.twins[source] == sender.twin


def test_three_uses_pass_their_gradients_along() -> None:
    before, graph = recorded(Shared())
    assert len(graph) == len(before) + 7 + 2  # four hand on, three sum up, two more shares of the update
    shares = [name for name in graph.operator_names if ".update@" in name]
    assert shares == ["shared.weight.update@embedding_1", "shared.weight.update@mm"]
    groups = {group(graph, name) for name in ("embedding", "embedding_1", "mm")}
    assert len(groups) == 3
    assert graph.moved_bytes.sum() == pytest.approx(before.moved_bytes.sum())


@pytest.mark.parametrize("family", ["rnnlm", "resnet", "lstm", "in_place"])
def test_weights_that_one_module_uses_are_left_alone(family: str) -> None:
    given = FAMILIES[family]
    tape = capture(given.make(), given.inputs(), given.loss, targets=given.targets())
    assert tape.model().graph == refreshed(tape.build().graph)


def test_a_forward_pass_is_left_alone() -> None:
    tape = capture(Tied(), (torch.zeros(3, 4, dtype=torch.long),))
    assert tape.model().graph == tape.build().graph


def test_a_use_that_learns_nothing_leaves_one_update() -> None:
    class Detached(Tied):
        def forward(self, tokens: Any) -> Any:
            return self.out(torch.tanh(self.embedding(tokens).detach()))

    before, graph = recorded(Detached())
    assert graph == refreshed(before)


def test_graphs_that_say_themselves_how_they_update_stay_as_they_are() -> None:
    build = GraphBuilder("by hand")
    a = build.operator("a", module="a")
    b = build.operator("b", module="b", reads=[build.tensor(a, size_bytes=4)])
    back = build.operator("b.backward", phase="backward", twin="b", after=[b])
    update = build.operator("update", phase="update", reads=[build.tensor(back, size_bytes=8)])
    build.weight("w", size_bytes=8, users=[a, b, update])
    graph = build.build()
    assert part_updates(graph) is graph


def test_modules_apart_are_told_by_their_paths() -> None:
    assert are_apart(["encoder#0/embed#0", "decoder#0/embed#0"])
    assert not are_apart(["encoder#0/cell#0", "encoder#0/cell#7"])
    assert not are_apart(["", "head"])
