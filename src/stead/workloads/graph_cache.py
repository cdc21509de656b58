"""Where graphs of the zoo come from: files that ship with stead, the user's cache, or a new capture.

A file of the cache is named after everything that could change the graph: the spec, the versions of stead and
torch, and the source of the models and of the capture. It is read with all checks of a foreign file; what does not
pass is made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stead.errors import BadInput, MissingExtra
from stead.graph import Graph
from stead.readers.native.npz import GraphNpz, write_npz

if TYPE_CHECKING:
    from stead.workloads.zoo import Spec

SHIPPED = Path(__file__).parent / "shipped"
CATALOGUE = SHIPPED / "catalogue.json"
_PACKAGE = Path(__file__).parent.parent
_SOURCES = ("graph/*.py", "readers/common/*.py", "readers/torch/*.py", "workloads/models/*.py")  # make captured graphs


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known about a model without capturing it."""

    name: str  # as `parse` takes it
    fingerprint: str  # of the spec
    operators: int
    tensors: int
    parameters: int
    flops: float
    graph: str  # fingerprint of the graph
    file: str  # of the graph


@cache
def catalogue() -> dict[str, Entry]:
    """Known models by the fingerprints of their specs."""
    return {row["fingerprint"]: Entry(**row) for row in _catalogue_file()["graphs"]}


def catalogue_torch() -> str:
    """The version of torch that captured what ships."""
    return str(_catalogue_file()["torch"])


def _catalogue_file() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(CATALOGUE.read_text())
    return document


def graph_of(spec: Spec) -> Graph:
    """The graph of a spec: shipped, cached, or captured and then cached."""
    shipped = shipped_graph(spec)
    if shipped is not None:
        return shipped
    path = cache_file(spec)
    cached = _cached(spec, path)
    if cached is not None:
        return cached
    graph = spec.capture()
    _store(path, graph)
    return graph


def shipped_graph(spec: Spec) -> Graph | None:
    """The graph that ships with stead; None if there is none."""
    entry = catalogue().get(spec.fingerprint)
    if entry is None:
        return None
    graph = GraphNpz().read(SHIPPED / entry.file).graph
    if graph.fingerprint != entry.graph:
        raise BadInput(
            f"{SHIPPED / entry.file}: not the graph that stead was built with; install stead again"
        )
    return graph


def cache_folder() -> Path:
    """STEAD_CACHE, or the folder `stead` in the user's cache folder."""
    if own := os.environ.get("STEAD_CACHE"):
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stead"
    except RuntimeError:  # a user without a home, as in some containers: nothing can be kept
        return Path(os.devnull)


def cache_file(spec: Spec) -> Path:
    """Where the graph of a spec is kept; MissingExtra if there is no torch, which decides what it looks like."""
    torch = torch_version()
    if not torch:
        purpose = f"the graph of {spec} does not come with stead, and capturing it"
        raise MissingExtra("torch", "torch", purpose)
    parts = (metadata.version("stead"), torch, spec.fingerprint, _sources())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    return cache_folder() / "graphs" / f"{spec.name}-{key}.npz"


def torch_version() -> str:
    """The version of torch without importing it; empty if it is not installed."""
    try:
        return metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        for file in sorted(_PACKAGE.glob(pattern)):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _cached(spec: Spec, path: Path) -> Graph | None:
    """The graph in a file of the cache; None if it is missing, damaged or of something else."""
    if not os.path.exists(path):  # unlike Path.exists, it takes no offence at closed folders
        return None
    try:
        graph = GraphNpz().read(path).graph
    except BadInput:
        return None
    return graph if graph.name == spec.name and graph.is_training == (spec.mode == "training") else None


def _store(path: Path, graph: Graph) -> None:
    """Put a graph into the cache as a whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError, BadInput):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npz(path, graph)
