"""What crossings cost in place: two constants of all links, fitted to a few placements that are used for nothing else.

Messages between idle workers (link_times.py) stay in caches that a model needs for itself, and nobody computes with
them. In a model, slots have left the caches since the last step, and the first operator that reads one waits for it.
So a few random placements p are run beside one device alone, and

    minimise    sum over p of log(predicted[p] / measured[p])^2 + RIDGE * (log2(a)^2 + log2(b)^2)
    over        a * latency, b * seconds per byte of what messages took

where measured is the fastest run, by how far one device alone is from its own prediction: a machine that is slower now
than during its profile is so for all of them. The ridge keeps what placements say nothing about at 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.costs import Costs
from stead.errors import RunFailed
from stead.graph import Graph
from stead.problem import Latency, Placement, Problem
from stead.run.executor import Executor
from stead.run.predict import predict
from stead.run.profile import Timings
from stead.run.trials import runs_within

PLACEMENTS = 4
ROUNDS = 2
RUNS = 4
RIDGE = 1e-4
LATENCIES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FACTORS = tuple(2.0 ** (step / 4) for step in range(-4, 13))  # 0.5 to 8


@dataclass(frozen=True, slots=True)
class InPlace:
    """Links as a model finds them."""

    cluster: Cluster
    latency_factor: float  # by messages
    byte_factor: float
    placements: int  # that could be timed
    error_before: float  # root mean square of log(predicted / measured)
    error_after: float
    warnings: tuple[str, ...] = ()
    fitted_to: tuple[Placement, ...] = ()

    @property
    def figures(self) -> dict[str, float]:
        """What was found, by name."""
        return {
            "latency_factor": self.latency_factor, "byte_factor": self.byte_factor, "placements": self.placements,
            "error_before": self.error_before, "error_after": self.error_after,
        }  # fmt: skip

    @property
    def text(self) -> list[str]:
        """What was found, in a line; none where nothing was run."""
        if not self.placements:
            return []
        return [
            f"in place   {self.byte_factor:.2g}x the seconds per byte and {self.latency_factor:.2g}x the latency of "
            f"messages: {self.placements} random placements are off by {self.error_after:.1%} instead of "
            f"{self.error_before:.1%}"
        ]


def crossings_in_place(
    executor: Executor,
    timings: Sequence[Timings],
    cluster: Cluster,
    *,
    graph: Graph | None = None,
    seed: int = 15,
    on_step: Callable[[str], None] | None = None,
) -> InPlace:
    """Correct the links of a cluster by running some random placements; `graph` may say what stays together."""
    kernels: Callable[[], Graph] | None = getattr(executor, "as_kernels", None)
    if graph is None:
        graph = kernels() if kernels else executor.graph
    seconds = np.stack([one.operators for one in timings], axis=1)
    problem = Problem(graph, cluster, Costs(graph, cluster, seconds), objective=Latency())
    if len(cluster) < 2:
        return InPlace(cluster, 1.0, 1.0, 0, 0.0, 0.0)
    random = np.random.default_rng(seed)
    placements = [
        Placement(problem, drawn_together(graph, random.integers(0, len(cluster), len(graph))))
        for _ in range(PLACEMENTS)
    ]
    return fitted(problem, placements, _fastest(executor, problem, placements, on_step))


def links_in_place(
    executor: Executor,
    timings: Sequence[Timings],
    cluster: Cluster,
    *,
    on_step: Callable[[str], None] | None = None,
) -> InPlace:
    """The same; links as messages found them, with a warning, where no placement could be timed."""
    try:
        return crossings_in_place(executor, timings, cluster, on_step=on_step)
    except RunFailed as error:
        return InPlace(cluster, 1.0, 1.0, 0, 0.0, 0.0, (f"links are those of messages: {error}",))


def drawn_together(graph: Graph, devices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same with operators that belong together on the device of the first of them."""
    made = devices.copy()
    for group in range(len(graph.colocation_names)):
        members = np.flatnonzero(graph.colocation == group)
        made[members] = devices[members[0]]
    return made


def fitted(problem: Problem, placements: Sequence[Placement], measured: Sequence[float]) -> InPlace:
    """Links that explain measured seconds best; not a finite number is a placement that could not be timed.

    Placements may be of a problem with other costs: they were run in the order that these give.
    """
    known = [(one, seconds) for one, seconds in zip(placements, measured, strict=True) if math.isfinite(seconds)]
    if not known:
        raise RunFailed("crossings could not be timed: every burst was lost; try again when the machine is less busy")

    def off(a: float, b: float) -> float:
        changed = _scaled(problem, a, b)
        logs = [math.log(predict(changed, one, ordered_by=one.problem).seconds / seconds) for one, seconds in known]
        return sum(log * log for log in logs)

    factors = list(itertools.product(LATENCIES, FACTORS))
    errors = [off(a, b) for a, b in factors]
    costs = [
        error + RIDGE * (math.log2(a) ** 2 + math.log2(b) ** 2) for error, (a, b) in zip(errors, factors, strict=True)
    ]
    best = int(np.argmin(costs))
    a, b = factors[best]
    before, after = (math.sqrt(error / len(known)) for error in (off(1.0, 1.0), errors[best]))
    return InPlace(_scaled(problem, a, b).cluster, a, b, len(known), before, after, fitted_to=tuple(placements))


def _scaled(problem: Problem, latency: float, per_byte: float) -> Problem:
    cluster = replace(
        problem.cluster,
        links=tuple(
            replace(
                link, latency_seconds=float(f"{latency * link.latency_seconds:.3g}"),
                bytes_per_second=float(f"{link.bytes_per_second / per_byte:.3g}"),
            )
            for link in problem.cluster.links
        ),
    )  # fmt: skip
    return Problem(
        problem.graph, cluster, Costs(problem.graph, cluster, problem.costs.seconds), objective=problem.objective
    )


def _fastest(
    executor: Executor,
    problem: Problem,
    placements: Sequence[Placement],
    on_step: Callable[[str], None] | None,
) -> list[float]:
    """The fastest run of each, corrected by how far every device alone is from its prediction."""
    count = len(problem.graph)
    alone = [Placement(problem, np.full(count, d)) for d in range(len(problem.cluster))]
    everyone = [*alone, *placements]
    found = [math.inf] * len(everyone)
    for number in range(ROUNDS):
        if on_step is not None:
            on_step(f"crossings in place, round {number + 1} of {ROUNDS}")
        for i, placement in enumerate(everyone):
            expected = predict(problem, placement).seconds
            burst = executor.burst(placement, runs=runs_within(expected, RUNS))
            if not burst.lost and burst.seconds:
                found[i] = min(found[i], *burst.seconds)
    offs = [
        math.log(seconds / predict(problem, one).seconds)
        for one, seconds in zip(alone, found[: len(alone)], strict=True)
        if math.isfinite(seconds)
    ]
    drift = math.exp(float(np.mean(offs))) if offs else 1.0
    return [seconds / drift if math.isfinite(seconds) else math.nan for seconds in found[len(alone) :]]
