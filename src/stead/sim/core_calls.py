"""What tracing one placement and scoring many share: arguments for the core, values from its answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import BadInput
from stead.graph import Graph
from stead.problem import Load, Policy, Priority, Problem, ProgramOrder
from stead.sim.published_placeto import PlacetoGraph
from stead.sim.ranks import rank_positions
from stead.sim.replication import Sharing


@contextmanager
def bad_input() -> Iterator[None]:
    """What the core refuses is the caller's input."""
    try:
        yield
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(str(error)) from None


def engine_arguments(problem: Problem, policy: Policy) -> dict[str, Any]:
    """A policy as the event engine takes it."""
    if isinstance(policy, Priority):
        position = rank_positions(problem) if policy.position is None else policy.position
        return {"policy": "priority", "order": position, "transfer_order": policy.transfer_position}
    if isinstance(policy, ProgramOrder):
        return {"policy": "program_order", "order": policy.order, "sends": policy.sends}
    return {"policy": policy.name}


def value_of_loads(
    loads: _native.LoadScores, load: Load, sharing: Sharing | None = None
) -> NDArray[np.int64]:  # [placement]
    """The load of the busiest device in ticks."""
    compute, received, sent = loads.compute_ticks, loads.received_ticks, loads.sent_ticks
    if load == "fwbw":
        forward, late = np.moveaxis(compute + received + sent, 2, 0)
        if sharing is not None:
            forward, late = sharing.shared(forward, sync=False), sharing.shared(late)
        return np.asarray(forward.max(axis=1) + late.max(axis=1))
    parts = [part.sum(axis=2) for part in (compute, received, sent)]
    busy = {
        "sum": parts[0] + parts[1] + parts[2],
        "overlap": np.maximum(parts[0], parts[1] + parts[2]),
        "duplex": np.maximum(np.maximum(parts[0], parts[1]), parts[2]),
    }[load]
    return np.asarray((busy if sharing is None else sharing.shared(busy)).max(axis=1))


@lru_cache(maxsize=8)  # a search asks for the same few again and again
def placeto_graph(problem: Problem) -> PlacetoGraph:
    """The problem as Placeto's simulator sees it: one cost for all devices, bytes at its own fixed speed."""
    graph, seconds = problem.graph, problem.costs.seconds
    if problem.costs.tensor_seconds is not None:
        raise BadInput("policy placeto moves bytes at its own speed, but these costs give tensors in seconds")
    unequal = np.flatnonzero((seconds != seconds[:, :1]).any(axis=1))
    if unequal.size:
        raise BadInput(
            f"policy placeto has one cost for all devices, but operator {graph.operator_names[unequal[0]]!r} "
            "takes different times; use equal devices or another policy"
        )
    return PlacetoGraph(placeto_nodes(graph, seconds[:, 0] * 1e6))


def placeto_nodes(
    graph: Graph, us: NDArray[np.float64]
) -> list[tuple[str, int | float, list[int], list[str]]]:
    """(name, us, output bytes, inputs) of every operator, as Placeto's files hold them.

    Named by index, since ties are broken by name; what takes no time is the integer 0 and pays no gap.
    """
    names = [f"{v:08d}" for v in range(len(graph))]
    first = graph.tensor_first.tolist()
    outputs = [graph.tensor_bytes[a:b].tolist() for a, b in pairwise(first)]
    written = [f"{names[v]}:{t - first[v]}" for t, v in enumerate(graph.tensor_producer.tolist())]
    read = graph.read_tensors.tolist()
    inputs = [[written[t] for t in read[a:b]] for a, b in pairwise(graph.read_first.tolist())]
    return list(zip(names, (cost or 0 for cost in us.tolist()), outputs, inputs, strict=True))
