"""The device maps of Hugging Face transformers: `auto` (= `balanced`), `sequential` and `balanced_low_0`.

They see modules and the bytes of their parameters, nothing else: no activations, no speed, no links. Written
after transformers 5.22.2 (integrations/accelerate.py). The module paths of a graph stand for its module tree,
repeated blocks for the classes that are never split, the first CPU for "cpu", nothing for "disk".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from stead.cluster.quantities import format_bytes
from stead.errors import Infeasible
from stead.graph import NOT_PARAMETERS, Graph
from stead.graph.paths import block_paths, forward_anchors, module_paths
from stead.problem import Problem
from stead.solvers.rules.settle import Wish, accelerators, hosts, solve_by_rule
from stead.solvers.solution import Budget, Solution

ROOT = 0


class _DeviceMap(ABC):
    """What the three strings share: fill one device after the other, in the order of the module tree."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name it is called by."""

    @abstractmethod
    def _caps(self, tree: _ModuleTree, caps: list[int]) -> list[int]:
        """How much of each accelerator may be filled."""

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score the placement of the rule."""
        return solve_by_rule(self, problem, budget, seed)

    def wish(self, problem: Problem) -> Wish:
        """Every operator on the device of its module; an error when modules are left over for the disk."""
        tree = _tree_of(problem.graph)
        gpus, cpu = accelerators(problem.cluster), hosts(problem.cluster)[:1]
        usable = [device.usable_bytes for device in problem.cluster]
        caps = [*self._caps(tree, [usable[d] for d in gpus]), *(usable[d] for d in cpu)]
        walk = _Walk(tree, caps, keeps_room={*range(len(gpus))[:1], *range(len(gpus), len(caps))})
        walk.run()
        order = [*gpus, *cpu]
        if walk.left_bytes is not None:
            names = [problem.cluster.names[d] for d in order]
            raise Infeasible(
                f"{self.name} found no placement that works: does not fit: {format_bytes(walk.left_bytes)} of "
                f"weights are left over for the disk after {', '.join(names)}",
                short_bytes={names[-1]: max(1, walk.left_bytes)},
            )
        return Wish(np.array(order)[walk.positions()])


@dataclass(frozen=True, slots=True)
class HfAuto(_DeviceMap):
    """`device_map="auto"`: about the same bytes on every accelerator."""

    name: ClassVar[str] = "hf-auto"

    def _caps(self, tree: _ModuleTree, caps: list[int]) -> list[int]:
        return _balanced_caps(tree, caps, low_zero=False)


@dataclass(frozen=True, slots=True)
class HfSequential(_DeviceMap):
    """`device_map="sequential"`: fill the first accelerator, then the next."""

    name: ClassVar[str] = "hf-sequential"

    def _caps(self, tree: _ModuleTree, caps: list[int]) -> list[int]:
        return caps


@dataclass(frozen=True, slots=True)
class HfBalancedLow0(_DeviceMap):
    """`device_map="balanced_low_0"`: the same bytes on every accelerator but the first, little there."""

    name: ClassVar[str] = "hf-balanced-low-0"

    def _caps(self, tree: _ModuleTree, caps: list[int]) -> list[int]:
        return _balanced_caps(tree, caps, low_zero=True)


def _balanced_caps(tree: _ModuleTree, caps: list[int], *, low_zero: bool) -> list[int]:
    """An equal part of the weights plus a buffer for every accelerator but the last, which has none."""
    low_zero = low_zero and len(caps) > 1
    sharing = len(caps) - low_zero
    if sharing == 0:
        return caps
    total = tree.modules[ROOT].size_bytes
    per_device = total // sharing + int(1.25 * tree.largest_piece_bytes)
    balanced = [*(min(cap, per_device) for cap in caps[:-1]), caps[-1]]
    if low_zero:
        balanced[0] = min(caps[0], max(0, total - sum(balanced[1:])))
    return balanced


@dataclass(slots=True)
class _Module:
    """One module, or one operator of a module that has others below it."""

    parent: int
    first: int  # its first operator
    whole: bool = False  # it is never split: a repeated block, or nothing is below it
    parameter: bool = False  # it stands for weights that a module with children holds itself
    size_bytes: int = 0  # of all weights below it, shared ones once
    own_bytes: int = 0  # of the weights it holds directly
    children: list[int] = field(default_factory=list)
    ties: list[list[int]] = field(default_factory=list)  # groups of modules that share a weight with this one


class _ModuleTree:
    """The module tree of a graph with the bytes of its weights; parents come before their children."""

    def __init__(self, graph: Graph) -> None:
        self.modules = [_Module(parent=-1, first=0)]
        self._index = {"": ROOT}
        paths = module_paths(graph)
        self._blocks = set(block_paths(paths)) - {""}
        self.leaf = self._leaves(graph, paths)  # [operator]
        self._weigh(graph)
        for module in self.modules:
            module.whole |= not module.children
            module.children.sort(key=lambda m: (not self.modules[m].parameter, self.modules[m].first))

    @property
    def largest_piece_bytes(self) -> int:
        """The largest repeated block, or the most that one module holds directly."""
        blocks = (self.modules[self._index[path]].size_bytes for path in self._blocks)
        return max(max(blocks, default=0), max(module.own_bytes for module in self.modules))

    def above(self, m: int) -> list[int]:
        """A module and everything above it, the root last."""
        found = [m]
        while m != ROOT:
            m = self.modules[m].parent
            found.append(m)
        return found

    def tie_groups(self, m: int) -> list[list[int]]:
        """Groups of modules that share a weight, with at least one of them in `m`."""
        groups, waiting = {}, [m]
        while waiting:
            module = self.modules[waiting.pop()]
            waiting += module.children
            groups.update({id(group): group for group in module.ties})
        return list(groups.values())

    def _leaves(self, graph: Graph, paths: Sequence[str]) -> list[int]:
        """The deepest entry of each operator: its module, or itself where that module has others below it."""
        inner = {path[:i] for path in set(paths) for i, letter in enumerate(path) if letter == "."}
        holders = set(graph.weight_users.tolist())
        leaves = []
        for v, (path, anchor) in enumerate(zip(paths, forward_anchors(graph).tolist(), strict=True)):
            if path and path not in inner:
                leaves.append(self._module(path, v))
            else:
                key = f"{path}\0{graph.operator_names[anchor]}"  # which no module path can be
                own = _Module(self._module(path, v), v, parameter=bool(path) and anchor in holders)
                leaves.append(self._entry(key, own))
        return leaves

    def _module(self, path: str, operator: int) -> int:
        """The entry of a module path, made with everything above it if it is new."""
        if path in self._index:
            return self._index[path]
        parent = self._module(path.rpartition(".")[0], operator)
        return self._entry(path, _Module(parent, operator, whole=path in self._blocks))

    def _entry(self, key: str, module: _Module) -> int:
        if key not in self._index:
            self._index[key] = len(self.modules)
            self.modules[module.parent].children.append(len(self.modules))
            self.modules.append(module)
        return self._index[key]

    def _weigh(self, graph: Graph) -> None:
        """Give every weight to the module of its first user, tied to the modules of its other users.

        The rule counts parameters and buffers; caches, gradients and optimiser state are not there yet when it runs.
        """
        for w, size in enumerate(graph.weight_bytes.tolist()):
            if graph.weight_names[w].endswith(NOT_PARAMETERS):
                continue
            users = graph.weight_users[graph.weight_user_first[w] : graph.weight_user_first[w + 1]]
            group = list(dict.fromkeys(self.leaf[v] for v in users.tolist()))
            home = self.modules[group[0]]
            (self.modules[home.parent] if home.parameter else home).own_bytes += size
            for m in self.above(group[0]):
                self.modules[m].size_bytes += size
            if len(group) > 1:
                for m in group:
                    self.modules[m].ties.append(group)


_TREES: WeakKeyDictionary[Graph, _ModuleTree] = WeakKeyDictionary()


def _tree_of(graph: Graph) -> _ModuleTree:
    """The tree of a graph, made once for all rules; nobody changes it."""
    if graph not in _TREES:
        _TREES[graph] = _ModuleTree(graph)
    return _TREES[graph]


class _Walk:
    """Depth first through the modules, from one device to the next, never back."""

    def __init__(self, tree: _ModuleTree, caps: Sequence[int], *, keeps_room: set[int]) -> None:
        self.left_bytes: int | None = None  # of modules that found no device; None when all did
        self._tree = tree
        self._caps = caps  # [position]; bytes that may be filled, by order of devices
        self._keeps_room = keeps_room  # positions that must be able to take one more layer at any time
        self._stack: list[int] = []
        self._queued: set[int] = set()
        self._placed: dict[int, int] = {}  # module: position
        self._to_come = _LayersToCome(tree)

    def run(self) -> None:
        """Place every module, or stop when the devices are used up."""
        modules = self._tree.modules
        at = used = 0
        self._push(modules[ROOT].children)
        while self._stack:
            m = self._stack.pop()
            if m not in self._queued:
                continue  # it went along with a module it shares a weight with
            self._queued.remove(m)
            room = self._caps[at] - used - (self._to_come.largest_after(m) if at in self._keeps_room else 0)
            tied = self._tied(m)
            size = sum(modules[one].size_bytes for one in (m, *tied))
            if size <= room:
                used += size
                self._take(m, tied, at)
            elif modules[m].size_bytes <= room and self._split_one(tied):
                self._push([m])
            elif not modules[m].whole:
                self._push(modules[m].children)
                self._to_come.recount()
            else:
                self._push([m])
                at, used = at + 1, 0
                if at == len(self._caps):
                    self.left_bytes = sum(modules[one].size_bytes for one in self._queued)
                    return

    def positions(self) -> list[int]:  # [operator]
        """The place in the order of devices that each operator got."""
        found = [-1] * len(self._tree.modules)
        for m, module in enumerate(self._tree.modules):
            if m != ROOT:
                found[m] = self._placed.get(m, found[module.parent])
        return [found[leaf] for leaf in self._tree.leaf]

    def _push(self, modules: Sequence[int]) -> None:
        self._stack += reversed(modules)
        self._queued.update(modules)

    def _take(self, m: int, tied: Sequence[int], at: int) -> None:
        for one in (m, *tied):
            self._placed[one] = at
        self._queued.difference_update(tied)
        if tied:
            self._to_come.drop(tied, after=m)

    def _tied(self, m: int) -> list[int]:
        """Waiting modules that share a weight with `m`."""
        found: dict[int, None] = {}
        for group in self._tree.tie_groups(m):
            for one in group:
                found.update((above, None) for above in self._tree.above(one) if above in self._queued)
        return list(found)

    def _split_one(self, tied: Sequence[int]) -> bool:
        """Replace the first of some waiting modules that can be split by what it consists of."""
        for one in tied:
            module = self._tree.modules[one]
            if not module.whole:
                place = self._stack.index(one)
                self._stack[place : place + 1] = reversed(module.children)
                self._queued.remove(one)
                self._queued.update(module.children)
                self._to_come.recount()
                return True
        return False


class _LayersToCome:
    """The largest layer (repeated block or leaf) among those that the walk has not reached yet.

    As in transformers, the largest one still counts after it was placed out of turn, until a module is split.
    """

    def __init__(self, tree: _ModuleTree) -> None:
        self._range: dict[int, tuple[int, int]] = {}  # module: its layers in walking order
        sizes: list[int] = []
        self._number(tree, ROOT, sizes)
        self._layers = _Layers(sizes)
        self._still_counted = 0

    def largest_after(self, m: int) -> int:
        """Bytes of the largest layer behind a module; 0 if none is left."""
        return max(self._still_counted, self._layers.largest_from(self._range[m][1]))

    def drop(self, modules: Sequence[int], *, after: int) -> None:
        """Take out the layers of modules that are placed out of turn, together with the module `after`."""
        largest = self.largest_after(after)
        for m in modules:
            if self._layers.take_out(*self._range[m], sought=largest):
                self._still_counted = largest

    def recount(self) -> None:
        """Count only what is really to come."""
        self._still_counted = 0

    def _number(self, tree: _ModuleTree, m: int, sizes: list[int]) -> None:
        module, begin = tree.modules[m], len(sizes)
        if not module.whole:
            for child in module.children:
                self._number(tree, child, sizes)
        elif not module.parameter:
            sizes.append(module.size_bytes)
        self._range[m] = begin, len(sizes)


class _Layers:
    """Sizes in a row, whose largest from any place on is found quickly although some are taken out."""

    WIDTH = 256  # of a bundle whose largest is known; about the root of the longest rows

    def __init__(self, sizes: Sequence[int]) -> None:
        bundles = len(sizes) // self.WIDTH + 1
        self._sizes = np.zeros(bundles * self.WIDTH, dtype=np.int64)
        self._sizes[: len(sizes)] = sizes
        self._bundles = self._sizes.reshape(bundles, self.WIDTH)  # the same memory
        self._largest = self._bundles.max(axis=1)

    def largest_from(self, place: int) -> int:
        """The largest size from a place to the end; 0 if there is none."""
        behind = place // self.WIDTH + 1
        rest = self._sizes[place : behind * self.WIDTH].max(initial=0)
        return int(max(rest, self._largest[behind:].max(initial=0)))

    def take_out(self, begin: int, end: int, *, sought: int) -> bool:
        """Make some sizes 0; whether one of them was the size that is sought."""
        found = sought in self._sizes[begin:end]
        self._sizes[begin:end] = 0
        touched = slice(begin // self.WIDTH, (end - 1) // self.WIDTH + 1)
        self._largest[touched] = self._bundles[touched].max(axis=1)
        return found
