"""Where text leaves the program: what is printed is safe for a terminal, and a stream that fails is said once.

Everything that a command prints goes through `Guarded`, so that no name out of a file can steer a terminal: whatever
is not simply a sign is shown as an escape. Codes of our own (colours, the progress line) are the exception.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from stead.printing.look import BAD, Look
from stead.printing.wording import ascii_form, printable_lines

_COLOURS = re.compile(r"(\x1b\[[0-9;]{1,8}m)")
_REDRAW = re.compile(r"(?:\r|\x1b\[[0-9]{0,3}[AGJK])+")  # how a progress line takes the place of the one before it


class Guarded:
    """A text stream that prints safely and never raises: what went wrong is kept in `failure`."""

    def __init__(self, stream: IO[str] | None, *, redraws: bool = False) -> None:
        self._stream = stream
        self._redraws = redraws and stream is not None and stream.isatty()
        self._unicode = _is_utf8(stream)
        self.failure: OSError | None = None
        self.gone = False  # the reader of a pipe has left

    @property
    def encoding(self) -> str:
        """Of the bytes; libraries ask."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str:
        """What happens to signs that the encoding lacks: they are replaced before they come here."""
        return getattr(self._stream, "errors", None) or "strict"

    def isatty(self) -> bool:
        """Whether a person may be watching."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """The number of the file, for programs that are started."""
        if self._stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._stream.fileno()

    def writable(self) -> bool:
        """As all streams that one prints to."""
        return True

    def close(self) -> None:
        """Nothing: libraries that log to it close it at the end, and it is not theirs."""

    def write(self, text: str) -> int:
        """Print the text; a progress line may begin with the codes that take it to the begin of its line."""
        redraw = _REDRAW.match(text) if self._redraws else None
        begin = redraw.end() if redraw else 0
        self._put(text[:begin] + self._safe(text[begin:]))
        return len(text)

    def write_painted(self, text: str) -> None:
        """Print text of our own making that may hold colours."""
        parts = _COLOURS.split(text)
        self._put("".join(part if number % 2 else self._safe(part) for number, part in enumerate(parts)))

    def flush(self) -> None:
        """Hand on what is held back."""
        self._attempt(lambda stream: stream.flush())

    def _safe(self, text: str) -> str:
        safe = printable_lines(text)
        return safe if self._unicode else ascii_form(safe)

    def _put(self, text: str) -> None:
        if text:
            self._attempt(lambda stream: stream.write(text))

    def _attempt(self, action: Any) -> None:
        if self.failure is not None or self.gone:
            return
        if self._stream is None:
            self.failure = OSError(errno.EBADF, "it is closed")
            return
        try:
            action(self._stream)
        except BrokenPipeError:
            self.gone = True
            self._silence()
        except OSError as error:
            self.failure = error
            self._silence()
        except ValueError:  # closed by somebody else
            self.failure = OSError(errno.EBADF, "it is closed")

    def _silence(self) -> None:
        """Let the interpreter flush what is left into nothing, when it ends: otherwise it complains once more."""
        try:
            number = self.fileno()
        except (OSError, ValueError):  # not a file of the system
            return
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, number)
        os.close(nothing)


def _is_utf8(stream: IO[str] | None) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig")


@contextmanager
def guarded() -> Iterator[Guarded]:
    """Put guards around stdout and stderr while a command runs; gives the one of stdout."""
    kept = sys.stdout, sys.stderr
    out, err = Guarded(sys.stdout), Guarded(sys.stderr, redraws=True)
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = kept


def occupy_standard_files() -> None:
    """Open nothing in the place of standard files that are closed, so that no file of ours takes their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number


def look(stream: IO[str] | None = None) -> Look:
    """How text on stdout, or on another stream, may look: as wide as the terminal, in colours unless unwanted."""
    stream = sys.stdout if stream is None else stream
    unicode = _is_utf8(stream)
    if stream is None or not stream.isatty() or os.environ.get("TERM", "") == "dumb":
        return Look(unicode=unicode)
    return Look(_columns(stream), wraps=True, colour=not os.environ.get("NO_COLOR"), unicode=unicode)


def _columns(stream: IO[str]) -> int:
    """As COLUMNS says, else the terminal itself; 80 where neither knows."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and given.isascii() and 0 < int(given[:9]) < 10_000:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def show(text: str, stream: IO[str] | None = None) -> None:
    """Print text that was made for `look()` of the same stream."""
    stream = sys.stdout if stream is None else stream
    if isinstance(stream, Guarded):
        stream.write_painted(f"{text}\n")
    else:
        print(text, file=stream)


def print_lines(lines: Iterable[str]) -> None:
    """Print labelled lines, broken where the terminal is too narrow for them."""
    for one in look().fitted(lines):
        show(one)


def complain(message: str) -> None:
    """One line on stderr; on a terminal its first word in the colour of errors."""
    stream, said = sys.stderr, " ".join(message.split("\n"))
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "") == "dumb" or not stream.isatty()
    if isinstance(stream, Guarded) and not plain:
        stream.write_painted(f"\x1b[{BAD}mstead:\x1b[0m")
        stream.write(f" {said}\n")
    else:
        print(f"stead: {said}", file=stream)
