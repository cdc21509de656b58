"""local-search: descents by single moves."""

from __future__ import annotations

import numpy as np
import pytest
from small_pipelines import NO_DATA, published

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import Infeasible
from stead.graph import GraphBuilder
from stead.problem import Problem, Throughput
from stead.solvers import Budget, Solver
from stead.solvers.search.local_search import LocalSearch
from stead.testing import chain3, tiny_problem
from stead.testing.contracts import SolverContract


class TestLocalSearch(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return LocalSearch()


def test_work_without_tensors_is_balanced() -> None:
    problem = tiny_problem({"a": 1, "b": 2, "c": 3, "d": 4}, {}, objective=Throughput())
    assert LocalSearch().solve(problem, Budget()).objective_seconds == 5.0


def test_latency_is_refused() -> None:
    assert "load" in (LocalSearch().unsupported(chain3()) or "")


def heavy(first_bytes: int, host_seconds: float = 9.0) -> Problem:
    """Two operators of 1 s with 10 bytes of weights each; a host and two accelerators."""
    build = GraphBuilder("heavy")
    for name in "ab":
        build.weight(f"w{name}", size_bytes=10, users=[build.operator(name)])
    graph = build.build()
    devices = (
        Device("cpu", kind="cpu", memory_bytes=100),
        Device("gpu0", kind="gpu", memory_bytes=first_bytes),
        Device("gpu1", kind="gpu", memory_bytes=first_bytes),
    )
    cluster = Cluster(devices, link_all(["cpu", "gpu0", "gpu1"], bytes_per_second=1.0))
    seconds = np.array([[host_seconds, 1.0, 1.0]] * 2)
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=Throughput())


def test_only_accelerators_are_used() -> None:
    solution = LocalSearch().solve(heavy(100, host_seconds=0.1), Budget())
    assert (solution.objective_seconds, solution.placement.counts()) == (
        1.0,
        {"cpu": 0, "gpu0": 1, "gpu1": 1},
    )


def test_what_does_not_fit_is_found_out_at_the_end() -> None:
    with pytest.raises(Infeasible) as caught:
        LocalSearch().solve(heavy(7), Budget())
    assert caught.value.short_bytes == {"gpu0": 3, "gpu1": 3}


@NO_DATA
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "known_ms"),
    [
        ("LayerGraphs/bert24_inference", 17.778),
        ("LayerGraphs/gnmt_inference", 31.783),
        ("OperatorGraphs/bert_l-3_inference", 27.574),
    ],
)
def test_published_inputs_come_out_about_as_published(name: str, known_ms: float) -> None:
    value = LocalSearch().solve(published(name), Budget()).objective_seconds * 1e3
    assert 0.75 * known_ms < value < 1.1 * known_ms  # random starts are not theirs
