"""The graphs of GDP's table on reference devices: suite gdp12, its experts, and memory that binds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stead.cluster import Cluster, Device, link_all
from stead.errors import Infeasible
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.sim import simulate_many
from stead.solvers import Budget, solver

EXPERTS = ("expert", "expert:time")  # the best that fits is "the expert"
ROOM = 1.3  # capacity of a device over the peak of the expert's fullest device
AMPLE = 2**45


@dataclass(frozen=True, slots=True)
class Instance:
    """A training step on some equal devices."""

    name: str
    model: str
    devices: int
    quick: bool = False

    def problem(self, *, limited: bool = True) -> Problem:
        """With memory limits, as the suite has them, or without."""
        found = load(self.model, equal(self.devices)).problem(Latency())
        return with_room(found, ROOM) if limited else found


GDP12 = (
    Instance("RNNLM-2", "zoo:rnnlm-2?phase=train", 2, quick=True),
    Instance("RNNLM-4", "zoo:rnnlm-4?phase=train", 4),
    Instance("GNMT-2", "zoo:gnmt-2?phase=train", 2),
    Instance("GNMT-4", "zoo:gnmt-4?phase=train", 4),
    Instance("GNMT-8", "zoo:gnmt-8?phase=train", 8),
    Instance("Transformer-XL-2", "zoo:transformer-xl-2?phase=train", 2, quick=True),
    Instance("Transformer-XL-4", "zoo:transformer-xl-4?phase=train", 4),
    Instance("Transformer-XL-8", "zoo:transformer-xl-8?phase=train", 8),
    Instance("Inception-v3", "zoo:inception-v3?phase=train", 2),
    Instance("AmoebaNet", "zoo:amoebanet?phase=train", 4),
    Instance("WaveNet 2x18", "zoo:wavenet-2x18?phase=train", 2, quick=True),
    Instance("WaveNet 4x36", "zoo:wavenet-4x36?phase=train", 4),
)


def equal(count: int, *, links: float = 12e9, latency: float = 20e-6) -> Cluster:
    """Reference devices: 4.6 TFLOP/s, 500 GB/s, 5 us per operator; the latency of a link occupies it."""
    return cluster([4.6e12] * count, [500e9] * count, links=links, latency=latency)


def cluster(
    flops: Sequence[float], rates: Sequence[float], *, links: float, latency: float, memory: int = AMPLE
) -> Cluster:
    """Devices by their FLOP/s and bytes per second, all joined by equal links."""
    names = [f"g{d}" for d in range(len(flops))]
    return Cluster(
        tuple(
            Device(
                name,
                memory_bytes=memory,
                flops_per_second={"fp32": f},
                bytes_per_second=r,
                launch_seconds=5e-6,
            )
            for name, f, r in zip(names, flops, rates, strict=True)
        ),
        link_all(names, bytes_per_second=links, latency_seconds=latency, gap_seconds=latency),
    )


def with_room(problem: Problem, factor: float) -> Problem:
    """Every device with `factor` times the memory that the expert's fullest device needs."""
    found = solver("expert").solve(problem, Budget(), 0).placement.devices
    peak = int(simulate_many(problem, found[None, :], memory="peak").peak_bytes.max())
    for name in problem.cluster.names:
        problem = problem.with_memory(name, int(factor * peak))
    return problem


def rule_seconds(problem: Problem, names: Sequence[str]) -> dict[str, float]:
    """Seconds of solvers that end by themselves; inf for what does not fit."""
    found: dict[str, float] = {}
    for name in names:
        try:
            found[name] = solver(name).solve(problem, Budget(), 0).objective_seconds
        except Infeasible:
            found[name] = float("inf")
    return found


def unlimited_single_seconds(problem: Problem) -> float:
    """The fastest single device, memory aside."""
    count = len(problem.cluster)
    rows = np.repeat(np.arange(count, dtype=np.uint8)[:, None], len(problem.graph), axis=1)
    seconds = simulate_many(problem, rows, memory="off").seconds
    return float(seconds.min())
