"""Graphs straight from arrays, checked: the way for graphs of a million operators and for graphs made of graphs.

`GraphBuilder` needs some ten microseconds per operator; this takes about one, and the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.errors import BadGraph
from stead.graph.graph import MAX_BYTES, MAX_OPERATORS, PHASES, Graph
from stead.graph.kernels import Kernels, check_kernels, starts_of

_PARTS = tuple(signature(Graph).parameters)


def graph_from_arrays(
    name: str,
    *,
    operator_names: Sequence[str],
    tensor_producer: ArrayLike,
    tensor_bytes: ArrayLike,
    reads: tuple[ArrayLike, ArrayLike],
    kinds: Sequence[str] | str = "",
    modules: Sequence[str] | str = "",
    dtypes: Sequence[str] | str = "fp32",
    phases: ArrayLike | None = None,
    flops: ArrayLike | None = None,
    moved_bytes: ArrayLike | None = None,
    twins: ArrayLike | None = None,
    colocation: ArrayLike | None = None,
    colocation_names: Sequence[str] = (),
    tensor_kept: ArrayLike | None = None,
    tensor_names: Sequence[str] | None = None,
    tensor_shapes: Sequence[tuple[int, ...]] | None = None,
    tensor_dtypes: Sequence[str] | None = None,
    weight_names: Sequence[str] = (),
    weight_bytes: ArrayLike = (),
    weight_uses: tuple[ArrayLike, ArrayLike] = ((), ()),
    folded: Mapping[str, str] | None = None,
    kernels: Kernels | None = None,
) -> Graph:
    """The graph that these arrays describe; operators in topological order, tensors sorted by producer.

    `reads` are (tensor, reader) of every read, `weight_uses` (weight, user) of every use, both in any order and
    with repetitions; `colocation` is the index of a name or -1. A text in place of a sequence holds for all.

    >>> graph = graph_from_arrays("pair", operator_names=["a", "b"], tensor_producer=[0], tensor_bytes=[4],
    ...                           reads=([0], [1]))
    >>> graph.tensor(0).readers
    (1,)
    """
    count = len(operator_names)
    names = tuple(operator_names)
    _check_names(names)
    producer = _indices("tensor producers", tensor_producer, None, count)
    tensors = len(producer)
    if (np.diff(producer) < 0).any():
        raise BadGraph("tensors must be sorted by their producer")
    sizes = _whole_bytes("tensor", tensor_bytes, tensors)
    reader_first, readers = _reads(names, producer, reads)
    weights = _weights(count, weight_names, weight_bytes, weight_uses)
    group, group_names = _colocation(count, colocation, colocation_names)
    work, traffic = _amounts("flops", flops, names), _amounts("bytes moved", moved_bytes, names)
    if kernels is not None:
        check_kernels(kernels, names, work, traffic)
    return Graph(
        name=name,
        operator_names=names,
        kinds=_texts("kinds", kinds, count),
        modules=_texts("modules", modules, count),
        dtypes=_texts("dtypes", dtypes, count),
        phases=_given("phases", phases, count, 0, len(PHASES), np.uint8),
        flops=work,
        moved_bytes=traffic,
        twins=_given("twins", twins, count, -1, count, np.int32),
        colocation=group,
        colocation_names=group_names,
        tensor_names=_tensor_names(names, producer, tensor_names),
        tensor_first=_first(producer, count),
        tensor_bytes=sizes,
        tensor_kept=_given("kept", tensor_kept, tensors, 0, 2, np.uint8),
        reader_first=reader_first,
        readers=readers,
        **weights,
        tensor_shapes=None if tensor_shapes is None else _each("tensor shapes", tensor_shapes, tensors),
        tensor_dtypes=None if tensor_dtypes is None else _each("tensor dtypes", tensor_dtypes, tensors),
        folded=folded,
        kernels=kernels,
    )


def with_colocation(graph: Graph, colocation: ArrayLike, names: Sequence[str]) -> Graph:
    """The same graph with other colocation groups: the index of a name per operator, or -1."""
    group, group_names = _colocation(len(graph), colocation, names)
    parts = {part: getattr(graph, part) for part in _PARTS}
    return Graph(**{**parts, "colocation": group, "colocation_names": group_names})


def with_amounts(graph: Graph, flops: ArrayLike, moved_bytes: ArrayLike) -> Graph:
    """The same graph with other arithmetic and traffic, each operator one kernel."""
    parts = {part: getattr(graph, part) for part in _PARTS}
    work = _amounts("flops", flops, graph.operator_names)
    traffic = _amounts("bytes moved", moved_bytes, graph.operator_names)
    return Graph(**{**parts, "flops": work, "moved_bytes": traffic, "kernels": None})


def distinct_pairs(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every pair of non-negative numbers once, sorted by the first, then by the second.

    By one sort of 64-bit keys: `np.unique` of numpy 2 is fifty times slower at millions of pairs.
    """
    if not first.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    width = int(second.max()) + 1
    keys = first.astype(np.int64) * width + second
    keys.sort()
    kept = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=kept[1:])
    pairs = np.divmod(keys[kept], width)
    return pairs[0], pairs[1]


def _check_names(names: tuple[str, ...]) -> None:
    if len(names) > MAX_OPERATORS:
        raise BadGraph(f"a graph has at most {MAX_OPERATORS} operators; coarsen it first")
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadGraph(f"two operators are called {twice!r}; operator names must differ")
    if "" in names:
        raise BadGraph(f"operator number {names.index('') + 1} has an empty name; give it one")


def _reads(
    names: tuple[str, ...], producer: NDArray[np.int64], reads: tuple[ArrayLike, ArrayLike]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Readers of every tensor, increasing, each once, as (first, readers)."""
    count = len(names)
    tensor = _indices("tensors read", reads[0], None, len(producer))
    reader = _indices("readers", reads[1], len(tensor), count)
    early = np.flatnonzero(reader <= producer[tensor])
    if early.size:
        v, u = names[reader[early[0]]], names[producer[tensor[early[0]]]]
        raise BadGraph(f"operator {v!r} reads from {u!r}, which does not come before it; sort topologically")
    tensor, reader = distinct_pairs(tensor, reader)
    return _first(tensor, len(producer)), reader.astype(np.int32)


def _weights(
    count: int, names: Sequence[str], sizes: ArrayLike, uses: tuple[ArrayLike, ArrayLike]
) -> dict[str, Any]:
    """Weights as a Graph holds them, sorted by users, then by name."""
    total = _whole_bytes("weight", sizes, len(names))
    weight = _indices("weights used", uses[0], None, len(names))
    user = _indices("users of weights", uses[1], len(weight), count)
    weight, user = distinct_pairs(weight, user)
    first = _first(weight, len(names))
    unused = np.flatnonzero(np.diff(first) == 0)
    if unused.size:
        raise BadGraph(f"weight {names[unused[0]]!r} has no user; leave it out")
    users = user.tolist()
    rows = [users[a:b] for a, b in pairwise(first.tolist())]
    order = sorted(range(len(rows)), key=lambda w: (rows[w], names[w]))
    kept_rows = [rows[w] for w in order]
    flat = np.fromiter((v for row in kept_rows for v in row), dtype=np.int32, count=len(user))
    return {
        "weight_names": tuple(names[w] for w in order),
        "weight_bytes": total[order] if order else total,
        "weight_user_first": _first(
            np.repeat(np.arange(len(rows)), [len(row) for row in kept_rows]), len(rows)
        ),
        "weight_users": flat,
    }


def _colocation(
    count: int, given: ArrayLike | None, names: Sequence[str]
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Groups of at least two operators, in order of appearance."""
    group = _given("colocation", given, count, -1, len(names), np.int32)
    members = np.bincount(group[group >= 0], minlength=len(names))
    big, first = np.unique(group, return_index=True)
    used = [g for _, g in sorted(zip(first.tolist(), big.tolist(), strict=True)) if g >= 0 and members[g] > 1]
    number = np.full(len(names) + 1, -1, dtype=np.int32)  # the last entry stands for "none"
    number[used] = np.arange(len(used), dtype=np.int32)
    return number[group], tuple(names[g] for g in used)


def _tensor_names(
    names: tuple[str, ...], producer: NDArray[np.int64], given: Sequence[str] | None
) -> tuple[str, ...]:
    """The given names, or those of the producers with the number of the output from the second on."""
    if given is not None:
        return _each("tensor names", given, len(producer))
    output = np.arange(len(producer)) - np.searchsorted(producer, producer)
    pairs = zip(producer.tolist(), output.tolist(), strict=True)
    return tuple(f"{names[v]}:{number}" if number else names[v] for v, number in pairs)


def _first(sorted_items: NDArray[Any], count: int) -> NDArray[np.int32]:
    """Where the items of each owner begin."""
    return starts_of(np.bincount(sorted_items, minlength=count))


def _texts(what: str, given: Sequence[str] | str, count: int) -> tuple[str, ...]:
    return (given,) * count if isinstance(given, str) else _each(what, given, count)


def _each(what: str, given: Sequence[Any], count: int) -> tuple[Any, ...]:
    if len(given) != count:
        raise BadGraph(f"{what}: {count} are needed, {len(given)} are given")
    return tuple(given)


def _indices(what: str, given: ArrayLike, count: int | None, limit: int) -> NDArray[np.int64]:
    array = np.asarray(given)
    if not array.size:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise BadGraph(f"{what} must be a row of indices, got {array.dtype} of shape {array.shape}")
    if count is not None and len(array) != count:
        raise BadGraph(f"{what}: {count} are needed, {len(array)} are given")
    if array.size and not (array.min() >= 0 and array.max() < limit):
        raise BadGraph(f"{what} must lie in 0..{limit - 1}, got {array.min()}..{array.max()}")
    return array.astype(np.int64)


def _given(
    what: str, given: ArrayLike | None, count: int, low: int, high: int, dtype: type[Any]
) -> NDArray[Any]:
    """A row of small numbers with low <= number < high; the lowest one where none is given."""
    if given is None:
        return np.full(count, low, dtype=dtype)
    array = np.asarray(given)
    if array.dtype.kind not in "biu" or array.shape != (count,):
        raise BadGraph(f"{what} must be {count} whole numbers, got {array.dtype} of shape {array.shape}")
    if array.size and not (low <= array.min() and array.max() < high):
        raise BadGraph(f"{what} must lie in {low}..{high - 1}, got {array.min()}..{array.max()}")
    return array.astype(dtype)


def _amounts(what: str, given: ArrayLike | None, names: tuple[str, ...]) -> NDArray[np.float64]:
    array = np.zeros(len(names)) if given is None else np.asarray(given)
    if array.dtype.kind not in "fiu" or array.shape != (len(names),):
        raise BadGraph(f"{what} must be {len(names)} numbers, got {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if wrong.size:
        name, number = names[wrong[0]], array[wrong[0]]
        raise BadGraph(f"operator {name!r}: {what} must be a finite number of at least 0, got {number}")
    return array.astype(np.float64)


def _whole_bytes(what: str, given: ArrayLike, count: int) -> NDArray[np.int64]:
    array = np.asarray(given)
    if not array.size:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise BadGraph(
            f"{what} bytes must be {count} whole numbers, got {array.dtype} of shape {array.shape}"
        )
    if array.size and not (array.min() >= 0 and array.max() <= MAX_BYTES):
        raise BadGraph(f"{what} bytes must lie in 0..2^62, got {array.min()}..{array.max()}")
    return array.astype(np.int64)
