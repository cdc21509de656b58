"""Ctrl-C and SIGTERM: both ask for the best plan so far, and neither comes while a file is being written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = signal.SIGINT, signal.SIGTERM
Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def heard() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does."""
    with _handled({signal.SIGTERM: _interrupt}):
        yield


@contextmanager
def held_off() -> Iterator[None]:
    """Let interrupts wait until the enclosed work is done; then they are raised."""
    waiting: list[int] = []
    with _handled(dict.fromkeys(SIGNALS, lambda number, _: waiting.append(number))):
        yield
    if waiting:
        raise KeyboardInterrupt


@contextmanager
def within(seconds: float | None, late: BaseException) -> Iterator[None]:
    """Raise `late` in the midst of what takes longer, wherever that is; a system without timers lets it take longer."""
    if seconds is None or seconds <= 0 or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise late

    with _handled({signal.SIGALRM: ring}) as handled:
        if handled:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            if handled:
                signal.setitimer(signal.ITIMER_REAL, 0.0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled(handlers: dict[signal.Signals, Handler]) -> Iterator[bool]:
    """Handle signals so for a while; only the main thread can, and others leave them as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = {number: signal.getsignal(number) for number in handlers}
    ours = {number: handler for number, handler in handlers.items() if before[number] is not signal.SIG_IGN}
    for number, handler in ours.items():
        signal.signal(number, handler)
    try:
        yield True
    finally:
        for number in ours:
            with suppress(TypeError):  # one that was not set from Python cannot be set again
                signal.signal(number, before[number])
