"""Co-location rules on graphs one can draw, and the numbers of units of unrolled networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from stead.coarsen import (
    Grouping,
    colocate,
    colocate_by_names,
    colocate_constraints,
    colocate_single_consumers,
    colocate_units,
    limited,
)
from stead.coarsen.colocation import forward_operators
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder, Phase, TensorId
from stead.graph.paths import Call, calls, module_path
from stead.problem import Constraints, Problem
from stead.testing import chain3, diamond, tiny_cluster
from stead.workloads.synthetic import synthetic


def built(
    modules: Mapping[str, str],
    reads: Mapping[str, Sequence[str]],
    *,
    weights: Sequence[str] = (),
    size: int = 4,
) -> Graph:
    """Operators in modules; those in `weights` have one."""
    build = GraphBuilder("modules")
    outputs: dict[str, TensorId] = {}
    for name, module in modules.items():
        operator = build.operator(
            name, module=module, reads=[outputs[source] for source in reads.get(name, ())]
        )
        outputs[name] = build.tensor(operator, size_bytes=size)
        if name in weights:
            build.weight(f"{name}.weight", size_bytes=8, users=[operator])
    return build.build()


def groups(grouping: Grouping) -> list[list[str]]:
    """Names of the members of every group."""
    names = grouping.graph.operator_names
    return [[names[v] for v in grouping.members(g)] for g in range(grouping.count)]


# Rule 1


def training_graph(*, twins: bool = True) -> Graph:
    """f0 -> f1 -> b1 -> b0, an update of f0's weight that reads b0's result, and a refresh of f0's weight."""
    build = GraphBuilder("training")
    last: list[TensorId] = []
    made = {}
    rows: list[tuple[str, Phase, str]] = [
        ("f0", "forward", ""), ("f1", "forward", ""), ("b1", "backward", "f1"), ("b0", "backward", "f0"),
        ("u0", "update", ""),
    ]  # fmt: skip
    for name, phase, twin in rows:
        made[name] = build.operator(name, phase=phase, twin=twin if twins else "", reads=last)
        last = [build.tensor(made[name], size_bytes=4)]
    build.weight("w", size_bytes=8, users=[made["f0"], made["u0"]])
    return build.build()


def test_backward_and_update_join_their_forward_operator() -> None:
    assert groups(colocate_constraints(training_graph())) == [["f0", "b0", "u0", "f0.refresh"], ["f1", "b1"]]


def test_without_twins_an_operator_belongs_to_its_weight_or_to_what_it_reads() -> None:
    assert forward_operators(training_graph(twins=False)).tolist() == [0, 1, 1, 1, 0, 0]


def test_what_must_share_a_device_is_one_group() -> None:
    build = GraphBuilder()
    for name, group in (("a", "x"), ("b", ""), ("c", "x")):
        build.operator(name, colocate=group)
    assert groups(colocate_constraints(build.build())) == [["a", "c"], ["b"]]


# Rule 2


def test_a_chain_is_one_group_and_a_fork_stays_apart() -> None:
    assert groups(colocate_single_consumers(chain3().graph)) == [["a", "b", "c"]]
    assert groups(colocate_single_consumers(diamond().graph)) == [["a"], ["b", "c", "d"]]


def test_the_rule_is_applied_once_not_on_groups() -> None:
    # On groups, {a, b} would have the one reader group {c, d, e} and join it.
    reads = {"b": ["a"], "c": ["b"], "d": ["b"], "e": ["c", "d"]}
    graph = built(dict.fromkeys("abcde", ""), reads)
    assert groups(colocate_single_consumers(graph)) == [["a", "b"], ["c", "d", "e"]]


def test_control_edges_count_only_if_asked_for() -> None:
    build = GraphBuilder()
    a = build.operator("a")
    build.operator("b", reads=[build.tensor(a, size_bytes=4)])
    build.operator("c", after=[a])
    graph = build.build()
    assert groups(colocate_single_consumers(graph)) == [["a", "b"], ["c"]]
    assert groups(colocate_single_consumers(graph, count_control=True)) == [["a"], ["b"], ["c"]]


# Rules 3 and 4


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("layers", "steps"), [(2, 5), (4, 5), (8, 5), (2, 40)])
def test_an_unrolled_language_model_has_cells_projections_and_an_embedding(
    layers: int, steps: int, training: bool
) -> None:
    graph = synthetic("lstm-grid", layers=layers, steps=steps, hidden=16, training=training)
    assert len(colocate_units(graph)) == steps * (layers + 1) + 1


@pytest.mark.parametrize(("layers", "steps"), [(2, 5), (4, 5), (8, 5), (2, 40)])
def test_translation_has_two_directions_attention_keys_and_two_embeddings(layers: int, steps: int) -> None:
    graph = synthetic("nmt", layers=layers, source_steps=steps, target_steps=steps, hidden=64)
    assert len(colocate_units(graph)) == steps * (2 * layers + 3) + 3


def test_backward_operators_follow_their_forward_operators_into_the_unit() -> None:
    graph = synthetic("lstm-grid", layers=2, steps=3, hidden=16, training=True)
    units = colocate_units(graph).group
    twins = np.flatnonzero(graph.twins >= 0)
    assert (units[twins] == units[graph.twins[twins]]).all()


def test_leftovers_join_their_first_producer_else_their_first_reader() -> None:
    modules = {"zeros": "", "x": "embed#0", "h": "cells.0#0", "g": "cells.1#0", "cat": "", "loss": "loss"}
    reads = {"h": ["x", "zeros"], "g": ["x"], "cat": ["g", "h"], "loss": ["cat"]}
    graph = built(modules, reads, weights=("x", "h", "g"))
    assert groups(colocate_units(graph)) == [["x"], ["g"], ["zeros", "h", "cat", "loss"]]


def test_what_nothing_connects_to_a_unit_is_one_rest() -> None:
    modules = {"x": "embed#0", "p": "", "q": ""}
    assert groups(colocate_units(built(modules, {}, weights=("x",)))) == [["x"], ["p", "q"]]


def test_the_unit_is_the_numbered_call_however_deep_its_calls_are() -> None:
    modules = {
        "q": "bert#0/encoder#0/layer.0#0/attention#0/self#0/query#0",
        "k": "bert#0/encoder#0/layer.0#0/attention#0/self#0/key#0",
        "m": "bert#0/encoder#0/layer.1#0/mlp#0",
        "h": "head#0",
        "drop": "dropout#0",
    }
    graph = built(modules, {"k": ["q"], "m": ["k"], "h": ["m"], "drop": ["h"]}, weights=("q", "k", "m", "h"))
    assert groups(colocate_units(graph)) == [["q", "k"], ["m"], ["h", "drop"]]


def test_plain_module_paths_give_their_numbered_blocks() -> None:
    modules = {
        "e": "model.embed",
        "a": "model.layers.0.attention",
        "m": "model.layers.0.mlp",
        "b": "model.layers.1",
    }
    graph = built(modules, {"a": ["e"], "m": ["a"], "b": ["m"]})
    assert groups(colocate_units(graph)) == [["e"], ["a", "m"], ["b"]]


def test_units_can_be_given_as_patterns_classes_or_names() -> None:
    modules = {"a": "block#0/conv1#0", "b": "block#0/conv2#0", "c": "block#0", "d": "head#0"}
    graph = built(modules, {"b": ["a"], "c": ["b"], "d": ["c"]}, weights=("a", "b", "d"))
    by_path = colocate_units(graph, units=("*.conv?", "head"))
    assert groups(by_path) == [["a"], ["b", "c"], ["d"]]
    classes = {"block.conv1": "Conv", "block.conv2": "Conv", "head": "Linear"}
    assert colocate_units(graph, units=("Conv", "Linear"), classes=classes) == by_path
    assert colocate_units(graph, names=["1", "2", "", "3"]) == by_path
    assert groups(colocate_units(graph, units=("block", "conv1"))) == [
        ["a", "b", "c", "d"]
    ]  # the outermost wins


def test_patterns_that_fit_nothing_are_refused() -> None:
    with pytest.raises(BadInput, match=r"no module fits \*Cell\*"):
        colocate_units(built({"a": "x#0"}, {}), units=("*Cell*",))


def test_without_modules_names_up_to_their_last_number_count() -> None:
    modules = dict.fromkeys(["in", "layer0/q", "layer0/k", "layer0/out", "layer1/q", "loss"], "")
    reads = {
        "layer0/q": ["in"], "layer0/k": ["in"], "layer0/out": ["layer0/q", "layer0/k"],
        "layer1/q": ["layer0/out", "in"], "loss": ["layer1/q", "layer0/out"],
    }  # fmt: skip
    graph = built(modules, reads)
    assert groups(colocate_by_names(graph)) == [
        ["in"],
        ["layer0/q", "layer0/k", "layer0/out"],
        ["layer1/q", "loss"],
    ]
    assert colocate(graph) == colocate_by_names(graph)


# Limits


def grid_problem(layers: int = 2, steps: int = 6) -> Problem:
    graph = synthetic("lstm-grid", layers=layers, steps=steps, hidden=16, batch=1, training=True)
    cluster = tiny_cluster()
    return Problem(graph, cluster, Costs(graph, cluster, np.ones((len(graph), 2))))


def test_groups_above_the_limit_are_steps_joined_within_a_layer() -> None:
    problem = grid_problem()
    units = colocate_units(problem.graph)
    few = limited(problem, units, most_groups=7, most_share=1.0)
    assert (len(units), len(few)) == (19, 7)
    for g in range(few.count):
        assert len({problem.graph.modules[v].split("#")[0] for v in few.members(g)}) == 1
        steps = sorted({int(problem.graph.modules[v].split("#")[1]) for v in few.members(g)})
        assert steps == list(range(steps[0], steps[-1] + 1))


def test_layers_are_never_joined() -> None:
    problem = grid_problem()
    assert len(limited(problem, colocate_units(problem.graph), most_groups=1, most_share=1.0)) == 4


def test_a_group_that_is_too_heavy_falls_apart() -> None:
    problem = grid_problem(layers=1, steps=4)
    everything = Grouping(problem.graph, np.zeros(len(problem.graph), dtype=int))
    parts = limited(problem, everything, most_share=0.25)
    assert len(parts) == 4 * 2 + 1
    assert parts.sizes.max() <= 0.25 * len(problem.graph)


def test_a_group_without_a_common_device_falls_apart() -> None:
    graph = built({"a": "m#0", "b": "m#0", "c": "m#0"}, {"b": ["a"], "c": ["b"]})
    cluster = tiny_cluster()
    constraints = Constraints(pin=(("a", "d0"), ("b", "d1")))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((3, 2))), constraints=constraints)
    together = Grouping(graph, [0, 0, 0])
    assert groups(limited(problem, together, most_share=1.0)) == [["a"], ["b"], ["c"]]


# Call paths


def test_call_paths_are_read_in_both_spellings() -> None:
    assert calls("dec.1#7/gates#7") == (Call("dec.1", 7), Call("gates", 7))
    assert module_path("dec.1#7/gates#7") == module_path("dec.1#7/dec.1.gates#7") == "dec.1.gates"
    assert calls("C#") == (Call("C#"),)
