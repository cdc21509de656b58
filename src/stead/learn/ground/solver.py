"""Solvers around policies: never worse than cheap baselines, and they say who won.

`PolicySolver` asks a trained policy once. `solve_by_learning` trains on the problem itself until the updates are done
or the budget is spent. Both return the best of samples, greedy decode and baselines; polishing by local search is a
step of its own, off unless asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from stead.cluster.quantities import format_seconds
from stead.engine import Engine
from stead.errors import BadInput
from stead.learn.ground.network import Inputs
from stead.learn.ground.one_shot import OneShot
from stead.learn.ground.policy import Method, NetworkPolicy, Policy, Proposal, Reads, document_of
from stead.learn.ground.reward import OWN, Evaluator
from stead.learn.ground.task import REFERENCES, Start, Task, attempted
from stead.learn.ground.torch_state import one_thread
from stead.learn.ground.training_loop import Metrics, Trainee
from stead.learn.ground.training_run import Run, train
from stead.learn.ground.workers import Spread
from stead.problem import Placement, Priority, Problem
from stead.sim import simulate_many
from stead.sim.bounds import best_bound
from stead.solvers.registry import solver
from stead.solvers.rules.settle import started
from stead.solvers.search.climb import climb_to_fit
from stead.solvers.search.search import ScheduleSearch, schedule_of
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, LearningStep, Solution

BASELINES = ("single", "expert", "balanced")
POLISH_EFFORT = 20_000  # evaluations


class Learns(Method, Protocol):
    """A solver that can be trained: on the problem it is given, or on several beforehand."""

    @property
    def policy(self) -> str:
        """A file to ask instead of training; empty for none."""

    @property
    def updates(self) -> int:
        """Updates on a problem it is given."""

    @property
    def polish(self) -> bool:
        """Whether to improve the result by local search."""

    def unsupported(self, problem: Problem) -> str | None:
        """Why it cannot place `problem`; None if it can."""

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Search until done or until `budget` is spent."""

    def looks(self, problem: Problem) -> int:
        """Simulations that a learner makes at most before it may choose whether to make more."""

    def planned(self, updates: int) -> Learns:
        """The same for a training run of so many updates, for a rate may fall until the last of them."""

    def learner(
        self,
        problems: Sequence[Problem],
        seed: int,
        starts: Sequence[Start],
        *,
        evaluate: Evaluator | None = None,
    ) -> Trainee:
        """A network with its graphs, ready for the first update; `evaluate` measures instead of simulating."""


class Asks(Learns, Reads[Inputs], Protocol[Inputs]):
    """One whose network decides a whole placement, so that a file of it can be asked."""


@dataclass(frozen=True, slots=True)
class PolicySolver:
    """Best of the samples of a policy, its greedy decode and cheap baselines; it says which of them won."""

    policy: Policy
    samples: int = 64
    baselines: Sequence[str] = BASELINES
    polish: bool = False

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.policy.name

    def unsupported(self, problem: Problem) -> str | None:
        """Whatever stops the policy; the baselines alone are other solvers."""
        return self.policy.unsupported(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score baselines, greedy and samples, then polish if asked to."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            begin_with_baselines(search, self.baselines)
            looks, count = self.policy.looks(problem), self.samples
            if search.remaining_evaluations is not None:
                count = min(count, search.remaining_evaluations - looks)
            if count < 1:
                search.notes.append(not_asked(self.name, looks, search))
            elif not search.done and len(problem.graph):
                proposal = self.policy.propose(problem, count, seed)
                offer_proposal(search, proposal, self.name, taught=self.policy.taught)
            if self.polish:
                polish(search)
        return search.solution()


class Patience:
    """Ends when so many updates in a row have drawn nothing new, as a policy does that is sure; never where it is 0."""

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.quiet = 0  # updates in a row
        self._evaluations = 0

    def ends(self, task: Task[object]) -> bool:
        """To be asked after every update."""
        self.quiet = 0 if task.scorer.evaluations > self._evaluations else self.quiet + 1
        self._evaluations = task.scorer.evaluations
        return 0 < self.updates <= self.quiet


def solve_by_learning(
    method: Learns,
    problem: Problem,
    budget: Budget,
    seed: int,
    *,
    after: Sequence[str] = (),
    patience: int = 0,
) -> Solution:
    """Train on the problem until the updates are done or the budget is spent; best of everything that was scored.

    It ends early after `patience` updates that drew nothing new. Solvers named in `after` may use what is left of the
    budget. Should nothing fit, what misses memory by the least is climbed from until it does.
    """
    search = started(method, problem, budget, seed)
    with search.interruptible(), one_thread():
        known = begin_with_baselines(search, BASELINES)
        if len(problem.graph) and len(problem.cluster) > 1 and not search.done:
            left, looks = search.remaining_evaluations, method.looks(problem)
            if left is not None and left < looks:
                search.notes.append(not_asked(method.name, looks, search))
            else:
                start = start_of(search, known)
                learn_on(search, method, method.learner([problem], seed, [start]), Patience(patience))
        for name in after:
            if not search.done:
                search.try_solver(solver(name))
        if search.best is None:
            climb_to_fit(search)
        if method.polish:
            polish(search)
    return search.solution()


def ask_or_learn(
    method: Asks[Inputs],
    problem: Problem,
    budget: Budget,
    seed: int,
    *,
    after: Sequence[str] = (),
    patience: int = 0,
) -> Solution:
    """Ask the policy in the file that the method names; if it names none, train on the problem."""
    if not method.policy:
        return solve_by_learning(method, problem, budget, seed, after=after, patience=patience)
    trained = NetworkPolicy.load(Path(method.policy), type(method))
    return PolicySolver(trained, polish=method.polish).solve(problem, budget, seed)


def train_policy(
    method: Learns,
    problems: Sequence[Problem],
    names: Sequence[str],
    run: Run,
    *,
    seed: int = 0,
    engine: Engine | None = None,
    report: Callable[[Metrics, Trainee], None] | None = None,
    evaluate: Evaluator | None = None,
) -> Trainee:
    """Train a method on problems and write its policy with log and curve; see workers.py about the engine.

    With `evaluate` rewards of the one problem come from there, those of the baselines included.
    """
    if evaluate is not None and len(problems) != 1:
        raise BadInput(f"measured rewards are those of one model, got {len(problems)}; give one --graphs")
    with one_thread():
        method = method.planned(run.updates)
        starts = [Start.of(problem, evaluate) for problem in problems]
        learner = method.learner(problems, seed, starts, evaluate=evaluate)
        for task, name in zip(learner.tasks, names, strict=True):
            task.name = name
        devices = max(len(problem.cluster) for problem in problems)
        with _shared_out(learner, engine, method.name):
            train(learner, run, document_of(method, devices), report=report)
    return learner


@contextmanager
def _shared_out(learner: Trainee, engine: Engine | None, name: str) -> Iterator[None]:
    """Let the workers of an engine do the work of the network meanwhile."""
    if engine is None:
        yield
        return
    if not isinstance(learner, OneShot):
        raise BadInput(f"{name} trains in one process; leave out --engine")
    if min(learner.training.graphs_per_step, len(learner.tasks)) < 2:
        raise BadInput(
            "an update that learns from one graph cannot be shared out: give several graphs, or one of them several "
            "times, and --set graphs_per_step=N"
        )
    learner.workers = Spread(learner.replica(), engine)
    yield


def begin_with_baselines(search: Search, names: Sequence[str]) -> dict[str, float]:
    """Seconds of the cheap baselines that apply, all offered to the search; the bound is raised, too."""
    bound = best_bound(search.problem)
    search.raise_bound(bound.seconds, bound.name)
    found: dict[str, float] = {}
    for name in names:
        if search.done:
            break
        answer, spent = attempted(search.problem, name, search.rest_of_budget())
        if isinstance(answer, Solution):
            search.adopt(answer)
            found[name] = answer.objective_seconds
            continue
        search.evaluations += spent
        if answer is not None:
            search.notes.append(f"{name}: {answer}")
            if answer.placement is not None and search.remaining_evaluations != 0:
                search.offer(answer.placement, found_by=name)
    return found


def start_of(search: Search, known: dict[str, float]) -> Start:
    """What a learner begins with after the baselines, which the search has counted."""
    references = {name: known[name] for name in REFERENCES if name in known}
    return Start(references or known, search.best, search.found_by, limit=search.remaining_evaluations)


def not_asked(name: str, looks: int, search: Search) -> str:
    """Why a policy did not get its turn."""
    return (
        f"{name}: not asked, since looking at the problem takes up to {looks} evaluations and a placement one more; "
        f"{search.remaining_evaluations} were left"
    )


def offer_proposal(search: Search, proposal: Proposal, name: str, *, taught: bool = True) -> None:
    """Score a proposal, greedy and samples apart, and note how each did; what it looked at comes first."""
    rows, seen = proposal.placements, proposal.seen
    search.evaluations += seen.evaluations
    if seen.cut is not None and math.isfinite(seen.cut.seconds):
        placement = Placement(search.problem, seen.cut.devices)
        search.adopt(Solution(placement, seen.cut.seconds, solver=search.solver, found_by=seen.cut.name))
        search.notes.append(f"{name} was shown {seen.cut.name}: {shown(seen.cut.seconds)}")
    greedy, sample = (f"{name} {kind}" if taught else f"{name} prior" for kind in ("greedy", "sample"))
    if proposal.greedy >= 0:
        seconds = search.offer(rows[proposal.greedy], found_by=greedy)
        if proposal.positions is not None:
            order = Priority(proposal.positions[proposal.greedy])
            own = search.offer(rows[proposal.greedy], order=order, found_by=greedy)
            seconds = min(seconds, own)
        search.notes.append(f"{name} greedy: {shown(seconds)}")
        rows = np.delete(rows, proposal.greedy, axis=0)
    scored = search.offer_many(np.unique(rows, axis=0), found_by=sample)
    if len(scored):
        search.notes.append(f"{name}: best of {len(scored)} different samples {shown(float(scored.min()))}")
    if proposal.positions is not None:
        _offer_ordered(search, proposal, name, sample)


def _offer_ordered(search: Search, proposal: Proposal, name: str, found_by: str) -> None:
    """Score samples in the orders that come with them; the best of them is scored once more."""
    assert proposal.positions is not None
    left = search.remaining_evaluations
    count = len(proposal.placements) if left is None else min(len(proposal.placements), left - 1)
    if count < 1:
        return
    rows, positions = proposal.placements[:count], proposal.positions[:count]
    scores = simulate_many(search.problem, rows, positions=positions)
    search.evaluations += count
    seconds = np.where(scores.feasible, scores.seconds, np.inf)
    best = int(np.argmin(seconds))
    search.offer(rows[best], order=Priority(positions[best]), found_by=found_by)
    search.notes.append(f"{name}: best of {count} samples in their own order {shown(float(seconds[best]))}")


def polish(search: Search) -> None:
    """Improve the incumbent by the native search; its own line in notes and trail."""
    if search.best is None or search.done or ScheduleSearch().unsupported(search.problem) is not None:
        return
    before, found_by = search.best_seconds, search.found_by
    ScheduleSearch(effort=POLISH_EFFORT).improve(search, [schedule_of(search.solution().placement, "policy")])
    if search.best_seconds < before:
        search.found_by = f"{found_by} + polish"
    search.notes.append(f"polish: {shown(before)} to {shown(search.best_seconds)}")


class Account:
    """What a learner has spent and found, handed over to a search bit by bit."""

    def __init__(self, search: Search, task: Task[object], name: str) -> None:
        self.search, self.task, self.name = search, task, name
        self._counted = 0

    def hand_over(self) -> None:
        """Count what is new, and take over the best placement if it is better; whoever made it is named."""
        scorer = self.task.scorer
        evaluations, found = scorer.evaluations - self._counted, scorer.incumbent
        self._counted = scorer.evaluations
        if found is None:
            self.search.evaluations += evaluations
            return
        self.search.adopt(
            Solution(
                scorer.placed(found),
                found.seconds,
                solver=self.search.solver,
                found_by=f"{self.name} {found.by}" if found.by in OWN else found.by,
                evaluations=evaluations,
            )
        )

    def learnt(self, metrics: Metrics) -> None:
        """Keep what an update says of itself, in seconds."""
        own, reference = self.task.scorer.best_seconds, self.task.reward.reference_seconds
        greedy, mean = (None if ratio is None else ratio * reference for ratio in (metrics.greedy, metrics.mean))
        best = own if math.isfinite(own) else None
        step = LearningStep(metrics.update, metrics.evaluations, best, greedy, mean, metrics.entropy)
        self.search.learning.append(step)

    def begun_with(self) -> str:
        """What was there before the network drew anything, for notes."""
        start = self.task.scorer.start
        return "" if start is None else f", began with {start.by} {shown(start.seconds)}"


def learn_on(search: Search, method: Learns, learner: Trainee, patience: Patience) -> None:
    """Updates on one problem, each handed to the search; what was there before them comes first."""
    task = learner.tasks[0]
    account, scorer = Account(search, task, method.name), task.scorer
    search.notes.extend(task.notes)
    account.hand_over()
    while learner.version < method.updates and not search.done:
        left = search.remaining_evaluations
        if left is not None and left < learner.evaluations_per_update:
            break
        account.learnt(learner.update())
        account.hand_over()
        if patience.ends(task):
            search.notes.append(f"{method.name}: the last {patience.quiet} updates drew nothing new")
            break
    drawn = "nothing was drawn" if not learner.version else f"best sample {shown(scorer.best_seconds)}"
    left, greedy = search.remaining_evaluations, "not scored"
    if left is None or left >= scorer.runs:
        greedy = shown(float(scorer.score(learner.greedy(task)[None, :], by=learner.credit("greedy")).seconds[0]))
        account.hand_over()
    search.notes.append(
        f"{method.name}: {learner.version} updates, {scorer.evaluations} evaluations{account.begun_with()}, "
        f"{drawn}, greedy {greedy}{'' if learner.taught else '; it has learnt from no reward'}"
    )


def shown(seconds: float) -> str:
    """Seconds for people."""
    return format_seconds(seconds) if math.isfinite(seconds) else "infeasible"
