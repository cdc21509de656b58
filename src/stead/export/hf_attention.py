"""What the graph of a model tells of its attention: tokens that are looked at, heads, and bytes that it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.export.hf_modules import Modules, is_block
from stead.graph import Graph
from stead.readers.common.op_costs import SOFTMAX_FLOPS
from stead.readers.hf.module_costs import ROTATION_FLOPS

KIND = "Attention"
ROTARY = "rotary"  # in the name of a module that makes cosines and sines
SINKS, CAPPED, NOT_CAPPED = ".sinks", "pre_feedforward_layernorm", ("q_norm",)  # the last is in Gemma 3
SCORE_BYTES = 4
SCORES_AT_A_TIME = 4  # with a sink: scores, those beside the sink, less the largest, and their softmax
ACROSS = "EncDecAttention"  # in the path of attention to an encoder
DISTANCE_BYTES = 49  # for each query and key: six numbers of eight bytes and one of one
POSITION_BYTES = 8
STATES_BEFORE = 4  # what the first block was given, normalised, and its queries, keys and values
WIDEST_HEAD = 256  # where the width of a head cannot be told


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention as an operator of a graph tells of it."""

    operator: int
    tokens: int  # that are computed, of all sequences
    new_tokens: int  # of them in each sequence
    looked_at: float  # by each of them
    width: int  # of all heads
    element_bytes: int
    cached_bytes: int  # keys and values that are looked at
    is_cached: bool  # which are kept for later tokens
    flops: float  # without turning queries and keys by their positions

    @property
    def is_windowed(self) -> bool:
        """Whether tokens look at fewer than come with them."""
        return self.looked_at < self.new_tokens

    @property
    def grown_bytes(self) -> int:
        """Bytes beyond the caches while keys, then values, of new tokens are appended: both are copied as a whole."""
        return self.cached_bytes // 2 if self.looked_at > self.new_tokens else 0

    @property
    def heads(self) -> int:
        """Products are counted by elements and softmax by scores, which tells heads; 0 where it does not."""
        found = round((self.flops / (self.tokens * self.looked_at) - 4 * self.width) / SOFTMAX_FLOPS)
        return found if 1 <= found <= self.width else 0

    @property
    def head_width(self) -> int:
        """Elements of a head, or as many as heads have at most."""
        return self.width // self.heads if self.heads else min(self.width, WIDEST_HEAD)

    def score_bytes(self, *, sinks: int = 0) -> int:
        """Bytes of all scores, masked ones and those of sinks too, in single precision."""
        keys = max(self.looked_at, float(self.new_tokens)) + sinks
        return round(SCORE_BYTES * self.tokens * keys) * (self.width // self.head_width)


def holds_scores(graph: Graph) -> bool:
    """Whether attention is no single kernel, as none has sinks (gpt-oss) or caps scores (Gemma 2)."""
    parts = {part for path in graph.modules for part in path.split(".")}
    capped = CAPPED in parts and parts.isdisjoint(NOT_CAPPED)
    return capped or any(name.endswith(SINKS) for name in graph.weight_names)


def attention_workspace(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Bytes that attention needs for a while, and that its block holds because of it."""
    workspace = _score_workspace(graph) + _bias_workspace(graph)
    for one in attentions(graph):
        workspace[one.operator] += one.grown_bytes
    return workspace


def rotates(graph: Graph) -> bool:
    """Whether a model turns queries and keys by their positions."""
    return any(ROTARY in name for name in graph.folded)


def attentions(graph: Graph) -> list[Attention]:
    """All attention of a graph over tokens of one kind."""
    cached = np.zeros(len(graph), dtype=np.int64)
    is_cache = graph.is_kv_cache[graph.weight_of_use]
    np.add.at(cached, graph.weight_users[is_cache], graph.weight_bytes[graph.weight_of_use[is_cache]])
    turned = ROTATION_FLOPS if rotates(graph) else 0.0
    found = []
    for v in (v for v, kind in enumerate(graph.kinds) if kind == KIND):
        made = int(graph.tensor_first[v])
        shape, size = graph.tensor_shapes[made], int(graph.tensor_bytes[made])
        alike = [t for t in read_by(graph, v) if graph.tensor_shapes[t][:-1] == shape[:-1]]
        new = int(graph.tensor_bytes[alike].sum()) - size
        if new > 0 and size > 0:
            tokens, held = math.prod(shape[:-1]), int(cached[v]) or new
            element = size // (tokens * shape[-1])
            flops = float(graph.flops[v]) - turned * (size + new / 2) / element
            looked_at, kept = shape[-2] * held / new, bool(cached[v])
            found.append(Attention(v, tokens, shape[-2], looked_at, shape[-1], element, held, kept, flops))
    return found


def _score_workspace(graph: Graph) -> NDArray[np.int64]:
    """Bytes of scores where attention is computed step by step: some at a time, and one until its block ends."""
    held = np.zeros(len(graph), dtype=np.int64)
    if holds_scores(graph):
        keys = Modules(graph).keys
        blocks = {keys[one.operator]: one.score_bytes(sinks=1) for one in attentions(graph)}
        held += np.array([blocks.get(key, 0) for key in keys], dtype=np.int64)
        for one in attentions(graph):
            held[one.operator] *= SCORES_AT_A_TIME
    return held


def biases(graph: Graph) -> list[int]:
    """Tensors that are added to scores: a number for each head, query and key, as T5 looks them up by distance."""
    keys = Modules(graph).keys
    return [
        int(graph.tensor_first[v])
        for v, kind in enumerate(graph.kinds)
        if kind == "Embedding" and is_block(keys[v])
    ]


def _bias_workspace(graph: Graph) -> NDArray[np.int64]:
    """Bytes beside what is added to scores: while it is looked up, while attention reads it, and across to an encoder.

    Distances become numbers of buckets, step by step in whole numbers of eight bytes, when queries, keys and values of
    the first block are there already. Attention copies what it adds once, and twice where it must not look ahead.
    Attention to an encoder adds zeros, which all blocks of the decoder share.
    """
    added, workspace = biases(graph), np.zeros(len(graph), dtype=np.int64)
    found, keys = attentions(graph), Modules(graph).keys
    for bias in added:
        queries, looked_at = graph.tensor_shapes[bias][-2:]
        size, maker = int(graph.tensor_bytes[bias]), int(graph.tensor_producer[bias])
        readers = [one for one in found if bias in read_by(graph, one.operator)]
        states = max((one.tokens * one.width * one.element_bytes for one in readers), default=0)
        distances = DISTANCE_BYTES * queries * looked_at + POSITION_BYTES * (queries + looked_at)
        workspace[maker] = max(distances - size, 0) + STATES_BEFORE * states
        for one in readers:
            workspace[one.operator] += size * (2 if one.is_cached else 1)
    found = [one for one in found if added and ACROSS in graph.modules[one.operator]]
    across = {keys[one.operator]: one.score_bytes() for one in found}
    return workspace + np.array([across.get(key, 0) for key in keys], dtype=np.int64)


def read_by(graph: Graph, v: int) -> list[int]:
    """Tensors that an operator reads."""
    read: list[int] = graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist()
    return read
