"""What a policy sees of a problem: numbers without units, alike for every graph and every cluster.

Notation    N operators, G groups, K devices, V words of the vocabulary, A columns of an adjacency row
    kinds       [N]      word of each operator
    numbers     [G, F]   sums, levels, shapes and positions, each column standardised over the groups
    counts      [G, V]   operators of each kind, divided by the largest count of the row
    adjacency   [G, 2A]  bytes to and from other groups, log1p, each half of a row divided by its sum
    relative    [G, K]   log of seconds on each device against the fastest one; 0 where it cannot run

Everything is finite and within [-10, 10]. Groups are made by segment sums over arrays: no loop over operators.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stead.graph import PHASES, Graph
from stead.graph.order import bottom_levels, levels
from stead.problem import Problem

LIMIT = 10.0
DIMENSIONS = 4  # of the first output
BUCKETS = 8  # that words out of the vocabulary are spread over
WORDS = (
    "input", "output", "constant",
    "matmul", "convolution", "embedding", "attention", "lstm", "gru", "rnn", "add", "sub",
    "mul", "div", "pow", "sqrt", "exp", "log", "neg", "abs", "max", "min", "sum", "mean", "relu", "gelu", "silu",
    "sigmoid", "tanh", "erf", "softmax", "logsoftmax", "dropout", "layernorm", "batchnorm", "rmsnorm", "pool", "pad",
    "concat", "split", "slice", "gather", "scatter", "stack", "reshape", "transpose", "expand", "cast", "copy", "fill",
    "where", "compare", "topk", "cumsum", "loss", "adam", "sgd", "update", "lerp", "select", "resize", "norm", "random",
    "layer", "moe",
)  # fmt: skip
# Parts of names, tried in this order; what is left is looked up as it is.
_STEMS: tuple[tuple[str, str], ...] = (
    ("scaleddotproduct|attention|sdpa", "attention"),
    ("embedding", "embedding"),
    ("conv(?!ert)", "convolution"),
    (
        "^(b|add|badd|fusedmat)?(mm|mv)$|matmul|gemm|^linear|innerproduct|fullyconnected|baddbmm|einsum",
        "matmul",
    ),
    ("logsoftmax", "logsoftmax"),
    ("softmax", "softmax"),
    ("layernorm|groupnorm|instancenorm", "layernorm"),
    ("batchnorm", "batchnorm"),
    ("rmsnorm", "rmsnorm"),
    ("pool", "pool"),
    ("loss|crossentropy", "loss"),
    ("lstm", "lstm"),
    ("gru", "gru"),
    ("adam", "adam"),
    ("sigmoid", "sigmoid"),
    ("tanh", "tanh"),
    ("gelu", "gelu"),
    ("silu|swish", "silu"),
    ("relu|threshold", "relu"),
    ("dropout", "dropout"),
    ("^cat$|concat", "concat"),
    ("^addc|^add", "add"),
    ("^sub|^rsub", "sub"),
    ("^mul", "mul"),
    ("^div|^reciprocal", "div"),
    ("^reducesum|^sum", "sum"),
    ("^reducemean|^mean", "mean"),
    ("reshape|^view|flatten|squeeze|^permute", "reshape"),
    ("transpose|^t$", "transpose"),
    ("slice|narrow", "slice"),
    ("split|chunk|unbind", "split"),
    ("gather|indexselect|^index$", "gather"),
    ("scatter|indexput", "scatter"),
    ("zeros|ones|^full|^fill|arange|constant", "fill"),
    ("^tocopy|^to$|cast|convert", "cast"),
    ("^clone|^copy|contiguous|identity", "copy"),
    ("^eq|^ne$|^gt|^lt|^ge$|^le$|greater|less|equal", "compare"),
    ("rsqrt|sqrt", "sqrt"),
    ("select", "select"),
    ("lerp", "lerp"),
)
_PATTERNS = tuple((re.compile(pattern), word) for pattern, word in _STEMS)
_INDEX = {word: n for n, word in enumerate(WORDS)}
VOCABULARY = len(WORDS) + BUCKETS
FORWARD = PHASES.index("forward")
NUMBERS = 20 + DIMENSIONS  # columns of `numbers`


@lru_cache(maxsize=4096)
def word_of(kind: str) -> int:
    """The word of a kind of operator, whichever framework names it; unknown kinds share a few buckets.

    >>> word_of("aten.addmm") == word_of("Gemm") == word_of("MatMulBackward"), word_of("frobnicate") >= len(WORDS)
    (True, True)
    """
    plain = re.sub(r"[^a-z0-9]", "", kind.lower().rpartition("aten.")[2].rpartition("::")[2])
    plain = re.sub(r"(dense)?backward(data)?$", "", plain)
    if plain in _INDEX:
        return _INDEX[plain]
    for pattern, word in _PATTERNS:
        if pattern.search(plain):
            return _INDEX[word]
    return len(WORDS) + zlib.crc32(plain.encode()) % BUCKETS  # hash() differs between processes


@dataclass(frozen=True, slots=True, eq=False)
class OperatorTable:
    """What does not depend on a grouping, computed once per problem."""

    kinds: NDArray[np.int64]  # [operator]
    sums: NDArray[np.float64]  # [operator, 8]; amounts that add up over a group
    means: NDArray[np.float64]  # [operator, 3]; shares that are averaged over a group
    seconds: NDArray[np.float64]  # [operator, device]; 0 where it cannot run
    dims: NDArray[np.float64]  # [operator, DIMENSIONS]; log1p
    owner: NDArray[np.int64]  # [operator]; the first user of its largest weight; -1 without weights
    edges: NDArray[np.int64]  # [edge, 2]; producer, reader
    edge_bytes: NDArray[np.float64]  # [edge]


@dataclass(frozen=True, slots=True, eq=False)
class GroupFeatures:
    """The arrays of the notation above for one grouping, and what masks need."""

    counts: NDArray[np.float32]
    numbers: NDArray[np.float32]
    adjacency: NDArray[np.float32]
    relative: NDArray[np.float32]
    ties: NDArray[np.float32]  # [group, group]; share of its bytes exchanged with each group before it
    allowed: NDArray[np.bool_]  # [group, device]

    @property
    def stacked(self) -> NDArray[np.float32]:  # [group, F]
        """Numbers and devices side by side."""
        return np.concatenate([self.numbers, self.relative, self.allowed.astype(np.float32)], axis=1)


def width(devices: int) -> int:
    """Columns of `GroupFeatures.stacked`."""
    return NUMBERS + 2 * devices


def operator_table(problem: Problem) -> OperatorTable:
    """Amounts of every operator; bytes are also given as seconds on the mean link against the mean operator."""
    graph = problem.graph
    seconds = np.where(problem.allowed, problem.costs.seconds, 0.0)
    tensor = np.repeat(np.arange(graph.tensor_count), np.diff(graph.reader_first))
    producer, sizes = graph.tensor_producer.astype(np.int64), graph.tensor_bytes.astype(np.float64)
    read = np.bincount(graph.readers, weights=sizes[tensor], minlength=len(graph))
    written = np.bincount(producer, weights=sizes, minlength=len(graph))
    reads = np.bincount(graph.readers, minlength=len(graph)).astype(np.float64)
    readers = np.bincount(producer[tensor], minlength=len(graph)).astype(np.float64)
    mean = seconds.sum(axis=1) / np.maximum(problem.allowed.sum(axis=1), 1)
    typical = max(float(mean.mean()) if len(mean) else 0.0, 1e-12)
    crossing = written / _mean_bandwidth(problem) / typical
    sums = np.stack(
        [graph.flops, read, written, graph.parameter_bytes, mean / typical, crossing, reads, readers], axis=1
    )
    top, bottom = levels(graph).astype(np.float64), bottom_levels(graph).astype(np.float64)
    depth = max(1.0, float((top + bottom).max(initial=1.0)))
    late = (graph.phases != FORWARD).astype(np.float64)
    means = np.stack([top / depth, bottom / depth, late], axis=1)
    edges = np.stack([producer[tensor], graph.readers.astype(np.int64)], axis=1)
    kinds = np.array([word_of(kind) for kind in graph.kinds], dtype=np.int64)
    return OperatorTable(
        kinds=kinds,
        sums=np.clip(np.nan_to_num(sums), 0.0, 1e30),
        means=means,
        seconds=seconds,
        dims=_dims(graph),
        owner=_owners(graph),
        edges=edges,
        edge_bytes=sizes[tensor],
    )


def group_features(
    problem: Problem, table: OperatorTable, group: NDArray[np.int64], *, columns: int
) -> GroupFeatures:
    """Features of groups 0, 1, ... by segment sums; `columns` is the length of an adjacency row, 0 for none."""
    count = int(group.max(initial=-1)) + 1
    order = np.argsort(group, kind="stable")
    begins = np.searchsorted(group[order], np.arange(count))
    sizes = np.bincount(group, minlength=count).astype(np.float64)[:, None]
    sums = np.add.reduceat(table.sums[order], begins, axis=0)
    means = np.add.reduceat(table.means[order], begins, axis=0) / sizes
    seconds = np.add.reduceat(table.seconds[order], begins, axis=0)
    allowed = np.logical_and.reduceat(problem.allowed[order], begins, axis=0)
    words = np.bincount(group * VOCABULARY + table.kinds, minlength=count * VOCABULARY)
    counts = words.reshape(count, VOCABULARY).astype(np.float64)
    position = np.arange(count) / max(1, count - 1)
    first = table.dims[order[begins]]
    row = np.maximum.reduceat(
        table.owner[order], begins
    )  # equal for calls of one module: they share its weights
    place = np.where(row >= 0, row / max(1, len(group) - 1), 0.0)
    holds = row >= 0
    numbers = np.concatenate(
        [
            standardised(np.log1p(sums)),
            means,
            _log_ratio(sizes[:, 0])[:, None],
            position[:, None],
            np.sin(np.pi * position)[:, None],
            np.cos(np.pi * position)[:, None],
            np.sin(8 * np.pi * position)[:, None],
            np.stack(
                [holds, place, holds * np.cos(np.pi * _ranks(row)), holds * np.sin(np.pi * _ranks(row))],
                axis=1,
            ),
            standardised(first),
        ],
        axis=1,
    )
    return GroupFeatures(
        counts=clipped(counts / np.maximum(counts.max(axis=1, keepdims=True), 1.0)),
        numbers=clipped(numbers),
        adjacency=clipped(_adjacency(table, group, count, columns)),
        relative=clipped(log_slowness(seconds, allowed)),
        ties=clipped(_ties(table, group, count if columns else 0)),
        allowed=allowed,
    )


def standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns with mean 0 and deviation 1, or 0 where all rows are alike; within the limit."""
    centred = values - values.mean(axis=0, keepdims=True)
    spread = centred.std(axis=0, keepdims=True)
    return np.clip(np.where(spread > 1e-9, centred / np.maximum(spread, 1e-9), 0.0), -LIMIT, LIMIT)


def _adjacency(
    table: OperatorTable, group: NDArray[np.int64], count: int, columns: int
) -> NDArray[np.float64]:
    """[group, 2 columns]: bytes to, then from each other group; groups beyond the columns share the last one."""
    if not columns:
        return np.zeros((count, 0))
    source, target = group[table.edges[:, 0]], group[table.edges[:, 1]]
    outside = source != target
    source, target, sizes = source[outside], target[outside], table.edge_bytes[outside]
    halves = []
    for own, other in ((source, target), (target, source)):
        column = np.minimum(other, columns - 1)
        total = np.bincount(own * columns + column, weights=sizes, minlength=count * columns)
        logs = np.log1p(total.reshape(count, columns))
        halves.append(logs / np.maximum(logs.sum(axis=1, keepdims=True), 1e-9))
    return np.concatenate(halves, axis=1)


def _ties(
    table: OperatorTable, group: NDArray[np.int64], count: int
) -> NDArray[np.float64]:  # [group, group]
    """Bytes exchanged with earlier groups, each row divided by its sum; what comes later is not placed yet."""
    if not count:
        return np.zeros((0, 0))
    pairs = group[table.edges]
    late, early = pairs.max(axis=1), pairs.min(axis=1)
    other = late != early
    total = np.bincount(
        late[other] * count + early[other], weights=table.edge_bytes[other], minlength=count * count
    ).reshape(count, count)
    return np.asarray(total / np.maximum(total.sum(axis=1, keepdims=True), 1e-9))


def log_slowness(seconds: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """log(seconds / fastest) of every group and device."""
    floor = np.where(allowed, np.maximum(seconds, 1e-12), np.inf)
    fastest = floor.min(axis=1, keepdims=True)
    known = allowed & np.isfinite(fastest)
    ratio = np.divide(floor, fastest, out=np.ones_like(seconds), where=known)
    return np.where(known, np.log(np.maximum(ratio, 1.0)), 0.0)


def _log_ratio(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(values / values.mean()) if values.size else values


def _ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Where each value stands among the different ones that are not negative, from 0 to 1."""
    different = np.unique(values[values >= 0])
    return np.maximum(np.searchsorted(different, values), 0) / max(1, len(different) - 1)


def _owners(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """The first user of the largest weight that each operator uses: the same for all calls of a module."""
    owner = np.full(len(graph), -1, dtype=np.int64)
    sizes = np.diff(graph.weight_user_first)
    used = np.flatnonzero(sizes > 0)
    firsts = np.zeros(len(sizes), dtype=np.int64)
    if used.size:
        firsts[used] = np.minimum.reduceat(graph.weight_users, graph.weight_user_first[used])
    weight = np.repeat(np.arange(len(sizes)), sizes)
    by_size = np.argsort(graph.weight_bytes[weight], kind="stable")  # the largest is written last
    owner[graph.weight_users[by_size]] = firsts[weight[by_size]]
    return owner


def _mean_bandwidth(problem: Problem) -> float:
    rates = problem.routes.bytes_per_second
    between = rates[~np.eye(len(rates), dtype=bool)]
    between = between[np.isfinite(between) & (between > 0)]
    return float(between.mean()) if between.size else 1e9


def _dims(graph: Graph) -> NDArray[np.float64]:  # [operator, DIMENSIONS]
    """log1p of the leading dimensions of the first output; 0 where there are none."""
    found = np.zeros((len(graph), DIMENSIONS))
    for t in graph.tensor_first[:-1][np.diff(graph.tensor_first) > 0].tolist():
        shape = graph.tensor_shapes[t][:DIMENSIONS]
        if shape:
            found[graph.tensor_producer[t], : len(shape)] = shape
    return np.log1p(np.maximum(found, 0.0))


def clipped(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Numbers that a network can take: within -LIMIT .. LIMIT, 0 for what is none."""
    finite = np.nan_to_num(values, nan=0.0, posinf=LIMIT, neginf=-LIMIT)
    return np.clip(finite, -LIMIT, LIMIT).astype(np.float32)
