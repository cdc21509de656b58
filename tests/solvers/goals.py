"""Which solver takes which goal. Tests are made for such pairs alone: a skip then means that something is absent."""

from __future__ import annotations

from functools import cache

from stead.placing.loading import load
from stead.problem import Latency, Objective, Problem, Throughput
from stead.solvers import solver
from stead.solvers.registry import REGISTRY
from stead.workloads import synthetic

NAMES = [name for name, one in REGISTRY.items() if one.kind != "learned"]
PARTITIONERS = ("metis", "mtkahypar")  # they take every goal, and refuse only where their package is absent
OBJECTIVES: dict[str, Objective] = {
    "latency": Latency(),
    "sequential": Latency(execution="sequential"),
    "offload": Latency(execution="offload"),
    "throughput": Throughput(),
    "gpipe": Throughput(microbatches=3),
    "1f1b": Throughput(microbatches=3, schedule="1f1b"),
}


@cache
def small_problem(objective: str) -> Problem:
    """A small model on unequal devices, one of them a CPU."""
    graph = synthetic("transformer", operators=40, seed=1)
    return load(graph, "3090,3060,cpu").problem(OBJECTIVES[objective])


@cache
def refusal(name: str, objective: str) -> str | None:
    """Why a solver does not take the small problem, whatever is installed; None if it does."""
    return None if name in PARTITIONERS else solver(name).unsupported(small_problem(objective))


PAIRS = [(name, objective) for objective in OBJECTIVES for name in NAMES if refusal(name, objective) is None]
