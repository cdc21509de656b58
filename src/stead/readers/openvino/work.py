"""What OpenVINO operations cost, and which of them are views, settings or bias additions."""

from __future__ import annotations

from collections.abc import Callable

from stead.readers.common.file_nodes import Joins, joins_as
from stead.readers.common.op_costs import (
    GRU_GATES,
    LSTM_GATES,
    RNN_GATES,
    Shape,
    Simple,
    attention,
    convolution,
    einsum,
    elements,
    matmul,
    normalisation,
    pooling,
    recurrent,
    simple,
    transposed_convolution,
    words,
)
from stead.readers.openvino.file import Layer

# Bits and the name that stead gives to an element type, by the words of layers and of ports.
ELEMENT_TYPES: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("f64", "fp64"), ("fp64", 64)),
    **dict.fromkeys(("f32", "fp32"), ("fp32", 32)),
    **dict.fromkeys(("f16", "fp16"), ("fp16", 16)),
    "bf16": ("bf16", 16),
    **dict.fromkeys(("f8e4m3", "f8e5m2", "f8e8m0"), ("fp8", 8)),
    **dict.fromkeys(("f4e2m1", "nf4"), ("fp4", 4)),
    **dict.fromkeys(("i64", "u64"), ("int64", 64)),
    **dict.fromkeys(("i32", "u32"), ("int32", 32)),
    **dict.fromkeys(("i16", "u16"), ("int16", 16)),
    **dict.fromkeys(("i8", "u8"), ("int8", 8)),
    **dict.fromkeys(("i4", "u4"), ("int4", 4)),
    **dict.fromkeys(("boolean", "bool"), ("bool", 8)),
    "u6": ("int8", 6),
    "u3": ("int4", 3),
    "u2": ("int2", 2),
    **dict.fromkeys(("u1", "bin"), ("bool", 1)),
    "string": ("string", 128),
}
UNKNOWN_TYPE = ("", 32)

_VIEWS = frozenset(words("Reshape Squeeze Unsqueeze Transpose Identity"))
_VIEWS_OF_SAME_SHAPE = frozenset(words("Broadcast Tile Pad StridedSlice Slice Concat"))
_ANCHORS = frozenset(
    words(
        "Convolution GroupConvolution BinaryConvolution DeformableConvolution ConvolutionBackpropData "
        "GroupConvolutionBackpropData MVN GroupNormalization"
    )
)
_AFFINE = frozenset(words("Add Subtract Multiply Divide BatchNormInference"))
IMPURE = frozenset(words("RandomUniform Multinomial ReadValue Assign"))

ASIDE: dict[str, frozenset[int]] = {
    kind: frozenset(positions)
    for kind, positions in {
        "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Transpose": (1,), "Broadcast": (1, 2), "Tile": (1,),
        "Pad": (1, 2, 3), "StridedSlice": (1, 2, 3), "Slice": (1, 2, 3, 4), "Split": (1,), "VariadicSplit": (1, 2),
        "Gather": (2,), "Interpolate": (1, 2, 3), "TopK": (1,), "MVN": (1,), "CumSum": (1,), "OneHot": (1, 2, 3),
        "Range": (0, 1, 2), "NonMaxSuppression": (2, 3, 4, 5), "NormalizeL2": (1,), "FakeQuantize": (1, 2, 3, 4),
        "Roll": (1, 2), "RandomUniform": (0, 1, 2), "Eye": (0, 1, 2, 3), "AdaptiveAvgPool": (1,),
        "AdaptiveMaxPool": (1,), "ConvolutionBackpropData": (2,), "GroupConvolutionBackpropData": (2,),
        "LSTMSequence": (3,), "GRUSequence": (2,), "RNNSequence": (2,), "ReverseSequence": (1,), "Loop": (0, 1),
        "If": (0,), "ScatterUpdate": (3,), "ScatterElementsUpdate": (3,), "Swish": (1,),
        **{f"Reduce{name}": (1,) for name in words("L1 L2 LogicalAnd LogicalOr Max Mean Min Prod Sum")},
    }.items()
}  # fmt: skip


def element_type(word: str) -> tuple[str, int]:
    """What stead calls an element type, and its bits."""
    return ELEMENT_TYPES.get(word.strip().lower(), UNKNOWN_TYPE)


def is_view(layer: Layer) -> bool:
    """Whether a layer only looks at its first operand in another way."""
    if not layer.inputs or len(layer.outputs) != 1:
        return False
    if layer.kind in _VIEWS:
        return True
    given, made = layer.inputs[0], layer.outputs[0]
    if layer.kind == "Convert":
        return bool(given.precision) and given.precision.lower() == made.precision.lower()
    if layer.kind == "Concat" and len(layer.inputs) > 1:
        return False
    if layer.kind in ("StridedSlice", "Slice"):
        return False  # its steps may be negative, and are in the .bin file
    return layer.kind in _VIEWS_OF_SAME_SHAPE and given.shape == made.shape


def joins(kind: str) -> Joins:
    """How a kind may become part of a unit."""
    return joins_as(kind, _ANCHORS, {"MatMul"}, _AFFINE)


def cost(layer: Layer) -> Simple:
    """FLOPs of a layer whose shapes are known."""
    formula = _FORMULAS.get(layer.kind)
    if formula is not None:
        try:
            return Simple(formula(layer))
        except (IndexError, ZeroDivisionError, OverflowError, KeyError, ValueError):
            return Simple(known=False)
    inputs = [tuple(port.shape) for port in layer.inputs]
    return simple(layer.kind, inputs, [tuple(port.shape) for port in layer.outputs])


def _without_groups(kernel: Shape) -> Shape:
    """A kernel whose first dimension counts groups, as one without."""
    return (kernel[0] * kernel[1], *kernel[2:])


def _matmul(layer: Layer) -> float:
    a = layer.shape(0)
    contracted = a[-2] if layer.flag("transpose_a") and len(a) > 1 else a[-1]
    return matmul(layer.result(), contracted)


def _attention(layer: Layer) -> float:
    query, key, value = layer.shape(0), layer.shape(1), layer.shape(2)
    return attention(elements(query[:-2]), query[-2], key[-2], query[-1], value[-1])


def _sequence_of(gates: int) -> Callable[[Layer], float]:
    def flops(layer: Layer) -> float:
        batch, steps, inputs = layer.shape(0)
        directions, hidden = layer.shape(1)[1:3]
        return recurrent(gates, steps=steps, batch=batch, inputs=inputs, hidden=hidden, directions=directions)

    return flops


def _cell_of(gates: int) -> Callable[[Layer], float]:
    def flops(layer: Layer) -> float:
        batch, inputs = layer.shape(0)
        return recurrent(gates, steps=1, batch=batch, inputs=inputs, hidden=layer.shape(1)[-1])

    return flops


_FORMULAS: dict[str, Callable[[Layer], float]] = {
    **dict.fromkeys(
        ("Convolution", "BinaryConvolution"), lambda layer: convolution(layer.result(), layer.shape(1))
    ),
    "DeformableConvolution": lambda layer: convolution(layer.result(), layer.shape(2)),
    "GroupConvolution": lambda layer: convolution(layer.result(), _without_groups(layer.shape(1))),
    "ConvolutionBackpropData": lambda layer: transposed_convolution(layer.shape(0), layer.shape(1)),
    "GroupConvolutionBackpropData": lambda layer: transposed_convolution(
        layer.shape(0), _without_groups(layer.shape(1))
    ),
    "MatMul": _matmul,
    "Einsum": lambda layer: einsum(layer.data["equation"], [tuple(port.shape) for port in layer.inputs])[0],
    **dict.fromkeys(("MaxPool", "AvgPool"), lambda layer: pooling(layer.result(), layer.integers("kernel"))),
    "GroupNormalization": lambda layer: normalisation(layer.shape(0), parameters=min(len(layer.inputs) - 1, 2)),
    "BatchNormInference": lambda layer: 2.0 * elements(layer.result()),
    "LRN": lambda layer: float(elements(layer.shape(0)) * (2 * sum(layer.integers("size")[:1] or (1,)) + 5)),
    "ScaledDotProductAttention": _attention,
    "LSTMSequence": _sequence_of(LSTM_GATES),
    "GRUSequence": _sequence_of(GRU_GATES),
    "RNNSequence": _sequence_of(RNN_GATES),
    "LSTMCell": _cell_of(LSTM_GATES),
    "GRUCell": _cell_of(GRU_GATES),
    "RNNCell": _cell_of(RNN_GATES),
}
