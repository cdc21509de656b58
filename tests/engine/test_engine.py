"""One coordinator above all engines: order, retries, deadlines, leases, journal; on workers of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from stead.engine import Blob, Engine, EngineFailed, Journal, Outcome, Progress, Task, Worker, opened_engine
from stead.engine.base import Reply
from stead.errors import BadInput
from stead.testing import engine_tasks as tasks


class NobodyThere:
    """A fleet without workers."""

    name = "nobody"

    def workers(self) -> Sequence[Worker]:
        return ()

    def send(self, worker: Worker, ticket: int, message: bytes) -> None:
        raise AssertionError

    def replies(self, seconds: float) -> Sequence[Reply]:
        time.sleep(seconds)
        return ()

    def abandon(self, worker: Worker, ticket: int) -> None:
        raise AssertionError

    def close(self) -> None:
        pass


class Silent(NobodyThere):
    """One worker that never replies."""

    def __init__(self) -> None:
        self.abandoned = 0

    def workers(self) -> Sequence[Worker]:
        return (Worker(f"w{self.abandoned}", "h"),)

    def send(self, worker: Worker, ticket: int, message: bytes) -> None:
        pass

    def abandon(self, worker: Worker, ticket: int) -> None:
        self.abandoned += 1


def test_a_campaign_without_workers_is_given_up() -> None:
    with pytest.raises(EngineFailed, match="no worker was there for 0 s"):
        Engine(NobodyThere(), patience_seconds=0.3).map([Task.of("t", tasks.doubled, 1)])


def test_a_worker_that_never_replies_is_given_up_as_often_as_tasks_are_tried() -> None:
    fleet = Silent()
    task = Task.of("t", tasks.doubled, 1, timeout_seconds=0.05)
    with pytest.raises(EngineFailed, match=r"2 workers were lost with it \(last: no reply within 0.05 s\)"):
        Engine(fleet).map([task], retries=1)
    assert fleet.abandoned == 2


def test_a_deadline_cancels_what_is_not_done() -> None:
    fleet, began = Silent(), time.monotonic()
    outcomes = Engine(fleet).map([Task.of("t", tasks.doubled, 1)], deadline_seconds=0.3)
    assert [one.done for one in outcomes] == [False]
    assert (fleet.abandoned, time.monotonic() - began < 2) == (1, True)


def test_answers_come_in_order_blobs_travel_errors_arrive_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []

    def watch(outcome: Outcome, at: Progress) -> None:
        told.append((at.done, at.total))

    blob = Blob.of([1, 2])
    with opened_engine("local:2") as engine:
        found = engine.map([Task.of("s", tasks.shared_sum, n, blobs=(blob,)) for n in range(5)], watch=watch)
        assert [one.value for one in found] == [3, 4, 5, 6, 7]
        assert told == [(n, 5) for n in range(1, 6)]
        assert len({one.value for one in engine.map([Task.of("p", tasks.process_id, 0.3)] * 2)}) == 2
        with pytest.raises(BadInput, match="no such thing"):
            engine.map([Task.of("r", tasks.refused, "no such thing")])
        others = [Blob.of(n) for n in range(20)]  # the worker forgets the first one, and is told it again
        for other in others:
            engine.map([Task.of("o", tasks.shared_sum, 0, blobs=(Blob.of([other.value]),))])
        assert engine.map([Task.of("s", tasks.shared_sum, 0, blobs=(blob,))])[0].value == 3


def test_a_task_that_no_worker_survives_is_told() -> None:
    with opened_engine("local:2") as engine, pytest.raises(EngineFailed, match=r"2 workers were lost .*signal 9"):
        engine.map([Task.of("t", tasks.always_killed)], retries=1)


def test_two_measurements_never_share_a_machine_whoever_asks(tmp_path: Path) -> None:
    leased = [Task.of("m", tasks.noted, str(tmp_path), 0.2, leases_machine=True)] * 2
    with opened_engine("local:2") as one:
        first, second = sorted(outcome.value for outcome in one.map(leased))
        assert first[1] <= second[0]
    script = (
        "import json, sys; from stead.engine import *; from stead.testing import engine_tasks as t\n"
        "with opened_engine('local:1') as e:\n"
        "    print(json.dumps(e.map([Task.of('m', t.noted, sys.argv[1], 0.5, leases_machine=True)])[0].value))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    import json

    first, second = sorted(json.loads(process.communicate(timeout=60)[0]) for process in both)
    assert first[1] <= second[0]


def test_a_coordinator_that_is_killed_goes_on_from_its_journal_and_leaves_no_worker(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from stead.engine import *\n"
        "from stead.testing import engine_tasks as t\n"
        "with opened_engine('local:1') as e:\n"
        "    print(*e.fleet.process_ids() or [w.name for w in e.fleet.workers()], flush=True)\n"
        "    print(*e.fleet.process_ids(), flush=True)\n"
        "    e.map([Task.of('n', t.noted, sys.argv[1], 0.2 + n / 1e6) for n in range(40)],\n"
        "          journal=Journal(Path(sys.argv[2])))"
    )
    runs, log = tmp_path / "runs", tmp_path / "log.jsonl"
    runs.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(runs), str(log)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    worker = int(process.stdout.readline())
    _until(lambda: log.exists() and len(log.read_text().splitlines()) >= 3)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    _until(lambda: not os.path.exists(f"/proc/{worker}") or "Z" in Path(f"/proc/{worker}/stat").read_text())
    with open(log, "a") as file:
        file.write('{"kind": "task", "dig')  # as a kill in the middle of a line leaves it
    kept = Journal(log)
    assert 2 <= len(kept) < 40
    before = len(list(runs.iterdir()))
    some = [Task.of("n", tasks.noted, str(runs), 0.2 + n / 1e6) for n in range(len(kept) + 1)]
    with opened_engine("local:1") as engine:
        outcomes = engine.map(some, journal=kept)
    assert [one.known for one in outcomes] == [True] * (len(some) - 1) + [False]
    assert len(list(runs.iterdir())) == before + 1


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(BadInput, match=":1: not a line of a journal"):
        Journal(tmp_path / "x")


@pytest.mark.parametrize("text", ["", "loca", "local:0", "local:9999", "dask:", "dask://host", "ray://host", "spark"])
def test_an_engine_that_makes_no_sense_is_told(text: str) -> None:
    with pytest.raises(BadInput, match="--engine"):
        opened_engine(text)


def test_a_lambda_is_no_task() -> None:
    with pytest.raises(BadInput, match="top of a module"):
        Task.of("t", lambda: 0)


def _until(holds: object, seconds: float = 30.0) -> None:
    assert callable(holds)
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
