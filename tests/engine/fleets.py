"""Engines that tests start and end: processes of this machine, a Dask cluster and Ray, all on loopback."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stead.engine import Engine, Task, Worker, opened_engine
from stead.engine.base import _Campaign
from stead.testing import engine_tasks as tasks

KINDS = ("local", "dask", "ray")
MISSING = {"dask": "distributed", "ray": "ray"}


def needs(kind: str) -> None:
    """Skip where an engine is not installed, which is the only reason."""
    package = MISSING.get(kind)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install stead[{kind}]")


@contextmanager
def started(kind: str, workers: int) -> Iterator[Engine]:
    """An engine with so many workers."""
    needs(kind)
    if kind == "dask":
        with dask_cluster(workers) as address, opened_engine(address) as engine:
            yield engine
        return
    with quiet(), opened_engine(f"{kind}:{workers}") as engine:
        yield engine


@contextmanager
def dask_cluster(workers: int) -> Iterator[str]:
    """The address of a scheduler whose worker processes come back when they are killed."""
    import logging

    from distributed import LocalCluster

    with quiet():
        cluster = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs=logging.CRITICAL, host="127.0.0.1",
        )  # fmt: skip
        try:
            yield cluster.scheduler_address.replace("tcp://", "dask://")
        finally:
            cluster.close(timeout=20)


def wait_for(engine: Engine, workers: int) -> None:
    """Until so many workers are there: the first tasks may be done before the last worker has started."""
    end = time.monotonic() + 120
    while engine.workers() < workers and time.monotonic() < end:
        time.sleep(0.1)
    assert engine.workers() == workers


@contextmanager
def victim(engine: Engine) -> Iterator[None]:
    """Kill workers that have a task in hand, as soon as all have one, until a task was lost; fail if none was.

    Engines that are opened meanwhile count, too: a verb may open its own on the same workers.
    """
    count = engine.workers()
    who = engine.map([Task.of("p", tasks.process_id, 0.2) for _ in range(4 * count)])
    alive = list(dict.fromkeys(one.value for one in who))
    asked, lost = Engine.asked, _Campaign._lose
    sent: list[str] = []
    hit: list[str] = []

    def ask(self: Engine, worker: Worker, task: Task) -> int:
        ticket = asked(self, worker, task)
        sent.append(task.name)
        if len(sent) % count == 0 and alive and not hit:
            os.kill(alive.pop(), signal.SIGKILL)
        return ticket

    def lose(self: _Campaign, ticket: int, reason: str) -> None:
        hit.append(self.tasks[self.running[ticket].number].name)
        lost(self, ticket, reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "asked", ask)
        patch.setattr(_Campaign, "_lose", lose)
        yield
    assert hit, f"no task was lost with its worker, of {len(sent)} that were sent"


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings of engines about themselves are not ours."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
