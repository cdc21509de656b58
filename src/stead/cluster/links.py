"""Links that nobody gave: what the catalogue knows about ports and fabrics, and what "@ pcie3x8" changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stead.cluster.catalogue import CatalogueEntry, lookup, pcie_rate
from stead.cluster.devices import Cluster, Device, Link, link_both_ways
from stead.cluster.quantities import format_rate, format_seconds, parse_rate, show
from stead.errors import BadCluster

LATENCY_SECONDS = 10e-6  # within a machine
NETWORK_LATENCY_SECONDS = 20e-6  # between machines
NETWORK_BYTES_PER_SECOND = 1.25e9  # 10 Gbit/s Ethernet
UNKNOWN_PORT = "3.0 x16"  # where no figure is published

_PORT = re.compile(r"pcie(?:gen)?([0-9])(?:\.0)?x([0-9]{1,2})", re.ASCII)
_FABRICS = ("nvlink", "infinityfabric")
_MOST_PAIRS = 3  # that a line names


@dataclass(frozen=True, slots=True)
class Wiring:
    """What "@ pcie3x8" says about the devices before it."""

    group: int  # devices of one group have it in common
    text: str  # as it is shown: "PCIe 3.0 x8", "nvlink", "25GB/s"
    bytes_per_second: float | None  # each way; None: by their own fabric


def wiring_from(text: str, group: int) -> Wiring:
    """The meaning of what stands after an @.

    >>> wiring_from("pcie3x8", 0).text, wiring_from("25GB/s", 0).bytes_per_second
    ('PCIe 3.0 x8', 25000000000.0)
    """
    plain = "".join(text.lower().split())
    if plain in _FABRICS:
        return Wiring(group, plain, None)
    if found := _PORT.fullmatch(plain):
        port = f"{found[1]}.0 x{int(found[2])}"
        try:
            return Wiring(group, f"PCIe {port}", pcie_rate(port))
        except BadCluster:
            raise BadCluster(
                f"no link {show(text)}: PCI Express has generations 1 to 5 and 1, 2, 4, 8 or 16 lanes, as in pcie4x16"
            ) from None
    if plain[:1].isdecimal():
        return Wiring(group, text, parse_rate(text, f"link after @: {show(text)}"))
    raise BadCluster(f"no link {show(text)}; after @ write pcie3x8, nvlink or a rate such as 25GB/s")


def check_wiring(wiring: Wiring, devices: Sequence[Device]) -> None:
    """BadCluster if these devices cannot be linked like this."""
    rows = [lookup(device.model) for device in devices]
    if wiring.bytes_per_second is not None:
        if all(device.is_host for device in devices):
            raise BadCluster(f"@ {wiring.text}: {devices[0].name} is a processor and has no port of its own to set")
        return
    for device, row in zip(devices, rows, strict=True):
        if row.fabric is None or not is_called(row, wiring.text):
            raise BadCluster(f"@ {wiring.text}: {row.key} ({device.name}) has none; write pcie4x16 or a rate")
    if len(devices) < 2 or any(row != rows[0] for row in rows):
        raise BadCluster(f"@ {wiring.text} joins two or more devices of one model, as in 2x 3090 @ nvlink")


def is_called(row: CatalogueEntry, name: str) -> bool:
    """Whether the fabric of a device is the one that a user calls so."""
    return row.fabric is not None and "".join(row.fabric.name.lower().split()).startswith(name)


def default_links(
    devices: Sequence[Device],
    *,
    ports: Mapping[str, str] | None = None,
    wired: Mapping[str, Wiring] | None = None,
) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """Links for every ordered pair from what the catalogue knows, and the lines that say what was assumed.

    `ports` gives PCI Express ports by device name where they are known better than from the catalogue, `wired` what
    the user says about the links of devices.
    """
    links: list[Link] = []
    by_way: dict[_Way, list[str]] = {}
    for first, second in combinations(devices, 2):
        way = _way_between(first, second, ports or {}, wired or {})
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


def silent_pairs(cluster: Cluster) -> tuple[str, ...]:
    """A line that names the ordered pairs between which nothing can be sent; none if all can talk.

    >>> one_way = Cluster((Device("a"), Device("b")), (Link("b", "a", 1e9),))
    >>> silent_pairs(one_way)
    ('no link a -> b: nothing can be sent that way, directly or over others',)
    """
    latency = cluster.routes().latency_seconds
    names = cluster.names
    if np.isfinite(latency).all():
        return ()
    cut = [
        f"{names[s]} -> {names[t]}"
        for s in range(len(names))
        for t in range(len(names))
        if s != t and latency[s, t] == float("inf")
    ]
    if not cut:
        return ()
    rest = f" and {len(cut) - _MOST_PAIRS} more" if len(cut) > _MOST_PAIRS else ""
    return (f"no link {', '.join(cut[:_MOST_PAIRS])}{rest}: nothing can be sent that way, directly or over others",)


@dataclass(frozen=True, slots=True)
class _Way:
    """How two devices reach each other."""

    bytes_per_second: float
    latency_seconds: float
    through: str


def _way_between(
    first: Device, second: Device, ports: Mapping[str, str], wired: Mapping[str, Wiring]
) -> _Way:
    rows = [lookup(device.model) if device.model else None for device in (first, second)]
    said = [wired.get(device.name) for device in (first, second)]
    set_rate = any(one is not None and one.bytes_per_second is not None for one in said)
    bridged = said[0] is not None and said[0] == said[1] and not set_rate
    fabric = rows[0].fabric if rows[0] is not None else None
    if fabric is not None and rows[0] == rows[1] and (bridged or not (fabric.bridge or set_rate)):
        return _Way(fabric.peer_bytes_per_second, LATENCY_SECONDS, f"{fabric.name}, peak")
    network = any(row is not None and row.whole_machine for row in rows)
    if network and not set_rate:
        return _Way(NETWORK_BYTES_PER_SECOND, NETWORK_LATENCY_SECONDS, "10 Gbit/s Ethernet, assumed")
    latency = NETWORK_LATENCY_SECONDS if network else LATENCY_SECONDS
    ways = []
    for device, row, wiring in zip((first, second), rows, said, strict=True):
        if device.is_host:
            continue
        if wiring is not None and wiring.bytes_per_second is not None:
            ways.append(_Way(wiring.bytes_per_second, latency, f"{wiring.text}, as given"))
        elif row is None or not (row.shares_host_memory or row.whole_machine):
            port = ports.get(device.name) or (row.pcie if row is not None else "")
            note = "peak" if port else "assumed"
            if fabric is not None and rows[0] == rows[1] and not set_rate:
                note += f", no {fabric.name} bridge"
            through = f"PCIe {port or UNKNOWN_PORT}, {note}"
            ways.append(_Way(pcie_rate(port or UNKNOWN_PORT), latency, through))
    if not ways:
        rate = min(first.bytes_per_second, second.bytes_per_second)
        return _Way(rate, LATENCY_SECONDS, "host memory, peak")
    return min(ways, key=lambda way: way.bytes_per_second)


def _link_line(way: _Way, pairs: Sequence[str], *, single: bool) -> str:
    rest = f" and {len(pairs) - _MOST_PAIRS} more" if len(pairs) > _MOST_PAIRS else ""
    which = "" if single else f" {', '.join(pairs[:_MOST_PAIRS])}{rest}"
    latency = format_seconds(way.latency_seconds)
    rate = format_rate(way.bytes_per_second)
    return f"links{which}: {rate} each way ({way.through}), latency {latency} (assumed)"
