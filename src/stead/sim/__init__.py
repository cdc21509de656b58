"""The simulator: what a placement does, how long it takes, and whether it fits."""

from stead.sim.bounds import Bound, best_bound, lower_bounds
from stead.sim.moved import Move, order_after, score_moves
from stead.sim.operator_times import StartTimes
from stead.sim.simulator import screen_many, simulate, simulate_many
from stead.sim.trace import (
    Block,
    Curve,
    Cyclic,
    Memory,
    Peak,
    Scores,
    Shortfall,
    SplitCurve,
    Status,
    Step,
    Timeline,
    TornApart,
    Trace,
    Transfers,
    Unreachable,
    Unsupported,
    Violation,
)

__all__ = [
    "Block",
    "Bound",
    "Curve",
    "Cyclic",
    "Memory",
    "Move",
    "Peak",
    "Scores",
    "Shortfall",
    "SplitCurve",
    "StartTimes",
    "Status",
    "Step",
    "Timeline",
    "TornApart",
    "Trace",
    "Transfers",
    "Unreachable",
    "Unsupported",
    "Violation",
    "best_bound",
    "lower_bounds",
    "order_after",
    "score_moves",
    "screen_many",
    "simulate",
    "simulate_many",
]
