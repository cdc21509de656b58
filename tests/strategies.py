"""Random problems and placements: everything that a simulator may trip over, in small."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, Link
from stead.costs import Costs
from stead.errors import Infeasible
from stead.graph import PHASES, REFRESH, Graph, GraphBuilder, TensorId
from stead.problem import Constraints, Latency, Objective, Problem

# Few different values, so that ties are common; the last one does not fit whole picoseconds.
SECONDS = st.sampled_from([0.0, 0.0, 1e-6, 1e-6, 2e-6, 3e-6, 5e-6, 1.23456789012345e-6])
BYTES = st.sampled_from([0, 0, 1, 1000, 1000, 4000, 12345])
LATENCIES = st.sampled_from([0.0, 0.0, 1e-6, 2.5e-6])
GAPS = st.sampled_from([0.0, 0.0, 0.0, 1e-6])
RATES = st.sampled_from([1e9, 1e9, 7.6e9, 3e8, np.inf])
CONTENTIONS = ("none", "link", "pair", "sender", "receiver", "bus")


@st.composite
def graphs(draw: Any, *, most_operators: int = 9, training: bool = False, colocate: bool = False) -> Graph:
    """Graphs with several outputs per operator, control edges, kept and empty tensors, tied weights."""
    build = GraphBuilder("random")
    count = draw(st.integers(0, most_operators))
    phases = sorted(draw(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=count, max_size=count)))
    tensors: list[TensorId] = []
    operators = []
    for v in range(count):
        reads = draw(st.lists(st.sampled_from(tensors), max_size=3, unique=True)) if tensors else []
        after = draw(st.lists(st.sampled_from(operators), max_size=1)) if operators else []
        group = draw(st.sampled_from(["", "", "", "x"])) if colocate else ""
        phase = PHASES[phases[v]] if training else "forward"
        operators.append(build.operator(f"v{v}", reads=reads, after=after, phase=phase, colocate=group))
        for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2]))):
            tensors.append(
                build.tensor(operators[v], size_bytes=draw(BYTES), kept=draw(st.integers(0, 5)) == 0)
            )
    for w in range(draw(st.integers(0, 2)) if operators else 0):
        users = draw(st.lists(st.sampled_from(operators), min_size=1, max_size=3, unique=True))
        build.weight(f"w{w}", size_bytes=draw(BYTES), users=users)
    return build.build()


@st.composite
def clusters(draw: Any, *, most_devices: int = 4, equal: bool = False, host: bool | None = None) -> Cluster:
    """Clusters with every kind of contention and routing, missing links, senders that carry, and a little memory."""
    count = draw(st.integers(1, most_devices))
    through_host = draw(st.booleans()) if host is None else host
    hosts = draw(st.integers(1, count)) if through_host else 0
    devices = tuple(
        Device(
            f"d{d}",
            kind="cpu" if d < hosts else "gpu",
            memory_bytes=draw(st.sampled_from([2**40, 20_000, 6_000])),
        )
        for d in range(count)
    )
    same = (draw(RATES), draw(LATENCIES), draw(GAPS))
    complete = equal or draw(st.integers(0, 3)) > 0
    carried = draw(st.sampled_from(["none", "none", "all"] if equal else ["none", "none", "some", "all"]))
    links = []
    for source in range(count):
        for target in range(count):
            if source != target and (complete or draw(st.booleans())):
                rate, latency, gap = same if equal else (draw(RATES), draw(LATENCIES), draw(GAPS))
                by_sender = carried == "all" or (carried == "some" and draw(st.booleans()))
                figures = (rate, latency, 0.0, "sender") if by_sender else (rate, latency, gap, "link")
                links.append(Link(f"d{source}", f"d{target}", *figures))
    if through_host and equal:
        through_host = False
    return Cluster(
        devices,
        tuple(links),
        contention=draw(st.sampled_from(CONTENTIONS)),
        routing="host" if through_host and draw(st.booleans()) else "direct",
    )


@st.composite
def problems(
    draw: Any,
    *,
    objective: Objective | None = None,
    equal_devices: bool = False,
    runs_everywhere: bool = False,
    host: bool | None = None,
    **graph_options: Any,
) -> Problem:
    """Problems with zero-length operators, equal costs, operators that cannot run somewhere, tensor times."""
    graph = draw(graphs(**graph_options))
    cluster = draw(clusters(equal=equal_devices, host=host))
    shape = (len(graph), len(cluster))
    seconds = np.zeros(shape)
    workspace = np.zeros(shape, dtype=np.int64)
    per_device = not equal_devices and draw(st.booleans())
    for v in range(len(graph)):
        seconds[v] = (
            draw(st.lists(SECONDS, min_size=shape[1], max_size=shape[1])) if per_device else draw(SECONDS)
        )
        workspace[v] = draw(st.sampled_from([0, 0, 300, 5000]))
        can_run = not runs_everywhere and not equal_devices and draw(st.integers(0, 15)) == 0
        if can_run:
            seconds[v, draw(st.integers(0, shape[1] - 1))] = np.inf
        if not np.isfinite(seconds[v]).any():
            seconds[v] = 1e-6
    if len(graph) and draw(st.integers(0, 3)) == 0:
        tensor_seconds = np.array(
            draw(st.lists(SECONDS, min_size=graph.tensor_count, max_size=graph.tensor_count))
        )
    else:
        tensor_seconds = None
    costs = Costs(graph, cluster, seconds, workspace_bytes=workspace, tensor_seconds=tensor_seconds)
    try:
        return Problem(graph, cluster, costs, objective=objective or Latency(), constraints=Constraints())
    except Infeasible:  # one of a unit cannot run where another one must
        reject()


def placements(problem: Problem) -> st.SearchStrategy[NDArray[np.uint8]]:
    """Any placement, also one that cannot run; what receives an updated weight is where its reader is."""
    count = len(problem.graph)
    leader = np.arange(count)
    for v, kind in enumerate(problem.graph.kinds):
        if kind == REFRESH:
            leader[v] = problem.unit_firsts[problem.units[v]]
    devices = st.integers(0, len(problem.cluster) - 1)
    rows = st.lists(devices, min_size=count, max_size=count)
    return rows.map(lambda on: np.array(on, dtype=np.uint8)[leader])


@st.composite
def placed_problems(draw: Any, **options: Any) -> tuple[Problem, NDArray[np.uint8]]:
    """A problem and a placement for it."""
    problem = draw(problems(**options))
    return problem, draw(placements(problem))


@st.composite
def permutations(draw: Any, count: int) -> NDArray[np.int32]:
    """An order of 0 .. count - 1."""
    return np.array(draw(st.permutations(range(count))), dtype=np.int32)


@st.composite
def topological_orders(draw: Any, graph: Graph) -> NDArray[np.int32]:
    """Any order in which operators may run."""
    missing = np.diff(graph.read_first).tolist()
    ready = [v for v, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        v = ready.pop(draw(st.integers(0, len(ready) - 1)))
        order.append(v)
        for t in range(graph.tensor_first[v], graph.tensor_first[v + 1]):
            for c in graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]].tolist():
                missing[c] -= 1
                if missing[c] == 0:
                    ready.append(c)
    return np.array(order, dtype=np.int32)
