"""What HSDAG places: operators joined before anything is learnt.

lossless   contractions that provably keep the optimum; where the objective knows none, units of the problem alone
published  the paper's co-location: an operator with one predecessor joins its group
chains     u and v are one where u has no other reader and v no other input; inputs and outputs of the model stay
           apart. Lossy where devices are good at different kernels: ResNet-50 of workloads/resnet50_measured.py has
           an optimum of 55.95 ms, and 65.39 ms once chains are joined
none       units of the problem: operators that must share a device
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping, cluster_problem, lossless, unit_groups
from stead.errors import BadInput
from stead.graph import Graph
from stead.graph.components import connected
from stead.graph.order import edge_pairs
from stead.problem import Latency, Problem, Throughput

Coarsening = Literal["lossless", "published", "chains", "none"]
COARSENINGS: tuple[Coarsening, ...] = get_args(Coarsening)
ENDS = frozenset(("parameter", "input", "result", "output"))


def coarsened(problem: Problem, how: Coarsening, *, most: int) -> tuple[Grouping, str]:
    """Groups, and how they came about in words; convex clusters where the chosen way leaves more than `most`."""
    if how == "lossless":
        grouping, told = (
            (lossless(problem), "lossless contraction")
            if _adds_up(problem)
            else (unit_groups(problem), "no contraction: none is lossless for this objective")
        )
    elif how in ("published", "chains"):
        label = published(problem.graph) if how == "published" else chains(problem.graph)
        grouping, told = _kept(problem, label), "published co-location" if how == "published" else "chains"
    elif how == "none":
        grouping, told = unit_groups(problem), "no contraction"
    else:
        raise BadInput(f"hsdag: coarsening is one of {', '.join(COARSENINGS)}, got {how!r}")
    if grouping.count > most:
        grouping = _kept(problem, cluster_problem(problem, most).group.astype(np.int64))
        told = f"convex clusters, since more than {most} groups were left"
    return grouping, f"{told}: {len(problem.graph)} operators in {grouping.count} groups"


def published(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Every operator with exactly one predecessor goes with it.

    >>> from stead.testing import two_towers
    >>> published(two_towers().graph).tolist()
    [0, 1, 0, 1, 4]
    """
    sources, targets = edge_pairs(graph)
    only = np.bincount(targets, minlength=len(graph))[targets] == 1
    return connected(len(graph), sources[only], targets[only])


def chains(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Edges that are the only way out of one operator and the only way into the next are contracted.

    >>> from stead.testing import two_towers
    >>> chains(two_towers().graph).tolist()
    [0, 1, 0, 1, 4]
    """
    sources, targets = edge_pairs(graph)
    leaves, enters = (np.bincount(ends, minlength=len(graph)) for ends in (sources, targets))
    is_end = np.array([kind.lower() in ENDS for kind in graph.kinds], dtype=bool)
    inner = (leaves[sources] == 1) & (enters[targets] == 1) & ~is_end[sources] & ~is_end[targets]
    return connected(len(graph), sources[inner], targets[inner])


def _adds_up(problem: Problem) -> bool:
    """Whether there are lossless contractions for its objective."""
    objective = problem.objective
    if isinstance(objective, Latency):
        return objective.execution == "sequential"
    return isinstance(objective, Throughput) and objective.microbatches is None


def _kept(problem: Problem, label: NDArray[np.int64]) -> Grouping:
    """Groups that keep units whole and have a device that may run them; those without fall apart into units."""
    units = problem.units.astype(np.int64)
    offset = int(label.max(initial=-1)) + 1
    total = offset + problem.unit_count
    label = connected(total, label, offset + units)[label]
    common = np.ones((total, len(problem.cluster)), dtype=bool)
    np.logical_and.at(common, label, problem.allowed)
    stranded = np.asarray(~common.any(axis=1))
    return Grouping(problem.graph, np.where(stranded[label], total + units, label))
