"""Synthetic graphs: sizes, parameters and FLOPs that can be worked out, and training graphs that hang together."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from stead.errors import BadInput
from stead.graph import PHASES, REFRESH, Graph
from stead.workloads import model_from_zoo
from stead.workloads.synthetic import FAMILIES, family_options, synthetic

FORWARD, BACKWARD, UPDATE = range(3)
SIZED = [name for name in FAMILIES if "operators" in family_options(name)]


def microseconds(graph: Graph) -> list[float]:
    """Time of operators on the reference device of 4.6 TFLOP/s."""
    return (graph.flops / 4.6e6).tolist()


@pytest.mark.parametrize("family", SIZED)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("operators", [300, 3000])
def test_graphs_have_about_as_many_operators_as_asked_for(
    family: str, training: bool, operators: int
) -> None:
    graph = synthetic(family, operators=operators, training=training)
    counted = len(graph) - graph.kinds.count(REFRESH)  # what receives updated weights comes on top
    assert 0.85 * operators <= counted <= 1.1 * operators


@pytest.mark.parametrize("family", SIZED)
def test_one_operator_is_enough(family: str) -> None:
    assert len(synthetic(family, operators=1)) >= 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("training", [False, True])
def test_graphs_are_connected_and_finite(family: str, training: bool) -> None:
    graph = synthetic(family, training=training)
    assert graph.is_training == training
    assert graph.flops.sum() > 0
    alone = set(range(len(graph))) - set(graph.edges.ravel().tolist())
    # Random graphs may have operators that nobody reads, and that need no gradient.
    assert len(alone) <= 0.02 * len(graph)


@pytest.mark.parametrize(
    "family", ["layered", "series-parallel", "inception", "enas-cnn", "enas-rnn", "nmt", "branches"]
)
def test_another_seed_is_another_graph(family: str) -> None:
    assert synthetic(family, seed=1) == synthetic(family, seed=1)
    assert synthetic(family, seed=1) != synthetic(family, seed=2)


def test_another_process_makes_the_same_graphs() -> None:
    script = (
        "from stead.workloads.synthetic import FAMILIES, synthetic\n"
        "print(' '.join(synthetic(name, training=True).fingerprint for name in FAMILIES))"
    )
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "77",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    there = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    here = [synthetic(name, training=True).fingerprint for name in FAMILIES]
    assert there.stdout.split() == here


def test_a_language_model_of_two_layers_has_108_million_parameters() -> None:
    graph = synthetic("lstm-grid", layers=2, steps=3, hidden=2048)
    assert graph.weight_bytes.sum() == 4 * (2 * (4096 * 8192 + 8192) + 2 * 10_000 * 2048 + 10_000)
    assert graph.weight_bytes.sum() == 4 * 108_095_248


def test_a_cell_reads_its_input_its_own_state_and_nothing_else() -> None:
    graph = synthetic("lstm-grid", layers=2, steps=3, hidden=8)
    cell = {name: graph.operator(graph.index(f"cells.1#2/{name}")) for name in ("gates", "active", "c", "h")}

    def sources(name: str) -> list[str]:
        return [graph.operator_names[graph.tensor_producer[t]] for t in cell[name].reads]

    assert sources("gates") == ["cells.1#1/h", "cells.0#2/h"]
    assert sources("c") == ["cells.1#1/c", "cells.1#2/active"]
    assert sources("h") == ["cells.1#2/active", "cells.1#2/c"]
    assert cell["gates"].flops == 2 * 64 * 16 * 32
    assert cell["h"].module == "cells.1#2"


def test_a_transformer_block_has_the_work_of_its_matrices() -> None:
    options: dict[str, Any] = {"width": 8, "heads": 2, "batch": 1, "length": 4, "vocabulary": 16}
    one, two = (synthetic("transformer", layers=layers, **options) for layers in (1, 2))
    assert len(two) - len(one) == 14
    products = (
        4 * 2 * 4 * 8 * 8 + 2 * 2 * 4 * 8 * 32 + 2 * 2 * 4 * 4 * 8
    )  # q k v out, up and down, two in attention
    rest = 2 * 8 * 32 + 5 * 2 * 4 * 4 + 8 * 4 * 32 + 2 * 32  # norms, softmax, gelu, sums
    assert two.flops.sum() - one.flops.sum() == products + rest
    assert two.weight_bytes.sum() - one.weight_bytes.sum() == 4 * (12 * 64 + (4 + 4 + 1) * 8 + 2 * 2 * 8)


def test_branches_are_those_of_the_published_recipe() -> None:
    graph = synthetic("branches")  # 5 blocks of 3 branches of up to 2 pairs, seed 1
    assert (len(graph), len(graph.edges)) == (50, 59)
    assert sum(microseconds(graph)) == pytest.approx(11_957)
    assert microseconds(graph)[:6] == pytest.approx([50, 622, 9, 547, 33, 847])
    assert graph.tensor_bytes[0] == 4 * 2**20


def test_other_names_of_families_are_understood() -> None:
    assert synthetic("inception-like", seed=3) == synthetic("branches", seed=3)
    assert model_from_zoo("zoo:inception_like?seed=3").graph == synthetic("branches", seed=3)
    assert model_from_zoo("zoo:nmt_var?seed=3").graph == synthetic("nmt", seed=3)
    assert model_from_zoo("zoo:enas_rnn?seed=3").graph == synthetic("ptb", seed=3)


def test_towers_are_chains_between_a_source_and_a_sink() -> None:
    graph = synthetic("towers")
    assert (len(graph), len(graph.edges)) == (14, 2 + 2 * 5 + 2)
    assert sorted(microseconds(graph)) == pytest.approx([10, 10, *[100] * 12])
    assert set(graph.tensor_bytes.tolist()) == {76_000}


def test_a_layered_operator_reads_from_the_two_layers_before() -> None:
    graph = synthetic("layered", operators=400, width=10, most_reads=3)
    for u, v in graph.edges.tolist():
        assert 1 <= v // 10 - u // 10 <= 2
    assert np.bincount(graph.edges[:, 1]).max() == 3
    works = np.array(microseconds(graph))
    assert 0.15 < (works == 0).mean() < 0.35
    assert 3 <= works[works > 0].min() <= works.max() <= 400


def test_forks_are_joined_again() -> None:
    graph = synthetic("fork-join", operators=11, branches=3, depth=2)
    assert len(graph) == 1 + 7  # nearer to 11 than two stages
    assert graph.edges.tolist() == [[0, 1], [0, 3], [0, 5], [1, 2], [2, 7], [3, 4], [4, 7], [5, 6], [6, 7]]


def test_a_series_parallel_graph_has_one_end_and_reduces_to_it() -> None:
    graph = synthetic("series-parallel", operators=200, seed=4)
    edges = {tuple(edge) for edge in graph.edges.tolist()}
    ends = set(range(len(graph))) - {u for u, _ in edges}
    assert ends == {len(graph) - 1}


def test_searched_networks_follow_their_recipe() -> None:
    for seed in range(8):
        cells = {
            path.split(".")[1]
            for path in synthetic("enas-cnn", seed=seed).modules
            if path.startswith("cells.")
        }
        assert 6 <= len(cells) <= 12
        steps = {path for path in synthetic("enas-rnn", seed=seed).modules if path.startswith("cell#")}
        assert 20 <= len(steps) <= 35
        translation = synthetic("nmt", seed=seed)
        layers = {path.split("#")[0] for path in translation.modules if path.startswith("dec.")}
        assert 2 <= len(layers) <= 4
        assert 16 <= len({path for path in translation.modules if path.startswith("dec.0#")}) <= 48


# Training


@pytest.fixture(scope="module", params=["lstm-grid", "transformer", "enas-cnn", "nmt", "layered"])
def trained(request: pytest.FixtureRequest) -> Graph:
    options = {"operators": 400} if "operators" in family_options(request.param) else {}
    return synthetic(request.param, training=True, **options)


def test_every_backward_and_update_operator_has_a_forward_twin(trained: Graph) -> None:
    late = trained.phases != FORWARD
    assert (trained.twins[late] >= 0).all()
    assert (trained.phases[trained.twins[late]] == FORWARD).all()
    assert (trained.twins[~late] == -1).all()
    assert (trained.colocation[late] == trained.colocation[trained.twins[late]]).all()


def test_gradients_flow_against_the_data(trained: Graph) -> None:
    backward = {int(trained.twins[v]): v for v in np.flatnonzero(trained.phases == BACKWARD).tolist()}
    edges = {tuple(edge) for edge in trained.edges.tolist()}
    forward = [(u, v) for u, v in edges if trained.phases[u] == trained.phases[v] == FORWARD]
    assert forward
    for u, v in forward:
        assert u not in backward or (backward[v], backward[u]) in edges


def test_every_weight_has_one_update_with_two_moments(trained: Graph) -> None:
    names = dict(zip(trained.weight_names, trained.weight_bytes.tolist(), strict=True))
    weights = [name for name in names if not name.endswith(".moments")]
    assert int((trained.phases == UPDATE).sum()) - trained.kinds.count(REFRESH) == len(weights)
    assert all(names[f"{name}.moments"] == 2 * names[name] for name in weights)


def test_backward_work_is_twice_the_forward_work() -> None:
    graph = synthetic("transformer", layers=2, training=True)
    by_phase = {phase: graph.flops[graph.phases == number].sum() for number, phase in enumerate(PHASES)}
    assert by_phase["backward"] == 2 * by_phase["forward"]


def test_steps_that_share_a_weight_pass_its_gradient_on() -> None:
    graph = synthetic("lstm-grid", layers=1, steps=3, hidden=8, training=True)
    gates = [graph.index(f"cells.0#{step}/gates.backward") for step in range(3)]
    update = graph.index("cells.0.weight.update")
    edges = {tuple(edge) for edge in graph.edges.tolist()}
    assert {(gates[2], gates[1]), (gates[1], gates[0]), (gates[0], update)} <= edges
    assert (gates[2], update) not in edges


def test_what_is_read_again_backward_lives_until_then() -> None:
    graph = synthetic("transformer", layers=1, training=True)
    gelu = graph.index("layers.0.mlp.gelu")
    (read,) = graph.operator(gelu).reads
    assert graph.index("layers.0.mlp.gelu.backward") in graph.tensor(read).readers


# The entry point


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("lstm_grid", {}, "no family 'lstm_grid'; did you mean 'lstm-grid'"),
        ("lstm-grid", {"layer": 2}, "has no option 'layer'; did you mean 'layers'"),
        ("enas-cnn", {"operators": 10}, "has no option 'operators'"),
        ("lstm-grid", {"layers": "2"}, "option layers of family 'lstm-grid' needs a value of type int, got '2'"),
        ("layered", {"operators": 0}, "at least 1 operator"),
        ("layered", {"width": 0}, "width must be at least 1"),
        ("layered", {"free_share": 2.0}, r"free_share must lie in 0\.\.1"),
        ("branches", {"depth": 0}, "depth must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_suggestion(
    family: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        synthetic(family, **options)


def test_the_sets_of_placeto_have_their_names() -> None:
    assert synthetic("cifar10", seed=5) == synthetic("enas-cnn", seed=5)
    assert synthetic("ptb", seed=5) == synthetic("enas-rnn", seed=5)


def test_a_hundred_thousand_operators_take_a_second() -> None:
    begin = time.process_time()
    assert len(synthetic("lstm-grid", operators=100_000)) > 99_000
    assert time.process_time() - begin < 8  # about 0.5 on an idle core


def test_every_step_of_a_cell_but_the_first_is_sent_the_updated_weight() -> None:
    """The update is bound to the first step; the four others of each of two cells need what it wrote."""
    graph = synthetic("lstm-grid", layers=2, steps=5, hidden=64, training=True)
    for name in ("cells.0.weight", "cells.1.weight"):
        sent = graph.tensor(graph.tensor_names.index(f"{name}.updated"))
        assert graph.operator_names[sent.producer] == f"{name}.update"
        assert sent.size_bytes == graph.weight_bytes[graph.weight_names.index(name)]
        assert len(sent.readers) == 4
