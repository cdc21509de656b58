"""What ATen operators do to tensors, from names, shapes and types alone: no torch is needed.

An operator has a kind such as `aten.mm`, without its overload. Here is what its kind says: whether it is a view,
which arguments it writes into and which bytes it moves; `aten_costs` has the FLOPs. Where torch is at hand the
schema of an operator and the storage of its results tell more, and are asked first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stead.readers.common.op_costs import Shape, Simple

DTYPES: dict[str, tuple[str, int]] = {  # name in torch: (name in stead, bits)
    "float64": ("fp64", 64),
    "float32": ("fp32", 32),
    "float16": ("fp16", 16),
    "bfloat16": ("bf16", 16),
    "float8_e4m3fn": ("fp8", 8),
    "float8_e5m2": ("fp8", 8),
    "float8_e4m3fnuz": ("fp8", 8),
    "float8_e5m2fnuz": ("fp8", 8),
    "float8_e8m0fnu": ("fp8", 8),
    "float4_e2m1fn_x2": ("fp4", 8),  # two elements in one
    "int64": ("int64", 64),
    "uint64": ("int64", 64),
    "int32": ("int32", 32),
    "uint32": ("int32", 32),
    "int16": ("int16", 16),
    "uint16": ("int16", 16),
    "int8": ("int8", 8),
    "uint8": ("int8", 8),
    "bool": ("bool", 8),
    "complex32": ("complex32", 32),
    "complex64": ("complex64", 64),
    "complex128": ("complex128", 128),
    "qint8": ("int8", 8),
    "quint8": ("int8", 8),
    "qint32": ("int32", 32),
}
_COMPUTING = frozenset(("fp64", "fp32", "fp16", "bf16", "fp8", "fp4", "int8"))

Region: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""Which elements of a storage a view shows: its offset, and (size, stride) from the widest stride to the narrowest."""


@dataclass(slots=True, eq=False)
class Value:
    """A tensor in a trace: a whole storage, or the part of one that a view shows."""

    name: str
    shape: Shape
    dtype: str  # as stead calls it
    size_bytes: int  # of the elements it shows: a broadcast one counts once
    storage: int
    region: Region | None = None  # None: all of its storage
    bits: int = 32  # of an element
    strides: Sequence[int] = ()  # where they are needed to tell views from copies


Argument: TypeAlias = object
"""A Value, a number, a text, None, or a list of such."""


def short_name(kind: str) -> str:
    """The name of an operator without its library and without the mark of writing in place.

    >>> short_name("aten.add_"), short_name("aten.mm"), short_name("aten.__and__")
    ('add', 'mm', '__and__')
    """
    name = kind.rpartition(".")[2]
    return name[:-1] if is_in_place(kind) else name


def values_in(arguments: object) -> Iterator[Value]:
    """The tensors among arguments, in order."""
    if isinstance(arguments, Value):
        yield arguments
    elif isinstance(arguments, list | tuple):
        for item in arguments:
            yield from values_in(item)
    elif isinstance(arguments, dict):
        for item in arguments.values():
            yield from values_in(item)


def operator_dtype(reads: Sequence[Value], writes: Sequence[Value]) -> str:
    """The type that an operator computes in."""
    for value in (*writes[:1], *reads, *writes):
        if value.dtype in _COMPUTING:
            return value.dtype
    return writes[0].dtype if writes else "fp32"


# Views


def region_of(offset: int, shape: Sequence[int], strides: Sequence[int]) -> Region:
    """The elements that a view shows, the same for every way to look at them.

    >>> region_of(0, (2, 3, 4), (12, 4, 1)) == region_of(0, (4, 6), (1, 4))
    True
    >>> region_of(5, (8, 1, 10), (40, 7, 0))  # every tenth element is the same one
    (5, ((8, 40),))
    """
    wide = sorted(
        ((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1 and stride != 0),
        reverse=True,
    )
    joined: list[tuple[int, int]] = []
    for stride, size in wide:
        if joined and joined[-1][1] == stride * size:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return offset, tuple(joined)


def shown_part(region: Region, bits: int, whole_bytes: int) -> tuple[Region | None, int]:
    """The region of a view and its bytes; None for one that shows all of its storage.

    >>> shown_part(region_of(4, (2, 4), (8, 1)), 32, 64), shown_part(region_of(0, (4, 4), (1, 4)), 32, 64)
    (((4, ((2, 8), (4, 1))), 32), (None, 64))
    """
    size = -(-math.prod(size for size, _ in region[1]) * bits // 8)
    return (None, whole_bytes) if size >= whole_bytes else (region, size)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor whose elements lie one after another.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie one after another in the order of the dimensions.

    >>> is_dense((4, 1, 6), (6, 99, 1)), is_dense((4, 6), (1, 4))
    (True, False)
    """
    pairs = zip(shape, strides, contiguous_strides(shape), strict=True)
    return 0 in shape or all(size == 1 or stride == dense for size, stride, dense in pairs)


def can_view(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> bool:
    """Whether elements laid out like this have another shape without being copied.

    >>> can_view((4, 6), (6, 1), (2, 12)), can_view((4, 6), (1, 4), (24,)), can_view((4, 6), (1, 4), (2, 2, 6))
    (True, False, True)
    """
    if 0 in shape or 0 in target:
        return True
    wanted = [size for size in reversed(target) if size != 1]
    at = 0
    block, expected = 1, -1  # elements of dimensions that follow each other in memory
    dimensions = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    for position, (size, stride) in reversed(list(enumerate(dimensions))):
        if expected not in (-1, stride):
            return False
        block *= size
        expected = stride * size
        if position and dimensions[position - 1][1] == expected:
            continue
        while block > 1 and at < len(wanted) and block % wanted[at] == 0:
            block //= wanted[at]
            at += 1
        if block > 1:
            return False
        expected = -1
    return at == len(wanted)


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


VIEWS = words(
    "_conj _neg_view _reshape_alias _unsafe_view adjoint alias as_strided broadcast_to chunk conj detach diagonal "
    "dsplit expand expand_as hsplit imag lift_fresh lift_fresh_copy linalg_diagonal mH mT matrix_H moveaxis movedim "
    "narrow numpy_T permute positive real resolve_conj resolve_neg select slice split split_with_sizes squeeze "
    "swapaxes swapdims t tensor_split transpose unbind unflatten unfold unsafe_chunk unsafe_split "
    "unsafe_split_with_sizes unsqueeze view view_as view_as_complex view_as_real vsplit"
)
_RESHAPES = words("reshape reshape_as flatten ravel contiguous")
_CASTS = words("to type_as cpu cuda _autocast_to_full_precision _autocast_to_reduced_precision")
_DROPOUTS = words("dropout feature_dropout alpha_dropout feature_alpha_dropout")
ALLOCATIONS = words(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted empty_quantized"
)


def is_view(kind: str, arguments: Sequence[Argument], shape: Shape, dtype: tuple[str, int]) -> bool:
    """Whether an operator shows its first argument in another way; `shape` and `dtype` are those of its result.

    `reshape` and `contiguous` copy only if they must, `to` only if the type changes, `dropout` only in training.
    """
    given = arguments[0] if arguments else None
    if not isinstance(given, Value) or not is_aten(kind):
        return False
    name = short_name(kind)
    if name in VIEWS:
        return True
    if name in _RESHAPES:
        strides = given.strides or contiguous_strides(given.shape)
        if name == "contiguous":
            return is_dense(given.shape, strides)
        return can_view(given.shape, strides, shape)
    if name in _CASTS:
        return dtype == (given.dtype, given.bits)
    return name in _DROPOUTS and len(arguments) > 2 and arguments[2] is False


def is_allocation(kind: str) -> bool:
    """Whether an operator gives memory without anything in it."""
    return is_aten(kind) and short_name(kind) in ALLOCATIONS


def is_aten(kind: str) -> bool:
    """Whether an operator is one of torch itself."""
    return kind.startswith("aten.")


# Writing in place


_OVERWRITING = words(
    "copy fill zero normal uniform bernoulli random exponential geometric cauchy log_normal set resize"
)
_SCATTERING = words(
    "index_put _index_put_impl _unsafe_index_put index_copy index_add index_fill scatter scatter_add scatter_reduce "
    "masked_scatter put"
)
BATCH_NORMS = words(
    "native_batch_norm batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit "
    "_batch_norm_with_update _batch_norm_impl_index instance_norm"
)


def is_in_place(kind: str) -> bool:
    """Whether the name says that the first argument is written into.

    >>> is_in_place("aten.add_"), is_in_place("aten.add"), is_in_place("aten.__and__")
    (True, False, False)
    """
    return kind.endswith("_") and not kind.endswith("__")


def overwrites(kind: str) -> bool:
    """Whether an operator that writes into its first argument does not look at what was there."""
    return is_in_place(kind) and short_name(kind) in _OVERWRITING


def written_arguments(kind: str, arguments: Sequence[Argument]) -> list[Value]:
    """Tensors that an operator writes into, as far as its name tells; schemas know more."""
    written: list[Value] = []
    if is_in_place(kind) and arguments:
        written.extend(values_in(arguments[0]))
    return [*written, *updated_statistics(kind, arguments)]


def updated_statistics(kind: str, arguments: Sequence[Argument]) -> list[Value]:
    """Running mean and variance that a batch normalisation changes in training; some schemas do not tell."""
    if short_name(kind) in BATCH_NORMS and len(arguments) > 5 and arguments[5] is True:
        return [value for value in arguments[3:5] if isinstance(value, Value)]
    return []


# Bytes


def moved_bytes(
    kind: str, price: Simple, reads: Sequence[Value], writes: Sequence[Value], written: Sequence[Value]
) -> float:
    """Bytes that an operator reads and writes; `written` are arguments that it writes into.

    What is picked out of a large tensor, or put into one, counts instead of the large one.
    """
    name = short_name(kind)
    into = {id(value): value for value in written}
    fresh = sum(value.size_bytes for value in writes if value.storage not in {one.storage for one in written})
    if name in _SCATTERING and into:
        others = sum(value.size_bytes for value in _distinct(reads) if id(value) not in into)
        return 2.0 * others
    sizes = [value.size_bytes for value in _distinct(reads) if not (id(value) in into and overwrites(kind))]
    put = sum(value.size_bytes for value in into.values())
    if price.picks and sizes:
        sizes[0] = min(sizes[0], fresh + put)
    return float(fresh + put + sum(sizes))


def _distinct(values: Sequence[Value]) -> list[Value]:
    """The values without those that show the same elements as an earlier one."""
    return list({(value.storage, value.region): value for value in reversed(values)}.values())[::-1]
