"""Crew: the worker processes of one executor, started, spoken to and always given back."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any, Protocol

from stead import errors
from stead.errors import RunFailed, SteadError
from stead.run.cores import instruction_limit, share_cores
from stead.run.executor import Worker
from stead.run.messages import Memory
from stead.run.timing import Surroundings
from stead.run.transport import Segment, reserve

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "10737418240",
    "MALLOC_TOP_PAD_": "268435456",
}  # freed memory stays with the process: page faults would count as time of operators
GRACE_SECONDS = 3.0  # after a deadline, for a worker to say so
START_SECONDS = 600.0


@dataclass(slots=True)
class _Member:
    worker: Worker
    process: subprocess.Popen[bytes]
    link: Connection
    socket: socket.socket


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker says at the end of a command: done, late or stopped."""

    kind: str
    value: Any


class Workforce(Protocol):
    """The workers of an executor, wherever they are."""

    @property
    def workers(self) -> tuple[Worker, ...]:
        """In the order of devices."""

    @property
    def host_of(self) -> tuple[int, ...]:
        """[worker]: the number of its host; workers of one host share memory."""

    @property
    def transport(self) -> str:
        """How tensors cross: "shm" inside this machine, "gloo" between hosts."""

    @property
    def over_network(self) -> bool:
        """Whether there are sockets between workers: no real time then, and waiting is part of what is measured."""

    @property
    def not_independent(self) -> bool:
        """Whether some workers share a core."""

    @property
    def is_open(self) -> bool:
        """Whether workers are there."""

    @property
    def segment_bytes(self) -> int:
        """Shared memory of each host; 0 before there is any."""

    def tell(self, commands: Mapping[int, Any], *, seconds: float) -> dict[int, Answer]:
        """Give commands to workers and wait for all answers; whatever goes wrong closes the crew."""

    def new_segment(self, size: int) -> None:
        """Shared memory for the workers of every host."""

    def surroundings(self) -> Surroundings:
        """What the machines say about themselves now."""

    def close(self) -> None:
        """End all workers and let go of shared memory; more than once does no harm."""


class Crew:
    """Worker processes of this machine, one per device."""

    transport = "shm"
    over_network = False

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = tuple(workers)
        self.host_of = (0,) * len(self.workers)
        self.members: list[_Member] = []
        self.segment: Segment | None = None
        pipes = [os.pipe() for _ in workers]
        try:
            for number, worker in enumerate(workers):
                inbox, outboxes = pipes[number][0], [out for _, out in pipes]
                self.members.append(_started(worker, inbox, outboxes))
        except OSError as error:
            self.close()
            raise RunFailed(f"cannot start a worker: {error.strerror or error}") from None
        except BaseException:
            self.close()
            raise
        finally:
            for ends in pipes:
                for file in ends:
                    os.close(file)

    @property
    def not_independent(self) -> bool:
        """Whether some workers share a core."""
        return share_cores(self.workers)

    @property
    def is_open(self) -> bool:
        """Whether workers are there."""
        return bool(self.members)

    @property
    def segment_bytes(self) -> int:
        """Shared memory that there is."""
        return 0 if self.segment is None else self.segment.size

    def surroundings(self) -> Surroundings:
        """What the machine says about itself now."""
        return Surroundings.now()

    def tell(self, commands: Mapping[int, Any], *, seconds: float = START_SECONDS) -> dict[int, Answer]:
        """Give commands to workers and wait for all answers; whatever goes wrong closes the crew."""
        try:
            for number, command in commands.items():
                self._send(number, command)
            return self._answers(set(commands), seconds)
        except BaseException:
            self.close()
            raise

    def new_segment(self, size: int) -> None:
        """Shared memory for all workers."""
        file = reserve(size)
        try:
            segment = Segment(file, size, len(self.workers))
            for number, member in enumerate(self.members):
                self._send(number, Memory(size))
                socket.send_fds(member.socket, [b"m"], [file])
            self._answers(set(range(len(self.members))), START_SECONDS)
        except OSError as error:
            self.close()
            raise RunFailed(f"cannot share memory with workers: {error.strerror or error}") from None
        except BaseException:
            self.close()
            raise
        finally:
            os.close(file)
        if self.segment is not None:
            self.segment.close()
        self.segment = segment

    def stop(self, sequence: int) -> None:
        """Let nobody wait for a run up to this one any longer."""
        if self.segment is not None:
            self.segment.stop(sequence)

    def _send(self, number: int, command: Any) -> None:
        member = self.members[number]
        try:
            member.link.send_bytes(pickle.dumps(command, protocol=5))
        except OSError:
            raise self._died(number) from None

    def _answers(self, expected: set[int], seconds: float) -> dict[int, Answer]:
        deadline = monotonic() + seconds
        found: dict[int, Answer] = {}
        left = {self.members[number].link: number for number in expected}
        problem: SteadError | None = None
        while left:
            ready = wait(list(left), timeout=max(0.0, deadline - monotonic()))
            if not ready:
                names = ", ".join(self.workers[number].name for number in sorted(left.values()))
                raise problem or RunFailed(f"no answer from {names} in {seconds:.0f} s; is it stopped?")
            for link in ready:
                assert isinstance(link, Connection)
                number = left.pop(link)
                try:
                    kind, value = pickle.loads(link.recv_bytes())
                except (EOFError, OSError):
                    raise self._died(number) from None
                if kind == "refused":
                    problem = problem or getattr(errors, value[0], RunFailed)(value[1])
                elif kind == "failed":
                    problem = problem or self._failure(number, value)
                else:
                    found[number] = Answer(kind, value)
            if problem is not None:
                deadline = min(deadline, monotonic() + GRACE_SECONDS)
        if problem is not None:
            raise problem
        return found

    def _failure(self, number: int, value: Any) -> RunFailed:
        reason, where = value
        failure = RunFailed(f"worker {self.workers[number].name}: {reason}")
        failure.add_note(where)
        return failure

    def _died(self, number: int) -> RunFailed:
        member = self.members[number]
        with contextlib.suppress(subprocess.TimeoutExpired):
            member.process.wait(timeout=1.0)
        code = member.process.returncode
        return RunFailed(f"worker {self.workers[number].name} {_end_of(code)}")

    def close(self) -> None:
        """End all workers and let go of shared memory."""
        members, self.members = self.members, []
        for member in members:
            with contextlib.suppress(OSError):
                member.link.close()
            member.socket.close()
            with contextlib.suppress(OSError):
                member.process.kill()
        for member in members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(timeout=5.0)
        if self.segment is not None:
            self.segment.close()
            self.segment = None


def _end_of(code: int | None) -> str:
    """How a process ended, and what to do about it."""
    again = "run again, with more memory free if it was killed"
    if code == -signal.SIGILL:
        return (
            "used an instruction that this processor does not have (SIGILL); limit its kernels, "
            'as in --on "core 0 @ avx512"'
        )
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed ({signal.Signals(-code).name}); {again}"
    return f"ended with code {code}; {again}" if code else f"ended; {again}"


def environment_of(worker: Worker) -> dict[str, str]:
    """The environment of a worker, set before anything is imported."""
    threads = str(max(1, len(worker.cores)))
    given = {**os.environ, **ALLOCATOR, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    given["OPENBLAS_NUM_THREADS"] = threads
    given.pop("ONEDNN_MAX_CPU_ISA", None)
    limit = instruction_limit(worker)
    if limit:
        given["ONEDNN_MAX_CPU_ISA"] = limit
    return {**given, **worker.environment}


def _started(worker: Worker, inbox: int, outboxes: Sequence[int]) -> _Member:
    ours, theirs = socket.socketpair()
    # The kernel ends children with the thread that made them: only the main thread lives as long as the process.
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    try:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "stead.run.worker", str(theirs.fileno()), ",".join(map(str, worker.cores)),
                str(parent), str(inbox), ",".join(map(str, outboxes)),
            ],
            env=environment_of(worker),
            pass_fds=[theirs.fileno(), inbox, *outboxes],
            stdin=subprocess.DEVNULL,
            process_group=0,
        )  # fmt: skip
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return _Member(worker, process, Connection(os.dup(ours.fileno())), ours)
