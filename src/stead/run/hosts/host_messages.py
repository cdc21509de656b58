"""What a coordinator says to the agents of hosts and to workers on them, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stead.run.executor import Worker
from stead.run.timing import Surroundings


@dataclass(frozen=True, slots=True)
class Peer:
    """Where an agent is reached by others."""

    name: str
    address: str
    port: int


# To agents


@dataclass(frozen=True, slots=True)
class Open:
    """Listen for other agents; the answer is `Opened`."""

    name: str
    address: str  # empty: find it


@dataclass(frozen=True, slots=True)
class Meet:
    """Join all other agents."""

    peers: tuple[Peer, ...]
    me: int
    patience_seconds: float


@dataclass(frozen=True, slots=True)
class Hire:
    """Start worker processes."""

    workers: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Give commands to workers of the host, by their number there; `files` are for models that travel."""

    commands: Mapping[int, Any]
    seconds: float
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Share:
    """Shared memory of so many bytes for all workers of the host."""

    size: int


@dataclass(frozen=True, slots=True)
class Look:
    """What else happens on the host; the answer is `Seen`."""


@dataclass(frozen=True, slots=True)
class Time:
    """Measure what workers of the host compute and copy per second, and the links between them."""

    workers: tuple[Worker, ...]


# From agents


@dataclass(frozen=True, slots=True)
class Opened:
    """What an agent says of its host."""

    peer: Peer
    machine: str  # the same for hosts that are one machine
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What workers answered, and the graph if one was asked for it."""

    answers: Mapping[int, Any]
    graph: bytes = b""


@dataclass(frozen=True, slots=True)
class Seen:
    """The surroundings of a host, and by how many seconds the clocks of others are ahead of its own."""

    surroundings: Surroundings
    ahead: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Refused:
    """An error that ends it all: the name of its class, and its line."""

    kind: str
    line: str


@dataclass(frozen=True, slots=True)
class Lost:
    """An agent no longer hears another."""

    name: str
    reason: str


# To workers


@dataclass(frozen=True, slots=True)
class Listen:
    """Keep the store in which workers find each other; the answer is its port."""

    address: str


@dataclass(frozen=True, slots=True)
class Join:
    """Become one of the ranks of gloo."""

    me: int
    address: str  # of the store
    port: int
    own_address: str
    hosts: tuple[int, ...]  # [worker]: number of its host
    names: tuple[str, ...]  # [host]
    seconds: float


@dataclass(frozen=True, slots=True)
class Ping:
    """Send messages to and fro; the answer is half of every round trip, in seconds."""

    peer: int
    first: bool
    size_bytes: int
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stream:
    """Send or receive messages while computing; the answer is what the system spends on one, in seconds."""

    peer: int
    sends: bool
    size_bytes: int
    count: int
    beside_seconds: float  # of computing beside every message: longer than it takes
    seconds: float
