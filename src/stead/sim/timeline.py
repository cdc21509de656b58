"""Timeline: when every operator and transfer of one run began and ended, and what each of them waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stead.problem import Execution, Problem
from stead.problem.ticks import TICKS_PER_SECOND, to_ticks

NO_CAUSE = -(2**31)
MAX_DEVICES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """Tensors on their way to other devices, in the order in which they were booked."""

    tensor: NDArray[np.int32]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    channel: NDArray[np.int32]  # -1: none, it never queues
    begin_ticks: NDArray[np.int64]
    arrive_ticks: NDArray[np.int64]
    cause: NDArray[np.int32]  # -1: its producer, else the transfer before it on its channel

    def __len__(self) -> int:
        return len(self.tensor)

    def find(self, tensor: NDArray[Any], target: NDArray[Any]) -> NDArray[np.int64]:
        """The transfer of each tensor to each target, -1 where there is none."""
        if not len(self):
            return np.full(len(tensor), -1)
        keys = self.tensor.astype(np.int64) * MAX_DEVICES + self.target
        by_key = np.argsort(keys)
        wanted = tensor.astype(np.int64) * MAX_DEVICES + target
        found = by_key[np.minimum(np.searchsorted(keys, wanted, sorter=by_key), len(keys) - 1)]
        return np.where(keys[found] == wanted, found, -1)


def transfers_from_rows(rows: NDArray[np.int64]) -> Transfers:
    """Transfers that waited for their producers alone, from rows tensor, source, target, channel, begin, arrive."""
    columns = rows.reshape(-1, 6).T
    tensor, source, target, channel = columns[:4].astype(np.int32)
    cause = np.full(columns.shape[1], -1, dtype=np.int32)
    return Transfers(tensor, source, target, channel, columns[4], columns[5], cause)


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of a critical path."""

    kind: Literal["operator", "transfer", "queue"]  # queue: the channel is held by an earlier transfer
    index: int  # of the operator or transfer
    name: str  # of the operator or tensor
    where: str  # a device, or source -> target
    begin_ticks: int
    end_ticks: int

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return (self.end_ticks - self.begin_ticks) / TICKS_PER_SECOND


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One run of a placed graph; with micro-batches, of the graph that holds a copy for each of them."""

    problem: Problem  # the graph that ran
    devices: NDArray[np.uint8]  # [operator]
    execution: Execution
    start_ticks: NDArray[np.int64]  # [operator]
    finish_ticks: NDArray[np.int64]  # [operator]
    order: NDArray[np.int32]  # operators as they were processed
    cause: NDArray[np.int32]  # [operator]; a tensor, -1 - the operator before it on its device, or NO_CAUSE
    transfers: Transfers

    @property
    def makespan_ticks(self) -> int:
        """The last finish of an operator."""
        return int(self.finish_ticks.max(initial=0))

    def critical_path(self) -> tuple[Step, ...]:
        """What the run waited for, from its begin to its end; the pieces follow each other without a gap.

        A sequential run waits for everything in turn; any other for the chain of causes behind the operator
        that finished last (the one of lowest index among equals).
        """
        if not len(self.devices):
            return ()
        if self.execution == "sequential":
            steps = [self._operator(v) for v in range(len(self.devices))]
            steps += [self._transfer(x) for x in range(len(self.transfers))]
            return tuple(sorted(steps, key=lambda step: (step.begin_ticks, step.end_ticks)))
        producer = self.problem.graph.tensor_producer
        arrived = self.transfers.find(self.cause, self.devices)  # the transfer that each operator waited for
        backwards: list[Step] = []
        v = int(np.argmax(self.finish_ticks))
        while True:
            backwards.append(self._operator(v))
            cause = int(self.cause[v])
            if cause == NO_CAUSE:
                return tuple(reversed(backwards))
            if cause < 0:
                v = -1 - cause
            elif arrived[v] < 0:
                v = int(producer[cause])
            else:
                backwards += self._waiting(int(arrived[v]))
                v = int(producer[self.transfers.tensor[backwards[-1].index]])

    def _waiting(self, x: int) -> list[Step]:
        """A transfer and the ones it queued behind, backwards."""
        steps = [self._transfer(x)]
        while (before := int(self.transfers.cause[x])) >= 0:
            until = int(self.transfers.begin_ticks[x])
            steps.append(self._transfer(before, kind="queue", end_ticks=until))
            x = before
        return steps

    def _operator(self, v: int) -> Step:
        names, cluster = self.problem.graph.operator_names, self.problem.cluster
        return Step(
            "operator",
            v,
            names[v],
            cluster.names[self.devices[v]],
            int(self.start_ticks[v]),
            int(self.finish_ticks[v]),
        )

    def _transfer(
        self, x: int, kind: Literal["transfer", "queue"] = "transfer", end_ticks: int | None = None
    ) -> Step:
        moved, names = self.transfers, self.problem.cluster.names
        return Step(
            kind,
            x,
            self.problem.graph.tensor_names[moved.tensor[x]],
            f"{names[moved.source[x]]} -> {names[moved.target[x]]}",
            int(moved.begin_ticks[x]),
            int(moved.arrive_ticks[x]) if end_ticks is None else end_ticks,
        )


def duration_ticks(problem: Problem, devices: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How long every operator takes where it is placed; meaningless where it cannot run."""
    seconds = problem.costs.seconds[np.arange(len(devices)), devices]
    return to_ticks(np.where(np.isfinite(seconds), seconds, 0.0))
