"""The question (graph, cluster, costs, objective, constraints) and one answer to it."""

from stead.problem.constraints import Constraints, matching
from stead.problem.objectives import (
    OBJECTIVES,
    POLICIES,
    Execution,
    Fifo,
    Latency,
    Load,
    Objective,
    Order,
    Ordering,
    Pieces,
    PlacetoDispatch,
    Policy,
    Priority,
    ProgramOrder,
    Schedule,
    Throughput,
    objective_from,
)
from stead.problem.placement import Placement
from stead.problem.problem import Problem

__all__ = [
    "OBJECTIVES",
    "POLICIES",
    "Constraints",
    "Execution",
    "Fifo",
    "Latency",
    "Load",
    "Objective",
    "Order",
    "Ordering",
    "Pieces",
    "Placement",
    "PlacetoDispatch",
    "Policy",
    "Priority",
    "Problem",
    "ProgramOrder",
    "Schedule",
    "Throughput",
    "matching",
    "objective_from",
]
