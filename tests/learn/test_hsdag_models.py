"""HSDAG on the paper's models, and what it must reach; what takes minutes or converts models needs STEAD_SLOW=1."""

from __future__ import annotations

import os
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from stead.coarsen import Grouping  # noqa: E402
from stead.graph import Graph  # noqa: E402
from stead.graph.components import connected  # noqa: E402
from stead.learn.ground.task import Start  # noqa: E402
from stead.learn.ground.torch_state import one_thread  # noqa: E402
from stead.learn.hsdag.coarsening import chains, published  # noqa: E402
from stead.learn.hsdag.fractal import fractal_dimensions  # noqa: E402
from stead.learn.hsdag.method import HSDAG  # noqa: E402
from stead.learn.hsdag.published import PublishedInputs, PublishedLoop, PublishedNet, index_order  # noqa: E402
from stead.problem import Latency, Placement, Problem  # noqa: E402
from stead.readers.native.npz import GraphNpz  # noqa: E402
from stead.readers.openvino.reader import OpenVino  # noqa: E402
from stead.solvers import Budget, solver  # noqa: E402
from stead.workloads.resnet50_measured import resnet50_measured  # noqa: E402

ROOT = Path(__file__).parents[2]
GRAPHS = ROOT / "experiments" / "hsdag" / "graphs"
sys.path.insert(0, str(ROOT))

from experiments.hsdag.ir_models import IR_MODELS, measured_costs, save_ir  # noqa: E402

SEQUENTIAL = Latency("sequential")
SEEDS = range(10)
slow = pytest.mark.skipif(os.environ.get("STEAD_SLOW") != "1", reason="takes minutes; set STEAD_SLOW=1")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def stored(name: str, fold: str = "nothing") -> Graph:
    return GraphNpz().read(GRAPHS / f"{name}-{fold}.npz").graph


def measured() -> Problem:
    """ResNet-50 with one operator per layer and measured times."""
    graph = stored("resnet50")
    return Problem(graph, *measured_costs(graph), objective=SEQUENTIAL)


def quotient(graph: Graph, label: np.ndarray) -> tuple[Grouping, np.ndarray]:  # type: ignore[type-arg]
    grouping = Grouping(graph, label)
    pairs = np.unique(grouping.group[graph.edges].astype(np.int64), axis=0)
    return grouping, pairs[pairs[:, 0] != pairs[:, 1]]


# H1: sizes


@pytest.mark.parametrize(
    ("name", "fold", "size"),
    [
        ("resnet50", "nothing", (396, 411)),
        ("resnet50", "constants", (178, 193)),
        ("inception-v3", "nothing", (726, 762)),
        ("inception-v3", "constants", (325, 361)),
        ("bert", "nothing", (981, 1059)),  # transformers 5.22.2, openvino 2026.4.1
    ],
)
def test_the_graphs_have_the_known_sizes(name: str, fold: str, size: tuple[int, int]) -> None:
    graph = stored(name, fold)
    assert (len(graph), len(graph.edges)) == size


def test_co_location_and_chains_have_the_known_sizes() -> None:
    grouping, pairs = quotient(stored("resnet50"), published(stored("resnet50")))
    assert (grouping.count, len(pairs)) == (237, 252)
    assert Counter(grouping.sizes.tolist()) == {1: 79, 2: 157, 3: 1}
    folded = stored("resnet50", "constants")
    grouping, pairs = quotient(folded, chains(folded))
    assert (grouping.count, len(pairs)) == (39, 54)
    grouping, pairs = quotient(stored("inception-v3"), published(stored("inception-v3")))
    assert (grouping.count, len(pairs)) == (424, 460)


def test_layers_with_measured_times_have_the_same_optimum() -> None:
    problem = measured()
    assert (problem.costs.seconds.sum(axis=0) * 1e3).round(4).tolist() == [75.704, 74.571]
    found = solver("mincut").solve(problem, Budget(), 0)
    assert found.objective_seconds * 1e3 == pytest.approx(55.9495, abs=5e-5)


@slow
@pytest.mark.filterwarnings("ignore")  # of the tracer
@pytest.mark.parametrize("name", IR_MODELS)
def test_converting_again_gives_the_stored_graph(name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = save_ir(name, tmp_path)
    graph, kept = OpenVino(fold="nothing").read(path).graph, stored(name)
    if name == "bert" and len(graph) != len(kept):
        pytest.skip("another version of transformers")
    assert Counter(graph.kinds) == Counter(kept.kinds)
    assert len(graph.edges) == len(kept.edges)


# H2: names


def submodels(graph: Graph, devices: np.ndarray) -> int:  # type: ignore[type-arg]
    """Connected parts of one device, constants and what converts them aside."""
    stored_only = np.array([kind == "Const" for kind in graph.kinds])
    for u, v in graph.edges.tolist():
        stored_only[v] |= graph.kinds[v] == "Convert" and stored_only[u]
    same = (devices[graph.edges[:, 0]] == devices[graph.edges[:, 1]]) & ~stored_only[graph.edges[:, 0]]
    label = connected(len(graph), graph.edges[same, 0], graph.edges[same, 1])
    return len(np.unique(label[~stored_only]))


@pytest.mark.parametrize("name", IR_MODELS)
def test_two_chunks_are_two_submodels_by_name_and_many_by_position(name: str) -> None:
    graph = stored(name)
    assert len(set(graph.operator_names)) == len(graph)
    devices = np.zeros(len(graph), dtype=np.int64)
    # Cut before a layer whose result everything later depends on, so that both halves hang together.
    if name == "resnet50":
        devices[graph.index("__module.blocks.7/aten::relu/Relu") + 1 :] = 1
        assert submodels(graph, devices) == 2
    else:
        devices[len(graph) // 2 :] = 1
    by_name = {graph.operator_names[v]: int(devices[v]) for v in range(len(graph))}
    read = np.array([by_name[other] for other in graph.operator_names])
    assert (read == devices).all()
    wrong = np.empty_like(devices)
    wrong[index_order(graph)] = devices
    assert (wrong != devices).sum() > 50
    assert submodels(graph, wrong) > submodels(graph, devices)


@slow
@pytest.mark.filterwarnings("ignore")  # of the tracer
@pytest.mark.parametrize("name", ["resnet50"])
def test_affinities_are_read_back_by_name(name: str, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    path = save_ir(name, tmp_path)
    problem = Problem(*_priced(OpenVino(fold="nothing").read(path).graph), objective=SEQUENTIAL)
    rng = np.random.default_rng(0)
    placement = Placement(problem, rng.integers(0, 2, len(problem.graph)))
    model = openvino.Core().read_model(path)
    for op in model.get_ops():
        op.get_rt_info()["affinity"] = placement.by_name()[op.get_friendly_name()]
    read = {
        op.get_friendly_name(): op.get_rt_info()["affinity"].astype(str) for op in model.get_ordered_ops()
    }
    assert sum(read[operator] != device for operator, device in placement.by_name().items()) == 0
    by_position = zip(
        problem.graph.operator_names, (op.get_friendly_name() for op in model.get_ops()), strict=True
    )
    assert sum(first == second for first, second in by_position) < 10


def _priced(graph: Graph) -> tuple[Graph, object, object]:
    return (graph, *measured_costs(graph))


# H9, H14: parsing and features


def test_the_fractal_dimensions_of_resnet50() -> None:
    grouping, pairs = quotient(stored("resnet50"), published(stored("resnet50")))
    found = fractal_dimensions(grouping.count, pairs)
    assert found.min() == pytest.approx(1.16, abs=0.005)
    assert found.max() == pytest.approx(2.06, abs=0.005)


@pytest.mark.parametrize("name", IR_MODELS)
def test_without_dropout_the_published_parsing_has_one_group_and_ours_several(name: str) -> None:
    from stead.cluster import Cluster, Device, link_all
    from stead.costs import Roofline

    names = ("a", "b")
    devices = tuple(Device(one, flops_per_second={"fp32": 1e12}, bytes_per_second=1e11) for one in names)
    cluster = Cluster(devices, link_all(names, bytes_per_second=5e9))
    graph = stored(name)
    problem = Problem(graph, cluster, Roofline().costs(graph, cluster), objective=SEQUENTIAL)
    inputs = PublishedInputs.of(problem, Grouping(graph, published(graph)))
    torch.manual_seed(0)
    network = PublishedNet(inputs.x.shape[1], 2).eval()
    with torch.no_grad():
        assert len(np.unique(network(inputs.x, inputs.edges)[1])) == 1
    ours = HSDAG(coarsening="published")
    assert len(np.unique(ours.network(2, 0).hierarchy(ours.inputs(problem)[1])[0])) > 10


# H10, H12, H13: what learning reaches


def after(options: HSDAG, problem: Problem, seed: int, evaluations: int = 500) -> tuple[float, object]:
    """Best sample in ms after so many placements, known ones included."""
    own = options.learner([problem], seed, [Start.of(problem)])
    for _ in range(evaluations // own.evaluations_per_update):
        own.update()
    return own.tasks[0].scorer.best_seconds * 1e3, own


@slow
def test_the_published_loop_shows_its_defects() -> None:  # H10
    best, own = after(HSDAG(variant="faithful"), measured(), 0)
    assert isinstance(own, PublishedLoop)
    assert len(np.unique(own.groups(own.tasks[0]))) == 1
    # The reference saw 1 to 7 groups; over 500 samples a few have more. The experiment reports that as it is.
    assert np.mean(np.array(own.counts) <= 7) > 0.95
    assert 1 < max(own.counts) <= 12
    assert 0.25 <= own.rejected / len(own.counts) <= 0.5
    assert 67 <= best <= 72


@slow
def test_learning_beats_learning_rate_zero_and_comes_near_the_optimum() -> None:  # H12, H13
    problem = Problem(*resnet50_measured(), objective=SEQUENTIAL)
    own = [after(HSDAG(), problem, seed)[0] for seed in SEEDS]
    zero = [after(HSDAG(learning_rate=0.0), problem, seed)[0] for seed in SEEDS]
    assert all(a < b for a, b in zip(own, zero, strict=True)), (own, zero)
    assert statistics.median(zero) - statistics.median(own) >= 10
    assert statistics.median(own) <= 57.6
    assert max(own) <= 58.7


@slow
def test_two_thousand_evaluations_come_nearer() -> None:  # H13
    problem = Problem(*resnet50_measured(), objective=SEQUENTIAL)
    assert statistics.median(after(HSDAG(), problem, seed, 2000)[0] for seed in SEEDS) <= 56.3
