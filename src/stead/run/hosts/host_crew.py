"""HostCrew: the workers of several hosts as one crew, over agents that were started there."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from stead import errors
from stead.errors import BadInput, RunFailed
from stead.run.crew import Answer
from stead.run.executor import Worker
from stead.run.hosts.control import understood
from stead.run.hosts.host_messages import (
    Hire,
    Join,
    Listen,
    Look,
    Lost,
    Meet,
    Open,
    Opened,
    Refused,
    Seen,
    Share,
    Tell,
)
from stead.run.hosts.launching import Launched, NamedHost, Reached, close_all
from stead.run.hosts.parcels import packed
from stead.run.messages import Begin, Done
from stead.run.timing import Surroundings

PATIENCE_SECONDS = 7.0  # without a sign of life of a host: with what follows, a line is there within ten
GREETING_SECONDS = 30.0  # for a login and the start of an interpreter
START_SECONDS = 600.0
_SETTLE_SECONDS = 1.0  # after the first sign of trouble, for its cause to show
_GRACE_SECONDS = 5.0  # beyond what workers are given
_POLL_SECONDS = 0.2

Start = Callable[[NamedHost, Callable[[bytes], None], Callable[[], None]], Reached]


class Ended:
    """Said of an agent whose conversation is over."""


class Agents:
    """One agent on every host, spoken with; whatever goes wrong with one of them ends all."""

    def __init__(
        self, hosts: Sequence[NamedHost], start: Start, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self.hosts = tuple(hosts)
        self.patience_seconds = patience_seconds
        self.agents: list[Reached] = []
        self._inbox: queue.SimpleQueue[tuple[int, bytes | Ended]] = queue.SimpleQueue()
        try:
            for number, host in enumerate(hosts):
                self.agents.append(start(host, self._hearing(number), self._ending(number)))
            opened = self.ask({h: Open(host.name, host.address) for h, host in enumerate(hosts)}, START_SECONDS)
            self.opened: tuple[Opened, ...] = tuple(opened[h] for h in range(len(hosts)))
            peers = tuple(one.peer for one in self.opened)
            self.ask({h: Meet(peers, h, patience_seconds) for h in range(len(hosts))}, 3 * patience_seconds)
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Of all hosts."""
        return tuple(host.name for host in self.hosts)

    def ask(self, messages: Mapping[int, Any], seconds: float) -> dict[int, Any]:
        """Say something to some agents and wait for their answers."""
        try:
            for h, message in messages.items():
                try:
                    self.agents[h].control.send(message)
                except OSError:
                    raise RunFailed(f"host {self.names[h]}: its agent {self.agents[h].ended()}") from None
            return self._answers(set(messages), monotonic() + seconds)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all agents, and with them their workers."""
        agents, self.agents = self.agents, []
        close_all(agents)

    def _hearing(self, number: int) -> Callable[[bytes], None]:
        return lambda payload: self._inbox.put((number, payload))

    def _ending(self, number: int) -> Callable[[], None]:
        return lambda: self._inbox.put((number, Ended()))

    def _answers(self, waiting: set[int], end: float) -> dict[int, Any]:
        found: dict[int, Any] = {}
        trouble: list[tuple[int, Ended | Lost | Refused]] = []
        began, until = monotonic(), end
        while waiting and monotonic() < until:
            if not trouble:
                self._check_silence(monotonic() - began)
            try:
                number, payload = self._inbox.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            message = payload if isinstance(payload, Ended) else understood(payload)
            began = monotonic()  # nobody listened while it was understood: that may import packages for seconds
            if isinstance(message, Ended | Lost | Refused):
                trouble.append((number, message))
                until = min(until, monotonic() + _SETTLE_SECONDS)
                waiting.discard(number) if isinstance(message, Refused) else None
            else:
                found[number] = message
                waiting.discard(number)
        if trouble:
            raise self._told(trouble)
        if waiting:
            names = ", ".join(self.names[h] for h in sorted(waiting))
            raise RunFailed(f"host {names}: not done in time; try when it is less busy, or with a larger deadline")
        return found

    def _check_silence(self, listened_seconds: float) -> None:
        """RunFailed where a host says nothing though one has listened for so long."""
        for host, agent in zip(self.hosts, self.agents, strict=True):
            allowed = self.patience_seconds if agent.control.greeted.is_set() else GREETING_SECONDS
            if min(listened_seconds, agent.control.silent_seconds) > allowed:
                raise RunFailed(
                    f"host {host.name}: no sign of life for {allowed:.0f} s; is it up, and can it be reached?"
                )

    def _told(self, trouble: Sequence[tuple[int, Ended | Lost | Refused]]) -> errors.SteadError:
        """The cause of what was seen: an agent that ended, an error that is told, a host that others miss."""
        for number, what in trouble:
            if isinstance(what, Ended):
                return RunFailed(f"host {self.names[number]}: its agent {self.agents[number].ended()}")
        lost = [(number, what) for number, what in trouble if isinstance(what, Lost)]
        for number, what in trouble:
            if isinstance(what, Refused) and (not lost or what.kind != "RunFailed"):
                made: errors.SteadError = getattr(errors, what.kind, RunFailed)(
                    f"host {self.names[number]}: {what.line}"
                )
                return made
        missed: dict[str, int] = {}
        for _, what in lost:
            missed[what.name] = missed.get(what.name, 0) + 1
        most = max(missed.values())
        names = [name for name, count in missed.items() if count == most]
        reason = next(what.reason for _, what in lost if what.name == names[0])
        if len(names) > 1:
            return RunFailed(f"hosts {' and '.join(sorted(names))} are cut off from each other: {reason}")
        return RunFailed(f"host {names[0]} is cut off from the others: {reason}")


class HostCrew:
    """Worker processes on several hosts, one per device, as an executor uses them."""

    transport = "gloo"
    over_network = True

    def __init__(self, agents: Agents, workers: Sequence[Worker], host_of: Sequence[int]) -> None:
        self.agents, self.workers, self.host_of = agents, tuple(workers), tuple(host_of)
        self.segment_bytes = 0
        self._local = [  # [worker]: its number on its host
            sum(host == other for other in self.host_of[:w]) for w, host in enumerate(self.host_of)
        ]
        self._ahead: Mapping[int, float] = {}
        by_host: dict[int, list[Worker]] = {}
        for worker, h in zip(self.workers, self.host_of, strict=True):
            by_host.setdefault(h, []).append(worker)
        agents.ask({h: Hire(tuple(of_host)) for h, of_host in by_host.items()}, START_SECONDS)

    @property
    def is_open(self) -> bool:
        """Whether workers are there."""
        return bool(self.agents.agents)

    @property
    def not_independent(self) -> bool:
        """Whether some workers are on the same core of the same machine."""
        cores = [
            (self.agents.opened[h].machine, core)
            for h, worker in zip(self.host_of, self.workers, strict=True)
            for core in worker.cores
        ]
        return len(set(cores)) < len(cores)

    def join(self) -> None:
        """Make workers the ranks of gloo."""
        seconds = 3 * self.agents.patience_seconds
        addresses = [one.peer.address for one in self.agents.opened]
        first = addresses[self.host_of[0]]
        port = self.tell({0: Listen(first)}, seconds=START_SECONDS)[0].value
        self.tell(
            {
                w: Join(w, first, port, addresses[h], self.host_of, self.agents.names, seconds)
                for w, h in enumerate(self.host_of)
            },
            seconds=START_SECONDS,
        )

    def tell(self, commands: Mapping[int, Any], *, seconds: float = START_SECONDS) -> dict[int, Answer]:
        """Give commands to workers and wait for all answers; whatever goes wrong closes the crew."""
        begins = [command for command in commands.values() if isinstance(command, Begin)]
        files = packed(begins[0].subject) if begins else {}
        by_host: dict[int, dict[int, Any]] = {}
        for w, command in commands.items():
            by_host.setdefault(self.host_of[w], {})[self._local[w]] = command
        told = self.agents.ask(
            {h: Tell(given, seconds, files) for h, given in by_host.items()}, seconds + _GRACE_SECONDS
        )
        for begin in begins:
            if begin.graph_path:
                Path(begin.graph_path).write_bytes(next(one.graph for one in told.values() if one.graph))
        answers = {w: told[self.host_of[w]].answers[self._local[w]] for w in commands}
        self._check_in_time(answers)
        return {w: self._in_common_time(w, answer) for w, answer in answers.items()}

    def new_segment(self, size: int) -> None:
        """Shared memory for the workers of every host."""
        self.agents.ask(dict.fromkeys(set(self.host_of), Share(size)), START_SECONDS)
        self.segment_bytes = size

    def surroundings(self) -> Surroundings:
        """What the hosts say about themselves now: the highest load, and what was stolen from all of them."""
        seen: dict[int, Seen] = self.agents.ask(dict.fromkeys(range(len(self.agents.hosts)), Look()), START_SECONDS)
        self._ahead = seen[0].ahead
        machines = {self.agents.opened[h].machine: one.surroundings for h, one in seen.items()}
        return Surroundings(
            max(one.load_average for one in machines.values()), sum(one.steal_ticks for one in machines.values())
        )

    def close(self) -> None:
        """End all workers and agents."""
        self.agents.close()

    def _check_in_time(self, answers: Mapping[int, Answer]) -> None:
        """Over a network, a run that was given up cannot be followed by another: messages of it may still come."""
        late = [w for w, answer in answers.items() if answer.kind != "done"]
        if late:
            self.close()
            names = ", ".join(f"{self.workers[w].name} on host {self.agents.names[self.host_of[w]]}" for w in late)
            raise RunFailed(f"{names}: not done before the deadline; try when hosts are less busy")

    def _in_common_time(self, w: int, answer: Answer) -> Answer:
        """Clocks of other machines count from another moment: times of all are told by the clock of the first host."""
        h, done = self.host_of[w], answer.value
        same = self.agents.opened[h].machine == self.agents.opened[0].machine
        if same or not isinstance(done, Done) or not done.begins:
            return answer
        if h not in self._ahead:
            raise RunFailed(f"the clock of host {self.agents.names[h]} is not known yet; run again")
        ahead = round(1e9 * self._ahead[h])
        moved = replace(done, begins=[t - ahead for t in done.begins], ends=[t - ahead for t in done.ends])
        return replace(answer, value=moved)


def launched_by(template: str) -> Start:
    """Agents behind commands, one for each host."""
    return lambda host, on_message, on_end: Launched(host, template, on_message=on_message, on_end=on_end)


def workers_on_hosts(
    agents: Agents, host_of: Sequence[int], given: Sequence[Worker | None], *, oversubscribe: bool = False
) -> tuple[Worker, ...]:
    """A worker for each device: as given, or a core of its host that nobody else has.

    Hosts that are one machine share its cores.
    """
    taken: dict[tuple[str, int], str] = {}
    made: list[Worker] = []
    for d, (h, wanted) in enumerate(zip(host_of, given, strict=True)):
        one, name = agents.opened[h], agents.names[h]
        free = [core for core in one.cores if (one.machine, core) not in taken]
        if wanted is None:
            if not free and not oversubscribe:
                raise BadInput(
                    f"host {name} has no core left for device {d + 1}; place on fewer devices, or add --oversubscribe "
                    "to share cores and believe no times"
                )
            core = free[0] if free else one.cores[d % len(one.cores)]
            wanted = Worker(f"core {core}", (core,))
        for core in wanted.cores:
            if core not in one.cores:
                raise BadInput(f"no core {core} on host {name}; there are {', '.join(map(str, one.cores))}")
            if (one.machine, core) in taken and not oversubscribe:
                raise BadInput(
                    f"core {core} of host {name} is given to {taken[one.machine, core]!r}, too; give each worker its "
                    "own, or add --oversubscribe and believe no times"
                )
            taken[one.machine, core] = f"{name}/{wanted.name}"
        made.append(replace(wanted, name=f"{name}/{wanted.name}"))
    return tuple(made)
