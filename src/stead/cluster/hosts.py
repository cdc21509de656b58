"""Hosts: which devices of a cluster are in the same machine, and what that says about the links between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from stead.cluster.devices import CarriedBy, Device, Host, Link, link_both_ways
from stead.cluster.links import NETWORK_BYTES_PER_SECOND, NETWORK_LATENCY_SECONDS, Wiring, default_links
from stead.cluster.quantities import format_rate, format_seconds

Figures = tuple[float, float, float, CarriedBy]  # bytes per second, latency, gap, who carries


@dataclass(frozen=True, slots=True)
class AlikeLinks:
    """All links from one host to another, or inside one, that have the same figures both ways."""

    first: str
    second: str
    figures: Figures
    pairs: frozenset[tuple[str, str]]  # ordered pairs of devices


def default_host_links(
    devices: Sequence[Device],
    hosts: Sequence[Host],
    *,
    wired: Mapping[str, Wiring] | None = None,
    network_bytes_per_second: float | None = None,
) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """The links that nobody gave: the usual ones inside a host, a network between hosts; and lines that say so.

    `wired` and the speed of the network are what the user says.
    """
    rate = network_bytes_per_second or NETWORK_BYTES_PER_SECOND
    by_name = {device.name: device for device in devices}
    links: list[Link] = []
    lines: list[str] = []
    for host in hosts:
        inside, said = default_links([by_name[name] for name in host.devices], wired=wired)
        links += inside
        lines += [f"host {host.name}: {line}" for line in said]
    for one, other in combinations(hosts, 2):
        for source in one.devices:
            for target in other.devices:
                links += link_both_ways(
                    source, target, bytes_per_second=rate, latency_seconds=NETWORK_LATENCY_SECONDS
                )
    if len(hosts) > 1:
        latency = format_seconds(NETWORK_LATENCY_SECONDS)
        why = "10 Gbit/s Ethernet, assumed" if network_bytes_per_second is None else "as given"
        lines.append(f"links between hosts: {format_rate(rate)} each way ({why}), latency {latency} (assumed)")
    return tuple(links), tuple(lines)


def alike_links(hosts: Sequence[Host], figures: Mapping[tuple[str, str], Figures]) -> list[AlikeLinks]:
    """The groups of links that one row of a file can say: between two hosts, or inside one."""
    found = []
    for one, other in (*((host, host) for host in hosts), *combinations(hosts, 2)):
        pairs = frozenset(_pairs(one.devices, other.devices))
        known = {figures.get(pair) for pair in pairs}
        if len(known) == 1 and (figure := known.pop()) is not None:
            found.append(AlikeLinks(one.name, other.name, figure, pairs))
    return found


def _pairs(some: Iterable[str], others: Iterable[str]) -> set[tuple[str, str]]:
    """Ordered pairs of devices, one from each side, both ways."""
    there = {(a, b) for a in some for b in others if a != b}
    return there | {(b, a) for a, b in there}
