"""Clusters of several machines: what a file says about hosts, that nothing is lost, and one link between two hosts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stead import Placement, Problem, Solution, simulate
from stead.cluster import (
    Cluster,
    Device,
    Host,
    Link,
    cluster_from_json,
    cluster_from_toml,
    cluster_to_json,
    cluster_to_toml,
    link_all,
)
from stead.costs import Costs
from stead.errors import BadCluster
from stead.graph import GraphBuilder
from stead.plan import Plan

FOUR = "".join(f'[[device]]\nname = "{name}"\n' for name in ("a0", "a1", "b0", "b1"))
HOSTS = (
    '[[host]]\nname = "a"\naddress = "10.0.0.1"\ndevices = ["a0", "a1"]\n'
    '[[host]]\nname = "b"\ndevices = ["b0", "b1"]\n'
)
INSIDE = '[[link]]\nbetween = ["{0}", "{0}"]\nbandwidth = "6GB/s"\nlatency = "3us"\n'
BETWEEN = '[[link]]\nbetween = ["a", "b"]\nbandwidth = "100MB/s"\nlatency = "80us"\n'


def rate(cluster: Cluster, source: str, target: str) -> float:
    (found,) = [link for link in cluster.links if (link.source, link.target) == (source, target)]
    return found.bytes_per_second


def test_links_are_given_inside_hosts_and_between_them() -> None:
    cluster = cluster_from_toml(FOUR + HOSTS + INSIDE.format("a") + INSIDE.format("b") + BETWEEN)
    assert [host.name for host in cluster.hosts] == ["a", "b"]
    assert cluster.hosts[0].address == "10.0.0.1"
    assert len(cluster.links) == 12
    assert rate(cluster, "a0", "a1") == rate(cluster, "b1", "b0") == 6e9
    assert rate(cluster, "a1", "b0") == rate(cluster, "b0", "a1") == 100e6
    found = cluster.host_of("b1")
    assert found is not None
    assert found.name == "b"


def test_a_link_of_devices_goes_before_one_of_hosts_and_that_before_a_star() -> None:
    named = '[[link]]\nbetween = ["a0", "b0"]\nbandwidth = "1GB/s"\n'
    star = '[[link]]\nbetween = ["*", "*"]\nbandwidth = "9GB/s"\n'
    cluster = cluster_from_toml(FOUR + HOSTS + BETWEEN + named + star)
    assert rate(cluster, "a0", "b0") == 1e9
    assert rate(cluster, "a0", "b1") == 100e6
    assert rate(cluster, "a0", "a1") == 9e9


def test_a_file_with_hosts_and_without_links_has_a_network_between_them() -> None:
    cluster = cluster_from_toml(FOUR + HOSTS)
    assert rate(cluster, "a0", "b1") == 1.25e9
    assert rate(cluster, "a0", "a1") > 1.25e9


@pytest.mark.parametrize("links", [INSIDE.format("a") + INSIDE.format("b") + BETWEEN, BETWEEN, ""])
def test_nothing_is_lost_in_files_with_hosts(links: str) -> None:
    cluster = cluster_from_toml(FOUR + HOSTS + links)
    text = cluster_to_toml(cluster)
    assert cluster_from_toml(text) == cluster
    assert cluster_from_json(cluster_to_json(cluster)) == cluster
    assert Cluster.from_dict(cluster.as_dict()).fingerprint == cluster.fingerprint
    assert text.count("[[link]]") <= 3  # as few rows as were read


def test_clusters_without_hosts_keep_their_fingerprint() -> None:
    cluster = cluster_from_toml(FOUR)
    assert "hosts" not in cluster.as_dict()
    assert "host" not in cluster_to_toml(cluster)


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ('[[host]]\nname = "a"\ndevices = ["a0", "a1", "b0"]\n', "device 'b1' is on no host; add it to one"),
        ('[[host]]\nname = "a"\ndevices = ["a0", "a2"]\n', "host a: no device 'a2'; there are a0, a1, b0, b1"),
        ('[[host]]\nname = "a"\ndevices = []\n', "host 1: host a has no devices"),
        ('[[host]]\nname = "a"\n', "host 1: devices: missing"),
        ('[[host]]\nname = "a0"\ndevices = ["a0", "a1", "b0", "b1"]\n', "'a0' is a host and a device"),
        (HOSTS + '[[host]]\nname = "c"\ndevices = ["b1"]\n', "device 'b1' is on host b and on host c"),
        (HOSTS + '[[host]]\nname = "a"\ndevices = ["b1"]\n', "two hosts are called 'a'"),
        (HOSTS + '[[link]]\nbetween = ["a", "c"]\nbandwidth = "1GB/s"\n', "link 1: no device or host 'c'"),
        ('[[host]]\nname = "a"\nadress = "x"\ndevices = ["a0"]\n', "host 1: unknown key 'adress'; did you mean"),
    ],
)
def test_what_is_wrong_with_hosts_is_one_line(hosts: str, said: str) -> None:
    with pytest.raises(BadCluster) as caught:
        cluster_from_toml(FOUR + hosts, "mine.toml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("mine.toml: ")
    assert "\n" not in str(caught.value)


def four(hosts: tuple[Host, ...]) -> Problem:
    """Two producers on a that each take no time and send 8 bytes to readers on b, over links of 1 byte per second."""
    build = GraphBuilder()
    for name in ("p", "q"):
        tensor = build.tensor(build.operator(name), size_bytes=8)
        build.operator(f"{name} reader", reads=(tensor,))
    graph = build.build()
    names = ("a0", "a1", "b0", "b1")
    cluster = Cluster(tuple(map(Device, names)), link_all(names, bytes_per_second=1.0), hosts=hosts)
    return Problem(graph, cluster, Costs(graph, cluster, np.zeros((4, 4))))


def test_two_hosts_have_one_link_between_them() -> None:
    apart = {"p": 0, "p reader": 2, "q": 1, "q reader": 3}
    hosts = (Host("a", ("a0", "a1")), Host("b", ("b0", "b1")))
    for given, seconds in ((), 8.0), (hosts, 16.0):
        problem = four(given)
        placement = Placement(problem, [apart[name] for name in problem.graph.operator_names])
        assert simulate(problem, placement).objective_seconds == pytest.approx(seconds)


def test_other_queues_stay_as_they_are() -> None:
    hosts = (Host("a", ("a0", "a1")), Host("b", ("b0", "b1")))
    channel = four(hosts).cluster.routes().channel
    assert channel[0, 1] != channel[1, 0]
    assert channel[0, 2] == channel[1, 3]
    assert channel[0, 2] != channel[2, 0]


def test_a_cluster_less_a_device_drops_hosts_that_are_empty() -> None:
    cluster = four((Host("a", ("a0", "a1")), Host("b", ("b0", "b1")))).cluster
    assert cluster.without("b0", "a1", "b1").hosts == (Host("a", ("a0",)),)


def test_plans_keep_hosts(tmp_path: Path) -> None:
    problem = four((Host("a", ("a0", "a1"), "10.0.0.1"), Host("b", ("b0", "b1"))))
    placement = Placement(problem, [0, 1, 2, 3])
    Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds)).save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").problem.cluster == problem.cluster


def test_links_name_devices_not_hosts_in_python() -> None:
    with pytest.raises(BadCluster, match="no device 'a'"):
        Cluster((Device("a0"),), (Link("a", "a0", 1.0),), hosts=(Host("a", ("a0",)),))
