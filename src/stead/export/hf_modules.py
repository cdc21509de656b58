"""The modules that a `device_map` of Hugging Face names, and which operators stay together because of it.

A map puts modules on devices, and what a module computes itself runs where its inputs are. So a block is one piece, a
weight has one place whoever uses it, and what the model does between its modules goes with what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stead.graph import BUFFER, Graph
from stead.graph.components import connected
from stead.graph.paths import layer_names, module_paths


@dataclass(frozen=True, eq=False)
class Modules:
    """The modules of a graph as a map sees them."""

    graph: Graph

    @cached_property
    def keys(self) -> list[str]:  # [operator]
        """The module that a map names for each operator; empty for what the model does between its modules."""
        return layer_names(module_paths(self.graph))

    @cached_property
    def groups(self) -> NDArray[np.int32]:  # [operator]
        """Operators with the same number must share a device."""
        pairs = [*self._of_one_module(), *self._of_one_weight(), *self._that_follow()]
        a, b = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
        lowest = connected(len(self.graph), a, b)
        return np.unique(lowest, return_inverse=True)[1].astype(np.int32).reshape(-1)

    def _of_one_module(self) -> Iterable[tuple[int, int]]:
        first: dict[str, int] = {}
        for v, key in enumerate(self.keys):
            if key:
                yield first.setdefault(key, v), v

    def _of_one_weight(self) -> Iterable[tuple[int, int]]:
        graph = self.graph
        for weight in range(len(graph.weight_names)):
            users = graph.weight_users[graph.weight_user_first[weight] : graph.weight_user_first[weight + 1]].tolist()
            yield from ((users[0], user) for user in users[1:])

    def _that_follow(self) -> Iterable[tuple[int, int]]:
        """What runs between modules goes with what it read last; tables that are added up are added in one place.

        What reads nothing, such as positions, goes with the table that reads it first.
        """
        graph = self.graph
        first: dict[int, int] = {}
        for t, v in zip(graph.tensor_of_read.tolist(), graph.readers.tolist(), strict=True):
            maker = int(graph.tensor_producer[t])
            first[maker] = min(v, first.get(maker, v))
        for v, key in enumerate(self.keys):
            reads = graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]]
            producers = graph.tensor_producer[reads].tolist()
            if producers and (not key or (graph.kinds[v] == "Embedding" and graph.modules[v] == key)):
                yield max(producers), v
            if not key:
                tables = [u for u in producers or [first.get(v, v)] if "embed" in self.keys[u].rpartition(".")[2]]
                yield from ((table, v) for table in tables if len(tables) > 1 or not producers)

    @cached_property
    def named(self) -> dict[str, int]:
        """Every module that a map names, with an operator that tells its device; buffers and owners of weights too."""
        found: dict[str, int] = {}
        for v, key in enumerate(self.keys):
            if key:
                found.setdefault(key, v)
        for module, operator in self.graph.folded.items():
            if not _covered(module, found):
                found[module] = self.graph.index(operator)
        for weight, first in zip(self.parameters, self.first_users, strict=True):
            owner = weight.rpartition(".")[0] or weight
            if not _covered(owner, found):
                found[owner] = first
        return found

    @cached_property
    def _listed(self) -> NDArray[np.int64]:
        graph = self.graph
        is_buffer = np.array([name.endswith(BUFFER) for name in graph.weight_names], dtype=bool)
        return np.flatnonzero((graph.is_parameter | is_buffer) & (np.diff(graph.weight_user_first) > 0))

    @property
    def parameters(self) -> list[str]:
        """Names of parameters and buffers that somebody uses: a map has to cover both."""
        return [self.graph.weight_names[weight].removesuffix(BUFFER) for weight in self._listed]

    @property
    def first_users(self) -> list[int]:
        """The first operator that uses each of `parameters`."""
        users: list[int] = self.graph.weight_users[self.graph.weight_user_first[self._listed]].tolist()
        return users


def is_block(key: str) -> bool:
    """Whether a module is one of a list."""
    return key.rpartition(".")[2].isdigit()


def _covered(path: str, named: Mapping[str, int]) -> bool:
    """Whether a module or one around it is named."""
    parts = path.split(".")
    return any(".".join(parts[: i + 1]) in named for i in range(len(parts)))


def place_in_map(device_map: Mapping[str, object], name: str) -> object:
    """Where transformers puts a parameter: keys are patterns from its beginning, those with most dots first.

    >>> place_in_map({"layers.1": 0, "layers.10": 1}, "layers.10.weight")
    1
    """
    keys = sorted(device_map, key=lambda key: (key.count("."), len(key)), reverse=True)
    found = re.compile("|".join(f"({key})" for key in keys)).match(name)
    return device_map.get(found.group()) if found else None
