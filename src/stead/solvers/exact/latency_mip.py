"""`latency-mip`: the integer program of calls (Tarnawski et al. 2020), solved by CP-SAT.

Notation    n unit, u -> v operators, t tensor between units, c call (an accelerator and a number)
    x[n,c]    n runs in call c; x[n,host] on the CPUs      in[t,c], out[t,c]   the call reads or writes t
    S[c]      start of a call                              F[c] = S[c] + all that it computes, reads and writes
    L[v]      when v is done                               T      latency: at least every L[v]

    S[c] >= L[u]   if the call holds v but not u           L[v] >= F[c]          if it holds v
    L[v] >= L[u] + host[v] x[v,host]                       S[next call] >= F[c]  on the same accelerator

With one call per accelerator a path that leaves and comes back would demand S >= F, so calls are contiguous without a
row that says so. Placement is decided by unit, but time runs by operator: on a CPU the operators of a unit start as
soon as their own inputs are there. For the same reason units on a common cycle are not fused: one may be on a CPU
while the other is called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.problem import Problem
from stead.problem.in_ticks import Tables
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.offload_run import pieces
from stead.solvers.exact.call_ideals import CallIdeals
from stead.solvers.exact.offload import (
    OffloadLinear,
    lacks_time_for_calls,
    not_offload,
    reduced_calls,
    through_host,
)
from stead.solvers.exact.programs.program import Program, Scale, Settings, run
from stead.solvers.exact.programs.solving import BUILDING_SECONDS
from stead.solvers.exact.reduction import Reduced, reduce
from stead.solvers.few_devices import few_devices
from stead.solvers.part_budgets import limited
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

COMPARING_SECONDS = 6e-8  # per two nodes of two equal accelerators


@few_devices
@dataclass(frozen=True, slots=True)
class LatencyMip:
    """The best calls, at most `subgraphs` per accelerator; its bound holds for such placements.

    `offload-linear` gives the start. Where a bound for all placements meets the value found, that proves it and nothing
    more is done. For one call per accelerator, labels of ideals come next: they settle graphs that are nearly chains.
    The program has one worker and a fixed seed: the same answer whenever it ends before `program_seconds`.
    """

    subgraphs: int = 1
    max_steps: int = 20_000  # of labels; some 5 s
    max_literals: int = 60_000
    program_seconds: float = 120.0

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "latency-mip"

    @property
    def scope(self) -> str:
        """The placements that the bound of the program holds for."""
        if self.subgraphs == 1:
            return "one call per accelerator"
        return f"at most {self.subgraphs} calls per accelerator, colocated operators in one call"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes latency with offload execution."""
        if self.subgraphs < 1:
            return f"it needs at least one call per accelerator, got subgraphs = {self.subgraphs}"
        return not_offload(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Start from linear orders, then solve the program."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            search.relax()
            search.try_solver(OffloadLinear())
            if not search.done and self.subgraphs == 1:
                self._look_at_ideals(search)
            if not search.done:
                self._solve_program(search)
        return search.solution()

    def _look_at_ideals(self, search: Search) -> None:
        """Labels of ideals settle graphs that are nearly chains; elsewhere there are too many."""
        problem = search.problem
        if problem.unit_count < len(problem.graph) or search.best is None:
            return  # operators of a unit may start one by one on a CPU, which labels of nodes do not know
        if problem.unit_count > self.max_steps or lacks_time_for_calls(search):
            return  # even a chain has more labels than that
        reduced = reduced_calls(problem)
        ticks, device = _host_ticks(problem)
        node_ticks, node_device = [0] * reduced.count, [0] * reduced.count
        for v, n in enumerate(reduced.node_of.tolist()):  # at most one operator of a node takes any time
            barred = node_ticks[n] < 0 or ticks[v] < 0
            node_ticks[n], node_device[n] = -1 if barred else node_ticks[n] + int(ticks[v]), int(device[v])
        limit = round(search.best_seconds * TICKS_PER_SECOND)
        found = CallIdeals(reduced, node_ticks, node_device).below(
            limit, most_steps=self.max_steps, stop=lambda: search.done
        )
        if found.devices is not None:
            search.offer(reduced.lift(found.devices), found_by="labels of ideals")
        if found.complete:
            search.scope = self.scope
            search.raise_bound(found.ticks / TICKS_PER_SECOND, "labels of ideals")

    def _solve_program(self, search: Search) -> None:
        if lacks_time_for_calls(search):
            return
        reduced = reduce(through_host(search.problem), notion="any", merge="off")
        literals = _literals(reduced, self.subgraphs)
        if literals > self.max_literals:
            search.notes.append(f"no program: it would have {literals} literals")
            return
        if search.lacks_time(_building_seconds(reduced, literals)):
            return
        model = CallProgram(search, reduced, self.subgraphs)
        search.scope = self.scope  # from here on bounds hold for such placements only
        with limited(search, seconds=self.program_seconds):
            run(
                model.program,
                search,
                Settings(seed=search.seed),
                place=model.place,
                bound_seconds=model.scale.seconds,
                bound_name="integer program",
            )


def _literals(reduced: Reduced, subgraphs: int) -> int:
    calls = subgraphs * sum(len(kind.devices) for kind in reduced.kinds if not kind.is_host)
    return calls * (reduced.count + 2 * len(reduced.tensor_source))


def _building_seconds(reduced: Reduced, literals: int) -> float:
    """About what it takes to write the program down; of equal accelerators, every node is compared with all before."""
    twins = sum(len(kind.devices) - 1 for kind in reduced.kinds if not kind.is_host)
    return BUILDING_SECONDS * literals + COMPARING_SECONDS * twins * reduced.count**2


@dataclass(slots=True)
class _Call:
    """Variables of one call of one accelerator."""

    device: int
    kind: int
    start: int
    finish: int
    holds: list[int | None] = field(default_factory=list)  # [node]; None where the node may not run


class CallProgram:
    """The program of all ways to call accelerators, and how to read a placement off its values."""

    def __init__(self, search: Search, reduced: Reduced, subgraphs: int) -> None:
        self.program = Program()
        self._search, self._reduced = search, reduced
        self._problem = search.problem
        self._host, self._host_device = _host_ticks(self._problem)
        self._known = _contiguous(search)
        horizon = round(search.best_seconds * TICKS_PER_SECOND) if self._known else self._longest()
        tables = [self._host, reduced.ticks, reduced.receive_ticks, reduced.send_ticks]
        self.scale = Scale.of([*tables, np.array([horizon])], upper=horizon)
        self._horizon = self.scale.up(horizon)
        self._host_holds = self._assign_hosts()
        self._calls = [
            [self._new_call(d, j) for _ in range(subgraphs)]
            for j, kind in enumerate(reduced.kinds)
            if not kind.is_host
            for d in kind.devices
        ]
        self._choose()
        self._fill_calls()
        self._limit_weights()
        self._time_operators()
        if self._known:
            self._hint()

    def place(self, values: NDArray[np.int64]) -> NDArray[np.uint8]:  # [operator]
        """The device of every operator."""
        devices = self._host_device.copy()
        for call in (call for own in self._calls for call in own):
            chosen = np.array([x is not None and values[x] == 1 for x in call.holds], dtype=bool)
            devices[chosen[self._reduced.node_of]] = call.device
        return devices.astype(np.uint8)

    def _longest(self) -> int:
        """A number of ticks that no best run exceeds: everything one after another."""
        reduced = self._reduced
        moved = int(reduced.receive_ticks.max(axis=1, initial=0).sum() * len(self._problem.cluster))
        sent = int(reduced.send_ticks.max(axis=1, initial=0).sum())
        return int(reduced.ticks.max(axis=1, initial=0).sum()) + moved + sent + 1

    def _assign_hosts(self) -> list[int | None]:  # [node]
        """The literal of every node for the CPUs; None where an operator of it may run on none."""
        barred = np.zeros(self._reduced.count, dtype=bool)
        barred[self._reduced.node_of[self._host < 0]] = True
        return [None if no else self.program.binary() for no in barred.tolist()]

    def _new_call(self, device: int, kind: int) -> _Call:
        program = self.program
        call = _Call(device, kind, program.integer(0, self._horizon), program.integer(0, self._horizon))
        possible = (self._reduced.ticks[:, kind, 0] >= 0).tolist()
        call.holds = [program.binary() if yes else None for yes in possible]
        return call

    def _choose(self) -> None:
        """One place per node; of equal accelerators the one with the earlier first node comes first."""
        calls = [call for own in self._calls for call in own]
        for n in range(self._reduced.count):
            places = [self._host_holds[n], *(call.holds[n] for call in calls)]
            self.program.exactly_one([place for place in places if place is not None])
        for earlier, later in pairwise(self._calls):
            if earlier[0].kind != later[0].kind:
                continue
            for n in range(self._reduced.count):
                before = [x for call in earlier for x in call.holds[:n] if x is not None]
                for call in later:
                    if (mine := call.holds[n]) is not None:
                        self.program.clause([~mine, *before])

    def _fill_calls(self) -> None:
        """F = S + computing + reading + writing, and calls of one accelerator in their order."""
        reduced, program, scale = self._reduced, self.program, self.scale
        readers = np.split(reduced.readers, reduced.reader_first[1:-1])
        for own in self._calls:
            for call in own:
                terms: list[tuple[int, int]] = []
                for n, x in enumerate(call.holds):
                    if x is not None:
                        terms.append((x, scale.down(reduced.ticks[n, call.kind].sum())))
                for t, source in enumerate(reduced.tensor_source.tolist()):
                    terms += self._moves(call, t, source, readers[t].tolist())
                program.row(
                    [call.finish, call.start, *(x for x, _ in terms)],
                    [1, -1, *(-ticks for _, ticks in terms)],
                    low=0,
                )
            for call, following in pairwise(own):
                program.row([following.start, call.finish], [1, -1], low=0)

    def _moves(self, call: _Call, t: int, source: int, readers: list[int]) -> list[tuple[int, int]]:
        """(literal, ticks) of reading t into a call and of writing it out."""
        program, reduced = self.program, self._reduced
        receive = self.scale.down(reduced.receive_ticks[t, call.kind])
        send = self.scale.down(reduced.send_ticks[t, call.kind])
        mine = call.holds[source]
        here = [call.holds[reader] for reader in readers]
        terms = []
        if receive and any(x is not None for x in here):
            reads = program.binary(implied=True)
            terms.append((reads, receive))
            for x in here:
                if x is not None:
                    program.clause([~x, reads, *([] if mine is None else [mine])])
        if send and mine is not None:
            writes = program.binary(implied=True)
            terms.append((writes, send))
            for x in here:
                program.clause([~mine, writes, *([] if x is None else [x])])
        return terms

    def _limit_weights(self) -> None:
        """Weights are held once per accelerator, whatever call uses them."""
        reduced, program = self._reduced, self.program
        users = np.split(reduced.users, reduced.user_first[1:-1])
        sizes = reduced.weight_bytes.tolist()
        for own in self._calls:
            limit = reduced.kinds[own[0].kind].memory_bytes
            if sum(sizes) <= limit:
                continue
            held = [program.binary(implied=True) for _ in sizes]
            for w, nodes in enumerate(users):
                for call in own:
                    for n in nodes.tolist():
                        if (x := call.holds[n]) is not None:
                            program.implies(x, held[w])
            program.row(held, sizes, high=limit)

    def _time_operators(self) -> None:
        """When operators are done, and the latency to minimise."""
        program, problem, node_of = self.program, self._problem, self._reduced.node_of.tolist()
        calls = [call for own in self._calls for call in own]
        earliest = _native.earliest_finish(problem.native, through_host=True)
        done = [program.integer(min(self.scale.down(x), self._horizon), self._horizon) for x in earliest]
        host = [self.scale.down(max(0, x)) for x in self._host.tolist()]
        for v, n in enumerate(node_of):
            for call in calls:
                if (x := call.holds[n]) is not None:
                    program.row([done[v], call.finish], [1, -1], low=0, when=[x])
            if (on_host := self._host_holds[n]) is not None and host[v]:
                program.row([done[v]], [1], low=host[v], when=[on_host])
        for u, v in problem.graph.edges.tolist():
            self._follow(done, u, v, host[v], calls)
        latency = program.integer(self.scale.down(self._least_ticks()), self._horizon)
        for v in np.setdiff1d(np.arange(len(done)), problem.graph.edges[:, 0]).tolist():
            program.row([latency, done[v]], [1, -1], low=0)
        program.minimise([latency], [1])

    def _least_ticks(self) -> int:
        """The bound that is known already: far above what the relaxation of this program sees."""
        return int(self._search.bound_seconds * TICKS_PER_SECOND)

    def _follow(self, done: list[int], u: int, v: int, host: int, calls: list[_Call]) -> None:
        """v after u: at once or after its time on a CPU, and a call only after what it does not hold itself."""
        a, b = int(self._reduced.node_of[u]), int(self._reduced.node_of[v])
        on_host = self._host_holds[b]
        if on_host is None or not host:
            self.program.row([done[v], done[u]], [1, -1], low=0)
        else:
            self.program.row([done[v], done[u], on_host], [1, -1, -host], low=0)
        if a == b:
            return
        for call in calls:
            mine, its = call.holds[b], call.holds[a]
            if mine is not None:
                when = [mine] if its is None else [mine, ~its]
                self.program.row([call.start, done[u]], [1, -1], low=0, when=when)

    def _hint(self) -> None:
        """The incumbent, accelerators of a kind numbered by their first node."""
        assert self._search.best is not None
        first_operator = np.unique(self._reduced.node_of, return_index=True)[1]
        devices = self._search.best[first_operator].tolist()  # [node]
        for j, kind in enumerate(self._reduced.kinds):
            used = list(dict.fromkeys(d for d in devices if d in kind.devices))
            for number, own in enumerate(own for own in self._calls if own[0].kind == j):
                for n, x in enumerate(own[0].holds):
                    if x is not None:
                        self.program.hint[x] = int(number < len(used) and devices[n] == used[number])
        for n, host in enumerate(self._host_holds):
            if host is not None:
                self.program.hint[host] = int(self._problem.cluster.devices[devices[n]].is_host)


def _host_ticks(problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # [operator] each
    """Ticks of every operator on the fastest CPU for its unit, -1 if none may run it, and that CPU."""
    hosts = np.array([d for d, device in enumerate(problem.cluster) if device.is_host])
    by_unit = problem.unit_seconds[:, hosts]
    best = hosts[by_unit.argmin(axis=1)][problem.units]
    rows = np.arange(len(best))
    allowed = problem.allowed[rows, best]
    ticks = np.where(allowed, np.rint(np.where(allowed, problem.costs.seconds[rows, best], 0) * TICKS_PER_SECOND), -1)
    return ticks.astype(np.int64), best


def _contiguous(search: Search) -> bool:
    """Whether no path re-enters an accelerator of the incumbent, so that every such program can express it."""
    if search.best is None:
        return False
    tables, on = Tables(search.problem), search.best.tolist()
    return all(piece == 0 or tables.is_host[d] for piece, d in zip(pieces(tables, on), on, strict=True))
