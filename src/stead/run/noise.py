"""Measured costs have error bars, and a plan may be no more than their noise, exploited operator by operator.

Notation    v operator, k its kind, d device, r repeat
    t[r, v]     seconds of one repeat on a device;  s[v, d] their lower quartile
    e[v, d]     error of log s[v, d], of operators by themselves: standard deviation over repeats / sqrt(repeats)
    c[d]        error that all operators of a device share: the same of whole repeats
    log s[v, d] = mean[v] + common[k, d] + own[v, d]; common is the mean over a kind, weighted by 1 / e^2
    own is kept as far as it exceeds its error: own * max(0, 1 - (2 e / own)^2)
A plan is compared with simple alternatives under costs drawn anew: s exp(N(0, e) + N(0, c)). A gain below which 5 % of
the draws lie is what it is good for; where that is nothing, the gain is within noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.costs import ErrorBar, Profile
from stead.errors import BadInput
from stead.graph import Graph
from stead.placing.recost import with_seconds
from stead.problem import Placement, Problem
from stead.run.calibrate import seconds_of

DRAWS = 200
SURE = 2.0  # errors that a difference must exceed to be believed
LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """Measured seconds and how far they may be off."""

    seconds: NDArray[np.float64]  # [operator, device]; nan where nothing was measured
    error: NDArray[np.float64]  # [operator, device]; relative, of operators by themselves
    shared: NDArray[np.float64]  # [device]; relative, of all operators of a device together

    def __post_init__(self) -> None:
        if self.error.shape != self.seconds.shape or self.shared.shape != self.seconds.shape[1:]:
            shapes = f"{self.error.shape} and {self.shared.shape}"
            raise BadInput(f"error bars of shape {shapes} do not fit seconds of shape {self.seconds.shape}")


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster a placement is than another, under costs that may be true."""

    over: str  # the other
    ratio: float  # by the costs as they are
    low: float  # in all but 5 % of the draws it is more
    high: float

    @property
    def survives(self) -> bool:
        """Whether the noise of the costs leaves something of it."""
        return self.low > 1.0

    def __str__(self) -> str:
        verdict = "" if self.survives else ": within noise"
        return f"{self.ratio:.2f}x over {self.over} ({self.low:.2f}x to {self.high:.2f}x as costs may be){verdict}"


def bars_of(repeats: Sequence[NDArray[np.float64]]) -> Bars:
    """Error bars from repeated runs on every device, each [repeat, operator]."""
    seconds, error, shared = [], [], []
    for times in repeats:
        if times.ndim != 2 or not len(times):
            raise BadInput(f"a profile is a table of repeats and operators, got an array of shape {times.shape}")
        count = len(times)
        logs = np.log(np.maximum(times, 1e-12))
        whole = np.log(np.maximum(times.sum(axis=1, keepdims=True), 1e-12))
        own = logs - whole  # what is left when a slow repeat was slow as a whole
        degrees = max(1, count - 1)
        spread = np.sqrt(((own - own.mean(axis=0)) ** 2).sum(axis=0) / degrees)
        seconds.append(np.quantile(times, 0.25, axis=0))
        error.append(np.where(times.max(axis=0) > 0, spread / math.sqrt(count), 0.0))
        shared.append(float(np.sqrt(((whole - whole.mean()) ** 2).sum() / degrees)) / math.sqrt(count))
    return Bars(np.stack(seconds, axis=1), np.stack(error, axis=1), np.array(shared))


def bars_of_profiles(graph: Graph, cluster: Cluster, profiles: Sequence[Profile]) -> Bars:
    """Error bars from profiles with names of devices; nan and 0 where they are silent."""
    by_device = {profile.device: profile for profile in profiles}
    shape = (len(graph), len(cluster))
    seconds, error, shared = np.full(shape, np.nan), np.zeros(shape), np.zeros(len(cluster))
    for d, name in enumerate(cluster.names):
        profile = by_device.get(name)
        if profile is None:
            continue
        seconds[:, d] = profile.column(graph)
        error[:, d] = [_relative(profile.error_bars.get(operator)) for operator in graph.operator_names]
        shared[d] = _relative(profile.total)
    return Bars(seconds, error, shared)


def _relative(bar: ErrorBar | None) -> float:
    """The error of what was timed several times; quartiles of a normal distribution are 1.349 deviations apart."""
    return 0.0 if bar is None else bar.relative_spread / 1.349 / math.sqrt(max(1, bar.samples))


def shrunk(graph: Graph, bars: Bars) -> Bars:
    """The same with differences between devices drawn towards those of their kind, unless they exceed their errors.

    A solver that is shown the noise of a profile gives every operator to the device on which it happened to be fast.
    """
    seconds = bars.seconds.copy()
    usable = (np.isfinite(seconds) & (seconds > 0)).all(axis=1)
    by_kind: dict[str, list[int]] = {}
    for v in np.flatnonzero(usable).tolist():
        by_kind.setdefault(graph.kinds[v], []).append(v)
    for members in by_kind.values():
        rows = np.array(members)
        logs, error = np.log(seconds[rows]), np.maximum(bars.error[rows], 1e-6)
        mean = logs.mean(axis=1, keepdims=True)
        weight = 1.0 / (error**2).sum(axis=1, keepdims=True)
        common = ((logs - mean) * weight).sum(axis=0) / weight.sum()
        own = logs - mean - common
        noise = np.sqrt((error**2).mean(axis=1, keepdims=True))
        kept = np.maximum(0.0, 1.0 - (SURE * noise / np.maximum(np.abs(own), 1e-12)) ** 2)
        seconds[rows] = np.exp(mean + common + own * kept)
    return Bars(seconds, bars.error, bars.shared)


def gain_over(
    problem: Problem,
    bars: Bars,
    placement: Placement,
    others: Mapping[str, Placement],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Gain:
    """What a placement gains over the best of others; draws in which another of them is best count against it."""
    if not others:
        raise BadInput("there is nothing to compare the placement with")
    names, table = list(others), _drawn(problem, bars, [placement, *others.values()], draws, seed)
    here = seconds_of(problem, [placement, *others.values()])
    best = int(np.argmin(here[1:]))
    ratios = table[:, 1:].min(axis=1) / table[:, 0]
    low, high = np.quantile(ratios, [LOW, HIGH])
    return Gain(names[best], float(here[1 + best] / here[0]), float(low), float(high))


def _drawn(
    problem: Problem, bars: Bars, placements: Sequence[Placement], draws: int, seed: int
) -> NDArray[np.float64]:  # [draw, placement]
    """Seconds of placements under costs that may be true; all placements are seen under the same ones."""
    rng = np.random.default_rng(seed)
    known = np.where(np.isnan(bars.seconds), problem.costs.seconds, bars.seconds)
    error = np.where(np.isnan(bars.error), 0.0, bars.error)
    table = np.empty((draws, len(placements)))
    for draw in range(draws):
        off = rng.standard_normal(known.shape) * error + rng.standard_normal(len(bars.shared)) * bars.shared
        table[draw] = seconds_of(with_seconds(problem, known * np.exp(off)), placements)
    return table
