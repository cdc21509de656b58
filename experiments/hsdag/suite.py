"""The problems of this experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from ir_models import measured_costs

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Roofline
from stead.graph import Graph
from stead.problem import Latency, Problem
from stead.readers.native.npz import GraphNpz
from stead.workloads.resnet50_measured import resnet50_measured

HERE = Path(__file__).parent
SEQUENTIAL = Latency("sequential")
NAMES = ("cpu", "accelerator")


def ir_graph(name: str, fold: str) -> Graph:
    return GraphNpz().read(HERE / "graphs" / f"{name}-{fold}.npz").graph


def plain(name: str, fold: str = "constants") -> Problem:
    """An IR graph on a CPU and an accelerator that is better at everything large: the paper's setting."""
    graph = ir_graph(name, fold)
    devices = (
        Device(
            "cpu", kind="cpu", flops_per_second={"fp32": 200e9}, bytes_per_second=40e9, launch_seconds=2e-6
        ),
        Device("accelerator", flops_per_second={"fp32": 4e12}, bytes_per_second=200e9, launch_seconds=20e-6),
    )
    cluster = Cluster(devices, link_all(NAMES, bytes_per_second=5e9, latency_seconds=60e-6))
    return Problem(graph, cluster, Roofline().costs(graph, cluster), objective=SEQUENTIAL)


def mixed(name: str) -> Problem:
    """The same CPU, and a device that takes half its time for what takes above 250 us there, else twice and 25 us."""
    given = plain(name)
    cpu = given.costs.seconds[:, 0]
    other = np.where(cpu > 250e-6, cpu / 2, np.where(cpu > 0, 2 * cpu + 25e-6, 0.0))
    costs = Costs(given.graph, given.cluster, np.stack([cpu, other], axis=1))
    return Problem(given.graph, given.cluster, costs, objective=SEQUENTIAL)


def resnet50(devices: str = "f32 mixed") -> Problem:
    return Problem(*resnet50_measured(devices), objective=SEQUENTIAL)


def resnet50_ir() -> Problem:
    """The measured instance with one operator per layer of the IR, constants costing nothing."""
    graph = ir_graph("resnet50", "nothing")
    return Problem(graph, *measured_costs(graph), objective=SEQUENTIAL)


GRAPHS: dict[str, Callable[[], Problem]] = {
    "resnet50-mixed": resnet50,
    "inception-v3-mixed": lambda: mixed("inception-v3"),
    "bert-mixed": lambda: mixed("bert"),
}
