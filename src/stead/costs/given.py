"""Costs that a file gives, by device name, model or kind, with another source for the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device
from stead.costs.costs import Costs, CostSource, Source
from stead.costs.roofline import Roofline
from stead.errors import BadInput
from stead.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Seconds read from a file.

    `columns` maps a device name, a catalogue model, a device kind or "*" (every device) to seconds per operator: NaN
    where the file is silent, inf where the operator cannot run. `workspace` maps the same to bytes, -1 where the file
    is silent. The most specific column that speaks wins; `rest` prices what no column does.
    """

    columns: dict[str, NDArray[np.float64]]  # each [operator]
    workspace: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # each [operator]
    tensor_seconds: NDArray[np.float64] | None = None  # [tensor]
    source: Source = Source.IMPORTED
    rest: CostSource = field(default_factory=Roofline)

    def costs(self, graph: Graph, cluster: Cluster) -> Costs:
        """Price every operator on every device."""
        seconds = np.full((len(graph), len(cluster)), np.nan)
        workspace = np.full(seconds.shape, -1, dtype=np.int64)
        for d, device in enumerate(cluster):
            for key in _keys(device):
                if key in self.columns:
                    silent = np.isnan(seconds[:, d])
                    seconds[silent, d] = self.columns[key][silent]
                if key in self.workspace:
                    silent = workspace[:, d] < 0
                    workspace[silent, d] = self.workspace[key][silent]
        workspace = np.maximum(workspace, 0)
        sources = np.full(seconds.shape, self.source, dtype=np.uint8)
        silent = np.isnan(seconds)
        reasons: dict[tuple[str, str], str] = {}
        if silent.any():
            self._check_rest(graph, cluster, silent)
            rest = self.rest.costs(graph, cluster)
            seconds[silent], sources[silent] = rest.seconds[silent], rest.sources[silent]
            reasons = {
                (kind, device.name): rest.reason(kind, device.name)
                for device in cluster
                for kind in device.unsupported_kinds
            }
        return Costs(
            graph, cluster, seconds, workspace_bytes=workspace, sources=sources,
            tensor_seconds=self.tensor_seconds, reasons=reasons,
        )  # fmt: skip

    def _check_rest(self, graph: Graph, cluster: Cluster, silent: NDArray[np.bool_]) -> None:
        """Operators timed on some devices and without FLOPs or bytes must not come out free on the others."""
        timed = np.zeros(len(graph), dtype=bool)
        for column in self.columns.values():
            timed |= np.isfinite(column) & (column > 0)
        unknown = silent & (timed & (graph.flops == 0) & (graph.moved_bytes == 0))[:, None]
        if unknown.any():
            v, d = (int(i) for i in np.argwhere(unknown)[0])
            raise BadInput(
                f"operator {graph.operator_names[v]!r}: the file times it on {', '.join(self.columns)} but not on "
                f"{cluster.names[d]}; add seconds for {cluster.devices[d].kind!r}, or its flops and bytes"
            )


def _keys(device: Device) -> tuple[str, ...]:
    """Names under which a file may speak about a device, most specific first."""
    return tuple(dict.fromkeys(key for key in (device.name, device.model, device.kind, "*") if key))
