"""Routes: how a tensor travels between every two devices, over one link, over several, or through host memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stead.cluster.levels import fill_links

if TYPE_CHECKING:
    from stead.cluster.devices import Cluster

NO_CHANNEL = -1  # transfers never queue
BY_SENDER = -2  # the sender carries them and does nothing else meanwhile

Table = NDArray[np.float64]
WriteRead = tuple[Table, Table]  # writing to host memory, reading from it; each [device]


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Transfer behaviour of every ordered pair of devices; the diagonal means nothing."""

    latency_seconds: NDArray[np.float64]  # [source, target]; inf where there is no route
    bytes_per_second: NDArray[np.float64]  # [source, target]
    gap_seconds: NDArray[np.float64]  # [source, target]
    channel: NDArray[np.int32]  # [source, target]; the queue a transfer waits in, NO_CHANNEL or BY_SENDER
    hops: NDArray[np.int32]  # [source, target]; charged hops, used where an input gives tensors in seconds
    host_latency_seconds: NDArray[np.float64]  # [write to host memory | read from it, device]
    host_bytes_per_second: NDArray[np.float64]  # [write to host memory | read from it, device]


def routes_of(cluster: Cluster) -> Routes:
    """Transfer behaviour of every ordered pair, with routes over several links collapsed into one."""
    count = len(cluster.devices)
    latency = np.full((count, count), np.inf)
    rate = np.full((count, count), np.inf)
    gap = np.zeros((count, count))
    if cluster.levels:
        fill_links(cluster.levels, latency, rate, gap)
    position = {device.name: d for d, device in enumerate(cluster.devices)}
    for link in cluster.links:
        pair = position[link.source], position[link.target]
        latency[pair], rate[pair], gap[pair] = (
            link.latency_seconds,
            link.bytes_per_second,
            link.gap_seconds,
        )
    np.fill_diagonal(latency, 0.0)
    host_latency, host_rate = _host_access(cluster, latency, rate)
    carried = np.zeros((count, count), dtype=bool)
    for link in cluster.links:
        carried[position[link.source], position[link.target]] = link.carried_by == "sender"
    hops = np.ones((count, count), dtype=np.int32)
    queue = np.arange(count * count).reshape(count, count)  # the ordered pair whose link is waited for
    if cluster.routing == "host":
        latency, rate, hops = _through_host(cluster, host_latency, host_rate)
        gap, carried = np.zeros((count, count)), np.zeros((count, count), dtype=bool)
    else:
        _collapse_routes(latency, rate, gap, queue, carried)
    if cluster.hosts and cluster.contention in ("link", "pair"):
        queue = _between_hosts(cluster, queue)
    channel = np.where(carried, np.int32(BY_SENDER), _channels(cluster.contention, queue, count))
    return Routes(latency, rate, gap, channel, hops, np.stack(host_latency), np.stack(host_rate))


def _host_access(cluster: Cluster, latency: Table, rate: Table) -> tuple[WriteRead, WriteRead]:
    """Latency and rate of (writing to, reading from) host memory: the quickest link with a CPU."""
    hosts = [d for d, device in enumerate(cluster.devices) if device.is_host]
    count = len(cluster.devices)
    if (
        cluster.routing == "host" and not cluster.links
    ):  # no CPU to link to: what takes time is said elsewhere
        free, unlimited = np.zeros(count), np.full(count, np.inf)
        return (free, free.copy()), (unlimited, unlimited.copy())
    write_latency, write_rate = np.full(count, np.inf), np.full(count, np.inf)
    read_latency, read_rate = np.full(count, np.inf), np.full(count, np.inf)
    for d in range(count):
        if d in hosts:
            write_latency[d] = read_latency[d] = 0.0
            continue
        for latencies, rates, one_way in (
            (write_latency, write_rate, [(d, h) for h in hosts]),
            (read_latency, read_rate, [(h, d) for h in hosts]),
        ):
            open_links = [pair for pair in one_way if math.isfinite(latency[pair])]
            if open_links:
                best = min(open_links, key=lambda pair: (latency[pair], -rate[pair], pair))
                latencies[d], rates[d] = latency[best], rate[best]
    return (write_latency, read_latency), (write_rate, read_rate)


def _through_host(
    cluster: Cluster, host_latency: WriteRead, host_rate: WriteRead
) -> tuple[Table, Table, NDArray[np.int32]]:
    """Store and forward: a write to host memory, then a read from it."""
    latency = host_latency[0][:, None] + host_latency[1][None, :]
    with np.errstate(divide="ignore"):
        rate = 1.0 / (1.0 / host_rate[0][:, None] + 1.0 / host_rate[1][None, :])
    charged = np.array([0 if device.is_host else 1 for device in cluster.devices], dtype=np.int32)
    return latency, rate, charged[:, None] + charged[None, :]


def _collapse_routes(
    latency: Table, rate: Table, gap: Table, queue: NDArray[np.int64], carried: NDArray[np.bool_]
) -> None:
    """Fill pairs without a link of their own by the route of least latency (Floyd-Warshall, in place).

    A route is carried by its sender where each of its links is carried by the device that it leaves.
    """
    given = np.isfinite(latency)
    if given.all():
        return
    for middle in range(len(latency)):
        through = latency[:, middle, None] + latency[None, middle, :]
        better = ~given & (through < latency)
        better[middle, :] = better[:, middle] = False
        for s, d in np.argwhere(better):
            first, second = (s, middle), (middle, d)
            narrow = first if rate[first] <= rate[second] else second
            latency[s, d], rate[s, d] = through[s, d], rate[narrow]
            gap[s, d], queue[s, d] = gap[narrow], queue[narrow]
            carried[s, d] = carried[first] and carried[second]


def _between_hosts(cluster: Cluster, queue: NDArray[np.int64]) -> NDArray[np.int64]:
    """Queues where two hosts have one link: what goes over it waits in the queue of their first devices."""
    position = {name: d for d, name in enumerate(cluster.names)}
    first = [min(position[name] for name in host.devices) for host in cluster.hosts]
    on = {name: h for h, host in enumerate(cluster.hosts) for name in host.devices}
    host = np.array([on[name] for name in cluster.names])
    at = np.array(first)[host]  # [device]: the first device of its host
    source, target = np.divmod(queue, len(host))
    return np.where(host[source] == host[target], queue, at[source] * len(host) + at[target])


def _channels(contention: str, queue: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """The shared resource that each ordered pair occupies."""
    source, target = np.divmod(queue, count)
    table: Mapping[str, NDArray[np.int64]] = {
        "none": np.full_like(queue, -1),
        "link": queue,
        "pair": np.minimum(source, target) * count + np.maximum(source, target),
        "sender": source,
        "receiver": target,
        "bus": np.zeros_like(queue),
    }
    return table[contention].astype(np.int32)
