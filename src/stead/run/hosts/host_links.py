"""Hosts as a cluster: what the cores of each do per second, the links inside them, and the links between them.

Messages of many sizes go over gloo to and fro between one worker on each of two hosts, in normal scheduling, pair by
pair, so that no two pairs share a network card meanwhile; latency and rate are fitted as for links inside a machine.
A limited link lets some bytes pass at once: small messages that a fit cannot explain beside large ones are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stead.cluster import Cluster, Device, Host, Link
from stead.costs.error_bars import ErrorBar
from stead.errors import BadInput, RunFailed
from stead.printing.look import Look
from stead.printing.table import Column, table
from stead.run.executor import Worker
from stead.run.hosts.host_crew import Agents, HostCrew
from stead.run.hosts.host_messages import Ping, Time
from stead.run.link_times import MeasuredLink, fit_link
from stead.run.machine_rates import MeasuredMachine, rates_text

SIZES = tuple(2**power for power in range(10, 25, 2))
ROUNDS = 3
_BURST_SECONDS = 0.4
_LONGEST_SECONDS = 0.4  # one way: larger messages would say nothing new
_MOST_MESSAGES, _LEAST_MESSAGES, _WARMUPS = 200, 2, 2
_TIMEOUT_SECONDS = 60.0
_FIT_ERROR = 0.05
_MACHINE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class MeasuredHosts:
    """What was found out about several hosts by timing them."""

    hosts: tuple[Host, ...]  # with the devices that `cluster` has
    machines: tuple[MeasuredMachine, ...]  # by host
    links: tuple[MeasuredLink, ...]  # between hosts, by their names

    @property
    def cluster(self) -> Cluster:
        """Devices, links inside hosts and between them with the measured figures."""
        devices: list[Device] = []
        links: list[Link] = []
        for host, machine in zip(self.hosts, self.machines, strict=True):
            own = machine.cluster
            name = dict(zip(own.names, host.devices, strict=True))
            devices += [replace(device, name=name[device.name]) for device in own]
            links += [replace(link, source=name[link.source], target=name[link.target]) for link in own.links]
        by_name = {host.name: host for host in self.hosts}
        for measured in self.links:
            for way in measured.links:
                pairs = itertools.product(by_name[way.source].devices, by_name[way.target].devices)
                links += [replace(way, source=source, target=target) for source, target in pairs]
        return Cluster(tuple(devices), tuple(links), hosts=self.hosts)


def measure_hosts(agents: Agents, *, on_step: Callable[[str], None] | None = None) -> MeasuredHosts:
    """Time the cores of every host and all links; ends the agents."""
    try:
        workers = cores_of_hosts(agents)
        machines: dict[int, MeasuredMachine] = {}
        for h, name in enumerate(agents.names):  # hosts that are one machine would disturb each other
            if on_step is not None:
                on_step(f"cores of host {name}")
            machines.update(agents.ask({h: Time(workers[h])}, _MACHINE_SECONDS))
        crew = HostCrew(agents, [of_host[0] for of_host in workers], range(len(workers)))
        crew.join()
        links = measure_host_links(crew, on_step=on_step)
    finally:
        agents.close()
    hosts = tuple(
        Host(one.peer.name, tuple(f"{one.peer.name}/{worker.name}" for worker in workers[h]), one.peer.address)
        for h, one in enumerate(agents.opened)
    )
    return MeasuredHosts(hosts, tuple(machines[h] for h in range(len(hosts))), links)


def cores_of_hosts(agents: Agents) -> list[tuple[Worker, ...]]:  # [host]
    """A worker for every core of every host; hosts that are one machine share its cores."""
    found: list[tuple[Worker, ...]] = []
    for h, one in enumerate(agents.opened):
        alike = [other for other, opened in enumerate(agents.opened) if opened.machine == one.machine]
        own = one.cores[alike.index(h) :: len(alike)]
        if not own:
            names = ", ".join(agents.names[other] for other in alike)
            raise BadInput(f"hosts {names} are one machine with {len(one.cores)} cores; name fewer of them")
        found.append(tuple(Worker(f"core {core}", (core,)) for core in own))
    return found


def measure_host_links(
    crew: HostCrew,
    *,
    sizes: Sequence[int] = SIZES,
    rounds: int = ROUNDS,
    on_step: Callable[[str], None] | None = None,
) -> tuple[MeasuredLink, ...]:
    """Every pair of workers of a crew, which are on different hosts, at every size."""
    timed: dict[tuple[int, int], dict[int, list[float]]] = {}
    for number in range(rounds):
        for pair in itertools.combinations(range(len(crew.workers)), 2):
            names = " and ".join(crew.agents.names[crew.host_of[w]] for w in pair)
            if on_step is not None:
                on_step(f"link between {names}, round {number + 1} of {rounds}")
            for size, seconds in _messages(crew, pair, sizes).items():
                timed.setdefault(pair, {}).setdefault(size, []).extend(seconds)
    return tuple(_link(crew, pair, found) for pair, found in timed.items())


def _messages(crew: HostCrew, pair: tuple[int, int], sizes: Sequence[int]) -> dict[int, list[float]]:
    """One-way seconds by size, as many messages as fit into a burst by what the size before took."""
    found: dict[int, list[float]] = {}
    guess = 0.0
    for size in sizes:
        if guess > _LONGEST_SECONDS:
            break
        count = min(_MOST_MESSAGES, max(_LEAST_MESSAGES, int(_BURST_SECONDS / 2 / max(guess, 1e-4))))
        found[size] = pings(crew, pair, size, count + _WARMUPS)
        following = next((other for other in sizes if other > size), size)
        guess = min(found[size]) * following / size
    return found


def pings(crew: HostCrew, pair: tuple[int, int], size: int, count: int) -> list[float]:
    """One-way seconds of so many messages between two workers, less two for warming up."""
    first, second = pair
    answers = crew.tell(
        {
            first: Ping(second, True, size, count, _TIMEOUT_SECONDS),
            second: Ping(first, False, size, count, _TIMEOUT_SECONDS),
        },
        seconds=_TIMEOUT_SECONDS,
    )
    seconds: list[float] = answers[first].value
    return seconds


def _link(crew: HostCrew, pair: tuple[int, int], timed: Mapping[int, Sequence[float]]) -> MeasuredLink:
    first, second = (crew.agents.names[crew.host_of[w]] for w in pair)
    bars = {size: ErrorBar.of(seconds) for size, seconds in timed.items() if seconds}
    if len(bars) < 2:
        raise RunFailed(f"the link between hosts {first} and {second} is too slow to be measured")
    latency, rate, residual = fit_large({size: bar.quartile_seconds for size, bar in bars.items()})
    return MeasuredLink(first, second, bars, latency, rate, residual)


def fit_large(seconds: Mapping[int, float]) -> tuple[float, float, float]:
    """Latency, rate and relative error of the largest messages that one line fits to 5 %, of two sizes at least.

    >>> bucket = {1_000: 1e-4, 4_000: 1e-3, 64_000: 63e-3, 256_000: 255e-3}  # the first 1,000 bytes pass at once
    >>> latency, rate, residual = fit_large(bucket)
    >>> f"{rate:.3g} bytes/s, error {residual:.0%}"
    '1.01e+06 bytes/s, error 1%'
    """
    sizes = sorted(seconds)
    for first in range(len(sizes) - 1):
        found = fit_link({size: seconds[size] for size in sizes[first:]})
        if found[2] <= _FIT_ERROR:
            break
    return found


def hosts_text(measured: MeasuredHosts, look: Look) -> list[str]:
    """What every host does per second, and the links between hosts by size."""
    lines: list[str] = []
    for host, machine in zip(measured.hosts, measured.machines, strict=True):
        lines += [f" host {host.name} at {host.address}", *rates_text(machine, look), ""]
    rows = [
        [f"{one.first} <-> {one.second}", f"{one.latency_seconds * 1e6:.1f}", f"{one.bytes_per_second / 1e6:.1f}",
         f"{one.residual:.0%}", f"{min(one.seconds)}-{max(one.seconds)}"]
        for one in measured.links
    ]  # fmt: skip
    heads = [
        Column("between hosts", least=16), Column("latency", "us", right=True), Column("bandwidth", "MB/s", right=True),
        Column("error of fit", right=True), Column("messages", "bytes", right=True),
    ]  # fmt: skip
    return [*lines, *table(heads, rows, look)]
