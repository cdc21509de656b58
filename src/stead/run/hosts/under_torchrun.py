"""Hosts that torchrun has started: the first of them coordinates, the others become its agents.

    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint a:29500 \\
        -m stead run plan.json --hosts torchrun

The first rank writes into torchrun's own store where it listens, and a key; who brings the key is an agent.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

from stead.errors import BadInput, RunFailed
from stead.readers.torch.exported import torch_package
from stead.run.hosts.agent import serve_socket
from stead.run.hosts.control import Control
from stead.run.hosts.host_crew import PATIENCE_SECONDS, Agents
from stead.run.hosts.launching import Launched, NamedHost, Reached

TORCHRUN = "torchrun"
_WHERE = "stead/agents"
_GATHER_SECONDS = 60.0
_KEY_BYTES = 32
_RANK = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of this process among those that torchrun started."""

    number: int
    count: int
    address: str
    port: int

    @staticmethod
    def of(environment: Mapping[str, str]) -> Rank:
        """As the environment says."""
        try:
            number, count, local, port = (
                int(environment[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
            )
            address = environment["MASTER_ADDR"]
        except (KeyError, ValueError):
            raise BadInput(
                "--hosts torchrun is for processes of torchrun: torchrun --nnodes N --nproc-per-node 1 ... -m stead run"
            ) from None
        if local != 1:
            raise BadInput(f"torchrun started {local} processes on this host; stead wants one: --nproc-per-node 1")
        return Rank(number, count, address, port)


def serve_rank(rank: Rank) -> None:
    """Be the agent of a rank beyond the first, until told that it is over."""
    told = _store(rank).get(_WHERE).decode().split()
    address, port, key = told[0], int(told[1]), bytes.fromhex(told[2])
    try:
        made = socket.create_connection((address, port), timeout=_GATHER_SECONDS)
        made.sendall(key + _RANK.pack(rank.number))
    except OSError as error:
        raise RunFailed(f"the first rank cannot be reached at {address}: {error.strerror or error}") from None
    made.settimeout(None)
    serve_socket(made)


def agents_of_ranks(
    rank: Rank, names: Sequence[str], *, patience_seconds: float = PATIENCE_SECONDS
) -> Agents:
    """All ranks as agents, on the first of them; `names` are those of hosts."""
    hosts = [NamedHost(name) for name in names]
    key = secrets.token_bytes(_KEY_BYTES)
    with _listener(rank) as listener:
        _store(rank).set(_WHERE, f"{rank.address} {listener.getsockname()[1]} {key.hex()}")
        sockets = _gathered(listener, rank.count, key)

    def start(host: NamedHost, on_message: Callable[[bytes], None], on_end: Callable[[], None]) -> Reached:
        number = hosts.index(host)
        if number == 0:
            return Launched(host, "{command}", on_message=on_message, on_end=on_end)
        return _Accepted(host, sockets[number], on_message=on_message, on_end=on_end)

    return Agents(hosts, start, patience_seconds=patience_seconds)


class _Accepted:
    """An agent that came by itself."""

    def __init__(
        self, host: NamedHost, made: socket.socket, *, on_message: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self.host = host
        self._socket = made
        self.control = Control(
            made.fileno(), os.dup(made.fileno()), on_message=on_message, on_end=on_end, greets=False
        )

    def ended(self) -> str:
        """How it ended: torchrun knows more."""
        return "ended; see what torchrun says of it"

    def close(self) -> None:
        """End the conversation, and the agent with it."""
        self.control.close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _store(rank: Rank) -> Any:
    distributed = torch_package("running on several hosts").distributed
    is_master = rank.number == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        return distributed.TCPStore(
            rank.address, rank.port, is_master=is_master, wait_for_workers=False,
            timeout=timedelta(seconds=_GATHER_SECONDS),
        )  # fmt: skip
    except RuntimeError as error:
        raise RunFailed(f"the store of torchrun at {rank.address}:{rank.port} cannot be reached: {error}") from None


def _listener(rank: Rank) -> socket.socket:
    try:
        family = socket.getaddrinfo(rank.address, 0, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((rank.address, 0), family=family)
    except OSError as error:
        raise RunFailed(f"cannot listen at {rank.address}: {error.strerror or error}; is it this host?") from None


def _gathered(listener: socket.socket, count: int, key: bytes) -> dict[int, socket.socket]:
    """Connections of all other ranks; those without the key are refused."""
    found: dict[int, socket.socket] = {}
    end = monotonic() + _GATHER_SECONDS
    while len(found) < count - 1:
        listener.settimeout(max(0.1, end - monotonic()))
        try:
            made, _ = listener.accept()
            made.settimeout(5.0)
            brought = made.recv(_KEY_BYTES + _RANK.size, socket.MSG_WAITALL)
        except OSError:
            if monotonic() < end:
                continue
            for one in found.values():
                one.close()
            missing = ", ".join(str(number) for number in range(1, count) if number not in found)
            raise RunFailed(f"rank {missing} did not come within {_GATHER_SECONDS:.0f} s") from None
        if hmac.compare_digest(brought[:_KEY_BYTES], key) and len(brought) == _KEY_BYTES + _RANK.size:
            made.settimeout(None)
            found[_RANK.unpack(brought[_KEY_BYTES:])[0]] = made
        else:
            made.close()
    return found
