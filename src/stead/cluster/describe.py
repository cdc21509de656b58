"""From what a user writes, "3090,3060", "2x A100-80GB + cpu", `auto` or a file, to a Cluster.

Everything that is assumed on the way is said: the second result of `cluster_from` holds the lines to show.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path

from stead.cluster.catalogue import (
    GENERIC_CPU,
    CatalogueEntry,
    candidates,
    device_from,
    entries,
    is_alias,
    lookup,
    pcie_rate,
)
from stead.cluster.files import read_cluster
from stead.cluster.machine import FoundGpu, Machine, this_machine
from stead.cluster.units import format_bytes, format_flops, format_rate, format_seconds, show
from stead.cluster.values import MAX_DEVICES, Cluster, Device, Link, link_both_ways
from stead.errors import BadCluster

RESERVE_SHARE = 0.08  # of a GPU's memory, for its context, its libraries and fragmentation
RESERVE_BYTES = 2**29
LATENCY_SECONDS = 10e-6  # within a machine
NETWORK_LATENCY_SECONDS = 20e-6  # between machines
NETWORK_BYTES_PER_SECOND = 1.25e9  # 10 Gbit/s Ethernet
UNKNOWN_PORT = "3.0 x16"  # where no figure is published

_EXAMPLE = 'write device names like "3090,3060" or "2x A100-80GB + cpu", "auto", or a .toml or .json file'
_LONGEST_TEXT = 10_000
_MANY = re.compile(
    r"([0-9]+)(?:[xX\N{MULTIPLICATION SIGN}*]\s*|\s+[xX\N{MULTIPLICATION SIGN}*]\s+)(.*)", re.DOTALL
)
_HELD = "\N{FULLWIDTH PLUS SIGN}"  # stands for a plus that belongs to a name


def cluster_from(
    text_or_path: str | os.PathLike[str],
    *,
    reserve_share: float = RESERVE_SHARE,
    reserve_bytes: int = RESERVE_BYTES,
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster that a text or a file describes, and the lines that say how it was understood.

    Devices named in a text, or found on this machine, are linked in every ordered pair at the narrower of
    their PCI Express ports (by their own fabric if they are of one model and have one built in) with 10 us
    latency; of the memory of GPUs `reserve_share` plus `reserve_bytes` is kept free. A file says all of this
    itself.

    >>> cluster, lines = cluster_from("3090,3060")
    >>> cluster.names
    ('3090', '3060')
    >>> lines[1]
    '3060 = GeForce RTX 3060 12 GB (alias)'
    """
    if not isinstance(text_or_path, str):
        return _from_file(Path(text_or_path))
    text = text_or_path.strip()
    if not text:
        raise BadCluster(f"no devices given; {_EXAMPLE}")
    if len(text) > _LONGEST_TEXT:
        raise BadCluster(f"a description of {len(text)} characters is too long; use a device file")
    if text.lower().endswith((".toml", ".json")) or "/" in text or "\\" in text:
        return _from_file(Path(text))
    reserve = _Reserve(reserve_share, reserve_bytes)
    if text.lower() == "auto":
        return cluster_of(this_machine(), reserve_share=reserve_share, reserve_bytes=reserve_bytes)
    return _from_names(text, reserve)


def cluster_of(
    machine: Machine, *, reserve_share: float = RESERVE_SHARE, reserve_bytes: int = RESERVE_BYTES
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster that a machine is, and the lines that say which of its figures were measured."""
    reserve = _Reserve(reserve_share, reserve_bytes)
    cards = [_card(gpu, reserve) for gpu in machine.gpus]
    host, lines = _host(machine, reserve)
    devices = [*(device for device, _ in cards), host]
    ports = {f"cuda:{gpu.index}": gpu.pcie for gpu in machine.gpus if gpu.pcie}
    links, link_lines = default_links(devices, ports=ports)
    told = (*(line for _, line in cards), *lines, *machine.notes, *link_lines, *reserve.lines(devices))
    return Cluster(tuple(devices), links), told


def default_links(
    devices: Sequence[Device], *, ports: Mapping[str, str] | None = None
) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """Links for every ordered pair from what the catalogue knows, and the lines that say what was assumed.

    `ports` gives PCI Express ports by device name where they are known better than from the catalogue.
    """
    links: list[Link] = []
    by_way: dict[_Way, list[str]] = {}
    for first, second in combinations(devices, 2):
        way = _way_between(first, second, ports or {})
        links += link_both_ways(
            first.name,
            second.name,
            bytes_per_second=way.bytes_per_second,
            latency_seconds=way.latency_seconds,
        )
        by_way.setdefault(way, []).append(f"{first.name} <-> {second.name}")
    position = {device.name: d for d, device in enumerate(devices)}
    links.sort(key=lambda link: (position[link.source], position[link.target]))
    return tuple(links), tuple(
        _link_line(way, pairs, single=len(by_way) == 1) for way, pairs in by_way.items()
    )


def add_host(cluster: Cluster) -> Cluster:
    """The same cluster plus a generic CPU, linked as a description by names would link it.

    >>> add_host(cluster_from("3090")[0]).names
    ('3090', 'cpu')
    """
    entry = lookup(GENERIC_CPU)
    host = device_from(entry, "cpu", memory_bytes=entry.memory_bytes)
    links, _ = default_links([*cluster.devices, host])
    return cluster.with_devices([host], [link for link in links if host.name in (link.source, link.target)])


# Names


@dataclass(frozen=True, slots=True)
class _Reserve:
    """Memory of GPUs that is kept free."""

    share: float
    size_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1 or self.size_bytes < 0:
            raise BadCluster(
                f"a reserve is a share of at least 0 and below 1 and a size of at least 0, "
                f"got {self.share} and {self.size_bytes}"
            )

    def of(self, kind: str, memory_bytes: int) -> int:
        return int(self.share * memory_bytes) + self.size_bytes if kind == "gpu" else 0

    def lines(self, devices: Sequence[Device]) -> tuple[str, ...]:
        kept = [device for device in devices if device.reserve_bytes]
        if not kept:
            return ()
        usable = list(
            dict.fromkeys(
                f"{format_bytes(device.usable_bytes)} of {format_bytes(device.memory_bytes)}"
                for device in kept
            )
        )
        rule = f"{100 * self.share:g} % + {self.size_bytes / 2**30:g} GiB"
        return (f"reserve: {rule} of every GPU stays free; usable are {', '.join(usable)}",)


@dataclass(frozen=True, slots=True)
class _Item:
    """One part of a description: how many of which device, and what it was called."""

    count: int
    called: str
    entry: CatalogueEntry


def _from_names(text: str, reserve: _Reserve) -> tuple[Cluster, tuple[str, ...]]:
    items = [_item(part, text) for part in _parts(text)]
    total = sum(item.count for item in items)
    if total > MAX_DEVICES:
        raise BadCluster(f"{show(text)} asks for {total} devices; a cluster has at most {MAX_DEVICES}")
    devices: list[Device] = []
    lines: list[str] = []
    for item, names in zip(items, _names(items), strict=True):
        devices += [_device(item.entry, name, reserve) for name in names]
        lines.append(_resolution(item, names))
        lines += _assumptions(item)
    links, link_lines = default_links(devices)
    told = dict.fromkeys((*lines, *link_lines, *reserve.lines(devices)))
    return Cluster(tuple(devices), links), tuple(told)


def _parts(text: str) -> list[str]:
    """The text between separators; a plus inside a name that the catalogue knows is none."""
    held = text
    for pattern in _plus_names():
        held = pattern.sub(lambda found: found[0].replace("+", _HELD), held)
    parts = [part.strip().replace(_HELD, "+") for part in re.split(r"[,+]", held)]
    if not all(parts):
        raise BadCluster(f"{show(text)} has an empty place beside a separator; {_EXAMPLE}")
    return parts


@cache
def _plus_names() -> tuple[re.Pattern[str], ...]:
    """Patterns for names with a plus in them, longest first."""
    names = {name for entry in entries() for name in (entry.key, *entry.aliases) if "+" in name}
    return tuple(
        re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])", re.IGNORECASE)
        for name in sorted(names, key=lambda name: (-len(name), name))
    )


def _item(part: str, text: str) -> _Item:
    many = _MANY.fullmatch(part)
    if many is None or candidates(part):
        return _Item(1, part, lookup(part))
    digits, name = many[1], many[2].strip()
    if not name:
        raise BadCluster(f"{show(part)} says how many but not of what; {_EXAMPLE}")
    count = int(digits) if len(digits) < 6 else MAX_DEVICES + 1
    if count == 0:
        raise BadCluster(f"{show(part)} asks for no device; leave it out or write 1x or more")
    if count > MAX_DEVICES:
        raise BadCluster(f"{show(part)} asks for more than the {MAX_DEVICES} devices that a cluster may have")
    return _Item(count, name, lookup(name))


def _names(items: Sequence[_Item]) -> list[list[str]]:
    """Names of the devices of each item: as written if the model occurs once, else numbered by model."""
    totals: dict[str, int] = {}
    bases: dict[str, str] = {}
    for item in items:
        totals[item.entry.key] = totals.get(item.entry.key, 0) + item.count
        bases.setdefault(item.entry.key, "-".join(item.called.lower().split()))
    used: dict[str, int] = {}
    names = []
    for item in items:
        key = item.entry.key
        first = used.get(key, 0)
        used[key] = first + item.count
        numbered = [f"{bases[key]}:{number}" for number in range(first, first + item.count)]
        names.append([item.called] if totals[key] == 1 else numbered)
    return names


def _device(entry: CatalogueEntry, name: str, reserve: _Reserve) -> Device:
    memory = entry.memory_bytes or lookup(GENERIC_CPU).memory_bytes or 0
    return device_from(entry, name, memory_bytes=memory, reserve_bytes=reserve.of(entry.kind, memory))


def _resolution(item: _Item, names: Sequence[str]) -> str:
    alias = " (alias)" if is_alias(item.called) else ""
    many = f"{item.count}x " if item.count > 1 else ""
    called = "" if list(names) == [item.called] else f": {', '.join(names)}"
    return f"{many}{item.called} = {item.entry.title}{alias}{called}"


def _assumptions(item: _Item) -> list[str]:
    """What the catalogue does not know about a device and the plan has to assume."""
    entry, generic = item.entry, lookup(GENERIC_CPU)
    lines = []
    if entry.memory_bytes is None:
        size = format_bytes(generic.memory_bytes or 0)
        lines.append(
            f"{item.called}: {size} of its machine's memory are assumed; a device file can say better"
        )
    if entry.bytes_per_second is None:
        lines.append(
            f"{item.called}: memory bandwidth {format_rate(generic.bytes_per_second or 0)} is assumed"
        )
    if entry.assumed:
        rates = ", ".join(f"{dtype} {format_flops(rate)}" for dtype, rate in entry.flops_per_second.items())
        what = {"tflops": rates, "bandwidth_gb_s": format_rate(entry.bytes_per_second or 0)}
        what["memory_gib"] = format_bytes(entry.memory_bytes or 0)
        lines.append(
            f"{item.called}: {', '.join(what[field] for field in entry.assumed)} assumed ({entry.note})"
        )
    return lines


def _from_file(path: Path) -> tuple[Cluster, tuple[str, ...]]:
    cluster = read_cluster(path)
    lines = [f"{device.name} = {lookup(device.model).title}" for device in cluster if device.model]
    return cluster, (*lines, f"{len(cluster)} devices and {len(cluster.links)} links as {path} gives them")


# Links


@dataclass(frozen=True, slots=True)
class _Way:
    """How two devices reach each other."""

    bytes_per_second: float
    latency_seconds: float
    through: str


def _way_between(first: Device, second: Device, ports: Mapping[str, str]) -> _Way:
    rows = [lookup(device.model) if device.model else None for device in (first, second)]
    fabric = rows[0].fabric if rows[0] is not None else None
    if fabric is not None and rows[0] == rows[1] and not fabric.bridge:
        return _Way(fabric.peer_bytes_per_second, LATENCY_SECONDS, f"{fabric.name}, peak")
    if any(row is not None and row.whole_machine for row in rows):
        return _Way(NETWORK_BYTES_PER_SECOND, NETWORK_LATENCY_SECONDS, "10 Gbit/s Ethernet, assumed")
    on_bus = [
        (device, row)
        for device, row in zip((first, second), rows, strict=True)
        if not (device.is_host or (row is not None and row.shares_host_memory))
    ]
    if not on_bus:
        rate = min(first.bytes_per_second, second.bytes_per_second)
        return _Way(rate, LATENCY_SECONDS, "host memory, peak")
    ways = []
    for device, row in on_bus:
        port = ports.get(device.name) or (row.pcie if row is not None else "")
        note = "peak" if port else "assumed"
        if fabric is not None and rows[0] == rows[1]:
            note += f", no {fabric.name} bridge"
        ways.append(
            _Way(pcie_rate(port or UNKNOWN_PORT), LATENCY_SECONDS, f"PCIe {port or UNKNOWN_PORT}, {note}")
        )
    return min(ways, key=lambda way: way.bytes_per_second)


def _link_line(way: _Way, pairs: Sequence[str], *, single: bool) -> str:
    rest = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
    which = "" if single else f" {', '.join(pairs[:3])}{rest}"
    latency = format_seconds(way.latency_seconds)
    rate = format_rate(way.bytes_per_second)
    return f"links{which}: {rate} each way ({way.through}), latency {latency} (assumed)"


# This machine


def _card(gpu: FoundGpu, reserve: _Reserve) -> tuple[Device, str]:
    """A card with its measured memory and the rates of the catalogue."""
    found = candidates(gpu.name)
    if len(found) > 1:  # variants that differ in memory: the measured size tells which
        sized = [
            row for row in found if row.memory_bytes and abs(gpu.memory_bytes / row.memory_bytes - 1) < 0.1
        ]
        found = tuple(sized) or found
    if len(found) != 1:
        listed = f" ({', '.join(row.key for row in found)})" if found else ""
        raise BadCluster(
            f"auto: card {gpu.index} is {show(gpu.name)}, which is {'not one device' if found else 'not'} "
            f"in the catalogue{listed}; name the devices, or describe the card in a device file"
        )
    row = found[0]
    name = f"cuda:{gpu.index}"
    device = device_from(
        row,
        name,
        memory_bytes=gpu.memory_bytes,
        reserve_bytes=reserve.of(row.kind, gpu.memory_bytes),
        alias={"accelerate": gpu.index, "llama": f"CUDA{gpu.index}", "ort": "cuda"},
    )
    rates = f"{format_rate(device.bytes_per_second)}, FLOP/s from the catalogue"
    return device, f"{name} = {row.key}: {format_bytes(gpu.memory_bytes)} (measured), {rates}"


def _host(machine: Machine, reserve: _Reserve) -> tuple[Device, tuple[str, ...]]:
    """The processor: memory and cores measured, rates from the catalogue if it is there, else assumed."""
    generic = lookup(GENERIC_CPU)
    memory = machine.memory_bytes or generic.memory_bytes or 0
    unified = candidates(f"{machine.cpu_name} {round(memory / 2**30)} GB")
    named = unified or candidates(machine.cpu_name)
    known = [row for row in named if row.whole_machine or row.kind == "cpu"]
    row = known[0] if len(known) == 1 else generic
    whole = device_from(row, "cpu", memory_bytes=memory, reserve_bytes=reserve.of(row.kind, memory))
    share = (machine.cores or 1) / row.cores if row.cores else 1.0
    device = replace(
        whole,
        name=row.kind,
        flops_per_second={dtype: rate * share for dtype, rate in row.flops_per_second.items()},
    )
    label = "assumed" if row is generic else f"from the catalogue, {row.key}"
    rates = (
        f"{format_rate(device.bytes_per_second)}, {format_flops(device.flops_per_second['fp32'])} ({label})"
    )
    size = f"{format_bytes(memory)} ({'measured' if machine.memory_bytes else 'assumed'})"
    cores = f"{machine.cores} cores (measured)" if machine.cores else "cores unknown"
    return device, (f"{device.name} = {machine.cpu_name or 'this processor'}: {size}, {cores}, {rates}",)
