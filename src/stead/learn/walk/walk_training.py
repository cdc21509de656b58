"""`stead train walk`: several rules by evolution, each on problems of its own sizes, then plans for the few that help.

Members are trained one after another. The first begins where the policy that is carried on stands (zero weights for
none), each of the others too if it has a rule for it, else where the member before it ended: rules that differ in the
problems they saw complete each other. Plans are chosen on problems of seeds that no rule was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.files import read_text, write_text
from stead.learn.walk.evolution import Evolution, GivenProblems, MadeProblems, Source, Strategy, evolve
from stead.learn.walk.made_problems import Scope
from stead.learn.walk.walk_plans import WALKS, lengths_of, candidates, measured, planned
from stead.learn.walk.walk_rules import MOST_GROUPINGS, Grounds, Rules
from stead.problem import Problem

UNSEEN = 10_000_000  # the first seed of the problems that plans are chosen on
PLANNED_ON = 240  # problems
PLAN_SCOPE = Scope(least=60, most=1600)


@dataclass(frozen=True, slots=True)
class Member:
    """One rule of a policy: the sizes of problems it learns from, and the share of all problems and generations."""

    least: int
    most: int
    share: float = 1.0


MEMBERS = (Member(40, 500), Member(300, 1600, 0.4), Member(40, 500))


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides what comes out, apart from the problems."""

    generations: int = 300  # of the first member
    seed: int = 0
    planned_on: int = PLANNED_ON
    walks: int = WALKS

    def __post_init__(self) -> None:
        if self.generations < 0:
            raise BadInput(f"generations must not be negative, got {self.generations}")


Report = Callable[[int, dict[str, float]], None]  # member, what its last generation says


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
) -> Rules:
    """Train rules on made-up or given problems, choose plans, write the policy; the same bits after a kill and resume.

    Beside OUTPUT lie a checkpoint and a log of every rule.
    """
    if bool(problems) == bool(given):
        raise BadInput("walk learns from --problems N that it makes up, or from --graphs of your own; give one of them")
    trained: list[NDArray[np.float64]] = []
    for number, member in enumerate(MEMBERS):
        source = _source(member, number, problems, given)
        strategy = Strategy(
            Evolution(generations=max(1, round(member.share * recipe.generations)) if recipe.generations else 0),
            source,
            seed=recipe.seed * len(MEMBERS) + number,
            start=_start(start, trained, number),
        )
        trained.append(_member(output, number, strategy, resume=resume, every=every, report=report))
    weights = np.concatenate([np.zeros((1, len(trained[0]))), np.stack(trained)])
    numbers = list(range(len(weights)))
    if given:
        lengths = {
            count: np.array([lengths_of(one, weights, candidates(numbers, count)) for one in grounds])
            for count, grounds in _by_groupings(given).items()
        }
    else:
        seeds = range(UNSEEN, UNSEEN + recipe.planned_on)
        lengths = measured(weights, numbers, seeds, PLAN_SCOPE)
    told = {
        "recipe": asdict(recipe), "problems": problems or [problem.fingerprint for problem in given],
        "members": [asdict(member) for member in MEMBERS],
    }  # fmt: skip
    rules = Rules(weights, planned(lengths, numbers, recipe.walks), told)
    rules.save(output)
    return rules


def _source(member: Member, number: int, problems: int, given: Sequence[Problem]) -> Source:
    if given:
        return GivenProblems(given)
    count = max(1, round(member.share * problems))
    return MadeProblems(count, Scope(least=member.least, most=member.most), first=number * (UNSEEN // len(MEMBERS)))


def _start(policy: Rules | None, trained: list[NDArray[np.float64]], number: int) -> NDArray[np.float64] | None:
    if policy is not None and number + 1 < len(policy.weights):
        return policy.weights[number + 1]
    return trained[-1] if trained else None


def _by_groupings(given: Sequence[Problem]) -> dict[int, list[Grounds]]:
    found: dict[int, list[Grounds]] = {count: [] for count in range(1, MOST_GROUPINGS + 1)}
    for problem in given:
        grounds = Grounds(problem)
        found[len(grounds.unit_groups)].append(grounds)
    return found


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
