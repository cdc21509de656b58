"""Analytic costs: an operator is as slow as its arithmetic or its memory traffic, whichever takes longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device
from stead.cluster.classes import equal_devices
from stead.cluster.precision import Precision, precision_of
from stead.costs.costs import Costs, Source
from stead.errors import BadCluster
from stead.graph import Graph


@dataclass(frozen=True, slots=True)
class Roofline:
    """`seconds = max(flops / FLOP/s, bytes / bandwidth) + launch`, per device, from peaks times efficiency.

    FLOP/s and bytes are those of the type that a device really computes in (`stead.cluster.precision`). An operator of
    several kernels takes as long as all of them, each limited in its own way and launched as often as the graph
    expects. Operators without arithmetic and without traffic are free: they are views or bookkeeping and start no
    kernel.
    """

    def costs(self, graph: Graph, cluster: Cluster) -> Costs:
        """Price every operator on every device."""
        columns, firsts = equal_devices(cluster)
        seconds = np.stack([self._column(graph, cluster.devices[d]) for d in firsts], axis=1)
        reasons = {
            (kind, device.name): f"{device.name} does not support {kind}"
            for device in cluster
            for kind in device.unsupported_kinds
        }
        dtypes = sorted(set(graph.dtypes))
        for device in cluster:
            for dtype, precision in _precisions(dtypes, device).items():
                if not precision.supported:
                    kinds = {kind for kind, own in zip(graph.kinds, graph.dtypes, strict=True) if own == dtype}
                    for kind in kinds:
                        reasons.setdefault((kind, device.name), f"{device.name} does not support {dtype}")
        sources = np.full(seconds.shape, Source.ANALYTIC, dtype=np.uint8)
        return Costs(graph, cluster, seconds, sources=sources, reasons=reasons, columns=columns)

    def _column(self, graph: Graph, device: Device) -> NDArray[np.float64]:
        """Seconds of every operator on one device."""
        precisions = _precisions(sorted(set(graph.dtypes)), device)
        rates = self._rates(graph, device, precisions)
        shares = _by_operator(graph, {dtype: one.moved_share for dtype, one in precisions.items()})
        bandwidth = device.bytes_per_second * device.efficiency.get("memory", 1.0)
        works = (graph.flops > 0) | (graph.moved_bytes > 0)
        kernels = graph.kernels
        if kernels is None:
            busy = np.maximum(graph.flops / rates, graph.moved_bytes * shares / bandwidth)
            seconds = np.where(works, busy + device.launch_seconds, 0.0)
        else:
            own = kernels.operator
            busy = np.maximum(kernels.flops / rates[own], kernels.moved_bytes * shares[own] / bandwidth)
            busy += kernels.launches * device.launch_seconds
            seconds = np.bincount(own, weights=busy, minlength=len(graph))
        if device.unsupported_kinds:
            seconds[[kind in device.unsupported_kinds for kind in graph.kinds]] = np.inf
        lacking = [dtype for dtype, one in precisions.items() if not one.supported]
        if lacking:
            seconds[works & np.isin(np.array(graph.dtypes), lacking)] = np.inf
        return seconds

    def _rates(
        self, graph: Graph, device: Device, precisions: Mapping[str, Precision]
    ) -> NDArray[np.float64]:
        """FLOP/s that each operator gets; infinite where it does no arithmetic."""
        rates = _by_operator(graph, {dtype: one.flops_per_second for dtype, one in precisions.items()})
        rates[graph.flops == 0] = np.inf
        missing = np.flatnonzero(rates == 0)
        if missing.size:
            raise BadCluster(
                f"device {device.name} has no FLOP/s for {graph.dtypes[missing[0]]}, "
                f"which operator {graph.operator_names[missing[0]]!r} needs; add `flops` to its description"
            )
        return rates * device.efficiency.get("compute", 1.0)


def precision_notes(graph: Graph, cluster: Cluster) -> tuple[str, ...]:
    """A sentence for every type of numbers in a graph that devices do not compute natively.

    >>> from stead.cluster import cluster_from
    >>> from stead.graph import GraphBuilder
    >>> build = GraphBuilder()
    >>> _ = build.operator("a", flops=1e9, dtype="fp32")
    >>> precision_notes(build.build(), cluster_from("cpu + NPU")[0])
    ('fp32 on NPU is converted to fp16',)
    """
    works = (graph.flops > 0) | (graph.moved_bytes > 0)
    used = {dtype for dtype, busy in zip(graph.dtypes, works, strict=True) if busy}
    names: dict[tuple[str, str], list[str]] = {}  # (dtype, what becomes of it): devices
    for device in cluster:
        for dtype, precision in _precisions(sorted(used), device).items():
            if precision.told:
                names.setdefault((dtype, precision.told), []).append(device.name)
    return tuple(f"{dtype} on {_some(on)} is {told}" for (dtype, told), on in sorted(names.items()))


def _precisions(dtypes: Sequence[str], device: Device) -> dict[str, Precision]:
    return {dtype: precision_of(device, dtype) for dtype in dtypes}


def _by_operator(graph: Graph, by_dtype: Mapping[str, float]) -> NDArray[np.float64]:
    return np.array([by_dtype[dtype] for dtype in graph.dtypes], dtype=np.float64)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown
