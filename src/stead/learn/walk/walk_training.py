"""`stead train walk`: several rules by evolution, each on problems of its own sizes, then plans for the few that help.

Members are trained one after another. The first begins where the policy that is carried on stands (zero weights for
none), each of the others too if it has a rule for it, else where the member before it ended: rules that differ in the
problems they saw complete each other. Plans are chosen on problems of seeds that no rule was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.files import read_text, write_text
from stead.learn.walk.evolution import Evolution, GivenProblems, MadeProblems, Source, Strategy, evolve
from stead.learn.walk.made_problems import Scope, made_problem
from stead.learn.walk.walk_plans import WALKS, candidates, measured
from stead.learn.walk.walk_rounds import grown
from stead.learn.walk.walk_rules import KINDS, LARGE, Grounds, Rules, weight_count
from stead.problem import Problem

UNSEEN = 10_000_000  # the first seed of the problems that plans are chosen on
UNSEEN_LARGE = 10_800_000
PLAN_SCOPE = Scope(least=60, most=1600)
LARGE_PLAN_SCOPE = Scope(least=3000, most=12_000)


@dataclass(frozen=True, slots=True)
class Member:
    """One rule of a policy: the sizes of problems it learns from, and the share of all problems and generations."""

    least: int
    most: int
    share: float = 1.0
    batch: int = 32  # problems of a generation


MEMBERS = (
    Member(40, 500), Member(150, 800, 0.3), Member(40, 500, 0.3), Member(15, 300, 0.4), Member(150, 1600, 0.4),
    Member(60, 1000, 0.4), Member(400, 3000, 0.3, batch=16), Member(1000, 50_000, 0.2, batch=6),
)  # fmt: skip
APART = 1_000_000  # seeds of the problems of one member and the next; all below UNSEEN
Report = Callable[[int, dict[str, float]], None]  # rule, what its last generation says


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides what comes out, apart from the problems."""

    generations: int = 300
    seed: int = 0
    walks: int = WALKS  # of a plan
    least_planned: int = 100  # problems that the plan of each kind is chosen on, if so many come up
    most_looked_at: int = 2500
    least_planned_large: int = 12  # the same for large problems
    most_looked_at_large: int = 200
    members: int = len(MEMBERS)  # the first so many

    def __post_init__(self) -> None:
        if self.generations < 0:
            raise BadInput(f"updates must not be negative, got {self.generations}")
        if self.members < 1:
            raise BadInput(f"a policy has at least one rule, got {self.members}")


def train_rules(
    output: Path,
    recipe: Recipe,
    *,
    problems: int = 0,
    given: Sequence[Problem] = (),
    start: Rules | None = None,
    resume: bool = False,
    every: int = 25,
    report: Report | None = None,
) -> dict[str, object]:
    """Train rules on made-up or given problems, choose plans, write the policy; the same bits after a kill and resume.

    Beside OUTPUT lie a checkpoint and a log of every rule.
    """
    if (problems > 0) == bool(given):
        raise BadInput("walk learns from --problems N that it makes up, or from --graphs of your own; give one of them")
    trained: list[NDArray[np.float64]] = []
    walked = start.learned_from if start is not None else 0
    members = MEMBERS[: recipe.members]
    for number, member in enumerate(members):
        strategy = Strategy(
            Evolution(generations=round(member.share * recipe.generations), batch=member.batch),
            _source(member, number, problems, given),
            recipe.seed * len(MEMBERS) + number,
            start=_start(start, trained, number),
            rivals=with_zero(trained) if trained else None,
        )
        trained.append(_member(output, number, strategy, resume=resume, every=every, report=report))
        walked += strategy.walks
    told = {
        "recipe": asdict(recipe), "problems": problems or [problem.fingerprint for problem in given],
        "members": [asdict(member) for member in members], "walks": walked,
    }  # fmt: skip
    grounds = [Grounds(problem) for problem in given] or list(unseen(recipe))
    rules, ratio = chosen(with_zero(trained), grounds, recipe.walks, told)
    rules.save(output)
    return {
        "rules": len(trained), "walks": recipe.walks, "trained_walks": walked, "ratio": ratio,
        "judged": f"{len(grounds)} {'of your graphs' if given else 'unseen problems'}",
    }  # fmt: skip


def chosen(
    weights: NDArray[np.float64], grounds: Sequence[Grounds], walks: int, told: Mapping[str, object]
) -> tuple[Rules, float]:
    """Rules with plans chosen on problems, and how long the best walks are there beside all of list scheduling."""
    rules, lengths = range(len(weights)), measured(weights, range(len(weights)), grounds)
    plans, zero_plans, gains = {}, {}, []
    for kind in KINDS:
        own = [one for one in grounds if one.kind == kind]
        steps, zero_steps = candidates(rules, kind), candidates([0], kind)
        zero = lengths[kind][:, : len(zero_steps)]  # rule 0 comes first
        if not own:  # rules in turn, as they come
            steps = [step for first in range(len(zero_steps)) for step in steps[first :: len(zero_steps)]]
        plans[kind], reached = grown(steps, lengths[kind], weights, own, walks)
        zero_plans[kind], _ = grown(zero_steps, zero, weights[:1], own, walks)
        gains.append(np.array(reached) - zero.min(axis=1))
    return Rules(weights, plans, zero_plans, told), float(np.exp(np.concatenate(gains).mean()))


def unseen(recipe: Recipe) -> Iterator[Grounds]:
    """Problems of seeds that nothing was trained on, small and large, until there are enough of each kind."""
    yield from _some_of_each(UNSEEN, PLAN_SCOPE, recipe.least_planned, recipe.most_looked_at)
    yield from _some_of_each(
        UNSEEN_LARGE, LARGE_PLAN_SCOPE, recipe.least_planned_large, recipe.most_looked_at_large
    )


def _some_of_each(first: int, scope: Scope, wanted: int, most: int) -> Iterator[Grounds]:
    counts = dict.fromkeys((kind for kind in KINDS if kind.large == (scope.least > LARGE)), 0)
    for seed in range(first, first + most):
        grounds = Grounds(made_problem(seed, scope).problem)
        if counts.get(grounds.kind, wanted) < wanted:
            counts[grounds.kind] += 1
            yield grounds
        if min(counts.values()) >= wanted:
            return


def with_zero(rules: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:  # [rule, weight]
    """Rules behind the one of zero weights."""
    return np.stack([np.zeros(weight_count()), *rules])


def _source(member: Member, number: int, problems: int, given: Sequence[Problem]) -> Source:
    if given:
        return GivenProblems(given)
    count = max(1, round(member.share * problems))
    return MadeProblems(count, Scope(least=member.least, most=member.most), first=number * APART)


def _start(policy: Rules | None, trained: list[NDArray[np.float64]], number: int) -> NDArray[np.float64] | None:
    if policy is not None and number + 1 < len(policy.weights):
        own: NDArray[np.float64] = policy.weights[number + 1]
        return own
    return trained[-1] if trained else None


def _member(
    output: Path, number: int, strategy: Strategy, *, resume: bool, every: int, report: Report | None
) -> NDArray[np.float64]:  # [weight]
    """One rule, with its checkpoint and its log."""
    stem = output.name.removesuffix(".safetensors") + f".rule{number + 1}"
    log = output.with_name(stem + ".jsonl")
    kept = output.with_name(stem + ".checkpoint.safetensors")
    rows: list[str] = []
    if resume and kept.exists() and log.exists():
        rows = read_text(log, too_large="is it a log that stead wrote?").splitlines()

    def note(row: dict[str, float]) -> None:
        del rows[int(row["generation"]) - 1 :]  # what a killed run logged behind its checkpoint
        rows.append(json.dumps(row))
        if report is not None:
            report(number + 1, row)
        if int(row["generation"]) % every == 0 or int(row["generation"]) == strategy.options.generations:
            write_text(log, "\n".join(rows) + "\n")

    return evolve(strategy, kept, resume=resume, every=every, report=note)
