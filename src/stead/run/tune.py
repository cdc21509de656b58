"""tune(): place with what is known, run a few different good placements, correct the costs, place again.

A round takes the plan that the corrected costs give and, beside it, plans for costs that are drawn from what the
measurements leave open: where they are sure these agree, where they are not these are the placements whose times say
most. The first round measures single devices: operator by operator, where the executor can tell how long each takes,
and these seconds are believed from then on; else as a whole, with the first plan and a simple rule beside them. It ends
when the best measured placement has stopped improving by more than the noise, or at a limit. The winner is measured
twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stead import clock
from stead.cluster import Cluster
from stead.costs import Source
from stead.errors import BadInput, Infeasible, RunFailed
from stead.graph import Graph
from stead.placing.attempt import run_baselines
from stead.placing.loading import Loaded, load
from stead.placing.recost import with_seconds
from stead.plan import Baseline, Plan, provenance
from stead.problem import Objective, Placement, Problem, objective_from
from stead.readers import Model
from stead.report.facts import transfer_count
from stead.run.calibrate import Calibrated, Seen, calibrated
from stead.run.executor import Executor, Numerics
from stead.run.noise import Bars, Gain, gain_over, shrunk
from stead.run.profile import Timings
from stead.run.trials import Measure, Trial, Trials, key_of, predicted_seconds
from stead.sim import simulate
from stead.sim.bounds import best_bound
from stead.solvers import Budget, Solution, Solver
from stead.solvers import solver as solver_named

MEASUREMENTS = 20
TIME_LIMIT_SECONDS = 120.0
EVALUATIONS = 4000  # of every plan on the way
PER_ROUND = 3  # measurements of a round after the first
OPERATOR_BURSTS = 2  # on every device, of whose runs the faster half counts
MOST_SINGLES = 4
PATIENCE = 2  # rounds without an improvement
DRAWS_TRIED = 3  # for every one that is wanted: some give placements that are known
LEAST_SECONDS = 0.5  # for a plan, however short the time limit is
RULE = "heft"
SURE = 2.0  # errors of a measurement that a gain must exceed


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement that was run: what was believed of it, and what was seen."""

    name: str  # where it comes from
    placement: Placement
    believed_seconds: float  # by the costs of its round
    trial: Trial
    transfers: int

    @property
    def is_simple(self) -> bool:
        """Whether no search was needed to find it."""
        return self.name == RULE or self.name.startswith("single:")

    @property
    def off(self) -> float:
        """Measured by believed, less 1."""
        return self.trial.seconds / self.believed_seconds - 1 if self.trial.counts else math.nan

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "name": self.name, "believed_seconds": self.believed_seconds, "transfers": self.transfers,
            "measured_seconds": self.trial.seconds if self.trial.counts else None, "lost": self.trial.is_lost,
            "bursts": self.trial.bursts,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of the loop."""

    number: int  # from 0
    candidates: tuple[Candidate, ...]
    best_seconds: float  # measured, up to here
    error: float  # root mean square of log(measured / believed) of its candidates


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The best placement that was measured, and how it was found."""

    plan: Plan  # of the corrected problem: its value is predicted, `provenance["tuned"]` has the measured one
    measured_seconds: float
    prior_seconds: float  # what was believed of it at first
    rounds: tuple[Round, ...]
    calibrated: Calibrated
    measurements: int  # bursts, lost ones and repeats included
    noise: float  # relative error of one measurement
    stopped_by: str  # "no improvement", "measurements", "time" or "interrupted"
    profile_gain: Gain | None = None  # of a profile's plan over one device, under costs that its error bars allow

    @property
    def predicted_seconds(self) -> float:
        """By the corrected costs."""
        return self.plan.solution.objective_seconds

    @property
    def simple(self) -> Candidate | None:
        """The fastest measured of the simple alternatives: one device, or the rule."""
        return self._fastest(lambda one: one.is_simple)

    @property
    def alone(self) -> Candidate | None:
        """The fastest measured device that does everything."""
        return self._fastest(lambda one: one.name.startswith("single:"))

    @property
    def rule(self) -> Candidate | None:
        """What a rule of thumb gave, as it was measured."""
        return self._fastest(lambda one: one.name == RULE)

    def _fastest(self, chosen: Callable[[Candidate], bool]) -> Candidate | None:
        measured = [one for part in self.rounds for one in part.candidates if chosen(one) and one.trial.counts]
        return min(measured, key=lambda one: one.trial.seconds, default=None)

    @property
    def gain(self) -> float:
        """How many times as fast as the best simple alternative, measured; 1 if none was timed."""
        return 1.0 if self.simple is None else self.simple.trial.seconds / self.measured_seconds

    @property
    def is_within_noise(self) -> bool:
        """Whether that gain is less than measurements differ by anyway."""
        return self.is_noise(self.gain)

    def is_noise(self, gain: float) -> bool:
        """Whether a gain is less than measurements differ by anyway."""
        return gain <= 1 + SURE * self.noise


def tune(
    model: str | Path | Graph | Model | Loaded | Problem,
    devices: str | Path | Cluster | Sequence[str] | None = None,
    *,
    measure: Executor | Measure,
    objective: str | Objective = "latency",
    measurements: int = MEASUREMENTS,
    time_limit: float | None = TIME_LIMIT_SECONDS,
    evaluations: int = EVALUATIONS,
    solver: str | Solver = "auto",
    seed: int = 0,
    bars: Bars | None = None,
    on_round: Callable[[Round], None] | None = None,
    on_trial: Callable[[Candidate], None] | None = None,
) -> Tuned:
    """Find the placement that is measured to be fastest, with few measurements.

    `measure` is an executor, or your own function from a placement to seconds (inf: it does not run; nan: disturbed,
    try again). Every plan on the way may score `evaluations` placements in the simulator. With a deterministic
    `measure` and without a time limit, the same seed gives the same answer. Ctrl-C ends it with the best so far.
    `bars` are the error bars of a profile that the problem was priced by: what they cannot tell apart is not believed.

    >>> from stead.testing import two_towers
    >>> problem = two_towers()
    >>> twice = lambda placement: 2 * simulate(problem, placement).objective_seconds
    >>> tuned = tune(problem, measure=twice, evaluations=50, time_limit=None)
    >>> tuned.measured_seconds, tuned.prior_seconds, round(tuned.predicted_seconds, 1)
    (15.0, 7.5, 15.0)
    """
    made_from = ("", "")
    if isinstance(model, Problem):
        if devices is not None:
            raise BadInput("a problem has its devices already; leave out devices")
        problem = model
    else:
        loaded = model if isinstance(model, Loaded) else load(model, devices)
        goal = objective_from(objective) if isinstance(objective, str) else objective
        problem, made_from = loaded.problem(goal), (loaded.model_name, loaded.devices_text)
    if bars is not None:
        bars = shrunk(problem.graph, bars)
        problem = with_seconds(problem, bars.seconds)
    end = math.inf if time_limit is None else clock.now() + time_limit
    loop = _Loop(
        problem, Trials(measure, problem, limit=measurements), end, evaluations,
        solver_named(solver) if isinstance(solver, str) else solver, seed, on_round, on_trial, bars,
    )  # fmt: skip
    return loop.run(made_from)


def finished(tuned: Tuned, executor: Executor, *, model: str, devices: str) -> tuple[Tuned, Numerics]:
    """What came out with the verdict on its results, and with what a reader of the plan's file wants to know."""
    numerics = executor.check(tuned.plan.placement)
    said = {
        **tuned.plan.provenance["tuned"], "executor": executor.name,
        "numerics": {"relative": numerics.relative, "tolerance": numerics.tolerance, "passed": numerics.passed},
    }  # fmt: skip
    made = {**tuned.plan.provenance, "model": model, "devices": devices, "tuned": said}
    return replace(tuned, plan=replace(tuned.plan, provenance=made)), numerics


class _Loop:
    """The state of one call."""

    def __init__(
        self,
        problem: Problem,
        trials: Trials,
        end: float,
        evaluations: int,
        solver: Solver,
        seed: int,
        on_round: Callable[[Round], None] | None,
        on_trial: Callable[[Candidate], None] | None,
        bars: Bars | None,
    ) -> None:
        self.bars, self.profile_gain = bars, cast(Gain | None, None)
        self.given = problem  # as it was believed at first
        self.problem, self.trials, self.end, self.evaluations = problem, trials, end, evaluations
        self.solver, self.seed, self.on_round, self.on_trial = solver, seed, on_round, on_trial
        self.rounds: list[Round] = []
        self.candidates: list[Candidate] = []
        self.belief = calibrated(problem, [])

    def run(self, made_from: tuple[str, str]) -> Tuned:
        """All rounds; an interrupt leaves what was measured."""
        try:
            stopped_by = self._rounds()
            if self.best is not None and self.trials.left >= 1 and stopped_by != "time":
                self._confirm()
        except KeyboardInterrupt:
            if self.best is None:
                raise
            stopped_by = "interrupted"
        if self.best is None:
            raise RunFailed(
                f"none of {len(self.candidates)} placements could be timed ({self.trials.lost} bursts were lost): "
                "close other programs and try again"
            )
        return self._tuned(made_from, stopped_by)

    @property
    def best(self) -> Candidate | None:
        """The fastest so far; what the noise cannot tell apart goes to fewer transfers."""
        timed = [one for one in self.candidates if one.trial.counts]
        if not timed:
            return None
        limit = min(one.trial.seconds for one in timed) * (1 + 0.5 * self.trials.noise)
        return min(
            (one for one in timed if one.trial.seconds <= limit), key=lambda one: (one.transfers, one.trial.seconds)
        )

    @property
    def best_seconds(self) -> float:
        return min((one.trial.seconds for one in self.candidates if one.trial.counts), default=math.inf)

    def _rounds(self) -> str:
        quiet, number = 0, 0
        timed = self.bars is None and self._operators()
        if timed:
            self._close(0, tuple(self.candidates))
            number = 1
        while True:
            before, begin = self.best_seconds, len(self.candidates)
            wanted = PER_ROUND if number else 1 + MOST_SINGLES + 1
            source = self._further(number, with_rule=timed and number == 1) if number else self._first()
            ended = self._measure(source, wanted)
            new = tuple(self.candidates[begin:])
            if new:
                self._close(number, new)
            if ended:
                return ended
            improved = self.best_seconds < before * (1 - self.trials.noise)
            quiet = 0 if improved else quiet + 1
            if (number and quiet >= PATIENCE) or (not new and number > 1):
                return "no improvement"
            number += 1

    def _operators(self) -> bool:
        """Time every operator on every device, and believe that from now on; whether it could be told of any device."""
        devices = len(self.problem.cluster)
        few = devices <= MOST_SINGLES and OPERATOR_BURSTS * devices + 2 <= self.trials.left
        if not few or not self.trials.times_operators:
            return False
        alone = [(d, name, self._alone(name)) for d, name in enumerate(self.problem.cluster.names)]
        runs: dict[str, list[NDArray[np.float64]]] = {}
        trials: dict[str, Trial] = {}
        for _ in range(OPERATOR_BURSTS):  # taking turns
            for d, name, one in alone:
                if one is not None:
                    trials[name], seconds = self.trials.operators_on(d, one.placement)
                    runs.setdefault(name, []).append(seconds)
        known = np.full(self.problem.costs.seconds.shape, np.nan)
        for d, name, one in alone:
            rows = np.concatenate(runs[name]) if name in runs else np.zeros((0, len(known)))
            if one is None or not len(rows):
                continue
            known[:, d] = Timings(name, rows).operators
            candidate = Candidate(f"single:{name}", one.placement, one.objective_seconds, trials[name], 0)
            self.candidates.append(candidate)
            if self.on_trial is not None:
                self.on_trial(candidate)
        self.problem = with_seconds(self.problem, known, source=Source.MEASURED)
        self.belief = calibrated(self.problem, [])
        return bool(self.candidates)

    def _alone(self, name: str) -> Solution | None:
        """Everything on one device; None if it does not fit there."""
        return self._asked(solver_named(f"single:{name}"), self.problem, self.seed, 1)

    def _measure(self, source: Iterator[tuple[str, Placement]], wanted: int) -> str:
        """Run candidates of a round; why the loop must end, if it must."""
        known = {key_of(one.placement) for one in self.candidates}
        count = 0
        for name, placement in source:
            if clock.now() >= self.end and self.best is not None and len(self.candidates) > 1:
                return "time"  # the fastest device alone and the first plan are always measured
            if self.trials.left < 2:  # the last one is for the winner
                return "measurements"
            key = key_of(placement)
            if key in known:
                continue
            known.add(key)
            believed = predicted_seconds(self.belief.problem, placement)
            trial = self.trials.measure(placement)
            crossings = transfer_count(self.problem.graph, placement.devices, len(self.problem.cluster))
            self.candidates.append(Candidate(name, placement, believed, trial, crossings))
            if self.on_trial is not None:
                self.on_trial(self.candidates[-1])
            count += 1
            if count >= wanted:
                break
        return ""

    def _close(self, number: int, new: tuple[Candidate, ...]) -> None:
        offs = [math.log1p(one.off) for one in new if one.trial.counts]
        error = math.sqrt(sum(off * off for off in offs) / len(offs)) if offs else math.nan
        self.rounds.append(Round(number, new, self.best_seconds, error))
        if self.on_round is not None:
            self.on_round(self.rounds[-1])
        self.belief = calibrated(self.problem, self._seen(), start=self.belief.logs)

    def _seen(self) -> list[Seen]:
        noise = self.trials.noise
        return [Seen(one.placement, one.trial.seconds, noise) for one in self.candidates if one.trial.counts]

    def _first(self) -> Iterator[tuple[str, Placement]]:
        """What is believed to be best, every device alone, and a simple rule."""
        found = self._solved(self.problem, self.seed, self.evaluations)
        singles = []
        for name in self.problem.cluster.names:
            one = self._alone(name)
            if one is not None:
                singles.append((one.objective_seconds, f"single:{name}", one.placement))
        singles.sort(key=lambda one: one[:2])
        for _, name, placement in singles[:1]:
            yield name, placement
        if found is not None:
            if self.bars is not None and singles:
                others = {name: placement for _, name, placement in singles}
                self.profile_gain = gain_over(self.problem, self.bars, found.placement, others, seed=self.seed)
            yield "plan", found.placement
        for _, name, placement in singles[1:MOST_SINGLES]:
            yield name, placement
        yield from self._by_rule(self.problem)
        if found is None and not singles:
            raise Infeasible("no placement that fits was found to begin with; `stead place` says what would help")

    def _by_rule(self, problem: Problem) -> Iterator[tuple[str, Placement]]:
        """What a rule of thumb makes of a problem."""
        rule = solver_named(RULE)
        if rule.unsupported(problem) is None:
            simple = self._asked(rule, problem, self.seed, 1)
            if simple is not None:
                yield RULE, simple.placement

    def _further(self, number: int, *, with_rule: bool = False) -> Iterator[tuple[str, Placement]]:
        """The plan of the corrected costs, and plans of costs that may be just as true."""
        found = self._solved(self.belief.problem, self.seed, self.evaluations)
        if found is not None:
            yield "plan", found.placement
        if with_rule:
            yield from self._by_rule(self.belief.problem)
        rng = np.random.default_rng((self.seed, number))
        for draw in range(DRAWS_TRIED * PER_ROUND):
            other = self._solved(self.belief.drawn(rng), self.seed + draw, self.evaluations)
            if other is not None:
                yield "drawn", other.placement

    def _solved(self, problem: Problem, seed: int, evaluations: int) -> Solution | None:
        return self._asked(self.solver, problem, seed, evaluations)

    def _asked(self, solver: Solver, problem: Problem, seed: int, evaluations: int) -> Solution | None:
        """What a solver says; None if nothing fits. The clock only ends it."""
        left = None if math.isinf(self.end) else max(LEAST_SECONDS, self.end - clock.now())
        try:
            found = solver.solve(problem, Budget(left, evaluations), seed)
        except Infeasible:
            return None
        if found.interrupted:
            raise KeyboardInterrupt
        return found

    def _confirm(self) -> None:
        """Run the winner once more: of many measurements the lowest was lucky."""
        best = self.best
        assert best is not None
        trial = self.trials.measure(best.placement, again=True)
        position = self.candidates.index(best)
        self.candidates[position] = replace(best, trial=trial)

    def _tuned(self, made_from: tuple[str, str], stopped_by: str) -> Tuned:
        best = self.best
        assert best is not None
        belief = calibrated(self.problem, self._seen(), start=self.belief.logs)
        belief = replace(belief, prior_error=self._off_at_first())
        problem = belief.problem
        placement = Placement(problem, best.placement.devices, best.placement.order, best.placement.replicas)
        trace = simulate(problem, placement)
        solution = Solution(
            placement, trace.objective_seconds, solver="tune", found_by=best.name, seed=self.seed,
            evaluations=self.trials.count, interrupted=stopped_by == "interrupted",
        )  # fmt: skip
        bound = best_bound(problem)
        plan = Plan(problem, solution.with_bound(bound.seconds, bound.name), self._rules(problem))
        prior = predicted_seconds(self.given, best.placement)
        said = {
            "measured_seconds": best.trial.seconds,
            "predicted_seconds": solution.objective_seconds,
            "prior_seconds": prior,
            "noise": self.trials.noise,
            "measurements": self.trials.count,
            "lost": self.trials.lost,
            "stopped_by": stopped_by,
            "error": belief.error,
            "prior_error": belief.prior_error,
            "factors": [factor.as_dict() for factor in belief.factors],
        }
        model, devices = made_from
        made: dict[str, Any] = {**provenance(model=model, devices=devices, seed=self.seed), "tuned": said}
        return Tuned(
            replace(plan, provenance=made), best.trial.seconds, prior, tuple(self.rounds), belief,
            self.trials.count, self.trials.noise, stopped_by, self.profile_gain,
        )  # fmt: skip

    def _off_at_first(self) -> float:
        """Root mean square of log(measured / believed before anything was measured)."""
        seen = self._seen()
        offs = [math.log(one.seconds / predicted_seconds(self.given, one.placement)) for one in seen]
        return math.sqrt(sum(off * off for off in offs) / len(offs))

    def _rules(self, problem: Problem) -> tuple[Baseline, ...]:
        try:
            return run_baselines(problem, seed=self.seed, seconds=5.0)
        except KeyboardInterrupt:
            return ()
