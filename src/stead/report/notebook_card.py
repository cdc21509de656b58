"""A plan without script: the card that notebooks show, and what a page holds for readers that run none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stead.cluster.devices import UNLIMITED_BYTES
from stead.cluster.quantities import format_bytes, format_seconds
from stead.printing import svg
from stead.printing.svg import escape
from stead.printing.wording import cut
from stead.report.facts import DeviceFacts, Report, explain
from stead.report.layers import LayerRow, layer_rows
from stead.report.text import summary
from stead.report.verdict import verdict

if TYPE_CHECKING:
    from stead.plan import Plan

WIDTH = 960  # of pictures, in pixels
ROW = 26
LEFT, RIGHT = 170, 170  # room for names and for numbers
MOST_OPEN = 12  # rows that stand apart from their blocks and are shown at once
LONG_REASON = 100
PALETTE = ("#2563c9", "#b45309", "#17795a", "#8e3fa0", "#8a6d00", "#0f7285", "#b3303f", "#5b4bc4")


def card(plan: Plan) -> str:
    """A plan in a few lines for a notebook: value, bound and which layer goes where."""
    solution, objective = plan.solution, plan.problem.objective
    return (
        f"<div><p><b>{escape(plan.problem.graph.name)}</b>: {format_seconds(solution.objective_seconds)} "
        f"per {escape(objective.unit)}, {solution.proof} ({escape(objective.describe())})</p>"
        f"{layer_list(layer_rows(plan.problem, plan.placement), most_apart=MOST_OPEN)}</div>"
    )


def plain(plan: Plan, report: Report | None = None) -> str:
    """All of a plan that needs no script: verdict, layers, rules, devices, and the text."""
    report = report or explain(plan)
    found = verdict(plan, report)
    problems = "".join(f"<li>{escape(one)}</li>" for one in (*found.remedies, *found.problems))
    claims = ". ".join(f"<b>{escape(strong)}</b> {escape(rest)}" for strong, rest in found.claims)
    levels = f"<p>blocks: {escape(report.levels.text)}</p>" if report.levels is not None else ""
    names = escape(", ".join(plan.problem.cluster.names))
    return (
        f"<h1>{escape(plan.problem.graph.name)}</h1><p>{escape(report.objective)} on {names}; costs "
        f"{escape(report.source)}</p><p><b>{format_seconds(report.objective_seconds)}</b> per {report.unit}. "
        f"{claims}.</p>{f'<ul>{problems}</ul>' if problems else ''}"
        f"<h2>Which layer goes where</h2>{layer_list(report.layers, most_apart=MOST_OPEN)}{levels}"
        f"<h2>Beside the simple rules</h2>{rule_bars(report)}"
        f"<h2>Devices</h2>{device_table(report.devices)}"
        f"<h2>As text</h2><pre>{escape(summary(report))}</pre>"
    )


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


def rule_bars(report: Report) -> str:
    """One bar per rule, the plan first, the bound as a dashed line."""
    rows = [("plan", report.objective_seconds, "", PALETTE[0])]
    valued = [rule for rule in report.rules if rule.objective_seconds is not None]
    for rule in sorted(valued, key=lambda rule: rule.objective_seconds or 0.0):
        rows.append((rule.name, rule.objective_seconds or 0.0, f"{rule.times_plan:.2f}x", svg.GREY))
    rows.extend(
        (rule.name, 0.0, cut(rule.reason, LONG_REASON), "") for rule in report.rules if rule.objective_seconds is None
    )
    longest = max((row[1] for row in rows if row[1] < float("inf")), default=0.0) or 1e-30
    scale = (WIDTH - LEFT - RIGHT) / longest
    bars = []
    for number, (name, seconds, note, colour) in enumerate(rows):
        y = number * ROW
        bars.append(svg.words(LEFT - 8, y + 17, name, text_anchor="end"))
        if colour and seconds < float("inf"):
            wide = seconds * scale
            bars.append(svg.element("rect", x=LEFT, y=y + 5, width=wide, height=16, rx=2, fill=colour))
            bars.append(svg.words(LEFT + wide + 6, y + 17, f"{format_seconds(seconds)} {note}".strip()))
        else:
            bars.append(svg.words(LEFT, y + 17, note or "cannot run", class_="tick"))
    if report.bound_seconds > 0:
        x, bottom = LEFT + report.bound_seconds * scale, (len(valued) + 1) * ROW
        title = f"no placement can be better: {format_seconds(report.bound_seconds)}"
        bars.append(svg.line((x, x), (0, bottom), svg.WARNING, dash="4 3", title=title))
    return svg.element("svg", "".join(bars), viewBox=f"0 0 {WIDTH} {len(rows) * ROW + 6}")


def device_table(devices: Sequence[DeviceFacts]) -> str:
    """What every device does and holds."""
    caches = any(device.kv_bytes for device in devices)
    held = ("weights", *(["caches"] if caches else []))
    titles = ("device", "operators", "compute", "received", "sent", *held, "peak", "limit")
    head = f"<tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr>"
    rows = "".join(
        f"<tr><td>{escape(device.name)}{f' ({escape(device.model)})' if device.model else ''}</td>"
        f"<td>{device.operators}</td><td>{format_seconds(device.compute_seconds)}</td>"
        f"<td>{format_seconds(device.received_seconds)}</td><td>{format_seconds(device.sent_seconds)}</td>"
        f"<td>{format_bytes(device.weight_bytes)}</td>"
        f"{f'<td>{format_bytes(device.kv_bytes)}</td>' if caches else ''}"
        f"<td>{format_bytes(device.peak_bytes) if device.peak_bytes >= 0 else '-'}</td>"
        f"<td>{'none' if device.limit_bytes >= UNLIMITED_BYTES // 4 else format_bytes(device.limit_bytes)}</td></tr>"
        for device in devices
    )
    return f"<table>{head}{rows}</table>"
