"""pipedream: merge what branches, cut what is left."""

from __future__ import annotations

import numpy as np
import pytest
from small_pipelines import NO_DATA, published

from stead.problem import Problem, Throughput
from stead.solvers import Budget, Solver
from stead.solvers.build.pipedream import Pipedream, biconnected, contracted, merged_tails
from stead.solvers.exact.reduction import reduce
from stead.testing import chain3, tiny_problem
from stead.testing.contracts import SolverContract


class TestPipedream(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Pipedream()


def components(count: int, *edges: tuple[int, int]) -> list[list[int]]:
    first, second = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    return sorted(sorted(nodes) for nodes in biconnected(count, first, second))


def test_bridges_and_rings_are_told_apart() -> None:
    # A ring of three, a bridge, a ring of four that touches a fifth ring in node 5, and a node alone.
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (3, 6), (5, 7), (7, 8), (5, 8)]
    assert components(10, *edges) == [[0, 1, 2], [2, 3], [3, 4, 5, 6], [5, 7, 8]]


def test_a_graph_without_edges_has_no_components() -> None:
    assert components(3) == []


def groups(problem: Problem) -> list[int]:
    labels: list[int] = merged_tails(reduce(problem, merge="off")).tolist()
    return labels


def test_a_chain_stays_as_it_is() -> None:
    assert groups(chain3(Throughput())) == [0, 1, 2]


def test_a_branch_is_merged_up_to_where_it_ends() -> None:
    # a -> b, c -> d -> e: a, b and c are the tails of the ring's edges.
    seconds = dict.fromkeys("abcde", 1.0)
    reads = {"b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}
    assert groups(tiny_problem(seconds, reads, objective=Throughput())) == [0, 0, 0, 3, 4]


def test_an_input_without_work_joins_nothing_but_its_first_reader() -> None:
    # a -> b -> c, and all of them read a mask.
    seconds = {"mask": 0.0, "a": 1.0, "b": 1.0, "c": 1.0}
    reads = {"a": ["mask"], "b": ["a", "mask"], "c": ["b", "mask"]}
    assert groups(tiny_problem(seconds, reads, objective=Throughput())) == [0, 0, 2, 3]


def test_contraction_adds_up_work_and_drops_what_stays_inside() -> None:
    reads = {"b": ["a"], "c": ["a", "b"], "d": ["c"]}
    problem = tiny_problem(dict(zip("abcd", [1, 2, 3, 4], strict=True)), reads, objective=Throughput())
    line = contracted(reduce(problem, merge="off"), np.array([0, 0, 2, 3]))
    assert (line.ticks[:, 0, 0] / 1e12).tolist() == [3, 3, 4]
    assert line.tensor_source.tolist() == [0, 0, 1]  # those of a, b and c, each to the next group
    assert (line.readers.tolist(), line.order.tolist()) == ([1, 1, 2], [[0, 1], [1, 2]])


def test_only_bridges_are_cut() -> None:
    # The ring of 30 + 20 + 20 s stays together and sends two tensors to d: 70 + 5 against 40 + 5.
    seconds = {"a": 30, "b": 20, "c": 20, "d": 20, "e": 20}
    reads = {"b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}
    problem = tiny_problem(seconds, reads, objective=Throughput())
    solution = Pipedream().solve(problem, Budget())
    assert (solution.objective_seconds, solution.placement.counts()) == (75.0, {"d0": 3, "d1": 2})


@NO_DATA
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "known_ms"),
    [
        ("LayerGraphs/bert24_inference", 17.78990625),
        ("LayerGraphs/bert24_training", 41.7458125),  # with the published planner's ids put right
        ("LayerGraphs/inceptionv3_inference", 60.41703155517578),
        ("LayerGraphs/resnet50_inference", 39.398109375),
        ("LayerGraphs/resnet50_training", 83.67440625),
        ("OperatorGraphs/bert_l-3_inference", 37.45572978205479),
        ("OperatorGraphs/bert_l-3_training", 122.98719710771456),
        ("OperatorGraphs/bert_l-6_inference", 65.56466979260807),
        ("OperatorGraphs/resnet50_inference", 129.15516598237818),
    ],
)
def test_published_inputs_have_the_values_of_the_published_planner(name: str, known_ms: float) -> None:
    value = Pipedream().solve(published(name), Budget()).objective_seconds * 1e3
    assert value == pytest.approx(known_ms, rel=1e-6)
