"""Costs of the same graph on a changed cluster: what is known stays, what changes is priced anew.

A device whose costs are analytic gets those of its new figures. One whose costs were measured or given keeps them,
times the ratio of analytic seconds after and before: the correction that a measurement found is assumed to hold.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device
from stead.costs.costs import Costs, Source
from stead.costs.roofline import Roofline
from stead.errors import BadInput, SteadError
from stead.graph import Graph


def repriced(graph: Graph, before: Cluster, costs: Costs, after: Cluster) -> Costs:
    """The costs on another cluster, device by device of the same name."""
    shape = len(graph), len(after)
    seconds, sources = np.zeros(shape), np.zeros(shape, dtype=np.uint8)
    workspace = np.zeros(shape, dtype=np.int64)
    for d, device in enumerate(after):
        if device.name not in before.names:
            seconds[:, d] = _analytic(graph, device, "it is new")
            continue
        old = before.index(device.name)
        known = costs.seconds[:, old]
        workspace[:, d], sources[:, d] = costs.workspace_bytes[:, old], costs.sources[:, old]
        if _as_fast(before.devices[old], device):
            seconds[:, d] = known
        else:
            seconds[:, d] = _scaled(graph, known, before.devices[old], device)
            sources[:, d] = Source.ANALYTIC
    reasons = {key: reason for key, reason in costs.reasons.items() if key[1] in after.names}
    return Costs(
        graph,
        after,
        seconds,
        workspace_bytes=workspace,
        sources=sources,
        tensor_seconds=costs.tensor_seconds,
        reasons=reasons,
    )


def is_analytic(graph: Graph, cluster: Cluster, costs: Costs) -> bool:
    """Whether the costs are those of the data sheets alone, so that another graph can be priced alike."""
    try:
        return bool(np.array_equal(Roofline().costs(graph, cluster).seconds, costs.seconds))
    except SteadError:
        return False


def _as_fast(one: Device, other: Device) -> bool:
    """Whether two devices differ in nothing but memory."""
    same = replace(other, memory_bytes=one.memory_bytes, reserve_bytes=one.reserve_bytes)
    return one.as_dict() == same.as_dict()


def _scaled(graph: Graph, known: NDArray[np.float64], one: Device, other: Device) -> NDArray[np.float64]:
    """Seconds on a device that is no longer what it was."""
    was, now = _analytic(graph, one, "it changes"), _analytic(graph, other, "it changes")
    if np.array_equal(was, known):
        return now
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(was > 0, now / was, 1.0)
    scaled: NDArray[np.float64] = np.where(np.isfinite(known), known * ratio, np.inf)
    return scaled


def _analytic(graph: Graph, device: Device, why: str) -> NDArray[np.float64]:
    if not graph.flops.any() and not graph.moved_bytes.any():
        raise BadInput(
            f"{device.name} cannot be priced, and {why}: the graph says nothing of FLOPs and bytes, as its costs came "
            "with it; memory and links can be changed"
        )
    column: NDArray[np.float64] = Roofline().costs(graph, Cluster((device,))).seconds[:, 0]
    return column
