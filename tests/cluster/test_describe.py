"""Device strings, `auto` and files: which cluster they give and what is said about it."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead.cluster import Cluster, Device, cluster_from, default_links
from stead.cluster import machine as machine_module
from stead.cluster.describe import cluster_of
from stead.cluster.device_file import write_cluster
from stead.cluster.machine import FoundGpu, Machine, parse_nvidia_smi, plain_cpu_name, this_machine
from stead.errors import BadCluster, SteadError

GIB = 2**30


def link(cluster: Cluster, source: str, target: str) -> tuple[float, float]:
    """GB/s and microseconds."""
    (found,) = [one for one in cluster.links if (one.source, one.target) == (source, target)]
    return round(found.bytes_per_second / 1e9, 2), round(found.latency_seconds * 1e6, 2)


def test_two_cards_are_named_as_written_and_resolved_aloud() -> None:
    cluster, lines = cluster_from("3090,3060")
    assert cluster.names == ("3090", "3060")
    assert lines[:2] == ("3090 = GeForce RTX 3090 24 GB (alias)", "3060 = GeForce RTX 3060 12 GB (alias)")
    assert [device.model for device in cluster] == ["GeForce RTX 3090", "GeForce RTX 3060 12 GB"]
    assert cluster.devices[0].bytes_per_second == 936.2e9


def test_several_of_one_model_are_numbered() -> None:
    cluster, lines = cluster_from("2x A100-80GB + cpu")
    assert cluster.names == ("a100-80gb:0", "a100-80gb:1", "cpu")
    assert lines[0] == "2x A100-80GB = A100 SXM4 80 GB (alias): a100-80gb:0, a100-80gb:1"
    assert [device.kind for device in cluster] == ["gpu", "gpu", "cpu"]


@pytest.mark.parametrize(
    "text",
    [
        "2x 3090",
        "2x3090",
        "2 x 3090",
        "2X 3090",
        "2*3090",
        "2\N{MULTIPLICATION SIGN} 3090",
        "3090,3090",
        "3090 + 3090",
    ],
)
def test_all_spellings_of_two_cards_give_the_same_names(text: str) -> None:
    assert cluster_from(text)[0].names == ("3090:0", "3090:1")


def test_two_spellings_of_one_model_are_numbered_together() -> None:
    assert cluster_from("3090, RTX 3090, 3060")[0].names == ("3090:0", "3090:1", "3060")


def test_plus_and_comma_both_separate() -> None:
    assert cluster_from("5090+4060Ti16+cpu")[0].names == ("5090", "4060Ti16", "cpu")


def test_a_plus_that_belongs_to_a_name_does_not_separate() -> None:
    assert cluster_from("Xeon Platinum 8480+ + 3090")[0].names == ("Xeon Platinum 8480+", "3090")
    assert cluster_from("8480++3090")[0].names == ("8480+", "3090")
    assert cluster_from("3090,ryzen ai max+ 395 64 gb")[0].names == ("3090", "ryzen ai max+ 395 64 gb")


def test_a_name_that_looks_like_a_number_of_devices_is_a_name() -> None:
    assert cluster_from("7900 XT, 2x 7900 XTX")[0].names == ("7900 XT", "7900-xtx:0", "7900-xtx:1")


def test_links_run_at_the_narrower_port_with_ten_microseconds() -> None:
    cluster, lines = cluster_from("5090+4060Ti16+cpu")
    assert link(cluster, "5090", "4060Ti16") == (15.75, 10)  # PCIe 4.0 x8
    assert link(cluster, "cpu", "5090") == (63.02, 10)
    assert len(cluster.links) == 6
    assert any("PCIe 4.0 x8" in line and "assumed" in line for line in lines)


def test_equal_modules_use_their_nvlink() -> None:
    cluster, lines = cluster_from("2x A100-80GB, A100-PCIE-80GB")
    assert link(cluster, "a100-80gb:0", "a100-80gb:1") == (300, 10)
    assert link(cluster, "a100-80gb:0", "A100-PCIE-80GB") == (31.51, 10)
    assert any("NVLink 3" in line for line in lines)


def test_an_nvlink_bridge_is_not_assumed() -> None:
    cluster, lines = cluster_from("2x 3090")
    assert link(cluster, "3090:0", "3090:1") == (31.51, 10)
    assert any("no NVLink 3 bridge" in line for line in lines)


def test_whole_machines_talk_over_a_network() -> None:
    cluster, lines = cluster_from("M3 Ultra 96GB, M4 Max 36GB")
    assert link(cluster, "M3 Ultra 96GB", "M4 Max 36GB") == (1.25, 20)
    assert any("Ethernet, assumed" in line for line in lines)
    assert any(line.startswith("M3 Ultra 96GB: fp32") and "assumed" in line for line in lines)


def test_devices_in_host_memory_meet_there() -> None:
    cluster, _ = cluster_from("Iris Xe, cpu")
    assert link(cluster, "Iris Xe", "cpu") == (51.2, 10)


def test_a_device_that_is_not_in_the_catalogue_gets_an_assumed_port() -> None:
    links, lines = default_links([Device("a"), Device("b", kind="cpu")])
    assert [round(one.bytes_per_second / 1e9, 2) for one in links] == [15.75, 15.75]
    assert "PCIe 3.0 x16, assumed" in lines[0]


def test_gpus_keep_a_reserve_and_cpus_do_not() -> None:
    cluster, lines = cluster_from("3060, cpu")
    assert cluster.devices[0].reserve_bytes == int(0.08 * 12 * GIB) + GIB // 2
    assert cluster.devices[1].reserve_bytes == 0
    assert lines[-1] == "reserve: 8 % + 0.5 GiB of every GPU stays free; usable are 10.5 GiB of 12.0 GiB"


def test_the_reserve_can_be_chosen() -> None:
    cluster, lines = cluster_from("3060", reserve_share=0, reserve_bytes=0)
    assert cluster.devices[0].usable_bytes == 12 * GIB
    assert not any(line.startswith("reserve") for line in lines)
    with pytest.raises(BadCluster, match="a reserve is a share"):
        cluster_from("3060", reserve_share=1.5)


def test_the_word_cpu_is_a_modest_machine_and_says_so() -> None:
    cluster, lines = cluster_from("cpu")
    (cpu,) = cluster
    assert (cpu.kind, cpu.memory_bytes, cpu.bytes_per_second) == ("cpu", 32 * GIB, 51.2e9)
    assert cpu.flops_per_second["fp32"] == 0.512e12
    assert any("assumed" in line for line in lines)


def test_a_processor_of_the_catalogue_is_given_an_assumed_memory() -> None:
    cluster, lines = cluster_from("EPYC 9654")
    assert cluster.devices[0].memory_bytes == 32 * GIB
    assert any("memory are assumed" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no devices given; write"),
        ("  ", "no devices given; write"),
        ("2x", "'2x' says how many but not of what; write"),
        ("0x 3090", "'0x 3090' asks for no device; leave it out"),
        ("3090x2", "'3090x2': how many comes first; did you mean '2x 3090'?"),
        ("A100-80GB x 4", "did you mean '4x A100-80GB'?"),
        ("3090 (x2) + cpu", "did you mean '2x 3090'?"),
        ("99999x 3090", "asks for more than the 1024 devices"),
        ("9" * 5000 + "x 3090", "asks for more than the 1024 devices"),
        ("40x 3090, 40x 3060", "asks for 80 devices; beyond 64 say how they are joined"),
        ("3090,,3060", "'3090,,3060' has an empty place beside a separator; write"),
        (",", "has an empty place"),
        ("3090+", "has an empty place"),
        ("306", "no device '306' in the catalogue; candidates are GeForce RTX 3060"),
        ("A100", "'A100' may be any of A100 PCIe 40 GB"),
        ("Apple M3", "'Apple M3' may be any of Apple M3 8 GB"),
        ("2x A100", "'A100' may be any of"),
        ("3090;3060", "no device '3090;3060'"),
        ("-1x 3090", "no device '-1x 3090'"),
        ("no/such/file.toml", "no/such/file.toml: no such file; check the path"),
        ("some/devices", "some/devices: cluster files end in .toml or .json"),
        ("x" * 20_000, "a description of 20000 characters is too long"),
        ("\0.toml", "not a path"),
    ],
)
def test_a_bad_description_is_one_line_that_says_what_to_do(text: str, message: str) -> None:
    with pytest.raises(BadCluster) as caught:
        cluster_from(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    st.text(alphabet="0123456789xX+, .*aATi3090cpu\n\t\0", max_size=40).filter(
        lambda text: "auto" not in text.lower()
    )
)
def test_any_description_is_a_cluster_or_an_error(text: str) -> None:
    try:
        cluster, lines = cluster_from(text)
    except BadCluster as error:
        lines = (str(error),)
    else:
        assert 1 <= len(cluster) <= 64
        assert len(cluster.links) == len(cluster) * (len(cluster) - 1)
    assert all("\n" not in line for line in lines)


def test_the_same_text_gives_the_same_cluster() -> None:
    assert cluster_from("3090,3060")[0].fingerprint == cluster_from(" 3090 , 3060 ")[0].fingerprint


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text('[[device]]\nname = "a"\nmodel = "3090"\n[[device]]\nname = "b"\nmemory = "1GiB"\n')
    for given_path in (path, str(path)):
        cluster, lines = cluster_from(given_path)
        assert cluster.names == ("a", "b")
        assert lines[0] == "a = GeForce RTX 3090 24 GB"


def described(tmp_path: Path, text: str) -> tuple[Cluster, tuple[str, ...]]:
    path = tmp_path / "devices.toml"
    path.write_text(text)
    return cluster_from(path)


def test_a_file_without_links_has_the_usual_ones_and_says_so(tmp_path: Path) -> None:
    cluster, lines = described(
        tmp_path, '[[device]]\nname = "a"\nmodel = "3090"\n[[device]]\nname = "b"\nmodel = "3060"\n'
    )
    assert link(cluster, "a", "b") == link(cluster, "b", "a") == (31.51, 10.0)
    assert "says nothing about links, so the usual ones are taken" in lines[2]
    assert lines[3] == "links: 31.5 GB/s each way (PCIe 4.0 x16, peak), latency 10.0 us (assumed)"


def test_a_file_may_say_that_there_are_no_links(tmp_path: Path) -> None:
    cluster, lines = described(
        tmp_path, 'link = []\n[[device]]\nname = "a"\n[[device]]\nname = "b"\n[[device]]\nname = "c"\n'
    )
    assert cluster.links == ()
    assert lines[0].startswith("3 devices and 0 links as ")
    assert lines[1] == (
        "no link a -> b, a -> c, b -> a and 3 more: nothing can be sent that way, directly or over others"
    )


def test_a_pair_without_a_way_stays_without_one_and_is_named(tmp_path: Path) -> None:
    cluster, lines = described(
        tmp_path,
        '[[device]]\nname = "a"\n[[device]]\nname = "b"\n'
        '[[link]]\nfrom = "b"\nto = "a"\nbandwidth = "1GB/s"\n',
    )
    assert len(cluster.links) == 1
    assert lines[0].startswith("2 devices and 1 link as ")
    assert lines[1] == "no link a -> b: nothing can be sent that way, directly or over others"


@pytest.mark.parametrize(
    ("row", "reserve"),
    [
        ('model = "3090"', int(0.08 * 24 * GIB) + GIB // 2),
        ('memory = "24GiB"', int(0.08 * 24 * GIB) + GIB // 2),
        ('memory = "24GiB"\nreserve = 0', 0),
        ('model = "3090"\nreserve = "1GiB"', GIB),
        ("memory = 9000", 0),
        ('memory = "3GiB"', 0),
        ('memory = "64GiB"\nkind = "cpu"', 0),
        ('memory = "unlimited"', 0),
    ],
)
def test_a_gpu_of_four_gib_or_more_keeps_the_usual_reserve_unless_its_row_says_another(
    tmp_path: Path, row: str, reserve: int
) -> None:
    cluster, lines = described(tmp_path, f'[[device]]\nname = "a"\n{row}\n')
    assert cluster.devices[0].reserve_bytes == reserve
    assert any(one.startswith("reserve: ") for one in lines) == (reserve > 0)


def test_a_file_and_a_name_give_the_same_usable_memory(tmp_path: Path) -> None:
    filed, _ = described(tmp_path, '[[device]]\nname = "3090"\nmodel = "3090"\n')
    assert filed.fingerprint == cluster_from("3090")[0].fingerprint


# Sizes and links within a description


def test_a_size_after_a_name_is_another_memory() -> None:
    cluster, lines = cluster_from("4090 + cpu 64GB")
    assert cluster.names == ("4090", "cpu")
    assert [one.memory_bytes // GIB for one in cluster] == [24, 64]
    assert lines[1] == "cpu = generic CPU (alias), memory 64.0 GiB as given"


def test_a_size_that_is_part_of_a_name_stays_part_of_it() -> None:
    assert cluster_from("4060 Ti 16GB")[0].devices[0].model == "GeForce RTX 4060 Ti 16 GB"
    assert cluster_from("2x A100-80GB")[0].names == ("a100-80gb:0", "a100-80gb:1")
    assert cluster_from("Ryzen AI Max+ 395 64 GB")[0].devices[0].memory_bytes == 64 * GIB


def test_a_pcie_port_after_an_at_sign_links_those_before_it() -> None:
    cluster, lines = cluster_from("2x 3090 @ pcie3x8")
    assert link(cluster, "3090:0", "3090:1") == (7.88, 10.0)  # 8 lanes of 8 GT/s, 128 of 130 bits
    assert lines[1] == "links: 7.88 GB/s each way (PCIe 3.0 x8, as given), latency 10.0 us (assumed)"


def test_a_port_counts_for_links_with_others_too_and_the_narrower_one_decides() -> None:
    cluster, _ = cluster_from("3090 @ pcie3x8, 3060 @ pcie4x16 + cpu")
    assert link(cluster, "3090", "cpu") == link(cluster, "3090", "3060") == (7.88, 10.0)
    assert link(cluster, "3060", "cpu") == (31.51, 10.0)


def test_an_at_sign_covers_all_back_to_a_plus() -> None:
    cluster, _ = cluster_from("4090 + 3090,3060 @ pcie3x4")
    assert link(cluster, "3090", "3060") == link(cluster, "4090", "3060") == (3.94, 10.0)
    assert link(cluster_from("4090 + 3090,3060 @ pcie3x4 + cpu")[0], "4090", "cpu") == (31.51, 10.0)


def test_nvlink_joins_cards_that_have_a_bridge() -> None:
    cluster, lines = cluster_from("2x 3090 @ nvlink + cpu 256GB")
    assert link(cluster, "3090:0", "3090:1") == (56.25, 10.0)  # 4 links of 14.0625 GB/s
    assert link(cluster, "3090:0", "cpu") == (31.51, 10.0)
    assert any("(NVLink 3, peak)" in line for line in lines)


def test_a_port_replaces_a_built_in_fabric() -> None:
    assert link(cluster_from("2x A100-80GB @ pcie4x16")[0], "a100-80gb:0", "a100-80gb:1") == (31.51, 10.0)


def test_a_rate_after_an_at_sign_is_no_path() -> None:
    assert link(cluster_from("3090 @ 25GB/s + cpu")[0], "3090", "cpu") == (25.0, 10.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2x 3090 @ nvlnk", "no link 'nvlnk'; after @ write pcie3x8, nvlink or a rate"),
        ("2x 3090 @ pcie9x8", "no link 'pcie9x8': PCI Express has generations 1 to 5"),
        ("2x 3060 @ nvlink", "GeForce RTX 3060 12 GB .* has none"),
        ("3090 @ nvlink", "joins two or more devices of one model"),
        ("3090 @ pcie3x8 @ pcie3x4", "has two @"),
        ("@ pcie3x8", "@ without devices before it"),
        ("3090 @", "@ without a link after it"),
        ("cpu 64GB @ pcie3x8", "cpu is a processor"),
        ("3090 0GB", "needs some memory"),
        ("4060 Ti 24GB", "'4060 Ti' may be any of"),
        ("30900 24GB", "no device '30900 24GB' in the catalogue"),
    ],
)
def test_a_wrong_size_or_link_is_named(text: str, told: str) -> None:
    with pytest.raises(BadCluster, match=told):
        cluster_from(text)


def test_a_list_of_descriptions_is_one_cluster() -> None:
    cluster, _ = cluster_from(["3090", "2x 3060 @ pcie3x8", "cpu 64GB"])
    assert cluster.names == ("3090", "3060:0", "3060:1", "cpu")
    assert cluster.fingerprint == cluster_from("3090 + 2x 3060 @ pcie3x8 + cpu 64GB")[0].fingerprint


@pytest.mark.parametrize("texts", [[], ["auto", "3090"], ["a.toml", "3090"], ["3090", 7]])
def test_a_list_that_makes_no_sense_is_refused(texts: list[str]) -> None:
    with pytest.raises(BadCluster):
        cluster_from(texts)


# This machine

CARD = FoundGpu(0, "NVIDIA GeForce RTX 4060 Ti", 16380 * 2**20, "3.0 x8")


def test_auto_gives_this_processor_with_its_memory() -> None:
    cluster, lines = cluster_from("auto")
    host = cluster.devices[-1]
    assert host.memory_bytes > GIB
    assert host.flops_per_second
    assert any("measured" in line for line in lines)


def test_nothing_is_imported_to_look_at_the_machine() -> None:
    code = "import sys; from stead.cluster.machine import this_machine; this_machine(); print('torch' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "False"


def test_a_measured_memory_tells_variants_apart() -> None:
    cluster, lines = cluster_of(Machine("", 4, 16 * GIB, (CARD,)))
    assert cluster.names == ("cuda:0", "cpu")
    card = cluster.devices[0]
    assert card.model == "GeForce RTX 4060 Ti 16 GB"
    assert card.memory_bytes == 16380 * 2**20
    assert dict(card.alias) == {"accelerate": 0, "llama": "CUDA0", "ort": "cuda"}
    assert link(cluster, "cuda:0", "cpu")[0] == 7.88  # the slot it sits in, not the port it has
    assert "16.0 GiB (measured)" in lines[0]


def test_a_known_processor_counts_the_cores_it_may_use() -> None:
    cluster, lines = cluster_of(Machine("AMD EPYC 9654", 2, 8 * GIB))
    (host,) = cluster
    assert host.model == "EPYC 9654"
    assert host.flops_per_second["fp32"] == pytest.approx(2 * 32 * 2.4e9, rel=1e-3)
    assert "2 cores (measured)" in lines[0]
    assert "from the catalogue, EPYC 9654" in lines[0]


def test_an_unknown_processor_is_assumed_by_core() -> None:
    cluster, lines = cluster_of(Machine("Z80", 3, None))
    assert cluster.devices[0].flops_per_second["fp32"] == pytest.approx(3 * 64e9)
    assert lines[0] == "cpu = Z80: 32.0 GiB (assumed), 3 cores (measured), 51.2 GB/s, 192 GFLOP/s (assumed)"


def test_a_mac_is_one_device() -> None:
    cluster, _ = cluster_of(Machine("Apple M2 Max", 12, 64 * GIB))
    (mac,) = cluster
    assert (mac.kind, mac.model, mac.bytes_per_second) == ("gpu", "Apple M2 Max 64 GB", 400e9)
    assert mac.flops_per_second["fp32"] == 13.6e12


def test_an_unknown_card_is_an_error_that_names_it() -> None:
    with pytest.raises(
        BadCluster, match="auto: card 3 is 'NVIDIA Foo', which is not in the catalogue; name the devices"
    ):
        cluster_of(Machine(gpus=(FoundGpu(3, "NVIDIA Foo", GIB),)))


def test_a_program_that_fails_leaves_cards_out_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster, lines = cluster_from("auto")
    assert len(cluster) == 1
    assert any("NVIDIA cards are left out" in line for line in lines)


def test_a_program_that_answers_gives_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho '0, NVIDIA GeForce RTX 3090, 24576, 4, 16'\necho '1, Tesla P40, 24576, [N/A], 16'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    cluster, _ = cluster_from("auto")
    assert cluster.names == ("cuda:0", "cuda:1", "cpu")
    assert link(cluster, "cuda:1", "cpu")[0] == 15.75


@pytest.mark.parametrize("table", ["0, x", "zero, a, 1, 1, 1", "0, a, many, 4, 16", "0, a, b, c, d, e"])
def test_other_answers_are_no_cards(table: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_nvidia_smi(table)


def test_the_memory_of_a_control_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/proc/meminfo": "MemTotal:       16000000 kB\n", "/sys/fs/cgroup/memory.max": "2147483648\n"}
    monkeypatch.setattr(machine_module, "_read", lambda path: files.get(path, ""))
    assert this_machine().memory_bytes == 2 * GIB


def test_hardware_threads_are_not_counted_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    block = "processor : 0\nmodel name : Some(R) CPU @ 1.0GHz\nphysical id : 0\ncore id : 0\n"
    monkeypatch.setattr(
        machine_module, "_read", lambda path: block + "\n" + block if path == "/proc/cpuinfo" else ""
    )
    found = this_machine()
    assert (found.cores, found.cpu_name) == (1, "Some")
    assert found.memory_bytes is None or found.memory_bytes > 0


@given(st.text(max_size=300))
def test_any_processor_name_is_taken(name: str) -> None:
    cluster, lines = cluster_of(Machine(plain_cpu_name(name), 1, GIB * 8))
    assert len(cluster) == 1
    assert math.isfinite(cluster.devices[0].bytes_per_second)
    assert all("\n" not in line for line in lines)


def test_devices_by_name_can_be_in_nodes_with_a_network_between_them() -> None:
    cluster, lines = cluster_from("4x 3090 @ pcie3x8 in nodes of 2 @ 25GB/s")
    assert [host.devices for host in cluster.hosts] == [("3090:0", "3090:1"), ("3090:2", "3090:3")]
    rates = cluster.routes().bytes_per_second
    assert rates[0, 2] == rates[3, 1] == 25e9
    assert rates[0, 1] == cluster_from("2x 3090 @ pcie3x8")[0].routes().bytes_per_second[0, 1]
    assert any("25.0 GB/s each way (as given)" in line for line in lines)
    assert cluster_from("4x 3090 in nodes of 2")[0].routes().bytes_per_second[0, 2] == 1.25e9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3x 3090 in nodes of 2", "3 devices cannot be divided into nodes of 2"),
        ("4x 3090 in nodes of 0", "4 devices cannot be divided into nodes of 0"),
        ("4x 3090 in nodes of 2 @ fast", "the network between nodes: cannot read 'fast'"),
    ],
)
def test_nodes_that_make_no_sense_are_told(text: str, said: str) -> None:
    with pytest.raises(BadCluster, match=said):
        cluster_from(text)


def test_what_follows_a_semicolon_changes_devices_and_links() -> None:
    text = "3090,3060; 3090->3060.bandwidth=8GB/s; 3060<->3090.latency=5us; 3060.reserve=1GiB"
    cluster, lines = cluster_from(text)
    usual = cluster_from("3090,3060")[0].links
    assert [link.bytes_per_second for link in cluster.links] == [8e9, usual[1].bytes_per_second]
    assert [link.latency_seconds for link in cluster.links] == [5e-6, 5e-6]
    assert cluster.devices[1].reserve_bytes == 2**30
    assert "3090->3060.bandwidth = 8.00 GB/s as given" in lines


def test_a_file_can_be_changed_and_may_have_a_semicolon_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "two; cards.toml"
    write_cluster(cluster_from("3090,3060")[0], path)
    assert cluster_from(str(path))[0] == cluster_from("3090,3060")[0]
    assert cluster_from(f"{path}; 3060.memory=2x")[0].devices[1].memory_bytes == 24 * 2**30


@pytest.mark.parametrize(
    ("text", "said"),
    [("3090; 3061.memory=2x", "no device '3061'"), ("3090; 3090.memory=much", "cannot read"),
     ("3090;", "no device '3090;'"), ("; 3090.memory=2x", "no devices given"),
     ("3090; memory=2x", "DEVICE.PROPERTY=VALUE")],
)  # fmt: skip
def test_a_change_that_makes_no_sense_is_told(text: str, said: str) -> None:
    with pytest.raises(SteadError, match=re.escape(said)):
        cluster_from(text)
