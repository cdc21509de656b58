"""Plain data, as TOML or JSON give it, to a Cluster: strict, with the place in every error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

from stead.cluster.catalogue import DTYPES, KINDS, CatalogueEntry, device_from, lookup
from stead.cluster.classes import SOLVER_DEVICES
from stead.cluster.devices import (
    MAX_DEVICES,
    PRECISION,
    PRECISION_ADVICE,
    UNLIMITED_BYTES,
    CarriedBy,
    Cluster,
    Contention,
    Device,
    Host,
    Link,
    Routing,
)
from stead.cluster.hosts import default_host_links
from stead.cluster.levels import Level
from stead.cluster.links import default_links
from stead.cluster.quantities import parse_bytes, parse_flops, parse_rate, parse_seconds, show
from stead.cluster.reserve import Reserve
from stead.errors import BadCluster, did_you_mean
from stead.printing.wording import one_line

SCHEMA = 1

_LONGEST_NAME = 200
_SYNONYMS = {"matmul": "compute", "mem": "memory"}
_TOP_KEYS = ("schema", "contention", "routing", "host", "device", "link", "level")
_LEVEL_KEYS = ("name", "size", "bandwidth", "latency", "gap")
_HOST_KEYS = ("name", "address", "devices")
_DEVICE_KEYS = (
    "name", "model", "kind", "memory", "reserve", "bandwidth", "flops", "efficiency", "launch_overhead",
    "unsupported_ops", "alias", "precision", "count",
)  # fmt: skip
_DIRECT: Routing = "direct"
_LINK_KEYS = ("between", "from", "to", "bandwidth", "latency", "gap", "carried_by", "duplex", "via")

T = TypeVar("T")
D = TypeVar("D")


class _Table:
    """A table of a file: hands out values by key with the place in every error."""

    def __init__(self, given: object, place: str, keys: Sequence[str]) -> None:
        if not isinstance(given, dict):
            raise BadCluster(f"{place}: must be a table, got {show(given)}")
        for key in given:
            if key not in keys:
                known = did_you_mean(key[:_LONGEST_NAME], keys) or f"; known are {', '.join(keys)}"
                raise BadCluster(f"{place}: unknown key {show(key)}{known}")
        self.values: dict[str, Any] = given
        self.place = place

    def get(self, key: str, read: Callable[[Any, str], T], default: D) -> T | D:
        return read(self.values[key], f"{self.place}: {key}") if key in self.values else default

    def __contains__(self, key: str) -> bool:
        return key in self.values


def cluster_from_data(
    data: object, where: str, reserve: Reserve | None = None
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster that plain data describes, and what was assumed about its links where it gives none.

    `where` is what errors call it.
    """
    top = _Table(data, where, _TOP_KEYS)
    schema = top.values.get("schema", SCHEMA)
    if isinstance(schema, bool) or schema != SCHEMA:
        raise BadCluster(
            f"{where}: schema {show(schema)} is unknown; this version of stead reads schema {SCHEMA}"
        )
    devices = _devices(top, where, reserve or Reserve())
    hosts = tuple(
        _host(entry, f"{where}: host {i}", devices) for i, entry in enumerate(top.get("host", _tables, []), 1)
    )
    rules = [
        _rule(entry, f"{where}: link {i}", devices, hosts)
        for i, entry in enumerate(top.get("link", _tables, []), 1)
    ]
    routing = top.get("routing", _choice(get_args(Routing)), _DIRECT)
    contention = _contention(top, rules)
    try:
        Cluster(devices, hosts=hosts)  # what is wrong with hosts is said before links are made of them
        levels = tuple(
            _level(entry, f"{where}: level {i}") for i, entry in enumerate(top.get("level", _tables, []), 1)
        )
        links, lines = _links(rules, devices, hosts) if rules else (), tuple[str, ...]()
        if "link" not in top and not levels:
            if len(devices) > SOLVER_DEVICES:
                raise BadCluster(f"{len(devices)} devices need [[level]] or [[link]] tables that join them")
            links, lines = _usual_links(devices, routing, hosts)
        return Cluster(devices, links, contention, routing, hosts, levels), lines
    except BadCluster as error:
        raise BadCluster(f"{where}: {error}") if not str(error).startswith(where) else error from None


def _level(entry: object, place: str) -> Level:
    table = _Table(entry, place, _LEVEL_KEYS)
    for key in ("name", "size", "bandwidth"):
        if key not in table:
            raise BadCluster(f'{place}: {key}: missing; write name = "rack", size = 64 and bandwidth = "12GB/s"')
    try:
        return Level(
            table.get("name", _word, ""),
            table.values["size"],
            table.get("bandwidth", _rate_or_unlimited, math.inf),
            table.get("latency", parse_seconds, 0.0),
            table.get("gap", parse_seconds, 0.0),
        )
    except BadCluster as error:
        raise BadCluster(f"{place}: {error}") if not str(error).startswith(place) else error from None


def _usual_links(
    devices: Sequence[Device], routing: Routing, hosts: Sequence[Host]
) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """Links of a file that says nothing about them; over the host only if there is one."""
    links, lines = default_host_links(devices, hosts) if hosts else default_links(devices)
    if routing == "direct":
        return links, lines
    processors = {device.name for device in devices if device.is_host}
    joined = tuple(link for link in links if len({link.source, link.target} & processors) == 1)
    return joined, lines if joined else ()


def _host(entry: object, place: str, devices: Sequence[Device]) -> Host:
    table = _Table(entry, place, _HOST_KEYS)
    for key in ("name", "devices"):
        if key not in table:
            raise BadCluster(f'{place}: {key}: missing; write name = "a" and devices = ["gpu0", "cpu"]')
    name = table.get("name", _word, "")
    if name == "*":
        raise BadCluster(f"{place}: name: '*' means everything in links; choose another name")
    try:
        return Host(name, tuple(table.get("devices", _words, [])), table.get("address", _word, ""))
    except BadCluster as error:
        raise BadCluster(f"{place}: {error}") if not str(error).startswith(place) else error from None


def _devices(top: _Table, where: str, reserve: Reserve) -> tuple[Device, ...]:
    given = top.get("device", _tables, [])
    if not given:
        raise BadCluster(f"{where}: no device; add a [[device]] table with a name")
    if len(given) > MAX_DEVICES:
        raise BadCluster(f"{where}: {len(given)} devices; a cluster has at most {MAX_DEVICES}")
    devices = tuple(
        device for i, entry in enumerate(given, 1) for device in _equal_devices(entry, i, where, reserve)
    )
    if len(devices) > MAX_DEVICES:
        raise BadCluster(f"{where}: {len(devices)} devices; a cluster has at most {MAX_DEVICES}")
    first: dict[str, int] = {}
    for i, device in enumerate(devices, 1):
        if device.name in first:
            raise BadCluster(
                f"{where}: devices {first[device.name]} and {i} are both called {show(device.name)}"
            )
        first[device.name] = i
    return devices


def _equal_devices(entry: object, number: int, where: str, reserve: Reserve) -> list[Device]:
    """The devices of one table: with `count`, so many that are called name:0, name:1 and so on."""
    device = _device(entry, number, where, reserve)
    count = entry.get("count") if isinstance(entry, dict) else None
    if count is None:
        return [device]
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_DEVICES:
        raise BadCluster(
            f"{where}: device {number}: count: must be a whole number of 1 to {MAX_DEVICES}, got {show(count)}"
        )
    return [replace(device, name=f"{device.name}:{i}") for i in range(count)]


def _device(entry: object, number: int, where: str, reserve: Reserve) -> Device:
    table = _Table(entry, f"{where}: device {number}", _DEVICE_KEYS)
    if "name" not in table:
        raise BadCluster(f"{table.place}: name: missing; every device needs one")
    name = table.get("name", _word, "")
    if name == "*":
        raise BadCluster(f"{table.place}: name: '*' means every device in links; choose another name")
    table.place = f'{where}: device {number} ("{name}")'
    row = table.get("model", _model, None)
    base = _base(table, name, row)
    flops = {**base.flops_per_second, **table.get("flops", _flops, {})}
    kind = table.get("kind", _choice(KINDS), base.kind)
    try:
        return replace(
            base,
            kind=kind,
            reserve_bytes=table.get("reserve", parse_bytes, reserve.of(kind, base.memory_bytes)),
            bytes_per_second=table.get("bandwidth", _rate_or_unlimited, base.bytes_per_second),
            flops_per_second={dtype: rate for dtype, rate in flops.items() if rate is not None},
            launch_seconds=table.get("launch_overhead", parse_seconds, base.launch_seconds),
            efficiency=table.get("efficiency", _efficiency, {}),
            unsupported_kinds=frozenset(table.get("unsupported_ops", _words, [])),
            alias=table.get("alias", _alias, {}),
            precision=table.get("precision", _precision, {}),
        )
    except BadCluster as error:
        raise BadCluster(f"{table.place}: {error}") if not str(error).startswith(where) else error from None


def _base(table: _Table, name: str, row: CatalogueEntry | None) -> Device:
    """The device before the keys that the file gives besides model, kind and memory."""
    memory = table.get("memory", _memory, None)
    if row is None:
        kind = next(
            (kind for kind in ("cpu", "npu", "fpga") if re.fullmatch(rf"{kind}([:.]?\d+)?", name.lower())),
            "gpu",
        )
        return Device(name, kind=kind, memory_bytes=UNLIMITED_BYTES if memory is None else memory)
    if row.memory_bytes is None and memory is None:
        raise BadCluster(
            f'{table.place}: memory: missing; {row.key} uses its machine\'s, write memory = "64GiB" or so'
        )
    return device_from(row, name, memory_bytes=memory)


def _memory(given: object, what: str) -> int | None:
    if given == "unlimited":
        return UNLIMITED_BYTES
    size = parse_bytes(given, what)
    if size < 1:
        raise BadCluster(
            f"{what}: must be at least 1 byte, got {show(given)}; leave the key out for no limit"
        )
    return size


def _rate_or_unlimited(given: object, what: str) -> float:
    return math.inf if given == "unlimited" else parse_rate(given, what)


def _model(given: object, what: str) -> CatalogueEntry | None:
    name = _word(given, what)
    try:
        return lookup(name)
    except BadCluster as error:
        raise BadCluster(f"{what}: {error}") from None


def _flops(given: object, what: str) -> dict[str, float | None]:
    table = _Table(given, what, DTYPES)
    return {
        dtype: None if rate == "none" else parse_flops(rate, f"{what}: {dtype}")
        for dtype, rate in table.values.items()
    }


def _efficiency(given: object, what: str) -> dict[str, float]:
    table = _Table(given, what, ("compute", "memory", *_SYNONYMS))
    shares: dict[str, float] = {}
    for key, share in table.values.items():
        name = _SYNONYMS.get(key, key)
        if name in shares:
            synonyms = ", ".join(f"{one} means {other}" for one, other in _SYNONYMS.items())
            raise BadCluster(f"{what}: {name} is given twice ({synonyms}); keep one")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise BadCluster(f"{what}: {key}: must be a number above 0 and at most 1, got {show(share)}")
        shares[name] = float(share)
    return shares


def _precision(given: object, what: str) -> dict[str, str]:
    table = _Table(given, what, DTYPES)
    for dtype, said in table.values.items():
        if not isinstance(said, str) or not PRECISION.fullmatch(said):
            raise BadCluster(f"{what}: {dtype}: cannot read {show(said)}; {PRECISION_ADVICE}")
    return table.values


def _alias(given: object, what: str) -> dict[str, str | int]:
    if not isinstance(given, dict):
        raise BadCluster(f"{what}: must be a table of names in other tools, got {show(given)}")
    names: dict[str, str | int] = {}
    for key, value in given.items():
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            names[_word(key, what)] = value
        elif isinstance(value, str):
            names[_word(key, what)] = _word(value, f"{what}: {one_line(key, 300)}")
        else:
            raise BadCluster(f"{what}: {one_line(key, 300)}: must be a name or an index, got {show(value)}")
    return names


def _word(given: object, what: str) -> str:
    """A printable name without blanks around it."""
    if not isinstance(given, str):
        raise BadCluster(f"{what}: must be text, got {show(given)}")
    if not given or given != given.strip() or not given.isprintable() or len(given) > _LONGEST_NAME:
        raise BadCluster(
            f"{what}: must be printable, at most {_LONGEST_NAME} characters and without blanks around, "
            f"got {show(given)}"
        )
    return given


def _words(given: object, what: str) -> list[str]:
    if not isinstance(given, list):
        raise BadCluster(f"{what}: must be a list of names, got {show(given)}")
    return [_word(entry, what) for entry in given]


def _tables(given: object, what: str) -> list[Any]:
    if not isinstance(given, list):
        raise BadCluster(f"{what}: must be a list of tables ([[device]], [[link]]), got {show(given)}")
    return given


def _choice(known: Sequence[T]) -> Callable[[Any, str], T]:
    def read(given: object, what: str) -> T:
        for word in known:
            if given == word and isinstance(given, str):
                return word
        hint = did_you_mean(given[:_LONGEST_NAME], map(str, known)) if isinstance(given, str) else ""
        raise BadCluster(f"{what}: must be one of {', '.join(map(str, known))}, got {show(given)}{hint}")

    return read


# Links


@dataclass(frozen=True, slots=True)
class _Rule:
    """One [[link]] table: the pairs it speaks of and what it says about them."""

    place: str
    first: str
    second: str
    both_ways: bool
    bytes_per_second: float | None  # None: the two links with `via` say it
    latency_seconds: float | None
    gap_seconds: float
    carried_by: CarriedBy
    via: str
    half_duplex: bool


def _rule(entry: object, place: str, devices: Sequence[Device], hosts: Sequence[Host]) -> _Rule:
    table = _Table(entry, place, _LINK_KEYS)
    first, second, both_ways = _ends(table)
    names = [device.name for device in devices]
    inside = [host.name for host in hosts]  # a host with itself: every two of its devices
    via = table.get("via", _word, "")
    for end, known in ((first, names + inside), (second, names + inside), (via, names)):
        if end not in ("*", "") and end not in known:
            hint = did_you_mean(end, known) or f"; there are {_some(known)}"
            raise BadCluster(f"{place}: no device {'or host ' if inside and known != names else ''}{show(end)}{hint}")
    if first == second != "*" and first not in inside:
        raise BadCluster(f"{place}: leads from {show(first)} to itself; leave it out")
    if via == "*":
        raise BadCluster(f"{place}: via: must name one device")
    bandwidth = table.get("bandwidth", _rate_or_unlimited, None)
    latency = table.get("latency", parse_seconds, None)
    if bandwidth is None and (not via or latency is not None):
        raise BadCluster(f'{place}: bandwidth: missing; write one such as "25GB/s"')
    return _Rule(
        place,
        first,
        second,
        both_ways,
        bandwidth,
        latency,
        table.get("gap", parse_seconds, 0.0),
        table.get("carried_by", _choice(get_args(CarriedBy)), "link"),
        via,
        table.get("duplex", _choice(("full", "half")), "full") == "half",
    )


def _ends(table: _Table) -> tuple[str, str, bool]:
    one_way = [key for key in ("from", "to") if key in table]
    if "between" in table and not one_way:
        ends = table.get("between", _words, [])
        if len(ends) != 2:
            raise BadCluster(f'{table.place}: between: must be two device names, such as ["cuda:0", "cpu"]')
        return ends[0], ends[1], True
    if len(one_way) == 2 and "between" not in table:
        return table.get("from", _word, ""), table.get("to", _word, ""), False
    raise BadCluster(f"{table.place}: needs `between` for a link both ways, or `from` and `to` for one way")


def _links(rules: Sequence[_Rule], devices: Sequence[Device], hosts: Sequence[Host]) -> tuple[Link, ...]:
    """One link per ordered pair that a rule speaks of; a rule that names more of the pair goes first."""
    by_ends = _by_ends(rules)
    on = {name: host.name for host in hosts for name in host.devices}
    pairs = [(a.name, b.name) for a in devices for b in devices if a is not b]
    chosen = {pair: rule for pair in pairs if (rule := _rule_of(pair, by_ends, on)) is not None}
    given = {
        pair: Link(*pair, rule.bytes_per_second, rule.latency_seconds or 0.0, rule.gap_seconds, rule.carried_by)
        for pair, rule in chosen.items()
        if rule.bytes_per_second is not None
    }
    return tuple(
        given[pair] if pair in given else _two_legs(pair, rule, given) for pair, rule in chosen.items()
    )


def _two_legs(pair: tuple[str, str], rule: _Rule, given: Mapping[tuple[str, str], Link]) -> Link:
    """The way over `via`: latencies add up, the narrower link sets the pace."""
    first, second = given.get((pair[0], rule.via)), given.get((rule.via, pair[1]))
    if first is None or second is None:
        raise BadCluster(
            f"{rule.place}: {pair[0]} -> {pair[1]} via {rule.via} needs links of {rule.via} with both, "
            f"each with a bandwidth; add them, or a bandwidth here"
        )
    narrow = min(first, second, key=lambda leg: leg.bytes_per_second)
    latency = first.latency_seconds + second.latency_seconds
    return Link(*pair, narrow.bytes_per_second, latency, max(rule.gap_seconds, narrow.gap_seconds))


def _by_ends(rules: Sequence[_Rule]) -> dict[tuple[str, str], _Rule]:
    """Rules by the ordered pair they name, stars included."""
    found: dict[tuple[str, str], _Rule] = {}
    for rule in rules:
        there, back = (rule.first, rule.second), (rule.second, rule.first)
        ways = (there, back) if rule.both_ways else (there,)
        for ends in dict.fromkeys(ways):
            if ends in found:
                raise _twice(found[ends], rule, ends)
            found[ends] = rule
    return found


def _rule_of(
    pair: tuple[str, str], by_ends: Mapping[tuple[str, str], _Rule], on: Mapping[str, str]
) -> _Rule | None:
    """The rule that names most of a pair: devices before hosts, hosts before stars."""
    (source, target), (here, there) = pair, (on.get(pair[0], ""), on.get(pair[1], ""))
    ranks: tuple[tuple[tuple[str, str], ...], ...] = (
        (pair,),
        ((source, there), (here, target)),
        ((source, "*"), ("*", target)),
        ((here, there),),
        ((here, "*"), ("*", there)),
        (("*", "*"),),
    )
    for ways in ranks:
        found = [by_ends[ends] for ends in ways if ends in by_ends]
        if len(found) == 2 and found[0] is not found[1]:
            raise _twice(found[0], found[1], pair)
        if found:
            return found[0]
    return None


def _twice(one: _Rule, other: _Rule, ends: tuple[str, str]) -> BadCluster:
    again = other.place.rpartition(": ")[2]
    pair = " -> ".join(ends)
    return BadCluster(f"{one.place} and {again} both speak of {pair}; keep one, or name the pair")


def _contention(top: _Table, rules: Sequence[_Rule]) -> Contention:
    """What queues share: as given, or by `duplex`, which all links must agree on."""
    half = {rule.half_duplex for rule in rules}
    if half == {True, False}:
        places = [next(rule.place for rule in rules if rule.half_duplex is way) for way in (True, False)]
        raise BadCluster(
            f"{places[0]} is half duplex and {places[1].rpartition(': ')[2]} is not; "
            f'give every link the same `duplex`, or drop it and set contention = "pair"'
        )
    implied: Contention = "pair" if half == {True} else "link"
    given: Contention = top.get("contention", _choice(get_args(Contention)), implied)
    if half == {True} and given != "pair":
        raise BadCluster(
            f'{top.place}: contention: {show(given)} contradicts duplex = "half"; drop one of them'
        )
    return given


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
