"""Updated weights before the judge: what a step costs, told from what training is and not from the graph.

The oracle knows operators, tensors and weights as they were written down, without any refresh. Where everything
happens in turn a step takes the sum of all operators, of every tensor for each other device that reads it, and of every
trained weight for each other device than its update's that uses it.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
from problems import BYTES, CONTENTIONS, SECONDS, drawn

from stead.cluster import Cluster, Device, Link
from stead.costs import Costs
from stead.errors import Infeasible
from stead.graph import PHASES, REFRESH, Graph, GraphBuilder, refreshed
from stead.graph.weights import resident_bytes
from stead.problem import Latency, Placement, Problem
from stead.problem.ticks import to_ticks
from stead.sim import simulate

DEVICES = 3
LATENCY, RATE = 1e-6, 1e9


def written_down(draw: random.Random) -> Graph:
    """A training step with weights that one update each writes, and with some that nobody trains."""
    build, count = GraphBuilder("step"), draw.randint(2, 6)
    phases = [*sorted(draw.choice((0, 0, 1)) for _ in range(count)), 2, 2]
    operators, tensors = [], []
    for v, phase in enumerate(phases):
        reads = draw.sample(tensors, min(len(tensors), draw.randint(0, 2)))
        group = draw.choice(("", "", "", "x", "y"))
        operators.append(build.operator(f"v{v}", reads=reads, phase=PHASES[phase], colocate=group))
        if draw.random() < 0.8 and phase < 2:
            tensors.append(build.tensor(operators[v], size_bytes=draw.choice(BYTES)))
    for w in range(draw.randint(1, 4)):
        users = draw.sample(operators[:count], draw.randint(1, min(3, count)))
        update = draw.choice(operators[count:])
        trained = draw.random() < 0.8
        build.weight(f"w{w}", size_bytes=draw.choice(BYTES), users=[*users, update] if trained else users)
        if trained:
            build.weight(f"w{w}.moments", size_bytes=2 * draw.choice(BYTES), users=[update])
    return build.build(refresh=False)


def ticks_by_definition(graph: Graph, seconds: np.ndarray, on: dict[str, int]) -> int:
    """Picoseconds of a step in which one thing happens after another."""
    device = [on[name] for name in graph.operator_names]
    total = sum(int(to_ticks(seconds[v, d])) for v, d in enumerate(device))
    sent = []
    for tensor in graph.tensors():
        sent += [tensor.size_bytes for _ in {device[v] for v in tensor.readers} - {device[tensor.producer]}]
    for w, size in enumerate(graph.weight_bytes.tolist()):
        users = graph.weight_users[graph.weight_user_first[w] : graph.weight_user_first[w + 1]].tolist()
        homes = {device[v] for v in users if graph.phases[v] == 2}
        if homes and size:
            sent += [size for _ in {device[v] for v in users} - homes]
    return total + sum(int(to_ticks(LATENCY)) + int(to_ticks(size / RATE)) for size in sent)


def test_a_step_costs_one_transfer_of_each_updated_weight_per_device_that_reads_it():
    refreshes = 0
    for seed in range(150):
        draw = random.Random(seed)
        before = written_down(draw)
        graph = refreshed(before)
        refreshes += graph.kinds.count(REFRESH)
        names = [f"d{d}" for d in range(DEVICES)]
        links = tuple(Link(a, b, RATE, LATENCY) for a, b in itertools.permutations(names, 2))
        cluster = Cluster(
            tuple(Device(name, memory_bytes=2**40) for name in names), links, contention=draw.choice(CONTENTIONS)
        )
        of = {name: [draw.choice(SECONDS) for _ in names] for name in before.operator_names}
        seconds = np.array([of.get(name, [0.0] * DEVICES) for name in graph.operator_names])
        problem = Problem(graph, cluster, Costs(graph, cluster, seconds), objective=Latency("sequential"))
        row = np.array([draw.randrange(DEVICES) for _ in range(problem.unit_count)], dtype=np.uint8)[problem.units]
        on = dict(zip(graph.operator_names, row.tolist(), strict=True))
        plain = np.array([of[name] for name in before.operator_names])
        expected = ticks_by_definition(before, plain, on)
        assert simulate(problem, Placement(problem, row)).objective_seconds == expected / 1e12, seed
        was = np.array([on[name] for name in before.operator_names])
        assert np.array_equal(resident_bytes(graph, row, DEVICES), resident_bytes(before, was, DEVICES)), seed
    assert refreshes > 150


def test_refreshes_are_among_the_problems_that_solvers_are_judged_by():
    found = 0
    for seed in range(200):
        try:
            found += REFRESH in drawn(seed).graph.kinds
        except Infeasible:
            continue
    assert found > 15
