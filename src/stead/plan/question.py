"""The question in a plan file: graph, cluster, costs, objective and constraints."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, Host, Level, Link
from stead.cluster.classes import SOLVER_DEVICES
from stead.costs import Costs, Source
from stead.errors import BadInput
from stead.graph import Graph
from stead.plan.checked_fields import Check, at, by_name, fields_of, or_none, same, seconds_of
from stead.plan.fields import count_of, texts_of, whole_of
from stead.plan.rows import BYTES, INDICES, SECONDS, SMALL, row_of
from stead.printing.wording import quoted, shown
from stead.problem import (
    POLICIES,
    Constraints,
    Latency,
    Objective,
    Order,
    Policy,
    Priority,
    Problem,
    ProgramOrder,
    Throughput,
)
from stead.readers.common.checked_values import (
    Wrong,
    amount_of,
    bytes_of,
    flag_of,
    list_of,
    name_of,
    object_of,
    text_of,
)
from stead.readers.native.npz import graph_from_npz
from stead.readers.native.reader import graph_from_dict


def problem_from(data: Mapping[str, Any], objective: Mapping[str, Any]) -> Problem:
    """The question that a plan answers."""
    parts = dict.fromkeys(("graph", "cluster", "costs", "constraints"), object_of)
    given = fields_of(data, parts, "problem")
    graph = _graph(given["graph"])
    cluster = _cluster(given["cluster"])
    costs = _costs(given["costs"], graph, cluster)
    wanted = _objective(objective, graph)
    place = "problem.constraints"
    pairs = fields_of(given["constraints"], {"pin": _pairs, "forbid": _pairs, "colocate": groups_of}, place)
    with at("problem"):
        return Problem(graph, cluster, costs, objective=wanted, constraints=Constraints(**pairs))


def _graph(data: Mapping[str, Any]) -> Graph:
    with at("problem.graph"):
        if "npz" not in data:
            try:
                return graph_from_dict(data, place="")
            except BadInput as error:
                raise Wrong(str(error).removeprefix(": ")) from None
        text = fields_of(data, {"npz": text_of}, "problem.graph")["npz"]
        try:
            return graph_from_npz(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError) as error:
            if isinstance(error, BadInput):
                raise
            raise Wrong("npz is not base64") from None


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    pairs = []
    for number, item in enumerate(list_of(value)):
        with at(f"[{number}]"):
            pair = list_of(item)
            if len(pair) != 2:
                raise Wrong(f"must be a pattern and a device, got {len(pair)} items")
            pairs.append((name_of(pair[0]), name_of(pair[1])))
    return tuple(pairs)


def groups_of(value: object) -> tuple[tuple[str, ...], ...]:
    """Lists of names, none of them empty."""
    groups = []
    for number, item in enumerate(list_of(value)):
        with at(f"[{number}]"):
            group = tuple(name_of(name) for name in list_of(item))
            if not group:
                raise Wrong("must name an operator")
            groups.append(group)
    return tuple(groups)


def _cluster(data: Mapping[str, Any]) -> Cluster:
    place = "problem.cluster"
    kinds: dict[str, Any] = {"devices": Device, "links": Link, "hosts": Host, "levels": Level}
    texts = {"contention": text_of, "routing": text_of}
    given = fields_of(data, {**dict.fromkeys(kinds, list_of), **texts}, place, {"hosts", "levels"})
    for key, kind in kinds.items():
        checks = {one.name: _of_type(str(one.type), one.name) for one in fields(kind)}
        required = {one.name for one in fields(kind) if one.name in ("name", "bytes_per_second", "unsupported_kinds")}
        for number, entry in enumerate(given.get(key, ())):
            fields_of(entry, checks, f"{place}.{key}[{number}]", checks.keys() - required)
    with at(place):
        try:
            return Cluster.from_dict(given)
        except TypeError as error:  # a field without which a device or link cannot be
            raise Wrong(str(error)) from None


def _of_type(annotation: str, name: str) -> Check:
    """The check of a field of a device or link, by its type."""
    if name == "bytes_per_second":
        return or_none(seconds_of)  # null stands for no limit
    checks: dict[str, Check] = {
        "str": text_of,
        "int": bytes_of,
        "float": amount_of,
        "bool": flag_of,
        "frozenset[str]": texts_of,
        "tuple[str, ...]": texts_of,
        "Mapping[str, float]": lambda value: _table(value, amount_of),
        "Mapping[str, str]": lambda value: _table(value, text_of),
        "Mapping[str, str | int]": lambda value: _table(value, _name_or_number),
    }
    return checks.get(annotation, same)


def _table(value: object, check_one: Check) -> dict[str, Any]:
    made = {}
    for key, item in object_of(value).items():
        with at(f"[{quoted(key)}]"):
            made[key] = check_one(item)
    return made


def _name_or_number(value: object) -> str | int:
    return text_of(value) if isinstance(value, str) else whole_of(value)


def _costs(data: Mapping[str, Any], graph: Graph, cluster: Cluster) -> Costs:
    place, count = "problem.costs", len(graph)
    names = ("seconds", "sources", "workspace_bytes", "tensor_seconds", "like")
    given = fields_of(data, dict.fromkeys(names, same), place, {"like"})
    own, shared = _own_columns(given.get("like"), cluster, f"{place}.like")

    def table(key: str, dtype: str) -> NDArray[Any]:
        columns = by_name(given[key], own, lambda row: row_of(row, dtype, count), f"{place}.{key}")
        return np.stack(list(columns.values()), axis=1)

    sources = table("sources", SMALL)
    if sources.size and sources.max() > max(Source):
        raise Wrong(f"{place}.sources: must lie in 0..{max(Source)}, got {sources.max()}")
    tensors = given["tensor_seconds"]
    with at(f"{place}.tensor_seconds"):
        tensor_seconds = None if tensors is None else row_of(tensors, SECONDS, graph.tensor_count)
    seconds = table("seconds", SECONDS)
    workspace = None if given["workspace_bytes"] is None else table("workspace_bytes", BYTES)
    with at(place):
        return Costs(
            graph, cluster, seconds, workspace_bytes=workspace, sources=sources, tensor_seconds=tensor_seconds,
            columns=shared,
        )  # fmt: skip


def _own_columns(like: object, cluster: Cluster, place: str) -> tuple[tuple[str, ...], NDArray[np.uint16] | None]:
    """Devices that have columns of their own, and the column of every device where some take that of another."""
    if like is None:
        return cluster.names, None
    with at(place):
        others = {name_of(name): name_of(first) for name, first in object_of(like).items()}
        own = tuple(name for name in cluster.names if name not in others)
        number = {name: c for c, name in enumerate(own)}
        strange = [name for name in (*others, *others.values()) if name not in cluster.names]
        if strange or not set(others.values()) <= set(own):
            raise Wrong("must name devices of the cluster, each like one with columns of its own")
        if len(cluster) <= SOLVER_DEVICES:
            raise Wrong(f"only clusters of more than {SOLVER_DEVICES} devices share columns")
        return own, np.array([number[others.get(name, name)] for name in cluster.names], dtype=np.uint16)


def _objective(data: Mapping[str, Any], graph: Graph) -> Objective:
    name = data.get("name")
    if name == "latency":
        checks: dict[str, Check] = {"name": text_of, "execution": text_of, "policy": same, "pieces": text_of,
                                    "order": text_of}  # fmt: skip
        options = fields_of(data, checks, "objective", ("execution", "policy", "pieces", "order"))
        options["policy"] = _policy(options.get("policy", "fifo"), graph)
        kind: type[Latency] | type[Throughput] = Latency
    elif name == "throughput":
        checks = {"name": text_of, "load": text_of, "microbatches": or_none(count_of), "schedule": text_of,
                  "samples_per_update": count_of}  # fmt: skip
        options = fields_of(
            data, checks, "objective", ("load", "microbatches", "schedule", "samples_per_update")
        )
        kind = Throughput
    else:
        raise Wrong(f"objective.name: must be latency or throughput, got {shown(name)}")
    del options["name"]
    with at("objective"):
        return kind(**options)


def _policy(value: object, graph: Graph) -> Policy:
    if isinstance(value, dict):
        return order_from(value, graph, 0, "objective.policy")
    if not isinstance(value, str) or value not in POLICIES:
        raise Wrong(f"objective.policy: must be one of {', '.join(POLICIES)}, got {shown(value)}")
    return POLICIES[value]()


def order_from(data: object, graph: Graph, devices: int, place: str) -> Order:
    """The order that an object in a plan gives, of operators and, with `devices`, of transfers."""
    with at(place):
        given = object_of(data)
    policy, operators, tensors = given.get("policy"), len(graph), graph.tensor_count
    with at(place):
        if policy == "priority":
            row = fields_of(
                given,
                {
                    "policy": text_of,
                    "position": or_none(lambda value: row_of(value, INDICES, operators)),
                    "transfer_position": or_none(lambda value: row_of(value, INDICES, tensors)),
                },
                place,
            )
            return Priority(row["position"], row["transfer_position"])
        if policy == "program_order":
            checks = {"policy": text_of, "order": same, "length": count_of, "sends": flag_of}
            row = fields_of(given, checks, place, ("length",))
            listed = row["order"]
            length = row.get("length", 0) if isinstance(listed, str) else len(list_of(listed or []))
            most = operators + tensors * devices
            if length > most:
                raise Wrong(f"lists {length} items where there are {most}")
            return ProgramOrder(None if listed is None else row_of(listed, INDICES, length), row["sends"])
    raise Wrong(f"{place}.policy: must be priority or program_order, got {shown(policy)}")


def check_hashes(given: Mapping[str, Any], problem: Problem, cluster: Mapping[str, Any]) -> None:
    """Fingerprints, which are all that protects a file of version 1; of devices as the file itself has them."""
    hashes = fields_of(given, dict.fromkeys(("graph", "devices", "costs", "problem"), text_of), "hashes")
    rates = {
        key: [{**one, "bytes_per_second": _unlimited(one["bytes_per_second"])} for one in cluster[key]]
        for key in ("devices", "links")
    }
    text = json.dumps({**cluster, **rates}, sort_keys=True)
    devices = hashlib.sha256(text.encode()).hexdigest()[:16]
    for name, field, found in (
        ("graph", "problem.graph", problem.graph.fingerprint),
        ("devices", "problem.cluster", devices),
        ("costs", "problem.costs", problem.costs.fingerprint),
    ):
        if hashes[name] != found:
            raise Wrong(f"{field}: it was changed after the plan was made (it does not fit hashes.{name})")
    parts = (
        hashes["graph"], devices, hashes["costs"], problem.objective.describe(), repr(problem.constraints),
    )  # fmt: skip
    if hashes["problem"] != hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]:
        raise Wrong(
            "objective or problem.constraints: changed after the plan was made (they do not fit hashes.problem)"
        )


def _unlimited(rate: float | None) -> float:
    return math.inf if rate is None else rate
