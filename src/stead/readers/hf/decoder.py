"""Decoder-only transformers, layer by layer: one description of their shape, one way to write it down.

    embedding -> [norm, q k v, attention, o, add, norm, gate up, activation, down, add] x layers -> norm -> head

`decoders.py` fills in the description for each family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stead.readers.hf.module_costs import Act, Sketch
from stead.readers.hf.moe import Experts, experts


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
    norms_whole: bool = False  # of all heads together, not head by head
    sinks: str = ""  # a number for each head that scores compete with
    rotates: bool = True

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.heads * self.width


@dataclass(frozen=True, slots=True)
class Latent:
    """Attention whose keys and values are made of one narrow vector per token, which is all the cache keeps."""

    heads: int
    plain: int  # width of queries and keys of one head that are not rotated
    rotated: int  # width that is; keys of all heads share it
    values: int  # width of the values of one head
    rank: int  # width of the narrow vector
    query_rank: int  # of the one that queries are made of; 0: there is none
    bias: bool = False
    path: str = "self_attn"


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
    attention: Attention | Latent
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
    if isinstance(own, Latent):
        return _latent_attention(sketch, own, path, x)
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
        parameters=[sketch.parameter(f"{path}.{own.sinks}", own.heads)] if own.sinks else (),
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
        width = None if own.norms_whole else own.width
        queries = sketch.norm(f"{path}.{of_queries}", queries, bias=own.norm_bias, width=width)
        keys = sketch.norm(f"{path}.{of_keys}", keys, bias=own.norm_bias, width=width)
    return [queries, keys, values]


def _latent_attention(sketch: Sketch, own: Latent, path: str, x: Act) -> Act:
    """A prompt unfolds keys and values; a decoded token looks at the narrow vectors themselves, as servers do."""
    step, head = sketch.step, own.plain + own.rotated
    if own.query_rank:
        low = sketch.linear(f"{path}.q_a_proj", x, own.query_rank, bias=own.bias)
        low = sketch.norm(f"{path}.q_a_layernorm", low, bias=False)
        queries = sketch.linear(f"{path}.q_b_proj", low, own.heads * head, bias=False)
    else:
        queries = sketch.linear(f"{path}.q_proj", x, own.heads * head, bias=False)
    narrow = sketch.linear(f"{path}.kv_a_proj_with_mqa", x, own.rank + own.rotated, bias=own.bias)
    normed = sketch.norm(
        f"{path}.kv_a_layernorm", Act(narrow.producer, (*narrow.shape[:-1], own.rank)), bias=False
    )
    unfolded = sketch.linear(f"{path}.kv_b_proj", normed, own.heads * (own.plain + own.values), bias=False)
    folded = step.decodes
    mixed = sketch.attention(
        path,
        (queries, narrow, unfolded),
        heads=own.heads,
        shared=own.heads,
        width=own.rank + own.rotated if folded else head,
        value_width=own.rank if folded else own.values,
        queries=step.queries,
        keys=step.keys(),
        cached=step.cached(),
        kept_width=own.rank + own.rotated,
        rotates=True,
    )
    mixed = Act(mixed.producer, (*mixed.shape[:-1], own.heads * own.values))
    return sketch.linear(f"{path}.o_proj", mixed, x.width, bias=own.bias)


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
