"""Links from the matrix of `nvidia-smi topo -m`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead.cluster import Device, cluster_from, links_from_topology, with_topology
from stead.errors import BadCluster

FOUR = """
\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV4\tSYS\tSYS\tPXB\t0-23\t0\t\tN/A
GPU1\tNV4\t X \tSYS\tSYS\tPXB\t0-23\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tPIX\tSYS\t24-47\t1\t\tN/A
GPU3\tSYS\tSYS\tPIX\t X \tSYS\t24-47\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""


def test_nvlinks_count_with_the_rate_of_the_card() -> None:
    cluster, _ = cluster_from("4x A100-PCIE-80GB + cpu")
    found = {(one.source, one.target): one for one in links_from_topology(FOUR, cluster)}
    assert len(found) == 12
    assert found["a100-pcie-80gb:0", "a100-pcie-80gb:1"].bytes_per_second == 4 * 25e9


def test_a_3090_bridge_is_slower_per_link() -> None:
    cluster, _ = cluster_from("4x 3090")
    found = {(one.source, one.target): one for one in links_from_topology(FOUR, cluster)}
    assert found["3090:0", "3090:1"].bytes_per_second == 56.25e9


def test_paths_across_processors_take_longer() -> None:
    cluster, _ = cluster_from("4x 3090")
    found = {(one.source, one.target): one for one in links_from_topology(FOUR, cluster)}
    assert found["3090:0", "3090:2"].latency_seconds == 20e-6
    assert found["3090:2", "3090:3"].latency_seconds == 10e-6
    assert round(found["3090:2", "3090:3"].bytes_per_second / 1e9, 1) == 31.5


def test_links_with_the_processor_stay() -> None:
    before, _ = cluster_from("4x 3090 + cpu")
    after = with_topology(before, FOUR)
    assert len(after.links) == len(before.links)
    assert [one for one in after.links if "cpu" in (one.source, one.target)] == [
        one for one in before.links if "cpu" in (one.source, one.target)
    ]
    assert after.fingerprint != before.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line with GPU0 at its start; give the output of `nvidia-smi topo -m`"),
        ("GPU0 X", "no line with GPU0"),
        (FOUR.replace("GPU3\tSYS", "GPX3\tSYS"), "the row of GPU3 is missing"),
        (FOUR.replace("GPU1\tNV4\t X ", "GPU1\tNV4\tSYS"), "the row of GPU1 is missing or does not fit"),
        (
            FOUR.replace("PIX\t X", "HUH\t X"),
            "topology: GPU3 to GPU2: unknown connection 'HUH'; known are X, NV<n>",
        ),
        ("x" * 2**21, "more than 1 MiB"),
    ],
)
def test_another_text_is_an_error(text: str, message: str) -> None:
    cluster, _ = cluster_from("4x 3090")
    with pytest.raises(BadCluster) as caught:
        links_from_topology(text, cluster)
    assert message in str(caught.value)


def test_the_number_of_cards_must_fit() -> None:
    cluster, _ = cluster_from("2x 3090")
    with pytest.raises(BadCluster, match="the topology shows 4 GPUs, the cluster has 2"):
        links_from_topology(FOUR, cluster)


def test_a_pci_path_needs_a_known_card() -> None:
    with pytest.raises(BadCluster, match="no PCI Express rate is known"):
        links_from_topology(FOUR, [Device(name) for name in "abcd"])


@given(st.integers(0, len(FOUR) - 1), st.integers(0, len(FOUR) - 1), st.text(max_size=5))
def test_a_damaged_matrix_is_links_or_an_error(start: int, stop: int, put: str) -> None:
    cluster, _ = cluster_from("4x 3090")
    told = ""
    try:
        assert len(links_from_topology(FOUR[:start] + put + FOUR[stop:], cluster)) <= 12
    except BadCluster as error:
        told = str(error)
    assert "\n" not in told
