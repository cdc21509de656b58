"""Graph: the operators of a model, the tensors between them and the weights they hold.

Tensors, not edges: a tensor has one producer and any number of readers, so that a tensor read twice on one device
is sent there once. A weight may have several users (tied weights) and is resident once on every device that hosts one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadGraph, did_you_mean
from stead.graph.kernels import Kernel, Kernels, kernels_or_one, starts_of

Phase = Literal["forward", "backward", "update"]
PHASES: tuple[Phase, ...] = get_args(Phase)
FORWARD, BACKWARD, UPDATE = range(len(PHASES))
MAX_OPERATORS = 2**24
MAX_BYTES = 2**62
KV_CACHE = "kv_cache"  # how names of weights end that are caches of keys and values
BUFFER = ".buffer"  # that a model holds beside its parameters
NOT_PARAMETERS = (KV_CACHE, BUFFER, ".gradients", ".grad", ".moments", ".exp_avg", ".exp_avg_sq")  # all that are none


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
    def tensor_of_read(self) -> NDArray[np.int64]:  # [read]
        """The tensor that each entry of `readers` reads."""
        return _frozen(np.repeat(np.arange(self.tensor_count), np.diff(self.reader_first)))

    @cached_property
    def _reads(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Tensors read by each operator, as (first [operator + 1], tensor)."""
        tensor = np.repeat(np.arange(self.tensor_count, dtype=np.int32), np.diff(self.reader_first))
        by_reader = np.argsort(self.readers, kind="stable")
        first = starts_of(np.bincount(self.readers, minlength=len(self)))
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
        pairs = np.stack([self.tensor_producer[self.tensor_of_read], self.readers], axis=1)
        return _frozen(np.unique(pairs, axis=0).astype(np.int32).reshape(-1, 2))

    @cached_property
    def weight_of_use(self) -> NDArray[np.int64]:  # [use]
        """The weight that each entry of `weight_users` uses."""
        return _frozen(np.repeat(np.arange(len(self.weight_bytes)), np.diff(self.weight_user_first)))

    @cached_property
    def parameter_bytes(self) -> NDArray[np.int64]:  # [operator]
        """Bytes of the weights each operator uses; a shared weight counts in full for each of its users."""
        total = np.zeros(len(self), dtype=np.int64)
        np.add.at(total, self.weight_users, self.weight_bytes[self.weight_of_use])
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


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
