"""A worker process for sub-models: python -m stead.run.segment_worker FD PARENT; started by `segment_pool` only.

It pins itself, opens a runtime and then does what it is told over one connection, until that is closed or its parent
dies. Sub-models are bound to shared memory once, so that a run is: wait for flags, infer, raise flags.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, PlacementNotHonoured, RunFailed, SteadError
from stead.run.executor import Worker
from stead.run.segment_program import Lost, SegmentProgram, SharedSlots, flags_ready, wait_until
from stead.run.segments import Segment
from stead.run.timing import RealTime, involuntary_switches

_PARENT_DIES = 1  # PR_SET_PDEATHSIG


class Run(Protocol):
    """A sub-model that is bound to its slots."""

    def __call__(self) -> None:
        """Infer once."""


class SegmentRuntime(Protocol):
    """What a runtime does inside of a worker."""

    def load(
        self,
        segment: Segment,
        slots: Sequence[tuple[list[NDArray[Any]], list[NDArray[Any]]]],
        extra: Any,
    ) -> list[Run]:
        """Compile a sub-model and bind it to slots for what it takes and gives, once per pair."""

    def prepare(self, segments: Sequence[Segment]) -> None:
        """Cut the model; called before the sub-models of this worker are loaded."""

    def whole(self, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Results of the whole model in full precision."""

    def profile(self, inputs: list[NDArray[Any]], repeats: int, device: int) -> NDArray[np.float64]:
        """Seconds of every operator in whole runs on one device, [repeat, operator]."""

    def facts(self) -> dict[str, Any]:
        """What was read back from the runtime."""


class _Child:
    """The state of a worker between commands."""

    def __init__(self, worker: Worker, number: int) -> None:
        self.worker, self.number = worker, number
        self.runtime: SegmentRuntime | None = None
        self.slots: SharedSlots | None = None  # of the program that runs now, as `mine`
        self.mine: list[tuple[Segment, list[Run]]] = []
        self.kept: dict[str, tuple[SharedSlots, list[tuple[Segment, list[Run]]]]] = {}  # by name of the memory

    def open(self, at: str, spec: dict[str, Any]) -> dict[str, Any]:
        """Start the runtime."""
        module, _, attribute = at.partition(":")
        made: SegmentRuntime = getattr(import_module(module), attribute)(self.worker, **spec)
        self.runtime = made
        return self.facts()

    def facts(self) -> dict[str, Any]:
        """What this worker reads back of itself and its runtime."""
        assert self.runtime is not None
        told = {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_TOLD)}
        return {"cores": sorted(os.sched_getaffinity(0)), "environment": told, **self.runtime.facts()}

    def load(self, program: SegmentProgram) -> dict[str, Any]:
        """Compile and bind the sub-models of this worker."""
        self.slots, self.mine = SharedSlots(program, create=False), []
        self.kept[program.memory] = self.slots, self.mine
        try:
            self._bind(program)
        except BaseException:
            self.unload(program.memory)
            raise
        return self.facts()

    def _bind(self, program: SegmentProgram) -> None:
        assert self.runtime is not None
        self.runtime.prepare(program.segments)
        for segment in program.segments:
            if segment.device == self.number:
                pairs = [
                    (self._arrays(segment.takes, ring), self._arrays(segment.gives, ring))
                    for ring in range(program.rings)
                ]
                self.mine.append((segment, self.runtime.load(segment, pairs, program.extra)))

    def use(self, memory: str) -> None:
        """Run what was loaded before."""
        self.slots, self.mine = self.kept[memory]

    def unload(self, memory: str) -> None:
        """Let go of what was loaded."""
        if memory not in self.kept:
            return
        slots, mine = self.kept.pop(memory)
        if mine is self.mine:
            self.slots, self.mine = None, []
        del mine  # what is bound to the memory goes before it
        slots.close()

    def steps(self, first: int, runs: int, seconds_limit: float, timed: bool) -> dict[str, Any]:
        """Some runs one after another, all workers beginning each together: (begin, end) of each."""
        assert self.slots is not None
        slots, deadline = self.slots, time.perf_counter() + seconds_limit
        waits = [self._flags(segment.takes, 0) for segment, _ in self.mine]
        gives = [self._flags(segment.gives, 0) for segment, _ in self.mine]
        times: list[tuple[float, float]] = []
        before = involuntary_switches()
        with RealTime(timed) as real_time:
            for number in range(first, first + runs):
                before_run = number - 1
                wait_until(lambda: bool((slots.done >= before_run).all()), deadline)  # noqa: B023 - used at once
                begin = time.perf_counter()
                for (_, bound), wanted, given in zip(self.mine, waits, gives, strict=True):
                    wait_until(flags_ready(wanted, number), deadline)
                    bound[0]()
                    for word in given:
                        word[0] = number
                times.append((begin, time.perf_counter()))
                slots.done[self.number] = number
        return {"times": times, "fifo": real_time.granted, "switches": involuntary_switches() - before}

    def stream(self, samples: int, seconds_limit: float) -> dict[str, Any]:
        """Samples through the stage of this worker: (begin, end) of each."""
        assert self.slots is not None
        slots, rings = self.slots, self.slots.program.rings
        deadline = time.perf_counter() + seconds_limit
        times: list[tuple[float, float]] = []
        before = involuntary_switches()
        readers = self._readers()
        with RealTime() as real_time:
            slots.ready[self.number] += 1
            turn = int(slots.ready[self.number])
            wait_until(lambda: bool((slots.ready >= turn).all()), deadline)
            for sample in range(samples):
                ring = sample % rings
                for segment, bound in self.mine:
                    wait_until(flags_ready(self._flags(segment.takes, ring), sample + 1), deadline)
                    free = sample - rings + 1  # samples that readers must be through with
                    wait_until(lambda: all(int(slots.done[p]) >= free for p in readers), deadline)  # noqa: B023
                    begin = time.perf_counter()
                    bound[ring]()
                    for word in self._flags(segment.gives, ring):
                        word[0] = sample + 1
                    times.append((begin, time.perf_counter()))
                slots.done[self.number] = sample + 1
        return {"times": times, "fifo": real_time.granted, "switches": involuntary_switches() - before}

    def whole(self, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Results of the whole model here."""
        assert self.runtime is not None
        return self.runtime.whole(inputs)

    def profile(self, inputs: list[NDArray[Any]], repeats: int, device: int) -> NDArray[np.float64]:
        """Seconds of operators in whole runs here."""
        assert self.runtime is not None
        return self.runtime.profile(inputs, repeats, device)

    def units(self) -> list[list[int]]:
        """Operators that the runtime runs as one kernel, of every kernel."""
        told = getattr(self.runtime, "units", None)
        if told is None:
            raise BadInput("this runtime does not tell its kernels")
        found: list[list[int]] = told()
        return found

    def _arrays(self, tensors: Sequence[str], ring: int) -> list[NDArray[Any]]:
        assert self.slots is not None
        return [self.slots.array(tensor, ring) for tensor in tensors]

    def _flags(self, tensors: Sequence[str], ring: int) -> list[NDArray[np.int64]]:
        assert self.slots is not None
        return [self.slots.flag[tensor, ring] for tensor in tensors if (tensor, ring) in self.slots.flag]

    def _readers(self) -> set[int]:
        """Processes that read what this one gives."""
        assert self.slots is not None
        given = {tensor for segment, _ in self.mine for tensor in segment.gives}
        return {
            segment.device
            for segment in self.slots.program.segments
            if given.intersection(segment.takes) and segment.device != self.number
        }


_TOLD = ("OMP_", "MALLOC_", "ONEDNN_", "ATEN_", "MKL_")


def _answer(child: _Child, command: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "done", getattr(child, command)(**arguments)
    except Lost as lost:
        return "lost", str(lost)
    except PlacementNotHonoured as error:
        return "not honoured", (str(error), error.differing)
    except (BadInput, RunFailed, SteadError) as error:
        return "bad" if isinstance(error, BadInput) else "failed", str(error)
    except Exception as error:  # a worker answers whatever happens: nobody must wait for it
        return "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def main() -> None:
    """Serve one coordinator."""
    parent = int(sys.argv[2])
    if parent:
        ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before we asked
            os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides what an interrupt means
    connection = Connection(int(sys.argv[1]))
    worker, number = connection.recv()
    with suppress(OSError):
        os.sched_setaffinity(0, worker.cores)
    child = _Child(worker, number)
    try:
        while True:
            command, arguments = connection.recv()
            connection.send(_answer(child, command, arguments))
    except (EOFError, OSError):
        pass
    os._exit(0)  # threads of runtimes have nothing to say any more


if __name__ == "__main__":
    main()
