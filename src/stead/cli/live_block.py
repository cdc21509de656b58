"""Lines on stderr that are drawn anew in their place while a command runs, only where a person watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from stead import clock
from stead.cli.progress import INTERVAL_SECONDS
from stead.cli.streams import look, show
from stead.printing.look import Look

_USUAL_LINES = 24  # of a terminal that does not know its height


class LiveBlock:
    """A few lines that take the place of those before them, at most four times a second."""

    def __init__(self, screen: Look, lines: int) -> None:
        self._screen, self._room = screen, max(lines - 1, 1)  # the cursor stands below them
        self._drawn = 0  # lines that stand there
        self._last: float | None = None

    @classmethod
    def if_watched(cls) -> LiveBlock | None:
        """A block, if stderr is a terminal that moves its cursor and nobody asked for plain text."""
        stream = sys.stderr
        if not stream.isatty() or os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR"):
            return None
        return cls(look(stream), _height())

    def draw(self, lines: Callable[[Look, int], Sequence[str]], *, now: bool = False) -> None:
        """Ask for the lines, given how wide and how many they may be, unless the last were drawn just before."""
        time = clock.now()
        if not now and self._last is not None and time - self._last < INTERVAL_SECONDS:
            return
        self._last = time
        shown = list(lines(self._screen, self._room))[: self._room]
        self.wipe()
        for line in shown:
            show(line, sys.stderr)
        sys.stderr.flush()
        self._drawn = len(shown)

    def wipe(self) -> None:
        """Take away what was drawn."""
        if self._drawn:
            sys.stderr.write(f"\r\x1b[{self._drawn}A\x1b[J")
            sys.stderr.flush()  # before anything is printed to stdout
            self._drawn = 0


def _height() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).lines or _USUAL_LINES
    except (OSError, ValueError):  # not a file of the system
        return _USUAL_LINES
