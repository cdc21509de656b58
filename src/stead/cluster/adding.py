"""One more device, or several, in a cluster that is there: linked as the catalogue says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stead.cluster.describe import cluster_from
from stead.cluster.devices import Cluster, Device, Link
from stead.cluster.links import default_links


def with_added(cluster: Cluster, texts: Iterable[str]) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster plus devices that descriptions name, linked as the catalogue says, and how they were understood.

    >>> with_added(cluster_from("3090,3060")[0], ["3090"])[0].names
    ('3090', '3060', '3090:1')
    """
    lines: list[str] = []
    for text in texts:
        described, said = cluster_from(text)
        lines += said[:1]
        taken = set(cluster.names)
        devices = []
        for device in described:
            name = _free(device.name, taken)
            taken.add(name)
            devices.append(replace(device, name=name))
        names = {device.name for device in devices}
        links, _ = default_links([*cluster.devices, *devices])
        new = [link for link in links if names & {link.source, link.target}]
        if cluster.routing == "host":
            new = [link for link in new if _meets_host(link, (*cluster.devices, *devices))]
        cluster = cluster.with_devices(devices, new)
    return cluster, tuple(lines)


def _free(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    base = name.partition(":")[0]
    return next(f"{base}:{n}" for n in range(1, len(taken) + 2) if f"{base}:{n}" not in taken)


def _meets_host(link: Link, devices: Iterable[Device]) -> bool:
    return any(device.is_host and device.name in (link.source, link.target) for device in devices)
