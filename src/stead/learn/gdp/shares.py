"""Where nodes lie in the work of a graph, and where that is among the devices.

People cut layers, or time, into blocks in proportion to the speeds of the devices. Here every node gets the share of
all work that lies before its middle, in several orders, and for every device how far that is from the device's own
part of the work, in widths of that part: whoever takes the nearest device has such a cut, whatever the number of layers
and devices. Backward and update operators lie where their forward operator lies.

Notation    N nodes, K devices, P places
    place   [N, P]     share of the work, or of the bytes, before the middle of a node
    offset  [N, K, P]  (place - middle of the device's part) / width of the part

Places, in this order
    time     3  units of the graph by index, by upward rank and depth first: cuts across calls of a layer, too
    layers   3  the same, all users of a weight together
    numbers  2  blocks by their number, `enc.1` beside `dec.1`; by work and by count
    bytes    1  layers by index; parts are those of memory
    one      1  everything in the middle of the fastest device
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.coarsen.blocks import layers_of
from stead.problem import Problem
from stead.solvers.build.chunks import middles, topological
from stead.solvers.build.schedules import tied_units, weight_units
from stead.solvers.rules.settle import mean_seconds, speed_shares

ORDERS = ("index", "rank", "depth")
BYTES = 2 * len(ORDERS) + 2  # which place is that of bytes
PLACES = BYTES + 2
FAR = 3.0  # offsets end here


def node_places(problem: Problem, nodes: Grouping) -> NDArray[np.float64]:  # [N, P]
    """Places of the operators, averaged over each node by work."""
    work = mean_seconds(_seconds(problem))
    orders = [topological(problem, kind) for kind in ORDERS]
    layers, numbers = weight_units(problem), _block_numbers(problem)
    found = [_places(unit_of, order, work) for unit_of in (tied_units(problem), layers) for order in orders]
    found.append(_places(numbers, orders[0], work))
    found.append((numbers + 0.5) / (numbers.max(initial=0) + 1))
    found.append(_places(layers, orders[0], problem.graph.parameter_bytes.astype(np.float64)))
    parts = speed_shares(_seconds(problem))
    found.append(np.full(len(work), (np.cumsum(parts) - parts / 2)[parts.argmax()]))
    weight = np.maximum(work, 1e-30)
    total = np.bincount(nodes.group, weights=weight, minlength=nodes.count)
    sums = [np.bincount(nodes.group, weights=weight * place, minlength=nodes.count) for place in found]
    return np.stack(sums, axis=1) / total[:, None]


def device_offsets(problem: Problem, places: NDArray[np.float64]) -> NDArray[np.float64]:  # [N, K, P]
    """Offsets, none beyond `FAR`; devices without a part are far from everything."""
    memory = np.array([float(device.usable_bytes) for device in problem.cluster])
    parts = np.repeat(speed_shares(_seconds(problem))[:, None], PLACES, axis=1)  # [K, P]
    parts[:, BYTES] = memory / memory.sum()
    middle = np.cumsum(parts, axis=0) - parts / 2
    offset = (places[:, None, :] - middle) / np.maximum(parts, 1e-9)
    return np.where(parts > 0, np.clip(offset, -FAR, FAR), FAR)


def _block_numbers(problem: Problem) -> NDArray[np.int32]:  # [operator]
    """The number of the repeated block that each operator belongs to, counted without gaps; its rank without one."""
    layers = layers_of(problem)
    ends = [name.rpartition(".")[2] for name in layers.names]
    if not ends or not all(end.isascii() and end.isdigit() for end in ends):
        return layers.of_operator
    return np.unique([int(end) for end in ends], return_inverse=True)[1].astype(np.int32)[layers.of_operator]


def _places(
    unit_of: NDArray[np.int32], order: NDArray[np.int32], weight: NDArray[np.float64]
) -> NDArray[np.float64]:  # [operator]
    units = np.bincount(unit_of, weights=weight).astype(np.float64)
    return middles(unit_of, order, units)[unit_of]


def _seconds(problem: Problem) -> NDArray[np.float64]:  # [operator, device]
    return np.where(problem.allowed, problem.costs.seconds, np.inf)
