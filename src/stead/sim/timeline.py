"""Timeline: when every operator and transfer of one run began and ended, and what each of them waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices
from stead.cluster.devices import MAX_DEVICES
from stead.cluster.routes import BY_SENDER
from stead.problem import Execution, Problem
from stead.problem.ticks import TICKS_PER_SECOND, to_ticks

NO_CAUSE = -(2**31)
StepKind = Literal["operator", "transfer", "queue"]  # queue: the channel is held by an earlier transfer
STEP_KINDS: tuple[StepKind, ...] = ("operator", "transfer", "queue")
OPERATOR, TRANSFER, QUEUE = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """Tensors on their way to other devices, in the order in which they were booked."""

    tensor: NDArray[np.int32]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    channel: NDArray[np.int32]  # -1: none, it never queues; -2: its sender carries it
    begin_ticks: NDArray[np.int64]
    arrive_ticks: NDArray[np.int64]
    cause: NDArray[np.int32]  # -1: its producer, else the transfer before it on its channel or by its sender

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

    kind: StepKind
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
    devices: DeviceIndices  # [operator]
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

    def busy_until_ticks(self) -> NDArray[np.int64]:  # [operator]
        """When the device of each operator was done with it: when it had run, and what the device carries was there."""
        until, carried = self.finish_ticks.copy(), self.transfers.channel == BY_SENDER
        sender = self.problem.graph.tensor_producer[self.transfers.tensor[carried]]
        np.maximum.at(until, sender, self.transfers.arrive_ticks[carried])
        return until

    def critical_path(self) -> tuple[Step, ...]:
        """What the run waited for, from its begin to its end; the pieces follow each other without a gap.

        A sequential run waits for everything in turn; any other for the chain of causes behind the operator
        that finished last (the one of lowest index among equals).
        """
        return self.steps(self.critical_pieces())

    def critical_pieces(self) -> NDArray[np.int64]:  # [piece, (kind, index, begin, end)]
        """The same as numbers, kinds as places in `STEP_KINDS`; `steps` names them."""
        if self.execution == "sequential":
            return self._in_turn()
        kind, index, behind = (np.array(part[::-1], dtype=np.int64) for part in self._chain())
        pieces = np.stack([kind, index, np.zeros_like(kind), np.zeros_like(kind)], axis=1)
        run, moved = kind == OPERATOR, self.transfers
        pieces[run, 2], pieces[run, 3] = self.start_ticks[index[run]], self.finish_ticks[index[run]]
        pieces[~run, 2], pieces[~run, 3] = moved.begin_ticks[index[~run]], moved.arrive_ticks[index[~run]]
        pieces[kind == QUEUE, 3] = moved.begin_ticks[behind[kind == QUEUE]]  # it ends where the next one begins
        return pieces

    def steps(self, pieces: NDArray[np.int64]) -> tuple[Step, ...]:
        """Pieces of a critical path with their names."""
        operators, tensors, devices = (
            self.problem.graph.operator_names, self.problem.graph.tensor_names, self.problem.cluster.names
        )  # fmt: skip
        found = []
        for kind, index, begin, end in pieces.tolist():
            if STEP_KINDS[kind] == "operator":
                name, where = operators[index], devices[self.devices[index]]
            else:
                moved = self.transfers
                name = tensors[moved.tensor[index]]
                where = f"{devices[moved.source[index]]} -> {devices[moved.target[index]]}"
            found.append(Step(STEP_KINDS[kind], index, name, where, begin, end))
        return tuple(found)

    def _in_turn(self) -> NDArray[np.int64]:
        """All operators and transfers of a run that does one thing at a time."""
        moved = self.transfers
        kind = np.repeat([OPERATOR, TRANSFER], [len(self.devices), len(moved)])
        index = np.concatenate([np.arange(len(self.devices)), np.arange(len(moved))])
        begin = np.concatenate([self.start_ticks, moved.begin_ticks])
        end = np.concatenate([self.finish_ticks, moved.arrive_ticks])
        return np.stack([kind, index, begin, end], axis=1)[np.lexsort((np.arange(len(kind)), end, begin))]

    def _chain(self) -> tuple[list[int], list[int], list[int]]:
        """The chain of causes, backwards: kinds, indices, and for a queue the transfer that waits."""
        kinds: list[int] = []
        indices: list[int] = []
        behind: list[int] = []
        if not len(self.devices):
            return kinds, indices, behind
        moved, causes, producer = self.transfers, self.cause, self.problem.graph.tensor_producer
        arrived = moved.find(causes, self.devices)  # the transfer that each operator waited for
        carried = self._carried_last()
        v = int(np.argmax(self.finish_ticks))
        while True:
            kinds.append(OPERATOR)
            indices.append(v)
            behind.append(-1)
            cause = causes.item(v)
            if cause == NO_CAUSE:
                return kinds, indices, behind
            x = arrived.item(v) if cause >= 0 else carried.get(-1 - cause, -1)
            if x < 0 and cause < 0:
                v = -1 - cause
                continue
            if x < 0:
                v = producer.item(cause)
                continue
            kinds.append(TRANSFER)
            indices.append(x)
            behind.append(-1)
            while (before := moved.cause.item(x)) >= 0:  # those that it queued behind
                kinds.append(QUEUE)
                indices.append(before)
                behind.append(x)
                x = before
            v = producer.item(moved.tensor.item(x))


    def _carried_last(self) -> dict[int, int]:
        """By operator: the transfer that its device carried last, which then went on."""
        moved = self.transfers
        carried = np.flatnonzero(moved.channel == BY_SENDER)
        if not len(carried):
            return {}
        producer = self.problem.graph.tensor_producer[moved.tensor[carried]]
        last = moved.arrive_ticks[carried] == self.busy_until_ticks()[producer]
        late = moved.arrive_ticks[carried] > self.finish_ticks[producer]
        return dict(zip(producer[last & late].tolist(), carried[last & late].tolist(), strict=True))


def duration_ticks(problem: Problem, devices: DeviceIndices) -> NDArray[np.int64]:
    """How long every operator takes where it is placed; meaningless where it cannot run."""
    seconds = problem.costs.seconds_on(devices)
    return to_ticks(np.where(np.isfinite(seconds), seconds, 0.0))
