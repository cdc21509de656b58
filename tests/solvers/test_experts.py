"""The expert's placements, worked out by hand for small models of every family."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Roofline
from stead.errors import BadInput, Infeasible
from stead.graph import Graph, GraphBuilder, TensorId
from stead.problem import Problem
from stead.solvers import Budget, Solver, solver
from stead.solvers.rules.expert import Expert, parts_by_count, parts_by_weight, recognised_rule
from stead.testing.contracts import SolverContract
from stead.workloads.synthetic import synthetic


class TestExpert(SolverContract):
    @pytest.fixture(params=[Expert(), Expert("time"), Expert(modulo=True)], ids=["layers", "time", "modulo"])
    def solver(self, request: pytest.FixtureRequest) -> Solver:
        expert: Expert = request.param
        return expert


def cluster_of(count: int, *, memory_bytes: int = 2**40, host: bool = False) -> Cluster:
    """The reference devices, and a CPU if wanted."""
    rates = {"flops_per_second": {"fp32": 4.6e12}, "bytes_per_second": 500e9, "launch_seconds": 5e-6}
    devices = [Device(f"gpu{d}", memory_bytes=memory_bytes, **rates) for d in range(count)]  # type: ignore[arg-type]
    if host:
        devices.append(Device("cpu", kind="cpu", **{**rates, "flops_per_second": {"fp32": 1e11}}))  # type: ignore[arg-type]
    names = [device.name for device in devices]
    return Cluster(
        tuple(devices), link_all(names, bytes_per_second=12e9, latency_seconds=2e-5, gap_seconds=2e-5)
    )


def problem_of(graph: Graph, devices: int) -> Problem:
    cluster = cluster_of(devices)
    return Problem(graph, cluster, Roofline().costs(graph, cluster))


def modules_on(problem: Problem, expert: Solver) -> dict[str, int]:
    """The device of every module, call numbers left out; an operator of a later phase counts as its twin."""
    devices = expert.solve(problem, Budget()).placement.devices.tolist()
    found: dict[str, set[int]] = {}
    for path, device in zip(problem.graph.modules, devices, strict=True):
        found.setdefault(path.partition("#")[0], set()).add(device)
    assert all(len(own) == 1 for own in found.values()), found
    return {path: min(own) for path, own in found.items()}


def chain(modules: Sequence[str], *, name: str = "chain", kinds: Sequence[str] = ()) -> Graph:
    """One operator per module, one after another, each with a weight."""
    build = GraphBuilder(name)
    last: list[TensorId] = []
    for v, module in enumerate(modules):
        operator = build.operator(
            f"v{v}", module=module, kind=kinds[v] if kinds else "", flops=1e9, reads=last
        )
        last = [build.tensor(operator, size_bytes=4)]
        build.weight(f"w{v}", size_bytes=4, users=[operator])
    return build.build()


# Which layer goes where


@pytest.mark.parametrize(
    ("layers", "devices", "modulo", "expected"),
    [
        (4, 2, False, [0, 0, 1, 1]),
        (4, 2, True, [0, 1, 0, 1]),
        (4, 4, False, [0, 1, 2, 3]),
        (5, 2, False, [0, 0, 0, 1, 1]),
        (2, 4, False, [0, 1]),
        (2, 4, True, [0, 1]),
        (8, 3, False, [0, 0, 0, 1, 1, 1, 2, 2]),
    ],
)
def test_layers_are_dealt_out_in_blocks_or_in_turn(
    layers: int, devices: int, modulo: bool, expected: list[int]
) -> None:
    assert parts_by_count(layers, devices, modulo=modulo).tolist() == expected


def test_parts_of_equal_time_may_have_unequal_counts() -> None:
    assert parts_by_weight(np.array([1.0, 1, 1, 1, 4]), 2).tolist() == [0, 0, 0, 0, 1]
    assert parts_by_weight(np.zeros(4), 2).tolist() == [0, 0, 1, 1]


# Families


@pytest.mark.parametrize(("devices", "layers"), [(2, [0, 0, 1, 1]), (4, [0, 1, 2, 3])])
@pytest.mark.parametrize("training", [False, True])
def test_a_language_model_has_its_ends_with_the_outer_layers(
    devices: int, layers: list[int], training: bool
) -> None:
    graph = synthetic("lstm-grid", layers=4, steps=3, hidden=64, training=training)
    cells = {f"cells.{layer}": device for layer, device in enumerate(layers)}
    expected = {"embed": 0, **cells, "proj": layers[-1]}
    assert modules_on(problem_of(graph, devices), Expert()) == expected


def test_layers_in_turn() -> None:
    graph = synthetic("lstm-grid", layers=4, steps=3, hidden=64)
    found = modules_on(problem_of(graph, 2), Expert(modulo=True))
    assert found == {"embed": 0, "cells.0": 0, "cells.1": 1, "cells.2": 0, "cells.3": 1, "proj": 1}


@pytest.mark.parametrize(("devices", "layers"), [(2, [0, 0, 1, 1]), (4, [0, 1, 2, 3])])
def test_translation_counts_both_sides_from_0_and_attends_at_the_end(devices: int, layers: list[int]) -> None:
    graph = synthetic("nmt", layers=4, source_steps=3, target_steps=3, hidden=64)
    expected = {"enc_embed": 0, "dec_embed": 0, "enc.0.fwd": 0, "enc.0.bwd": 0}
    expected |= {f"enc.{layer}": layers[layer] for layer in (1, 2, 3)}
    expected |= {f"dec.{layer}": device for layer, device in enumerate(layers)}
    expected |= {"keys": layers[3], "attention": layers[3], "proj": layers[3]}
    assert modules_on(problem_of(graph, devices), Expert()) == expected


@pytest.mark.parametrize(
    ("devices", "layers", "projection"), [(2, [0, 1, 0, 1], 1), (4, [0, 1, 2, 3], 3), (6, [0, 1, 2, 3], 4)]
)
def test_the_public_code_attends_at_the_start_and_projects_next_door(
    devices: int, layers: list[int], projection: int
) -> None:
    graph = synthetic("nmt", layers=4, source_steps=3, target_steps=3, hidden=64)
    found = modules_on(problem_of(graph, devices), Expert(rule="gnmt-code"))
    assert [found[f"dec.{layer}"] for layer in range(4)] == layers
    assert [found[f"enc.{layer}"] for layer in (1, 2, 3)] == layers[1:]
    assert (found["attention"], found["keys"], found["proj"]) == (0, 0, projection)


def test_a_pair_without_a_number_is_the_first_encoder_layer() -> None:
    modules = ["source_embedding#0", "forwards#0", "backwards#0", "encoder.0#0", "encoder.1#0", "encoder.1#1"]
    modules += ["keys#0", "target_embedding#0", "decoder.0#0", "decoder.1#0", "decoder.2#0", "projection#0"]
    found = modules_on(problem_of(chain(modules), 3), Expert(rule="gnmt"))
    assert [found[name] for name in ("forwards", "backwards", "encoder.0", "encoder.1")] == [0, 0, 1, 2]
    assert [found[f"decoder.{layer}"] for layer in range(3)] == [0, 1, 2]
    assert (found["keys"], found["projection"], found["target_embedding"]) == (2, 2, 0)


@pytest.mark.parametrize(("devices", "layers"), [(2, [0, 0, 1, 1]), (4, [0, 1, 2, 3])])
def test_transformer_blocks_are_cut_into_equal_parts(devices: int, layers: list[int]) -> None:
    graph = synthetic("transformer", layers=4, width=64, training=True)
    found = modules_on(problem_of(graph, devices), Expert())
    for layer, device in enumerate(layers):
        assert found[f"layers.{layer}.attention"] == found[f"layers.{layer}.mlp"] == device
    assert (found["embed"], found["norm"], found["head"]) == (0, layers[-1], layers[-1])


def test_an_encoder_comes_before_its_decoder_and_both_embed_at_the_start() -> None:
    modules = ["embedding#0", "encoder.block.0#0", "embedding#1", "decoder.block.0#0", "encoder.block.1#0"]
    modules += ["decoder.block.1#0", "lm_head#0"]
    graph = chain(modules, name="t5-small")
    assert recognised_rule(graph) == "blocks"
    found = modules_on(problem_of(graph, 2), Expert())
    assert found == {
        "embedding": 0, "encoder.block.0": 0, "encoder.block.1": 0,
        "decoder.block.0": 1, "decoder.block.1": 1, "lm_head": 1,
    }  # fmt: skip


def test_experts_inside_a_layer_go_with_it() -> None:
    modules = [f"model.layers.{layer}.moe.experts.{expert}" for layer in range(2) for expert in range(4)]
    found = modules_on(problem_of(chain(modules), 2), Expert())
    assert [found[module] for module in modules] == [0] * 4 + [1] * 4


def test_inception_is_cut_after_equal_numbers_of_convolutions() -> None:
    kinds = ["Conv", "Relu", "Conv", "Relu", "Conv", "Pool", "Conv", "Linear", "Conv", "Softmax"]
    graph = chain([""] * 10, name="inception-v3", kinds=kinds)
    devices = Expert().solve(problem_of(graph, 2), Budget()).placement.devices.tolist()
    assert devices == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]  # three and three


def test_a_resnet_stays_on_one_device() -> None:
    graph = chain([f"blocks.{n}" for n in range(6)], name="resnet-152")
    assert set(modules_on(problem_of(graph, 4), Expert()).values()) == {0}
    assert set(modules_on(problem_of(graph, 2), Expert(rule="blocks")).values()) == {0, 1}


def test_without_layers_the_order_is_cut_into_equal_parts() -> None:
    graph = chain([""] * 6)
    assert recognised_rule(graph) == "topological"
    assert Expert().solve(problem_of(graph, 3), Budget()).placement.devices.tolist() == [0, 0, 1, 1, 2, 2]


def test_by_time_a_slow_operator_counts_for_what_it_takes() -> None:
    graph, cluster = chain([""] * 6), cluster_of(2)
    seconds = np.array([5.0, 1, 1, 1, 1, 1])[:, None].repeat(2, axis=1)
    problem = Problem(graph, cluster, Costs(graph, cluster, seconds))
    assert Expert("time").solve(problem, Budget()).placement.devices.tolist() == [0, 1, 1, 1, 1, 1]
    assert Expert().solve(problem, Budget()).placement.devices.tolist() == [0, 0, 0, 1, 1, 1]


def test_backward_and_update_are_where_their_forward_operator_is() -> None:
    for family in ("lstm-grid", "nmt", "transformer", "inception", "layered"):
        graph = synthetic(family, training=True)
        devices = Expert().solve(problem_of(graph, 3), Budget()).placement.devices
        late = np.flatnonzero(graph.twins >= 0)
        assert (devices[late] == devices[graph.twins[late]]).all()


def test_accelerators_alone_are_used_and_what_they_cannot_run_is_moved() -> None:
    graph = chain([f"layers.{n}" for n in range(4)], kinds=["a", "a", "a", "odd"])
    cluster = cluster_of(2, host=True)
    seconds = Roofline().costs(graph, cluster).seconds.copy()
    seconds[3, :2] = np.inf
    solution = Expert().solve(Problem(graph, cluster, Costs(graph, cluster, seconds)), Budget())
    assert solution.placement.devices.tolist() == [0, 0, 1, 2]
    assert solution.notes == (
        "rule blocks: 4 layers on 2 devices",
        "1 operator moved: not allowed on the device the rule gives",
    )


def test_an_expert_who_runs_out_of_memory_says_so() -> None:
    graph = chain([f"layers.{n}" for n in range(4)], name="resnet")
    cluster = cluster_of(2, memory_bytes=20)  # four weights of 4 bytes and tensors
    with pytest.raises(Infeasible) as error:
        Expert().solve(Problem(graph, cluster, Roofline().costs(graph, cluster)), Budget())
    assert error.value.short_bytes["gpu0"] > 0


def test_the_layer_rule_wins_by_the_wavefront_over_layers_and_steps() -> None:
    """The reference model: two layers of 2,048, batch 64, 40 steps, trained on two reference devices."""
    graph = synthetic("lstm-grid", layers=2, steps=40, hidden=2048, training=True)
    problem = problem_of(graph, 2)
    single = solver("single").solve(problem, Budget()).objective_seconds
    layers = Expert().solve(problem, Budget()).objective_seconds
    chunks = Expert("time", rule="topological").solve(problem, Budget()).objective_seconds
    assert layers / single == pytest.approx(0.627, abs=0.02)
    assert chunks > 1.4 * layers


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("GNMT_8", "gnmt"), ("nmt-3", "gnmt"), ("inception_v3", "convolutions"), ("resnet-50", "single"),
        ("rnnlm-2", "blocks"), ("transformer_xl-4", "blocks"), ("bert-base", "blocks"), ("graph", "topological"),
    ],
)  # fmt: skip
def test_families_are_recognised_by_the_name_of_the_graph(name: str, rule: str) -> None:
    assert recognised_rule(chain([""] * 3, name=name)) == rule


def test_families_are_recognised_by_their_modules() -> None:
    unrolled = ["enc.0#0", "enc.1#0", "enc.0#1", "enc.1#1", "dec.0#0", "dec.1#0"]
    assert recognised_rule(chain(unrolled)) == "gnmt"
    once = ["encoder.0#0", "encoder.1#0", "decoder.0#0", "decoder.1#0", "embed#1"]
    assert recognised_rule(chain(once)) == "blocks"


def test_the_command_line_names_it() -> None:
    assert solver("expert:time") == Expert("time")
    assert solver("expert", modulo="true", rule="t5") == Expert(modulo=True, rule="t5")
    assert Expert("time").name == "expert:time"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "speed"}, "variant is one of layers, time"),
        ({"rule": "gmnt"}, "no rule 'gmnt'; did you mean 'gnmt'"),
        ({"variant": "time", "modulo": True}, "cannot be balanced by time"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Expert(**options)  # type: ignore[arg-type]
