"""How time is taken honestly: real-time bursts where they are permitted, and what else the machine did meanwhile.

    fifo      real-time scheduling, for less than 0.85 s at a time: the kernel stops real-time threads at 0.95 s
    quiet     not permitted, and nobody else was there: the plain clock
    cputime   not permitted on a busy machine: processor time of each part, put together without waiting
    disturbed the plain clock on a busy machine, where times cannot be put together: no gain is told from it
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from stead.run.executor import Burst, Contention

BURST_SECONDS = 0.85
PAUSE_SECONDS = 0.3
QUIET_SWITCHES_PER_SECOND = 50  # more than that is a busy machine
MAIN_PRIORITY, OTHER_PRIORITY = 10, 20  # helpers above the main thread, or what it waits for never runs


def threads() -> list[int]:
    """The threads of this process."""
    try:
        return sorted(int(entry) for entry in os.listdir("/proc/self/task"))
    except OSError:
        return [0]


def in_real_time(among: Iterable[int]) -> list[int]:
    """Threads that are in a real-time class now."""
    found = []
    for thread in among:
        try:
            if os.sched_getscheduler(thread) in (os.SCHED_FIFO, os.SCHED_RR):
                found.append(thread)
        except OSError:  # it has ended
            continue
    return found


class RealTime:
    """Real-time scheduling for all threads of this process while it is open; `granted` says whether it came true."""

    def __init__(self, wanted: bool = True) -> None:
        self.wanted = wanted
        self.granted = False

    def __enter__(self) -> Self:
        if self.wanted:
            self.granted = self._raise()
            if not self.granted:
                self.leave()
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Normal scheduling for all threads; more than once does no harm."""
        if not hasattr(os, "sched_setscheduler"):
            return
        for thread in in_real_time(threads()):
            try:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
            except OSError:
                continue

    def _raise(self) -> bool:
        if not hasattr(os, "sched_setscheduler"):
            return False
        main, found = os.getpid(), threads()
        try:
            for thread in found:
                priority = MAIN_PRIORITY if thread == main else OTHER_PRIORITY
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))
        except OSError:
            return False
        return in_real_time(found) == found  # it can fail without a word


def real_time_is_permitted() -> bool:
    """Whether this process may run in real time."""
    with RealTime() as tried:
        return tried.granted


def involuntary_switches() -> int:
    """How often this process was interrupted so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def system_seconds(cores: Iterable[int]) -> float:
    """What some cores have spent in the system so far, for anybody: in calls, interrupts and what follows them.

    Zero where the system does not tell.
    """
    names = {f"cpu{core}" for core in cores}
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return 0.0
    ticks = 0
    for line in lines:
        name, _, told = line.partition(" ")
        if name in names:
            _, _, system, _, _, hard, soft, *_ = map(int, told.split())
            ticks += system + hard + soft
    return ticks / os.sysconf("SC_CLK_TCK")


def was_busy(contention: Contention, seconds: float) -> bool:
    """Whether others were at work on the machine in so many seconds."""
    limit = max(2.0, QUIET_SWITCHES_PER_SECOND * seconds)
    return contention.steal_ticks > 0 or contention.involuntary_switches > limit


def by_plain_clock(burst: Burst) -> Burst:
    """A burst that only the plain clock timed, called disturbed where others were at work meanwhile."""
    seconds = sum(burst.seconds) + burst.first_seconds
    busy = burst.timing_mode == "quiet" and was_busy(burst.contention, seconds)
    return replace(burst, timing_mode="disturbed") if busy else burst


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the machine says about itself at one moment."""

    load_average: float
    steal_ticks: int

    @staticmethod
    def now() -> Surroundings:
        """The present moment."""
        try:
            load = os.getloadavg()[0]
        except OSError:
            load = 0.0
        try:
            fields = Path("/proc/stat").read_text().partition("\n")[0].split()
            steal = int(fields[8]) if len(fields) > 8 else 0
        except (OSError, ValueError):
            steal = 0
        return Surroundings(load, steal)

    def until(self, later: Surroundings, switches: int) -> Contention:
        """What happened until a later moment; `switches` are those of all workers."""
        return Contention(later.load_average, max(0, later.steal_ticks - self.steal_ticks), switches)

    def until_now(self, switches: int) -> Contention:
        """What happened on this machine since."""
        return self.until(Surroundings.now(), switches)
