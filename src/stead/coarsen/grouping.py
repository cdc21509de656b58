"""Grouping: operators that are placed together, the smaller problem that results, and the way back."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.cluster.classes import DeviceIndices, device_type
from stead.cluster.devices import MAX_DEVICES
from stead.coarsen.coarse_problem import coarse_problem
from stead.errors import BadGraph, BadInput
from stead.graph import UPDATE, Graph
from stead.graph.arrays import distinct_pairs, with_colocation
from stead.graph.components import connected, strongly_connected, topological_numbers
from stead.graph.order import edge_pairs
from stead.graph.quotient import bundled, quotient
from stead.problem import Problem


class Grouping:
    """Which group each operator of a graph belongs to; read-only.

    Groups are numbered from 0 in an order in which they may run, whatever labels were given. Where groups depend on
    each other in a cycle there is no such order: `is_acyclic` is False and they are numbered by first operator.

    >>> from stead.testing import two_towers
    >>> problem = two_towers()
    >>> towers = Grouping(problem.graph, [7, 3, 7, 3, 3])
    >>> towers.group.tolist(), towers.coarse_graph.operator_names
    ([0, 1, 0, 1, 1], ('l1+1', 'r1+2'))
    >>> towers.lift([0, 1]).tolist()
    [0, 1, 0, 1, 1]
    """

    def __init__(self, graph: Graph, group: ArrayLike) -> None:
        given = np.asarray(group)
        if not given.size:
            given = given.astype(np.int32)
        if given.dtype.kind not in "iu" or given.shape != (len(graph),):
            raise BadInput(
                f"a grouping needs {len(graph)} group numbers, one per operator; "
                f"got {given.dtype} of shape {given.shape}"
            )
        self.graph = graph
        numbers = _by_first_operator(given)
        self.count = int(numbers.max()) + 1 if numbers.size else 0
        sources, targets = _edges(graph, numbers)
        rising = topological_numbers(self.count, sources, targets)
        self.is_acyclic = rising is not None
        self.group: NDArray[np.int32] = (numbers if rising is None else rising[numbers]).astype(
            np.int32
        )  # [operator]
        self.group.setflags(write=False)

    def __repr__(self) -> str:
        return f"Grouping({self.graph.name!r}: {len(self.graph)} operators in {self.count} groups)"

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Grouping)
            and np.array_equal(self.group, other.group)
            and (self.graph is other.graph or self.graph == other.graph)
        )

    def __hash__(self) -> int:
        return hash(self.group.tobytes())

    @cached_property
    def sizes(self) -> NDArray[np.int64]:  # [group]
        """Operators in each group."""
        return np.bincount(self.group, minlength=self.count)

    def members(self, g: int) -> NDArray[np.int64]:
        """The operators of one group."""
        return np.flatnonzero(self.group == g)

    def lift(self, devices: ArrayLike) -> DeviceIndices:  # [operator] or [row, operator]
        """Devices of operators from devices of groups; rows of several placements are lifted row by row."""
        given = np.asarray(devices)
        if not given.size:
            given = given.astype(np.uint8)
        if given.dtype.kind not in "iu" or given.ndim not in (1, 2) or given.shape[-1] != self.count:
            raise BadInput(
                f"{self.count} devices are needed, one per group; got {given.dtype} of shape {given.shape}"
            )
        if given.size and not (given.min() >= 0 and given.max() < MAX_DEVICES):
            raise BadInput(f"device indices must lie in 0..{MAX_DEVICES - 1}, got {given.min()}..{given.max()}")
        return given[..., self.group].astype(device_type(int(given.max(initial=0)) + 1))

    def lower(self, devices: ArrayLike) -> DeviceIndices:  # [group]
        """Devices of groups from devices of operators: that of the first operator of each group."""
        given = np.asarray(devices)
        if given.shape != self.group.shape:
            raise BadInput(f"{len(self.group)} devices are needed, one per operator; got shape {given.shape}")
        first = np.empty(self.count, dtype=device_type(int(given.max(initial=0)) + 1))
        first[self.group[::-1]] = given[::-1]
        return first

    def then(self, coarser: Grouping) -> Grouping:
        """Groups of groups: `coarser` groups the operators of this grouping's coarse graph."""
        if len(coarser.graph) != self.count:
            raise BadInput(
                f"the coarser grouping is of {len(coarser.graph)} operators, this one has {self.count} groups"
            )
        return Grouping(self.graph, coarser.group[self.group])

    def fused(self) -> Grouping:
        """The finest coarser grouping without cycles: groups on a common cycle become one group."""
        if self.is_acyclic:
            return self
        label = strongly_connected(self.count, *_edges(self.graph, self.group))
        return Grouping(self.graph, label[self.group])

    def by_phase(self) -> Grouping:
        """Every group cut into its forward, its backward and its update part.

        In a training graph a group that holds both ends of the backward pass lies on a cycle; its parts do not.
        Updates that hand each other the gradients of a tied weight are cut into operators.
        `grouping.by_phase().coarse(grouping.colocated(problem))` keeps the parts on one device.
        """
        cut = Grouping(self.graph, self.group.astype(np.int64) * 3 + self.graph.phases)
        if cut.is_acyclic:
            return cut
        label = strongly_connected(cut.count, *_edges(self.graph, cut.group))
        on_cycle = (np.bincount(label, minlength=cut.count)[label] > 1)[cut.group]
        alone = on_cycle & (self.graph.phases == UPDATE)
        return Grouping(self.graph, np.where(alone, cut.count + np.arange(len(self.graph)), cut.group))

    @cached_property
    def coarse_graph(self) -> Graph:
        """The graph of groups; tensors with the same producer group and the same groups of readers are one."""
        self._refuse_cycle()
        bundles = bundled(self.graph, self.group)
        return quotient(self.graph, self.group, self.count, bundles).graph

    def coarse(self, problem: Problem, *, merge: bool = False) -> Problem:
        """The problem of placing groups.

        Seconds add up; what one member may not use, its group may not; operators that must share a device do.
        Every placement of groups has the same sequential latency and the same steady throughput as the lifted
        placement of operators, to the picosecond: tensors are merged only where their transfers add up. With
        `merge` all tensors of one group to the same groups become one: fewer transfers, which then pay the
        latency of a link once. Dataflow and offload latency are not kept either way, since a group starts when
        all its inputs are there and hands on its outputs when it ends: lift the placement and simulate it.
        """
        self._refuse_cycle()
        self._check(problem)
        return coarse_problem(problem, self.group, self.count, merge=merge)

    def colocated(self, problem: Problem) -> Problem:
        """The same problem with the operators of every group bound to one device: exact for every objective."""
        self._check(problem)
        graph = problem.graph
        bound = np.flatnonzero(graph.colocation >= 0)
        joint = self.count + graph.colocation[bound].astype(np.int64)
        total = self.count + len(graph.colocation_names)
        label = connected(total, self.group[bound], joint)[self.group]
        names = {int(label[v]): graph.colocation_names[graph.colocation[v]] for v in bound[::-1].tolist()}
        labels = [names.get(g, f"group {g}") for g in range(total)]
        return Problem(
            with_colocation(graph, label, labels),
            problem.cluster,
            problem.costs,
            objective=problem.objective,
            constraints=problem.constraints,
        )

    def _refuse_cycle(self) -> None:
        if self.is_acyclic:
            return
        label = strongly_connected(self.count, *_edges(self.graph, self.group))
        cycle = np.flatnonzero(np.bincount(label, minlength=self.count)[label] > 1)
        names = [self.graph.operator_names[self.members(g)[0]] for g in cycle[:2].tolist()]
        raise BadGraph(
            f"{len(cycle)} groups need each other's results, such as those of {names[0]!r} and {names[1]!r}; "
            "take grouping.fused() to join them, or by_phase() if they hold forward and backward operators"
        )

    def _check(self, problem: Problem) -> None:
        """The problem must be about the same operators; what must share a device may differ."""
        own, given = self.graph, problem.graph
        same = own is given or (
            own.operator_names == given.operator_names
            and np.array_equal(own.tensor_first, given.tensor_first)
            and np.array_equal(own.readers, given.readers)
        )
        if not same:
            raise BadInput(f"the grouping is of {own!r}, the problem is about {given!r}")


def single_groups(graph: Graph) -> Grouping:
    """Every operator a group of its own."""
    return Grouping(graph, np.arange(len(graph)))


def unit_groups(problem: Problem) -> Grouping:
    """The operators that must share a device as groups."""
    return Grouping(problem.graph, problem.units)


def _by_first_operator(labels: NDArray[Any]) -> NDArray[np.int64]:
    """The same groups, numbered in order of their first operators."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    return number[inverse.reshape(labels.shape)]


def _edges(graph: Graph, group: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(source, target) of every pair of different groups that share a tensor, sorted."""
    producers, readers = edge_pairs(graph)
    sources, targets = group[producers], group[readers]
    outside = sources != targets
    return distinct_pairs(sources[outside], targets[outside])
