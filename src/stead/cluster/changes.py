"""Changes of a cluster in words: `cuda:1.bandwidth=1008GB/s`, `links.latency=2x`, `3090->3060.kind=pcie3x8`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stead.cluster.devices import Cluster, Device, Link
from stead.cluster.link_kinds import kind_named
from stead.cluster.quantities import (
    format_bytes,
    format_flops,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_flops,
    parse_rate,
    parse_seconds,
    show,
)
from stead.errors import BadInput, did_you_mean

ALL_LINKS = "links"
KIND = "kind"  # of a link: both its bandwidth and its latency
_TIMES = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*[xX]")
_BARE = re.compile(r"[0-9.eE+-]*[1-9][0-9.eE+-]*")  # a number other than 0 without a unit
_EXAMPLE = "such as cuda:1.bandwidth=1008GB/s, 3090.memory=2x or links.latency=5us"

Parse = Callable[[object, str], float]


@dataclass(frozen=True, slots=True)
class _Property:
    """Something of a device or a link that can be changed: how it is read, and how it is shown."""

    field: str
    parse: Parse
    shown: Callable[[float], str]


_DEVICE = {
    "bandwidth": _Property("bytes_per_second", parse_rate, format_rate),
    "memory": _Property("memory_bytes", parse_bytes, format_bytes),
    "reserve": _Property("reserve_bytes", parse_bytes, format_bytes),
    "launch": _Property("launch_seconds", parse_seconds, format_seconds),
    "flops": _Property("flops_per_second", parse_flops, format_flops),
}
_LINK = {
    "bandwidth": _Property("bytes_per_second", parse_rate, format_rate),
    "latency": _Property("latency_seconds", parse_seconds, format_seconds),
}

# A small bare number would count bytes, and a large one seconds, which nobody means who types it.
_SENSIBLE: Mapping[Parse, tuple[Callable[[float], bool], str]] = {
    parse_rate: (lambda rate: rate >= 1e6, "GB/s or Gbit/s"),
    parse_bytes: (lambda size: size >= 2**20, "GiB or MiB"),
    parse_seconds: (lambda seconds: seconds <= 0.1, "us or ms"),
    parse_flops: (lambda rate: rate >= 1e9, "T or G"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One property of a device, of a link or of all links: set to an amount, or so many times what it is."""

    subject: str  # a device, "A->B", "A<->B" or "links"
    what: str  # "bandwidth", "memory", "fp16", ...
    amount: float
    times: bool = False  # whether the amount is a factor
    kind: str = ""  # of a link, whose bandwidth the amount is then

    def __str__(self) -> str:
        return f"{self.subject}.{self.what} = {self.shown}"

    @property
    def shown(self) -> str:
        """The amount with its unit."""
        if self.kind:
            return f"{self.kind} ({format_rate(self.amount)})"
        if self.times:
            return f"{self.amount:g}x"
        table = _LINK if self.is_link else _DEVICE
        return table[self.what if self.what in table else "flops"].shown(self.amount)

    @property
    def is_link(self) -> bool:
        """Whether it changes links rather than a device."""
        return self.subject == ALL_LINKS or "->" in self.subject

    def on(self, cluster: Cluster) -> Cluster:
        """The cluster after the change."""
        if self.is_link:
            return self._on_links(cluster)
        d = cluster.index(self.subject)
        changed = self._on_device(cluster.devices[d])
        return replace(cluster, devices=(*cluster.devices[:d], changed, *cluster.devices[d + 1 :]))

    def _on_device(self, device: Device) -> Device:
        if self.what not in _DEVICE or self.what == "flops":
            return replace(device, flops_per_second=self._rates(device))
        field = _DEVICE[self.what].field
        now = getattr(device, field)
        self._check_limited(now)
        amount: Any = now * self.amount if self.times else self.amount
        return replace(device, **{field: math.floor(amount) if isinstance(now, int) else amount})

    def _rates(self, device: Device) -> Mapping[str, float]:
        rates = dict(device.flops_per_second)
        if not rates:
            raise BadInput(f"{self}: {device.name} has no FLOP/s to change; what runs on it was timed or given")
        if self.what != "flops":
            return {**rates, self.what: rates[self.what] * self.amount if self.times else self.amount}
        if not self.times:
            types = ", ".join(f"{device.name}.{dtype}" for dtype in rates)
            raise BadInput(f"FLOP/s differ by type: set one of {types}, or all with {device.name}.flops=2x")
        return {dtype: rate * self.amount for dtype, rate in rates.items()}

    def _check_limited(self, now: float) -> None:
        if self.times and math.isinf(now):
            raise BadInput(f"{self}: it has no limit that could be multiplied; set it to an amount")

    def _on_links(self, cluster: Cluster) -> Cluster:
        ends = _ends(self.subject, cluster)
        links, hit = [], False
        for link in cluster.links:
            if ends is None or (link.source, link.target) in ends:
                link, hit = self._on_link(link, cluster), True
            links.append(link)
        if not hit:
            between = "the cluster has no links" if ends is None else f"no link {self.subject}"
            raise BadInput(f"{between}: nothing to change; `stead devices` lists links")
        return replace(cluster, links=tuple(links))


    def _on_link(self, link: Link, cluster: Cluster) -> Link:
        if self.kind:
            found = kind_named(self.kind, *_devices_of(link, cluster))
            return replace(link, bytes_per_second=found.bytes_per_second, latency_seconds=found.latency_seconds)
        field = _LINK[self.what].field
        self._check_limited(getattr(link, field))
        amount: Any = getattr(link, field) * self.amount if self.times else self.amount
        return replace(link, **{field: amount})


def change_from(text: str, cluster: Cluster) -> Change:
    """The change that `SUBJECT.WHAT=VALUE` means; a value such as 2x is a factor.

    >>> from stead.cluster import cluster_from
    >>> cluster, _ = cluster_from("3090,3060")
    >>> str(change_from("3060.bandwidth=1008GB/s", cluster)), str(change_from("links.latency=2x", cluster))
    ('3060.bandwidth = 1008 GB/s', 'links.latency = 2x')
    """
    subject, what, value = _parts(text)
    return change_of(subject, what, value, cluster)


def change_of(subject: str, what: str, value: str, cluster: Cluster) -> Change:
    """The same from its three parts."""
    linked = subject == ALL_LINKS or "->" in subject
    if linked:
        ends = _ends(subject, cluster)
        if what == KIND:
            return _kind_change(subject, value, ends, cluster)
        known: tuple[str, ...] = (*_LINK, KIND)
    else:
        device = cluster.devices[cluster.index(subject)]
        known = (*_DEVICE, *device.flops_per_second)
    if what not in known:
        near = did_you_mean(what, known)
        raise BadInput(f"{subject} has no {what!r} to change{near}; there are {', '.join(known)}")
    times = _TIMES.fullmatch(value.strip())
    if times is not None:
        factor = float(times[1])
        if factor <= 0:
            raise BadInput(f"{subject}.{what}: a factor must be more than 0, got {show(value)}")
        return Change(subject, what, factor, times=True)
    table = _LINK if linked else _DEVICE
    parse = table[what if what in table else "flops"].parse
    amount = parse(value, f"{subject}.{what}")
    is_sensible, units = _SENSIBLE[parse]
    if _BARE.fullmatch(value.strip()) and not is_sensible(amount):
        raise BadInput(f"{subject}.{what}: {show(value)} has no unit; write {units}, or {value.strip()}x for a factor")
    return Change(subject, what, amount)


def _kind_change(subject: str, value: str, ends: set[tuple[str, str]] | None, cluster: Cluster) -> Change:
    """A change of the kind of links, which must be one that all of them can have."""
    links = [link for link in cluster.links if ends is None or (link.source, link.target) in ends]
    if not links:
        raise BadInput(f"no link {subject}: nothing to change; `stead devices` lists links")
    found = [kind_named(value, *_devices_of(link, cluster)) for link in links]
    return Change(subject, KIND, found[0].bytes_per_second, kind=found[0].name)


def _devices_of(link: Link, cluster: Cluster) -> tuple[Device, Device]:
    return cluster.devices[cluster.index(link.source)], cluster.devices[cluster.index(link.target)]


def _parts(text: str) -> tuple[str, str, str]:
    key, equals, value = text.partition("=")
    subject, dot, what = key.strip().rpartition(".")
    if not (equals and dot and subject and what and value.strip()):
        raise BadInput(f"a change needs DEVICE.PROPERTY=VALUE, {_EXAMPLE}; got {show(text)}")
    return subject, what, value.strip()


def _ends(subject: str, cluster: Cluster) -> set[tuple[str, str]] | None:
    """Ordered pairs of devices that a subject names; None: all."""
    if subject == ALL_LINKS:
        return None
    both = "<->" in subject
    first, second = (part.strip() for part in subject.split("<->" if both else "->", 1))
    cluster.index(first)
    cluster.index(second)
    return {(first, second), (second, first)} if both else {(first, second)}
