"""The levels of a cluster that is described in words: nodes, racks and sites, and the networks that join them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stead.cluster.levels import Level
from stead.cluster.links import LATENCY_SECONDS, NETWORK_BYTES_PER_SECOND, NETWORK_LATENCY_SECONDS
from stead.cluster.quantities import format_rate, format_seconds
from stead.errors import BadCluster

# Between nodes of a rack, racks of a site, sites: one switch, some switches, a long line.
_LATENCY_SECONDS = {"node": NETWORK_LATENCY_SECONDS, "rack": 2 * NETWORK_LATENCY_SECONDS, "site": 1e-3}


@dataclass(frozen=True, slots=True)
class Group:
    """What "in racks of 8 @ 12GB/s" says."""

    name: str  # node, rack or site
    size: int  # devices of a node, nodes of a rack, racks of a site
    bytes_per_second: float | None  # between groups; None: nobody said


def default_levels(
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
