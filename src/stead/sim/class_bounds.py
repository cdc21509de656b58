"""Lower bounds on clusters that are too large for the others, by classes of equal devices.

Notation    v operator or unit, c class of devices, m[c] devices of the class, M bytes of one of them
    p[v,c]  ticks of v on a device of class c

Let a placement on the whole cluster be given, and let each device d stand for its class c(d).

1. *Path.* The quotient has one device per class; a way between two classes is as quick as the quickest between any two
   of their devices, in latency, pace and hops each. Take a path of operators: it takes p[v,c] for each, as on the whole
   cluster, and at least the way between the classes for each change of class, while a change of device within a class
   is free here and is not free there. So no path takes longer on the quotient, under the same assignment of classes,
   and the least over all assignments is a bound.
2. *Area.* The devices of a class work at most m[c] * T in all, so the sum over v on c of p[v,c] is at most m[c] * T,
   and the sum of floor(p[v,c] / m[c]) at most T. Their weights fit m[c] * M. So the bound of the core on work that is
   spread over devices holds for one device per class with p[v,c] / m[c], rounded down.
3. *Largest unit.* It runs somewhere: the least p[v,c] over classes.

Bounds of a part of the cluster are none: a placement may use the rest.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Link
from stead.costs import Costs
from stead.problem import Problem


def device_classes(problem: Problem) -> NDArray[np.int64]:  # [device]
    """Devices that are equal to a problem have the same number: times, permissions, memory, host or not."""
    seconds = np.where(problem.column_allowed, problem.column_seconds, np.inf)
    tables = (seconds, problem.column_workspace_bytes)
    digests = [
        hashlib.sha256(b"".join(table[:, c].tobytes() for table in tables)).digest() for c in range(seconds.shape[1])
    ]
    numbers: dict[tuple[bytes, int, bool], int] = {}
    keys = [
        (digests[c], device.usable_bytes, device.is_host)
        for c, device in zip(problem.columns.tolist(), problem.cluster, strict=True)
    ]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def quotient(problem: Problem, classes: NDArray[np.int64]) -> Problem:
    """The problem with one device for each class, joined by the quickest ways; constraints are in its costs."""
    count = int(classes.max()) + 1
    firsts = [int(np.flatnonzero(classes == c)[0]) for c in range(count)]
    seconds = np.where(problem.column_allowed, problem.column_seconds, np.inf)[:, problem.columns[firsts]]
    devices = tuple(problem.cluster.devices[d] for d in firsts)
    cluster = Cluster(devices, tuple(_quickest(problem, classes, firsts)), contention="none")
    costs = Costs(problem.graph, cluster, seconds, tensor_seconds=problem.costs.tensor_seconds)
    return Problem(problem.graph, cluster, costs, objective=problem.objective)


def class_sizes(classes: NDArray[np.int64]) -> NDArray[np.int64]:  # [class]
    """How many devices every class has."""
    return np.bincount(classes)


def _quickest(problem: Problem, classes: NDArray[np.int64], firsts: list[int]) -> list[Link]:
    """A link for each ordered pair of classes that no way between their devices beats; none where there is no way."""
    routes, names = problem.routes, problem.cluster.names
    links = []
    for a, first in enumerate(firsts):
        for b, second in enumerate(firsts):
            block = np.ix_(classes == a, classes == b)
            latency = float(routes.latency_seconds[block].min())
            if a != b and latency < math.inf:
                rate = float(routes.bytes_per_second[block].max())
                links.append(Link(names[first], names[second], rate, latency))
    return links


def memory_of_classes(problem: Problem, classes: NDArray[np.int64]) -> NDArray[np.int64]:  # [class]
    """Bytes of all devices of every class together; more than all weights need is no more room for them."""
    enough = sum(problem.graph.weight_bytes.tolist()) + 1
    totals = [0] * (int(classes.max()) + 1)
    for c, limit in zip(classes.tolist(), problem.limit_bytes.tolist(), strict=True):
        totals[c] = min(totals[c] + limit, enough)
    return np.array(totals, dtype=np.int64)
