"""Placements by graph partitioning: little communication and balanced work, without regard to order in time.

Vertices are units, weighed by their mean seconds. METIS sees edges between units, Mt-KaHyPar one hyperedge
per tensor; both are weighed by the mean seconds (or the bytes) of a transfer. The shares of the parts are in
proportion to the speed of the devices. Memory is unknown to both: what does not fit is moved afterwards.

A partition balances all work, not the work of each moment. METIS can therefore cut the graph into time slices of equal
work first and partition each; a refinement then lowers the traffic within limits for the work of every slice and for
the bytes of every device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import BadInput, MissingExtra
from stead.graph.order import levels
from stead.problem import Problem
from stead.sim import simulate_many
from stead.solvers.build.schedules import Schedule, groupings, offer_fitting, offer_schedule, tied_units
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import (
    chosen_devices,
    mean_seconds,
    settled,
    speed_shares,
    started,
)
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

EXTRA = "partition"
TOTAL_WEIGHT = 2**30  # partitioners add up weights in 32-bit integers
MOST_REPAIRS = 16
KAHYPAR_SECONDS = 5e-6  # per pin and part; nothing stops it on the way
MOST_SLICES = 64


@few_devices
@dataclass(frozen=True, slots=True)
class _Partition(ABC):
    """What all partitioners share: the graph to cut, the devices of the parts, the repair."""

    weigh: str = "seconds"  # transfers by "seconds" or "bytes"
    imbalance: float = 0.03  # how much heavier than its share a part may be
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator
    repair: bool = True  # move units off devices that would be overfull

    package: ClassVar[str]

    def __post_init__(self) -> None:
        if self.weigh not in ("seconds", "bytes"):
            raise BadInput(f"{self.name} weighs transfers by seconds or bytes, got {self.weigh!r}")
        if not 0 < self.imbalance < 1:
            raise BadInput(f"{self.name} needs an imbalance between 0 and 1, got {self.imbalance}")

    @property
    @abstractmethod
    def name(self) -> str:
        """The name it is called by."""

    @abstractmethod
    def _parts(self, units: _UnitGraph, shares: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
        """The part of each unit, the weights of the parts coming close to the shares."""

    def _seconds(self, units: _UnitGraph) -> float:
        """About what a partition takes at least, where that is long."""
        return 0.0

    def unsupported(self, problem: Problem) -> str | None:
        """It needs its package, and one that can be loaded: others go on without it."""
        if not find_spec(self.package):
            return f'needs {self.package}: pip install "stead[{EXTRA}]"'
        return _not_loadable(self.package)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score the placement that one partition gives, repaired if it does not fit."""
        if not find_spec(self.package):
            raise MissingExtra(self.package, EXTRA, f"solver {self.name}")
        if (reason := _not_loadable(self.package)) is not None:
            raise BadInput(f"solver {self.name}: {reason}")
        search = started(self, problem, budget, seed)
        with search.interruptible():
            units = _UnitGraph(problem, chosen_devices(problem.cluster, self.devices), self.weigh)
            if search.lacks_time(self._seconds(units)):
                return search.solution()
            wanted = self._wanted(problem, units, seed)
            devices, search.notes = settled(problem, wanted[problem.units])
            search.offer(devices)
            if self.repair and search.best is None:
                _repair(search, units, devices)
        return search.solution()

    def _wanted(self, problem: Problem, units: _UnitGraph, seed: int) -> NDArray[np.int64]:  # [unit]
        """The device of each unit, as far as the partition decides."""
        shares = speed_shares(units.seconds)
        used = np.flatnonzero(shares > 0)
        shares = shares[used] / shares[used].sum()
        if len(used) == 1 or not len(units.weights):
            parts = np.zeros(len(units.weights), dtype=np.int64)
        else:
            parts = self._parts(units, shares, seed)
        usable = np.array([problem.cluster.devices[d].usable_bytes for d in units.devices[used]])
        return units.devices[used][_matched(shares, usable, parts, units.bytes)[parts]]


@dataclass(frozen=True, slots=True)
class Metis(_Partition):
    """METIS, by recursive bisection of the graph of units; with `slices` of each slice of time."""

    name: ClassVar[str] = "metis"
    slices: int = 1  # spans of the topological levels whose work is balanced each for itself

    package: ClassVar[str] = "pymetis"

    def __post_init__(self) -> None:
        _Partition.__post_init__(self)
        if not 1 <= self.slices <= MOST_SLICES:
            raise BadInput(f"metis balances 1 to {MOST_SLICES} slices, got {self.slices}")

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score one partition; with slices, for training also those that bind backward operators to forward ones."""
        if self.slices == 1 or not find_spec(self.package):
            return _Partition.solve(self, problem, budget, seed)
        search = started(self, problem, budget, seed)
        rank = _native.topological_order(problem.native, kind="rank")
        schedule = None
        with search.interruptible():
            for unit_of in groupings(problem):
                if schedule is not None and search.done:
                    break
                units = _UnitGraph(problem, chosen_devices(problem.cluster, self.devices), self.weigh, unit_of)
                devices, _ = settled(problem, self._wanted(problem, units, seed)[unit_of])
                schedule = Schedule(devices, rank, f"{self.name} {self.slices} slices")
                offer_schedule(search, schedule)
            if self.repair and search.best is None and schedule is not None:
                offer_fitting(search, schedule, tied_units(problem))
        return search.solution()

    def _parts(self, units: _UnitGraph, shares: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
        if self.slices == 1:
            return self._recursed(units, np.arange(len(units.weights)), shares, seed)
        time_slice = units.time_slices(self.slices)
        parts = np.full(len(units.weights), -1, dtype=np.int64)
        for number in range(self.slices):
            own = np.flatnonzero(time_slice == number)
            new = self._recursed(units, own, shares, seed)
            parts[own] = _like_neighbours(units, own, new, parts, shares)[new]
        return self._refined(units, time_slice, parts, shares)

    def _recursed(
        self, units: _UnitGraph, vertices: NDArray[np.int64], shares: NDArray[np.float64], seed: int
    ) -> NDArray[np.int64]:
        """The part of each of some vertices."""
        # METIS can recurse by itself, but prints to standard output when a part of its own runs empty.
        parts = np.zeros(len(units.weights), dtype=np.int64)
        waiting = [(vertices, np.arange(len(shares)))]
        while waiting:
            vertices_left, wanted = waiting.pop()
            if len(wanted) == 1 or len(vertices_left) <= 1:
                parts[vertices_left] = wanted[np.argmax(shares[wanted])]
                continue
            halves = np.array_split(wanted, 2)
            side = self._bisected(units, vertices_left, [float(shares[half].sum()) for half in halves], seed)
            waiting += [(vertices_left[side == i], half) for i, half in enumerate(halves)]
        return parts[vertices]

    def _refined(
        self,
        units: _UnitGraph,
        time_slice: NDArray[np.int64],
        parts: NDArray[np.int64],
        shares: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Parts with less traffic, within limits for the work of every slice and for bytes."""
        count = len(units.weights)
        weight = np.zeros((count, self.slices + 1), dtype=np.int64)
        weight[np.arange(count), time_slice] = units.weights
        weight[:, -1] = units.bytes
        limit = np.empty((len(shares), self.slices + 1), dtype=np.int64)
        work = np.bincount(time_slice, weights=units.weights, minlength=self.slices)
        limit[:, :-1] = np.ceil(shares[:, None] * work * (1 + self.imbalance))
        limit[:, -1] = units.usable_bytes
        first, neighbour, edge_weight = units.adjacency(np.arange(count))
        everywhere = np.full(count, 2**64 - 1, dtype=np.uint64)
        found = _native.refine_parts(
            first=first,
            neighbour=neighbour,
            edge_weight=edge_weight,
            weight=weight,
            allowed=everywhere,
            part_of=parts.astype(np.int32),
            limit=limit,
        )
        return found.astype(np.int64)

    def _bisected(
        self, units: _UnitGraph, vertices: NDArray[np.int64], shares: list[float], seed: int
    ) -> NDArray[np.int64]:
        """0 or 1 for each of some vertices."""
        pymetis: Any = import_module(self.package)
        first, neighbours, weights = units.adjacency(vertices)
        found = pymetis.part_graph(
            2,
            pymetis.CSRAdjacency(first, neighbours),
            vweights=units.weights[vertices],
            eweights=weights,
            tpwgts=[shares[0] / sum(shares), 1 - shares[0] / sum(shares)],
            options=pymetis.Options(seed=seed % 2**31, ufactor=max(1, round(self.imbalance * 1000))),
        )
        return np.array(found.vertex_part, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class MtKahypar(_Partition):
    """Mt-KaHyPar: a tensor costs its weight once per device that receives it, as it does in the simulator."""

    name: ClassVar[str] = "mtkahypar"
    package: ClassVar[str] = "mtkahypar"

    def _seconds(self, units: _UnitGraph) -> float:
        return KAHYPAR_SECONDS * len(units.pairs[0]) * len(units.devices)

    def _parts(self, units: _UnitGraph, shares: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
        mtkahypar: Any = import_module(self.package)
        core = _thread_pool()
        context = core.context_from_preset(mtkahypar.PresetType.DETERMINISTIC_QUALITY)
        context.set_partitioning_parameters(len(shares), self.imbalance, mtkahypar.Objective.KM1)
        context.logging = False
        total = int(units.weights.sum())
        context.set_individual_target_block_weights(
            [int(np.ceil(share * total * (1 + self.imbalance))) for share in shares]
        )
        mtkahypar.set_seed(seed % 2**31)
        pins, weights = units.hyperedges
        graph = core.create_hypergraph(
            context, len(units.weights), len(pins), pins, units.weights.tolist(), weights.tolist()
        )
        return np.array(graph.partition(context).get_partition(), dtype=np.int64)


def _not_loadable(package: str) -> str | None:
    """Why a package that is installed is of no use; None if it is."""
    try:
        import_module(package)
    except ImportError as error:
        return f"{package} is installed, but cannot be loaded ({error}); install it again, or allow more memory"
    return None


@cache
def _thread_pool() -> Any:
    """Mt-KaHyPar with one thread; it can be started only once per process."""
    return import_module(MtKahypar.package).initialize(1)


class _UnitGraph:
    """Units as vertices and tensors as edges, weighed in whole numbers."""

    def __init__(
        self, problem: Problem, devices: list[int], weigh: str, unit_of: NDArray[np.int32] | None = None
    ) -> None:
        self.devices = np.array(devices, dtype=np.int64)
        self.unit_of = problem.units if unit_of is None else unit_of  # [operator]
        self.seconds = _unit_seconds(problem, self.unit_of)[:, self.devices]  # [unit, device]
        self.weights = _whole_numbers(mean_seconds(self.seconds))  # [unit]
        self.usable_bytes = np.array(
            [problem.cluster.devices[d].usable_bytes for d in devices], dtype=np.int64
        )
        self._problem = problem
        self._transfers = _transfer_weights(problem, self.devices, weigh)  # [tensor]

    @cached_property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tensor, unit) for every unit that writes or reads a tensor, each once."""
        graph, units = self._problem.graph, self.unit_of
        tensor = graph.tensor_of_read
        every = np.concatenate([np.arange(graph.tensor_count), tensor])
        ends = np.concatenate([units[graph.tensor_producer], units[graph.readers]])
        found = np.unique(np.stack([every, ends], axis=1), axis=0)
        return found[:, 0], found[:, 1]

    @cached_property
    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(lower unit, higher unit, weight) of every two units of which one reads what the other writes."""
        graph, units = self._problem.graph, self.unit_of.astype(np.int64)
        tensor, reader = self.pairs
        writer = units[graph.tensor_producer[tensor]]
        lower, higher = np.minimum(writer, reader), np.maximum(writer, reader)
        apart = lower < higher
        keys, place = np.unique(lower[apart] * len(self.weights) + higher[apart], return_inverse=True)
        total = np.zeros(len(keys))
        np.add.at(total, place.reshape(-1), self._transfers[tensor[apart]])
        return *np.divmod(keys, max(1, len(self.weights))), _whole_numbers(total)

    def adjacency(
        self, vertices: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(first [vertex + 1], neighbour, weight) among some units, every edge from both of its ends."""
        place = np.full(len(self.weights), -1)
        place[vertices] = np.arange(len(vertices))
        lower, higher, weight = self.edges
        inside = (place[lower] >= 0) & (place[higher] >= 0)
        lower, higher, weight = place[lower[inside]], place[higher[inside]], weight[inside]
        here, there = np.concatenate([lower, higher]), np.concatenate([higher, lower])
        order = np.lexsort((there, here))
        first = np.zeros(len(vertices) + 1, dtype=np.int64)
        np.cumsum(np.bincount(here, minlength=len(vertices)), out=first[1:])
        return first, there[order], np.concatenate([weight, weight])[order]

    def time_slices(self, slices: int) -> NDArray[np.int64]:  # [unit]
        """The slice of each unit: by the level of its first operator, equal work in each."""
        firsts = np.unique(self.unit_of, return_index=True)[1]
        level = levels(self._problem.graph)[firsts]
        order = np.argsort(level, kind="stable")
        done = np.cumsum(self.weights[order]) - self.weights[order] / 2
        found = np.empty(len(order), dtype=np.int64)
        found[order] = np.minimum((done / max(1, self.weights.sum()) * slices).astype(np.int64), slices - 1)
        return found

    @cached_property
    def hyperedges(self) -> tuple[list[list[int]], NDArray[np.int64]]:
        """(units, weight) of every tensor that several units share."""
        tensor, unit = self.pairs
        sets = np.split(unit, np.flatnonzero(np.diff(tensor)) + 1)
        shared = np.array([len(pins) > 1 for pins in sets], dtype=bool)
        pins = [one.tolist() for one, kept in zip(sets, shared, strict=True) if kept]
        return pins, _whole_numbers(self._transfers[shared]) if pins else np.zeros(0, dtype=np.int64)

    @cached_property
    def bytes(self) -> NDArray[np.int64]:  # [unit]
        """Weights and outputs of every unit."""
        graph = self._problem.graph
        held = np.zeros(len(self.weights), dtype=np.int64)
        np.add.at(held, self.unit_of, graph.parameter_bytes)
        np.add.at(held, self.unit_of[graph.tensor_producer], graph.tensor_bytes)
        return held


def _unit_seconds(problem: Problem, unit_of: NDArray[np.int32]) -> NDArray[np.float64]:  # [unit, device]
    if unit_of is problem.units:
        return problem.unit_seconds
    seconds = np.zeros((int(unit_of.max(initial=-1)) + 1, len(problem.cluster)))
    np.add.at(seconds, unit_of, np.where(problem.allowed, problem.costs.seconds, np.inf))
    return seconds


def _transfer_weights(
    problem: Problem, devices: NDArray[np.int64], weigh: str
) -> NDArray[np.float64]:  # [tensor]
    """Bytes of every tensor, or the mean seconds it takes between two of the devices."""
    size = problem.graph.tensor_bytes.astype(np.float64)
    routes = problem.routes
    pairs = [(s, d) for s in devices for d in devices if s != d and np.isfinite(routes.latency_seconds[s, d])]
    if weigh == "bytes" or not pairs:
        return size
    seconds = np.zeros(len(size))
    for s, d in pairs:
        given = problem.costs.tensor_seconds
        wire = size / routes.bytes_per_second[s, d] if given is None else given * routes.hops[s, d]
        seconds += wire + routes.latency_seconds[s, d]
    return seconds / len(pairs)


def _whole_numbers(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Values as integers of at least 1 that keep their proportions; all equal where all are 0."""
    total = float(values.sum())
    scale = TOTAL_WEIGHT / total if total > 0 else 1.0
    whole: NDArray[np.int64] = np.maximum(1, np.rint(values * scale)).astype(np.int64)
    return whole


def _like_neighbours(
    units: _UnitGraph,
    own: NDArray[np.int64],
    new: NDArray[np.int64],
    parts: NDArray[np.int64],
    shares: NDArray[np.float64],
) -> NDArray[np.int64]:  # [new part]
    """Numbers for new parts of the vertices `own`: those of the parts they share most traffic with, once each.

    Only parts with the same share may swap numbers, since the others differ in weight.
    """
    fresh = np.full(len(parts), -1, dtype=np.int64)
    fresh[own] = new
    lower, higher, weight = units.edges
    pull = np.zeros((len(shares), len(shares)))
    for a, b in ((lower, higher), (higher, lower)):
        across = (fresh[a] >= 0) & (parts[b] >= 0)
        np.add.at(pull, (fresh[a[across]], parts[b[across]]), weight[across])
    pull[shares[:, None] != shares[None, :]] = -1.0
    number = np.full(len(shares), -1, dtype=np.int64)
    for flat in np.argsort(-pull, axis=None, kind="stable").tolist():
        part, old = divmod(flat, len(shares))
        if pull[part, old] >= 0 and number[part] < 0 and old not in number:
            number[part] = old
    return number


def _matched(
    shares: NDArray[np.float64], usable: NDArray[np.int64], parts: NDArray[np.int64], held: NDArray[np.int64]
) -> NDArray[np.int64]:  # [part]
    """The device of each part: its own, or among equally fast ones the largest memory for the most bytes."""
    need = np.bincount(parts, weights=held, minlength=len(shares))
    speed = np.round(shares / shares.max(), 2)
    device = np.arange(len(shares))
    for level in np.unique(speed):
        alike = np.flatnonzero(speed == level)
        by_need = alike[np.argsort(-need[alike], kind="stable")]
        device[by_need] = alike[np.argsort(-usable[alike], kind="stable")]
    return device


def _repair(search: Search, units: _UnitGraph, devices: NDArray[np.uint8]) -> None:
    """Move units from overfull devices to others with room, those first that cost little traffic per byte."""
    problem = search.problem
    first = problem.unit_firsts
    where, moved = devices[first].astype(np.int64), 0
    for _ in range(MOST_REPAIRS):
        if search.best is not None or search.done:
            break
        row = where[problem.units].astype(np.uint8)[None, :]
        scores = simulate_many(problem, row, memory="peak")
        usable = np.array([device.usable_bytes for device in problem.cluster])
        count = _unload(units, problem.allowed[first], where, usable - scores.peak_bytes[0])
        if not count:
            break
        moved += count
        search.offer(where[problem.units])
    if moved:
        search.notes.append(f"{moved} units moved: the partition does not fit into memory")


def _unload(
    units: _UnitGraph, allowed: NDArray[np.bool_], where: NDArray[np.int64], room: NDArray[np.int64]
) -> int:
    """Change `where` so that devices without room lose what they have too much; how many units were moved."""
    pull = _pull(units, where, len(room))
    moved = 0
    for source in np.flatnonzero(room < 0):
        there = np.flatnonzero((where == source) & (units.bytes > 0))
        price = (pull[there, source, None] - pull[there]) / units.bytes[there, None]
        price[~allowed[there]] = np.inf
        price[:, source] = np.inf
        for place in np.argsort(price.min(axis=1), kind="stable"):
            unit = there[place]
            fits = np.isfinite(price[place]) & (room >= units.bytes[unit])
            if room[source] >= 0 or not fits.any():
                continue
            target = int(np.flatnonzero(fits)[np.argmin(price[place][fits])])
            where[unit] = target
            room[source] += units.bytes[unit]
            room[target] -= units.bytes[unit]
            moved += 1
    return moved


def _pull(units: _UnitGraph, where: NDArray[np.int64], devices: int) -> NDArray[np.float64]:  # [unit, device]
    """Weight of the edges between each unit and everything on each device."""
    lower, higher, weight = units.edges
    pull = np.zeros((len(units.weights), devices))
    np.add.at(pull, (lower, where[higher]), weight)
    np.add.at(pull, (higher, where[lower]), weight)
    return pull
