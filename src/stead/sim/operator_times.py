"""When every operator of many placements starts and ends: what policies look at between two decisions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.cluster.classes import DeviceIndices
from stead.problem import Fifo, Latency, PlacetoDispatch, Policy, Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.core_calls import bad_input, engine_arguments, placeto_graph
from stead.sim.published_placeto import simulate_placeto
from stead.sim.trace import Memory, Scores, Status


class StartTimes:
    """Seconds at which operators start and end, without the cost of whole traces; prepared once per problem.

    An objective that has no time line of dataflow execution (throughput, offload, sequential) shows that of policy
    fifo: it tells what waits for what, and judges nothing.

    >>> from stead.testing import two_towers
    >>> start, finish = StartTimes(two_towers()).of(np.array([[0, 1, 0, 1, 0]], dtype=np.uint8))
    >>> start.tolist(), finish.tolist()
    ([[0.0, 0.0, 2.0, 2.0, 6.5]], [[2.0, 2.0, 4.0, 4.0, 7.5]])
    """

    def __init__(self, problem: Problem) -> None:
        objective = problem.objective
        dataflow = isinstance(objective, Latency) and objective.execution == "dataflow"
        policy: Policy = objective.policy if isinstance(objective, Latency) and dataflow else Fifo()
        self.problem = problem
        self._published = placeto_graph(problem) if isinstance(policy, PlacetoDispatch) else None
        self._arguments = {} if self._published is not None else engine_arguments(problem, policy)
        self.judges = dataflow and self._published is None  # whether these runs are those that placements are scored by
        self._policy_name = policy.name

    def of(self, rows: DeviceIndices) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(start, finish) [row, operator] in seconds; all 0 in a row that cannot run."""
        start, finish = np.zeros(rows.shape), np.zeros(rows.shape)
        for n, row in enumerate(np.ascontiguousarray(rows)):
            if self._published is not None:
                found = simulate_placeto(self._published, row, len(self.problem.cluster))
                start[n] = found.start_us * 1e-6
                finish[n] = start[n] + self.problem.costs.seconds[:, 0]
                continue
            run = self._run(row, "off")
            if run.status <= Status.MEMORY:
                start[n], finish[n] = run.start / TICKS_PER_SECOND, run.finish / TICKS_PER_SECOND
        return start, finish

    def scored(
        self, rows: DeviceIndices
    ) -> tuple[Scores, NDArray[np.float64], NDArray[np.float64]]:
        """(scores, start, finish): what `simulate_many` and `of` say of placements, by one run each; where `judges`.

        What lacks of memory is exact, while `simulate_many` stops at the first moment that is too much.
        """
        assert self.judges
        start, finish = np.zeros(rows.shape), np.zeros(rows.shape)
        usable = self.problem.limit_bytes
        ticks, status = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.uint8)
        peak = np.full((len(rows), len(usable)), -1, dtype=np.int64)
        for n, row in enumerate(np.ascontiguousarray(rows)):
            run = self._run(row, "peak")
            status[n] = run.status
            if run.status <= Status.MEMORY:
                ticks[n], peak[n] = run.makespan, run.peak_bytes
                start[n], finish[n] = run.start / TICKS_PER_SECOND, run.finish / TICKS_PER_SECOND
        seconds = np.where(ticks >= 0, ticks / TICKS_PER_SECOND, np.inf)
        over = np.maximum(0, peak - usable)
        return Scores(self._policy_name, ticks, seconds, status, peak, over), start, finish

    def _run(self, row: DeviceIndices, memory: Memory) -> _native.Schedule:
        with bad_input():
            return _native.simulate(self.problem.native, row, memory=memory, **self._arguments)
