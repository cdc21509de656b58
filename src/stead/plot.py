"""Figures for papers, drawn by matplotlib: each function takes a plan and Axes, and returns the Axes.

    ax = stead.plot.gantt(plan)
    ax.figure.savefig("gantt.pdf")

Needs the extra `plot`. Nothing else of stead imports matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stead.errors import BadInput, MissingExtra, did_you_mean
from stead.problem.ticks import TICKS_PER_SECOND
from stead.report import explain
from stead.report.columns import View
from stead.report.notebook_card import PALETTE
from stead.report.plan_view import view
from stead.report.slices import CRITICAL

if TYPE_CHECKING:
    from stead.plan import Plan

Axes = Any  # matplotlib.axes.Axes, which need not be installed

__all__ = ["baselines", "gantt", "graph", "history", "memory", "save_figure"]

_GREY, _WARNING = "#7d8896", "#b02a2a"
_SUFFIXES = (".pdf", ".svg", ".png")


def gantt(plan: Plan, ax: Axes | None = None) -> Axes:
    """What every device and every link does over time; the critical path is underlined."""
    ax, shown = _axes(ax, "stead.plot.gantt"), _view(plan)
    names = [device["name"] for device in shown.header["devices"]]
    unit = shown.header["unit_ticks"] / TICKS_PER_SECOND
    start, took = shown["start"] * unit, shown["dur"] * unit
    for d in range(len(names)):
        own = np.flatnonzero((shown["dev"] == d) & (shown["dur"] > 0))
        spans = list(zip(start[own], took[own], strict=True))
        ax.broken_barh(spans, (d - 0.4, 0.8), facecolors=_colour(d), linewidth=0)
        critical = own[(shown["flags"][own] & CRITICAL) > 0]
        spans = list(zip(start[critical], took[critical], strict=True))
        ax.broken_barh(spans, (d + 0.32, 0.08), facecolors="black", linewidth=0)
    pairs = sorted(set(zip(shown["tsrc"].tolist(), shown["tdst"].tolist(), strict=True)))
    begin, long = shown["tbeg"] * unit, shown["tdur"] * unit
    for lane, (source, target) in enumerate(pairs, start=len(names)):
        own = np.flatnonzero((shown["tsrc"] == source) & (shown["tdst"] == target))
        spans = list(zip(begin[own], long[own], strict=True))
        ax.broken_barh(spans, (lane - 0.25, 0.5), facecolors=_colour(source), alpha=0.7, linewidth=0)
    ax.set_yticks(range(len(names) + len(pairs)), [*names, *(f"{names[a]} → {names[b]}" for a, b in pairs)])
    ax.set_ylim(len(names) + len(pairs) - 0.5, -0.5)
    ax.set_xlim(0, shown.header["span_seconds"])
    ax.set_xlabel("seconds" if shown.header["timed"] else "seconds of work, each device for itself")
    return ax


def memory(plan: Plan, ax: Axes | None = None) -> Axes:
    """Memory of every used device over time, in GiB, with the limits that are near dashed."""
    ax, shown = _axes(ax, "stead.plot.memory"), _view(plan)
    unit, span = shown.header["unit_ticks"] / TICKS_PER_SECOND, shown.header["span_seconds"]
    highest = max((device["peak"] or 0 for device in shown.header["devices"]), default=0)
    for d, device in enumerate(shown.header["devices"]):
        if f"m{d}at" not in shown.columns:
            continue
        at = np.append(shown[f"m{d}at"] * unit, span)
        held = (shown[f"m{d}weights"] + shown[f"m{d}kv"] + shown[f"m{d}act"]) / 2**30
        ax.step(at, np.append(held, held[-1]), where="post", color=_colour(d), label=device["name"])
        ax.fill_between(at, np.append(held, held[-1]), step="post", color=_colour(d), alpha=0.15, linewidth=0)
        if device["limit"] is not None and highest > 0.4 * device["limit"]:
            ax.axhline(device["limit"] / 2**30, color=_colour(d), linestyle="--", linewidth=1)
    ax.set_xlim(0, span)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("seconds")
    ax.set_ylabel("GiB")
    ax.legend(frameon=False)
    return ax


def baselines(plan: Plan, ax: Axes | None = None) -> Axes:
    """The plan beside the simple rules, with the bound as a dashed line."""
    ax, report = _axes(ax, "stead.plot.baselines"), explain(plan)
    valued = [(rule.name, rule.objective_seconds) for rule in report.rules if rule.objective_seconds is not None]
    rows = [("plan", report.objective_seconds), *sorted(valued, key=lambda row: row[1])]
    colours = [PALETTE[0], *[_GREY] * len(valued)]
    ax.barh(range(len(rows)), [seconds for _, seconds in rows], color=colours)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.invert_yaxis()
    if report.bound_seconds > 0:
        ax.axvline(report.bound_seconds, color=_WARNING, linestyle="--", label=f"bound ({report.bound_name})")
        ax.legend(frameon=False)
    ax.set_xlabel(f"seconds per {report.unit}")
    return ax


def history(plan: Plan, ax: Axes | None = None) -> Axes:
    """The best plan and the bound over the time of the search, or over placements where times are not known."""
    ax, solution = _axes(ax, "stead.plot.history"), plan.solution
    if not solution.trail:
        raise BadInput("this plan holds no steps of a search; place it again to have them")
    timed = solution.trail[-1].elapsed_seconds > 0
    at = [step.elapsed_seconds if timed else step.evaluations for step in solution.trail]
    end = max(solution.elapsed_seconds if timed else solution.evaluations, at[-1])
    found = [step.objective_seconds for step in solution.trail]
    ax.step([*at, end], [*found, found[-1]], where="post", color=PALETTE[0], label="best plan")
    proved = [max(step.bound_seconds, 0.0) for step in solution.trail]
    if solution.bound_seconds > 0:
        bound = np.array([*proved, solution.bound_seconds])
        ax.step([*at, end], np.where(bound > 0, bound, np.nan), where="post", color=_WARNING, ls="--", label="bound")
    ax.set_xlabel("seconds of search" if timed else "simulated placements")
    ax.set_ylabel(f"seconds per {plan.problem.objective.unit}")
    ax.legend(frameon=False)
    return ax


def graph(plan: Plan, ax: Axes | None = None) -> Axes:
    """The boxes of the report's first picture that lie side by side, parted by the time that devices spend on them."""
    ax, shown = _axes(ax, "stead.plot.graph"), _view(plan)
    devices = len(shown.header["devices"])
    boxes = [b for b in range(1, len(shown["boxes"])) if shown["bparent"][b] == 0]
    seconds = shown["bsec"].reshape(-1, devices)
    at = {b: (float(shown["bx"][b]), -float(shown["blayer"][b])) for b in boxes}
    above = np.arange(len(shown["boxes"]))
    for b in range(1, len(above)):
        above[b] = b if shown["bparent"][b] == 0 else above[shown["bparent"][b]]
    pairs: dict[tuple[int, int], bool] = {}
    for source, target, cross in zip(shown["esrc"], shown["edst"], shown["ecross"], strict=True):
        pair = (int(above[source]), int(above[target]))
        pairs[pair] = pairs.get(pair, False) or bool(cross > 0)
    for (source, target), cross in pairs.items():
        if source != target:
            (x0, y0), (x1, y1) = at[source], at[target]
            ax.plot([x0, x1], [y0, y1], color=_WARNING if cross else _GREY, ls="--" if cross else "-", lw=0.8, zorder=0)
    for b, (x, y) in at.items():
        left, total = x - 0.45, float(seconds[b].sum()) or 1.0
        for d in range(devices):
            share = 0.9 * float(seconds[b, d]) / total
            ax.barh(y, share, left=left, height=0.6, color=_colour(d))
            left += share
        ax.text(x, y, shown["boxes"][b], ha="center", va="center", fontsize="x-small", color="white")
    ax.set_axis_off()
    return ax


FIGURES: dict[str, Callable[[Plan], Axes]] = {
    "gantt": gantt, "memory": memory, "baselines": baselines, "history": history, "graph": graph,
}  # fmt: skip


def save_figure(plan: Plan, kind: str, path: str | Path) -> None:
    """Write one figure of a plan as .pdf, .svg or .png."""
    if kind not in FIGURES:
        raise BadInput(f"no figure {kind!r}{did_you_mean(kind, FIGURES)}; there are {', '.join(FIGURES)}")
    if Path(path).suffix not in _SUFFIXES:
        raise BadInput(f"{path}: a figure ends in {', '.join(_SUFFIXES)}; name the file with -o")
    ax = FIGURES[kind](plan)
    try:
        ax.figure.savefig(path, bbox_inches="tight")
    except OSError as error:
        raise BadInput(f"cannot write to {path}: {error.strerror or error}") from None


def _view(plan: Plan) -> View:
    return view(plan, moves_seconds=0.0, sensitivity_seconds=0.0)


def _axes(ax: Axes | None, what: str) -> Axes:
    if ax is not None:
        return ax
    try:
        figure = import_module("matplotlib.figure").Figure  # without pyplot: no window, no global state
    except ImportError:
        raise MissingExtra("matplotlib", "plot", what) from None
    return figure(figsize=(7.0, 3.6)).subplots()


def _colour(d: int) -> str:
    return PALETTE[d % len(PALETTE)]
