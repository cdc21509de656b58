"""The one door to the compiled core: the linter of imports sees Python files only."""

from stead._core import (
    PlacetoGraph,
    Problem,
    Schedule,
    earliest_finish,
    loads_many,
    memory_curve,
    offload_many,
    screen_many,
    sequential_many,
    simulate,
    simulate_many,
    simulate_placeto,
    simulate_placeto_many,
)

__all__ = [
    "PlacetoGraph",
    "Problem",
    "Schedule",
    "earliest_finish",
    "loads_many",
    "memory_curve",
    "offload_many",
    "screen_many",
    "sequential_many",
    "simulate",
    "simulate_many",
    "simulate_placeto",
    "simulate_placeto_many",
]
