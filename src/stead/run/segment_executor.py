"""Runs placements as sub-models in worker processes; what OpenVINO and ONNX Runtime share.

A runtime brings its graph, how its file is cut and a class that compiles sub-models inside of workers; programs, slots,
bursts, pipelines and checks are here.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, RunFailed
from stead.graph import Graph
from stead.problem import Latency, Placement
from stead.run.executor import Burst, Numerics, TimingMode, Worker
from stead.run.segment_pool import SegmentPool
from stead.run.segment_program import Lost, SegmentProgram, SharedSlots, TensorLayout
from stead.run.segments import CutFile, Segment, running_order
from stead.run.timing import BURST_SECONDS, PAUSE_SECONDS, Surroundings, by_plain_clock
from stead.sim import simulate

# Of results against one worker. A runtime fuses what a cut tears apart, so equal processors may round differently.
FP32_TOLERANCE, UNLIKE_TOLERANCE, LOW_TOLERANCE = 1e-5, 1e-4, 2e-2
_PATIENCE = 20.0  # times the time of a run that is expected
_LOAD_SECONDS = 300.0
_FIRST_SECONDS = 60.0
KEPT_PROGRAMS, KEPT_WEIGHT_BYTES = 20, 2 * 2**30  # that stay compiled: each has its own copy of the weights


@dataclass(slots=True)
class _Held:
    """A placement that is compiled in the workers."""

    slots: SharedSlots
    facts: list[dict[str, Any]]
    runs: int = 0  # of it so far


class SegmentExecutor:
    """An Executor of one model file; `name`, `graph` and `workers` as in the contract.

    `facts` tells what each worker read back of itself: cores, environment, precision, threads.
    """

    name = "segments"

    def __init__(
        self,
        graph: Graph,
        workers: tuple[Worker, ...],
        cut: CutFile,
        layouts: Mapping[str, TensorLayout],
        pool: SegmentPool,
    ) -> None:
        self.graph, self.workers = graph, workers
        self._cut, self._layouts, self._pool = cut, layouts, pool
        self._held: dict[tuple[object, ...], _Held] = {}  # the one that was loaded longest ago first
        self._loaded: tuple[object, ...] = ()  # the one that runs now
        weights = int(graph.parameter_bytes.sum())
        self._most = max(1, min(KEPT_PROGRAMS, KEPT_WEIGHT_BYTES // max(weights, 1)))
        self.facts: list[dict[str, Any]] = pool.facts  # what each worker read back of itself

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Of the workers, as long as they live."""
        return self._pool.process_ids

    def profile(self, worker: int, *, repeats: int) -> NDArray[np.float64]:  # [repeat, operator]
        """Seconds of every operator in whole runs on one worker; of what runs as one, all at the first operator."""
        if not 0 <= worker < len(self.workers):
            raise BadInput(f"there is no worker {worker}; there are {len(self.workers)}")
        told = {"inputs": self._inputs(seed=0), "repeats": repeats, "device": worker}
        (found,) = self._pool.ask(
            "profile", told, seconds=_LOAD_SECONDS + _FIRST_SECONDS * repeats, only=self._process_of(worker)
        )
        seconds: NDArray[np.float64] = found
        return seconds

    def burst(self, placement: Placement, *, runs: int) -> Burst:
        """Warm up, then run the placed model `runs` times, in pieces that the real-time class allows."""
        devices = self.devices_of(placement)
        self._load(self.segments(placement), devices, rings=1)
        seconds: list[float] = []
        granted = True
        before, switches = Surroundings.now(), 0
        try:
            (typical,), _ = self._steps(1, _FIRST_SECONDS, timed=False)
            while len(seconds) < runs:
                fits = max(int(BURST_SECONDS / max(typical, 1e-6)) - 1, 1)
                count = min(runs - len(seconds), fits)
                limit = 2.0 + _PATIENCE * (count + 1) * typical
                found, answers = self._steps(count + 1, limit, timed=True)
                seconds += found[1:]
                granted &= all(answer["fifo"] for answer in answers)
                switches += sum(answer["switches"] for answer in answers)
                typical = min(typical, min(found))
                if len(seconds) < runs:
                    time.sleep(PAUSE_SECONDS)
        except Lost as lost:
            self._unload()
            return Burst((), "quiet", before.until_now(switches), lost=str(lost))
        mode: TimingMode = "fifo" if granted else "quiet"
        return by_plain_clock(Burst(tuple(seconds), mode, before.until_now(switches)))

    def pipeline(self, placement: Placement, *, samples: int) -> Burst:
        """Send samples through the stages of a convex placement: seconds from one result to the next."""
        devices = self.devices_of(placement)
        stages = self.stages(placement)
        before = Surroundings.now()
        try:
            self._load(stages, devices, rings=2)
            self._clear()
            (warm,) = [self._stream(2, _FIRST_SECONDS)]
            typical = max(end - begin for answer in warm for begin, end in answer["times"])
            self._clear()
            answers = self._stream(samples, 2.0 + _PATIENCE * (samples + len(stages)) * typical)
        except Lost as lost:
            self._unload()
            return Burst((), "quiet", before.until_now(0), lost=str(lost))
        begin = min(times[0][0] for times in (answer["times"] for answer in answers) if times)
        ends = [end for _, end in answers[stages[-1].device]["times"]]
        mode: TimingMode = "fifo" if all(answer["fifo"] for answer in answers) else "quiet"
        switches = sum(answer["switches"] for answer in answers)
        timed = tuple(np.diff(ends).tolist())
        return by_plain_clock(Burst(timed, mode, before.until_now(switches), first_seconds=ends[0] - begin))

    def check(self, placement: Placement) -> Numerics:
        """Run a fresh input placed and on the first worker alone, and compare every result."""
        devices = self.devices_of(placement)
        self._load(self.segments(placement), devices, rings=1)
        assert self._slots is not None
        fresh = self._inputs(seed=1 + self._held[self._loaded].runs)
        (wanted,) = self._pool.ask("whole", {"inputs": fresh}, seconds=_LOAD_SECONDS, only=0)
        self._give(fresh)
        for tensor in self._cut.results:  # what nobody writes must not look right
            if tensor not in self._cut.inputs:
                slot = self._slots.array(tensor)
                slot[...] = np.nan if slot.dtype.kind == "f" else 0
        try:
            self._steps(1, _FIRST_SECONDS, timed=False)
        except Lost:
            self._unload()
            return Numerics(float("inf"), float("inf"), self._tolerance(devices))
        found = [self._slots.array(tensor).copy() for tensor in self._cut.results]
        self._give(self._inputs(seed=0))
        return compared(found, wanted, self._tolerance(devices))

    def close(self) -> None:
        """Give back workers and shared memory; more than once does no harm."""
        self._drop_slots()
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # How placements become sub-models

    def segments(self, placement: Placement) -> tuple[Segment, ...]:
        """The sub-models of a placement, in the order of its timeline."""
        return self._cut.segments(self.devices_of(placement), self._order(placement))

    def stages(self, placement: Placement) -> tuple[Segment, ...]:
        """The stages of a convex placement."""
        names = [worker.name for worker in self.workers]
        return self._cut.stages(self.devices_of(placement), range(len(self.graph)), names)

    def devices_of(self, placement: Placement) -> NDArray[np.uint8]:
        """Devices of the operators of this graph; placements of others fit by name."""
        given = placement.problem.graph
        if len(placement.problem.cluster) > len(self.workers):
            raise BadInput(
                f"the placement is for {len(placement.problem.cluster)} devices; there are {len(self.workers)} workers"
            )
        if given.operator_names == self.graph.operator_names:
            return placement.devices
        index = {name: v for v, name in enumerate(given.operator_names)}
        missing = [name for name in self.graph.operator_names if name not in index]
        if missing:
            raise BadInput(
                f"the placement is of {given.name} and knows no operator {missing[0]!r}; "
                "read the model with the same options as the executor"
            )
        return placement.devices[[index[name] for name in self.graph.operator_names]]

    def _order(self, placement: Placement) -> Sequence[int]:
        problem = placement.problem
        if (
            not isinstance(problem.objective, Latency)
            or problem.graph.operator_names != self.graph.operator_names
        ):
            return range(len(self.graph))
        return running_order(self.graph, simulate(problem, placement).start_seconds)

    def _process_of(self, device: int) -> int:
        """The process that stands for a device."""
        return device

    def _extra(self, devices: NDArray[np.uint8]) -> dict[str, Any]:
        """More that the runtime must know about a placement."""
        return {}

    # What is loaded

    @property
    def _slots(self) -> SharedSlots | None:
        """Of the program that runs now."""
        held = self._held.get(self._loaded)
        return held.slots if held else None

    def _load(self, segments: tuple[Segment, ...], devices: NDArray[np.uint8], *, rings: int) -> None:
        """Make a program the one that runs; compiled before if it was not dropped since."""
        key = (segments, devices.tobytes(), rings)
        if key == self._loaded:
            return
        if key in self._held:
            memory = self._held[key].slots.program.memory
            self._pool.ask("use", {"memory": memory}, seconds=_FIRST_SECONDS)
        else:
            while len(self._held) >= self._most:
                self._drop(next(iter(self._held)))
            self._held[key] = self._compiled(segments, devices, rings)
        self._loaded, self.facts = key, self._held[key].facts
        self._give(self._inputs(seed=0))

    def _compiled(self, segments: tuple[Segment, ...], devices: NDArray[np.uint8], rings: int) -> _Held:
        program = SegmentProgram(
            f"stead-{os.getpid()}-{secrets.token_hex(4)}",
            segments,
            self._cut.inputs,
            self._cut.results,
            self._layouts,
            len(self._pool.process_ids),
            rings,
            self._extra(devices),
        )
        slots = self._room(program)
        try:
            return _Held(slots, self._pool.ask("load", {"program": program}, seconds=_LOAD_SECONDS))
        except BaseException:
            slots.close()
            raise

    def _room(self, program: SegmentProgram) -> SharedSlots:
        """Shared memory for a program, without the others where there is too little for all."""
        try:
            return SharedSlots(program, create=True)
        except RunFailed:
            if not self._held:
                raise
        for key in list(self._held):
            self._drop(key)
        return SharedSlots(program, create=True)

    def _unload(self) -> None:
        """Let go of the program that runs now: it may have stopped anywhere."""
        if self._loaded in self._held:
            self._drop(self._loaded)

    def _drop(self, key: tuple[object, ...]) -> None:
        held = self._held.pop(key)
        if key == self._loaded:
            self._loaded = ()
        held.slots.close()
        if self._pool.process_ids:
            self._pool.ask("unload", {"memory": held.slots.program.memory}, seconds=_FIRST_SECONDS)

    def _drop_slots(self) -> None:
        self._loaded = ()
        while self._held:
            self._held.popitem()[1].slots.close()

    def _clear(self) -> None:
        assert self._slots is not None
        self._slots.done[:] = 0
        for word in self._slots.flag.values():
            word[0] = 0

    def _give(self, inputs: Sequence[NDArray[Any]]) -> None:
        assert self._slots is not None
        for tensor, array in zip(self._cut.inputs, inputs, strict=True):
            self._slots.array(tensor)[...] = array

    def _inputs(self, seed: int) -> list[NDArray[Any]]:
        """Inputs drawn from a seed; whole numbers are 0 or 1, which is a word and a mask in any model."""
        random = np.random.default_rng(seed)
        found: list[NDArray[Any]] = []
        for tensor in self._cut.inputs:
            layout = self._layouts[tensor]
            if np.dtype(layout.dtype).kind == "f":
                found.append(random.standard_normal(layout.shape, dtype=np.float32).astype(layout.dtype))
            else:
                found.append(random.integers(0, 2, layout.shape).astype(layout.dtype))
        return found

    def _steps(self, count: int, limit: float, *, timed: bool) -> tuple[list[float], list[dict[str, Any]]]:
        """Seconds of some runs: from the first begin to the last end of each."""
        held = self._held[self._loaded]
        first = held.runs + 1
        held.runs += count
        told = {"first": first, "runs": count, "seconds_limit": limit, "timed": timed}
        answers = self._pool.ask("steps", told, seconds=limit + 5.0)
        times = np.array([answer["times"] for answer in answers])  # [process, run, begin or end]
        return (times[:, :, 1].max(axis=0) - times[:, :, 0].min(axis=0)).tolist(), answers

    def _stream(self, samples: int, limit: float) -> list[dict[str, Any]]:
        return self._pool.ask("stream", {"samples": samples, "seconds_limit": limit}, seconds=limit + 5.0)

    def _tolerance(self, devices: NDArray[np.uint8]) -> float:
        used = [self.workers[d] for d in sorted({0, *devices.tolist()})]
        if any(worker.dtype != "fp32" for worker in used):
            return LOW_TOLERANCE
        alike = (
            len({(worker.isa, worker.device, tuple(sorted(worker.environment.items()))) for worker in used})
            == 1
        )
        return FP32_TOLERANCE if alike else UNLIKE_TOLERANCE


def compared(found: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]], tolerance: float) -> Numerics:
    """How far results are from those of a reference; what is missing or no number is infinitely far."""
    max_abs = largest = 0.0
    for mine, other in zip(found, wanted, strict=True):
        if mine.shape != other.shape:
            return Numerics(float("inf"), float("inf"), tolerance)
        difference = np.abs(mine.astype(np.float64) - other.astype(np.float64))
        worst = float(difference.max(initial=0.0))
        max_abs = max(max_abs, worst if np.isfinite(worst) else float("inf"))
        largest = max(largest, float(np.abs(other.astype(np.float64)).max(initial=0.0)))
    return Numerics(
        max_abs, max_abs / largest if largest else (0.0 if not max_abs else float("inf")), tolerance
    )
