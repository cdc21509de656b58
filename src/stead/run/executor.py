"""What runs placements for real: the contract of an executor, and the values that pass over it.

An executor holds one model and the workers of this machine that stand for devices. Everything above it (profiles,
measurements, calibration, tuning, measured rewards) knows only what is written here, so that torch, OpenVINO, ONNX
Runtime and a test double take the same road.

    with executor:
        times = executor.profile(0, repeats=6)           # [repeat, operator] seconds on worker 0
        burst = executor.burst(placement, runs=5)        # five steps of one placement, after a warm-up
        verdict = executor.check(placement)              # the same numbers as on one worker?

A burst that was disturbed or lost comes back with `lost` set; it is never an error and never a hang. What cannot run at
all (no such operator, a worker that cannot be started) is a `BadInput` or `RunFailed` with one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Protocol, Self, get_args

import numpy as np
from numpy.typing import NDArray

from stead.graph import Graph
from stead.problem import Placement

TimingMode = Literal["fifo", "quiet", "cputime", "disturbed", "simulated"]  # from the best to the worst
TIMING_MODES: tuple[TimingMode, ...] = get_args(TimingMode)


@dataclass(frozen=True, slots=True)
class Worker:
    """A device of this machine: a process that is pinned to cores of its own and computes in its own way."""

    name: str
    cores: tuple[int, ...]
    dtype: str = "fp32"
    isa: str = ""  # the most that kernels may use, such as "SSE41"; empty: all that the processor has
    device: str = "cpu"  # what the framework calls it: "cpu", "cuda:0", "mps", "xpu:0"
    environment: Mapping[str, str] = field(default_factory=dict)  # more variables, set before anything is imported


@dataclass(frozen=True, slots=True)
class Contention:
    """What else happened on the machine during a burst."""

    load_average: float = 0.0
    steal_ticks: int = 0  # of all cores
    involuntary_switches: int = 0  # of all workers


@dataclass(frozen=True, slots=True)
class Burst:
    """Some steps of one placement, one after another, without a pause between them."""

    seconds: tuple[float, ...]  # of each step; for a pipeline, between one result and the next
    timing_mode: TimingMode
    contention: Contention = Contention()
    lost: str = ""  # why this burst says nothing; empty for one that counts
    first_seconds: float = 0.0  # of a pipeline: until its first result


@dataclass(frozen=True, slots=True)
class Numerics:
    """How far the results of a placement are from those of one worker in full precision."""

    max_abs: float
    relative: float  # largest difference by the largest value of the reference, over all results
    tolerance: float  # 0: bit for bit
    sensitive: int = 0  # results that rounding alone turns into any other of their size
    results: int = 0  # in all

    @property
    def comparable(self) -> bool:
        """Whether at least half of the results say anything on unlike workers."""
        return 2 * self.sensitive <= self.results

    @property
    def passed(self) -> bool:
        """Whether a measurement of this placement means anything."""
        return self.comparable and self.relative <= self.tolerance

    @property
    def fault(self) -> str:
        """Why a measurement of this placement means nothing."""
        if not self.comparable:
            return (
                f"rounding alone changes {self.sensitive} of {self.results} results beyond use: compare on workers "
                "that are alike"
            )
        allowed = f"{self.tolerance:.2g} is allowed"
        return f"results differ from those of one worker by {self.relative:.2g} of their size, {allowed}"


class Executor(Protocol):
    """Runs placements of one model on workers of this machine."""

    @property
    def name(self) -> str:
        """Its name on the command line: "torch", "openvino", "ort"."""

    @property
    def graph(self) -> Graph:
        """What is placed; placements are of problems about this graph, or one with operators of the same names."""

    @property
    def workers(self) -> tuple[Worker, ...]:
        """In the order of the devices of a placement."""

    def profile(self, worker: int, *, repeats: int) -> NDArray[np.float64]:  # [repeat, operator]
        """Seconds of every operator in place, in whole runs on one worker; 0 for what runs nothing."""

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        """Warm up, then run the placed model `runs` times: seconds from the first begin to the last end of each."""

    def pipeline(self, placement: Placement, *, samples: int) -> Burst:
        """Send samples through the stages of a convex placement: seconds from one result to the next."""

    def check(self, placement: Placement) -> Numerics:
        """Run a fresh input placed and on the first worker alone, and compare every result."""

    def close(self) -> None:
        """Give back workers, shared memory and scheduling class; more than once does no harm."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...
