"""Shapes of the results of ONNX operators.

Every size is a number here: dimensions that a file leaves open were settled before. A rule that cannot tell
raises Unclear; the caller then takes what the file says, or guesses and counts the guess.
"""

from __future__ import annotations

from collections.abc import Sequence

from stead.readers.common.op_costs import Shape, einsum
from stead.readers.onnx.attention import ATTENTION
from stead.readers.onnx.moved_shapes import MOVING
from stead.readers.onnx.site import Rule, Site, Unclear, axis_of, broadcast, constant_data, rules


def infer(site: Site) -> list[Shape]:
    """Shapes of as many results as the rule for this kind tells; Unclear without a rule."""
    rule = _RULES.get(site.node.kind)
    if rule is None:
        if site.node.kind.startswith("Reduce"):
            rule = _reduce
        else:
            raise Unclear
    try:
        shapes = [tuple(int(size) for size in shape) for shape in rule(site)]
    except (ValueError, IndexError, ZeroDivisionError, OverflowError, TypeError, KeyError):
        raise Unclear from None
    if any(size < 0 for shape in shapes for size in shape):
        raise Unclear
    return shapes


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """The shape of a product as numpy.matmul gives it.

    >>> matmul_shape((5, 2, 3), (3, 4)), matmul_shape((3,), (3, 4))
    ((5, 2, 4), (4,))
    """
    if not a or not b or a[-1] != (b[-2] if len(b) > 1 else b[0]):
        raise Unclear
    batch = broadcast(a[:-2], b[:-2])
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


# Rules


def _elementwise(site: Site) -> Sequence[Shape]:
    shapes = site.shapes()
    if site.opset < 7 and site.node.integer("broadcast", 0):
        return [shapes[0]]
    return [broadcast(*shapes)]


def fused_matmul_operands(site: Site) -> tuple[Shape, Shape]:
    """Operands of a product with transposition flags, as they are multiplied."""
    a, b = site.shape(0), site.shape(1)
    if site.node.integer("transA", 0) and len(a) > 1:
        a = (*a[:-2], a[-1], a[-2])
    if site.node.integer("transB", 0) and len(b) > 1:
        b = (*b[:-2], b[-1], b[-2])
    return a, b


def _slid(site: Site, sizes: Shape, window: Sequence[int], *, round_up: bool = False) -> Shape:
    """Positions of a window that slides over the spatial dimensions."""
    node, rank = site.node, len(sizes)
    strides = node.integers("strides") or [1] * rank
    dilations = node.integers("dilations") or [1] * rank
    pads = node.integers("pads") or [0] * (2 * rank)
    same = node.text("auto_pad", "NOTSET").startswith("SAME")
    if node.text("auto_pad", "NOTSET") == "VALID":
        pads = [0] * (2 * rank)
    if not len(window) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise Unclear
    result = []
    for i, size in enumerate(sizes):
        if same:
            result.append(-(-size // strides[i]))
            continue
        room = size + pads[i] + pads[i + rank] - (dilations[i] * (window[i] - 1) + 1)
        count = (-(-room // strides[i]) if round_up else room // strides[i]) + 1
        if round_up and (count - 1) * strides[i] >= size + pads[i]:
            count -= 1  # the last window would start in the padding behind
        result.append(count)
    return tuple(result)


def _convolution_of(data_at: int, kernel_at: int) -> Rule:
    def rule(site: Site) -> Sequence[Shape]:
        data, kernel = site.shape(data_at), site.shape(kernel_at)
        return [(data[0], kernel[0], *_slid(site, data[2:], kernel[2:]))]

    return rule


def _transposed_convolution(site: Site) -> Sequence[Shape]:
    data, kernel, node = site.shape(0), site.shape(1), site.node
    rank = len(data) - 2
    channels = kernel[1] * node.integer("group", 1)
    if given := node.integers("output_shape"):
        return [(data[0], channels, *given[-rank:])]
    strides = node.integers("strides") or [1] * rank
    if node.text("auto_pad", "NOTSET").startswith("SAME"):
        return [(data[0], channels, *(size * stride for size, stride in zip(data[2:], strides, strict=True)))]
    dilations = node.integers("dilations") or [1] * rank
    pads = node.integers("pads") or [0] * (2 * rank)
    extra = node.integers("output_padding") or [0] * rank
    reach = [(kernel[2 + i] - 1) * dilations[i] + 1 + extra[i] for i in range(rank)]
    sizes = [strides[i] * (data[2 + i] - 1) + reach[i] - pads[i] - pads[i + rank] for i in range(rank)]
    return [(data[0], channels, *sizes)]


def _pool(site: Site) -> Sequence[Shape]:
    data, node = site.shape(0), site.node
    window = node.integers("kernel_shape")
    spatial = _slid(site, data[2:], window, round_up=bool(node.integer("ceil_mode", 0)))
    return [(*data[:2], *spatial)] * len(node.outputs)


def _global_pool(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    return [(*data[:2], *(1,) * (len(data) - 2))]


def _max_unpool(site: Site) -> Sequence[Shape]:
    if site.has(2):
        return [tuple(site.content(2).tolist())]
    data, node = site.shape(0), site.node
    window, rank = node.integers("kernel_shape"), len(data) - 2
    strides = node.integers("strides") or [1] * rank
    pads = node.integers("pads") or [0] * (2 * rank)
    sizes = [strides[i] * (data[2 + i] - 1) + window[i] - pads[i] - pads[i + rank] for i in range(rank)]
    return [(*data[:2], *sizes)]


def _roi(site: Site) -> Sequence[Shape]:
    node = site.node
    pooled = node.integers("pooled_shape") or [
        node.integer("output_height", 1),
        node.integer("output_width", 1),
    ]
    return [(site.shape(1)[0], site.shape(0)[1], *pooled)]


def _reduce(site: Site) -> Sequence[Shape]:
    data, node = site.shape(0), site.node
    axes = {axis % len(data) for axis in site.numbers(1, "axes")} if data else set()
    if not axes:
        if node.integer("noop_with_empty_axes", 0):
            return [data]
        axes = set(range(len(data)))
    keep = node.integer("keepdims", 1)
    return [tuple(1 if i in axes else size for i, size in enumerate(data) if keep or i not in axes)]


def _arg(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    axis = axis_of(site, 0, len(data))
    middle = (1,) if site.node.integer("keepdims", 1) else ()
    return [(*data[:axis], *middle, *data[axis + 1 :])]


def _top_k(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    axis = axis_of(site, -1, len(data))
    count = int(site.content(1).reshape(-1)[0]) if site.has(1) else site.node.integer("k", -1)
    return [(*data[:axis], count, *data[axis + 1 :])] * 2


def _nms(site: Site) -> Sequence[Shape]:
    boxes, scores = site.shape(0), site.shape(1)
    most = int(site.content(2).reshape(-1)[0]) if site.has(2) else 0
    return [(scores[0] * scores[1] * min(boxes[1], most), 3)]  # at most


def _recurrent(site: Site) -> Sequence[Shape]:
    data, node = site.shape(0), site.node
    hidden = node.integer("hidden_size", site.shape(2)[-1])
    ways = 2 if node.text("direction") == "bidirectional" else 1
    steps, batch = (data[1], data[0]) if node.integer("layout", 0) else (data[0], data[1])
    if node.integer("layout", 0):
        return [(batch, steps, ways, hidden), *[(batch, ways, hidden)] * 2]
    return [(steps, ways, batch, hidden), *[(ways, batch, hidden)] * 2]


def _layer_norm(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    axis = axis_of(site, -1, len(data))
    reduced = (*data[:axis], *(1,) * (len(data) - axis))
    return [data, reduced, reduced]


def _skip_norm(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    reduced = (*data[:-1], 1)
    return [data, reduced, reduced, data]


def _embed_norm(site: Site) -> Sequence[Shape]:
    ids, width = site.shape(0), site.shape(2)[-1]
    return [(*ids, width), (ids[0],), (*ids, width)]


def _affine_grid(site: Site) -> Sequence[Shape]:
    size = site.content(1).tolist()
    return [(size[0], *size[2:], len(size) - 2)]


def _loss(site: Site) -> Sequence[Shape]:
    scores, labels = site.shape(0), site.shape(1)
    reduced = () if site.node.text("reduction", "mean") != "none" else labels
    return [reduced, scores]


def _dft(site: Site) -> Sequence[Shape]:
    data = list(site.shape(0))
    axis = (
        int(site.content(2).reshape(-1)[0])
        if site.has(2)
        else site.node.integer("axis", -2 if site.opset >= 20 else 1)
    )
    if site.has(1):
        data[axis] = int(site.content(1).reshape(-1)[0])
    inverse = site.node.integer("inverse", 0)
    if site.node.integer("onesided", 0):
        if inverse:
            data[axis] = data[axis] if site.has(1) else 2 * (data[axis] - 1)
        else:
            data[axis] = data[axis] // 2 + 1
    return [(*data[:-1], 1 if inverse and site.node.integer("onesided", 0) else 2)]


def _stft(site: Site) -> Sequence[Shape]:
    data, step = site.shape(0), int(site.content(1).reshape(-1)[0])
    frame = int(site.content(3).reshape(-1)[0]) if site.has(3) else site.shape(2)[0]
    bins = frame // 2 + 1 if site.node.integer("onesided", 1) else frame
    return [(data[0], (data[1] - frame) // step + 1, bins, 2)]


def _causal_convolution(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    return [data, (*data[:2], site.shape(1)[2] - 1)]


_RULES: dict[str, Rule] = {
    **MOVING,
    **ATTENTION,
    **rules(
        _elementwise,
        "Add Sub Mul Div Pow Mod Max Min Sum Mean And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual PRelu "
        "BitShift BitwiseAnd BitwiseOr BitwiseXor StringConcat",
    ),
    **rules(
        lambda site: [site.shape(0)] * len(site.node.outputs),
        "Abs Acos Acosh Affine Asin Asinh Atan Atanh Bernoulli BiasAdd BiasGelu Binarizer BitCast BitwiseNot "
        "Cast CastLike Ceil Celu Clip Cos Cosh CumProd CumSum DequantizeLinear Dropout Elu Erf Exp EyeLike "
        "FastGelu Floor Gelu GemmaRotaryEmbedding GroupNorm GroupNormalization HardSigmoid HardSwish Hardmax "
        "Identity Imputer InstanceNormalization Inverse IsInf IsNaN LRN LeakyRelu Log LogSoftmax "
        "LpNormalization MeanVarianceNormalization Mish MoE Neg Normalizer Not ParametricSoftplus "
        "QLinearLeakyRelu QLinearSigmoid QLinearSoftmax QMoE QuantizeLinear QuickGelu RMSNormalization "
        "RandomNormalLike RandomUniformLike Reciprocal Relu ReverseSequence RotaryEmbedding Round ScaledTanh "
        "Scaler Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh SkipGroupNorm Softmax "
        "Softplus Softsign Sqrt SwiGLU Swish Tan Tanh TensorScatter ThresholdedRelu Trilu",
    ),
    **rules(
        lambda site: [matmul_shape(site.shape(0), site.shape(1))],
        "MatMul MatMulInteger MatMulIntegerToFloat DynamicQuantizeMatMul",
    ),
    **rules(
        lambda site: [matmul_shape(*fused_matmul_operands(site))],
        "Gemm FusedMatMul FusedGemm TransposeMatMul GemmFloat8",
    ),
    **rules(
        lambda site: [(*site.shape(0)[:-1], site.node.integer("N", -1))], "MatMulNBits MatMulFpQ4 MatMulBnb4"
    ),
    "QLinearMatMul": lambda site: [matmul_shape(site.shape(0), site.shape(3))],
    "QGemm": lambda site: [(site.shape(0)[0], site.shape(3)[0 if site.node.integer("transB", 0) else 1])],
    "Einsum": lambda site: [einsum(site.node.text("equation"), site.shapes())[1]],
    **rules(_convolution_of(0, 1), "Conv ConvInteger FusedConv DeformConv"),
    "QLinearConv": _convolution_of(0, 3),
    "ConvTranspose": _transposed_convolution,
    **rules(_pool, "MaxPool AveragePool LpPool QLinearAveragePool"),
    **rules(_global_pool, "GlobalAveragePool GlobalMaxPool GlobalLpPool QLinearGlobalAveragePool"),
    "MaxUnpool": _max_unpool,
    **rules(_roi, "RoiAlign MaxRoiPool"),
    **rules(lambda site: [broadcast(site.shape(0), site.shape(3))], "QLinearAdd QLinearMul"),
    **rules(_arg, "ArgMax ArgMin"),
    "TopK": _top_k,
    "Size": lambda site: [()],
    "NonMaxSuppression": _nms,
    **rules(lambda site: [tuple(site.node.integers("shape"))], "RandomNormal RandomUniform"),
    "Multinomial": lambda site: [(site.shape(0)[0], site.node.integer("sample_size", 1))],
    "Constant": lambda site: [constant_data(site.node).shape],
    **rules(_recurrent, "LSTM GRU RNN"),
    **rules(_layer_norm, "LayerNormalization SimplifiedLayerNormalization"),
    "BatchNormalization": lambda site: [site.shape(0), *[site.shape(1)] * 4],
    **rules(_skip_norm, "SkipLayerNormalization SkipSimplifiedLayerNormalization"),
    "EmbedLayerNormalization": _embed_norm,
    "DynamicQuantizeLinear": lambda site: [site.shape(0), (), ()],
    "GridSample": lambda site: [(*site.shape(0)[:2], *site.shape(1)[1:-1])],
    "AffineGrid": _affine_grid,
    "Det": lambda site: [site.shape(0)[:-2]],
    **rules(lambda site: [(int(site.content(0).reshape(-1)[0]),)], "HannWindow HammingWindow BlackmanWindow"),
    **rules(_loss, "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss"),
    "DFT": _dft,
    "STFT": _stft,
    "CausalConvWithState": _causal_convolution,
}
