"""Shared memory between workers: slots for tensors, and flags that say what is in them.

A segment begins with words of 64 bits, 64 bytes apart so that no two share a cache line: one that tells everyone to
stop, for every worker how far it has come, and for every crossing the number of the run that filled its slot. Slots
follow, on pages of their own. A producer copies and then sets the flag; on x86 other cores see both in this order.
On other processors a byte through a pipe says the same with the order that the kernel guarantees.

A segment has no name: it is open in the processes that use it and gone when they are.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import platform
import struct
import tempfile
from collections.abc import Mapping, Sequence
from time import perf_counter, sleep
from typing import Any, Protocol

from stead.errors import RunFailed

LINE, PAGE = 64, 4096
SPIN_SECONDS = 50e-6
YIELD_SECONDS = 20e-3  # of a wait, before it begins to sleep
ORDERED = ("x86_64", "amd64", "i386", "i686")
FOLDER = "/dev/shm"


class Stopped(Exception):
    """Another worker gave up, so that nothing will come any more."""


class Late(Exception):
    """What was waited for did not come in time."""


class Channel(Protocol):
    """How one worker exchanges crossings with others."""

    def slot(self, number: int, ring: int, torch: Any) -> Any:
        """The bytes of a slot, as a tensor."""

    def wait(self, number: int, sequence: int) -> None:
        """Until a crossing of a run has arrived."""

    def tell(self, number: int, sequence: int) -> None:
        """That a crossing of a run is in its slot."""

    def free(self, number: int, sequence: int) -> None:
        """Until a slot may be written again."""

    def begin(self, sequence: int, last: int) -> None:
        """Before a run, of a command whose last run is known."""

    def end(self) -> None:
        """After the last run of a command."""


def store_order_is_kept() -> bool:
    """Whether other cores see the stores of this processor in the order in which they were made."""
    return platform.machine().lower() in ORDERED


def layout_of(workers: int, sizes: Sequence[int], rings: int, flags: int) -> tuple[list[int], int]:
    """Offsets of slots in a segment with room for so many flags, and its size; a slot has `rings` equal parts.

    Room for flags belongs to the segment: a flag must never lie where another program had tensors. A negative size is
    a crossing without a slot.
    """
    assert len(sizes) <= flags
    at = pages(LINE * (1 + 2 * workers + flags))
    offsets = []
    for size in sizes:
        offsets.append(at)
        at += rings * pages(max(size, 1)) if size >= 0 else 0
    return offsets, at


def pages(size: int) -> int:
    """A size rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def reserve(size: int) -> int:
    """A file without a name of so many bytes of memory, all of them there: the descriptor."""
    folder = FOLDER if os.path.isdir(FOLDER) else tempfile.gettempdir()
    try:
        file, path = tempfile.mkstemp(prefix="stead-slots-", dir=folder)
    except OSError as error:
        raise RunFailed(f"no shared memory in {folder}: {error.strerror}; make room there") from None
    try:
        os.unlink(path)
        _allocate(file, size)
    except OSError as error:
        os.close(file)
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT):
            needed = f"{size / 2**20:.0f} MiB"
            raise RunFailed(
                f"{folder} is full: {needed} of shared memory are needed; make room there, or place fewer crossings"
            ) from None
        raise RunFailed(f"no shared memory in {folder}: {error.strerror}") from None
    except BaseException:
        os.close(file)
        raise
    return file


def _allocate(file: int, size: int) -> None:
    """All pages now: later they would be missed with a signal that nobody survives."""
    os.ftruncate(file, size)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)


class Segment:
    """A piece of shared memory in one process."""

    def __init__(self, file: int, size: int, workers: int) -> None:
        self.size = size
        self.workers = workers
        self.memory = mmap.mmap(file, size)
        self.words = memoryview(self.memory)[: size // 8 * 8].cast("q")

    def stop(self, sequence: int) -> None:
        """Tell everyone that runs up to this one will not end."""
        self.words[0] = sequence

    def arrive(self, worker: int, sequence: int) -> None:
        """Tell everyone how far a worker has come."""
        self.words[self.arrival(worker)] = sequence

    def arrival(self, worker: int) -> int:
        """Which word says how far a worker has come."""
        return (LINE // 8) * (1 + worker)

    def finish(self, worker: int, sequence: int) -> None:
        """Tell everyone that a worker needs nothing of a run any more."""
        self.words[(LINE // 8) * (1 + self.workers + worker)] = sequence

    def flag(self, number: int) -> int:
        """Which word belongs to a crossing."""
        return (LINE // 8) * (1 + 2 * self.workers + number)

    def done(self, worker: int) -> int:
        """Which word says what a worker needs no more."""
        return (LINE // 8) * (1 + self.workers + worker)

    def close(self) -> None:
        """Let go of the memory; what still looks at it keeps it."""
        with contextlib.suppress(BufferError):
            self.words.release()
            self.memory.close()


class Patience:
    """Waits for words of a segment: spins, then yields, then naps; gives up at a deadline or when told to.

    In real time it never naps: others would run meanwhile, and leave caches that are cold for the next operator.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.deadline = 0.0
        self.sequence = 0  # of the command that is running; a stop below it is an old one
        self.on_wait: Any = None  # called now and then while nothing comes
        self.may_nap = True

    def until(self, word: int, value: int) -> None:
        """Until a word is at least `value`."""
        words = self.segment.words
        if words[word] >= value:
            return
        began = perf_counter()
        spin_until, yield_until = began + SPIN_SECONDS, began + YIELD_SECONDS
        yielding = getattr(os, "sched_yield", None)
        while words[word] < value:
            now = perf_counter()
            if now < spin_until:
                continue
            if words[0] >= self.sequence:
                raise Stopped
            if now > self.deadline:
                raise Late
            if self.on_wait is not None:
                self.on_wait(now)
            if yielding is not None and (now < yield_until or not self.may_nap):
                yielding()
            else:
                sleep(SPIN_SECONDS)


class SharedSlots:
    """Crossings through a segment of shared memory, for one worker."""

    def __init__(
        self,
        segment: Segment,
        patience: Patience,
        offsets: Sequence[int],
        sizes: Sequence[int],
        readers: Sequence[Sequence[int]],
        rings: int,
        base: int = 0,
    ) -> None:
        self.segment, self.patience = segment, patience
        self.offsets, self.sizes, self.readers, self.rings = offsets, sizes, readers, rings
        self.flags = [segment.flag(number) for number in range(len(sizes))]
        self.base = base  # first run of the command that is running

    def slot(self, number: int, ring: int, torch: Any, *, least: int = 0) -> Any:
        """The bytes of a slot, as a tensor; at least so many of them."""
        size = max(self.sizes[number], least)
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        offset = self.offsets[number] + ring * pages(size)
        return torch.frombuffer(self.segment.memory, dtype=torch.uint8, count=size, offset=offset)

    def wait(self, number: int, sequence: int) -> None:
        """Until a crossing of a run has arrived."""
        word = self.flags[number]
        if self.segment.words[word] < sequence:
            self.patience.until(word, sequence)

    def tell(self, number: int, sequence: int) -> None:
        """That a crossing of a run is in its slot."""
        self.segment.words[self.flags[number]] = sequence

    def free(self, number: int, sequence: int) -> None:
        """Until all readers are done with what was in this part of the slot; one run at a time needs no check."""
        if self.rings == 1 or sequence - self.rings < self.base:
            return
        for reader in self.readers[number]:
            self.patience.until(self.segment.done(reader), sequence - self.rings)

    def begin(self, sequence: int, last: int) -> None:
        """Before a run: nothing is to be done."""

    def end(self) -> None:
        """After the last run: nothing is to be done."""


class PipedSlots(SharedSlots):
    """The same where stores may overtake each other: a number through a pipe says that a slot is filled."""

    def __init__(self, *given: Any, inbox: int, outboxes: Mapping[int, int], **named: Any) -> None:
        super().__init__(*given, **named)
        self.inbox, self.outboxes = inbox, outboxes  # of readers, by worker
        os.set_blocking(inbox, False)
        self.seen: dict[int, int] = {}  # crossing: last run that filled it

    def wait(self, number: int, sequence: int) -> None:
        """Until a crossing of a run has arrived."""
        while self.seen.get(number, -1) < sequence:
            self._listen()
            if self.seen.get(number, -1) >= sequence:
                return
            if self.segment.words[0] >= self.patience.sequence:
                raise Stopped
            if perf_counter() > self.patience.deadline:
                raise Late
            sleep(0)

    def _listen(self) -> None:
        try:
            told = os.read(self.inbox, 16 * 256)
        except BlockingIOError:
            return
        for number, sequence in struct.iter_unpack("qq", told):
            self.seen[number] = max(sequence, self.seen.get(number, -1))

    def tell(self, number: int, sequence: int) -> None:
        """That a crossing of a run is in its slot."""
        for reader in self.readers[number]:
            os.write(self.outboxes[reader], struct.pack("qq", number, sequence))
