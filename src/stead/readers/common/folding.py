"""From the nodes of a model file to the operators worth placing.

Files hold much that no device runs by itself: constants, arithmetic on constants and shapes, views, and chains
that every runtime runs as one. Each is folded into the operator it goes with, so that the same net has the same
operators whatever format it comes in. `Graph.folded` remembers what became of each name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from stead.graph import Graph, GraphBuilder, OperatorId, TensorId
from stead.graph.unique_names import Names
from stead.readers.common.checked_values import Wrong
from stead.readers.common.file_nodes import Node, Source, in_order
from stead.readers.common.fused import Flow, join_units
from stead.readers.common.op_costs import elements, unpriced_note

# How much is folded, each with all before it: nothing; constants; views and results of the model; and (what
# readers do unless told otherwise) bias additions, chains of elementwise operators and the parts of attention.
Fold: TypeAlias = Literal["nothing", "constants", "views", "units"]
FOLDS: tuple[Fold, ...] = get_args(Fold)

_MOST_SOURCES = 64  # a constant computed from more stored ones is kept as one of its own
_DOTTED = re.compile(r"(?:self\.)?(\w+(?:\.\w+)+)\.\w+")


@dataclass(frozen=True, slots=True)
class Folded:
    """A graph and what folding found out."""

    graph: Graph
    unpriced: Mapping[str, int]  # kinds of unknown cost and how many operators have them
    dead: int  # nodes whose results nobody reads

    def notes(self) -> Iterator[str]:
        """Sentences for the user."""
        yield from unpriced_note(self.unpriced)
        if self.dead:
            yield f"{self.dead} nodes were left out: nobody reads their results"


def fold(source: Source, level: Fold) -> Folded:
    """The graph of a file; Wrong or BadGraph if it makes no sense."""
    return _Folding(source, level).folded()


class _Folding:
    """One source on its way to a Graph."""

    def __init__(self, source: Source, level: Fold) -> None:
        self.source = source
        self.level = FOLDS.index(level)
        self.values, self.nodes = source.values, source.nodes
        self.order = in_order(self.nodes, len(self.values))
        self.producer = [-1] * len(self.values)
        for n, node in enumerate(self.nodes):
            for v in node.writes:
                self.producer[v] = n
        self.constant = bytearray(len(self.values))
        self.sources: dict[int, tuple[int, ...]] = {}  # constant value: stored values it is made of
        self.base = list(range(len(self.values)))  # what a value is a view of
        self.kept = set(source.kept)
        self.needed = bytearray(len(self.values))
        self.live = bytearray(len(self.nodes))
        self.gone: dict[int, int] = {}  # view or result: node that it is part of
        self.build = GraphBuilder(source.name)
        self.operators: dict[int, OperatorId] = {}  # node: operator
        self.tensors: dict[int, TensorId] = {}  # value: tensor
        self.users: dict[int, list[OperatorId]] = {}  # stored value: operators
        self.inner: list[tuple[str, int, OperatorId]] = []  # (name, bytes, user) of weights inside operators
        self.unpriced: Counter[str] = Counter()

    def folded(self) -> Folded:
        if self.level >= FOLDS.index("constants"):
            self._find_constants()
        self._find_live()
        if self.level >= FOLDS.index("views"):
            self._fold_views()
        self.flow = self._flow()
        if self.level >= FOLDS.index("units"):
            join_units(self.flow)
        units = self.flow.units()
        for lead, members in units.items():
            self._add_operator(lead, members)
        if not self.operators:
            raise Wrong("no operator depends on an input; there is nothing to place")
        for lead in units:
            for v in self.flow.outer_reads(lead):
                self.build.read(self.operators[lead], self.tensors[v])
        self._add_weights()
        self._remember_names()
        return Folded(self.build.build(), dict(self.unpriced.most_common()), self._dead())

    def _dead(self) -> int:
        return sum(
            not self.live[n] and node.role != "input" and not self._is_constant(node)
            for n, node in enumerate(self.nodes)
        )

    # What is constant, and what is needed

    def _find_constants(self) -> None:
        for n in self.order:
            node = self.nodes[n]
            if node.role in ("stored", "known"):
                found: tuple[int, ...] = tuple(node.writes) if node.role == "stored" else ()
            elif self._computes_constant(node):
                found = self._made_of(node)
            else:
                continue
            stored = sum(self.values[source].size_bytes for source in found)
            for v in node.writes:
                # What is picked from a constant, or made of very many, is kept instead of them.
                own = len(found) > _MOST_SOURCES or self.values[v].size_bytes < stored
                self.constant[v] = True
                self.sources[v] = (v,) if own else found

    def _computes_constant(self, node: Node) -> bool:
        if not node.pure or node.role not in ("operator", "view") or not node.reads:
            return False
        return all(self.constant[v] for v in node.reads)

    def _made_of(self, node: Node) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for position, v in enumerate(node.reads):
            if position not in node.aside:
                found.update(dict.fromkeys(self.sources[v]))
            if len(found) > _MOST_SOURCES:
                break
        return tuple(found)

    def _is_constant(self, node: Node) -> bool:
        return bool(node.writes) and all(self.constant[v] for v in node.writes)

    def _find_live(self) -> None:
        """Nodes that an output needs; without folding, every node."""
        if self.level == FOLDS.index("nothing"):
            self.live = bytearray(b"\1" * len(self.nodes))
            return
        for v in self.kept:
            self.needed[v] = True
        for n in reversed(self.order):
            node = self.nodes[n]
            if self._is_constant(node):
                continue
            self.live[n] = not node.writes or any(self.needed[v] for v in node.writes)
            if self.live[n]:
                for v in node.reads:
                    self.needed[v] = True

    # Views and results

    def _find(self, v: int) -> int:
        while self.base[v] != v:
            self.base[v] = self.base[self.base[v]]
            v = self.base[v]
        return v

    def _fold_views(self) -> None:
        for n in self.order:
            node = self.nodes[n]
            if not self.live[n] or not node.reads:
                continue
            data = self._find(node.reads[0])
            if node.role == "output":
                self.gone[n] = self.producer[data]
                self.kept.update(v for v in node.reads if not self.constant[v])
            elif node.role == "view" and self._is_plain_view(node):
                self.gone[n] = self.producer[data]
                self.base[node.writes[0]] = data
        self.kept = {self._find(v) for v in self.kept}

    def _is_plain_view(self, node: Node) -> bool:
        """Whether only its first operand is not constant, and only its first result is asked for."""
        settled = all(self.constant[v] for v in node.reads[1:])
        return settled and not any(self.needed[v] for v in node.writes[1:])

    def _flow(self) -> Flow:
        """What is left, with who reads what."""
        order = [n for n in self.order if self.live[n] and n not in self.gone]
        reads = {n: self._variable_reads(self.nodes[n]) for n in order}
        return Flow(self.nodes, self.values, order, reads, self.producer, self.kept)

    def _variable_reads(self, node: Node) -> list[int]:
        """The values a node reads that are not constant, each once and without views."""
        return list(dict.fromkeys(self._find(v) for v in node.reads if not self.constant[v]))

    # Building

    def _outer_writes(self, members: Sequence[int]) -> list[int]:
        """Values of a unit that others read, or that the model returns."""
        inside = set(members)
        written = dict.fromkeys(v for n in members for v in self.nodes[n].writes)
        readers = self.flow.readers
        return [
            v for v in written if v in self.kept or any(reader not in inside for reader in readers.get(v, ()))
        ]

    def _add_operator(self, lead: int, members: Sequence[int]) -> None:
        nodes = [self.nodes[n] for n in members]
        node = self.nodes[lead]
        written = self._outer_writes(members)
        weights: dict[int, tuple[tuple[int, ...], int]] = {}
        for member in nodes:
            weights.update(self._weights(member))
        held = {v: None for sources, _ in weights.values() for v in sources}
        paths = (*(member.module for member in (node, *nodes)), *(_dotted(self.values[v].name) for v in held))
        groups = (self.source.colocate.get(member.name, "") for member in (node, *nodes))
        added = self.build.operator(
            node.name,
            kind=node.kind,
            flops=sum(self.nodes[n].flops for n in members if n not in self.flow.free),
            moved_bytes=self._moved_bytes(nodes, self.flow.outer_reads(lead), written)
            + sum(size for _, size in weights.values()),
            module=next(filter(None, paths), ""),
            dtype=node.dtype,
            colocate=next(filter(None, groups), ""),
        )
        self.operators[lead] = added
        self.unpriced.update(member.kind for member in nodes if not member.priced)
        for v in (*held, *(node.writes[:1] if node.role == "stored" else ())):
            self.users.setdefault(v, []).append(added)
        self.inner += [(name, size, added) for member in nodes for name, size in member.inner_weights]
        for v in written:
            value = self.values[v]
            self.tensors[v] = self.build.tensor(
                added, size_bytes=value.size_bytes, kept=v in self.kept, name=value.name,
                shape=value.shape, dtype=value.dtype,
            )  # fmt: skip

    def _weights(self, node: Node) -> dict[int, tuple[tuple[int, ...], int]]:
        """Constants that a node reads as data: stored values they are made of, and bytes read."""
        found: dict[int, tuple[tuple[int, ...], int]] = {}
        for position, v in enumerate(node.reads):
            if not self.constant[v] or position in node.aside or elements(self.values[v].shape) <= 1:
                continue
            sources = self.sources[v] or (v,)
            stored = sum(self.values[source].size_bytes for source in sources)
            read = min(stored, self.values[v].size_bytes)
            if node.picks and position == 0:
                read = min(read, sum(self.values[w].size_bytes for w in node.writes))
            found[v] = (sources, read)
        return found

    def _moved_bytes(self, nodes: Sequence[Node], reads: Sequence[int], written: Sequence[int]) -> float:
        """What a unit reads and writes, constants apart; what is inside stays in caches."""
        first = nodes[0]
        unfolded_view = first.role == "view" and self.level >= FOLDS.index("views")  # it had to copy
        if first.role != "operator" and not unfolded_view:
            return 0.0
        out = sum(self.values[v].size_bytes for v in written)
        sizes = [self.values[v].size_bytes for v in reads]
        if first.picks and len(nodes) == 1 and sizes and not self.constant[first.reads[0]]:
            sizes[0] = min(sizes[0], out)
        return float(out + sum(sizes)) + sum(node.inner_bytes for node in nodes)

    def _add_weights(self) -> None:
        names = Names()
        for v, users in self.users.items():
            size = self.values[v].size_bytes
            self.build.weight(names.unique(self.values[v].name or "constant"), size_bytes=size, users=users)
        for name, size, user in self.inner:
            self.build.weight(names.unique(name or "constant"), size_bytes=size, users=[user])

    def _remember_names(self) -> None:
        """For everything that was folded, the operator it is part of."""
        place: dict[int, int] = {}  # constant node: lead of the first operator that needs it
        for n in reversed(self.order):
            node = self.nodes[n]
            if self._is_constant(node):
                home = place.get(n, -1)
            elif self.live[n]:
                home = self._home(n)
            else:
                continue
            for v in node.reads:
                if self.constant[v] and home >= 0:
                    place[self.producer[v]] = home
            if node.name and home != n and home in self.operators:
                self.build.fold(node.name, self.operators[home])

    def _home(self, n: int) -> int:
        """The lead of the unit that a node ended up in."""
        while n in self.gone:
            n = self.gone[n]
        return self.flow.lead(n) if n >= 0 else -1


def _dotted(name: str) -> str:
    """The module in the name of a weight, such as `layer1.0.conv1.weight`; empty without one."""
    found = _DOTTED.fullmatch(name)
    return found[1] if found else ""
