"""BART and its kin, mBART, Pegasus and Marian: encoder-decoders that differ in where they normalise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stead.readers.hf.config import Config, NotAnalytic
from stead.readers.hf.encoder_decoder import Heads, cached_attention, cross_attention, self_attention
from stead.readers.hf.module_costs import Act, Sketch


@dataclass(frozen=True, slots=True)
class _Kind:
    """What tells one of them from the others."""

    before: bool  # a block normalises what it reads, else what it adds up to
    embedded: bool  # embeddings are normalised
    last: bool  # so is what a stack puts out
    spare: int  # rows of the table of positions that no token has


_KINDS = {
    "bart": _Kind(before=False, embedded=True, last=False, spare=2),
    "mbart": _Kind(before=True, embedded=True, last=True, spare=2),
    "pegasus": _Kind(before=True, embedded=False, last=True, spare=0),
    "marian": _Kind(before=False, embedded=False, last=False, spare=0),
}


@dataclass(frozen=True, slots=True)
class _Stack:
    """Encoder or decoder."""

    kind: _Kind
    path: str
    table: str  # of tokens, which both share
    vocabulary: int
    hidden: int
    positions: int
    layers: int
    heads: Heads
    inner: int
    function: str


def bart(sketch: Sketch, config: Config, head: str) -> None:
    """One of them; `head` is what follows its name in the name of the class. Source and target have equal lengths."""
    prefix = "" if head == "Model" else "model."
    tokens, queries = sketch.step.context, sketch.step.queries
    encoder, decoder = (_stack(config, prefix, part) for part in ("encoder", "decoder"))
    with sketch.idle(sketch.step.decodes):
        stream = _embedded(sketch, encoder, tokens)
        for layer in range(encoder.layers):
            stream = _encoder_layer(sketch, encoder, f"{encoder.path}.layers.{layer}", stream, tokens)
        source = _ended(sketch, encoder, stream)
    stream = _embedded(sketch, decoder, queries)
    for layer in range(decoder.layers):
        stream = _decoder_layer(sketch, decoder, f"{decoder.path}.layers.{layer}", stream, source, tokens)
    stream = _ended(sketch, decoder, stream)
    if head != "Model":
        stream = sketch.linear("lm_head", stream, decoder.vocabulary, bias=False, tied=decoder.table)
        sketch.buffer("final_logits_bias", decoder.vocabulary, stream)  # zeros that no training changes
    sketch.keep(stream)


def _stack(config: Config, prefix: str, part: str) -> _Stack:
    for key in ("tie_word_embeddings", "share_encoder_decoder_embeddings"):
        if not config.flag(key, default=True):
            raise NotAnalytic(f"{key} is false")
    kind, hidden = _KINDS[config.model_type], config.size("d_model", "hidden_size")
    vocabulary, named = config.size("vocab_size"), f"{part}_attention_heads"
    if config.size("decoder_vocab_size", default=vocabulary) != vocabulary:
        raise NotAnalytic("encoder and decoder have vocabularies of their own")
    count = config.heads(named)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    return _Stack(
        kind, f"{prefix}{part}", f"{prefix}shared.weight", vocabulary, hidden,
        config.size("max_position_embeddings", default=1024) + kind.spare, config.layers(f"{part}_layers"),
        Heads(count, config.head_width(hidden, count, named=named), names, (True,) * 4),
        config.size(f"{part}_ffn_dim"), config.text("activation_function", default="gelu"),
    )  # fmt: skip


def _embedded(sketch: Sketch, own: _Stack, count: int) -> Act:
    stream = sketch.embedding(f"{own.path}.embed_tokens", own.vocabulary, own.hidden, count, tied=own.table)
    stream = sketch.embedding(f"{own.path}.embed_positions", own.positions, own.hidden, count, added_to=stream)
    return sketch.norm(f"{own.path}.layernorm_embedding", stream, bias=True) if own.kind.embedded else stream


def _ended(sketch: Sketch, own: _Stack, stream: Act) -> Act:
    return sketch.norm(f"{own.path}.layer_norm", stream, bias=True) if own.kind.last else stream


def _encoder_layer(sketch: Sketch, own: _Stack, path: str, stream: Act, tokens: int) -> Act:
    stream = _added(
        sketch, own, path, "self_attn", stream,
        lambda x: self_attention(sketch, f"{path}.self_attn", own.heads, x, tokens),
    )  # fmt: skip
    return _added(sketch, own, path, "final", stream, lambda x: _feed_forward(sketch, own, path, x))


def _decoder_layer(sketch: Sketch, own: _Stack, path: str, stream: Act, source: Act, tokens: int) -> Act:
    stream = _added(
        sketch, own, path, "self_attn", stream,
        lambda x: cached_attention(sketch, f"{path}.self_attn", own.heads, x),
    )  # fmt: skip
    stream = _added(
        sketch, own, path, "encoder_attn", stream,
        lambda x: cross_attention(sketch, f"{path}.encoder_attn", own.heads, x, source, tokens),
    )  # fmt: skip
    return _added(sketch, own, path, "final", stream, lambda x: _feed_forward(sketch, own, path, x))


def _added(sketch: Sketch, own: _Stack, path: str, name: str, stream: Act, work: Callable[[Act], Act]) -> Act:
    """What `work` makes of a stream, added to it; normalised before or after."""
    norm = f"{path}.{name}_layer_norm"
    worked = work(sketch.norm(norm, stream, bias=True) if own.kind.before else stream)
    summed = sketch.add(f"{path}.{name}_add", stream, worked, module=path)
    return summed if own.kind.before else sketch.norm(norm, summed, bias=True)


def _feed_forward(sketch: Sketch, own: _Stack, path: str, x: Act) -> Act:
    wide = sketch.activation(f"{path}.activation_fn", own.function, sketch.linear(f"{path}.fc1", x, own.inner))
    return sketch.linear(f"{path}.fc2", wide, own.hidden)
