"""Levels: nodes, racks and sites in words and in files, and the links that they mean."""

from __future__ import annotations

import numpy as np
import pytest

from stead.cluster import (
    Cluster,
    Device,
    Level,
    Link,
    cluster_from,
    cluster_from_toml,
    cluster_to_json,
    cluster_to_toml,
)
from stead.cluster.classes import equal_devices
from stead.errors import BadCluster

WORDS = "1024x A100-80GB in nodes of 8 @ 25GB/s in racks of 8 @ 12GB/s in sites of 4 @ 1GB/s"


def small(**changes: object) -> Cluster:
    """Eight devices in nodes of two and racks of four."""
    devices = tuple(Device(f"g:{n}") for n in range(8))
    levels = (Level("node", 2, 100e9, 1e-6), Level("rack", 4, 10e9, 2e-6), Level("cluster", 8, 1e9, 3e-6))
    return Cluster(devices, levels=levels, **changes)  # type: ignore[arg-type]


def test_two_devices_have_the_link_of_the_smallest_group_that_holds_both() -> None:
    routes = small().routes()
    assert routes.bytes_per_second[0, 1:].tolist() == [100e9, 10e9, 10e9, 1e9, 1e9, 1e9, 1e9]
    assert routes.latency_seconds[5, [4, 6, 0]].tolist() == [1e-6, 2e-6, 3e-6]


def test_a_given_link_goes_before_levels() -> None:
    routes = small(links=(Link("g:0", "g:1", 7e9),)).routes()
    assert routes.bytes_per_second[0, 1] == 7e9
    assert routes.bytes_per_second[1, 0] == 100e9


def test_a_thousand_devices_in_one_line() -> None:
    cluster, lines = cluster_from(WORDS)
    assert len(cluster) == 1024
    assert [(level.name, level.size) for level in cluster.levels] == [
        ("node", 8), ("rack", 64), ("site", 256), ("cluster", 1024),
    ]  # fmt: skip
    assert cluster.routes().bytes_per_second[0, [1, 8, 64, 256]].tolist() == [300e9, 25e9, 12e9, 1e9]
    assert "links between racks of a site: 12.0 GB/s each way (as given), latency 40.0 us (assumed)" in lines
    assert len(cluster.hosts) == 128
    assert equal_devices(cluster)[1] == (0,)


@pytest.mark.parametrize("form", ["toml", "json", "plain"])
def test_a_large_cluster_is_a_small_file(form: str) -> None:
    from stead.cluster import cluster_from_json

    cluster = cluster_from(WORDS)[0]
    if form == "plain":
        assert Cluster.from_dict(cluster.as_dict()).fingerprint == cluster.fingerprint
        return
    text = cluster_to_toml(cluster) if form == "toml" else cluster_to_json(cluster)
    read = cluster_from_toml if form == "toml" else cluster_from_json
    assert read(text).fingerprint == cluster.fingerprint
    assert len(text) < 60_000


def test_a_file_gives_equal_devices_by_their_count() -> None:
    text = '[[device]]\nname = "g"\ncount = 6\n[[level]]\nname = "node"\nsize = 6\nbandwidth = "5GB/s"\n'
    cluster = cluster_from_toml(text)
    assert cluster.names == tuple(f"g:{n}" for n in range(6))
    assert cluster.routes().bytes_per_second[2, 5] == 5e9


def test_a_part_keeps_its_links() -> None:
    whole, own = small(), [1, 2, 6]
    part = whole.part(own)
    assert part.names == ("g:1", "g:2", "g:6")
    for table in ("bytes_per_second", "latency_seconds"):
        expected = getattr(whole.routes(), table)[np.ix_(own, own)]
        got = getattr(part.routes(), table)
        assert np.array_equal(got[~np.eye(3, dtype=bool)], expected[~np.eye(3, dtype=bool)])
    assert whole.without("g:0", "g:3", "g:4", "g:5", "g:7").names == part.names


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("65x A100-80GB", "beyond 64 say how they are joined"),
        ("1025x A100-80GB in nodes of 5", "more than the 1024 devices"),
        ("100x A100-80GB in nodes of 8", "100 devices cannot be divided into nodes of 8"),
        ("96x A100-80GB in nodes of 8 in racks of 5", "96 devices cannot be divided into racks of 40"),
        ("64x 3090 + 64x 3060 in nodes of 8", "nodes that are alike"),
    ],
)
def test_what_cannot_be_joined_is_told_in_one_line(given: str, said: str) -> None:
    with pytest.raises(BadCluster, match=said):
        cluster_from(given)


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ((Level("node", 3, 1e9), Level("rack", 8, 1e9)), "which groups of 3"),
        ((Level("node", 4, 1e9),), "joins 4 of 8 devices"),
    ],
)
def test_levels_that_do_not_fit_are_refused(levels: tuple[Level, ...], said: str) -> None:
    with pytest.raises(BadCluster, match=said):
        Cluster(tuple(Device(f"g:{n}") for n in range(8)), levels=levels)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('name = "n"\nsize = 1\nbandwidth = "1GB/s"', "2 or more"),
        ('name = "n"\nbandwidth = "1GB/s"', "size: missing"),
        ('name = "n"\nsize = 2\nbandwidth = "1GB/s"\nlatency = -1', "level 1: latency"),
    ],
)
def test_a_level_that_makes_no_sense_is_told_with_its_place(table: str, said: str) -> None:
    with pytest.raises(BadCluster, match=said):
        cluster_from_toml(f'[[device]]\nname = "g"\ncount = 2\n[[level]]\n{table}\n')
