"""Attention in ONNX files: the standard operator and those of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stead.readers.common.op_costs import Shape
from stead.readers.onnx.site import Rule, Site, rules


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """What the cost of attention depends on."""

    heads: int  # of the whole batch
    key_heads: int  # of one sample
    queries: int
    keys: int
    width: int
    value_width: int


_PAST = {"MultiHeadAttention": 6, "GroupQueryAttention": 3, "DecoderMaskedMultiHeadAttention": 5}


def attention_sizes(site: Site) -> AttentionSizes:
    """Sizes of an attention operator whose projections are apart."""
    node, query = site.node, site.shape(0)
    past = site.shape(_PAST[node.kind])[-2] if node.kind in _PAST and site.has(_PAST[node.kind]) else 0
    if len(query) == 4 and node.kind == "Attention":
        key, value = site.shape(1), site.shape(2)
        past = site.shape(4)[-2] if site.has(4) else 0
        return AttentionSizes(query[0] * query[1], key[1], query[2], key[2] + past, query[3], value[3])
    heads = node.integer("q_num_heads", node.integer("num_heads", 1))
    key_heads = node.integer("kv_num_heads", heads)
    if len(query) == 5:  # [batch, length, heads, 3, width]
        return AttentionSizes(query[0] * query[2], query[2], query[1], query[1] + past, query[4], query[4])
    if node.kind == "GroupQueryAttention" and not site.has(1):
        width = query[2] // (heads + 2 * key_heads)
        return AttentionSizes(query[0] * heads, key_heads, query[1], query[1] + past, width, width)
    width = query[2] // heads
    key, value = site.shape(1), site.shape(2) if site.has(2) else site.shape(1)
    length = key[2] if len(key) == 4 else key[1]
    value_width = value[3] if len(value) == 4 else value[2] // key_heads
    if len(key) == 5:  # keys and values in one: [batch, length, heads, 2, width]
        value_width = key[4]
    if node.kind == "Attention" and site.has(4):
        past = site.shape(4)[-2]
    return AttentionSizes(query[0] * heads, key_heads, query[1], length + past, width, value_width)


def _attention(site: Site) -> Sequence[Shape]:
    """The standard operator (version 23): heads in a dimension of their own, or side by side."""
    query, sizes = site.shape(0), attention_sizes(site)
    batch = query[0]
    heads = sizes.heads // max(batch, 1)
    keys = (batch, sizes.key_heads, sizes.keys)
    result = (*query[:3], sizes.value_width) if len(query) == 4 else (*query[:2], heads * sizes.value_width)
    scores = (batch, heads, sizes.queries, sizes.keys)
    return [result, (*keys, sizes.width), (*keys, sizes.value_width), scores]


def _packed_attention(site: Site) -> Sequence[Shape]:
    """com.microsoft.Attention: one product gives queries, keys and values."""
    data, node = site.shape(0), site.node
    sizes = node.integers("qkv_hidden_sizes")
    width = sizes[-1] if sizes else site.shape(1)[-1] // 3
    return [(*data[:-1], width)]


def _multi_head_attention(site: Site) -> Sequence[Shape]:
    query, sizes = site.shape(0), attention_sizes(site)
    heads = sizes.heads // max(query[0], 1)
    cache = (query[0], sizes.key_heads, sizes.keys)
    return [(*query[:2], heads * sizes.value_width), (*cache, sizes.width), (*cache, sizes.value_width)]


def _attention_of_any_domain(site: Site) -> Sequence[Shape]:
    if site.node.domain == "com.microsoft":
        return _packed_attention(site)
    return _attention(site)


def _linear_attention(site: Site) -> Sequence[Shape]:
    query, key, value, node = site.shape(0), site.shape(1), site.shape(2), site.node
    heads, key_heads = node.integer("q_num_heads", 1), node.integer("kv_num_heads", 1)
    width, value_width = key[2] // key_heads, value[2] // key_heads
    return [(*query[:2], heads * value_width), (query[0], key_heads, width, value_width)]


ATTENTION: dict[str, Rule] = {
    "Attention": _attention_of_any_domain,
    "LinearAttention": _linear_attention,
    **rules(_multi_head_attention, "MultiHeadAttention GroupQueryAttention DecoderMaskedMultiHeadAttention"),
}
