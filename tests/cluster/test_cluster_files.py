"""Cluster files: what they mean, that nothing is lost, and what errors say."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stead.cluster import (
    UNLIMITED_BYTES,
    Cluster,
    Contention,
    Device,
    Link,
    cluster_from,
    cluster_from_json,
    cluster_from_toml,
    cluster_to_json,
    cluster_to_toml,
    entries,
    link_all,
    read_cluster,
    write_cluster,
)
from stead.cluster.catalogue import DTYPES, KINDS
from stead.errors import BadCluster

GIB = 2**30

EXAMPLE = """
[[device]]
name = "cuda:0"
model = "GeForce RTX 3090"
kind = "gpu"
memory = "24GiB"
reserve = "1GiB"
bandwidth = "936GB/s"
flops = {fp32 = "35.6T", fp16 = "71T"}
efficiency = {matmul = 0.7, mem = 0.8}
launch_overhead = "5us"
unsupported_ops = []
alias = {accelerate = 0, openvino = "GPU.0", ort = "cuda", llama = "CUDA0"}
[[device]]
name = "cuda:1"
model = "GeForce RTX 3060 12 GB"
[[device]]
name = "cpu"
[[link]]
between = ["cuda:0", "cpu"]
bandwidth = "25GB/s"
latency = "10us"
duplex = "full"
[[link]]
between = ["*", "*"]
bandwidth = "12GB/s"
latency = "20us"
via = "cpu"
"""

FLEET = """
[[device]]
name = "m4"
model = "Apple M4 Max 36 GB"
bandwidth = "264.4GB/s"
[[device]]
name = "u1"
model = "Apple M3 Ultra 96 GB"
bandwidth = "344.0GB/s"
[[device]]
name = "m1"
model = "Apple M1 Ultra 64 GB"
bandwidth = "308.7GB/s"
[[device]]
name = "u2"
model = "Apple M3 Ultra 96 GB"
bandwidth = "351.2GB/s"
[[device]]
name = "m3"
model = "Apple M3 Max 36 GB"
bandwidth = "177.6GB/s"
[[link]]
between = ["*", "*"]
bandwidth = "unlimited"
"""


def device(cluster: Cluster, name: str) -> Device:
    return cluster.devices[cluster.index(name)]


def figures(cluster: Cluster) -> dict[tuple[str, str], tuple[float, float]]:
    return {(one.source, one.target): (one.bytes_per_second, one.latency_seconds) for one in cluster.links}


# Meaning


def test_the_example_reads_to_its_figures() -> None:
    cluster = cluster_from_toml(EXAMPLE)
    card = device(cluster, "cuda:0")
    assert (card.memory_bytes, card.reserve_bytes, card.bytes_per_second) == (24 * GIB, GIB, 936e9)
    assert card.flops_per_second["fp32"] == 35.6e12
    assert dict(card.efficiency) == {"compute": 0.7, "memory": 0.8}
    assert card.launch_seconds == 5e-6
    assert dict(card.alias) == {"accelerate": 0, "openvino": "GPU.0", "ort": "cuda", "llama": "CUDA0"}
    assert cluster.contention == "link"


def test_what_a_file_leaves_out_comes_from_the_catalogue() -> None:
    cluster = cluster_from_toml(EXAMPLE)
    assert device(cluster, "cuda:0").flops_per_second["int8"] == pytest.approx(284.6e12)
    card = device(cluster, "cuda:1")
    assert (card.kind, card.memory_bytes, card.bytes_per_second) == ("gpu", 12 * GIB, 360e9)
    assert card.reserve_bytes == int(0.08 * 12 * GIB) + GIB // 2


def test_what_a_device_computes_a_type_in_can_be_said() -> None:
    text = '[[device]]\nname = "a"\nprecision = {bf16 = "computed in fp32", fp64 = "not supported"}\n'
    cluster = cluster_from_toml(text)
    assert dict(cluster.devices[0].precision) == {"bf16": "computed in fp32", "fp64": "not supported"}
    assert cluster_from_toml(cluster_to_toml(cluster)).fingerprint == cluster.fingerprint
    with pytest.raises(BadCluster, match="precision: bf16: cannot read 'in fp32'; write"):
        cluster_from_toml('[[device]]\nname = "a"\nprecision = {bf16 = "in fp32"}\n')


def test_a_device_with_nothing_but_a_name_has_no_limits() -> None:
    host = device(cluster_from_toml(EXAMPLE), "cpu")
    assert (host.kind, host.memory_bytes, host.bytes_per_second) == ("cpu", UNLIMITED_BYTES, math.inf)


def test_the_default_link_fills_the_pairs_that_are_not_named() -> None:
    found = figures(cluster_from_toml(EXAMPLE))
    assert len(found) == 6
    assert found["cuda:0", "cpu"] == found["cpu", "cuda:0"] == (25e9, 10e-6)
    assert found["cuda:0", "cuda:1"] == found["cuda:1", "cpu"] == (12e9, 20e-6)


def test_the_fleet_of_five_machines_reads_to_its_figures() -> None:
    cluster = cluster_from_toml(FLEET)
    assert [one.memory_bytes // GIB for one in cluster] == [36, 96, 64, 96, 36]
    assert [one.bytes_per_second for one in cluster] == [264.4e9, 344.0e9, 308.7e9, 351.2e9, 177.6e9]
    assert len(cluster.links) == 20
    assert all(math.isinf(one.bytes_per_second) and one.latency_seconds == 0 for one in cluster.links)


TWO = '[[device]]\nname = "a"\n[[device]]\nname = "b"\n[[device]]\nname = "h"\n'


def test_a_way_over_a_device_adds_latencies_and_takes_the_narrower_bandwidth() -> None:
    cluster = cluster_from_toml(
        TWO
        + '[[link]]\nbetween = ["a", "h"]\nbandwidth = "5GB/s"\nlatency = "1us"\n'
        + '[[link]]\nbetween = ["b", "h"]\nbandwidth = "3GB/s"\nlatency = "2us"\n'
        + '[[link]]\nbetween = ["a", "b"]\nvia = "h"\n'
    )
    assert figures(cluster)["a", "b"][0] == 3e9
    assert figures(cluster)["a", "b"][1] == pytest.approx(3e-6)


def test_a_way_over_a_device_without_its_links_is_an_error() -> None:
    with pytest.raises(BadCluster, match=r"f: link 1: a -> b via h needs links of h with both"):
        cluster_from_toml(TWO + '[[link]]\nbetween = ["a", "b"]\nvia = "h"\n', "f")


def test_a_star_on_one_side_goes_before_two_stars() -> None:
    cluster = cluster_from_toml(
        TWO
        + '[[link]]\nbetween = ["*", "*"]\nbandwidth = "1GB/s"\n'
        + '[[link]]\nbetween = ["*", "h"]\nbandwidth = "2GB/s"\n'
        + '[[link]]\nfrom = "a"\nto = "h"\nbandwidth = "3GB/s"\ngap = "4us"\n'
    )
    found = figures(cluster)
    assert [found[pair][0] for pair in (("a", "b"), ("b", "h"), ("h", "a"), ("a", "h"))] == [
        1e9,
        2e9,
        2e9,
        3e9,
    ]
    assert [one.gap_seconds for one in cluster.links if (one.source, one.target) == ("a", "h")] == [4e-6]


def test_two_rules_of_equal_weight_for_one_pair_are_an_error() -> None:
    rule = '[[link]]\nbetween = ["*", "{}"]\nbandwidth = 1\n'
    with pytest.raises(
        BadCluster, match=r"f: link 1 and link 2 both speak of a -> b; keep one, or name the pair"
    ):
        cluster_from_toml(TWO + rule.format("a") + rule.format("b"), "f")
    with pytest.raises(BadCluster, match=r"f: link 1 and link 2 both speak of \* -> a"):
        cluster_from_toml(TWO + rule.format("a") + rule.format("a"), "f")


def test_half_duplex_means_that_a_pair_shares_its_link() -> None:
    link = '[[link]]\nbetween = ["a", "b"]\nbandwidth = 1\nduplex = "half"\n'
    assert cluster_from_toml(TWO + link).contention == "pair"
    with pytest.raises(BadCluster, match="f: link 1 is half duplex and link 2 is not"):
        cluster_from_toml(TWO + link + '[[link]]\nbetween = ["*", "*"]\nbandwidth = 1\n', "f")
    with pytest.raises(BadCluster, match="contention: 'bus' contradicts duplex = \"half\""):
        cluster_from_toml('contention = "bus"\n' + TWO + link)


def test_contention_and_routing_are_read() -> None:
    cluster = cluster_from_toml('contention = "bus"\nrouting = "host"\n[[device]]\nname = "cpu"')
    assert (cluster.contention, cluster.routing) == ("bus", "host")


def test_a_rate_of_the_catalogue_can_be_dropped() -> None:
    text = '[[device]]\nname = "a"\nmodel = "3090"\nflops = {int8 = "none", fp16 = 1e12}'
    rates = cluster_from_toml(text).devices[0].flops_per_second
    assert "int8" not in rates
    assert rates["fp16"] == 1e12


def test_json_has_the_same_keys() -> None:
    data = {"device": [{"name": "a", "model": "3090", "memory": "20GiB"}, {"name": "cpu", "memory": 10}]}
    cluster = cluster_from_json(json.dumps(data))
    assert [one.memory_bytes for one in cluster] == [20 * GIB, 10]


# Errors


def toml_device(line: str) -> str:
    return f'[[device]]\nname = "m1"\n{line}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('memory = "36GX"', "memory: cannot read '36GX'; write a number with KiB, MiB, GiB or TiB"),
        ("memory = 0", "memory: must be at least 1 byte, got 0"),
        ('memory = "0GiB"', "memory: must be at least 1 byte, got '0GiB'"),
        ("memory = -1", "memory: -1 is negative"),
        ("memory = nan", "memory: nan is not a finite number"),
        ("memory = 1e300", "memory: 1e+300 is more than 2^62 bytes"),
        ("memory = true", "memory: cannot read True"),
        ("memory = 1979-05-27", "memory: cannot read datetime.date(1979, 5, 27)"),
        ("memory = []", "memory: cannot read a list"),
        ("memory = " + "9" * 5000, "f: not TOML: Exceeds the limit"),
        ('memory = "1GiB"\nreserve = "1GiB"', "reserves 1073741824 of its 1073741824 bytes: nothing is left"),
        (
            'bandwidth = "936Gb/s"',
            "bandwidth: cannot read '936Gb/s'; write a number with MB/s, GB/s, TB/s or Gbit/s",
        ),
        ("bandwidth = inf", "bandwidth: inf is not a finite number"),
        ('flops = {fp31 = "1T"}', "flops: unknown key 'fp31'; did you mean 'fp32'"),
        ('flops = {fp32 = "1X"}', "flops: fp32: cannot read '1X'"),
        ("flops = 3", "flops: must be a table, got 3"),
        (
            "efficiency = {matmul = 1.5}",
            "efficiency: matmul: must be a number above 0 and at most 1, got 1.5",
        ),
        (
            "efficiency = {mem = 0.5, memory = 0.5}",
            "efficiency: memory is given twice (matmul means compute, mem means memory); keep one",
        ),
        ("efficiency = {mum = 0.5}", "efficiency: unknown key 'mum'; did you mean"),
        (
            'launch_overhead = "5 weeks"',
            "launch_overhead: cannot read '5 weeks'; write a number with ns, us, ms or s",
        ),
        (
            'kind = "gpuu"',
            "kind: must be one of cpu, gpu, npu, fpga, group, other, got 'gpuu'; did you mean 'gpu'",
        ),
        ("kind = 1", "kind: must be one of"),
        ('model = "A100"', "model: 'A100' may be any of A100 PCIe 40 GB"),
        ('model = "EPYC 9654"', "memory: missing; EPYC 9654 uses its machine's"),
        ('memroy = "1GiB"', "unknown key 'memroy'; did you mean 'memory'?"),
        ("zzz = 1", "unknown key 'zzz'; known are name, model, kind"),
        ("unsupported_ops = 1", "unsupported_ops: must be a list of names, got 1"),
        ("unsupported_ops = [1]", "unsupported_ops: must be text, got 1"),
        ("alias = {llama = 1.5}", "alias: llama: must be a name or an index, got 1.5"),
        ("alias = 1", "alias: must be a table"),
    ],
)
def test_an_error_in_a_device_names_file_and_place(line: str, message: str) -> None:
    with pytest.raises(BadCluster) as caught:
        cluster_from_toml(toml_device(line), "f")
    assert message in str(caught.value)
    assert str(caught.value).startswith(('f: device 1 ("m1"): ', "f: device 1: unknown key", "f: not TOML"))
    assert "\n" not in str(caught.value)


def test_the_third_device_is_called_the_third() -> None:
    text = FLEET.replace('bandwidth = "308.7GB/s"', 'memory = "36GX"')
    with pytest.raises(BadCluster) as caught:
        cluster_from_toml(text, "fleet.toml")
    assert str(caught.value) == (
        "fleet.toml: device 3 (\"m1\"): memory: cannot read '36GX'; write a number with KiB, MiB, GiB or TiB"
    )


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ('bandwidth = "1GB/s"', "link 1: needs `between` for a link both ways, or `from` and `to`"),
        ('between = ["a"]\nbandwidth = 1', "link 1: between: must be two device names"),
        ('between = "a"\nbandwidth = 1', "link 1: between: must be a list of names"),
        ('between = ["a", "b"]\nfrom = "a"\nbandwidth = 1', "link 1: needs `between`"),
        ('from = "a"\nbandwidth = 1', "link 1: needs `between`"),
        ('between = ["a", "bb"]\nbandwidth = 1', "link 1: no device 'bb'; did you mean 'b'"),
        ('between = ["a", "zoo"]\nbandwidth = 1', "link 1: no device 'zoo'; there are a, b, h"),
        ('between = ["a", "a"]\nbandwidth = 1', "link 1: leads from 'a' to itself"),
        ('between = ["a", "b"]', "link 1: bandwidth: missing"),
        ('between = ["a", "b"]\nbandwidth = 0', "link 1: bandwidth: must be more than 0"),
        ('between = ["a", "b"]\nbandwidth = 1\nlatency = -1', "link 1: latency: -1 is negative"),
        ('between = ["a", "b"]\nbandwidth = 1\nduplex = "both"', "link 1: duplex: must be one of full, half"),
        ('between = ["a", "b"]\nbandwidth = 1\nvia = "*"', "link 1: via: must name one device"),
        ('between = ["a", "b"]\nbandwith = 1', "link 1: unknown key 'bandwith'; did you mean 'bandwidth'"),
    ],
)
def test_an_error_in_a_link_names_file_and_place(link: str, message: str) -> None:
    with pytest.raises(BadCluster) as caught:
        cluster_from_toml(f"{TWO}[[link]]\n{link}\n", "f")
    assert str(caught.value).startswith("f: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: empty; describe at least one device"),
        (" \n ", "f: empty"),
        ("x = 1", "f: unknown key 'x'; known are schema, contention, routing, host, device, link"),
        ("devices = 1", "f: unknown key 'devices'; did you mean 'device'"),
        ("schema = 1", "f: no device; add a [[device]] table with a name"),
        ("device = []", "f: no device"),
        ("device = 3", "f: device: must be a list of tables"),
        ("device = [3]", "f: device 1: must be a table, got 3"),
        ("[[device]]", "f: device 1: name: missing"),
        ('[[device]]\nname = "a', "f: not TOML: "),
        ('[[device]]\nname = ""', "f: device 1: name: must be printable"),
        ('[[device]]\nname = "a\\u0000"', "f: device 1: name: must be printable"),
        ('[[device]]\nname = "*"', "f: device 1: name: '*' means every device"),
        ("[[device]]\nname = 1", "f: device 1: name: must be text, got 1"),
        ('[[device]]\nname = "a"\n[[device]]\nname = "a"', "f: devices 1 and 2 are both called 'a'"),
        ('[[device]]\nname = "a"\nname = "b"', "f: not TOML: Cannot overwrite a value"),
        ('schema = 2\n[[device]]\nname = "a"', "f: schema 2 is unknown"),
        ('schema = true\n[[device]]\nname = "a"', "f: schema True is unknown"),
        ('contention = "bus1"\n[[device]]\nname = "a"', "f: contention: must be one of none, link, pair"),
        ('routing = 3\n[[device]]\nname = "a"', "f: routing: must be one of direct, host, got 3"),
        ("x = " + "[" * 16_000, "f: nested too deeply"),
        (".".join("a" * 2_000) + " = 1", "f: a line of 4003 characters is too long; break it"),
        (".".join("a" * 9_000) + " = 1", "f: a line of 18003 characters is too long; break it"),
        (
            "".join(f'[[device]]\nname = "d{i}"\n' for i in range(1025)),
            "f: 1025 devices; a cluster has at most 1024",
        ),
    ],
)
def test_an_error_in_a_text_is_told_in_one_line(text: str, message: str) -> None:
    with pytest.raises(BadCluster) as caught:
        cluster_from_toml(text, "f")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: empty"),
        ("[]", "f: must be a table, got a list"),
        ("null", "f: must be a table, got None"),
        ('{"device": [', "f: not JSON: "),
        ('{"device": [{"name": "a", "memory": NaN}]}', "f: NaN is not a number"),
        ('{"device": [{"name": "a", "name": "b"}]}', "f: the key 'name' is given twice in one object"),
        ('{"device": [{"name": "a", "memory": ' + "9" * 5000 + "}]}", "f: a number of 5000 digits"),
        (
            '{"device": [{"name": "a", "memory": 1e999}]}',
            'f: device 1 ("a"): memory: inf is not a finite number',
        ),
        ('{"device": [{"name": "\\ud800"}]}', "f: device 1: name: must be printable"),
        ("[" * 100_000, "f: nested too deeply"),
        ('{"a":' * 100_000, "f: nested too deeply"),
    ],
)
def test_an_error_in_json_is_told_in_one_line(text: str, message: str) -> None:
    with pytest.raises(BadCluster) as caught:
        cluster_from_json(text, "f")
    assert str(caught.value).startswith(message)


# Files


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadCluster, match=r"none\.toml: no such file; check the path"):
        read_cluster(tmp_path / "none.toml")


def test_a_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "d.toml").mkdir()
    with pytest.raises(BadCluster, match="is a directory; name a"):
        read_cluster(tmp_path / "d.toml")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.toml")
    with pytest.raises(BadCluster, match="not a regular file"):
        read_cluster(tmp_path / "p.toml")


def test_another_ending_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadCluster, match=r"cluster files end in \.toml or \.json"):
        read_cluster(tmp_path / "x.yaml")
    with pytest.raises(BadCluster, match=r"cluster files end in \.toml or \.json"):
        write_cluster(cluster_from_toml(FLEET), tmp_path / "x.yaml")


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_a_binary_file_is_told(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"b.{ending}"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(BadCluster, match="byte 0x80 at offset 128 is not UTF-8"):
        read_cluster(path)


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_a_huge_file_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"h.{ending}"
    path.write_bytes(b" " * (16 * 2**20 + 1))
    with pytest.raises(BadCluster, match="larger than 16 MiB"):
        read_cluster(path)


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_a_truncated_file_is_an_error_or_a_smaller_cluster(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    write_cluster(cluster_from_toml(EXAMPLE), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        told = ""
        try:
            assert len(read_cluster(path)) <= 3
        except BadCluster as error:
            told = str(error)
        assert told.startswith(str(path) if told else "")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadCluster, match=r"cannot write .*: there is no folder"):
        write_cluster(cluster_from_toml(FLEET), tmp_path / "no" / "x.toml")


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "bom.toml"
    path.write_bytes(b"\xef\xbb\xbf" + FLEET.encode())
    assert len(read_cluster(path)) == 5


# Nothing is lost


@pytest.mark.parametrize("text", [EXAMPLE, FLEET])
@pytest.mark.parametrize("ending", ["toml", "json"])
def test_what_is_written_reads_back_the_same(tmp_path: Path, text: str, ending: str) -> None:
    cluster = cluster_from_toml(text)
    write_cluster(cluster, tmp_path / f"c.{ending}")
    assert read_cluster(tmp_path / f"c.{ending}").fingerprint == cluster.fingerprint


@pytest.mark.parametrize(
    "text", ["3090,3060", "2x A100-80GB + cpu", "8x H100-SXM", "M3 Ultra 96GB,M1 8GB", "auto"]
)
def test_described_clusters_can_be_written(text: str) -> None:
    cluster, _ = cluster_from(text)
    assert cluster_from_toml(cluster_to_toml(cluster)).fingerprint == cluster.fingerprint
    assert cluster_from_json(cluster_to_json(cluster)).fingerprint == cluster.fingerprint


def test_equal_links_are_written_once() -> None:
    cluster, _ = cluster_from("8x 3090")
    assert cluster_to_toml(cluster).count("[[link]]") == 1


def test_the_order_of_links_means_nothing() -> None:
    devices = (Device("a"), Device("b"), Device("c"))
    links = link_all("abc", bytes_per_second=12)
    assert Cluster(devices, links).fingerprint == Cluster(devices, links[::-1]).fingerprint


def test_what_a_file_cannot_say_is_an_error_when_writing() -> None:
    for cluster in (Cluster((Device("a", kind="toaster"),)), Cluster((Device("a", model="Foo 9000"),))):
        with pytest.raises(BadCluster):
            cluster_to_toml(cluster)


NAMES = st.text(min_size=1, max_size=12).filter(lambda s: s.isprintable() and s == s.strip() and s != "*")
RATES = st.one_of(st.just(math.inf), st.floats(1e-3, 1e18), st.integers(1, 10**6).map(lambda n: n * 1e9))
TIMES = st.one_of(st.floats(0, 1e3), st.integers(0, 1000).map(lambda n: n / 1e6))
KEYS = [""] + [entry.key for entry in entries()]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    devices = []
    for name in names:
        memory = draw(
            st.one_of(
                st.just(UNLIMITED_BYTES), st.integers(1, 2**50), st.integers(1, 99).map(lambda n: n * GIB)
            )
        )
        options: dict[str, Any] = {
            "kind": draw(st.sampled_from(KINDS)),
            "memory_bytes": memory,
            "reserve_bytes": draw(st.integers(0, memory - 1)),
            "flops_per_second": draw(
                st.dictionaries(st.sampled_from(DTYPES), st.floats(1e-3, 1e20), max_size=4)
            ),
            "bytes_per_second": draw(RATES),
            "launch_seconds": draw(TIMES),
            "efficiency": draw(st.dictionaries(st.sampled_from(["compute", "memory"]), st.floats(0.01, 1))),
            "unsupported_kinds": draw(st.frozensets(NAMES, max_size=12)),
            "model": draw(st.sampled_from(KEYS)),
            "alias": draw(st.dictionaries(NAMES, st.one_of(NAMES, st.integers(0, 99)), max_size=3)),
        }
        devices.append(Device(name, **options))
    pairs = [(a, b) for a in names for b in names if a != b]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    if draw(st.booleans()):
        chosen = pairs
    by_link, by_sender = st.tuples(RATES, TIMES, TIMES), st.tuples(RATES, TIMES, st.just(0.0), st.just("sender"))
    few = draw(st.lists(st.one_of(by_link, by_sender), min_size=1, max_size=2))
    links = tuple(Link(*pair, *draw(st.sampled_from(few))) for pair in chosen)
    contention = draw(st.sampled_from(get_args(Contention)))
    return Cluster(tuple(devices), links, contention)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_any_cluster_survives_both_formats(cluster: Cluster) -> None:
    assert cluster_from_toml(cluster_to_toml(cluster)).fingerprint == cluster.fingerprint
    assert cluster_from_json(cluster_to_json(cluster)).fingerprint == cluster.fingerprint


def test_a_file_says_who_carries() -> None:
    cores = 'name = "core 0"', 'name = "core 1"'
    link = '[[link]]\nbetween = ["*", "*"]\nbandwidth = "6GB/s"\ncarried_by = "sender"\n'
    cluster = cluster_from_toml("".join(f"[[device]]\n{core}\n" for core in cores) + link)
    assert [one.carried_by for one in cluster.links] == ["sender", "sender"]
    assert Cluster.from_dict(cluster.as_dict()) == cluster
    with pytest.raises(BadCluster, match="carried_by: must be one of link, sender"):
        cluster_from_toml("".join(f"[[device]]\n{core}\n" for core in cores) + link.replace("sender", "pigeon"))
