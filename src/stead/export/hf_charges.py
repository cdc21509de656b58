"""What a model that accelerate dispatched really does, as costs.

Python runs its modules in their order on every device: nothing begins ahead because it is ready. Results go back to the
device of the input, which is the main one. Every block on another device gets masks and tables of positions by copies
of its own, block after block. A function of a graph is several operations of torch, each with a result of its own that
takes room for a while; and what a module was called with is kept until it returns, as is what was looked up in tables.
Attention is one kernel, which never holds all scores; where no kernel can do it, it is steps that do. What is on the
CPU "to be offloaded" runs on the main device: the weights of one module after the other are copied there each time, and
what it computes and caches stays there, although the plan has it on the CPU.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stead.cluster import Cluster, Device, Link
from stead.costs import Costs
from stead.export.hf_attention import attentions, holds_scores, rotates
from stead.export.hf_modules import Modules, is_block
from stead.export.hf_workspace import weights_of, workspace_of
from stead.graph import BUFFER, Graph
from stead.problem import Fifo, Latency, Objective, Problem, ProgramOrder

MARK = "charged for"  # in the aliases of the main device: what was charged once is not charged again
ROOM = "room for what lives beside the plan"  # in the aliases of a device; bytes that are part of its reserve
TABLES = 3  # cosines, sines and positions, for models that turn their keys
POSITIONS = 1  # for all others
FREQUENCY_BYTES = 4  # of an element of a head: half as many frequencies as elements, twice, in single precision
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
    workspace = np.maximum(problem.costs.workspace_bytes, workspace_of(problem.graph)[:, None])
    passing = _passing_through(problem.graph, workspace[:, main]) if streams and host not in (None, main) else 0
    cluster = _cluster(problem.cluster, problem.graph, main, host if streams else None, word, passing)
    costs = Costs(
        problem.graph, cluster, seconds, workspace_bytes=workspace, sources=problem.costs.sources,
        tensor_seconds=problem.costs.tensor_seconds,
    )  # fmt: skip
    objective = _in_program_order(problem.objective)
    return Problem(problem.graph, cluster, costs, objective=objective, constraints=problem.constraints)


def _in_program_order(objective: Objective) -> Objective:
    """The objective as Python runs a model; a policy that the user chose stays."""
    if isinstance(objective, Latency) and objective.execution == "dataflow" and isinstance(objective.policy, Fifo):
        return Latency(policy=ProgramOrder(), order="policy")
    return objective


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


def _copies(problem: Problem, main: int, *, away: list[bool]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Seconds of copies that the graph does not show, by operator and device."""
    graph, routes, modules = problem.graph, problem.routes, Modules(problem.graph)
    tables = TABLES if rotates(graph) else POSITIONS
    more = np.zeros((len(graph), len(problem.cluster)))
    firsts = {key: v for v, key in reversed(list(enumerate(modules.keys))) if is_block(key)}
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
            room = _seen_states(graph) + _masks(graph) + _tables(graph) + (passing if d == main else 0)
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


def _passing_through(graph: Graph, workspace: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
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
    return int((alive + workspace + weights_of(graph)).max(initial=0)) + int(graph.kv_cache_bytes) + buffers


def _masks(graph: Graph) -> int:
    """Bytes of masks, and of the numbers and the positions of tokens.

    One sequence has nothing to pad, and attention that looks at all tokens before knows so without a mask. Layers that
    look at a window have a mask of their own.
    """
    shapes = (graph.tensor_shapes[graph.tensor_first[v]] for v, kind in enumerate(graph.kinds) if kind == "Embedding")
    batch, tokens = next(((shape[0], shape[1]) for shape in shapes if len(shape) == 3), (0, 0))
    kinds = {one.is_windowed for one in attentions(graph)}
    masks = max(1, len(kinds)) if batch > 1 or holds_scores(graph) else int(True in kinds)
    return batch * tokens * (MASK_BYTES * tokens * masks + 2 * ID_BYTES)


def _tables(graph: Graph) -> int:
    """Bytes of the cosines and sines of all positions, which every block is called with, and of what they are made of.

    Layers that look at a window may turn by other angles than those that look at everything.
    """
    if not rotates(graph):
        return 0
    found = attentions(graph)
    kinds = len({one.is_windowed for one in found})
    sizes = (one.head_width * (2 * one.tokens * one.element_bytes + FREQUENCY_BYTES) for one in found)
    return kinds * max(sizes, default=0)


def _seen_states(graph: Graph) -> int:
    """Bytes that a model keeps of what it looks at: the image, every block's result, and what is put among words."""
    blocks: dict[str, int] = {}
    pixels = features = 0
    for v, key in enumerate(Modules(graph).keys):
        if graph.tensor_first[v] == graph.tensor_first[v + 1]:
            continue
        made = graph.tensor_first[v]
        if "vision" in key and is_block(key):  # the model chooses among them afterwards
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
