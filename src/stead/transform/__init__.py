"""Graphs made smaller without losing the way back: groups, folded views, clusters; and orders of operators."""

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
from stead.transform.clustering import cluster, cluster_problem
from stead.transform.colocate import (
    colocate,
    colocate_by_names,
    colocate_constraints,
    colocate_single_consumers,
    colocate_units,
)
from stead.transform.fold import VIEW_KINDS, Folded, fold, is_view
from stead.transform.grouping import Grouping, single_groups, unit_groups
from stead.transform.limits import limited
from stead.transform.lossless import lossless, memory_suffices

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
