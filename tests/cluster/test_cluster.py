"""Device, Link, Cluster: checks, routes, channels."""

from __future__ import annotations

import numpy as np
import pytest

from stead.cluster import Cluster, Device, Link, link_all, link_both_ways
from stead.errors import BadCluster


def line_of_three() -> Cluster:
    """a - b - c, the second link narrower and slower to start."""
    links = (
        *link_both_ways("a", "b", bytes_per_second=10.0, latency_seconds=1.0),
        *link_both_ways("b", "c", bytes_per_second=4.0, latency_seconds=2.0),
    )
    return Cluster((Device("a"), Device("b"), Device("c")), links)


def test_a_route_over_two_links_adds_latencies_and_takes_the_narrower_rate() -> None:
    routes = line_of_three().routes()
    assert (routes.latency_seconds[0, 2], routes.bytes_per_second[0, 2]) == (3.0, 4.0)


def test_a_route_queues_where_its_narrowest_link_does() -> None:
    channel = line_of_three().routes().channel
    assert channel[0, 2] == channel[1, 2]
    assert channel[0, 1] != channel[1, 2]


def test_a_given_link_is_used_even_if_a_detour_would_be_quicker() -> None:
    slow = (*line_of_three().links, Link("a", "c", 1.0, latency_seconds=9.0))
    assert Cluster(line_of_three().devices, slow).routes().latency_seconds[0, 2] == 9.0


def test_devices_without_a_route_are_infinitely_far_apart() -> None:
    assert Cluster((Device("a"), Device("b"))).routes().latency_seconds[0, 1] == np.inf


def test_through_host_memory_a_tensor_is_written_then_read() -> None:
    links = (
        *link_both_ways("g", "c", bytes_per_second=10.0, latency_seconds=1.0),
        *link_both_ways("h", "c", bytes_per_second=10.0, latency_seconds=2.0),
    )
    devices = (Device("g"), Device("h"), Device("c", kind="cpu"))
    routes = Cluster(devices, links, routing="host").routes()
    assert (routes.latency_seconds[0, 1], routes.bytes_per_second[0, 1], routes.hops[0].tolist()) == (
        3.0,
        5.0,
        [2, 2, 1],
    )


@pytest.mark.parametrize(
    ("contention", "shared"),
    [
        ("none", {-1}),
        ("link", {1, 2, 3, 5, 6, 7}),
        ("pair", {1, 2, 5}),
        ("sender", {0, 1, 2}),
        ("receiver", {0, 1, 2}),
        ("bus", {0}),
    ],
)
def test_contention_presets_fill_channels(contention: str, shared: set[int]) -> None:
    names = ["a", "b", "c"]
    cluster = Cluster(tuple(map(Device, names)), link_all(names, bytes_per_second=1.0), contention=contention)  # type: ignore[arg-type]
    channel = cluster.routes().channel
    assert set(channel[~np.eye(3, dtype=bool)].tolist()) == shared


def test_without_a_device_its_links_go_too() -> None:
    assert [link.source for link in line_of_three().without("c").links] == ["a", "b"]


def test_plain_data_round_trips_by_fingerprint() -> None:
    cluster = line_of_three()
    assert Cluster.from_dict(cluster.as_dict()).fingerprint == cluster.fingerprint


def test_usable_memory_leaves_the_reserve_alone() -> None:
    assert Device("a", memory_bytes=100, reserve_bytes=30).usable_bytes == 70


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Device(""), "printable name"),
        (lambda: Device("a", memory_bytes=0), "memory of a must be a whole number from 1"),
        (lambda: Device("a", memory_bytes=5, reserve_bytes=5), "nothing is left"),
        (lambda: Device("a", flops_per_second={"fp32": 0.0}), "must be positive"),
        (lambda: Device("a", bytes_per_second=float("nan")), "must be positive"),
        (lambda: Device("a", efficiency={"compute": 2.0}), r"must lie in \(0, 1\]"),
        (lambda: Link("a", "a", 1.0), "to itself"),
        (lambda: Link("a", "b", 0.0), "must be positive"),
        (lambda: Link("a", "b", 1.0, latency_seconds=-1.0), "at least 0"),
        (lambda: Cluster(()), "1 to 1024 devices"),
        (lambda: Cluster((Device("a"), Device("a"))), "two devices are called 'a'"),
        (
            lambda: Cluster((Device("gpu0"),), (Link("gpu0", "gpu1", 1.0),)),
            "no device 'gpu1'; did you mean 'gpu0'",
        ),
        (
            lambda: Cluster((Device("a"), Device("b")), (Link("a", "b", 1.0), Link("a", "b", 2.0))),
            "given twice",
        ),
    ],
)
def test_nonsense_is_refused_with_its_place(make: object, message: str) -> None:
    with pytest.raises(BadCluster, match=message):
        make()  # type: ignore[operator]


def test_an_unknown_device_is_answered_with_a_suggestion() -> None:
    with pytest.raises(BadCluster, match="no device 'gpu00'; did you mean 'gpu0'"):
        Cluster((Device("gpu0"),)).index("gpu00")
