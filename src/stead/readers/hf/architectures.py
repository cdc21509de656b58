"""Which architectures have formulas, and how each one is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from stead.errors import BadInput
from stead.printing.wording import quoted
from stead.readers.hf import decoder_families
from stead.readers.hf.bart import bart
from stead.readers.hf.config import Config, NotAnalytic
from stead.readers.hf.decoder import Decoder, decoder
from stead.readers.hf.encoder import bert, roberta
from stead.readers.hf.encoder_decoder import t5, whisper
from stead.readers.hf.module_costs import Act, Sketch
from stead.readers.hf.multimodal import image_tokens, llava
from stead.readers.hf.step import DEFAULT_CACHE, DEFAULT_CONTEXT, NOT_SAID, Phase, Step, Traffic, Types
from stead.readers.hf.vision import clip_vision, patches, siglip_vision, vit

Write = Callable[[Sketch, Config, str], None]


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many tokens of a sequence a model takes at once."""

    default: int
    least: int = 1
    most: int | None = None  # None: no table of positions sets a limit
    trained: int | None = None  # tokens that it was made for, where that is no limit

    @property
    def cached(self) -> int:
        """Tokens that decoding looks back at where nothing is said."""
        return min(DEFAULT_CACHE, self.most or self.trained or DEFAULT_CACHE)


@dataclass(frozen=True, slots=True)
class Family:
    """Models that one set of formulas covers."""

    write: Write
    heads: dict[str, str]  # name of a class in transformers: what it puts on top; the first is the usual one
    tokens: Callable[[Config], Tokens]
    generates: bool  # its models write tokens one after another

    def head_of(self, config: Config) -> str:
        """What the configured class puts on top."""
        name = config.architecture or next(iter(self.heads))
        if name not in self.heads:
            raise NotAnalytic(f"it is a {quoted(name)}")
        return self.heads[name]

    def writes(self, head: str) -> bool:
        """Whether a model with that on top writes tokens one after another."""
        return self.generates and head != "EncoderModel"


def family_of(config: Config) -> Family:
    """The formulas for a configuration; NotAnalytic if there are none."""
    if config.model_type not in FAMILIES:
        raise NotAnalytic(f"model_type is {quoted(config.model_type)}")
    return FAMILIES[config.model_type]


def step_of(
    family: Family,
    config: Config,
    *,
    phase: Phase,
    batch: int,
    context: int,
    types: Types,
    traffic: Traffic,
    expert_groups: int,
) -> Step:
    """A step with everything that was left open filled in."""
    writes = family.writes(family.head_of(config))
    if phase == "decode" and not writes:
        raise BadInput(
            f"{config.where}: a {config.model_type} model does not write token by token; "
            "take phase infer or prefill for a run, train for a training step"
        )
    if phase == "infer":
        phase = "decode" if writes else "prefill"
    limits = family.tokens(config)
    is_default = context == NOT_SAID or (context == 0 and phase != "decode")
    tokens = context if not is_default else limits.cached if phase == "decode" else limits.default
    if limits.most is not None and tokens > limits.most:
        raise _too_long(config, tokens, limits.most)
    if phase != "decode" and tokens < limits.least:
        raise BadInput(
            f"{config.where}: a context of {tokens} tokens has no room for the {limits.least} tokens of an image; "
            f"take {limits.least} or more"
        )
    return Step(phase, batch, tokens, types, traffic, expert_groups, is_default)


def prompt_length(config: Config, context: int) -> int:
    """Tokens of a prompt for which no length is given, the same by formula and captured; 0: nothing is known.

    A context that is longer than the model's table of positions is an error.
    """
    if config.model_type not in FAMILIES:
        return 0
    limits = FAMILIES[config.model_type].tokens(config)
    if limits.most is not None and context > limits.most:
        raise _too_long(config, context, limits.most)
    return limits.default


def _too_long(config: Config, context: int, most: int) -> BadInput:
    return BadInput(
        f"{config.where}: the model has positions for {most} tokens, not for a context of {context}"
    )


# Limits


def _positions(key: str, *others: str, spare: int = 0) -> Callable[[Config], Tokens]:
    """A table of positions, which ends."""

    def limits(config: Config) -> Tokens:
        most = max(1, config.size(key, *others) - spare)
        return Tokens(min(DEFAULT_CONTEXT, most), most=most)

    return limits


def _endless(config: Config) -> Tokens:
    """Positions that are computed, or relative."""
    keys = ("max_position_embeddings", "n_positions")
    trained = config.size(*keys) if any(config.has(key) for key in keys) else None
    return Tokens(min(DEFAULT_CONTEXT, trained or DEFAULT_CONTEXT), trained=trained)


def _t5_tokens(config: Config) -> Tokens:
    usual = config.size("n_positions", default=512)
    return Tokens(usual, trained=usual)


def _image(has_class: bool) -> Callable[[Config], Tokens]:
    """An image decides; its size is not a matter of context."""

    def limits(config: Config) -> Tokens:
        count = patches(config, has_class=has_class).tokens
        return Tokens(count, least=count, most=count)

    return limits


def _with_image(config: Config) -> Tokens:
    taken, text = image_tokens(config), _endless(config.part("text_config"))
    return Tokens(max(taken, text.default), least=taken, trained=text.trained)


# Families


def _causal(
    name: str,
    shape_of: Callable[[Config], Decoder],
    tokens: Callable[[Config], Tokens] = _endless,
    top: str = "ForCausalLM",
) -> Family:
    def write(sketch: Sketch, config: Config, head: str) -> None:
        shape = shape_of(config)
        if head == "Model":  # it is not part of another module, so names lack the first component
            shape = replace(shape, prefix=shape.prefix.partition(".")[2])
        decoder(sketch, shape, head=head != "Model")

    return Family(write, {f"{name}{top}": top, f"{name}Model": "Model"}, tokens, generates=True)


def _text(name: str, write: Write, *more: str, spare: int = 0) -> Family:
    tasks = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM")
    heads = ("Model", *(f"For{task}" for task in tasks), *more)
    named = {f"{name}{head}": head for head in heads}
    return Family(write, named, _positions("max_position_embeddings", spare=spare), generates=False)


def _tower(name: str, tower: Callable[[Sketch, Config], list[Act]], *, has_class: bool) -> Family:
    def write(sketch: Sketch, config: Config, head: str) -> None:
        for state in tower(sketch, config)[-2:]:
            sketch.keep(state)

    return Family(write, {name: "Model"}, _image(has_class), generates=False)


def _pair(name: str, write: Write, tokens: Callable[[Config], Tokens], *more: str) -> Family:
    heads = ("ForConditionalGeneration", "Model", *more)
    return Family(write, {f"{name}{head}": head for head in heads}, tokens, generates=True)


FAMILIES: dict[str, Family] = {
    "llama": _causal("Llama", decoder_families.llama),
    "mistral": _causal("Mistral", decoder_families.mistral),
    "qwen2": _causal("Qwen2", decoder_families.qwen2),
    "qwen3": _causal("Qwen3", decoder_families.qwen3),
    "gemma": _causal("Gemma", decoder_families.gemma),
    "gemma2": _causal("Gemma2", decoder_families.gemma2),
    "gemma3_text": _causal("Gemma3", decoder_families.gemma3),
    "phi": _causal("Phi", decoder_families.phi),
    "phi3": _causal("Phi3", decoder_families.phi3),
    "gpt2": _causal(
        "GPT2", decoder_families.gpt2, _positions("n_positions", "n_ctx", "max_position_embeddings"), "LMHeadModel"
    ),
    "gpt_neox": _causal("GPTNeoX", decoder_families.gpt_neox),
    "opt": _causal("OPT", decoder_families.opt, _positions("max_position_embeddings")),
    "mixtral": _causal("Mixtral", decoder_families.mixtral),
    "qwen2_moe": _causal("Qwen2Moe", decoder_families.qwen2_moe),
    "qwen3_moe": _causal("Qwen3Moe", decoder_families.qwen3_moe),
    "olmoe": _causal("Olmoe", decoder_families.olmoe),
    "phimoe": _causal("Phimoe", decoder_families.phimoe),
    "gpt_oss": _causal("GptOss", decoder_families.gpt_oss),
    "granitemoe": _causal("GraniteMoe", decoder_families.granitemoe),
    "deepseek_v2": _causal("DeepseekV2", decoder_families.deepseek),
    "deepseek_v3": _causal("DeepseekV3", decoder_families.deepseek),
    "llama4_text": _causal("Llama4", decoder_families.llama4),
    "bert": _text("Bert", bert, "ForPreTraining"),
    "roberta": _text("Roberta", roberta, spare=2),
    "xlm-roberta": _text("XLMRoberta", roberta, spare=2),
    "t5": _pair("T5", t5, _t5_tokens, "EncoderModel"),
    "mt5": _pair("MT5", t5, _t5_tokens, "EncoderModel"),
    "whisper": _pair("Whisper", whisper, _positions("max_target_positions")),
    "bart": _pair("Bart", bart, _positions("max_position_embeddings")),
    "mbart": _pair("MBart", bart, _positions("max_position_embeddings")),
    "pegasus": _pair("Pegasus", bart, _positions("max_position_embeddings")),
    "marian": Family(
        bart,
        {"MarianMTModel": "ForConditionalGeneration", "MarianModel": "Model"},
        _positions("max_position_embeddings"),
        generates=True,
    ),
    "vit": Family(
        vit,
        {"ViTForImageClassification": "ForImageClassification", "ViTModel": "Model"},
        _image(has_class=True),
        generates=False,
    ),
    "clip_vision_model": _tower("CLIPVisionModel", clip_vision, has_class=True),
    "siglip_vision_model": _tower("SiglipVisionModel", siglip_vision, has_class=False),
    "llava": _pair("Llava", llava, _with_image),
}
