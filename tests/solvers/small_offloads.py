"""Problems of calls of accelerators: hand-made ones, and the published inputs of Tarnawski et al. 2020."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_both_ways
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.problem import Latency, Problem
from stead.readers import read

DATA = Path(__file__).parents[3] / "shared" / "data" / "msr-fiddle" / "latency-inputs"
published = pytest.mark.skipif(not DATA.is_dir(), reason="the published inputs are not beside the project")
OFFLOAD = Latency("offload")


def published_problem(name):
    model = read(DATA / f"{name}.json")
    return Problem(
        model.graph, model.cluster, model.given.costs(model.graph, model.cluster), objective=OFFLOAD
    )


def calls(
    seconds: list[tuple[float, float]],
    reads: dict[int, list[int]],
    *,
    accelerators: int = 2,
    room: int = 2**40,
    direct: bool = False,
    colocate: dict[int, str] | None = None,
    copy_bytes: int = 1,
) -> Problem:
    """Operators with (CPU, accelerator) seconds, 10 bytes of weights and one tensor each; a copy takes 1 s per byte."""
    build, tensors = GraphBuilder("calls"), []
    for v in range(len(seconds)):
        operator = build.operator(
            f"v{v}", reads=[tensors[u] for u in reads.get(v, [])], colocate=(colocate or {}).get(v, "")
        )
        tensors.append(build.tensor(operator, size_bytes=copy_bytes))
        build.weight(f"w{v}", size_bytes=10, users=[operator])
    graph, names = build.build(), [f"acc{i}" for i in range(accelerators)]
    devices = (Device("cpu0", kind="cpu"), *(Device(name, memory_bytes=room) for name in names))
    links = tuple(link for name in names for link in link_both_ways("cpu0", name, bytes_per_second=1.0))
    cluster = Cluster(devices, links, routing="direct" if direct else "host")
    table = np.array([[cpu, *[acc] * accelerators] for cpu, acc in seconds], dtype=float)
    return Problem(graph, cluster, Costs(graph, cluster, table), objective=OFFLOAD)
