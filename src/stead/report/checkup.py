"""A look at a model without placing it: how large it is, what each device could run, what greedy support would do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from stead.cluster import Cluster
from stead.cluster.classes import device_type
from stead.costs import Costs
from stead.graph import BUFFER, PHASES, Graph
from stead.report.facts import transfer_count


@dataclass(frozen=True, slots=True)
class Support:
    """What one device can do with a model."""

    device: str
    supported: int
    total_seconds: float  # of all operators it can run, one after another
    fits: bool
    unsupported_kinds: tuple[tuple[str, int], ...]  # most frequent first


@dataclass(frozen=True, slots=True)
class Checkup:
    """What is worth knowing before placing."""

    name: str
    operators: int
    tensors: int
    edges: int
    depth: int  # operators on the longest path
    flops: float
    moved_bytes: float
    weight_bytes: int  # all that stays for the whole run: the following four together
    parameter_bytes: int
    kv_bytes: int  # of caches of keys and values
    state_bytes: int  # of gradients and moments
    buffer_bytes: int  # that a model holds beside its parameters
    tensor_bytes: int
    by_phase: tuple[tuple[str, int], ...]
    kinds: tuple[tuple[str, int], ...]  # most frequent first
    unpriced: int  # operators without FLOPs, bytes or given seconds
    colocation_groups: int
    supports: tuple[Support, ...]
    greedy_changes: int | None  # tensors that greedy support would send between devices


def checkup(graph: Graph, cluster: Cluster | None = None, costs: Costs | None = None) -> Checkup:
    """Count and measure; with devices also what each could run."""
    priced = (graph.flops > 0) | (graph.moved_bytes > 0)
    if costs is not None:
        priced |= (np.where(np.isfinite(costs.seconds), costs.seconds, 0.0) > 0).any(axis=1)
    phases = Counter(graph.phases.tolist())
    supports: tuple[Support, ...] = ()
    changes = None
    if cluster is not None and costs is not None:
        supports = tuple(_support(graph, cluster, costs, d) for d in range(len(cluster)))
        first = np.isfinite(costs.seconds).argmax(axis=1)
        changes = transfer_count(graph, first.astype(device_type(len(cluster))), len(cluster))
    return Checkup(
        name=graph.name,
        operators=len(graph),
        tensors=graph.tensor_count,
        edges=len(graph.edges),
        depth=_depth(graph),
        flops=float(graph.flops.sum()),
        moved_bytes=float(graph.moved_bytes.sum()),
        **_weights(graph),
        tensor_bytes=int(graph.tensor_bytes.sum()),
        by_phase=tuple((PHASES[phase], count) for phase, count in sorted(phases.items())),
        kinds=tuple(Counter(kind or "(no kind)" for kind in graph.kinds).most_common(12)),
        unpriced=int((~priced).sum()),
        colocation_groups=len(graph.colocation_names),
        supports=supports,
        greedy_changes=changes,
    )


def _weights(graph: Graph) -> dict[str, int]:
    """Bytes of weights by what they are."""
    total, caches = int(graph.weight_bytes.sum()), graph.kv_cache_bytes
    parameters = int(graph.weight_bytes[graph.is_parameter].sum())
    is_buffer = np.array([name.endswith(BUFFER) for name in graph.weight_names], dtype=bool)
    buffers = int(graph.weight_bytes[is_buffer].sum())
    return {
        "weight_bytes": total,
        "parameter_bytes": parameters,
        "kv_bytes": caches,
        "state_bytes": total - parameters - caches - buffers,
        "buffer_bytes": buffers,
    }


def _support(graph: Graph, cluster: Cluster, costs: Costs, d: int) -> Support:
    runs = np.isfinite(costs.seconds[:, d])
    missing = Counter(graph.kinds[v] or "(no kind)" for v in np.flatnonzero(~runs))
    return Support(
        device=cluster.names[d],
        supported=int(runs.sum()),
        total_seconds=float(costs.seconds[runs, d].sum()),
        fits=int(graph.weight_bytes.sum()) <= cluster.devices[d].usable_bytes,
        unsupported_kinds=tuple(missing.most_common(5)),
    )


def _depth(graph: Graph) -> int:
    """Operators on the longest path, by one pass in topological order."""
    level = [1] * len(graph)
    for producer, reader in graph.edges.tolist():  # sorted by producer, so its level is final
        if level[producer] >= level[reader]:
            level[reader] = level[producer] + 1
    return max(level, default=0)
