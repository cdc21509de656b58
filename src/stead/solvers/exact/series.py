"""`series`: latency of graphs that are chains of blocks, by dynamic programming over the devices between blocks.

What each block takes at least depends on the device that it begins on and on the devices of its operators (see
`series_blocks`); sums over blocks bound the latency of every placement in every order, and the weights of all blocks
must fit together. Labels (device, bytes on each device, ticks) go from block to block; of two labels that differ in
ticks alone the slower one is dropped. The least ticks in the end are a bound. The placements of the least labels are
simulated: where one takes just as long, it is proved optimal.

Bytes are counted in lumps, rounded down: a device then seems to hold a little less than it does, and the bound stays
one. Lumps are large at first, so that there are few labels; what is simulated then rules out most labels of the next
round with smaller lumps, until nothing is left to rule out, or there are too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.problem import Latency, PlacetoDispatch, Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.bounds import heaviest_path, least_seconds
from stead.solvers.exact.series_blocks import NEVER, NOWHERE, Block, Table, Tables, blocks
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import settled, started
from stead.solvers.rules.simple import FitMemory
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

BOUND = "series of blocks"
LUMPS = (512, 512, 64, 24, 12)  # that all weights together are in the first round, for one device, two, three, ...
FINER = 32  # times as many in each further one
PRODUCTS = 50  # labels times configurations at a time, by the most labels


@few_devices
@dataclass(frozen=True, slots=True)
class Series:
    """Chains of blocks: a bound over all placements and orders, and often the optimum itself.

    Blocks of more than `max_configurations` are taken apart, which loses some of the bound; then they are kept whole
    without the units that do least, which loses other parts of it. It ends with more than
    `max_labels` at a time. The placements of the `tries` best labels of a round are simulated.
    """

    max_configurations: int = 16_384
    max_labels: int = 60_000
    tries: int = 64

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "series"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes the latency of dataflow execution over direct links."""
        objective = problem.objective
        if not isinstance(objective, Latency) or objective.execution != "dataflow":
            return "it needs the latency of dataflow execution"
        if isinstance(objective.policy, PlacetoDispatch):
            return "the published simulator of Placeto counts time in another way"
        if problem.cluster.routing != "direct":
            return "tensors go through host memory, and it counts direct links"
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Bound, then simulate the placements that the bound speaks of."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            search.relax()
            search.offer(settled(problem, least_seconds_devices(problem))[0])
            if search.best is None:
                search.try_solver(FitMemory())
            if not search.done and len(problem.graph):
                self._run(search)
        return search.solution()

    def _run(self, search: Search) -> None:
        problem = search.problem
        path = heaviest_path(problem, least_seconds(problem))
        tables, cut = Tables(problem), blocks(problem, path, self.max_configurations)
        self._run_chain(search, tables, cut)
        thinned = blocks(problem, path, self.max_configurations, thinned=True)
        if not search.done and thinned != cut:
            self._run_chain(search, tables, thinned)

    def _run_chain(self, search: Search, tables: Tables, chain: list[Block]) -> None:
        problem, each = search.problem, []
        for block in chain:
            if search.done:
                return
            each.append(tables.of(block))
        least = _least_left(each)
        lump = max(1, int(tables.weights.sum()) // LUMPS[min(len(problem.cluster), len(LUMPS)) - 1])
        while not search.done:
            labels = _Labels(problem, tables, chain, each, least, lump, self.max_labels)
            if not labels.run(search):
                return
            self._conclude(search, labels)
            if lump == 1 or not len(labels.scarce):  # smaller lumps tell nothing where memory is no matter
                return
            lump = max(1, lump // FINER)

    def _conclude(self, search: Search, labels: _Labels) -> None:
        """What the labels prove: that nothing is better than the best of them, or than what is known already."""
        least = labels.least_ticks()
        if least is not None:
            search.raise_bound(least / TICKS_PER_SECOND, BOUND)
        elif search.best is not None:
            search.raise_bound(search.best_seconds, BOUND)
        for devices in labels.placements(self.tries):
            if search.done:
                return
            search.offer(devices)


def _least_left(each: list[Table]) -> list[dict[int, int]]:
    """By block and device of its head: ticks from there to the end of the graph, if memory were no matter."""
    found: list[dict[int, int]] = []
    behind: dict[int, int] = {}
    for table in reversed(each):
        following = np.array([behind.get(end, 0 if not found else NEVER) for end in table.end.tolist()])
        behind = {head: int((ticks + following).min()) for head, ticks in table.ticks.items()}
        found.append(behind)
    return found[::-1]


def least_seconds_devices(problem: Problem) -> NDArray[np.int64]:  # [operator]
    """The device that runs each operator quickest."""
    quickest: NDArray[np.int64] = np.where(problem.allowed, problem.costs.seconds, np.inf).argmin(axis=1)
    return quickest


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Labels behind a block."""

    device: NDArray[np.int64]  # [label]; where the block ended
    ticks: NDArray[np.int64]  # [label]
    weights: NDArray[np.int64]  # [label, scarce device], in lumps
    running: NDArray[np.int64]  # [label, scarce device], in lumps
    came_from: NDArray[np.int64]  # [label]; label of the step before
    configuration: NDArray[np.int64]  # [label]; row of the table of the block

    def at(self, rows: NDArray[np.int64]) -> _Step:
        """Some of the labels."""
        return _Step(
            self.device[rows], self.ticks[rows], self.weights[rows], self.running[rows], self.came_from[rows],
            self.configuration[rows],
        )  # fmt: skip

    def thinned(self) -> _Step:
        """Without labels that another one makes needless."""
        return self.at(_cheapest(self.device, self.ticks, self.weights, self.running))


@dataclass(frozen=True, slots=True, eq=False)
class _Offer:
    """Configurations of a block that begins on one device."""

    rows: NDArray[np.int64]  # [configuration]; of its table
    end: NDArray[np.int64]  # [configuration]
    ticks: NDArray[np.int64]  # [configuration]
    weights: NDArray[np.int64]  # [configuration, scarce device], in lumps
    running: NDArray[np.int64]  # [configuration, scarce device], in lumps


class _Labels:
    """Labels on their way through the blocks."""

    def __init__(
        self, problem: Problem, tables: Tables, chain: list[Block], each: list[Table], least: list[dict[int, int]],
        lump: int, most: int,
    ) -> None:  # fmt: skip
        self.problem, self.chain, self.each, self.lump, self.most = problem, chain, each, lump, most
        self.least = least
        room = np.array([device.usable_bytes for device in problem.cluster], dtype=np.int64)
        largest = tables.running.max(axis=0, initial=0)
        total = int(tables.weights.sum())
        self.scarce = np.flatnonzero(total + largest > room)  # where everything together does not fit
        self.room = room[self.scarce]
        counted = sum(int(tables.weights[list(block.operators)].sum()) for block in chain)
        self.elsewhere = total - counted  # bytes of operators that are in no block
        self.all_room = int(room.sum()) if len(self.scarce) == len(room) else None
        self.steps: list[_Step] = []
        self.offers: dict[int, dict[int, _Offer]] = {}  # by table and device of the head; like blocks share them

    def run(self, search: Search) -> bool:
        """Go through all blocks; False where there are too many labels, or the search is over."""
        none = np.zeros((1, len(self.scarce)), dtype=np.int64)
        zero = np.zeros(1, dtype=np.int64)
        step = _Step(zero + NOWHERE, zero, none, none, zero, zero)
        most = _to_beat(search)
        for table, left in zip(self.each, [*self.least[1:], {}], strict=True):
            following = self._through(step, table, left, most)
            if following is None or search.done:
                return False
            self.steps.append(following)
            step = following
        return True

    def _through(self, step: _Step, table: Table, left: dict[int, int], most: int) -> _Step | None:
        """Every label before a block with every configuration of it, but those that cannot beat what is known."""
        made: list[_Step] = []
        for head, offer in self._offers(table).items():
            labels = np.flatnonzero(step.device == head)
            if len(labels) * len(offer.rows) > PRODUCTS * self.most:
                return None
            first, second = np.repeat(labels, len(offer.rows)), np.tile(np.arange(len(offer.rows)), len(labels))
            behind = np.array([left.get(end, 0) for end in offer.end.tolist()], dtype=np.int64)
            total = step.ticks[first] + offer.ticks[second]
            held = step.weights[first] + offer.weights[second]
            beside = np.maximum(step.running[first], offer.running[second])
            good = (total + behind[second] < most) & ((held + beside) * self.lump <= self.room).all(axis=1)
            both = _Step(offer.end[second], total, held, beside, first, offer.rows[second]).at(np.flatnonzero(good))
            made.append(both if len(both.ticks) <= self.most else both.thinned())
        joined = _joined(made).thinned()
        return None if len(joined.ticks) > self.most else joined

    def _offers(self, table: Table) -> dict[int, _Offer]:
        """By device of the head: the configurations of a block that no other one of it makes needless."""
        if id(table) not in self.offers:
            weights = table.weight_bytes[:, self.scarce] // self.lump
            running = table.running_bytes[:, self.scarce] // self.lump
            found = {}
            for head, ticks in table.ticks.items():
                kept = _cheapest(table.end, ticks, weights, running)
                found[head] = _Offer(kept, table.end[kept], ticks[kept], weights[kept], running[kept])
            self.offers[id(table)] = found
        return self.offers[id(table)]

    def _ends(self) -> NDArray[np.int64]:
        """The labels that are left, the best first."""
        last = self.steps[-1]
        fits = np.ones(len(last.ticks), dtype=bool)
        if self.all_room is not None:
            fits = last.weights.sum(axis=1) * self.lump + self.elsewhere <= self.all_room
        rows = np.flatnonzero(fits & (last.ticks < NEVER))
        return rows[np.argsort(last.ticks[rows], kind="stable")]

    def least_ticks(self) -> int | None:
        """What every placement takes at least; None where no placement is left."""
        ends = self._ends()
        return int(self.steps[-1].ticks[ends[0]]) if len(ends) else None

    def placements(self, most: int) -> Iterator[NDArray[np.uint8]]:  # [operator]
        """Devices by the best labels; what is in no block goes with those that read it, or that it reads from."""
        for end in self._ends()[:most].tolist():
            chosen = np.full(len(self.problem.graph), -1, dtype=np.int64)
            label = end
            for block, table, step in zip(self.chain[::-1], self.each[::-1], self.steps[::-1], strict=True):
                chosen[list(block.operators)] = table.devices[step.configuration[label]]
                label = int(step.came_from[label])
            yield self._completed(chosen)

    def _completed(self, chosen: NDArray[np.int64]) -> NDArray[np.uint8]:
        problem = self.problem
        for u, v in problem.graph.edges[::-1].tolist():
            if chosen[u] < 0:
                chosen[u] = chosen[v]
        for u, v in problem.graph.edges.tolist():
            if chosen[v] < 0:
                chosen[v] = chosen[u]
        wanted = np.where(chosen < 0, least_seconds_devices(problem), chosen)
        return settled(problem, wanted)[0]


def _to_beat(search: Search) -> int:
    """Ticks below which a placement would be better than the best one known."""
    return NEVER if search.best is None else round(search.best_seconds * TICKS_PER_SECOND)


def _joined(steps: list[_Step]) -> _Step:
    return _Step(
        *(np.concatenate([getattr(step, name) for step in steps]) for name in _Step.__slots__)
    )


def _cheapest(
    device: NDArray[np.int64], ticks: NDArray[np.int64], weights: NDArray[np.int64], running: NDArray[np.int64]
) -> NDArray[np.int64]:  # rows
    """Without rows that hold the same as another one on the same device and take no less time.

    With one scarce device also without those that hold more weights there than another one and take no less time.
    """
    order = np.lexsort((ticks, *weights.T, *running.T, device))
    order = order[ticks[order] < NEVER]
    if not len(order):
        return order
    same = np.column_stack([device, running] if weights.shape[1] == 1 else [device, running, weights])[order]
    group = np.zeros(len(order), dtype=np.int64)
    group[1:] = np.cumsum((same[1:] != same[:-1]).any(axis=1))
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    longest = int(ticks[order].max()) + 1
    if longest * (int(group[-1]) + 1) >= NEVER:
        return order[begins] if weights.shape[1] != 1 else order
    fallen = ticks[order] - group * longest  # so that every group begins below all before it
    best = np.minimum.accumulate(fallen)
    kept = np.ones(len(order), dtype=bool)
    kept[1:] = fallen[1:] < best[:-1]
    return order[np.flatnonzero(kept)]
