"""Actors of a Ray cluster. Nothing else in stead knows Ray.

An actor without a free CPU waits without a word, for ever. So CPUs are counted before actors are asked for, and an
actor that does not say within START_SECONDS where it lives is given up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any

from stead.engine.base import EngineFailed, Reply, Worker
from stead.engine.calls import perform
from stead.errors import MissingExtra

START_SECONDS = 90.0  # for an actor to say where it lives
AGAIN_SECONDS = 2.0  # between looks for CPUs where actors are missing


@dataclass(slots=True, eq=False)
class _Actor:
    handle: Any
    place: Any  # a reference to the node it lives on
    since: float
    worker: Worker | None = None  # once it is there


class RayFleet:
    """Actors of one CPU each, as many as CPUs are free, or `size` of them."""

    def __init__(self, address: str | None, size: int | None = None) -> None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # With it, processes that Ray forks die before they begin once the process has asked for an address of Ray.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        try:
            ray = import_module("ray")
        except ImportError:
            raise MissingExtra("ray", "ray", "an engine of Ray") from None
        self._ray: Any = ray
        self._begun = not ray.is_initialized()
        self._address = address or os.environ.get("RAY_ADDRESS")
        if self._begun:
            self._connect(size)
        self._numbers = count(1)
        self._actors: list[_Actor] = []
        self._asked: dict[Any, tuple[int, _Actor]] = {}  # by reference of the reply
        self._looked = -AGAIN_SECONDS
        self._free_at_first = int(ray.available_resources().get("CPU", 0))
        self._size = size or self._free_at_first
        if self._free_at_first < 1:
            held = ray.cluster_resources().get("CPU", 0)
            self.close()
            raise EngineFailed(
                f"{self.name}: none of its {held:g} CPUs is free; end what holds them, or start Ray with --num-cpus N"
            )

    def _connect(self, size: int | None) -> None:
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if self._address is None:
            os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # 30 are too few on a busy machine
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # else a token is written into the home folder
            how |= {"include_dashboard": False, "num_cpus": size}
        else:
            how |= {"address": self._address}
        for again in (self._address is None, False):  # a start may fail where another Ray is just ending
            try:
                self._ray.init(**how)
                self._silence()
                return
            except Exception as error:  # of many kinds
                self._ray.shutdown()
                if not again:
                    said = str(error).strip().split("\n")[0] or type(error).__name__
                    raise EngineFailed(f"{self.name}: Ray cannot be reached or started: {said}") from None

    @staticmethod
    def _silence() -> None:
        """Let Ray not print to standard output, among the JSON of commands, that a worker died: replies say it.

        `log_to_driver=False` does not cover that. Ray has this flag for its debugger, and no public one.
        """
        worker: Any = import_module("ray._private.worker")
        worker._worker_logs_enabled = False

    @property
    def name(self) -> str:
        """ray, or its address."""
        return self._address or "ray"

    def workers(self) -> Sequence[Worker]:
        """Actors that have said where they live; missing ones are asked for where CPUs are free."""
        now = time.monotonic()
        self._welcome(now)
        if len(self._actors) < self._size and now - self._looked >= AGAIN_SECONDS:
            self._looked = now
            pending = sum(one.worker is None for one in self._actors)
            free = int(self._ray.available_resources().get("CPU", 0)) - pending
            for _ in range(min(free, self._size - len(self._actors))):
                handle = self._ray.remote(num_cpus=1, max_restarts=0)(RayWorker).remote()
                self._actors.append(_Actor(handle, handle.place.remote(), now))
        return [one.worker for one in self._actors if one.worker is not None]

    def _welcome(self, now: float) -> None:
        for one in [one for one in self._actors if one.worker is None]:
            ready, _ = self._ray.wait([one.place], timeout=0)
            try:
                if ready:
                    one.worker = Worker(f"ray-{next(self._numbers)}", self._ray.get(one.place)[0])
                elif now - one.since > START_SECONDS:
                    self._end(one)
            except self._ray.exceptions.RayError:
                self._end(one)

    def process_ids(self) -> list[int]:
        """Of actors on this machine, for tests."""
        return [self._ray.get(one.place)[1] for one in self._actors if one.worker is not None]

    def send(self, worker: Worker, ticket: int, message: bytes) -> None:
        """Call the actor."""
        actor = next(one for one in self._actors if one.worker == worker)
        self._asked[actor.handle.perform.remote(message)] = ticket, actor

    def replies(self, seconds: float) -> Sequence[Reply]:
        """Of calls that have ended."""
        if not self._asked:
            time.sleep(min(seconds, 0.05))
            return []
        ready, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=seconds)
        found = []
        for reference in ready:
            ticket, actor = self._asked.pop(reference)
            try:
                found.append(Reply(ticket, self._ray.get(reference)))
            except self._ray.exceptions.RayError as error:
                self._end(actor)
                found.append(Reply(ticket, None, type(error).__name__))
        return found

    def abandon(self, worker: Worker, ticket: int) -> None:
        """End the actor."""
        for reference, (asked, actor) in list(self._asked.items()):
            if asked == ticket:
                del self._asked[reference]
                self._end(actor)

    def _end(self, actor: _Actor) -> None:
        if actor in self._actors:
            self._actors.remove(actor)
            self._ray.kill(actor.handle)
            self._looked = -AGAIN_SECONDS

    def close(self) -> None:
        """End the actors, and Ray if it was begun here."""
        for actor in list(self._actors):
            self._end(actor)
        if self._begun:
            self._ray.shutdown()


class RayWorker:
    """What runs at the other end."""

    def place(self) -> tuple[str, int]:
        """The node and the process."""
        return str(import_module("ray").get_runtime_context().get_node_id()), os.getpid()

    def perform(self, message: bytes) -> bytes:
        """Reply to a message."""
        return perform(message)
