"""Runs jobs, each in a process of its own, and writes a line of JSON for each as it ends.

They run one after another, or spread over the workers of an engine.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stead.bench.child import BOUND
from stead.bench.instances import Instance, Suite, solver_with_options
from stead.bench.peers import PEERS
from stead.engine import Engine, Outcome, Progress, Task
from stead.errors import BadInput
from stead.files import appending, read_text, write_text
from stead.solvers.registry import current_name, solver_names

FORMAT = 1
LOADING_SECONDS = 300.0  # that reading a model may take
GRACE_SECONDS = 20.0  # beyond twice the budget

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One run: an instance, who solves it, and with what."""

    model: str
    devices: str
    objective: str
    instance: str
    solver: str
    seed: int
    seconds: float | None
    evaluations: int | None

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from every other run."""
        return (self.instance, self.solver, self.seed, self.seconds, self.evaluations)

    @staticmethod
    def key_of(record: Record) -> tuple[object, ...]:
        """The key of the job that a record is the result of."""
        return tuple(
            record.get(part) for part in ("instance", "solver", "seed", "seconds", "evaluations_limit")
        )


def jobs_of(
    suite: Suite,
    *,
    solvers: Sequence[str] = (),
    seeds: int | None = None,
    budgets: Sequence[float] = (),
    evaluations: int | None = None,
) -> list[Job]:
    """All runs of a suite: the bound of every instance, then solvers x budgets x seeds."""
    names = _known_solvers(solvers) if solvers else _installed(suite)
    count = suite.seeds if seeds is None else seeds
    if count < 1:
        raise BadInput(f"--seeds needs at least 1, got {count}")
    limits: list[float | None] = list(budgets or suite.budgets)
    if any(limit is not None and not limit > 0 for limit in limits):
        raise BadInput(f"budgets are seconds above 0, got {', '.join(map(str, limits))}")
    if evaluations is not None and not budgets:
        limits = [None]
    jobs = []
    for instance in suite.instances:
        jobs.append(_job(instance, BOUND, 0, None, None))
        for limit in limits:
            for name in names:
                jobs += [_job(instance, name, seed, limit, evaluations) for seed in range(count)]
    return jobs


def _job(instance: Instance, name: str, seed: int, seconds: float | None, evaluations: int | None) -> Job:
    return Job(
        instance.model, instance.devices, instance.objective, instance.name, name, seed, seconds, evaluations
    )


def _installed(suite: Suite) -> list[str]:
    """The solvers of a suite that there are."""
    there = {*solver_names(), *PEERS}
    return [name for name in suite.solvers if name in there]


def _known_solvers(names: Sequence[str]) -> list[str]:
    for name in names:
        solver_with_options(name)  # says what is wrong with a name, its argument or its options
    return list(dict.fromkeys(map(current_name, names)))


class Journal:
    """The file of results: a header, then one line per finished run; a line cut off by an interruption is dropped."""

    def __init__(self, path: Path | None, *, resume: bool) -> None:
        self.path = path
        self.records: list[Record] = []
        if path is None:
            return
        if resume and path.exists():
            self._read(path)
        elif path.exists() and path.stat().st_size:
            raise BadInput(
                f"{path} exists; continue it with --resume {path}, or write to another file with --json"
            )
        else:
            self._write({"kind": "bench", "format": FORMAT, **_machine()})

    def add(self, record: Record) -> None:
        """Keep a record, on disk before anything else happens."""
        self.records.append(record)
        self._write(record)

    def add_summary(self, document: Record) -> None:
        """Write what all runs say together, as the last line."""
        self._write({"kind": "summary", **document})

    def _read(self, path: Path) -> None:
        text = read_text(path)
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            write_text(path, whole)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                record = json.loads(line)
                kind = record["kind"]
            except (ValueError, KeyError, TypeError):
                raise BadInput(f"{path}:{number}: not a line of a benchmark; write to another file") from None
            if kind == "bench" and record.get("format") != FORMAT:
                raise BadInput(f"{path}: written by another version of stead; write to another file")
            if kind == "run":
                self.records.append({**record, "solver": current_name(str(record.get("solver")))})

    def _write(self, record: Record) -> None:
        if self.path is None:
            return
        with appending(self.path) as file:
            file.write(json.dumps(record, allow_nan=False).encode() + b"\n")


def _machine() -> Record:
    from stead.version import __version__

    return {
        "version": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def run_jobs(
    jobs: Sequence[Job],
    journal: Journal,
    *,
    cores: int = 1,
    memory_bytes: int = 0,
    watch: Callable[[int, Job, Record], None] | None = None,
    engine: Engine | None = None,
) -> Iterator[Record]:
    """Run what the journal does not have yet; every record of the jobs, old ones first where they stand.

    An engine does them on all its workers; each is in the journal as soon as it has ended.
    """
    if engine is not None:
        _spread(jobs, journal, cores, memory_bytes, watch, engine)
    done = {Job.key_of(record): record for record in journal.records}
    for number, job in enumerate(jobs):
        record = done.get(job.key)
        if record is None:
            record = {**_head(job), **_run(job, cores, memory_bytes)}
            journal.add(record)
            if watch is not None:
                watch(number, job, record)
        yield record


def _spread(
    jobs: Sequence[Job],
    journal: Journal,
    cores: int,
    memory_bytes: int,
    watch: Callable[[int, Job, Record], None] | None,
    engine: Engine,
) -> None:
    """Have an engine run what the journal does not have yet."""
    done = {Job.key_of(record) for record in journal.records}
    missing = [number for number, job in enumerate(jobs) if job.key not in done]
    tasks = [
        Task.of(f"{jobs[n].instance}, {jobs[n].solver}", run_cell, asdict(jobs[n]), cores, memory_bytes)
        for n in missing
    ]
    number_of = {id(task): number for task, number in zip(tasks, missing, strict=True)}

    def ended(outcome: Outcome, _: Progress) -> None:
        number = number_of[id(outcome.task)]
        journal.add(outcome.value)
        if watch is not None:
            watch(number, jobs[number], outcome.value)

    engine.map(tasks, watch=ended)


def run_cell(job: dict[str, Any], cores: int, memory_bytes: int) -> Record:
    """The record of one job, as a task of an engine."""
    one = Job(**job)
    return {**_head(one), **_run(one, cores, memory_bytes)}


def _head(job: Job) -> Record:
    head = {"kind": "run", **asdict(job)}
    head["evaluations_limit"] = head.pop("evaluations")
    return head


def _run(job: Job, cores: int, memory_bytes: int) -> Record:
    """The record of one run, whatever becomes of its process."""
    request = {
        **asdict(job), "cores": cores, "memory_bytes": memory_bytes, "grace_seconds": GRACE_SECONDS,
    }  # fmt: skip
    limit = None
    if job.seconds is not None or job.solver == BOUND:
        limit = LOADING_SECONDS + 4 * (job.seconds or 0.0) + 4 * GRACE_SECONDS
    process = subprocess.Popen(
        [sys.executable, "-m", "stead.bench.child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,  # Ctrl-C is for the benchmark: it ends the run itself
    )  # fmt: skip
    try:
        out, complaint = process.communicate(json.dumps(request), timeout=limit)
    except subprocess.TimeoutExpired:
        _end(process)
        return {"status": "killed", "reason": f"did not end within {limit:.0f} s"}
    except BaseException:
        _end(process)
        raise
    return _record(process.returncode, out, complaint)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _record(code: int, out: str, complaint: str) -> Record:
    """What a process that has ended says, or why it says nothing."""
    lines = out.strip().splitlines()
    if code == 0 and lines:
        record: Record = json.loads(lines[-1])
        return record
    last = (complaint.strip().splitlines() or [""])[-1]
    if code < 0:
        name = signal.Signals(-code).name
        reason = "went far beyond its CPU time" if name == "SIGXCPU" else f"ended by {name}"
        return {"status": "killed", "reason": f"{reason}{': ' + last if last else ''}"}
    return {"status": "error", "reason": f"exit code {code}: {last}"}
