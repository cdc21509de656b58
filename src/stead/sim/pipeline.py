"""Micro-batches: the order in which a schedule runs a step of them.

`gpipe` runs all forward passes, then the backward passes in reverse order, last micro-batch first (Huang et
al. 2019, "GPipe"; torchgpipe enforces it). `1f1b` lets stage k of p run min(m, p - k) forward passes ahead, then
one backward and one forward pass in turn (Narayanan et al. 2019, "PipeDream"): it never holds more micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.cluster.classes import DeviceIndices
from stead.graph import BACKWARD, FORWARD, UPDATE
from stead.problem import Problem
from stead.sim.unroll import Copies, unroll
from stead.sim.violations import Cyclic

_unrolled: WeakKeyDictionary[Problem, Unrolled] = WeakKeyDictionary()


def unrolled(problem: Problem) -> Unrolled:
    """The step of micro-batches that the objective of `problem` asks for; built once per problem."""
    if problem not in _unrolled:
        copies = Copies(problem)
        _unrolled[problem] = Unrolled(copies, unroll(problem, copies))
    return _unrolled[problem]


@dataclass(frozen=True, eq=False)
class Unrolled:
    """A step as a problem of its own: forward copies, backward copies in the order they run, then updates."""

    copies: Copies
    problem: Problem  # of the unrolled graph

    def lift(self, devices: DeviceIndices) -> DeviceIndices:
        """Devices of all copies, from one placement [operator] or many [placement, operator]."""
        return np.ascontiguousarray(devices[..., self.copies.origin])

    @property
    def same_order_for_all(self) -> bool:
        """Whether the order does not depend on the placement."""
        return self.copies.schedule == "gpipe" and self.problem.native.single_sender_channels

    def order(self, devices: DeviceIndices) -> NDArray[np.int32] | Cyclic:
        """The order in which the step runs a placement [operator], or why there is none."""
        order = np.arange(len(self.copies.origin), dtype=np.int32)  # is the order of gpipe
        if self.copies.schedule == "1f1b":
            blocks = self._alternating_blocks(devices)
            if isinstance(blocks, Cyclic):
                return blocks
            order = self._concatenated(blocks, devices)
        return order if self.problem.native.single_sender_channels else self._by_finish(order, devices)

    def _by_finish(self, order: NDArray[np.int32], devices: DeviceIndices) -> NDArray[np.int32]:
        """The same order on every device, but channels with several senders serve in order of time.

        A fixed order books channels as listed: on a bus, the last transfer of one micro-batch would hold up
        the first one of the next. Finishes of a run without queues sort them; ties keep their order.
        """
        run = _native.simulate(
            self._without_queues.native, self.lift(devices), policy="program_order", order=order, memory="off"
        )
        if run.status:  # such a placement cannot run at all
            return order
        return order[np.argsort(run.finish[order], kind="stable")]

    @cached_property
    def _without_queues(self) -> Problem:
        cluster = replace(self.problem.cluster, contention="none")
        return Problem(self.problem.graph, cluster, self.problem.costs)

    def _alternating_blocks(self, devices: DeviceIndices) -> list[tuple[int, int, int]] | Cyclic:
        """Blocks (device, phase, micro-batch) of 1F1B: the programs of all devices, merged into one."""
        feeds = {
            pair: self._device_pairs(edges, devices) for pair, edges in self.copies.edges_by_phase().items()
        }
        names = self.problem.cluster.names
        for phase in (FORWARD, BACKWARD):
            circle = _circle(feeds[phase, phase])
            if circle is not None:
                first, second = names[circle[0]], names[circle[1]]
                return Cyclic(f"1F1B needs stages in pipeline order: {first} and {second} feed each other")
        stages = self._stages(feeds[FORWARD, FORWARD], devices)
        programs = {d: self._stage_program(len(stages) - k) for k, d in enumerate(stages)}
        used = set(devices[self.copies.phases != UPDATE].tolist())
        programs |= {
            d: [(BACKWARD, i) for i in range(self.copies.microbatches)] for d in sorted(used - set(stages))
        }
        return _merged(programs, feeds)

    def _device_pairs(self, edges: NDArray[np.int32], devices: DeviceIndices) -> NDArray[np.bool_]:
        """Which device feeds which other one."""
        feeds = np.zeros((len(self.problem.cluster),) * 2, dtype=bool)
        feeds[devices[edges[:, 0]], devices[edges[:, 1]]] = True
        np.fill_diagonal(feeds, False)
        return feeds

    def _stages(self, feeds: NDArray[np.bool_], devices: DeviceIndices) -> list[int]:
        """Devices with forward operators in pipeline order; what data leave open goes by first operator."""
        used, first = np.unique(devices[self.copies.phases == FORWARD], return_index=True)
        before = _reach(feeds).sum(axis=0)  # a device has more before it than any device that feeds it
        return sorted(used.tolist(), key=lambda d: (before[d], first[np.searchsorted(used, d)]))

    def _stage_program(self, ahead: int) -> list[tuple[int, int]]:
        """Blocks (phase, micro-batch) of a stage that begins with `ahead` forward passes."""
        ahead = min(self.copies.microbatches, ahead)
        program = [(FORWARD, i) for i in range(ahead)]
        for i in range(self.copies.microbatches):
            program.append((BACKWARD, i))
            if ahead + i < self.copies.microbatches:
                program.append((FORWARD, ahead + i))
        return program

    def _concatenated(
        self, blocks: Sequence[tuple[int, int, int]], devices: DeviceIndices
    ) -> NDArray[np.int32]:
        """The operators of all blocks, one block after another, then the updates."""
        own = {
            (d, phase): np.flatnonzero((self.copies.phases == phase) & (devices == d))
            for phase in (FORWARD, BACKWARD)
            for d in range(len(self.problem.cluster))
        }
        parts = [self.copies.of(own[d, phase], i) for d, phase, i in blocks]
        parts.append(np.flatnonzero(self.copies.microbatch < 0))
        return np.concatenate(parts).astype(np.int32)


def _circle(feeds: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Two devices that feed each other, perhaps over others; None if there are none."""
    reach = _reach(feeds)
    both = np.argwhere(reach & reach.T & ~np.eye(len(feeds), dtype=bool))
    return (int(both[0, 0]), int(both[0, 1])) if both.size else None


def _reach(feeds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which device feeds which, over any number of others."""
    reach = feeds.copy()
    for middle in range(len(feeds)):
        reach |= reach[:, middle, None] & reach[None, middle, :]
    return reach


def _merged(
    programs: dict[int, list[tuple[int, int]]], feeds: dict[tuple[int, int], NDArray[np.bool_]]
) -> list[tuple[int, int, int]]:
    """One order of all blocks that keeps every device's own and lets no block run before those that feed it.

    Devices run the micro-batches of a phase in order, so how many of them are done says which are.
    """
    needs = {
        (d, phase): [
            (source, earlier)
            for earlier in range(phase + 1)
            for source in np.flatnonzero(feeds[earlier, phase][:, d]).tolist()
            if source in programs
        ]
        for d in programs
        for phase in (FORWARD, BACKWARD)
    }
    done = {(d, phase): 0 for d in programs for phase in (FORWARD, BACKWARD)}
    at = dict.fromkeys(programs, 0)
    blocks: list[tuple[int, int, int]] = []
    total = sum(len(program) for program in programs.values())
    while len(blocks) < total:
        before = len(blocks)
        for d, program in programs.items():
            while at[d] < len(program):
                phase, i = program[at[d]]
                if any(done[need] <= i for need in needs[d, phase]):
                    break
                blocks.append((d, phase, i))
                done[d, phase] += 1
                at[d] += 1
        assert len(blocks) > before, "stages in pipeline order never wait for each other"
    return blocks
