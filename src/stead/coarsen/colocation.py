"""Co-location rules: groups that a person would put on one device, after Mirhoseini et al., ICML 2017.

1. Constraints: what must share a device, a backward operator with its forward operator, an update with the forward
   operator that uses the weight.
2. Single consumer: an operator whose outputs one operator alone reads joins it. Once, on operators: repeated on
   groups it swallows a forward graph whole.
3. Units: one group per call of a module such as an LSTM cell at one step or a transformer block.
4. Left-overs join the unit of their first producer that has one, else of their first reader.

Such groups may need each other's results (a unit of a training graph holds both ends of the backward pass);
`Grouping.colocated` takes them as they are, `Grouping.by_phase` cuts them for a coarse graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from stead.coarsen.grouping import Grouping
from stead.errors import BadInput
from stead.graph import FORWARD, Graph
from stead.graph.components import connected
from stead.graph.paths import RepeatedBlocks, calls, forward_anchors, module_path


def colocate(graph: Graph) -> Grouping:
    """Groups by the best rules that the graph allows: units where modules are known, single consumers elsewhere."""
    return colocate_units(graph) if any(graph.modules) else colocate_by_names(graph)


def colocate_constraints(graph: Graph) -> Grouping:
    """Rule 1: what must share a device, and backward and update operators with their forward operators."""
    return Grouping(graph, connected(len(graph), *_constraint_pairs(graph)))


def colocate_single_consumers(graph: Graph, *, count_control: bool = False) -> Grouping:
    """Rules 1 and 2: operators join their only reader; tensors of 0 bytes count only if asked for.

    >>> from stead.testing import diamond
    >>> colocate_single_consumers(diamond().graph).group.tolist()
    [0, 1, 1, 1]
    """
    first, second = _constraint_pairs(graph)
    tensor = graph.tensor_of_read
    counts = np.ones(len(tensor), dtype=bool) if count_control else graph.tensor_bytes[tensor] > 0
    producer, reader = graph.tensor_producer[tensor[counts]], graph.readers[counts]
    lowest = np.full(len(graph), len(graph), dtype=np.int64)
    highest = np.full(len(graph), -1, dtype=np.int64)
    np.minimum.at(lowest, producer, reader)
    np.maximum.at(highest, producer, reader)
    joins = np.flatnonzero(lowest == highest)
    return Grouping(
        graph, connected(len(graph), np.concatenate([first, joins]), np.concatenate([second, lowest[joins]]))
    )


def colocate_units(
    graph: Graph,
    *,
    units: Sequence[str] = (),
    classes: Mapping[str, str] | None = None,
    names: Sequence[str] | None = None,
) -> Grouping:
    """Rules 1, 3 and 4: a group per call of a unit.

    `units` are patterns (`*`, `?`) for module paths or class names, the outermost match wins; `classes` gives the
    class of each module path. Without patterns a unit is the outermost call of a numbered child such as `layers.3`,
    or the outermost call that holds weights and at most one more level of calls. `names` says it all instead: the
    unit of every operator, empty for left-overs.

    >>> from stead.workloads.synthetic import synthetic
    >>> len(colocate_units(synthetic("nmt", layers=2, source_steps=40, target_steps=40)))
    283
    """
    if names is None:
        names = _unit_names(graph, tuple(units), dict(classes or {}))
    elif len(names) != len(graph):
        raise BadInput(f"{len(graph)} names of units are needed, one per operator; got {len(names)}")
    names = ["" if late else name for name, late in zip(names, graph.phases != FORWARD, strict=True)]
    number = {name: n for n, name in enumerate(dict.fromkeys(name for name in names if name))}
    if units and not number:
        raise BadInput(f"no module fits {', '.join(units)}")
    label = [number.get(name, -1) for name in names]
    _place_leftovers(graph, label)
    rest = len(number)
    forward = np.array([n if n >= 0 else rest for n in label], dtype=np.int64)
    unit = forward[forward_operators(graph)]
    bound = np.flatnonzero(graph.colocation >= 0)
    both = connected(
        rest + 1 + len(graph.colocation_names),
        unit[bound],
        rest + 1 + graph.colocation[bound].astype(np.int64),
    )
    return Grouping(graph, both[unit])


def colocate_by_names(graph: Graph) -> Grouping:
    """Rules 1 and 2, then groups whose first operators have the same name up to the last number in it."""
    before = colocate_single_consumers(graph)
    first = np.empty(before.count, dtype=np.int64)
    first[before.group[::-1]] = np.arange(len(graph))[::-1]
    seen: dict[str, int] = {}
    label = [seen.setdefault(_numbered_prefix(graph.operator_names[v]), len(seen)) for v in first.tolist()]
    return Grouping(graph, np.array(label, dtype=np.int64)[before.group])


def forward_operators(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """The forward operator that each operator belongs to; itself for forward ones.

    It is the twin, else the first forward user of a weight that the operator uses, else that of what it reads first.
    """
    late = np.flatnonzero((graph.phases != FORWARD) & (graph.twins < 0))
    return forward_anchors(graph, _forward_users(graph, late))


def _forward_users(graph: Graph, late: NDArray[np.int64]) -> dict[int, int]:
    """The first forward user of the first weight that each of the given operators uses."""
    wanted = set(late.tolist())
    found: dict[int, int] = {}
    first, users = graph.weight_user_first.tolist(), graph.weight_users.tolist()
    is_forward = (graph.phases == FORWARD).tolist()
    for w in range(len(graph.weight_bytes)):
        own = users[first[w] : first[w + 1]]
        mine = [v for v in own if v in wanted]
        if mine:
            forward = next((v for v in own if is_forward[v]), -1)
            if forward >= 0:
                for v in mine:
                    found.setdefault(v, forward)
    return found


def _constraint_pairs(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of operators that rule 1 joins."""
    owner = forward_operators(graph)
    tied = np.flatnonzero(owner != np.arange(len(graph)))
    bound = np.flatnonzero(graph.colocation >= 0)
    leader = np.full(len(graph.colocation_names), -1, dtype=np.int64)
    leader[graph.colocation[bound][::-1]] = bound[::-1]
    return (
        np.concatenate([tied, bound]),
        np.concatenate([owner[tied], leader[graph.colocation[bound]]]),
    )


def _unit_names(graph: Graph, units: tuple[str, ...], classes: Mapping[str, str]) -> list[str]:
    """The unit of every operator; empty for left-overs."""
    paths = list(dict.fromkeys(graph.modules))
    if units:
        found = {path: _matching_call(path, units, classes) for path in paths}
    else:
        shape = _Calls(graph)
        found = {path: shape.unit(path) for path in paths}
    return [found[path] for path in graph.modules]


def _prefixes(path: str) -> list[str]:
    """The path of every call in a call path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def _matching_call(path: str, units: tuple[str, ...], classes: Mapping[str, str]) -> str:
    for prefix in _prefixes(path):
        module = module_path(prefix)
        texts = [module, calls(prefix)[-1].module if prefix else "", classes.get(module, "")]
        if any(text and fnmatchcase(text, unit) for text in texts for unit in units):
            return prefix
    return ""


class _Calls:
    """The call paths of a graph, as a tree."""

    def __init__(self, graph: Graph) -> None:
        paths = dict.fromkeys(graph.modules)
        users = dict.fromkeys(graph.modules[v] for v in graph.weight_users.tolist())
        self.numbered_calls = any("#" in path for path in paths)
        self.holds_weights = {prefix for path in users for prefix in _prefixes(path)}
        self.levels_below: dict[str, int] = {}
        self.blocks = RepeatedBlocks(module_path(path) for path in paths)
        for path in paths:
            prefixes = _prefixes(path)
            for depth, prefix in enumerate(prefixes):
                below = len(prefixes) - 1 - depth
                self.levels_below[prefix] = max(self.levels_below.get(prefix, 0), below)

    def unit(self, path: str) -> str:
        """The call that the operators of a path are grouped by; empty if none is right."""
        if not path:
            return ""
        if "#" not in path:  # no call: where others are calls, what stands beside them, such as a loss
            return "" if self.numbered_calls else self.blocks.around(module_path(path)) or path
        for prefix in _prefixes(path):
            if self.blocks.around(module_path(prefix)) == module_path(prefix):
                return prefix
            if self.levels_below[prefix] <= 1 and (prefix in self.holds_weights or not self.holds_weights):
                return prefix
        return ""


def _place_leftovers(graph: Graph, label: list[int]) -> None:
    """Rule 4 for forward operators with label -1."""
    late = (graph.phases != FORWARD).tolist()
    read_first, reads = graph.read_first.tolist(), graph.read_tensors.tolist()
    producer = graph.tensor_producer.tolist()
    for v in [v for v, n in enumerate(label) if n < 0 and not late[v]]:
        sources = (producer[t] for t in reads[read_first[v] : read_first[v + 1]])
        label[v] = next((label[u] for u in sources if label[u] >= 0), -1)
    tensor_first, reader_first = graph.tensor_first.tolist(), graph.reader_first.tolist()
    readers = graph.readers.tolist()
    for v in [v for v, n in enumerate(label) if n < 0 and not late[v]][::-1]:
        behind = readers[reader_first[tensor_first[v]] : reader_first[tensor_first[v + 1]]]
        label[v] = next((label[u] for u in sorted(behind) if label[u] >= 0), -1)


def _numbered_prefix(name: str) -> str:
    """A name up to its last component with a digit.

    >>> _numbered_prefix("encoder/layer3/attention/q"), _numbered_prefix("loss")
    ('encoder/layer3', 'loss')
    """
    ends = [match.end() for match in re.finditer(r"[^./]*\d[^./]*", name)]
    return name[: ends[-1]] if ends else name
