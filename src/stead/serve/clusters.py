"""Clusters for the app: what a text of `--devices` comes to, and device files that come in and go out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stead.errors import BadInput, SteadError
from stead.serve.models import path_below
from stead.serve.store import Store

FOLDER = "clusters"
MOST_FILE_BYTES = 2**20


def resolved(store: Store, root: Path, text: str) -> str:
    """A description with its file, if it names one, as a path that may be read: below the root, or imported here."""
    from stead.cluster.describe import is_file_name, split_changes

    described, changes = split_changes(text)
    if not is_file_name(described):
        return text
    own = store.home / FOLDER
    path = (root / described).resolve()
    if not (path.parent == own and path.exists()):
        path = path_below(root, described)
    return "; ".join((str(path), *changes))


def imported(store: Store, text: str) -> str:
    """Keep a device file under its own hash; gives the description that names it."""
    from stead.cluster.device_file import cluster_from_toml

    if len(text.encode()) > MOST_FILE_BYTES:
        raise BadInput(f"a device file has at most {MOST_FILE_BYTES // 2**20} MiB here")
    cluster_from_toml(text, "the device file")
    folder = store.home / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def imported_object(store: Store, given: Mapping[str, Any]) -> str:
    """Keep a device file that came as an object; gives the description that names it."""
    from stead.cluster.device_file import cluster_from_json, cluster_to_toml

    try:
        text = json.dumps(given)
    except RecursionError:
        raise BadInput("the devices are nested too deeply; send a device file as JSON") from None
    return imported(store, cluster_to_toml(cluster_from_json(text, "devices")))


def as_toml(text: str) -> str:
    """The device file that says the same as a description."""
    from stead.cluster import cluster_from
    from stead.cluster.device_file import cluster_to_toml

    return cluster_to_toml(cluster_from(text)[0])


def repaired(text: str) -> str:
    """The description without changes of devices that it does not have any more, as after a card is taken away."""
    from stead.cluster import cluster_from
    from stead.cluster.changes import change_from
    from stead.cluster.describe import split_changes

    described, changes = split_changes(text)
    if not changes:
        return text
    cluster, _ = cluster_from(described)
    kept = []
    for one in changes:
        try:
            cluster = change_from(one, cluster).on(cluster)
        except SteadError:
            continue
        kept.append(one)
    return "; ".join((described, *kept))


def checked(text: str) -> dict[str, Any]:
    """Devices and links of a description, how it was understood, and whether a file says it."""
    from stead.cluster import cluster_from
    from stead.cluster.describe import is_file_name
    from stead.cluster.link_kinds import fabric_between, kind_of, usual_kinds

    cluster, lines = cluster_from(text)
    by_name = {one.name: one for one in cluster}
    fabrics = {
        (one.source, one.target): fabric_between(by_name[one.source], by_name[one.target]) for one in cluster.links
    }
    return {
        "devices": [
            {
                "name": one.name, "model": one.model, "kind": one.kind, "memory_bytes": one.memory_bytes,
                "reserve_bytes": one.reserve_bytes, "usable_bytes": one.usable_bytes,
                "bytes_per_second": one.bytes_per_second if math.isfinite(one.bytes_per_second) else None,
            }
            for one in cluster
        ],
        "links": [
            {"source": one.source, "target": one.target, "latency_seconds": one.latency_seconds,
             "bytes_per_second": one.bytes_per_second if math.isfinite(one.bytes_per_second) else None,
             "kind": kind_of(one, cluster), "fabric": getattr(fabrics[one.source, one.target], "name", "")}
            for one in cluster.links
        ],
        "kinds": [kind.name for kind in usual_kinds()],
        "said": list(lines), "file": is_file_name(text),
    }  # fmt: skip
