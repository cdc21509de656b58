"""Node fractal dimension: how fast the neighbourhood of a node grows with the radius.

Notation    N nodes, r radius in hops, directions ignored
    n(v, r)  nodes within r hops of v, v excluded        ecc(v)  the largest r at which n(v, r) still grows
    d(v)     slope of the least-squares line of log n(v, r) over log r, r = 1 .. ecc(v); 0 with fewer than 2 radii

All sources are searched at once, 64 to a word: one round takes time in proportion to the edges times the words. In
graphs above `EXACT_NODES` nodes the counts are estimates, from sketches of which bits are set by how many nodes (Palmer
et al., "ANF: a fast and scalable tool for data mining in massive graphs", KDD 2002), and only `FEW_RADII` radii count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

EXACT_NODES = 2048
FEW_RADII = 8
SKETCHES = 32
BIAS = 0.77351  # of the lowest bit that nobody set (Flajolet and Martin 1985)
_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


def fractal_dimensions(count: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:  # [node]
    """d(v) of every node of a graph with the given edges [edge, 2]; finite also where parts are unconnected.

    >>> path = np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    >>> fractal_dimensions(5, path).round(6).tolist()[0]
    1.0
    """
    own = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    both = np.unique(np.concatenate([own, own[:, ::-1]]), axis=0)
    both = both[both[:, 0] != both[:, 1]]
    if not len(both):
        return np.zeros(count)
    return _slopes(_counted(count, both) if count <= EXACT_NODES else _estimated(count, both))


def _counted(count: int, both: NDArray[np.int64]) -> NDArray[np.float64]:  # [node, radius]
    """n(v, r) for r = 1, 2, ... until nothing grows any more."""
    own = np.arange(count)
    reached = np.zeros((count, (count + 63) // 64), dtype=np.uint64)
    reached[own, own // 64] = np.uint64(1) << (own % 64).astype(np.uint64)
    columns = [
        _ONES[words.view(np.uint8)].sum(axis=1, dtype=np.float64) - 1.0
        for words in _rounds(reached, both, count)
    ]
    return np.stack(columns, axis=1)


def _estimated(count: int, both: NDArray[np.int64]) -> NDArray[np.float64]:  # [node, radius]
    """About n(v, r) for the first radii."""
    rng = np.random.default_rng(0)
    place = np.minimum(rng.geometric(0.5, size=(count, SKETCHES)) - 1, 62)
    reached = np.uint64(1) << place.astype(np.uint64)
    columns = []
    for words in _rounds(reached, both, FEW_RADII):
        lowest = np.log2((~words & (words + np.uint64(1))).astype(np.float64))
        columns.append(np.maximum(2.0 ** lowest.mean(axis=1) / BIAS - 1.0, 1.0))
    return np.maximum.accumulate(np.stack(columns, axis=1), axis=1)


def _rounds(reached: NDArray[np.uint64], both: NDArray[np.int64], most: int) -> Iterator[NDArray[np.uint64]]:
    """What every node has heard of after each round in which neighbours tell each other what they know."""
    owners, first = np.unique(both[:, 0], return_index=True)
    for _ in range(most):
        before = reached
        reached = before.copy()
        reached[owners] |= np.bitwise_or.reduceat(before[both[:, 1]], first, axis=0)
        if np.array_equal(before, reached):
            return
        yield reached


def _slopes(counts: NDArray[np.float64]) -> NDArray[np.float64]:  # [node]
    radii = counts.shape[1]
    if radii < 2:
        return np.zeros(len(counts))
    grows = np.diff(counts, axis=1, prepend=0.0) > 0
    used = np.cumsum(grows[:, ::-1], axis=1)[:, ::-1] > 0  # up to the last radius at which it grows
    x = np.log(np.arange(1, radii + 1, dtype=np.float64))[None, :]
    y = np.log(np.maximum(counts, 1.0))
    number = np.maximum(used.sum(axis=1), 1)
    mean_x, mean_y = (np.where(used, part, 0.0).sum(axis=1) / number for part in (x, y))
    dx, dy = np.where(used, x - mean_x[:, None], 0.0), np.where(used, y - mean_y[:, None], 0.0)
    spread = (dx * dx).sum(axis=1)
    return np.where(spread > 0, (dx * dy).sum(axis=1) / np.maximum(spread, 1e-300), 0.0)
