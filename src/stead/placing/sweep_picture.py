"""A sweep as a picture: what the plan takes at every point, and what the best plan found there takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from stead.cluster.quantities import format_seconds
from stead.placing.what_if import Outcome
from stead.printing import svg

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 78, 150, 44, 58
LEVELS = 4
KEPT, SOLVED, BOUND = "#b45309", "#2563c9", svg.SOFT


def picture(outcomes: Sequence[Outcome], title: str, unit: str) -> str:
    """Seconds against the points in equal steps: the plan as it is, solved anew, and the bound; points that do not
    work have no mark."""
    kept = [one.case.seconds for one in outcomes]
    solved = [None if one.solved is None else one.solved.solution.objective_seconds for one in outcomes]
    bounds = [None if one.solved is None else one.solved.solution.bound_seconds or None for one in outcomes]
    top = max([value for row in (kept, solved, bounds) for value in row if value is not None], default=1.0)
    x = [LEFT + (WIDTH - LEFT - RIGHT) * (n + 0.5) / len(outcomes) for n in range(len(outcomes))]
    drawn = [svg.words(LEFT, 22, title, font_weight="bold")]
    for n in range(LEVELS + 1):
        value = top * n / LEVELS
        drawn.append(svg.level((LEFT, WIDTH - RIGHT), _height(value, top), format_seconds(value)))
    step = max(1, len(outcomes) // 12)
    for n, one in enumerate(outcomes):
        if n % step == 0 or n == len(outcomes) - 1:
            drawn.append(svg.words(x[n], HEIGHT - BOTTOM + 20, one.case.label, text_anchor="middle", fill=svg.SOFT))
    for number, (name, colour, dash, row) in enumerate(
        (("this plan", KEPT, "", kept), ("solved anew", SOLVED, "", solved), ("bound", BOUND, "5 4", bounds))
    ):
        drawn += _curve(x, row, top, colour, dash)
        y = TOP + 10 + 20 * number
        drawn.append(svg.line((WIDTH - RIGHT + 14, WIDTH - RIGHT + 36), (y, y), colour, dash))
        drawn.append(svg.words(WIDTH - RIGHT + 42, y + 4, name))
    drawn.append(svg.words(LEFT, HEIGHT - 10, f"seconds per {unit}, smaller is better", fill=svg.SOFT))
    return svg.picture(WIDTH, HEIGHT, drawn)


def _height(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value / top if top > 0 else 0.0)


def _curve(x: Sequence[float], row: Sequence[float | None], top: float, colour: str, dash: str) -> list[str]:
    """Lines between neighbours that both have a value, and a mark at every value."""
    marks = [(at, _height(value, top)) if value is not None else None for at, value in zip(x, row, strict=True)]
    pairs = [(one, other) for one, other in pairwise(marks) if one and other]
    lines = [svg.line((one[0], other[0]), (one[1], other[1]), colour, dash) for one, other in pairs]
    dots = [] if dash else [svg.element("circle", cx=at[0], cy=at[1], r=3, fill=colour) for at in marks if at]
    return [*lines, *dots]
