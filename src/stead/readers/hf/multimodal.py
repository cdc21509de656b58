"""A vision tower in front of a language model: LLaVA.

While a prompt is read, images become tokens among the others. While tokens are written, the tower is idle: its weights
need a place, nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from stead.printing.wording import quoted
from stead.readers.hf import decoder_families
from stead.readers.hf.config import Config, NotAnalytic
from stead.readers.hf.decoder import decoder
from stead.readers.hf.module_costs import Act, Sketch
from stead.readers.hf.vision import clip_vision, patches, siglip_vision

TOWERS = {"clip_vision_model": clip_vision, "siglip_vision_model": siglip_vision}
LANGUAGES = {
    "llama": decoder_families.llama, "mistral": decoder_families.mistral,
    "qwen2": decoder_families.qwen2, "qwen3": decoder_families.qwen3,
    "gemma": decoder_families.gemma, "gemma2": decoder_families.gemma2, "phi3": decoder_families.phi3,
}  # fmt: skip


def llava(sketch: Sketch, config: Config, head: str) -> None:
    """LLaVA; `head` is what follows `Llava` in the name of its class. Every sequence has one image."""
    vision, text = config.part("vision_config"), config.part("text_config")
    tower, language = TOWERS.get(vision.model_type), LANGUAGES.get(text.model_type)
    if tower is None or language is None:
        unknown = vision if tower is None else text
        raise NotAnalytic(f"{unknown.place}model_type is {quoted(unknown.model_type)}")
    prefix = "" if head == "Model" else "model."
    shape = replace(language(text), prefix=f"{prefix}language_model.", head="lm_head")
    # The head belongs to the whole model, which decides whether it is tied.
    shape = replace(shape, tied=config.flag("tie_word_embeddings", default=False))
    with sketch.idle(sketch.step.decodes):
        states = tower(sketch, vision, f"{prefix}vision_tower.")
        features = _features(sketch, config, states, image_tokens(config))
        projected = _projector(sketch, config, f"{prefix}multi_modal_projector", features, shape.hidden)

    def merged(embedded: Act) -> Act:
        if sketch.step.decodes:
            return embedded
        name = f"{prefix}merge_image_features"
        return sketch.operator(
            name, "Scatter", (embedded, projected), embedded.shape, module=prefix.rstrip("."), forgets=True
        )

    decoder(sketch, shape, head=head != "Model", merged=merged)


def image_tokens(config: Config) -> int:
    """Tokens that an image becomes."""
    vision = config.part("vision_config")
    own = patches(vision, has_class=vision.model_type == "clip_vision_model")
    # The default strategy drops the first token: the class token, or where there is none the first patch.
    dropped = config.only("vision_feature_select_strategy", "default", "full", default="default") == "default"
    return own.tokens - dropped


def _features(sketch: Sketch, config: Config, states: list[Act], tokens: int) -> Act:
    """The result of one layer of the tower, as many rows as an image has tokens."""
    layers = len(states) - 1  # the end is no layer
    chosen = config.values.get("vision_feature_layer", -2)
    if isinstance(chosen, bool) or not isinstance(chosen, int) or not -layers <= chosen < layers:
        raise NotAnalytic("vision_feature_layer is not the number of one layer")
    state = states[:layers][chosen]
    return Act(state.producer, sketch.tokens(tokens, state.width))


def _projector(sketch: Sketch, config: Config, path: str, x: Act, width: int) -> Act:
    bias = config.flag("multimodal_projector_bias", default=True)
    first = sketch.linear(f"{path}.linear_1", x, width, bias=bias)
    act = sketch.activation(f"{path}.act", config.text("projector_hidden_act", default="gelu"), first)
    return sketch.linear(f"{path}.linear_2", act, width, bias=bias)
