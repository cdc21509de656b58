"""One pinned process that is timed: arithmetic, copies, calls, and messages to its neighbours over shared memory.

Started by `probes.py` with its cores, threads and environment set before anything is imported. Reads one request per
line from stdin, answers each with one line, and ends with its stdin.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

PRIORITY = 10
PAGE = 4096
LINE = 64  # bytes of a cache line: flags lie in lines of their own, and a reader touches every line of a message
SPIN_SECONDS = 50e-6  # then others may run, too
GEMM = 768
COPY_BYTES = 48 * 2**20
SMALL = 16


@contextmanager
def undisturbed() -> Iterator[str]:
    """Run before all others where the system permits it: "fifo", else "normal"; always given back."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        mode = "fifo" if os.sched_getscheduler(0) == os.SCHED_FIFO else "normal"
    except (AttributeError, OSError):
        mode = "normal"
    try:
        yield mode
    finally:
        with suppress(AttributeError, OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


class Lost(Exception):
    """The other side did not answer in time."""


class Wire:
    """Two slots and two flags in memory that two workers share; `end` 0 speaks first."""

    def __init__(self, descriptor: int, end: int, most_bytes: int) -> None:
        room = -(-most_bytes // PAGE) * PAGE
        shared = np.frombuffer(mmap.mmap(descriptor, PAGE + 2 * room), dtype=np.int64)
        self.flags = shared[: PAGE // 8]
        slots = (shared[PAGE // 8 : (PAGE + room) // 8], shared[(PAGE + room) // 8 :])
        self.out, self.into = slots[end], slots[1 - end]
        self.own_flag, self.other_flag = (0, LINE // 8) if end == 0 else (LINE // 8, 0)
        self.source = np.ones(room // 8, dtype=np.int64)

    def send(self, sequence: int, words: int) -> None:
        """Copy a message into the slot, then say so: stores are seen in this order on x86."""
        np.copyto(self.out[:words], self.source[:words])
        self.flags[self.own_flag] = sequence

    def receive(self, sequence: int, words: int, deadline: float) -> None:
        """Wait for a message and read every line of it."""
        flags, at = self.flags, self.other_flag
        begin = perf_counter()
        while flags[at] < sequence:
            now = perf_counter()
            if now > deadline:
                raise Lost
            if now - begin > SPIN_SECONDS:
                os.sched_yield()
        self.into[: words : LINE // 8].sum()


def ping_pong(request: dict[str, Any]) -> dict[str, Any]:
    """Half of every round trip of so many messages; the first two are for warming up."""
    wire = Wire(request["descriptor"], request["end"], request["most_bytes"])
    words, count, first = max(1, request["bytes"] // 8), request["count"], request["sequence"]
    deadline, speaks = perf_counter() + request["deadline"], request["end"] == 0
    seconds = []
    with undisturbed() as mode:
        for sequence in range(first, first + count):
            begin = perf_counter()
            try:
                if speaks:
                    wire.send(sequence, words)
                    wire.receive(sequence, words, deadline)
                else:
                    wire.receive(sequence, words, deadline)
                    wire.send(sequence, words)
            except Lost:
                return {"mode": mode, "lost": "no answer in time"}
            seconds.append((perf_counter() - begin) / 2)
    return {"mode": mode, "seconds": seconds[2:] if speaks else []}


def rate(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every repetition of some work between two instants."""
    work, amount = _work(request["what"])
    work()
    seconds: list[float] = []
    while perf_counter() < request["begin"]:
        pass
    with undisturbed() as mode:
        work()
        while True:
            begin = perf_counter()
            if begin > request["end"] and len(seconds) > 2:
                break
            work()
            seconds.append(perf_counter() - begin)
    return {"mode": mode, "seconds": seconds, "amount": amount}


def _work(what: str) -> tuple[Callable[[], object], float]:
    """Something to do, and how much of it that is: FLOPs, bytes read and written, or calls."""
    if what == "memcpy":
        source = np.ones(COPY_BYTES, dtype=np.uint8)
        target: NDArray[np.uint8] = np.zeros_like(source)
        return lambda: np.copyto(target, source), 2.0 * COPY_BYTES
    size = GEMM if what == "gemm" else SMALL
    try:
        import torch
    except ImportError:
        left = np.ones((size, size), dtype=np.float32)
        result = np.zeros_like(left)
        if what == "gemm":
            return lambda: np.matmul(left, left, out=result), 2.0 * size**3
        return lambda: np.add(left, left, out=result), 1.0
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0))))
    tensor = torch.ones(size, size)
    if what == "gemm":
        return lambda: torch.mm(tensor, tensor), 2.0 * size**3
    return lambda: [torch.add(tensor, tensor) for _ in range(100)], 100.0


def readback(request: dict[str, Any]) -> dict[str, Any]:
    """What this process really got."""
    names = request["names"]
    return {"cores": sorted(os.sched_getaffinity(0)), "environment": {key: os.environ.get(key) for key in names}}


ANSWERS = {"ping": ping_pong, "rate": rate, "readback": readback}


def main() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = ANSWERS[request["do"]](request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
