"""Rules by evolution strategies: weights are shaken in pairs, and move to where walks are shorter.

Notation    P pairs, B problems of a generation, W weights
    theta  [W]     the weights
    e      [P, W]  normal numbers, smaller for weights of contexts
    f      [2P, B] logarithms of lengths with theta + sigma e and with theta - sigma e (antithetic pairs)

The step is along -sum_p mean_b clip(f[+p, b] - f[-p, b]) e_p, scaled to the same length in every generation (Salimans
et al. 2017, with momentum); what is kept is the mean of theta over the last third. Generation g draws from a generator
made of (seed, g): nothing random is saved, and a run that was killed ends with the same bits.

A rule that is to complete others (`rivals`) is judged by what it adds: in place of a length x it counts
-log(exp(-s x) + exp(-s r)) / s with r the best length that rivals reach, each with several biases.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import BadInput
from stead.learn.ground import tensor_file
from stead.learn.walk.made_problems import Scope, made_problem
from stead.learn.walk.walk_rules import Grounds, weight_count, weight_scales
from stead.learn.walk.walk_steps import Step
from stead.problem import Problem

MOMENTUM = 0.9
MOST_DIFFERENCE = 0.1  # of two logarithms: a problem on which all goes wrong says no more than that
LACK = 0.5  # that a schedule counts longer which does not fit, before what it lacks
LAST_SHARE = 0.3  # of the generations, whose mean is kept
LAST_RATE = 0.1  # of the rate, in the last generation
SHARPNESS = 30.0  # s: a rule that is 1 / s behind its rivals counts about half
KEPT_OPERATORS = 3_000_000  # of all problems that are kept in memory; others are made again when they come up
RIVAL_BIASES = (1.0, 2.0, 4.0)
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a rule is learned."""

    generations: int = 300
    pairs: int = 16
    batch: int = 32  # problems of a generation
    sigma: float = 0.06
    rate: float = 0.025

    def __post_init__(self) -> None:
        for name in ("pairs", "batch"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.generations < 0:
            raise BadInput(f"generations must not be negative, got {self.generations}")
        if not (0 < self.sigma <= 10 and 0 < self.rate <= 10):
            raise BadInput(f"sigma and rate must lie in (0, 10], got {self.sigma} and {self.rate}")


class Source(Protocol):
    """Problems to learn from, by number."""

    @property
    def count(self) -> int:
        """How many there are."""

    def problem(self, number: int) -> Problem:
        """One of them."""

    def identity(self) -> object:
        """What tells it from other sources, as plain data."""


@dataclass(frozen=True, slots=True)
class MadeProblems:
    """Problems of consecutive seeds."""

    count: int
    scope: Scope
    first: int = 0

    def problem(self, number: int) -> Problem:
        """That of a seed."""
        return made_problem(self.first + number, self.scope).problem

    def identity(self) -> object:
        """Seeds and scope."""
        scope = self.scope
        return {
            "first": self.first, "count": self.count, "families": list(scope.families), "least": scope.least,
            "most": scope.most,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class GivenProblems:
    """Somebody's own problems."""

    problems: Sequence[Problem]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.problems)

    def problem(self, number: int) -> Problem:
        """One of them."""
        return self.problems[number]

    def identity(self) -> object:
        """Their fingerprints."""
        return [problem.fingerprint for problem in self.problems]


class Ground:
    """One problem to learn from: a grouping of it, by its number, and how a walk on it is judged."""

    def __init__(self, problem: Problem, number: int) -> None:
        self.grounds = Grounds(problem)
        self.grouping = number % len(self.grounds.unit_groups)

    def lengths(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:  # [rule]
        """Logarithms of the lengths of a walk by each rule."""
        variants = [Step(rule).native() for rule in range(len(weights))]
        return self._lengths(weights, variants)

    def best_of(self, rivals: NDArray[np.float64]) -> float:
        """The least logarithm of a length that rules reach with any of their biases."""
        variants = [Step(rule, bias).native() for rule in range(len(rivals)) for bias in RIVAL_BIASES]
        return float(self._lengths(rivals, variants).min())

    def _lengths(self, weights: NDArray[np.float64], variants: list[_native.WalkVariant]) -> NDArray[np.float64]:
        walks = self.grounds.walk(self.grouping, weights, variants, threads=1)
        return np.array([judged(walk, self.grounds) for walk in walks])


def judged(walk: _native.Walk, grounds: Grounds) -> float:
    """The logarithm of the length of a walk, more where memory lacks."""
    if walk.ticks < 0:
        return math.inf
    lack = LACK + walk.over_bytes / float(grounds.limit_bytes.sum()) if walk.over_bytes else 0.0
    return math.log(max(walk.ticks, 1)) + lack


class Strategy:
    """Weights on their way: one generation after another."""

    def __init__(
        self,
        options: Evolution,
        source: Source,
        seed: int,
        *,
        start: NDArray[np.float64] | None = None,
        rivals: NDArray[np.float64] | None = None,  # [rule, weight]
    ) -> None:
        if source.count < 1:
            raise BadInput("training needs at least one problem")
        self.options, self.source, self.seed = options, source, seed
        count = weight_count()
        self.theta = np.zeros(count) if start is None else start.astype(np.float64).copy()
        self.start = self.theta.copy()
        self.rivals = np.zeros((0, count)) if rivals is None else rivals
        self.momentum = np.zeros(count)
        self.summed = np.zeros(count)  # of theta, over the last generations
        self.generation = 0
        self.walks = 0
        self._scales = weight_scales()
        self._grounds: dict[int, Ground] = {}
        self._kept_operators = 0
        self._rival_lengths: dict[int, float] = {}

    def ground(self, number: int) -> Ground:
        """Problem `number` of the source, made when it first comes up."""
        if number in self._grounds:
            return self._grounds[number]
        ground = Ground(self.source.problem(number), number)
        operators = len(ground.grounds.problem.graph)
        if self._kept_operators + operators <= KEPT_OPERATORS:
            self._kept_operators += operators
            self._grounds[number] = ground
        return ground

    def _counted(self, number: int, tried: NDArray[np.float64]) -> NDArray[np.float64]:  # [rule]
        """What rules are judged by on one problem."""
        ground = self.ground(number)
        lengths = ground.lengths(tried)
        if not len(self.rivals):
            return lengths
        if number not in self._rival_lengths:
            self._rival_lengths[number] = ground.best_of(self.rivals)
        counted: NDArray[np.float64] = (
            -np.logaddexp(-SHARPNESS * lengths, -SHARPNESS * self._rival_lengths[number]) / SHARPNESS
        )
        return counted

    def advance(self) -> dict[str, float]:
        """One generation; what it says about itself."""
        options, g = self.options, self.generation
        draw = np.random.default_rng([self.seed, g])
        chosen = draw.permutation(self.source.count)[: options.batch]
        shakes = draw.standard_normal((options.pairs, len(self.theta))) * self._scales
        tried = np.concatenate([self.theta + options.sigma * shakes, self.theta - options.sigma * shakes])
        lengths = np.stack([self._counted(int(n), tried) for n in chosen], axis=1)
        self.walks += lengths.size
        better = np.clip(lengths[: options.pairs] - lengths[options.pairs :], -MOST_DIFFERENCE, MOST_DIFFERENCE)
        better = np.nan_to_num(better)  # both infinite: nothing is known
        slope = better.mean(axis=1) @ shakes
        norm = float(np.linalg.norm(slope))
        direction = slope / (norm + 1e-12) * math.sqrt(len(slope))
        self.momentum = MOMENTUM * self.momentum + (1 - MOMENTUM) * direction
        share = g / max(1, options.generations - 1)
        self.theta = self.theta - options.rate * (1 - (1 - LAST_RATE) * share) * self.momentum
        if g >= (1 - LAST_SHARE) * options.generations:
            self.summed += self.theta
        self.generation += 1
        size = float(np.abs(self.theta).mean())
        return {"generation": self.generation, "walks": self.walks, "slope": norm, "size": size}

    @property
    def rule(self) -> NDArray[np.float64]:  # [weight]
        """What is kept: the mean over the last generations, or where it is while there are none."""
        first = math.ceil((1 - LAST_SHARE) * self.options.generations)
        count = self.generation - first
        return self.summed / count if count > 0 else self.theta.copy()

    def save(self, path: Path) -> None:
        """Write all that the next generation needs."""
        arrays = {
            "theta": self.theta, "momentum": self.momentum, "summed": self.summed, "start": self.start,
            "rivals": self.rivals,
        }  # fmt: skip
        numbers = {"generation": self.generation, "walks": self.walks, **self._identity()}
        tensor_file.save(path, arrays, numbers)

    def restore(self, path: Path) -> None:
        """Go on from what `save` wrote; another run is BadInput."""
        arrays, numbers = tensor_file.load(path)
        try:
            same = {name: numbers[name] for name in self._identity()} == self._identity()
            begun = {"start": self.start, "rivals": self.rivals}
            if not (same and all(np.array_equal(arrays[name], own) for name, own in begun.items())):
                raise BadInput(f"{path} is of another run; leave out --resume to train anew")
            kept = [np.asarray(arrays[name], dtype=np.float64) for name in ("theta", "momentum", "summed")]
            counted = [int(numbers[name]) for name in ("generation", "walks")]  # type: ignore[call-overload]
        except (LookupError, TypeError, ValueError) as error:
            raise BadInput(f"{path} is damaged ({error}); leave out --resume to train anew") from None
        if any(one.shape != self.theta.shape or not np.isfinite(one).all() for one in kept):
            raise BadInput(f"{path} is damaged (weights); leave out --resume to train anew")
        self.theta, self.momentum, self.summed = kept
        self.generation, self.walks = counted

    def _identity(self) -> dict[str, object]:
        return {
            "policy": "walk", "format": FORMAT, "seed": self.seed, "options": asdict(self.options),
            "problems": self.source.identity(),
        }  # fmt: skip


def evolve(
    strategy: Strategy,
    kept: Path,
    *,
    resume: bool,
    every: int = 25,
    report: Callable[[dict[str, float]], None] | None = None,
) -> NDArray[np.float64]:  # [weight]
    """Advance to the last generation, with a checkpoint every so many; the rule."""
    if resume and kept.exists():
        strategy.restore(kept)
    begin = time.process_time()
    while strategy.generation < strategy.options.generations:
        row = strategy.advance()
        if report is not None:
            report({**row, "cpu_seconds": time.process_time() - begin})
        if strategy.generation % every == 0 or strategy.generation == strategy.options.generations:
            strategy.save(kept)
    return strategy.rule
