"""Plan files read back: every field checked and told by its name, the answer simulated again.

What a file claims is compared with what it holds: checksums of all parts (from version 2 on), the value of the plan and
of its baselines by the simulator, the gap by value and bound. A value that differs under sound checksums was made by a
simulator that has changed since; it is then scored again, the bound is dropped, and a note says so.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, Link
from stead.costs import Costs, Source
from stead.errors import BadInput, SteadError
from stead.files import OUT_OF_MEMORY, AnyPath, shown_path, suggestion
from stead.graph import Graph
from stead.plan.checksums import KEY, OWN, check
from stead.plan.fields import FORMAT, SOLUTION, VERSION, Baseline, count_of, texts_of, whole_of
from stead.plan.rows import BYTES, INDICES, SECONDS, SMALL, row_of
from stead.problem import (
    POLICIES,
    Constraints,
    Latency,
    Objective,
    Order,
    Placement,
    Policy,
    Priority,
    Problem,
    ProgramOrder,
    Throughput,
)
from stead.readers.common.strict_json import (
    Wrong,
    amount_of,
    bytes_of,
    collector_paused,
    flag_of,
    list_of,
    name_of,
    object_of,
    one_line,
    quoted,
    read_json,
    shown,
    text_of,
)
from stead.readers.native.npz import graph_from_npz
from stead.readers.native.reader import graph_from_dict
from stead.sim import Trace, simulate, simulate_many
from stead.solvers import Improvement, Solution

Check = Callable[[Any], Any]
_REMEDY = "make the plan again with `stead place`"
_OPTIONAL = {1: ("scope", "order", "replicas", "stopped_by"), 2: ()}  # by version


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a plan file says, and the run of its placement."""

    problem: Problem
    solution: Solution
    baselines: tuple[Baseline, ...]
    provenance: dict[str, Any]
    trace: Trace


def is_plan(document: object) -> bool:
    """Whether a JSON document calls itself a plan."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def read_plan(path: AnyPath) -> Contents:
    """What is in a plan file; whatever does not belong together is BadInput with the field."""
    where = shown_path(path)
    with collector_paused():
        document = read_json(path)
        if not is_plan(document):
            raise BadInput(f"{where} is not a plan; `stead place MODEL --devices D -o plan.json` writes one")
        version = document.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise BadInput(f"{where}: version: must be a whole number of at least 1, got {shown(version)}")
        if version > VERSION:
            raise BadInput(
                f"{where} is a plan of version {shown(version)}; this stead reads up to {VERSION}: update it"
            )
        try:
            return _contents(document, version)
        except Wrong as wrong:
            raise BadInput(f"{where}: {one_line(str(wrong))}; {_REMEDY}") from None
        except MemoryError:
            raise BadInput(f"{where}: {OUT_OF_MEMORY}") from None


def _contents(document: Mapping[str, Any], version: int) -> Contents:
    if version > 1:
        with _at(KEY):
            object_of(document.get(KEY))
        check(document)
    given = _fields(document, _DOCUMENT[version], "", _OPTIONAL[version])
    problem = _problem(given["problem"], given["objective"])
    if version == 1:
        _check_hashes(given["hashes"], problem, given["problem"]["cluster"])
    placement = _placement(problem, given["placement"], given.get("order"), given.get("replicas", []))
    timing = _timing(given["repro"], len(given.get("trail", ())))
    solution = Solution(
        placement=placement,
        objective_seconds=float(given["objective_seconds"]),
        bound_seconds=float(given["bound_seconds"]),
        trail=_trail(given.get("trail", []), timing),
        elapsed_seconds=timing[0],
        **{name: given[name] for name in SOLUTION if name in given},
    )
    _check_claims(solution, given["gap"])
    baselines = tuple(
        _baseline(problem, entry, f"baselines[{number}]") for number, entry in enumerate(given["baselines"])
    )
    solution, trace = _scored(solution, sealed=version > 1)
    found = _values(problem, baselines)
    baselines = tuple(
        _scored_baseline(one, value, f"baselines[{n}].objective_seconds", sealed=version > 1)
        for n, (one, value) in enumerate(zip(baselines, found, strict=True))
    )
    kept = {key: value for key, value in given["repro"].items() if key not in _TIMING}
    return Contents(problem, solution, baselines, kept, trace)


# Places


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Whatever is wrong inside is told with its place."""
    try:
        yield
    except Wrong as wrong:
        text = str(wrong)
        raise Wrong(f"{place}{text}" if text.startswith("[") else f"{place}: {text}") from None
    except SteadError as error:
        raise Wrong(f"{place}: {error}") from None


def _fields(entry: object, checks: Mapping[str, Check], place: str, optional: Iterable[str] = ()) -> dict[str, Any]:
    """An object with exactly the keys that have checks, each of them checked and told by its full name."""
    with _at(place or "the plan"):
        given = object_of(entry)
    prefix = f"{place}." if place else ""
    for key in given:
        if key not in checks:
            raise Wrong(f"{prefix}{one_line(key, 60)}: not a field of a plan{suggestion(key, checks)}")
    for key in checks:
        if key not in given and key not in optional:
            raise Wrong(f"{prefix}{key}: is missing")
    made = {}
    for key, value in given.items():
        with _at(f"{prefix}{key}"):
            made[key] = checks[key](value)
    return made


def _by_name(value: object, names: Iterable[str], check_one: Check, place: str) -> dict[str, Any]:
    """An object with a value for each name and no other."""
    with _at(place):
        given = object_of(value)
    wanted = tuple(names)
    for name in given:
        if name not in wanted:
            raise Wrong(f"{place}[{quoted(name)}]: there is no such device{suggestion(name, wanted)}")
    made = {}
    for name in wanted:
        if name not in given:
            raise Wrong(f"{place}[{quoted(name)}]: is missing")
        with _at(f"{place}[{quoted(name)}]"):
            made[name] = check_one(given[name])
    return made


def _same(value: Any) -> Any:
    return value


def _seconds_of(value: object) -> float:
    return float(amount_of(value))


def _or_none(check_one: Check) -> Check:
    return lambda value: None if value is None else check_one(value)


# The document

_DOCUMENT: dict[int, dict[str, Check]] = {
    1: {
        "format": text_of, "version": whole_of, **SOLUTION, "objective": object_of, "objective_seconds": _seconds_of,
        "bound_seconds": _seconds_of, "gap": _seconds_of, "placement": object_of, "order": _or_none(object_of),
        "replicas": list_of, "baselines": list_of, "hashes": object_of, "problem": object_of, "repro": object_of,
    },
}  # fmt: skip
_DOCUMENT[2] = {**_DOCUMENT[1], "placement": _same, "trail": list_of, KEY: object_of}
_TIMING = ("elapsed_seconds", "trail_seconds", OWN)


def _check_hashes(given: Mapping[str, Any], problem: Problem, cluster: Mapping[str, Any]) -> None:
    """Fingerprints, which are all that protects a file of version 1; of devices as the file itself has them."""
    hashes = _fields(given, dict.fromkeys(("graph", "devices", "costs", "problem"), text_of), "hashes")
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


# The question


def _problem(data: Mapping[str, Any], objective: Mapping[str, Any]) -> Problem:
    parts = dict.fromkeys(("graph", "cluster", "costs", "constraints"), object_of)
    given = _fields(data, parts, "problem")
    graph = _graph(given["graph"])
    cluster = _cluster(given["cluster"])
    costs = _costs(given["costs"], graph, cluster)
    wanted = _objective(objective, graph)
    place = "problem.constraints"
    pairs = _fields(given["constraints"], {"pin": _pairs, "forbid": _pairs, "colocate": _groups}, place)
    with _at("problem"):
        return Problem(graph, cluster, costs, objective=wanted, constraints=Constraints(**pairs))


def _graph(data: Mapping[str, Any]) -> Graph:
    with _at("problem.graph"):
        if "npz" not in data:
            try:
                return graph_from_dict(data, place="")
            except BadInput as error:
                raise Wrong(str(error).removeprefix(": ")) from None
        text = _fields(data, {"npz": text_of}, "problem.graph")["npz"]
        try:
            return graph_from_npz(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError) as error:
            if isinstance(error, BadInput):
                raise
            raise Wrong("npz is not base64") from None


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    pairs = []
    for number, item in enumerate(list_of(value)):
        with _at(f"[{number}]"):
            pair = list_of(item)
            if len(pair) != 2:
                raise Wrong(f"must be a pattern and a device, got {len(pair)} items")
            pairs.append((name_of(pair[0]), name_of(pair[1])))
    return tuple(pairs)


def _groups(value: object) -> tuple[tuple[str, ...], ...]:
    groups = []
    for number, item in enumerate(list_of(value)):
        with _at(f"[{number}]"):
            group = tuple(name_of(name) for name in list_of(item))
            if not group:
                raise Wrong("must name an operator")
            groups.append(group)
    return tuple(groups)


def _cluster(data: Mapping[str, Any]) -> Cluster:
    place = "problem.cluster"
    given = _fields(
        data, {"devices": list_of, "links": list_of, "contention": text_of, "routing": text_of}, place
    )
    for key, kind in (("devices", Device), ("links", Link)):
        checks = {one.name: _of_type(str(one.type), one.name) for one in fields(kind)}
        required = {one.name for one in fields(kind) if one.name in ("name", "bytes_per_second", "unsupported_kinds")}
        for number, entry in enumerate(given[key]):
            _fields(entry, checks, f"{place}.{key}[{number}]", checks.keys() - required)
    with _at(place):
        try:
            return Cluster.from_dict(given)
        except TypeError as error:  # a field without which a device or link cannot be
            raise Wrong(str(error)) from None


def _of_type(annotation: str, name: str) -> Check:
    """The check of a field of a device or link, by its type."""
    if name == "bytes_per_second":
        return _or_none(_seconds_of)  # null stands for no limit
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
    return checks.get(annotation, _same)


def _table(value: object, check_one: Check) -> dict[str, Any]:
    made = {}
    for key, item in object_of(value).items():
        with _at(f"[{quoted(key)}]"):
            made[key] = check_one(item)
    return made


def _name_or_number(value: object) -> str | int:
    return text_of(value) if isinstance(value, str) else whole_of(value)


def _costs(data: Mapping[str, Any], graph: Graph, cluster: Cluster) -> Costs:
    place, count = "problem.costs", len(graph)
    names = ("seconds", "sources", "workspace_bytes", "tensor_seconds")
    given = _fields(data, dict.fromkeys(names, _same), place)

    def table(key: str, dtype: str) -> NDArray[Any]:
        columns = _by_name(given[key], cluster.names, lambda row: row_of(row, dtype, count), f"{place}.{key}")
        return np.stack(list(columns.values()), axis=1)

    sources = table("sources", SMALL)
    if sources.size and sources.max() > max(Source):
        raise Wrong(f"{place}.sources: must lie in 0..{max(Source)}, got {sources.max()}")
    tensors = given["tensor_seconds"]
    with _at(f"{place}.tensor_seconds"):
        tensor_seconds = None if tensors is None else row_of(tensors, SECONDS, graph.tensor_count)
    seconds = table("seconds", SECONDS)
    workspace = None if given["workspace_bytes"] is None else table("workspace_bytes", BYTES)
    with _at(place):
        return Costs(
            graph, cluster, seconds, workspace_bytes=workspace, sources=sources, tensor_seconds=tensor_seconds
        )


def _objective(data: Mapping[str, Any], graph: Graph) -> Objective:
    name = data.get("name")
    if name == "latency":
        checks: dict[str, Check] = {"name": text_of, "execution": text_of, "policy": _same, "pieces": text_of,
                                    "order": text_of}  # fmt: skip
        options = _fields(data, checks, "objective", ("execution", "policy", "pieces", "order"))
        options["policy"] = _policy(options.get("policy", "fifo"), graph)
        kind: type[Latency] | type[Throughput] = Latency
    elif name == "throughput":
        checks = {"name": text_of, "load": text_of, "microbatches": _or_none(count_of), "schedule": text_of,
                  "samples_per_update": count_of}  # fmt: skip
        options = _fields(
            data, checks, "objective", ("load", "microbatches", "schedule", "samples_per_update")
        )
        kind = Throughput
    else:
        raise Wrong(f"objective.name: must be latency or throughput, got {shown(name)}")
    del options["name"]
    with _at("objective"):
        return kind(**options)


def _policy(value: object, graph: Graph) -> Policy:
    if isinstance(value, dict):
        return _order(value, graph, 0, "objective.policy")
    if not isinstance(value, str) or value not in POLICIES:
        raise Wrong(f"objective.policy: must be one of {', '.join(POLICIES)}, got {shown(value)}")
    return POLICIES[value]()


# The answer


def _placement(problem: Problem, devices: object, order: object, replicas: object, place: str = "") -> Placement:
    prefix = f"{place}." if place else ""
    name = f"{place}.devices" if place else "placement"
    with _at(name):
        if isinstance(devices, dict):
            row = Placement.from_names(problem, _names(devices)).devices
        else:
            row = row_of(devices, SMALL, len(problem.graph))
            if row.size and row.max() >= len(problem.cluster):
                raise Wrong(f"device {row.max()} is given, there are {len(problem.cluster)}")
    served = _order(order, problem.graph, len(problem.cluster), f"{prefix}order") if order is not None else None
    with _at(f"{prefix}replicas"):
        groups = [[problem.cluster.index(device) for device in group] for group in _groups(replicas)]
    with _at(name):
        return Placement(problem, row, served, groups)


def _names(devices: Mapping[str, Any]) -> dict[str, str]:
    made = {}
    for operator, device in devices.items():
        with _at(f"[{quoted(operator)}]"):
            made[operator] = name_of(device)
    return made


def _order(data: object, graph: Graph, devices: int, place: str) -> Order:
    with _at(place):
        given = object_of(data)
    policy, operators, tensors = given.get("policy"), len(graph), graph.tensor_count
    with _at(place):
        if policy == "priority":
            row = _fields(
                given,
                {
                    "policy": text_of,
                    "position": _or_none(lambda value: row_of(value, INDICES, operators)),
                    "transfer_position": _or_none(lambda value: row_of(value, INDICES, tensors)),
                },
                place,
            )
            return Priority(row["position"], row["transfer_position"])
        if policy == "program_order":
            checks = {"policy": text_of, "order": _same, "length": count_of, "sends": flag_of}
            row = _fields(given, checks, place, ("length",))
            listed = row["order"]
            length = row.get("length", 0) if isinstance(listed, str) else len(list_of(listed or []))
            most = operators + tensors * devices
            if length > most:
                raise Wrong(f"lists {length} items where there are {most}")
            return ProgramOrder(None if listed is None else row_of(listed, INDICES, length), row["sends"])
    raise Wrong(f"{place}.policy: must be priority or program_order, got {shown(policy)}")


def _timing(repro: Mapping[str, Any], steps: int) -> tuple[float, NDArray[Any]]:
    """Seconds of the whole search and of every step of its trail; 0 where a file does not say."""
    with _at("repro.elapsed_seconds"):
        elapsed = _seconds_of(repro.get("elapsed_seconds", 0))
    with _at("repro.trail_seconds"):
        return elapsed, row_of(repro.get("trail_seconds", [0] * steps), SECONDS, steps)


def _trail(steps: Iterable[Any], timing: tuple[float, NDArray[Any]]) -> tuple[Improvement, ...]:
    made = []
    for number, (step, elapsed) in enumerate(zip(steps, timing[1].tolist(), strict=True)):
        with _at(f"trail[{number}]"):
            items = list_of(step)
            if len(items) != 4:
                raise Wrong(f"must be evaluations, value, bound and finder, got {len(items)} items")
            evaluations, value, bound, found_by = items
            made.append(
                Improvement(
                    elapsed, count_of(evaluations), _seconds_of(value), _seconds_of(bound), text_of(found_by)
                )
            )
    return tuple(made)


def _check_claims(solution: Solution, gap: float) -> None:
    if solution.bound_seconds > solution.objective_seconds:
        raise Wrong(
            f"bound_seconds: {solution.bound_seconds!r} is above objective_seconds, {solution.objective_seconds!r}"
        )
    if gap != solution.gap:
        raise Wrong(f"gap: value and bound make it {solution.gap!r}, the file says {gap!r}")


def _baseline(problem: Problem, data: object, place: str) -> Baseline:
    checks = {"name": name_of, "objective_seconds": _or_none(_seconds_of), "reason": text_of, "devices": _same,
              "order": _same, "replicas": _same}  # fmt: skip
    given = _fields(data, checks, place, ("order", "replicas"))
    value, devices = given["objective_seconds"], given["devices"]
    if (value is None) != (devices is None):
        raise Wrong(f"{place}: a value and devices come together or not at all")
    placement = None
    if devices is not None:
        placement = _placement(problem, devices, given.get("order"), given.get("replicas", []), place)
    return Baseline(given["name"], value, given["reason"], placement)


# Scores


def _scored(solution: Solution, *, sealed: bool) -> tuple[Solution, Trace]:
    """The solution with the value that the simulator finds; another one in the file is refused, or told if sealed."""
    trace = _run(solution.placement, "placement" if solution.placement.order is None else "order")
    found, claimed = trace.objective_seconds, solution.objective_seconds
    if not math.isfinite(found):
        raise Wrong(f"placement: cannot run: {'; '.join(str(problem) for problem in trace.problems)}")
    if not sealed and not trace.feasible:
        raise Wrong(f"placement: {'; '.join(str(problem) for problem in trace.problems)}")
    if found == claimed:
        return solution, trace
    if not sealed:
        raise Wrong(f"objective_seconds: the file says {claimed!r}, the simulator finds {found!r}")
    note = f"scored again: the file says {claimed!r} s, this version finds {found!r} s; its bound is left out"
    told = replace(
        solution, objective_seconds=found, bound_seconds=0.0, bound_name="", scope="", notes=(*solution.notes, note)
    )
    return told, trace


def _values(problem: Problem, baselines: Iterable[Baseline]) -> list[float | None]:
    """What the simulator finds for each rule, None for one without a placement; plain placements in one go."""
    values: list[float | None] = []
    plain: list[tuple[int, NDArray[np.uint8]]] = []
    for number, one in enumerate(baselines):
        placement = one.placement
        if placement is not None and placement.order is None and not placement.replicas:
            plain.append((number, placement.devices))
        values.append(None if placement is None else math.inf)
        if placement is not None and (placement.order is not None or placement.replicas):
            values[-1] = _run(placement, f"baselines[{number}]").objective_seconds
    if plain:
        with _at("baselines"):
            scores = simulate_many(problem, np.stack([row for _, row in plain]), memory="off")
        for (number, _), seconds in zip(plain, scores.seconds.tolist(), strict=True):
            values[number] = seconds
    return values


def _scored_baseline(one: Baseline, found: float | None, place: str, *, sealed: bool) -> Baseline:
    if found == one.objective_seconds or found is None:
        return one
    if not sealed:
        raise Wrong(f"{place}: the file says {one.objective_seconds!r}, the simulator finds {found!r}")
    return replace(one, objective_seconds=found if math.isfinite(found) else None)


def _run(placement: Placement, place: str) -> Trace:
    try:
        return simulate(placement.problem, placement)
    except (SteadError, ValueError, TypeError) as error:
        raise Wrong(f"{place}: cannot be simulated: {error}") from None
