"""Analytic costs: an operator is as slow as its arithmetic or its memory traffic, whichever takes longer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device
from stead.costs.table import Costs, Source
from stead.errors import BadCluster
from stead.graph import Graph


@dataclass(frozen=True, slots=True)
class Roofline:
    """`seconds = max(flops / FLOP/s, bytes / bandwidth) + launch`, per device, from peaks times efficiency.

    Operators without arithmetic and without traffic are free: they are views or bookkeeping and start no kernel.
    """

    def costs(self, graph: Graph, cluster: Cluster) -> Costs:
        """Price every operator on every device."""
        seconds = np.stack([self._column(graph, device) for device in cluster], axis=1)
        reasons = {
            (kind, device.name): f"{device.name} does not support {kind}"
            for device in cluster
            for kind in device.unsupported_kinds
        }
        sources = np.full(seconds.shape, Source.ANALYTIC, dtype=np.uint8)
        return Costs(graph, cluster, seconds, sources=sources, reasons=reasons)

    def _column(self, graph: Graph, device: Device) -> NDArray[np.float64]:
        """Seconds of every operator on one device."""
        compute = graph.flops / self._rates(graph, device)
        traffic = graph.moved_bytes / (device.bytes_per_second * device.efficiency.get("memory", 1.0))
        busy = np.maximum(compute, traffic)
        works = (graph.flops > 0) | (graph.moved_bytes > 0)
        seconds = np.where(works, busy + device.launch_seconds, 0.0)
        if device.unsupported_kinds:
            seconds[[kind in device.unsupported_kinds for kind in graph.kinds]] = np.inf
        return seconds

    def _rates(self, graph: Graph, device: Device) -> NDArray[np.float64]:
        """FLOP/s that each operator gets; infinite where it does no arithmetic."""
        by_dtype = {dtype: flop_rate(device, dtype) for dtype in set(graph.dtypes)}
        rates = np.array([by_dtype[dtype] for dtype in graph.dtypes], dtype=np.float64)
        rates[graph.flops == 0] = np.inf
        missing = np.flatnonzero(rates == 0)
        if missing.size:
            raise BadCluster(
                f"device {device.name} has no FLOP/s for {graph.dtypes[missing[0]]}, "
                f"which operator {graph.operator_names[missing[0]]!r} needs; add `flops` to its description"
            )
        return rates * device.efficiency.get("compute", 1.0)


def flop_rate(device: Device, dtype: str) -> float:
    """Best FLOP/s for operands of a dtype; 0 if unknown.

    A wider format can always stand in: a card that is slow at half precision computes in single precision instead.

    >>> flop_rate(Device("old", flops_per_second={"fp32": 11.8e12, "fp16": 0.18e12}), "fp16") / 1e12
    11.8
    """
    stand_ins = {
        "fp64": ("fp64",),
        "fp32": ("fp32", "fp64"),
        "tf32": ("tf32", "fp32"),
        "bf16": ("bf16", "tf32", "fp32"),
        "fp16": ("fp16", "tf32", "fp32"),
        "fp8": ("fp8", "fp16", "bf16", "tf32", "fp32"),
        "int8": ("int8", "fp16", "bf16", "tf32", "fp32"),
        "int4": ("int4", "int8", "fp16", "bf16", "tf32", "fp32"),
    }
    names = stand_ins.get(dtype, (dtype, "fp32"))
    return max((device.flops_per_second.get(name, 0.0) for name in names), default=0.0)
