"""Graph: the operators of a model, the tensors between them and the weights they hold.

Tensors, not edges: a tensor has one producer and any number of readers, so that a tensor read twice on one device
is sent there once. A weight may have several users (tied weights) and is resident once on every device that hosts one.
"""

from __future__ import annotations

import hashlib
import heapq
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NewType, get_args

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadGraph, did_you_mean
from stead.graph.kernels import Kernel, Kernels, check_kernels, kernels_from_lists, kernels_or_one

Phase = Literal["forward", "backward", "update"]
PHASES: tuple[Phase, ...] = get_args(Phase)
MAX_OPERATORS = 2**24
MAX_BYTES = 2**62
MAX_AMOUNT = sys.float_info.max  # of FLOPs or bytes moved by one operator
KV_CACHE = "kv_cache"  # how names of weights end that are caches of keys and values
BUFFER = ".buffer"  # that a model holds beside its parameters
NOT_PARAMETERS = (KV_CACHE, BUFFER, ".gradients", ".moments")  # all that are none

OperatorId = NewType("OperatorId", int)
TensorId = NewType("TensorId", int)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator, read out of a Graph."""

    index: int
    name: str
    kind: str
    module: str
    dtype: str
    phase: Phase
    flops: float
    moved_bytes: float
    parameter_bytes: int
    reads: tuple[int, ...]  # tensors
    writes: tuple[int, ...]  # tensors
    twin: int  # the forward operator that a backward operator belongs to; -1 for none
    colocation: str  # name of its colocation group; empty for none


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, read out of a Graph."""

    index: int
    name: str
    producer: int
    readers: tuple[int, ...]
    size_bytes: int
    kept: bool  # an output of the graph: it lives to the end of the run
    shape: tuple[int, ...]  # empty where unknown or a scalar
    dtype: str  # empty where unknown


class Graph:
    """Operators in topological order, tensors sorted by producer, weights; read-only.

    Build one with `GraphBuilder` or read one from a file; the constructor belongs to the builder.
    """

    def __init__(
        self,
        *,
        name: str,
        operator_names: tuple[str, ...],
        kinds: tuple[str, ...],
        modules: tuple[str, ...],
        dtypes: tuple[str, ...],
        phases: NDArray[np.uint8],
        flops: NDArray[np.float64],
        moved_bytes: NDArray[np.float64],
        twins: NDArray[np.int32],
        colocation: NDArray[np.int32],
        colocation_names: tuple[str, ...],
        tensor_names: tuple[str, ...],
        tensor_first: NDArray[np.int32],
        tensor_bytes: NDArray[np.int64],
        tensor_kept: NDArray[np.uint8],
        reader_first: NDArray[np.int32],
        readers: NDArray[np.int32],
        weight_names: tuple[str, ...],
        weight_bytes: NDArray[np.int64],
        weight_user_first: NDArray[np.int32],
        weight_users: NDArray[np.int32],
        tensor_shapes: tuple[tuple[int, ...], ...] | None = None,
        tensor_dtypes: tuple[str, ...] | None = None,
        folded: Mapping[str, str] | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        self.name = name
        self.operator_names = operator_names
        self.kinds = kinds
        self.modules = modules
        self.dtypes = dtypes
        self.phases = phases  # [operator]; index into PHASES
        self.flops = flops  # [operator]
        self.moved_bytes = moved_bytes  # [operator]; bytes read and written, weights included
        self.twins = twins  # [operator]
        self.colocation = colocation  # [operator]; index into colocation_names, -1 for none
        self.colocation_names = colocation_names
        self.tensor_names = tensor_names
        self.tensor_first = (
            tensor_first  # [operator + 1]; outputs of v are tensor_first[v] .. tensor_first[v + 1] - 1
        )
        self.tensor_bytes = tensor_bytes  # [tensor]
        self.tensor_kept = tensor_kept  # [tensor]
        self.reader_first = reader_first  # [tensor + 1]
        self.readers = readers  # strictly increasing for each tensor
        self.weight_names = weight_names
        self.weight_bytes = weight_bytes  # [weight]
        self.weight_user_first = weight_user_first  # [weight + 1]
        self.weight_users = weight_users
        self.tensor_shapes = tensor_shapes or ((),) * len(
            tensor_names
        )  # [tensor]; empty where unknown or a scalar
        self.tensor_dtypes = tensor_dtypes or ("",) * len(tensor_names)  # [tensor]; empty where unknown
        self.folded = MappingProxyType(
            dict(folded or {})
        )  # name in the source -> operator that stands for it
        self.kernels = kernels  # None: every operator that works is one kernel
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self)} operators, {self.tensor_count} tensors)"

    def __len__(self) -> int:
        return len(self.operator_names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def tensor_count(self) -> int:
        """Number of tensors, control tensors included."""
        return len(self.tensor_bytes)

    @cached_property
    def tensor_producer(self) -> NDArray[np.int32]:  # [tensor]
        """The operator that writes each tensor."""
        return _frozen(np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.tensor_first)))

    @cached_property
    def _reads(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Tensors read by each operator, as (first [operator + 1], tensor)."""
        tensor = np.repeat(np.arange(self.tensor_count, dtype=np.int32), np.diff(self.reader_first))
        by_reader = np.argsort(self.readers, kind="stable")
        first = np.zeros(len(self) + 1, dtype=np.int32)
        np.cumsum(np.bincount(self.readers, minlength=len(self)), out=first[1:])
        return _frozen(first), _frozen(tensor[by_reader])

    @property
    def read_first(self) -> NDArray[np.int32]:  # [operator + 1]
        """Operator v reads `read_tensors[read_first[v]:read_first[v + 1]]`."""
        return self._reads[0]

    @property
    def read_tensors(self) -> NDArray[np.int32]:
        """Tensors in the order of their readers."""
        return self._reads[1]

    @cached_property
    def edges(self) -> NDArray[np.int32]:  # [edge, 2]
        """(producer, reader) of every pair that shares a tensor, each pair once, sorted."""
        tensor = np.repeat(np.arange(self.tensor_count), np.diff(self.reader_first))
        pairs = np.stack([self.tensor_producer[tensor], self.readers], axis=1)
        return _frozen(np.unique(pairs, axis=0).astype(np.int32).reshape(-1, 2))

    @cached_property
    def parameter_bytes(self) -> NDArray[np.int64]:  # [operator]
        """Bytes of the weights each operator uses; a shared weight counts in full for each of its users."""
        total = np.zeros(len(self), dtype=np.int64)
        np.add.at(total, self.weight_users, np.repeat(self.weight_bytes, np.diff(self.weight_user_first)))
        return _frozen(total)

    def kernels_of(self, index: int) -> tuple[Kernel, ...]:
        """What an operator runs, one after another."""
        return tuple(
            kernels_or_one(self.kernels, index, float(self.flops[index]), float(self.moved_bytes[index]))
        )

    @cached_property
    def is_kv_cache(self) -> NDArray[np.bool_]:  # [weight]
        """Which weights are caches of keys and values, told by how their names end."""
        return _frozen(np.array([name.endswith(KV_CACHE) for name in self.weight_names], dtype=bool))

    @cached_property
    def is_parameter(self) -> NDArray[np.bool_]:  # [weight]
        """Which weights are parameters of a model, told by how their names end."""
        return _frozen(np.array([not name.endswith(NOT_PARAMETERS) for name in self.weight_names], dtype=bool))

    @property
    def kv_cache_bytes(self) -> int:
        """Of all caches of keys and values together."""
        return int(self.weight_bytes[self.is_kv_cache].sum())

    @property
    def is_training(self) -> bool:
        """Whether some operator belongs to a backward pass or an update."""
        return bool(self.phases.any())

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: v for v, name in enumerate(self.operator_names)}

    def index(self, name: str) -> int:
        """Position of the operator of that name."""
        try:
            return self._index[name]
        except KeyError:
            raise BadGraph(
                f"no operator {name!r}{did_you_mean(name, self.operator_names[:20_000])}"
            ) from None

    def operator(self, index: int) -> Operator:
        """Everything about one operator."""
        group = int(self.colocation[index])
        return Operator(
            index=index,
            name=self.operator_names[index],
            kind=self.kinds[index],
            module=self.modules[index],
            dtype=self.dtypes[index],
            phase=PHASES[self.phases[index]],
            flops=float(self.flops[index]),
            moved_bytes=float(self.moved_bytes[index]),
            parameter_bytes=int(self.parameter_bytes[index]),
            reads=tuple(self.read_tensors[self.read_first[index] : self.read_first[index + 1]].tolist()),
            writes=tuple(range(self.tensor_first[index], self.tensor_first[index + 1])),
            twin=int(self.twins[index]),
            colocation=self.colocation_names[group] if group >= 0 else "",
        )

    def tensor(self, index: int) -> Tensor:
        """Everything about one tensor."""
        return Tensor(
            index=index,
            name=self.tensor_names[index],
            producer=int(self.tensor_producer[index]),
            readers=tuple(self.readers[self.reader_first[index] : self.reader_first[index + 1]].tolist()),
            size_bytes=int(self.tensor_bytes[index]),
            kept=bool(self.tensor_kept[index]),
            shape=self.tensor_shapes[index],
            dtype=self.tensor_dtypes[index],
        )

    def operators(self) -> Iterator[Operator]:
        """Every operator in topological order."""
        return (self.operator(v) for v in range(len(self)))

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor, by producer."""
        return (self.tensor(t) for t in range(self.tensor_count))

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever anything about the graph changes."""
        digest = hashlib.sha256()
        for attribute, value in vars(self).copy().items():
            if isinstance(getattr(type(self), attribute, None), cached_property):
                continue  # what was asked of the graph before must not change what it is
            if isinstance(value, Kernels):
                for array in value.arrays:
                    digest.update(array.tobytes())
            elif value is None:
                continue  # graphs without kernels are what they were before there were any
            elif isinstance(value, np.ndarray):
                digest.update(value.tobytes())
            elif isinstance(value, tuple):
                digest.update("\0".join(map(str, value)).encode("utf-8", "surrogatepass"))
            elif isinstance(value, MappingProxyType):
                digest.update(
                    "\0".join(f"{a}\0{b}" for a, b in value.items()).encode("utf-8", "surrogatepass")
                )
            elif isinstance(value, str):
                digest.update(value.encode("utf-8", "surrogatepass"))
            digest.update(b"\1")
        return digest.hexdigest()[:16]


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

    def build(self) -> Graph:
        """Check, sort topologically (keeping the given order where it is one) and freeze."""
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
    first = np.zeros(len(lists) + 1, dtype=np.int32)
    np.cumsum([len(items) for items in lists], out=first[1:])
    flat = np.fromiter((item for items in lists for item in items), dtype=np.int32, count=int(first[-1]))
    return {first_name: first, items_name: flat}


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _amount(what: str, number: float) -> None:
    if not 0 <= number <= MAX_AMOUNT:  # also keeps whole numbers too large for a float out
        raise BadGraph(f"{what} must be a finite number of at least 0, got {str(number)[:40]}")


def _bytes(what: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number <= MAX_BYTES:
        raise BadGraph(f"{what}: bytes must be a whole number from 0 to 2^62, got {number!r}")
    return int(number)
