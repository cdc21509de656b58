"""Links from the connection matrix that `nvidia-smi topo -m` prints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from stead.cluster.catalogue import lookup
from stead.cluster.devices import Cluster, Device, Link
from stead.cluster.quantities import show
from stead.errors import BadCluster

_NVLINK_BYTES_PER_SECOND = 25e9  # one link each way, where the catalogue does not know the card
_PATHS = {"PIX": 10e-6, "PXB": 10e-6, "PHB": 10e-6, "NODE": 10e-6, "SYS": 20e-6}  # latency, an assumption


def links_from_topology(text: str, devices: Iterable[Device]) -> tuple[Link, ...]:
    """Links between GPUs from the matrix that `nvidia-smi topo -m` prints.

    GPU0, GPU1, ... are the devices of kind "gpu" in order. `NV4` is four NVLinks of the card's kind; the
    other paths run at the narrower PCI Express port, with 10 us latency, 20 us across processors (SYS).
    """
    gpus = [device for device in devices if device.kind == "gpu"]
    matrix = _matrix(text)
    if len(matrix) != len(gpus):
        raise BadCluster(
            f"the topology shows {len(matrix)} GPUs, the cluster has {len(gpus)}; they must be the same"
        )
    links = []
    for i, source in enumerate(gpus):
        for j, target in enumerate(gpus):
            if i != j and matrix[i][j] != "DIS":
                links.append(_topology_link(source, target, matrix[i][j], f"topology: GPU{i} to GPU{j}"))
    return tuple(links)


def with_topology(cluster: Cluster, text: str) -> Cluster:
    """The cluster with the links between its GPUs replaced by those of `nvidia-smi topo -m`."""
    found = links_from_topology(text, cluster)
    gpus = {device.name for device in cluster if device.kind == "gpu"}
    kept = [link for link in cluster.links if not {link.source, link.target} <= gpus]
    order = {name: d for d, name in enumerate(cluster.names)}
    links = sorted((*kept, *found), key=lambda link: (order[link.source], order[link.target]))
    return replace(cluster, links=tuple(links))


def _matrix(text: str) -> list[list[str]]:
    """Connections by row and column of the GPUs."""
    if len(text) > 2**20:
        raise BadCluster("the topology has more than 1 MiB; give the output of `nvidia-smi topo -m`")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in text.splitlines()]
    header = next((words for words in lines if words[:1] == ["GPU0"] and words[1:2] != ["X"]), None)
    if header is None:
        raise BadCluster("no line with GPU0 at its start; give the output of `nvidia-smi topo -m`")
    columns = [i for i, word in enumerate(header) if re.fullmatch(r"GPU\d+", word)]
    rows = {words[0]: words[1:] for words in lines if words and words[0] in header and words is not header}
    matrix = []
    for i in columns:
        cells = rows.get(header[i], [])
        if len(cells) <= columns[-1] or cells[i] != "X":
            raise BadCluster(f"topology: the row of {header[i]} is missing or does not fit the header")
        matrix.append([cells[j] for j in columns])
    return matrix


def _topology_link(source: Device, target: Device, path: str, place: str) -> Link:
    rows = [lookup(device.model) if device.model else None for device in (source, target)]
    nvlinks = re.fullmatch(r"NV([1-9]\d?)", path)
    if nvlinks:
        fabrics = [row.fabric for row in rows if row is not None and row.fabric is not None]
        each = min((fabric.link_bytes_per_second for fabric in fabrics), default=_NVLINK_BYTES_PER_SECOND)
        return Link(source.name, target.name, int(nvlinks[1]) * each, 10e-6)
    if path not in _PATHS:
        raise BadCluster(
            f"{place}: unknown connection {show(path)}; known are X, NV<n>, {', '.join(_PATHS)}, DIS"
        )
    ports = [row.pcie_bytes_per_second for row in rows if row is not None and row.pcie_bytes_per_second]
    if not ports:
        raise BadCluster(
            f"{place}: no PCI Express rate is known for these cards; give the links in a cluster file"
        )
    return Link(source.name, target.name, min(ports), _PATHS[path])
