"""From recorded ATen operators to a Graph: views folded, weights found, writing in place put in order.

A trace is what torch would run, one call after another. Every tensor belongs to a storage; a view shows a part of
one, and an operator may write into one. What becomes of them:

- A view is no operator. Whoever reads it reads the tensor below it, and of that only the elements that the view
  shows: one tensor of the graph for each distinct part. A tensor that is read through views alone does not exist
  beside them; what none of them shows is memory of its producer while that runs. If a tensor is read both whole
  and in parts, its memory is counted for both, because the simulator knows no aliasing.
- Writing in place makes a new version. Later readers depend on the writer, and the writer waits for everyone who
  read the old version. If only a part is written, the writer reads the old version as a whole.
- Parameters, buffers and constants are weights: reading them is no edge. Who reads a buffer after it was written
  into shares a device with the writer, since no edge would carry the new contents. Memory without contents
  (`empty`) is part of whatever fills it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder, OperatorId, Phase, TensorId
from stead.graph.unique_names import Names
from stead.readers.common.op_costs import Simple, unpriced_note
from stead.readers.torch.aten import (
    Argument,
    Region,
    Value,
    moved_bytes,
    operator_dtype,
    overwrites,
    values_in,
)
from stead.readers.torch.aten_costs import cost

INPUT = "input"  # kind of the operators that stand for inputs of the model


@dataclass(slots=True, eq=False)
class Call:
    """One operator as it was recorded."""

    name: str
    kind: str
    arguments: Sequence[Argument]
    named: Mapping[str, Argument]
    writes: Sequence[Value]  # its results; those that are views or arguments share a storage with one
    written: Sequence[Value] = ()  # arguments that it writes into
    folded: bool = False  # it moves nothing: a view, or memory without contents
    module: str = ""
    phase: Phase = "forward"
    twin: int = -1  # the forward call that a backward call belongs to
    parameter: int = -1  # the weight whose gradient it adds up, or which it updates
    price: Simple | None = None  # None: by kind
    inner_bytes: float = 0.0  # moved by operators inside it
    other_names: Sequence[str] = ()  # what its results are called in the source
    function: Any = None  # runs it on real tensors; of a file that is read without torch, the name of what does

    def reads(self) -> list[Value]:
        """Its tensor arguments."""
        return list(values_in((self.arguments, self.named)))


@dataclass(slots=True)
class Weight:
    """Bytes that stay on the devices of whoever uses them."""

    name: str
    size_bytes: int
    storage: int = -1  # -1: no operator reads it, such as the room for a gradient
    goes_with: int = -1  # another weight: it stays where that one's gradients are added up and where it is updated
    filled_with: int = -1  # storage that the weight is room for; where nothing is updated it stays with the writer

    @property
    def module(self) -> str:
        """The module that owns it."""
        return self.name.rpartition(".")[0]


@dataclass(slots=True)
class Trace:
    """Everything recorded about a model."""

    name: str
    calls: list[Call] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    storages: list[Value] = field(default_factory=list)  # [storage]: the tensor that is all of it


@dataclass(frozen=True, slots=True)
class Built:
    """A graph and what was found out on the way."""

    graph: Graph
    operator_of: Sequence[int]  # [call]: position in the graph of what runs it; -1 for what nobody needs
    unpriced: Mapping[str, int]  # kinds of unknown cost and how many operators have them

    def notes(self) -> Iterator[str]:
        """Sentences for the user."""
        yield from unpriced_note(self.unpriced)


def build_graph(trace: Trace) -> Built:
    """The graph of a trace."""
    return _Assembly(trace).built()


@dataclass(slots=True)
class _Tensor:
    """A part of a version of a storage that somebody reads."""

    name: str
    size_bytes: int
    value: Value | None  # None: nobody reads it
    kept: bool = False


@dataclass(slots=True, eq=False)
class _Version:
    """What a storage holds between two operators that write into it."""

    writer: int = -1  # operator; -1: nobody, such as for weights and memory without contents
    parts: dict[Region | None, int] = field(default_factory=dict)  # tensor of the writer for each part read
    readers: list[int] = field(default_factory=list)  # operators


@dataclass(slots=True, eq=False)
class _Operator:
    call: Call | None  # None: an input
    name: str
    reads: list[tuple[int, int]] = field(default_factory=list)  # (operator, number of its tensor)
    after: list[int] = field(default_factory=list)
    tensors: list[_Tensor] = field(default_factory=list)
    moved_bytes: float = 0.0
    flops: float = 0.0


class _Assembly:
    """One trace on its way to a Graph."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.operators: list[_Operator] = []
        self.versions: list[_Version | None] = [None] * len(trace.storages)
        self.made: list[tuple[Value, _Version]] = []  # versions of whole storages that an operator made
        self.weight_of = {weight.storage: w for w, weight in enumerate(trace.weights) if weight.storage >= 0}
        self.input_of = {value.storage: value for value in trace.inputs}
        self.users: list[list[int]] = [[] for _ in trace.weights]
        self.trainers: list[list[int]] = [[] for _ in trace.weights]  # what adds up gradients and updates
        self.waiting: dict[
            int, list[int]
        ] = {}  # storage: calls to be part of the first operator that reads it
        self.shared: list[
            tuple[int, int, int]
        ] = []  # (weight, operator that changed it, one that uses it then)
        self.operator_of = [-1] * len(trace.calls)
        self.names = Names()
        self.unpriced: Counter[str] = Counter()

    def built(self) -> Built:
        for index, call in enumerate(self.trace.calls):
            if call.folded:
                self._fold(index, call)
            else:
                self._run(index, call)
        if not any(operator.call for operator in self.operators):
            raise BadInput("the model has no operators; there is nothing to place")
        for value in self.trace.outputs:
            self._keep(value)
        for whole, version in self.made:
            self._add_rest(whole, version)
        graph = self._graph()
        position = {name: v for v, name in enumerate(graph.operator_names)}
        ranks = [position[operator.name] for operator in self.operators]
        homes = [ranks[home] if home >= 0 else -1 for home in self.operator_of]
        return Built(graph, homes, dict(self.unpriced.most_common()))

    # Calls

    def _fold(self, index: int, call: Call) -> None:
        """A view belongs to whoever made what it shows; of a weight, to the first who looks."""
        if not call.writes:
            return
        storage = call.writes[0].storage
        version = self._version(storage)
        if version.writer >= 0 and storage not in self.weight_of:
            self.operator_of[index] = version.writer
        else:
            self.waiting.setdefault(storage, []).append(index)

    def _run(self, index: int, call: Call) -> None:
        reads = call.reads()
        price = call.price or cost(call.kind, call.arguments, call.named, call.writes)
        if not price.known:
            self.unpriced[call.kind] += 1
        blind = {id(value) for value in call.written} if overwrites(call.kind) else set()
        looked_at = {(value.storage, value.region): value for value in reads if id(value) not in blind}
        for value in looked_at.values():
            self._version(value.storage)  # inputs come before the operator that reads them first
        v = self._add(call)
        operator = self.operators[v]
        operator.flops = price.flops
        operator.moved_bytes = call.inner_bytes + moved_bytes(
            call.kind, price, reads, call.writes, call.written
        )
        self.operator_of[index] = v
        for value in looked_at.values():
            self._read(operator, v, value)
        for value in call.written:
            self._write(operator, v, value)
        for value in call.writes:
            if self.versions[value.storage] is None:
                self._make(v, value.storage)
        if call.parameter >= 0:
            self.users[call.parameter].append(v)
            self.trainers[call.parameter].append(v)

    def _add(self, call: Call) -> int:
        self.operators.append(_Operator(call, self.names.unique(call.name)))
        return len(self.operators) - 1

    def _make(self, v: int, storage: int) -> _Version:
        version = self.versions[storage] = _Version(v)
        self.made.append((self.trace.storages[storage], version))
        return version

    def _version(self, storage: int) -> _Version:
        """What a storage holds now; an input becomes an operator when it is first needed."""
        version = self.versions[storage]
        if version is None:
            if storage in self.input_of:
                self.operators.append(_Operator(None, self.names.unique(self.input_of[storage].name)))
                return self._make(len(self.operators) - 1, storage)
            version = self.versions[storage] = _Version()
        return version

    def _read(self, operator: _Operator, v: int, value: Value) -> None:
        version = self._version(value.storage)
        version.readers.append(v)
        for index in self.waiting.pop(value.storage, ()):
            self.operator_of[index] = v
        if value.storage in self.weight_of:
            self._use_weight(operator, v, self.weight_of[value.storage], version)
        elif version.writer >= 0:
            operator.reads.append((version.writer, self._part(version, value)))

    def _use_weight(self, operator: _Operator, v: int, weight: int, version: _Version) -> None:
        self.users[weight].append(v)
        if version.writer not in (-1, v):
            operator.after.append(version.writer)
            self.shared.append((weight, version.writer, v))

    def _part(self, version: _Version, value: Value) -> int:
        """The tensor for what a value shows."""
        number = version.parts.get(value.region)
        if number is None:
            tensors = self.operators[version.writer].tensors
            number = version.parts[value.region] = len(tensors)
            tensors.append(_Tensor(value.name, value.size_bytes, value))
        return number

    def _write(self, operator: _Operator, v: int, value: Value) -> None:
        old = self._version(value.storage)
        whole = self.trace.storages[value.storage]
        for index in self.waiting.pop(value.storage, ()):
            self.operator_of[index] = v
        operator.after.extend(reader for reader in old.readers if reader != v)
        if value.storage in self.weight_of:
            self._use_weight(operator, v, self.weight_of[value.storage], old)
        elif value.region is not None and old.writer not in (-1, v):
            operator.reads.append((old.writer, self._part(old, whole)))
        self.versions[value.storage] = _Version(v)

    # What is left of a storage when everyone has read

    def _keep(self, value: Value) -> None:
        version = self._version(value.storage)
        if version.writer >= 0 and value.storage not in self.weight_of:
            operator = self.operators[version.writer]
            if operator.call is not None:
                operator.tensors[self._part(version, value)].kept = True

    def _add_rest(self, whole: Value, version: _Version) -> None:
        """Memory that the producer fills and that nobody looks at: for as long as the producer runs."""
        tensors = self.operators[version.writer].tensors
        if not version.parts:
            tensors.append(_Tensor(whole.name, whole.size_bytes, whole))
        elif None not in version.parts:
            rest = whole.size_bytes - sum(tensors[number].size_bytes for number in version.parts.values())
            if rest > 0:
                tensors.append(_Tensor(f"{whole.name}:rest", rest, None))

    # Building

    def _groups(self) -> list[str]:  # [operator]
        """Who must share a device: for each parameter its gradient and update, for each changed buffer its users."""
        leader = list(range(len(self.operators)))
        names = [""] * len(leader)

        def find(v: int) -> int:
            while leader[v] != v:
                leader[v] = leader[leader[v]]
                v = leader[v]
            return v

        def join(one: int, other: int, name: str) -> None:
            first, second = sorted((find(one), find(other)))
            leader[second] = first
            names[first] = names[first] or names[second] or name

        first_of: dict[int, int] = {}  # weight: its first operator
        for v, operator in enumerate(self.operators):
            if operator.call is not None and (weight := operator.call.parameter) >= 0:
                join(first_of.setdefault(weight, v), v, f"parameter {self.trace.weights[weight].name}")
        for weight, changer, user in self.shared:
            join(changer, user, f"state {self.trace.weights[weight].name}")
        return [names[find(v)] for v in range(len(leader))]

    def _graph(self) -> Graph:
        build = GraphBuilder(self.trace.name)
        ids: list[list[TensorId]] = []
        tensor_names = Names()
        for operator, group in zip(self.operators, self._groups(), strict=True):
            added = self._emit(build, operator, ids, group)
            ids.append([self._emit_tensor(build, added, tensor, tensor_names) for tensor in operator.tensors])
        self._emit_weights(build)
        for index, call in enumerate(self.trace.calls):
            home = self.operator_of[index]
            if home >= 0:
                if call.folded:
                    build.fold(call.name, OperatorId(home))
                for name in call.other_names:
                    build.fold(name, OperatorId(home))
        return build.build(refresh=False)  # what was recorded, no more

    def _emit(
        self, build: GraphBuilder, operator: _Operator, ids: list[list[TensorId]], group: str
    ) -> OperatorId:
        call = operator.call
        if call is None:
            return build.operator(operator.name, kind=INPUT)
        return build.operator(
            operator.name,
            kind=call.kind,
            reads=[ids[producer][number] for producer, number in operator.reads],
            after=[OperatorId(earlier) for earlier in operator.after],
            flops=operator.flops,
            moved_bytes=operator.moved_bytes,
            module=call.module,
            dtype=operator_dtype(call.reads(), call.writes),
            phase=call.phase,
            twin=self._twin(call),
            colocate=group,
        )

    def _twin(self, call: Call) -> str:
        home = self.operator_of[call.twin] if call.twin >= 0 else -1
        return self.operators[home].name if home >= 0 else ""

    def _emit_tensor(
        self, build: GraphBuilder, producer: OperatorId, tensor: _Tensor, names: Names
    ) -> TensorId:
        return build.tensor(
            producer,
            size_bytes=tensor.size_bytes,
            kept=tensor.kept,
            name=names.unique(tensor.name),
            shape=tensor.value.shape if tensor.value else (),
            dtype=tensor.value.dtype if tensor.value else "",
        )

    def _emit_weights(self, build: GraphBuilder) -> None:
        names = Names()
        for w, weight in enumerate(self.trace.weights):
            users = self.users[w] if weight.goes_with < 0 else self._holders(weight)
            if users:
                build.weight(
                    names.unique(weight.name),
                    size_bytes=weight.size_bytes,
                    users=[OperatorId(v) for v in users],
                )

    def _holders(self, weight: Weight) -> list[int]:
        """The operators with which a gradient or the state of an optimiser stays."""
        filled = self.versions[weight.filled_with] if weight.filled_with >= 0 else None
        writer = [filled.writer] if filled is not None and filled.writer >= 0 else []
        return self.trainers[weight.goes_with] or writer or self.users[weight.goes_with]
