"""Tables of every command: a header with units, columns that shorten or give way until the lines fit."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from stead.printing.look import HEADER, PLAIN, Look
from stead.printing.wording import columns_of

GAP = "  "  # between columns
_SECONDS = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
_BYTES = (("GiB", 2.0**-30), ("MiB", 2.0**-20), ("KiB", 2.0**-10), ("B", 1.0))
_LEAST_SHOWN = 0.9995  # what rounds to one at three digits


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what it is called, and what may happen to it where there is too little room."""

    title: str
    unit: str = ""
    right: bool = False  # numbers stand to the right
    least: int = 0  # columns that a shortened text still needs; 0: never shortened
    sentence: bool = False  # shortened at its end, not in its middle
    whole: bool = False  # of the last column: never shortened but broken into lines, in files left as it is
    drop: int = 0  # columns with the highest number are left out first, together; 0: it stays


@dataclass(frozen=True, slots=True)
class Painted:
    """A cell in a colour."""

    text: str
    style: str


Cell = str | Painted


@dataclass(frozen=True, slots=True)
class Scale:
    """One unit for a whole column, with as many digits for all of its numbers."""

    unit: str
    factor: float
    decimals: int

    def __call__(self, value: float | None) -> str:
        """The number as the column shows it; what is there but too small to be seen is below the last digit."""
        if value is None:
            return ""
        if not math.isfinite(value):
            return "-"
        text = f"{value * self.factor:.{self.decimals}f}"  # no commas: tables are read by scripts too
        if value and not float(text):
            return f"{'-' if value < 0 else ''}<{10.0**-self.decimals:.{self.decimals}f}"
        return text


def in_seconds(near: float, digits: int = 3) -> Scale:
    """The unit for times about as long as `near`, which is shown with so many digits.

    >>> scale = in_seconds(0.0216)
    >>> scale.unit, scale(0.0216), scale(1.5), scale(1e-6)
    ('ms', '21.6', '1500.0', '<0.1')
    """
    return _scale(near, _SECONDS, digits)


def in_bytes(near: float, digits: int = 3) -> Scale:
    """The unit for sizes about as large as `near`.

    >>> scale = in_bytes(21.5 * 2**30)
    >>> scale.unit, scale(5 * 2**30), scale(0)
    ('GiB', '5.0', '0.0')
    """
    return _scale(near, _BYTES, digits)


def per_second(seconds: float) -> Scale:
    """How often per second, with four digits for what takes `seconds`.

    >>> per_second(0.0216)(1 / 0.0216), per_second(0.0216)(1000.0)
    ('46.30', '1000.00')
    """
    return _scale(1 / seconds if seconds > 0 else 0.0, (("", 1.0),), 4)


def _scale(near: float, units: Sequence[tuple[str, float]], digits: int) -> Scale:
    near = abs(near) if math.isfinite(near) else 0.0
    unit, factor = next((one for one in units if near * one[1] >= _LEAST_SHOWN), units[-1 if near else 0])
    if unit == "B" or not near:
        return Scale(unit, factor, 0)
    exponent = math.floor(math.log10(near * factor / _LEAST_SHOWN))
    return Scale(unit, factor, min(max(digits - 1 - exponent, 0), 3))


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], look: Look = PLAIN, indent: str = " "
) -> list[str]:
    """The lines of a table, its header first.

    >>> print(*table([Column("name"), Column("time", "ms", right=True)], [["a", "1.5"], ["bc", "12.0"]]), sep="\\n")
     name  time
             ms
     a      1.5
     bc    12.0
    """
    texts = [[look.shown(cell if isinstance(cell, str) else cell.text) for cell in row] for row in rows]
    styles = [["" if isinstance(cell, str) else cell.style for cell in row] for row in rows]
    shown = [c for c in range(len(columns)) if any(row[c] for row in texts) or not rows]
    header = [[look.shown(columns[c].title) for c in range(len(columns))]]
    if any(columns[c].unit for c in shown):
        header.append([look.shown(columns[c].unit) for c in range(len(columns))])
    natural = [max(columns_of(line[c]) for line in (*header, *texts)) for c in range(len(columns))]
    if not look.wraps:
        natural = [min(n, column.least) if column.whole else n for n, column in zip(natural, columns, strict=True)]
    shown, widths = _fitting(columns, shown, natural, look.columns - len(indent))
    lines = []
    for line in header:
        cells = [(look.shortened(line[c], widths[c]), HEADER) for c in shown]
        lines.append(_line(columns, shown, widths, cells, look, indent))
    for text, style in zip(texts, styles, strict=True):
        for part in _broken(columns, text, widths, look):
            cells = [
                (part[c] if columns[c].whole else _kept(columns[c], part[c], widths[c], look), style[c]) for c in shown
            ]
            lines.append(_line(columns, shown, widths, cells, look, indent))
    return lines


def _kept(column: Column, text: str, width: int, look: Look) -> str:
    return (look.cut if column.sentence else look.shortened)(text, width)


def _broken(columns: Sequence[Column], text: list[str], widths: Sequence[int], look: Look) -> list[list[str]]:
    """The lines that one row takes."""
    last = len(columns) - 1
    if not (columns[last].whole and look.wraps) or columns_of(text[last]) <= widths[last]:
        return [text]
    first, *more = textwrap.wrap(text[last], widths[last], break_on_hyphens=False)
    return [[*text[:last], first], *([""] * last + [piece] for piece in more)]


def _fitting(
    columns: Sequence[Column], shown: list[int], natural: Sequence[int], room: int
) -> tuple[list[int], list[int]]:
    """The columns that stay and their widths: names shorten first, then the least important column goes."""
    while True:
        widths = list(natural)
        spare = room - sum(widths[c] for c in shown) - len(GAP) * (len(shown) - 1)
        while spare < 0:
            soft = [c for c in shown if columns[c].least and widths[c] > columns[c].least]
            if not soft:
                break
            widest = max(soft, key=lambda c: widths[c])
            widths[widest] -= 1
            spare += 1
        last = max((columns[c].drop for c in shown), default=0)
        if spare >= 0 or not last:
            return shown, widths
        shown = [c for c in shown if columns[c].drop != last]


def _line(
    columns: Sequence[Column],
    shown: Sequence[int],
    widths: Sequence[int],
    cells: Sequence[tuple[str, str]],
    look: Look,
    indent: str,
) -> str:
    line, owed = indent, ""  # blanks are owed until something follows: no line ends in them
    for c, (text, style) in zip(shown, cells, strict=True):
        blank = " " * (widths[c] - columns_of(text))
        if text:
            line += owed + (blank if columns[c].right else "") + look.painted(text, style)
            owed = "" if columns[c].right else blank
        else:
            owed += blank
        owed += GAP
    return line.rstrip()
