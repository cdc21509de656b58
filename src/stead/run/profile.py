"""Profiles: every operator timed in place, on every worker, in bursts that take turns.

Notation    r run, v operator, s[r, v] seconds of an operator in a whole run
    total[r]    sum over v of s[r, v]
    seconds[v]  median of s[r, v] over the faster half of the runs, by their totals: other programs only slow runs
                down, and what a run lost to them it lost in some of its operators. Minima of single operators would
                add up to less than any run takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.costs import ErrorBar, MachineProfile, Profile, Source
from stead.costs.machine_profile import UNSTEADY, LinkSample
from stead.errors import RunFailed
from stead.graph import Graph
from stead.printing.look import Look
from stead.printing.table import Column, in_seconds, table
from stead.run.executor import Executor

REPEATS, BURSTS = 6, 6
LEAST_RUNS = 5
_SHOWN_KINDS = 6


@dataclass(frozen=True, slots=True)
class Timings:
    """All runs on one worker."""

    device: str
    seconds: NDArray[np.float64]  # [run, operator]

    @property
    def totals(self) -> NDArray[np.float64]:  # [run]
        """Seconds of whole runs."""
        totals: NDArray[np.float64] = self.seconds.sum(axis=1)
        return totals

    @property
    def total(self) -> ErrorBar:
        """What whole runs say."""
        return ErrorBar.of(self.totals)

    @property
    def operators(self) -> NDArray[np.float64]:  # [operator]
        """Seconds of every operator: its median over the faster half of the runs."""
        return self.of_fastest(0.5)

    def of_fastest(self, share: float) -> NDArray[np.float64]:  # [operator]
        """Seconds of every operator: its median over that share of the runs, the fastest by their totals."""
        order = np.argsort(self.totals, kind="stable")
        faster = self.seconds[order[: max(1, math.ceil(share * len(order)))]]
        typical: NDArray[np.float64] = np.median(faster, axis=0)
        return typical

    def profile(self, graph: Graph) -> Profile:
        """As costs are made from it."""
        names, runs = graph.operator_names, len(self.seconds)
        bars = {name: ErrorBar.of(self.seconds[:, v]) for v, name in enumerate(names)}
        by_name = dict(zip(names, self.operators.tolist(), strict=True))
        samples = dict.fromkeys(names, runs)
        return Profile(
            self.device, by_name, {}, samples, Source.MEASURED, "stead profile", error_bars=bars, total=self.total
        )


def take_timings(
    executor: Executor,
    *,
    repeats: int = REPEATS,
    bursts: int = BURSTS,
    on_step: Callable[[str], None] | None = None,
) -> tuple[Timings, ...]:
    """Time every operator on every worker: `bursts` of `repeats` whole runs, workers taking turns.

    A burst that was lost adds nothing; too few runs in all are an error.
    """
    runs: list[list[NDArray[np.float64]]] = [[] for _ in executor.workers]
    for number in range(bursts):
        for d, worker in enumerate(executor.workers):
            if on_step is not None:
                on_step(f"profile of {worker.name}, burst {number + 1} of {bursts}")
            runs[d].append(np.asarray(executor.profile(d, repeats=repeats), dtype=np.float64))
    taken = []
    for worker, parts in zip(executor.workers, runs, strict=True):
        seconds = np.concatenate(parts, axis=0)
        if len(seconds) < min(LEAST_RUNS, repeats * bursts):
            raise RunFailed(
                f"insufficient: only {len(seconds)} of {repeats * bursts} runs on {worker.name} were undisturbed; "
                "profile again when the machine is less busy, or with more --bursts"
            )
        taken.append(Timings(worker.name, seconds))
    return tuple(taken)


def unsteady(timings: Sequence[Timings]) -> tuple[str, ...]:
    """A sentence for every device whose runs differ too much to build on."""
    return tuple(
        f"unsteady: runs on {one.device} spread by {one.total.relative_spread:.0%} of their median, more than "
        f"{UNSTEADY:.0%}; profile again when the machine is quiet"
        for one in timings
        if one.total.relative_spread > UNSTEADY
    )


def machine_profile(
    executor: Executor,
    timings: Sequence[Timings],
    cluster: Cluster,
    *,
    links: Sequence[LinkSample] = (),
    made: Mapping[str, str] | None = None,
    warnings: Sequence[str] = (),
) -> MachineProfile:
    """What was measured, as a file holds it."""
    profiles = tuple(one.profile(executor.graph) for one in timings)
    return MachineProfile(cluster, profiles, tuple(links), dict(made or {}), (*warnings, *unsteady(timings)))


def profile_text(profile: MachineProfile, graph: Graph, look: Look) -> list[str]:
    """Totals per device, and the kinds of operators that take longest."""
    totals = [one.total for one in profile.profiles if one.total is not None]
    unit = in_seconds(max(bar.median_seconds for bar in totals))
    rows = [
        [one.device, str(bar.samples), unit(bar.minimum_seconds), unit(bar.quartile_seconds), unit(bar.median_seconds),
         f"{bar.relative_spread:.1%}"]
        for one, bar in zip(profile.profiles, totals, strict=True)
    ]  # fmt: skip
    columns = [
        Column("device", least=12), Column("runs", right=True), Column("minimum", unit.unit, right=True),
        Column("quartile", unit.unit, right=True), Column("median", unit.unit, right=True),
        Column("spread", right=True),
    ]  # fmt: skip
    return [*table(columns, rows, look), "", *table(*_kinds(profile, graph), look)]


def _kinds(profile: MachineProfile, graph: Graph) -> tuple[list[Column], list[list[str]]]:
    """Kinds of operators with the most time on the first device, and what each device spends on them."""
    by_kind: dict[str, list[int]] = {}
    for v, kind in enumerate(graph.kinds):
        by_kind.setdefault(kind, []).append(v)
    columns_of = [one.column(graph) for one in profile.profiles]
    spent = {kind: [float(column[own].sum()) for column in columns_of] for kind, own in by_kind.items()}
    slowest = sorted(spent, key=lambda kind: (-spent[kind][0], kind))[:_SHOWN_KINDS]
    unit = in_seconds(max(spent[slowest[0]]))
    whole = sum(values[0] for values in spent.values())
    rows = [
        [kind, str(len(by_kind[kind])), *(unit(seconds) for seconds in spent[kind]), f"{spent[kind][0] / whole:.0%}"]
        for kind in slowest
    ]
    devices = [Column(one.device, unit.unit, right=True) for one in profile.profiles]
    share = Column("share", right=True)
    return [Column("kind", least=20), Column("operators", right=True), *devices, share], rows
