"""Pinned processes that are timed: started, asked and ended here."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Self

from stead.errors import RunFailed
from stead.run.cores import instruction_limit
from stead.run.executor import Worker

# Without these, pages come and go with every large tensor, and faults are timed in place of work.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "10737418240",
    "MALLOC_TOP_PAD_": "268435456",
}
_GRACE_SECONDS = 2.0


def worker_environment(worker: Worker) -> dict[str, str]:
    """The variables that a worker is started with: threads, instructions, memory, and its own."""
    threads = str(len(worker.cores))
    limit = instruction_limit(worker)
    isa = {"ONEDNN_MAX_CPU_ISA": limit} if limit else {}
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    return {**counts, **MALLOC, **isa, **worker.environment}


class Probes:
    """One probing process per worker, pinned to its cores; ended with the block."""

    def __init__(self, workers: Sequence[Worker], *, shared_bytes: int = 2**16) -> None:
        self.workers, self.shared_bytes = tuple(workers), shared_bytes
        self.descriptor = -1  # of memory that all of them share
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.descriptor = _shared_memory(self.shared_bytes)
        try:
            for worker in self.workers:
                self._running.append(_started(worker, self.descriptor))
            self.ask({d: {"do": "readback", "names": []} for d in range(len(self.workers))}, seconds=60.0)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; more than once does no harm."""
        for process in self._running:
            with suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
        for process in self._running:
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._running = []
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def ask(self, requests: Mapping[int, Mapping[str, Any]], *, seconds: float) -> dict[int, dict[str, Any]]:
        """Ask some workers at once; RunFailed if one has died or does not answer in time."""
        for d, request in requests.items():
            stream = self._running[d].stdin
            assert stream is not None
            try:
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
            except OSError:
                raise self._died(d) from None
        return {d: answer for d, answer in self._answers(set(requests), time.monotonic() + seconds)}

    def _answers(self, waiting: set[int], end: float) -> Iterator[tuple[int, dict[str, Any]]]:
        with selectors.DefaultSelector() as selector:
            for d in waiting:
                selector.register(self._output(d), selectors.EVENT_READ, d)
            while waiting:
                ready = selector.select(max(0.0, end - time.monotonic()))
                if not ready:
                    names = ", ".join(self.workers[d].name for d in sorted(waiting))
                    raise RunFailed(f"{names} did not answer in time; is the machine very busy? try again")
                for key, _ in ready:
                    d = key.data
                    line = self._output(d).readline()
                    if not line:
                        raise self._died(d)
                    answer = json.loads(line)
                    if "error" in answer:
                        raise RunFailed(f"{self.workers[d].name} could not be timed: {answer['error']}")
                    selector.unregister(key.fileobj)
                    waiting.discard(d)
                    yield d, answer

    def _output(self, d: int) -> IO[bytes]:
        stream = self._running[d].stdout
        assert stream is not None
        return stream

    def _died(self, d: int) -> RunFailed:
        code = self._running[d].poll()
        return RunFailed(f"the process of {self.workers[d].name} ended (code {code}) before it answered; try again")


def _shared_memory(size_bytes: int) -> int:
    """A descriptor of memory that processes can share; it has no name, so nothing can be left behind."""
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("stead")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, size_bytes)
    except OSError as error:
        raise RunFailed(f"no shared memory of {size_bytes} bytes: {error.strerror}") from None
    return descriptor


def _started(worker: Worker, descriptor: int) -> subprocess.Popen[bytes]:
    try:
        with _on_cores(worker.cores):  # a process is born where its parent runs, before it imports anything
            return subprocess.Popen(
                [sys.executable, "-m", "stead.run.probe_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **worker_environment(worker)},
                pass_fds=(descriptor,),
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise RunFailed(f"{worker.name} cannot be started on cores {list(worker.cores)}: {error}") from None


@contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
