"""What a model that accelerate dispatched really does, as costs.

Its results go back to the device of its input, which is the main one. Every block on another device gets masks and
tables of positions by copies of its own, block after block. A function of a graph is several operations of torch, each
with a result of its own that takes room for a while; and what a module was called with is kept until it returns, as is
what was looked up in tables. Attention is one kernel, which never holds all scores. What is on the CPU "to be
offloaded" runs on the main device: the weights of one module after the other are copied there each time, and what it
computes and caches stays there, although the plan has it on the CPU.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stead.cluster import Cluster, Device, Link
from stead.costs import Costs
from stead.export.hf_modules import Modules
from stead.graph import BUFFER, Graph
from stead.problem import Problem

MARK = "charged for"  # in the aliases of the main device: what was charged once is not charged again
ROOM = "room for what lives beside the plan"  # in the aliases of a device; bytes that are part of its reserve
TABLES = 3  # cosines, sines and positions, for models that turn their keys
POSITIONS = 1  # for all others
EXPERT_KINDS = ("Expert", "Experts")
ROUTER = "Router"
TEMPORARIES = 3  # results of single operations that live at a time within one operator of the graph, where not known
# Operations that are one kernel, or free what they read before they write; GELU is powers and a hyperbolic tangent.
KNOWN_TEMPORARIES = {
    "Linear": 0, "Convolution": 0, "Add": 0, "LayerNorm": 0, "Embedding": 0, "SiLU": 0, "ReLU": 0, "QuickGELU": 1,
    "GELU": 2,
}  # fmt: skip
ID_BYTES, MASK_BYTES = 8, 4  # of a token's number or position, and of an entry of a mask


def charged(problem: Problem, target: str, *, main: int, streams: bool) -> Problem:
    """The problem as a dispatched model runs it; with `streams` weights on the CPU are copied to the main device."""
    devices = problem.cluster.devices
    word = f"{target} offload" if streams else target
    if devices[main].alias.get(MARK) == word:
        return problem
    seconds = problem.costs.seconds.copy()
    host = next((d for d, device in enumerate(devices) if device.is_host), None)
    if streams and host is not None and host != main:
        seconds[:, host] = seconds[:, main] + _streamed(problem, host, main)
    seconds += _copies(problem, main, away=[d != main and not (streams and d == host) for d in range(len(devices))])
    room = np.maximum(problem.costs.workspace_bytes, _room(problem.graph)[:, None])
    passing = _passing_through(problem.graph, room[:, main]) if streams and host not in (None, main) else 0
    cluster = _cluster(problem.cluster, problem.graph, main, host if streams else None, word, passing)
    costs = Costs(
        problem.graph, cluster, seconds, workspace_bytes=room, sources=problem.costs.sources,
        tensor_seconds=problem.costs.tensor_seconds,
    )  # fmt: skip
    return Problem(
        problem.graph, cluster, costs, objective=problem.objective, constraints=problem.constraints
    )


def _streamed(problem: Problem, host: int, main: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds in which the weights of each operator come from the CPU."""
    graph, routes = problem.graph, problem.routes
    users = np.bincount(graph.weight_users, minlength=len(graph))
    is_cache = graph.is_kv_cache[graph.weight_of_use]
    copied = np.zeros(len(graph))
    np.add.at(copied, graph.weight_users[~is_cache], graph.weight_bytes[graph.weight_of_use[~is_cache]])
    took: np.ndarray[tuple[int], np.dtype[np.float64]] = (
        users * routes.latency_seconds[host, main] + copied / routes.bytes_per_second[host, main]
    )
    return np.where(copied > 0, took, 0.0)


def _room(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes that each operator needs for a while, beside what it reads and writes."""
    widest = np.zeros(len(graph), dtype=np.int64)
    np.maximum.at(widest, graph.tensor_producer, graph.tensor_bytes)
    np.maximum.at(widest, graph.readers, graph.tensor_bytes[graph.tensor_of_read])
    room = np.array([KNOWN_TEMPORARIES.get(kind, TEMPORARIES) for kind in graph.kinds], dtype=np.int64) * widest
    for v, kind in enumerate(graph.kinds):
        made = graph.tensor_first[v]
        if kind in EXPERT_KINDS and made < graph.tensor_first[v + 1] and graph.tensor_shapes[made]:
            room[v] = max(_experts(graph, v), _stacked(graph, v))
    return room + _arguments(graph) + _kept(graph)


def _experts(graph: Graph, v: int) -> int:
    """Bytes inside of experts that run as products of groups of rows, a row for each token and expert of it.

    Rows of the input are gathered, both halves of the first product are one tensor, activated and multiplied; or rows
    of the result are weighed and put back in order.
    """
    made = graph.tensor_first[v]
    shape, size = graph.tensor_shapes[made], int(graph.tensor_bytes[made])
    wide, element = max(1, shape[-1]), size / max(1, math.prod(shape))
    inner = graph.flops[v] / (6 * wide)  # rows times the width inside: three products, two operations each
    reads = graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist()
    routes = [graph.tensor_shapes[t] for t in reads if graph.kinds[graph.tensor_producer[t]] == ROUTER]
    if not routes:
        return int(TEMPORARIES * max(size, 2 * inner * element))
    outer = wide * math.prod(routes[0]) // 2  # a router gives every token numbers of experts, and their weights
    return int(element * max(outer + 4 * inner, 4 * outer))


def _stacked(graph: Graph, v: int) -> int:
    """Bytes beyond the weights while experts are loaded, which is before the rest of their block.

    Two of their three matrices, stacked, are joined into one, so that both are there twice and the third is not yet.
    """
    keys = Modules(graph).keys
    block = sum(int(size) for key, size in zip(keys, _weights(graph), strict=True) if key == keys[v])
    return max(0, 4 * int(_weights(graph)[v]) // 3 - block)


def _arguments(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
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


def _kept(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes that a model holds while a block runs: what it looked up, and what attention returned in that block."""
    keys = Modules(graph).keys
    states = [
        int(graph.tensor_bytes[graph.tensor_first[v]])
        for v, key in enumerate(keys)
        if graph.kinds[v] == "Embedding" and not _is_block(key)
    ]
    return np.array([_is_block(key) for key in keys], dtype=np.int64) * (sum(states) + max(states, default=0))


def _is_block(key: str) -> bool:
    """Whether a module is one of a list."""
    return key.rpartition(".")[2].isdigit()


def _shared_path(paths: list[list[str]]) -> list[str]:
    """The innermost module that holds all of some."""
    shortest = min(paths, key=len)
    depth = next((n for n, part in enumerate(shortest) if any(path[n] != part for path in paths)), len(shortest))
    return shortest[:depth]


def _is_in(path: list[str], module: list[str]) -> bool:
    return path[: len(module)] == module


def _copies(problem: Problem, main: int, *, away: list[bool]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Seconds of copies that the graph does not show, by operator and device."""
    graph, routes, modules = problem.graph, problem.routes, Modules(problem.graph)
    tables = TABLES if any("rotary" in name for name in graph.folded) else POSITIONS
    more = np.zeros((len(graph), len(problem.cluster)))
    firsts = {key: v for v, key in reversed(list(enumerate(modules.keys))) if _is_block(key)}
    there, back = routes.latency_seconds[main], routes.latency_seconds[:, main]
    for v in firsts.values():
        more[v] += tables * there
    for v in np.flatnonzero(np.diff(graph.read_first) == 0).tolist():
        more[v] += there  # the input itself
    for t in np.flatnonzero(graph.tensor_kept).tolist():
        more[graph.tensor_producer[t]] += back + graph.tensor_bytes[t] / routes.bytes_per_second[:, main]
    more[:, [not one for one in away]] = 0.0
    return more


def _cluster(cluster: Cluster, graph: Graph, main: int, host: int | None, word: str, passing: int) -> Cluster:
    """The cluster with the mark, and with room for what lives beside the plan; `passing` bytes of it on the main."""
    streams = host is not None and host != main
    devices = []
    for d, device in enumerate(cluster):
        room = 0
        if not device.is_host:
            room = _seen_states(graph) + _masks(graph) + (passing if d == main else 0)
        marks: dict[str, str | int] = dict(device.alias)
        if d == main:
            marks[MARK] = word
        if room:
            marks[ROOM] = room
        reserve = min(device.reserve_bytes + room, device.memory_bytes)
        devices.append(replace(device, alias=marks, reserve_bytes=reserve) if room or d == main else device)
    if not streams or cluster.routing == "host":
        return replace(cluster, devices=tuple(devices))
    assert host is not None
    return replace(cluster, devices=tuple(devices), links=_links(cluster, devices[host], devices[main]))


def _passing_through(graph: Graph, room: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """The most bytes that what waits on the CPU can take of the main device, whichever part of the model that is.

    Hooks bring the weights of the module that runs and take them away when it is done. What modules hand on, need for
    a while and cache is there as if they were planned there; buffers are not taken away.
    """
    last = graph.tensor_producer.copy()
    np.maximum.at(last, graph.tensor_of_read, graph.readers)
    last[graph.tensor_kept] = len(graph) - 1
    changes = np.zeros(len(graph) + 1, dtype=np.int64)
    np.add.at(changes, graph.tensor_producer, graph.tensor_bytes)
    np.subtract.at(changes, last + 1, graph.tensor_bytes)
    alive = np.cumsum(changes)[:-1]
    buffers = sum(
        int(size) for name, size in zip(graph.weight_names, graph.weight_bytes, strict=True) if name.endswith(BUFFER)
    )
    return int((alive + room + _weights(graph)).max(initial=0)) + int(graph.kv_cache_bytes) + buffers


def _weights(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes of what each operator has from the file of the model; caches are not in it."""
    held = np.zeros(len(graph), dtype=np.int64)
    loaded = ~graph.is_kv_cache[graph.weight_of_use]
    np.add.at(held, graph.weight_users[loaded], graph.weight_bytes[graph.weight_of_use[loaded]])
    return held


def _masks(graph: Graph) -> int:
    """Bytes of a mask, and of the numbers and the positions of tokens."""
    shapes = (graph.tensor_shapes[graph.tensor_first[v]] for v, kind in enumerate(graph.kinds) if kind == "Embedding")
    batch, tokens = next(((shape[0], shape[1]) for shape in shapes if len(shape) == 3), (0, 0))
    return batch * tokens * (MASK_BYTES * tokens + 2 * ID_BYTES)


def _seen_states(graph: Graph) -> int:
    """Bytes that a model keeps of what it looks at: the image, every block's result, and what is put among words."""
    blocks: dict[str, int] = {}
    pixels = features = 0
    for v, key in enumerate(Modules(graph).keys):
        if graph.tensor_first[v] == graph.tensor_first[v + 1]:
            continue
        made = graph.tensor_first[v]
        if "vision" in key and _is_block(key):  # the model chooses among them afterwards
            blocks[key] = int(graph.tensor_bytes[made])
        if "vision" in key and graph.kinds[v] == "Convolution":  # patches, each with one weight for each pixel
            shape = graph.tensor_shapes[made]
            pixels = math.prod(shape[:-1]) * int(graph.parameter_bytes[v]) // max(1, shape[-1])
        if "projector" in key:
            features = 2 * int(graph.tensor_bytes[made])  # of each image, and joined
    return sum(blocks.values()) + max(blocks.values(), default=0) + pixels + features


def _links(cluster: Cluster, host: Device, main: Device) -> tuple[Link, ...]:
    """Links of a cluster in which what the CPU holds runs on the main device: between the two nothing is sent."""
    kept = [link for link in cluster.links if host.name not in (link.source, link.target)]
    free = [Link(a, b, float("inf")) for a, b in ((host.name, main.name), (main.name, host.name))]
    return (*kept, *free)
