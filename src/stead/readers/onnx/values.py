"""Numbers of short constants, computed as far as shapes may depend on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stead.readers.common.op_costs import Shape, elements
from stead.readers.onnx.file import ELEMENT_TYPES, MAX_CONTENT, TensorData
from stead.readers.onnx.site import Site, Unclear, constant_data

Array: TypeAlias = NDArray[Any]


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
    except (
        Unclear,
        ValueError,
        IndexError,
        OverflowError,
        TypeError,
        KeyError,
        ZeroDivisionError,
        AttributeError,
    ):
        return unknown


def _all(site: Site) -> list[Array]:
    return [site.content(i) for i in range(len(site.inputs)) if site.has(i)]


def _of(function: Callable[..., Any]) -> Callable[[Site, Sequence[Shape]], list[Any]]:
    return lambda site, shapes: [function(*_all(site))]


def _reshaped(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [site.content(0).reshape(shapes[0])]


def _constant(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [constant_data(site.node).content]


def _shape(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    start, end = site.node.attributes.get("start", 0), site.node.attributes.get("end")
    return [np.array(site.shape(0)[slice(start, end)], dtype=np.int64)]


def _size(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [np.array(elements(site.shape(0)), dtype=np.int64)]


def _gather(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [np.take(site.content(0), site.content(1), axis=site.node.integer("axis", 0))]


def _concat(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [np.concatenate(_all(site), axis=site.node.integer("axis", 0))]


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


def _expand(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [np.broadcast_to(site.content(0), shapes[0])]


def _tile(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [np.tile(site.content(0), site.content(1).tolist())]


def _transpose(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [np.transpose(site.content(0), site.node.integers("perm") or None)]


def _reduced(function: Callable[..., Any]) -> Callable[[Site, Sequence[Shape]], list[Any]]:
    def compute(site: Site, shapes: Sequence[Shape]) -> list[Any]:
        axes = tuple(site.numbers(1, "axes")) or None
        return [function(site.content(0), axis=axes)]

    return compute


def _non_zero(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [np.array(np.nonzero(np.atleast_1d(site.content(0))))]


def _scatter_nd(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    data = site.content(0).copy()
    indices = site.content(1)
    data[tuple(np.moveaxis(indices, -1, 0))] = site.content(2)
    return [data]


def _where(site: Site, shapes: Sequence[Shape]) -> list[Any]:
    return [np.where(site.content(0), site.content(1), site.content(2))]


_COMPUTE: dict[str, Callable[[Site, Sequence[Shape]], list[Any]]] = {
    **dict.fromkeys(
        ["Identity", "Cast", "CastLike", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout"], _reshaped
    ),
    "Constant": _constant,
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Concat": _concat,
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
    "Where": _where,
    "Range": _range,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Tile": _tile,
    "Transpose": _transpose,
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "ReduceMin": _reduced(np.min),
    "ReduceMax": _reduced(np.max),
    "NonZero": _non_zero,
    "ScatterND": _scatter_nd,
}
