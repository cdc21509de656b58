"""Encoder-decoders: T5 and Whisper.

A step of decoding runs the decoder alone. The encoder has done its work by then: its weights need a place, and so do
the keys and values that every layer of the decoder made from its result.
"""

from __future__ import annotations

from dataclasses import dataclass

from stead.readers.hf.config import Config
from stead.readers.hf.module_costs import Act, Sketch


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention with as many heads of keys as of queries."""

    count: int
    width: int
    names: tuple[str, str, str, str]  # of queries, keys, values and the way out
    biases: tuple[bool, bool, bool, bool]


def self_attention(
    sketch: Sketch, path: str, own: Heads, x: Act, tokens: int, more: tuple[Act, ...] = ()
) -> Act:
    """Every token looks at all tokens of its own sequence."""
    return _attend(sketch, path, own, x, (x, x), queries=tokens, keys=tokens, cached=0, more=more)


def cached_attention(sketch: Sketch, path: str, own: Heads, x: Act, more: tuple[Act, ...] = ()) -> Act:
    """New tokens look at themselves and at everything before them."""
    step = sketch.step
    return _attend(
        sketch, path, own, x, (x, x), queries=step.queries, keys=step.keys(), cached=step.cached(), more=more
    )


def cross_attention(sketch: Sketch, path: str, own: Heads, x: Act, source: Act, tokens: int) -> Act:
    """New tokens look at what the encoder made; its keys and values are computed once and kept."""
    step = sketch.step
    cached = tokens if step.caches else 0
    return _attend(
        sketch, path, own, x, (source, source), queries=step.queries, keys=max(1, tokens), cached=cached,
        once=step.decodes,
    )  # fmt: skip


def _attend(
    sketch: Sketch,
    path: str,
    own: Heads,
    x: Act,
    sources: tuple[Act, Act],
    *,
    queries: int,
    keys: int,
    cached: int,
    once: bool = False,  # keys and values are there already
    more: tuple[Act, ...] = (),
) -> Act:
    inner = own.count * own.width
    made = [sketch.linear(f"{path}.{own.names[0]}", x, inner, bias=own.biases[0])]
    with sketch.idle(once):
        made += [
            sketch.linear(f"{path}.{name}", source, inner, bias=bias)
            for name, bias, source in zip(own.names[1:3], own.biases[1:3], sources, strict=True)
        ]
    mixed = sketch.attention(
        path, (*made, *more), heads=own.count, shared=own.count, width=own.width, queries=queries, keys=keys,
        cached=cached,
    )  # fmt: skip
    return sketch.linear(f"{path}.{own.names[3]}", mixed, x.width, bias=own.biases[3])


# T5


@dataclass(frozen=True, slots=True)
class _T5:
    hidden: int
    inner: int
    vocabulary: int
    buckets: int
    function: str
    gated: bool
    heads: Heads


def t5(sketch: Sketch, config: Config, head: str) -> None:
    """T5 and mT5; `head` is what follows `T5` in the name of its class. Source and target have equal lengths."""
    own = _t5_shape(config)
    tokens = sketch.step.context
    layers = config.layers("num_layers", "num_hidden_layers")
    with sketch.idle(sketch.step.decodes):
        encoded = _t5_stack(sketch, own, "encoder", layers, tokens)
    if head == "EncoderModel":
        sketch.keep(encoded)
        return
    later = config.layers("num_decoder_layers", default=layers)
    stream = _t5_stack(sketch, own, "decoder", later, tokens, source=encoded)
    if head == "ForConditionalGeneration":
        stream = sketch.linear("lm_head", stream, own.vocabulary, bias=False, tied="shared.weight")
    sketch.keep(stream)


def _t5_shape(config: Config) -> _T5:
    usual = "gated-gelu" if config.model_type == "mt5" else "relu"
    projection = config.text("feed_forward_proj", default=usual)
    gated = projection.startswith("gated-")
    function = projection.removeprefix("gated-")
    heads = config.heads("num_heads", "num_attention_heads")
    width = config.size("d_kv", "head_dim", default=64, most=2**20)
    return _T5(
        hidden=config.size("d_model", "hidden_size"),
        inner=config.size("d_ff"),
        vocabulary=config.size("vocab_size"),
        buckets=config.size("relative_attention_num_buckets", default=32),
        function="gelu_new" if function == "gelu" else function,
        gated=gated,
        heads=Heads(heads, width, ("q", "k", "v", "o"), (False,) * 4),
    )


def _t5_stack(
    sketch: Sketch, own: _T5, prefix: str, layers: int, tokens: int, *, source: Act | None = None
) -> Act:
    count = tokens if source is None else sketch.step.queries
    stream = sketch.embedding(
        f"{prefix}.embed_tokens", own.vocabulary, own.hidden, count, tied="shared.weight"
    )
    positions = _t5_positions(
        sketch, own, f"{prefix}.block.0.layer.0.SelfAttention", count, is_decoder=source is not None
    )
    for layer in range(layers):
        path = f"{prefix}.block.{layer}.layer"
        normed = sketch.norm(f"{path}.0.layer_norm", stream, bias=False)
        inside = f"{path}.0.SelfAttention"
        if source is None:
            attended = self_attention(sketch, inside, own.heads, normed, tokens, (positions,))
        else:
            attended = cached_attention(sketch, inside, own.heads, normed, (positions,))
        stream = sketch.add(f"{path}.0.add", stream, attended, module=f"{path}.0")
        last = 1
        if source is not None:
            normed = sketch.norm(f"{path}.1.layer_norm", stream, bias=False)
            attended = cross_attention(
                sketch, f"{path}.1.EncDecAttention", own.heads, normed, source, tokens
            )
            stream = sketch.add(f"{path}.1.add", stream, attended, module=f"{path}.1")
            last = 2
        stream = _t5_feed_forward(sketch, own, f"{path}.{last}", stream)
    return sketch.norm(f"{prefix}.final_layer_norm", stream, bias=False)


def _t5_positions(sketch: Sketch, own: _T5, path: str, count: int, *, is_decoder: bool) -> Act:
    """What each head adds to the scores for the distance of two tokens: made by the first layer, used by all."""
    keys = sketch.step.keys() if is_decoder else count
    weight = sketch.parameter(f"{path}.relative_attention_bias.weight", own.buckets, own.heads.count)
    return sketch.operator(
        f"{path}.relative_attention_bias", "Embedding", (), (own.heads.count, count, max(1, keys)),
        parameters=(weight,), share=0.0, forgets=True,
    )  # fmt: skip


def _t5_feed_forward(sketch: Sketch, own: _T5, path: str, stream: Act) -> Act:
    normed = sketch.norm(f"{path}.layer_norm", stream, bias=False)
    inside = f"{path}.DenseReluDense"
    if own.gated:
        gate = sketch.linear(f"{inside}.wi_0", normed, own.inner, bias=False)
        up = sketch.linear(f"{inside}.wi_1", normed, own.inner, bias=False)
        wide = sketch.activation(f"{inside}.act", own.function, up, gate=gate)
    else:
        wide = sketch.activation(
            f"{inside}.act", own.function, sketch.linear(f"{inside}.wi", normed, own.inner, bias=False)
        )
    worked = sketch.linear(f"{inside}.wo", wide, own.hidden, bias=False)
    return sketch.add(f"{path}.add", stream, worked, module=path)


# Whisper


def whisper(sketch: Sketch, config: Config, head: str) -> None:
    """Whisper; `head` is what follows `Whisper` in the name of its class. It hears its full window of sound."""
    prefix = "" if head == "Model" else "model."
    frames = config.size("max_source_positions", default=1500)
    hidden = config.size("d_model", "hidden_size")
    with sketch.idle(sketch.step.decodes):
        heard = _whisper_encoder(sketch, config, f"{prefix}encoder", hidden, frames)
    path = f"{prefix}decoder"
    vocabulary, count = config.size("vocab_size"), sketch.step.queries
    stream = sketch.embedding(f"{path}.embed_tokens", vocabulary, hidden, count)
    positions = config.size("max_target_positions", default=448)
    stream = sketch.embedding(f"{path}.embed_positions", positions, hidden, count, added_to=stream)
    heads = _whisper_heads(config, hidden, "decoder_attention_heads")
    inner, function = config.size("decoder_ffn_dim"), config.text("activation_function", default="gelu")
    for layer in range(config.layers("decoder_layers")):
        stream = _whisper_decoder_layer(
            sketch, f"{path}.layers.{layer}", stream, heads, heard, frames, inner, function
        )
    stream = sketch.norm(f"{path}.layer_norm", stream, bias=True)
    if head == "ForConditionalGeneration":
        stream = sketch.linear("proj_out", stream, vocabulary, bias=False, tied=f"{path}.embed_tokens.weight")
    sketch.keep(stream)


def _whisper_heads(config: Config, hidden: int, key: str) -> Heads:
    count = config.heads(key)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    return Heads(count, config.head_width(hidden, count, named=key), names, (True, False, True, True))


def _whisper_encoder(sketch: Sketch, config: Config, path: str, hidden: int, frames: int) -> Act:
    mels = config.size("num_mel_bins", default=80)
    stream = sketch.convolution(
        f"{path}.conv1", (), sketch.tokens(2 * frames, hidden), (hidden, mels, 3), bias=True
    )
    stream = sketch.convolution(
        f"{path}.conv2", (stream,), sketch.tokens(frames, hidden), (hidden, hidden, 3), bias=True
    )
    stream = sketch.embedding(f"{path}.embed_positions", frames, hidden, frames, added_to=stream)
    heads = _whisper_heads(config, hidden, "encoder_attention_heads")
    inner, function = config.size("encoder_ffn_dim"), config.text("activation_function", default="gelu")
    for layer in range(config.layers("encoder_layers")):
        inside = f"{path}.layers.{layer}"
        normed = sketch.norm(f"{inside}.self_attn_layer_norm", stream, bias=True)
        attended = self_attention(sketch, f"{inside}.self_attn", heads, normed, frames)
        stream = sketch.add(f"{inside}.attention_add", stream, attended, module=inside)
        stream = _whisper_feed_forward(sketch, inside, stream, inner, function)
    return sketch.norm(f"{path}.layer_norm", stream, bias=True)


def _whisper_decoder_layer(
    sketch: Sketch, path: str, stream: Act, heads: Heads, heard: Act, frames: int, inner: int, function: str
) -> Act:
    normed = sketch.norm(f"{path}.self_attn_layer_norm", stream, bias=True)
    attended = cached_attention(sketch, f"{path}.self_attn", heads, normed)
    stream = sketch.add(f"{path}.attention_add", stream, attended, module=path)
    normed = sketch.norm(f"{path}.encoder_attn_layer_norm", stream, bias=True)
    attended = cross_attention(sketch, f"{path}.encoder_attn", heads, normed, heard, frames)
    stream = sketch.add(f"{path}.encoder_attention_add", stream, attended, module=path)
    return _whisper_feed_forward(sketch, path, stream, inner, function)


def _whisper_feed_forward(sketch: Sketch, path: str, stream: Act, inner: int, function: str) -> Act:
    normed = sketch.norm(f"{path}.final_layer_norm", stream, bias=True)
    wide = sketch.activation(f"{path}.activation_fn", function, sketch.linear(f"{path}.fc1", normed, inner))
    worked = sketch.linear(f"{path}.fc2", wide, stream.width)
    return sketch.add(f"{path}.mlp_add", stream, worked, module=path)
