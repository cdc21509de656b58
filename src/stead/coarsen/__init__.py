"""Graphs made smaller without losing the way back: groups, lossless contraction, clusters."""

from stead.coarsen.clustering import cluster, cluster_problem
from stead.coarsen.colocation import (
    colocate,
    colocate_by_names,
    colocate_constraints,
    colocate_single_consumers,
    colocate_units,
)
from stead.coarsen.group_limits import limited
from stead.coarsen.grouping import Grouping, single_groups, unit_groups
from stead.coarsen.lossless import lossless, memory_suffices

__all__ = [
    "Grouping",
    "cluster",
    "cluster_problem",
    "colocate",
    "colocate_by_names",
    "colocate_constraints",
    "colocate_single_consumers",
    "colocate_units",
    "limited",
    "lossless",
    "memory_suffices",
    "single_groups",
    "unit_groups",
]
