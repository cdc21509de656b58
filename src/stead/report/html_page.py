"""A plan as one self-contained page: verdict, baselines, time line, memory. No script, no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stead.cluster.quantities import format_bytes, format_seconds
from stead.printing import svg
from stead.printing.svg import escape
from stead.problem.ticks import TICKS_PER_SECOND
from stead.report.facts import Report, explain
from stead.report.layers import LayerRow, layer_rows
from stead.report.text import summary
from stead.sim import Curve, Timeline

if TYPE_CHECKING:
    from stead.plan import Plan

WIDTH = 960  # of pictures, in pixels
LEFT = 110  # room for names
ROW = 26
MOST_BARS = 6000  # operators drawn; more are merged into runs
MOST_PAIRS = 24  # pairs of devices whose transfers are drawn
MOST_OPEN = 12  # rows that stand apart from their blocks and are shown at once
MOST_STEPS = 3000  # of a memory curve
COLOURS = svg.COLOURS[:8]

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667085; --line: #d7dce3; --paper: #ffffff; --wash: #f4f6f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #333c48; --paper: #14181e; --wash: #1c222a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1000px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.verdict { font-size: 2rem; font-weight: 600; } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: right; padding: .25rem .6rem;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; color: var(--soft); }
svg { width: 100%; height: auto; background: var(--wash); border-radius: 6px; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } .tick { fill: var(--soft); }
pre { background: var(--wash); padding: 1rem; overflow-x: auto; border-radius: 6px; font-size: 12.5px; }
"""


def page(plan: Plan) -> str:
    """The whole page as text."""
    report = explain(plan)
    parts = [
        _title(plan, report),
        "<h2>Which layer goes where</h2>" + layer_list(report.layers) + _levels(report),
        _verdict(report),
        "<h2>Beside the simple rules</h2>" + _rules(report),
        "<h2>Devices</h2>" + _devices(report),
    ]
    if plan.trace.timeline is not None:
        parts.append("<h2>Time line</h2>" + _timeline(plan.trace.timeline))
        if plan.trace.timeline.execution != "offload":
            parts.append("<h2>Memory over time</h2>" + _memory(plan, plan.trace.timeline.makespan_ticks))
    parts.append(f"<h2>As text</h2><pre>{escape(summary(report))}</pre>")
    title = escape(f"{plan.problem.graph.name} on {', '.join(plan.problem.cluster.names)}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def card(plan: Plan) -> str:
    """A plan in a few lines for a notebook: value, bound and which layer goes where."""
    solution, objective = plan.solution, plan.problem.objective
    return (
        f"<div><p><b>{escape(plan.problem.graph.name)}</b>: {format_seconds(solution.objective_seconds)} "
        f"per {escape(objective.unit)}, {solution.proof} ({escape(objective.describe())})</p>"
        f"{layer_list(layer_rows(plan.problem, plan.placement), most_apart=MOST_OPEN)}</div>"
    )


def _title(plan: Plan, report: Report) -> str:
    return (
        f"<h1>{escape(plan.problem.graph.name)}</h1>"
        f'<p class="soft">{escape(report.objective)} on {escape(", ".join(plan.problem.cluster.names))}; '
        f"costs {escape(report.source)}</p>"
    )


def _levels(report: Report) -> str:
    return f'<p class="soft">blocks: {escape(report.levels.text)}</p>' if report.levels is not None else ""


def layer_list(rows: Sequence[LayerRow], *, most_apart: int | None = None) -> str:
    """Every row of the map as a table; what stands apart from its block comes last and can be opened.

    `most_apart` is how many of those are shown at most.
    """
    caches = any(row.kv_bytes for row in rows)
    titles = ("device", "holds", "operators", "weights", *(["KV"] if caches else []), "seconds")
    head = "".join(f"<th>{title}</th>" for title in titles)
    settled = _layer_rows([row for row in rows if not row.exception], caches=caches)
    apart = [row for row in rows if row.exception]
    table = f"<table><tr>{head}</tr>{settled}</table>"
    if not apart:
        return table
    opened = " open" if len(apart) <= MOST_OPEN else ""
    shown = apart[:most_apart]
    more = f"<p>and {len(apart) - len(shown)} more</p>" if len(shown) < len(apart) else ""
    return (
        f"{table}<details{opened}><summary>{len(apart)} apart from the rest of their blocks</summary>"
        f"<table><tr>{head}</tr>{_layer_rows(shown, caches=caches)}</table>{more}</details>"
    )


def _layer_rows(rows: Sequence[LayerRow], *, caches: bool) -> str:
    return "".join(
        f"<tr><td>{escape(row.device)}</td><td>{escape(row.name)}</td><td>{row.operators}</td>"
        f"<td>{format_bytes(row.weight_bytes)}</td>"
        f"{f'<td>{format_bytes(row.kv_bytes)}</td>' if caches else ''}<td>{format_seconds(row.seconds)}</td></tr>"
        for row in rows
    )


def _verdict(report: Report) -> str:
    among = f" among {escape(report.scope)}" if report.scope else ""
    proof = (
        f"proved optimal{among}"
        if report.gap == 0 and report.bound_seconds > 0
        else f"gap {report.gap * 100:.1f} %: no placement{among} is below {format_seconds(report.bound_seconds)}"
        f" ({escape(report.bound_name)})"
    )
    matters = (
        " Placement does not matter here: every rule that works is within 2 %, and nothing better exists."
        if not report.placement_matters
        else f" The simple rule {escape(report.as_good.name)} is as good, within 2 %."
        if report.as_good is not None
        else ""
    )
    return (
        f'<p><span class="verdict">{format_seconds(report.objective_seconds)}</span> per {report.unit}, '
        f"{proof}.{matters}</p>"
    )


def _rules(report: Report) -> str:
    """One bar per rule, the plan first, the bound as a dashed line."""
    rows = [("plan", report.objective_seconds, "", COLOURS[0])]
    valued = [rule for rule in report.rules if rule.objective_seconds is not None]
    for rule in sorted(valued, key=lambda rule: rule.objective_seconds or 0.0):
        rows.append((rule.name, rule.objective_seconds or 0.0, f"{rule.times_plan:.2f}x", svg.GREY))
    rows.extend(
        (rule.name, 0.0, rule.reason[:100], "") for rule in report.rules if rule.objective_seconds is None
    )
    left, right = 170, 170
    longest = max(max(row[1] for row in rows), 1e-30)
    scale = (WIDTH - left - right) / longest
    bars = []
    for number, (name, seconds, note, colour) in enumerate(rows):
        y = number * ROW
        bars.append(svg.words(left - 8, y + 17, name, text_anchor="end"))
        if colour:
            bars.append(
                svg.element("rect", x=left, y=y + 5, width=seconds * scale, height=16, rx=2, fill=colour)
            )
            label = f"{format_seconds(seconds)} {note}".strip()
            bars.append(svg.words(left + seconds * scale + 6, y + 17, label))
        else:
            bars.append(svg.words(left, y + 17, note, class_="tick"))
    if report.bound_seconds > 0:
        x, bottom = left + report.bound_seconds * scale, (len(valued) + 1) * ROW
        title = f"no placement can be better: {format_seconds(report.bound_seconds)}"
        bars.append(svg.line((x, x), (0, bottom), svg.WARNING, dash="4 3", title=title))
    return _drawing(len(rows) * ROW + 6, bars)


def _drawing(height: int, parts: Sequence[str], style: str = "") -> str:
    """A picture in the page, as wide as all others."""
    return svg.element("svg", "".join(parts), viewBox=f"0 0 {WIDTH} {height}", style=style)


def _devices(report: Report) -> str:
    titles = ("device", "operators", "compute", "received", "sent", "peak", "limit")
    head = f"<tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr>"
    rows = "".join(
        f"<tr><td>{escape(device.name)}{f' ({escape(device.model)})' if device.model else ''}</td>"
        f"<td>{device.operators}</td><td>{format_seconds(device.compute_seconds)}</td>"
        f"<td>{format_seconds(device.received_seconds)}</td><td>{format_seconds(device.sent_seconds)}</td>"
        f"<td>{format_bytes(device.peak_bytes)}</td>"
        f"<td>{'none' if device.limit_bytes >= 2**60 else format_bytes(device.limit_bytes)}</td></tr>"
        for device in report.devices
    )
    return f"<table>{head}{rows}</table>"


def _timeline(timeline: Timeline) -> str:
    """Operators by device and transfers by pair of devices."""
    names, moved = timeline.problem.cluster.names, timeline.transfers
    end = max(timeline.makespan_ticks, 1)
    scale = (WIDTH - LEFT - 20) / end
    drawn = []
    for d, name in enumerate(names):
        drawn.append(_lane_name(d, name))
        for begin, finish, label in _runs(timeline, np.flatnonzero(timeline.devices == d)):
            drawn.append(_bar(begin, finish, d, scale, COLOURS[d % len(COLOURS)], label))
    pairs = sorted(set(zip(moved.source.tolist(), moved.target.tolist(), strict=True)))[:MOST_PAIRS]
    for lane, (source, target) in enumerate(pairs, start=len(names)):
        drawn.append(_lane_name(lane, f"{names[source]} → {names[target]}"))
        for x in np.flatnonzero((moved.source == source) & (moved.target == target))[:MOST_BARS].tolist():
            label = timeline.problem.graph.tensor_names[moved.tensor[x]]
            begin, arrive = int(moved.begin_ticks[x]), int(moved.arrive_ticks[x])
            drawn.append(_bar(begin, arrive, lane, scale, svg.GREY, label))
    height = (len(names) + len(pairs)) * ROW
    return _drawing(height + 22, [*drawn, *_axis(end, scale, height)])


def _runs(timeline: Timeline, operators: NDArray[np.int64]) -> list[tuple[int, int, str]]:
    """(begin, end, label) of operators, back-to-back ones merged where there are too many to draw."""
    start, finish = timeline.start_ticks, timeline.finish_ticks
    order = operators[np.argsort(start[operators], kind="stable")]
    if len(order) <= MOST_BARS:
        names = timeline.problem.graph.operator_names
        return [(int(start[v]), int(finish[v]), names[v]) for v in order if finish[v] > start[v]]
    runs = np.array_split(order, MOST_BARS)
    return [(int(start[run].min()), int(finish[run].max()), f"{len(run)} operators") for run in runs]


def _lane_name(lane: int, name: str) -> str:
    return svg.words(LEFT - 8, lane * ROW + 17, name, text_anchor="end")


def _bar(begin: int, end: int, lane: int, scale: float, colour: str, label: str) -> str:
    duration, since = (format_seconds(ticks / TICKS_PER_SECOND) for ticks in (end - begin, begin))
    return svg.element(
        "rect",
        f"<title>{escape(label)}: {duration} from {since}</title>",
        x=f"{LEFT + begin * scale:.2f}",
        y=lane * ROW + 5,
        width=f"{max((end - begin) * scale, 0.4):.2f}",
        height=16,
        fill=colour,
        stroke="var(--paper)",
        stroke_width=".3",
    )


def _axis(end: int, scale: float, height: int) -> list[str]:
    return [
        svg.words(
            LEFT + mark * scale,
            height + 15,
            format_seconds(mark / TICKS_PER_SECOND),
            class_="tick",
            text_anchor="end" if mark == end else "middle",
        )
        for mark in (end * part // 4 for part in range(5))
    ]


def _memory(plan: Plan, makespan: int) -> str:
    """One step curve per used device, its limit as a dashed line."""
    height, end = 90, max(makespan, 1)
    scale = (WIDTH - LEFT - 20) / end
    pictures = []
    for d, device in enumerate(plan.problem.cluster):
        if not (plan.placement.devices == d).any():
            continue
        curve = plan.trace.memory_curve(device.name)
        peak = int(curve.bytes.max(initial=0))
        limited = device.usable_bytes < 2**60
        top = max(peak, device.usable_bytes if limited else 1, 1)
        colour = COLOURS[d % len(COLOURS)]
        corners = svg.points(_steps(curve, end, scale, height / top, height))
        parts = [
            svg.words(LEFT - 8, 20, device.name, text_anchor="end"),
            svg.words(LEFT - 8, 38, format_bytes(peak), class_="tick", text_anchor="end"),
            svg.element("polygon", points=corners, fill=colour, fill_opacity=".35", stroke=colour),
        ]
        if limited:
            y = height - device.usable_bytes / top * height + 8
            parts.append(svg.line((LEFT, WIDTH - 20), (y, y), svg.WARNING, dash="4 3"))
        parts += _axis(end, scale, height + 10)
        pictures.append(_drawing(height + 30, parts, style="margin-bottom:.5rem"))
    return "".join(pictures)


def _steps(curve: Curve, end: int, scale: float, unit: float, height: int) -> list[tuple[float, float]]:
    """Corners of a step curve, at most a few thousand of them: of each bunch of steps the highest stays."""
    keep = np.arange(len(curve.at))
    if len(keep) > MOST_STEPS:
        keep = np.unique([chunk[curve.bytes[chunk].argmax()] for chunk in np.array_split(keep, MOST_STEPS)])
    floor, level = height + 8, 0.0
    corners: list[tuple[float, float]] = [(LEFT, floor)]
    for at, size in zip(curve.at[keep].tolist(), curve.bytes[keep].tolist(), strict=True):
        x = LEFT + min(at, end) * scale
        corners += [(x, floor - level), (x, floor - size * unit)]
        level = size * unit
    return [*corners, (LEFT + end * scale, floor - level), (LEFT + end * scale, floor)]
