"""Which layer goes where, in words: a few lines for a summary, or every row."""

from __future__ import annotations

from collections.abc import Sequence

from stead.printing.look import PLAIN, Look, device_style
from stead.printing.table import Cell, Column, Painted, in_bytes, in_seconds, table
from stead.report.layers import LayerRow

MOST_NAMES = 8  # in a line of a summary
MOST_APART = 5  # of what stands apart from its block


def layer_texts(rows: Sequence[LayerRow]) -> list[str]:
    """One line per device that holds anything, then one per device for what stands apart from its block."""
    return [*_by_device(rows, exception=False), *_by_device(rows, exception=True)]


def _by_device(rows: Sequence[LayerRow], *, exception: bool) -> list[str]:
    lines = []
    for device in dict.fromkeys(row.device for row in rows):
        names = [row.short_name for row in rows if row.device == device and row.exception == exception]
        if not names:
            continue
        most = MOST_APART if exception else MOST_NAMES
        more = len(names) - most
        left = f" and {more} more; `stead explain PLAN` lists all" if more > 0 else ""
        said = f"{', '.join(names[:most])}{left}"
        lines.append(f"except {said} on {device}" if exception and not left else
                     f"except on {device}: {said}" if exception else f"{device}: {said}")  # fmt: skip
    return lines


def layer_table(rows: Sequence[LayerRow], look: Look = PLAIN) -> list[str]:
    """Every row with its operators, bytes and seconds; what stands apart from its block comes last."""
    settled = [row for row in rows if not row.exception]
    apart = [row for row in rows if row.exception]
    size = in_bytes(max((row.weight_bytes for row in rows), default=0))
    cached = in_bytes(max((row.kv_bytes for row in rows), default=0))
    caches = any(row.kv_bytes for row in rows)
    time = in_seconds(max((row.seconds for row in rows), default=0.0))
    devices = list(dict.fromkeys(row.device for row in rows))
    columns = [
        Column("device", least=12),
        Column("holds", least=24),
        Column("operators", right=True),
        Column("weights", size.unit, right=True),
        Column("KV", cached.unit, right=True),
        Column("time", time.unit, right=True),
    ]
    cells: list[list[Cell]] = [
        [
            Painted(row.device, device_style(devices.index(row.device))),
            f"apart: {row.name}" if row.exception else row.name,
            str(row.operators),
            size(row.weight_bytes),
            cached(row.kv_bytes) if caches else "",
            time(row.seconds),
        ]
        for row in (*settled, *apart)
    ]
    return table(columns, cells, look)
