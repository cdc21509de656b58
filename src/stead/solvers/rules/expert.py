"""The human expert: how people place the models of the papers, layer by layer.

    family                                rule
    RNNLM                                 layer l on device(l); embedding with the first, projection with the last layer
    GNMT, seq2seq                         encoder and decoder layer l on device(l), both counted from 0; the two
                                          directions of the first encoder layer are layer 0; embeddings with layer 0;
                                          attention and projection with the last layer
    the same, rule "gnmt-code"            layers in turn, as the public NMT code has them; attention with decoder layer
                                          0; projection and loss on device L if there is one, else with the last layer
    transformers, WaveNet, NASNet, ...    blocks in equal contiguous parts; embeddings with the first, head with the
                                          last one
    Inception                             contiguous parts with equal numbers of layers, in order of execution
    ResNet                                one device
    anything else                         contiguous parts of the topological order with equal numbers of units

L layers on D devices: device(l) is l for L <= D, else floor(l D / L), or l mod D with `modulo`. Backward and update
operators go where their forward operator is. What does not fit is not repaired: an expert's plan may run out of
memory, and then it says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, did_you_mean
from stead.graph import FORWARD, Graph
from stead.graph.paths import (
    block_paths,
    calls,
    forward_anchors,
    is_number,
    module_paths,
    numbered,
    spread_labels,
)
from stead.problem import Problem
from stead.solvers.rules.settle import Wish, chosen_devices, mean_seconds, solve_by_rule
from stead.solvers.solution import Budget, Solution

Variant = Literal["layers", "time"]

# Rules by name; a family has the rule of its name.
RULES: dict[str, str] = {
    "blocks": "blocks",
    "gnmt": "gnmt",
    "gnmt-code": "gnmt-code",
    "convolutions": "convolutions",
    "single": "single",
    "topological": "topological",
    "rnnlm": "blocks",
    "nmt": "gnmt",
    "transformer-xl": "blocks",
    "bert": "blocks",
    "gpt2": "blocks",
    "llama": "blocks",
    "t5": "blocks",
    "mixtral": "blocks",
    "wavenet": "blocks",
    "amoebanet": "blocks",
    "nasnet": "blocks",
    "inception": "convolutions",
    "resnet": "single",
}
# What a graph may be called; the first that fits decides.
NAMES = (
    (r"gnmt|nmt|seq2seq", "gnmt"),
    (r"inception|googlenet", "convolutions"),
    (r"resnet", "single"),
    (r"rnnlm|transformer-?xl|bert|gpt|llama|(^|-)t5|mixtral|wavenet|amoebanet|nasnet", "blocks"),
)
_EMBEDDING = re.compile(r"emb", re.IGNORECASE)
_ATTENTION = re.compile(r"att(n|ention)|(^|[._])keys?([._]|$)", re.IGNORECASE)
_PROJECTION = re.compile(r"proj|head|softmax|generator|loss|logits|classifier", re.IGNORECASE)
_ENCODER = re.compile(r"enc", re.IGNORECASE)
_DECODER = re.compile(r"dec", re.IGNORECASE)
_DIRECTION = re.compile(r"(^|[._])(forwards?|backwards?|fwd|bwd|bi\w*)([._]|$)", re.IGNORECASE)
_LAYER_KINDS = re.compile(r"conv|linear|gemm|matmul|mm($|[._])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Expert:
    """What a person who knows the model would do; `time` balances contiguous parts by forward time, not by count."""

    variant: str = "layers"
    rule: str = "auto"  # or the name of a family or rule
    modulo: bool = False  # layers in turn instead of in contiguous parts
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise BadInput(f"expert: variant is one of {', '.join(get_args(Variant))}, got {self.variant!r}")
        known = ["auto", *RULES]
        if self.rule.replace("_", "-") not in known:
            raise BadInput(
                f"expert: no rule {self.rule!r}{did_you_mean(self.rule, known)}; there are {', '.join(known)}"
            )
        if self.modulo and self.variant == "time":
            raise BadInput("expert: layers in turn cannot be balanced by time; leave out modulo or variant")

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "expert" if self.variant == "layers" else f"expert:{self.variant}"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score the expert's placement."""
        return solve_by_rule(self, problem, budget, seed)

    def wish(self, problem: Problem) -> Wish:
        """The device of the layer that each operator belongs to."""
        devices = np.array(chosen_devices(problem.cluster, self.devices), dtype=np.int64)
        rule, layers = self.layers_of(problem)
        count = int(layers.max()) + 1 if layers.size else 1
        modulo = self.modulo or rule == "gnmt-code"
        if self.variant == "time" and not modulo:
            forward = problem.graph.phases == FORWARD
            seconds = np.where(forward, mean_seconds(problem.costs.seconds[:, devices]), 0.0)
            weights = np.bincount(layers, weights=seconds, minlength=count).astype(np.float64)
            part = parts_by_weight(weights, len(devices))
        else:
            part = parts_by_count(count, len(devices), modulo=modulo)
        note = f"rule {rule}: {count} layer{'s' if count != 1 else ''} on {part.max() + 1} devices"
        return Wish(devices[part[layers]], (note,))

    def layers_of(self, problem: Problem) -> tuple[str, NDArray[np.int64]]:  # [operator]
        """The rule that applies and the layer of every operator, as the rule counts layers."""
        graph = problem.graph
        rule = self.rule.replace("_", "-")
        rule = recognised_rule(graph) if rule == "auto" else RULES[rule]
        if rule == "single":
            return rule, np.zeros(len(graph), dtype=np.int64)
        if rule == "blocks":
            return rule, _blocks(graph)
        if rule in ("gnmt", "gnmt-code"):
            devices = len(chosen_devices(problem.cluster, self.devices))
            return rule, _translation(graph, devices, as_code=rule == "gnmt-code")
        if rule == "convolutions":
            return rule, _convolutions(graph)
        return rule, _units(problem)


def recognised_rule(graph: Graph) -> str:
    """The rule for a graph, from its name or from the names of its modules."""
    name = graph.name.lower().replace("_", "-")
    for pattern, rule in NAMES:
        if re.search(pattern, name):
            return rule
    paths = list(dict.fromkeys(module_paths(graph)))
    blocks = [block for block in block_paths(paths) if block]
    sides = [any(pattern.search(block) for block in blocks) for pattern in (_ENCODER, _DECODER)]
    if all(sides) and _is_unrolled(graph):
        return "gnmt"
    return "blocks" if blocks else "topological"


def parts_by_count(layers: int, devices: int, *, modulo: bool = False) -> NDArray[np.int64]:  # [layer]
    """The part that each layer belongs to: one each if there are enough, else equal contiguous parts, or in turn.

    >>> parts_by_count(4, 2).tolist(), parts_by_count(4, 2, modulo=True).tolist(), parts_by_count(2, 4).tolist()
    ([0, 0, 1, 1], [0, 1, 0, 1], [0, 1])
    """
    layer = np.arange(layers)
    if layers <= devices or modulo:
        return layer % devices
    return layer * devices // layers


def parts_by_weight(weights: NDArray[np.float64], devices: int) -> NDArray[np.int64]:  # [layer]
    """Contiguous parts of about equal weight; a layer goes where its middle is.

    >>> parts_by_weight(np.array([4.0, 1.0, 1.0, 2.0]), 2).tolist()
    [0, 1, 1, 1]
    """
    total = weights.sum()
    if len(weights) <= devices or total <= 0:
        return parts_by_count(len(weights), devices)
    middle = np.cumsum(weights) - weights / 2
    part: NDArray[np.int64] = (middle / total * devices).astype(np.int64)
    return np.minimum(part, devices - 1, dtype=np.int64)


def _blocks(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Blocks in order of execution, those of an encoder before those of a decoder."""
    paths = module_paths(graph)
    blocks = block_paths(paths)
    order = [block for block in dict.fromkeys(blocks) if block]
    if any(_ENCODER.search(block) for block in order) and any(_DECODER.search(block) for block in order):
        order.sort(key=lambda block: bool(_DECODER.search(block)) and not _ENCODER.search(block))
    if not order:
        return np.zeros(len(graph), dtype=np.int64)
    number = {block: n for n, block in enumerate(order)}
    labels = [
        number.get(block, 0 if _EMBEDDING.search(path) else -1)
        for block, path in zip(blocks, paths, strict=True)
    ]
    return _completed(graph, labels)


def _translation(graph: Graph, devices: int, *, as_code: bool) -> NDArray[np.int64]:  # [operator]
    """Encoder and decoder layers counted side by side; see the table above."""
    paths = module_paths(graph)
    distinct = list(dict.fromkeys(paths))
    sides = {path: _side_and_number(path) for path in distinct}
    pair = {path for path in distinct if not sides[path] and _DIRECTION.search(path)}
    shift = 1 if pair else 0  # further encoder layers are counted after the pair
    numbers = [
        side[1] + (shift if side[0] == "encoder" else 0) for side in sides.values() if side is not None
    ]
    last = max(numbers, default=0)
    layer: dict[str, int] = {}
    for path in distinct:
        side = sides[path]
        if path in pair or _EMBEDDING.search(path):
            layer[path] = 0
        elif side is not None:
            layer[path] = side[1] + (shift if side[0] == "encoder" else 0)
        elif _ATTENTION.search(path):
            layer[path] = 0 if as_code else last
        elif _PROJECTION.search(path):
            layer[path] = last + 1 if as_code and last + 1 < devices else last
        else:
            layer[path] = -1
    return _completed(graph, [layer[path] for path in paths])


def _side_and_number(path: str) -> tuple[str, int] | None:
    """(encoder or decoder, number of the layer) of a module such as `dec.1.gates`; None outside of both."""
    side = ""
    for part in path.split("."):
        if side and is_number(part):
            return side, int(part)
        if _ENCODER.search(part):
            side = "encoder"
        elif _DECODER.search(part):
            side = "decoder"
    return None


def _completed(graph: Graph, labels: list[int]) -> NDArray[np.int64]:  # [operator]
    """Layers of all operators: without one (-1) that of a neighbour, with a twin that of the twin."""
    layer = spread_labels(graph, np.array(labels, dtype=np.int32)).astype(np.int64)
    return np.where(graph.twins >= 0, layer[forward_anchors(graph)], layer)


def _convolutions(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Convolutions and products in order of execution; everything else goes with the last one before it."""
    uses_weight = np.zeros(len(graph), dtype=bool)
    uses_weight[graph.weight_users] = True
    counts = uses_weight & (graph.phases == FORWARD)
    counts &= np.array([bool(_LAYER_KINDS.search(kind)) for kind in graph.kinds], dtype=bool)
    if not counts.any():
        counts = graph.phases == FORWARD
    layer: NDArray[np.int64] = np.maximum(np.cumsum(counts, dtype=np.int64) - 1, 0)
    return layer[forward_anchors(graph)]


def _units(problem: Problem) -> NDArray[np.int64]:  # [operator]
    """Units in the order of their forward operators."""
    anchors = forward_anchors(problem.graph)
    leader = problem.units[anchors[problem.unit_firsts]][problem.units]  # the unit of the forward operator
    return np.unique(leader, return_inverse=True)[1].reshape(leader.shape).astype(np.int64)


def _is_unrolled(graph: Graph) -> bool:
    """Whether some layer is called again and again."""
    return any(
        call.number > 0 and bool(numbered(call.module))
        for path in dict.fromkeys(graph.modules)
        for call in calls(path)
    )
