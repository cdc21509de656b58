"""Worker processes for sub-models: started, asked, and always given back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import IO, Any

from stead.errors import BadInput, PlacementNotHonoured, RunFailed
from stead.printing.wording import one_line
from stead.run.crew import environment_of
from stead.run.executor import Worker
from stead.run.segment_program import Lost, check_order

_START_SECONDS = 120.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Process:
    worker: Worker
    popen: subprocess.Popen[bytes]
    connection: Connection
    said: IO[bytes]  # what it wrote to standard error


class SegmentPool:
    """One process per worker, each with a runtime of its own."""

    def __init__(self, workers: Sequence[Worker], at: str, specs: Iterable[Mapping[str, Any]]) -> None:
        check_order()
        self._processes: list[_Process] = []
        self._finalizer = weakref.finalize(self, _end, self._processes)
        try:
            for number, worker in enumerate(workers):
                self._processes.append(_started(worker, number))
            told = [{"at": at, "spec": dict(spec)} for spec in specs]
            self.facts = self.ask("open", told, seconds=_START_SECONDS)
        except BaseException:
            self.close()
            raise

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Of the workers that were started."""
        return tuple(process.popen.pid for process in self._processes)

    def ask(
        self,
        command: str,
        arguments: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        seconds: float,
        only: int = -1,
    ) -> list[Any]:
        """Answers of all workers, or of one; Lost if a run was, RunFailed if a worker died or never answered."""
        if not self._processes:
            raise RunFailed("the workers have been given back already; open the executor again")
        asked = self._processes if only < 0 else [self._processes[only]]
        told = [arguments] * len(asked) if isinstance(arguments, Mapping) else list(arguments)
        for process, own in zip(asked, told, strict=True):
            with suppress(OSError):  # it died: seen below
                process.connection.send((command, dict(own)))
        answers = self._answers(asked, time.monotonic() + seconds, command)
        for kind, value in answers:
            if kind == "not honoured":
                raise PlacementNotHonoured(*value)
            if kind == "bad":
                raise BadInput(value)
            if kind == "failed":
                raise RunFailed(f"a worker failed: {one_line(value, 400)}")
        for kind, value in answers:
            if kind == "lost":
                raise Lost(value)
        return [value for _, value in answers]

    def _answers(self, asked: Sequence[_Process], until: float, command: str) -> list[tuple[str, Any]]:
        answers: dict[int, tuple[str, Any]] = {}
        while len(answers) < len(asked):
            waiting = [p.connection for n, p in enumerate(asked) if n not in answers]
            wait(waiting, timeout=_LOOK_SECONDS)
            for n, process in enumerate(asked):
                if n in answers:
                    continue
                if process.connection.poll():
                    try:
                        answers[n] = process.connection.recv()
                    except (EOFError, OSError):
                        self._mourn(process)
                elif process.popen.poll() is not None:
                    self._mourn(process)
                elif time.monotonic() > until:
                    name = process.worker.name
                    self.close()
                    raise RunFailed(
                        f"worker {name} did not answer to '{command}' in time and was ended; try again"
                    )
        return [answers[n] for n in range(len(asked))]

    def _mourn(self, process: _Process) -> None:
        """End all others and say who died."""
        with suppress(subprocess.TimeoutExpired):
            process.popen.wait(timeout=2)
        process.said.seek(0)
        said = process.said.read().decode(errors="replace").strip().splitlines()
        code = process.popen.returncode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        self.close()
        raise RunFailed(f"worker {process.worker.name} {how}{': ' + one_line(said[-1], 200) if said else ''}")

    def close(self) -> None:
        """End the processes that were started here; more than once does no harm."""
        self._finalizer()


def _started(worker: Worker, number: int) -> _Process:
    ours, theirs = socket.socketpair()
    # The kernel ends children with the thread that made them: only the main thread lives as long as the process.
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
    try:
        popen = subprocess.Popen(
            [sys.executable, "-m", "stead.run.segment_worker", str(theirs.fileno()), str(parent)],
            pass_fds=[theirs.fileno()],
            env=environment_of(worker),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    finally:
        theirs.close()
    connection = Connection(ours.detach())
    connection.send((worker, number))
    return _Process(worker, popen, connection, said)


def _end(processes: list[_Process]) -> None:
    for process in processes:
        process.connection.close()
        if process.popen.poll() is None:
            process.popen.kill()
    for process in processes:
        process.popen.wait()
        process.said.close()
    processes.clear()
