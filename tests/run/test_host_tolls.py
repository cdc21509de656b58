"""Tolls: operators pay for what their hosts send and receive, once for every host."""

from __future__ import annotations

import numpy as np
import pytest

from stead import Placement, Problem, simulate
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.problem import Throughput
from stead.run.hosts.host_tolls import Toll, with_tolls


def fan() -> Problem:
    """One operator whose output three others read, on three devices."""
    build = GraphBuilder("fan")
    made = build.tensor(build.operator("source"), size_bytes=1000)
    for name in ("left", "middle", "right"):
        build.operator(name, reads=[made])
    graph = build.build()
    names = ("x", "y", "z")
    cluster = Cluster(tuple(map(Device, names)), link_all(names, bytes_per_second=1e9))
    return Problem(graph, cluster, Costs(graph, cluster, np.full((4, 3), 1.0)), objective=Throughput("duplex"))


def test_a_tensor_is_paid_for_once_by_every_host_that_reads_it() -> None:
    problem = fan()
    placement = Placement(problem, [0, 1, 2, 0])
    tolls = (Toll(0, 1, 1e-3, 2e-3), Toll(1, 0, 5e-3, 6e-3))
    together = with_tolls(problem, placement, tolls, (0, 1, 1)).costs.seconds  # y and z are on the second host
    assert together[0, 0] == pytest.approx(1.0 + 1.0)
    assert together[1, 1] == pytest.approx(1.0 + 2.0)
    assert together[2, 2] == together[3, 0] == 1.0
    assert np.count_nonzero(together != problem.costs.seconds) == 2
    apart = with_tolls(problem, placement, (Toll(0, 1, 1e-3, 2e-3), Toll(0, 2, 3e-3, 4e-3)), (0, 1, 2)).costs.seconds
    assert apart[0, 0] == pytest.approx(1.0 + 1.0 + 3.0)
    assert (apart[1, 1], apart[2, 2]) == (pytest.approx(3.0), pytest.approx(5.0))


def test_the_slowest_host_is_slower_by_what_it_pays() -> None:
    problem = fan()
    placement = Placement(problem, [0, 1, 1, 1])
    paying = with_tolls(problem, placement, (Toll(0, 1, 1e-3, 2e-3),), (0, 1, 1))
    seconds = [simulate(one, Placement(one, placement.devices)).objective_seconds for one in (problem, paying)]
    assert seconds == [pytest.approx(3.0), pytest.approx(5.0)]


def test_one_host_pays_nothing() -> None:
    problem = fan()
    made = with_tolls(problem, Placement(problem, [0, 1, 2, 0]), (), (0, 0, 0))
    assert np.array_equal(made.costs.seconds, problem.costs.seconds)
