"""Which layer goes where, in words: a few lines for a summary, or every row."""

from __future__ import annotations

from collections.abc import Sequence

from stead.cluster.units import format_bytes, format_seconds
from stead.report.layers import LayerRow

MOST_NAMES = 8  # in a line of a summary
MOST_APART = 5  # of what stands apart from its block
TITLES = ("device", "holds", "operators", "weights", "seconds")


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
        left = f" and {more} more; `stead explain plan.json` lists all" if more > 0 else ""
        said = f"{', '.join(names[:most])}{left}"
        lines.append(f"except {said} on {device}" if exception and not left else
                     f"except on {device}: {said}" if exception else f"{device}: {said}")  # fmt: skip
    return lines


def layer_table(rows: Sequence[LayerRow]) -> list[str]:
    """Every row with its operators, bytes and seconds; what stands apart from its block comes last."""
    settled = [row for row in rows if not row.exception]
    apart = [row for row in rows if row.exception]
    cells = [TITLES, *(_cells(row) for row in (*settled, *apart))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(TITLES))]
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True))
        for row in cells
    ]
    if apart:
        lines.insert(1 + len(settled), "apart from the rest of their blocks:")
    return lines


def _cells(row: LayerRow) -> tuple[str, ...]:
    return (
        row.device,
        row.name,
        str(row.operators),
        format_bytes(row.weight_bytes),
        format_seconds(row.seconds),
    )
