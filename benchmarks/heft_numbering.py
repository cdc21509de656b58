"""What HEFT gives on DOPPLER's graphs when nodes are numbered otherwise: the figures of docs/howto/bench.md.

    python benchmarks/heft_numbering.py DIR

DIR holds DOPPLER's text graphs. Equal ranks are served by number, so every topological numbering is another HEFT.
"""

from __future__ import annotations

import heapq
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stead import Budget, Problem, solver
from stead.bench.others import doppler_problem, is_doppler
from stead.costs import Costs
from stead.graph import Graph, GraphBuilder, TensorId

DRAWS = 60


def numbering(graph: Graph, key: Callable[[int], float]) -> list[int]:
    """Operators in topological order, of those that are ready the one with the least key first."""
    waiting = np.bincount(graph.edges[:, 1], minlength=len(graph)).tolist()
    ready = [(key(v), v) for v in range(len(graph)) if not waiting[v]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, u = heapq.heappop(ready)
        order.append(u)
        for v in graph.edges[graph.edges[:, 0] == u, 1].tolist():
            waiting[v] -= 1
            if not waiting[v]:
                heapq.heappush(ready, (key(v), v))
    return order


def renumbered(problem: Problem, order: list[int]) -> Problem:
    """The same problem with operators in another order; every operator has one output."""
    graph, build = problem.graph, GraphBuilder(problem.graph.name)
    made: dict[int, TensorId] = {}
    for v in order:
        reads = [made[u] for u in graph.edges[graph.edges[:, 1] == v, 0].tolist()]
        made[v] = build.tensor(build.operator(graph.operator_names[v], reads=reads), size_bytes=0)
    given = problem.costs
    assert given.tensor_seconds is not None
    times = given.tensor_seconds[[int(graph.tensor_first[v]) for v in order]]
    same = build.build()
    costs = Costs(same, problem.cluster, given.seconds[order], tensor_seconds=times)
    return Problem(same, problem.cluster, costs, objective=problem.objective)


def heft_seconds(problem: Problem) -> float:
    """What HEFT gives."""
    return solver("heft").solve(problem, Budget()).objective_seconds


def row(path: Path) -> str:
    """One line of the table."""
    problem = doppler_problem(path)
    last = heft_seconds(renumbered(problem, numbering(problem.graph, lambda v: -_node(problem, v))))
    drawn = []
    for seed in range(DRAWS):
        keys = [random.Random(1000 * seed + v).random() for v in range(len(problem.graph))]
        drawn.append(heft_seconds(renumbered(problem, numbering(problem.graph, keys.__getitem__))))
    return (
        f"| {path.stem} | {heft_seconds(problem):.4f} | {last:.4f} "
        f"| {min(drawn):.4f} | {statistics.median(drawn):.4f} | {max(drawn):.4f} |"
    )


def _node(problem: Problem, v: int) -> int:
    """The number that an operator has in its file."""
    return int(problem.graph.operator_names[v].split()[-1])


def main() -> None:
    """Print the table."""
    print("| graph | order of the file | last ready first | least | median | most |")
    print("|---|---|---|---|---|---|")
    for path in sorted(Path(sys.argv[1]).glob("*.txt")):
        if is_doppler(path):
            print(row(path))


if __name__ == "__main__":
    main()
