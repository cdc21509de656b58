"""Decoder-only transformers, layer by layer: one description of their shape, one way to write it down.

    embedding -> [norm, q k v, attention, o, add, norm, gate up, activation, down, add] x layers -> norm -> head

`decoders.py` fills in the description for each family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stead.formats.hf.moe import Experts, experts
from stead.formats.hf.sketch import Act, Sketch


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a layer: names of its modules and their widths."""

    heads: int
    shared: int  # heads of keys and values
    width: int  # of one head
    path: str = "self_attn"
    queries: str = "q_proj"
    keys: str = "k_proj"
    values: str = "v_proj"
    fused: str = ""  # one module for queries, keys and values
    out: str = "o_proj"
    bias: bool = False
    out_bias: bool | None = None  # where it differs
    norms: tuple[str, str] | None = None  # of queries and keys, by their modules
    norm_bias: bool = False
    rotates: bool = True

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.heads * self.width


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The feed-forward part of a layer."""

    inner: int
    function: str
    path: str = "mlp"
    gate: str = "gate_proj"  # empty: there is none
    up: str = "up_proj"
    fused: str = ""  # one module for gate and up
    down: str = "down_proj"
    act: str = "act_fn"
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Norms:
    """Names of the normalisations of a layer; empty where there is none."""

    before_attention: str = "input_layernorm"
    after_attention: str = ""
    before_mlp: str = "post_attention_layernorm"
    after_mlp: str = ""
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder: what it is made of, with names as transformers gives them."""

    hidden: int
    layers: int
    vocabulary: int
    attention: Attention
    feed_forward: FeedForward
    norms: Norms = field(default_factory=Norms)
    prefix: str = "model."
    embedding: str = "embed_tokens"
    positions: tuple[str, int] | None = None  # module and entries of a table of positions
    block: str = "layers"
    final_norm: str = "norm"
    rotary: str = "rotary_emb"  # empty where there is none
    parallel: bool = False  # attention and feed-forward part read the same tensor
    one_norm: bool = False  # and even the same normalised one
    windows: Sequence[int | None] = ()  # how far back each layer looks; empty: as far as there is anything
    experts: Callable[[int], Experts | None] = field(default=lambda layer: None)
    head: str = "lm_head"
    head_bias: bool = False
    tied: bool = False

    @property
    def embedding_weight(self) -> str:
        """The parameter that a tied head shares."""
        return f"{self.prefix}{self.embedding}.weight"


def decoder(
    sketch: Sketch, shape: Decoder, *, head: bool = True, merged: Callable[[Act], Act] | None = None
) -> None:
    """Write a decoder down; `merged` puts something else among the embedded tokens."""
    count = sketch.step.queries
    stream = sketch.embedding(f"{shape.prefix}{shape.embedding}", shape.vocabulary, shape.hidden, count)
    if shape.rotary:
        sketch.fold(f"{shape.prefix}{shape.rotary}", stream)
    if shape.positions is not None:
        name, entries = shape.positions
        stream = sketch.embedding(f"{shape.prefix}{name}", entries, shape.hidden, count, added_to=stream)
    if merged is not None:
        stream = merged(stream)
    for layer in range(shape.layers):
        stream = _layer(sketch, shape, layer, stream)
    if shape.final_norm:
        stream = sketch.norm(f"{shape.prefix}{shape.final_norm}", stream, bias=shape.norms.bias)
    if head:
        tied = shape.embedding_weight if shape.tied else ""
        stream = sketch.linear(shape.head, stream, shape.vocabulary, bias=shape.head_bias, tied=tied)
    sketch.keep(stream)


def _layer(sketch: Sketch, shape: Decoder, layer: int, stream: Act) -> Act:
    path = f"{shape.prefix}{shape.block}.{layer}"
    norms = shape.norms

    def normed(name: str, x: Act) -> Act:
        return sketch.norm(f"{path}.{name}", x, bias=norms.bias) if name else x

    before = normed(norms.before_attention, stream)
    window = shape.windows[layer] if shape.windows else None
    attended = normed(norms.after_attention, _attention(sketch, shape, path, before, window))
    if shape.parallel:
        source = before if shape.one_norm else normed(norms.before_mlp, stream)
        worked = _feed_forward(sketch, shape, path, layer, source)
        return sketch.add(f"{path}.add", attended, worked, stream, module=path)
    stream = sketch.add(f"{path}.attention_add", stream, attended, module=path)
    worked = _feed_forward(sketch, shape, path, layer, normed(norms.before_mlp, stream))
    return sketch.add(f"{path}.mlp_add", stream, normed(norms.after_mlp, worked), module=path)


def _attention(sketch: Sketch, shape: Decoder, layer: str, x: Act, window: int | None) -> Act:
    own = shape.attention
    path = f"{layer}.{own.path}"
    if own.fused:
        width = own.inner + 2 * own.shared * own.width
        reads = [sketch.linear(f"{path}.{own.fused}", x, width, bias=own.bias)]
    else:
        reads = _projections(sketch, own, path, x)
    step = sketch.step
    mixed = sketch.attention(
        path,
        reads,
        heads=own.heads,
        shared=own.shared,
        width=own.width,
        queries=step.queries,
        keys=step.keys(window),
        cached=step.cached(window),
        rotates=own.rotates,
    )
    bias = own.bias if own.out_bias is None else own.out_bias
    return sketch.linear(f"{path}.{own.out}", mixed, shape.hidden, bias=bias)


def _projections(sketch: Sketch, own: Attention, path: str, x: Act) -> list[Act]:
    """Queries, keys and values, the first two normalised head by head in some models."""
    queries = sketch.linear(f"{path}.{own.queries}", x, own.inner, bias=own.bias)
    keys = sketch.linear(f"{path}.{own.keys}", x, own.shared * own.width, bias=own.bias)
    values = sketch.linear(f"{path}.{own.values}", x, own.shared * own.width, bias=own.bias)
    if own.norms is not None:
        of_queries, of_keys = own.norms
        queries = sketch.norm(f"{path}.{of_queries}", queries, bias=own.norm_bias, width=own.width)
        keys = sketch.norm(f"{path}.{of_keys}", keys, bias=own.norm_bias, width=own.width)
    return [queries, keys, values]


def _feed_forward(sketch: Sketch, shape: Decoder, layer: str, number: int, x: Act) -> Act:
    own = shape.feed_forward
    path = f"{layer}.{own.path}" if own.path else layer
    chosen = shape.experts(number)
    if chosen is not None:
        return experts(sketch, path, x, chosen)
    return feed_forward(sketch, own, path, x)


def feed_forward(sketch: Sketch, own: FeedForward, path: str, x: Act) -> Act:
    """Up, function, down; with a gate beside the way up in most models."""
    rows = x.shape[:-1]
    act = f"{path}.{own.act}"
    if own.fused:
        both = sketch.linear(f"{path}.{own.fused}", x, 2 * own.inner, bias=own.bias)
        wide = sketch.function(act, own.function, (both,), (*rows, own.inner), module=act)
    elif own.gate:
        gate = sketch.linear(f"{path}.{own.gate}", x, own.inner, bias=own.bias)
        up = sketch.linear(f"{path}.{own.up}", x, own.inner, bias=own.bias)
        wide = sketch.activation(act, own.function, up, gate=gate)
    else:
        wide = sketch.activation(
            act, own.function, sketch.linear(f"{path}.{own.up}", x, own.inner, bias=own.bias)
        )
    return sketch.linear(f"{path}.{own.down}", wide, x.width, bias=own.bias)
