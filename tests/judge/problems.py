"""Problems for the judge: tiny, hostile, drawn from a seed.

Few different values, so that ties are common; memory that is just enough for one run of one placement, or one byte
less; pins, forbids, colocation, backward and update operators, weights with several users, updated weights on their
way to readers elsewhere, tensors of no bytes, kept tensors, missing links, host routing, every kind of contention,
senders that carry tensors themselves.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from brute import every_placement, every_run
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, Link
from stead.costs import Costs
from stead.graph import PHASES, Graph, GraphBuilder, TensorId
from stead.problem import (
    Constraints,
    Fifo,
    Latency,
    Objective,
    Priority,
    Problem,
    ProgramOrder,
    Throughput,
)
from stead.sim import simulate_many

SECONDS = (0.0, 1e-6, 1e-6, 2e-6, 3e-6, 5e-6, 7e-6, 1.23456789012345e-6, 0.5e-12)
BYTES = (0, 1, 1000, 1000, 4000, 5000, 12345)
LATENCIES = (0.0, 0.0, 1e-6, 2.5e-6)
GAPS = (0.0, 0.0, 0.0, 1e-6)
RATES = (1e9, 1e9, 7.6e9, 3e8, float("inf"))
CONTENTIONS = ("none", "link", "pair", "sender", "receiver", "bus")
ENOUGH = 2**40
MIXTURE = ("embed", "layers.0.self_attn", "layers.0.experts.0", "layers.0.experts.1", "layers.1.self_attn")
KINDS = {"embed": "Embedding", "self_attn": "Attention"}

FAMILIES: dict[str, tuple[Objective, ...]] = {
    "dataflow": (
        Latency(),
        Latency(),
        Latency(policy=Priority()),
        Latency(policy=ProgramOrder()),
    ),
    "policy": tuple(
        Latency(policy=policy, order="policy") for policy in (Fifo(), Priority(), ProgramOrder())
    ),
    "sequential": (Latency("sequential"),),
    "offload": (Latency("offload"), Latency("offload", pieces="published")),
    "loads": (
        *(Throughput(load) for load in ("sum", "overlap", "duplex", "fwbw")),
        Throughput("sum", samples_per_update=4),
    ),
    "microbatches": tuple(
        Throughput(microbatches=count, schedule=schedule)
        for count in (1, 2, 3)
        for schedule in ("gpipe", "1f1b")
    ),
}
WEIGHTS = (6, 2, 2, 2, 4, 1)  # dataflow latency has most to go wrong


def drawn(seed: int, *, blocks: bool = False) -> Problem:
    """The problem of a seed; Infeasible if its pins and forbids leave nothing.

    With `blocks` it says of its operators in which blocks of a model they lie.
    """
    draw = random.Random(seed)
    family = draw.choices(list(FAMILIES), WEIGHTS)[0]
    objective = draw.choice(FAMILIES[family])
    devices = draw.choice((1, 2, 2, 2, 3, 3))
    operators = max(draw.randint(1, 6), draw.randint(1, 6))
    training = family != "offload" and draw.random() < 0.35
    modules = [""] * operators
    if blocks:
        modules = _modules(draw, max(4, operators))
        operators = len(modules)
    graph = _graph(draw, modules, training=training)
    cluster = _carried(seed, _cluster(draw, devices, host=True if family == "offload" else None))
    costs = _costs(draw, graph, cluster)
    return Problem(
        graph, cluster, costs, objective=objective, constraints=_constraints(draw, operators, devices)
    )


def branching(seed: int) -> Problem:
    """Branches that fork and join, one module after another: larger than what has all its orders tried.

    Infeasible if its pins and forbids leave nothing.
    """
    draw = random.Random(seed)
    devices = draw.choice((2, 2, 3))
    build, count = GraphBuilder("branches"), 0

    def add(reads: Sequence[TensorId]) -> TensorId:
        nonlocal count
        made = build.tensor(build.operator(f"v{count}", reads=reads), size_bytes=draw.choice(BYTES))
        count += 1
        return made

    last = add(())
    while count < (5 if devices == 3 else 7):
        ends = [add((last,)) for _ in range(draw.choice((1, 2, 2, 3)))]
        ends = [add((end,)) if draw.random() < 0.3 else end for end in ends]
        if draw.random() < 0.3:
            add((last,))  # nobody waits for it
        if draw.random() < 0.2:
            ends.append(last)
        last = add(ends)
    graph, cluster = build.build(), _carried(seed, _cluster(draw, devices, host=None))
    costs, constraints = _costs(draw, graph, cluster), _constraints(draw, count, devices)
    return Problem(graph, cluster, costs, objective=Latency(), constraints=constraints)


def at_the_byte(problem: Problem, seed: int, *, most_runs: int) -> Problem:
    """The same problem with just the memory that one run of one placement takes, now and then a byte less.

    Where orders are free, runs are preferred whose memory makes an order of their own better than the policy.
    """
    draw = random.Random(seed)
    rows = every_placement(problem, most_runs)
    if draw.random() < 0.25 or not len(problem.graph):
        return problem
    runs = policy = _Scored(problem, rows)
    if isinstance(problem.objective, Latency) and problem.objective.takes_orders:
        owner, orders = every_run(problem, rows, most_runs)
        if len(owner):
            runs = _Scored(problem, rows[owner], ProgramOrder(orders, sends=True))
    best = np.argsort(runs.seconds, kind="stable")
    near = best[: 60 if draw.random() < 0.7 else len(best)].tolist()
    chosen = draw.sample(near, min(len(near), 40))
    telling = [i for i in chosen if runs.least(runs.peaks[i]) < policy.least(runs.peaks[i])]
    limits = runs.peaks[draw.choice(telling if telling and draw.random() < 0.7 else chosen)]
    short = draw.random() < 0.15
    for device, peak in zip(problem.cluster, limits.tolist(), strict=True):
        if peak > 0 and draw.random() < 0.95:
            problem = problem.with_memory(device.name, max(1, peak - short))
    return problem


class _Scored:
    """Seconds and peaks of runs."""

    def __init__(self, problem: Problem, rows: NDArray[np.uint8], order: ProgramOrder | None = None) -> None:
        scores = simulate_many(problem, rows, policy=order, memory="peak", threads=1)
        self.seconds = scores.seconds  # [run]
        self.peaks = scores.peak_bytes  # [run, device]

    def least(self, limits: NDArray[np.int64]) -> float:  # [device]
        """The best that fits."""
        return float(self.seconds[(self.peaks <= limits).all(axis=1)].min(initial=np.inf))


def ample(problem: Problem) -> bool:
    """Whether everything fits everywhere."""
    return all(device.usable_bytes == ENOUGH for device in problem.cluster)


def _modules(draw: random.Random, count: int) -> list[str]:  # [operator]
    """Where operators lie: a few blocks, experts in some, what stands around them, now and then nowhere."""
    if draw.random() < 0.4:
        more = [draw.choice(("layers.0.mlp", "layers.1.mlp", "head", "layers.0.experts.1")) for _ in range(count)]
        return sorted([*MIXTURE, *more][: max(count, len(MIXTURE))])
    around = [name for name, share in (("embed", 0.8), ("head", 0.4)) if draw.random() < share]
    blocks, parts = draw.choice((2, 2, 3)), draw.choice((("mlp",), ("mlp", "experts.0", "experts.1", "experts.1")))
    found: list[str] = []
    for n in sorted(draw.randrange(blocks) for _ in range(count - len(around))):
        first = not found or not found[-1].startswith(f"layers.{n}.")
        part = "self_attn" if first and draw.random() < 0.8 else draw.choice(parts)
        found.append(f"layers.{n}.{part}")
    found = [name for name in around if name == "embed"] + found + [name for name in around if name == "head"]
    if draw.random() < 0.15:
        draw.shuffle(found)
    if draw.random() < 0.2:
        found[draw.randrange(1, count)] = ""
    return found


def _graph(draw: random.Random, modules: Sequence[str], *, training: bool) -> Graph:
    build, count = GraphBuilder("drawn"), len(modules)
    phases = sorted(draw.choice((0, 0, 1, 2)) for _ in range(count)) if training else [0] * count
    if training:
        phases[0] = 0
    shape, groups = draw.random(), draw.choice(("", "", "x", "xy"))
    tensors, operators = [], []
    for v in range(count):
        if shape < 0.25:
            reads = tensors[-2:][: draw.choice((1, 1, 2))]
        else:
            reads = draw.sample(tensors, min(len(tensors), draw.randint(0, 2)))
        group = draw.choice(groups) if groups and draw.random() < 0.35 else ""
        forward = [u for u in range(v) if phases[u] == 0]
        twin = f"v{draw.choice(forward)}" if phases[v] and draw.random() < 0.6 else ""
        after = [draw.choice(operators)] if operators and draw.random() < 0.15 else []
        phase, module = PHASES[phases[v]], modules[v]
        kind = KINDS.get(module.rsplit(".", 1)[-1], "MatMul") if module else ""
        operators.append(
            build.operator(
                f"v{v}", kind=kind, module=module, reads=reads, after=after, phase=phase, colocate=group, twin=twin
            )
        )
        for _ in range(draw.choice((1, 1, 1, 0, 2))):
            tensors.append(
                build.tensor(operators[v], size_bytes=draw.choice(BYTES), kept=draw.random() < 0.15)
            )
    for w in range(draw.randint(0, 3)):
        users = draw.sample(operators, min(count, draw.choice((1, 1, 2, 3))))
        build.weight(f"w{w}", size_bytes=draw.choice(BYTES), users=users)
    if training and count > 1 and draw.random() < 0.7:
        last = operators[-1] if phases[-1] == 2 else draw.choice(operators)
        readers = draw.sample(operators[:-1], min(count - 1, draw.choice((1, 1, 2))))
        build.weight("trained", size_bytes=draw.choice(BYTES), users=[*readers, last])
    return build.build()


def _cluster(draw: random.Random, count: int, *, host: bool | None) -> Cluster:
    has_host = draw.random() < 0.4 if host is None else host
    hosts = draw.randint(1, count) if has_host else 0
    devices = tuple(
        Device(f"d{d}", "cpu" if d < hosts else "gpu", memory_bytes=ENOUGH, bytes_per_second=1e9)
        for d in range(count)
    )
    equal, complete = draw.random() < 0.35, draw.random() < 0.75
    same = draw.choice(RATES), draw.choice(LATENCIES), draw.choice(GAPS)
    links = []
    for s in range(count):
        for d in range(count):
            if s != d and (complete or equal or draw.random() < 0.6):
                way = same if equal else (draw.choice(RATES), draw.choice(LATENCIES), draw.choice(GAPS))
                links.append(Link(f"d{s}", f"d{d}", *way))
    routing = "host" if has_host and draw.random() < 0.5 else "direct"
    return Cluster(devices, tuple(links), contention=draw.choice(CONTENTIONS), routing=routing)


def _carried(seed: int, cluster: Cluster) -> Cluster:
    """The same cluster, of some seeds with links that their senders carry: all, or some."""
    draw = random.Random(f"carried {seed}")
    share = draw.choice((0.0, 0.0, 0.5, 1.0))
    links = [
        replace(link, gap_seconds=0.0, carried_by="sender") if draw.random() < share else link
        for link in cluster.links
    ]
    return replace(cluster, links=tuple(links))


def _costs(draw: random.Random, graph: Graph, cluster: Cluster) -> Costs:
    shape = len(graph), len(cluster)
    seconds, workspace = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    equal = draw.random() < 0.4
    for v in range(len(graph)):
        seconds[v] = draw.choice(SECONDS) if equal else [draw.choice(SECONDS) for _ in cluster]
        workspace[v] = draw.choice((0, 0, 300, 5000))
        if draw.random() < 0.1:
            workspace[v, draw.randrange(shape[1])] = 2000
        if draw.random() < 0.1 and shape[1] > 1:
            seconds[v, draw.randrange(shape[1])] = np.inf
    tensor_seconds = (
        np.array([draw.choice(SECONDS) for _ in range(graph.tensor_count)]) if draw.random() < 0.2 else None
    )
    return Costs(graph, cluster, seconds, workspace_bytes=workspace, tensor_seconds=tensor_seconds)


def _constraints(draw: random.Random, operators: int, devices: int) -> Constraints:
    if draw.random() < 0.65:
        return Constraints()

    def some(counts: Sequence[int]) -> tuple[tuple[str, str], ...]:
        return tuple(
            (f"v{draw.randrange(operators)}", f"d{draw.randrange(devices)}")
            for _ in range(draw.choice(counts))
        )

    pairs = ((f"v{draw.randrange(operators)}", f"v{draw.randrange(operators)}"),)
    return Constraints(some((0, 1)), some((0, 1, 2)), pairs if draw.random() < 0.5 and operators > 1 else ())
