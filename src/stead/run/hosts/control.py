"""Control: messages and signs of life between a coordinator and one agent.

Runs over any two descriptors: the pipes of a command that was started (ssh brings them to another machine, encrypted
and authenticated as the user has set it up), or a socket. Every byte that comes is a sign of life; where nothing else
is said, a beat goes out every second, so that silence means that somebody is gone and nothing else.

Messages are pickled: both ends belong to one user, who started them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

GREETING = b"stead agent 1\n"  # whatever a login shell prints comes before it
GOODBYE = pickle.dumps(None, protocol=5)  # no more is to be done
BEAT_SECONDS = 1.0
_HEAD = struct.Struct("!Q")
_CHUNK = 2**20
_BEAT = b""
_MOST_NOISE = 2**16  # bytes that may come before a greeting


class Control:
    """One end of a conversation; what comes is handed to `on_message` as it is, the end of it to `on_end`.

    Both are called in a thread of the control, which must go on listening: `understood` makes a message of what came,
    and may import packages for it.
    """

    def __init__(
        self, inbox: int, outbox: int, *, on_message: Callable[[bytes], None], on_end: Callable[[], None], greets: bool
    ) -> None:
        self.inbox, self.outbox = inbox, outbox
        self.heard = monotonic()
        self.closed = threading.Event()
        self.greeted = threading.Event()  # the other end has begun to speak
        self._speaking = threading.Lock()
        self._on_message, self._on_end = on_message, on_end
        if greets:
            self._write(GREETING)
        for work in (lambda: self._listen(greeted=greets), self._beat):
            threading.Thread(target=work, daemon=True).start()

    @property
    def silent_seconds(self) -> float:
        """How long nothing has come."""
        return monotonic() - self.heard

    def send(self, message: Any) -> None:
        """Say something; OSError if nobody is there."""
        self._frame(pickle.dumps(message, protocol=5))

    def close(self) -> None:
        """Say no more; the other end sees it."""
        self.closed.set()
        with contextlib.suppress(OSError):
            os.close(self.outbox)

    def _frame(self, payload: bytes) -> None:
        with self._speaking:
            if self.closed.is_set():
                raise BrokenPipeError
            self._write(_HEAD.pack(len(payload)))
            self._write(payload)

    def _write(self, payload: bytes) -> None:
        view = memoryview(payload)
        while view:
            view = view[os.write(self.outbox, view[:_CHUNK]) :]

    def _beat(self) -> None:
        while not self.closed.wait(BEAT_SECONDS):
            try:
                self._frame(_BEAT)
            except OSError:
                return

    def _listen(self, *, greeted: bool) -> None:
        try:
            if not greeted:
                self._find_greeting()
            self.greeted.set()
            while True:
                (size,) = _HEAD.unpack(self._read(_HEAD.size))
                payload = self._read(size)
                if payload != _BEAT:
                    self._on_message(payload)
        except (EOFError, OSError):
            pass
        finally:
            if not self.closed.is_set():
                self._on_end()

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            found = os.read(self.inbox, min(_CHUNK, size - len(parts)))
            if not found:
                raise EOFError
            self.heard = monotonic()
            parts += found
        return bytes(parts)

    def _find_greeting(self) -> None:
        seen = b""
        while not seen.endswith(GREETING):
            seen += self._read(1)
            if len(seen) > _MOST_NOISE:
                raise EOFError


def understood(payload: bytes) -> Any:
    """The message that came."""
    return pickle.loads(payload)
