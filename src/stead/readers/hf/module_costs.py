"""Sketch: the forward pass of a model, written down module by module with what each one costs.

Notation    B batch, Q tokens computed for each sequence, K tokens looked at, H heads
    activations   [B, Q, width], one tensor per operator; rows are tokens
    weights       by the names that transformers gives to parameters, so that sizes and places can be compared

An operator moves its weights once, what it keeps in caches, and the activations it reads and writes. Parts that do
not run in a step, such as the encoder while the decoder writes, are idle: their weights need a place, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from stead.errors import BadInput
from stead.graph import BUFFER, KV_CACHE, Graph, GraphBuilder, OperatorId, TensorId
from stead.graph.kernels import Kernel
from stead.readers.common.op_costs import (
    FUNCTION_FLOPS,
    Shape,
    attention,
    convolution,
    matmul,
    normalisation,
    simple,
)
from stead.readers.hf.step import Step, Types

MAX_OPERATORS = 2**16
ROTATION_FLOPS = 3.0  # per element of queries and keys: two products and a sum

_KINDS = {
    "silu": "SiLU", "swish": "SiLU", "gelu": "GELU", "gelu_new": "GELU", "gelu_fast": "GELU", "relu": "ReLU",
    "gelu_pytorch_tanh": "GELU", "gelu_python": "GELU", "gelu_accurate": "GELU", "quick_gelu": "QuickGELU",
    "tanh": "Tanh", "sigmoid": "Sigmoid", "linear": "Identity",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Act:
    """The result of an operator."""

    producer: int
    shape: Shape

    @property
    def width(self) -> int:
        """Elements of one row."""
        return self.shape[-1]

    @property
    def elements(self) -> int:
        """Elements of all rows."""
        return math.prod(self.shape)


@dataclass(slots=True)
class Parameter:
    """Bytes that transformers loads, and who uses them."""

    size_bytes: int
    users: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Part:
    """One operator on its way into a graph."""

    name: str
    kind: str
    module: str
    reads: tuple[Act, ...]
    writes: Act
    size_bytes: int  # of what it writes
    flops: float  # without what comes then
    weight_bytes: float  # of its weights that one step reads
    cache_bytes: float  # read from caches, or written into them
    parameters: tuple[str, ...]
    forgets: bool  # going backward does not need what it read
    idle: bool
    share: float = 1.0  # of its weights that one step reads
    launches: float = 1.0  # to expect
    activation_bytes: float | None = None  # read and written, where that is not all it reads and writes
    then: Kernel | None = None  # what the same operator runs next
    kept: bool = False

    @property
    def work(self) -> float:
        """Arithmetic of everything it runs."""
        return self.flops + (self.then.flops if self.then is not None else 0.0)

    @property
    def is_one_kernel(self) -> bool:
        """Whether it runs one kernel, and surely."""
        return self.then is None and self.launches == 1.0


class Sketch:
    """Operators in the order in which they run."""

    def __init__(
        self,
        name: str,
        step: Step,
        stored: Callable[[str, Types], int | None] | None = None,
        *,
        where: str = "",
    ) -> None:
        self.name = name
        self.where = where or name  # the file, as messages show it
        self.step = step
        self.parts: list[Part] = []
        self.parameters: dict[str, Parameter] = {}
        self.caches: dict[str, tuple[int, int]] = {}  # bytes and operator
        self.buffers: dict[str, tuple[int, int]] = {}  # the same of what is neither trained nor cached
        self.folded: dict[str, int] = {}  # module without an operator of its own: the one it goes with
        self.matched = 0  # parameters whose bytes the files of the model tell
        self._stored = stored
        self._idle = False

    @contextmanager
    def idle(self, idle: bool = True) -> Iterator[None]:
        """Operators added meanwhile do not run in this step."""
        before, self._idle = self._idle, self._idle or idle
        try:
            yield
        finally:
            self._idle = before

    def tokens(self, count: int, width: int) -> Shape:
        """The shape of so many rows for each sequence."""
        return self.step.batch, count, width

    def check_room(self, count: int) -> None:
        """Refuse to grow without end."""
        if len(self.parts) + count > MAX_OPERATORS:
            raise BadInput(
                f"{self.where}: more than {MAX_OPERATORS} operators; are the numbers of layers and experts right?"
            )

    # Building blocks

    def operator(
        self,
        name: str,
        kind: str,
        reads: Sequence[Act],
        shape: Shape,
        *,
        module: str | None = None,
        flops: float = 0.0,
        parameters: Sequence[str] = (),
        share: float = 1.0,  # of the bytes of its weights that one step reads
        cache_bytes: float = 0.0,
        forgets: bool = False,
        size_bytes: int | None = None,
        launches: float = 1.0,
        activation_bytes: float | None = None,
        then: Kernel | None = None,
    ) -> Act:
        """Add any operator; its result."""
        self.check_room(1)
        number = len(self.parts)
        result = Act(number, shape)
        size = result.elements * self.step.types.compute_bytes if size_bytes is None else size_bytes
        for parameter in parameters:
            self.parameters[parameter].users.append(number)
        used = sum(self.parameters[parameter].size_bytes for parameter in parameters)
        self.parts.append(
            Part(
                name, kind, name if module is None else module, tuple(reads), result, size, float(flops),
                share * used, cache_bytes, tuple(parameters), forgets, self._idle, share, launches,
                activation_bytes, then,
            )
        )  # fmt: skip
        return result

    def parameter(self, name: str, *shape: int, pieces: Iterable[str] = ()) -> str:
        """Declare a parameter, or use one again; files may hold it in equal `pieces`, as many as its first size."""
        if name not in self.parameters:
            size = self._size_in_files(name, shape, pieces)
            self.matched += size is not None
            self.parameters[name] = Parameter(
                self.step.types.weight_bytes(math.prod(shape)) if size is None else size
            )
        return name

    def buffer(self, name: str, elements: int, user: Act) -> None:
        """Declare what an operator holds beside its parameters."""
        self.buffers[f"{name}{BUFFER}"] = (self.step.types.weight_bytes(elements), user.producer)

    def _size_in_files(self, name: str, shape: Shape, pieces: Iterable[str]) -> int | None:
        if self._stored is None:
            return None
        whole = self._stored(name, self.step.types)
        if whole is not None:
            return whole
        found = [self._stored(piece, self.step.types) for piece in pieces]
        if not any(found):
            return None
        each = self.step.types.weight_bytes(math.prod(shape[1:]))
        return sum(each if size is None else size for size in found)

    def linear(
        self,
        path: str,
        x: Act,
        width: int,
        *,
        bias: bool | str = True,
        tied: str = "",
        rows: Shape | None = None,
    ) -> Act:
        """A matrix product with a weight [width, width of x], for all rows or for `rows` of them.

        `tied` names the weight of another module that it uses; `bias` may be the name of one.
        """
        weight = self.parameter(tied or f"{path}.weight", width, x.width)
        biases = [self.parameter(bias if isinstance(bias, str) else f"{path}.bias", width)] if bias else []
        shape = (*(x.shape[:-1] if rows is None else rows), width)
        flops = matmul(shape, x.width) + (math.prod(shape) if bias else 0)
        return self.operator(path, "Linear", (x,), shape, flops=flops, parameters=(weight, *biases))

    def norm(
        self, path: str, x: Act, *, bias: bool, width: int | None = None, rows: Shape | None = None
    ) -> Act:
        """A layer normalisation, or without bias a normalisation by the root of the mean square."""
        kinds = ("weight", "bias") if bias else ("weight",)
        names = [self.parameter(f"{path}.{kind}", width or x.width) for kind in kinds]
        shape = (*(x.shape[:-1] if rows is None else rows), x.width)
        kind = "LayerNorm" if bias else "RMSNorm"
        flops = normalisation(shape, parameters=len(names))
        return self.operator(path, kind, (x,), shape, flops=flops, parameters=names)

    def embedding(
        self, path: str, entries: int, width: int, count: int, *, added_to: Act | None = None, tied: str = ""
    ) -> Act:
        """One row of a table for each of `count` tokens, added to another tensor if there is one."""
        weight = self.parameter(tied or f"{path}.weight", entries, width)
        shape = self.tokens(count, width)
        reads = () if added_to is None else (added_to,)
        # Rows are read as activations are: they are few, and every sequence has its own.
        flops = float(math.prod(shape)) if reads else 0.0
        return self.operator(
            path, "Embedding", reads, shape, flops=flops, parameters=(weight,), share=0.0, forgets=True
        )

    def activation(
        self, path: str, function: str, x: Act, *, gate: Act | None = None, module: str = ""
    ) -> Act:
        """A function of each element, times another tensor if there is one."""
        return self.function(
            path, function, (x,) if gate is None else (gate, x), x.shape, module=module or path
        )

    def function(self, name: str, function: str, reads: Sequence[Act], shape: Shape, *, module: str) -> Act:
        """A function of each element of the first tensor, times the others."""
        kind = _KINDS.get(function, function)
        flops = (function_flops(function) + len(reads) - 1) * math.prod(shape)
        return self.operator(name, kind, reads, shape, module=module, flops=flops)

    def add(self, name: str, *terms: Act, module: str) -> Act:
        """A sum."""
        flops = float((len(terms) - 1) * terms[0].elements)
        return self.operator(name, "Add", terms, terms[0].shape, module=module, flops=flops, forgets=True)

    def convolution(self, path: str, x: Sequence[Act], shape: Shape, kernel: Shape, *, bias: bool) -> Act:
        """A convolution with a kernel [channels out, channels in, *window]; shape is [B, rows, channels out]."""
        weight = self.parameter(f"{path}.weight", *kernel)
        biases = [self.parameter(f"{path}.bias", kernel[0])] if bias else []
        flops = convolution(shape, kernel) + (math.prod(shape) if bias else 0)
        return self.operator(path, "Convolution", x, shape, flops=flops, parameters=(weight, *biases))

    def attention(
        self,
        path: str,
        reads: Sequence[Act],
        *,
        heads: int,
        shared: int,
        width: int,  # of one head
        queries: int,
        keys: int,
        cached: int = 0,  # tokens of each sequence in the cache
        kept_width: int | None = None,  # elements a token leaves there; None: its keys and values
        value_width: int | None = None,  # of one head, where values are not as wide as keys
        rotates: bool = False,
        parameters: Sequence[str] = (),
    ) -> Act:
        """Scores, softmax and mixing of values, with the cache of keys and values beside it."""
        step = self.step
        values = width if value_width is None else value_width
        flops = attention(step.batch * heads, queries, keys, width, values)
        if rotates:
            flops += ROTATION_FLOPS * step.batch * queries * (heads + shared) * width
        kept = shared * (width + values) if kept_width is None else kept_width
        token_bytes = step.batch * kept * step.types.compute_bytes
        name = f"{path}.{KV_CACHE}"
        if cached and not self._idle:
            self.caches[name] = (cached * token_bytes, len(self.parts))
        return self.operator(
            path,
            "Attention",
            reads,
            self.tokens(queries, heads * values),
            flops=flops,
            cache_bytes=float(cached * token_bytes),
            parameters=parameters,
        )

    def fold(self, module: str, into: Act) -> None:
        """Remember a module that has no operator of its own."""
        self.folded[module] = into.producer

    def keep(self, result: Act) -> None:
        """Mark what the model returns."""
        self.parts[result.producer].kept = True

    # Results

    @property
    def parameter_bytes(self) -> int:
        """Of all parameters, tied ones once."""
        return sum(parameter.size_bytes for parameter in self.parameters.values())

    def kernels(self, part: Part) -> list[Kernel]:
        """What an operator runs in one step."""
        if part.idle:
            return []
        own = [Kernel(part.flops, self._first_bytes(part), part.launches)]
        if part.then is not None:
            own.append(part.then if self.step.traffic == "all" else part.then._replace(moved_bytes=0.0))
        return own

    def moved_bytes(self, part: Part) -> float:
        """Bytes that an operator reads and writes in one step."""
        return sum(kernel.moved_bytes for kernel in self.kernels(part))

    def _first_bytes(self, part: Part) -> float:
        activations = 0.0
        if self.step.traffic == "all" and part.activation_bytes is not None:
            return part.weight_bytes + part.cache_bytes + part.activation_bytes
        if self.step.traffic == "all":
            looked_up = part.size_bytes if part.kind == "Embedding" else 0
            activations = (
                part.size_bytes + looked_up + sum(self.parts[act.producer].size_bytes for act in part.reads)
            )
        return part.weight_bytes + part.cache_bytes + activations

    def live_reads(self, part: Part) -> list[Act]:
        """What an operator reads from operators that run in the same step; each once."""
        if part.idle:
            return []
        return [act for act in dict.fromkeys(part.reads) if not self.parts[act.producer].idle]

    def graph(self) -> Graph:
        """The graph of an inference step."""
        build = GraphBuilder(self.name)
        tensors: list[TensorId | None] = []
        for part in self.parts:
            reads = [tensors[act.producer] for act in self.live_reads(part)]
            added = build.operator(
                part.name,
                kind=part.kind,
                reads=[tensor for tensor in reads if tensor is not None],
                flops=0.0 if part.idle else part.work,
                moved_bytes=self.moved_bytes(part),
                module=part.module,
                dtype=self.step.types.compute,
                kernels=() if part.is_one_kernel else self.kernels(part),
            )
            tensors.append(None if part.idle else self.emit_tensor(build, added, part))
        self.emit_weights(build)
        return build.build()

    def emit_tensor(self, build: GraphBuilder, producer: OperatorId, part: Part) -> TensorId:
        """Add the result of an operator to a graph."""
        return build.tensor(
            producer,
            size_bytes=part.size_bytes,
            kept=part.kept,
            shape=part.writes.shape,
            dtype=self.step.types.compute,
        )

    def emit_weights(
        self, build: GraphBuilder, more_users: Mapping[str, Sequence[OperatorId]] = MappingProxyType({})
    ) -> None:
        """Add parameters and caches to a graph whose first operators are those of the sketch."""
        for name, parameter in self.parameters.items():
            users = [*(OperatorId(v) for v in parameter.users), *more_users.get(name, ())]
            build.weight(name, size_bytes=parameter.size_bytes, users=users)
        for name, (size, user) in {**self.caches, **self.buffers}.items():
            build.weight(name, size_bytes=size, users=[OperatorId(user)])
        for module, operator in self.folded.items():
            build.fold(module, OperatorId(operator))


def function_flops(function: str) -> float:
    """FLOPs for one element.

    >>> function_flops("relu"), function_flops("gelu_new")
    (1.0, 8.0)
    """
    word = _KINDS.get(function, function)
    known = simple(word, [(1,)], [(1,)])
    return known.flops if known.known else FUNCTION_FLOPS
