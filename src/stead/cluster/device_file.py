"""Cluster files: TOML or JSON with the same keys, read strictly, and written so that nothing is lost.

    contention = "link"            # none, link, pair, sender, receiver, bus
    routing = "direct"             # or "host"
    [[device]]
    name = "cuda:0"                # the only key that must be there
    model = "GeForce RTX 3090"     # name in the catalogue; fills in what is missing here
    kind = "gpu"                   # cpu, gpu, npu, fpga, group, other
    memory = "24GiB"
    reserve = "1GiB"               # left free; missing: 8 % + 0.5 GiB of a GPU of 4 GiB or more, else 0
    bandwidth = "936GB/s"
    flops = {fp32 = "35.6T", fp16 = "71T", fp64 = "none"}     # "none" drops a rate of the catalogue
    efficiency = {compute = 0.7, memory = 0.8}                # matmul and mem are accepted, too
    launch_overhead = "5us"
    unsupported_ops = ["Loop"]
    alias = {accelerate = 0, openvino = "GPU.0", ort = "cuda", llama = "CUDA0"}
    precision = {bf16 = "computed in fp32"}                   # of types that it has no rate for; see precision.py
    [[link]]
    between = ["cuda:0", "cpu"]    # both ways; or `from` and `to` for one way
    bandwidth = "25GB/s"
    latency = "10us"               # 0 if missing
    gap = "0s"                     # the link stays busy this long after a transfer
    carried_by = "link"            # "sender": by the device that sends, which does nothing else until it is there
    duplex = "full"                # "half": both directions share the link, the same as contention = "pair"
    [[link]]
    between = ["*", "*"]           # every pair that no other link names; ["*", "cpu"] goes before ["*", "*"]
    via = "cpu"                    # without bandwidth: the two links with cpu, one after the other
    [[host]]                       # only for clusters of several machines; then every device is on one
    name = "a"
    address = "10.0.0.1"           # on the network between hosts; missing: found out when it is needed
    devices = ["cuda:0", "cpu"]
    [[link]]
    between = ["a", "b"]           # every device of a host with every one of another; ["a", "a"]: inside a host
    bandwidth = "10 Gbit/s"

    [[device]]                     # large clusters: equal devices in one table, joined level by level
    name = "gpu"                   # they are called gpu:0, gpu:1, ...
    count = 1024
    [[level]]                      # groups of devices in a row: two have the link of the smallest that holds both
    name = "node"
    size = 8                       # devices; groups are made of whole ones of the level before, the last holds all
    bandwidth = "300GB/s"
    latency = "10us"

Without any [[link]] all devices are linked as named ones are; `link = []` says that there are none.
"unlimited" stands for a memory or a bandwidth without bounds.
A file of `stead profile` is a cluster file, too: it brings the devices and links that were measured.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from stead.cluster.catalogue import lookup
from stead.cluster.classes import SOLVER_DEVICES
from stead.cluster.devices import UNLIMITED_BYTES, CarriedBy, Cluster, Device, Host
from stead.cluster.file_fields import SCHEMA, cluster_from_data
from stead.cluster.hosts import Figures, alike_links
from stead.cluster.levels import Level
from stead.cluster.quantities import exact_bytes, exact_flops, exact_rate, exact_seconds, show
from stead.cluster.reserve import Reserve
from stead.errors import BadCluster, BadInput
from stead.files import read_text, write_text
from stead.printing.wording import one_line

MAX_FILE_BYTES = 16 * 2**20
PROFILE_FORMAT = "stead.profile"  # a profile of a machine describes its devices as a cluster file does

_LONGEST_LINE = 16_384
_MOST_DOTS = 1_000  # the TOML reader takes quadratic time on a long dotted key
_MAX_DIGITS = 400


Described: TypeAlias = tuple[Cluster, tuple[str, ...]]  # a cluster and what was assumed about its links


def read_cluster(path: str | os.PathLike[str]) -> Cluster:
    """The cluster in a .toml or .json file; BadCluster with the file and the place for whatever is wrong."""
    return read_described(path)[0]


def read_described(path: str | os.PathLike[str], reserve: Reserve | None = None) -> Described:
    """The cluster in a file, and the lines that say how it is linked if the file does not."""
    where = one_line(os.fspath(path), 300)
    suffix = Path(path).suffix.lower()
    if suffix not in (".toml", ".json"):
        raise BadCluster(f"{where}: cluster files end in .toml or .json; rename it, or name devices directly")
    try:
        text = read_text(path, limit=MAX_FILE_BYTES, too_large="a cluster file is far smaller")
    except BadInput as error:
        raise BadCluster(str(error)) from None
    return (_from_toml if suffix == ".toml" else _from_json)(text, where, reserve)


def write_cluster(cluster: Cluster, path: str | os.PathLike[str]) -> None:
    """Write a cluster as TOML or JSON, by the ending of the file's name."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".toml", ".json"):
        raise BadCluster(f"{one_line(os.fspath(path), 300)}: cluster files end in .toml or .json")
    text = cluster_to_toml(cluster) if suffix == ".toml" else cluster_to_json(cluster)
    try:
        write_text(path, text)
    except BadInput as error:
        raise BadCluster(str(error)) from None


def cluster_from_toml(text: str, where: str = "TOML") -> Cluster:
    """The cluster in a TOML text; `where` is what errors call it.

    >>> cluster_from_toml('[[device]]\\nname = "a"\\nmodel = "GeForce RTX 3090"').devices[0].kind
    'gpu'
    """
    return _from_toml(text, where)[0]


def cluster_from_json(text: str, where: str = "JSON") -> Cluster:
    """The cluster in a JSON text; `where` is what errors call it."""
    return _from_json(text, where)[0]


def cluster_to_toml(cluster: Cluster) -> str:
    """A TOML text that `cluster_from_toml` reads back to a cluster with the same fingerprint."""
    return _checked(_toml(_data_of(cluster)), cluster, cluster_from_toml)


def cluster_to_json(cluster: Cluster) -> str:
    """A JSON text that `cluster_from_json` reads back to a cluster with the same fingerprint."""
    text = json.dumps(_data_of(cluster), indent=2, ensure_ascii=False) + "\n"
    return _checked(text, cluster, cluster_from_json)


# Text to plain data


def _from_toml(text: str, where: str, reserve: Reserve | None = None) -> Described:
    for line in text.splitlines():
        if len(line) > _LONGEST_LINE or line.count(".") > _MOST_DOTS:
            raise BadCluster(f"{where}: a line of {len(line)} characters is too long; break it into several")
    return cluster_from_data(_parsed(lambda: tomllib.loads(text), text, where, "TOML"), where, reserve)


def _from_json(text: str, where: str, reserve: Reserve | None = None) -> Described:
    def load() -> object:
        return json.loads(
            text, object_pairs_hook=_no_twins, parse_constant=_no_constant, parse_int=_short_int
        )

    data = _parsed(load, text, where, "JSON")
    if isinstance(data, dict) and data.get("format") == PROFILE_FORMAT:
        if "machine" not in data:
            raise BadCluster(f"{where}: a profile of one device without its machine; name the devices directly")
        data, where = data["machine"], f"{where}: machine"
    return cluster_from_data(data, where, reserve)


def _parsed(load: Callable[[], object], text: str, where: str, language: str) -> object:
    if not text.strip():
        raise BadCluster(f"{where}: empty; describe at least one device")
    try:
        return load()
    except RecursionError:
        raise BadCluster(f"{where}: nested too deeply; a cluster needs only a few levels") from None
    except BadCluster as error:
        raise BadCluster(f"{where}: {error}") from None
    except (ValueError, OverflowError) as error:  # what is not TOML or JSON, and numbers without end
        raise BadCluster(f"{where}: not {language}: {_reason(error)}") from None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise BadCluster(f"the key {show(twice)} is given twice in one object; keep one")
    return made


def _no_constant(literal: str) -> float:
    raise BadCluster(f"{literal} is not a number; leave the key out or give a number")


def _short_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise BadCluster(f"a number of {len(digits)} digits; give a sensible one")
    return int(digits)


# A cluster to plain data


def _data_of(cluster: Cluster) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "contention": cluster.contention,
        "routing": cluster.routing,
        **({"host": [_host_data(host) for host in cluster.hosts]} if cluster.hosts else {}),
        "device": _devices_data(cluster),
        **({"level": [_level_data(level) for level in cluster.levels]} if cluster.levels else {}),
        **({"link": _link_data(cluster)} if cluster.links or (len(cluster) > 1 and not cluster.levels) else {}),
    }


def _devices_data(cluster: Cluster) -> list[dict[str, Any]]:
    """A table for each device; in large clusters one for each run of equal ones that are numbered from 0."""
    if len(cluster) <= SOLVER_DEVICES:
        return [_device_data(device) for device in cluster]
    tables: list[dict[str, Any]] = []
    for device in cluster:
        data = _device_data(device)
        base, _, number = device.name.rpartition(":")
        if tables and {**tables[-1], "name": ""} == {"count": tables[-1].get("count"), **data, "name": ""} and (
            device.name == f"{tables[-1]['name']}:{tables[-1]['count']}"
        ):
            tables[-1]["count"] += 1
        elif number == "0" and base:
            tables.append({**data, "name": base, "count": 1})
        else:
            tables.append(data)
    return tables


def _level_data(level: Level) -> dict[str, Any]:
    figures = _figure_data(level.bytes_per_second, level.latency_seconds, level.gap_seconds)
    return {"name": level.name, "size": level.size, **figures}


def _device_data(device: Device) -> dict[str, Any]:
    row = lookup(device.model) if device.model else None
    dropped = [
        dtype for dtype in (row.flops_per_second if row else ()) if dtype not in device.flops_per_second
    ]
    unlimited = device.memory_bytes == UNLIMITED_BYTES
    usual = Reserve().of(device.kind, device.memory_bytes)  # what a file without `reserve` means
    data: dict[str, Any] = {
        "name": device.name,
        "model": row.key if row else None,
        "kind": device.kind,
        "memory": "unlimited" if unlimited else exact_bytes(device.memory_bytes),
        "reserve": None if device.reserve_bytes == usual else exact_bytes(device.reserve_bytes),
        "bandwidth": _rate_data(device.bytes_per_second),
        "flops": {
            **{dtype: exact_flops(rate) for dtype, rate in device.flops_per_second.items()},
            **dict.fromkeys(dropped, "none"),
        },
        "efficiency": {what: float(share) for what, share in device.efficiency.items()},
        "launch_overhead": exact_seconds(device.launch_seconds),
        "unsupported_ops": sorted(device.unsupported_kinds),
        "alias": dict(device.alias),
        "precision": dict(device.precision),
    }
    return {key: value for key, value in data.items() if value is not None and value not in ({}, [])}


def _host_data(host: Host) -> dict[str, Any]:
    address = {"address": host.address} if host.address else {}
    return {"name": host.name, **address, "devices": list(host.devices)}


def _link_data(cluster: Cluster) -> list[dict[str, Any]]:
    """Links in few tables: equal ones both ways, inside a host and between two together; a default if all are there."""
    figures = {
        (link.source, link.target): (
            link.bytes_per_second, link.latency_seconds, link.gap_seconds, link.carried_by
        )
        for link in cluster.links
    }
    alike = alike_links(cluster.hosts, figures)
    said = {pair for group in alike for pair in group.pairs}
    rows: list[tuple[dict[str, Any], Figures]] = [
        ({"between": [group.first, group.second]}, group.figures) for group in alike
    ]
    for (source, target), figure in figures.items():
        if (source, target) in said:
            continue
        if figures.get((target, source)) != figure:
            rows.append(({"from": source, "to": target}, figure))
        elif cluster.index(source) < cluster.index(target):
            rows.append(({"between": [source, target]}, figure))
    count = len(cluster)
    if count > 2 and not cluster.hosts and len(figures) == count * (count - 1):
        common = Counter(figures.values()).most_common(1)[0][0]
        rows = [row for row in rows if row[1] != common] + [({"between": ["*", "*"]}, common)]
    return [{**ends, **_figure_data(*figure)} for ends, figure in rows]


def _figure_data(
    bytes_per_second: float, latency_seconds: float, gap_seconds: float, carried_by: CarriedBy = "link"
) -> dict[str, Any]:
    gap = {"gap": exact_seconds(gap_seconds)} if gap_seconds else {}
    carried = {"carried_by": carried_by} if carried_by != "link" else {}
    return {"bandwidth": _rate_data(bytes_per_second), "latency": exact_seconds(latency_seconds), **gap, **carried}


def _rate_data(bytes_per_second: float) -> str | float:
    return "unlimited" if math.isinf(bytes_per_second) else exact_rate(bytes_per_second)


def _checked(text: str, cluster: Cluster, read: Callable[[str, str], Cluster]) -> str:
    """The text, if it reads back to the same cluster; what a file cannot say is an error now, not later."""
    try:
        same = read(text, "the file").fingerprint == cluster.fingerprint
    except BadCluster as error:
        raise BadCluster(f"this cluster cannot be written to a file: {error}") from None
    if not same:
        raise BadCluster("this cluster cannot be written to a file without loss")
    return text


def _toml(data: Mapping[str, Any]) -> str:
    # No table at all would mean the usual links.
    tables = [key for key in ("host", "device", "level", "link") if data.get(key)]
    lines = [f"{key} = {_toml_value(value)}" for key, value in data.items() if key not in tables]
    for kind in tables:
        for table in data[kind]:
            lines += ["", f"[[{kind}]]", *(f"{key} = {_toml_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{_toml_key(key)} = {_toml_value(entry)}" for key, entry in value.items())
            + " }"
        )
    if isinstance(value, list):
        if len(value) > 8:
            return "[\n" + "".join(f"    {_toml_value(entry)},\n" for entry in value) + "]"
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # printable text: the escapes of JSON are those of TOML
    return repr(value)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(" ".join(told.split()))[:200] or type(error).__name__
