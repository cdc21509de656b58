"""The groups that a policy places, and the memory that they bring along."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from stead.coarsen import Grouping, colocate, limited
from stead.graph.components import connected
from stead.learn.ground.seq2seq import Room
from stead.problem import Problem
from stead.solvers.search.search import long_lived_bytes

HEAVY = 8.0


def placed_groups(problem: Problem, *, most: int = 256) -> Grouping:
    """Groups by the co-location rules, within their limits, that keep together what the problem keeps together.

    A group that takes `HEAVY` times its share of the time falls apart, so that branches inside a block may run side by
    side. Should the limits leave more than `most` groups, neighbours in the order of the graph are joined, whatever
    layer they belong to, where the same devices may run them.
    """
    graph = problem.graph
    share = min(0.5 / len(problem.cluster), HEAVY / most)
    rules = limited(problem, colocate(graph), most_groups=most, most_share=share)
    label = _joined(rules.group.astype(np.int64), problem.units.astype(np.int64))
    stranded = np.asarray(~_common(problem, label).any(axis=1))
    if stranded.any():
        label = np.where(stranded[label], label.max(initial=0) + 1 + problem.units, label)
    grouping = Grouping(graph, label)
    return grouping if grouping.count <= most else _capped(problem, grouping, most)


def by_most_seconds(
    problem: Problem, grouping: Grouping, devices: NDArray[np.uint8]
) -> NDArray[np.uint8]:  # [unit]
    """The device on which most of the time of every unit is spent, among those that may run all of it."""
    count, width = grouping.count, len(problem.cluster)
    own = problem.costs.seconds[np.arange(len(devices)), devices]
    key = grouping.group.astype(np.int64) * width + devices
    weight = np.bincount(key, weights=own + 1e-15, minlength=count * width).reshape(count, width)
    common = np.ones((count, width), dtype=bool)
    np.logical_and.at(common, grouping.group, problem.allowed)
    found: NDArray[np.uint8] = np.where(common, weight, -1.0).argmax(axis=1).astype(np.uint8)
    return found


def memory_room(problem: Problem, group: NDArray[np.int32] | NDArray[np.int64], *, margin: float = 1.0) -> Room | None:
    """What a decoder needs to keep devices from overflowing; None where everything fits on any device.

    Weights and outputs that stay are counted; `margin` is the factor by which passing tensors add to them.
    """
    graph = problem.graph
    held = np.bincount(group, weights=long_lived_bytes(problem))
    capacity = np.array([device.usable_bytes for device in problem.cluster], dtype=np.float64) / margin
    if held.sum() + graph.weight_bytes.sum() <= capacity.min():
        return None
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_user_first))
    uses = np.zeros((len(held), len(graph.weight_bytes)), dtype=np.uint8)
    uses[group[graph.weight_users], weight] = 1
    return Room(
        torch.from_numpy(uses),
        torch.from_numpy(graph.weight_bytes.astype(np.float64)),
        torch.from_numpy(held),
        torch.from_numpy(capacity),
    )


def _joined(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels that are equal wherever either of two labellings is."""
    offset = int(first.max(initial=-1)) + 1
    return connected(offset + int(second.max(initial=-1)) + 1, first, offset + second)[first]


def _common(problem: Problem, label: NDArray[np.int64]) -> NDArray[np.bool_]:  # [label, device]
    common = np.ones((int(label.max(initial=-1)) + 1, len(problem.cluster)), dtype=bool)
    np.logical_and.at(common, label, problem.allowed)
    return common


def _capped(problem: Problem, grouping: Grouping, most: int) -> Grouping:
    """Runs of about equal seconds, one per set of devices that may run them."""
    seconds = np.where(problem.allowed, problem.costs.seconds, np.inf).min(axis=1)
    weight = np.bincount(grouping.group, weights=seconds, minlength=grouping.count)
    signature = np.unique(_common(problem, grouping.group.astype(np.int64)), axis=0, return_inverse=True)[
        1
    ].reshape(-1)
    runs = max(1, most // (int(signature.max(initial=0)) + 1))
    middle = np.cumsum(weight) - weight / 2
    run = np.minimum((middle / max(float(weight.sum()), 1e-30) * runs).astype(np.int64), runs - 1)
    return Grouping(problem.graph, (run * (int(signature.max(initial=0)) + 1) + signature)[grouping.group])
