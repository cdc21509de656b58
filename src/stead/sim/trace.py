"""Trace and Scores: what the simulator says about one placement, and about many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.problem import Placement
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.check import check_trace
from stead.sim.memory import Blocks, Curve, SplitCurve, peak_of, standing_blocks, timed_blocks
from stead.sim.timeline import Step, Timeline, Transfers
from stead.sim.violations import (
    Block,
    Cyclic,
    Peak,
    Shortfall,
    Status,
    TornApart,
    Unreachable,
    Unsupported,
    Violation,
)

Memory = Literal["peak", "check", "off"]

__all__ = [
    "Block",
    "Curve",
    "Cyclic",
    "Memory",
    "Peak",
    "Scores",
    "Shortfall",
    "SplitCurve",
    "Status",
    "Step",
    "Timeline",
    "TornApart",
    "Trace",
    "Transfers",
    "Unreachable",
    "Unsupported",
    "Violation",
]


@dataclass(frozen=True, eq=False)
class Trace:
    """Everything about one placement under the objective of its problem.

    `problems` says why it cannot be used; a placement that overfills a device or tears a group apart still
    has its time, one that cannot run at all has none (`objective_ticks` -1, `objective_seconds` inf). Seconds
    per device are those of the run that was simulated: one step, all micro-batches of a step, or one sample.
    """

    placement: Placement
    policy: str  # what ran it: a Policy's name, or "offload", "sequential", "steady", "gpipe", "1f1b"
    objective_ticks: int  # whole picoseconds; with micro-batches of the whole step
    objective_seconds: float  # per step or per sample, as the objective says
    problems: tuple[Violation, ...]
    compute_seconds: NDArray[np.float64]  # [device]
    received_seconds: NDArray[np.float64]  # [device]
    sent_seconds: NDArray[np.float64]  # [device]
    busy_seconds: NDArray[np.float64]  # [device]; as the objective counts it
    peak_bytes: NDArray[np.int64]  # [device]; -1 where it was not asked for
    limit_bytes: NDArray[np.int64]  # [device]
    timeline: Timeline | None = None

    def __repr__(self) -> str:
        verdict = "; ".join(str(problem) for problem in self.problems) or "feasible"
        return f"Trace({self.objective_seconds:.6g} s, {self.policy}, {verdict})"

    @property
    def feasible(self) -> bool:
        """Whether the placement can be used as it is."""
        return not self.problems

    @property
    def memory_known(self) -> bool:
        """Whether peaks were computed and can be explained."""
        return self.policy != "placeto" and bool((self.peak_bytes >= 0).all())

    @property
    def headroom_bytes(self) -> NDArray[np.int64]:  # [device]
        """Bytes left on every device; negative where it does not fit."""
        return self.limit_bytes - self.peak_bytes

    @property
    def start_ticks(self) -> NDArray[np.int64]:  # [operator]
        """When each operator started."""
        return self._run().start_ticks

    @property
    def finish_ticks(self) -> NDArray[np.int64]:  # [operator]
        """When each operator finished."""
        return self._run().finish_ticks

    @property
    def start_seconds(self) -> NDArray[np.float64]:  # [operator]
        """When each operator started."""
        return self.start_ticks / TICKS_PER_SECOND

    @property
    def finish_seconds(self) -> NDArray[np.float64]:  # [operator]
        """When each operator finished."""
        return self.finish_ticks / TICKS_PER_SECOND

    @property
    def order(self) -> NDArray[np.int32]:
        """Operators as they were processed; on each device as they ran."""
        return self._run().order

    @property
    def transfers(self) -> Transfers:
        """Tensors that moved between devices."""
        return self._run().transfers

    def critical_path(self) -> tuple[Step, ...]:
        """What the run waited for, from its begin to its end; the pieces sum to the makespan exactly."""
        return self._run().critical_path()

    def memory_curve(self, device: str) -> Curve:
        """Bytes on a device over time, or over its operators where there is no time line."""
        return self._blocks.curve(self.placement.problem.cluster.index(device))

    def memory_split(self, device: str) -> SplitCurve:
        """The same, parted into weights, caches of keys and values, and activations with all that comes and goes."""
        return self._blocks.split_curve(self.placement.problem.cluster.index(device))

    def blocks_at_peak(self, device: str) -> Peak:
        """What a device holds when it holds most: the split and the ten largest blocks."""
        d = self.placement.problem.cluster.index(device)
        return peak_of(self._blocks, self.placement.problem, d, at_tick=self._is_timed)

    def check(self) -> None:
        """Raise an AssertionError if anything does not add up."""
        check_trace(self)

    @property
    def _is_timed(self) -> bool:
        """Whether memory follows a time line; an offloaded call has no times inside."""
        return self.timeline is not None and self.timeline.execution != "offload"

    @cached_property
    def _blocks(self) -> Blocks:
        if not self.memory_known:
            raise BadInput(
                'this trace knows no memory: simulate with memory="peak" and a placement that can run'
            )
        if self.timeline is not None and self._is_timed:
            return timed_blocks(self.timeline)
        return standing_blocks(self.placement.problem, self.placement.devices)

    def _run(self) -> Timeline:
        if self.timeline is None:
            what = self.placement.problem.objective.describe()
            raise BadInput(f"there is no time line: {what} has none, or the placement cannot run")
        return self.timeline


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Values of many placements, row by row."""

    policy: str
    ticks: NDArray[np.int64]  # [placement]; -1 where there is no value; with micro-batches of the whole step
    seconds: NDArray[np.float64]  # [placement]; per step or sample; inf where there is no value
    status: NDArray[np.uint8]  # [placement]; values of Status
    peak_bytes: NDArray[np.int64]  # [placement, device]; -1 where it was not needed
    over_bytes: NDArray[np.int64]  # [placement, device]; bytes missing

    def __len__(self) -> int:
        return len(self.ticks)

    @property
    def feasible(self) -> NDArray[np.bool_]:  # [placement]
        """Which placements can be used as they are."""
        return np.asarray(self.status == Status.OK)
