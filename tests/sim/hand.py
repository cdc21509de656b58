"""Problems written down in a line, and one way to ask the specification and the core about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stead.cluster import UNLIMITED_BYTES, CarriedBy, Cluster, Device, link_all
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.problem import Fifo, Placement, Policy, Priority, Problem, ProgramOrder
from stead.problem.in_ticks import Tables
from stead.sim import simulate
from stead.sim.ranks import rank_positions
from stead.sim.spec import engine as reference
from stead.sim.spec.memory import peaks

US = 1_000_000  # ticks

Tensor = tuple[int, Sequence[int], int]  # producer, readers, bytes
Weight = tuple[int, Sequence[int]]  # bytes, users


def small(
    us: Sequence[float],
    tensors: Sequence[Tensor] = (),
    *,
    devices: int = 2,
    latency_us: float = 0.0,
    gap_us: float = 0.0,
    bytes_per_second: float = 1e9,
    contention: str = "link",
    carried_by: CarriedBy = "link",
    kept: Sequence[int] = (),
    weights: Sequence[Weight] = (),
    workspace: int = 0,
    capacities: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> Problem:
    """Operators of the same length on all devices, tensors, and equal links between all devices."""
    build = GraphBuilder("small")
    names = names or [f"v{v}" for v in range(len(us))]
    operators = [build.operator(name) for name in names]
    for t, (producer, readers, size) in enumerate(tensors):
        tensor = build.tensor(operators[producer], size_bytes=size, kept=t in kept)
        for reader in readers:
            build.read(operators[reader], tensor)
    for size, users in weights:
        build.weight(f"w{users}", size_bytes=size, users=[operators[v] for v in users])
    graph = build.build()
    limits = capacities or [UNLIMITED_BYTES] * devices
    places = [f"gpu{d}" for d in range(devices)]
    links = link_all(
        places,
        bytes_per_second=bytes_per_second,
        latency_seconds=latency_us * 1e-6,
        gap_seconds=gap_us * 1e-6,
        carried_by=carried_by,
    )
    cluster = Cluster(
        tuple(Device(name, memory_bytes=limit) for name, limit in zip(places, limits, strict=True)),
        links,
        contention=contention,  # type: ignore[arg-type]
    )
    seconds = np.repeat(np.array(us, dtype=float).reshape(-1, 1) * 1e-6, devices, axis=1)
    scratch = np.full(seconds.shape, workspace, dtype=np.int64)
    return Problem(graph, cluster, Costs(graph, cluster, seconds, workspace_bytes=scratch))


@dataclass
class Outcome:
    """What an engine says: times in ticks, transfers as {(tensor, target): (channel, begin, arrive)}."""

    start: list[int]
    finish: list[int]
    order: list[int]
    transfers: dict[tuple[int, int], tuple[int, int, int]]
    operator_causes: list[int]
    transfer_causes: dict[tuple[int, int], tuple[int, int] | None]  # None: the producer
    peaks: list[int]

    @property
    def start_us(self) -> list[float]:
        return [tick / US for tick in self.start]

    @property
    def makespan_us(self) -> float:
        return max(self.finish, default=0) / US


def ask(engine: str, problem: Problem, on: ArrayLike, policy: Policy | None = None) -> Outcome:
    """The outcome of a placement that can run, from the "reference" or the "native" engine."""
    policy = policy or Fifo()
    placement = Placement(problem, on)
    return _ask_reference(placement, policy) if engine == "reference" else _ask_native(placement, policy)


def reference_run(placement: Placement, policy: Policy) -> reference.Run:
    """The run that the specification makes of a policy."""
    problem, on = placement.problem, placement.devices.tolist()
    tables = Tables(problem)
    if isinstance(policy, Priority):
        position = rank_positions(problem) if policy.position is None else policy.position
        moves = policy.transfer_position
        return reference.priority(tables, on, position.tolist(), None if moves is None else moves.tolist())
    if isinstance(policy, ProgramOrder):
        order = range(len(problem.graph)) if policy.order is None else policy.order.tolist()
        return reference.program_order(tables, on, order, sends=policy.sends)
    return reference.fifo(tables, on)


def _ask_reference(placement: Placement, policy: Policy) -> Outcome:
    run = reference_run(placement, policy)
    of_operators, of_transfers = reference.causes(run)
    keys = [(move.tensor, move.target) for move in run.transfers]
    return Outcome(
        run.start,
        run.finish,
        run.order,
        {key: (x.channel, x.begin, x.arrive) for key, x in zip(keys, run.transfers, strict=True)},
        of_operators,
        {key: None if x < 0 else keys[x] for key, x in zip(keys, of_transfers, strict=True)},
        [peak for peak, _ in peaks(run)],
    )


def _ask_native(placement: Placement, policy: Policy) -> Outcome:
    trace = simulate(placement.problem, placement, policy=policy)
    assert trace.timeline is not None
    trace.check()
    moved = trace.transfers
    keys = list(zip(moved.tensor.tolist(), moved.target.tolist(), strict=True))
    times = zip(moved.channel.tolist(), moved.begin_ticks.tolist(), moved.arrive_ticks.tolist(), strict=True)
    return Outcome(
        trace.start_ticks.tolist(),
        trace.finish_ticks.tolist(),
        trace.order.tolist(),
        dict(zip(keys, times, strict=True)),
        trace.timeline.cause.tolist(),
        {key: None if x < 0 else keys[x] for key, x in zip(keys, moved.cause.tolist(), strict=True)},
        trace.peak_bytes.tolist(),
    )
