"""List scheduling: one operator after another goes where it finishes or starts first, on a growing time line.

The native core builds devices and an order together; transfers, contention and the memory of weights and long-lived
tensors are kept while it goes (see core/build/list_schedule.h). A latency answer carries the order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import BadInput
from stead.problem import Latency, Problem
from stead.sim import simulate_many
from stead.solvers.build.chunks import Chunks
from stead.solvers.build.schedules import (
    Schedule,
    groupings,
    offer_fitting,
    offer_schedule,
    tied_units,
    unrolled_groupings,
)
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

AVERAGES = ("mean", "min", "best")
BIASES = (1.0, 2.0, 4.0, 0.5, 10.0)
AT_ONCE = 4  # variants between two looks at the clock
OFFERED = 6  # of the variants for latency, whose length the core already knows
NO_LIMIT = 2**62
NOT_BUILT = -2  # of the core, for ticks: time was up before
LEAST_SECONDS = 0.5  # for the first variants, whatever the time limit: an answer is better than none
MOST_RETRIES = 3
DRAWN_RULES = ("heft", "peft", "etf", "sct", "dfs-sticky")
DRAWN_BIASES = (-1.0, 3.5)  # powers of two


@dataclass(frozen=True, slots=True)
class Variant:
    """How the core builds one schedule."""

    rule: str
    bias: float  # weight of a transfer when devices are compared
    average: str = "mean"  # of costs for ranks
    insertion: bool = True  # fill gaps between operators
    foresight: float = 0.0  # weight of the work that a unit brings later
    thrift: float = 0.0  # weight of time on a device that others would make better use of

    @property
    def native(self) -> _native.ListVariant:
        """The same as the core takes it."""
        return _native.ListVariant(
            rule=self.rule,
            bias=self.bias,
            average=self.average,
            insertion=self.insertion,
            foresight=self.foresight,
            thrift=self.thrift,
        )

    def __str__(self) -> str:
        return f"{self.rule} x{self.bias:g}" + ("" if self.average == "mean" else f" {self.average}")


@few_devices
@dataclass(frozen=True, slots=True)
class _ListRule(ABC):
    """What all rules share: build all variants, offer the best, make the best one fit if none does."""

    bias: float = 0.0  # weight of a transfer when devices are compared; 0: a family of weights
    tied: bool = True  # for training, also with backward operators bound to their forward operators

    def __post_init__(self) -> None:
        if not 0 <= self.bias <= 1000:
            raise BadInput(f"{self.name} needs a bias between 0 and 1000, got {self.bias}")

    @property
    @abstractmethod
    def name(self) -> str:
        """The name it is called by."""

    @abstractmethod
    def variants(self) -> list[Variant]:
        """What the core builds, the most promising first."""

    @property
    def keeps_memory(self) -> bool:
        """Whether devices that are full are avoided from the start."""
        return True

    @property
    def foresees(self) -> bool:
        """Whether the work that a unit brings later can count when its device is chosen."""
        return all(variant.rule not in ("etf", "sct") for variant in self.variants())

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Build all variants, score the most promising ones."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            found: list[tuple[int, Schedule]] = []
            for unit_of, foresight in self._groupings(problem):
                if found and search.done:
                    break
                found += self._built(search, unit_of, foresight, anything=not found)
            ranked = _distinct(sorted(found, key=lambda pair: pair[0]))
            for _, schedule in ranked[:OFFERED] if isinstance(problem.objective, Latency) else ranked:
                if search.current is not None and search.out_of_time:
                    break
                offer_schedule(search, schedule)
            if ranked and search.best is None and not search.done:
                self._make_fit(search, ranked[0][1], tied_units(problem))
        return search.solution()

    def _groupings(self, problem: Problem) -> Iterator[tuple[NDArray[np.int32], float]]:
        """(units, foresight) to build with: large units with and without regard to the work they bring later."""
        yield problem.units, 0.0
        for unit_of in _all_groupings(problem)[1:] if self.tied else []:
            yield unit_of, 0.0
            if self.foresees:
                yield unit_of, 1.0

    def _built(
        self, search: Search, unit_of: NDArray[np.int32], foresight: float, *, anything: bool
    ) -> list[tuple[int, Schedule]]:
        """(length, schedule) of every variant that there was time for; of some in any case if they are the first."""
        problem = search.problem
        variants = [replace(variant, foresight=foresight) for variant in self.variants()]
        if are_alike(problem):
            variants = [variant for variant in variants if variant.average == variants[0].average]
        limit = _usable(problem) if self.keeps_memory else np.full(len(problem.cluster), NO_LIMIT)
        found: list[tuple[int, Schedule]] = []
        for begin in range(0, len(variants), AT_ONCE):
            if search.done and (found or not anything):
                break
            least = LEAST_SECONDS if anything and not found else 0.0
            seconds = max(least, search.remaining_seconds)
            found += _schedules(problem, unit_of, variants[begin : begin + AT_ONCE], limit, seconds)
        return found

    def _make_fit(self, search: Search, schedule: Schedule, unit_of: NDArray[np.int32]) -> None:
        """Build again with as much less room as was missing, then move what is still too much."""
        problem, variant = search.problem, self.variants()[0]
        limit = _usable(problem)
        for _ in range(MOST_RETRIES):
            over = _over_bytes(search, schedule)
            if search.best is not None or search.done or not over.any():
                return
            limit = limit - over
            for _, schedule in _schedules(
                problem, unit_of, [variant], np.maximum(limit, 0), search.remaining_seconds
            ):
                offer_schedule(search, schedule)
        if search.best is None:
            offer_fitting(search, schedule, unit_of)
        if search.best is None and not search.done:
            search.notes.append("no schedule of its own fits into memory: chunks by bytes instead")
            search.try_solver(Chunks())


@dataclass(frozen=True, slots=True)
class Heft(_ListRule):
    """HEFT: by upward rank, where it finishes first, also in gaps (Topcuoglu, Hariri and Wu 2002).

    The family weighs transfers 0.5 to 10 times when devices are compared, against operators that leave their
    producer's device too easily, and takes ranks from mean costs, least costs and the costs of the best device.
    """

    name: ClassVar[str] = "heft"
    average: str = ""  # mean, min or best cost for ranks; empty: all three
    insertion: bool = True  # fill gaps between operators
    thrift: float = 0.0  # weight of time on a device that others would make better use of

    def __post_init__(self) -> None:
        _ListRule.__post_init__(self)
        if not 0 <= self.thrift <= 1000:
            raise BadInput(f"heft needs a thrift between 0 and 1000, got {self.thrift}")
        if self.average and self.average not in AVERAGES:
            raise BadInput(f"heft ranks by mean, min or best costs, got {self.average!r}")

    def variants(self) -> list[Variant]:
        """Every bias with every average."""
        averages = (self.average,) if self.average else AVERAGES
        return [
            Variant("heft", bias, average, self.insertion, thrift=self.thrift)
            for average in averages
            for bias in _biases(self.bias)
        ]


@dataclass(frozen=True, slots=True)
class Peft(_ListRule):
    """PEFT: like HEFT, with a table of what lies behind an operator at best (Arabnejad and Barbosa 2014)."""

    name: ClassVar[str] = "peft"

    def variants(self) -> list[Variant]:
        """Every bias."""
        return [Variant("peft", bias) for bias in _biases(self.bias)]


@dataclass(frozen=True, slots=True)
class Etf(_ListRule):
    """ETF: of all that is ready what can start first, wherever that is (Hwang et al. 1989); memory is repaired."""

    name: ClassVar[str] = "etf"

    @property
    def keeps_memory(self) -> bool:
        """It fills devices without looking."""
        return False

    def variants(self) -> list[Variant]:
        """Every bias."""
        return [Variant("etf", bias, insertion=False) for bias in _biases(self.bias)]


@dataclass(frozen=True, slots=True)
class MEtf(_ListRule):
    """m-ETF: ETF among the devices with room (Jeon et al., Baechi 2020)."""

    name: ClassVar[str] = "m-etf"

    def variants(self) -> list[Variant]:
        """Every bias."""
        return [Variant("etf", bias, insertion=False) for bias in _biases(self.bias)]


@dataclass(frozen=True, slots=True)
class MSct(_ListRule):
    """m-SCT: ETF among devices with room, where a device waits for the favourite child of what it ran last.

    Hanen and Munier (1995) and Baechi choose favourite children by a linear program; here they are matched greedily,
    the longest transfers first, each operator with one child and one parent at most.
    """

    name: ClassVar[str] = "m-sct"

    def variants(self) -> list[Variant]:
        """Every bias."""
        return [Variant("sct", bias, insertion=False) for bias in _biases(self.bias)]


@dataclass(frozen=True, slots=True)
class DfsSticky(_ListRule):
    """Depth first: a branch is followed to its end, on one device unless another finishes it clearly earlier."""

    name: ClassVar[str] = "dfs-sticky"

    def variants(self) -> list[Variant]:
        """Every bias."""
        return [Variant("dfs-sticky", bias) for bias in _biases(self.bias)]


def drawn_schedules(search: Search, count: int, *, part: int) -> list[Schedule]:
    """So many schedules by rules, weights of transfers and units that are drawn; `part` changes what is drawn.

    They are not offered: what search makes of them counts.
    """
    problem = search.problem
    rng = np.random.default_rng((search.seed, part, 2))
    units, drawn = _all_groupings(problem), []
    for _ in range(count):
        rule = DRAWN_RULES[rng.integers(len(DRAWN_RULES))]
        bias = float(2.0 ** rng.uniform(*DRAWN_BIASES))
        average = AVERAGES[rng.integers(len(AVERAGES))]
        insertion = rule not in ("etf", "sct")
        drawn.append((int(rng.integers(len(units))), Variant(rule, bias, average, insertion)))
    found: list[tuple[int, Schedule]] = []
    for number, unit_of in enumerate(units):
        variants = [variant for of, variant in drawn if of == number]
        if variants and not search.done:
            found += _schedules(problem, unit_of, variants, _usable(problem), search.remaining_seconds)
    return [schedule for ticks, schedule in _distinct(sorted(found, key=lambda pair: pair[0])) if ticks < NO_LIMIT]


def _all_groupings(problem: Problem) -> list[NDArray[np.int32]]:  # of [operator]
    """Units to build with, those of unrolled networks last."""
    return [*groupings(problem), *unrolled_groupings(problem)]


def are_alike(problem: Problem) -> bool:
    """Whether all devices take the same time for everything, so that all averages are the same."""
    seconds = problem.costs.seconds
    return bool((seconds == seconds[:, :1]).all() and problem.allowed.all())


def _biases(bias: float) -> tuple[float, ...]:
    return (bias,) if bias else BIASES


def _usable(problem: Problem) -> NDArray[np.int64]:  # [device]
    return np.array([device.usable_bytes for device in problem.cluster], dtype=np.int64)


def _schedules(
    problem: Problem,
    unit_of: NDArray[np.int32],
    variants: list[Variant],
    limit_bytes: NDArray[np.int64],
    seconds: float,
) -> list[tuple[int, Schedule]]:
    """(ticks, schedule) of every variant that is built in so many seconds; what cannot run counts as longest."""
    built = _native.list_schedules(
        problem.native,
        unit_of,
        variants=[variant.native for variant in variants],
        limit_bytes=limit_bytes,
        seconds=seconds,
    )
    return [
        (one.ticks if one.ticks >= 0 else NO_LIMIT, Schedule(one.devices, one.order, str(variant)))
        for one, variant in zip(built, variants, strict=True)
        if one.ticks != NOT_BUILT
    ]


def _distinct(found: list[tuple[int, Schedule]]) -> list[tuple[int, Schedule]]:
    """The first of equal placements."""
    seen: dict[bytes, tuple[int, Schedule]] = {}
    for pair in found:
        seen.setdefault(pair[1].devices.tobytes(), pair)
    return list(seen.values())


def _over_bytes(search: Search, schedule: Schedule) -> NDArray[np.int64]:  # [device]
    """What a schedule lacks under the policy of the objective; zeros if it cannot run at all."""
    peak = simulate_many(search.problem, schedule.devices[None, :], memory="peak").peak_bytes[0]
    over: NDArray[np.int64] = np.maximum(0, peak - _usable(search.problem))
    return over
