"""Changes of a cluster in words."""

from __future__ import annotations

import pytest

from stead.cluster import cluster_from
from stead.cluster.adding import with_added
from stead.cluster.changes import change_from
from stead.errors import SteadError

CLUSTER = cluster_from("3090,3060")[0]


@pytest.mark.parametrize(
    ("text", "field", "amount"),
    [
        ("3060.bandwidth=1008GB/s", "bytes_per_second", 1008e9),
        ("3060.memory=24GiB", "memory_bytes", 24 * 2**30),
        ("3060.memory=2x", "memory_bytes", 24 * 2**30),
        ("3060.reserve=1GiB", "reserve_bytes", 2**30),
        ("3060.launch=7us", "launch_seconds", 7e-6),
    ],
)
def test_a_property_of_a_device_is_set_or_multiplied(text: str, field: str, amount: float) -> None:
    changed = change_from(text, CLUSTER).on(CLUSTER)
    assert getattr(changed.devices[1], field) == amount
    assert changed.devices[0] == CLUSTER.devices[0]


def test_rates_are_set_by_type_or_multiplied_all_at_once() -> None:
    rates = CLUSTER.devices[1].flops_per_second
    one = change_from("3060.fp16=71T", CLUSTER).on(CLUSTER).devices[1].flops_per_second
    assert (one["fp16"], one["fp32"]) == (71e12, rates["fp32"])
    both = change_from("3060.flops=2x", CLUSTER).on(CLUSTER).devices[1].flops_per_second
    assert dict(both) == {dtype: 2 * rate for dtype, rate in rates.items()}


def test_links_change_one_way_both_ways_or_all() -> None:
    def widths(text: str) -> list[float]:
        return [link.bytes_per_second for link in change_from(text, CLUSTER).on(CLUSTER).links]

    width = CLUSTER.links[0].bytes_per_second
    assert widths("3090->3060.bandwidth=1GB/s") == [1e9, width]
    assert widths("3090<->3060.bandwidth=1GB/s") == [1e9, 1e9]
    assert widths("links.bandwidth=2x") == [2 * width, 2 * width]


def test_added_devices_get_free_names_and_links_to_all() -> None:
    larger, lines = with_added(CLUSTER, ["2x 3090", "cpu"])
    assert larger.names == ("3090", "3060", "3090:0", "3090:1", "cpu")
    assert len(larger.links) == 5 * 4
    assert "GeForce RTX 3090" in lines[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3060", "DEVICE.PROPERTY=VALUE"),
        ("3061.memory=2x", "no device '3061'; did you mean '3060'?"),
        ("3060.memry=2x", "did you mean 'memory'?"),
        ("3060.memory=much", "3060.memory"),
        ("3060.flops=71T", "FLOP/s differ by type"),
        ("3060.memory=0x", "a factor must be more than 0"),
        ("3060->3070.bandwidth=2x", "no device '3070'"),
        ("links.memory=2x", "links has no 'memory'"),
        ("3090->3060.bandwidth=8", "'8' has no unit; write GB/s or Gbit/s, or 8x for a factor"),
        ("3060.memory=24", "'24' has no unit; write GiB or MiB"),
        ("links.latency=0.5", "'0.5' has no unit; write us or ms"),
        ("3060.fp16=1e2", "'1e2' has no unit; write T or G"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(SteadError) as caught:
        change_from(text, CLUSTER).on(CLUSTER)
    assert said in str(caught.value)
