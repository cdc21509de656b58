"""Pictures as SVG, written as text: elements, colours and the frame of a picture."""

from __future__ import annotations

import html
from collections.abc import Iterable

from stead.printing.wording import printable_lines

INK, SOFT, GRID, WASH, PAPER = "#1c2430", "#667085", "#d7dce3", "#f4f6f9", "#ffffff"
GREY, WARNING = "#98a2b3", "#c94f4f"
COLOURS = (
    "#2f6fde", "#e07b39", "#3a9d5d", "#b0539f", "#c2a12b", "#4aa7b5", "#c94f4f", "#7a6bd1", "#5d6b7a", "#8a5a2b",
    "#1c7c7c", "#d16b9a", "#7d9a2f",
)  # fmt: skip

Number = float | int | str  # floats are written with one digit behind the point


def escape(text: str) -> str:
    """Text for a picture or a page; what is invisible or turns the direction of writing shows as an escape."""
    return html.escape(printable_lines(text))


def element(tag: str, inner: str = "", /, **attributes: Number) -> str:
    """One element; `_` in the name of an attribute stands for `-`, and empty attributes are left out.

    >>> element("line", x1=0, x2=9.25, stroke_dasharray="4 3", fill="")
    '<line x1="0" x2="9.2" stroke-dasharray="4 3"/>'
    """
    given = "".join(
        f' {name.strip("_").replace("_", "-")}="{f"{value:.1f}" if isinstance(value, float) else value}"'
        for name, value in attributes.items()
        if value != ""
    )
    return f"<{tag}{given}>{inner}</{tag}>" if inner else f"<{tag}{given}/>"


def words(x: Number, y: Number, text: str, /, **attributes: Number) -> str:
    """A text at a place; `text_anchor` says which end of it is there."""
    return element("text", escape(text), x=x, y=y, **attributes)


def line(
    x: tuple[Number, Number], y: tuple[Number, Number], stroke: str, dash: str = "", title: str = ""
) -> str:
    """A straight line from (x[0], y[0]) to (x[1], y[1]); its title shows under the pointer."""
    told = f"<title>{escape(title)}</title>" if title else ""
    return element("line", told, x1=x[0], x2=x[1], y1=y[0], y2=y[1], stroke=stroke, stroke_dasharray=dash)


def level(x: tuple[int, int], y: float, label: str) -> str:
    """A line of a grid and what it stands for, on its left."""
    return line(x, (y, y), GRID) + words(x[0] - 6, y + 4, label, text_anchor="end", fill=SOFT)


def points(corners: Iterable[tuple[float, float]]) -> str:
    """The corners of a line, for `polyline` and `polygon`."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def picture(width: int, height: int, parts: Iterable[str]) -> str:
    """A whole file: dark letters on white."""
    frame = element("rect", width=width, height=height, fill=PAPER)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">{frame}{"".join(parts)}</svg>\n'
    )
