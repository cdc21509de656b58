"""Module paths: which call of which module an operator belongs to, and which repeated block of the model.

`dec.1#7` is the eighth call of module `dec.1`; nested calls are joined by `/`, outermost first, as in
`dec.1#7/dec.1.gates#7`. A plain module path such as `model.layers.3.mlp` is a call whose number is not known.
Blocks such as `model.layers.3` are what rules of thumb count, cut and never split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from stead.graph.graph import FORWARD, Graph

UNKNOWN = -1
BORDERS = "./#"  # between components of a path
EXPERTS = "experts"  # a module of this name may live apart from its block: runtimes can load that


_paths: WeakKeyDictionary[Graph, tuple[str, ...]] = WeakKeyDictionary()


class Call(NamedTuple):
    """One call of a module."""

    module: str
    number: int = UNKNOWN  # counted from 0


def calls(path: str) -> tuple[Call, ...]:
    """The nested calls of a path, outermost first.

    >>> calls("dec.1#7/dec.1.gates#7")
    (Call(module='dec.1', number=7), Call(module='dec.1.gates', number=7))
    >>> calls("model.layers.3")
    (Call(module='model.layers.3', number=-1),)
    """
    return tuple(_call(part) for part in path.split("/") if part)


def module_path(path: str) -> str:
    """The innermost module of a call path as a plain path, whether inner calls repeat the outer path or not.

    >>> module_path("dec.1#7/dec.1.gates#7"), module_path("dec.1#7/gates#7"), module_path("encoder.block.2")
    ('dec.1.gates', 'dec.1.gates', 'encoder.block.2')
    """
    whole = ""
    for call in calls(path):
        if not whole or call.module == whole or call.module.startswith(f"{whole}."):
            whole = call.module
        else:
            whole = f"{whole}.{call.module}"
    return whole


def common_path(paths: Sequence[str]) -> str:
    """The longest path that all paths lie in.

    >>> common_path(["dec.1#7/dec.1.gates#7", "dec.1#7"]), common_path(["model.layers.3.mlp", "model.layers.31"])
    ('dec.1#7', 'model.layers')
    """
    if len(paths) == 1:
        return paths[0]
    ends = min(paths, default=""), max(paths, default="")
    shared = commonprefix(ends)  # noqa: RUF071 (letters of all that lie between them; borders below)
    if {path[len(shared) : len(shared) + 1] for path in paths} <= {"", *BORDERS}:
        return shared
    return shared[: max(0, *(shared.rfind(border) for border in BORDERS))]


@dataclass(frozen=True, slots=True)
class Numbered:
    """A numbered child of a module, such as `layers.3`."""

    container: str
    number: str

    @property
    def path(self) -> str:
        """The module path of the child."""
        return f"{self.container}.{self.number}" if self.container else self.number


def numbered(path: str) -> list[Numbered]:
    """Every numbered component of a module path, outermost first.

    >>> [child.path for child in numbered("model.layers.7.experts.3.up")]
    ['model.layers.7', 'model.layers.7.experts.3']
    """
    parts = path.split(".")
    return [Numbered(".".join(parts[:i]), part) for i, part in enumerate(parts) if is_number(part)]


def is_number(part: str) -> bool:
    """Whether a component of a module path is a number."""
    return part.isascii() and part.isdigit()


class RepeatedBlocks:
    """The numbered children of a model that have siblings.

    >>> blocks = RepeatedBlocks(["embed", "layers.0.mlp.experts.3", "layers.1.mlp", "head.0"])
    >>> [blocks.around(path) for path in ("layers.0.mlp.experts.3", "layers.1", "head.0")]
    ['layers.0', 'layers.1', '']
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._numbers: dict[str, set[str]] = {}
        for path in dict.fromkeys(paths):
            for child in numbered(path):
                self._numbers.setdefault(child.container, set()).add(child.number)

    def around(self, path: str) -> str:
        """The outermost of them that a module path lies in; empty outside of all."""
        children = (child for child in numbered(path) if len(self._numbers.get(child.container, ())) > 1)
        return next((child.path for child in children), "")


def block_paths(modules: Sequence[str]) -> list[str]:
    """The repeated block each module path lies in, such as `model.layers.7`; empty outside of all blocks.

    Where no module has several numbered children (a model of one layer), the outermost numbered child is one.

    >>> block_paths(["model.embed", "model.layers.0.mlp.experts.3", "model.layers.1"])
    ['', 'model.layers.0', 'model.layers.1']
    """
    repeated = RepeatedBlocks(modules)
    found = {
        path: repeated.around(path) or next((child.path for child in numbered(path)), "")
        for path in dict.fromkeys(modules)
    }
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


def module_paths(graph: Graph) -> tuple[str, ...]:  # [operator]
    """The module each operator lies in; one without a module lies where its forward operator does.

    Where modules are given as calls, such as `dec.1#7/gates#7`, it is the module that is called: `dec.1.gates`. Found
    once per graph.
    """
    if graph not in _paths:
        given = [graph.modules[v] or graph.modules[u] for v, u in enumerate(forward_anchors(graph).tolist())]
        plain = {path: module_path(path) for path in dict.fromkeys(given)}
        _paths[graph] = tuple(plain[path] for path in given)
    return _paths[graph]


def forward_anchors(graph: Graph, known: Mapping[int, int] | None = None) -> NDArray[np.int64]:  # [operator]
    """The forward operator each operator belongs to: its twin, else the `known` one, or that of what it reads first."""
    known = known or {}
    anchors = np.arange(len(graph))
    for v in np.flatnonzero(graph.phases != FORWARD).tolist():
        if graph.twins[v] >= 0:
            anchors[v] = anchors[graph.twins[v]]
        elif v in known:
            anchors[v] = known[v]
        elif graph.read_first[v] < graph.read_first[v + 1]:
            anchors[v] = anchors[graph.tensor_producer[graph.read_tensors[graph.read_first[v]]]]
    return anchors


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


def _prefixes(path: str) -> list[str]:
    """A path and everything above it, outermost first."""
    parts = path.split(".") if path else []
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _call(part: str) -> Call:
    module, mark, number = part.rpartition("#")
    if mark and number.isascii() and number.isdigit():
        return Call(module, int(number))
    return Call(part)
