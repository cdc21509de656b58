"""The file of events: what happens while a command runs, one line of JSON each, for whoever watches or goes on later.

Every line has `t`, the seconds since the command began, and `kind`:

    begin        what is asked: model, devices, limits
    goal         the objective that is solved for from now on
    step         what is being done from now on
    baseline     what a simple rule gives
    improvement  a better value, `bound` a better bound: where the search stands now
    heartbeat    the same, once a second, also while nothing changes
    incumbent    the best placement so far, at most once a second: `stead place --start FILE` begins there
    graphs       of `stead train`: what a policy learns on, with bounds and simple rules
    update, run  of `stead train` and `stead bench`: one update of a policy, one finished run
    end          the exit code, and where the result is
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, BinaryIO

from stead import clock
from stead.errors import BadInput
from stead.files import AnyPath, appending, plain, write_bytes
from stead.plan.rows import SMALL, as_row
from stead.plan.writing import order_document
from stead.solvers.events import Event, Incumbent

FORMAT, VERSION = "stead.events", 1
INTERVAL_SECONDS = 1.0  # between heartbeats, and at least between incumbents


class EventLog:
    """Writes events to a file as they come, with a heartbeat; without a file it does nothing.

    Each line is handed to the system at once: a process that is killed loses nothing it has told. A disk that fails
    ends the file, not the command; `failure` then says why.
    """

    def __init__(self, path: AnyPath | None) -> None:
        self.failure = ""
        self._path = path
        self._file: BinaryIO | None = None
        self._stack = ExitStack()
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="events", daemon=True)
        self._began = clock.now()
        self._state = Event("improvement")
        self._names: tuple[str, ...] = ()
        self._waiting: Event | None = None  # an incumbent that is not written yet
        self._last_incumbent = -math.inf

    def __enter__(self) -> EventLog:
        if self._path is not None:
            write_bytes(self._path, b"")
            self._file = self._stack.enter_context(appending(self._path))
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._write_incumbent()
            self._file = None
        try:
            self._stack.close()
        except BadInput as failed:
            self.failure = self.failure or str(failed)

    def begin(self, verb: str, *, devices: tuple[str, ...] = (), **facts: Any) -> None:
        """Say what is asked; what was known of another question is forgotten."""
        with self._lock:
            self._write_incumbent()
            self._state, self._names, self._last_incumbent = Event("improvement"), devices, -math.inf
            started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            head = {"format": FORMAT, "version": VERSION, "verb": verb, "time": started}
            self.write("begin", **head, devices=list(devices), **facts)

    def doing(self, step: str) -> None:
        """Say what is being done from now on."""
        self.write("step", step=step)

    @property
    def listener(self) -> Callable[[Event], None] | None:
        """Who hears events of a search; None without a file, so that nobody makes any."""
        return None if self._path is None else self.heard

    def heard(self, event: Event) -> None:
        """Write an event of a search, unless it says nothing new."""
        if event.kind == "baseline":
            value = _finite(event.objective_seconds)
            self.write("baseline", name=event.found_by, objective=value, reason=event.reason)
            return
        with self._lock:
            if event.scope != self._state.scope:  # another question from here on: bounds cannot be compared
                known = self._state
                self._state = Event("improvement", objective_seconds=known.objective_seconds, scope=event.scope)
            joined = self._state.joined(event)
            if joined is None:
                return
            self._state = joined
            self.write(joined.kind, **self._standing())
            if joined.kind == "improvement" and joined.incumbent is not None:
                self._waiting = joined
                if clock.now() - self._last_incumbent >= INTERVAL_SECONDS:
                    self._write_incumbent()

    def end(self, exit_code: int, **facts: Any) -> None:
        """Say how it ended; no heartbeat comes after it, however long the result takes to print."""
        with self._lock:
            self._write_incumbent()
            self.write("end", exit=exit_code, **facts)
            self._closed.set()

    def write(self, kind: str, **fields: Any) -> None:
        """Write one line."""
        if self._file is None:
            return
        line = json.dumps({"t": round(clock.now() - self._began, 3), "kind": kind, **plain(fields)}, allow_nan=False)
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(line.encode() + b"\n")
                self._file.flush()
            except OSError as error:
                self.failure = f"cannot write {self._path}: {error.strerror}; events end there"
                self._file = None

    def _standing(self) -> dict[str, Any]:
        """Where the search stands, with the keys that readers rely on."""
        state = self._state
        bound = min(state.bound_seconds, state.objective_seconds)
        return {
            "objective": _finite(state.objective_seconds),
            "bound": bound or None,
            "bound_name": state.bound_name,
            "scope": state.scope,
            "evaluations": state.evaluations,
            "found_by": state.found_by,
        }

    def _write_incumbent(self) -> None:
        event, self._waiting = self._waiting, None
        if event is None or event.incumbent is None:
            return
        self._last_incumbent = clock.now()
        self.write("incumbent", objective=event.objective_seconds, **_packed(event.incumbent, self._names))

    def _beat(self) -> None:
        while not self._closed.wait(INTERVAL_SECONDS):
            with self._lock:
                if self._closed.is_set():  # it ended while this waited for the lock
                    return
                self.write("heartbeat", **self._standing())
                if clock.now() - self._last_incumbent >= INTERVAL_SECONDS:
                    self._write_incumbent()


def _packed(held: Incumbent, names: tuple[str, ...]) -> dict[str, Any]:
    """A placement as a line holds it."""
    return {
        "placement": as_row(held.devices, SMALL, packed=True),
        "order": order_document(held.order, packed=True),
        "replicas": [[names[d] for d in group] for group in held.replicas],
    }


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
