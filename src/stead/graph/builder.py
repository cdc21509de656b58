"""GraphBuilder: operators, tensors and weights one by one, then checked, sorted and frozen into a Graph."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NewType

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadGraph
from stead.graph.graph import MAX_BYTES, MAX_OPERATORS, PHASES, Graph, Phase
from stead.graph.kernels import Kernel, check_kernels, kernels_from_lists, starts_of
from stead.graph.refresh import refreshed

MAX_AMOUNT = sys.float_info.max  # of FLOPs or bytes moved by one operator

OperatorId = NewType("OperatorId", int)
TensorId = NewType("TensorId", int)


@dataclass(slots=True)
class _Operator:
    name: str
    kind: str
    module: str
    dtype: str
    phase: Phase
    flops: float
    moved_bytes: float
    twin: str
    colocate: str
    reads: list[int]
    after: list[int]
    outputs: list[int]
    kernels: tuple[Kernel, ...]


@dataclass(slots=True)
class _Tensor:
    producer: int
    size_bytes: int
    kept: bool
    name: str
    shape: tuple[int, ...]
    dtype: str


class GraphBuilder:
    """The one mutable thing: collects operators, tensors and weights, then checks, sorts and freezes them.

    >>> build = GraphBuilder("pair")
    >>> a = build.operator("a", flops=1e9)
    >>> x = build.tensor(a, size_bytes=4)
    >>> b = build.operator("b", reads=[x])
    >>> build.weight("w", size_bytes=100, users=[a, b])
    >>> graph = build.build()
    >>> graph.operator_names, graph.parameter_bytes.tolist()
    (('a', 'b'), [100, 100])
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self._operators: list[_Operator] = []
        self._tensors: list[_Tensor] = []
        self._weights: list[tuple[str, int, list[int]]] = []
        self._names: dict[str, int] = {}
        self._folded: dict[str, str] = {}

    def operator(
        self,
        name: str,
        *,
        kind: str = "",
        reads: Iterable[TensorId] = (),
        after: Iterable[OperatorId] = (),
        flops: float = 0.0,
        moved_bytes: float = 0.0,
        module: str = "",
        dtype: str = "fp32",
        phase: Phase = "forward",
        twin: str = "",
        colocate: str = "",
        kernels: Iterable[Kernel] = (),
    ) -> OperatorId:
        """Add an operator; `after` are control dependencies, `twin` the name of the forward operator it belongs to.

        `kernels` are what it runs one after another, together its `flops` and `moved_bytes`; by default it is one.
        """
        if not name:
            raise BadGraph(f"operator number {len(self._operators) + 1} has an empty name; give it one")
        if name in self._names:
            raise BadGraph(f"two operators are called {name!r}; operator names must differ")
        if phase not in PHASES:
            raise BadGraph(f"operator {name!r}: phase is one of {', '.join(PHASES)}, got {phase!r}")
        _amount(f"operator {name!r}: flops", flops)
        _amount(f"operator {name!r}: bytes moved", moved_bytes)
        index = len(self._operators)
        if index >= MAX_OPERATORS:
            raise BadGraph(f"a graph has at most {MAX_OPERATORS} operators; coarsen it first")
        self._names[name] = index
        self._operators.append(
            _Operator(
                name, kind, module, dtype, phase, float(flops), float(moved_bytes), twin, colocate,
                list(reads), list(after), [], tuple(kernels),
            )
        )  # fmt: skip
        return OperatorId(index)

    def tensor(
        self,
        producer: OperatorId,
        *,
        size_bytes: int,
        kept: bool = False,
        name: str = "",
        shape: Sequence[int] = (),
        dtype: str = "",
    ) -> TensorId:
        """Add an output of `producer`; one tensor, however many operators read it."""
        if not 0 <= producer < len(self._operators):
            raise BadGraph(f"tensor {name!r} has no producer: there is no operator number {producer}")
        owner = self._operators[producer]
        label = name or (owner.name if not owner.outputs else f"{owner.name}:{len(owner.outputs)}")
        index = len(self._tensors)
        size = _bytes(f"tensor {label!r}", size_bytes)
        self._tensors.append(
            _Tensor(producer, size, bool(kept), label, tuple(int(size) for size in shape), dtype)
        )
        owner.outputs.append(index)
        return TensorId(index)

    def fold(self, source_name: str, into: OperatorId) -> None:
        """Remember that something of the source, such as a view or a constant, is part of an operator."""
        self._folded[source_name] = self._operators[into].name

    def read(self, operator: OperatorId, tensor: TensorId) -> None:
        """Make an operator read a tensor that was added after it."""
        self._operators[operator].reads.append(tensor)

    def follow(self, operator: OperatorId, earlier: OperatorId) -> None:
        """Make an operator wait for another one without reading its output."""
        self._operators[operator].after.append(earlier)

    def weight(self, name: str, *, size_bytes: int, users: Iterable[OperatorId]) -> None:
        """Add bytes that live, for the whole run, on every device that hosts one of the users."""
        given = sorted(set(users))
        if not given:
            raise BadGraph(f"weight {name!r} has no user; leave it out")
        if not (given[0] >= 0 and given[-1] < len(self._operators)):
            raise BadGraph(f"weight {name!r} is used by an operator that does not exist")
        self._weights.append((name, _bytes(f"weight {name!r}", size_bytes), list(given)))

    def build(self, *, refresh: bool = True) -> Graph:
        """Check, sort topologically (keeping the given order where it is one) and freeze.

        Where an operator reads a weight and the update of that weight need not share its device, an operator of kind
        `Refresh` beside the reader receives the updated weight: see `refreshed`. Without `refresh` there is none.
        """
        graph = self._graph()
        return refreshed(graph) if refresh and graph.is_training else graph

    def _graph(self) -> Graph:
        parents = self._parents()
        order = self._order(parents)
        rank = [0] * len(order)
        for new, old in enumerate(order):
            rank[old] = new
        operators = [self._operators[old] for old in order]
        tensors, first, reader_lists = self._arranged_tensors(order, rank, parents)
        group_names, colocation = self._groups(operators)
        weights = sorted(
            ((sorted(rank[v] for v in users), name, size) for name, size, users in self._weights),
            key=lambda weight: (weight[0], weight[1]),
        )
        flops = np.array([op.flops for op in operators], dtype=np.float64)
        moved = np.array([op.moved_bytes for op in operators], dtype=np.float64)
        names = tuple(op.name for op in operators)
        kernels = kernels_from_lists([op.kernels for op in operators], flops, moved)
        if kernels is not None:
            check_kernels(kernels, names, flops, moved)
        return Graph(
            name=self.name,
            operator_names=names,
            kinds=tuple(op.kind for op in operators),
            modules=tuple(op.module for op in operators),
            dtypes=tuple(op.dtype for op in operators),
            phases=np.array([PHASES.index(op.phase) for op in operators], dtype=np.uint8),
            flops=flops,
            moved_bytes=moved,
            twins=self._twins(operators, rank),
            colocation=colocation,
            colocation_names=group_names,
            tensor_names=tuple(tensor.name for tensor in tensors),
            tensor_first=np.array(first, dtype=np.int32),
            tensor_bytes=np.array([tensor.size_bytes for tensor in tensors], dtype=np.int64),
            tensor_kept=np.array([tensor.kept for tensor in tensors], dtype=np.uint8),
            **_csr("reader_first", "readers", reader_lists),
            weight_names=tuple(name for _, name, _ in weights),
            weight_bytes=np.array([size for _, _, size in weights], dtype=np.int64),
            **_csr("weight_user_first", "weight_users", [users for users, _, _ in weights]),
            tensor_shapes=tuple(tensor.shape for tensor in tensors),
            tensor_dtypes=tuple(tensor.dtype for tensor in tensors),
            folded=self._folded,
            kernels=kernels,
        )

    def _parents(self) -> list[list[int]]:
        """Data producers of each operator followed by its control producers, each once."""
        parents: list[list[int]] = []
        for op in self._operators:
            for tensor in op.reads:
                if not 0 <= tensor < len(self._tensors):
                    raise BadGraph(f"operator {op.name!r} reads tensor number {tensor}, which nobody writes")
            for earlier in op.after:
                if not 0 <= earlier < len(self._operators):
                    raise BadGraph(
                        f"operator {op.name!r} waits for operator number {earlier}, which does not exist"
                    )
            parents.append(list(dict.fromkeys([*(self._tensors[t].producer for t in op.reads), *op.after])))
        return parents

    def _order(self, parents: Sequence[Sequence[int]]) -> list[int]:
        """Topological order that takes the operator added first among those that may go next."""
        children: list[list[int]] = [[] for _ in parents]
        missing = [len(own) for own in parents]
        for v, own in enumerate(parents):
            for u in own:
                children[u].append(v)
        ready = [v for v, count in enumerate(missing) if count == 0]
        order: list[int] = []
        while ready:
            v = heapq.heappop(ready)
            order.append(v)
            for child in children[v]:
                missing[child] -= 1
                if missing[child] == 0:
                    heapq.heappush(ready, child)
        if len(order) < len(parents):
            cycle = _cycle(parents, missing)
            shown = [self._operators[v].name for v in cycle[:6]]
            more = ["..."] if len(cycle) > 6 else []
            raise BadGraph(f"the graph has a cycle: {' -> '.join([*shown, *more, shown[0]])}")
        return order

    def _arranged_tensors(
        self, order: Sequence[int], rank: Sequence[int], parents: Sequence[Sequence[int]]
    ) -> tuple[list[_Tensor], list[int], list[list[int]]]:
        """Tensors by producer, with all control dependencies of one producer as one more tensor of 0 bytes."""
        readers: list[list[int]] = [[] for _ in self._tensors]
        followers: dict[int, list[int]] = {}
        for v, op in enumerate(self._operators):
            for t in dict.fromkeys(op.reads):
                readers[t].append(rank[v])
            if op.after:
                data = {self._tensors[t].producer for t in op.reads}
                for earlier in dict.fromkeys(op.after):
                    if earlier not in data:
                        followers.setdefault(earlier, []).append(rank[v])
        arranged: list[_Tensor] = []
        reader_lists: list[list[int]] = []
        first = [0]
        for old in order:
            for t in self._operators[old].outputs:
                arranged.append(self._tensors[t])
                reader_lists.append(sorted(readers[t]))
            if old in followers:
                arranged.append(_Tensor(old, 0, False, f"^{self._operators[old].name}", (), ""))
                reader_lists.append(sorted(followers[old]))
            first.append(len(arranged))
        return arranged, first, reader_lists

    def _twins(self, operators: Sequence[_Operator], rank: Sequence[int]) -> NDArray[np.int32]:
        twins = np.full(len(operators), -1, dtype=np.int32)
        for v, op in enumerate(operators):
            if op.twin:
                if op.twin not in self._names:
                    raise BadGraph(f"operator {op.name!r}: its twin {op.twin!r} does not exist")
                twins[v] = rank[self._names[op.twin]]
        return twins

    def _groups(self, operators: Sequence[_Operator]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """Colocation groups of at least two operators, in order of appearance."""
        members: dict[str, list[int]] = {}
        for v, op in enumerate(operators):
            if op.colocate:
                members.setdefault(op.colocate, []).append(v)
        colocation = np.full(len(operators), -1, dtype=np.int32)
        names = [name for name, group in members.items() if len(group) > 1]
        for index, name in enumerate(names):
            colocation[members[name]] = index
        return tuple(names), colocation


def _cycle(parents: Sequence[Sequence[int]], missing: Sequence[int]) -> list[int]:
    """Some cycle among operators that never became ready, in the direction of data."""
    v = next(v for v, count in enumerate(missing) if count > 0)
    position: dict[int, int] = {}
    path: list[int] = []
    while v not in position:
        position[v] = len(path)
        path.append(v)
        v = next(u for u in parents[v] if missing[u] > 0)
    return path[position[v] :][::-1]


def _csr(first_name: str, items_name: str, lists: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Lists of different lengths as one flat array and the places where each begins."""
    first = starts_of([len(items) for items in lists])
    flat = np.fromiter((item for items in lists for item in items), dtype=np.int32, count=int(first[-1]))
    return {first_name: first, items_name: flat}


def _amount(what: str, number: float) -> None:
    if not 0 <= number <= MAX_AMOUNT:  # also keeps whole numbers too large for a float out
        raise BadGraph(f"{what} must be a finite number of at least 0, got {str(number)[:40]}")


def _bytes(what: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number <= MAX_BYTES:
        raise BadGraph(f"{what}: bytes must be a whole number from 0 to 2^62, got {number!r}")
    return int(number)
