"""How likely random walks come back: a position in the graph that needs no numbering.

Notation    n nodes, m pairs of neighbours, directions ignored
    M        [n, n]  chance of a step from one node to another: 1 / degree for every neighbour
    r_k(v)   (M^k)_vv, the chance that a walk of k steps from v ends there (Dwivedi et al., "Graph neural networks
             with learnable structural and positional representations", ICLR 2022); k = 2, 3, ...: no walk ends at its
             beginning after one step

Exact up to `EXACT_NODES` nodes, from walks that begin everywhere, some nodes at a time. In larger graphs it is an
estimate: the mean of s_v (M^k s)_v over vectors s of random signs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.learn.ground.features import standardised
from stead.learn.hsdag.fractal import EXACT_NODES

AT_A_TIME = 128
SIGNS = 64  # random vectors


def returns(count: int, edges: NDArray[np.int64], steps: int) -> NDArray[np.float32]:  # [n, steps]
    """r_2 .. r_(steps + 1) of every node of a graph with the given edges [edge, 2], standardised."""
    return standardised(return_chances(count, edges, steps)).astype(np.float32)


def return_chances(count: int, edges: NDArray[np.int64], steps: int) -> NDArray[np.float64]:  # [n, steps]
    """r_2 .. r_(steps + 1) of every node.

    >>> return_chances(3, np.array([[0, 1], [1, 2]]), 3).tolist()
    [[0.5, 0.0, 0.5], [1.0, 0.0, 1.0], [0.5, 0.0, 0.5]]
    """
    own = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    both = np.unique(np.concatenate([own, own[:, ::-1]]), axis=0)
    both = both[both[:, 0] != both[:, 1]]
    if not len(both) or not steps:
        return np.zeros((count, steps))
    if count > EXACT_NODES:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (count, SIGNS))
        means = [(signs * walked).mean(axis=1) for walked in _walked(signs, both, steps)]
        estimated: NDArray[np.float64] = np.clip(np.stack(means, axis=1), 0.0, 1.0)
        return estimated
    found = np.empty((count, steps))
    for begin in range(0, count, AT_A_TIME):
        nodes = np.arange(begin, min(count, begin + AT_A_TIME))
        start = np.zeros((count, len(nodes)))
        start[nodes, nodes - begin] = 1.0
        for k, walked in enumerate(_walked(start, both, steps)):
            found[nodes, k] = walked[nodes, nodes - begin]
    return found


def _walked(values: NDArray[np.float64], both: NDArray[np.int64], steps: int) -> list[NDArray[np.float64]]:
    """M^2, M^3, ... times values [n, X]."""
    owners, first, degree = np.unique(both[:, 0], return_index=True, return_counts=True)
    found = []
    for _ in range(steps + 1):
        means = np.zeros_like(values)
        means[owners] = np.add.reduceat(values[both[:, 1]], first, axis=0) / degree[:, None]
        values = means
        found.append(values)
    return found[1:]
