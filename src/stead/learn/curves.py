"""Learning curves, drawn by ourselves as SVG and as PNG, so that no plotting library is needed."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.learn.tasks import Task

SERIES = {"mean": "#9db8e8", "greedy": "#e07b39", "best": "#2f6fde"}
LINE_COLOURS = ("#3a9d5d", "#b0539f", "#c2a12b", "#4aa7b5", "#c94f4f")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 380, 64, 28, 150, 36
TICKS = 5
GLYPH_WIDTH = 8
GLYPHS = {  # 3 x 5 dots, row by row
    "0": 0b111101101101111, "1": 0b010110010010111, "2": 0b111001111100111, "3": 0b111001111001111,
    "4": 0b101101111001001, "5": 0b111100111001111, "6": 0b111100111101111, "7": 0b111001010010010,
    "8": 0b111101111101111, "9": 0b111101111001111, ".": 0b000000000000010, "A": 0b010101111101101,
    "B": 0b110101110101110, "C": 0b011100100100011, "D": 0b110101101101110, "E": 0b111100110100111,
    "F": 0b111100110100100, "G": 0b011100101101011, "H": 0b101101111101101, "I": 0b111010010010111,
    "J": 0b001001001101010, "K": 0b101101110101101, "L": 0b100100100100111, "M": 0b101111111101101,
    "N": 0b110101101101101, "O": 0b010101101101010, "P": 0b110101110100100, "Q": 0b010101101110011,
    "R": 0b110101110101101, "S": 0b011100010001110, "T": 0b111010010010010, "U": 0b101101101101111,
    "V": 0b101101101101010, "W": 0b101101111111101, "X": 0b101101010101101, "Y": 0b101101010010010,
    "Z": 0b111001010100111, "/": 0b001001010100100, "-": 0b000000111000000, "_": 0b000000000000111,
}  # fmt: skip

Rows = Sequence[Mapping[str, Any]]


def lines_of(tasks: Sequence[Task]) -> dict[str, float]:
    """Baselines and the bound as ratios to the reference, means over graphs that have them."""
    found: dict[str, list[float]] = {}
    for task in tasks:
        for name, seconds in {**task.known, "bound": task.bound_seconds}.items():
            if seconds > 0:
                found.setdefault(name, []).append(seconds / task.reward.reference_seconds)
    return {name: sum(values) / len(values) for name, values in found.items()}


def svg(rows: Rows, lines: Mapping[str, float]) -> str:
    """Best, mean and greedy over updates, with a dashed line per baseline."""
    scale = _Scale(rows, lines)
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for value in scale.ticks:
        y = scale.y(value)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d7dce3"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#667085">{value:.3g}</text>'
        )
    parts.append(
        f'<text x="{LEFT}" y="{TOP - 10}" fill="#667085">run time / reference</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end" fill="#667085">'
        f"{int(scale.last)} updates</text>"
    )
    legend: list[tuple[str, str, str]] = []
    for number, (name, value) in enumerate(lines.items()):
        colour, y = LINE_COLOURS[number % len(LINE_COLOURS)], scale.y(value)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" '
            'stroke-dasharray="6 3"/>'
        )
        legend.append((name, colour, ' stroke-dasharray="6 3"'))
    for name, colour in SERIES.items():
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in scale.points(rows, name))
        if points:
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        legend.append((name, colour, ""))
    for number, (name, colour, dash) in enumerate(legend):
        y = TOP + 18 * number
        parts.append(
            f'<line x1="{WIDTH - RIGHT + 12}" x2="{WIDTH - RIGHT + 34}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="2"{dash}/><text x="{WIDTH - RIGHT + 40}" y="{y + 4}">{escape(name)}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#1c2430">{"".join(parts)}</svg>\n'
    )


def png(rows: Rows, lines: Mapping[str, float]) -> bytes:
    """The same picture in dots; colours as in the SVG."""
    scale = _Scale(rows, lines)
    dots = np.full((HEIGHT, WIDTH, 3), 255, dtype=np.uint8)
    for value in scale.ticks:
        _stroke(dots, (LEFT, scale.y(value)), (WIDTH - RIGHT, scale.y(value)), "#d7dce3")
        text = f"{value:.3g}"
        _write(dots, text, LEFT - 6 - GLYPH_WIDTH * len(text), int(scale.y(value)) - 5)
    legend: list[tuple[str, str, int]] = []  # name, colour, dots between dashes
    for number, (name, value) in enumerate(lines.items()):
        legend.append((name, LINE_COLOURS[number % len(LINE_COLOURS)], 9))
        for x in range(LEFT, WIDTH - RIGHT, 9):
            _stroke(dots, (x, scale.y(value)), (x + 5, scale.y(value)), legend[-1][1])
    for name, colour in SERIES.items():
        points = scale.points(rows, name)
        for begin, end in pairwise(points):
            _stroke(dots, begin, end, colour)
        legend.append((name, colour, 6))
    for number, (name, colour, apart) in enumerate(legend):
        y = TOP + 18 * number
        for x in range(WIDTH - RIGHT + 12, WIDTH - RIGHT + 34, apart):
            _stroke(dots, (x, y), (x + 5, y), colour)
        _write(dots, name, WIDTH - RIGHT + 40, y - 5)
    _write(dots, "run time / reference", LEFT, TOP - 20)
    text = f"{int(scale.last)} updates"
    _write(dots, text, WIDTH - RIGHT - GLYPH_WIDTH * len(text), HEIGHT - 20)
    lined = np.concatenate([np.zeros((HEIGHT, 1), dtype=np.uint8), dots.reshape(HEIGHT, -1)], axis=1)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lined.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


class _Scale:
    """From updates and ratios to dots."""

    def __init__(self, rows: Rows, lines: Mapping[str, float]) -> None:
        values = [float(row[name]) for row in rows for name in SERIES if row[name] > 0]
        shown = (
            sorted(values)[: max(1, int(0.98 * len(values)))] if values else [1.0]
        )  # not the first wild samples
        known = [value for value in lines.values() if math.isfinite(value)]
        self.last = max((float(row["update"]) for row in rows), default=1.0)
        low, high = min([*shown, *known]), max([*shown, *known])
        margin = max(0.05 * (high - low), 0.01 * high, 1e-9)
        self.low, self.high = max(0.0, low - margin), high + margin
        self.ticks = [self.low + (self.high - self.low) * i / TICKS for i in range(TICKS + 1)]

    def y(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    def points(self, rows: Rows, name: str) -> list[tuple[float, float]]:
        wide = WIDTH - RIGHT - LEFT
        return [
            (LEFT + wide * row["update"] / max(self.last, 1.0), self.y(row[name]))
            for row in rows
            if row[name] > 0
        ]


def _stroke(
    dots: NDArray[np.uint8], begin: tuple[float, float], end: tuple[float, float], colour: str
) -> None:
    steps = int(max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)) + 1
    x = np.linspace(begin[0], end[0], steps).round().astype(int).clip(0, WIDTH - 1)
    y = np.linspace(begin[1], end[1], steps).round().astype(int).clip(0, HEIGHT - 1)
    dots[y, x] = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _write(dots: NDArray[np.uint8], text: str, left: int, top: int) -> None:
    """Capitals and digits of twice 3 x 5 dots; other signs leave a gap."""
    for place, sign in enumerate(text.upper()):
        for dot in range(15):
            if GLYPHS.get(sign, 0) >> (14 - dot) & 1:
                x, y = left + GLYPH_WIDTH * place + 2 * (dot % 3), top + 2 * (dot // 3)
                dots[max(0, y) : y + 2, max(0, x) : x + 2] = 102
