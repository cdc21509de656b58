"""Tiny problems one can draw, for tests of stead and of plug-ins.

Two equal devices, tensors of 4 bytes, links of 2 bytes per second and 0.5 s latency each way: a crossing takes 2.5 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Source
from stead.graph import GraphBuilder, OperatorId, TensorId
from stead.problem import Objective, Problem


def tiny_cluster(devices: int = 2, *, memory_bytes: int = 2**40) -> Cluster:
    """Equal devices d0, d1, ... with the slow links of the tiny problems."""
    names = [f"d{d}" for d in range(devices)]
    return Cluster(
        tuple(Device(name, memory_bytes=memory_bytes) for name in names),
        link_all(names, bytes_per_second=2.0, latency_seconds=0.5),
    )


def tiny_problem(
    seconds: Mapping[str, float],
    reads: Mapping[str, Sequence[str]],
    *,
    objective: Objective | None = None,
    devices: int = 2,
) -> Problem:
    """Operators with the same seconds on every device; every operator writes one tensor of 4 bytes."""
    build = GraphBuilder("tiny")
    outputs: dict[str, TensorId] = {}
    added: dict[str, OperatorId] = {}
    for name in seconds:
        added[name] = build.operator(name, reads=[outputs[source] for source in reads.get(name, ())])
        outputs[name] = build.tensor(added[name], size_bytes=4)
    graph, cluster = build.build(), tiny_cluster(devices)
    table = np.repeat(np.array(list(seconds.values()))[:, None], devices, axis=1)
    sources = np.full(table.shape, Source.IMPORTED, dtype=np.uint8)
    return Problem(graph, cluster, Costs(graph, cluster, table, sources=sources), objective=objective)


def chain3(objective: Objective | None = None) -> Problem:
    """a(1) -> b(2) -> c(1): one device is best, 4 s."""
    return tiny_problem({"a": 1, "b": 2, "c": 1}, {"b": ["a"], "c": ["b"]}, objective=objective)


def diamond(objective: Objective | None = None) -> Problem:
    """a(1) -> b(2), c(3) -> d(1), where b and c read one tensor: one device is best, 7 s."""
    reads = {"b": ["a"], "c": ["a"], "d": ["b", "c"]}
    return tiny_problem({"a": 1, "b": 2, "c": 3, "d": 1}, reads, objective=objective)


def two_towers(objective: Objective | None = None) -> Problem:
    """l1 -> l2 and r1 -> r2 (2 each), then head(1): a tower per device is best, 7.5 s."""
    seconds = {"l1": 2, "r1": 2, "l2": 2, "r2": 2, "head": 1}
    return tiny_problem(seconds, {"l2": ["l1"], "r2": ["r1"], "head": ["l2", "r2"]}, objective=objective)


def tiny_layers(
    layers: int = 4, devices: int = 2, *, experts: bool = False, objective: Objective | None = None
) -> Problem:
    """A language model one can draw: embedding, layers of attention and mlp, norm and head; every operator takes 1 s.

    With `experts` every layer has experts, too, of which only a few work on a token.
    """
    parts = ["model.embed_tokens Embedding"]
    for n in range(layers):
        parts += [f"model.layers.{n}.self_attn Attention", f"model.layers.{n}.mlp Linear"]
        parts += [f"model.layers.{n}.mlp.experts Experts"] if experts else []
    parts += ["model.norm Norm", "lm_head Linear"]
    build = GraphBuilder("tiny layers")
    last: list[TensorId] = []
    for part in parts:
        name, kind = part.split()
        added = build.operator(name, kind=kind, module=name, reads=last)
        build.weight(f"{name}.weight", size_bytes=8, users=[added])
        last = [build.tensor(added, size_bytes=4)]
    graph, cluster = build.build(), tiny_cluster(devices)
    seconds = np.ones((len(graph), devices))
    sources = np.full(seconds.shape, Source.IMPORTED, dtype=np.uint8)
    return Problem(graph, cluster, Costs(graph, cluster, seconds, sources=sources), objective=objective)
