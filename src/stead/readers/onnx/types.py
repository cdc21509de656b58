"""Element types of the results of ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stead.readers.common.op_costs import words
from stead.readers.onnx.file import BOOL, ELEMENT_TYPES, FLOAT, INT64, TensorData
from stead.readers.onnx.site import Site, constant_data

UINT8, INT32 = 2, 6


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
