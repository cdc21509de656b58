"""What coordinator and workers share of a placed run of sub-models: slots for tensors, flags and counters.

One piece of shared memory holds it all. Every tensor that passes between sub-models has a page-aligned slot (two for a
pipeline) and a flag that holds the number of the last run that filled it. This relies on stores being seen in order,
as they are on x86; `check_order` refuses other processors.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, RunFailed
from stead.run.segments import Segment

PAGE_BYTES, LINE_BYTES = 4096, 64
_SPINS = 2_000  # looks at a flag before the core is offered to others


class Lost(Exception):
    """A run that says nothing: somebody did not answer in time."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Type and shape of a tensor between sub-models."""

    dtype: str  # of numpy
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes it takes."""
        return int(np.dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64)))


@dataclass(frozen=True)
class SegmentProgram:
    """Sub-models of one placement with their slots; the same for all workers."""

    memory: str  # name of the shared memory
    segments: tuple[Segment, ...]  # their devices are numbers of processes here
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    layouts: Mapping[str, TensorLayout]
    processes: int
    rings: int  # slots per tensor: 1, or 2 in a pipeline
    extra: Mapping[str, Any]  # for the runtime

    @property
    def crossing(self) -> list[str]:
        """Tensors that have slots beside the inputs."""
        return [tensor for segment in self.segments for tensor in segment.gives]

    def offsets(self) -> tuple[dict[str, int], int]:
        """Where the first slot of each tensor begins, and the bytes of all."""
        place: dict[str, int] = {}
        at = _paged(LINE_BYTES * (2 * self.processes + self.rings * len(self.crossing)))
        for tensor in (*self.inputs, *self.crossing):
            place[tensor] = at
            at += _paged(self.layouts[tensor].size_bytes) * (1 if tensor in self.inputs else self.rings)
        return place, max(at, PAGE_BYTES)


def _paged(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES


class SharedSlots:
    """The shared memory of a program, made by the coordinator and opened by workers."""

    def __init__(self, program: SegmentProgram, *, create: bool) -> None:
        self.program = program
        self.offset, size = program.offsets()
        self.is_owner = create
        if create:
            _check_room(size)
        self.memory = SharedMemory(program.memory, create=create, size=size)
        if not create:  # the coordinator alone unlinks it; a tracker in a worker would do it too early
            with suppress(KeyError):
                resource_tracker.unregister(self.memory._name, "shared_memory")  # type: ignore[attr-defined]
        lines = 2 * program.processes + program.rings * len(program.crossing)
        words: NDArray[np.int64] = np.ndarray(
            (lines, LINE_BYTES // 8), dtype=np.int64, buffer=self.memory.buf
        )
        self.done = words[: program.processes, 0]  # runs that each process has finished
        first = 2 * program.processes
        self.ready = words[program.processes : first, 0]  # pipelines that each process has begun
        self.flag = {
            (tensor, ring): words[first + program.rings * i + ring, 0:1]
            for i, tensor in enumerate(program.crossing)
            for ring in range(program.rings)
        }

    def array(self, tensor: str, ring: int = 0) -> NDArray[Any]:
        """A slot as an array."""
        layout = self.program.layouts[tensor]
        ring = 0 if tensor in self.program.inputs else ring
        at = self.offset[tensor] + ring * _paged(layout.size_bytes)
        found: NDArray[Any] = np.ndarray(layout.shape, dtype=layout.dtype, buffer=self.memory.buf, offset=at)
        return found

    def close(self) -> None:
        """Let go of the memory, and remove it if it was made here."""
        self.flag = {}
        self.done = self.ready = np.zeros(0, dtype=np.int64)
        if self.is_owner:
            with suppress(FileNotFoundError):
                self.memory.unlink()
        with suppress(BufferError):  # arrays that somebody still holds keep the mapping until they go
            self.memory.close()


def _check_room(size: int) -> None:
    """Memory that is not there would kill a worker later (SIGBUS), without a word."""
    with suppress(OSError, AttributeError):
        found = os.statvfs("/dev/shm")
        free = found.f_bavail * found.f_frsize
        if free < size:
            raise RunFailed(
                f"this placement needs {size / 1e6:.0f} MB of shared memory and /dev/shm has {free / 1e6:.0f} MB left; "
                "free some or make it larger"
            )


def check_order() -> None:
    """BadInput on processors that may show a flag before what it stands for."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i686", "i386"):
        raise BadInput(
            f"sub-models in processes need an x86 processor, this is {platform.machine()}; use torch"
        )


def wait_until(ready: Callable[[], bool], deadline: float) -> None:
    """Spin, then let others run between looks; Lost when the time is over."""
    for _ in range(_SPINS):
        if ready():
            return
    while not ready():
        if time.perf_counter() > deadline:
            raise Lost("a worker waited too long for another")
        os.sched_yield()


def flags_ready(words: Sequence[NDArray[np.int64]], number: int) -> Callable[[], bool]:
    """Whether all flags have reached a number."""
    return lambda: all(int(word[0]) >= number for word in words)
