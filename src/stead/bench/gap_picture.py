"""The gap over time as a picture: one panel per objective, one line per solver, drawn as SVG."""

from __future__ import annotations

import math
from statistics import median

from stead.bench.results import Bench, Record
from stead.printing import svg

DASHES = ("", "6 3", "2 3")
PANEL_WIDTH, PANEL_HEIGHT = 430, 260
LEFT, TOP, BETWEEN = 52, 34, 66
ABOVE = 28  # every row of panels, for its title
LEGEND_WIDTH, ROW = 150, 18
FIRST_SECONDS = 1e-3  # where the time axis begins
STEPS = 160  # of a line

Curve = list[float | None]  # [step]; the median gap, None while most runs have nothing


def picture(bench: Bench) -> str:
    """Median gap to the best bound against time, over the runs with the largest budget."""
    records = _with_trails(bench)
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["objective"], []).append(record)
    last = max([record["trail"][-1][0] for record in records], default=1.0)
    end = max(
        10 * FIRST_SECONDS, last, *(record["seconds"] or 0.0 for record in records or [{"seconds": 0.0}])
    )
    times = [FIRST_SECONDS * (end / FIRST_SECONDS) ** (i / (STEPS - 1)) for i in range(STEPS)]
    columns = min(2, max(1, len(groups)))
    rows = max(1, math.ceil(len(groups) / columns))
    width = LEFT + columns * (PANEL_WIDTH + BETWEEN) + LEGEND_WIDTH
    height = max(rows * (PANEL_HEIGHT + TOP + ABOVE) + 10, TOP + 40 + ROW * len(bench.solvers))
    drawn = [
        _panel(bench, objective, group, times, LEFT + (i % columns) * (PANEL_WIDTH + BETWEEN),
               TOP + (i // columns) * (PANEL_HEIGHT + TOP + ABOVE))
        for i, (objective, group) in enumerate(groups.items())
    ]  # fmt: skip
    if not groups:
        drawn = [svg.words(LEFT, TOP, "no run has a value")]
    return svg.picture(width, height, [*drawn, _legend(bench, width - LEGEND_WIDTH + 8)])


def _with_trails(bench: Bench) -> list[Record]:
    """Runs with a trail under the largest budget."""
    budgets = [record["seconds"] for record in bench.records if record.get("trail")]
    largest = max((one for one in budgets if one is not None), default=None)
    return [one for one in bench.records if one.get("trail") and one["seconds"] == largest]


def _panel(
    bench: Bench, objective: str, records: list[Record], times: list[float], left: int, top: int
) -> str:
    curves = {
        solver: _curve(bench, [one for one in records if one["solver"] == solver], times)
        for solver in bench.solvers
    }
    seen = [gap for curve in curves.values() for gap in curve if gap is not None]
    highest = _ceiling(max(seen, default=1.0))
    instances = len({record["instance"] for record in records})
    counted = f"median gap of {instances} instance{'s' if instances != 1 else ''}"
    parts = [
        svg.words(left, top - 12, objective, font_weight=600),
        svg.words(left + PANEL_WIDTH, top - 12, counted, text_anchor="end", fill=svg.SOFT),
        _axes(times, highest, left, top),
    ]
    for number in reversed(range(len(bench.solvers))):  # the first one lies on top
        parts.append(_line(curves[bench.solvers[number]], number, highest, left, top))
    return "".join(parts)


def _curve(bench: Bench, records: list[Record], times: list[float]) -> Curve:
    """The median over runs of the gap at every moment; a run without a value yet has a gap of 1."""
    if not records:
        return [None] * len(times)
    curve: Curve = []
    for moment in times:
        gaps = [_gap_at(bench, record, moment) for record in records]
        reached = [gap for gap in gaps if gap is not None]
        curve.append(
            median([1.0 if gap is None else gap for gap in gaps]) if 2 * len(reached) > len(gaps) else None
        )
    return curve


def _gap_at(bench: Bench, record: Record, moment: float) -> float | None:
    values = [value for elapsed, _, value, _ in record["trail"] if elapsed <= moment]
    return bench.gap(record["instance"], values[-1]) if values else None


def _ceiling(highest: float) -> float:
    """A round number above."""
    return (
        next(top for top in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, math.inf) if highest <= top)
        or 1.0
    )


def _axes(times: list[float], highest: float, left: int, top: int) -> str:
    parts = [svg.element("rect", x=left, y=top, width=PANEL_WIDTH, height=PANEL_HEIGHT, fill=svg.WASH)]
    for i in range(6):
        y = top + PANEL_HEIGHT * (1 - i / 5)
        parts.append(svg.level((left, left + PANEL_WIDTH), y, f"{highest * i / 5 * 100:.3g} %"))
    decade = math.ceil(math.log10(times[0]) - 1e-9)
    while 10.0**decade <= times[-1] * 1.0001:
        x = _x(10.0**decade, times, left)
        parts.append(svg.line((x, x), (top, top + PANEL_HEIGHT), svg.GRID))
        parts.append(
            svg.words(x, top + PANEL_HEIGHT + 16, _time(decade), text_anchor="middle", fill=svg.SOFT)
        )
        decade += 1
    return "".join(parts)


def _x(moment: float, times: list[float], left: int) -> float:
    return left + PANEL_WIDTH * math.log(moment / times[0]) / math.log(times[-1] / times[0])


def _time(decade: int) -> str:
    return f"{10 ** (decade + 3)} ms" if decade < 0 else f"{10**decade} s"


def _line(curve: Curve, number: int, highest: float, left: int, top: int) -> str:
    """Steps: a value holds until the next one."""
    corners: list[tuple[float, float]] = []
    for i, gap in enumerate(curve):
        if gap is None:
            continue
        x = left + PANEL_WIDTH * i / (len(curve) - 1)
        y = top + PANEL_HEIGHT * (1 - min(gap, highest) / highest)
        last_y = corners[-1][1] if corners else None
        if last_y is not None and y != last_y:
            corners.append((x, last_y))
        if last_y is None or y != last_y or i == len(curve) - 1:
            corners.append((x, y))
    if not corners:
        return ""
    return svg.element("polyline", points=svg.points(corners), fill="none", **_stroke(number))


def _stroke(number: int) -> dict[str, svg.Number]:
    """How the line of a solver looks: the first one is wider."""
    return {
        "stroke": svg.COLOURS[number % len(svg.COLOURS)],
        "stroke_width": 1.6 if number else 2.6,
        "stroke_linejoin": "round",
        "stroke_dasharray": DASHES[number // len(svg.COLOURS) % len(DASHES)],
    }


def _legend(bench: Bench, left: int) -> str:
    parts = []
    for i, name in enumerate(bench.solvers):
        y = TOP + 6 + ROW * i
        parts.append(svg.element("line", x1=left, x2=left + 22, y1=y, y2=y, **_stroke(i)))
        parts.append(svg.words(left + 28, y + 4, name))
    return "".join(parts)
