"""Layered random graphs and placements like those a search meets, for the benchmarks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead import Cluster, Costs, Device, Graph, GraphBuilder, Problem, link_all


def layered_graph(operators: int, *, seed: int = 0, width: int = 12) -> Graph:
    """Operators in layers of about `width`, each reading about two tensors of the layers before."""
    rng = np.random.default_rng(seed)
    build = GraphBuilder(f"layered-{operators}")
    tensors = []
    for v in range(operators):
        reach = range(max(0, v - 2 * width), max(0, v - width // 2))
        count = min(len(reach), int(rng.integers(1, 4)))
        reads = [tensors[u] for u in rng.choice(reach, size=count, replace=False)] if count else []
        operator = build.operator(f"op{v}", reads=reads)
        tensors.append(build.tensor(operator, size_bytes=int(rng.integers(1, 2_000_000))))
    return build.build()


def layered_problem(operators: int, devices: int, *, seed: int = 0, equal: bool = False) -> Problem:
    """A quarter of the operators take no time, the others up to 400 us, a little different on every device.

    `equal`: the same on every device, and transfers queue at their sender: the model of Placeto.
    """
    graph = layered_graph(operators, seed=seed)
    names = [f"gpu{d}" for d in range(devices)]
    cluster = Cluster(
        tuple(Device(name, memory_bytes=2**40) for name in names),
        link_all(names, bytes_per_second=12e9, latency_seconds=10e-6),
        contention="sender" if equal else "link",
    )
    rng = np.random.default_rng(seed + 1)
    base = rng.uniform(1e-6, 400e-6, size=(operators, 1)) * (rng.random((operators, 1)) > 0.25)
    spread = 0.0 if equal else 0.2
    seconds = base * rng.uniform(1 - spread, 1 + spread, size=(operators, devices))
    return Problem(graph, cluster, Costs(graph, cluster, seconds))


def flipped_blocks(problem: Problem, rows: int, *, seed: int = 0) -> NDArray[np.uint8]:
    """One block of consecutive operators per device with a tenth of the operators moved at random."""
    rng = np.random.default_rng(seed)
    count, devices = len(problem.graph), len(problem.cluster)
    blocks = (np.arange(count) * devices // max(count, 1)).astype(np.uint8)
    placements = np.repeat(blocks[None, :], rows, axis=0)
    moved = rng.random(placements.shape) < 0.1
    placements[moved] = rng.integers(devices, size=int(moved.sum()))
    return placements
