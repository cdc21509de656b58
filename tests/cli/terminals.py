"""Terminals and pipes that commands of tests print to."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import stead.sim  # noqa: F401  (an editable install builds the core now, while streams are as they were)
from stead.cli.main import exit_code

OURS = re.compile(rb"\x1b\[[0-9;]+m|\r\x1b\[K|\r(?=\n)")


class Terminal(io.StringIO):
    """A stream that a person watches."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Said:
    """How a command ended and what came out at the other end of the terminal or pipe."""

    code: int
    out: bytes

    @property
    def lines(self) -> list[str]:
        wiped = re.sub(rb"[^\n]*\r\x1b\[K", b"", self.out)  # progress lines
        return OURS.sub(b"", wiped).decode().splitlines()


@contextlib.contextmanager
def far_end(reader: int, writer: int) -> Iterator[list[bytes]]:
    """What arrives at `reader` until `writer` is closed."""
    found: list[bytes] = []

    def listen() -> None:
        with contextlib.suppress(OSError):  # a terminal whose program has left
            while piece := os.read(reader, 65536):
                found.append(piece)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield found
    finally:
        os.close(writer)
        thread.join()
        os.close(reader)


def run(reader: int, writer: int, arguments: tuple[str, ...], encoding: str = "utf-8") -> Said:
    kept = sys.stdout, sys.stderr
    with far_end(reader, writer) as found:
        out = io.TextIOWrapper(os.fdopen(os.dup(writer), "wb"), encoding=encoding, errors="strict", newline="\n")
        err = io.TextIOWrapper(os.fdopen(os.dup(writer), "wb"), encoding=encoding, errors="strict", newline="\n")
        sys.stdout, sys.stderr = out, err
        try:
            code = exit_code(list(arguments))
        finally:
            sys.stdout, sys.stderr = kept
            out.close()
            err.close()
    return Said(code, b"".join(found))


def on_terminal(*arguments: str, columns: int = 80) -> Said:
    """Run a command on a terminal of so many columns."""
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    return run(reader, writer, arguments)


def in_pipe(*arguments: str, encoding: str = "utf-8") -> Said:
    """Run a command whose output goes into a pipe."""
    return run(*os.pipe(), arguments, encoding)
