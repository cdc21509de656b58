"""The prefix model: pipelines of contiguous stages as a chain of growing sets, for an integer program.

Notation    v supernode, j position in the pipeline, m number of devices, k kind of device
    y[v,j]      1 iff v is at one of the positions up to j; grows with j, and y[a,j] >= y[b,j] for a before b
    x[v,j]      y[v,j] - y[v,j-1]: v is at position j
    kind[j,k]   position j is a device of kind k; each kind has as many positions as devices, and some may be empty

Equal devices are never told apart, and stages that wait for each other in a circle cannot be expressed: the model
has the optimum of the dynamic program over ideals (Tarnawski et al. 2020), whose sets y are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem, Throughput
from stead.solvers.exact.programs.load_rows import LoadRows
from stead.solvers.exact.programs.program import Engine, Settings
from stead.solvers.exact.programs.solving import Given, Model, checked, solve_with, too_large
from stead.solvers.exact.programs.starts import stages_of, start_in_stages
from stead.solvers.exact.reduction import CONTIGUOUS, Merge, Reduced, not_steady, reduce
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.solution import Budget, Solution


@few_devices
@dataclass(frozen=True, slots=True)
class PrefixMip:
    """Optimal contiguous stages by integer programming: one chain of sets, one kind of device per position.

    CP-SAT proves optima exactly; HiGHS is a second opinion, up to its tolerances. Both run on one thread with a
    fixed seed: where they finish, the same seed gives the same answer. With links between devices (no host memory in
    between) the bound is that of the cheapest link, and the answer the best split seen on the way.
    """

    engine: Engine = "cp-sat"
    merge: Merge = "lossless"
    max_literals: int = 3_000_000
    workers: int = 1

    def __post_init__(self) -> None:
        checked("engine", self.engine, get_args(Engine))
        checked("merge", self.merge, get_args(Merge))

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "prefix-mip"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes pipelines in steady state whose program is not too large."""
        return not_steady(problem) or too_large(problem, "stages", self.merge, self.max_literals, _literals)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Start from a quick split, then let the engine improve and prove."""
        search = started(self, problem, budget, seed, scope=CONTIGUOUS)
        with search.interruptible():
            reduced = reduce(problem, notion="stages", merge=self.merge)
            start_in_stages(search, reduced)
            solve_with(reduced, search, Settings(self.engine, seed, self.workers), _model)
        return search.solution()


def _literals(reduced: Reduced) -> int:
    """Variables of the program."""
    positions = len(reduced.problem.cluster)
    return positions * (2 * (reduced.count + len(reduced.tensor_source)) + len(reduced.weight_bytes))


@dataclass(frozen=True, slots=True, eq=False)
class _Positions:
    """Variables of a prefix program."""

    members: NDArray[np.int64]  # [position, node]; x
    prefix: NDArray[np.int64]  # [position, node]; y
    kinds: NDArray[np.int64]  # [position, kind]; -1 if there is only one kind


def _model(reduced: Reduced, given: Given) -> Model:
    """The program, with the incumbent as a hint."""
    objective = reduced.problem.objective
    assert isinstance(objective, Throughput)
    rows = LoadRows.of(reduced, objective.load, upper_ticks=given.upper_ticks)
    at = _positions(rows)
    for j in range(len(at.members)):
        members = at.members[j].tolist()
        crossings = rows.crossings(members)
        for k in range(len(reduced.kinds)):
            when = [int(at.kinds[j, k])] if at.kinds[j, k] >= 0 else []
            rows.limit(k, members, crossings, when)
            rows.memory(k, given.rooms[k], members, when)
            _bar(rows, k, members, when)
    stages = None if given.device_of_node is None else stages_of(reduced, given.device_of_node)
    if stages is not None:
        _hint(rows, at, *stages)

    def place(values: NDArray[np.int64]) -> NDArray[np.uint8]:
        stage_of_node = values[at.members].argmax(axis=0).astype(np.int32)
        kinds = values[at.kinds].argmax(axis=1) if len(reduced.kinds) > 1 else [0] * len(at.members)
        return reduced.lift_stages(stage_of_node, [int(kind) for kind in kinds])

    return Model(rows, place)


def _positions(rows: LoadRows) -> _Positions:
    """Sets that grow along the positions and are closed under predecessors, and the kinds of positions."""
    program, reduced = rows.program, rows.reduced
    positions, count = len(reduced.problem.cluster), reduced.count
    prefix = np.array([[program.binary() for _ in range(count)] for _ in range(positions)], dtype=np.int64)
    members = np.array(
        [[program.binary(implied=True) for _ in range(count)] for _ in range(positions)], dtype=np.int64
    )
    prefix, members = prefix.reshape(positions, count), members.reshape(positions, count)
    for v in range(count):
        program.fix(int(prefix[-1, v]), 1)
        program.row([int(members[0, v]), int(prefix[0, v])], [1, -1], low=0, high=0)
        for j in range(1, positions):
            now, then, here = int(prefix[j, v]), int(prefix[j - 1, v]), int(members[j, v])
            program.row([now, then, here], [1, -1, -1], low=0, high=0)
        program.exactly_one(members[:, v].tolist())
    for before, after in reduced.order.tolist():
        for j in range(positions - 1):
            program.implies(int(prefix[j, after]), int(prefix[j, before]))
    return _Positions(members, prefix, _position_kinds(rows))


def _position_kinds(rows: LoadRows) -> NDArray[np.int64]:  # [position, kind]
    """A kind for every position, each as often as it has devices."""
    program, kinds = rows.program, rows.reduced.kinds
    positions = len(rows.reduced.problem.cluster)
    if len(kinds) == 1:
        return np.full((positions, 1), -1, dtype=np.int64)
    table = np.array([[program.binary() for _ in kinds] for _ in range(positions)], dtype=np.int64)
    for j in range(positions):
        program.exactly_one(table[j].tolist())
    for k, kind in enumerate(kinds):
        many = len(kind.devices)
        program.row(table[:, k].tolist(), [1] * positions, low=many, high=many)
    return table


def _bar(rows: LoadRows, kind: int, members: list[int], when: list[int]) -> None:
    """Keep supernodes off kinds that may not run them."""
    for v in np.flatnonzero(rows.reduced.ticks[:, kind, 0] < 0).tolist():
        rows.program.clause([*(~literal for literal in when), ~members[v]])


def _hint(rows: LoadRows, at: _Positions, stage_of_node: NDArray[np.int32], kind_of_stage: list[int]) -> None:
    """Tell the engine of stages that are known; positions that are left over come last."""
    reduced, hint = rows.reduced, rows.program.hint
    positions = np.arange(len(at.members))[:, None]
    for table, values in ((at.members, stage_of_node == positions), (at.prefix, stage_of_node <= positions)):
        hint.update(zip(table.ravel().tolist(), values.ravel().astype(int).tolist(), strict=True))
    if len(reduced.kinds) == 1:
        return
    left = [len(kind.devices) - kind_of_stage.count(k) for k, kind in enumerate(reduced.kinds)]
    kinds = kind_of_stage + [k for k, many in enumerate(left) for _ in range(many)]
    for j, kind in enumerate(kinds):
        hint.update({int(at.kinds[j, k]): int(k == kind) for k in range(len(reduced.kinds))})
