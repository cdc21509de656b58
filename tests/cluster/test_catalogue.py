"""The table of known devices: complete rows, names that lead to one device, figures that fit."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead.cluster import Device, device_from, entries, lookup
from stead.cluster.catalogue import DTYPES, KINDS, CatalogueEntry, candidates, is_alias, normal, pcie_rate
from stead.errors import BadCluster

ALL = [pytest.param(entry, id=entry.key) for entry in entries()]


@pytest.mark.parametrize("entry", ALL)
def test_every_name_of_a_device_leads_to_it(entry: CatalogueEntry) -> None:
    for name in (entry.key, entry.title, *entry.aliases):
        for spelling in (name, name.upper(), name.replace(" ", ""), f" {name} "):
            assert lookup(spelling) is entry


@pytest.mark.parametrize("entry", ALL)
def test_every_row_is_plausible_and_has_a_source_with_a_year(entry: CatalogueEntry) -> None:
    assert entry.kind in KINDS
    assert re.search(r"\b20[12]\d$", entry.source)
    assert "http" not in entry.source
    assert set(entry.flops_per_second) <= set(DTYPES)
    assert entry.flops_per_second
    assert all(1e10 <= rate <= 1e16 for rate in entry.flops_per_second.values())
    assert entry.memory_bytes is None or 2**32 <= entry.memory_bytes <= 2**40
    assert entry.bytes_per_second is None or 30e9 <= entry.bytes_per_second <= 1e13
    assert entry.memory_bytes is not None or entry.shares_host_memory or entry.kind == "cpu"
    assert not entry.pcie or 1e9 < pcie_rate(entry.pcie) < 70e9
    assert set(entry.assumed) <= {"memory_gib", "bandwidth_gb_s", "tflops"}


@pytest.mark.parametrize("entry", ALL)
def test_narrower_types_are_not_slower_where_tensor_cores_exist(entry: CatalogueEntry) -> None:
    rates = entry.flops_per_second
    if "tf32" in rates:
        assert rates["fp32"] <= rates["tf32"] <= rates["fp16"] == rates["bf16"]
        assert rates["fp16"] <= rates.get("fp8", math.inf)
        assert rates["fp16"] < rates["int8"]


@pytest.mark.parametrize("entry", ALL)
def test_every_row_makes_a_device(entry: CatalogueEntry) -> None:
    device = device_from(entry, "x", memory_bytes=entry.memory_bytes or 2**35)
    assert isinstance(device, Device)
    assert device.model == entry.key
    assert math.isfinite(device.bytes_per_second)
    assert 0 < device.launch_seconds < 1e-4


SEEDS = [  # memory GiB, GB/s, fp32 TFLOP/s from an independent table
    ("RTX 3060 12GB", 12, 360.0, 12.74),
    ("3090", 24, 936.2, 35.58),
    ("4060 Ti 16GB", 16, 288.0, 22.06),
    ("4090", 24, 1010, 82.58),
    ("5090", 32, 1790, 104.8),
    ("P40", 24, 347.1, 11.76),
    ("V100 SXM2 32GB", 32, 898, 15.67),
    ("L4", 24, 300.1, 30.29),
    ("A100 SXM4 80GB", 80, 2040, 19.49),
    ("H100 SXM5 80GB", 80, 3360, 66.91),
]


@pytest.mark.parametrize(("name", "gib", "gb_per_second", "tflops"), SEEDS)
def test_figures_agree_with_an_independent_table(
    name: str, gib: int, gb_per_second: float, tflops: float
) -> None:
    entry = lookup(name)
    assert entry.memory_bytes == gib * 2**30
    assert entry.bytes_per_second == pytest.approx(gb_per_second * 1e9, rel=0.005)
    assert entry.flops_per_second["fp32"] == pytest.approx(tflops * 1e12, rel=0.005)


@pytest.mark.parametrize(
    ("name", "rounded"), [("5090", 1790), ("3090", 936), ("3060", 360), ("P40", 347), ("4060Ti16", 288)]
)
def test_bandwidths_round_to_the_reference_figures(name: str, rounded: float) -> None:
    assert float(f"{(lookup(name).bytes_per_second or 0) / 1e9:.3g}") == rounded


def test_geforce_fp16_counts_single_precision_accumulation() -> None:
    assert lookup("3090").flops_per_second["fp16"] == pytest.approx(71.2e12, rel=0.01)
    assert lookup("4090").flops_per_second["fp16"] == pytest.approx(165.2e12, rel=0.01)
    assert lookup("A6000").flops_per_second["fp16"] == pytest.approx(154.8e12, rel=0.01)


def test_rates_are_dense() -> None:
    assert lookup("A100-80GB").flops_per_second["fp16"] == 312e12
    assert lookup("H100-SXM").flops_per_second["fp8"] == 1979e12


def test_the_p40_keeps_its_slow_native_fp16() -> None:
    assert lookup("P40").flops_per_second["fp16"] == pytest.approx(0.184e12)


@pytest.mark.parametrize(
    ("port", "gb_per_second"), [("3.0 x16", 15.75), ("4.0 x8", 15.75), ("4.0 x16", 31.5), ("5.0 x16", 63)]
)
def test_pci_express_ports_have_their_known_rates(port: str, gb_per_second: float) -> None:
    assert pcie_rate(port) / 1e9 == pytest.approx(gb_per_second, rel=1e-3)


@pytest.mark.parametrize("port", ["", "x16", "4.0x16", "6.0 x16", "4.0 x3", "4.0 x-1"])
def test_other_ports_are_refused(port: str) -> None:
    with pytest.raises(BadCluster, match="PCI Express"):
        pcie_rate(port)


def test_nvlink_counts_one_direction() -> None:
    fabric = lookup("A100-80GB").fabric
    assert fabric is not None
    assert fabric.peer_bytes_per_second == 300e9
    assert not fabric.bridge


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A100", ["A100 PCIe 40 GB", "A100 PCIe 80 GB", "A100 SXM4 40 GB", "A100 SXM4 80 GB"]),
        ("H100", ["H100 PCIe 80 GB", "H100 SXM5 80 GB", "H100 NVL 94 GB"]),
        ("4060Ti", ["GeForce RTX 4060 Ti 8 GB", "GeForce RTX 4060 Ti 16 GB"]),
        ("Apple M3", ["Apple M3 8 GB", "Apple M3 16 GB", "Apple M3 24 GB"]),
        ("M3 Ultra", ["Apple M3 Ultra 96 GB", "Apple M3 Ultra 256 GB", "Apple M3 Ultra 512 GB"]),
    ],
)
def test_an_ambiguous_name_is_an_error_that_lists_the_devices(name: str, expected: list[str]) -> None:
    assert [entry.key for entry in candidates(name)] == expected
    with pytest.raises(BadCluster, match="may be any of") as caught:
        lookup(name)
    assert all(key in str(caught.value) for key in expected)


def test_v100_is_ambiguous_too() -> None:
    assert len(candidates("V100")) == 5


@pytest.mark.parametrize("name", ["306", "30900", "RTX 3095", "A1000", "M3 Ultr", "H10", "309"])
def test_an_unknown_name_is_an_error_with_candidates(name: str) -> None:
    with pytest.raises(BadCluster, match=r"^no device .* in the catalogue; candidates are .*`stead devices`"):
        lookup(name)


def test_the_candidates_of_306_are_the_3060s() -> None:
    with pytest.raises(BadCluster, match="GeForce RTX 3060 12 GB"):
        lookup("306")


@pytest.mark.parametrize("name", ["", "?", "x" * 10**6, "3090" + " " * 200, "\0"])
def test_absurd_names_are_errors_in_one_short_line(name: str) -> None:
    with pytest.raises(BadCluster) as caught:
        lookup(name)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_no_text_is_matched_by_likeness(text: str) -> None:
    for entry in candidates(text):
        names = [entry.key, entry.title, *entry.aliases]
        plain = normal(text)
        exact = any(plain.endswith(normal(name)) for name in names)
        assert exact or len(candidates(text)) > 1


@pytest.mark.parametrize(
    ("reported", "key"),
    [
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80 GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80 GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80 GB"),
        ("Tesla V100-SXM2-16GB", "Tesla V100 SXM2 16 GB"),
        ("NVIDIA L4", "L4"),
        ("Tesla T4", "Tesla T4"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
        ("Intel Xeon Platinum 8480+", "Xeon Platinum 8480+"),
    ],
)
def test_names_as_drivers_report_them_are_known(reported: str, key: str) -> None:
    assert lookup(reported).key == key


def test_an_alias_is_told_from_a_key() -> None:
    assert is_alias("3090")
    assert not is_alias("GeForce RTX 3090")
    assert not is_alias("geforce rtx 3090 24 GB")


def test_a_device_without_memory_of_its_own_needs_to_be_told() -> None:
    with pytest.raises(BadCluster, match="memory of cpu: EPYC 9654 uses the memory of its machine"):
        device_from(lookup("EPYC 9654"), "cpu")
