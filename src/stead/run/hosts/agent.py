"""The agent of a host: starts workers there, hands commands to them, and ends with the one who started it.

Started as `python -m stead.run.hosts.agent` by the coordinator, which it speaks with through its standard input and
output, or by torchrun. It ends, and with it everything on its host, when that conversation ends or falls silent.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stead.errors import RunFailed, SteadError
from stead.printing.wording import one_line
from stead.run.cores import check_workers, usable_cores
from stead.run.crew import Answer, Crew
from stead.run.hosts.addresses import machine_identity, own_address
from stead.run.hosts.control import GOODBYE, Control, understood
from stead.run.hosts.host_messages import (
    Hire,
    Look,
    Lost,
    Meet,
    Open,
    Opened,
    Peer,
    Refused,
    Seen,
    Share,
    Tell,
    Time,
    Told,
)
from stead.run.hosts.mesh import Mesh
from stead.run.hosts.parcels import unpacked
from stead.run.messages import Begin
from stead.run.timing import Surroundings

_GRACE_SECONDS = 1.0  # after a goodbye
SILENCE_SECONDS = 30.0  # without a word of the coordinator: nobody needs this host any more


class Agent:
    """Carries out what the coordinator says, one message after another."""

    def __init__(self, inbox: int, outbox: int) -> None:
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._crew: Crew | None = None
        self._mesh: Mesh | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="stead-agent-"))
        self._dismissed = False
        self.control = Control(inbox, outbox, on_message=self._hear, on_end=self._end_at_once, greets=True)
        threading.Thread(target=self._watch, daemon=True).start()

    def _hear(self, payload: bytes) -> None:
        self._dismissed = self._dismissed or payload == GOODBYE
        self._messages.put(payload)

    def serve(self) -> None:
        """Obey until told that it is over."""
        verbs: dict[type, Callable[[Any], Any]] = {
            Open: self._open,
            Meet: self._meet,
            Hire: self._hire,
            Tell: self._tell,
            Share: self._share,
            Look: self._look,
            Time: self._time,
        }
        while (message := understood(self._messages.get())) is not None:
            try:
                answer = verbs[type(message)](message)
            except SteadError as error:
                answer = Refused(type(error).__name__, str(error))
            except Exception as error:
                answer = Refused("RunFailed", one_line(f"{type(error).__name__}: {error}", 300))
            with contextlib.suppress(OSError):
                self.control.send(answer)
        self.close()

    def close(self) -> None:
        """Give everything back."""
        if self._mesh is not None:
            self._mesh.close()
        if self._crew is not None:
            self._crew.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self.control.close()

    def _open(self, message: Open) -> Opened:
        address = own_address(message.address)
        self._mesh = Mesh(address, self._lost)
        return Opened(Peer(message.name, address, self._mesh.port), machine_identity(), tuple(usable_cores()))

    def _meet(self, message: Meet) -> None:
        assert self._mesh is not None
        self._mesh.meet(message.peers, message.me, message.patience_seconds)

    def _lost(self, name: str, reason: str) -> None:
        with contextlib.suppress(OSError):
            self.control.send(Lost(name, reason))

    def _hire(self, message: Hire) -> None:
        check_workers(message.workers, oversubscribe=True)  # who shares a core is known where all hosts are known
        if self._crew is not None:
            self._crew.close()
        self._crew = Crew(message.workers)

    def _tell(self, message: Tell) -> Told:
        crew = self._hired()
        graph = self._folder / "graph.npz"
        commands = dict(message.commands)
        for number, command in commands.items():
            if isinstance(command, Begin):
                subject = unpacked(command.subject, message.files, self._folder)
                path = str(graph) if command.graph_path else ""
                commands[number] = replace(command, subject=subject, graph_path=path)
        answers: dict[int, Answer] = crew.tell(commands, seconds=message.seconds)
        if not any(isinstance(command, Begin) for command in commands.values()):
            return Told(answers)
        made = graph.read_bytes() if graph.exists() else b""
        for file in self._folder.iterdir():
            file.unlink()
        return Told(answers, made)

    def _share(self, message: Share) -> None:
        self._hired().new_segment(message.size)

    def _hired(self) -> Crew:
        if self._crew is None or not self._crew.members:
            raise RunFailed("no workers are left on this host")
        return self._crew

    def _look(self, message: Look) -> Seen:
        return Seen(Surroundings.now(), self._mesh.ahead() if self._mesh is not None else {})

    def _time(self, message: Time) -> Any:
        from stead.run.machine_rates import measure_machine

        check_workers(message.workers)
        return measure_machine(message.workers)

    def _watch(self) -> None:
        while not self.control.closed.wait(1.0):
            if self.control.silent_seconds > SILENCE_SECONDS:
                self._end_at_once()

    def _end_at_once(self) -> None:
        """The coordinator is gone: whatever the main thread waits for, nothing may be left.

        Where it has said goodbye, the main thread has a moment to end by itself.
        """
        if self._dismissed and self.control.closed.wait(_GRACE_SECONDS):
            return
        for member in self._crew.members if self._crew is not None else ():
            with contextlib.suppress(OSError):
                member.process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0 if self._dismissed else 1)


def serve_socket(connection: socket.socket) -> None:
    """Be an agent over a socket, until told that it is over."""
    _serve(connection.detach(), -1)


def _serve(inbox: int, outbox: int) -> None:
    agent = Agent(inbox, outbox if outbox >= 0 else os.dup(inbox))
    try:
        agent.serve()
    finally:
        agent.close()


def main() -> None:
    """Entry point: standard input and output are the conversation; whatever else is printed goes to standard error."""
    inbox, outbox = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        _serve(inbox, outbox)
    finally:
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
