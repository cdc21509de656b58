"""Kinds of links by name: what they set, between whom they are, and how a link is recognised as one."""

from __future__ import annotations

import pytest

from stead.cluster import cluster_from
from stead.cluster.link_kinds import kind_of, standard_kinds, usual_kinds
from stead.errors import BadInput

PCIE3X8 = 8e9 / 8 * (128 / 130) * 8  # 8 GT/s and 8 lanes, of 130 bits 128 carry data


def figures(text: str) -> dict[str, tuple[float, float]]:
    cluster, _ = cluster_from(text)
    return {f"{one.source}->{one.target}": (one.bytes_per_second, one.latency_seconds) for one in cluster.links}


def test_a_kind_sets_bandwidth_and_latency_one_way_or_both() -> None:
    before = figures("3090,3060")["3060->3090"]
    ethernet = (1.25e9, 20e-6)
    assert figures("3090,3060; 3090->3060.kind=ethernet10") == {"3090->3060": ethernet, "3060->3090": before}
    assert set(figures("3090,3060; 3090<->3060.kind=ethernet").values()) == {ethernet}
    assert set(figures("3090,3060,cpu; links.kind=pcie3x8").values()) == {(PCIE3X8, 10e-6)}


def test_what_follows_a_kind_changes_its_figures() -> None:
    found = figures("3090,3060; 3090->3060.kind=pcie3x8; 3090->3060.latency=5us")
    assert found["3090->3060"] == (PCIE3X8, 5e-6)


def test_a_fabric_joins_devices_that_have_it_alone() -> None:
    assert figures("2x 3090; 3090:0<->3090:1.kind=nvlink")["3090:0->3090:1"][0] == 56.25e9
    for text in ("3090,3060; 3090->3060.kind=nvlink", "2x 3090 + 3060; links.kind=nvlink"):
        with pytest.raises(BadInput, match="have no nvlink by the catalogue"):
            cluster_from(text)


def test_a_kind_that_there_is_not_comes_with_those_that_there_are() -> None:
    with pytest.raises(BadInput, match=r"no kind of link 'pcie9x16'.*did you mean.*there are pcie1x1 to pcie5x16"):
        cluster_from("3090,3060; links.kind=pcie9x16")


@pytest.mark.parametrize("name", [*standard_kinds(), "nvlink"])
def test_a_link_of_a_kind_is_recognised_as_one_with_its_figures(name: str) -> None:
    cluster, _ = cluster_from(f"2x 3090; links.kind={name}")
    found = {kind_of(one, cluster) for one in cluster.links}
    assert len(found) == 1  # of those that carry as much: pcie3x8 is pcie4x4
    assert figures(f"2x 3090; links.kind={found.pop()}") == figures(f"2x 3090; links.kind={name}")


def test_a_link_with_figures_of_its_own_has_no_kind() -> None:
    cluster, _ = cluster_from("3090,3060; 3090->3060.bandwidth=9GB/s")
    assert [kind_of(one, cluster) for one in cluster.links] == ["", "pcie4x16"]
    assert {kind.name for kind in usual_kinds()} < set(standard_kinds())
