"""What a placement should take on workers that share memory, with the order and the charges of an executor.

It is what the simulator says of the problem as it is run: links are carried by their senders (a tensor that is read
elsewhere is copied once, by its producer, whose device is busy meanwhile; all readers use the one copy in place), every
device runs its operators in the order in which the simulator starts them, and an updated weight is copied twice: by its
update, and by every device that begins the next step with it (`Refresh`), which the problem itself does not know.

A problem whose links carry tensors while devices compute, as those of cards do, says less; `stead profile` and
`stead devices --measure` describe cores of one machine as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import REFRESH
from stead.problem import Latency, Placement, Problem, ProgramOrder, Throughput
from stead.sim import simulate

Charge = Literal["overlapped", "per_tensor"]  # as the links of the problem say; as an executor in shared memory does


@dataclass(frozen=True, slots=True)
class Predicted:
    """What somebody calculated. Never a measurement: those are `Measured`."""

    seconds: float
    costs: str  # where the seconds of operators come from: "analytic", "imported", "measured"
    charge: Charge

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise BadInput(f"a prediction is a positive number of seconds, got {self.seconds}")


def predict(
    problem: Problem, placement: Placement, *, charge: Charge = "per_tensor", ordered_by: Problem | None = None
) -> Predicted:
    """Seconds of one step (latency) or between two results (throughput) of a placement.

    `ordered_by` is the problem whose costs an executor takes its order from, where these are not the ones to predict
    with.
    """
    placement = on_problem(problem, placement)
    label = problem.costs.source.label
    if charge == "overlapped":
        return Predicted(simulate(problem, placement, memory="off").objective_seconds, label, charge)
    if isinstance(problem.objective, Throughput):
        return Predicted(_pipelined(problem, placement), label, charge)
    return Predicted(_one_step(problem, placement, ordered_by or problem), label, charge)


def on_problem(problem: Problem, placement: Placement) -> Placement:
    """The same placement as an answer to another problem about the same operators and devices."""
    if placement.problem is problem:
        return placement
    return Placement(problem, placement.devices, placement.order, placement.replicas)


def copy_seconds(problem: Problem, placement: Placement) -> NDArray[np.float64]:  # [operator]
    """What each operator spends on copies: of outputs that are read elsewhere, and of weights that it receives."""
    graph, routes, devices = problem.graph, problem.routes, placement.devices
    spent = _received_seconds(problem, placement)
    for t, producer in enumerate(graph.tensor_producer):
        readers = graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]]
        home = devices[producer]
        away = sorted({int(devices[v]) for v in readers} - {int(home)})
        if away:
            rates = routes.bytes_per_second[home, away]
            spent[producer] += float(np.max(routes.latency_seconds[home, away] + graph.tensor_bytes[t] / rates))
    return spent


def _received_seconds(problem: Problem, placement: Placement) -> NDArray[np.float64]:  # [operator]
    """What receivers of updated weights spend on copies; a device keeps one for all its readers."""
    graph, rates, devices = problem.graph, problem.routes.bytes_per_second, placement.devices
    spent = np.zeros(len(graph))
    kept: set[tuple[int, int]] = set()
    for v in np.flatnonzero([kind == REFRESH for kind in graph.kinds]).tolist():
        for t in graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist():
            home, here = int(devices[graph.tensor_producer[t]]), int(devices[v])
            if home != here and (t, here) not in kept:
                kept.add((t, here))
                spent[v] += float(graph.tensor_bytes[t] / rates[home, here])
    return spent


def _one_step(problem: Problem, placement: Placement, ordered_by: Problem) -> float:
    if not len(problem.graph):
        return 0.0
    latency = ordered_by if isinstance(ordered_by.objective, Latency) else ordered_by.with_objective(Latency())
    begin = simulate(latency, on_problem(latency, placement), memory="off").start_ticks
    order = ProgramOrder(np.argsort(begin, kind="stable").astype(np.int32))
    run = _as_run(problem, placement)
    return simulate(run, Placement(run, placement.devices, order), memory="off").objective_seconds


def _as_run(problem: Problem, placement: Placement) -> Problem:
    """The problem of workers that share memory: senders carry, and who reads an updated weight copies it, too."""
    links = tuple(replace(link, carried_by="sender", gap_seconds=0.0) for link in problem.cluster.links)
    received = _received_seconds(problem, placement)
    objective = problem.objective
    if links == problem.cluster.links and not received.any() and objective == Latency():
        return problem
    cluster = replace(problem.cluster, links=links)
    costs = Costs(problem.graph, cluster, problem.costs.seconds + received[:, None])
    return Problem(problem.graph, cluster, costs, objective=Latency())


def _pipelined(problem: Problem, placement: Placement) -> float:
    """The time of the slowest stage, with what it sends."""
    spent = problem.costs.seconds[np.arange(len(problem.graph)), placement.devices] + copy_seconds(problem, placement)
    return float(np.bincount(placement.devices, weights=spent, minlength=len(problem.cluster)).max())
