"""simulate, simulate_many, screen_many: the one judge of placements.

The core does the work; these functions choose the engine that the objective asks for. All times are whole
picoseconds until the last moment, so results are the same everywhere and for any number of threads.
"""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.cluster.classes import DeviceIndices, device_type
from stead.errors import BadInput
from stead.problem import Latency, Placement, Policy, Priority, Problem, Throughput
from stead.sim.core_calls import bad_input
from stead.sim.scoring import Batch
from stead.sim.trace import Memory, Scores, Trace
from stead.sim.tracing import trace_dataflow, trace_offload, trace_pipelined, trace_sequential, trace_steady


def simulate(
    problem: Problem, placement: Placement, *, policy: Policy | None = None, memory: Memory = "peak"
) -> Trace:
    """What happens when `placement` runs under the objective of `problem`.

    A placement with an order of its own is run in that order; `policy` replaces either for dataflow latency.
    `memory="off"` leaves peaks out.

    >>> from stead.testing import diamond
    >>> problem = diamond()
    >>> simulate(problem, Placement(problem, [0, 1, 1, 0])).objective_seconds  # a's tensor crosses once
    12.0
    """
    objective, peaks = problem.objective, _checked(memory) != "off"
    if placement.problem is not problem:
        placement = Placement(problem, placement.devices, placement.order, placement.replicas)
    if isinstance(objective, Latency) and objective.execution == "dataflow":
        return trace_dataflow(placement, policy or placement.order or objective.policy, memory=peaks)
    _refuse(policy, problem)
    if isinstance(objective, Throughput):
        if objective.microbatches is None:
            return trace_steady(placement, objective.load, memory=peaks)
        return trace_pipelined(placement, memory=peaks)
    if objective.execution == "offload":
        return trace_offload(placement, objective.pieces, memory=peaks)
    return trace_sequential(placement, memory=peaks)


def simulate_many(
    problem: Problem,
    placements: DeviceIndices,
    *,
    policy: Policy | None = None,
    positions: NDArray[np.int32] | None = None,
    memory: Memory = "check",
    cutoff_seconds: float = math.inf,
    threads: int = 0,
) -> Scores:
    """Values of the rows of `placements` [placement, operator]; the same for any `threads` (0: all cores).

    `memory="check"` decides whether each row fits, `"peak"` computes every peak. A row worse than
    `cutoff_seconds` is given up: exact for "not better than". With `positions` [placement, operator] every row has
    priorities of its own.

    >>> from stead.testing import chain3
    >>> simulate_many(chain3(), np.array([[0, 0, 0], [0, 1, 0]], dtype=np.uint8)).seconds.tolist()
    [4.0, 9.0]
    """
    objective = problem.objective
    if positions is not None:
        if policy is not None:
            raise BadInput("give a policy for all rows or positions for each of them, not both")
        policy = Priority()
    batch = Batch(problem, _rows(problem, placements), _checked(memory), cutoff_seconds, threads)
    if isinstance(objective, Latency) and objective.execution == "dataflow":
        return batch.dataflow(policy or objective.policy, positions)
    _refuse(policy, problem)
    if isinstance(objective, Throughput):
        return batch.steady(objective.load) if objective.microbatches is None else batch.pipelined()
    return batch.offload(objective.pieces) if objective.execution == "offload" else batch.sequential()


def screen_many(
    problem: Problem, placements: DeviceIndices, *, order: NDArray[np.int32], threads: int = 0
) -> NDArray[np.float32]:  # [placement]
    """Rough seconds of the rows of `placements` when all devices follow `order`: to choose whom to simulate.

    Never report such a value. Take the order from the trace of the best placement so far, renew it when that
    changes, and simulate the survivors.
    """
    rows = _rows(problem, placements)
    with bad_input():
        seconds: NDArray[np.float32] = _native.screen_many(problem.native, rows, order=order, threads=threads)
    return seconds


def _rows(problem: Problem, placements: DeviceIndices) -> DeviceIndices:
    """`placements` as the core takes them; a wrong type is a TypeError, never converted."""
    if not isinstance(placements, np.ndarray) or placements.dtype not in (np.uint8, np.uint16):
        given = placements.dtype if isinstance(placements, np.ndarray) else type(placements).__name__
        wanted = device_type(len(problem.cluster)).__name__
        raise TypeError(f"placements must be a numpy array of {wanted}, got {given}")
    if placements.ndim != 2 or placements.shape[1] != len(problem.graph):
        raise BadInput(
            f"placements must have shape [rows, {len(problem.graph)}], got {list(placements.shape)}"
        )
    count = len(problem.cluster)
    if placements.size and placements.max() >= count:
        row, v = np.argwhere(placements >= count)[0].tolist()
        name = problem.graph.operator_names[v]
        raise BadInput(
            f"row {row}, operator {v} ({name!r}): no device {placements[row, v]}; they are 0..{count - 1}"
        )
    return np.ascontiguousarray(placements)


def _checked(memory: Memory) -> Memory:
    if memory not in get_args(Memory):
        raise BadInput(f"memory is one of {', '.join(get_args(Memory))}, got {memory!r}")
    return memory


def _refuse(policy: Policy | None, problem: Problem) -> None:
    if policy is not None:
        raise BadInput(
            f"a policy belongs to dataflow latency; {problem.objective.describe()} has its own rules"
        )
