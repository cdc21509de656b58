"""A graph folded by module: a tree of boxes that a person can read, and the leaf that every operator lies in.

A box is a module; a number belongs to the name before it (`layers.3`), and more than sixteen numbered siblings are one
box until it is opened, as are stretches of very many others. Operators that lie beside the boxes of their module go to
the one that reads what they make, else to the one whose output they read: a box of its own with arrows in both
directions would ruin the picture. Training parts into forward, backward and update first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from stead.graph import PHASES, Graph
from stead.graph.paths import is_number, module_paths

MOST_BOXES = 2_000
MOST_SHOWN, LEAST_SHOWN = 60, 8  # boxes of the first picture; fewer where there are no more
STRETCHES = 30  # of very many modules side by side
MOST_SIBLINGS = 16  # numbered ones that stand side by side
MOST_SINGLE = 60  # operators of a graph without modules that have boxes of their own
TIMES = "\N{MULTIPLICATION SIGN}"
OWN = "·"  # what a module does beside its boxes


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Boxes, parents before their children; box 0 is the whole graph."""

    names: tuple[str, ...]  # [box]; of one level
    parents: NDArray[np.int64]  # [box]; 0 for box 0
    depths: NDArray[np.int64]  # [box]
    is_run: NDArray[np.bool_]  # [box]; siblings as one
    is_open: NDArray[np.bool_]  # [box]; in the first picture
    leaf: NDArray[np.int64]  # [operator]; a box without children

    def path(self, box: int) -> str:
        """The module path of a box."""
        parts: list[str] = []
        while box:
            if not self.is_run[box]:
                parts.append(self.names[box])
            box = int(self.parents[box])
        return ".".join(reversed(parts))

    def ancestors(self) -> NDArray[np.int64]:  # [box, depth]
        """The box above each box at every depth; below itself the box again."""
        table = np.zeros((len(self.names), int(self.depths.max(initial=0)) + 1), dtype=np.int64)
        for box in range(1, len(self.names)):
            table[box] = table[self.parents[box]]
            table[box, self.depths[box] :] = box
        return table

    def operators_in(self, box: int) -> NDArray[np.int64]:
        """Operators of a box, those of boxes within it included."""
        return np.flatnonzero(self.ancestors()[self.leaf, self.depths[box]] == box)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:  # [box, ...]
        """Sums of values [operator, ...] over every box, those within it included."""
        count = len(self.names)
        width = int(np.prod(values.shape[1:], dtype=np.int64))
        columns = values.reshape(len(values), width).T
        sums = [np.bincount(self.leaf, weights=column, minlength=count) for column in columns]
        total: NDArray[np.float64] = np.stack(sums, axis=1).astype(np.float64, copy=False)
        for level in self._levels():
            np.add.at(total, self.parents[level], total[level])
        return total.reshape(count, *values.shape[1:])

    def least(self, values: NDArray[np.float64]) -> NDArray[np.float64]:  # [box]
        """The least of values [operator] in every box; inf in an empty one."""
        found = np.full(len(self.names), np.inf)
        np.minimum.at(found, self.leaf, values)
        for level in self._levels():
            np.minimum.at(found, self.parents[level], found[level])
        return found

    def _levels(self) -> list[NDArray[np.int64]]:
        """Boxes of one depth each, the deepest first, box 0 left out."""
        return [np.flatnonzero(self.depths == depth)[::-1] for depth in range(int(self.depths.max(initial=0)), 0, -1)]


@dataclass(slots=True, eq=False)
class _Node:
    """A box while the tree grows."""

    name: str
    depth: int = 0
    parent: int = 0
    run: bool = False
    children: dict[str, int] = field(default_factory=dict)


class _Tree:
    def __init__(self) -> None:
        self.nodes = [_Node("")]

    def child(self, parent: int, name: str, *, run: bool = False) -> int:
        found = self.nodes[parent].children.get(name)
        if found is None:
            found = len(self.nodes)
            self.nodes[parent].children[name] = found
            self.nodes.append(_Node(name, self.nodes[parent].depth + 1, parent, run))
        return found

    def place(self, parts: tuple[str, ...]) -> int:
        box = 0
        for part in parts:
            box = self.child(box, part)
        return box


def fold(graph: Graph) -> Fold:
    """The boxes of a graph; the same for the same graph."""
    paths = operator_paths(graph)
    tree = _Tree()
    box_of = {path: tree.place(path) for path in dict.fromkeys(paths)}
    leaf = np.array([box_of[path] for path in paths], dtype=np.int64)
    leaf = _settled(graph, tree, leaf)
    for box in np.unique(leaf).tolist():  # nobody read or made what these do: a box of their own
        if tree.nodes[box].children:
            leaf[leaf == box] = tree.child(box, OWN)
    return _numbered(*_pruned(tree, leaf))


def operator_paths(graph: Graph) -> list[tuple[str, ...]]:  # [operator]
    """Where each operator lies, as names from the outermost box to the innermost."""
    modules = module_paths(graph)
    if not any(modules):
        return _stretches(graph)
    phases = graph.is_training
    parts = {module: tuple(_joined(module)) for module in dict.fromkeys(modules)}
    if not phases:
        return [parts[module] for module in modules]
    return [(PHASES[phase], *parts[module]) for phase, module in zip(graph.phases.tolist(), modules, strict=True)]


def _stretches(graph: Graph) -> list[tuple[str, ...]]:
    """Operators of a graph without modules: each alone, or as many stretches of their order as fit a picture."""
    if len(graph) <= MOST_SINGLE:
        return [(name,) for name in graph.operator_names]
    ends = np.linspace(0, len(graph), MOST_SINGLE + 1).astype(int)
    stretch = np.searchsorted(ends, np.arange(len(graph)), side="right") - 1
    return [(f"operators {ends[s]} to {ends[s + 1] - 1}",) for s in stretch.tolist()]


def _joined(module: str) -> list[str]:
    """A module path level by level, numbers with the name before them.

    >>> _joined("model.layers.3.mlp.experts.0.1")
    ['model', 'layers.3', 'mlp', 'experts.0.1']
    """
    levels: list[str] = []
    for part in module.replace("/", ".").split("."):
        if levels and is_number(part):
            levels[-1] += f".{part}"
        elif part:
            levels.append(part)
    return levels


def _settled(graph: Graph, tree: _Tree, leaf: NDArray[np.int64]) -> NDArray[np.int64]:
    """Operators that lie beside boxes, put into the box that reads them, else into the one they read."""
    depth = np.array([node.depth for node in tree.nodes])
    above = np.zeros((len(tree.nodes), int(depth.max()) + 1), dtype=np.int64)
    for box in range(1, len(tree.nodes)):
        above[box] = above[tree.nodes[box].parent]
        above[box, depth[box] :] = box
    inner = np.array([bool(node.children) for node in tree.nodes])
    producer, reader = graph.tensor_producer[graph.tensor_of_read], graph.readers
    for loose, other in ((producer, reader), (reader, producer)):
        open_edges = np.flatnonzero(inner[leaf[loose]])
        while len(open_edges):
            mine, theirs = leaf[loose[open_edges]], leaf[other[open_edges]]
            within = (above[theirs, depth[mine]] == mine) & ~inner[theirs]
            found = open_edges[within]
            if not len(found):
                break
            _, first = np.unique(loose[found], return_index=True)
            leaf[loose[found[first]]] = leaf[other[found[first]]]
            open_edges = open_edges[inner[leaf[loose[open_edges]]]]
    return leaf


def _pruned(tree: _Tree, leaf: NDArray[np.int64]) -> tuple[_Tree, NDArray[np.int64]]:
    """The tree with runs of siblings as boxes, without levels that hold one box, as deep as there is room."""
    kept = _Tree()
    new = {0: 0}
    waiting = [(0, 0)]
    while waiting:  # breadth first: a level is whole or absent, parents come before children
        level: list[tuple[int, int, str, bool]] = []
        for old, parent in waiting:
            level += _children(tree, old, parent)
        runs = len({(parent, run) for _, parent, run, _ in level if run})
        if len(kept.nodes) + len(level) + runs > MOST_BOXES:
            break
        waiting = []
        for old, parent, run, only in level:
            if only:
                new[old] = parent
                waiting.append((old, parent))
                continue
            target = kept.child(parent, run, run=True) if run else parent
            new[old] = kept.child(target, tree.nodes[old].name)
            waiting.append((old, new[old]))
    for old in range(1, len(tree.nodes)):  # below what is kept: the box above
        if old not in new:
            new[old] = new[tree.nodes[old].parent]
    return kept, np.array([new[box] for box in leaf.tolist()], dtype=np.int64)


def _children(tree: _Tree, old: int, parent: int) -> list[tuple[int, int, str, bool]]:
    """(box, parent in the new tree, name of its run, whether it stands for its parent) of the children of a box."""
    boxes = list(tree.nodes[old].children.values())
    if len(boxes) == 1 and (parent or tree.nodes[boxes[0]].children):
        return [(boxes[0], parent, "", True)]
    stems = {box: _stem(tree.nodes[box].name) for box in boxes}
    counts = {stem: len(list(group)) for stem, group in groupby(sorted(stems.values()))}
    runs = {
        box: f"{stem} {TIMES}{counts[stem]}" if stem and counts[stem] > MOST_SIBLINGS else ""
        for box, stem in stems.items()
    }
    lone = [box for box in boxes if not runs[box]]
    if len(lone) > MOST_SHOWN:
        size = -(-len(lone) // STRETCHES)
        for stretch in (lone[i : i + size] for i in range(0, len(lone), size)):
            ends = f"{tree.nodes[stretch[0]].name} … {tree.nodes[stretch[-1]].name}"
            runs |= dict.fromkeys(stretch, ends if len(stretch) > 1 else "")
    return [(box, parent, runs[box], False) for box in boxes]


def _stem(name: str) -> str:
    """What numbered siblings share; empty for others."""
    stem, dot, number = name.rpartition(".")
    return stem if dot and is_number(number) else ""


def _numbered(tree: _Tree, leaf: NDArray[np.int64]) -> Fold:
    """The tree as arrays, level by level."""
    order = sorted(range(len(tree.nodes)), key=lambda box: tree.nodes[box].depth)
    place = {box: i for i, box in enumerate(order)}
    nodes = [tree.nodes[box] for box in order]
    parents = np.array([place[node.parent] for node in nodes], dtype=np.int64)
    depths = np.array([node.depth for node in nodes], dtype=np.int64)
    within = np.array([place[box] for box in leaf.tolist()], dtype=np.int64)
    return Fold(
        names=tuple(node.name for node in nodes),
        parents=parents,
        depths=depths,
        is_run=np.array([node.run for node in nodes]),
        is_open=_first_picture(parents, depths, within),
        leaf=within,
    )


def _first_picture(
    parents: NDArray[np.int64], depths: NDArray[np.int64], leaf: NDArray[np.int64]
) -> NDArray[np.bool_]:  # [box]
    """Which boxes are open at first: all down to one depth, as deep as the picture holds.

    Where that shows next to nothing (forward, backward, update), the largest boxes are opened as long as there is room.
    """
    children = np.bincount(parents[1:], minlength=len(parents))
    inner = children > 0
    shown = [int(((depths == cut) | ((depths < cut) & ~inner)).sum()) for cut in range(int(depths.max(initial=0)) + 1)]
    cut = max((depth for depth, count in enumerate(shown) if count <= MOST_SHOWN), default=0)
    is_open = inner & (depths < max(cut, 1))
    size = np.bincount(leaf, minlength=len(parents))
    for box in range(len(parents) - 1, 0, -1):
        size[parents[box]] += size[box]
    count, before = shown[cut], -1
    while before < count < LEAST_SHOWN:
        before = count
        closed = [b for b in range(1, len(parents)) if inner[b] and is_open[parents[b]] and not is_open[b]]
        for box in sorted(closed, key=lambda b: (-size[b], b)):
            if count + children[box] - 1 <= MOST_SHOWN:
                is_open[box] = True
                count += int(children[box]) - 1
    return is_open
