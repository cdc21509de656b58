"""What a capture does not see: weights that take no part in a step, and experts that a token leaves asleep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.graph import UPDATE, Graph
from stead.graph.arrays import graph_from_arrays, with_amounts
from stead.graph.unique_names import Names

IDLE = "Idle"  # kind of operators that hold weights and do nothing

_EXPERTS = "experts"  # component of the path of a module


@dataclass(frozen=True, slots=True)
class Mixture:
    """How many experts a token uses, and how many tokens there are."""

    used: int
    tokens: int
    counts: Mapping[str, int]  # experts that share a weight, by its name


def with_idle_weights(graph: Graph, idle: Mapping[str, int], renamed: Mapping[str, str]) -> Graph:
    """The graph with weights that nobody uses: an operator for each of their modules holds them, at no cost.

    `idle` are bytes by name; `renamed` are names that weights of the graph get.
    """
    modules: dict[str, list[str]] = {}
    for name in idle:
        modules.setdefault(name.rpartition(".")[0], []).append(name)
    free = Names(graph.operator_names)
    names = [free.unique(module or "idle") for module in modules]
    count, more = len(graph), len(modules)
    held = [len(own) for own in modules.values()]
    return graph_from_arrays(
        graph.name,
        operator_names=[*graph.operator_names, *names],
        kinds=[*graph.kinds, *[IDLE] * more],
        modules=[*graph.modules, *modules],
        dtypes=[*graph.dtypes, *["fp32"] * more],
        phases=_longer(graph.phases, more, 0),
        flops=_longer(graph.flops, more, 0),
        moved_bytes=_longer(graph.moved_bytes, more, 0),
        twins=_longer(graph.twins, more, -1),
        colocation=_longer(graph.colocation, more, -1),
        colocation_names=graph.colocation_names,
        tensor_producer=graph.tensor_producer,
        tensor_bytes=graph.tensor_bytes,
        tensor_kept=graph.tensor_kept,
        tensor_names=graph.tensor_names,
        tensor_shapes=graph.tensor_shapes,
        tensor_dtypes=graph.tensor_dtypes,
        reads=(graph.tensor_of_read, graph.readers),
        weight_names=[*(renamed.get(name, name) for name in graph.weight_names), *_flat(modules)],
        weight_bytes=np.array([*graph.weight_bytes.tolist(), *(idle[name] for name in _flat(modules))], dtype=np.int64),
        weight_uses=(
            np.concatenate([graph.weight_of_use, len(graph.weight_names) + np.arange(len(idle))]),
            np.concatenate([graph.weight_users, np.repeat(np.arange(count, count + more), held)]),
        ),
        folded=graph.folded,
        kernels=None if graph.kernels is None else graph.kernels.longer(more),
    )  # fmt: skip


def with_sleeping_experts(graph: Graph, mixture: Mixture) -> Graph:
    """The graph in which products with the weights of experts read those that are expected to work.

    Products over all experts, of which most are thrown away, count for the rows that are used.
    """
    flops, moved = graph.flops.copy(), graph.moved_bytes.copy()
    for w, name in enumerate(graph.weight_names):
        count = mixture.counts.get(name, 0)
        if not 0 < mixture.used < count:
            continue
        asleep = (1.0 - mixture.used / count) ** mixture.tokens
        size = float(graph.weight_bytes[w])
        for v in graph.weight_users[graph.weight_user_first[w] : graph.weight_user_first[w + 1]].tolist():
            if graph.phases[v] == UPDATE or moved[v] < size:
                continue
            if "bmm" in graph.kinds[v]:
                share = mixture.used / count
                flops[v] *= share
                moved[v] = size + (moved[v] - size) * share
            moved[v] -= asleep * size
    return with_amounts(graph, flops, moved)


def is_of_experts(parameter: str) -> bool:
    """Whether a parameter belongs to a module called experts.

    >>> is_of_experts("layers.0.mlp.experts.down_proj"), is_of_experts("layers.0.mlp.shared_experts.down_proj.weight")
    (True, False)
    """
    return _EXPERTS in parameter.split(".")[:-1]


def _flat(modules: Mapping[str, Sequence[str]]) -> list[str]:
    return [name for own in modules.values() for name in own]


def _longer(array: NDArray[np.generic], more: int, value: int) -> NDArray[np.generic]:
    return np.concatenate([array, np.full(more, value, dtype=array.dtype)])
