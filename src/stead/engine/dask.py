"""Workers of a Dask cluster (`distributed`). Nothing else in stead knows Dask.

Every task is sent to one worker by its address, one at a time: a worker is a process, whatever its threads. Dask would
wait for ever for an address that has gone; the coordinator reads the roster and sends the task elsewhere.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from stead.engine.base import EngineFailed, Reply, Worker
from stead.engine.calls import perform
from stead.errors import MissingExtra

CONNECT_SECONDS = 10.0


class DaskFleet:
    """All workers of the cluster whose scheduler has this address."""

    def __init__(self, address: str) -> None:
        try:
            distributed = import_module("distributed")
        except ImportError:
            raise MissingExtra("distributed", "dask", "an engine of Dask") from None
        self._address = address
        try:
            self._client: Any = distributed.Client(
                f"tcp://{address}", timeout=CONNECT_SECONDS, set_as_default=False, name="stead"
            )
        except (OSError, ValueError, TimeoutError) as error:
            said = str(error).split("\n")[0] or type(error).__name__
            raise EngineFailed(f"no Dask scheduler answers at {address}: {said}") from None
        self._futures: dict[int, Any] = {}
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    @property
    def name(self) -> str:
        """dask://host:port."""
        return f"dask://{self._address}"

    def workers(self) -> Sequence[Worker]:
        """As the scheduler knows them."""
        try:
            told = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, TimeoutError, KeyError):
            raise EngineFailed(f"the Dask scheduler at {self._address} has gone; try again once it is back") from None
        return [Worker(address, str(one.get("host") or urlsplit(address).hostname)) for address, one in told.items()]

    def send(self, worker: Worker, ticket: int, message: bytes) -> None:
        """Submit to this worker alone."""
        future = self._client.submit(
            perform, message, workers=[worker.name], allow_other_workers=False, pure=False, retries=0
        )
        self._futures[ticket] = future
        future.add_done_callback(lambda _: self._ended.put(ticket))

    def replies(self, seconds: float) -> Sequence[Reply]:
        """Of futures that have ended."""
        found, end = list[Reply](), time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            try:
                ticket = self._ended.get(timeout=left) if not found and left > 0 else self._ended.get_nowait()
            except queue.Empty:
                return found
            reply = self._reply(ticket)
            found += [reply] if reply is not None else []

    def _reply(self, ticket: int) -> Reply | None:
        future = self._futures.pop(ticket, None)
        if future is None:
            return None
        if future.status == "finished":
            try:
                return Reply(ticket, future.result(timeout=CONNECT_SECONDS))
            except Exception as error:  # the worker went before its reply was fetched
                return Reply(ticket, None, f"{type(error).__name__}")
        said = future.exception(timeout=CONNECT_SECONDS) if future.status == "error" else future.status
        return Reply(ticket, None, f"{type(said).__name__}: {said}" if isinstance(said, Exception) else str(said))

    def abandon(self, worker: Worker, ticket: int) -> None:
        """Cancel; a task that has begun ends by itself, since Dask cannot end threads."""
        future = self._futures.pop(ticket, None)
        if future is not None:
            future.cancel()

    def close(self) -> None:
        """Leave the cluster as it is."""
        self._client.close(timeout=CONNECT_SECONDS)
