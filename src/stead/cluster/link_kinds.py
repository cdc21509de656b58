"""Kinds of links by name, `pcie4x16`, `nvlink`, `ethernet25`: what a wire of that kind carries, and its latency.

PCI Express and Ethernet are what their standards say, fabrics what the catalogue knows of the devices they join.
Latencies are the assumptions that links without figures of their own have.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import chain

from stead.cluster.catalogue import lookup, pcie_rate
from stead.cluster.devices import Cluster, Device, Link
from stead.cluster.links import LATENCY_SECONDS, NETWORK_LATENCY_SECONDS, is_called
from stead.cluster.quantities import show
from stead.errors import BadInput, did_you_mean

FABRICS = ("nvlink", "infinityfabric")
_GENERATIONS, _LANES = (1, 2, 3, 4, 5), (1, 2, 4, 8, 16)
_ETHERNET_GBITS = (1, 10, 25, 40, 100, 200, 400)
_USUAL = ("pcie3x4", "pcie3x8", "pcie3x16", "pcie4x4", "pcie4x8", "pcie4x16", "pcie5x8", "pcie5x16")


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A kind of link with what it carries, each way."""

    name: str
    bytes_per_second: float
    latency_seconds: float


@cache
def standard_kinds() -> dict[str, LinkKind]:
    """Kinds that join any two devices, by name.

    >>> standard_kinds()["ethernet10"].bytes_per_second
    1250000000.0
    """
    ports = [
        LinkKind(f"pcie{g}x{lanes}", pcie_rate(f"{g}.0 x{lanes}"), LATENCY_SECONDS)
        for g in _GENERATIONS
        for lanes in _LANES
    ]
    networks = [LinkKind(f"ethernet{n}", n * 1e9 / 8, NETWORK_LATENCY_SECONDS) for n in _ETHERNET_GBITS]
    return {kind.name: kind for kind in chain(ports, networks)}


def usual_kinds() -> tuple[LinkKind, ...]:
    """Those that a list to choose from offers; all others can be written."""
    return tuple(kind for name, kind in standard_kinds().items() if name in _USUAL or name.startswith("ethernet"))


def fabric_between(first: Device, second: Device) -> LinkKind | None:
    """The fabric that two devices of one model have, by the catalogue; None where they have none."""
    if not first.model or first.model != second.model:
        return None
    row = lookup(first.model)
    name = next((one for one in FABRICS if is_called(row, one)), None)
    if name is None or row.fabric is None:
        return None
    return LinkKind(name, row.fabric.peer_bytes_per_second, LATENCY_SECONDS)


def kind_named(text: str, first: Device, second: Device) -> LinkKind:
    """The kind of that name between two devices; BadInput where there is no such kind, or not between these.

    >>> from stead.cluster import cluster_from
    >>> a, b = cluster_from("2x 3090")[0]
    >>> kind_named("NVLink", a, b).name, kind_named("PCIe 3.0 x8", a, b).name
    ('nvlink', 'pcie3x8')
    """
    plain = "".join(text.lower().split()).replace(".0x", "x").replace("gen", "")
    fabric = fabric_between(first, second)
    if plain in FABRICS:
        if fabric is None or fabric.name != plain:
            raise BadInput(f"{first.name} and {second.name} have no {plain} by the catalogue; give a bandwidth instead")
        return fabric
    found = standard_kinds().get("ethernet10" if plain == "ethernet" else plain)
    if found is None:
        near = did_you_mean(plain, [*standard_kinds(), *FABRICS])
        raise BadInput(f"no kind of link {show(text)}{near}; there are pcie1x1 to pcie5x16, nvlink and ethernet10")
    return found


def kind_of(link: Link, cluster: Cluster) -> str:
    """A kind whose figures a link has, of equal ones the first; empty for a link with figures of its own."""
    ends = (cluster.devices[cluster.index(name)] for name in (link.source, link.target))
    fabric = fabric_between(*ends)
    for kind in (*([fabric] if fabric else []), *usual_kinds(), *standard_kinds().values()):
        if (kind.bytes_per_second, kind.latency_seconds) == (link.bytes_per_second, link.latency_seconds):
            return kind.name
    return ""
