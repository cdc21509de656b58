"""Small problems that learning is tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stead.cluster import Cluster, Device, link_all
from stead.costs import Roofline
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.workloads.synthetic import synthetic

NAMES = ("g0", "g1")


def pair(
    *,
    bytes_per_second: float = 12e9,
    latency_seconds: float = 20e-6,
    memory_bytes: int = 2**40,
    devices: int = 2,
) -> Cluster:
    """Equal devices of 4.6 TFLOP/s; the latency of a link occupies it."""
    names = [f"g{d}" for d in range(devices)]
    return Cluster(
        tuple(
            Device(
                name,
                memory_bytes=memory_bytes,
                flops_per_second={"fp32": 4.6e12},
                bytes_per_second=500e9,
                launch_seconds=5e-6,
            )
            for name in names
        ),
        link_all(
            names,
            bytes_per_second=bytes_per_second,
            latency_seconds=latency_seconds,
            gap_seconds=latency_seconds,
        ),
    )


def grid(cluster: Cluster | None = None, *, layers: int = 2, steps: int = 5) -> Problem:
    """An unrolled language model that trains: steps * (layers + 1) + 1 groups."""
    graph = synthetic("lstm-grid", layers=layers, steps=steps, training=True)
    cluster = cluster or pair()
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency())


def rnnlm(cluster: Cluster | None = None) -> Problem:
    """RNNLM-2 as it trains, batch 64, width 2048, 40 steps: 121 groups."""
    return load("zoo:rnnlm-2?phase=train", cluster or pair()).problem(Latency())


def all_rows(groups: int, devices: int) -> np.ndarray:  # type: ignore[type-arg]
    """Every placement of a few groups."""
    return (
        np.array(np.meshgrid(*[np.arange(devices)] * groups, indexing="ij"))
        .reshape(groups, -1)
        .T.astype(np.uint8)
    )


def resumes_to_the_same_bits(make: Callable[[], Any]) -> bool:
    """Whether six updates are the same as three, a checkpoint, and three more of another learner."""
    whole, begun, resumed = (make() for _ in range(3))
    for own, updates in ((whole, 6), (begun, 3)):
        for _ in range(updates):
            own.update()
    resumed.restore(*begun.state())
    for _ in range(3):
        resumed.update()
    (arrays, numbers), (others, told) = whole.state(), resumed.state()
    return bool(numbers == told and all(np.array_equal(arrays[name], others[name]) for name in arrays))
