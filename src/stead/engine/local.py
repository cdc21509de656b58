"""Processes of this machine: the engine that needs nothing installed."""

from __future__ import annotations

import os
import selectors
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from stead.engine.base import EngineFailed, Reply, Worker

LENGTH = struct.Struct("<Q")  # bytes that follow; before every message
READ_BYTES = 1 << 20
MOST_DEATHS = 8  # of workers in a row that answered nothing: then there is something wrong with this machine
PATIENCE_SECONDS = 5.0  # for a process to end by itself


@dataclass(slots=True, eq=False)
class _Process:
    worker: Worker
    process: subprocess.Popen[bytes]
    ticket: int = 0  # 0: idle
    unsent: deque[memoryview] = field(default_factory=deque)
    heard: bytearray = field(default_factory=bytearray)

    @property
    def ears(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def mouth(self) -> int:
        assert self.process.stdin is not None
        return self.process.stdin.fileno()


class LocalFleet:
    """So many worker processes; one that dies is replaced."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._numbers = count(1)
        self._processes: dict[str, _Process] = {}
        self._selector = selectors.DefaultSelector()
        self._deaths = 0

    @property
    def name(self) -> str:
        """local:N."""
        return f"local:{self._size}"

    def workers(self) -> Sequence[Worker]:
        """All of them; those that are missing are started."""
        for one in list(self._processes.values()):
            if one.process.poll() is not None and not one.ticket:
                self._drop(one)
        while len(self._processes) < self._size:
            self._start()
        return [one.worker for one in self._processes.values()]

    def process_ids(self) -> list[int]:
        """Of the workers, for tests."""
        return [one.process.pid for one in self._processes.values()]

    def send(self, worker: Worker, ticket: int, message: bytes) -> None:
        """Queue a message; it is written while replies are waited for."""
        one = self._processes[worker.name]
        one.ticket = ticket
        one.unsent += [memoryview(LENGTH.pack(len(message))), memoryview(message)]
        self._selector.register(one.mouth, selectors.EVENT_WRITE, one)

    def replies(self, seconds: float) -> Sequence[Reply]:
        """Read and write what can be read and written; the first reply ends the wait."""
        end, found = time.monotonic() + seconds, list[Reply]()
        while True:
            for key, events in self._selector.select(max(0.0, end - time.monotonic())):
                one: _Process = key.data
                if one.worker.name not in self._processes:
                    continue  # it ended a moment ago, which its other pipe has told
                if events & selectors.EVENT_WRITE:
                    self._write(one)
                else:
                    reply = self._read(one)
                    found += [reply] if reply is not None else []
            if found or time.monotonic() >= end:
                return found

    def abandon(self, worker: Worker, ticket: int) -> None:
        """End the process; another takes its place when it is needed."""
        one = self._processes.get(worker.name)
        if one is not None and one.ticket == ticket:
            self._drop(one)

    def close(self) -> None:
        """End all of them: those that are idle by themselves, the others at once."""
        for one in list(self._processes.values()):
            self._drop(one)
        self._selector.close()

    def _start(self) -> None:
        if self._deaths > MOST_DEATHS:
            raise EngineFailed(f"{self._deaths} workers of this machine ended before they answered anything")
        process = subprocess.Popen(
            [sys.executable, "-m", "stead.engine.local_worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            bufsize=0, start_new_session=True,  # Ctrl-C is for the coordinator
        )  # fmt: skip
        one = _Process(Worker(f"local-{next(self._numbers)}", "this machine"), process)
        for end in (one.ears, one.mouth):
            os.set_blocking(end, False)
        self._selector.register(one.ears, selectors.EVENT_READ, one)
        self._processes[one.worker.name] = one

    def _write(self, one: _Process) -> None:
        try:
            while one.unsent:
                written = os.write(one.mouth, one.unsent[0][:READ_BYTES])
                rest = one.unsent[0][written:]
                if len(rest):
                    one.unsent[0] = rest
                else:
                    one.unsent.popleft()
        except BlockingIOError:
            return
        except OSError:  # it has ended, which reading will tell
            one.unsent.clear()
        self._selector.unregister(one.mouth)

    def _read(self, one: _Process) -> Reply | None:
        try:
            part = os.read(one.ears, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            part = b""
        if not part:
            return self._ended(one)
        one.heard += part
        if len(one.heard) < LENGTH.size:
            return None
        length = LENGTH.unpack_from(one.heard)[0]
        if len(one.heard) < LENGTH.size + length:
            return None
        content, ticket = bytes(one.heard[LENGTH.size :]), one.ticket
        one.heard.clear()
        one.ticket, self._deaths = 0, 0
        return Reply(ticket, content)

    def _ended(self, one: _Process) -> Reply | None:
        self._deaths += 1
        ticket, code = one.ticket, self._drop(one)
        reason = "by signal 9, which mostly means that memory was short" if code == -9 else f"with exit code {code}"
        return Reply(ticket, None, f"a process of this machine ended {reason}") if ticket else None

    def _drop(self, one: _Process) -> int:
        """End a process if it has not ended; its exit code."""
        del self._processes[one.worker.name]
        for end in (one.ears, one.mouth):
            if end in self._selector.get_map():
                self._selector.unregister(end)
        busy = one.ticket != 0
        for stream in (one.process.stdin, one.process.stdout):
            assert stream is not None
            stream.close()
        if busy and one.process.poll() is None:
            one.process.kill()
        try:
            return one.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            one.process.kill()
            return one.process.wait()
