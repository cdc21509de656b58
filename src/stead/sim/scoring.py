"""Many placements -> Scores, for each way of executing them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.cluster.classes import DeviceIndices
from stead.errors import BadInput
from stead.problem import Load, Pieces, PlacetoDispatch, Policy, Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.core_calls import bad_input, engine_arguments, placeto_graph, value_of_loads
from stead.sim.pipeline import Unrolled, unrolled
from stead.sim.published_placeto import simulate_placeto_many
from stead.sim.trace import Cyclic, Memory, Scores, Status

NO_CUTOFF = int(np.iinfo(np.int64).max)
ORDERS_AT_ONCE = 2**24  # entries; orders of many placements are handed to the core in portions



@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """What an engine says about each row."""

    ticks: NDArray[np.int64]  # [placement]
    status: NDArray[np.uint8]  # [placement]
    peak_bytes: NDArray[np.int64]  # [placement, device]
    over_bytes: NDArray[np.int64]  # [placement, device]

    @staticmethod
    def of(scores: _native.Scores) -> _Columns:
        return _Columns(scores.ticks, scores.status, scores.peak_bytes, scores.over_bytes)

    def void(self, rows: NDArray[np.bool_], status: Status) -> None:
        """Let so marked rows have no value, for a reason."""
        self.ticks[rows], self.status[rows], self.peak_bytes[rows], self.over_bytes[rows] = -1, status, -1, 0



@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Placements to score, and how."""

    problem: Problem
    placements: DeviceIndices  # [placement, operator]
    memory: Memory
    cutoff_seconds: float
    threads: int

    def dataflow(self, policy: Policy, positions: NDArray[np.int32] | None = None) -> Scores:
        """Run every row by the event engine; with `positions` [placement, operator] by priorities of its own."""
        if isinstance(policy, PlacetoDispatch):
            return self._placeto()
        arguments = (
            engine_arguments(self.problem, policy)
            if positions is None
            else {"policy": "priority", "order": positions}
        )
        with bad_input():
            found = _native.simulate_many(
                self.problem.native,
                self.placements,
                memory=self.memory,
                cutoff_ticks=self._cutoff_ticks(1),
                threads=self.threads,
                **arguments,
            )
        return self._scores(policy.name, _Columns.of(found))

    def sequential(self) -> Scores:
        """One operator or transfer at a time."""
        with bad_input():
            found = _native.sequential_many(
                self.problem.native, self.placements, memory=self.memory, threads=self.threads
            )
        return self._scores("sequential", self._cut(_Columns.of(found)))

    def offload(self, pieces: Pieces) -> Scores:
        """Every piece of an accelerator as one call."""
        with bad_input():
            found = _native.offload_many(
                self.problem.native,
                self.placements,
                published=pieces == "published",
                memory=self.memory,
                threads=self.threads,
            )
        return self._scores("offload", self._cut(_Columns.of(found)))

    def steady(self, load: Load) -> Scores:
        """The load of the busiest device."""
        with bad_input():
            loads = _native.loads_many(
                self.problem.native, self.placements, memory=self.memory, threads=self.threads
            )
        columns = replace(_Columns.of(loads), ticks=value_of_loads(loads, load))
        columns.ticks[columns.status > Status.MEMORY] = -1
        return self._scores("steady", self._cut(columns))

    def pipelined(self) -> Scores:
        """All micro-batches of a step; rows in portions, since each may have an order of its own."""
        step = unrolled(self.problem)
        rows = max(1, ORDERS_AT_ONCE // max(1, len(step.copies.origin)))
        portions = [self.placements[i : i + rows] for i in range(0, len(self.placements), rows)]
        done = [self._run_step(step, portion) for portion in portions or [self.placements]]
        columns = _Columns(
            np.concatenate([portion.ticks for portion in done]),
            np.concatenate([portion.status for portion in done]),
            np.concatenate([portion.peak_bytes for portion in done]),
            np.concatenate([portion.over_bytes for portion in done]),
        )
        return self._scores(step.copies.schedule, columns, samples=step.copies.microbatches)

    def _run_step(self, step: Unrolled, portion: DeviceIndices) -> _Columns:
        any_order = np.arange(len(step.copies.origin), dtype=np.int32)
        cyclic = np.zeros(len(portion), dtype=bool)
        orders = any_order
        if not step.same_order_for_all:
            orders = np.empty((len(portion), len(any_order)), dtype=np.int32)
            for row, devices in enumerate(portion):
                order = step.order(devices)
                cyclic[row] = isinstance(order, Cyclic)
                orders[row] = any_order if isinstance(order, Cyclic) else order
        with bad_input():
            found = _native.simulate_many(
                step.problem.native,
                step.lift(portion),
                policy="program_order",
                order=orders,
                memory=self.memory,
                cutoff_ticks=self._cutoff_ticks(step.copies.microbatches),
                threads=self.threads,
            )
        columns = _Columns.of(found)
        cyclic &= (columns.status != Status.UNSUPPORTED) & (columns.status != Status.UNREACHABLE)
        columns.void(cyclic, Status.CYCLIC)
        return columns

    def _placeto(self) -> Scores:
        """The published simulator; it judges no memory and knows no cutoff."""
        devices = len(self.problem.cluster)
        found = simulate_placeto_many(
            placeto_graph(self.problem),
            self.placements,
            devices,
            memory="off" if self.memory == "off" else "peak",
            threads=self.threads,
        )
        ticks = np.rint(found.makespan_us * 1e6).astype(np.int64)
        status = np.zeros(len(ticks), dtype=np.uint8)
        allowed, columns = self.problem.column_allowed, self.problem.columns
        banned = ~allowed[np.arange(self.placements.shape[1]), columns[self.placements]].all(axis=1)
        ticks[banned], status[banned] = -1, Status.UNSUPPORTED
        peak = found.peak_bytes.astype(np.int64)
        return self._scores("placeto", self._cut(_Columns(ticks, status, peak, np.zeros_like(peak))))

    def _cutoff_ticks(self, samples: int) -> int:
        """The cutoff in ticks; rounded, so that a value that was read off a trace is not below itself."""
        if math.isnan(self.cutoff_seconds) or self.cutoff_seconds < 0:
            raise BadInput(f"cutoff_seconds must be at least 0, got {self.cutoff_seconds}")
        ticks = self.cutoff_seconds * samples * TICKS_PER_SECOND
        return NO_CUTOFF if ticks >= NO_CUTOFF else round(ticks)

    def _cut(self, columns: _Columns) -> _Columns:
        """The same answer from engines that know no cutoff."""
        columns.void(columns.ticks > self._cutoff_ticks(1), Status.CUT)
        return columns

    def _scores(self, policy: str, columns: _Columns, samples: int = 1) -> Scores:
        self._mark_torn(columns.status)
        return Scores(
            policy=policy,
            ticks=columns.ticks,
            seconds=np.where(columns.ticks >= 0, columns.ticks / TICKS_PER_SECOND / samples, np.inf),
            status=columns.status,
            peak_bytes=columns.peak_bytes,
            over_bytes=columns.over_bytes,
        )

    def _mark_torn(self, status: NDArray[np.uint8]) -> None:
        """Mark rows that put operators of one unit on different devices, unless they have no value anyway."""
        units = self.problem.units
        if self.problem.unit_count == len(units):
            return
        leader = np.unique(units, return_index=True)[1][units]  # the first operator of every operator's unit
        follower = np.flatnonzero(leader != np.arange(len(units)))
        torn = (self.placements[:, follower] != self.placements[:, leader[follower]]).any(axis=1)
        status[torn & (status <= Status.MEMORY)] = Status.TORN
