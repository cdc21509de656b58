"""Dividing anew what two devices hold."""

from __future__ import annotations

import numpy as np

from stead.cluster import Cluster, Device, link_both_ways
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.problem import Problem, Throughput
from stead.solvers import Budget
from stead.solvers.search.redivide import redivide
from stead.solvers.search_state import Search


def separate(seconds: list[float], devices: int = 3) -> Problem:
    """Operators that have nothing to do with each other, on equal devices."""
    build = GraphBuilder()
    for number in range(len(seconds)):
        build.operator(f"v{number}")
    graph = build.build()
    names = [f"g{d}" for d in range(devices)]
    links = tuple(
        link
        for i, one in enumerate(names)
        for other in names[i + 1 :]
        for link in link_both_ways(one, other, bytes_per_second=1e9, latency_seconds=0.0)
    )
    cluster = Cluster(tuple(Device(name, "gpu", 100) for name in names), links)
    costs = Costs(graph, cluster, np.repeat(np.array(seconds)[:, None], devices, axis=1))
    return Problem(graph, cluster, costs, objective=Throughput())


def searched(problem: Problem, devices: list[int]) -> Search:
    """A search with an incumbent that has been divided anew."""
    search = Search(problem, Budget(), solver="test")
    search.offer(np.array(devices, dtype=np.uint8))
    redivide(search)
    return search


def test_two_devices_exchange_what_no_single_move_would() -> None:
    # 3 + 3 against 2 + 2 + 2 is 6 each; 3 + 2 + 2 against 3 + 2 is 7, and every single move makes it worse.
    assert searched(separate([3, 3, 2, 2, 2], devices=2), [0, 1, 0, 0, 1]).best_seconds == 6.0


def test_the_busiest_device_is_divided_with_all_others() -> None:
    assert searched(separate([3, 3, 3], devices=3), [0, 0, 0]).best_seconds == 3.0


def test_what_is_the_best_stays() -> None:
    search = searched(separate([1, 1, 1]), [0, 1, 2])
    assert (search.best_seconds, search.found_by) == (1.0, "test")
