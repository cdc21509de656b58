"""What methods with decoder=walk share: learning opinions, and asking a network once.

An answer is the best of some walks that follow the opinions of the network, and of cheap baselines beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from stead.coarsen import Grouping
from stead.errors import BadInput
from stead.learn.ground.network import Inputs
from stead.learn.ground.policy import Method, Seen, read_policy
from stead.learn.ground.reward import Evaluator, Reward
from stead.learn.ground.solver import (
    BASELINES,
    Learns,
    Patience,
    begin_with_baselines,
    learn_on,
    not_asked,
    polish,
    start_of,
)
from stead.learn.ground.task import Start, Task
from stead.learn.ground.torch_state import load_network, one_thread
from stead.learn.walk.method import Walk
from stead.learn.walk.opinion_climb import OpinionClimb
from stead.learn.walk.opinion_loop import Opined, OpinionLoop, OpinionTraining, opinions_of, scorer_of
from stead.learn.walk.opinion_scorer import OpinionScorer
from stead.learn.walk.opinions import OpinedGrounds, walk_by_opinions
from stead.learn.walk.walk_plans import WALKS
from stead.learn.walk.walk_steps import Step
from stead.problem import Placement, Problem
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

M = TypeVar("M", bound="Opines[Any]")


class Shows(Protocol[Inputs]):
    """A method that knows what its network reads of a problem."""

    @property
    def name(self) -> str:
        """The name it is called by."""

    def unsupported(self, problem: Problem) -> str | None:
        """Why it cannot place `problem`; None if it can."""

    def inputs(self, problem: Problem) -> tuple[Grouping, Inputs]:
        """The groups that there are opinions of, and what the network reads."""

    def looks(self, problem: Problem) -> int:
        """Simulations that `inputs` makes at most."""

    def seen(self, inputs: Inputs) -> Seen:
        """Those that it has made."""


class Opines(Method, Protocol[Inputs]):
    """A method whose network may give opinions to walks."""

    @property
    def decoder(self) -> str:
        """What turns its network into placements; empty: whatever a policy was trained for."""

    @property
    def walks(self) -> bool:
        """Whether walks follow its opinions."""

    @property
    def threads(self) -> int:
        """Of the simulator."""

    def viewer(self, threads: int) -> Shows[Inputs]:
        """Whoever knows what its network reads then, and may use so many threads for it."""


def no_walk(problem: Problem) -> str | None:
    """Why walks cannot place `problem`; None if they can."""
    return Walk().unsupported(problem)


def walked_task(shows: Shows[Inputs], problem: Problem, start: Start, *, threads: int) -> Task[Inputs]:
    """A problem on which opinions are worth what walks make of them; what its features simulate is counted."""
    if (reason := no_walk(problem)) is not None:
        raise BadInput(f"{shows.name}: decoder=walk cannot place {problem.graph.name}: {reason}")
    grouping, inputs = shows.inputs(problem)
    seen = shows.seen(inputs)
    scorer = OpinionScorer(problem, grouping, threads=threads, limit=start.limit)
    scorer.charge(seen.evaluations)
    if seen.cut is not None:
        scorer.begin_with(scorer.whole(seen.cut.devices[None, :])[0], seen.cut.seconds, seen.cut.name)
    return Task(grouping, inputs, scorer, Reward("log", start.reference_seconds(problem)), start)


def opinion_learner(
    method: Opines[Inputs],
    thinks: Opined[Inputs],
    problems: Sequence[Problem],
    starts: Sequence[Start],
    training: OpinionTraining,
    *,
    seed: int,
    evaluate: Evaluator | None,
    climbs: bool = True,
) -> OpinionLoop[Inputs]:
    """The network of a method, ready to learn opinions about problems; `evaluate` is refused.

    One that `climbs` learns about a single large problem by selection, not by slopes.
    """
    if evaluate is not None:
        raise BadInput(f"{method.name}: walks are simulated, not measured; leave out decoder=walk or --reward")
    assert isinstance(thinks, nn.Module)
    shows, given = method.viewer(method.threads), zip(problems, starts, strict=True)
    tasks = [walked_task(shows, problem, start, threads=method.threads) for problem, start in given]
    alone = climbs and len(tasks) == 1 and scorer_of(tasks[0]).grounds.kind.large
    loop = OpinionClimb if alone else OpinionLoop
    return loop(thinks, thinks, tasks, training, seed=seed)


def decoded_alike(method: M, path: Path, kind: type[M]) -> M:
    """The method of a file; refused where another decoder is asked for than its network was trained for."""
    stored = read_policy(path, kind)[0]
    if method.decoder and method.walks != stored.walks:
        given = "has opinions that walks follow" if stored.walks else "places by itself"
        raise BadInput(f"{method.name}: the network of {path} {given}; leave out decoder={method.decoder}")
    return stored


def opinion_solver(
    path: Path, kind: type[Opines[Inputs]], *, threads: int, polish: bool
) -> OpinionSolver[Inputs] | None:
    """Whoever asks the network of a file for opinions; None where the file is not of that kind."""
    method, arrays, devices, taught = read_policy(path, kind)
    if not method.walks:
        return None
    network = method.network(devices, 0)
    load_network(network, arrays)
    thinks = cast(Opined[Inputs], network)  # as networks of methods that walk are
    return OpinionSolver(method.viewer(threads), thinks, taught, threads=threads, polish=polish)


@dataclass(frozen=True, slots=True)
class OpinionSolver(Generic[Inputs]):
    """Best of some walks by the opinions of a network and of cheap baselines; it says which of them won."""

    method: Shows[Inputs]
    network: Opined[Inputs]
    taught: bool
    walks: int = WALKS
    threads: int = 0
    polish: bool = False

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.method.name

    def unsupported(self, problem: Problem) -> str | None:
        """Whatever stops the method."""
        return self.method.unsupported(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score baselines, ask the network, walk, then polish if asked to."""
        search = started(self, problem, budget, seed)
        with search.interruptible(), one_thread():
            begin_with_baselines(search, BASELINES)
            looks, left = self.method.looks(problem), search.remaining_evaluations
            if left is not None and left <= looks:
                search.notes.append(not_asked(self.name, looks, search))
            elif not search.done and len(problem.graph):
                grouping, opinions, seen = self._asked(problem)
                search.evaluations += seen.evaluations
                if seen.cut is not None and np.isfinite(seen.cut.seconds):
                    devices = grouping.lift(seen.cut.devices[None, :])[0]
                    found = Placement(problem, devices)
                    search.adopt(Solution(found, seen.cut.seconds, solver=search.solver, found_by=seen.cut.name))
                walk_by_opinions(
                    search, OpinedGrounds(problem, grouping.group), opinions, walks=self.walks, threads=self.threads,
                    name=f"{self.name} {'walk' if self.taught else 'prior'}",
                )  # fmt: skip
            if self.polish:
                polish(search)
        return search.solution()

    def _asked(self, problem: Problem) -> tuple[Grouping, NDArray[np.float32], Seen]:
        grouping, inputs = self.method.inputs(problem)
        return grouping, opinions_of(self.network, inputs), self.method.seen(inputs)


def learn_and_walk(method: Learns, problem: Problem, budget: Budget, seed: int, *, threads: int) -> Solution:
    """Walk by the opinions that a network begins with, train it on the problem, and walk by what has become of them.

    An answer is the best of several kinds of walks, before and after. Rewards are those of one kind at a time: where a
    policy is carried on, first the kind that was best with its opinions, as to shorten others need not shorten the
    answer.
    """
    search = started(method, problem, budget, seed)
    with search.interruptible(), one_thread():
        known = begin_with_baselines(search, BASELINES)
        looks, left = method.looks(problem), search.remaining_evaluations
        if left is not None and left <= looks:
            search.notes.append(not_asked(method.name, looks, search))
        elif len(problem.graph) and len(problem.cluster) > 1 and not search.done:
            learner = method.learner([problem], seed, [start_of(search, known)])
            assert isinstance(learner, OpinionLoop)
            search.evaluations += learner.evaluations
            learner.tasks[0].scorer.evaluations = 0  # the search has counted them
            if learner.taught and (kinds := _walk(search, learner, method.name, threads)):
                scorer_of(learner.tasks[0]).kinds = kinds
            learn_on(search, method, learner, Patience(0))
            if not search.done:
                _walk(search, learner, method.name, threads)
        if method.polish:
            polish(search)
    return search.solution()


def _walk(search: Search, learner: OpinionLoop[object], name: str, threads: int) -> tuple[Step, ...]:
    task = learner.tasks[0]
    grounds = OpinedGrounds(task.problem, task.grouping.group)
    told = f"{name} {'walk' if learner.taught else 'prior'}"
    opinions = opinions_of(learner.thinks, task.inputs)
    return walk_by_opinions(search, grounds, opinions, name=told, walks=WALKS, threads=threads)
