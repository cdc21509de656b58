"""What a placement should take on workers that share memory, with the order and the charges of an executor.

Every device runs its operators one after another, in the order in which stead's simulator starts them. An operator
begins when its device is free and its inputs are there. A tensor that is read elsewhere is copied once, by its
producer, whose device is busy meanwhile; all readers use the one copy in place.

    finish[v] = start[v] + seconds[v, d] + sum over outputs t read elsewhere of latency + bytes[t] / rate
    ready[t]  = when its own copy is made

An updated weight is copied twice: by its update, and by every device that begins the next step with it (`Refresh`).

stead's own objective lets transfers overlap with compute, which links between cards do and copies in memory do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.graph import REFRESH
from stead.problem import Latency, Placement, Problem, Throughput
from stead.sim import simulate

Charge = Literal["overlapped", "per_tensor"]


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
    graph, routes, devices = problem.graph, problem.cluster.routes(), placement.devices
    spent = np.zeros(len(graph))
    for t, producer in enumerate(graph.tensor_producer):
        readers = graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]]
        home = devices[producer]
        away = sorted({int(devices[v]) for v in readers} - {int(home)})
        if away:
            rates = routes.bytes_per_second[home, away]
            spent[producer] += float(np.max(routes.latency_seconds[home, away] + graph.tensor_bytes[t] / rates))
            for d in away:
                first = next(v for v in readers if devices[v] == d)  # a device keeps one copy for all its readers
                if graph.kinds[first] == REFRESH:
                    spent[first] += float(graph.tensor_bytes[t] / routes.bytes_per_second[home, d])
    return spent


def _one_step(problem: Problem, placement: Placement, ordered_by: Problem) -> float:
    graph, devices = problem.graph, placement.devices
    if not len(graph):
        return 0.0
    latency = ordered_by if isinstance(ordered_by.objective, Latency) else ordered_by.with_objective(Latency())
    begin = simulate(latency, on_problem(latency, placement), memory="off").start_ticks
    seconds = problem.costs.seconds[np.arange(len(graph)), devices]
    copies = copy_seconds(problem, placement)
    finish, free = np.zeros(len(graph)), np.zeros(len(problem.cluster))
    for v in np.lexsort((np.arange(len(graph)), begin)):
        read = graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]]
        producers = graph.tensor_producer[read]
        start = max(free[devices[v]], float(finish[producers].max()) if len(producers) else 0.0)
        finish[v] = free[devices[v]] = start + seconds[v] + copies[v]
    return float(finish.max())


def _pipelined(problem: Problem, placement: Placement) -> float:
    """The time of the slowest stage, with what it sends."""
    spent = problem.costs.seconds[np.arange(len(problem.graph)), placement.devices] + copy_seconds(problem, placement)
    return float(np.bincount(placement.devices, weights=spent, minlength=len(problem.cluster)).max())
