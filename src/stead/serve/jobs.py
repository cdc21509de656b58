"""Jobs: child processes that run the public commands, watched by their files of events.

The child writes events and results itself, so that a server that is killed loses nothing: the next one adopts children
that still run, takes over what others have finished, and calls lost what was cut short, which can then be resumed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stead.errors import BadInput
from stead.serve.commands import (
    GRACE_SECONDS,
    JOURNAL,
    UNTIMED,
    child_command,
    command_for,
    shown_command,
    time_limit,
)
from stead.serve.store import Row, Store

if TYPE_CHECKING:
    from stead.plan import Plan

TICK_SECONDS = 0.2
KILL_SECONDS = 10.0  # after a child was asked to stop
MOST_LINES = 2_000  # of events at a time
ACTIVE, OVER = ("running", "stopping"), ("done", "stopped", "failed", "lost")
DAY_SECONDS = 24 * 3600.0
VERIFY_FAILED = 4  # `stead verify` has an answer then, if not the one that was hoped for
_TOLD = {"goal", "baseline", "improvement", "bound", "update", "run", "graphs", "end", "step", "begin"}


class Jobs:
    """The queue: so many children at once, in the order they were asked for."""

    def __init__(
        self,
        store: Store,
        *,
        at_once: int = 2,
        memory_bytes: int = 0,
        child: Callable[[list[str]], list[str]] = child_command,
    ) -> None:
        self.store = store
        self._at_once, self._memory_bytes, self._child = at_once, memory_bytes, child
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._deadlines: dict[str, float] = {}
        self._closing = threading.Event()
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._watch, name="jobs", daemon=True)

    def start(self) -> None:
        """Take over what an earlier server left, then watch."""
        with self._lock:
            for job in self.store.jobs(*ACTIVE):
                self._adopt(job)
        self._thread.start()

    def close(self) -> None:
        """Ask all children to stop and keep their best; those that do not are killed."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        for job in self.store.jobs("running"):
            self.stop(job["id"])
        end = time.monotonic() + KILL_SECONDS + 1
        while self.store.jobs(*ACTIVE) and time.monotonic() < end:
            self.tick()
            time.sleep(TICK_SECONDS / 2)

    def submit(self, verb: str, request: Mapping[str, Any]) -> str:
        """Queue a job; what the command could not take is told now."""
        command_for(verb, request, Path("job"))
        return self.store.add_job(verb, request)

    def stop(self, name: str) -> None:
        """Ask a job to end and keep what it has."""
        with self._lock:
            job = self._known(name)
            if job["state"] == "queued":
                self.store.set_job(name, state="stopped", ended=time.time(), message="stopped before it began")
            elif job["state"] == "running":
                self.store.set_job(name, state="stopping")
                self._deadlines[name] = time.monotonic() + KILL_SECONDS
                _signal(job, signal.SIGINT)

    def resume(self, name: str) -> str:
        """A new job that goes on where one was cut short."""
        job = self._known(name)
        if job["state"] in ("queued", *ACTIVE):
            raise BadInput("the job still runs; stop it first")
        request, events = dict(job["request"]), self.folder(name) / "events.jsonl"
        if job["verb"] == "place" and events.exists() and b'"incumbent"' in events.read_bytes():
            request["start"] = str(events)
        goes_on = {"train": "policy*", "bench": JOURNAL}.get(job["verb"])  # files that the new job begins with
        kept = [] if goes_on is None else list(self.folder(name).glob(goes_on))
        if job["verb"] == "train" or kept:
            request["resume"] = True
        with self._lock:  # it must not begin before its checkpoint is there
            made = self.submit(job["verb"], request)
            for path in kept:
                shutil.copy(path, self.folder(made) / path.name)
        return made

    def delete(self, name: str) -> None:
        """Forget a job that is over; its plans stay."""
        if self._known(name)["state"] in ACTIVE:
            raise BadInput("the job still runs; stop it first")
        self.store.drop_job(name)
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def forget(self, days: float) -> int:
        """Forget jobs that have been over for so many days, their plans apart; how many there were."""
        before = time.time() - days * DAY_SECONDS
        old = [job["id"] for job in self.store.jobs(*OVER) if (job["ended"] or job["created"]) < before]
        for name in old:
            self.delete(name)
        return len(old)

    def _known(self, name: str) -> Row:
        job = self.store.job(name)
        if job is None:
            raise KeyError(name)
        return job

    def folder(self, name: str) -> Path:
        """Where a job writes to."""
        return self.store.home / "jobs" / name

    def _watch(self) -> None:
        while not self._closing.wait(TICK_SECONDS):
            self.tick()

    def tick(self) -> None:
        """One look at all jobs: begin, read, end."""
        with self._lock:
            active = self.store.jobs(*ACTIVE)
            for job in active:
                self._read(job)
                if not self._alive(job):
                    self._read(job)
                    self._end(job)
                elif time.monotonic() > self._deadlines.get(job["id"], float("inf")):
                    late = "killed: it did not stop" if job["state"] == "stopping" else "killed: it took too long"
                    self.store.set_job(job["id"], message=late)
                    _signal(job, signal.SIGKILL)
            free = self._at_once - len(active)
            if free > 0 and not self._closing.is_set():
                for job in list(reversed(self.store.jobs("queued")))[:free]:
                    self._begin(job)

    def _begin(self, job: Row) -> None:
        name, folder = job["id"], self.folder(job["id"])
        folder.mkdir(mode=0o700, exist_ok=True)
        arguments = command_for(job["verb"], job["request"], folder)
        with (folder / "stderr.txt").open("wb") as errors, (folder / "stdout.txt").open("wb") as out:
            child = subprocess.Popen(
                self._child(arguments), stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True,
                cwd=folder,
            )  # fmt: skip
        if self._memory_bytes:
            with suppress(OSError):  # it may be over already
                resource.prlimit(child.pid, resource.RLIMIT_AS, (self._memory_bytes, self._memory_bytes))
        self._children[name] = child
        if job["verb"] not in UNTIMED:
            factor = 2 if job["request"].get("objective") == "both" else 1
            self._deadlines[name] = time.monotonic() + factor * time_limit(job["request"]) + GRACE_SECONDS
        self.store.set_job(
            name, state="running", started=time.time(), pid=child.pid, start_token=_start_token(child.pid),
            command=json.dumps(shown_command(arguments, folder)),
        )  # fmt: skip

    def _adopt(self, job: Row) -> None:
        """Watch on a child of an earlier server, or say what became of it."""
        if self._alive(job):
            self._deadlines[job["id"]] = time.monotonic() + GRACE_SECONDS + (
                time_limit(job["request"]) if job["verb"] not in UNTIMED else 1e9
            )
            return
        self._read(job)
        self._end(job, lost=True)

    def _alive(self, job: Row) -> bool:
        child = self._children.get(job["id"])
        if child is not None:
            return child.poll() is None
        return bool(job["pid"]) and _start_token(job["pid"]) == job["start_token"] != ""

    def _read(self, job: Row) -> None:
        """Take over new lines of a job's events."""
        path = self.folder(job["id"]) / "events.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(job["tail"])
            for _ in range(MOST_LINES):
                line = file.readline()
                if not line.endswith(b"\n"):
                    break  # it is still being written
                job["tail"] += len(line)
                with suppress(ValueError):
                    event = json.loads(line)
                    if event.get("kind") in _TOLD:
                        self.store.add_event(job["id"], event["kind"], event)
        self.store.set_job(job["id"], tail=job["tail"])

    def _end(self, job: Row, *, lost: bool = False) -> None:
        """Say how a job ended, and keep its plans."""
        name = job["id"]
        child = self._children.pop(name, None)
        self._deadlines.pop(name, None)
        ended = [json.loads(row["body"]) for row in self.store.events_after(0, name, 10**6) if row["kind"] == "end"]
        last = ended[-1] if ended else {}
        code = child.returncode if child is not None else last.get("exit")
        plans = self._plans(name)
        for path in plans:
            keep_plan(self.store, path, job=name, name=job["request"].get("name") or "")
        message = self.store.job(name) or {}
        told = str(last.get("message") or message.get("message") or "") or _complaint(self.folder(name))
        answered = code == 0 or (job["verb"] == "verify" and code == VERIFY_FAILED)
        if plans or (answered and job["verb"] != "place"):
            state, told = ("stopped" if job["state"] == "stopping" or last.get("interrupted") else "done"), ""
        elif job["state"] == "stopping":
            state = "stopped"
        else:
            state = "lost" if lost or (code is not None and code < 0) else "failed"
        self.store.set_job(
            name, ended=time.time(), exit=code, message=told, fixes=json.dumps(last.get("fixes", [])), state=state
        )

    def _plans(self, name: str) -> list[Path]:
        return sorted(self.folder(name).glob("plan*.json"))


def keep_plan(store: Store, path: Path, *, job: str = "", name: str = "") -> str:
    """Copy a plan into the home of the app, and list it; the plan's name there."""
    from stead.plan import Plan  # the app answers before it knows plans

    plan = Plan.load(path)
    return add_plan(store, plan, path.read_bytes(), job=job, name=name)


def add_plan(store: Store, plan: Plan, data: bytes, *, job: str = "", name: str = "") -> str:
    """List a plan of the app; equal plans are one."""
    import hashlib

    from stead.files import write_bytes

    made = hashlib.sha256(data).hexdigest()[:12]
    write_bytes(store.home / "plans" / f"{made}.json", data)
    solution, problem = plan.solution, plan.problem
    store.add_plan(made, {
        "job": job, "name": name or f"{problem.graph.name}, {problem.objective.name}", "graph": problem.graph.name,
        "devices": ", ".join(problem.cluster.names), "objective": problem.objective.name,
        "seconds": solution.objective_seconds, "bound": solution.bound_seconds, "gap": solution.gap,
    })  # fmt: skip
    return made


def _signal(job: Row, number: int) -> None:
    """To the whole group of the child."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(job["pid"], number)


def _start_token(pid: int) -> str:
    """When a process began, so that another one with the same number is not taken for it; empty if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _complaint(folder: Path) -> str:
    """The last line that a command complained in."""
    try:
        lines = (folder / "stderr.txt").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    told = [line for line in lines if line.startswith("stead: ") and not line.startswith("stead: note: ")]
    return (told or lines or [""])[-1].removeprefix("stead: ")[:2000]



