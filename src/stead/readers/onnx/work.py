"""What ONNX operators cost, and which of them are views, settings or bias additions."""

from __future__ import annotations

from collections.abc import Callable

from stead.readers.common.file_nodes import Joins, computed_in, joins_as
from stead.readers.common.op_costs import (
    GRU_GATES,
    LSTM_GATES,
    RNN_GATES,
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
from stead.readers.onnx.attention import attention_sizes
from stead.readers.onnx.file import ELEMENT_TYPES
from stead.readers.onnx.shapes import fused_matmul_operands
from stead.readers.onnx.site import Site, Unclear

VIEWS = frozenset(words("Identity Reshape Flatten Squeeze Unsqueeze Transpose Dropout"))
_VIEWS_OF_SAME_SHAPE = frozenset(words("Expand Tile Slice Pad Concat Sum Max Min Mean"))
_ANCHORS = frozenset(
    words(
        "Conv FusedConv ConvTranspose ConvInteger DeformConv MatMulInteger MatMulNBits LayerNormalization "
        "SimplifiedLayerNormalization InstanceNormalization GroupNormalization RMSNormalization "
        "MeanVarianceNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization"
    )
)
_PRODUCTS = frozenset(words("MatMul Gemm FusedMatMul FusedGemm"))
_AFFINE = frozenset(words("Add Sub Mul Div BatchNormalization"))
IMPURE = frozenset(
    words("RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial")
)
INTEGER_KINDS = frozenset(words("ConvInteger MatMulInteger QLinearConv QLinearMatMul"))

# Operands that are settings and not data: target shapes, axes, limits.
ASIDE: dict[str, frozenset[int]] = {
    kind: frozenset(positions)
    for kind, positions in {
        "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Expand": (1,), "Tile": (1,), "Split": (1,), "TopK": (1,),
        "Slice": (1, 2, 3, 4), "Pad": (1, 2, 3), "Resize": (1, 2, 3), "Upsample": (1,), "Clip": (1, 2), "Trilu": (1,),
        "CumSum": (1,), "OneHot": (1, 2), "Dropout": (1, 2), "Range": (0, 1, 2), "ConstantOfShape": (0,),
        "NonMaxSuppression": (2, 3, 4), "CenterCropPad": (1,), "Col2Im": (1, 2), "AffineGrid": (1,), "DFT": (1, 2),
        "STFT": (1, 3), "MaxUnpool": (2,), "Loop": (0, 1), "If": (0,), "SplitToSequence": (1,),
        **{f"Reduce{name}": (1,) for name in words("L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare")},
    }.items()
}  # fmt: skip


def is_view(site: Site) -> bool:
    """Whether a node only looks at its first operand in another way."""
    kind, outputs = site.node.kind, site.outputs
    if not site.has(0) or not outputs:
        return False
    if kind in VIEWS:
        return True
    data, result = site.known(0), outputs[0]
    if kind in ("Cast", "CastLike"):
        return data.element_type == result.element_type
    if kind not in _VIEWS_OF_SAME_SHAPE or data.shape != result.shape:
        return False
    if kind == "Slice":
        steps = site.known(4).content if site.has(4) else None
        return not site.has(4) or (steps is not None and bool((steps == 1).all()))
    return kind in ("Expand", "Tile", "Pad") or sum(one is not None for one in site.inputs) == 1


def joins(kind: str) -> Joins:
    """How a kind may become part of a unit."""
    return joins_as(kind, _ANCHORS, _PRODUCTS, _AFFINE)


def cost(site: Site) -> Simple:
    """FLOPs of a node whose operands and results are known."""
    kind = site.node.kind
    formula = _FORMULAS.get(kind)
    if formula is not None and site.outputs:
        try:
            return Simple(formula(site))
        except (Unclear, IndexError, ZeroDivisionError, OverflowError, KeyError, ValueError):
            return Simple(known=False)
    word = kind.removeprefix("QLinear")
    return simple(word, site.shapes(), [result.shape for result in site.outputs])


def operator_dtype(site: Site) -> str:
    """The type that a node computes in."""
    result = ELEMENT_TYPES[site.outputs[0].element_type].dtype if site.outputs else ""
    given = next((ELEMENT_TYPES[one.element_type].dtype for one in site.inputs if one is not None), result)
    return "int8" if site.node.kind in INTEGER_KINDS else computed_in(given, result) or "fp32"


def _out(site: Site) -> tuple[int, ...]:
    return site.outputs[0].shape


def _convolution_at(kernel_at: int, bias_at: int) -> Callable[[Site], float]:
    def flops(site: Site) -> float:
        bias = elements(_out(site)) if site.has(bias_at) else 0
        return convolution(_out(site), site.shape(kernel_at)) + bias

    return flops


def _transposed_convolution(site: Site) -> float:
    bias = elements(_out(site)) if site.has(2) else 0
    return transposed_convolution(site.shape(0), site.shape(1)) + bias


def _gemm(site: Site) -> float:
    a, _ = fused_matmul_operands(site)
    return matmul(_out(site), a[-1]) + (elements(_out(site)) if site.has(2) else 0)


def _normalisation(site: Site) -> float:
    parameters = sum(site.has(position) for position in (1, 2))
    return normalisation(site.shape(0), parameters=parameters)


def _skip_normalisation(site: Site) -> float:
    parameters = sum(site.has(position) for position in (1, 2, 3, 4))
    return normalisation(site.shape(0), parameters=parameters)


def _recurrent_of(gates: int) -> Callable[[Site], float]:
    def flops(site: Site) -> float:
        data, kernel, state = site.shape(0), site.shape(1), site.shape(2)
        steps, batch = (data[1], data[0]) if site.node.integer("layout", 0) else (data[0], data[1])
        return recurrent(
            gates, steps=steps, batch=batch, inputs=data[2], hidden=state[-1], directions=kernel[0]
        )

    return flops


def _attention(site: Site) -> float:
    if site.node.kind == "Attention" and site.node.domain == "com.microsoft":
        data, kernel = site.shape(0), site.shape(1)
        heads = site.node.integer("num_heads", 1)
        width = _out(site)[-1] // heads
        past = site.shape(4)[-2] if site.has(4) else 0
        projected = matmul((*data[:-1], kernel[-1]), data[-1])
        return projected + attention(data[0] * heads, data[1], data[1] + past, width, width)
    sizes = attention_sizes(site)
    return attention(sizes.heads, sizes.queries, sizes.keys, sizes.width, sizes.value_width)


def _linear_attention(site: Site) -> float:
    """Keys times values into the state of every head, queries times that state."""
    batch, length, _ = site.shape(0)
    state = site.outputs[1].shape if len(site.outputs) > 1 else ()
    heads, key_heads = site.node.integer("q_num_heads", 1), site.node.integer("kv_num_heads", 1)
    width = state[2] if state else site.shape(1)[2] // key_heads
    value_width = state[3] if state else site.shape(2)[2] // key_heads
    return 2.0 * batch * length * (heads + key_heads) * width * value_width


def _causal_convolution(site: Site) -> float:
    return convolution(_out(site), site.shape(1)) + (elements(_out(site)) if site.has(2) else 0)


def _many(site: Site) -> float:
    """Elementwise operators of any number of operands."""
    return float(elements(_out(site)) * max(len(site.shapes()) - 1, 1))


_FORMULAS: dict[str, Callable[[Site], float]] = {
    **dict.fromkeys(words("Conv FusedConv ConvInteger"), _convolution_at(1, 2)),
    "DeformConv": _convolution_at(1, 3),
    "QLinearConv": _convolution_at(3, 8),
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(
        words(
            "MatMul MatMulInteger MatMulIntegerToFloat DynamicQuantizeMatMul MatMulNBits MatMulBnb4 MatMulFpQ4 "
            "QLinearMatMul QGemm"
        ),
        lambda site: matmul(_out(site), site.shape(0)[-1]),
    ),
    **dict.fromkeys(words("Gemm FusedMatMul FusedGemm TransposeMatMul"), _gemm),
    "Einsum": lambda site: einsum(site.node.text("equation"), site.shapes())[0],
    **dict.fromkeys(
        words("MaxPool AveragePool LpPool QLinearAveragePool"),
        lambda site: pooling(_out(site), tuple(site.node.integers("kernel_shape"))),
    ),
    **dict.fromkeys(
        words(
            "LayerNormalization SimplifiedLayerNormalization InstanceNormalization GroupNormalization "
            "RMSNormalization"
        ),
        _normalisation,
    ),
    **dict.fromkeys(words("SkipLayerNormalization SkipSimplifiedLayerNormalization"), _skip_normalisation),
    "BatchNormalization": lambda site: 2.0 * elements(site.shape(0)),  # by constants: one scale, one shift
    "LRN": lambda site: float(elements(site.shape(0)) * (2 * site.node.integer("size", 1) + 5)),
    "LSTM": _recurrent_of(LSTM_GATES),
    "GRU": _recurrent_of(GRU_GATES),
    "RNN": _recurrent_of(RNN_GATES),
    **dict.fromkeys(
        words("Attention MultiHeadAttention GroupQueryAttention DecoderMaskedMultiHeadAttention"), _attention
    ),
    "LinearAttention": _linear_attention,
    "CausalConvWithState": _causal_convolution,
    **dict.fromkeys(words("Sum Max Min Mean"), _many),
}
