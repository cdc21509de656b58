"""Which layer goes where: ranges of repeated blocks, single modules, and what stands apart from its block.

A block is a numbered child of a module that has several (`model.layers.7`); what lies outside of all blocks is named by
its module (`model.embed_tokens`). The device of most forward operators of a block is its home; parts of it that are
elsewhere are rows of their own, as large as can be: a module if all of it is there, else single operators. Graphs
without blocks are told by stretches of their order, "conv1 … pool5". Every operator is in exactly one row.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices
from stead.graph import FORWARD, PHASES, REFRESH, Graph
from stead.graph.paths import (
    block_paths,
    forward_anchors,
    is_expert,
    layer_names,
    module_paths,
    spread_labels,
)
from stead.problem import Placement, Problem

MOST_MODULES = 12  # modules outside of blocks that are named one by one; more are told by stretches
MOST_RANGES = 4  # of numbers, in a short name


@dataclass(frozen=True, slots=True)
class LayerRow:
    """What one device holds of one kind of block, of one module, or of one stretch of operators."""

    device: str
    label: str  # "layers", "embed_tokens", "conv1 … pool5"
    numbers: tuple[int, ...]  # of repeated blocks; empty for everything else
    part: str  # of each of them, "mlp.experts"; empty: all that is not elsewhere
    phase: str  # "backward" or "update" where only that part of the training step is here
    exception: bool  # it stands apart from where the rest of its block is
    operators: int
    weight_bytes: int  # without caches of keys and values; what several rows of a device use counts in the first
    kv_bytes: int  # of those
    seconds: float

    @property
    def name(self) -> str:
        """All of it in words.

        >>> LayerRow("gpu", "layers", (0, 1, 2, 7), "", "", False, 4, 0, 0, 0.0).name
        'layers 0-2,7'
        >>> LayerRow("cpu", "layers", (7,), "mlp", "", True, 4, 0, 0, 0.0).name
        'layers.7.mlp'
        """
        return self._said(len(self.numbers))

    @property
    def short_name(self) -> str:
        """The same with a few ranges of numbers at most."""
        return self._said(MOST_RANGES)

    def _said(self, most: int) -> str:
        if len(self.numbers) == 1 and self.part:
            whole = f"{self.label}.{self.numbers[0]}.{self.part}"
        elif self.numbers:
            blocks = f"{self.label} {ranges(self.numbers, most)}"
            whole = f"{self.part} of {blocks}" if self.part else blocks
        else:
            whole = f"{self.label}.{self.part}" if self.part else self.label
        return f"{self.phase} of {whole}" if self.phase else whole


def ranges(numbers: Sequence[int], most: int) -> str:
    """Rising numbers as ranges, so many at most.

    >>> ranges((0, 1, 2, 5, 7, 8), 4), ranges((0, 2, 4, 6, 8, 10), 2)
    ('0-2,5,7-8', '0,2,… (6 in all)')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ",".join(texts if len(texts) <= most else [*texts[:most], f"… ({len(numbers)} in all)"])


def layer_rows(problem: Problem, placement: Placement) -> tuple[LayerRow, ...]:
    """Where everything is: by device, each in order of execution."""
    if not len(problem.graph):
        return ()
    return _Map(problem, placement.devices).rows()


class _Key(NamedTuple):
    """What a row is about, besides its numbers."""

    device: int
    label: str
    part: str = ""
    phase: str = ""
    numbered: bool = False
    alone: bool = False  # an operator that lies in no module, elsewhere than its neighbours

    @property
    def apart(self) -> bool:
        """Whether it is not all that a device holds of its block."""
        return bool(self.part or self.phase or self.alone)


class _Map:
    """The rows of one placement, put together operator by operator."""

    def __init__(self, problem: Problem, devices: DeviceIndices) -> None:
        self.problem, self.graph = problem, problem.graph
        self.devices: list[int] = devices.tolist()
        self.paths = module_paths(problem.graph)
        self.anchors: list[int] = forward_anchors(problem.graph).tolist()
        self.late: list[bool] = (problem.graph.phases != FORWARD).tolist()
        self.used_bytes: list[int] = problem.graph.parameter_bytes.tolist()
        self.items = _Items(problem.graph, self.paths, self.anchors, self.devices)
        self.members: dict[str, list[int]] = defaultdict(list)  # forward operators; all where there are none
        for v, item in enumerate(self.items.of_operator):
            if not self.late[v]:
                self.members[item].append(v)
        for v, item in enumerate(self.items.of_operator):
            if item not in self.members or self.late[self.members[item][0]]:
                self.members[item].append(v)
        self.home = {item: self._home(members) for item, members in self.members.items()}
        self.stretch = self._stretches() if not self.items.blocks else {}

    def rows(self) -> tuple[LayerRow, ...]:
        keys = self._keys()
        first: dict[_Key, int] = {}
        for v, (key, _) in enumerate(keys):
            first.setdefault(key, v)
        order = sorted(first, key=lambda key: (key.device, key.apart, first[key]))
        number = {key: n for n, key in enumerate(order)}
        row = np.array([number[key] for key, _ in keys], dtype=np.int64)  # [operator]
        numbers: dict[_Key, set[int]] = defaultdict(set)
        for key, block in keys:
            if block >= 0:
                numbers[key].add(block)
        seconds = np.bincount(
            row, weights=self.problem.costs.seconds_on(self.devices), minlength=len(order)
        )
        weights, caches = self._held(row, len(order))
        counts = np.bincount(row, minlength=len(order))
        settled = {key.device for key in order if not key.apart}
        return tuple(
            LayerRow(
                device=self.problem.cluster.names[key.device],
                label=key.label,
                numbers=tuple(sorted(numbers[key])),
                part=key.part,
                phase=key.phase,
                exception=key.apart
                and (bool(key.phase) or (key.device in settled and not is_expert(key.part))),
                operators=int(counts[n]),
                weight_bytes=int(weights[n]),
                kv_bytes=int(caches[n]),
                seconds=float(seconds[n]),
            )
            for n, key in enumerate(order)
        )

    def _keys(self) -> list[tuple[_Key, int]]:  # [operator]
        """The row of every operator and the number of its block, -1 where it has none."""
        found: dict[int, tuple[_Key, int]] = {}
        for item, members in self.members.items():
            home, block = self.home[item], self.items.number(item)
            whole = (self._whole(item, home), block)
            found.update((v, whole) for v in members if self.devices[v] == home)
            away = {v for v in members if self.devices[v] != home}
            if away:
                found.update(self._parts(item, members, away))
        readers = self._readers()
        for v, item in enumerate(self.items.of_operator):
            if v in found:
                continue
            anchor = found.get(readers.get(v, self.anchors[v]))
            if anchor is not None and anchor[0].device == self.devices[v]:
                found[v] = anchor
            elif self.devices[v] == self.home[item]:
                found[v] = self._whole(item, self.home[item]), self.items.number(item)
            else:
                phase = PHASES[int(self.graph.phases[v])]
                label, block = self._label(item), self.items.number(item)
                found[v] = _Key(self.devices[v], label, "", phase, block >= 0), block
        return [found[v] for v in range(len(self.graph))]

    def _readers(self) -> dict[int, int]:
        """What receives updated weights, and the first operator of those that it receives them for."""
        first: dict[int, int] = {}
        groups = self.graph.colocation.tolist()
        for v, group in enumerate(groups):
            first.setdefault(group, v)
        return {v: first[groups[v]] for v, kind in enumerate(self.graph.kinds) if kind == REFRESH and groups[v] >= 0}

    def _whole(self, item: str, device: int) -> _Key:
        return _Key(device, self._label(item), numbered=self.items.number(item) >= 0)

    def _label(self, item: str) -> str:
        return self.stretch.get(item) or self.items.label(item)

    def _home(self, members: list[int]) -> int:
        """The device of most operators, experts aside; of equals that with the most weights, then the first."""
        if len({self.devices[v] for v in members}) == 1:
            return self.devices[members[0]]
        dense = [v for v in members if not is_expert(self.paths[v])] or members
        counts = Counter(self.devices[v] for v in dense)
        held = Counter[int]()
        for v in dense:
            held[self.devices[v]] += self.used_bytes[v]
        return max(counts, key=lambda d: (counts[d], held[d], -d))

    def _parts(self, item: str, members: list[int], away: set[int]) -> Iterable[tuple[int, tuple[_Key, int]]]:
        """The largest modules of an item that are wholly on another device, else its single operators."""
        block = self.items.number(item)
        waiting = [(members, 0)]
        while waiting:
            group, depth = waiting.pop()
            below: dict[str, list[int]] = defaultdict(list)
            for v in group:
                below[".".join(self._below(item, v)[: depth + 1])].append(v)
            for part, inside in below.items():
                devices = {self.devices[v] for v in inside}
                if not away & set(inside):
                    continue
                if len(devices) == 1 and part.count(".") == depth and part:
                    key = _Key(devices.pop(), self._label(item), part, numbered=block >= 0)
                    yield from ((v, (key, block)) for v in inside)
                elif part.count(".") < depth or not part:
                    yield from ((v, self._single(item, v)) for v in inside if v in away)
                else:
                    waiting.append((inside, depth + 1))

    def _below(self, item: str, v: int) -> list[str]:
        """The modules between an item and an operator."""
        path = self.paths[v]
        return path[len(item) + 1 :].split(".") if path.startswith(f"{item}.") else []

    def _single(self, item: str, v: int) -> tuple[_Key, int]:
        """One operator that is elsewhere than its item, called by its own name."""
        name, block = self.graph.operator_names[v], self.items.number(item)
        if name.startswith(f"{item}.") and len(name) > len(item) + 1:
            part = name[len(item) + 1 :]
            return _Key(self.devices[v], self._label(item), part, numbered=block >= 0), block
        if f"{self.paths[v]}.".startswith(f"{item}."):
            part = ".".join([*self._below(item, v), name])
            return _Key(self.devices[v], self._label(item), part, numbered=block >= 0), block
        return _Key(self.devices[v], name, alone=True), -1

    def _stretches(self) -> dict[str, str]:
        """Where there are no blocks and many modules: neighbours with the same home as "first … last"."""
        order = list(self.members)
        if len(order) <= MOST_MODULES:
            return {}
        order.sort(key=lambda item: self.members[item][0])
        runs: list[list[str]] = []
        for item in order:
            if runs and self.home[runs[-1][-1]] == self.home[item]:
                runs[-1].append(item)
            else:
                runs.append([item])
        label = self.items.label
        return {
            item: label(run[0]) if len(run) == 1 else f"{label(run[0])} … {label(run[-1])}"
            for run in runs
            for item in run
        }

    def _held(self, row: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # [row], [row]
        """Bytes of weights and of caches, each in the first row of every device that uses it."""
        graph = self.graph
        weight, users = graph.weight_of_use, graph.weight_users
        place = weight * len(self.problem.cluster) + np.array(self.devices, dtype=np.int64)[users]
        order = np.lexsort((row[users], place))
        _, first = np.unique(place[order], return_index=True)
        chosen = order[first]
        held = np.zeros((2, count), dtype=np.int64)
        own = weight[chosen]
        np.add.at(held, (graph.is_kv_cache[own].astype(np.int64), row[users[chosen]]), graph.weight_bytes[own])
        return held[0], held[1]


class _Items:
    """The repeated block, or else the module, that every operator counts with."""

    def __init__(
        self, graph: Graph, paths: Sequence[str], anchors: Sequence[int], devices: Sequence[int]
    ) -> None:
        self.blocks = {block for block in block_paths(paths) if block}
        modules = layer_names(paths)
        names = list(dict.fromkeys(module for module in modules if module))
        if names:
            number = {name: n for n, name in enumerate(names)}
            labels = _spread_on_device(graph, [number.get(module, -1) for module in modules], devices)
            self.of_operator = [names[n] for n in spread_labels(graph, labels).tolist()]
        else:
            self.of_operator = [graph.operator_names[v] for v in anchors]
        self._labels = _shortest({self._container(item) for item in self.of_operator})

    def number(self, item: str) -> int:
        """The number of a block; -1 for what is none."""
        return int(item.rpartition(".")[2]) if item in self.blocks else -1

    def label(self, item: str) -> str:
        """What to call an item, or for a block the blocks of its kind."""
        return self._labels[self._container(item)]

    def _container(self, item: str) -> str:
        return item.rpartition(".")[0] or "block" if item in self.blocks else item


def _spread_on_device(
    graph: Graph, labels: list[int], devices: Sequence[int]
) -> NDArray[np.int32]:  # [operator]
    """Labels for operators without one (-1) from what they read, or else what reads them, on their own device."""
    reads, read_first = graph.read_tensors, graph.read_first
    for v in [v for v, label in enumerate(labels) if label < 0]:
        sources = graph.tensor_producer[reads[read_first[v] : read_first[v + 1]]].tolist()
        labels[v] = next((labels[u] for u in sources if labels[u] >= 0 and devices[u] == devices[v]), -1)
    for v in [v for v, label in enumerate(labels) if label < 0][::-1]:
        first, last = graph.reader_first[graph.tensor_first[[v, v + 1]]]
        readers = graph.readers[first:last].tolist()
        labels[v] = next((labels[u] for u in readers if labels[u] >= 0 and devices[u] == devices[v]), -1)
    return np.array(labels, dtype=np.int32)


def _shortest(names: Iterable[str]) -> dict[str, str]:
    """The shortest ending of every dotted name that no other one has.

    >>> sorted(_shortest(["model.layers", "encoder.block", "decoder.block", "lm_head"]).values())
    ['decoder.block', 'encoder.block', 'layers', 'lm_head']
    """
    endings: dict[str, list[str]] = {}
    for name in names:
        parts = name.split(".")
        endings[name] = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
    seen = Counter(ending for all_of_one in endings.values() for ending in all_of_one)
    return {name: next((one for one in own if seen[one] == 1), name) for name, own in endings.items()}
