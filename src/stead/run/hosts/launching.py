"""Launching: from what a user says about hosts to one agent on each, and back when it is over."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from stead.errors import BadInput, RunFailed
from stead.printing.wording import one_line
from stead.run.hosts.control import Control

AGENT = ("-m", "stead.run.hosts.agent")
BY_SSH = "ssh -o BatchMode=yes -o ServerAliveInterval=2 {host} {command}"
_GRACE_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class NamedHost:
    """A host as a user names it."""

    name: str
    address: str = ""  # on the network between hosts; empty: the host finds it


def hosts_from(text: str) -> tuple[NamedHost, ...]:
    """The hosts of a text: names, each with an address where it cannot be found out.

    >>> hosts_from("a, b=10.0.0.2")
    (NamedHost(name='a', address=''), NamedHost(name='b', address='10.0.0.2'))
    """
    hosts: list[NamedHost] = []
    for part in text.split(","):
        name, equals, address = (word.strip() for word in part.partition("="))
        if not name or name.startswith("-") or len(name.split()) > 1 or (equals and not address):
            raise BadInput(f'hosts are written like "a,b" or "a=10.0.0.1,b=10.0.0.2", got {one_line(text, 100)!r}')
        if any(host.name == name for host in hosts):
            raise BadInput(f"host {name} is named twice in {one_line(text, 100)!r}")
        hosts.append(NamedHost(name, address))
    return tuple(hosts)


def command_for(template: str, host: str) -> list[str]:
    """The command that starts an agent on a host.

    `{host}` is its name, `{command}` what runs there; `{agent}` is the same without the interpreter, where that has
    another path there.

    >>> command_for("ip netns exec {host} /opt/python {agent}", "a")
    ['ip', 'netns', 'exec', 'a', '/opt/python', '-m', 'stead.run.hosts.agent']
    """
    whole = {"{command}": [sys.executable, *AGENT], "{agent}": list(AGENT)}
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise BadInput(f"--launch {one_line(template, 100)!r} cannot be read: {error}") from None
    if not any(key in word for key in whole for word in words):
        raise BadInput(f'--launch must have {{command}} in it, as in "ssh {{host}} {{command}}", got {template!r}')
    made: list[str] = []
    for word in words:
        if word in whole:
            made += whole[word]
            continue
        for key, value in whole.items():
            word = word.replace(key, shlex.join(value))
        made.append(word.replace("{host}", host))
    return made


class Reached(Protocol):
    """An agent that can be spoken with."""

    @property
    def host(self) -> NamedHost:
        """Its host."""

    @property
    def control(self) -> Control:
        """The conversation."""

    def ended(self) -> str:
        """How it ended, in a few words, for one that has."""

    def close(self) -> None:
        """End it."""


class Launched:
    """An agent behind a command that was started here."""

    def __init__(
        self, host: NamedHost, template: str, *, on_message: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self.host = host
        command = command_for(template, host.name)
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the agent)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, process_group=0
            )
        except OSError as error:
            self._said.close()
            raise RunFailed(f"host {host.name}: cannot start {command[0]}: {error.strerror}; see --launch") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        inbox, outbox = os.dup(self._process.stdout.fileno()), os.dup(self._process.stdin.fileno())
        self._process.stdin.close()
        self._process.stdout.close()
        self._inbox = inbox
        self.control = Control(inbox, outbox, on_message=on_message, on_end=on_end, greets=False)

    def ended(self) -> str:
        """How it ended, with the last line that it printed as an error."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        code = self._process.returncode
        how = "ended" if code is None else f"ended with code {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"was killed ({signal.Signals(-code).name})"
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - 4096))
        lines = [line for line in self._said.read().decode(errors="replace").splitlines() if line.strip()]
        return f"{how}: {one_line(lines[-1].strip(), 200)}" if lines else how

    def close(self) -> None:
        """End it: an agent ends with its conversation, what does not end is killed."""
        self.control.close()
        try:
            self._process.wait(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(OSError):
            os.close(self._inbox)
        self._said.close()


def close_all(agents: Sequence[Reached]) -> None:
    """End agents: first told all, then waited for."""
    for agent in agents:
        with contextlib.suppress(OSError):
            agent.control.send(None)
    for agent in agents:
        agent.close()
