"""Graphs made smaller without losing the way back: groups, folded views, clusters; and orders of operators."""

from stead.coarsen.clustering import cluster, cluster_problem
from stead.coarsen.colocation import (
    colocate,
    colocate_by_names,
    colocate_constraints,
    colocate_single_consumers,
    colocate_units,
)
from stead.coarsen.fold import VIEW_KINDS, Folded, fold, is_view
from stead.coarsen.group_limits import limited
from stead.coarsen.grouping import Grouping, single_groups, unit_groups
from stead.coarsen.lossless import lossless, memory_suffices
from stead.graph.order import (
    bottom_levels,
    breadth_first_order,
    depth_first_order,
    downward_ranks,
    is_topological,
    level_order,
    levels,
    priority_order,
    random_order,
    upward_ranks,
)

__all__ = [
    "VIEW_KINDS",
    "Folded",
    "Grouping",
    "bottom_levels",
    "breadth_first_order",
    "cluster",
    "cluster_problem",
    "colocate",
    "colocate_by_names",
    "colocate_constraints",
    "colocate_single_consumers",
    "colocate_units",
    "depth_first_order",
    "downward_ranks",
    "fold",
    "is_topological",
    "is_view",
    "level_order",
    "levels",
    "limited",
    "lossless",
    "memory_suffices",
    "priority_order",
    "random_order",
    "single_groups",
    "unit_groups",
    "upward_ranks",
]
