"""A curve in one line of text: the higher the value, the taller the block."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS, PLAIN_BLOCKS = " ▁▂▃▄▅▆▇█", " .:-=+*%#"  # from nothing to all; the second where there is ASCII alone


def sparkline(values: Sequence[float | None], cells: int, *, low: float, high: float, unicode: bool = True) -> str:
    """So many values in at most so many cells, between `low` and `high`; a blank where there is none.

    More values than cells are drawn by their means, so that a line has the whole history at any length.

    >>> sparkline([1.0, 2.0, None, 3.0], 8, low=1.0, high=3.0)
    '▁▅ █'
    >>> sparkline([4.0, 2.0, 0.0, 0.0], 2, low=0.0, high=4.0, unicode=False)
    '*.'
    """
    signs = BLOCKS if unicode else PLAIN_BLOCKS
    steps = len(signs) - 2
    count = min(len(values), cells)
    line = ""
    for cell in range(count):
        begin, end = cell * len(values) // count, (cell + 1) * len(values) // count
        known = [value for value in values[begin:end] if value is not None]
        if not known:
            line += signs[0]
            continue
        share = (sum(known) / len(known) - low) / (high - low) if high > low else 0.0
        line += signs[1 + int(min(max(share, 0.0), 1.0) * steps + 0.5)]
    return line
