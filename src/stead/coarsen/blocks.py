"""Layers: the repeated blocks of a model, which rules of thumb count, cut and never split."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from stead.graph.paths import block_paths, forward_anchors, module_paths, spread_labels
from stead.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """The layers of a graph in order of execution, and the layer each operator goes with."""

    names: tuple[str, ...]
    of_operator: NDArray[np.int32]  # [operator]

    def __len__(self) -> int:
        return len(self.names)


_known: WeakKeyDictionary[Problem, Layers] = WeakKeyDictionary()


def layers_of(problem: Problem) -> Layers:
    """The repeated blocks found in module paths; without such paths every unit is a layer. Found once per problem.

    Operators outside all blocks go with the block they read from (heads), or else with the first one that
    reads from them (embeddings, masks). Backward operators go with the forward operator they belong to.
    """
    if problem not in _known:
        _known[problem] = found = _layers_of(problem)
        found.of_operator.setflags(write=False)
    return _known[problem]


def _layers_of(problem: Problem) -> Layers:
    graph = problem.graph
    blocks = block_paths(module_paths(graph))
    names = tuple(dict.fromkeys(block for block in blocks if block))
    if not names:
        return _units_as_layers(problem)
    number = {name: i for i, name in enumerate(names)}
    labels = np.array([number.get(block, -1) for block in blocks], dtype=np.int32)
    return Layers(names, spread_labels(graph, labels))


def _units_as_layers(problem: Problem) -> Layers:
    anchors = forward_anchors(problem.graph)
    first = np.unique(problem.units, return_index=True)[1]
    followed = problem.units[anchors[first]][problem.units]  # the unit whose forward operator leads this one
    leaders, of_operator = np.unique(followed, return_inverse=True)
    names = tuple(problem.graph.operator_names[v] for v in first[leaders])
    return Layers(names, of_operator.astype(np.int32).reshape(len(problem.graph)))
