"""Calls that a path passes one after another: a bound on offloaded runs by a minimum cut.

Operators of a path that are in different calls wait for the whole call before: a call starts when all calls that it
reads from have ended, and an operator on a host device is done its own time after those. So the latency is at least the
time of all calls that the path passes, each once, and of its operators on host devices. A path does not come back to a
call that it has left, which would then wait for itself.

Notation    S       all operators in the calls that the path passes
            w[v]    least ticks of v on an accelerator
            g[v]    least ticks of v on a host device where v is on the path, 0 elsewhere
            W[t]    least ticks of writing tensor t from an accelerator to host memory, R[t] of reading it

A call takes the work of all its operators, reads every tensor that comes from outside, and writes every tensor that has
a reader outside. What is outside S is outside each of the calls. Hence

    latency >= sum of w[v] over S + sum of g[v] over the others
               + sum of W[t] over tensors made in S with a reader outside S
               + sum of R[t] over tensors made outside S with a reader in S

and the least value over all S is a minimum cut: S -> v costs g[v] and v -> T costs w[v]; a node per tensor and
direction makes a tensor count once, however many readers it has. Memory, colocation and where calls are do not count.

Where no accelerator holds everything, the path, or any chain u[1], u[2], .. of operators each of which waits for the
one before it, is a row of runs: operators that follow each other in one call, and single ones on host devices. Runs are
different calls, so their times add up. The call of a run u[i+1] .. u[j] takes r(i, j) at least, the least value of

    sum of w[v] over S + sum of W[t] and R[t] as above,  S with all u[i+1] .. u[j], without all other u, bytes(S) <= M

where M are the bytes of the largest accelerator. For any price z >= 0 of a byte, r is no less than the minimum cut with
w[v] + z bytes[v] instead of w[v], less z M: prices are rounded down, z M is rounded up. For runs of more than `LONGEST`
operators the cut that keeps the first of them in S and asks nothing of the others stands for r. Then

    f[j] = min(f[j-1] + g[u[j]], min over i of f[i] + r(i, j)),    f[0] = 0,    latency >= f[n].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead import clock
from stead.problem import Problem
from stead.problem.ticks import to_ticks
from stead.sim.transfer_times import READ, WRITE, host_ticks

MOST_TICKS = 2**60  # capacities must stay far below 2^63
INSIDE, OUTSIDE = 0, 1  # the sides of the cut, as nodes
LONGEST = 128  # operators of a chain in one run that are looked at by themselves
PRICES = (0.0, 1.0, 4.0)  # without any a run of little memory has no bound, and one of much with 0 alone a poor one
ROUNDING = 1e-9  # relative; more than products of doubles lose


def call_chain_ticks(problem: Problem, path: NDArray[np.int32]) -> int:
    """Ticks of the calls that a path passes, over all offloaded runs; 0 where that is not known."""
    network = _Network.of(problem)
    if network is None:
        return 0
    on_path = np.zeros(len(problem.graph), dtype=bool)
    on_path[path] = True
    found = network.cut(np.where(on_path, network.hosted, 0), network.called)
    return 0 if found is None else found


def call_runs_ticks(
    problem: Problem,
    chain: NDArray[np.int32],
    held_bytes: NDArray[np.int64],
    *,
    prices: Sequence[float] = PRICES,
    end: float = math.inf,
) -> int:
    """The same for a chain of operators whose weights do not all fit one accelerator; `held_bytes` are [operator].

    A byte costs as much as `prices` say, each times what the chain copies on average by what an accelerator holds.
    Where the clock passes `end`, nothing is proved.
    """
    network = _Network.of(problem)
    rooms = [device.usable_bytes for device in problem.cluster if not device.is_host]
    if network is None or not rooms or not len(chain):
        return 0
    runs = _Runs(network, chain.astype(np.int64), held_bytes, max(rooms), prices)
    return runs.least(end)


@dataclass(frozen=True, slots=True, eq=False)
class _Network:
    """Everything but what it costs to be on a side of the cut."""

    called: NDArray[np.int64]  # [operator]; least ticks on an accelerator, `unlimited` where there is none
    hosted: NDArray[np.int64]  # [operator]; the same on a host device
    copied: NDArray[np.int64]  # [operator]; ticks of writing what it makes, and of reading it
    tails: NDArray[np.int32]  # [arc]; of tensors
    heads: NDArray[np.int32]
    capacities: NDArray[np.int64]
    unlimited: int

    @staticmethod
    def of(problem: Problem) -> _Network | None:
        """The network of a problem; None where sums would not be exact."""
        graph, count = problem.graph, len(problem.graph)
        hosts = np.array([device.is_host for device in problem.cluster], dtype=bool)
        ticks = to_ticks(np.where(problem.allowed, problem.costs.seconds, 0.0))
        possible = np.where(problem.allowed, ticks, MOST_TICKS)  # [operator, device]
        called = possible[:, ~hosts].min(axis=1, initial=MOST_TICKS)
        hosted = possible[:, hosts].min(axis=1, initial=MOST_TICKS)
        write, read = _least_copies(problem, ~hosts)
        parts = (called[called < MOST_TICKS], hosted[hosted < MOST_TICKS], write, read)
        if sum(float(part.sum(dtype=float)) for part in parts) >= MOST_TICKS:
            return None
        unlimited = 4 * sum(int(part.sum()) for part in parts) + 1  # prices of bytes are no more than all work
        operator, tensor = 2 + np.arange(count), 2 + count + np.arange(graph.tensor_count)
        fetched = tensor + graph.tensor_count
        maker, of, reader = operator[graph.tensor_producer], graph.tensor_of_read, operator[graph.readers]
        always = np.full(len(of), unlimited)
        arcs = (
            (maker, tensor, write), (tensor[of], reader, always), (fetched, maker, read), (reader, fetched[of], always),
        )  # fmt: skip
        tails, heads, capacities = (np.concatenate(part) for part in zip(*arcs, strict=True))
        useful = capacities > 0
        copied = np.zeros(count, dtype=np.int64)
        np.add.at(copied, graph.tensor_producer, write + read)
        return _Network(
            np.minimum(called, unlimited), np.minimum(hosted, unlimited), copied,
            tails[useful].astype(np.int32), heads[useful].astype(np.int32), capacities[useful], unlimited,
        )  # fmt: skip

    def cut(self, outside: NDArray[np.int64], inside: NDArray[np.int64]) -> int | None:
        """The minimum cut where operators cost so much on either side [operator]; None if there is none."""
        from ortools.graph.python import max_flow  # type: ignore[import-untyped, unused-ignore]

        begin, end = np.flatnonzero(outside > 0).astype(np.int32), np.flatnonzero(inside > 0).astype(np.int32)
        if not len(begin) or not len(end):
            return 0
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(
            np.concatenate([np.full(len(begin), INSIDE, dtype=np.int32), 2 + end, self.tails]),
            np.concatenate([2 + begin, np.full(len(end), OUTSIDE, dtype=np.int32), self.heads]),
            np.concatenate([outside[begin], inside[end], self.capacities]),
        )
        if flow.solve(INSIDE, OUTSIDE) != flow.OPTIMAL:
            return 0  # any flow is a bound, and so is none
        value = int(flow.optimal_flow())
        return value if value < self.unlimited else None


class _Runs:
    """A chain as runs, each in a call of its own."""

    def __init__(
        self, network: _Network, chain: NDArray[np.int64], held_bytes: NDArray[np.int64], room: int,
        prices: Sequence[float],
    ) -> None:  # fmt: skip
        self.network, self.chain, self.room = network, chain, room
        self.held: list[int] = held_bytes[chain].tolist()
        copies = float(network.copied[chain].mean())
        total = float(held_bytes.sum())
        self.priced: list[tuple[NDArray[np.int64], int]] = []  # ticks of bytes [operator], and of all room
        for price in prices:
            each = price * copies / max(room, 1)
            if each * total < network.unlimited / 4:
                ticks = np.floor(each * held_bytes * (1 - ROUNDING)).astype(np.int64)
                self.priced.append((ticks, math.ceil(each * room * (1 + ROUNDING))))

    def least(self, end: float) -> int:
        """f[n]; 0 if the chain cannot run at all, which is for others to say, or not by then."""
        count, hosted = len(self.chain), self.network.hosted[self.chain].tolist()
        done: list[float] = [0, *[math.inf] * count]
        for i in range(count):
            if hosted[i] < self.network.unlimited:
                done[i + 1] = min(done[i + 1], done[i] + hosted[i])
            if clock.now() > end:
                return 0
            if done[i] == math.inf:
                continue
            held = 0
            for j in range(i + 1, count + 1):
                held += self.held[j - 1]
                if held > self.room:
                    break
                takes = self._call(i, j)
                if takes is None:
                    continue
                if j - i > LONGEST:  # holds for all runs from here that are as long or longer
                    for k in range(j, count + 1):
                        done[k] = min(done[k], done[i] + takes)
                    break
                done[j] = min(done[j], done[i] + takes)
        return 0 if done[count] == math.inf else int(done[count])

    def _call(self, i: int, j: int) -> int | None:
        """What a call takes at least that holds chain[i] .. chain[j - 1]; None if there is none.

        It holds no other of the chain, or if it is longer than `LONGEST`, perhaps all others.
        """
        network, run = self.network, self.chain[i:j]
        forced = np.zeros(len(network.called), dtype=np.int64)
        forced[run] = network.unlimited
        best = 0
        for ticks, room in self.priced:
            costs = np.minimum(network.called + ticks, network.unlimited)
            if j - i <= LONGEST:
                costs[np.setdiff1d(self.chain, run)] = network.unlimited
            value = network.cut(forced, costs)
            if value is None:
                return None
            best = max(best, value - room)
        return best


def _least_copies(problem: Problem, accelerators: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[tensor]: least ticks of writing tensors to host memory, and of reading them; 0 where there is no way."""
    none = np.zeros(problem.graph.tensor_count, dtype=np.int64)
    found = []
    for way in (WRITE, READ):
        linked = accelerators & np.isfinite(problem.routes.host_latency_seconds[way])
        ways = [host_ticks(problem, way, d) for d in np.flatnonzero(linked).tolist()]
        found.append(np.min(ways, axis=0) if ways else none)
    return found[0], found[1]
