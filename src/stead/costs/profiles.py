"""Profiles: seconds that somebody measured, by operator name or by kind of operator.

Four kinds of file are understood, told apart by their content:

| file | what is taken |
|---|---|
| ONNX Runtime profile (`enable_profiling`) | events of category Node: `<node>_kernel_time`, `dur` in microseconds |
| torch profiler (`export_chrome_trace`) | complete events of category cpu_op or kernel, by ATen name |
| OpenVINO counters, as a list of `{"node_name", "node_type", "real_time"}` | executed nodes, microseconds |
| stead's own: JSON `{"format": "stead.profile", "operators": {name: seconds}}` or CSV `name,seconds` | as given |
| stead's own for a whole machine, as `stead profile` writes it (`machine_profile.py`) | the table of one device |
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.costs.costs import Source
from stead.costs.error_bars import ErrorBar
from stead.errors import BadInput
from stead.files import read_text, write_text
from stead.graph import Graph
from stead.printing.wording import one_line, shown_path

FORMAT, VERSION, MACHINE_VERSION = "stead.profile", 1, 2
_SUFFIXES = re.compile(r"(_kernel_time|_fence_before|_fence_after)$")
_HASH = re.compile(r"_\d{6,}$")  # decimal hashes that runtimes append to names


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds of operators on one device (its name, model or kind), and how many samples each has."""

    device: str
    by_name: Mapping[str, float] = field(default_factory=dict)
    by_kind: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[str, int] = field(default_factory=dict)  # by the same names and kinds
    source: Source = Source.IMPORTED
    origin: str = ""  # what kind of file it came from
    error_bars: Mapping[str, ErrorBar] = field(default_factory=dict)  # by name of operator, where they are known
    total: ErrorBar | None = None  # of whole runs

    def column(self, graph: Graph) -> NDArray[np.float64]:  # [operator]
        """Seconds of the operators of a graph; NaN where the profile is silent."""
        by_name = {plain_name(name): seconds for name, seconds in self.by_name.items()}
        by_kind = {plain_kind(kind): seconds for kind, seconds in self.by_kind.items()}
        column = np.full(len(graph), np.nan)
        for v, (name, kind) in enumerate(zip(graph.operator_names, graph.kinds, strict=True)):
            seconds = by_name.get(plain_name(name))
            if seconds is None and by_kind:
                seconds = by_kind.get(plain_kind(kind))
            if seconds is not None:
                column[v] = seconds
        return column


def plain_name(name: str) -> str:
    """A name without what runtimes append to it.

    >>> plain_name("/model/layers.0/MatMul_kernel_time"), plain_name("conv1_123456789")
    ('/model/layers.0/MatMul', 'conv1')
    """
    return _HASH.sub("", _SUFFIXES.sub("", name))


def plain_kind(kind: str) -> str:
    """A kind of operator as all frameworks' spellings of it compare.

    >>> plain_kind("aten::addmm") == plain_kind("aten.addmm.default")
    True
    """
    return kind.replace("::", ".").removesuffix(".default").casefold()


def read_profile(path: str | Path, *, device: str) -> Profile:
    """The profile in a file, for a device given by name, model or kind."""
    place = shown_path(path)
    text = _text(path, place)
    if text.lstrip()[0] not in "[{":
        return _from_csv(text, place, device)
    return _from_json(_json(text, place), place, device)


def own_document(path: str | Path) -> dict[str, Any]:
    """What a file in stead's own form holds; BadInput for any other, which does not say whom it is about."""
    place = shown_path(path)
    text = _text(path, place)
    data = _json(text, place) if text.lstrip()[0] in "[{" else None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BadInput(f"{place}: does not say which device it is about; give it as FILE@DEVICE")
    return data


def _text(path: str | Path, place: str) -> str:
    text = read_text(path, too_large="profile fewer runs")
    if not text.strip():
        raise BadInput(f"{place}: the profile is empty")
    return text


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place}: not JSON: {one_line(str(error), 200)}") from None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is given twice; keep one")
    return made


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile in stead's own form."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "device": profile.device,
        "source": profile.source.label,
        "operators": dict(profile.by_name),
        "kinds": dict(profile.by_kind),
        "samples": dict(profile.samples),
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def _from_json(data: Any, place: str, device: str) -> Profile:
    if isinstance(data, dict) and data.get("format") == FORMAT:
        return _own(data, place, device)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if isinstance(events, list) and events and all(isinstance(event, dict) for event in events):
        if any(event.get("cat") == "Node" for event in events):
            return _onnxruntime(events, place, device)
        if any("node_name" in event for event in events):
            return _openvino(events, place, device)
        if any(event.get("cat") in ("cpu_op", "kernel") for event in events):
            return _torch(events, place, device)
    raise BadInput(
        f"{place}: no profile that stead knows; it reads those of ONNX Runtime, OpenVINO, torch and its own"
    )


def _own(data: Mapping[str, Any], place: str, device: str) -> Profile:
    version = data.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= MACHINE_VERSION:
        raise BadInput(
            f"{place}: a profile of version {str(version)[:40]!r}; this stead reads up to {MACHINE_VERSION}"
        )
    if version == MACHINE_VERSION:
        measured = data.get("devices")
        if not isinstance(measured, dict) or not all(isinstance(one, dict) for one in measured.values()):
            raise BadInput(f"{place}: devices must map the names of devices to what was measured there")
        if device not in measured:
            names = ", ".join(one_line(name, 60) for name in measured)
            raise BadInput(f"{place}: measured {names}, not {device!r}; leave @{device} out to take all of them")
        data, place = {**measured[device], "source": data.get("source")}, f"{place}: {one_line(device, 60)}"
    return profile_from_table(data, place, device)


def profile_from_table(data: Mapping[str, Any], place: str, device: str) -> Profile:
    """The profile of one device from plain data; `place` is what errors call it."""
    tables = {}
    for key in ("operators", "kinds", "samples"):
        table = data.get(key, {})
        if not isinstance(table, dict):
            raise BadInput(f"{place}: {key} must map names to numbers")
        tables[key] = {
            name: _seconds(value, f"{place}: {key}: {one_line(name, 60)!r}") for name, value in table.items()
        }
    if not tables["operators"] and not tables["kinds"]:
        raise BadInput(f"{place}: the profile times no operator")
    source = Source.MEASURED if data.get("source") == "measured" else Source.IMPORTED
    samples = {name: int(count) for name, count in tables["samples"].items()}
    bars = data.get("error_bars", {})
    if not isinstance(bars, dict):
        raise BadInput(f"{place}: error_bars must map names to [n, minimum, quartile, median, spread]")
    error_bars = {name: _bar(bar, f"{place}: error_bars: {one_line(name, 60)!r}") for name, bar in bars.items()}
    total = _bar(data["total"], f"{place}: total") if "total" in data else None
    return Profile(
        device, tables["operators"], tables["kinds"], samples, source, "stead profile", error_bars, total
    )


def bar_data(bar: ErrorBar) -> list[float]:
    """An error bar as files hold it."""
    return [bar.samples, bar.minimum_seconds, bar.quartile_seconds, bar.median_seconds, bar.spread_seconds]


def _bar(given: Any, place: str) -> ErrorBar:
    if not isinstance(given, list) or len(given) != 5:
        raise BadInput(f"{place}: needs [n, minimum, quartile, median, spread], got {str(given)[:40]!r}")
    count, *seconds = (_seconds(number, place) for number in given)
    return ErrorBar(int(count), *seconds)


def _from_csv(text: str, place: str, device: str) -> Profile:
    rows = csv.DictReader(io.StringIO(text))
    try:
        columns = set(rows.fieldnames or ())
    except csv.Error as error:
        raise BadInput(f"{place}: line 1: not CSV: {error}") from None
    if not {"name", "seconds"} <= columns:
        raise BadInput(f"{place}: a profile in CSV needs the columns name and seconds")
    samples: dict[str, list[float]] = {}
    try:
        for number, row in enumerate(rows, start=2):
            seconds = _seconds(row["seconds"], f"{place}: line {number}")
            samples.setdefault(row["name"] or "", []).append(seconds)
    except csv.Error as error:
        raise BadInput(f"{place}: line {rows.line_num + 1}: not CSV: {error}") from None
    return _gathered(device, samples, {}, place, "CSV")


def _onnxruntime(events: Iterable[Mapping[str, Any]], place: str, device: str) -> Profile:
    """Kernel times of nodes; the name of an event is the node's with a suffix."""

    def chosen(event: Mapping[str, Any]) -> bool:
        return event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time")

    samples = _microseconds(events, place, chosen, lambda event: plain_name(str(event["name"])), "dur")
    return _gathered(device, samples, {}, place, "ONNX Runtime profile")


def _openvino(events: Iterable[Mapping[str, Any]], place: str, device: str) -> Profile:
    def chosen(event: Mapping[str, Any]) -> bool:
        return "node_name" in event and str(event.get("status", "EXECUTED")).upper().endswith("EXECUTED")

    samples = _microseconds(events, place, chosen, lambda event: str(event["node_name"]), "real_time")
    return _gathered(device, samples, {}, place, "OpenVINO counters")


def _torch(events: Iterable[Mapping[str, Any]], place: str, device: str) -> Profile:
    """ATen operators by name; a profile of eager torch knows no nodes, only kinds."""

    def chosen(event: Mapping[str, Any]) -> bool:
        return event.get("ph") == "X" and str(event.get("name", "")).startswith("aten::")

    samples = _microseconds(events, place, chosen, lambda event: str(event["name"]), "dur")
    return _gathered(device, {}, samples, place, "torch profile")


def _microseconds(
    events: Iterable[Mapping[str, Any]],
    place: str,
    chosen: Callable[[Mapping[str, Any]], bool],
    name: Callable[[Mapping[str, Any]], str],
    key: str,
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {}
    for number, event in enumerate(events):
        if chosen(event):
            seconds = _seconds(event.get(key), f"{place}: event {number}: {key}") * 1e-6
            samples.setdefault(name(event), []).append(seconds)
    return samples


def _gathered(
    device: str, names: Mapping[str, list[float]], kinds: Mapping[str, list[float]], place: str, origin: str
) -> Profile:
    if not names and not kinds:
        raise BadInput(f"{place}: the profile times no operator")
    everything = {**names, **kinds}
    return Profile(
        device,
        {name: median(values) for name, values in names.items()},
        {kind: median(values) for kind, values in kinds.items()},
        {name: len(values) for name, values in everything.items()},
        Source.IMPORTED,
        origin,
    )


def _seconds(value: Any, place: str) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{place}: needs a number, got {str(value)[:40]!r}") from None
    if not (math.isfinite(number) and number >= 0):
        raise BadInput(f"{place}: needs a finite number of at least 0, got {number}")
    return number
