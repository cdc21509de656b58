"""Problems that Placeto policies are tried on."""

from __future__ import annotations

from stead.cluster import Cluster, Device, link_all
from stead.costs import Roofline
from stead.problem import Fifo, Latency, PlacetoDispatch, Policy, Problem
from stead.workloads.synthetic import synthetic


def k80s(
    devices: int, *, memory_bytes: int = 2**40, launch_seconds: float = 5.7e-6, latency_seconds: float = 25e-6
) -> Cluster:
    """Equal devices of 4.6 TFLOP/s with the links of the published simulator."""
    names = [f"g{d}" for d in range(devices)]
    rates = {"fp32": 4.6e12}
    return Cluster(
        tuple(
            Device(n, memory_bytes=memory_bytes, flops_per_second=rates, bytes_per_second=500e9,
                   launch_seconds=launch_seconds)
            for n in names
        ),
        link_all(names, bytes_per_second=7.6e9, latency_seconds=latency_seconds, gap_seconds=latency_seconds),
    )  # fmt: skip


def inception(
    seed: int = 1,
    *,
    devices: int = 4,
    policy: Policy | None = None,
    memory_bytes: int = 2**40,
    training: bool = False,
) -> Problem:
    """`inception_like(5, 3, 2, seed)`; seed 1 is the graph of 50 operators that takes 12.242 ms on one device."""
    published = isinstance(policy, PlacetoDispatch)  # it adds a gap after every operator by itself
    cluster = k80s(devices, memory_bytes=memory_bytes, launch_seconds=0.0 if published else 5.7e-6)
    graph = synthetic("branches", seed=seed, training=training)
    return Problem(
        graph, cluster, Roofline().costs(graph, cluster), objective=Latency(policy=policy or Fifo())
    )


def towers(*, policy: Policy | None = None) -> Problem:
    """Two chains of six operators on two devices: a chain each is best."""
    cluster = k80s(2, launch_seconds=0.0 if isinstance(policy, PlacetoDispatch) else 5.7e-6)
    graph = synthetic("towers")
    return Problem(
        graph, cluster, Roofline().costs(graph, cluster), objective=Latency(policy=policy or Fifo())
    )
