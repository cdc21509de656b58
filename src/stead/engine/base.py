"""Engine: hands tasks to workers, again where one dies, and gives their answers in the order of the tasks.

A Fleet is what differs between engines: who is there, how a message reaches one of them, what came back. Everything
else is done here, once: order, retries, deadlines, cancelling, leases of whole machines, the journal. Nothing waits for
ever: a fleet without workers is given up after PATIENCE_SECONDS, a task after its timeout, a campaign at its deadline.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from stead.engine.calls import Blob, call, name_of
from stead.engine.journal import Journal
from stead.errors import BadInput, RunFailed

RETRIES = 3  # of a task whose worker died
PATIENCE_SECONDS = 60.0  # that a campaign waits for a first or another worker
ROSTER_SECONDS = 0.25  # between looks at who is there
TICK_SECONDS = 0.2  # that replies are waited for at a time
POLL_SECONDS = 0.05


class EngineFailed(RunFailed):
    """Workers cannot be had, or do not survive a task; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Task:
    """A call that may be made anywhere and more than once: `function` is given the blobs, then the arguments."""

    name: str  # for people
    function: str  # module:name
    arguments: tuple[Any, ...] = ()
    blobs: tuple[Blob, ...] = ()
    beside: tuple[Any, ...] = ()  # further arguments, such as limits of time, by which a journal does not tell tasks
    leases_machine: bool = False  # nothing else of this or of other campaigns is measured beside it
    timeout_seconds: float = math.inf  # after which its worker is taken for lost

    @staticmethod
    def of(name: str, function: Callable[..., Any], *arguments: Any, blobs: Sequence[Blob] = (), **how: Any) -> Task:
        """The task that calls a function."""
        return Task(name, name_of(function), arguments, tuple(blobs), **how)

    @property
    def digest(self) -> str:
        """What tells it from every other task, for journals: its arguments must be plain."""
        try:
            plain = json.dumps([self.function, self.arguments, [blob.digest for blob in self.blobs]], sort_keys=True)
        except TypeError as error:
            raise BadInput(f"{self.name}: what goes into a journal is plain data: {error}") from None
        return hashlib.sha256(plain.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that does one task at a time."""

    name: str
    host: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a message; without content its worker is lost."""

    ticket: int
    content: bytes | None
    reason: str = ""  # of a loss


class Fleet(Protocol):
    """What an engine provides."""

    @property
    def name(self) -> str:
        """What people call it."""

    def workers(self) -> Sequence[Worker]:
        """Who is there now; one that ended is replaced by another name, if it can be."""

    def send(self, worker: Worker, ticket: int, message: bytes) -> None:
        """Ask a worker that is idle; it replies by the ticket. Never waits."""

    def replies(self, seconds: float) -> Sequence[Reply]:
        """What has come, waiting so long for a first one."""

    def abandon(self, worker: Worker, ticket: int) -> None:
        """End what a worker does: nobody waits for its reply."""

    def close(self) -> None:
        """End all that was started."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task: its value, or none where the campaign ended before."""

    task: Task
    value: Any = None
    done: bool = False
    known: bool = False  # from the journal
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a campaign stands."""

    done: int
    total: int
    running: int
    workers: int
    lost: int  # tasks that were begun again elsewhere


Watch = Callable[[Outcome, Progress], None]


class Engine:
    """A fleet at work."""

    def __init__(self, fleet: Fleet, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.fleet = fleet
        self.patience_seconds = patience_seconds
        self._known: dict[str, set[str]] = {}  # digests of blobs by worker
        self._tickets = count(1)

    @property
    def name(self) -> str:
        """What people call it."""
        return self.fleet.name

    def workers(self) -> int:
        """How many there are now; at least one is waited for."""
        end = time.monotonic() + self.patience_seconds
        while not (there := len(self.fleet.workers())):
            if time.monotonic() >= end:
                raise EngineFailed(_nobody(self))
            time.sleep(POLL_SECONDS)
        return there

    def map(
        self,
        tasks: Sequence[Task],
        *,
        journal: Journal | None = None,
        watch: Watch | None = None,
        deadline_seconds: float = math.inf,
        retries: int = RETRIES,
        stop: Callable[[], bool] | None = None,
    ) -> list[Outcome]:
        """Outcomes in the order of the tasks.

        An error of a task ends the campaign and is raised here. A worker that dies loses its task alone, which others
        do again, `retries` times. After `deadline_seconds`, or once `stop` says so, the rest is cancelled and not done.
        """
        return _Campaign(self, tasks, journal, watch, retries).run(deadline_seconds, stop)

    def close(self) -> None:
        """End all that was started."""
        self.fleet.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def asked(self, worker: Worker, task: Task) -> int:
        """Send a task to a worker; the ticket that its reply has."""
        known = self._known.setdefault(worker.name, set())
        ticket = next(self._tickets)
        message = call(task.function, (*task.arguments, *task.beside), task.blobs, known, task.leases_machine)
        self.fleet.send(worker, ticket, message)
        known.update(blob.digest for blob in task.blobs)
        return ticket

    def forget(self, worker: Worker, digests: Sequence[str] | None = None) -> None:
        """A worker that ended, or one that no longer has some blobs."""
        if digests is None:
            self._known.pop(worker.name, None)
        else:
            self._known.get(worker.name, set()).difference_update(digests)


def _nobody(engine: Engine) -> str:
    return f"{engine.name}: no worker was there for {engine.patience_seconds:.0f} s; start some, or leave out --engine"


@dataclass(slots=True)
class _Running:
    number: int
    worker: Worker
    since: float


@dataclass(slots=True)
class _Campaign:
    """One call of `map`."""

    engine: Engine
    tasks: Sequence[Task]
    journal: Journal | None
    watch: Watch | None
    retries: int
    outcomes: list[Outcome] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    running: dict[int, _Running] = field(default_factory=dict)  # by ticket
    free: dict[str, Worker] = field(default_factory=dict)
    there: dict[str, Worker] = field(default_factory=dict)
    on_host: dict[str, int] = field(default_factory=dict)  # tasks that run there
    leased: set[str] = field(default_factory=set)  # hosts
    attempts: list[int] = field(default_factory=list)
    lost: int = 0
    finished: int = 0
    looked: float = -math.inf  # when the roster was read
    somebody: float = 0.0  # when there was a worker

    def run(self, deadline_seconds: float, stop: Callable[[], bool] | None) -> list[Outcome]:
        """All outcomes."""
        self.outcomes = [Outcome(task) for task in self.tasks]
        self.attempts = [0] * len(self.tasks)
        self._take_known()
        end = time.monotonic() + deadline_seconds
        self.somebody = time.monotonic()
        with self._cancelled_at_the_end():
            while self.waiting or self.running:
                now = time.monotonic()
                if now >= end or (stop is not None and stop()):
                    break
                self._look(now)
                self._assign()
                for reply in self.engine.fleet.replies(max(0.0, min(TICK_SECONDS, end - now))):
                    self._hear(reply)
                self._give_up_on_the_late()
        return self.outcomes

    @contextmanager
    def _cancelled_at_the_end(self) -> Iterator[None]:
        """Whatever ends the campaign, nothing of it goes on."""
        try:
            yield
        finally:
            for ticket, one in self.running.items():
                self.engine.fleet.abandon(one.worker, ticket)
                self.engine.forget(one.worker)
            self.running.clear()

    def _take_known(self) -> None:
        for number, task in enumerate(self.tasks):
            digest = task.digest if self.journal is not None else ""
            if self.journal is not None and digest in self.journal:
                self._finish(number, self.journal.answer(digest), known=True)
            else:
                self.waiting.append(number)

    def _look(self, now: float) -> None:
        """Read the roster: who came, who went, and whether anybody is there at all."""
        if now - self.looked >= ROSTER_SECONDS:
            self.looked = now
            self.there = {worker.name: worker for worker in self.engine.fleet.workers()}
            busy = {one.worker.name for one in self.running.values()}
            self.free = {name: worker for name, worker in self.there.items() if name not in busy}
            for ticket in [t for t, one in self.running.items() if one.worker.name not in self.there]:
                self._lose(ticket, "its worker is gone")
        if self.there:
            self.somebody = now
        elif now - self.somebody >= self.engine.patience_seconds:
            raise EngineFailed(_nobody(self.engine))

    def _assign(self) -> None:
        for _ in range(len(self.waiting)):
            if not self.free:
                return
            number = self.waiting.popleft()
            worker = self._worker_for(self.tasks[number])
            if worker is None:
                self.waiting.append(number)
                continue
            del self.free[worker.name]
            self.attempts[number] += 1
            ticket = self.engine.asked(worker, self.tasks[number])
            self.running[ticket] = _Running(number, worker, time.monotonic())
            self.on_host[worker.host] = self.on_host.get(worker.host, 0) + 1
            if self.tasks[number].leases_machine:
                self.leased.add(worker.host)

    def _worker_for(self, task: Task) -> Worker | None:
        if not task.leases_machine and not self.leased:
            return next(iter(self.free.values()))
        for worker in self.free.values():
            if worker.host not in self.leased and not (task.leases_machine and self.on_host.get(worker.host)):
                return worker
        return None

    def _release(self, ticket: int) -> _Running | None:
        one = self.running.pop(ticket, None)
        if one is not None:
            self.on_host[one.worker.host] -= 1
            if self.tasks[one.number].leases_machine:
                self.leased.discard(one.worker.host)
        return one

    def _hear(self, reply: Reply) -> None:
        if reply.ticket not in self.running:
            return  # of a task that was given up
        if reply.content is None:
            self._lose(reply.ticket, reply.reason)
            return
        one = self._release(reply.ticket)
        assert one is not None
        if one.worker.name in self.there:
            self.free[one.worker.name] = one.worker
        kind, value = pickle.loads(reply.content)
        if kind == "error":
            raise value
        if kind == "missing":
            self.engine.forget(one.worker, value)
            self.waiting.appendleft(one.number)
            return
        task = self.tasks[one.number]
        if self.journal is not None:
            self.journal.add(task.digest, task.name, value)
        self._finish(one.number, value)

    def _finish(self, number: int, value: Any, *, known: bool = False) -> None:
        self.outcomes[number] = Outcome(self.tasks[number], value, True, known, self.attempts[number])
        self.finished += 1
        if self.watch is not None:
            at = Progress(self.finished, len(self.tasks), len(self.running), len(self.there), self.lost)
            self.watch(self.outcomes[number], at)

    def _lose(self, ticket: int, reason: str) -> None:
        """A worker has died: its task comes first among those that wait."""
        one = self._release(ticket)
        assert one is not None
        self.engine.forget(one.worker)
        self.free.pop(one.worker.name, None)
        self.there.pop(one.worker.name, None)
        self.looked = -math.inf
        self.lost += 1
        task = self.tasks[one.number]
        if self.attempts[one.number] > self.retries:
            raise EngineFailed(
                f"{task.name}: {self.attempts[one.number]} workers were lost with it (last: {reason}); memory may be "
                "short there: give them more, or fewer of them"
            )
        self.waiting.appendleft(one.number)

    def _give_up_on_the_late(self) -> None:
        now = time.monotonic()
        late = [
            (ticket, one) for ticket, one in self.running.items()
            if now - one.since > self.tasks[one.number].timeout_seconds
        ]  # fmt: skip
        for ticket, one in late:
            self.engine.fleet.abandon(one.worker, ticket)
            self._lose(ticket, f"no reply within {self.tasks[one.number].timeout_seconds:g} s")
