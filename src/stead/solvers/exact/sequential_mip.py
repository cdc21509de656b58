"""The integer program of a sequential run, for three devices or more and for scarce memory.

Variables   x[v,d]    unit v is on d
Equal links y[t,d]    t is moved to d:            y[t,d] >= x[c,d] - x[u,d]   for every reader c of the output t of u
Other links z[r,s,d]  read r goes from s to d:    sum_d z = x[u,s],  sum_s z = x[c,d],  y[t,s,d] >= z[r,s,d]
Memory      h[w,d]    weight w is held by d:      h[w,d] >= x[v,d] for every user,  sum_w bytes h[w,d] <= M[d]

The second form has a far tighter relaxation than y[t,s,d] >= x[u,s] + x[c,d] - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stead.graph.weights import resident
from stead.problem import Problem
from stead.solvers.exact.programs.program import Program, Scale
from stead.solvers.exact.sequential import NO_WAY, SequentialCosts


def size(costs: SequentialCosts) -> int:
    """The number of variables of the program."""
    k, reads = costs.devices, costs.reads
    if costs.uniform:
        return int(k * (len(costs.unit_ticks) + len(reads.tensors)))
    return int(k * len(costs.unit_ticks) + k * k * (len(reads.of) + len(reads.tensors)))


@dataclass(slots=True)
class SequentialProgram:
    """The program, and how to read a placement of units off its values."""

    costs: SequentialCosts
    scale: Scale
    program: Program = field(default_factory=Program)
    _cost: dict[int, int] = field(default_factory=dict)  # variable: units
    _x: list[dict[int, int]] = field(default_factory=list)  # [unit]; device: variable

    @staticmethod
    def of(
        problem: Problem, costs: SequentialCosts, *, scarce_memory: bool, upper_ticks: int
    ) -> SequentialProgram:
        """The program of all runs; memory is looked at only where it is scarce."""
        pairs = [(s, d) for s in range(costs.devices) for d in range(costs.devices) if s != d]
        ticks = [costs.unit_ticks[costs.allowed], *(costs.way(s, d) for s, d in pairs)]
        made = SequentialProgram(costs, Scale.of(ticks, upper=upper_ticks))
        made._assign_units()
        if costs.uniform:
            made._add_equal_links()
        else:
            made._add_unequal_links()
        if scarce_memory:
            made._limit_weights(problem)
        made.program.minimise(list(made._cost), list(made._cost.values()))
        return made

    def start_from(self, devices: NDArray[np.int64]) -> None:  # [unit]
        """Tell the engine a run that is known."""
        for own, chosen in zip(self._x, devices.tolist(), strict=True):
            for d, variable in own.items():
                self.program.hint[variable] = int(d == chosen)

    def devices(self, values: NDArray[np.int64]) -> NDArray[np.int64]:  # [unit]
        """The device of every unit."""
        return np.array([max(own, key=lambda d: values[own[d]]) for own in self._x], dtype=np.int64)

    def _variable(self, ticks: int, *, implied: bool = True) -> int:
        variable = self.program.binary(implied=implied)
        if ticks:
            self._cost[variable] = self.scale.down(ticks)
        return variable

    def _assign_units(self) -> None:
        for allowed, ticks in zip(self.costs.allowed, self.costs.unit_ticks.tolist(), strict=True):
            own = {d: self._variable(ticks[d], implied=False) for d in np.flatnonzero(allowed).tolist()}
            self.program.exactly_one(list(own.values()))
            self._x.append(own)

    def _reads(self) -> list[tuple[int, int, int]]:
        """(tensor, its unit, reader) of every read."""
        reads = self.costs.reads
        return list(
            zip(reads.of.tolist(), reads.source[reads.of].tolist(), reads.reader.tolist(), strict=True)
        )

    def _add_equal_links(self) -> None:
        program = self.program
        for d in range(self.costs.devices):
            ticks = self.costs.way(0, 1).tolist() if self.costs.devices > 1 else []
            moved: dict[int, int] = {}
            for t, u, c in self._reads():
                if d not in self._x[c]:
                    continue
                if t not in moved:
                    moved[t] = self._variable(ticks[t] if ticks else 0)
                row = [moved[t], self._x[c][d], *([self._x[u][d]] if d in self._x[u] else [])]
                program.row(row, [1, -1, 1][: len(row)], low=0)

    def _add_unequal_links(self) -> None:
        k, program = self.costs.devices, self.program
        ways = {(s, d): self.costs.way(s, d).tolist() for s in range(k) for d in range(k)}
        moved: dict[tuple[int, int, int], int] = {}
        for t, u, c in self._reads():
            going: dict[tuple[int, int], int] = {}
            for s in self._x[u]:
                for d in self._x[c]:
                    if ways[s, d][t] == NO_WAY:
                        continue
                    going[s, d] = self._variable(0)
                    if s != d:
                        if (t, s, d) not in moved:
                            moved[t, s, d] = self._variable(ways[s, d][t])
                        program.row([moved[t, s, d], going[s, d]], [1, -1], low=0)
            for s, x in self._x[u].items():
                own = [z for (a, _), z in going.items() if a == s]
                program.row([*own, x], [1] * len(own) + [-1], low=0, high=0)
            for d, x in self._x[c].items():
                own = [z for (_, b), z in going.items() if b == d]
                program.row([*own, x], [1] * len(own) + [-1], low=0, high=0)

    def _limit_weights(self, problem: Problem) -> None:
        """Weights that several units use are held once per device."""
        program = self.program
        sizes = problem.graph.weight_bytes.tolist()
        pairs = np.stack(resident(problem.graph, problem.units), axis=1).tolist()
        for d, limit in enumerate(device.usable_bytes for device in problem.cluster):
            held: dict[int, int] = {}
            for w, v in pairs:
                if d in self._x[v] and sizes[w]:
                    if w not in held:
                        held[w] = program.binary(implied=True)
                    program.implies(self._x[v][d], held[w])
            if sum(sizes[w] for w in held) > limit:
                program.row(list(held.values()), [sizes[w] for w in held], high=limit)
