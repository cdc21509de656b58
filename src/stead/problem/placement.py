"""Placement: one answer to a problem, a device for every operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from stead.cluster.classes import DeviceIndices, device_type
from stead.errors import BadInput
from stead.problem.objectives import Latency, Order, Priority, Throughput
from stead.problem.problem import Problem, alike


class Placement:
    """One device per operator, and if need be the order in which they run; complete, in range, read-only.

    Without an `order` the policy of the objective decides who goes first. `replicas` are groups of equal devices that
    share a stage of a pipeline: the first one has its operators, all take samples in turn.

    >>> from stead.testing import chain3
    >>> Placement(chain3(), [0, 1, 0]).by_name()
    {'a': 'd0', 'b': 'd1', 'c': 'd0'}
    """

    def __init__(
        self,
        problem: Problem,
        devices: ArrayLike,
        order: Order | None = None,
        replicas: Sequence[Sequence[int]] = (),
    ) -> None:
        given = np.asarray(devices)
        operators, count = len(problem.graph), len(problem.cluster)
        if not given.size:
            given = given.astype(np.uint8)
        if given.dtype.kind not in "iu" or given.shape != (operators,):
            raise BadInput(
                f"a placement needs {operators} device indices, got {given.dtype} of shape {given.shape}"
            )
        if given.size and not (given.min() >= 0 and given.max() < count):
            raise BadInput(f"device indices must lie in 0..{count - 1}, got {given.min()}..{given.max()}")
        self.problem = problem
        self.devices: DeviceIndices = given.astype(device_type(count))  # [operator]
        self.devices.setflags(write=False)
        self.order = order
        if order is not None:
            _check_order(problem, order)
        self.replicas = tuple(tuple(group) for group in replicas)
        if self.replicas:
            _check_replicas(problem, self.devices, self.replicas)

    def __repr__(self) -> str:
        ordered = f", {self.order.name}" if self.order is not None else ""
        return f"Placement({self.counts()}{ordered})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.devices.tobytes(), self.replicas, *_order_key(self.order))

    @property
    def without_order(self) -> Placement:
        """The same devices, served as the policy of the objective says."""
        return self if self.order is None else Placement(self.problem, self.devices, replicas=self.replicas)

    @staticmethod
    def from_names(problem: Problem, names: Mapping[str, str]) -> Placement:
        """The placement that a mapping of operator names to device names means."""
        devices = np.full(len(problem.graph), -1, dtype=np.int64)
        for operator, device in names.items():
            devices[problem.graph.index(operator)] = problem.cluster.index(device)
        missing = np.flatnonzero(devices < 0)
        if missing.size:
            raise BadInput(
                f"the placement leaves out {missing.size} of {len(devices)} operators, "
                f"first {problem.graph.operator_names[missing[0]]!r}"
            )
        return Placement(problem, devices)

    def by_name(self) -> dict[str, str]:
        """Operator name to device name."""
        names = self.problem.cluster.names
        return {
            operator: names[d]
            for operator, d in zip(self.problem.graph.operator_names, self.devices.tolist(), strict=True)
        }

    def counts(self) -> dict[str, int]:
        """Operators on each device."""
        counted = np.bincount(self.devices, minlength=len(self.problem.cluster))
        return dict(zip(self.problem.cluster.names, counted.tolist(), strict=True))

    def violations(self) -> list[str]:
        """Sentences about units that are torn apart; empty when every colocation is kept."""
        problem = self.problem
        if problem.unit_count == len(problem.graph):
            return []
        lowest = np.full(problem.unit_count, len(problem.cluster), dtype=np.int64)
        highest = np.zeros(problem.unit_count, dtype=np.int64)
        np.minimum.at(lowest, problem.units, self.devices)
        np.maximum.at(highest, problem.units, self.devices)
        torn = np.flatnonzero(lowest != highest)
        if not torn.size:
            return []
        members = np.flatnonzero(problem.units == torn[0])
        first = members[0]
        other = next(int(v) for v in members if self.devices[v] != self.devices[first])
        names, where = problem.graph.operator_names, problem.cluster.names
        return [
            f"{names[first]!r} on {where[self.devices[first]]} and {names[other]!r} on {where[self.devices[other]]} "
            f"must share a device ({torn.size} such group{'s' if torn.size > 1 else ''})"
        ]


def _check_order(problem: Problem, order: Order) -> None:
    """An order belongs to one placement and to an objective that honours it."""
    objective = problem.objective
    if not isinstance(objective, Latency) or not objective.takes_orders:
        raise BadInput(f"a placement cannot bring an order here: {objective.describe()} has its own rules")
    given = order.position if isinstance(order, Priority) else order.order
    listed = not isinstance(order, Priority) and order.sends
    if given is not None and (given.ndim != 1 or (not listed and len(given) != len(problem.graph))):
        raise BadInput(
            f"the order of a placement lists {len(problem.graph)} operators, got an array of shape {given.shape}"
        )


def _order_key(order: Order | None) -> tuple[object, ...]:
    if order is None:
        return ()
    arrays = (order.position, order.transfer_position) if isinstance(order, Priority) else (order.order, None)
    return (order.name, *(None if array is None else array.tobytes() for array in arrays))


def _check_replicas(
    problem: Problem, devices: DeviceIndices, replicas: tuple[tuple[int, ...], ...]
) -> None:
    """Groups share stages of a full pipeline; only the first of each has operators, and all can do the same."""
    objective = problem.objective
    if not isinstance(objective, Throughput) or objective.microbatches is not None:
        raise BadInput(f"only stages of a full pipeline can be shared, not {objective.describe()}")
    members = [d for group in replicas for d in group]
    if not all(isinstance(d, int | np.integer) and 0 <= d < len(problem.cluster) for d in members):
        raise BadInput(f"replicas are device indices in 0..{len(problem.cluster) - 1}, got {replicas}")
    if len(set(members)) < len(members):
        raise BadInput(f"a device shares one stage at most, got {replicas}")
    names, used = problem.cluster.names, set(devices.tolist())
    for first, *others in replicas:
        for d in others:
            if d in used:
                raise BadInput(
                    f"{names[d]} shares the stage of {names[first]} and cannot have operators of its own"
                )
            if not alike(problem, first, d):
                raise BadInput(f"{names[d]} cannot share the stage of {names[first]}: they are not equal")
