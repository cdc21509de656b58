"""Problems without end: a seed gives a graph of some family, a cluster and its memory, the same everywhere.

Graphs have 15 to 50,000 operators, for inference or training; clusters 2 to 16 equal or unequal devices with fast or
slow links; memory is ample or tight. Families that tests are made of (`HELD_OUT`) never come up unless they are asked
for by name, so that what is learned from the others has seen none of their graphs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from stead.cluster import Cluster, Device, Link
from stead.costs import Roofline
from stead.errors import BadInput, did_you_mean
from stead.graph import Graph
from stead.graph.arrays import with_colocation
from stead.problem import Latency, Problem
from stead.workloads.draft import Draft
from stead.workloads.synthetic import synthetic

LEAST, MOST = 15, 50_000  # operators
AMPLE_BYTES = 2**44
TIGHT_SHARE = 0.25  # of the problems
FREE_SHARE = 0.5  # of the training graphs: backward operators need not be where their forward operators are
KINDS = (  # FLOP/s and bytes/s of the devices that clusters are made of
    (15.7e12, 900e9), (9.3e12, 732e9), (19.5e12, 2039e9), (35.6e12, 936e9), (12.7e12, 360e9), (8.1e12, 320e9),
    (4.1e12, 240e9), (1.2e12, 80e9),
)  # fmt: skip
MICROSECOND = 4.6e6  # FLOPs of the reference device


@dataclass(frozen=True, slots=True)
class Scope:
    """Which problems come up: their families, and how many operators they have."""

    families: tuple[str, ...] = ()  # empty: all that are not held out
    least: int = 40  # operators; even on a logarithmic scale in between
    most: int = 1600

    def __post_init__(self) -> None:
        for name in self.families:
            if name not in FAMILIES:
                raise BadInput(f"no family {name!r}{did_you_mean(name, FAMILIES)}; there are {', '.join(FAMILIES)}")
        if not LEAST <= self.least <= self.most <= MOST:
            raise BadInput(f"problems have {LEAST} to {MOST} operators, got {self.least} to {self.most}")


@dataclass(frozen=True, slots=True)
class Made:
    """A problem and where it comes from."""

    seed: int
    family: str
    problem: Problem


def made_problem(seed: int, scope: Scope | None = None) -> Made:
    """The problem of a seed; other seeds give other problems.

    >>> made = made_problem(3)
    >>> made.family in TRAINED_ON, len(made.problem.cluster) >= 2
    (True, True)
    """
    scope = scope or Scope()
    draw = random.Random(f"stead walk {seed}")  # a text: no two seeds are near each other
    names = scope.families or TRAINED_ON
    while True:
        family = draw.choice(names)
        wanted = round(scope.least * (scope.most / scope.least) ** draw.random())
        graph = FAMILIES[family](draw, wanted)
        if graph.is_training and draw.random() < FREE_SHARE:
            graph = with_colocation(graph, np.full(len(graph), -1), ())
        if not 0.5 * scope.least <= len(graph) <= 1.5 * scope.most:
            continue
        cluster = _cluster(draw, graph)
        return Made(seed, family, Problem(graph, cluster, Roofline().costs(graph, cluster), objective=Latency()))


PRACTICE = 9_000_000  # the first seed of the problems that networks are trained on


def practice_problems(count: int) -> list[Problem]:
    """So many problems of 40 to 500 operators for networks to learn from."""
    scope = Scope(least=40, most=500)
    return [made_problem(PRACTICE + n, scope).problem for n in range(count)]


def _cluster(draw: random.Random, graph: Graph) -> Cluster:
    """Devices of one to three kinds, all joined, in one or two islands."""
    count = draw.choice((2, 2, 3, 4, 4, 4, 5, 6, 8, 8, 12, 16))
    kinds = [draw.choice(KINDS)] if draw.random() < 0.5 else draw.sample(KINDS, draw.choice((2, 2, 3)))
    chosen = [kinds[d % len(kinds)] for d in range(count)] if draw.random() < 0.7 else draw.choices(kinds, k=count)
    chosen.sort(reverse=True)
    efficiency = {"compute": draw.uniform(0.3, 0.8), "memory": draw.uniform(0.5, 0.9)}
    launch, memory = draw.choice((0.0, 2e-6, 5e-6, 5e-6)), _memory_bytes(draw, graph, count)
    devices = tuple(
        Device(
            f"d{d}", memory_bytes=memory, flops_per_second={"fp32": flops}, bytes_per_second=rate,
            launch_seconds=launch, efficiency=efficiency,
        )
        for d, (flops, rate) in enumerate(chosen)
    )  # fmt: skip
    rate, latency = 10 ** draw.uniform(9.5, 11.3), draw.choice((1e-6, 5e-6, 10e-6, 20e-6))
    gap = latency if draw.random() < 0.5 else 0.0
    islands = count >= 4 and draw.random() < 0.2
    between = draw.choice((0.1, 0.25, 0.5)) if islands else 1.0
    links = tuple(
        Link(
            f"d{s}", f"d{d}", rate * (between if (s < count // 2) != (d < count // 2) else 1.0), latency, gap
        )
        for s in range(count)
        for d in range(count)
        if s != d
    )  # fmt: skip
    return Cluster(devices, links, contention=draw.choice(("link", "link", "link", "sender", "pair")))


def _memory_bytes(draw: random.Random, graph: Graph, devices: int) -> int:
    """Of each device: ample, or an even share of all that the graph holds with something to spare."""
    spare = draw.uniform(1.3, 3.0)
    if draw.random() >= TIGHT_SHARE:
        return AMPLE_BYTES
    return int(spare * float(graph.weight_bytes.sum() + graph.tensor_bytes.sum()) / devices) + 2**20


def _of(family: str, **choices: Sequence[Any]) -> Callable[[random.Random, int], Graph]:
    """A family of the zoo with options at random; floats lie between two limits, the rest is one of several."""

    def make(draw: random.Random, operators: int) -> Graph:
        options: dict[str, Any] = {"seed": draw.randrange(10**6), "training": draw.random() < 0.6}
        if family not in UNSIZED:
            options["operators"] = operators
        for name, values in choices.items():
            is_range = isinstance(values[0], float)
            options[name] = draw.uniform(*values) if is_range else draw.choice(values)
        return synthetic(family, **options)

    return make


UNSIZED = ("enas-cnn", "enas-rnn", "branches", "towers", "nmt")


# Families of our own that nothing is trained on: dense algebra, butterflies, wavefronts, and costs with heavy tails.


def _cholesky(draw: random.Random, operators: int) -> Graph:
    """Tiled Cholesky factorisation: few operators at first, many in the middle, a long path through all."""
    tiles = max(2, round((6 * operators) ** (1 / 3)))
    side = draw.choice((128, 256, 512, 1024))
    own = Draft(f"cholesky-{tiles}")
    size, work = 4 * side * side, 2.0 * side**3
    last: dict[tuple[int, int], int] = {
        (i, j): own.add(f"in{i}.{j}", "Input", size_bytes=size) for i in range(tiles) for j in range(i + 1)
    }
    for k in range(tiles):
        last[k, k] = own.add(f"potrf{k}", "MatMul", (last[k, k],), size_bytes=size, flops=work / 6)
        for i in range(k + 1, tiles):
            reads = (last[k, k], last[i, k])
            last[i, k] = own.add(f"trsm{i}.{k}", "MatMul", reads, size_bytes=size, flops=work / 2)
        for i in range(k + 1, tiles):
            for j in range(k + 1, i + 1):
                factors = sorted({last[i, k], last[j, k], last[i, j]})
                last[i, j] = own.add(f"gemm{i}.{j}.{k}", "MatMul", factors, size_bytes=size, flops=work)
    return own.graph()


def _butterfly(draw: random.Random, operators: int) -> Graph:
    """The exchange of a Fourier transform: every column reads all others in the end."""
    stages = max(2, operators.bit_length() - 3)
    width = 2 ** min(stages, max(1, (operators // (stages + 1)).bit_length() - 1))
    size = int(2 ** draw.uniform(12, 23))
    own = Draft(f"butterfly-{width}")
    row = [own.add(f"in{i}", "Input", size_bytes=size) for i in range(width)]
    for stage in range(stages):
        step = 2 ** (stage % (width.bit_length() - 1))
        row = [
            own.add(
                f"s{stage}.{i}", "Add", (row[i], row[i ^ step]), size_bytes=size,
                flops=draw.uniform(5, 60) * MICROSECOND,
            )
            for i in range(width)
        ]  # fmt: skip
    return own.graph()


def _wavefront(draw: random.Random, operators: int) -> Graph:
    """A grid in which every cell reads the one above and the one to its left, some rows dearer than others."""
    rows = max(2, round(operators**0.5 * draw.choice((0.3, 0.6, 1.0))))
    columns = max(2, operators // rows)
    costs = [draw.choice((4, 10, 30, 80)) * MICROSECOND for _ in range(rows)]
    own = Draft(f"wavefront-{rows}x{columns}")
    size = int(2 ** draw.uniform(12, 22))
    above: list[int] = []
    for i in range(rows):
        weight = own.weight(f"w{i}", 2 ** draw.randint(12, 22))
        row: list[int] = []
        for j in range(columns):
            reads = (*above[j : j + 1], *row[-1:])
            kind = "MatMul" if reads else "Input"
            row.append(own.add(f"c{i}.{j}", kind, reads, size_bytes=size, flops=costs[i], weights=(weight,)))
        above = row
    return own.graph(training=draw.random() < 0.5)


def _heavy_tails(draw: random.Random, operators: int) -> Graph:
    """Any earlier operator may be read, near ones more often; a few operators and tensors make up most of all."""
    own = Draft("heavy-tails")
    training = draw.random() < 0.4
    reach = draw.choice((4, 16, 64))
    for v in range(max(4, operators // 2 if training else operators)):
        near = [v - 1 - min(v - 1, int(draw.expovariate(1 / reach))) for _ in range(draw.choice((1, 1, 2, 2, 3, 5)))]
        reads = sorted(set(near)) if v else ()
        own.add(
            f"v{v}", "Compute" if v else "Input", reads, flops=min(200.0, draw.paretovariate(0.9)) * 8 * MICROSECOND,
            size_bytes=int(min(2.0**27, 2**14 * draw.paretovariate(0.7))),
            weights=(own.weight(f"w{v}", int(2**16 * draw.paretovariate(0.9))),) if draw.random() < 0.2 else (),
        )  # fmt: skip
    return own.graph(training=training)


FAMILIES: Mapping[str, Callable[[random.Random, int], Graph]] = MappingProxyType({
    "layered": _of("layered", width=(3, 4, 6, 8, 12, 20, 32), most_reads=(1, 2, 3, 4), free_share=(0.0, 0.4)),
    "series-parallel": _of("series-parallel", parallel_share=(0.2, 0.8), free_share=(0.0, 0.3)),
    "fork-join": _of("fork-join", branches=(2, 3, 4, 6, 8, 12), depth=(1, 2, 3, 4, 6)),
    "lstm-grid": _of(
        "lstm-grid", layers=(1, 2, 3, 4, 6, 8), hidden=(256, 512, 1024, 2048), batch=(16, 32, 64, 128),
        vocabulary=(1000, 10_000, 30_000),
    ),
    "transformer": _of(
        "transformer", width=(256, 512, 1024), heads=(2, 4, 8, 16), batch=(2, 8, 32), length=(64, 128, 512),
        vocabulary=(1000, 32_000),
    ),
    "inception": _of("inception", batch=(4, 16, 32, 64)),
    "enas-cnn": _of("enas-cnn"),
    "enas-rnn": _of("enas-rnn", vocabulary=(1000, 10_000)),
    "branches": _of("branches", blocks=(5, 10, 20), branches=(2, 3, 4, 6), depth=(1, 2, 3, 5)),
    "nmt": _of("nmt", layers=(2, 3, 4)),
    "towers": _of("towers", towers=(2, 3, 4, 6), height=(6, 12, 20)),
    "cholesky": _cholesky,
    "butterfly": _butterfly,
    "wavefront": _wavefront,
    "heavy-tails": _heavy_tails,
})  # fmt: skip
HELD_OUT = ("nmt", "towers", "cholesky", "butterfly", "wavefront", "heavy-tails")
TRAINED_ON = tuple(name for name in FAMILIES if name not in HELD_OUT)
