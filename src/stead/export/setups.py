"""What people already have, as placements: a `device_map`, flags of llama.cpp, a partition, a layout, lists of names.

    read_setup("llama", "-ngl 33 -ts 4,9", problem)

Devices are found as exports name them: numbers are accelerators in the order of the cluster unless aliases say
otherwise, "cpu" is the CPU.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.errors import BadInput, did_you_mean
from stead.export.consumers import device_index
from stead.export.layer_stack import BEFORE, LayerStack, stack_of
from stead.export.llama_flags import llama_setup
from stead.export.megatron import parts_of
from stead.export.vllm import pp_indices
from stead.graph import Graph
from stead.graph.paths import module_paths, spread_labels
from stead.printing.wording import shown_path
from stead.problem import Placement, Problem
from stead.readers.base import read_json
from stead.readers.common.strict_json import parse_json
from stead.solvers.rules.huggingface import HfAuto, HfBalancedLow0, HfSequential
from stead.solvers.rules.settle import Rule, settled

MOST_PRINTED = 10**6  # letters
GIVEN = "the given set-up"  # what messages call text that is no file
STRATEGIES: dict[str, Rule] = {
    "auto": HfAuto(), "balanced": HfAuto(), "balanced_low_0": HfBalancedLow0(), "sequential": HfSequential(),
}  # fmt: skip
STREAMED = '"cpu" beside accelerators keeps weights on the CPU and computes elsewhere: they are streamed'
# Modules of transformers that hold no operator of a graph: buffers and things that do nothing when a model is used.
_WITHOUT_OPERATORS = ("rotary", "dropout", "drop", "rope")
TORCH = "torch"  # before what torch printed as a device: "cpu" is then no word of accelerate, and computes
_TORCH_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
_TORCHTITAN = {"tok_embeddings": "embedding", "norm": "head", "lm_head": "head", "output": "head"}


@dataclass(frozen=True, slots=True)
class Setup:
    """A placement that somebody uses, and the target that stands for the tool."""

    placement: Placement
    target: str
    options: Mapping[str, str] = field(default_factory=dict)  # of the target
    notes: tuple[str, ...] = ()


def read_setup(tool: str, text: str, problem: Problem) -> Setup:
    """The placement that a set-up of some tool means; BadInput names what cannot be understood."""
    if tool not in READERS:
        near = did_you_mean(tool, READERS)
        raise BadInput(f"no set-up of {tool!r} can be read{near}; there are {', '.join(READERS)}")
    return READERS[tool](text, problem)


def _document(text: str) -> tuple[Any, str]:
    """JSON that is given as it is or as a file, and what messages call it; also what Python prints, as it is."""
    if text.lstrip()[:1] in ("{", "["):
        printed = _printed(text)
        return (parse_json(text, where=GIVEN) if printed is None else printed), GIVEN
    path = Path(text)
    return read_json(path), shown_path(path)


def _printed(text: str) -> object:
    """What Python printed, such as a `hf_device_map` with its single quotes; None where it is something else."""
    if "'" not in text or len(text) > MOST_PRINTED:
        return None
    plain = _TORCH_DEVICE.sub(lambda found: repr(":".join(filter(None, (TORCH, found[1], found[2])))), text.strip())
    try:
        return ast.literal_eval(plain)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _from_device_map(text: str, problem: Problem) -> Setup:
    """A `device_map` of transformers: a word such as "auto", one device for all, or modules and their devices."""
    word = text.strip()
    if word in STRATEGIES:
        row, notes = settled(problem, STRATEGIES[word].wish(problem).devices)
        hosts = {d for d, device in enumerate(problem.cluster) if device.is_host}
        used = set(row.tolist())
        said = f'"{word}" as transformers 5.22 has it: by bytes of weights, in the order of the devices'
        return _mapped(problem, row, (said, *notes), streams=bool(used & hosts and used - hosts))
    one_device = re.fullmatch(r"\d+|cpu|(?:cuda|xpu|npu|mps)(?::\d+)?", word)
    found, where = ({"": int(word) if word.isdecimal() else word}, GIVEN) if one_device else _document(text)
    if not isinstance(found, dict) or not found or not all(isinstance(key, str) for key in found):
        raise BadInput(f"{where}: a device_map gives modules their devices, as in {{\"model.layers.0\": 0}}")
    graph, cluster = problem.graph, problem.cluster
    modules = module_paths(graph)
    devices = {key: _accelerate_device(cluster, key, value, where) for key, value in found.items()}
    idle = [key for key in devices if not _covers(modules, key)]
    owners = [name.rpartition(".")[0] for name in graph.weight_names]  # a module may be there for its weight alone
    for key in idle:
        if not _covers(owners, key) and not any(word in key.rpartition(".")[2] for word in _WITHOUT_OPERATORS):
            near = did_you_mean(key, _all_paths(modules))
            raise BadInput(f"{where}: the model has no module {key!r}{near}")
    labels = np.array([_place_of(module, devices) for module in modules], dtype=np.int32)
    bare = [v for v in np.flatnonzero(labels < 0).tolist() if graph.parameter_bytes[v]]
    if bare:
        name = graph.operator_names[bare[0]]
        raise BadInput(f"{where}: no module in the map holds {name!r} ({len(bare)} operators with weights)")
    placed = spread_labels(graph, labels)  # what has no weights runs where its inputs are
    streams = "cpu" in found.values() and len(set(found.values())) > 1 and not where.endswith(".stead.json")
    return _mapped(problem, placed, _counted_where_used(problem, placed, devices, idle), streams=streams)


def _counted_where_used(
    problem: Problem, row: NDArray[np.int32], devices: Mapping[str, int], idle: Sequence[str]
) -> tuple[str, ...]:
    """A note on every module that only holds a weight, and on another device than what uses that."""
    graph, notes = problem.graph, []
    for weight, name in enumerate(graph.weight_names):
        users = graph.weight_users[graph.weight_user_first[weight] : graph.weight_user_first[weight + 1]]
        key = next((key for key in idle if name.startswith(f"{key}.")), None)
        if key is not None and any(row[v] != devices[key] for v in users.tolist()):
            notes.append(f"{name} counts where it is used, not on {problem.cluster.names[devices[key]]}")
    return tuple(notes)


def _mapped(problem: Problem, row: NDArray[np.integer[Any]], notes: tuple[str, ...], *, streams: bool) -> Setup:
    """A placement by a `device_map`, with what "cpu" means in it."""
    options = {"cpu_means": "offload"} if streams else {}
    return Setup(Placement(problem, row), "hf", options, (*notes, STREAMED) if streams else notes)


def _accelerate_device(cluster: Cluster, key: str, value: object, where: str) -> int:
    if isinstance(value, str):
        value = value.removeprefix(f"{TORCH}:")
    if isinstance(value, str) and value in cluster.names:
        return cluster.index(value)
    cards = [d for d, device in enumerate(cluster) if not device.is_host]
    aliases = {device.alias.get("accelerate"): d for d, device in enumerate(cluster) if "accelerate" in device.alias}
    if isinstance(value, str) and value.partition(":")[0] in ("cuda", "xpu", "npu", "mps", "vdev"):
        number = value.partition(":")[2] or "0"
        value = int(number) if number.isdecimal() else value
    if value == "cpu":
        host = next((d for d, device in enumerate(cluster) if device.is_host), None)
        if host is not None:
            return host
        raise BadInput(f'{where}: {key!r} is on the CPU, which is not among the devices; add "+ cpu"')
    if isinstance(value, int) and not isinstance(value, bool):
        if value in aliases:
            return aliases[value]
        if 0 <= value < len(cards):
            return cards[value]
        raise BadInput(f"{where}: {key!r} is on accelerator {value}, there are {len(cards)}")
    if value == "disk":
        raise BadInput(f"{where}: {key!r} is on the disk, which is not simulated")
    near = did_you_mean(str(value), cluster.names)
    raise BadInput(f"{where}: {key!r} is on {value!r}, which is no device{near}")


def _covers(modules: Sequence[str], key: str) -> bool:
    return key == "" or any(module == key or module.startswith(f"{key}.") for module in modules)


def _all_paths(modules: Sequence[str]) -> list[str]:
    found = dict.fromkeys(modules)
    for module in list(found):
        parts = module.split(".")
        found.update(dict.fromkeys(".".join(parts[:depth]) for depth in range(1, len(parts))))
    return list(found)


def _place_of(module: str, devices: Mapping[str, int]) -> int:
    """The device of the longest name that a module lies in; -1 for none."""
    parts = module.split(".") if module else []
    for depth in range(len(parts), -1, -1):
        if (key := ".".join(parts[:depth])) in devices:
            return devices[key]
    return -1


def _value_of(name: str, text: str) -> str:
    """What a flag or a variable is set to in a command; the text itself where it does not name it."""
    if name not in text:
        return text
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"{GIVEN}: {str(error).lower()}") from None
    for word, following in pairwise([*words, ""]):
        if word == name or word.startswith(f"{name}="):
            return following if word == name else word.removeprefix(f"{name}=")
    return text


def _from_partition(text: str, problem: Problem) -> Setup:
    """Layers of every stage of vLLM, on the accelerators in order; alone or in a command."""
    stack, partition = stack_of(problem.graph), _value_of("VLLM_PP_LAYER_PARTITION", text).strip()
    size = partition.count(",") + 1
    cards = _visible(text, _cards(problem.cluster, size, "stages"), problem.cluster)
    layers = np.zeros(len(stack), dtype=np.int64)
    for rank, d in enumerate(cards):
        begin, end = pp_indices(len(stack), rank, size, partition)
        layers[begin:end] = d
    return Setup(_by_layers(problem, stack, int(layers[0]), layers.tolist(), int(layers[-1])), "vllm")


def _visible(text: str, cards: list[int], cluster: Cluster) -> list[int]:
    """The cards in the order in which a command lets them be seen; as they are where it says nothing."""
    name = "CUDA_VISIBLE_DEVICES"
    if name not in text:
        return cards
    every = {str(device_index(cluster, one)): d for d, one in enumerate(cluster.names)}
    numbers = _value_of(name, text).split(",")
    if not len(set(numbers)) == len(numbers) == len(cards) or not set(numbers) <= set(every) - {"None"}:
        raise BadInput(f"{GIVEN}: {name}={','.join(numbers)} does not name {len(cards)} of the devices")
    return [every[number] for number in numbers]


def _from_layout(text: str, problem: Problem) -> Setup:
    """A layout of Megatron-LM, alone or among flags: part v * stages + rank is on the accelerator of that rank."""
    stack = stack_of(problem.graph)
    parts = parts_of(_value_of("--pipeline-model-parallel-layout", text), layers=len(stack))
    cards = [d for d, device in enumerate(problem.cluster) if not device.is_host] or list(range(len(problem.cluster)))
    if len(parts) % len(cards) and len(parts) > len(cards):
        raise BadInput(f"the layout has {len(parts)} parts, which {len(cards)} devices cannot take in turn")
    before = after = cards[0]
    layers: list[int] = []
    for number, part in enumerate(parts):
        d = cards[number % len(cards)]
        layers += [d] * part.count("t")
        before = d if "E" in part else before
        after = d if "L" in part else after
    return Setup(_by_layers(problem, stack, before, layers, after), "megatron")


def _from_stages(text: str, problem: Problem) -> Setup:
    """Lists of module names, one for each device in order, or named by device."""
    found, where = _document(text)
    graph, cluster = problem.graph, problem.cluster
    if isinstance(found, dict):
        named = [(cluster.index(str(device)), names) for device, names in found.items()]
    else:
        cards = _cards(cluster, len(found) if isinstance(found, list) else 0, "lists of names")
        named = list(zip(cards, found, strict=True))
    row = np.full(len(graph), -1, dtype=np.int32)
    modules = module_paths(graph)
    for d, names in named:
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise BadInput(f'{where}: stages are lists of names: [["tok_embeddings", "layers.0"], ...]')
        for name in names:
            members = _named(graph, modules, name, where)
            if (row[members] >= 0).any():
                raise BadInput(f"{where}: {name!r} is named twice")
            row[members] = d
    bare = [v for v in np.flatnonzero(row < 0).tolist() if graph.parameter_bytes[v]]
    if bare:
        name = graph.operator_names[bare[0]]
        raise BadInput(f"{where}: no stage holds {name!r} ({len(bare)} operators with weights are left out)")
    return Setup(Placement(problem, spread_labels(graph, row)), "torchtitan")


def _named(graph: Graph, modules: Sequence[str], name: str, where: str) -> NDArray[np.int64]:
    """The operators that the name of a module means, in the model's own words or in those of torchtitan."""
    own = [v for v, module in enumerate(modules) if module == name or module.startswith(f"{name}.")]
    if own:
        return np.array(own)
    stack = stack_of(graph)
    kind, _, number = name.partition(".")
    if kind == "layers" and number.isdecimal() and int(number) < len(stack):
        return np.flatnonzero(stack.position == int(number))
    if _TORCHTITAN.get(name) == "embedding":
        return np.flatnonzero(stack.position == BEFORE)
    if _TORCHTITAN.get(name) == "head":
        norms = ["norm" in f"{graph.kinds[v]} {modules[v]}".lower() for v in range(len(graph))]
        return np.flatnonzero((stack.position == stack.after) & (np.array(norms) == (name == "norm")))
    near = did_you_mean(name, [*_all_paths(modules), *_TORCHTITAN, *(f"layers.{n}" for n in range(len(stack)))])
    raise BadInput(f"{where}: the model has no module {name!r}{near}")


def _cards(cluster: Cluster, count: int, what: str) -> list[int]:
    """The first so many accelerators; CPUs where there are no others."""
    cards = [d for d, device in enumerate(cluster) if not device.is_host] or list(range(len(cluster)))
    if not 0 < count <= len(cards):
        raise BadInput(f"{count} {what} for {len(cards)} devices: {', '.join(cluster.names[d] for d in cards)}")
    return cards[:count]


def _by_layers(problem: Problem, stack: LayerStack, before: int, layers: Sequence[int], after: int) -> Placement:
    places = np.array([before, *layers, after])
    return Placement(problem, places[stack.position - BEFORE])


def _from_llama(text: str, problem: Problem) -> Setup:
    """Flags of llama.cpp."""
    row, notes = llama_setup(text, problem)
    return Setup(Placement(problem, row), "llama", notes=notes)


READERS: dict[str, Callable[[str, Problem], Setup]] = {
    "hf": _from_device_map,
    "llama": _from_llama,
    "vllm": _from_partition,
    "megatron": _from_layout,
    "stages": _from_stages,
}

