"""From what a user writes, "3090,3060", "2x 3090 @ pcie3x8 + cpu 64GB", `auto` or a file, to a Cluster.

    description   group + group + ... [; change]...
    group         part, part, ... [@ link]       the link is that of all parts before it, back to a plus or an @
    part          [count x] name [size]          name of the catalogue; size: another memory, binary (64GB is 64 GiB)
    link          pcie3x8 | nvlink | 25GB/s      port of each device; fabric between them; rate of each
    cluster       description in nodes of 8 [@ 25GB/s] [in racks of 8 [@ 12GB/s]] [in sites of 4 [@ 1GB/s]]
                  devices of a node, nodes of a rack, racks of a site; the rate is that between nodes, racks, sites
    change        3090->3060.bandwidth=8GB/s     what `stead what-if --set` takes; after `auto` and files, too
                  3090<->3060.kind=pcie3x8       both bandwidth and latency, each way

Everything that is assumed on the way is said: the second result of `cluster_from` holds the lines to show.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from stead.cluster.catalogue import (
    GENERIC_CPU,
    CatalogueEntry,
    candidates,
    device_from,
    entries,
    is_alias,
    lookup,
)
from stead.cluster.changes import change_from
from stead.cluster.classes import SOLVER_DEVICES
from stead.cluster.device_file import read_described
from stead.cluster.devices import MAX_DEVICES, Cluster, Device, Host
from stead.cluster.hosts import default_host_links
from stead.cluster.links import Wiring, check_wiring, default_links, silent_pairs, wiring_from
from stead.cluster.machine import Machine, found_card, found_host, this_machine
from stead.cluster.nodes_and_racks import hosts_of, in_levels, split_groups
from stead.cluster.quantities import format_bytes, format_flops, format_rate, parse_bytes, show
from stead.cluster.reserve import RESERVE_BYTES, RESERVE_SHARE, Reserve
from stead.errors import BadCluster
from stead.printing.wording import one_line

_EXAMPLE = 'write device names like "3090,3060" or "2x 3090 @ pcie3x8 + cpu 64GB", "auto", or a .toml or .json file'
_LONGEST_TEXT = 10_000
_MANY = re.compile(
    r"([0-9]+)(?:[xX\N{MULTIPLICATION SIGN}*]\s*|\s+[xX\N{MULTIPLICATION SIGN}*]\s+)(.*)", re.DOTALL
)
_MANY_BEHIND = re.compile(r"(.+?)\s*\(?[xX\N{MULTIPLICATION SIGN}*]\s*([0-9]{1,4})\)?")
_SIZE = re.compile(r"(.*\S)\s+([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([MGT])i?B", re.DOTALL | re.IGNORECASE)
_CHANGES = re.compile(r"(.*?)((?:;[^;=]+=[^;=]+)+);?\s*", re.DOTALL)
_RATE = re.compile(r"@\s*[0-9.]{1,30}\s*[kMGT]?(?:B|bit)/s")
_HOLD = str.maketrans("+@", "\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH COMMERCIAL AT}")  # while they belong to a name
_RELEASE = {after: before for before, after in _HOLD.items()}


def cluster_from(
    text_or_path: str | os.PathLike[str] | Sequence[str],
    *,
    reserve_share: float = RESERVE_SHARE,
    reserve_bytes: int = RESERVE_BYTES,
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster that a text, a list of texts or a file describes, and the lines that say how it was understood.

    Devices named in a text, or found on this machine, are linked in every ordered pair at the narrower of
    their PCI Express ports (by their own fabric if they are of one model and have one built in) with 10 us
    latency; of the memory of GPUs `reserve_share` plus `reserve_bytes` is kept free. A size after a name and a link
    after an @ say otherwise: "2x 3090 @ pcie3x8 + cpu 64GB". A file says all of this itself, or leaves it to the
    same rules. What follows a semicolon changes the result: "3090,3060; 3090->3060.bandwidth=8GB/s".

    >>> cluster, lines = cluster_from("3090,3060")
    >>> cluster.names
    ('3090', '3060')
    >>> lines[1]
    '3060 = GeForce RTX 3060 12 GB (alias)'
    >>> cluster_from(["3090", "cpu 64GB"])[1][1]
    'cpu = generic CPU (alias), memory 64.0 GiB as given'
    """
    reserve = Reserve(reserve_share, reserve_bytes)
    if isinstance(text_or_path, Sequence) and not isinstance(text_or_path, str):
        text_or_path = _joined(text_or_path)
    if not isinstance(text_or_path, str):
        return _from_file(Path(text_or_path), reserve)
    text = text_or_path.strip()
    if not text:
        raise BadCluster(f"no devices given; {_EXAMPLE}")
    if len(text) > _LONGEST_TEXT:
        raise BadCluster(f"a description of {len(text)} characters is too long; use a device file")
    described, changes = split_changes(text)
    if changes:
        cluster, lines = cluster_from(described, reserve_share=reserve_share, reserve_bytes=reserve_bytes)
        return _changed(cluster, lines, changes)
    if is_file_name(text):
        return _from_file(Path(text), reserve)
    if text.lower() == "auto":
        return cluster_of(this_machine(), reserve_share=reserve_share, reserve_bytes=reserve_bytes)
    return _from_names(text, reserve)


def _joined(texts: Sequence[str]) -> str:
    """One description of several."""
    if not texts:
        raise BadCluster(f"no devices given; {_EXAMPLE}")
    for text in texts:
        if not isinstance(text, str):
            raise BadCluster(f"a list of devices holds descriptions such as '3090', got {show(text)}")
        if len(texts) > 1 and (text.strip().lower() == "auto" or is_file_name(text.strip())):
            raise BadCluster(f"{show(text)} describes a whole cluster; give it alone, not in a list with others")
    return " + ".join(texts)


def split_changes(text: str) -> tuple[str, tuple[str, ...]]:
    """A description without what follows its semicolons, and the changes that stand there.

    >>> split_changes("3090,3060; 3060.memory=8GiB; links.latency=2x")
    ('3090,3060', ('3060.memory=8GiB', 'links.latency=2x'))
    """
    found = _CHANGES.fullmatch(text.strip())
    if found is None:
        return text.strip(), ()
    return found[1].strip(), tuple(one.strip() for one in found[2].split(";")[1:])


def _changed(cluster: Cluster, lines: tuple[str, ...], changes: Sequence[str]) -> tuple[Cluster, tuple[str, ...]]:
    said = []
    for text in changes:
        change = change_from(text, cluster)
        cluster = change.on(cluster)
        said.append(f"{change} as given")
    return cluster, (*lines, *said)


def is_file_name(text: str) -> bool:
    """Whether a description names a file."""
    text, _ = split_changes(text)
    rest = _RATE.sub("@", text)  # the slash of "@ 25GB/s" belongs to no path
    return text.lower().endswith((".toml", ".json")) or "/" in rest or "\\" in rest


def cluster_of(
    machine: Machine, *, reserve_share: float = RESERVE_SHARE, reserve_bytes: int = RESERVE_BYTES
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster that a machine is, and the lines that say which of its figures were measured."""
    reserve = Reserve(reserve_share, reserve_bytes)
    cards = [found_card(gpu, reserve) for gpu in machine.gpus]
    host, lines = found_host(machine, reserve)
    devices = [*(device for device, _ in cards), host]
    ports = {f"cuda:{gpu.index}": gpu.pcie for gpu in machine.gpus if gpu.pcie}
    links, link_lines = default_links(devices, ports=ports)
    told = (*(line for _, line in cards), *lines, *machine.notes, *link_lines, *reserve.lines(devices))
    return Cluster(tuple(devices), links), told


def add_host(cluster: Cluster) -> Cluster:
    """The same cluster plus a generic CPU, linked as a description by names would link it.

    >>> add_host(cluster_from("3090")[0]).names
    ('3090', 'cpu')
    """
    entry = lookup(GENERIC_CPU)
    host = device_from(entry, "cpu", memory_bytes=entry.memory_bytes)
    links, _ = default_links([*cluster.devices, host])
    return cluster.with_devices([host], [link for link in links if host.name in (link.source, link.target)])


# Names


@dataclass(frozen=True, slots=True)
class _Item:
    """One part of a description: how many of which device, what it was called, and what was said about it."""

    count: int
    called: str
    entry: CatalogueEntry
    memory_bytes: int | None = None  # None: that of the catalogue
    wiring: Wiring | None = None


def _from_names(text: str, reserve: Reserve) -> tuple[Cluster, tuple[str, ...]]:
    named, groups = split_groups(text)
    items = _items(named)
    total = sum(item.count for item in items)
    if total > MAX_DEVICES:
        raise BadCluster(f"{show(text)} asks for {total} devices; a cluster has at most {MAX_DEVICES}")
    devices: list[Device] = []
    lines: list[str] = []
    wired: dict[str, Wiring] = {}
    for item, names in zip(items, _names(items), strict=True):
        devices += [_device(item, name, reserve) for name in names]
        wired.update({name: item.wiring for name in names if item.wiring is not None})
        lines.append(_resolution(item, names))
        lines += _assumptions(item)
    for wiring in dict.fromkeys(wired.values()):
        check_wiring(wiring, [device for device in devices if wired.get(device.name) == wiring])
    hosts: tuple[Host, ...] = ()
    if not groups:
        if total > SOLVER_DEVICES:
            raise BadCluster(
                f"{show(text)} asks for {total} devices; beyond {SOLVER_DEVICES} say how they are joined, "
                f'as in "{total}x ... in nodes of 8 @ 25GB/s"'
            )
        links, link_lines = default_links(devices, wired=wired)
    else:
        nodes = groups[0]
        hosts = hosts_of(devices, nodes.size)
        if total > SOLVER_DEVICES or len(groups) > 1:
            return in_levels(devices, hosts, wired, groups, (*lines, *reserve.lines(devices)))
        links, link_lines = default_host_links(
            devices, hosts, wired=wired, network_bytes_per_second=nodes.bytes_per_second
        )
    told = dict.fromkeys((*lines, *link_lines, *reserve.lines(devices)))
    return Cluster(tuple(devices), links, hosts=hosts), tuple(told)


def _items(text: str) -> list[_Item]:
    """The parts of a description; `@ link` covers all before it, back to the last plus or @."""
    items: list[_Item] = []
    first = 0  # of the items that the next @ covers
    for separator, part in _parts(text):
        if separator == "+":
            first = len(items)
        devices, at, link = (piece.strip() for piece in part.partition("@"))
        if at and not (devices and link):
            missing = "devices before" if not devices else "a link after"
            raise BadCluster(f"{show(_shown(part))} has an @ without {missing} it; write it like 2x 3090 @ pcie3x8")
        if "@" in link:
            raise BadCluster(f"{show(_shown(part))} has two @; separate the devices by a comma or a plus")
        items.append(_item(_shown(devices)))
        if at:
            wiring = wiring_from(_shown(link), len(items))
            items[first:] = [replace(item, wiring=wiring) for item in items[first:]]
            first = len(items)
    return items


def _parts(text: str) -> list[tuple[str, str]]:
    """Separator and text after it; a plus or an @ inside a name that the catalogue knows separates nothing."""
    held = text
    for pattern in _held_names():
        held = pattern.sub(lambda found: found[0].translate(_HOLD), held)
    pieces = re.split(r"([,+])", held)
    parts = [("", pieces[0].strip())]
    parts += [(pieces[i], pieces[i + 1].strip()) for i in range(1, len(pieces), 2)]
    if not all(part for _, part in parts):
        raise BadCluster(f"{show(text)} has an empty place beside a separator; {_EXAMPLE}")
    return parts


def _shown(held: str) -> str:
    """A text as it was written."""
    return held.translate(_RELEASE)


@cache
def _held_names() -> tuple[re.Pattern[str], ...]:
    """Patterns for names with a plus or an @ in them, longest first."""
    names = {
        name for entry in entries() for name in (entry.key, *entry.aliases) if "+" in name or "@" in name
    }
    return tuple(
        re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])", re.IGNORECASE)
        for name in sorted(names, key=lambda name: (-len(name), name))
    )


def _item(part: str) -> _Item:
    many = _MANY.fullmatch(part)
    behind = _MANY_BEHIND.fullmatch(part)
    if behind is not None and candidates(behind[1]) and not candidates(part):
        raise BadCluster(f"{show(part)}: how many comes first; did you mean {show(f'{behind[2]}x {behind[1]}')}?")
    if many is None or candidates(part):
        return _sized(1, part)
    digits, name = many[1], many[2].strip()
    if not name:
        raise BadCluster(f"{show(part)} says how many but not of what; {_EXAMPLE}")
    count = int(digits) if len(digits) < 6 else MAX_DEVICES + 1
    if count == 0:
        raise BadCluster(f"{show(part)} asks for no device; leave it out or write 1x or more")
    if count > MAX_DEVICES:
        raise BadCluster(f"{show(part)} asks for more than the {MAX_DEVICES} devices that a cluster may have")
    return _sized(count, name)


def _sized(count: int, text: str) -> _Item:
    """A device of the catalogue; a size after its name is another memory, unless it is part of the name."""
    size = _SIZE.fullmatch(text)
    if candidates(text) or size is None or not candidates(size[1]):
        return _Item(count, text, lookup(text))
    memory = parse_bytes(f"{size[2]}{size[3][0].upper()}iB", f"memory of {size[1]}")
    if memory < 1:
        raise BadCluster(f"{show(text)}: a device needs some memory; write a size such as 64GB")
    return _Item(count, size[1], lookup(size[1]), memory)


def _names(items: Sequence[_Item]) -> list[list[str]]:
    """Names of the devices of each item: as written if the model occurs once, else numbered by model."""
    totals: dict[str, int] = {}
    bases: dict[str, str] = {}
    for item in items:
        totals[item.entry.key] = totals.get(item.entry.key, 0) + item.count
        bases.setdefault(item.entry.key, "-".join(item.called.lower().split()))
    used: dict[str, int] = {}
    names = []
    for item in items:
        key = item.entry.key
        first = used.get(key, 0)
        used[key] = first + item.count
        numbered = [f"{bases[key]}:{number}" for number in range(first, first + item.count)]
        names.append([item.called] if totals[key] == 1 else numbered)
    return names


def _device(item: _Item, name: str, reserve: Reserve) -> Device:
    entry = item.entry
    memory = item.memory_bytes or entry.memory_bytes or lookup(GENERIC_CPU).memory_bytes or 0
    return device_from(entry, name, memory_bytes=memory, reserve_bytes=reserve.of(entry.kind, memory))


def _resolution(item: _Item, names: Sequence[str]) -> str:
    alias = " (alias)" if is_alias(item.called) else ""
    many = f"{item.count}x " if item.count > 1 else ""
    many_names = f"{names[0]} to {names[-1]}" if len(names) > SOLVER_DEVICES else ", ".join(names)
    called = "" if list(names) == [item.called] else f": {many_names}"
    memory = f", memory {format_bytes(item.memory_bytes)} as given" if item.memory_bytes else ""
    return f"{many}{item.called} = {item.entry.title}{alias}{memory}{called}"


def _assumptions(item: _Item) -> list[str]:
    """What the catalogue does not know about a device and the plan has to assume."""
    entry, generic = item.entry, lookup(GENERIC_CPU)
    lines = []
    if entry.memory_bytes is None and item.memory_bytes is None:
        size = format_bytes(generic.memory_bytes or 0)
        lines.append(
            f"{item.called}: {size} of its machine's memory are assumed; write {item.called} 64GB to say better"
        )
    if entry.bytes_per_second is None:
        lines.append(
            f"{item.called}: memory bandwidth {format_rate(generic.bytes_per_second or 0)} is assumed"
        )
    if entry.assumed:
        rates = ", ".join(f"{dtype} {format_flops(rate)}" for dtype, rate in entry.flops_per_second.items())
        what = {"tflops": rates, "bandwidth_gb_s": format_rate(entry.bytes_per_second or 0)}
        what["memory_gib"] = format_bytes(entry.memory_bytes or 0)
        given = ("memory_gib",) if item.memory_bytes else ()
        assumed = [what[field] for field in entry.assumed if field not in given]
        lines.append(f"{item.called}: {', '.join(assumed)} assumed ({entry.note})")
    return lines


def _from_file(path: Path, reserve: Reserve) -> tuple[Cluster, tuple[str, ...]]:
    cluster, links = read_described(path, reserve)
    lines = [f"{device.name} = {lookup(device.model).title}" for device in cluster if device.model]
    given, file = _counted(len(cluster), "device"), one_line(str(path), 300)
    if links:
        lines.append(f"{given} as {file} gives them; it says nothing about links, so the usual ones are taken")
    else:
        also = f" and {_counted(len(cluster.links), 'link')}" if len(cluster) > 1 else ""
        lines.append(f"{given}{also} as {file} gives them")
    return cluster, (*lines, *links, *silent_pairs(cluster), *reserve.lines(cluster.devices))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
