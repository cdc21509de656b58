"""This machine as a cluster: what its workers compute and copy per second, alone and all at once, and their links."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stead.cluster import Cluster, Device
from stead.cluster.machine import this_machine
from stead.printing.look import Look
from stead.printing.table import Column, table
from stead.run.executor import Worker
from stead.run.link_times import SHARED_BYTES, MeasuredLink, measure_links
from stead.run.probes import Probes

WORKS = ("gemm", "memcpy")
INDEPENDENT = 0.95  # of what each does alone: two devices do 1.9 times as much as one
TURNS = 3  # alone and together, one after the other; the best of each counts, since other programs only slow down
_WINDOW_SECONDS = 0.35
_LEAD_SECONDS = 0.15  # all have read their request by then
_UNKNOWN_MEMORY_BYTES = 4 * 2**30
_RESERVE = 0.5  # of the memory of a machine belongs to its other programs


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """What was found out about workers by timing them."""

    workers: tuple[Worker, ...]
    alone: Mapping[str, tuple[float, ...]]  # by work: FLOP/s, bytes/s of each worker
    together: Mapping[str, tuple[float, ...]]  # the same while all of them work
    launch_seconds: tuple[float, ...]  # of a call that does next to nothing
    links: tuple[MeasuredLink, ...]
    timing_mode: str
    memory_bytes: int | None = field(default_factory=lambda: this_machine().memory_bytes)

    @property
    def aggregate(self) -> dict[str, float]:
        """How many times one worker all of them are, by work: 2 for two that do not disturb each other."""
        return {
            what: sum(both / one for both, one in zip(self.together[what], self.alone[what], strict=True))
            for what in self.alone
        }

    @property
    def not_independent(self) -> tuple[str, ...]:
        """A sentence for every kind of work in which workers slow each other down."""
        least = INDEPENDENT * len(self.workers)
        return tuple(
            f"not_independent: {what} on all {len(self.workers)} workers is {times:.2f}x that of one, "
            f"below {least:.2f}x"
            for what, times in self.aggregate.items()
            if times < least
        )

    @property
    def cluster(self) -> Cluster:
        """Devices and links with the measured figures; workers share memory, into which senders copy."""
        share = (self.memory_bytes or _UNKNOWN_MEMORY_BYTES) // len(self.workers)
        devices = tuple(
            Device(
                worker.name,
                kind="cpu",
                memory_bytes=share,
                reserve_bytes=int(_RESERVE * share),
                flops_per_second={"fp32": _three_digits(self.alone["gemm"][d])},
                bytes_per_second=_three_digits(self.alone["memcpy"][d]),
                launch_seconds=_three_digits(self.launch_seconds[d]),
                alias={"stead": described(worker)},
            )
            for d, worker in enumerate(self.workers)
        )
        links = (replace(link, carried_by="sender") for one in self.links for link in one.links)
        return Cluster(devices, tuple(links))


def described(worker: Worker) -> str:
    """A worker as `--on` takes it."""
    first, last = worker.cores[0], worker.cores[-1]
    where = f"core {first}" if first == last else f"cores {first}-{last}"
    isa = worker.isa.lower().partition("_")[0]  # AVX512_CORE is called avx512
    limits = [word for word in (isa, worker.dtype.replace("fp32", "")) if word]
    return f"{where} @ {' '.join(limits)}" if limits else where


def measure_machine(
    workers: Sequence[Worker], *, on_step: Callable[[str], None] | None = None
) -> MeasuredMachine:
    """Time workers alone, all at once, and the links between them; about fifteen seconds for two."""
    everyone = range(len(workers))
    with Probes(workers, shared_bytes=SHARED_BYTES) as probes:
        modes: set[str] = set()

        def rates(what: str, who: Sequence[int], lead: float = _LEAD_SECONDS) -> list[float]:
            begin = time.perf_counter() + lead
            request = {"do": "rate", "what": what, "begin": begin, "end": begin + _WINDOW_SECONDS}
            answers = probes.ask(dict.fromkeys(who, request), seconds=60.0)
            modes.update(answer["mode"] for answer in answers.values())
            return [
                answers[d]["amount"] / float(np.percentile(answers[d]["seconds"], 25)) for d in who
            ]

        alone, together = {}, {}
        for what in WORKS:
            if on_step is not None:
                on_step(f"{what} on each worker and on all")
            rates(what, everyone, lead=0.0)  # what is imported and allocated now is not timed
            turns = [([rates(what, [d])[0] for d in everyone], rates(what, everyone)) for _ in range(TURNS)]
            alone[what] = tuple(max(each[d] for each, _ in turns) for d in everyone)
            together[what] = tuple(max((both for _, both in turns), key=sum))
        launches = tuple(1.0 / rates("call", [d])[0] for d in everyone)
        links = measure_links(probes, on_step=on_step) if len(workers) > 1 else ()
    return MeasuredMachine(
        tuple(workers), alone, together, launches, links, "fifo" if modes == {"fifo"} else "normal"
    )


def rates_text(machine: MeasuredMachine, look: Look) -> list[str]:
    """What workers do per second, alone and together, and the links between them."""
    rows = [
        [worker.name, ",".join(map(str, worker.cores)), f"{machine.alone['gemm'][d] / 1e9:.1f}",
         f"{machine.together['gemm'][d] / 1e9:.1f}", f"{machine.alone['memcpy'][d] / 1e9:.1f}",
         f"{machine.together['memcpy'][d] / 1e9:.1f}"]
        for d, worker in enumerate(machine.workers)
    ]  # fmt: skip
    columns = [
        Column("device", least=12), Column("cores"), Column("GEMM", "GFLOP/s", right=True),
        Column("all at once", "GFLOP/s", right=True), Column("memory", "GB/s", right=True),
        Column("all at once", "GB/s", right=True),
    ]  # fmt: skip
    lines = table(columns, rows, look)
    links = [
        [f"{one.first} <-> {one.second}", f"{one.latency_seconds * 1e6:.1f}", f"{one.bytes_per_second / 1e9:.2f}",
         f"{one.residual:.0%}", str(one.lost)]
        for one in machine.links
    ]  # fmt: skip
    heads = [
        Column("link", least=16), Column("latency", "us", right=True), Column("bandwidth", "GB/s", right=True),
        Column("error of fit", right=True), Column("lost", right=True),
    ]  # fmt: skip
    return [*lines, "", *table(heads, links, look)] if links else lines


def _three_digits(number: float) -> float:
    """More would be noise."""
    return float(f"{number:.3g}")
