"""FLOPs of operators, from what they do and the shapes they see: the same for every format.

A multiply-add counts 2. Matrix products, convolutions, attention, recurrent cells and pooling have formulas;
everything else costs a few FLOPs per element, where the bytes decide the time anyway. Copies cost none.
Kinds are the words of ONNX and OpenVINO in lower case, so that both find `mul` and `multiply` here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stead.printing.wording import one_line

Shape: TypeAlias = tuple[int, ...]

FUNCTION_FLOPS = 4.0  # exp, tanh and the like, per element
SOFTMAX_FLOPS = 8.0  # maximum, difference, exp, sum, quotient
NORMALISATION_FLOPS = 5.0  # mean, difference, square, mean, quotient; scale and shift come on top

LSTM_GATES, GRU_GATES, RNN_GATES = 4, 3, 1


def elements(shape: Iterable[int]) -> int:
    """Number of elements of a tensor; 1 for a scalar."""
    return math.prod(shape)


def bytes_of_elements(count: int, bits: int) -> int:
    """Bytes of packed elements.

    >>> bytes_of_elements(3, 4)
    2
    """
    return -(-count * bits // 8)


# Formulas


def matmul(output: Shape, contracted: int) -> float:
    """A (batched) matrix product; `contracted` is the dimension that both factors share.

    >>> matmul((2, 3, 5), 4)  # 2 products of 3x4 and 4x5
    240.0
    """
    return 2.0 * elements(output) * contracted


def convolution(output: Shape, kernel: Shape) -> float:
    """A convolution with a kernel [output channels, input channels per group, *window].

    >>> convolution((1, 8, 10, 10), (8, 4, 3, 3))
    57600.0
    """
    return 2.0 * elements(output) * elements(kernel[1:])


def transposed_convolution(data: Shape, kernel: Shape) -> float:
    """A transposed convolution with a kernel [input channels, output channels per group, *window].

    Every element of the input is spread over the window: strides and padding of the output change nothing.

    >>> transposed_convolution((1, 4, 5, 5), (4, 8, 3, 3))
    14400.0
    """
    return 2.0 * elements(data) * elements(kernel[1:])


def attention(heads: int, queries: int, keys: int, width: int, value_width: int) -> float:
    """Scaled dot-product attention, softmax included, projections not; `heads` counts all heads of the batch.

    >>> attention(heads=2, queries=3, keys=5, width=4, value_width=6)
    840.0
    """
    scores = heads * queries * keys
    return 2.0 * scores * (width + value_width) + SOFTMAX_FLOPS * scores


def recurrent(gates: int, *, steps: int, batch: int, inputs: int, hidden: int, directions: int = 1) -> float:
    """A recurrent layer: the products of every gate with the input and the state, and its function.

    >>> recurrent(LSTM_GATES, steps=10, batch=1, inputs=3, hidden=2)  # 10 * 4 * 2 * (2 * (3 + 2) + 4)
    1120.0
    """
    cells = directions * steps * batch * gates * hidden
    return cells * (2.0 * (inputs + hidden) + FUNCTION_FLOPS)


def pooling(output: Shape, window: Shape) -> float:
    """One operation for every element under the window.

    >>> pooling((1, 8, 5, 5), (2, 2))
    800.0
    """
    return float(elements(output) * elements(window))


def normalisation(data: Shape, *, parameters: int = 0) -> float:
    """A layer, batch, group or instance normalisation; scale and shift are `parameters`.

    >>> normalisation((2, 10), parameters=2)
    140.0
    """
    return (NORMALISATION_FLOPS + parameters) * elements(data)


def einsum(equation: str, shapes: Sequence[Shape]) -> tuple[float, Shape]:
    """FLOPs and shape of a sum of products over letters; ValueError or KeyError if it makes no sense.

    >>> einsum("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)])
    (240.0, (2, 3, 5))
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    most_hidden = 0
    for term, shape in zip(left.split(","), shapes, strict=True):
        hidden = len(shape) - len(term.replace("...", ""))  # dimensions behind an ellipsis
        most_hidden = max(most_hidden, hidden)
        for letter, size in zip(_letters(term, hidden), shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    if not arrow:
        once = sorted(letter for letter in set(left) if letter.isalpha() and left.count(letter) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    result = tuple(sizes[letter] for letter in _letters(right, most_hidden))
    every = elements(sizes.values())
    return (2.0 if every > elements(result) else 1.0) * every * max(len(shapes) - 1, 1), result


def _letters(term: str, hidden: int) -> list[str]:
    """Letters of a term; those behind an ellipsis are numbers, counted from the right."""
    before, dots, after = term.partition("...")
    return [*before, *(str(hidden - 1 - i) for i in range(hidden if dots else 0)), *after]


# Operators without a formula of their own


@dataclass(frozen=True, slots=True)
class Simple:
    """What an operator costs that only its kind and its shapes decide."""

    flops: float = 0.0
    picks: bool = False  # it reads no more of its first operand than it writes
    known: bool = True  # False: nothing is known about the kind, and bytes are all there is


def simple(kind: str, inputs: Iterable[Shape], outputs: Iterable[Shape]) -> Simple:
    """The cost of an operator by its kind; unknown kinds have no FLOPs and say so.

    >>> simple("Relu", [(2, 3)], [(2, 3)]).flops, simple("Concat", [(2,), (3,)], [(5,)]).flops
    (6.0, 0.0)
    >>> simple("Frobnicate", [(2, 3)], [(2, 3)])
    Simple(flops=0.0, picks=False, known=False)
    """
    word = kind.lower()
    written = sum(elements(shape) for shape in outputs)
    if word in _PER_ELEMENT:
        return Simple(_PER_ELEMENT[word] * written)
    if word in _PICKING:
        return Simple(picks=True)
    if word in _COPYING:
        return Simple()
    read = elements(next(iter(inputs), ()))
    if word in _PER_READ_ELEMENT:
        return Simple(_PER_READ_ELEMENT[word] * read)
    if word.startswith("reduce"):
        return Simple(float(read))
    return Simple(known=False)


def unpriced_note(kinds: Mapping[str, int]) -> Iterator[str]:
    """A sentence about operators of kinds without a price, given how many there are; none if there are none."""
    if kinds:
        shown = ", ".join(f"{one_line(kind, 60)} {count}" for kind, count in list(kinds.items())[:8])
        more = " and others" if len(kinds) > 8 else ""
        yield f"{sum(kinds.values())} operators of unknown kinds have a price by their bytes alone: {shown}{more}"


def is_elementwise(kind: str) -> bool:
    """Whether a kind works element by element, as runtimes do together with its neighbours."""
    return kind.lower() in _POINTWISE


def is_reduction(kind: str) -> bool:
    """Whether a kind makes one number of many."""
    return kind.lower().startswith("reduce") or kind.lower() in _GLOBAL_POOLS


def words(text: str) -> tuple[str, ...]:
    """The words of a text; tables of kinds are easier to read as one.

    >>> words("mul multiply")
    ('mul', 'multiply')
    """
    return tuple(text.split())


def _words(flops: float, text: str) -> dict[str, float]:
    return dict.fromkeys(words(text), flops)


_POINTWISE: dict[str, float] = {
    **_words(
        1.0,
        "add sub subtract mul multiply div divide mod floormod neg negative abs sign sqrt reciprocal min minimum "
        "max maximum clip clamp relu thresholdedrelu ceil ceiling floor round sum not and or xor logicalnot "
        "logicaland logicalor logicalxor equal notequal greater greaterequal greaterorequal less lessequal "
        "lessorequal where select isnan isinf isfinite bitshift bitwiseand bitwiseor bitwisexor bitwisenot "
        "bitwiseleftshift bitwiserightshift biasadd",
    ),
    **_words(2.0, "leakyrelu prelu shrink hardsigmoid hsigmoid mean squareddifference"),
    **_words(
        FUNCTION_FLOPS,
        "exp log pow power sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf softplus "
        "softsign hardswish hswish celu elu",
    ),
    **_words(FUNCTION_FLOPS + 1, "swish silu selu swiglu quickgelu"),
    **_words(FUNCTION_FLOPS + 4, "gelu fastgelu biasgelu"),
    **_words(2 * FUNCTION_FLOPS + 1, "mish"),
    **_words(0.0, "cast castlike convert convertlike"),
    "batchnormalization": 2.0,
}

_PER_ELEMENT: dict[str, float] = {
    **_POINTWISE,
    **_words(1.0, "cumsum cumprod"),
    **_words(2.0, "quantizelinear dequantizelinear dynamicquantizelinear binarizer scaler"),
    **_words(
        FUNCTION_FLOPS,
        "fakequantize randomnormal randomnormallike randomuniform randomuniformlike bernoulli rotaryembedding "
        "rope gridsample",
    ),
    **_words(SOFTMAX_FLOPS, "softmax logsoftmax hardmax softmaxcrossentropyloss negativeloglikelihoodloss"),
    **_words(
        NORMALISATION_FLOPS,
        "mvn normalizel2 lpnormalization meanvariancenormalization groupnormalization rms grn",
    ),
}

_GLOBAL_POOLS = frozenset(words("globalaveragepool globalmaxpool globallppool"))

_PER_READ_ELEMENT: dict[str, float] = _words(
    1.0,
    "globalaveragepool globalmaxpool globallppool adaptiveavgpool adaptivemaxpool argmax argmin topk nonzero unique "
    "maxroipool roialign roipooling psroipooling nonmaxsuppression multiclassnms matrixnms bucketize det",
)

# They read of their first operand as much as they write.
_PICKING = frozenset(
    words(
        "gather gathernd gatherelements gathertree gatherblockquantized slice stridedslice split variadicsplit "
        "splittosequence centercroppad compress sequenceat embeddingbagoffsetssum embeddingbagoffsets "
        "embeddingbagpackedsum embeddingbagpacked embeddingsegmentssum"
    )
)

_COPYING = frozenset(
    words(
        "concat expand broadcast tile pad transpose reshape flatten squeeze unsqueeze identity dropout bitcast scatter "
        "scatternd scatterndupdate scatterelements scatterelementsupdate scatterupdate tensorscatter depthtospace "
        "spacetodepth resize upsample interpolate reversesequence reverse shufflechannels batchtospace spacetobatch "
        "onehot range constantofshape shape shapeof size eyelike eye trilu roll extractimagepatches col2im maxunpool "
        "input parameter result constant readvalue assign optional optionalgetelement optionalhaselement "
        "sequenceconstruct sequenceempty sequenceinsert sequenceerase concatfromsequence sequencelength hammingwindow "
        "hannwindow blackmanwindow affinegrid reorderinput reorderoutput priorbox priorboxclustered multinomial"
    )
)
