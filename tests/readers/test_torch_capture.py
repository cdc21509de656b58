"""Training graphs: what a captured step holds, and that it computes what eager torch does."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stead.errors import BadInput
from stead.graph import PHASES, REFRESH, Graph
from stead.readers.torch.capture import Tape, capture, from_capture

torch = pytest.importorskip("torch", reason="captures PyTorch modules")

from torch import nn  # noqa: E402
from torch_models import (  # noqa: E402
    FAMILIES,
    Bert,
    Family,
    Gnmt,
    InPlace,
    ResNet,
    RnnLm,
    entropy,
    squares,
)

UPDATE = PHASES.index("update")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from threads, and waiting ones cost time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prepared(family: Family, seed: int = 0) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    torch.manual_seed(seed)
    return family.make(), family.inputs(), family.targets()


@cache
def captured(name: str) -> Tape:
    """The step of a family with Adam; it depends on no numbers and is captured once."""
    family = FAMILIES[name]
    module, inputs, targets = prepared(family)
    return capture(module, inputs, family.loss, targets=targets, update="adam")


@cache
def graph_of(name: str) -> Graph:
    return captured(name).model().graph


def difference(ours: Any, theirs: Any) -> float:
    """Largest error, relative to the largest number."""
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12))


def shuffled(graph: Graph, seed: int) -> list[int]:
    """A random topological order."""
    chance = random.Random(seed)
    children: list[list[int]] = [[] for _ in range(len(graph))]
    missing = [0] * len(graph)
    for earlier, later in graph.edges.tolist():
        children[earlier].append(later)
        missing[later] += 1
    ready = [v for v, count in enumerate(missing) if not count]
    order = []
    while ready:
        order.append(ready.pop(chance.randrange(len(ready)) if seed else -1))
        for child in children[order[-1]]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    return order


# It computes what eager torch does


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_captured_step_gives_the_loss_gradients_and_update_of_eager_torch(name: str, seed: int):
    family = FAMILIES[name]
    module, inputs, targets = prepared(family, seed)
    before = copy.deepcopy(module.state_dict())
    tape = captured(name)
    torch.manual_seed(7)
    ours = tape.replay(module, inputs, targets)
    assert all(torch.equal(held, before[key]) for key, held in module.state_dict().items()), "untouched"
    torch.manual_seed(7)
    loss = family.loss(module(*inputs), *targets)
    loss.backward()
    torch.optim.Adam(module.parameters(), foreach=False).step()
    assert difference(ours.loss, loss) <= family.tolerance
    for key, held in module.named_parameters():
        if held.grad is None:
            assert key not in ours.gradients
        else:
            assert difference(ours.gradients[key], held.grad) <= family.tolerance
        assert difference(ours.parameters[key], held) <= family.tolerance
    for key, held in module.named_buffers():
        assert difference(ours.buffers[key], held) <= family.tolerance


@pytest.mark.parametrize(
    "name", [name for name in FAMILIES if name != "bert_dropout"]
)  # draws in another order
def test_any_topological_order_of_the_graph_gives_the_same(name: str):
    family = FAMILIES[name]
    module, inputs, targets = prepared(family)
    tape = captured(name)
    ours = tape.replay(module, inputs, targets)
    for seed in range(2):
        other = tape.replay(module, inputs, targets, order=shuffled(tape.build().graph, seed))
        assert torch.equal(other.loss, ours.loss)
        for key in ours.gradients:
            assert torch.equal(other.gradients[key], ours.gradients[key])
        for key in ours.parameters:
            assert torch.equal(other.parameters[key], ours.parameters[key])
        for key in ours.buffers:
            assert torch.equal(other.buffers[key], ours.buffers[key])


def test_without_its_ordering_edges_a_graph_would_compute_something_else(monkeypatch):
    from stead.readers.torch.aten_graph import _Assembly

    complete = _Assembly._write

    def careless(self: Any, operator: Any, v: int, value: Any) -> None:
        known = len(operator.after)
        complete(self, operator, v, value)
        del operator.after[known:]

    monkeypatch.setattr(_Assembly, "_write", careless)
    family = FAMILIES["bert"]
    module, inputs, targets = prepared(family)
    tape = captured("bert")
    ours = tape.replay(module, inputs, targets)
    graph = tape.build().graph
    others = [tape.replay(module, inputs, targets, order=shuffled(graph, seed)) for seed in range(6)]
    assert any(
        not torch.equal(other.parameters[key], held)
        for other in others
        for key, held in ours.parameters.items()
    )


@pytest.mark.parametrize("name", ["rnnlm", "in_place", "lstm"])
def test_fake_tensors_give_the_same_step_as_meta_tensors(name: str):
    family = FAMILIES[name]
    module, inputs, targets = prepared(family)
    fake = capture(module, inputs, family.loss, targets=targets, route="fake")
    by_route = [tape.replay(module, inputs, targets) for tape in (captured(name), fake)]
    for key in by_route[0].gradients:
        assert difference(by_route[0].gradients[key], by_route[1].gradients[key]) <= 1e-6


def test_plain_descent_is_that_of_torch():
    module, inputs, targets = prepared(FAMILIES["rnnlm"])
    tape = capture(module, inputs, entropy, targets=targets, update="sgd")
    ours = tape.replay(module, inputs, targets)
    entropy(module(*inputs), *targets).backward()
    torch.optim.SGD(module.parameters(), lr=0.01, foreach=False).step()
    assert all(difference(ours.parameters[key], held) == 0 for key, held in module.named_parameters())


def test_a_forward_pass_alone_gives_the_outputs():
    module, inputs, _ = prepared(FAMILIES["bert"])
    tape = capture(module.eval(), inputs)
    assert {call.phase for call in tape.trace.calls} == {"forward"}
    ours = tape.replay(module, inputs)
    assert ours.loss is None
    assert difference(ours.outputs[0], module(*inputs)) == 0
    graph = tape.model().graph
    assert not graph.is_training
    assert graph.tensor_kept.sum() == 1


# What the graph holds


@pytest.fixture
def gnmt() -> Graph:
    return graph_of("gnmt")


def test_every_backward_operator_has_a_forward_twin_or_adds_up_a_gradient(gnmt: Graph):
    adding = 0
    for one in gnmt.operators():
        if one.phase == "backward" and one.twin < 0:
            adding += 1
            assert one.kind == "aten.add"
            assert one.colocation.startswith("parameter ")
        elif one.phase == "backward":
            assert gnmt.phases[one.twin] == 0
            if one.kind in (
                "aten.mm",
                "aten.tanh_backward",
            ):  # a view may be part of another module's operator
                assert one.module == gnmt.modules[one.twin]
    assert adding > 50


def test_modules_are_calls_and_nested_calls(gnmt: Graph):
    modules = set(gnmt.modules)
    assert "dec.1#3/gates#3" in modules  # the fourth step of the second decoder cell, its linear layer
    assert "dec.1#4" not in {path.partition("/")[0] for path in modules}
    assert {"attention#0/query#0", "loss", ""} <= modules


def test_a_backward_operator_is_in_the_call_of_its_forward_one(gnmt: Graph):
    calls = Counter(
        one.module
        for one in gnmt.operators()
        if one.phase == "backward" and one.kind == "aten.mm" and one.twin >= 0
    )
    assert calls["dec.2#0/gates#0"] == 2  # gradients of the input and of the weight


def test_every_parameter_has_a_group_with_its_sum_and_its_update(gnmt: Graph):
    groups: dict[str, list[str]] = {}
    for one in gnmt.operators():
        if one.colocation:
            groups.setdefault(one.colocation, []).append(one.phase)
    names = [name for name, _ in Gnmt().named_parameters()]
    own = {f"parameter {name}" for name in names}
    assert own <= set(groups)
    assert all(groups[name].count("update") == 7 for name in own)
    # Everything else that shares a device is a reader of a parameter and what receives that for it.
    assert all(group[1:] == ["update"] for name, group in groups.items() if name not in own)
    assert groups["parameter dec.0.gates.weight"].count("backward") == 3  # four steps, three sums


def test_gradient_and_state_are_with_the_update_not_with_readers_of_the_parameter(gnmt: Graph):
    users = {
        name: gnmt.weight_users[gnmt.weight_user_first[w] : gnmt.weight_user_first[w + 1]].tolist()
        for w, name in enumerate(gnmt.weight_names)
    }
    sizes = dict(zip(gnmt.weight_names, gnmt.weight_bytes.tolist(), strict=True))
    for name, held in Gnmt().named_parameters():
        trains = [v for v in users[name] if gnmt.operator(v).colocation == f"parameter {name}"]
        assert len(trains) >= 7
        assert len(users[name]) > len(trains)
        for suffix in (".grad", ".exp_avg", ".exp_avg_sq"):
            assert users[name + suffix] == [v for v in trains if gnmt.kinds[v] != REFRESH]
            assert sizes[name + suffix] == 4 * held.numel()
    assert len(users) == 4 * len(list(Gnmt().named_parameters()))


def test_a_gradient_that_nobody_uses_stays_with_the_operator_that_makes_it():
    module, inputs, targets = prepared(FAMILIES["resnet"])
    graph = from_capture(module, inputs, FAMILIES["resnet"].loss, targets=targets, update="none").graph
    for w, name in enumerate(graph.weight_names):
        if name.endswith(".grad"):
            [user] = graph.weight_users[graph.weight_user_first[w] : graph.weight_user_first[w + 1]].tolist()
            assert graph.operator(user).phase == "backward"


@pytest.mark.parametrize("update", ["sgd", "adam"])
def test_whoever_reads_a_parameter_gets_it_from_the_last_operator_of_its_update(update: Any):
    module, inputs, targets = prepared(FAMILIES["rnnlm"])
    tape = capture(module, inputs, entropy, targets=targets, update=update)
    recorded, graph = tape.build().graph, tape.model().graph
    assert REFRESH not in recorded.kinds
    assert set(recorded.operator_names) < set(graph.operator_names)
    last = {"sgd": "aten.add_", "adam": "aten.addcdiv_"}[update]
    received: dict[str, set[str]] = {}  # weight: readers that get it
    for v in range(len(graph)):
        if graph.kinds[v] == REFRESH:
            reader = graph.operator_names[v].removesuffix(".refresh")
            assert graph.operator(graph.index(reader)).colocation == graph.operator(v).colocation
            for t in graph.operator(v).reads:
                assert graph.kinds[graph.tensor_producer[t]] == last
                received.setdefault(graph.tensor_names[t], set()).add(reader)
    for w, name in enumerate(recorded.weight_names):
        users = recorded.weight_users[recorded.weight_user_first[w] : recorded.weight_user_first[w + 1]].tolist()
        free = [v for v in users if recorded.colocation[v] < 0 and recorded.phases[v] != UPDATE]
        readers = {recorded.operator_names[v] for v in free}
        assert received.get(f"{name}.updated", set()) == (readers if recorded.is_parameter[w] else set())
        if readers:
            size = graph.tensor_bytes[graph.tensor_names.index(f"{name}.updated")]
            assert size == recorded.weight_bytes[w]


@pytest.mark.parametrize(("update", "copies"), [("none", 2), ("sgd", 2), ("adam", 4)])
def test_the_optimiser_decides_how_often_parameters_are_held(update: Any, copies: int):
    module, inputs, targets = prepared(FAMILIES["tied"])
    graph = from_capture(module, inputs, entropy, targets=targets, update=update).graph
    assert graph.weight_bytes.sum() == copies * 4 * 9 * 4  # one matrix, although it has two places
    assert bool((graph.phases == UPDATE).any()) == (update != "none")


def test_updates_wait_for_everyone_who_reads_the_parameter():
    module, inputs, targets = prepared(FAMILIES["rnnlm"])
    graph = from_capture(module, inputs, entropy, targets=targets, update="sgd").graph
    weight = graph.weight_names.index("cells.0.gates.weight")
    users = graph.weight_users[graph.weight_user_first[weight] : graph.weight_user_first[weight + 1]].tolist()
    (update,) = [v for v in users if graph.phases[v] == UPDATE]
    before = {a for a, b in graph.edges.tolist() if b == update}
    readers = {v for v in users if graph.kinds[v] in ("aten.addmm", "aten.mm")}
    assert len(readers) == 10  # five steps forward, five back
    assert readers <= before


def test_dropout_stays_in_a_training_graph():
    kinds = Counter(graph_of("bert_dropout").kinds)
    assert kinds["aten.bernoulli_"] == 6


def test_attention_that_torch_keeps_whole_stays_whole():
    kinds = Counter(graph_of("bert_fused").kinds)
    assert kinds["aten._scaled_dot_product_flash_attention_for_cpu"] == 2
    assert kinds["aten._scaled_dot_product_flash_attention_for_cpu_backward"] == 2


def test_buffers_are_weights_without_gradients_and_their_changes_are_in_order():
    graph = graph_of("resnet")
    assert "bn.running_mean" in graph.weight_names
    assert "bn.running_mean.grad" not in graph.weight_names
    assert "bn.weight.exp_avg" in graph.weight_names


def test_frozen_parameters_have_neither_gradient_nor_state():
    module, inputs, targets = prepared(FAMILIES["rnnlm"])
    module.embedding.weight.requires_grad_(False)
    graph = from_capture(module, inputs, entropy, targets=targets).graph
    assert "embedding.weight" in graph.weight_names
    assert not {"embedding.weight.grad", "embedding.weight.exp_avg"} & set(graph.weight_names)


def test_what_is_not_needed_for_the_loss_is_kept_nowhere():
    graph = graph_of("rnnlm")
    kept = [graph.tensor(t) for t in graph.tensor_kept.nonzero()[0].tolist()]
    assert [(one.name, one.shape) for one in kept] == [("nll_loss_forward", ())]


# Against the figures of real models


@pytest.fixture(scope="module")
def rnnlm() -> Any:
    with torch.device("meta"):
        module = RnnLm(layers=2, hidden=2048, vocabulary=10_000)
        tokens = torch.zeros(64, 40, dtype=torch.long)
    return capture(module, (tokens,), entropy, targets=(tokens,), update="none")


def test_a_language_model_of_two_layers_and_forty_steps_has_the_known_size(rnnlm: Any):
    assert len(rnnlm.trace.calls) == 4643
    assert len(rnnlm.model().graph) == 2798


def test_its_parameters_and_flops_are_exact(rnnlm: Any):
    graph = rnnlm.model().graph
    parameters = 2 * (4096 * 8192 + 8192) + 2 * 10_000 * 2048 + 10_000
    sizes = dict(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True))
    assert sum(size for name, size in sizes.items() if not name.endswith(".grad")) == 4 * parameters
    steps, batch = 40, 64
    products = 2 * steps * batch * (2 * 4096 * 8192 + 2048 * 10_000)
    counted = sum(one.flops for one in graph.operators() if one.kind in ("aten.mm", "aten.addmm"))
    assert counted == pytest.approx(3 * products, rel=1e-3)  # forward, and two gradients
    assert graph.flops.sum() == pytest.approx(3 * products, rel=5e-3)


def test_folding_leaves_the_flops_as_they_are(rnnlm: Any):
    from stead.readers.torch.aten_costs import cost

    raw = sum(cost(call.kind, call.arguments, call.named, call.writes).flops for call in rnnlm.trace.calls)
    assert rnnlm.model().graph.flops.sum() == pytest.approx(raw, rel=1e-12)


def test_the_embedding_leaves_its_device_once_in_all(rnnlm: Any):
    graph = rnnlm.model().graph
    embedding = graph.operator(graph.index("embedding"))
    sizes = [int(graph.tensor_bytes[t]) for t in embedding.writes]
    assert sizes == [64 * 2048 * 4] * 40


def test_parameters_and_flops_of_resnet_50_are_exact():
    with torch.device("meta"):
        module = ResNet((3, 4, 6, 3), width=64, classes=1000)
        image, label = torch.zeros(32, 3, 224, 224), torch.zeros(32, dtype=torch.long)
    graph = from_capture(module, image, entropy, targets=(label,), update="none").graph
    names = {name for name, _ in module.named_parameters()}
    sizes = dict(zip(graph.weight_names, graph.weight_bytes.tolist(), strict=True))
    assert sum(size for name, size in sizes.items() if name in names) == 4 * 25_557_032
    forward = 32 * 2 * 4.089e9
    no_gradient_of_the_image = 32 * 2 * 112 * 112 * 64 * 3 * 49
    assert graph.flops.sum() == pytest.approx(3 * forward - no_gradient_of_the_image, rel=1.1e-2)


# How it is done


def test_the_same_model_gives_the_same_graph_in_another_process(tmp_path: Path):
    code = (
        "import torch; from torch_models import FAMILIES; from stead.readers.torch.capture import from_capture; "
        "f = FAMILIES['bert_dropout']; "
        "print(from_capture(f.make(), f.inputs(), f.loss, targets=f.targets()).graph.fingerprint)"
    )
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "77",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-W", "ignore", "-c", code]
    there = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert graph_of("bert_dropout").fingerprint == there


def test_a_giant_is_captured_without_its_weights():
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.device("meta"):
        module = nn.Sequential(*(nn.Linear(50_000, 50_000, bias=False) for _ in range(4)))
        x = torch.zeros(1, 50_000)
    graph = from_capture(module, x, squares, targets=(x,)).graph
    assert graph.weight_bytes.sum() == 4 * 4 * 4 * 50_000**2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_settings_of_torch_are_as_before():
    module, inputs, targets = prepared(FAMILIES["tied"])
    before = (
        torch._C._get_mkldnn_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.is_grad_enabled(),
    )
    state = torch.random.get_rng_state()
    capture(module, inputs, entropy, targets=targets)
    after = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled(), torch.is_grad_enabled()
    assert before == after
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(held.grad is None for held in module.parameters())


def test_a_module_that_makes_tensors_on_the_cpu_is_captured_on_fake_ones():
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.linear(x) * torch.tensor([1.0, 2.0, 3.0])

    module, x = Constant(), torch.randn(2, 3)
    tape = capture(module, x, squares, targets=(x,))
    loss = squares(module(x), x)
    assert difference(tape.replay(module, x, (x,)).loss, loss) == 0
    with pytest.raises(BadInput, match=r"Constant: cannot be captured at .*test_torch_capture\.py:"):
        capture(module, x, squares, targets=(x,), route="meta")


def test_a_model_that_looks_at_numbers_is_refused_with_the_line():
    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return y if float(y.sum()) > 0 else -y

    with pytest.raises(
        BadInput, match=r"Looking: cannot be captured at .*test_torch_capture\.py:\d+: the model looks"
    ):
        capture(Looking(), torch.randn(2, 3), squares, targets=(torch.randn(2, 3),))


def test_a_loss_that_is_no_number_is_refused():
    module, inputs, _ = prepared(FAMILIES["rnnlm"])
    with pytest.raises(
        BadInput, match=r"the loss must be a single number, got a tensor of shape \(3, 5, 11\)"
    ):
        capture(module, inputs, lambda output: output)
    with pytest.raises(BadInput, match="the loss depends on no parameter that is trained"):
        capture(module, inputs, lambda output: output.detach().sum())


def test_unknown_options_are_refused():
    module, inputs, targets = prepared(FAMILIES["tied"])
    with pytest.raises(BadInput, match="update is one of none, sgd, adam, got 'lion'"):
        capture(module, inputs, entropy, targets=targets, update="lion")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="route is one of auto, meta, fake, got 'fast'"):
        capture(module, inputs, entropy, targets=targets, route="fast")  # type: ignore[arg-type]


def test_replaying_with_other_shapes_or_another_module_is_refused():
    module, inputs, targets = prepared(FAMILIES["tied"])
    tape = capture(module, inputs, entropy, targets=targets)
    with pytest.raises(BadInput, match=r"input tokens was captured as \(3, 4\), got \(5, 4\)"):
        tape.replay(module, torch.zeros(5, 4, dtype=torch.long), targets)
    with pytest.raises(BadInput, match="the captured step has 2 input tensors, got 1"):
        tape.replay(module, inputs)
    with pytest.raises(BadInput, match=r"the module has no embedding\.weight"):
        tape.replay(InPlace(), inputs, targets)


def test_arguments_may_be_named_and_nested():
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, pair: tuple[Any, Any], scale: float = 1.0) -> dict[str, Any]:
            return {"out": self.linear(pair[0]) * scale + pair[1]}

    module, x = Nested(), torch.randn(2, 3)
    inputs = {"pair": (x, x), "scale": 2.0}
    tape = capture(module, inputs, lambda output, target: squares(output["out"], target), targets=(x,))
    loss = squares(module(**inputs)["out"], x)
    assert difference(tape.replay(module, inputs, (x,)).loss, loss) == 0
    assert [value.name for value in tape.inputs] == ["pair", "pair", "target"]


def test_tied_weights_are_trained_once():
    assert list(captured("tied").gradients) == ["embedding.weight"]


def test_bert_base_is_captured_within_two_seconds_of_work():
    import time

    with torch.device("meta"):
        module = Bert(layers=12, width=768, heads=12, vocabulary=30_522, length=512, dropout=0.1)
        tokens = torch.zeros(32, 128, dtype=torch.long)
    started = time.process_time()
    graph = from_capture(module, tokens, entropy, targets=(tokens,), update="none").graph
    assert time.process_time() - started < 6  # about 0.6 on an idle machine
    assert graph.flops.sum() == pytest.approx(2721.9e9, rel=5e-3)
