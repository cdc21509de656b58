"""What crossings cost in place: links are found again, and what says nothing changes nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stead import Placement, Problem
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import RunFailed
from stead.graph import Graph, GraphBuilder
from stead.graph.arrays import with_colocation
from stead.run.crossing_times import crossings_in_place, drawn_together, fitted
from stead.run.executor import Burst, Worker
from stead.run.predict import predict
from stead.run.profile import Timings

NAMES = ["a", "b"]


def wide(layers: int = 12) -> Graph:
    """Two branches that exchange tensors of many sizes."""
    build = GraphBuilder()
    last = [build.tensor(build.operator(f"in{i}"), size_bytes=1000) for i in range(2)]
    for layer in range(layers):
        made = [build.operator(f"{layer}.{i}", reads=tuple(last)) for i in range(2)]
        last = [build.tensor(one, size_bytes=(1 + layer) * 400_000) for one in made]
    build.operator("out", reads=tuple(last))
    return build.build()


def problem_of(graph: Graph, latency: float, rate: float, slower: float = 1.0) -> Problem:
    cluster = Cluster(
        tuple(map(Device, NAMES)), link_all(NAMES, bytes_per_second=rate, latency_seconds=latency)
    )
    return Problem(graph, cluster, Costs(graph, cluster, np.full((len(graph), 2), slower * 2e-3)))


class Machine:
    """Runs placements as predicted with links of its own."""

    name, workers = "double", (Worker("a", (0,)), Worker("b", (1,)))

    def __init__(self, truth: Problem, lost: str = "") -> None:
        self.truth, self.graph, self.lost = truth, truth.graph, lost

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        seconds = predict(self.truth, placement, ordered_by=placement.problem).seconds
        return Burst(() if self.lost else (seconds,) * runs, "simulated", lost=self.lost)


def timings(problem: Problem) -> list[Timings]:
    return [Timings(name, problem.costs.seconds[None, :, d].repeat(5, axis=0)) for d, name in enumerate(NAMES)]


@pytest.mark.parametrize("slower", [1.0, 1.4])
def test_links_that_are_slower_in_place_are_found_though_the_machine_drifts(slower: float) -> None:
    believed = problem_of(wide(), 2e-6, 6e9)
    truth = problem_of(wide(), 2e-6 * slower, 6e9 / 2 / slower, slower)
    found = crossings_in_place(Machine(truth), timings(believed), believed.cluster)  # type: ignore[arg-type]
    assert (found.latency_factor, found.byte_factor, found.placements) == (1.0, pytest.approx(2.0), 4)
    assert found.error_after < 1e-9 < found.error_before
    assert found.cluster.links[0].bytes_per_second == pytest.approx(3e9)


def test_where_messages_were_right_nothing_changes() -> None:
    believed = problem_of(wide(), 2e-6, 6e9)
    found = crossings_in_place(Machine(believed), timings(believed), believed.cluster)  # type: ignore[arg-type]
    assert (found.latency_factor, found.byte_factor) == (1.0, 1.0)
    assert found.cluster == believed.cluster


def test_lost_bursts_are_left_out_and_none_at_all_is_one_line() -> None:
    believed = problem_of(wide(), 2e-6, 6e9)
    split = Placement(believed, np.arange(len(believed.graph)) % 2)
    seconds = predict(believed, split).seconds
    assert fitted(believed, [split, split], [math.nan, seconds]).placements == 1
    with pytest.raises(RunFailed, match="crossings could not be timed"):
        crossings_in_place(Machine(believed, lost="busy"), timings(believed), believed.cluster)  # type: ignore[arg-type]


def test_what_belongs_together_is_drawn_together() -> None:
    build = GraphBuilder()
    for name in "abc":
        build.operator(name)
    graph = with_colocation(build.build(), [0, -1, 0], ["pair"])
    assert drawn_together(graph, np.array([1, 0, 0])).tolist() == [1, 0, 1]
