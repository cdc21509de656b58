"""What a model is asked to do in one step: how many tokens of how many sequences, and in which number types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from stead.errors import BadInput, did_you_mean
from stead.readers.common.op_costs import bytes_of_elements
from stead.readers.torch.aten import DTYPES

Phase = Literal["infer", "prefill", "decode", "train"]
Granularity = Literal["blocks", "layers", "operators"]
Traffic = Literal["all", "weights"]

PHASES: tuple[Phase, ...] = get_args(Phase)
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
TRAFFICS: tuple[Traffic, ...] = get_args(Traffic)
DEFAULT_DTYPE = "bf16"
DEFAULT_CONTEXT = 2048  # tokens of a prompt, where nothing is said and the model takes that many
DEFAULT_CACHE = (
    4096  # tokens that decoding looks back at, where nothing is said and the model takes that many
)
NOT_SAID = -(2**32)  # context that nobody asked for: no number that somebody would
MAX_BATCH = 2**20
MAX_CONTEXT = 2**32

WEIGHT_BITS: dict[str, int] = {
    "fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4,
}  # fmt: skip
_NARROW_COMPUTES_IN = "bf16"  # weights below 16 bits are widened when they are used


@dataclass(frozen=True, slots=True)
class Types:
    """Number types of weights, and of everything that is computed."""

    weight: str = DEFAULT_DTYPE

    @property
    def compute(self) -> str:
        """The type of activations, of caches and of arithmetic."""
        return self.weight if WEIGHT_BITS[self.weight] >= 16 else _NARROW_COMPUTES_IN

    @property
    def compute_bytes(self) -> int:
        """Of one activation."""
        return WEIGHT_BITS[self.compute] // 8

    def weight_bytes(self, elements: int) -> int:
        """Of so many parameters.

        >>> Types("bf16").weight_bytes(3), Types("int4").weight_bytes(3)
        (6, 2)
        """
        return bytes_of_elements(elements, WEIGHT_BITS[self.weight])


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a model, with everything that was left open filled in.

    decode    one token for each sequence, which looks back at `context` tokens in the cache
    prefill   `context` tokens for each sequence at once: the prompt, or whatever an encoder reads
    train     the same with backward pass and update; nothing is cached
    """

    phase: Literal["prefill", "decode", "train"] = "decode"
    batch: int = 1
    context: int = 0
    types: Types = Types()
    traffic: Traffic = "all"
    expert_groups: int = 1  # operators that the experts of a layer become
    is_default: bool = False  # nobody asked for that context

    @property
    def decodes(self) -> bool:
        """Whether it is a step of decoding."""
        return self.phase == "decode"

    @property
    def caches(self) -> bool:
        """Whether keys and values are kept."""
        return self.phase != "train"

    @property
    def queries(self) -> int:
        """Tokens of each sequence that are computed."""
        return 1 if self.decodes else self.context

    def keys(self, window: int | None = None) -> int:
        """Tokens that each of them looks at; one at least: itself."""
        return max(1, self.context if window is None else min(self.context, window))

    def cached(self, window: int | None = None) -> int:
        """Tokens of each sequence in the cache."""
        if not self.caches:
            return 0
        return self.context if window is None else min(self.context, window)

    def describe(self) -> str:
        """A few words."""
        sequences = f"{self.batch} sequence{'s' if self.batch > 1 else ''}"
        context = f"context {self.context}{' (default; --context N)' if self.is_default else ''}"
        if self.decodes:
            return f"decode: one token for {sequences}, {context}"
        return f"{self.phase}: {sequences}, {context}"


def dtype_named(name: str) -> str:
    """What stead calls a type of weights, from its own name or that of torch.

    >>> dtype_named("bfloat16"), dtype_named("torch.float16"), dtype_named("int4")
    ('bf16', 'fp16', 'int4')
    """
    plain = name.removeprefix("torch.")
    found = DTYPES[plain][0] if plain in DTYPES else plain
    if found not in WEIGHT_BITS:
        raise BadInput(
            f"dtype {name!r} is none that weights can have{did_you_mean(name, WEIGHT_BITS)}; "
            f"known are {', '.join(WEIGHT_BITS)}"
        )
    return found
