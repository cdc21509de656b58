"""Where boxes are drawn: layers from top to bottom, few crossings, the same every time.

Every box has a rank, when its operators run. Edges against the ranks (a folded graph has cycles) are left out of the
layering and drawn at the side, so no cycle does harm. A box's layer is the longest path to it over forward edges; in a
layer, boxes are sorted by the mean place of their neighbours, down and up again a few times (Sugiyama et al. 1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.report.fold import Fold

SWEEPS = 6
WIDEST = 4  # boxes side by side; a wider layer goes on in the next line


@dataclass(frozen=True, slots=True)
class Places:
    """Of each box: its layer, and its place in the layer, in box widths from the middle."""

    layer: tuple[int, ...]
    x: tuple[float, ...]


def layered(ranks: Sequence[float], edges: Sequence[tuple[int, int]]) -> Places:
    """Places of boxes with such ranks and edges between them.

    >>> layered([0, 1, 1, 2], [(0, 1), (0, 2), (1, 3), (2, 3), (3, 0)])
    Places(layer=(0, 1, 1, 2), x=(0.0, -0.5, 0.5, 0.0))
    """
    count = len(ranks)
    order = sorted(range(count), key=lambda box: (ranks[box], box))
    turn = {box: i for i, box in enumerate(order)}
    forward = sorted({(a, b) for a, b in edges if turn[a] < turn[b]}, key=lambda edge: (turn[edge[0]], turn[edge[1]]))
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    layer = [0] * count
    for a, b in forward:
        above[b].append(a)
        below[a].append(b)
    for box in order:
        layer[box] = max((layer[a] + 1 for a in above[box]), default=0)
    for box in reversed(order):  # what nothing comes before stands right above what reads it
        if not above[box] and below[box]:
            layer[box] = min(layer[b] for b in below[box]) - 1
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for box in order:
        rows[layer[box]].append(box)
    _sort(rows, above, below)
    return _placed(rows, count)


def _sort(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Each row by the mean place of neighbours, downwards and upwards in turn."""
    place: dict[int, float] = {}
    for row in rows:
        _spread(row, place)
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            means = {
                box: sum(place[n] for n in near[box]) / len(near[box]) if near[box] else place[box] for box in row
            }
            row.sort(key=lambda box, means=means: means[box])  # type: ignore[misc]
            _spread(row, place)


def _spread(row: Sequence[int], place: dict[int, float]) -> None:
    for i, box in enumerate(row):
        place[box] = i - (len(row) - 1) / 2


def _placed(rows: Sequence[Sequence[int]], count: int) -> Places:
    layer, x = [0] * count, [0.0] * count
    line = 0
    for row in rows:
        for begin in range(0, len(row), WIDEST):
            part = row[begin : begin + WIDEST]
            for i, box in enumerate(part):
                layer[box], x[box] = line, i - (len(part) - 1) / 2
            line += 1
    return Places(tuple(layer), tuple(x))


def laid_out(
    fold: Fold, ranks: NDArray[np.float64], edges: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Layer and place of every box within the one around it; ranks [operator], edges [edge, 2] between leaves."""
    count = len(fold.names)
    layer, x = np.zeros(count, dtype=np.int64), np.zeros(count)
    rank = _median_ranks(fold, ranks)
    by_parent: dict[int, set[tuple[int, int]]] = {}
    above, depths = fold.ancestors(), fold.depths
    for a, b in edges.tolist():
        deep = min(depths[a], depths[b])
        apart = np.flatnonzero(above[a, : deep + 1] != above[b, : deep + 1])
        if len(apart):
            level = int(apart[0])
            first, second = int(above[a, level]), int(above[b, level])
            by_parent.setdefault(int(fold.parents[first]), set()).add((first, second))
    children: dict[int, list[int]] = {}
    for box in range(1, count):
        children.setdefault(int(fold.parents[box]), []).append(box)
    for parent, boxes in children.items():
        index = {box: i for i, box in enumerate(boxes)}
        own = sorted((index[a], index[b]) for a, b in by_parent.get(parent, ()))
        places = layered([float(rank[box]) for box in boxes], own)
        layer[boxes], x[boxes] = places.layer, places.x
    return layer, x


def _median_ranks(fold: Fold, ranks: NDArray[np.float64]) -> NDArray[np.float64]:  # [box]
    """The median rank of each box's operators, those of boxes within it included."""
    above = fold.ancestors()[fold.leaf]  # [operator, depth]
    median = np.zeros(len(fold.names))
    for level in range(above.shape[1]):
        box = above[:, level]
        order = np.lexsort((ranks, box))
        found, first, count = np.unique(box[order], return_index=True, return_counts=True)
        median[found] = ranks[order][first + count // 2]
    return median
