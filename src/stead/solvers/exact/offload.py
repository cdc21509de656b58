"""Latency when accelerators are called like functions: constructions and the dynamic program on linear orders.

A call copies in what it reads, computes, and copies out what others read; nothing leaves before its end. Along a
topological order, at most one interval per accelerator and host operators in between,

    F[m, j] = min( F[m-1, j],  F[m, j-1] + host[j],  min over i of F[m-1, i] + In(i..j) + C(i..j) + Out(i..j) )

is the least *sum* of times over the first j nodes with m accelerators (Tarnawski et al. 2020). Parallel branches make
the true latency smaller than the sum, so every answer is scored by the simulator and several orders are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stead.problem import Latency, Problem, Throughput
from stead.solvers.exact.ideals import Ideals
from stead.solvers.exact.interval_costs import IntervalCosts, Late
from stead.solvers.exact.linear_orders import linear_orders
from stead.solvers.exact.reduction import Reduced, reduce
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.expert import Expert
from stead.solvers.rules.settle import settled, started
from stead.solvers.rules.simple import Single
from stead.solvers.search.call_moves import improve_calls
from stead.solvers.search.climb import climb_to_fit
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

REDUCING_SECONDS = 2.5e-5  # per operator, for the supernodes of calls: nothing stops them on the way
MEMORY_ROUNDS = 4  # attempts with less room where the simulator counts more than weights
PATIENCE_PER_NODE = 256  # small problems have few neighbours


def not_offload(problem: Problem) -> str | None:
    """Why a problem is not one of calls, in one sentence; None if it is."""
    objective = problem.objective
    if not (isinstance(objective, Latency) and objective.execution == "offload"):
        return "it plans calls of accelerators: latency with offload execution"
    routes = problem.routes
    for d, device in enumerate(problem.cluster):
        if not device.is_host and np.isinf(routes.host_latency_seconds[:, d]).any():
            return f"device {device.name} has no link with a CPU, so it cannot be called"
    return None


def through_host(problem: Problem) -> Problem:
    """The same problem with all copies through host memory, as calls do whatever links there are."""
    if problem.cluster.routing == "host":
        return problem
    return Problem(
        problem.graph,
        replace(problem.cluster, routing="host"),
        problem.costs,
        objective=problem.objective,
        constraints=problem.constraints,
    )


def reduced_calls(problem: Problem) -> Reduced:
    """Supernodes that make one call possible for any interval of a linear order."""
    return reduce(through_host(problem), notion="stages", merge="lossless")


def lacks_time_for_calls(search: Search) -> bool:
    """Whether supernodes would take longer than there is time."""
    return search.lacks_time(REDUCING_SECONDS * len(search.problem.graph))


@few_devices
@dataclass(frozen=True, slots=True)
class GreedyOffload:
    """Fills one accelerator after another along a depth-first order up to its memory; the rest is for the CPU."""

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "greedy-offload"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes latency with offload execution."""
        return not_offload(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Offer the one placement it constructs, or the least bad of some that leave more room."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            if lacks_time_for_calls(search):
                _offer_without_calls(search)
            else:
                fill_accelerators(search, reduced_calls(problem))
        return search.solution()


def fill_accelerators(search: Search, reduced: Reduced) -> None:
    """Offer accelerators that are filled in depth-first order, or the least bad of some that leave more room."""
    order = next(linear_orders(reduced, seed=0, drawn=0), np.zeros(0, dtype=np.int32))
    for tighter in _with_less_room(search, reduced):
        search.offer(tighter.lift(_greedy_devices(tighter, order)))


@few_devices
@dataclass(frozen=True, slots=True)
class MaxLoadSplit:
    """The best pipeline (largest load of a device as small as possible), used for single samples.

    Beyond `max_pairs` pairs of ideals it is the best pipeline found so far.
    """

    max_pairs: int = 20_000_000
    max_bytes: int = 2**28

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "max-load-split"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes latency with offload execution, of graphs whose pipelines can be balanced."""
        return not_offload(problem) or self._ideals.unsupported(_as_pipeline(problem))

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Balance the pipeline, then ask the simulator for the latency."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            pipeline = _as_pipeline(problem)
            half = None if budget.evaluations is None else max(1, budget.evaluations // 2)
            left = None if budget.seconds is None else search.remaining_seconds
            found = self._ideals.solve(pipeline, Budget(seconds=left, evaluations=half), seed)
            search.evaluations += found.evaluations
            search.notes += found.notes
            search.offer(found.placement.devices)
        return search.solution()

    @property
    def _ideals(self) -> Ideals:
        return Ideals(max_bytes=self.max_bytes, max_pairs=self.max_pairs)


def _as_pipeline(problem: Problem) -> Problem:
    """The same operators and devices as a pipeline of calls."""
    return through_host(problem).with_objective(Throughput())


@few_devices
@dataclass(frozen=True, slots=True)
class OffloadLinear:
    """Intervals of linear orders as calls, chosen optimally for each order, then improved by the simulator.

    Never worse than all on the fastest CPU, `greedy-offload`, `expert` or `max-load-split`: they are among its starts.
    Stops by itself once `patience` placements in a row have not helped (fewer for small graphs). It proves nothing.
    """

    orders: int = 24
    patience: int = 20_000
    positions: int = (
        1500  # most places where an order may be cut; longer orders are cut at even shares of the work
    )

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "offload-linear"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes latency with offload execution."""
        return not_offload(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Constructions first, then linear orders, then local search."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            search.relax()
            if lacks_time_for_calls(search):
                _offer_without_calls(search)
            else:
                self._search(search, reduced_calls(problem))
        return search.solution()

    def _search(self, search: Search, reduced: Reduced) -> None:
        search.offer(_on_hosts(reduced), found_by="all on CPU")
        if not search.done:
            search.try_solver(_Member("greedy-offload", fill_accelerators, reduced))
        self._cut_orders(search, reduced)
        for member in (Expert(), MaxLoadSplit()):
            if not search.done:
                search.try_solver(member)
        if search.best is None:
            climb_to_fit(search)
        if search.best is not None and not search.done:
            improve_calls(search, reduced, patience=min(self.patience, PATIENCE_PER_NODE * reduced.count))

    def _cut_orders(self, search: Search, reduced: Reduced) -> None:
        for order in linear_orders(reduced, seed=search.seed, drawn=max(0, self.orders - 6)):
            if search.done:
                return
            try:
                self._cut(search, reduced, order)
            except Late:
                return

    def _cut(self, search: Search, reduced: Reduced, order: NDArray[np.int32]) -> None:
        for tighter in _with_less_room(search, reduced):
            devices = cut_order(tighter, order, positions=self.positions, stop=lambda: search.out_of_time)
            if devices is None:
                break
            search.offer(tighter.lift(devices))


@dataclass(frozen=True, slots=True)
class _Member:
    """A construction of another solver, for which the supernodes are there already."""

    name: str
    fill: Callable[[Search, Reduced], None]
    reduced: Reduced

    def unsupported(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        search = Search(problem, budget, solver=self.name, seed=seed)
        with search.interruptible():
            self.fill(search, self.reduced)
        return search.solution()


def cut_order(
    reduced: Reduced, order: NDArray[np.int32], *, positions: int, stop: Callable[[], bool] = lambda: False
) -> NDArray[np.int64] | None:
    """The device of every node if the order is cut into intervals at the least sum; None if memory forbids all."""
    costs = IntervalCosts(reduced, order, positions=positions, stop=stop)
    host, host_of = costs.host_ticks()
    layers = [_Layer.of_hosts(host)]
    for j, kind in enumerate(reduced.kinds):
        if not kind.is_host:
            ticks = costs.call_ticks(j)
            layers += _layers_of_kind(layers[-1], ticks, host, kind.devices)
    if not layers[-1].best[-1] < np.inf:
        return None
    devices, j = host_of.copy(), costs.blocks
    for layer in reversed(layers[1:]):
        j = int(layer.origin[j])
        if layer.begin[j] >= 0:
            devices[(costs.block_of >= layer.begin[j]) & (costs.block_of < j)] = layer.device
            j = int(layer.begin[j])
    return devices


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """F[m, .] of the dynamic program, and how each value came about."""

    device: int
    best: NDArray[np.float64]  # [position]
    begin: NDArray[np.int64]  # [position]; where the call that ends here begins, -1: no call
    origin: NDArray[np.int64]  # [position]; from there on everything is on hosts

    @staticmethod
    def of_hosts(host: NDArray[np.float64]) -> _Layer:
        best = np.concatenate([[0.0], np.cumsum(host)])
        return _Layer(-1, best, np.full(len(best), -1), np.zeros(len(best), dtype=np.int64))

    def with_device(self, device: int, ticks: NDArray[np.float64], host: NDArray[np.float64]) -> _Layer:
        """The next layer: one more accelerator, whose calls take `ticks`."""
        total = self.best[:, None] + ticks
        begin = total.argmin(axis=0)
        called = total[begin, np.arange(len(begin))]
        begin = np.where(called < self.best, begin, -1)
        best = np.minimum(called, self.best)
        origin = np.arange(len(best))
        for j, seconds in enumerate(host.tolist(), start=1):
            if best[j - 1] + seconds < best[j]:
                best[j], origin[j] = best[j - 1] + seconds, origin[j - 1]
        return _Layer(device, best, begin, origin)


def _layers_of_kind(
    layer: _Layer, ticks: NDArray[np.float64], host: NDArray[np.float64], devices: tuple[int, ...]
) -> list[_Layer]:
    """One layer per device, as long as one more helps."""
    layers: list[_Layer] = []
    for d in devices:
        following = layer.with_device(d, ticks, host)
        if np.array_equal(following.best, layer.best):
            break
        layers.append(following)
        layer = following
    return layers


def _greedy_devices(reduced: Reduced, order: NDArray[np.int32]) -> NDArray[np.int64]:  # [node]
    """Accelerators one after another, each as full as its memory allows; then the CPU."""
    devices = _host_devices(reduced)
    places = [(d, j) for j, kind in enumerate(reduced.kinds) if not kind.is_host for d in kind.devices]
    weights = _weights_of_nodes(reduced)
    position, held, used = 0, set[int](), 0
    for v in order.tolist():
        while position < len(places):
            d, j = places[position]
            more = [w for w in weights[v] if w not in held]
            size = sum(int(reduced.weight_bytes[w]) for w in more)
            if reduced.ticks[v, j, 0] < 0:
                break
            if used + size <= reduced.kinds[j].memory_bytes:
                devices[v] = d
                held.update(more)
                used += size
                break
            position, held, used = position + 1, set(), 0
    return devices


def _weights_of_nodes(reduced: Reduced) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(reduced.count)]
    weight = np.repeat(np.arange(len(reduced.weight_bytes)), np.diff(reduced.user_first))
    for w, v in zip(weight.tolist(), reduced.users.tolist(), strict=True):
        found[v].append(w)
    return found


def _with_less_room(search: Search, reduced: Reduced) -> Iterator[Reduced]:
    """The problem itself, then with less room for weights as long as nothing that was offered since fits."""
    for attempt in range(MEMORY_ROUNDS):
        share = 1.0 - attempt / MEMORY_ROUNDS / 2
        kinds = tuple(
            replace(kind, memory_bytes=int(kind.memory_bytes * share)) if not kind.is_host else kind
            for kind in reduced.kinds
        )
        before = search.evaluations
        yield reduced if attempt == 0 else replace(reduced, kinds=kinds)
        if search.done or search.best is not None or search.evaluations == before:
            return


def _offer_without_calls(search: Search) -> None:
    """What takes no time to find: everything on the fastest CPU that may run it, or on one device."""
    problem = search.problem
    hosts = np.array([device.is_host for device in problem.cluster])
    seconds = np.where(problem.allowed, problem.costs.seconds, np.inf) + np.where(hosts, 0.0, 1e18)
    search.notes.append("there was no time to plan calls: everything on CPUs or on one device")
    search.offer(settled(problem, seconds.argmin(axis=1))[0], found_by="all on CPU")
    if not search.done:
        search.try_solver(Single())


def _on_hosts(reduced: Reduced) -> NDArray[np.uint8]:  # [operator]
    return reduced.lift(_host_devices(reduced))


def _host_devices(reduced: Reduced) -> NDArray[np.int64]:  # [node]
    """The fastest CPU that may run each node; the fastest device where no CPU may."""
    if not reduced.count:
        return np.zeros(0, dtype=np.int64)
    ticks = reduced.ticks.sum(axis=2).astype(np.float64)
    ticks[ticks < 0] = np.inf
    accelerators = np.array([not kind.is_host for kind in reduced.kinds])
    firsts = np.array([kind.devices[0] for kind in reduced.kinds], dtype=np.int64)
    best: NDArray[np.int64] = firsts[(ticks + np.where(accelerators, 1e30, 0.0)).argmin(axis=1)]
    return best
