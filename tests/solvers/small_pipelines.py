"""Small pipelines for exact solvers: random inputs with every trap, published inputs, the definition as an oracle."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from stead.problem import Load, Problem, Throughput
from stead.readers import MsrFiddle
from stead.sim import simulate_many

DATA = Path(__file__).parents[3] / "shared" / "data" / "msr-fiddle"
NO_DATA = pytest.mark.skipif(not DATA.is_dir(), reason="the published inputs are not beside the project")
SLOW = pytest.mark.slow
LOADS: tuple[Load, ...] = ("sum", "overlap", "duplex", "fwbw")


def reference():
    return (
        json.loads((DATA / "reference.json").read_text()) if DATA.is_dir() else {"throughput": {}, "tiny": {}}
    )


def published(name: str, *, load: Load = "sum", cost_scale: float = 1.0) -> Problem:
    """A published input as a problem."""
    return from_file(DATA / "throughput-inputs" / f"{name}.json", load=load, cost_scale=cost_scale)


def from_file(path: Path, *, load: Load = "sum", cost_scale: float = 1.0) -> Problem:
    model = MsrFiddle(cost_scale=cost_scale).read(path)
    costs = model.given.costs(model.graph, model.cluster)
    return Problem(model.graph, model.cluster, costs, objective=Throughput(load=load))


def from_instance(instance: dict, folder: Path, *, load: Load = "sum") -> Problem:
    path = folder / "instance.json"
    path.write_text(json.dumps(instance))
    return from_file(path, load=load)


def random_instance(seed: int, *, most_nodes: int = 8, training: bool = True) -> dict:
    """A random input: colour classes that form cycles, orphans, unsupported nodes, tight memory, zeros and ties."""
    rng = np.random.default_rng(seed)
    forward = int(rng.integers(2, most_nodes // 2 + 1 if training else most_nodes + 1))
    backward = int(rng.integers(1, forward + 1)) if training else 0
    nodes = []
    for i in range(forward + backward):
        late = i >= forward
        supported = bool(rng.random() > 0.15)
        colour = i if rng.random() > 0.3 else int(rng.integers(0, forward))
        if late:  # most backward nodes follow a forward one, the others are orphans
            colour = int(rng.integers(0, forward)) if rng.random() > 0.25 else i
        ms = int(rng.choice([0, 1, 1, 2, 3, 5]))
        nodes.append(
            {
                "id": i, "supportedOnFpga": supported, "isBackwardNode": late, "colorClass": colour,
                "cpuLatency": ms * int(rng.choice([1, 3, 10])), "fpgaLatency": ms, "size": int(rng.integers(0, 4)),
            }
        )  # fmt: skip
    costs = rng.choice([0.0, 0.25, 0.5, 1.0, 2.0], size=len(nodes))
    edges = [
        {"sourceId": a, "destId": b, "cost": float(costs[a])}
        for a in range(len(nodes))
        for b in range(a + 1, len(nodes))
        if rng.random() < 0.35
    ]
    accelerators, cpus = int(rng.integers(1, 4)), int(rng.integers(0, 2))
    if not cpus and not all(node["supportedOnFpga"] for node in nodes):
        cpus = 1
    total = sum(node["size"] for node in nodes)
    room = max(int(total * rng.choice([0.4, 0.6, 2.0])), max(node["size"] for node in nodes), 1)
    return {
        "maxSizePerFPGA": room, "maxFPGAs": min(accelerators, 3 - cpus), "maxCPUs": cpus,
        "nodes": nodes, "edges": edges,
    }  # fmt: skip


def best_by_definition(problem: Problem, contiguity: str) -> float:
    """The least seconds of all placements that are contiguous in a sense; inf if none fits. Knows no supernodes."""
    units, allowed = problem.units, problem.unit_allowed
    choices = [np.flatnonzero(row).tolist() for row in allowed]
    rows = np.array(list(itertools.product(*choices)), dtype=np.uint8)
    scores = simulate_many(problem, np.ascontiguousarray(rows[:, units]))
    seconds = np.where(scores.feasible, scores.seconds, np.inf)
    edges = _order(problem)
    for row in np.argsort(seconds, kind="stable"):
        if np.isinf(seconds[row]):
            break
        if contiguity == "any" or _contiguous(rows[row].tolist(), edges, contiguity):
            return float(seconds[row])
    return float("inf")


def _order(problem: Problem) -> set[tuple[int, int]]:
    """Edges between units: forward ones, and backward ones of units without forward operators, turned round."""
    graph, units = problem.graph, problem.units
    late = graph.phases != 0
    with_forward = set(units[~late].tolist())
    edges = set()
    for a, b in graph.edges.tolist():
        first, second = int(units[a]), int(units[b])
        if not late[a] and not late[b]:
            edges.add((first, second))
        elif late[a] and late[b] and not {first, second} <= with_forward:
            edges.add((second, first))
    return {(a, b) for a, b in edges if a != b}


def _contiguous(devices: list[int], edges: set[tuple[int, int]], contiguity: str) -> bool:
    if contiguity == "stages":
        return not _cyclic({(devices[a], devices[b]) for a, b in edges if devices[a] != devices[b]})
    return not any(_comes_back(d, devices, edges) for d in set(devices))


def _cyclic(edges: set[tuple[int, int]]) -> bool:
    while edges:
        sources = {a for a, _ in edges} - {b for _, b in edges}
        if not sources:
            return True
        edges = {(a, b) for a, b in edges if a not in sources}
    return False


def _comes_back(device: int, devices: list[int], edges: set[tuple[int, int]]) -> bool:
    """Whether a path leaves a device and comes back to it."""
    outside = {b for a, b in edges if devices[a] == device != devices[b]}
    while True:
        more = {b for a, b in edges if a in outside} - outside
        if any(devices[b] == device for b in more):
            return True
        if not more:
            return False
        outside |= more
