"""Integer programs: one description, two engines (CP-SAT and HiGHS), and a search that listens while they run.

A solver describes its model once, in whole numbers, as a `Program`; `run` has an engine solve it and hands every
incumbent to `Search.offer` and every bound to `Search.raise_bound` while the engine works.

Notation
    variable    an index given by `Program.binary` or `Program.integer`
    literal     a binary variable v, or its negation ~v
    units       what the objective is counted in: a whole number of ticks, chosen by `Scale`
"""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.problem import Order
from stead.problem.ticks import TICKS_PER_SECOND
from stead.solvers.search_state import Search

Engine = Literal["cp-sat", "highs"]
Status = Literal["optimal", "infeasible", "stopped"]
MOST_UNITS = 2**53  # totals above it are neither exact in a double nor safe in sums of 64 bits
FINEST_STEP = 1e-7  # of the upper bound, where ticks must be rounded
AT_MOST = 1 + 1e-9  # times a known value: greater bounds are not believed
POLL_SECONDS = 0.05
STOP_SECONDS = 0.5  # an engine that was told to stop and has not after this time is left to end by itself
LAST_SECONDS = 10.0  # the same at the end of the process
COUNTED_EFFORT = 120.0  # of an engine where the budget counts evaluations and nothing else limits its work


@dataclass(frozen=True, slots=True)
class Scale:
    """Ticks per unit of a program; where it does not divide all ticks, `down` rounds so that bounds stay valid."""

    step: int
    exact: bool

    @staticmethod
    def of(ticks: Iterable[NDArray[np.int64]], *, upper: int) -> Scale:
        """The greatest common divisor of all ticks; a coarser step only where totals would become too large."""
        step, total = 0, 0
        for array in ticks:
            given = array[array > 0]
            if given.size:
                step = math.gcd(step, int(np.gcd.reduce(given)))
                total += int(given.sum(dtype=object))
        step = max(step, 1)
        if total // step <= MOST_UNITS:
            return Scale(step, True)
        return Scale(max(step, int(upper * FINEST_STEP)), False)

    def down(self, ticks: int | np.int64) -> int:
        """Whole units in so many ticks."""
        return int(ticks) // self.step

    def up(self, ticks: int | np.int64) -> int:
        """Units that hold so many ticks."""
        return -(-int(ticks) // self.step)

    def seconds(self, units: int) -> float:
        """Seconds that so many units stand for."""
        return units * self.step / TICKS_PER_SECOND


@dataclass(slots=True)
class Row:
    """low <= sum of coefficients x variables <= high, wherever all literals of `when` are true."""

    variables: list[int]
    coefficients: list[int]
    low: int | None
    high: int | None
    when: tuple[int, ...]


@dataclass(slots=True)
class Interval:
    """A task from `start` to `start + size`; with `present` only where that literal is true."""

    start: int
    size: int
    end: int
    present: int | None


@dataclass(slots=True)
class Program:
    """Whole-number variables, linear rows, clauses, and one linear objective to minimise.

    >>> program = Program()
    >>> a, b = program.binary(), program.binary()
    >>> program.clause([a, b])
    >>> program.minimise([a, b], [3, 2])
    >>> len(program), program.most([a, b], [3, -2])
    (2, 3)
    """

    low: list[int] = field(default_factory=list)  # [variable]
    high: list[int] = field(default_factory=list)  # [variable]
    implied: list[bool] = field(default_factory=list)  # [variable]; whole by itself once all others are
    rows: list[Row] = field(default_factory=list)
    clauses: list[list[int]] = field(default_factory=list)  # literals
    choices: list[list[int]] = field(default_factory=list)  # binary variables
    intervals: list[Interval] = field(default_factory=list)
    apart: list[list[int]] = field(default_factory=list)  # intervals
    objective: tuple[list[int], list[int]] = ([], [])
    hint: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.low)

    def binary(self, *, implied: bool = False) -> int:
        """A variable that is 0 or 1; `implied` if an engine may treat it as continuous."""
        return self.integer(0, 1, implied=implied)

    def integer(self, low: int, high: int, *, implied: bool = False) -> int:
        """A whole number between two others."""
        self.low.append(low)
        self.high.append(high)
        self.implied.append(implied)
        return len(self.low) - 1

    def row(
        self,
        variables: Sequence[int],
        coefficients: Sequence[int],
        *,
        low: int | None = None,
        high: int | None = None,
        when: Sequence[int] = (),
    ) -> None:
        """Demand low <= sum <= high, wherever all literals of `when` are true."""
        kept = [(v, c) for v, c in zip(variables, coefficients, strict=True) if c]
        self.rows.append(Row([v for v, _ in kept], [c for _, c in kept], low, high, tuple(when)))

    def clause(self, literals: Sequence[int]) -> None:
        """Demand that one of the literals is true."""
        self.clauses.append(list(literals))

    def implies(self, literal: int, other: int) -> None:
        """Demand that where the first literal is true the other is."""
        self.clauses.append([~literal, other])

    def exactly_one(self, variables: Sequence[int]) -> None:
        """Demand that exactly one of the binary variables is 1."""
        self.choices.append(list(variables))

    def fix(self, variable: int, value: int) -> None:
        """Leave a variable only one value."""
        self.low[variable] = self.high[variable] = value

    def minimise(self, variables: Sequence[int], coefficients: Sequence[int]) -> None:
        """Set what is minimised."""
        self.objective = list(variables), list(coefficients)

    def interval(self, start: int, size: int, end: int, *, present: int | None = None) -> int:
        """A task between two variables, for `no_overlap`; only CP-SAT knows tasks."""
        self.intervals.append(Interval(start, size, end, present))
        return len(self.intervals) - 1

    def no_overlap(self, intervals: Sequence[int]) -> None:
        """Demand that tasks run one at a time."""
        self.apart.append(list(intervals))

    def least(self, variables: Sequence[int], coefficients: Sequence[int]) -> int:
        """The least value that bounds of variables leave to a sum."""
        return sum(
            c * (self.low[v] if c > 0 else self.high[v]) for v, c in zip(variables, coefficients, strict=True)
        )

    def most(self, variables: Sequence[int], coefficients: Sequence[int]) -> int:
        """The greatest value that bounds of variables leave to a sum."""
        return -self.least(variables, [-c for c in coefficients])


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What an engine says about a program; `values` is its last incumbent."""

    status: Status
    bound: int  # units; no solution of the program is below
    values: NDArray[np.int64] | None = None  # [variable]


@dataclass(frozen=True, slots=True, eq=False)
class Incumbent:
    """A solution of the program, reported while the engine runs."""

    values: NDArray[np.int64]  # [variable]


@dataclass(frozen=True, slots=True)
class Proved:
    """A bound in units, reported while the engine runs."""

    bound: int


Report = Callable[[Incumbent | Proved], None]


class Backend(Protocol):
    """One engine at work on one program."""

    def solve(self, report: Report) -> Outcome:
        """Solve, calling `report` on the way; runs in a thread of its own."""

    def stop(self) -> None:
        """Make `solve` return soon; callable from any thread."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine is run: one thread and a fixed seed by default, so that its answer can be repeated."""

    engine: Engine = "cp-sat"
    seed: int = 0
    workers: int = 1
    effort: float | None = None  # limit in seconds of work that the engine counts itself; None is no limit
    relaxes: bool = True  # whether CP-SAT looks at fractions, too; counting alone is quicker where few units are large


def run(
    program: Program,
    search: Search,
    settings: Settings,
    *,
    place: Callable[[NDArray[np.int64]], NDArray[np.uint8]],
    bound_seconds: Callable[[int], float] | None,
    bound_name: str,
    order: Callable[[NDArray[np.int64]], Order] | None = None,
) -> Outcome:
    """Solve a program within the budget of a search, which hears of every incumbent and every bound.

    `place` turns values of variables into a placement, and `order` into the order in which it is to run, which is
    then tried beside the policy's own. `bound_seconds` turns a bound in units into seconds; None if
    the program leaves out placements that the bound of the search must hold for. An engine that calls a program
    infeasible or proves a bound above a known value is not believed: the caller passes only programs that contain
    the incumbent it knows, if it knows one. Where evaluations are counted, the engine counts its work, too, so that
    what it finds does not depend on the speed of the machine.
    """
    if search.counts:
        given = COUNTED_EFFORT if settings.effort is None else settings.effort
        settings = replace(settings, effort=min(given, search.effort))
    left = None if search.budget.seconds is None else search.remaining_seconds
    backend = make_backend(program, settings, left)
    listener = _Listener(search, place, bound_seconds, bound_name, order)
    outcome = _listen(backend, search, listener)
    if outcome.status == "infeasible" and program.hint:
        search.notes.append(f"{settings.engine} calls a program infeasible that has a known solution")
        return Outcome("stopped", 0)
    if outcome.values is not None and not search.done:  # how far an engine comes that is told to stop is chance
        listener.hear(Incumbent(outcome.values))
    listener.hear(Proved(outcome.bound))
    return outcome


def make_backend(program: Program, settings: Settings, seconds: float | None) -> Backend:
    """The engine of that name on a program, limited to so many seconds."""
    if settings.engine == "cp-sat":
        from stead.solvers.exact.programs.cp_sat import CpSat

        return CpSat(program, settings, seconds)
    if settings.engine == "highs":
        from stead.solvers.exact.programs.highs import HiGHS

        return HiGHS(program, settings, seconds)
    raise BadInput(f"engine is one of cp-sat, highs; got {settings.engine!r}")


@dataclass(slots=True)
class _Listener:
    """Hands what an engine reports to the search."""

    search: Search
    place: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    bound_seconds: Callable[[int], float] | None
    bound_name: str
    order: Callable[[NDArray[np.int64]], Order] | None = None
    heard: bytes = b""
    doubted: bool = False

    def hear(self, message: Incumbent | Proved) -> None:
        if isinstance(message, Proved):
            if self.bound_seconds is not None and message.bound > 0:
                self._raise_bound(self.bound_seconds(message.bound))
            return
        if message.values.tobytes() == self.heard:
            return
        self.heard = message.values.tobytes()
        devices = self.place(message.values)
        if self.search.best is None or not np.array_equal(devices, self.search.best):
            self.search.offer(devices)
        if self.order is not None:
            self.search.offer(devices, order=self.order(message.values))

    def _raise_bound(self, seconds: float) -> None:
        if seconds <= self.search.best_seconds * AT_MOST:
            self.search.raise_bound(seconds, self.bound_name)
        elif not self.doubted:
            self.doubted = True
            self.search.notes.append(f"{self.bound_name}: a bound of {seconds} s is above a known value")


def _listen(backend: Backend, search: Search, listener: _Listener) -> Outcome:
    """Run the engine in a thread and hear it from this one, so that Ctrl-C arrives and callbacks may raise."""
    messages: SimpleQueue[Incumbent | Proved] = SimpleQueue()
    results: list[Outcome] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            results.append(backend.solve(messages.put))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="integer program", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            _hear_all(messages, search, listener, wait=POLL_SECONDS)
            if search.done:
                break
    finally:
        _stopped(backend, thread)
    _hear_all(messages, search, listener)
    if failures:
        raise failures[0]
    if search.counts and search.remaining_evaluations == 0:
        return Outcome("stopped", 0)  # how far the engine came since is a matter of speed
    return results[0] if results else Outcome("stopped", 0)


def _hear_all(
    messages: SimpleQueue[Incumbent | Proved], search: Search, listener: _Listener, *, wait: float = 0.0
) -> None:
    """Hear everything that was reported, waiting a moment for the first message."""
    while not search.done:
        try:
            message = messages.get(timeout=wait) if wait else messages.get_nowait()
        except Empty:
            return
        wait = 0.0
        listener.hear(message)


_LEFT: list[tuple[Backend, threading.Thread]] = []  # engines that were told to stop and have not


def _stopped(backend: Backend, thread: threading.Thread, seconds: float = STOP_SECONDS) -> None:
    """Tell the engine to stop until it has; HiGHS does not listen while it solves a relaxation."""
    for _ in range(math.ceil(seconds / POLL_SECONDS)):
        if not thread.is_alive():
            return
        backend.stop()
        thread.join(POLL_SECONDS)
    _LEFT.append((backend, thread))


@atexit.register
def _end_engines() -> None:
    """Wait for engines at the end of the process: one that still runs while the interpreter is taken down aborts it."""
    for backend, thread in _LEFT[:]:
        _stopped(backend, thread, LAST_SECONDS)
