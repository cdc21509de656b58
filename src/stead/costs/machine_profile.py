"""The profile of a machine: what `stead profile` measured, one table per device, and the devices and links themselves.

    {"format": "stead.profile", "version": 2, "source": "measured",
     "made": {"model": ..., "executor": ..., "timing_mode": ..., ...},       how, where and when
     "machine": {"device": [...], "link": [...]},                            as a cluster file says it
     "devices": {"core 0": {"operators": {name: seconds},
                            "error_bars": {name: [n, minimum, quartile, median, spread]},
                            "total": [n, minimum, quartile, median, spread]}},
     "links": [{"from": ..., "to": ..., "bytes": ..., "seconds": ..., "samples": ...}],
     "warnings": [...]}

It is complete: `stead place MODEL --profile costs.json` needs no other description of the devices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stead.cluster import Cluster
from stead.cluster.device_file import cluster_from_json, cluster_to_json
from stead.costs.profiles import FORMAT, MACHINE_VERSION, Profile, bar_data, own_document, profile_from_table
from stead.errors import BadInput
from stead.files import write_text
from stead.printing.wording import one_line, shown_path

UNSTEADY = 0.10  # of the median: a profile whose totals spread by more says little


@dataclass(frozen=True, slots=True)
class LinkSample:
    """How long so many bytes took from one device to another."""

    source: str
    target: str
    size_bytes: int
    seconds: float
    samples: int


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """Profiles of the devices of one machine, with the devices and what is known of their links."""

    cluster: Cluster
    profiles: tuple[Profile, ...]  # by the names of devices
    links: tuple[LinkSample, ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def is_machine_profile(path: str | Path) -> bool:
    """Whether a file in stead's own form describes a machine; BadInput where it is no profile in that form."""
    return own_document(path).get("version") == MACHINE_VERSION


def read_machine_profile(path: str | Path) -> MachineProfile:
    """The profile of a machine in a file."""
    place, data = shown_path(path), own_document(path)
    if data.get("version") != MACHINE_VERSION:
        raise BadInput(f"{place}: a profile of one device; give it as FILE@DEVICE")
    tables = data.get("devices")
    if not isinstance(tables, dict) or not tables or not all(isinstance(one, dict) for one in tables.values()):
        raise BadInput(f"{place}: devices must map the names of devices to what was measured there")
    cluster = cluster_from_json(json.dumps(data.get("machine")), f"{place}: machine")
    for name in tables:
        if name not in cluster.names:
            raise BadInput(f"{place}: {one_line(name, 60)!r} was measured but is no device of the machine")
    profiles = tuple(
        profile_from_table({**table, "source": data.get("source")}, f"{place}: {one_line(name, 60)}", name)
        for name, table in tables.items()
    )
    links = tuple(_link(entry, f"{place}: link {i}") for i, entry in enumerate(_list(data, "links", place), 1))
    made = data.get("made", {})
    if not isinstance(made, dict):
        raise BadInput(f"{place}: made must be a table of words")
    warnings = tuple(str(one) for one in _list(data, "warnings", place))
    return MachineProfile(cluster, profiles, links, {str(k): str(v) for k, v in made.items()}, warnings)


def write_machine_profile(profile: MachineProfile, path: str | Path) -> None:
    """Write the profile of a machine, so that nothing is lost."""
    document = {
        "format": FORMAT,
        "version": MACHINE_VERSION,
        "source": "measured",
        "made": dict(profile.made),
        "warnings": list(profile.warnings),
        "machine": json.loads(cluster_to_json(profile.cluster)),
        "devices": {one.device: _table(one) for one in profile.profiles},
        "links": [
            {"from": one.source, "to": one.target, "bytes": one.size_bytes, "seconds": one.seconds,
             "samples": one.samples}
            for one in profile.links
        ],
    }  # fmt: skip
    write_text(path, json.dumps(document, indent=1) + "\n")


def _table(profile: Profile) -> dict[str, Any]:
    table: dict[str, Any] = {"operators": dict(profile.by_name)}
    if profile.by_kind:
        table["kinds"] = dict(profile.by_kind)
    if profile.samples:
        table["samples"] = dict(profile.samples)
    if profile.error_bars:
        table["error_bars"] = {name: bar_data(bar) for name, bar in profile.error_bars.items()}
    return table | ({} if profile.total is None else {"total": bar_data(profile.total)})


def _list(data: Mapping[str, Any], key: str, place: str) -> list[Any]:
    found = data.get(key, [])
    if not isinstance(found, list):
        raise BadInput(f"{place}: {key} must be a list")
    return found


def _link(entry: Any, place: str) -> LinkSample:
    try:
        return LinkSample(
            str(entry["from"]), str(entry["to"]), int(entry["bytes"]), float(entry["seconds"]), int(entry["samples"])
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BadInput(f"{place}: needs from, to, bytes, seconds and samples, got {str(entry)[:80]!r}") from None
