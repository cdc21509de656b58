"""Crossings between hosts: gloo from worker to worker, and shared memory among the workers of a host.

Every worker is a rank of gloo. A crossing goes over the network once for each other host that reads it, from the slot
of its source into the slot of one reader there, its receiver, who then tells the others on its host. The receiver is
the reader whose turn comes first in the global order of operators: whoever waits for a receiver waits for something
earlier in that order, so that no placement can make workers wait in a circle. Receives are posted before a step
begins, in a pipeline one step ahead, and sends run on beside the operators that follow: transfers overlap with compute.

Sockets are used in normal scheduling only: in real time the threads of gloo never get their turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from time import perf_counter
from typing import Any

from stead.errors import RunFailed
from stead.run.cores import usable_cores
from stead.run.hosts.host_messages import Join, Ping, Stream
from stead.run.timing import system_seconds
from stead.run.transport import Late, Patience, Segment, SharedSlots

MEETING_TAG = 2**30  # above all crossings
PING_TAG = MEETING_TAG + 1
STREAM_TAG = MEETING_TAG + 2
_CLOCK_SECONDS = 0.01  # gloo counts milliseconds
_STREAM_WIDTH = 384  # of the matrix products beside a stream: a fraction of a millisecond each
_STREAM_WARMUPS = 40


class Post:
    """A worker as a rank of gloo."""

    def __init__(self, torch: Any, store: Any, join: Join) -> None:
        self.torch, self.me, self.hosts, self.names = torch, join.me, join.hosts, join.names
        self.store = store
        gloo = torch.distributed.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = timedelta(seconds=join.seconds)
        try:
            options._devices = [gloo.create_device(hostname=join.own_address, lazy_init=False)]
            prefixed = torch.distributed.PrefixStore("stead", store)
            self.group = gloo(prefixed, join.me, len(join.hosts), options)
        except RuntimeError as error:
            raise RunFailed(f"workers do not find each other over {join.own_address}: {_plain(error)}") from None

    @property
    def host(self) -> int:
        """The number of the own host."""
        return self.hosts[self.me]

    def send(self, tensor: Any, worker: int, tag: int) -> Any:
        """Begin to send; the tensor must stay as it is until `finish`."""
        return self._begin(self.group.send, tensor, worker, tag)

    def receive(self, tensor: Any, worker: int, tag: int) -> Any:
        """Begin to receive."""
        return self._begin(self.group.recv, tensor, worker, tag)

    def _begin(self, way: Any, tensor: Any, worker: int, tag: int) -> Any:
        try:
            return way([tensor], worker, tag)
        except RuntimeError as error:
            raise self._broken(worker, error) from None

    def finish(self, work: Any, worker: int, deadline: float) -> None:
        """Until something is sent or received; Late beyond the deadline."""
        try:
            work.wait(timedelta(seconds=max(1e-3, deadline - perf_counter())))
        except RuntimeError as error:
            if perf_counter() >= deadline - _CLOCK_SECONDS:
                raise Late from None
            raise self._broken(worker, error) from None

    def _broken(self, worker: int, error: RuntimeError) -> RunFailed:
        return RunFailed(f"the connection to host {self.names[self.hosts[worker]]} broke: {_plain(error)}")

    def ping(self, command: Ping) -> list[float]:
        """Half of every round trip of messages to and fro, in seconds; the first two are for warming up."""
        tensor = self.torch.zeros(command.size_bytes, dtype=self.torch.uint8)
        deadline, seconds = perf_counter() + command.seconds, []
        for _ in range(command.count):
            begin = perf_counter()
            for way in (self.send, self.receive) if command.first else (self.receive, self.send):
                self.finish(way(tensor, command.peer, PING_TAG), command.peer, deadline)
            seconds.append((perf_counter() - begin) / 2)
        return seconds[2:]

    def stream(self, command: Stream) -> float:
        """What the system spends on a message of a stream on the cores of this worker, in seconds.

        Both ends multiply matrices all the time, first without messages and then beside them, as stages of a pipeline
        do. What counts is not how much longer that takes, which varies with everything else, but what the kernel books
        as its own: copying, cutting and checking what passes, and waking who waits for it.
        """
        torch, cores = self.torch, usable_cores()
        left, right = (torch.ones(_STREAM_WIDTH, _STREAM_WIDTH) for _ in range(2))
        made = torch.empty_like(left)

        def compute(times: int) -> float:
            begin = perf_counter()
            for _ in range(times):
                torch.mm(left, right, out=made)
            return perf_counter() - begin

        once = min(compute(_STREAM_WARMUPS) for _ in range(3)) / _STREAM_WARMUPS
        times = max(1, round(command.beside_seconds / once))
        begin = system_seconds(cores)
        for _ in range(command.count):
            compute(times)
        without = system_seconds(cores) - begin
        way = self.send if command.sends else self.receive
        deadline = perf_counter() + command.seconds
        part = torch.zeros(command.size_bytes, dtype=torch.uint8)
        self.finish(way(part, command.peer, STREAM_TAG), command.peer, deadline)  # both ends are here
        begin = system_seconds(cores)
        for _ in range(command.count):
            work = way(part, command.peer, STREAM_TAG)
            compute(times)
            self.finish(work, command.peer, deadline)
        return max(0.0, system_seconds(cores) - begin - without) / command.count

    def meet(self, active: Sequence[int], sequence: int, segment: Segment, patience: Patience) -> None:
        """Until all workers have come to a run; the first of each host speaks for it."""
        segment.arrive(self.me, sequence)
        own = [w for w in active if self.hosts[w] == self.host]
        if self.me == own[0]:
            for w in own:
                patience.until(segment.arrival(w), sequence)
            self._speak_with_hosts(active, sequence, patience.deadline)
            for w in set(active) - set(own):
                segment.arrive(w, sequence)
        for w in active:
            patience.until(segment.arrival(w), sequence)

    def _speak_with_hosts(self, active: Sequence[int], sequence: int, deadline: float) -> None:
        firsts: dict[int, int] = {}
        for w in active:
            firsts.setdefault(self.hosts[w], w)
        others = [w for host, w in firsts.items() if host != self.host]
        heard = {w: self.torch.zeros(1, dtype=self.torch.int64) for w in others}
        said = self.torch.tensor([sequence])
        receives = {w: self.receive(heard[w], w, MEETING_TAG) for w in others}
        sends = {w: self.send(said, w, MEETING_TAG) for w in others}
        for w, work in (*receives.items(), *sends.items()):
            self.finish(work, w, deadline)
        if any(int(one) != sequence for one in heard.values()):
            raise RunFailed("workers of two hosts are at different runs; start again")


class GlooSlots:
    """Crossings of one worker, some of which come from other hosts or go there."""

    def __init__(
        self,
        local: SharedSlots,  # with the readers of the own host only
        post: Post,
        sources: Sequence[int],  # [crossing]: worker
        receivers: Mapping[int, Sequence[int]],  # crossing: workers on other hosts that receive it
    ) -> None:
        self.local, self.post = local, post
        self.coming = {
            number: sources[number] for number, workers in receivers.items() if post.me in workers
        }
        self.going = {
            number: tuple(workers) for number, workers in receivers.items() if sources[number] == post.me
        }
        self._ahead = max(0, local.rings - 2)  # runs whose receives are posted beside the one that is computed
        self._receives: dict[tuple[int, int], Any] = {}  # (crossing, run)
        self._sends: dict[tuple[int, int], list[tuple[int, Any]]] = {}  # (crossing, part of its slot)
        self._parts = {
            (number, ring): self._bytes(number, ring)
            for number in (*self.coming, *self.going)
            for ring in range(local.rings)
        }

    def _bytes(self, number: int, ring: int) -> Any:
        """A part of a slot as it goes over the network: never empty, so that arriving can be seen."""
        return self.local.slot(number, ring, self.post.torch, least=1)

    @property
    def base(self) -> int:
        """First run of the command that is running."""
        return self.local.base

    @base.setter
    def base(self, sequence: int) -> None:
        self.local.base = sequence

    def slot(self, number: int, ring: int, torch: Any) -> Any:
        """The bytes of a slot, as a tensor."""
        return self.local.slot(number, ring, torch)

    def begin(self, sequence: int, last: int) -> None:
        """Before a run: make ready to receive for it and for those ahead, so that they travel while this one runs."""
        for run in range(sequence, min(sequence + self._ahead, last) + 1):
            for number, source in self.coming.items():
                if (number, run) not in self._receives:
                    self.local.free(number, run)
                    part = self._parts[number, run % self.local.rings]
                    self._receives[number, run] = self.post.receive(part, source, number)

    def wait(self, number: int, sequence: int) -> None:
        """Until a crossing of a run has arrived."""
        work = self._receives.pop((number, sequence), None)
        if work is None:
            self.local.wait(number, sequence)
        else:
            self.post.finish(work, self.coming[number], self.local.patience.deadline)
            self.local.tell(number, sequence)

    def tell(self, number: int, sequence: int) -> None:
        """That a crossing of a run is in its slot."""
        self.local.tell(number, sequence)
        ring = sequence % self.local.rings
        for worker in self.going.get(number, ()):
            work = self.post.send(self._parts[number, ring], worker, number)
            self._sends.setdefault((number, ring), []).append((worker, work))

    def free(self, number: int, sequence: int) -> None:
        """Until a slot may be written again: read here, and sent elsewhere."""
        self.local.free(number, sequence)
        self._finish_sends((number, sequence % self.local.rings))

    def end(self) -> None:
        """After the last run: until everything has been sent."""
        for key in tuple(self._sends):
            self._finish_sends(key)

    def _finish_sends(self, key: tuple[int, int]) -> None:
        for worker, work in self._sends.pop(key, ()):
            self.post.finish(work, worker, self.local.patience.deadline)


def _plain(error: RuntimeError) -> str:
    """What gloo says, without the place in its source."""
    first = str(error).strip().partition("\n")[0]
    return (first.partition("] ")[2] if first.startswith("[") else first).partition(". This is")[0][:200]
