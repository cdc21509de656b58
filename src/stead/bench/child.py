"""One run in a process of its own: a job as JSON on stdin, its record as one line of JSON on stdout.

A crash, a solver that does not stop or one that takes all memory ends this process, not the benchmark.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from typing import Any

from stead.bench.instances import Instance, solver_with_options
from stead.errors import Infeasible, MissingExtra
from stead.problem import Problem
from stead.sim.bounds import best_bound
from stead.solvers import Budget, Solution

BOUND = "bound"  # stands for the name of a solver: bounds alone
MOST_STEPS = 60  # of a trail that are kept


def main() -> None:
    """Do the job."""
    job = json.load(sys.stdin)
    _restrict(job["cores"], job["memory_bytes"])
    try:
        record = _answer(job)
    except Infeasible as error:
        record = {"status": "infeasible", "reason": str(error), "proved": error.proved}
    except MissingExtra as error:
        record = {"status": "unsupported", "reason": str(error)}
    except MemoryError:
        record = {"status": "killed", "reason": "out of memory"}
    except Exception as error:  # whatever a solver does wrong is a result
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(where.filename)}:{where.lineno}"
        record = {"status": "error", "reason": f"{type(error).__name__} at {place}: {error}"}
    print(json.dumps(record, allow_nan=False), flush=True)


def _restrict(cores: int, memory_bytes: int) -> None:
    """Keep to some cores, so that budgets in seconds are budgets of CPU time, and to some memory."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, set(mine[-cores:]))
    try:
        import resource
    except ImportError:  # not on this system; the time limit of the parent remains
        return
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    problem = Instance(job["model"], job["devices"], job["objective"]).problem()
    facts = {
        "operators": len(problem.graph),
        "tensors": problem.graph.tensor_count,
        "device_count": len(problem.cluster),
        "fingerprint": problem.fingerprint,
        "load_cpu_seconds": time.process_time(),
    }
    _ = problem.native  # counted with reading the model, since all solvers need it
    cpu, wall = time.process_time(), time.monotonic()
    try:
        found = _bounded(problem) if job["solver"] == BOUND else _solved(problem, job)
    except Infeasible as error:
        found = {"status": "infeasible", "reason": str(error), "proved": error.proved}
    return {
        **facts,
        **found,
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.monotonic() - wall,
        "memory_bytes": _peak_bytes(),
    }


def _bounded(problem: Problem) -> dict[str, Any]:
    bound = best_bound(problem)
    return {"status": "ok", "bound_seconds": bound.seconds, "bound_name": bound.name, "scope": ""}


def _solved(problem: Problem, job: dict[str, Any]) -> dict[str, Any]:
    chosen = solver_with_options(job["solver"])
    reason = chosen.unsupported(problem)
    if reason is not None:
        return {"status": "unsupported", "reason": reason}
    _limit_cpu(job)
    solution = chosen.solve(problem, Budget(job["seconds"], job["evaluations"]), job["seed"])
    return {
        "status": "ok",
        "value_seconds": solution.objective_seconds,
        "bound_seconds": solution.bound_seconds,
        "bound_name": solution.bound_name,
        "scope": solution.scope,
        "gap": solution.gap,
        "evaluations": solution.evaluations,
        "found_by": solution.found_by,
        "trail": _trail(solution),
        "notes": list(solution.notes[:5]),
    }


def _limit_cpu(job: dict[str, Any]) -> None:
    """Have the system end a solver that goes far beyond its budget."""
    if job["seconds"] is None:
        return
    try:
        import resource
    except ImportError:
        return
    limit = math.ceil(time.process_time() + job["seconds"] * job["cores"] * 2 + job["grace_seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))


def _trail(solution: Solution) -> list[list[float]]:  # (elapsed seconds, evaluations, value, bound)
    steps = [
        [step.elapsed_seconds, step.evaluations, step.objective_seconds, step.bound_seconds]
        for step in solution.trail
    ]
    if len(steps) <= MOST_STEPS:
        return steps
    kept = sorted({round(i * (len(steps) - 1) / (MOST_STEPS - 1)) for i in range(MOST_STEPS)})
    return [steps[i] for i in kept]


def _peak_bytes() -> int:
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main()
