"""Nodes, racks and sites in words, "16x A100 in nodes of 8 @ 25GB/s in racks of 2", and the networks that join them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stead.cluster.devices import Cluster, Device, Host
from stead.cluster.levels import Level
from stead.cluster.links import (
    LATENCY_SECONDS,
    NETWORK_BYTES_PER_SECOND,
    NETWORK_LATENCY_SECONDS,
    Wiring,
    default_links,
)
from stead.cluster.quantities import format_rate, format_seconds, parse_rate
from stead.errors import BadCluster

_RATED = r"\s+of\s+(\d{1,4})(?:\s*@\s*([^@,+]+?))?"
_NODES = re.compile(
    rf"(.*\S)\s+in\s+nodes{_RATED}(?:\s+in\s+racks{_RATED})?(?:\s+in\s+sites{_RATED})?", re.IGNORECASE
)
# Between nodes of a rack, racks of a site, sites: one switch, some switches, a long line.
_LATENCY_SECONDS = {"node": NETWORK_LATENCY_SECONDS, "rack": 2 * NETWORK_LATENCY_SECONDS, "site": 1e-3}


@dataclass(frozen=True, slots=True)
class Group:
    """What "in racks of 8 @ 12GB/s" says."""

    name: str  # node, rack or site
    size: int  # devices of a node, nodes of a rack, racks of a site
    bytes_per_second: float | None  # between groups; None: nobody said


def split_groups(text: str) -> tuple[str, list[Group]]:
    """The devices of a description, and the nodes, racks and sites that they are in; none where it names no nodes.

    >>> split_groups("16x A100-80GB in nodes of 8 @ 25GB/s")
    ('16x A100-80GB', [Group(name='node', size=8, bytes_per_second=25000000000.0)])
    """
    nodes = _NODES.fullmatch(text)
    if nodes is None:
        return text, []
    found = []
    for name, size, rate in (("node", nodes[2], nodes[3]), ("rack", nodes[4], nodes[5]), ("site", nodes[6], nodes[7])):
        if size:
            given = None if rate is None else parse_rate(rate.strip(), f"the network between {name}s")
            found.append(Group(name, int(size), given))
    return nodes[1], found


def hosts_of(devices: Sequence[Device], size: int) -> tuple[Host, ...]:
    """Hosts of so many devices each, in the order in which they were described."""
    if not size or len(devices) % size:
        raise BadCluster(f"{len(devices)} devices cannot be divided into nodes of {size}; give another number")
    names = [device.name for device in devices]
    return tuple(Host(f"node{n}", tuple(names[n * size : (n + 1) * size])) for n in range(len(devices) // size))


def in_levels(
    devices: list[Device], hosts: tuple[Host, ...], wired: dict[str, Wiring], groups: list[Group], told: tuple[str, ...]
) -> tuple[Cluster, tuple[str, ...]]:
    """A cluster that is joined level by level: all its nodes are alike."""
    size = groups[0].size
    inside, lines = default_links(devices[:size], wired=wired)
    figures = {(link.bytes_per_second, link.latency_seconds) for link in inside}
    kinds = [(device.model, device.memory_bytes) for device in devices]
    if len(figures) > 1 or any(kinds[n : n + size] != kinds[:size] for n in range(0, len(kinds), size)):
        raise BadCluster(
            "racks, sites and more than 64 devices need nodes that are alike and have one kind of link inside; "
            "write a device file with [[level]] tables for others"
        )
    levels, more = _levels(len(devices), figures.pop() if figures else None, groups)
    first = tuple(f"in every node: {line}" for line in lines)
    return Cluster(tuple(devices), hosts=hosts, levels=levels), tuple(dict.fromkeys((*told, *first, *more)))


def _levels(
    devices: int, inside: tuple[float, float] | None, groups: Sequence[Group]
) -> tuple[tuple[Level, ...], tuple[str, ...]]:
    """Levels for so many devices, and lines that say what they are; `inside` is rate and latency within a node."""
    levels: list[Level] = []
    lines: list[str] = []
    if inside is not None:
        levels.append(Level("node", groups[0].size, inside[0], inside[1] or LATENCY_SECONDS))
    size = groups[0].size
    for group, outer in zip(groups, (*groups[1:], None), strict=True):
        if outer is None:
            within, covered = "cluster", devices
        else:
            within, covered = outer.name, size * outer.size
            if not outer.size or devices % covered:
                raise BadCluster(
                    f"{devices} devices cannot be divided into {within}s of {covered}; give another number"
                )
        if covered == size:
            continue  # there is one such group: nothing lies between it and others
        rate = group.bytes_per_second or NETWORK_BYTES_PER_SECOND
        latency = _LATENCY_SECONDS[group.name]
        levels.append(Level(within, covered, rate, latency))
        why = "10 Gbit/s Ethernet, assumed" if group.bytes_per_second is None else "as given"
        lines.append(
            f"links between {group.name}s of a {within}: {format_rate(rate)} each way ({why}), "
            f"latency {format_seconds(latency)} (assumed)"
        )
        size = covered
    return tuple(levels), tuple(lines)
