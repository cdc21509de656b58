"""Analytic costs corrected by measured ones.

Notation    v operator, k its kind, a[v] analytic seconds, m[v] measured seconds
    r[k]    geometric mean of m[v] / a[v] over the measured operators of kind k, drawn towards the mean over all
            kinds while there are few of them: log r[k] = (n[k] log mean[k] + PRIOR log mean) / (n[k] + PRIOR)
    e       root mean square of log(m[v] / (r[k] a[v])): what the correction leaves unexplained
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device
from stead.costs.costs import Costs, CostSource
from stead.costs.profiles import Profile
from stead.costs.roofline import Roofline
from stead.errors import BadInput
from stead.graph import Graph

PRIOR = 2.0  # as many imagined measurements of every kind agree with the mean over all kinds


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far analytic costs of one device were off, and how far corrected ones still are."""

    device: str
    factors: Mapping[str, float]  # by kind of operator
    overall: float  # for kinds that were never measured
    relative_error: float  # of one operator, one standard deviation
    samples: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """Measured seconds where a profile has them, elsewhere analytic ones times the factor of their kind.

    Devices without a profile keep the costs of `base`.
    """

    profiles: tuple[Profile, ...]
    base: CostSource = field(default_factory=Roofline)

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", tuple(self.profiles))

    def costs(self, graph: Graph, cluster: Cluster) -> Costs:
        """Price every operator on every device."""
        analytic = self.base.costs(graph, cluster)
        seconds, sources = analytic.seconds.copy(), analytic.sources.copy()
        used: set[str] = set()
        for d, device in enumerate(cluster):
            profile = _profile_of(device, self.profiles)
            if profile is None:
                continue
            used.add(profile.device)
            measured = profile.column(graph)
            calibration = calibrate(graph, analytic.seconds[:, d], measured, device.name)
            factors = [calibration.factors.get(kind, calibration.overall) for kind in graph.kinds]
            known = ~np.isnan(measured)
            seconds[:, d] = np.where(known, measured, analytic.seconds[:, d] * np.array(factors))
            sources[known, d] = profile.source
        for profile in self.profiles:
            if profile.device not in used:
                names = ", ".join(cluster.names)
                raise BadInput(f"no device is called, or is of model or kind, {profile.device!r}; there are {names}")
        return Costs(
            graph,
            cluster,
            seconds,
            workspace_bytes=analytic.workspace_bytes,
            sources=sources,
            tensor_seconds=analytic.tensor_seconds,
        )


def calibrate(
    graph: Graph, analytic: NDArray[np.float64], measured: NDArray[np.float64], device: str
) -> Calibration:
    """Factors by kind from the operators that were measured; all 1 if none tells anything."""
    usable = np.flatnonzero((measured > 0) & (analytic > 0) & np.isfinite(analytic))
    if not usable.size:
        return Calibration(device, {}, 1.0, 0.0, 0)
    logs = np.log(measured[usable] / analytic[usable])
    overall = float(logs.mean())
    kinds = [graph.kinds[v] for v in usable]
    by_kind: dict[str, list[float]] = {}
    for kind, value in zip(kinds, logs.tolist(), strict=True):
        by_kind.setdefault(kind, []).append(value)
    factors = {
        kind: math.exp((sum(values) + PRIOR * overall) / (len(values) + PRIOR)) for kind, values in by_kind.items()
    }
    left = logs - np.log([factors[kind] for kind in kinds])
    error = float(np.sqrt(np.mean(left**2)))
    return Calibration(device, factors, math.exp(overall), error, len(usable))


def _profile_of(device: Device, profiles: Sequence[Profile]) -> Profile | None:
    """The most specific profile that speaks about a device."""
    for key in (device.name, device.model, device.kind):
        for profile in profiles:
            if key and profile.device == key:
                return profile
    return None
