"""Links that their sender carries: a device that copies what others read does nothing else meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hand import US, ask, small

from stead.cluster import Cluster, Device, Link, link_all
from stead.costs import Costs
from stead.errors import BadCluster
from stead.problem import Fifo, Placement, Policy, Priority, Problem, ProgramOrder
from stead.report.slack import slack_ticks
from stead.sim import screen_many, simulate

ENGINES = pytest.mark.parametrize("engine", ["reference", "native"])
POLICIES = pytest.mark.parametrize(
    "policy", [Fifo(), Priority(np.arange(4)), Priority(np.arange(4), np.arange(2)), ProgramOrder()], ids=str
)


def carried(us: list[float], tensors: list[tuple[int, list[int], int]], *, devices: int = 2) -> Problem:
    return small(us, tensors, devices=devices, latency_us=1, carried_by="sender")


@ENGINES
@POLICIES
def test_what_follows_on_the_sender_waits_for_each_copy_in_turn(engine: str, policy: Policy) -> None:
    # operator 0 ends at 5 and its device copies until 5 + 1 + 1 = 7, then until 7 + 1 + 2 = 10
    problem = carried([5, 1, 1, 4], [(0, [1], 1000), (0, [2], 2000)])
    assert ask(engine, problem, [0, 1, 1, 0], policy).start_us == [0, 7, 10, 10]
    by_link = small([5, 1, 1, 4], [(0, [1], 1000), (0, [2], 2000)], latency_us=1)
    assert ask(engine, by_link, [0, 1, 1, 0], policy).start_us == [0, 7, 9, 5]


@ENGINES
@POLICIES
def test_one_copy_is_there_for_all_who_read_it(engine: str, policy: Policy) -> None:
    problem = carried([5, 1, 1, 4], [(0, [1, 2], 2000), (1, [], 0)], devices=3)
    outcome = ask(engine, problem, [0, 1, 2, 0], policy)
    assert outcome.start_us == [0, 8, 8, 8]
    assert outcome.transfers == {(0, 1): (-2, 5 * US, 8 * US), (0, 2): (-2, 5 * US, 8 * US)}


@ENGINES
def test_a_copy_lasts_until_the_slowest_has_it(engine: str) -> None:
    problem = carried([5, 1, 1, 4], [(0, [1, 2], 2000)], devices=3)
    rates = {"gpu2": 5e8}
    links = (replace(link, bytes_per_second=rates.get(link.target, 1e9)) for link in problem.cluster.links)
    cluster = replace(problem.cluster, links=tuple(links))
    other = Problem(problem.graph, cluster, Costs(problem.graph, cluster, problem.costs.seconds))
    assert ask(engine, other, [0, 1, 2, 0]).start_us == [0, 8, 10, 10]


def test_a_listed_order_does_not_put_off_what_a_device_carries() -> None:
    problem = carried([5, 1, 4], [(0, [1], 1000)])
    late = ProgramOrder(np.array([0, 2, 3 + 1, 1]), sends=True)  # the transfer is listed behind operator 2
    for engine in ("reference", "native"):
        assert ask(engine, problem, [0, 1, 0], late).start_us == [0, 7, 7]


def test_the_critical_path_and_busy_time_have_the_copies() -> None:
    problem = carried([5, 1, 1, 4], [(0, [1], 1000), (0, [2], 2000)])
    trace = simulate(problem, Placement(problem, [0, 1, 1, 0]))
    trace.check()
    path = [(step.kind, step.seconds * 1e6) for step in trace.critical_path()]
    assert path == [("operator", 5.0), ("queue", 2.0), ("transfer", 3.0), ("operator", 4.0)]
    assert trace.busy_seconds.tolist() == [14e-6, 2e-6]
    assert (slack_ticks(trace.timeline) / US).tolist() == [0, 5, 3, 0]  # operator 1 has to leave 1 us for operator 2


def test_the_screen_knows_who_carries() -> None:
    problem = carried([5, 1, 1, 4], [(0, [1], 1000), (0, [2], 2000)])
    rows = np.array([[0, 1, 1, 0], [0, 0, 0, 0]], dtype=np.uint8)
    assert screen_many(problem, rows, order=np.arange(4, dtype=np.int32)).tolist() == pytest.approx([14e-6, 11e-6])


def test_a_route_is_carried_where_each_of_its_links_is() -> None:
    devices = tuple(Device(name) for name in "abc")
    ways = (Link("a", "b", 1e9, carried_by="sender"), Link("b", "c", 1e9, carried_by="sender"), Link("c", "b", 1e9))
    channel = Cluster(devices, (*ways, Link("b", "a", 1e9, carried_by="sender"))).routes().channel
    assert channel[0, 2] == -2
    assert channel[2, 0] >= 0


def test_a_carried_link_has_no_gap() -> None:
    with pytest.raises(BadCluster, match="add it to the latency"):
        link_all(["a", "b"], bytes_per_second=1e9, gap_seconds=1e-6, carried_by="sender")
    with pytest.raises(BadCluster, match="carried by link or sender"):
        Link("a", "b", 1e9, carried_by="pigeon")  # type: ignore[arg-type]
