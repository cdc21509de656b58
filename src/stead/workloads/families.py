"""The families of the zoo: their options, their usual sizes, and what a unit of each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str

MOST = 2**20  # of any whole number, so that a slip of the finger does not fill the memory


def text_of(value: Value) -> str:
    """A value as people write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Option:
    """What can be set about a model: the default says the type."""

    default: Value
    least: float = 1
    most: float = MOST
    choices: tuple[Value, ...] = ()
    multiple_of: str = ""  # another option

    @property
    def allowed(self) -> str:
        """Which values it may have, in words."""
        if isinstance(self.default, bool):
            return "true or false"
        if self.choices:
            *most, last = map(str, self.choices)
            return f"{', '.join(most)} or {last}"
        return f"{_plain(self.least)} to {_plain(self.most)}"


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


@dataclass(frozen=True, slots=True)
class Family:
    """Models that differ in their options alone."""

    name: str
    about: str
    build: str  # "module:function" below stead.workloads.models
    options: Mapping[str, Option]
    sizes: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)  # what may follow the name
    numbered: str = ""  # the option that a number after the name sets: gnmt-8 has 8 layers
    unrolled: bool = False  # modules are called again and again: their calls must be told apart
    units: tuple[str, ...] = ()  # patterns of module paths; the first group is the unit

    @property
    def shown(self) -> str:
        """Its name as people write it: inception-v3."""
        return self.name.replace("_", "-")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its sizes: gnmt-2, gnmt-4, gnmt-8; its own name if there is only one."""
        return tuple(f"{self.shown}-{size}" for size in self.sizes) or (self.shown,)


def _share(default: float) -> Option:
    return Option(default, least=0.0, most=0.95)


def _dtype(default: str) -> Option:
    return Option(default, choices=("fp32", "fp16", "bf16"))


def _attention(default: str) -> Option:
    return Option(default, choices=("eager", "fused"))


def _side(default: int, least: int) -> Option:
    return Option(default, least=least, most=4096)


def _transformer(layers: int, width: int, heads: int) -> dict[str, Option]:
    return {"layers": Option(layers), "width": Option(width, multiple_of="heads"), "heads": Option(heads)}


_RECURRENT = {
    "layers": Option(2),
    "steps": Option(40),
    "batch": Option(64),
    "hidden": Option(2048),
    "vocabulary": Option(10_000),
    "dropout": _share(0.0),
}
_SEARCHED = {
    "repeats": Option(6),
    "stem": Option(32),
    "width": Option(190, least=8),
    "batch": Option(32),
    "side": _side(331, 32),
    "classes": Option(1000),
    "drop_path": _share(0.3),
    "dropout": _share(0.5),
}
_DECODER = {
    "inner": Option(14_336),
    "vocabulary": Option(128_256),
    "batch": Option(1),
    "length": Option(2048),
    "attention": _attention("fused"),
    "dtype": _dtype("bf16"),
}

_LAYER = r"(layers\.\d+)(?:\..*)?"
_CONVOLUTION = r"(.+)\.(?:conv|norm)"

_ALL = (
    Family(
        "rnnlm",
        "recurrent language model, LSTM cells unrolled",
        "rnnlm:build",
        _RECURRENT,
        {"2": {"layers": 2}, "4": {"layers": 4}, "8": {"layers": 8}},
        numbered="layers",
        unrolled=True,
        units=(r"(embedding)", r"(cells\.\d+)(?:\..*)?", r"(projection)"),
    ),
    Family(
        "rnnlm_fused",
        "the same with nn.LSTM",
        "rnnlm:build_fused",
        _RECURRENT,
        {"2": {"layers": 2}},
        numbered="layers",
        units=(r"(embedding)", r"(lstm)", r"(projection)"),
    ),
    Family(
        "gnmt",
        "translation, LSTM encoder and decoder with attention, unrolled",
        "gnmt:build",
        {**_RECURRENT, "batch": Option(128), "hidden": Option(1024), "vocabulary": Option(32_000)},
        {"2": {"layers": 2}, "4": {"layers": 4}, "8": {"layers": 8}},
        numbered="layers",
        unrolled=True,
        units=(
            r"((?:source|target)_embedding)", r"(encoder\.0\.(?:forwards|backwards))(?:\..*)?",
            r"(encoder\.[1-9]\d*)(?:\..*)?", r"(decoder\.\d+)(?:\..*)?", r"(keys)", r"(attention)(?:\..*)?",
            r"(projection)",
        ),
    ),
    Family(
        "transformer_xl",
        "language model over segments with memory and relative positions",
        "transformer_xl:build",
        {
            **_transformer(2, 1024, 16),
            "segments": Option(4),
            "length": Option(64, least=2),
            "batch": Option(64),
            "inner": Option(4096),
            "vocabulary": Option(32_000),
            "dropout": _share(0.1),
        },
        {"2": {"layers": 2}, "4": {"layers": 4}, "8": {"layers": 8}},
        numbered="layers",
        unrolled=True,
        units=(r"(embedding)", _LAYER, r"(projection)"),
    ),
    Family(
        "wavenet",
        "speech, stacks of dilated convolutions",
        "wavenet:build",
        {
            "stacks": Option(2),
            "layers": Option(18, multiple_of="stacks"),
            "channels": Option(256),
            "batch": Option(4),
            "length": Option(8000),
        },
        {"2x18": {"stacks": 2, "layers": 18}, "4x36": {"stacks": 4, "layers": 36}},
        units=(r"(embedding)", _LAYER, r"(inner)", r"(projection)"),
    ),
    Family(
        "inception_v3",
        "pictures, 94 convolutions in parallel branches",
        "inception_v3:build",
        {"batch": Option(32), "side": _side(299, 75), "classes": Option(1000), "dropout": _share(0.5)},
        units=(_CONVOLUTION, r"(classifier)"),
    ),
    Family(
        "resnet",
        "pictures, bottlenecks with shortcuts",
        "resnet:build",
        {
            "depth": Option(50, choices=(50, 101, 152)),
            "batch": Option(32),
            "side": _side(224, 32),
            "classes": Option(1000),
        },
        {"50": {"depth": 50}, "101": {"depth": 101}, "152": {"depth": 152, "batch": 128}},
        units=(_CONVOLUTION, r"(classifier)"),
    ),
    Family(
        "amoebanet",
        "pictures, cells found by evolution (AmoebaNet-A)",
        "amoebanet:build",
        _SEARCHED,
        units=(r"(stem)", r"(cells\.\d+)(?:\..*)?", r"(classifier)"),
    ),
    Family(
        "nasnet",
        "pictures, cells found by reinforcement learning (NASNet-A)",
        "nasnet:build",
        {**_SEARCHED, "stem": Option(96), "width": Option(168, least=8)},
        {
            "large": {"repeats": 6, "stem": 96, "width": 168, "side": 331},
            "mobile": {"repeats": 4, "stem": 32, "width": 44, "side": 224},
        },
        units=(r"(stem)", r"(cells\.\d+)(?:\..*)?", r"(classifier)"),
    ),
    Family(
        "bert",
        "encoder with a masked-language-model head",
        "bert:build",
        {
            **_transformer(12, 768, 12),
            "inner": Option(3072),
            "vocabulary": Option(30_522),
            "batch": Option(32),
            "length": Option(128, most=512),
            "dropout": _share(0.1),
            "attention": _attention("eager"),
            "dtype": _dtype("fp32"),
        },
        {
            "base": {"layers": 12, "width": 768, "heads": 12, "inner": 3072},
            "large": {"layers": 24, "width": 1024, "heads": 16, "inner": 4096},
        },
        units=(r"(embeddings)(?:\..*)?", _LAYER, r"(head)(?:\..*)?"),
    ),
    Family(
        "gpt2",
        "decoder with learned positions",
        "gpt2:build",
        {
            **_transformer(12, 768, 12),
            "vocabulary": Option(50_257),
            "batch": Option(8),
            "length": Option(1024, most=1024),
            "dropout": _share(0.1),
            "attention": _attention("eager"),
            "dtype": _dtype("fp32"),
        },
        {
            "small": {"layers": 12, "width": 768, "heads": 12},
            "medium": {"layers": 24, "width": 1024, "heads": 16},
            "large": {"layers": 36, "width": 1280, "heads": 20},
            "xl": {"layers": 48, "width": 1600, "heads": 25},
        },
        units=(r"(words)", r"(positions)", _LAYER, r"(head)"),
    ),
    Family(
        "llama",
        "decoder with rotary positions, grouped queries and gated feed-forward parts",
        "llama:build",
        {
            "layers": Option(32),
            "width": Option(4096, multiple_of="heads"),
            "heads": Option(32, multiple_of="key_heads"),
            "key_heads": Option(8),
            "tied": Option(False),
            **_DECODER,
        },
        {
            "1b": {
                "layers": 16, "width": 2048, "heads": 32, "key_heads": 8, "inner": 8192, "vocabulary": 128_256,
                "tied": True,
            },
            "7b": {
                "layers": 32, "width": 4096, "heads": 32, "key_heads": 32, "inner": 11_008, "vocabulary": 32_000,
                "tied": False,
            },
            "8b": {
                "layers": 32, "width": 4096, "heads": 32, "key_heads": 8, "inner": 14_336, "vocabulary": 128_256,
                "tied": False,
            },
            "70b": {
                "layers": 80, "width": 8192, "heads": 64, "key_heads": 8, "inner": 28_672, "vocabulary": 128_256,
                "tied": False,
            },
        },
        units=(r"(embedding)", _LAYER, r"(head)"),
    ),
    Family(
        "mixtral",
        "decoder with eight experts per layer, each an operator of its own",
        "mixtral:build",
        {
            "layers": Option(32),
            "width": Option(4096, multiple_of="heads"),
            "heads": Option(32, multiple_of="key_heads"),
            "key_heads": Option(8),
            "experts": Option(8, least=2),
            "chosen": Option(2),
            "slack": Option(1.25, least=1.0, most=64.0),
            **_DECODER,
            "vocabulary": Option(32_000),
        },
        {"8x7b": {"layers": 32}},
        units=(
            r"(embedding)", r"(layers\.\d+\.attention)(?:\..*)?", r"(layers\.\d+\.feed_forward\.router)",
            r"(layers\.\d+\.feed_forward\.experts\.\d+)(?:\..*)?", r"(head)",
        ),
    ),
    Family(
        "t5",
        "encoder and decoder with relative position biases",
        "t5:build",
        {
            "layers": Option(12),
            "width": Option(768),
            "heads": Option(12),
            "head_width": Option(64),
            "inner": Option(3072),
            "vocabulary": Option(32_128),
            "batch": Option(8),
            "length": Option(512),
            "target_length": Option(128),
            "dropout": _share(0.1),
            "dtype": _dtype("fp32"),
        },
        {
            "small": {"layers": 6, "width": 512, "heads": 8, "inner": 2048},
            "base": {"layers": 12, "width": 768, "heads": 12, "inner": 3072},
            "large": {"layers": 24, "width": 1024, "heads": 16, "inner": 4096},
        },
        units=(
            r"(embedding)", r"((?:encoder|decoder)\.bias)(?:\..*)?",
            r"((?:encoder|decoder)\.layers\.\d+)(?:\..*)?", r"(head)",
        ),
    ),
    Family(
        "vit",
        "pictures as words: patches through an encoder",
        "vit:build",
        {
            **_transformer(12, 768, 12),
            "inner": Option(3072),
            "patch": Option(16),
            "side": Option(224, least=16, most=4096, multiple_of="patch"),
            "classes": Option(1000),
            "batch": Option(32),
            "dropout": _share(0.1),
            "attention": _attention("eager"),
            "dtype": _dtype("fp32"),
        },
        {
            "base": {"layers": 12, "width": 768, "heads": 12, "inner": 3072, "patch": 16},
            "large": {"layers": 24, "width": 1024, "heads": 16, "inner": 4096, "patch": 16},
            "huge": {"layers": 32, "width": 1280, "heads": 16, "inner": 5120, "patch": 14},
        },
        units=(r"(patches)", _LAYER, r"(classifier)"),
    ),
)  # fmt: skip
FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})
