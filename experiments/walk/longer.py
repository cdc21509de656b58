"""Rules for graphs of thousands of operators beside those of the package, each judged by what it adds to all of them.

    python experiments/walk/longer.py train FOLDER            rule after rule, resumable; an hour of a core
    python experiments/walk/longer.py plan FOLDER KIND ...    plans for kinds of problems, such as "2 alike large"
    python experiments/walk/longer.py join FOLDER FILE        the policy: all rules that are done, with these plans

A rule counts -log(exp(-s x) + exp(-s r)) / s for a walk of length x, where r is the best of all walks that begin anew
in the plan of the package, of the heft family, and of the rules trained before it. It differs from `stead train walk`
in that rivals are whole answers with all their weights of transfers and groupings, and that rules share their problems:
2,400 with seeds from 40,000,000 on, first those of 1,500 to 8,000 operators, on which rules had hardly been trained,
then those of 300 to 2,500. What each adds is written down for problems of other seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stead.errors import Infeasible
from stead.files import write_text
from stead.learn.walk.evolution import SHARPNESS, Evolution, MadeProblems, Strategy, evolve
from stead.learn.walk.made_problems import Scope, made_problem
from stead.learn.walk.method import Walk
from stead.learn.walk.walk_plans import candidates, lengths_of, taken
from stead.learn.walk.walk_rounds import grown
from stead.learn.walk.walk_rules import KINDS, Grounds, Kind, Rules
from stead.learn.walk.walk_steps import Step, listed, read_walk
from stead.problem.ticks import TICKS_PER_SECOND
from stead.solvers import Budget
from stead.solvers.build.list_scheduling import Heft

FIRST_SEED = 1000
PLANNED = 36  # walks of a plan
BIASES = (1.0, 4.0)  # of a rule that is trained, in turn
STEPS = 60  # that plans are chosen from, twice: those that help others most, and those that are best by themselves
SMALL_SCOPE, LARGE_SCOPE = Scope(least=60, most=2500), Scope(least=2500, most=10_000)


@dataclass(frozen=True)
class Ground:
    """Problems that rules share, and those of other seeds on which it is written down what they add."""

    learned: MadeProblems
    watched: MadeProblems


def ground(least: int, most: int, count: int, watched: int, first: int) -> Ground:
    """So many problems of so many operators."""
    scope = Scope((), least, most)
    return Ground(MadeProblems(count, scope, first), MadeProblems(watched, scope, first + 900_000))


LARGE = ground(1500, 8000, 800, 100, 40_000_000)
MIDDLE = ground(300, 2500, 1600, 200, 41_000_000)


@dataclass(frozen=True)
class Member:
    """One rule: its problems, the rule of the package it begins at (0: zero weights), and how it is learned."""

    ground: Ground
    start: int
    options: Evolution


def large(start: int, sigma: float = 0.06, rate: float = 0.025) -> Member:
    """A rule for large problems."""
    return Member(LARGE, start, Evolution(120, 16, 8, sigma, rate))


def middle(start: int, sigma: float = 0.06, rate: float = 0.025) -> Member:
    """A rule for problems of the middle."""
    return Member(MIDDLE, start, Evolution(160, 16, 16, sigma, rate))


MEMBERS = (
    large(1), large(2), large(0, 0.1, 0.04), large(12), large(7), large(16), large(3), large(0, 0.1, 0.04), large(9),
    large(8), middle(1), middle(0, 0.1, 0.04), middle(2), middle(13), middle(8), middle(5),
)  # fmt: skip


@dataclass
class Answers:
    """What a policy and rules beside it reach on problems; made when they first come up."""

    rules: Rules
    source: MadeProblems
    _grounds: dict[int, Grounds] = field(default_factory=dict)
    _best: dict[int, float] = field(default_factory=dict)
    _counted: dict[int, int] = field(default_factory=dict)  # rules beside the policy that `_best` knows of

    def grounds(self, number: int) -> Grounds:
        """One problem."""
        if number not in self._grounds:
            self._grounds[number] = Grounds(self.source.problem(number))
        return self._grounds[number]

    def of(self, number: int, rules: NDArray[np.float64]) -> NDArray[np.float64]:  # [rule]
        """Logarithms of the length of a walk by each rule, over one grouping with one weight of transfers."""
        grounds = self.grounds(number)
        count = len(grounds.unit_groups)
        bias, grouping = BIASES[number // count % len(BIASES)], number % count
        steps = [Step(rule, bias, grouping=grouping) for rule in range(len(rules))]
        return lengths_of(grounds, rules, steps)

    def best(self, number: int, others: list[NDArray[np.float64]]) -> float:
        """The least logarithm of a length that the heft family, the plan of the policy and other rules reach."""
        if number not in self._best:
            grounds = self.grounds(number)
            steps = [walk for walk in self.rules.plans[grounds.kind] if isinstance(walk, Step)]
            planned = float(lengths_of(grounds, self.rules.weights, list(dict.fromkeys(steps))).min())
            self._best[number], self._counted[number] = min(planned, heft_length(grounds)), 0
        new = others[self._counted[number] :]
        if new:
            self._best[number] = min(self._best[number], float(self.of(number, np.stack(new)).min()))
            self._counted[number] = len(others)
        return self._best[number]


class Adding(Strategy):
    """A rule that is judged beside all that there is."""

    def __init__(
        self, options: Evolution, answers: Answers, others: list[NDArray[np.float64]], start: int, seed: int
    ) -> None:
        super().__init__(options, answers.source, seed, start=answers.rules.weights[start])
        self.answers, self.others = answers, others

    def _counted(self, number: int, tried: NDArray[np.float64]) -> NDArray[np.float64]:  # [rule]
        lengths, rival = self.answers.of(number, tried), self.answers.best(number, self.others)
        counted: NDArray[np.float64] = -np.logaddexp(-SHARPNESS * lengths, -SHARPNESS * rival) / SHARPNESS
        return counted


def train(folder: Path) -> None:
    """Rule after rule, from their checkpoints where there are any."""
    folder.mkdir(parents=True, exist_ok=True)
    rules = Walk().rules
    both = {one: (Answers(rules, one.learned), Answers(rules, one.watched)) for one in (LARGE, MIDDLE)}
    for number, member in enumerate(MEMBERS):
        kept = folder / f"rule{number}.npy"
        if kept.exists():
            continue
        others = [np.load(folder / f"rule{n}.npy") for n in range(number)]
        learned, watched = both[member.ground]
        begin = time.process_time()
        strategy = Adding(member.options, learned, others, member.start, FIRST_SEED + number)
        found = evolve(strategy, folder / f"rule{number}.checkpoint.safetensors", resume=True, every=10)
        numbers = range(watched.source.count)
        added = [min(0.0, float(watched.of(n, found[None])[0]) - watched.best(n, others)) for n in numbers]
        row = {
            "rule": number, "adds": float(np.mean(added)), "error": float(np.std(added) / math.sqrt(len(added))),
            "walks": strategy.walks, "cpu_seconds": round(time.process_time() - begin, 1),
        }  # fmt: skip
        with (folder / "rules.jsonl").open("a") as log:
            print(json.dumps(row), file=log)
        np.save(kept, found)


def all_rules(folder: Path) -> NDArray[np.float64]:  # [rule, weight]
    """Those of the package, then those that are done."""
    done = [np.load(folder / f"rule{n}.npy")[None] for n in range(len(MEMBERS)) if (folder / f"rule{n}.npy").exists()]
    return np.concatenate([Walk().rules.weights, *done])


def plan(folder: Path, names: Sequence[str]) -> None:
    """Plans for some kinds, and those of list scheduling alone, chosen on problems that no rule was trained on.

    Of all steps those stay that were among the best on the first few problems.
    """
    weights = all_rules(folder)
    for kind in KINDS:
        kept = folder / f"plan {kind}.json"
        if str(kind) not in names or kept.exists():
            continue
        problems, began = list(of_kind(kind)), time.process_time()
        few = problems[: len(problems) // 3]
        steps = candidates(range(len(weights)), kind)
        first = np.array([lengths_of(grounds, weights, steps) for grounds in few])
        best = [*range(len(candidates([0], kind))), *taken(first, STEPS), *np.argsort(first.mean(axis=0))[:STEPS]]
        order = sorted({int(n) for n in best})
        rest = [lengths_of(grounds, weights, [steps[n] for n in order]) for grounds in problems[len(few) :]]
        lengths = np.concatenate([first[:, order], np.array(rest)])
        zero = len(candidates([0], kind))
        own, reached = grown([steps[n] for n in order], lengths, weights, problems, PLANNED)
        listed_only, alone = grown(steps[:zero], lengths[:, :zero], weights[:1], problems, PLANNED)
        told = {
            "plan": [listed(walk) for walk in own], "zero": [listed(walk) for walk in listed_only],
            "problems": len(problems), "ratio": float(np.exp(np.mean(np.array(reached) - np.array(alone)))),
            "cpu_seconds": round(time.process_time() - began, 1),
        }  # fmt: skip
        write_text(kept, json.dumps(told))
        print(kind, told["problems"], told["ratio"], told["cpu_seconds"], flush=True)


def of_kind(kind: Kind) -> Iterator[Grounds]:
    """Problems of seeds that nothing was trained on, as many as are wanted of a kind."""
    wanted, scope, first = (30, LARGE_SCOPE, 50_000_000) if kind.large else (90, SMALL_SCOPE, 51_000_000)
    for seed in range(first, first + 3000):
        grounds = Grounds(made_problem(seed, scope).problem)
        if grounds.kind == kind:
            yield grounds
            wanted -= 1
        if not wanted:
            return


def join(folder: Path, output: Path) -> None:
    """Rules and plans as one policy; only plans of learned rules for more than 2,500 operators are new in it.

    On 120 unseen problems of at most 2,500 operators (seeds from 13,000,000 on) new plans have 1.0042 +- 0.0030 of the
    old ones with 32 walks; those for zero weights 1.0037 +- 0.0031 with 16, which networks ask for, and on 60 larger
    ones (from 13,500,000 on) 0.9989 +- 0.0031: nothing that would speak for them.
    """
    before = Walk().rules
    found = {kind: json.loads((folder / f"plan {kind}.json").read_text())["plan"] for kind in KINDS if kind.large}
    plans = {**before.plans, **{kind: tuple(map(read_walk, plan)) for kind, plan in found.items()}}
    rows = [json.loads(line) for line in (folder / "rules.jsonl").read_text().splitlines()]
    told = {
        **before.trained, "walks": before.learned_from + sum(row["walks"] for row in rows),
        "for large graphs": {"rules": len(rows), "cpu_seconds": sum(row["cpu_seconds"] for row in rows)},
    }  # fmt: skip
    Rules(all_rules(folder), plans, before.zero_plans, told).save(output)


def heft_length(grounds: Grounds) -> float:
    """The logarithm of what the heft family takes."""
    try:
        return math.log(Heft().solve(grounds.problem, Budget()).objective_seconds * TICKS_PER_SECOND)
    except Infeasible:
        return math.inf


def main() -> None:
    """Train, choose plans, or write the policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("train", "plan", "join"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("rest", nargs="*", help="kinds, or the file")
    given = parser.parse_args()
    if given.part == "train":
        train(given.folder)
    elif given.part == "plan":
        plan(given.folder, given.rest or [str(kind) for kind in KINDS])
    else:
        join(given.folder, Path(*given.rest))


if __name__ == "__main__":
    main()
