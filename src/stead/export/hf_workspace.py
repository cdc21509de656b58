"""Bytes that the modules of a dispatched model need for a while, beside what a graph says that they read and write.

A function of a graph is several operations of torch, each with a result of its own; what a module was called with is
kept until it returns, as is what was looked up in tables.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stead.export.hf_attention import SCORE_BYTES, attention_workspace, biases, read_by
from stead.export.hf_modules import Modules, is_block
from stead.graph import Graph

EXPERT_KINDS = ("Expert", "Experts")
ROUTER, MERGE = "Router", "Scatter"
LET_GO = ("self_attn", "SelfAttention")  # attention whose result is added up and not kept by name
KEPT_BESIDE = "feed_forward"  # but it is kept in blocks whose other half is called so (Llama 4)
TEMPORARIES = 3  # results of single operations that live at a time within one operator of the graph, where not known
# Operations that are one kernel, or free what they read before they write; GELU is powers and a hyperbolic tangent.
KNOWN_TEMPORARIES = {
    "Linear": 0, "Convolution": 0, "Add": 0, "LayerNorm": 0, "Embedding": 0, "SiLU": 0, "ReLU": 0, "QuickGELU": 1,
    "GELU": 2,
}  # fmt: skip
FUNCTIONS = ("SiLU", "ReLU")  # of a half of what they read, times the other half, where the result is half as wide
PARTS = 4  # as wide as experts are inside: both halves, the activated one and the product
BIAS, BIASED_PARTS = "_bias", 9  # also both halves of a bias for each row, and both halves clamped, scaled and shifted
DOWN_FIRST = ("q_norm", "shared_expert", "shared_experts", "kv_b_proj")  # in blocks of all but Mixtral and PhiMoE
ROUTE_BYTES = 36  # of a row: number and weight of its expert, the same by experts, the order, and a count


def workspace_of(graph: Graph) -> NDArray[np.int64]:
    """Bytes that each operator needs for a while, beside what it reads and writes."""
    widest = np.zeros(len(graph), dtype=np.int64)
    np.maximum.at(widest, graph.tensor_producer, graph.tensor_bytes)
    states = ~np.isin(graph.tensor_of_read, biases(graph))
    np.maximum.at(widest, graph.readers[states], graph.tensor_bytes[graph.tensor_of_read[states]])
    workspace = np.array([KNOWN_TEMPORARIES.get(kind, TEMPORARIES) for kind in graph.kinds], dtype=np.int64) * widest
    for v, kind in enumerate(graph.kinds):
        made = graph.tensor_first[v]
        if kind in FUNCTIONS and graph.tensor_bytes[made] == widest[v] // 2:
            workspace[v] = widest[v] // 2
        if kind in EXPERT_KINDS and made < graph.tensor_first[v + 1] and graph.tensor_shapes[made]:
            workspace[v] = max(_experts(graph, v), _stacked(graph, v))
    return workspace + attention_workspace(graph) + _arguments(graph) + _kept(graph)


def _experts(graph: Graph, v: int) -> int:
    """Bytes inside of experts that run as products of groups of rows, a row for each token and expert of it.

    Rows of the input are gathered, both halves of the first product are one tensor, activated and multiplied; or rows
    of the result are weighed and put back in order. The result itself, which counts beside this, is made when all but
    the rows are gone.
    """
    made = graph.tensor_first[v]
    shape, size = graph.tensor_shapes[made], int(graph.tensor_bytes[made])
    wide, element = max(1, shape[-1]), size / max(1, math.prod(shape))
    inner = graph.flops[v] / (6 * wide)  # rows times the width inside: three products, two operations each
    routes = [t for t in read_by(graph, v) if graph.kinds[graph.tensor_producer[t]] == ROUTER]
    if not routes:
        return int(TEMPORARIES * max(size, 2 * inner * element))
    rows = math.prod(graph.tensor_shapes[routes[0]]) // 2  # every token gets numbers of experts, and their weights
    scores = math.prod(shape[:-1]) * int(graph.parameter_bytes[graph.tensor_producer[routes[0]]] / (wide * element))
    chosen = ROUTE_BYTES * rows + SCORE_BYTES * scores - int(graph.tensor_bytes[routes[0]])
    used = graph.weight_of_use[graph.weight_users == v].tolist()
    parts = BIASED_PARTS if any(graph.weight_names[weight].endswith(BIAS) for weight in used) else PARTS
    return int(element * max(wide * rows + parts * inner, 4 * wide * rows)) - size + chosen


def _stacked(graph: Graph, v: int) -> int:
    """Bytes beyond the weights while experts are loaded, which is before the rest of their block.

    Two of their three matrices, stacked, are joined into one, so that both are there twice; the third comes before
    them where files call it down_proj, which is before gate_proj and up_proj, and after them where it is w2.
    """
    keys = Modules(graph).keys
    members = [u for u, key in enumerate(keys) if key == keys[v]]
    inside = {part for u in members for part in graph.modules[u].split(".")}
    thirds = 4 if inside.isdisjoint(DOWN_FIRST) else 5
    return max(0, thirds * int(weights_of(graph)[v]) // 3 - int(weights_of(graph)[members].sum()))


def _arguments(graph: Graph) -> NDArray[np.int64]:
    """Bytes that are kept while each operator runs because a module around it was called with them.

    That is what was made outside of the module, is read inside of it alone, and is not needed any more.
    """
    readers: dict[int, list[int]] = {}
    for t, v in zip(graph.tensor_of_read.tolist(), graph.readers.tolist(), strict=True):
        readers.setdefault(t, []).append(v)
    held = np.zeros(len(graph), dtype=np.int64)
    paths = [path.split(".") for path in graph.modules]
    for t, users in readers.items():
        inside = _called_with(paths[int(graph.tensor_producer[t])], _shared_path([paths[v] for v in users]))
        for v in range(max(users) + 1, len(graph) if inside else 0):
            if not _is_in(paths[v], inside):
                break
            held[v] += graph.tensor_bytes[t]
    return held


def _called_with(maker: list[str], readers: list[str]) -> list[str]:
    """The outermost module that holds all readers of a tensor and not its maker; empty where there is none.

    Lists of modules are not called, their members are.
    """
    depth = len(_shared_path([maker, readers]))
    if depth == len(readers):
        return []
    is_list = depth + 1 < len(readers) and readers[depth + 1].isdigit()
    return readers[: depth + 2 if is_list else depth + 1]


def _kept(graph: Graph) -> NDArray[np.int64]:
    """Bytes that a model holds while a block runs: what it looked up, and what attention returned in that block.

    What something else was put among, such as features of an image, is not held any more.
    """
    keys = Modules(graph).keys
    merged = {int(t) for v, kind in enumerate(graph.kinds) if kind == MERGE for t in read_by(graph, v)}
    states = [
        (key, int(graph.tensor_bytes[graph.tensor_first[v]]))
        for v, key in enumerate(keys)
        if graph.kinds[v] == "Embedding" and not is_block(key) and int(graph.tensor_first[v]) not in merged
    ]
    inside: dict[str, set[str]] = {}
    for key, path in zip(keys, graph.modules, strict=True):
        inside.setdefault(key, set()).update(path.removeprefix(key).split("."))
    held = {key: _held(key, parts, states) for key, parts in inside.items() if is_block(key)}
    return np.array([held.get(key, 0) for key in keys], dtype=np.int64)


def _held(block: str, inside: set[str], states: list[tuple[str, int]]) -> int:
    """Bytes that are held while a block of some parts runs; `states` are tables and what was looked up in them."""
    own = [size for table, size in states if block.startswith(_stack_of(table))]
    looked_up = own or [size for _, size in states]
    lets_go = not inside.isdisjoint(LET_GO) and KEPT_BESIDE not in inside
    return sum(looked_up) + (0 if lets_go else max(looked_up, default=0))


def _stack_of(table: str) -> str:
    """The path of the model, or of its encoder or decoder, that a table of embeddings is part of, with a dot."""
    return table.rpartition(".")[0].removesuffix("embeddings").rstrip(".") + "."


def _shared_path(paths: list[list[str]]) -> list[str]:
    """The innermost module that holds all of some."""
    shortest = min(paths, key=len)
    depth = next((n for n, part in enumerate(shortest) if any(path[n] != part for path in paths)), len(shortest))
    return shortest[:depth]


def _is_in(path: list[str], module: list[str]) -> bool:
    return path[: len(module)] == module


def weights_of(graph: Graph) -> NDArray[np.int64]:
    """Bytes of what each operator has from the file of the model; caches are not in it."""
    held = np.zeros(len(graph), dtype=np.int64)
    loaded = ~graph.is_kv_cache[graph.weight_of_use]
    np.add.at(held, graph.weight_users[loaded], graph.weight_bytes[graph.weight_of_use[loaded]])
    return held
