"""A model as loaders of layers see it: something before, numbered layers one after another, something after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.graph import FORWARD, Graph
from stead.graph.paths import block_paths, forward_anchors, is_expert, module_paths
from stead.printing.wording import quoted
from stead.problem import Constraints
from stead.report.layers import ranges
from stead.solvers.whole_blocks import is_language_model

BEFORE = -1  # the position of embeddings and of everything else that layers wait for


@dataclass(frozen=True, slots=True, eq=False)
class LayerStack:
    """The repeated blocks of a model in order, and where in that order every operator belongs.

    Backward operators and updates belong where their forward operator does. What lies outside of all blocks is before
    them (embeddings, masks, towers for pictures), after them (norm, head, loss), or with the block that it follows.
    """

    graph: Graph
    names: tuple[str, ...]  # of the blocks: "model.layers.0", ...
    position: NDArray[np.int32]  # [operator]; BEFORE, 0 .. layers-1, or layers for what comes after
    expert: NDArray[np.bool_]  # [operator]; one of many of which only a few work on a token

    def __len__(self) -> int:
        return len(self.names)

    @property
    def after(self) -> int:
        """The position of head and loss."""
        return len(self.names)

    @property
    def container(self) -> str:
        """The module that holds the blocks."""
        return self.names[0].rpartition(".")[0]

    def called(self, positions: Sequence[int]) -> str:
        """Rising positions in words.

        >>> from stead.testing import tiny_layers
        >>> stack_of(tiny_layers().graph).called([-1, 0, 1, 3, 4])
        'embedding, layers 0-1,3, head'
        """
        inside = [p for p in positions if 0 <= p < len(self)]
        words = ["embedding"] if BEFORE in positions else []
        if inside:
            words.append(f"layer{'' if len(inside) == 1 else 's'} {ranges(inside, len(inside))}")
        return ", ".join([*words, *(["head"] if self.after in positions else [])])

    def together(self, items: NDArray[np.int32], *, count: int) -> Constraints:
        """Constraints that keep all operators of each of `count` items on one device; -1 is in none."""
        names = _Names(self.graph)
        groups = [names.of(np.flatnonzero(items == item)) for item in range(count)]
        return Constraints(colocate=tuple(group for group in groups if group))


def stack_of(graph: Graph) -> LayerStack:
    """The layers of a model; BadInput says why it has none that can be put one after another."""
    name = graph.name or "the model"
    if not is_language_model(graph):
        raise BadInput(f"{name} is no language model with repeated blocks, which is what this target loads")
    modules = module_paths(graph)
    blocks = block_paths(modules)
    containers = [block.rpartition(".")[0] for block in blocks]
    forward = (graph.phases == FORWARD).tolist()
    main = next(containers[v] for v in range(len(graph) - 1, -1, -1) if blocks[v] and forward[v])
    numbers = sorted({int(block.rpartition(".")[2]) for block in blocks if block and _parent(block) == main})
    names = tuple(f"{main}.{number}" if main else str(number) for number in numbers)
    number = {block: n for n, block in enumerate(names)}
    inside = np.array([number.get(block, -1) for block in blocks], dtype=np.int32)
    others = [bool(block) and block not in number for block in blocks]
    _refuse_two_stacks(graph, inside.tolist(), others, name)
    positions = _positions(graph, inside.tolist(), forward, len(names))
    experts = [block != "" and is_expert(path.removeprefix(block)) for block, path in zip(blocks, modules, strict=True)]
    return LayerStack(graph, names, positions, np.array(experts, dtype=bool))


def why_no_stack(graph: Graph) -> str | None:
    """Why a model has no layers that can be put one after another; None if it has."""
    try:
        stack_of(graph)
    except BadInput as error:
        return str(error)
    return None


def _parent(block: str) -> str:
    return block.rpartition(".")[0]


def _producers(graph: Graph) -> Callable[[int], list[int]]:
    first, read, producer = graph.read_first.tolist(), graph.read_tensors.tolist(), graph.tensor_producer.tolist()
    return lambda v: [producer[t] for t in read[first[v] : first[v + 1]]]


def _refuse_two_stacks(graph: Graph, inside: list[int], others: list[bool], name: str) -> None:
    """Refuse models in which later layers read what another stack of blocks gives: encoder and decoder."""
    if not any(others):
        return
    producers, from_others = _producers(graph), list(others)
    for v in range(len(graph)):
        given = [u for u in producers(v) if inside[u] < 0 and from_others[u]]
        if given and inside[v] < 0:
            from_others[v] = True
        elif given and inside[v] > 0:
            raise BadInput(
                f"{name} has two stacks of layers: {quoted(graph.operator_names[v])} reads what "
                f"{quoted(graph.operator_names[given[0]])} gives; this target takes one stack"
            )


def _positions(graph: Graph, inside: list[int], forward: list[bool], layers: int) -> NDArray[np.int32]:
    """The position of every operator."""
    producers = _producers(graph)
    last = list(inside)  # the latest layer that an operator waits for
    leads = [position >= 0 for position in inside]  # to a layer
    for v in range(len(graph)):
        if inside[v] < 0:
            last[v] = max((last[u] for u in producers(v)), default=BEFORE)
    for v in range(len(graph) - 1, -1, -1):
        if forward[v] and leads[v]:
            for u in producers(v):
                leads[u] = True
    positions = [
        inside[v] if inside[v] >= 0 else last[v] if leads[v] or last[v] < 0 else layers for v in range(len(graph))
    ]
    anchors = forward_anchors(graph).tolist()
    return np.array([positions[v if forward[v] else anchors[v]] for v in range(len(graph))], dtype=np.int32)


class _Names:
    """Which operators a name of a module or an operator stands for, as constraints understand it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.meant: dict[str, set[int]] = {name: {v} for v, name in enumerate(graph.operator_names)}
        for v, module in enumerate(graph.modules):
            parts = module.split(".") if module else []
            for depth in range(1, len(parts) + 1):
                self.meant.setdefault(".".join(parts[:depth]), set()).add(v)

    def of(self, members: NDArray[np.int64]) -> tuple[str, ...]:
        """Names that mean exactly some operators, as few as can be."""
        wanted = set(members.tolist())
        found: list[str] = []
        covered: set[int] = set()
        for v in sorted(wanted):
            if v in covered:
                continue
            parts = self.graph.modules[v].split(".") if self.graph.modules[v] else []
            prefixes = (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
            plain = (prefix for prefix in prefixes if escape(prefix) == prefix)
            whole = next((prefix for prefix in plain if self.meant[prefix] <= wanted), None)
            found.append(self._alone(v, wanted) if whole is None else whole)
            covered |= {v} if whole is None else self.meant[whole]
        return tuple(found)

    def _alone(self, v: int, wanted: set[int]) -> str:
        """A pattern for one operator, also where a module is called the same: brackets stand for no module."""
        name = self.graph.operator_names[v]
        return escape(name) if self.meant[name] <= wanted or escape(name) != name else f"[{name[0]}]{name[1:]}"
