"""`auto` on the workers of an engine: rounds of searches that differ by their seeds and share what they found.

The first round has `auto` as it is and restarts of it with other seeds. Every further round goes on from the best
placements and the best bound of all before it. Where evaluations are counted, how many tasks a round has and what each
may spend depends on that count alone, and results are taken over in the order of the tasks: the plan is the same to the
bit for any engine and any number of workers. Where time is the limit, a round has as many tasks as there are workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from stead.engine import Blob, Engine, Journal, Outcome, Progress, Task
from stead.errors import Infeasible, RunFailed
from stead.plan.answer import placement_from
from stead.plan.rows import SMALL, as_row
from stead.plan.writing import order_document
from stead.problem import Placement, Problem
from stead.solvers import Budget, Search, Solution
from stead.solvers.auto import START, Auto, that_work
from stead.solvers.phases import Phase, Phases

WIDTH = 8  # tasks of a round where evaluations count
SHARES = (0.5, 0.25, 0.25)  # of the budget, for the rounds
LEAST_EVALUATIONS = 500  # of a task: with fewer no search gets far, and there are fewer tasks
SEED_STEP = 1_000_003  # between the seeds of tasks
GRACE_SECONDS = 20.0  # that tasks may be late, for reading the problem where they run


@dataclass(frozen=True, slots=True)
class Spread:
    """An engine that searches, and the journal it goes on from."""

    engine: Engine
    journal: Journal | None = None

    def solve(
        self, auto: Auto, problem: Problem, budget: Budget, seed: int, *, known: Mapping[str, Solution]
    ) -> Solution:
        """The best of all rounds; what there is of them after an interrupt."""
        search = Search(problem, budget, solver=auto.name, seed=seed)
        wide = width(budget, self.engine)
        does = f"{wide} searches on {self.engine.name}"
        count = len(SHARES) if wide > 1 else 1
        phases = Phases(search, [Phase(f"round {number + 1}", does) for number in range(count)])
        rounds = _Rounds(self, search, problem_blob(problem, auto), wide)
        with search.interruptible():
            for solution in known.values():
                search.adopt(replace(solution, evaluations=0))
            search.relax()
            for number in range(count):
                if search.done:
                    break
                with phases.running(f"round {number + 1}"):
                    rounds.run(number, SHARES[number] if wide > 1 else 1.0, tuple(known.values()))
        search.phases = phases.ended()
        if search.best is None and rounds.refusals:
            raise min(rounds.refusals, key=lambda error: not error.proved)
        return search.solution()


def width(budget: Budget, engine: Engine) -> int:
    """Tasks of a round."""
    if budget.evaluations is None:
        return engine.workers()
    return max(1, min(WIDTH, budget.evaluations // (len(SHARES) * LEAST_EVALUATIONS)))


def problem_blob(problem: Problem, auto: Auto) -> Blob:
    """What every task of a search needs."""
    parts = (problem.graph, problem.cluster, problem.costs, problem.objective, problem.constraints)
    return Blob.of((parts, problem.fingerprint, auto))


@dataclass(slots=True)
class _Rounds:
    spread: Spread
    search: Search
    blob: Blob
    width: int
    elites: list[Solution] = field(default_factory=list)  # the best first
    refusals: list[Infeasible] = field(default_factory=list)

    def run(self, number: int, share: float, known: Sequence[Solution]) -> None:
        """One round; what its tasks found is taken over in their order, after an interrupt what there is of it."""
        search = self.search
        tasks = [self._task(number, part, share, known) for part in range(self.width)]
        heard: list[Outcome] = []
        left = search.remaining_seconds
        try:
            self.spread.engine.map(
                tasks, journal=self.spread.journal, watch=partial(self._watch, number, heard),
                deadline_seconds=left + GRACE_SECONDS, stop=self._proved(heard),
            )  # fmt: skip
        finally:
            order = {id(task): part for part, task in enumerate(tasks)}
            for outcome in sorted(heard, key=lambda one: order[id(one.task)]):
                self._take(outcome.value)
            self.elites = sorted(self.elites, key=lambda one: one.objective_seconds)[: self.width]

    def _watch(self, number: int, heard: list[Outcome], outcome: Outcome, at: Progress) -> None:
        heard.append(outcome)
        lost = f", {at.lost} begun again" if at.lost else ""
        self.search.doing(f"round {number + 1}: {at.done} of {at.total} tasks, {at.workers} workers{lost}")

    def _proved(self, heard: list[Outcome]) -> Any:
        """Whether a proof ends the round; where evaluations count every task ends, so that the answer is the same."""
        if self.search.counts:
            return None
        return lambda: any(one.value.get("stopped_by") == "proved" for one in heard)

    def _task(self, number: int, part: int, share: float, known: Sequence[Solution]) -> Task:
        search, budget = self.search, self.search.budget
        seconds = None if budget.seconds is None else search.remaining_seconds
        evaluations = None
        if budget.evaluations is not None:
            evaluations = max(1, int(share * budget.evaluations / self.width))
        elif seconds is not None:
            seconds *= share / sum(SHARES[number:]) if self.width > 1 else 1.0
        request = {
            "seed": search.seed + SEED_STEP * (part + number * max(WIDTH, self.width)),  # no search is made twice
            "evaluations": evaluations, "exact": part == 0, "goes_on": number > 0,
            "bound": [search.bound_seconds, search.bound_name],
            "known": [_document(one) for one in self._begin(part, known)],
        }  # fmt: skip
        name = f"round {number + 1}, part {part + 1}"
        return Task.of(name, search_part, request, blobs=(self.blob,), beside=(seconds,))

    def _begin(self, part: int, known: Sequence[Solution]) -> list[Solution]:
        """What a task goes on from: the best of all, and one of the others; at first what rules found."""
        if not self.elites:
            return list(known)
        return [self.elites[0], self.elites[part % len(self.elites)]] if part else [self.elites[0]]

    def _take(self, document: dict[str, Any]) -> None:
        search = self.search
        if "infeasible" in document:
            search.evaluations += document["evaluations"]
            self.refusals.append(
                Infeasible(document["infeasible"], short_bytes=document["short_bytes"], proved=document["proved"])
            )
            return
        found = that_work({"": _solution(search.problem, document)}, search.problem).get("")  # the simulator judges
        if found is None:
            raise RunFailed("a worker gave a placement that does not work here: the same stead must run everywhere")
        search.adopt(found)
        if all(found.placement != one.placement for one in self.elites):
            self.elites.append(found)


def search_part(shared: Blob, request: dict[str, Any], seconds: float | None) -> dict[str, Any]:
    """One search, as a task: its solution as plain data, or why there is none."""
    problem, auto = _rebuilt(shared)
    bound, name = request["bound"]
    known = {
        (START if number == 0 else f"elite {number}"): replace(
            _solution(problem, one), bound_seconds=bound, bound_name=name, scope="", evaluations=0
        )
        for number, one in enumerate(request["known"])
    }
    budget = Budget(seconds, request["evaluations"])
    chosen = replace(auto, exact=auto.exact and request["exact"])
    try:
        found = chosen.solve(problem, budget, request["seed"], known=known, goes_on=request["goes_on"])
    except Infeasible as error:
        return {
            "infeasible": str(error), "proved": error.proved, "short_bytes": error.short_bytes, "evaluations": 0,
        }  # fmt: skip
    return _document(found)


_PROBLEMS: dict[str, tuple[Problem, Auto]] = {}  # the last one: a round has the same for all


def _rebuilt(shared: Blob) -> tuple[Problem, Auto]:
    if shared.digest not in _PROBLEMS:
        (graph, cluster, costs, objective, constraints), fingerprint, auto = shared.value
        problem = Problem(graph, cluster, costs, objective=objective, constraints=constraints)
        if problem.fingerprint != fingerprint:
            raise RunFailed("a worker reads the problem differently: the same version of stead must run everywhere")
        _PROBLEMS.clear()
        _PROBLEMS[shared.digest] = problem, auto
    return _PROBLEMS[shared.digest]


def _document(solution: Solution) -> dict[str, Any]:
    """A solution as plain data, for journals."""
    placement = solution.placement
    names = placement.problem.cluster.names
    return {
        "seconds": solution.objective_seconds if math.isfinite(solution.objective_seconds) else None,
        "devices": as_row(placement.devices, SMALL, packed=True),
        "order": order_document(placement.order, True),
        "replicas": [[names[d] for d in group] for group in placement.replicas],
        "bound": solution.bound_seconds, "bound_name": solution.bound_name, "scope": solution.scope,
        "found_by": solution.found_by or solution.solver, "evaluations": solution.evaluations,
        "stopped_by": solution.stopped_by,
    }  # fmt: skip


def _solution(problem: Problem, document: Mapping[str, Any]) -> Solution:
    placement: Placement = placement_from(problem, document["devices"], document["order"], document["replicas"])
    seconds = document["seconds"]
    return Solution(
        placement, np.inf if seconds is None else seconds, bound_seconds=document["bound"],
        bound_name=document["bound_name"], scope=document["scope"], found_by=document["found_by"],
        evaluations=document["evaluations"], stopped_by=document["stopped_by"],
    )  # fmt: skip
