"""A worker: a process of its own that is pinned to cores and runs its part of placed steps.

Started as `python -m stead.run.worker FILE` with one end of a socket; everything it must know before torch is loaded
is in its environment. It obeys one command after another until the socket ends, and dies with its parent.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import socket
import sys
import traceback
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection
from time import perf_counter, perf_counter_ns, thread_time_ns
from typing import Any

from stead.errors import RunFailed, SteadError
from stead.printing.wording import one_line
from stead.run import timing
from stead.run.hosts.gloo_slots import GlooSlots, Post
from stead.run.hosts.host_messages import Join, Listen, Ping, Stream
from stead.run.messages import Begin, Done, Go, Load, Memory, Ready
from stead.run.sheet import sheet_of
from stead.run.split_replay import Material, Replay
from stead.run.subject import fresh_inputs
from stead.run.transport import Channel, Late, Patience, PipedSlots, Segment, SharedSlots, Stopped

PARENT_DIED_SIGNAL = 1  # PR_SET_PDEATHSIG
READ_BACK = (
    "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_",
)  # fmt: skip


class Obedient:
    """Carries out commands; one of each kind has a method."""

    def __init__(self, link: Connection, pipes: tuple[int, tuple[int, ...]]) -> None:
        self.link = link
        self.pipes = pipes
        self.me = 0
        self.workers = 1
        self.material: Material | None = None
        self.originals: list[Any] = []
        self.segment: Segment | None = None
        self.patience: Patience | None = None
        self.store: Any = None  # where workers of several hosts find each other
        self.post: Post | None = None  # where there are several hosts
        self.replays: dict[int, Replay] = {}
        self.input_seed = 0

    def begin(self, command: Begin) -> Ready:
        """Load torch, the model and its tensors."""
        torch = import_module("torch")
        torch.set_num_threads(max(1, len(command.worker.cores)))
        self.me, self.workers = command.number, command.workers
        prepared = command.subject.prepare()
        device = torch.device(command.worker.device)
        material = Material(
            torch, prepared.tape, prepared.numbering, device, command.worker.dtype, {}
        )
        material.start = converted_start(material, prepared.start)
        self.material = material
        began = perf_counter()
        material.learn()
        seconds = perf_counter() - began
        built = prepared.tape.build()
        sheet = sheet_of(prepared.tape, prepared.numbering, built.graph.operator_names, built.operator_of)
        if command.graph_path:
            from stead.readers import write_graph

            write_graph(command.graph_path, prepared.tape.model().graph)
        self.originals = [material.start[v].clone() for v in self._inputs()]
        gc.collect()
        gc.freeze()
        return Ready(readback(torch), sheet, tuple(material.layouts), seconds)

    def _inputs(self) -> list[int]:
        assert self.material is not None
        return list(self.material.numbering.of(self.material.tape.inputs))

    def memory(self, command: Memory) -> None:
        """Use a new segment."""
        own = socket.socket(fileno=os.dup(self.link.fileno()))
        try:
            _, (file, *_), _, _ = socket.recv_fds(own, 1, 1)
        finally:
            own.close()
        self.replays.clear()
        if self.segment is not None:
            self.segment.close()
        try:
            self.segment = Segment(file, command.size, self.workers)
        finally:
            os.close(file)
        self.patience = Patience(self.segment)

    def load(self, command: Load) -> None:
        """Bind a program."""
        assert self.material is not None
        assert self.segment is not None
        assert self.patience is not None
        channel = self._channel(command)
        while len(self.replays) >= command.kept:
            del self.replays[next(iter(self.replays))]
        with self.material.torch.inference_mode():
            self.replays[command.number] = Replay(
                self.material, command.program, command.crossings, command.sent, channel, command.rings
            )

    def _channel(self, command: Load) -> Channel:
        assert self.segment is not None
        assert self.patience is not None
        hosts = self.post.hosts if self.post is not None else (0,) * self.workers
        near = [w for w in range(self.workers) if hosts[w] == hosts[self.me]]
        sizes = [one.size_bytes for one in command.crossings]
        readers = [[w for w in one.readers if w in near] for one in command.crossings]
        given = (self.segment, self.patience, command.offsets, sizes, readers, command.rings)
        if command.piped:
            inbox, outboxes = self.pipes
            local: SharedSlots = PipedSlots(*given, inbox=inbox, outboxes=dict(zip(near, outboxes, strict=True)))
        else:
            local = SharedSlots(*given)
        if self.post is None:
            return local
        return GlooSlots(local, self.post, [one.source for one in command.crossings], command.receivers)

    def listen(self, command: Listen) -> int:
        """Keep the store in which workers of all hosts find each other, at a port that is free."""
        self.store = import_module("torch.distributed").TCPStore(
            command.address, 0, is_master=True, wait_for_workers=False
        )
        return int(self.store.port)

    def join(self, command: Join) -> None:
        """Become one of the ranks of gloo, one for each worker."""
        torch = import_module("torch")
        if self.store is None:
            try:
                self.store = torch.distributed.TCPStore(
                    command.address, command.port, is_master=False, wait_for_workers=False,
                    timeout=timedelta(seconds=command.seconds),
                )  # fmt: skip
            except RuntimeError as error:
                where = f"{command.address} port {command.port}"
                raise RunFailed(f"cannot reach {where}: {one_line(str(error).partition(chr(10))[0], 200)}") from None
        self.me, self.workers = command.me, len(command.hosts)
        self.post = Post(torch, self.store, command)

    def ping(self, command: Ping) -> list[float]:
        """Send messages to a worker on another host and back."""
        assert self.post is not None
        return self.post.ping(command)

    def stream(self, command: Stream) -> float:
        """Send to a worker on another host, or receive from it, while computing."""
        assert self.post is not None
        return self.post.stream(command)

    def _meet(self, active: tuple[int, ...], sequence: int) -> None:
        """Until all workers have come to a run."""
        segment, patience = self.segment, self.patience
        assert segment is not None
        assert patience is not None
        if self.post is not None:
            self.post.meet(active, sequence, segment, patience)
            return
        segment.arrive(self.me, sequence)
        for other in active:
            patience.until(segment.arrival(other), sequence)

    def go(self, command: Go) -> Done:
        """Run a program some times, from the beginning."""
        material, patience = self.material, self.patience
        assert material is not None
        assert patience is not None
        replay = self.replays[command.number]
        self._prepare_inputs(command.input_seed)
        material.reset()
        patience.sequence = command.sequence
        patience.deadline = perf_counter() + command.deadline_seconds
        replay.channel.base = command.sequence  # type: ignore[attr-defined]
        gc.collect()
        gc.disable()
        try:
            with material.torch.inference_mode(), timing.RealTime(command.real_time) as real_time:
                return self._runs(command, replay, real_time)
        finally:
            patience.on_wait, patience.may_nap = None, True
            gc.enable()

    def _prepare_inputs(self, seed: int) -> None:
        material = self.material
        assert material is not None
        if seed == self.input_seed:
            return
        torch = material.torch
        made = self.originals if seed == 0 else fresh_inputs(torch, [one.cpu() for one in self.originals], seed)
        for v, tensor in zip(self._inputs(), made, strict=True):
            material.start[v].copy_(tensor)
        for replay in self.replays.values():
            for s in replay.originals:
                replay.originals[s].copy_(material.bytes_of(replay.tensors[s]))
        self.input_seed = seed

    def _runs(self, command: Go, replay: Replay, real_time: timing.RealTime) -> Done:
        segment, patience = self.segment, self.patience
        assert segment is not None
        assert patience is not None
        limit = perf_counter() + timing.BURST_SECONDS
        overran = False

        def look_at_clock(now: float) -> None:
            nonlocal overran
            if real_time.granted and not overran and now > limit:
                overran = patience.may_nap = True
                real_time.leave()

        patience.on_wait, patience.may_nap = look_at_clock, not real_time.granted
        done = Done([], [], [], 0, real_time.granted, [], {}, [])
        switches = 0
        for n in range(command.warmups + command.runs):
            sequence = command.sequence + n
            replay.step = n
            replay.channel.begin(sequence, command.sequence + command.warmups + command.runs - 1)
            if n == 0 or not command.pipeline:
                self._meet(command.active, sequence)
            if n == command.warmups:
                switches = timing.involuntary_switches()
            cpu, begin = thread_time_ns(), perf_counter_ns()
            if command.each:
                taken = replay.timed(sequence, cpu=command.each == "cpu")
            else:
                replay.run(sequence)
            end = perf_counter_ns()
            segment.finish(self.me, sequence)
            if n >= command.warmups:
                done.begins.append(begin)
                done.ends.append(end)
                done.cpu.append(thread_time_ns() - cpu)
                if command.each:
                    done.each.append(taken)
            if command.every_result >= 0:
                done.trail.append(replay.results(sequence).get(command.every_result))
            look_at_clock(perf_counter())
        replay.channel.end()
        switches = timing.involuntary_switches() - switches
        results = replay.results(sequence) if command.results else {}
        return Done(
            done.begins, done.ends, done.cpu, switches, done.real_time, done.each, results, done.trail, overran
        )


def converted_start(material: Material, start: dict[int, Any]) -> dict[int, Any]:
    """Tensors as this worker wants them; what was one tensor stays one."""
    known: dict[Any, Any] = {}
    made: dict[int, Any] = {}
    for v, tensor in start.items():
        storage = tensor.untyped_storage()
        key = (storage.data_ptr() or id(storage), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if key not in known:
            known[key] = material.converted(tensor)
        made[v] = known[key]
    return made


def readback(torch: Any) -> dict[str, Any]:
    """What this process has really become."""
    return {
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "threads": torch.get_num_threads(),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "isa_cap": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
        "environment": {name: os.environ.get(name, "") for name in READ_BACK},
        "real_time": timing.real_time_is_permitted(),
        "torch": torch.__version__,
    }


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux" and parent:
        ctypes.CDLL(None).prctl(PARENT_DIED_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _pin(cores: tuple[int, ...]) -> None:
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def serve(link: Connection, pipes: tuple[int, tuple[int, ...]]) -> None:
    """Obey until the socket ends."""
    obedient = Obedient(link, pipes)
    verbs: dict[type, Any] = {
        Begin: obedient.begin,
        Memory: obedient.memory,
        Load: obedient.load,
        Go: obedient.go,
        Listen: obedient.listen,
        Join: obedient.join,
        Ping: obedient.ping,
        Stream: obedient.stream,
    }
    while True:
        try:
            command = pickle.loads(link.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer: tuple[str, Any] = ("done", verbs[type(command)](command))
        except Late:
            answer = ("late", None)
        except Stopped:
            answer = ("stopped", None)
        except SteadError as error:
            answer = ("refused", (type(error).__name__, str(error)))
        except Exception as error:
            _stop_all(obedient)
            reason = one_line(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}", 300)
            answer = ("failed", (reason, traceback.format_exc()))
        link.send_bytes(pickle.dumps(answer, protocol=5))


def _stop_all(obedient: Obedient) -> None:
    if obedient.segment is not None and obedient.patience is not None:
        obedient.segment.stop(obedient.patience.sequence)


def main(arguments: list[str]) -> None:
    """Entry point: descriptors of the socket and of pipes, cores, and the parent to die with."""
    file, cores, parent, inbox, outboxes = arguments
    _die_with_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _pin(tuple(int(core) for core in cores.split(",") if core))
    pipes = int(inbox), tuple(int(one) for one in outboxes.split(",") if one)
    try:
        serve(Connection(int(file)), pipes)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
