"""How far a command is: one line on stderr, drawn anew up to four times a second, only where a person watches."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from typing import TYPE_CHECKING

from stead import clock

if TYPE_CHECKING:
    from stead.solvers import Improvement

PATIENCE_SECONDS = 0.5  # before the first line
INTERVAL_SECONDS = 0.25  # between two of them
CURVE_CELLS = 16
HINT = "Ctrl-C keeps the best"
ERASE = "\r\x1b[K"


class Progress:
    """What is being done, the best value and the bound so far, and the time that is left.

    A thread draws the line, so that it goes on while nothing improves and while a file is read. Nothing at all is
    written unless stderr is a terminal that can erase a line.
    """

    def __init__(self) -> None:
        self._step = ""
        self._best: Improvement | None = None
        self._gaps: list[float | None] = []  # one for every line that was drawn
        self._end: float | None = None  # when the time limit is reached
        self._began = clock.now()
        self._drawn = 0  # letters of the line that stands there
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._draw_now_and_then, name="progress", daemon=True)
        self._watched = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Progress:
        if self._watched:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def doing(self, step: str) -> None:
        """Say what is being done from now on."""
        self._step = step

    def improved(self, step: Improvement) -> None:
        """Take over a better value or a better bound."""
        self._best = step

    def search(self, limit_seconds: float | None) -> None:
        """Begin a search anew, with so much time."""
        self._best = None
        self._gaps.clear()
        self._end = None if limit_seconds is None else clock.now() + limit_seconds

    def close(self) -> None:
        """Wipe the line and draw no other."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._drawn:
            self._drawn = 0
            self._write(ERASE)

    def line(self) -> str:
        """The line as it stands now."""
        parts = [*self._values(), self._step]
        if self._end is not None:
            parts.append(f"{max(0.0, self._end - clock.now()):.0f} s left")
        if self._best is not None:
            parts.append(HINT)
        return "  ".join(part for part in parts if part)

    def _values(self) -> list[str]:
        from stead.cluster.quantities import format_seconds

        best, gap = self._best, self._gap
        if best is None:
            return []
        value = format_seconds(best.objective_seconds)
        if gap is None:
            return [value]
        return [value, f"bound {format_seconds(best.bound_seconds)}", f"gap {100 * gap:.1f} %", self._curve()]

    @property
    def _gap(self) -> float | None:
        """The share that could at most still be saved; None while nothing is proved."""
        best = self._best
        if best is None or best.bound_seconds <= 0:
            return None
        value = best.objective_seconds
        return (value - best.bound_seconds) / value if value > 0 else 0.0

    def _curve(self) -> str:
        """How the gap fell, as soon as it has."""
        from stead.printing.sparkline import sparkline

        known = [gap for gap in self._gaps if gap is not None]
        if not known or min(known) == max(known):
            return ""
        return sparkline(self._gaps, CURVE_CELLS, low=0.0, high=max(known), unicode=_writes_unicode())

    def _draw_now_and_then(self) -> None:
        wait = PATIENCE_SECONDS
        while not self._closed.wait(wait):
            wait = INTERVAL_SECONDS
            self._draw()

    def _draw(self) -> None:
        self._gaps.append(self._gap)
        text = self.line()
        if not _writes_unicode():
            text = text.replace("µ", "u").encode("ascii", "replace").decode()
        width = shutil.get_terminal_size().columns - 2  # a full line would scroll
        text = text[: max(0, width)]
        self._drawn = len(text)
        self._write(f"{ERASE} {text}")

    @staticmethod
    def _write(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # the terminal is gone; whoever watched does so no more
            pass


def _writes_unicode() -> bool:
    """Whether the terminal can show more than plain letters."""
    return (sys.stderr.encoding or "ascii").lower().replace("-", "").startswith("utf8")
