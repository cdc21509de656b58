"""Mesh: connections of an agent with all others, which show who is gone and how far clocks are apart.

Every half second an agent asks each other one, over the network that tensors take, what time it is there. An answer is
a sign of life, and of the latest answers the quickest tells how far the other clock is ahead: by the time that was told
less the middle of question and answer, right to half a round trip.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, perf_counter

from stead.errors import RunFailed
from stead.run.hosts.host_messages import Peer

ASK_SECONDS = 0.5
_FRAME = struct.Struct("!Bdd")  # question or answer, when it was asked, the time at the other end
_QUESTION, _ANSWER = 0, 1
_ME = struct.Struct("!I")
_KEPT = 8


@dataclass(slots=True)
class _Other:
    number: int
    name: str
    socket: socket.socket
    heard: float
    buffer: bytearray = field(default_factory=bytearray)
    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))  # (round trip, ahead)
    gone: bool = False


class Mesh:
    """An agent among others; `on_lost` is told once of everyone who is gone, with the reason."""

    def __init__(self, address: str, on_lost: Callable[[str, str], None]) -> None:
        try:
            family = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((address, 0), family=family)
        except OSError as error:
            raise RunFailed(
                f"{address} is no address of this host: {error.strerror or error}; give the right one as NAME=ADDRESS"
            ) from None
        self.port: int = self._listener.getsockname()[1]
        self._on_lost = on_lost
        self._others: list[_Other] = []
        self._closed = threading.Event()

    def meet(self, peers: Sequence[Peer], me: int, patience_seconds: float) -> None:
        """Connect with all others, and watch them from now on."""
        end = monotonic() + patience_seconds
        try:
            for number, peer in enumerate(peers[:me]):
                self._connect(number, peer, me, end)
            while len(self._others) < len(peers) - 1:
                self._accept(peers, end)
        finally:
            self._listener.close()
        threading.Thread(target=self._watch, args=(patience_seconds,), daemon=True).start()

    def ahead(self) -> dict[int, float]:
        """Seconds by which clocks of others are ahead, by their number, as far as they are known."""
        return {one.number: min(one.samples)[1] for one in self._others if one.samples}

    def close(self) -> None:
        """Leave; others see it."""
        self._closed.set()
        self._listener.close()
        for one in self._others:
            with contextlib.suppress(OSError):
                one.socket.close()

    def _connect(self, number: int, peer: Peer, me: int, end: float) -> None:
        try:
            made = socket.create_connection((peer.address, peer.port), timeout=max(0.1, end - monotonic()))
            made.sendall(_ME.pack(me))
        except OSError as error:
            raise RunFailed(
                f"cannot reach host {peer.name} at {peer.address}: {error.strerror or error}; give the address of the "
                "network between hosts as NAME=ADDRESS, and open it for all ports"
            ) from None
        self._add(number, peer.name, made)

    def _accept(self, peers: Sequence[Peer], end: float) -> None:
        missing = sorted({*range(len(peers))} - {one.number for one in self._others})
        self._listener.settimeout(max(0.1, end - monotonic()))
        try:
            made, _ = self._listener.accept()
            made.settimeout(max(0.1, end - monotonic()))
            (number,) = _ME.unpack(made.recv(_ME.size, socket.MSG_WAITALL))
        except (OSError, struct.error):
            if monotonic() < end:
                return
            names = ", ".join(peers[number].name for number in missing[-1:])
            raise RunFailed(f"host {names} did not connect in time; is the network between hosts open?") from None
        if number in missing:
            self._add(number, peers[number].name, made)

    def _add(self, number: int, name: str, made: socket.socket) -> None:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        self._others.append(_Other(number, name, made, monotonic()))

    def _watch(self, patience_seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            for one in self._others:
                one.heard = monotonic()
                selector.register(one.socket, selectors.EVENT_READ, one)
            ask = 0.0
            while not self._closed.is_set():
                now = monotonic()
                if now >= ask:
                    ask = now + ASK_SECONDS
                    for one in self._others:
                        self._say(one, _QUESTION, perf_counter(), 0.0)
                        if now - one.heard > patience_seconds:
                            self._lose(one, f"nothing heard for {patience_seconds:.0f} s")
                for key, _ in selector.select(ASK_SECONDS / 2):
                    self._hear(key.data)
                    if key.data.gone:
                        selector.unregister(key.fileobj)

    def _say(self, one: _Other, kind: int, asked: float, told: float) -> None:
        if not one.gone:  # a frame that finds no room is left out: so much silence is told in another way
            with contextlib.suppress(OSError):
                one.socket.send(_FRAME.pack(kind, asked, told))

    def _hear(self, one: _Other) -> None:
        try:
            found = one.socket.recv(4096)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(one, error.strerror or str(error))
            return
        if not found:
            self._lose(one, "it closed the connection")
            return
        now = perf_counter()
        one.heard = monotonic()
        one.buffer += found
        while len(one.buffer) >= _FRAME.size:
            kind, asked, told = _FRAME.unpack_from(one.buffer)
            del one.buffer[: _FRAME.size]
            if kind == _QUESTION:
                self._say(one, _ANSWER, asked, perf_counter())
            else:
                one.samples.append((now - asked, told - (asked + now) / 2))

    def _lose(self, one: _Other, reason: str) -> None:
        if not one.gone and not self._closed.is_set():
            one.gone = True
            self._on_lost(one.name, reason)
