"""Learning curves as SVG, so that no plotting library is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stead.learn.ground.task import Task
from stead.printing.svg import SOFT, element, level, line, picture, points, words

SERIES = {"mean": "#9db8e8", "greedy": "#e07b39", "best": "#2f6fde"}
LINE_COLOURS = ("#3a9d5d", "#b0539f", "#c2a12b", "#4aa7b5", "#c94f4f")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 380, 64, 28, 150, 36
TICKS = 5
DASH = "6 3"

Row = Mapping[str, float | None]  # None where nothing was scored
Rows = Sequence[Row]


def lines_of(tasks: Sequence[Task[object]]) -> dict[str, float]:
    """Baselines, starts of networks and the bound as ratios to the reference, means over graphs that have them."""
    found: dict[str, list[float]] = {}
    for task in tasks:
        start = task.scorer.start
        given = {} if start is None else {"start": start.seconds}
        for name, seconds in {**task.known, **given, "bound": task.bound_seconds}.items():
            if seconds > 0:
                found.setdefault(name, []).append(seconds / task.reward.reference_seconds)
    return {name: sum(values) / len(values) for name, values in found.items()}


def svg(rows: Rows, lines: Mapping[str, float]) -> str:
    """Best, mean and greedy over updates, with a dashed line per baseline."""
    scale = _Scale(rows, lines)
    right = WIDTH - RIGHT
    parts = [level((LEFT, right), scale.y(value), f"{value:.3g}") for value in scale.ticks]
    parts.append(words(LEFT, TOP - 10, "run time / reference", fill=SOFT))
    parts.append(words(right, HEIGHT - 10, f"{int(scale.last)} updates", text_anchor="end", fill=SOFT))
    legend: list[tuple[str, str, str]] = []  # name, colour, dashes
    for number, (name, value) in enumerate(lines.items()):
        colour, y = LINE_COLOURS[number % len(LINE_COLOURS)], scale.y(value)
        parts.append(line((LEFT, right), (y, y), colour, DASH))
        legend.append((name, colour, DASH))
    for name, colour in SERIES.items():
        corners = points(scale.points(rows, name))
        if corners:
            parts.append(element("polyline", points=corners, fill="none", stroke=colour, stroke_width=1.6))
        legend.append((name, colour, ""))
    for number, (name, colour, dash) in enumerate(legend):
        y = TOP + 18 * number
        parts.append(
            element(
                "line", x1=right + 12, x2=right + 34, y1=y, y2=y, stroke=colour, stroke_width=2, stroke_dasharray=dash
            )
        )
        parts.append(words(right + 40, y + 4, name))
    return picture(WIDTH, HEIGHT, parts)


class _Scale:
    """From updates and ratios to dots."""

    def __init__(self, rows: Rows, lines: Mapping[str, float]) -> None:
        values = [value for row in rows for name in SERIES if (value := row[name])]
        shown = (
            sorted(values)[: max(1, int(0.98 * len(values)))] if values else [1.0]
        )  # not the first wild samples
        known = [value for value in lines.values() if math.isfinite(value)]
        self.last = max((float(row["update"] or 0) for row in rows), default=1.0)
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
            (LEFT + wide * (row["update"] or 0) / max(self.last, 1.0), self.y(value))
            for row in rows
            if (value := row[name])
        ]
