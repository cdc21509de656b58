"""FLOPs of ATen operators from their kinds, arguments and results: no torch is needed.

Framework-neutral formulas are those of `op_costs`; here is which operator of ATen has which, forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stead.readers.common.op_costs import (
    FUNCTION_FLOPS,
    GRU_GATES,
    LSTM_GATES,
    RNN_GATES,
    SOFTMAX_FLOPS,
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
)
from stead.readers.torch.aten import (
    BATCH_NORMS,
    VIEWS,
    Argument,
    Value,
    is_aten,
    short_name,
    values_in,
    words,
)


def cost(
    kind: str, arguments: Sequence[Argument], named: Mapping[str, Argument], writes: Sequence[Value]
) -> Simple:
    """FLOPs of an operator; one that nobody knows has none and says so.

    >>> a, b = Value("a", (2, 3), "fp32", 24, 0), Value("b", (3, 5), "fp32", 60, 1)
    >>> cost("aten.mm", [a, b], {}, [Value("c", (2, 5), "fp32", 40, 2)]).flops
    60.0
    """
    name = short_name(kind)
    if not is_aten(kind):
        return Simple(known=False)
    formula = _FORMULAS.get(name)
    try:
        if formula is not None:
            return Simple(formula(_Call(arguments, named, writes)))
        return _simple(name, arguments, named, writes)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return Simple(known=False)


def _simple(
    name: str, arguments: Sequence[Argument], named: Mapping[str, Argument], writes: Sequence[Value]
) -> Simple:
    word = name.lower().removeprefix("_foreach_").removeprefix("special_").lstrip("_")
    if word.startswith("arc"):
        word = f"a{word[3:]}"
    results = [value.shape for value in writes or values_in(arguments[:1])]
    if word in _PER_RESULT:
        return Simple(_PER_RESULT[word] * sum(map(elements, results)))
    shapes = [value.shape for value in values_in([*arguments, *named.values()])]
    if word in _PER_OPERAND:
        return Simple(_PER_OPERAND[word] * elements(shapes[0]))
    if word in _PICKING:
        return Simple(picks=True)
    if name in VIEWS or word in _COPYING or word.endswith(("_copy", "_scatter")):
        return Simple()
    return simple(word.replace("_", ""), shapes, results)


@dataclass(slots=True)
class _Call:
    """An operator at work, as formulas see it."""

    arguments: Sequence[Argument]
    named: Mapping[str, Argument]
    writes: Sequence[Value]

    def shape(self, position: int) -> Shape:
        """The shape of an argument that must be a tensor."""
        value = self.arguments[position]
        if not isinstance(value, Value):
            raise TypeError
        return value.shape

    def has(self, position: int, name: str = "") -> bool:
        """Whether an argument is a tensor."""
        given = self.arguments[position] if position < len(self.arguments) else self.named.get(name)
        return isinstance(given, Value)

    def numbers(self, position: int, rank: int) -> Shape:
        """An argument that is a list of numbers, or one number that stands for `rank` of them."""
        given = self.arguments[position]
        if isinstance(given, int):
            return (given,) * rank
        if not isinstance(given, list | tuple) or not all(isinstance(item, int) for item in given):
            raise TypeError
        return tuple(given) * rank if len(given) == 1 else tuple(given)

    @property
    def out(self) -> Shape:
        """The shape of the first result."""
        return self.writes[0].shape

    @property
    def bias(self) -> int:
        """FLOPs of adding the bias that a product or a convolution may have."""
        return elements(self.out) if self.has(2, "bias") else 0


_Formula: TypeAlias = Callable[[_Call], float]


def _product_at(left: int, *, added: bool = False) -> _Formula:
    """A product of the arguments `left` and `left + 1`; `added`: argument 0 is added to it."""

    def flops(call: _Call) -> float:
        return matmul(call.out, call.shape(left)[-1]) + (elements(call.out) if added else 0)

    return flops


def _sum_of_products(call: _Call) -> float:
    batch, rows, shared = call.shape(1)
    return matmul((batch, rows, call.shape(2)[-1]), shared) + elements(call.out)


def _bilinear(call: _Call) -> float:
    first, second = call.shape(0)[-1], call.shape(1)[-1]
    return matmul((*call.out, first), second) + matmul(call.out, first)


def _convolution(call: _Call) -> float:
    transposed = len(call.arguments) > 6 and call.arguments[6] is True
    return (_transposed(call) if transposed else convolution(call.out, call.shape(1))) + call.bias


def _transposed(call: _Call) -> float:
    return transposed_convolution(call.shape(0), call.shape(1))


def _convolution_backward(call: _Call) -> float:
    """The gradient of the input and that of the kernel each cost as much as the convolution itself."""
    result, data, kernel = call.shape(0), call.shape(1), call.shape(2)
    forward = transposed_convolution(data, kernel) if call.arguments[7] else convolution(result, kernel)
    wanted = call.arguments[10]
    of_data, of_kernel, of_bias = wanted if isinstance(wanted, list | tuple) else (True, True, True)
    return forward * (bool(of_data) + bool(of_kernel)) + elements(result) * bool(of_bias)


def _attention(call: _Call) -> float:
    query, key, value = call.shape(0), call.shape(1), call.shape(2)
    return attention(elements(query[:-2]), query[-2], key[-2], query[-1], value[-1])


def _attention_backward(call: _Call) -> float:
    """Scores once more, then four products for the three gradients."""
    query, key, value = call.shape(1), call.shape(2), call.shape(3)
    scores = elements(query[:-1]) * key[-2]
    return 2.0 * scores * (3 * query[-1] + 2 * value[-1]) + 2 * SOFTMAX_FLOPS * scores


def _recurrent_of(gates: int) -> _Formula:
    def flops(call: _Call) -> float:
        data = call.shape(0)
        weights = next(
            given
            for given in reversed(call.arguments)
            if isinstance(given, list | tuple) and len(given) > 1 and isinstance(given[-1], Value)
        )
        matrices = [value.shape for value in values_in(weights) if len(value.shape) == 2]
        rows = elements(data[:-1])
        total = 0.0
        for inputs, state in zip(matrices[::2], matrices[1::2], strict=False):
            total += recurrent(gates, steps=1, batch=rows, inputs=inputs[1], hidden=inputs[0] // gates)
            total += 2.0 * rows * inputs[0] * (state[1] - inputs[0] // gates)  # less with a projection
        return total

    return flops


def _cell_of(gates: int) -> _Formula:
    """One step: input, state, and the matrices of both."""

    def flops(call: _Call) -> float:
        rows, kernel, state = elements(call.shape(0)[:-1]), call.shape(2), call.shape(3)
        return recurrent(gates, steps=1, batch=rows, inputs=kernel[1], hidden=state[1])

    return flops


def _normalisation_at(*parameters: int) -> _Formula:
    def flops(call: _Call) -> float:
        return normalisation(call.shape(0), parameters=sum(call.has(at) for at in parameters))

    return flops


def _batch_normalisation(call: _Call) -> float:
    if len(call.arguments) > 5 and call.arguments[5] is True:
        return normalisation(call.shape(0), parameters=call.has(1) + call.has(2))
    return 2.0 * elements(call.shape(0))  # mean and variance are constants: one scale, one shift


def _each(formula: _Formula, text: str) -> dict[str, _Formula]:
    return dict.fromkeys(text.split(), formula)


def _fourier(call: _Call) -> float:
    """5 n log n for every signal."""
    shape = call.shape(0)
    return 5.0 * elements(shape) * math.log2(max(*shape[-1:], 2))


def _attention_by_position(call: _Call) -> float:
    """Like `_attention`, with heads after positions."""
    query, key, value = call.shape(0), call.shape(1), call.shape(2)
    return attention(elements(query[:-3]) * query[-2], query[-3], key[-3], query[-1], value[-1])


_FORMULAS: dict[str, _Formula] = {
    **_each(
        _product_at(0),
        "mm bmm matmul linalg_matmul mv dot vdot inner _int_mm _scaled_mm _grouped_mm _scaled_grouped_mm",
    ),
    **_each(_product_at(1, added=True), "addmm addmv baddbmm _addmm_activation"),
    "addbmm": _sum_of_products,
    **_each(lambda call: float(elements(call.out)), "outer ger"),
    "linear": lambda call: matmul(call.out, call.shape(0)[-1]) + call.bias,
    "bilinear": _bilinear,
    "einsum": lambda call: einsum(str(call.arguments[0]), [one.shape for one in values_in(call.arguments[1])])[0],
    **_each(_convolution, "convolution _convolution convolution_overrideable mkldnn_convolution"),
    **_each(
        lambda call: convolution(call.out, call.shape(1)) + call.bias,
        "conv1d conv2d conv3d cudnn_convolution _conv_depthwise2d _slow_conv2d_forward slow_conv3d_forward "
        "conv_depthwise3d _convolution_mode slow_conv3d slow_conv_dilated2d thnn_conv2d",
    ),
    **_each(
        lambda call: _transposed(call) + call.bias,
        "conv_transpose1d conv_transpose2d conv_transpose3d",
    ),
    **_each(_convolution_backward, "convolution_backward convolution_backward_overrideable"),
    **_each(
        _attention,
        "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable",
    ),
    **_each(
        _attention_backward,
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward",
    ),
    "lstm": _recurrent_of(LSTM_GATES),
    "gru": _recurrent_of(GRU_GATES),
    **_each(_recurrent_of(RNN_GATES), "rnn_tanh rnn_relu"),
    "lstm_cell": _cell_of(LSTM_GATES),
    "gru_cell": _cell_of(GRU_GATES),
    **_each(_cell_of(RNN_GATES), "rnn_tanh_cell rnn_relu_cell"),
    **_each(
        lambda call: pooling(call.out, call.numbers(1, len(call.shape(0)) - 2)),
        "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d "
        "avg_pool3d max_pool1d_with_indices",
    ),
    **_each(_normalisation_at(2, 3), "native_layer_norm layer_norm group_norm"),
    **_each(_normalisation_at(2), "rms_norm _fused_rms_norm"),
    "native_group_norm": _normalisation_at(1, 2),
    **dict.fromkeys(
        [*sorted(BATCH_NORMS), "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional"],
        _batch_normalisation,
    ),
    **_each(
        lambda call: normalisation(call.shape(0)),
        "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward batch_norm_backward "
        "cudnn_batch_norm_backward _fused_rms_norm_backward",
    ),
    **_each(lambda call: 3.0 * elements(call.out) * call.shape(0)[-1], "cdist _cdist_forward"),
    **_each(_attention_by_position, "_flash_attention_forward _efficient_attention_forward"),
    **_each(
        _fourier,
        "_fft_c2c _fft_c2r _fft_r2c fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft fft_fft2 fft_ifft2 "
        "fft_rfft2 fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn",
    ),
}


def _words(flops: float, text: str) -> dict[str, float]:
    return dict.fromkeys(text.split(), flops)


_PER_RESULT: dict[str, float] = {
    **_words(
        1.0,
        "rsub true_divide floor_divide divide multiply subtract clamp_min clamp_max hardtanh relu6 threshold fmod "
        "remainder fmax fmin eq ne ge gt le lt logical_and logical_or logical_not logical_xor bitwise_and bitwise_or "
        "bitwise_not bitwise_xor and__ or__ xor__ masked_fill square trunc frac isclose nan_to_num signbit sgn "
        "threshold_backward hardtanh_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
        "adaptive_avg_pool2d_backward adaptive_avg_pool3d_backward "
        "adaptive_max_pool2d_backward avg_pool2d_backward avg_pool3d_backward heaviside absolute negative "
        "unsafe_masked_index lshift__ rshift__ "
        "bitwise_left_shift bitwise_right_shift nll_loss_backward nll_loss2d_backward "
        "complex polar hardshrink softshrink hardshrink_backward softshrink_backward angle isin isposinf isneginf "
        "copysign kron",
    ),
    **_words(
        2.0,
        "rsqrt hardsigmoid hardswish leaky_relu_backward native_dropout native_dropout_backward fused_dropout "
        "masked_scale hardsigmoid_backward hardswish_backward lerp deg2rad rad2deg hypot "
        "glu prelu_kernel quantize_per_tensor quantize_per_channel dequantize weight_norm_interface",
    ),
    **_words(
        3.0,
        "addcmul addcdiv addr sigmoid_backward tanh_backward mse_loss_backward smooth_l1_loss_backward "
        "huber_loss_backward elu_backward glu_backward logaddexp logaddexp2 prelu_kernel_backward cross linalg_cross "
        "rrelu_with_noise rrelu_with_noise_backward fake_quantize_per_tensor_affine "
        "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine_cachemask "
        "fake_quantize_per_channel_affine_cachemask upsample_nearest1d_backward upsample_nearest2d_backward "
        "upsample_nearest3d_backward upsample_nearest_exact2d_backward",
    ),
    **_words(
        FUNCTION_FLOPS,
        "log1p log2 log10 expm1 exp2 sinc erfc erfinv lgamma digamma logit atan2 arctan2 xlogy float_power "
        "softplus_backward softmax_backward_data log_sigmoid log_sigmoid_forward log_sigmoid_backward normal "
        "normal_functional uniform rand randn rand_like randn_like randint randint_like randperm exponential "
        "multinomial upsample_bilinear2d upsample_linear1d upsample_trilinear3d upsample_bicubic2d "
        "upsample_bilinear2d_backward grid_sampler grid_sampler_2d grid_sampler_3d grid_sampler_2d_backward "
        "grid_sampler_3d_backward upsample_linear1d_backward upsample_trilinear3d_backward "
        "upsample_bicubic2d_backward upsample_bilinear2d_aa upsample_bicubic2d_aa expit i0 poisson binomial "
        "masked_softmax_backward weight_norm_interface_backward polygamma",
    ),
    **_words(FUNCTION_FLOPS + 1, "dropout feature_dropout alpha_dropout feature_alpha_dropout"),
    **_words(SOFTMAX_FLOPS, "softmax log_softmax safe_softmax masked_softmax"),
    **_words(FUNCTION_FLOPS + 2, "log_softmax_backward_data"),
    **_words(
        2 * (FUNCTION_FLOPS + 4),
        "gelu_backward silu_backward mish_backward thnn_fused_lstm_cell_backward_impl",
    ),
    **_words(3 * FUNCTION_FLOPS, "thnn_fused_lstm_cell thnn_fused_gru_cell"),
    **_words(12.0, "fused_adam fused_adamw fused_sgd fused_adagrad"),
}

_PER_OPERAND: dict[str, float] = {
    **_words(
        1.0,
        "sum mean prod amax amin aminmax max min any all argmax argmin count_nonzero nansum nanmean cummax cummin "
        "cumsum cumprod logcumsumexp adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d embedding_dense_backward nll_loss nll_loss_nd "
        "nonzero_static sum_to_size median nanmedian mode histc bincount trace diff equal searchsorted bucketize "
        "index_add scatter_add scatter_reduce segment_reduce embedding_backward trapezoid unfold_backward "
        "embedding_bag_backward embedding_bag_dense_backward allclose histogram",
    ),
    **_words(
        2.0,
        "norm linalg_vector_norm dist mse_loss l1_loss smooth_l1_loss huber_loss kl_div renorm weight_norm "
        "linalg_norm linalg_matrix_norm pairwise_distance hinge_embedding_loss margin_ranking_loss",
    ),
    **_words(4.0, "var std var_mean std_mean sort argsort topk kthvalue msort unique2 unique_consecutive"),
    **_words(
        SOFTMAX_FLOPS + 2,
        "cross_entropy_loss logsumexp binary_cross_entropy binary_cross_entropy_with_logits "
        "binary_cross_entropy_backward soft_margin_loss soft_margin_loss_backward multi_margin_loss "
        "multi_margin_loss_backward poisson_nll_loss",
    ),
    **_words(5.0, "cosine_similarity"),
}

_PICKING = words(
    "embedding index gather index_select take take_along_dim embedding_bag embedding_bag_forward_only masked_select "
    "nll_loss_forward nll_loss2d_forward unsafe_index embedding_renorm index_select_backward gather_backward"
)

_COPYING = words(
    "clone copy to_copy to type_as contiguous reshape flatten ravel reshape_as cat concat concatenate stack hstack "
    "vstack dstack column_stack zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full arange "
    "range linspace logspace scalar_tensor eye fill zero constant_pad_nd pad repeat repeat_interleave tile roll flip "
    "fliplr flipud rot90 index_put index_put_impl unsafe_index_put index_copy index_fill scatter masked_scatter put "
    "slice_backward select_backward diagonal_backward as_strided_scatter tril triu tril_indices triu_indices "
    "pixel_shuffle pixel_unshuffle channel_shuffle upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "upsample_nearest_exact1d upsample_nearest_exact2d one_hot im2col col2im nonzero reflection_pad1d "
    "reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d reflection_pad1d_backward "
    "reflection_pad2d_backward replication_pad1d_backward replication_pad2d_backward meshgrid cartesian_prod "
    "block_diag diag diag_embed tensor atleast_1d atleast_2d atleast_3d "
    "local_scalar_dense item affine_grid_generator conj_physical set resize sparse_coo_tensor "
    "pack_padded_sequence pad_packed_sequence nested_tensor_from_mask random "
    "value_selecting_reduction_backward lift max_unpool2d max_unpool3d resize_as pad_sequence chunk_cat pad_circular "
    "pad_enum fft_fftshift fft_ifftshift flatten_dense_tensors native_channel_shuffle row_stack trace_backward "
    "masked_select_backward masked_scatter_backward diagflat combinations argwhere to_dense to_sparse"
)
