"""Layers: the repeated blocks of a model, which rules of thumb count, cut and never split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.graph import PHASES, Graph
from stead.graph.paths import module_path
from stead.problem import Problem

FORWARD = PHASES.index("forward")
EXPERTS = "experts"  # a module of this name may live apart from its block: runtimes can load that


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """The layers of a graph in order of execution, and the layer each operator goes with."""

    names: tuple[str, ...]
    of_operator: NDArray[np.int32]  # [operator]

    def __len__(self) -> int:
        return len(self.names)


def layers_of(problem: Problem) -> Layers:
    """The repeated blocks found in module paths; without such paths every unit is a layer.

    Operators outside all blocks go with the block they read from (heads), or else with the first one that
    reads from them (embeddings, masks). Backward operators go with the forward operator they belong to.
    """
    graph = problem.graph
    blocks = block_paths(module_paths(graph))
    names = tuple(dict.fromkeys(block for block in blocks if block))
    if not names:
        return _units_as_layers(problem)
    number = {name: i for i, name in enumerate(names)}
    labels = np.array([number.get(block, -1) for block in blocks], dtype=np.int32)
    return Layers(names, spread_labels(graph, labels))


def block_paths(modules: Sequence[str]) -> list[str]:
    """The repeated block each module path lies in, such as `model.layers.7`; empty outside of all blocks.

    A block is a numbered child of a module that has several. Where none has (a model of one layer), the
    outermost numbered child is one.

    >>> block_paths(["model.embed", "model.layers.0.mlp.experts.3", "model.layers.1"])
    ['', 'model.layers.0', 'model.layers.1']
    """
    numbers: dict[str, set[str]] = {}
    for path in dict.fromkeys(modules):
        for container, number, _ in _numbered(path):
            numbers.setdefault(container, set()).add(number)
    found: dict[str, str] = {}
    for path in dict.fromkeys(modules):
        candidates = _numbered(path)
        repeated = [block for container, _, block in candidates if len(numbers[container]) > 1]
        found[path] = next(iter(repeated or [block for _, _, block in candidates]), "")
    return [found[path] for path in modules]


def layer_names(modules: Sequence[str]) -> list[str]:
    """The layer each module path counts with: its block, or outside of all blocks its outermost module that holds none.

    >>> layer_names(["model.embed.words", "model.layers.0.mlp", "model.layers.1", "model", "head.dense"])
    ['model.embed', 'model.layers.0', 'model.layers.1', '', 'head']
    """
    blocks = block_paths(modules)
    above = {prefix for block in dict.fromkeys(blocks) for prefix in _prefixes(block)[:-1]}
    found = {
        path: block or next((prefix for prefix in _prefixes(path) if prefix not in above), "")
        for path, block in zip(modules, blocks, strict=True)
    }
    return [found[path] for path in modules]


def is_expert(module: str) -> bool:
    """Whether a module path lies below one called `experts`: of the many only a few work on a token."""
    return EXPERTS in module.split(".")


def module_paths(graph: Graph) -> list[str]:  # [operator]
    """The module each operator lies in; one without a module lies where its forward operator does.

    Where modules are given as calls, such as `dec.1#7/gates#7`, it is the module that is called: `dec.1.gates`.
    """
    given = [graph.modules[v] or graph.modules[u] for v, u in enumerate(forward_anchors(graph).tolist())]
    plain = {path: module_path(path) for path in dict.fromkeys(given)}
    return [plain[path] for path in given]


def forward_anchors(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """The forward operator each operator belongs to: its twin, or the anchor of what it reads first."""
    anchors = np.arange(len(graph))
    for v in np.flatnonzero(graph.phases != FORWARD).tolist():
        if graph.twins[v] >= 0:
            anchors[v] = anchors[graph.twins[v]]
        elif graph.read_first[v] < graph.read_first[v + 1]:
            anchors[v] = anchors[graph.tensor_producer[graph.read_tensors[graph.read_first[v]]]]
    return anchors


def _prefixes(path: str) -> list[str]:
    """A path and everything above it, outermost first."""
    parts = path.split(".") if path else []
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _numbered(path: str) -> list[tuple[str, str, str]]:
    """(container, number, block) of every numbered component of a path, outermost first."""
    parts = path.split(".")
    return [
        (".".join(parts[:i]), part, ".".join(parts[: i + 1]))
        for i, part in enumerate(parts)
        if part.isascii() and part.isdigit()
    ]


def _units_as_layers(problem: Problem) -> Layers:
    anchors = forward_anchors(problem.graph)
    first = np.unique(problem.units, return_index=True)[1]
    followed = problem.units[anchors[first]][problem.units]  # the unit whose forward operator leads this one
    leaders, of_operator = np.unique(followed, return_inverse=True)
    names = tuple(problem.graph.operator_names[v] for v in first[leaders])
    return Layers(names, of_operator.astype(np.int32).reshape(len(problem.graph)))


def spread_labels(graph: Graph, labels: NDArray[np.int32]) -> NDArray[np.int32]:
    """Labels for operators without one (-1): that of their last producer, else of their first reader."""
    known = labels.tolist()
    for v in np.flatnonzero(labels < 0).tolist():
        producers = graph.tensor_producer[graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]]]
        known[v] = next((known[u] for u in sorted(producers.tolist(), reverse=True) if known[u] >= 0), -1)
    for v in range(len(graph) - 1, -1, -1):
        if known[v] < 0:
            first, last = graph.tensor_first[v], graph.tensor_first[v + 1]
            readers = graph.readers[graph.reader_first[first] : graph.reader_first[last]]
            known[v] = next((known[u] for u in sorted(readers.tolist()) if known[u] >= 0), -1)
    return np.maximum(np.array(known, dtype=np.int32), 0)
