"""Where nodes lie in the work of a graph: by hand on chains, and alike for any number of steps and devices."""

from __future__ import annotations

import numpy as np
import pytest
from small import grid, pair

from stead.cluster import Cluster, Device, link_all
from stead.coarsen import Grouping, single_groups
from stead.costs import Roofline
from stead.graph import GraphBuilder
from stead.learn.gdp.shares import BYTES, FAR, ORDERS, device_offsets, node_places
from stead.problem import Constraints, Latency, Problem

LAYERS = slice(len(ORDERS), 2 * len(ORDERS))  # places in which all users of a weight lie together


def chain(cluster: Cluster, length: int = 8) -> Problem:
    build = GraphBuilder("chain")
    tensor = build.tensor(build.operator("v0", flops=1e10), size_bytes=4)
    for v in range(1, length):
        tensor = build.tensor(build.operator(f"v{v}", flops=1e10, reads=[tensor]), size_bytes=4)
    graph = build.build()
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())


def nearest(problem: Problem) -> np.ndarray:  # type: ignore[type-arg]
    """The device whose part every operator lies nearest to, by time and by layer: [operator, place]."""
    offsets = device_offsets(problem, node_places(problem, single_groups(problem.graph)))
    return np.asarray(np.abs(offsets[:, :, : 2 * len(ORDERS)]).argmin(axis=1))


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_the_nearest_device_is_that_of_equal_blocks(devices: int) -> None:
    blocks = np.arange(8) * devices // 8
    assert (nearest(chain(pair(devices=devices))) == blocks[:, None]).all()


def test_a_faster_device_has_a_longer_block() -> None:
    names = ["fast", "slow"]
    cluster = Cluster(
        tuple(
            Device(name, memory_bytes=2**30, flops_per_second={"fp32": speed}, bytes_per_second=1e15)
            for name, speed in zip(names, (3e12, 1e12), strict=True)
        ),
        link_all(names, bytes_per_second=12e9, latency_seconds=0.0),
    )
    problem = chain(cluster)
    offsets = device_offsets(problem, node_places(problem, single_groups(problem.graph)))[:, :, 0]
    assert (np.abs(offsets[:, 0]) < 0.5).tolist() == [True] * 6 + [False] * 2
    assert (np.abs(offsets[:, 1]) < 0.5).tolist() == [False] * 6 + [True] * 2


def test_backward_operators_lie_where_their_forward_operators_lie() -> None:
    problem = grid(steps=3)
    graph = problem.graph
    places = node_places(problem, single_groups(graph))
    late = np.flatnonzero(graph.twins >= 0)
    assert late.size
    assert np.allclose(places[late], places[graph.twins[late]], atol=1e-12)
    assert np.ptp(places[late, :BYTES], axis=0).min() > 0.3


def test_layers_lie_where_they_lie_however_many_steps_there_are() -> None:
    found = []
    for steps in (4, 12):
        problem = grid(steps=steps, layers=4)
        places = node_places(problem, single_groups(problem.graph))
        users = [
            problem.graph.weight_users[a:b]
            for a, b in zip(
                problem.graph.weight_user_first, problem.graph.weight_user_first[1:], strict=False
            )
        ]
        for used in users:  # all calls of a layer lie together, and apart in time
            assert np.ptp(places[used, LAYERS], axis=0).max(initial=0.0) < 1e-12
        assert max(np.ptp(places[used, 0]) for used in users) > 0.3
        found.append(np.array([places[used[0], LAYERS] for used in users]))
    assert np.abs(found[0] - found[1]).max() < 0.1


def test_nodes_lie_at_the_mean_of_their_operators_and_forbidden_devices_far_away() -> None:
    problem = chain(pair(devices=2), length=4)
    two = Grouping(problem.graph, [0, 0, 1, 1])
    assert node_places(problem, two)[:, 0].tolist() == pytest.approx([0.25, 0.75])
    names = problem.graph.operator_names
    bound = problem.with_constraints(Constraints(pin=tuple((name, "g1") for name in names)))
    offsets = device_offsets(bound, node_places(bound, two))
    assert (offsets[:, 0, :BYTES] == FAR).all()
    assert (np.abs(offsets[:, 1, :BYTES]) <= 0.5).all()
