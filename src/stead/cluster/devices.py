"""Device, Link and Cluster: where operators can run and how tensors travel between those places."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from stead.cluster.classes import SOLVER_DEVICES
from stead.cluster.levels import Level, check_levels
from stead.cluster.routes import Routes, routes_of
from stead.errors import BadCluster, did_you_mean

UNLIMITED_BYTES = 2**62
MAX_DEVICES = 1024
_MOST_NAMED = 8  # devices

_TYPE = "(?:fp64|fp32|tf32|fp16|bf16|fp8|fp4|int8|int4)"
PRECISION = re.compile(
    rf"(?:computed in (?P<computed>{_TYPE})|converted to (?P<converted>{_TYPE})"
    rf"|run at 1/(?P<share>[1-9][0-9]{{0,3}}) of (?P<base>{_TYPE})|(?P<none>not supported))(?: \(assumed\))?"
)
PRECISION_ADVICE = (
    'write "computed in fp32", "converted to fp16", "run at 1/64 of fp32" or "not supported", with a type that it has'
)

Contention = Literal["none", "link", "pair", "sender", "receiver", "bus"]
Routing = Literal["direct", "host"]
CarriedBy = Literal["link", "sender"]


@dataclass(frozen=True, slots=True)
class Device:
    """One place an operator can run.

    Rates are peaks as a data sheet or a measurement gives them; how much of a peak a kind of operator reaches is
    `efficiency`. `memory_bytes` is the whole memory, `reserve_bytes` what stead must leave alone.
    """

    name: str
    kind: str = "gpu"
    memory_bytes: int = UNLIMITED_BYTES
    reserve_bytes: int = 0
    flops_per_second: Mapping[str, float] = field(default_factory=dict)  # by dtype: "fp32", "fp16", ...
    bytes_per_second: float = math.inf  # of its own memory
    launch_seconds: float = 0.0
    efficiency: Mapping[str, float] = field(
        default_factory=dict
    )  # share of a peak reached, by "compute", "memory"
    unsupported_kinds: frozenset[str] = frozenset()
    model: str = ""  # key of the catalogue, if it came from there
    alias: Mapping[str, str | int] = field(default_factory=dict)  # its name in other tools
    precision: Mapping[str, str] = field(default_factory=dict)  # by dtype: "converted to fp16"; see precision.py

    def __post_init__(self) -> None:
        _name("device", self.name)
        _whole(f"memory of {self.name}", self.memory_bytes, least=1)
        _whole(f"reserve of {self.name}", self.reserve_bytes, least=0)
        if self.reserve_bytes >= self.memory_bytes:
            raise BadCluster(
                f"device {self.name} reserves {self.reserve_bytes} of its {self.memory_bytes} bytes: nothing is left"
            )
        for dtype, rate in self.flops_per_second.items():
            _positive(f"{dtype} FLOP/s of {self.name}", rate)
        _positive(f"memory bandwidth of {self.name}", self.bytes_per_second, infinite=True)
        _not_negative(f"launch overhead of {self.name}", self.launch_seconds)
        for what, share in self.efficiency.items():
            if not 0 < share <= 1:
                raise BadCluster(f"{what} efficiency of {self.name} must lie in (0, 1], got {share}")
        for dtype, said in self.precision.items():
            if not isinstance(said, str) or not PRECISION.fullmatch(said):
                raise BadCluster(f"precision of {self.name}: {dtype}: cannot read {said!r}; {PRECISION_ADVICE}")
        for name in ("bytes_per_second", "launch_seconds"):  # 12 and 12.0 are one value and one fingerprint
            object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("flops_per_second", "efficiency"):
            table = {key: float(number) for key, number in getattr(self, name).items()}
            object.__setattr__(self, name, MappingProxyType(table))
        object.__setattr__(self, "unsupported_kinds", frozenset(self.unsupported_kinds))
        object.__setattr__(self, "alias", MappingProxyType(dict(self.alias)))
        object.__setattr__(self, "precision", MappingProxyType(dict(self.precision)))

    @property
    def usable_bytes(self) -> int:
        """Memory that a placement may fill."""
        return self.memory_bytes - self.reserve_bytes

    @property
    def is_host(self) -> bool:
        """Whether it computes in host memory, so that reaching host memory costs it nothing."""
        return self.kind == "cpu"

    def as_dict(self) -> dict[str, object]:
        """Plain data: what files and fingerprints are made of."""
        return {
            "name": self.name,
            "kind": self.kind,
            "model": self.model,
            "memory_bytes": self.memory_bytes,
            "reserve_bytes": self.reserve_bytes,
            "flops_per_second": dict(self.flops_per_second),
            "bytes_per_second": self.bytes_per_second,
            "launch_seconds": self.launch_seconds,
            "efficiency": dict(self.efficiency),
            "unsupported_kinds": sorted(self.unsupported_kinds),
            "alias": dict(self.alias),
            **({"precision": dict(self.precision)} if self.precision else {}),
        }


@dataclass(frozen=True, slots=True)
class Link:
    """A one-way connection between two devices."""

    source: str
    target: str
    bytes_per_second: float
    latency_seconds: float = 0.0
    gap_seconds: float = 0.0  # the link stays busy this long after a transfer
    carried_by: CarriedBy = "link"  # "sender": by the device that sends, which does nothing else meanwhile

    def __post_init__(self) -> None:
        where = f"link {self.source} -> {self.target}"
        if self.source == self.target:
            raise BadCluster(f"{where} leads from a device to itself; leave it out")
        _positive(f"bandwidth of {where}", self.bytes_per_second, infinite=True)
        _not_negative(f"latency of {where}", self.latency_seconds)
        _not_negative(f"gap of {where}", self.gap_seconds)
        if self.carried_by not in get_args(CarriedBy):
            raise BadCluster(f"{where} is carried by {' or '.join(get_args(CarriedBy))}, got {self.carried_by!r}")
        if self.carried_by == "sender" and self.gap_seconds:
            raise BadCluster(
                f"{where} has a gap, and its sender is busy only until a tensor is there; add it to the latency"
            )
        for name in ("bytes_per_second", "latency_seconds", "gap_seconds"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def as_dict(self) -> dict[str, object]:
        """Plain data: what files and fingerprints are made of."""
        return {
            "source": self.source,
            "target": self.target,
            "bytes_per_second": self.bytes_per_second,
            "latency_seconds": self.latency_seconds,
            "gap_seconds": self.gap_seconds,
            **({"carried_by": self.carried_by} if self.carried_by != "link" else {}),
        }


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of a cluster: its devices share its memory, other machines are reached over a network."""

    name: str
    devices: tuple[str, ...]
    address: str = ""  # on the network that joins hosts; empty: the name is one, or the host finds it by itself

    def __post_init__(self) -> None:
        _name("host", self.name)
        object.__setattr__(self, "devices", tuple(self.devices))
        if not self.devices:
            raise BadCluster(f"host {self.name} has no devices; name at least one")
        if self.address != self.address.strip() or len(self.address.split()) > 1:
            raise BadCluster(f"the address of host {self.name} has blanks in it: {self.address!r}")

    def as_dict(self) -> dict[str, object]:
        """Plain data: what files and fingerprints are made of."""
        return {"name": self.name, "devices": list(self.devices), "address": self.address}


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """Devices in a fixed order and the links between them.

    `routing="direct"`: a tensor takes the given link, or the route over several links with the least latency
    (latencies add up, the narrowest link sets the pace, its queue is the one that is waited in). Cores of one machine
    share memory: a link that is `carried_by` its sender costs the time of that device, and nobody queues for it.
    `routing="host"`: every tensor passes host memory: the sender writes it once, every receiver reads it, CPUs work
    in host memory and pay nothing. Links then join accelerators with CPUs.
    `hosts` says which devices are in the same machine, for all devices or for none. Two hosts have one link between
    them: with `contention` "link" or "pair", all transfers from one to the other wait in one queue.
    `levels` join all devices by where they stand, smallest groups first; a link that is given goes before them.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    contention: Contention = "link"
    routing: Routing = "direct"
    hosts: tuple[Host, ...] = ()
    levels: tuple[Level, ...] = ()

    def __repr__(self) -> str:
        joined = "".join(f", {level.name}s of {level.size}" for level in self.levels)
        return f"Cluster({self.shown}; {len(self.links)} link{'s' if len(self.links) != 1 else ''}{joined})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "links", tuple(self.links))
        if not 1 <= len(self.devices) <= MAX_DEVICES:
            raise BadCluster(f"a cluster has 1 to {MAX_DEVICES} devices, got {len(self.devices)}")
        seen: set[str] = set()
        for device in self.devices:
            if device.name in seen:
                raise BadCluster(f"two devices are called {device.name!r}; device names must differ")
            seen.add(device.name)
        pairs: set[tuple[str, str]] = set()
        for link in self.links:
            for end in (link.source, link.target):
                if end not in seen:
                    raise BadCluster(
                        f"link {link.source} -> {link.target}: no device {end!r}{did_you_mean(end, seen)}"
                    )
            if (link.source, link.target) in pairs:
                raise BadCluster(f"link {link.source} -> {link.target} is given twice")
            pairs.add((link.source, link.target))
        position = {device.name: d for d, device in enumerate(self.devices)}
        in_order = sorted(self.links, key=lambda link: (position[link.source], position[link.target]))
        object.__setattr__(self, "links", tuple(in_order))  # their order means nothing
        if self.contention not in get_args(Contention):
            raise BadCluster(
                f"contention is one of {', '.join(get_args(Contention))}, got {self.contention!r}"
            )
        if self.routing not in get_args(Routing):
            raise BadCluster(f"routing is one of {', '.join(get_args(Routing))}, got {self.routing!r}")
        if self.routing == "host" and not any(device.is_host for device in self.devices) and self.links:
            raise BadCluster('routing "host" joins accelerators with CPUs, but no device is of kind "cpu"')
        object.__setattr__(self, "hosts", tuple(self.hosts))
        object.__setattr__(self, "levels", tuple(self.levels))
        if self.levels:
            check_levels(self.levels, len(self.devices))
        if self.hosts:
            _check_hosts(self.hosts, self.names)

    def __len__(self) -> int:
        return len(self.devices)

    def __iter__(self) -> Iterator[Device]:
        return iter(self.devices)

    @property
    def names(self) -> tuple[str, ...]:
        """Device names in order."""
        return tuple(device.name for device in self.devices)

    @property
    def shown(self) -> str:
        """Device names for a line of text; of many the first ones."""
        names = self.names
        rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > SOLVER_DEVICES else ""
        return ", ".join(names[:_MOST_NAMED] if rest else names) + rest

    def index(self, name: str) -> int:
        """Position of a device.

        >>> Cluster((Device("gpu0"), Device("gpu1"))).index("gpu1")
        1
        """
        for d, device in enumerate(self.devices):
            if device.name == name:
                return d
        raise BadCluster(
            f"no device {name!r}{did_you_mean(name, self.names)}; there are {self.shown}"
        )

    def host_of(self, name: str) -> Host | None:
        """The host that a device is on; None where nothing is known of hosts."""
        self.index(name)
        return next((host for host in self.hosts if name in host.devices), None)

    def without(self, *names: str) -> Cluster:
        """The same cluster less some devices and their links, and hosts that have none left."""
        for name in names:
            self.index(name)
        left = [(host, tuple(name for name in host.devices if name not in names)) for host in self.hosts]
        if self.levels:
            return self.part([d for d, name in enumerate(self.names) if name not in names])
        return replace(
            self,
            hosts=tuple(replace(host, devices=devices) for host, devices in left if devices),
            devices=tuple(device for device in self.devices if device.name not in names),
            links=tuple(link for link in self.links if link.source not in names and link.target not in names),
        )

    def part(self, devices: Sequence[int]) -> Cluster:
        """Some of the devices, in the given order, with the links that they have here; levels become links."""
        kept = [self.devices[d] for d in devices]
        names = {device.name for device in kept}
        hosts = [(host, tuple(name for name in host.devices if name in names)) for host in self.hosts]
        links = tuple(link for link in self.links if link.source in names and link.target in names)
        if self.levels:
            given = {(link.source, link.target) for link in links}
            links += tuple(link for link in self._level_links(devices) if (link.source, link.target) not in given)
        return replace(
            self,
            devices=tuple(kept),
            links=links,
            hosts=tuple(replace(host, devices=left) for host, left in hosts if left),
            levels=(),
        )

    def _level_links(self, devices: Sequence[int]) -> Iterator[Link]:
        for s in devices:
            for d in devices:
                if s != d:
                    level = next(level for level in self.levels if s // level.size == d // level.size)
                    figures = level.bytes_per_second, level.latency_seconds, level.gap_seconds
                    yield Link(self.devices[s].name, self.devices[d].name, *figures)

    def with_devices(self, devices: Iterable[Device], links: Iterable[Link] = ()) -> Cluster:
        """The same cluster plus devices and links."""
        return replace(self, devices=(*self.devices, *devices), links=(*self.links, *links))

    def with_memory(self, name: str, memory_bytes: int) -> Cluster:
        """The same cluster with another memory size on one device."""
        position = self.index(name)
        changed = replace(self.devices[position], memory_bytes=memory_bytes)
        return replace(self, devices=(*self.devices[:position], changed, *self.devices[position + 1 :]))

    def as_dict(self) -> dict[str, object]:
        """Plain data: what files and fingerprints are made of."""
        return {
            "devices": [device.as_dict() for device in self.devices],
            "links": [link.as_dict() for link in self.links],
            "contention": self.contention,
            "routing": self.routing,
            **({"hosts": [host.as_dict() for host in self.hosts]} if self.hosts else {}),
            **({"levels": [level.as_dict() for level in self.levels]} if self.levels else {}),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Cluster:
        """The inverse of `as_dict`; null stands for an infinite rate."""
        devices = [
            Device(
                **{
                    **device,
                    "bytes_per_second": _rate(device),
                    "unsupported_kinds": frozenset(device["unsupported_kinds"]),
                }
            )
            for device in data["devices"]
        ]
        links = [Link(**{**link, "bytes_per_second": _rate(link)}) for link in data["links"]]
        hosts = [Host(**{**host, "devices": tuple(host["devices"])}) for host in data.get("hosts", ())]
        levels = [Level(**{**level, "bytes_per_second": _rate(level)}) for level in data.get("levels", ())]
        contention, routing = data["contention"], data["routing"]
        return Cluster(tuple(devices), tuple(links), contention, routing, tuple(hosts), tuple(levels))

    @property
    def fingerprint(self) -> str:
        """Changes whenever anything about the cluster changes."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def routes(self) -> Routes:
        """Transfer behaviour of every ordered pair, with routes over several links collapsed into one."""
        return routes_of(self)


def link_both_ways(
    first: str,
    second: str,
    *,
    bytes_per_second: float,
    latency_seconds: float = 0.0,
    gap_seconds: float = 0.0,
    carried_by: CarriedBy = "link",
) -> tuple[Link, Link]:
    """Two equal links, one each way.

    >>> [link.source for link in link_both_ways("a", "b", bytes_per_second=1e9)]
    ['a', 'b']
    """
    there = Link(first, second, bytes_per_second, latency_seconds, gap_seconds, carried_by)
    return there, replace(there, source=second, target=first)


def link_all(
    names: Sequence[str],
    *,
    bytes_per_second: float,
    latency_seconds: float = 0.0,
    gap_seconds: float = 0.0,
    carried_by: CarriedBy = "link",
) -> tuple[Link, ...]:
    """Equal links between every ordered pair."""
    return tuple(
        Link(source, target, bytes_per_second, latency_seconds, gap_seconds, carried_by)
        for source in names
        for target in names
        if source != target
    )


def _check_hosts(hosts: Sequence[Host], devices: Sequence[str]) -> None:
    """BadCluster unless every device is on one host."""
    on: dict[str, str] = {}
    names: set[str] = set()
    known = set(devices)
    for host in hosts:
        if host.name in names:
            raise BadCluster(f"two hosts are called {host.name!r}; host names must differ")
        if host.name in known:
            raise BadCluster(f"{host.name!r} is a host and a device; give one of them another name")
        names.add(host.name)
        for name in host.devices:
            if name not in known:
                hint = did_you_mean(name, devices) or f"; there are {', '.join(devices[:8])}"
                raise BadCluster(f"host {host.name}: no device {name!r}{hint}")
            if name in on:
                raise BadCluster(f"device {name!r} is on host {on[name]} and on host {host.name}; keep one")
            on[name] = host.name
    missing = [name for name in devices if name not in on]
    if missing:
        raise BadCluster(f"device {missing[0]!r} is on no host; add it to one, or leave hosts out altogether")


def _rate(entry: Mapping[str, Any]) -> float:
    given = entry["bytes_per_second"]
    return math.inf if given is None else given


def _name(what: str, name: str) -> None:
    if not name or name != name.strip() or any(ord(letter) < 32 for letter in name):
        raise BadCluster(f"a {what} needs a printable name without surrounding blanks, got {name!r}")


def _whole(what: str, number: int, *, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= UNLIMITED_BYTES:
        raise BadCluster(f"{what} must be a whole number from {least} to 2^62, got {number!r}")


def _positive(what: str, number: float, *, infinite: bool = False) -> None:
    if not number > 0 or (math.isinf(number) and not infinite):
        raise BadCluster(f"{what} must be positive, got {number}")


def _not_negative(what: str, number: float) -> None:
    if not 0 <= number < math.inf:
        raise BadCluster(f"{what} must be a finite number of at least 0, got {number}")
