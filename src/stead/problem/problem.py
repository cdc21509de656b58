"""Problem: the question, everything that a solver may look at."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.cluster import Cluster, Routes
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.graph import Graph
from stead.problem.constraints import Constraints
from stead.problem.objectives import Latency, Objective


class Problem:
    """Everything a solver may look at: graph, cluster, costs, objective, constraints.

    >>> from stead.testing import chain3
    >>> problem = chain3()
    >>> problem.graph.operator_names, problem.cluster.names
    (('a', 'b', 'c'), ('d0', 'd1'))
    """

    def __init__(
        self,
        graph: Graph,
        cluster: Cluster,
        costs: Costs,
        *,
        objective: Objective | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        priced = (len(costs.column_seconds), len(costs.columns))
        if priced != (len(graph), len(cluster)):
            raise BadInput(
                f"costs are for {priced[0]} operators on {priced[1]} devices, "
                f"the problem has {len(graph)} on {len(cluster)}"
            )
        self.graph = graph
        self.cluster = cluster
        self.costs = costs
        self.objective: Objective = objective or Latency()
        self.constraints = constraints or Constraints()
        self.units = self.constraints.units(graph)  # [operator]; operators of one unit share a device
        self.units.setflags(write=False)
        # Devices that are equal to the problem share a column of its tables, where those of the costs do.
        picky = self.constraints.pin or self.constraints.forbid
        self.columns = np.arange(len(cluster), dtype=np.uint16) if picky else costs.columns  # [device]
        self.column_allowed = self._allowed()  # [operator, column]
        self.column_allowed.setflags(write=False)
        hosts = [device.is_host for device in cluster]
        if isinstance(self.objective, Latency) and self.objective.execution == "offload" and not any(hosts):
            raise BadInput(
                'offload execution copies through host memory: the cluster needs a device of kind "cpu"'
            )
        if (
            isinstance(self.objective, Latency)
            and self.objective.execution == "offload"
            and graph.is_training
        ):
            raise BadInput(
                "offload execution has no backward pass; give an inference graph or another execution"
            )

    def _allowed(self) -> NDArray[np.bool_]:
        """Devices that can run each operator, may run it, and can and may run all of its unit."""
        allowed: NDArray[np.bool_] = np.isfinite(self.column_seconds)
        if self.constraints.pin or self.constraints.forbid:
            allowed = allowed & self.constraints.allowed(self.graph, self.cluster)
        if self.unit_count < len(self.graph):
            by_unit = np.ones((self.unit_count, allowed.shape[1]), dtype=bool)
            np.logical_and.at(by_unit, self.units, allowed)
            allowed = by_unit[self.units]
        stranded = np.flatnonzero(~allowed.any(axis=1))
        if stranded.size:
            raise Infeasible(
                f"no device is left for operator {self.graph.operator_names[stranded[0]]!r} "
                "once pins, forbids, colocation and unsupported operators are taken together",
                proved=True,
            )
        return allowed

    @property
    def column_seconds(self) -> NDArray[np.float64]:  # [operator, column]
        """Seconds of every operator on devices of every column; inf where it cannot run."""
        costs = self.costs
        return costs.column_seconds if self.columns is costs.columns else costs.seconds

    @property
    def column_workspace_bytes(self) -> NDArray[np.int64]:  # [operator, column]
        """Scratch bytes of every operator on devices of every column."""
        costs = self.costs
        return costs.column_workspace_bytes if self.columns is costs.columns else costs.workspace_bytes

    @property
    def column_sources(self) -> NDArray[np.uint8]:  # [operator, column]
        """Where the numbers of every column come from."""
        return self.costs.column_sources if self.columns is self.costs.columns else self.costs.sources

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:  # [operator, device]
        """Devices that may run every operator."""
        if self.column_allowed.shape[1] == len(self.cluster):
            return self.column_allowed
        allowed: NDArray[np.bool_] = np.take(self.column_allowed, self.columns, axis=1)
        allowed.setflags(write=False)
        return allowed

    def __repr__(self) -> str:
        return (
            f"Problem({self.graph.name!r}: {len(self.graph)} operators on {self.cluster.shown}; "
            f"{self.objective.describe()})"
        )

    @property
    def unit_count(self) -> int:
        """Number of units, an operator without company being one."""
        return int(self.units.max()) + 1 if self.units.size else 0

    @cached_property
    def unit_firsts(self) -> NDArray[np.int64]:  # [unit]
        """The first operator of every unit."""
        return np.unique(self.units, return_index=True)[1]

    @cached_property
    def unit_allowed(self) -> NDArray[np.bool_]:  # [unit, device]
        """Devices that may run every unit."""
        allowed: NDArray[np.bool_] = self.column_allowed[self.unit_firsts][:, self.columns]
        return allowed

    @cached_property
    def unit_seconds(self) -> NDArray[np.float64]:  # [unit, device]
        """Seconds of every unit on every device; inf where it is not allowed."""
        seconds = np.zeros((self.unit_count, len(self.cluster)))
        np.add.at(seconds, self.units, np.where(self.allowed, self.costs.seconds, np.inf))
        return seconds

    @cached_property
    def limit_bytes(self) -> NDArray[np.int64]:  # [device]
        """Memory that every device has to give."""
        limits = np.array([device.usable_bytes for device in self.cluster], dtype=np.int64)
        limits.setflags(write=False)
        return limits

    @cached_property
    def routes(self) -> Routes:
        """How tensors travel between devices."""
        return self.cluster.routes()

    @cached_property
    def native(self) -> _native.Problem:
        """The problem as the core holds it, checked and copied once; what is not allowed cannot run."""
        graph, routes, devices = self.graph, self.routes, self.cluster.devices
        tensor_seconds = self.costs.tensor_seconds
        try:
            return _native.Problem(
                seconds=np.where(self.column_allowed, self.column_seconds, np.inf),
                workspace_bytes=self.column_workspace_bytes,
                column=None if self.column_allowed.shape[1] == len(self.cluster) else self.columns,
                tensor_first=graph.tensor_first,
                tensor_bytes=graph.tensor_bytes,
                tensor_kept=graph.tensor_kept,
                consumer_first=graph.reader_first,
                consumer=graph.readers,
                weight_bytes=graph.weight_bytes,
                weight_user_first=graph.weight_user_first,
                weight_user=graph.weight_users,
                latency_seconds=routes.latency_seconds,
                bytes_per_second=routes.bytes_per_second,
                gap_seconds=routes.gap_seconds,
                channel=routes.channel,
                memory_bytes=self.limit_bytes,
                tensor_seconds=np.zeros(0) if tensor_seconds is None else tensor_seconds,
                hops=routes.hops,
                phase=graph.phases,
                host=np.array([device.is_host for device in devices], dtype=np.uint8),
                routing=("direct", "host").index(self.cluster.routing),
                host_latency_seconds=routes.host_latency_seconds,
                host_bytes_per_second=routes.host_bytes_per_second,
            )
        except ValueError as error:  # what the core refuses is the user's input
            raise BadInput(str(error)) from None

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever anything that can change an answer changes."""
        parts = (
            self.graph.fingerprint,
            self.cluster.fingerprint,
            self.costs.fingerprint,
            self.objective.describe(),
            repr(self.constraints),
        )
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    def with_objective(self, objective: Objective) -> Problem:
        """The same question about another objective."""
        return Problem(
            self.graph, self.cluster, self.costs, objective=objective, constraints=self.constraints
        )

    def with_constraints(self, constraints: Constraints) -> Problem:
        """The same question under other constraints."""
        return Problem(
            self.graph, self.cluster, self.costs, objective=self.objective, constraints=constraints
        )

    def with_memory(self, device: str, usable_bytes: int) -> Problem:
        """The same question with another usable memory on one device."""
        d = self.cluster.index(device)
        changed = replace(self.cluster.devices[d], memory_bytes=usable_bytes, reserve_bytes=0)
        devices = (*self.cluster.devices[:d], changed, *self.cluster.devices[d + 1 :])
        cluster = replace(self.cluster, devices=devices)
        return Problem(
            self.graph, cluster, self.costs, objective=self.objective, constraints=self.constraints
        )


def _same_columns(problem: Problem, a: int, b: int) -> bool:
    one, other = int(problem.columns[a]), int(problem.columns[b])
    tables = (problem.column_seconds, problem.column_allowed)
    return one == other or all(np.array_equal(table[:, one], table[:, other]) for table in tables)


def alike(problem: Problem, a: int, b: int) -> bool:
    """Whether two devices take the same time for everything, hold as much, and are linked alike."""
    routes = problem.routes
    tables = (routes.latency_seconds, routes.bytes_per_second)
    others = [d for d in range(len(problem.cluster)) if d not in (a, b)]
    return (
        _same_columns(problem, a, b)
        and problem.cluster.devices[a].usable_bytes == problem.cluster.devices[b].usable_bytes
        and problem.cluster.devices[a].is_host == problem.cluster.devices[b].is_host
        and all(np.array_equal(table[a, others], table[b, others]) for table in tables)
        and all(np.array_equal(table[others, a], table[others, b]) for table in tables)
    )
