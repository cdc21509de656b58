"""Rows of integer programs that say how loaded a device is, and how full.

Notation    v supernode, t tensor with source s and readers w, x[v] = 1 iff v is on the device, T the objective
    in[t]   >= x[w] - x[s]      it is received
    out[t]  >= x[s] - x[w]      it is sent
    T       >= sum ticks[v] x[v] + sum receive[t] in[t] + sum send[t] out[t]        for `sum`, and alike for others
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.problem import Load
from stead.solvers.exact.programs.program import Program, Scale
from stead.solvers.exact.reduction import Reduced

Terms = list[tuple[int, int]]  # variable, ticks
MOST_COVERS = 16  # things of which so many fit: more of them are hardly large


@dataclass(frozen=True, slots=True)
class Crossings:
    """Variables that tell which tensors a device receives and sends; -1 where nobody pays."""

    received: list[int]  # [tensor]
    sent: list[int]  # [tensor]


@dataclass(frozen=True, slots=True, eq=False)
class LoadRows:
    """Adds loads to a program: one variable for the largest, two for `fwbw`."""

    program: Program
    reduced: Reduced
    load: Load
    scale: Scale
    tops: tuple[int, ...]  # the largest load, or that of either phase

    @staticmethod
    def of(reduced: Reduced, load: Load, *, upper_ticks: int | None, lower_ticks: int = 0) -> LoadRows:
        """A program whose objective is the largest load, known to lie between `lower_ticks` and `upper_ticks`."""
        ticks = (reduced.ticks.ravel(), reduced.receive_ticks.ravel(), reduced.send_ticks.ravel())
        most = upper_ticks if upper_ticks is not None else most_ticks(reduced)
        scale = Scale.of(ticks, upper=most)
        program = Program()
        high, low = scale.down(most), scale.down(min(lower_ticks, most)) if load != "fwbw" else 0
        tops = tuple(program.integer(low, high, implied=True) for _ in range(2 if load == "fwbw" else 1))
        program.minimise(tops, [1] * len(tops))
        if len(tops) > 1:
            program.row(tops, [1] * len(tops), high=high)
        return LoadRows(program, reduced, load, scale, tops)

    def crossings(self, members: Sequence[int]) -> Crossings:
        """Variables for what crosses the border of a device, given those for its supernodes."""
        reduced, program = self.reduced, self.program
        received, sent = [], []
        for t, source in enumerate(reduced.tensor_source.tolist()):
            readers = reduced.readers[reduced.reader_first[t] : reduced.reader_first[t + 1]].tolist()
            comes = program.binary(implied=True) if reduced.receive_ticks[t].any() else -1
            goes = program.binary(implied=True) if reduced.send_ticks[t].any() else -1
            for reader in readers:
                if comes >= 0:
                    program.clause([~members[reader], members[source], comes])
                if goes >= 0:
                    program.clause([~members[source], members[reader], goes])
            received.append(comes)
            sent.append(goes)
        return Crossings(received, sent)

    def limit(self, kind: int, members: Sequence[int], crossings: Crossings, when: Sequence[int]) -> None:
        """The objective is at least the load of a device of that kind, wherever the literals are true."""
        phases = (0, 1)
        compute = [self.compute(kind, members, phase) for phase in phases]
        received = [
            self._crossing(crossings.received, self.reduced.receive_ticks[:, kind], p) for p in phases
        ]
        sent = [self._crossing(crossings.sent, self.reduced.send_ticks[:, kind], p) for p in phases]
        for top, terms in self.parts(compute, received, sent):
            self.at_least(top, terms, when)

    def parts(
        self, compute: Sequence[Terms], received: Sequence[Terms], sent: Sequence[Terms]
    ) -> list[tuple[int, Terms]]:
        """What each variable of the objective is at least, given terms of both phases."""
        if self.load == "fwbw":
            return [(self.tops[p], compute[p] + received[p] + sent[p]) for p in (0, 1)]
        top = self.tops[0]
        computes, receives, sends = (both[0] + both[1] for both in (compute, received, sent))
        if self.load == "sum":
            return [(top, computes + receives + sends)]
        if self.load == "overlap":
            return [(top, computes), (top, receives + sends)]
        return [(top, computes), (top, receives), (top, sends)]

    def at_least(self, top: int, terms: Terms, when: Sequence[int]) -> None:
        """The variable is at least a sum, wherever the literals are true."""
        total: dict[int, int] = {}
        for variable, ticks in terms:
            total[variable] = total.get(variable, 0) + ticks
        if not total:
            return
        units = [-self.scale.down(ticks) for ticks in total.values()]
        self.program.row([top, *total], [1, *units], low=0, when=when)

    def memory(self, kind: int, room_bytes: int, members: Sequence[int], when: Sequence[int]) -> None:
        """Weights of the supernodes fit into so many bytes, wherever the literals are true."""
        reduced, program = self.reduced, self.program
        if not len(reduced.weight_bytes) or int(reduced.weight_bytes.sum()) <= room_bytes:
            return
        held = []
        for w in range(len(reduced.weight_bytes)):
            users = reduced.users[reduced.user_first[w] : reduced.user_first[w + 1]].tolist()
            if len(users) == 1:
                held.append(members[users[0]])
                continue
            held.append(program.binary(implied=True))
            for user in users:
                program.implies(members[user], held[-1])
        unit = math.gcd(*reduced.weight_bytes.tolist())
        sizes = (reduced.weight_bytes // unit).tolist()
        program.row(held, sizes, high=room_bytes // unit, when=when)
        self._at_most_few(held, sizes, room_bytes // unit, when)

    def few_large(self, kind: int, members: Sequence[int]) -> None:
        """No more large supernodes on a device of that kind than the known value of the objective leaves time for."""
        total: dict[int, int] = {}
        for phase in (0, 1):
            for variable, ticks in self.compute(kind, members, phase):
                total[variable] = total.get(variable, 0) + self.scale.down(ticks)
        most = self.program.high[self.tops[0]]  # for `fwbw` either phase may take all, and both together no more
        self._at_most_few(list(total), list(total.values()), most, ())

    def _at_most_few(self, variables: Sequence[int], sizes: Sequence[int], room: int, when: Sequence[int]) -> None:
        """Cover inequalities of a knapsack: of things larger than room / (n + 1) there is place for n.

        They follow from the row itself, but not once its variables may be fractions.
        """
        order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        large = 0
        for most in range(1, MOST_COVERS + 1):
            before = large
            while large < len(order) and sizes[order[large]] * (most + 1) > room:
                large += 1
            if large > max(most, before):
                chosen = [variables[i] for i in order[:large]]
                self.program.row(chosen, [1] * large, high=most, when=when)

    def compute(self, kind: int, members: Sequence[int], phase: int) -> Terms:
        """Ticks of the supernodes of a device in one phase."""
        ticks = np.maximum(self.reduced.ticks[:, kind, phase], 0)
        return [(members[v], int(ticks[v])) for v in np.flatnonzero(ticks).tolist()]

    def _crossing(self, variables: Sequence[int], ticks: NDArray[np.int64], phase: int) -> Terms:
        late = self.reduced.tensor_late == phase
        return [(variables[t], int(ticks[t])) for t in np.flatnonzero((ticks > 0) & late).tolist()]


def most_ticks(reduced: Reduced) -> int:
    """A number of ticks that no load exceeds."""
    compute = np.maximum(reduced.ticks, 0).sum(axis=2).max(axis=1, initial=0)
    crossing = reduced.receive_ticks.max(axis=1, initial=0) + reduced.send_ticks.max(axis=1, initial=0)
    return int(compute.sum(dtype=object)) + int(crossing.sum(dtype=object))
