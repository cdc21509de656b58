"""Engines: what the coordinator costs, and what a second worker brings.

    python benchmarks/engine.py bookkeeping    # CPU of the coordinator per task, with 1,024 workers that are not there
    python benchmarks/engine.py overhead       # the same with real workers: local:2, and Dask where it is installed
    python benchmarks/engine.py scaling        # `place` and `bench` on local:1 and local:2; wants two quiet cores
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack

from stead.bench import jobs_of, run_jobs, suite_named
from stead.bench.runner import Journal
from stead.engine import Engine, Task, Worker, opened_engine
from stead.engine.base import Reply
from stead.engine.calls import perform
from stead.placing.loading import load
from stead.placing.place import place_problem
from stead.placing.spread import Spread
from stead.problem import objective_from
from stead.solvers import Budget
from stead.testing import engine_tasks as tasks

SIMULATED = 1024
HOSTS = 128
CELLS = 12


class SimulatedFleet:
    """Workers that reply at once, a handful at a time; one of a thousand dies of its task."""

    name = "simulated"

    def __init__(self) -> None:
        self._workers = [Worker(f"w{n}", f"h{n % HOSTS}") for n in range(SIMULATED)]
        self._asked: deque[tuple[int, Worker, bytes]] = deque()
        self._count = 0

    def workers(self) -> Sequence[Worker]:
        return self._workers

    def send(self, worker: Worker, ticket: int, message: bytes) -> None:
        self._asked.append((ticket, worker, message))

    def replies(self, seconds: float) -> Sequence[Reply]:
        return [self._reply() for _ in range(min(16, len(self._asked)))]

    def _reply(self) -> Reply:
        ticket, worker, message = self._asked.popleft()
        self._count += 1
        if self._count % 1000 == 0:
            self._workers.remove(worker)
            self._workers.append(Worker(f"w{SIMULATED + self._count}", worker.host))
            return Reply(ticket, None, "died")
        return Reply(ticket, perform(message))

    def abandon(self, worker: Worker, ticket: int) -> None:
        pass

    def close(self) -> None:
        pass


def bookkeeping() -> None:
    """CPU per task of the coordinator, what the tasks themselves take included."""
    count = 20_000
    cpu = time.process_time()
    found = Engine(SimulatedFleet()).map([Task.of("t", tasks.doubled, n) for n in range(count)])
    spent = time.process_time() - cpu
    assert [one.value for one in found] == [2 * n for n in range(count)]
    print(f"{SIMULATED} simulated workers, {count} tasks: {1e3 * spent / count:.3f} ms CPU per task")


def overhead() -> None:
    """CPU of the coordinator per task that does nothing, its threads included."""
    count = 100
    with ExitStack() as stack:
        engines = [stack.enter_context(opened_engine("local:2"))]
        if importlib.util.find_spec("distributed") is not None:
            from distributed import LocalCluster

            options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
            cluster = stack.enter_context(LocalCluster(**options))
            engines.append(stack.enter_context(opened_engine(cluster.scheduler_address.replace("tcp://", "dask://"))))
        for engine in engines:
            engine.map([Task.of("warm", tasks.doubled, n) for n in range(4)])
            cpu, wall = _cpu(), time.monotonic()
            engine.map([Task.of("t", tasks.doubled, n) for n in range(count)])
            cpu, wall = _cpu() - cpu, time.monotonic() - wall
            beside = ", the scheduler in the same process included" if engine.name.startswith("dask") else ""
            print(f"{engine.name}: {1e3 * cpu / count:.2f} ms CPU and {1e3 * wall / count:.2f} ms per task{beside}")


def _cpu() -> float:
    spent = os.times()
    return spent.user + spent.system


def scaling() -> None:
    """Wall time of the same work on one worker and on two; workers are started before the clock is."""
    problem = load("zoo:lstm-grid?operators=1000", "3090,3060").problem(objective_from("latency"))
    suite = suite_named("smoke")
    jobs = [job for job in jobs_of(suite, solvers=["auto"], evaluations=1500) if job.solver == "auto"]
    jobs = (jobs * CELLS)[:CELLS]
    jobs = [type(job)(job.model, job.devices, job.objective, job.instance, job.solver, n, None, 1500)
            for n, job in enumerate(jobs)]  # fmt: skip
    seconds: dict[str, list[float]] = {"place": [], "bench": []}
    values = []
    for workers in (1, 2):
        with opened_engine(f"local:{workers}") as engine:
            engine.map([Task.of("warm", tasks.process_id, 0.3) for _ in range(workers)])
            began = time.monotonic()
            plan = place_problem(problem, budget=Budget(None, 60_000), baselines=False, spread=Spread(engine))
            seconds["place"].append(time.monotonic() - began)
            values.append(plan.solution.objective_seconds)
            began = time.monotonic()
            list(run_jobs(jobs, Journal(None, resume=False), engine=engine))
            seconds["bench"].append(time.monotonic() - began)
    assert values[0] == values[1]
    for verb, (one, two) in seconds.items():
        print(f"{verb}: {one:.1f} s on 1 worker, {two:.1f} s on 2: {one / two:.2f}x")


if __name__ == "__main__":
    chosen = {"bookkeeping": bookkeeping, "overhead": overhead, "scaling": scaling}
    for name in sys.argv[1:] or ["bookkeeping", "overhead"]:
        chosen[name]()
