"""What every device does over time, as one bar of block characters each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.cluster.devices import UNLIMITED_BYTES
from stead.cluster.quantities import format_seconds
from stead.printing.look import HEADER, Look, device_style
from stead.printing.sparkline import BLOCKS, PLAIN_BLOCKS
from stead.printing.table import in_bytes
from stead.printing.wording import columns_of
from stead.problem.ticks import TICKS_PER_SECOND
from stead.report.facts import DeviceFacts, Report
from stead.sim import Timeline

MOST_DEVICES = 8
MOST_CELLS = 72
_LEAST_CELLS = 12
_LONGEST_NAME = 24


def coverage(timeline: Timeline, d: int, cells: int) -> NDArray[np.float64]:  # [cell]
    """The share of each of `cells` equal parts of a run in which a device computes."""
    mine = np.flatnonzero((timeline.devices == d) & (timeline.finish_ticks > timeline.start_ticks))
    mine = mine[np.argsort(timeline.start_ticks[mine], kind="stable")]
    end = max(timeline.makespan_ticks, 1)
    if not len(mine):
        return np.zeros(cells)
    finish = np.maximum.accumulate(timeline.finish_ticks[mine])
    # Operators that run beside each other count once: each begins where those before it have ended.
    start = np.maximum(timeline.start_ticks[mine], np.concatenate(([0], finish[:-1])))
    done = np.cumsum(finish - start)
    when = np.stack((start, finish), axis=1).ravel()
    busy = np.stack((done - (finish - start), done), axis=1).ravel()
    edges = np.linspace(0.0, float(end), cells + 1)
    shares: NDArray[np.float64] = np.diff(np.interp(edges, when, busy, left=0.0)) * (cells / end)
    return shares.clip(0.0, 1.0)


def bar(shares: NDArray[np.float64], *, unicode: bool = True) -> str:
    """One sign per share: a blank for nothing at all, a full block for all of it only.

    >>> bar(np.array([0.0, 0.001, 0.5, 0.999, 1.0]))
    ' ▁▄▇█'
    """
    signs = BLOCKS if unicode else PLAIN_BLOCKS
    levels = np.clip(np.rint(shares * 8), 1, 7).astype(int)
    levels[shares < 1e-9] = 0
    levels[shares > 1 - 1e-9] = 8
    return "".join(signs[level] for level in levels)


def picture(report: Report, look: Look) -> list[str]:
    """A bar per used device with the share of time it computes and its memory; of many devices the busiest."""
    used = [(d, device) for d, device in enumerate(report.devices) if device.operators]
    busiest = sorted(used, key=lambda one: (-one[1].compute_seconds, one[0]))[:MOST_DEVICES]
    shown = sorted(busiest, key=lambda one: one[0])
    span = report.objective_seconds if report.timeline is None else report.timeline.makespan_ticks / TICKS_PER_SECOND
    if not shown or not 0 < span < float("inf"):
        return []
    names = [look.shortened(look.shown(device.name), _LONGEST_NAME) for _, device in shown]
    room = [_memory(device) for _, device in shown]
    left, right = max(map(columns_of, names)), max(map(len, (*room, "memory")))
    cells = min(look.columns - left - right - len("  || 100 %  "), MOST_CELLS)
    if cells < _LEAST_CELLS:
        return []
    until = format_seconds(span)
    titles = f"0{until:>{cells - 1}}"
    lines = [f" {'':<{left}} |{look.painted(titles, HEADER)}| {look.painted(' busy  memory', HEADER)}"]
    for (d, device), name, memory in zip(shown, names, room, strict=True):
        shares = _shares(report, d, device, cells, span)
        drawn = look.painted(bar(shares, unicode=look.unicode), device_style(d))
        named = look.painted(name, device_style(d)) + " " * (left - columns_of(name))
        lines.append(f" {named} |{drawn}| {100 * shares.mean():3.0f} %  {memory:>{right}}")
    if len(used) > len(shown):
        lines.append(f" {'':<{left}}  the {len(shown)} busiest of {len(used)} devices that are used")
    return lines


def _shares(report: Report, d: int, device: DeviceFacts, cells: int, span: float) -> NDArray[np.float64]:
    """Over the time line; where there is none, one stretch as long as what the device computes per sample."""
    if report.timeline is not None:
        return coverage(report.timeline, d, cells)
    return np.clip(device.compute_seconds / span * cells - np.arange(cells), 0.0, 1.0)


def _memory(device: DeviceFacts) -> str:
    if device.peak_bytes < 0:
        return ""
    if device.limit_bytes >= UNLIMITED_BYTES // 4:
        scale = in_bytes(device.peak_bytes)
        return f"{scale(device.peak_bytes)} {scale.unit}"
    scale = in_bytes(device.limit_bytes)
    return f"{scale(device.peak_bytes)} of {scale(device.limit_bytes)} {scale.unit}"
