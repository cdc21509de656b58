"""Policy `placeto`: the simulator that Placeto's authors published, bit for bit.

It is here so that results can be compared with theirs, and is never the judge: it has no latency, broadcasts for
free and breaks ties by name (`reference_placeto.py` is its readable specification). Its operators have one cost for
all devices and name the outputs they wait for; that does not fit stead's tensors, hence a graph type of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead import _native
from stead.errors import BadGraph, BadInput, did_you_mean

OPERATOR_GAP_US = 5.7  # after every operator, before the next one on its device
TRANSFER_GAP_US = 25  # after every transfer, before the next one on its bus
BYTES_PER_US = 7600
MAX_DEVICES = 64

PlacetoNode: TypeAlias = tuple[
    str, int | float, Sequence[int | float], Sequence[str]
]  # name, us, bytes, inputs

_NAME = re.compile(r"(?!\^)[^:\ud800-\udfff]+")
_INPUT = re.compile(r"\^?([^:]+)(?::([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True, eq=False)
class PlacetoResult:
    """What the published simulator says about one placement."""

    makespan_us: float  # time of the last event, gaps after the last operator and transfer included
    start_us: NDArray[np.float64]  # [operator]
    peak_bytes: NDArray[np.float64]  # [device]; outputs only, received copies are not counted


@dataclass(frozen=True, slots=True, eq=False)
class PlacetoScores:
    """What it says about many placements."""

    makespan_us: NDArray[np.float64]  # [placement]
    peak_bytes: NDArray[np.float64]  # [placement, device]; -1 with memory="off"


class PlacetoGraph:
    """A checked graph of nodes `(name, cost in us, output sizes in bytes, inputs)`, as Placeto's files hold them.

    An input is `"p"` (output 0 of p), `"p:k"` (output k; size 0 if p does not list it) or `"^p"` (a control edge,
    which moves output 0 all the same). A reader that names p several times waits for the output named last.
    The integer cost 0 means "no gap afterwards", the float 0.0 does not, as in the published code.

    >>> graph = PlacetoGraph([("a", 10, [76000], []), ("b", 20, [0], ["a"])])
    >>> simulate_placeto(graph, [0, 1], devices=2).start_us.tolist()
    [0.0, 20.0]
    """

    def __init__(self, nodes: Iterable[Sequence[object]]) -> None:
        checked = [_node(place, node) for place, node in enumerate(nodes)]
        self.names: tuple[str, ...] = tuple(name for name, *_ in checked)
        children, output_bytes = _readers(checked)
        try:
            self._core = _native.PlacetoGraph(
                names=list(self.names),
                cost_us=np.array([cost for _, cost, _, _ in checked], np.float64),
                pays_gap=np.array(
                    [cost != 0 or isinstance(cost, float) for _, cost, _, _ in checked], np.uint8
                ),
                held_bytes=np.array([_added(sizes) for _, _, sizes, _ in checked], np.float64),
                child_first=np.cumsum([0, *map(len, children)], dtype=np.int32),
                child=np.array([c for readers in children for c in readers], np.int32),
                child_output=np.array([o for readers in children for o in readers.values()], np.int32),
                output_bytes=np.array(output_bytes, np.float64),
            )
        except ValueError as error:
            raise BadGraph(str(error)) from None

    def __len__(self) -> int:
        return len(self.names)


def simulate_placeto(graph: PlacetoGraph, placement: ArrayLike, devices: int) -> PlacetoResult:
    """Run `graph` with operator v on device `placement[v]`, as the published simulator would."""
    row = _device_rows(graph, placement, devices, rows=False)
    run = _native.simulate_placeto(graph._core, row, devices=devices)
    return PlacetoResult(run.makespan_us, run.start_us, run.peak_bytes)


def simulate_placeto_many(
    graph: PlacetoGraph,
    placements: ArrayLike,
    devices: int,
    *,
    memory: Literal["peak", "off"] = "peak",
    threads: int = 0,
) -> PlacetoScores:
    """Score every row of `placements`; the result does not depend on `threads` (0: all cores)."""
    if memory not in ("peak", "off"):
        raise BadInput(f"memory must be 'peak' or 'off', got {memory!r}")
    rows = _device_rows(graph, placements, devices, rows=True)
    try:
        scores = _native.simulate_placeto_many(
            graph._core, rows, devices=devices, peaks=memory == "peak", threads=threads
        )
    except ValueError as error:
        raise BadInput(str(error)) from None
    return PlacetoScores(scores.makespan_us, scores.peak_bytes)


def _node(place: int, node: Sequence[object]) -> PlacetoNode:
    """`node` as a tuple of the right types, or BadGraph."""
    if isinstance(node, str) or not isinstance(node, Sequence) or len(node) != 4:
        raise BadGraph(f"node {place} must be (name, cost, outputs, inputs), got {node!r:.80}")
    name, cost, outputs, inputs = node
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadGraph(f"node {place} needs a name without ':' and without a leading '^', got {name!r:.80}")
    if isinstance(outputs, str) or not isinstance(outputs, Sequence):
        raise BadGraph(f"the outputs of {name!r} must be a list of sizes, got {outputs!r:.80}")
    if (
        isinstance(inputs, str)
        or not isinstance(inputs, Sequence)
        or not all(isinstance(i, str) for i in inputs)
    ):
        raise BadGraph(f"the inputs of {name!r} must be a list of strings, got {inputs!r:.80}")
    sizes = [_amount(size, f"output {o} of {name!r}", "bytes") for o, size in enumerate(outputs)]
    return name, _amount(cost, f"the cost of {name!r}", "us"), sizes, list(inputs)


def _amount(value: object, what: str, unit: str) -> int | float:
    # Only Python's own numbers: the type decides whether a zero cost pays the gap. Below 2**53 both are exact doubles.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise BadGraph(
            f"{what} must be an int or float, at least 0 and below 2**53 {unit}, got {value!r:.80}"
        )
    return value


def _added(sizes: Sequence[int | float]) -> float:
    total = 0.0
    for size in sizes:  # from left to right in doubles; sum() compensates rounding since Python 3.12
        total += size
    return total


def _readers(nodes: list[PlacetoNode]) -> tuple[list[dict[int, int]], list[int | float]]:
    """Per node its readers in the order they first name it, each with the output it waits for; bytes per output."""
    index: dict[str, int] = {}
    for v, (name, *_) in enumerate(nodes):
        if index.setdefault(name, v) != v:
            raise BadGraph(f"two nodes are called {name!r}: nodes {index[name]} and {v}")
    children: list[dict[int, int]] = [{} for _ in nodes]
    outputs: dict[tuple[int, int], int] = {}
    output_bytes: list[int | float] = []
    for v, (name, _, _, inputs) in enumerate(nodes):
        for text in inputs:
            match = _INPUT.fullmatch(text)
            if match is None:
                raise BadGraph(f"input {text!r} of {name!r} is not of the form 'p', 'p:k' or '^p'")
            parent = index.get(match[1])
            if parent is None:
                raise BadGraph(
                    f"{name!r} reads {text!r}, but no node is called {match[1]!r}{did_you_mean(match[1], index)}"
                )
            slot = int(match[2] or 0)
            output = outputs.setdefault((parent, slot), len(output_bytes))
            if output == len(output_bytes):
                sizes = nodes[parent][2]
                output_bytes.append(sizes[slot] if slot < len(sizes) else 0)
            children[parent][v] = output  # a reader that comes again keeps its place; its last output wins
    return children, output_bytes


def _device_rows(
    graph: PlacetoGraph, placements: ArrayLike, devices: int, *, rows: bool
) -> NDArray[np.uint8]:
    """`placements` as the core takes them, or BadInput."""
    if not 1 <= devices <= MAX_DEVICES:
        raise BadInput(f"the number of devices must lie in 1..{MAX_DEVICES}, got {devices}")
    given = np.asarray(placements)
    if (
        given.ndim != 1 + rows
        or given.shape[-1] != len(graph)
        or (given.size and given.dtype.kind not in "iu")
    ):
        shape = f"[placement, {len(graph)}]" if rows else f"[{len(graph)}]"
        raise BadInput(
            f"device indices of shape {shape} are needed, got {given.dtype} of shape {list(given.shape)}"
        )
    wrong = np.argwhere((given < 0) | (given >= devices))
    if wrong.size:
        *row, v = wrong[0].tolist()
        where = f"row {row[0]}, " if row else ""
        raise BadInput(
            f"{where}operator {graph.names[v]!r}: no device {given[*row, v]}; they are 0..{devices - 1}"
        )
    return np.ascontiguousarray(given, np.uint8)
