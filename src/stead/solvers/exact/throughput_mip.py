"""Device by device: placements for pipelined throughput as an integer program, contiguous per device or not at all.

Notation    v supernode, d device, t tensor with source s and readers w
    x[v,d]      1 iff v is on d; one device each
    z[v,d]      v is on d or before something on d:     z >= x,  z[a,d] >= z[b,d],  z[b,d] <= x[b,d] - x[a,d] + 1
                for a before b, so that nothing on d comes after something that has left d
    f[t,d,e]    t is sent from d to e, where links join devices directly

That each device is contiguous by itself does not keep stages from waiting for each other in a circle (the model of
Tarnawski et al. 2020, section 5); for pipelines take `prefix-mip`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem, Throughput
from stead.sim.transfer_times import link_ticks
from stead.solvers.exact.programs.load_rows import LoadRows, Terms
from stead.solvers.exact.programs.program import Settings
from stead.solvers.exact.programs.solving import Given, Model, checked, solve_with, too_large
from stead.solvers.exact.programs.starts import reaches, start_anywhere, start_in_stages
from stead.solvers.exact.reduction import SCOPES, Merge, Reduced, not_steady, reduce
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

Contiguity = Literal["device", "any"]
Engines = Literal["best", "cp-sat", "highs"]
Links = Literal["each", "quickest"]
CLOSING_EFFORT = (
    20.0  # deterministic seconds for CP-SAT to prove in whole numbers what HiGHS has within tolerances
)
COUNTING_EFFORT = 4.0  # the same before all others, for CP-SAT without fractions: how large units can be packed
OPENING_EFFORT = 1.5  # the same after that, with fractions
OPENING_SIZE = 1300  # supernodes times devices beyond which both take longer
LOOK_BACK = 24  # supernodes whose device must follow one with the device before it


@few_devices
@dataclass(frozen=True, slots=True)
class ThroughputMip:
    """Optimal placements for full pipelines by integer programming, one set of variables per device.

    `device` asks that no path leaves a device and comes back to it; `any` asks nothing, and is the larger question:
    small problems are proved, of larger ones the gap is told. Equal devices are kept from changing places. The `best`
    engine is CP-SAT for `device`; for `any` it is CP-SAT for a moment, which only counts and then looks at fractions,
    too, then HiGHS, whose relaxation is tighter there, and CP-SAT again for the last millionth that floating point
    leaves open. Where three devices or more have direct
    links, `quickest` has every tensor go once over the quickest of them: a much smaller program, whose bound holds all
    the same; what it places may be dearer than it thinks. Engines run on one thread with a fixed
    seed: where they finish, the same seed gives the same answer.
    """

    contiguity: Contiguity = "any"
    engine: Engines = "best"
    merge: Merge = "lossless"
    links: Links = "each"
    anneal_moves: int = 4_000_000  # for the start without contiguity
    max_literals: int = 3_000_000
    workers: int = 1

    def __post_init__(self) -> None:
        checked("contiguity", self.contiguity, get_args(Contiguity))
        checked("engine", self.engine, get_args(Engines))
        checked("merge", self.merge, get_args(Merge))
        checked("links", self.links, get_args(Links))

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "throughput-mip"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes pipelines in steady state whose program is not too large."""
        return not_steady(problem) or too_large(
            problem, self.contiguity, self.merge, self.max_literals, self._literals
        )

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Start from a quick placement, then let the engine improve and prove."""
        search = started(self, problem, budget, seed, scope=SCOPES[self.contiguity])
        with search.interruptible():
            reduced = reduce(problem, notion=self.contiguity, merge=self.merge)
            if self.contiguity == "device":
                start_in_stages(search, reduced)
            else:
                start_anywhere(search, self.anneal_moves)
            self._solve(search, reduced)
        return search.solution()

    def improve(self, search: Search) -> None:
        """Improve and prove the incumbent of a search whose bounds hold for what `contiguity` allows."""
        if self.unsupported(search.problem) is None:
            self._solve(search, reduce(search.problem, notion=self.contiguity, merge=self.merge))

    def _solve(self, search: Search, reduced: Reduced) -> None:
        for settings in self._settings(search.seed, reduced):
            solve_with(reduced, search, settings, self._model)

    def _model(self, reduced: Reduced, given: Given) -> Model:
        """The program; with `quickest` links as if they were all there is."""
        return _model(replace(reduced, exact=True) if self.links == "quickest" else reduced, given)

    def _settings(self, seed: int, reduced: Reduced) -> list[Settings]:
        """The engines in the order in which they try."""
        if self.engine != "best":
            return [Settings(self.engine, seed, self.workers)]
        if self.contiguity == "device":
            return [Settings("cp-sat", seed, self.workers)]
        counting = Settings("cp-sat", seed, self.workers, effort=COUNTING_EFFORT, relaxes=False)
        opening, closing = (
            Settings("cp-sat", seed, self.workers, effort=effort) for effort in (OPENING_EFFORT, CLOSING_EFFORT)
        )
        small = reduced.count * len(reduced.problem.cluster) <= OPENING_SIZE
        return [*([counting, opening] if small else []), Settings("highs", seed, self.workers), closing]

    def _literals(self, reduced: Reduced) -> int:
        devices, tensors = len(reduced.problem.cluster), len(reduced.tensor_source)
        crossing = 2 * tensors if reduced.exact else devices * tensors
        notions = 2 if self.contiguity == "device" else 1
        return devices * (notions * reduced.count + crossing + len(reduced.weight_bytes))


def _model(reduced: Reduced, given: Given) -> Model:
    """The program, with the incumbent as a hint; contiguous if the reduced problem has an order."""
    objective = reduced.problem.objective
    assert isinstance(objective, Throughput)
    rows = LoadRows.of(reduced, objective.load, upper_ticks=given.upper_ticks, lower_ticks=given.lower_ticks)
    on = _assignment(rows)
    kind_of = _kind_of_device(reduced)
    for d, kind in enumerate(kind_of):
        rows.memory(kind, given.rooms[kind], on[d].tolist(), ())
        rows.few_large(kind, on[d].tolist())
    if reduced.exact:
        for d, kind in enumerate(kind_of):
            rows.limit(kind, on[d].tolist(), rows.crossings(on[d].tolist()), ())
    else:
        _limit_over_links(rows, on, kind_of)
    groups = _interchangeable(reduced)
    rank = _ranks(reduced)
    _break_symmetry(rows, on, groups, rank)
    before = _contiguous(rows, on) if len(reduced.order) else None
    if given.device_of_node is not None:
        _hint(rows, on, before, _relabelled(given.device_of_node, groups, rank))

    def place(values: NDArray[np.int64]) -> NDArray[np.uint8]:
        return reduced.lift(values[on].argmax(axis=0))

    return Model(rows, place)


def _kind_of_device(reduced: Reduced) -> list[int]:
    kind_of = {d: k for k, kind in enumerate(reduced.kinds) for d in kind.devices}
    return [kind_of[d] for d in range(len(reduced.problem.cluster))]


def _assignment(rows: LoadRows) -> NDArray[np.int64]:  # [device, node]
    """One device for every supernode, one that may run it."""
    program, reduced = rows.program, rows.reduced
    devices, count = len(reduced.problem.cluster), reduced.count
    on = np.array([program.binary() for _ in range(devices * count)], dtype=np.int64).reshape(devices, count)
    for v in range(count):
        program.exactly_one(on[:, v].tolist())
    for k, kind in enumerate(reduced.kinds):
        for v in np.flatnonzero(reduced.ticks[:, k, 0] < 0).tolist():
            for d in kind.devices:
                program.fix(int(on[d, v]), 0)
    return on


def _contiguous(rows: LoadRows, on: NDArray[np.int64]) -> NDArray[np.int64]:  # [device, node]; z
    """Nothing on a device comes after something that has left it."""
    program = rows.program
    before = np.array([program.binary(implied=True) for _ in range(on.size)], dtype=np.int64).reshape(
        on.shape
    )
    for d in range(len(on)):
        here, ahead = on[d].tolist(), before[d].tolist()
        for x, z in zip(here, ahead, strict=True):
            program.implies(x, z)
        for a, b in rows.reduced.order.tolist():
            program.implies(ahead[b], ahead[a])
            program.clause([~ahead[b], here[b], ~here[a]])
    return before


# Devices that can change places


def _interchangeable(reduced: Reduced) -> list[tuple[int, ...]]:
    """Groups of devices that can change places without changing any load."""
    if not reduced.exact:
        routes, apart = reduced.problem.routes, ~np.eye(len(reduced.problem.cluster), dtype=bool)
        tables = (routes.latency_seconds, routes.bytes_per_second, routes.hops)
        if not all((table[apart] == table[apart][0]).all() for table in tables):
            return []
    return [kind.devices for kind in reduced.kinds if len(kind.devices) > 1]


def _ranks(reduced: Reduced) -> NDArray[np.int64]:  # [node]
    """Supernodes by decreasing work: the first are the ones whose devices matter most."""
    work = reduced.ticks.sum(axis=2).max(axis=1, initial=0)
    rank = np.empty(reduced.count, dtype=np.int64)
    rank[np.argsort(-work, kind="stable")] = np.arange(reduced.count)
    return rank


def _break_symmetry(
    rows: LoadRows, on: NDArray[np.int64], groups: Sequence[tuple[int, ...]], rank: NDArray[np.int64]
) -> None:
    """Devices of a group come into use in their order: a supernode may open one only after the one before it."""
    by_rank = np.argsort(rank)
    for group in groups:
        for i, d in enumerate(group):
            for v in by_rank[:i].tolist():
                rows.program.fix(int(on[d, v]), 0)
            if i == 0:
                continue
            for r in range(i, min(LOOK_BACK, len(by_rank))):
                earlier = on[group[i - 1], by_rank[:r]].tolist()
                rows.program.clause([~int(on[d, by_rank[r]]), *earlier])


def _relabelled(
    device_of_node: NDArray[np.uint8], groups: Sequence[tuple[int, ...]], rank: NDArray[np.int64]
) -> NDArray[np.uint8]:  # [node]
    """The same placement with the devices of every group in the order in which they come into use."""
    new = np.arange(256)
    for group in groups:
        first = {d: int(rank[device_of_node == d].min(initial=len(rank))) for d in group}
        for place, d in zip(group, sorted(group, key=lambda d: (first[d], d)), strict=True):
            new[d] = place
    relabelled: NDArray[np.uint8] = new[device_of_node].astype(np.uint8)
    return relabelled


def _hint(
    rows: LoadRows, on: NDArray[np.int64], before: NDArray[np.int64] | None, device_of_node: NDArray[np.uint8]
) -> None:
    """Tell the engine of a placement that is known, if it is as contiguous as the program asks."""
    here = device_of_node == np.arange(len(on))[:, None]
    hint = dict(zip(on.ravel().tolist(), here.ravel().astype(int).tolist(), strict=True))
    if before is not None:
        ahead = reaches(rows.reduced, here)
        if ahead is None:
            return
        hint.update(zip(before.ravel().tolist(), ahead.ravel().astype(int).tolist(), strict=True))
    rows.program.hint.update(hint)


# Direct links


@dataclass(frozen=True, slots=True, eq=False)
class _Sent:
    """A tensor between supernodes, or several alike, and its ticks over every link."""

    source: int
    late: int
    readers: tuple[int, ...]
    ticks: NDArray[np.int64]  # [device, device]


def _limit_over_links(rows: LoadRows, on: NDArray[np.int64], kind_of: Sequence[int]) -> None:
    """Loads where both ends of a link pay for every tensor on it."""
    program, devices = rows.program, range(len(on))
    compute = [[rows.compute(kind_of[d], on[d].tolist(), phase) for phase in (0, 1)] for d in devices]
    received: list[list[Terms]] = [[[], []] for _ in devices]
    sent: list[list[Terms]] = [[[], []] for _ in devices]
    for one in _sent_tensors(rows.reduced):
        flow = np.array([[program.binary(implied=True) if d != e else -1 for e in devices] for d in devices])
        for d in devices:
            others = [e for e in devices if e != d]
            for reader in one.readers:
                here, read = int(on[d, one.source]), int(on[d, reader])
                for e in others:
                    program.clause([~here, ~int(on[e, reader]), int(flow[d, e])])
                program.clause([~here, read, *flow[d, others].tolist()])
                program.clause([here, ~read, *flow[others, d].tolist()])
            for e in others:
                ticks = int(one.ticks[d, e])
                sent[d][one.late].append((int(flow[d, e]), ticks))
                received[e][one.late].append((int(flow[d, e]), ticks))
    for d in devices:
        for top, terms in rows.parts(compute[d], received[d], sent[d]):
            rows.at_least(top, terms, ())


def _sent_tensors(reduced: Reduced) -> list[_Sent]:
    """Tensors between supernodes, those with the same source, phase and readers added up."""
    graph, devices = reduced.problem.graph, range(len(reduced.problem.cluster))
    ticks = np.zeros((graph.tensor_count, len(devices), len(devices)), dtype=np.int64)
    for d in devices:
        for e in devices:
            if d != e:
                ticks[:, d, e] = link_ticks(reduced.problem, d, e)
    groups: dict[tuple[int, int, tuple[int, ...]], NDArray[np.int64]] = {}
    for t in np.flatnonzero(ticks.any(axis=(1, 2))).tolist():
        producer = int(graph.tensor_producer[t])
        source = int(reduced.node_of[producer])
        nodes = reduced.node_of[graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]]]
        readers = tuple(sorted(set(nodes.tolist()) - {source}))
        if readers:
            key = source, int(graph.phases[producer] != 0), readers
            groups[key] = groups.get(key, 0) + ticks[t]
    return [_Sent(*key, table) for key, table in groups.items()]
