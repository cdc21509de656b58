"""What a solver has found after so many seconds, on instances given as text or by name: medians over seeds.

    python experiments/benchmarks/anytime.py --seconds 1,10 --seeds 3 DIR/*.txt.gz "zoo:lstm-grid @ 2x 3090"

An instance is a text file (below), a graph of DOPPLER, or `zoo:MODEL @ DEVICES`. Values are milliseconds and, after a
slash, the value over the lower bound; `--of NAME=MS` prints values of instances whose name contains NAME as a share of
MS instead. `--relabel N` answers every question N times with operators in another order and prints how far answers lie
apart. On a busy machine the clock is best replaced by one of CPU time (`LD_PRELOAD`), so that seconds are those of one
process.

A text file (times in ms): `n m D mode sumload` with mode 0; D lines `memory kind` (0 accelerator, 1 CPU); three D x D
matrices: latency, ms per byte, number of the link; n lines `memory group output-bytes is-backward ms_0 .. ms_D-1`
(-1: cannot run there; one group shares a device); m lines `from to`. Memory is what stays: the sum over the operators
on a device; outputs are not counted.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import stead
from stead.bench.others import doppler_problem
from stead.cluster import Cluster, Device, Link
from stead.costs import Costs, Source
from stead.graph import GraphBuilder, TensorId
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.solvers import Budget, solver

MS = 1e-3
OUTPUTS_COUNT_LESS = 2**12  # times than what stays, so that outputs take no memory to speak of


def problem_of(name: str, relabel: int | None) -> Problem:
    """The question that a name means; with `relabel` its operators are drawn in another order (text files only)."""
    if "@" in name:
        model, devices = (part.strip() for part in name.split("@"))
        return load(model, devices).problem(Latency())
    path = Path(name)
    if path.name.endswith(".gz"):
        return _from_text(gzip.open(path, "rt").read(), path.name.split(".")[0], relabel)
    problem = doppler_problem(path)
    return problem if relabel is None else relabelled(problem, relabel)


def _from_text(text: str, name: str, relabel: int | None) -> Problem:
    lines = iter(text.splitlines())
    operators, edges, count, *_ = (int(word) for word in next(lines).split())
    caps = [next(lines).split() for _ in range(count)]
    latency, per_byte, _ids = (np.array([next(lines).split() for _ in range(count)], dtype=float) for _ in range(3))
    rows = [next(lines).split() for _ in range(operators)]
    ends = np.array([next(lines).split() for _ in range(edges)], dtype=np.int64)
    order = _drawn_order(operators, ends, relabel)
    reads: list[list[int]] = [[] for _ in range(operators)]
    for u, v in ends.tolist():
        reads[v].append(u)
    build = GraphBuilder(name)
    tensors: dict[int, TensorId] = {}
    for v in order:
        memory, group, sent, backward = rows[v][:4]
        operator = build.operator(
            f"o{v}", reads=[tensors[u] for u in reads[v]], phase="backward" if backward == "1" else "forward",
            colocate=f"g{group}",
        )  # fmt: skip
        tensors[v] = build.tensor(operator, size_bytes=round(float(sent)))
        if float(memory) > 0:
            build.weight(f"w{v}", size_bytes=round(float(memory)) * OUTPUTS_COUNT_LESS, users=[operator])
    graph = build.build(refresh=False)
    sizes = int(graph.tensor_bytes.sum())
    names = [f"d{i}" for i in range(count)]
    devices = tuple(
        Device(one, kind="cpu" if kind == "1" else "gpu", memory_bytes=int(float(cap)) * OUTPUTS_COUNT_LESS + sizes)
        for one, (cap, kind) in zip(names, caps, strict=True)
    )
    links = tuple(
        Link(names[a], names[b], 1 / (per_byte[a, b] * MS), latency[a, b] * MS)
        for a in range(count) for b in range(count) if a != b
    )  # fmt: skip
    seconds = np.array([rows[int(one[1:])][4:] for one in graph.operator_names], dtype=float)
    table = np.where(seconds < 0, np.inf, seconds * MS)
    cluster = Cluster(devices, links)
    sources = np.full(table.shape, Source.IMPORTED, dtype=np.uint8)
    return Problem(graph, cluster, Costs(graph, cluster, table, sources=sources), objective=Latency())


def relabelled(problem: Problem, draw: int) -> Problem:
    """The same question with operators in another topological order; one without memory, units and phases."""
    graph = problem.graph
    tensor = graph.tensor_of_read
    ends = np.stack([graph.tensor_producer[tensor], graph.readers], axis=1)
    build = GraphBuilder(graph.name)
    tensors: dict[int, TensorId] = {}
    reads: list[list[int]] = [[] for _ in range(len(graph))]
    for t, v in zip(tensor.tolist(), graph.readers.tolist(), strict=True):
        reads[v].append(t)
    order = _drawn_order(len(graph), ends, draw)
    made = []
    for v in order:
        operator = build.operator(f"o{v}", reads=[tensors[t] for t in reads[v]])
        for t in np.flatnonzero(graph.tensor_producer == v).tolist():
            tensors[t] = build.tensor(operator, size_bytes=int(graph.tensor_bytes[t]))
            made.append(t)
    again = build.build()
    given = problem.costs
    costs = Costs(
        again, problem.cluster, given.seconds[order], sources=given.sources[order],
        tensor_seconds=None if given.tensor_seconds is None else given.tensor_seconds[made],
    )  # fmt: skip
    return Problem(again, problem.cluster, costs, objective=problem.objective)


def _drawn_order(count: int, ends: np.ndarray, draw: int | None) -> list[int]:
    """A topological order: the given one, or one that is drawn."""
    if draw is None:
        return list(range(count))
    rng, missing = np.random.default_rng(draw), np.bincount(ends[:, 1], minlength=count)
    readers: list[list[int]] = [[] for _ in range(count)]
    for u, v in ends.tolist():
        readers[u].append(v)
    ready, order = np.flatnonzero(missing == 0).tolist(), []
    while ready:
        v = ready.pop(int(rng.integers(len(ready))))
        order.append(v)
        for reader in readers[v]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order


def main() -> None:
    """Print one line per instance and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="+")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--seconds", default="1")
    parser.add_argument("--evaluations", type=int, help="a budget of evaluations instead of seconds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--of", action="append", default=[], metavar="NAME=MS")
    parser.add_argument("--relabel", type=int, default=0, metavar="N")
    parser.add_argument("--phases", action="store_true")
    options = parser.parse_args()
    references = {name: float(value) for name, value in (pair.split("=") for pair in options.of)}
    budgets = [Budget(evaluations=options.evaluations)] if options.evaluations else [
        Budget(seconds=float(text)) for text in options.seconds.split(",")
    ]  # fmt: skip
    for name in options.instances:
        problems = [problem_of(name, draw) for draw in (range(options.relabel) if options.relabel else [None])]
        unit = next((value for part, value in references.items() if part in name), None)
        for budget in budgets:
            values, spent = [], []
            for problem in problems:
                for seed in range(options.first_seed, options.first_seed + options.seeds):
                    began = time.process_time()
                    found = solver(options.solver).solve(problem, budget, seed)
                    spent.append(time.process_time() - began)
                    values.append(found.objective_seconds / MS)
                    if options.phases:
                        _print_phases(found)
            middle = statistics.median(values)
            scale = unit if unit else found.bound_seconds / MS
            listed = " ".join(f"{value / scale:.4f}" for value in values)
            apart = max(values) / min(values) - 1
            size = f"{budget.seconds:g} s" if budget.seconds else f"{budget.evaluations} evaluations"
            print(
                f"{name.split('/')[-1]:40s} {size:>8s} median {middle:9.4f} ms {middle / scale:.4f} "
                f"({listed}) apart {apart:.2%} cpu {statistics.median(spent):.2f}", flush=True,
            )  # fmt: skip


def _print_phases(found: stead.Solution) -> None:
    for phase in found.phases:
        if phase.runs:
            gained = phase.gained_seconds / MS
            print(
                f"    {phase.name:22s} runs {phase.runs:3d}  {phase.seconds:7.3f} s  {phase.evaluations:9d} evaluations"
                f"  gained {gained:9.4f} ms  to {phase.after_seconds / MS:9.4f}", file=sys.stderr,
            )  # fmt: skip


if __name__ == "__main__":
    main()
