"""Results of ONNX operators beside their shapes: element types, and numbers of short constants that shapes may need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stead.readers.common.op_costs import Shape, elements, words
from stead.readers.onnx.file import BOOL, ELEMENT_TYPES, FLOAT, INT32, INT64, MAX_CONTENT, TensorData
from stead.readers.onnx.site import Site, Unclear, constant_data

Array: TypeAlias = NDArray[Any]
UINT8 = 2


# Types


def element_types(site: Site) -> list[int]:
    """Element types of the results, 0 where nobody knows."""
    node = site.node
    given = [one.element_type for one in site.inputs if one is not None]
    first = given[0] if given else FLOAT
    special = _TYPES.get(node.kind)
    found = special(site, first) if special else [first]
    return [code if code in ELEMENT_TYPES else 0 for code in _padded(found, len(node.outputs), first)]


def _padded(found: Sequence[int], count: int, default: int) -> Iterable[int]:
    return (*found, *(default,) * (count - len(found)))


def _type_at(position: int, default: int = 0) -> Callable[[Site, int], list[int]]:
    return lambda site, first: [site.known(position).element_type if site.has(position) else default or first]


def _type_named(attribute: str, default: int = 0) -> Callable[[Site, int], list[int]]:
    return lambda site, first: [site.node.integer(attribute, default or first)]


def _type_of_constant(site: Site, first: int) -> list[int]:
    return [constant_data(site.node).element_type]


def _type_of_filled(site: Site, first: int) -> list[int]:
    value = site.node.attributes.get("value")
    return [value.element_type if isinstance(value, TensorData) else FLOAT]


def _type_of_quantised(site: Site, first: int) -> list[int]:
    if code := site.node.integer("output_dtype", 0):
        return [code]
    return [site.known(2).element_type if site.has(2) else UINT8]


def _always(*codes: int) -> Callable[[Site, int], list[int]]:
    return lambda site, first: list(codes)


_TYPES: dict[str, Callable[[Site, int], list[int]]] = {
    **dict.fromkeys(
        words("Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor Not IsNaN IsInf OptionalHasElement"),
        _always(BOOL),
    ),
    **dict.fromkeys(
        words("Shape Size ArgMax ArgMin NonZero NonMaxSuppression SequenceLength"), _always(INT64)
    ),
    **dict.fromkeys(words("ConvInteger MatMulInteger"), _always(INT32)),
    **dict.fromkeys(words("MatMulIntegerToFloat DynamicQuantizeMatMul"), _always(FLOAT)),
    **dict.fromkeys(words("TopK MaxPool"), lambda site, first: [first, INT64]),
    "Unique": lambda site, first: [first, INT64, INT64, INT64],
    "Dropout": lambda site, first: [first, BOOL],
    **dict.fromkeys(
        words("LayerNormalization SimplifiedLayerNormalization"), lambda site, first: [first, FLOAT, FLOAT]
    ),
    "DynamicQuantizeLinear": _always(UINT8, FLOAT, UINT8),
    **dict.fromkeys(words("Cast BitCast"), _type_named("to")),
    "CastLike": _type_at(1),
    "Where": _type_at(1),
    "OneHot": _type_at(2),
    "EmbedLayerNormalization": _type_at(2),
    "GatherBlockQuantized": _type_at(2),
    "DequantizeLinear": _type_at(1),
    "QuantizeLinear": _type_of_quantised,
    "QLinearConv": _type_at(7),
    "QLinearMatMul": _type_at(7),
    "Constant": _type_of_constant,
    "ConstantOfShape": _type_of_filled,
    "Multinomial": _type_named("dtype", INT32),
    **dict.fromkeys(words("RandomNormal RandomUniform"), _type_named("dtype", FLOAT)),
    **dict.fromkeys(words("RandomNormalLike RandomUniformLike EyeLike Bernoulli"), _type_named("dtype")),
    **dict.fromkeys(
        words("HannWindow HammingWindow BlackmanWindow MelWeightMatrix"),
        _type_named("output_datatype", FLOAT),
    ),
}


# Numbers

def contents(site: Site, shapes: Sequence[Shape], codes: Sequence[int]) -> list[Array | None]:
    """Numbers of the results, None where they are unknown, many, or of no use for shapes."""
    unknown: list[Array | None] = [None] * len(shapes)
    compute = _COMPUTE.get(site.node.kind)
    if compute is None or any(elements(shape) > MAX_CONTENT for shape in shapes):
        return unknown
    if any(not ELEMENT_TYPES[code].numpy for code in codes if code):
        return unknown
    try:
        with np.errstate(all="ignore"):
            found = compute(site, shapes)
            return [
                np.asarray(array).astype(ELEMENT_TYPES[code].numpy).reshape(shape)
                for array, shape, code in zip(found, shapes, codes, strict=False)
            ] + [None] * (len(shapes) - len(found))
    except (Unclear, ValueError, LookupError, ArithmeticError, TypeError, AttributeError):
        return unknown


def _all(site: Site) -> list[Array]:
    return [site.content(i) for i in range(len(site.inputs)) if site.has(i)]


def _of(function: Callable[..., Any]) -> Callable[[Site, Sequence[Shape]], list[Any]]:
    return lambda site, shapes: [function(*_all(site))]


def _shape(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    start, end = site.node.attributes.get("start", 0), site.node.attributes.get("end")
    return [np.array(site.shape(0)[slice(start, end)], dtype=np.int64)]


def _slice(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    data = site.content(0)
    starts, ends = site.numbers(1, "starts"), site.numbers(2, "ends")
    axes = site.numbers(3, "axes") or list(range(len(starts)))
    steps = site.numbers(4, "steps") or [1] * len(starts)
    cut = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        low = start if start >= -data.shape[axis] else None
        high = end if end >= -data.shape[axis] else None
        cut[axis] = slice(low, high, step)
    return [data[tuple(cut)]]


def _split(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    data, axis = site.content(0), site.node.integer("axis", 0)
    ends = np.cumsum([shape[axis] for shape in shapes])[:-1]
    return list(np.split(data, ends, axis=axis))


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        if not b.all():
            raise Unclear
        return np.trunc(a / b)
    quotient: Array = np.true_divide(a, b)
    return quotient


def _modulo(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    a, b = _all(site)
    return [np.fmod(a, b) if site.node.integer("fmod", 0) else np.mod(a, b)]


def _range(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    start, _, delta = (site.content(i).reshape(-1)[0] for i in range(3))
    return [start + delta * np.arange(shapes[0][0])]


def _filled(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    value = site.node.attributes.get("value")
    if isinstance(value, TensorData):
        if value.content is None:
            raise Unclear
        return [np.full(shapes[0], value.content.reshape(-1)[0])]
    return [np.zeros(shapes[0])]


def _reduced(function: Callable[..., Any]) -> Callable[[Site, Sequence[Shape]], list[Any]]:
    def compute(site: Site, shapes: Sequence[Shape]) -> list[Any]:
        axes = tuple(site.numbers(1, "axes")) or None
        return [function(site.content(0), axis=axes)]

    return compute


def _scatter_nd(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    data = site.content(0).copy()
    indices = site.content(1)
    data[tuple(np.moveaxis(indices, -1, 0))] = site.content(2)
    return [data]


_COMPUTE: dict[str, Callable[[Site, Sequence[Shape]], list[Any]]] = {
    **dict.fromkeys(
        words("Identity Cast CastLike Reshape Flatten Squeeze Unsqueeze Dropout"),
        lambda site, shapes: [site.content(0).reshape(shapes[0])],
    ),
    "Constant": lambda site, shapes: [constant_data(site.node).content],
    "Shape": _shape,
    "Size": lambda site, shapes: [np.array(elements(site.shape(0)), dtype=np.int64)],
    "Gather": lambda site, shapes: [np.take(site.content(0), site.content(1), axis=site.node.integer("axis", 0))],
    "Concat": lambda site, shapes: [np.concatenate(_all(site), axis=site.node.integer("axis", 0))],
    "Slice": _slice,
    "Split": _split,
    "Add": _of(np.add),
    "Sub": _of(np.subtract),
    "Mul": _of(np.multiply),
    "Div": _of(_divide),
    "Mod": _modulo,
    "Neg": _of(np.negative),
    "Abs": _of(np.abs),
    "Floor": _of(np.floor),
    "Ceil": _of(np.ceil),
    "Relu": _of(lambda array: np.maximum(array, 0)),
    "Round": _of(np.round),
    "Sqrt": _of(np.sqrt),
    "Pow": _of(np.power),
    "Min": _of(lambda *arrays: np.minimum.reduce(np.broadcast_arrays(*arrays))),
    "Max": _of(lambda *arrays: np.maximum.reduce(np.broadcast_arrays(*arrays))),
    "Equal": _of(np.equal),
    "Greater": _of(np.greater),
    "GreaterOrEqual": _of(np.greater_equal),
    "Less": _of(np.less),
    "LessOrEqual": _of(np.less_equal),
    "And": _of(np.logical_and),
    "Or": _of(np.logical_or),
    "Not": _of(np.logical_not),
    "Where": lambda site, shapes: [np.where(site.content(0), site.content(1), site.content(2))],
    "Range": _range,
    "ConstantOfShape": _filled,
    "Expand": lambda site, shapes: [np.broadcast_to(site.content(0), shapes[0])],
    "Tile": lambda site, shapes: [np.tile(site.content(0), site.content(1).tolist())],
    "Transpose": lambda site, shapes: [np.transpose(site.content(0), site.node.integers("perm") or None)],
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "ReduceMin": _reduced(np.min),
    "ReduceMax": _reduced(np.max),
    "NonZero": lambda site, shapes: [np.array(np.nonzero(np.atleast_1d(site.content(0))))],
    "ScatterND": _scatter_nd,
}
