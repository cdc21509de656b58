"""Measuring: bursts of all candidates and of the simple alternatives, taking turns, held against predictions.

Every round runs a fixed reference (the first worker alone), every candidate and every alternative once, and at its end
the reference again. A machine that becomes slower slows all of them in the same rounds: gains are ratios within rounds,
and the drift of the reference is said. What the reference differs by from itself is noise, and so is a gain that is no
larger. A burst that was lost is run once more in its round, and counted; lost again, it is a missing sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stead.cluster import Cluster
from stead.costs import Costs
from stead.errors import BadInput, SteadError
from stead.problem import Placement, Problem
from stead.run.executor import Burst, Executor, Numerics, Worker
from stead.run.predict import Predicted
from stead.run.record import Alternatives, Gain, Measured, Record

BURSTS = 6
RUNS = 5
BURST_SECONDS = 0.85  # real-time scheduling is throttled beyond 0.95 s
LEAST_SAMPLES = 8  # of a pipeline

OpenOn = Callable[[tuple[Worker, ...]], Executor]  # the same model on other workers


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement to be measured, and what is thought of it."""

    name: str
    placement: Placement
    predicted: Predicted
    objective: str = "latency"  # or "throughput": as a pipeline
    also_predicted: Mapping[str, Predicted] = field(default_factory=dict)


@dataclass
class _Subject:
    """Something that is run once per round."""

    name: str
    burst: Callable[[], Burst]
    rounds: list[Burst] = field(default_factory=list)
    replaced: list[Burst] = field(default_factory=list)  # lost, and run again in their round

    def take(self) -> None:
        """Run it in this round; once more if it is lost, unless it was so twice in the round before."""
        burst = self.burst()
        if burst.lost and not (self.rounds and self.rounds[-1].lost):
            self.replaced.append(burst)
            burst = self.burst()
        self.rounds.append(burst)

    def typical(self, number: int) -> float:
        """Lower quartile of the runs of a round; NaN if it was lost."""
        burst = self.rounds[number]
        return math.nan if burst.lost or not burst.seconds else float(np.percentile(burst.seconds, 25))

    @property
    def measured(self) -> Measured:
        return Measured.of([*self.rounds, *self.replaced])


def runs_per_burst(seconds: float) -> int:
    """How many runs of so many seconds a burst may have, a warm-up apart.

    >>> runs_per_burst(0.1), runs_per_burst(0.2), runs_per_burst(2.0)
    (5, 3, 1)
    """
    return max(1, min(RUNS, math.floor(BURST_SECONDS / max(seconds, 1e-9)) - 1))


def measure(
    executor: Executor,
    candidates: Sequence[Candidate],
    *,
    single_predicted: Sequence[Predicted] = (),
    open_on: OpenOn | None = None,
    beside: Sequence[str] = ("replicas", "threads"),
    bursts: int = BURSTS,
    on_step: Callable[[str], None] | None = None,
    after_round: Callable[[tuple[Record, ...]], None] | None = None,
    circumstances: Mapping[str, Any] | None = None,
) -> tuple[Record, ...]:
    """Measure placements of one model beside each device alone, replicas and threads.

    `single_predicted` is what each device alone should take, in the order of workers: the gain that is predicted
    follows from it. `open_on` starts the same model on other workers; without it replicas and threads are left out, as
    is what `beside` does not name.
    `circumstances` are fields of `Record` that the caller knows (transport, versions, ...).
    """
    if not candidates:
        raise BadInput("nothing to measure: give at least one placement")
    with ExitStack() as stack:
        checks = [_checked(executor, one, on_step) for one in candidates]
        guesses: list[float | None] = [one.seconds for one in single_predicted]
        guesses = guesses or [None] * len(executor.workers)
        problem = candidates[0].placement.problem
        singles = [_single(executor, problem, d, guess) for d, guess in enumerate(guesses)]
        subjects = [_candidate(executor, one) for one in candidates]
        slowest = max((one.seconds for one in single_predicted), default=0.2)
        others, left_out = _alternatives(stack, executor, problem, open_on, on_step, slowest, beside)
        again = _single(executor, problem, 0, guesses[0])
        everyone = [*singles, *subjects, *others.values(), again]
        records: tuple[Record, ...] = ()
        for number in range(bursts):
            for subject in everyone:
                if on_step is not None:
                    on_step(f"round {number + 1} of {bursts}: {subject.name}")
                subject.take()
            if number == bursts - 1 or after_round is not None:
                simple = _beside(executor, singles, others, left_out)
                known = dict(circumstances or {})
                records = tuple(
                    _record(executor, one, subject, check, singles, again, simple, single_predicted, known)
                    for one, subject, check in zip(candidates, subjects, checks, strict=True)
                )
            if after_round is not None:
                after_round(records)
    return records


def _checked(executor: Executor, one: Candidate, on_step: Callable[[str], None] | None) -> Numerics:
    if on_step is not None:
        on_step(f"results of {one.name}")
    return executor.check(one.placement)


def _single(executor: Executor, problem: Problem, d: int, guess: float | None) -> _Subject:
    placement = Placement(problem, np.full(len(problem.graph), d))
    return _Subject(f"{executor.workers[d].name} alone", _bursts(executor, placement, guess))


def _candidate(executor: Executor, one: Candidate) -> _Subject:
    if one.objective == "throughput":
        most = max(LEAST_SAMPLES, math.floor(BURST_SECONDS / one.predicted.seconds) - 2)
        samples = min(4 * LEAST_SAMPLES, most)
        return _Subject(one.name, lambda: executor.pipeline(one.placement, samples=samples))
    return _Subject(one.name, _bursts(executor, one.placement, one.predicted.seconds))


def _bursts(executor: Executor, placement: Placement, guess: float | None = None) -> Callable[[], Burst]:
    """Bursts of one placement, as many runs as fit by what the last one took."""
    known = [guess]

    def burst() -> Burst:
        found = executor.burst(placement, runs=1 if known[0] is None else runs_per_burst(known[0]))
        if found.seconds and not found.lost:
            known[0] = max(found.seconds)
        return found

    return burst


def _alternatives(
    stack: ExitStack,
    executor: Executor,
    problem: Problem,
    open_on: OpenOn | None,
    on_step: Callable[[str], None] | None,
    guess: float,
    wanted: Sequence[str],
) -> tuple[dict[str, _Subject], dict[str, str]]:
    """Replicas and threads, with the reason where one cannot be had."""
    workers = executor.workers
    if open_on is None or len(workers) < 2:
        why = "there is one worker only" if len(workers) < 2 else "nobody asked for other processes"
        return {}, {"replicas": why, "threads": why}
    if on_step is not None:
        on_step("starting replicas and threads")
    found: dict[str, _Subject] = {}
    left_out = {name: "not asked for" for name in ("replicas", "threads") if name not in wanted}
    own: Callable[..., Burst] | None = getattr(executor, "replicas", None)
    try:
        if "replicas" in left_out:
            pass
        elif own is not None:
            found["replicas"] = _Subject("replicas", _forgiven(lambda: own(runs=runs_per_burst(guess))))
        else:
            copies = [stack.enter_context(open_on((worker,))) for worker in workers]
            pool = stack.enter_context(ThreadPoolExecutor(len(copies)))
            found["replicas"] = _Subject("replicas", _forgiven(_replicas(copies, problem, pool)))
    except SteadError as error:
        left_out["replicas"] = str(error)
    if "threads" in left_out:
        return found, left_out
    try:
        cores = tuple(core for worker in workers for core in worker.cores)
        whole = stack.enter_context(open_on((replace(workers[0], name="all cores", cores=cores),)))
        found["threads"] = _Subject("threads", _forgiven(_bursts(whole, _alone(problem))))
    except SteadError as error:
        left_out["threads"] = str(error)
    return found, left_out


def _replicas(copies: Sequence[Executor], problem: Problem, pool: ThreadPoolExecutor) -> Callable[[], Burst]:
    """All copies at once: seconds per result of all together."""
    placement = _alone(problem)
    each = [_bursts(one, placement) for one in copies]

    def burst() -> Burst:
        found = list(pool.map(lambda one: one(), each))
        lost = next((one.lost for one in found if one.lost or not one.seconds), None)
        if lost is not None:
            return Burst((), found[0].timing_mode, found[0].contention, lost or "a replica gave no time")
        together = zip(*(one.seconds for one in found), strict=False)
        per_result = tuple(1.0 / sum(1.0 / seconds for seconds in runs) for runs in together)
        return Burst(per_result, found[0].timing_mode, found[0].contention)

    return burst


def _forgiven(burst: Callable[[], Burst]) -> Callable[[], Burst]:
    """The same burst, lost where it fails: what stands beside a measurement must not end it."""

    def forgiving() -> Burst:
        try:
            return burst()
        except SteadError as error:
            return Burst((), "quiet", lost=str(error))

    return forgiving


def _alone(problem: Problem) -> Placement:
    """Everything on the only device of a machine that has one worker."""
    cluster = Cluster(problem.cluster.devices[:1])
    seconds = problem.costs.seconds[:, :1]
    seconds = np.where(np.isfinite(seconds), seconds, 0.0)  # it is run, not judged
    own = Problem(problem.graph, cluster, Costs(problem.graph, cluster, seconds))
    return Placement(own, np.zeros(len(own.graph), dtype=np.int64))


def _beside(
    executor: Executor, singles: Sequence[_Subject], others: Mapping[str, _Subject], left_out: Mapping[str, str]
) -> Alternatives:
    single = tuple((worker.name, one.measured) for worker, one in zip(executor.workers, singles, strict=True))
    replicas, threads = others.get("replicas"), others.get("threads")
    return Alternatives(
        single, replicas.measured if replicas else None, threads.measured if threads else None, dict(left_out)
    )


def _record(
    executor: Executor,
    one: Candidate,
    subject: _Subject,
    check: Numerics,
    singles: Sequence[_Subject],
    again: _Subject,
    beside: Alternatives,
    single_predicted: Sequence[Predicted],
    circumstances: dict[str, Any],
) -> Record:
    measured = subject.measured
    usable = check.passed and not measured.insufficient and measured.timing_mode != "disturbed"
    ideal = min(p.seconds for p in single_predicted) / one.predicted.seconds if single_predicted else None
    firsts = [burst.first_seconds for burst in subject.rounds if burst.first_seconds > 0 and not burst.lost]
    return Record(
        one.name,
        one.placement,
        executor.workers,
        one.objective,
        one.predicted,
        measured,
        check,
        also_predicted=one.also_predicted,
        gain=_gain(subject, singles, again) if usable else None,
        ideal=ideal,
        drift=drift_of([singles[0].typical(number) for number in range(len(singles[0].rounds))]),
        alternatives=beside,
        first_seconds=float(np.median(firsts)) if firsts else None,
        **circumstances,
    )


def _gain(subject: _Subject, singles: Sequence[_Subject], again: _Subject) -> Gain | None:
    """Over the fastest single device of the same round; None where too few rounds have both."""
    best = min(
        (one for one in singles if one.measured.seconds is not None),
        key=lambda one: one.measured.seconds.minimum_seconds if one.measured.seconds else math.inf,
        default=None,
    )
    if best is None:
        return None
    known = _ratios(best, subject)
    if len(known) < 3:
        return None
    low, middle, high = (float(value) for value in np.percentile(known, (10, 50, 90)))
    of_itself = np.abs(np.log(_ratios(singles[0], again)))
    noise = float(np.exp(np.percentile(of_itself, 75))) if len(of_itself) else math.inf
    return Gain(low, middle, high, noise)


def _ratios(one: _Subject, other: _Subject) -> list[float]:
    """How many times longer one took than the other, in every round that has both."""
    each = (one.typical(number) / other.typical(number) for number in range(len(one.rounds)))
    return [ratio for ratio in each if math.isfinite(ratio)]


def drift_of(rounds: Sequence[float]) -> float:
    """The slowest round of a reference by its fastest, less 1; 0 where fewer than two are known.

    >>> drift_of([2.0, 2.5, float("nan")])
    0.25
    """
    known = [seconds for seconds in rounds if math.isfinite(seconds)]
    return max(known) / min(known) - 1.0 if len(known) > 1 and min(known) > 0 else 0.0
