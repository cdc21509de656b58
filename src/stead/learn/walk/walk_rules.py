"""Rules of a walk as arrays, the plans that say which of them to try, and the file that holds both.

Notation    R rules, W weights of a rule
    weights  [R, W]  row 0 is zero, which is list scheduling; the others are learned
    plan     walks in the order in which they are worth trying; those behind go on from the best of those before
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.coarsen.colocation import forward_operators
from stead.errors import BadInput
from stead.learn.ground import tensor_file
from stead.learn.walk.walk_steps import MOST_WEIGHT, NONE, Again, Planned, Step, listed, read_walk
from stead.printing.wording import one_line
from stead.problem import Problem
from stead.solvers.build.schedules import Schedule, groupings

FORMATS = (1, 2, 3)  # that are read: without walks that go on, without shakes and large kinds. The last is written
NAME = "walk"
LARGE = 2500  # operators, above which a problem has a plan of its own
CONTEXT_SCALE = 0.3  # of the shakes of weights that contexts multiply
MOST_GROUPINGS = 3  # the problem's units, with backward beside forward, with all users of a weight together
SHIPPED = Path(__file__).parents[1] / "pretrained" / "walk.safetensors"


def weight_count() -> int:
    """Weights of a rule."""
    shape = _native.walk_shape()
    return shape.device_rows * shape.device_features + shape.queue_rows * shape.queue_features


def weight_scales() -> NDArray[np.float64]:  # [weight]
    """How far weights are shaken: those of contexts less."""
    shape = _native.walk_shape()
    of_devices = shape.device_rows * shape.device_features
    scales = np.full(weight_count(), CONTEXT_SCALE)
    scales[: shape.device_features] = 1.0
    scales[of_devices : of_devices + shape.queue_features] = 1.0
    return scales


def shaken(row: NDArray[np.float64], shake: float, draw: np.random.Generator) -> NDArray[np.float64]:  # [weight]
    """Weights of a rule with normal numbers added: all decisions of a walk differ in the same way."""
    return np.clip(row + shake * weight_scales() * draw.standard_normal(len(row)), -MOST_WEIGHT, MOST_WEIGHT)


def _shape() -> list[int]:
    """The same as files hold it."""
    shape = _native.walk_shape()
    return [shape.device_rows, shape.device_features, shape.queue_rows, shape.queue_features]


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """What decides which plan a problem takes."""

    groupings: int  # that it has
    alike: bool  # all devices take the same time for everything, so that averages of costs are the same
    large: bool = False

    def __str__(self) -> str:
        return f"{self.groupings} {'alike' if self.alike else 'unlike'}{' large' if self.large else ''}"


KINDS = tuple(
    Kind(count, alike, large)
    for large in (False, True)
    for count in range(1, MOST_GROUPINGS + 1)
    for alike in (True, False)
)
Plans = Mapping[Kind, tuple[Planned, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Rules and plans: what a policy file of the walk holds."""

    weights: NDArray[np.float64]  # [rule, weight]
    plans: Plans
    zero_plans: Plans  # the same for rule 0 alone, chosen in the same way: what the learned rules are compared with
    trained: Mapping[str, object] = field(default_factory=dict)  # where it comes from; `walks` that it learned from

    def __post_init__(self) -> None:
        if self.weights.ndim != 2 or self.weights.dtype != np.float64 or self.weights.shape[1] != weight_count():
            raise BadInput(f"rules have {weight_count()} float64 weights each, got an array of {self.weights.shape}")
        if not len(self.weights) or self.weights[0].any():
            raise BadInput("the first rule must have zero weights")
        if not (np.abs(self.weights) <= MOST_WEIGHT).all():
            raise BadInput(f"weights of rules must be numbers within {MOST_WEIGHT:g}")
        for plans, rules in ((self.plans, len(self.weights)), (self.zero_plans, 1)):
            if set(plans) != set(KINDS):
                raise BadInput(f"plans are needed for problems of kind {', '.join(map(str, KINDS))}")
            for kind, plan in plans.items():
                if not plan or isinstance(plan[0], Again):
                    raise BadInput(f"the plan of kind {kind} is empty or begins with a walk that goes on from others")
                if any(isinstance(walk, Step) and not 0 <= walk.rule < rules for walk in plan):
                    raise BadInput(f"the plan of kind {kind} names a rule that is not there")
                if any(isinstance(walk, Step) and not 0 <= walk.grouping < kind.groupings for walk in plan):
                    raise BadInput(f"the plan of kind {kind} names a grouping that is not there")

    @property
    def learned_from(self) -> int:
        """Walks that rules were trained by, all runs together; 0 for weights that nobody trained."""
        walks = self.trained.get("walks", 0)
        return walks if type(walks) is int else 0

    def name_of(self, rule: int) -> str:
        """What a rule is, for those who ask who found a placement."""
        if not self.weights[rule].any():
            return "zero weights"
        return f"{'learned' if self.learned_from else 'untrained'} rule {rule}"

    def told(self, step: Step) -> str:
        """Who finds what a step of a plan finds."""
        return f"{NAME}, {self.name_of(step.rule)}"

    def without_learning(self) -> Rules:
        """The control: rule 0 alone, which is list scheduling, with the plans that were chosen for it."""
        return Rules(self.weights[:1], self.zero_plans, self.zero_plans, self.trained)

    def save(self, path: Path) -> None:
        """Write rules and plans to a file."""
        document = {
            "policy": NAME,
            "format": FORMATS[-1],
            "shape": _shape(),
            "plans": _listed(self.plans),
            "zero_plans": _listed(self.zero_plans),
            "trained": dict(self.trained),
        }
        tensor_file.save(path, {"weights": self.weights}, document)

    @staticmethod
    def load(path: Path) -> Rules:
        """Read what `save` wrote; a damaged or foreign file, or one of other features, is BadInput."""
        arrays, document = tensor_file.load(path)
        if document.get("policy") != NAME:
            raise BadInput(f"{path} holds a policy {document.get('policy')!r}, not one of {NAME}")
        if document.get("format") not in FORMATS or document.get("shape") != _shape():
            raise BadInput(f"{path} was made for other features of the walk; train it again")
        try:
            plans, zero_plans = (_read_plans(document[name]) for name in ("plans", "zero_plans"))
            return Rules(arrays["weights"], plans, zero_plans, _mapping(document["trained"]))  # type: ignore[arg-type]
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            reason = one_line(f"{type(error).__name__}: {error}", 200)
            raise BadInput(f"{path} does not say which walks to try: {reason}") from None


@cache
def shipped_rules() -> Rules:
    """The policy of the package: what every answer needs is read once."""
    rules = Rules.load(SHIPPED)
    rules.weights.setflags(write=False)
    return rules


@cache
def shipped_zero() -> Rules:
    """List scheduling with the plans that were chosen for it."""
    return shipped_rules().without_learning()


def _listed(plans: Plans) -> dict[str, object]:
    return {str(kind): [listed(walk) for walk in plan] for kind, plan in plans.items()}


def _read_plans(given: object) -> Plans:
    known = {str(kind): kind for kind in KINDS}
    plans = {known[name]: tuple(map(read_walk, walks)) for name, walks in _mapping(given).items()}
    small = {kind: plans[replace(kind, large=False)] for kind in KINDS if replace(kind, large=False) in plans}
    return small | plans  # files of the first two formats have no plans for large problems


def _mapping(given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise TypeError(f"an object is needed, got {type(given).__name__}")
    return given


class Grounds:
    """A problem as walks see it: its groupings with their tables, made when they are first used."""

    opinion_row = NONE  # that variants name

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.unit_groups = groupings(problem)[:MOST_GROUPINGS]
        self.limit_bytes = problem.limit_bytes
        self._tables: dict[int, _native.WalkTables] = {}

    @property
    def kind(self) -> Kind:
        """Which plan suits it."""
        seconds = self.problem.costs.seconds
        alike = bool((seconds == seconds[:, :1]).all() and self.problem.allowed.all())
        return Kind(len(self.unit_groups), alike, len(self.problem.graph) > LARGE)

    def coarsest(self, devices: NDArray[np.uint8]) -> int:  # [operator]
        """The last of its groupings in which no unit is on two devices."""
        for number in reversed(range(len(self.unit_groups))):
            units = self.unit_groups[number]
            firsts = np.unique(units, return_index=True)[1]
            if np.array_equal(devices[firsts][units], devices):
                return number
        return 0

    @cached_property
    def forward_of(self) -> NDArray[np.int32]:  # [operator]
        """The forward operator that each belongs to."""
        return forward_operators(self.problem.graph).astype(np.int32)

    def tables(self, grouping: int) -> _native.WalkTables:
        """What walks over one grouping look up."""
        if grouping not in self._tables:
            self._tables[grouping] = _native.WalkTables(
                self.problem.native, self.unit_groups[grouping], self.forward_of
            )
        return self._tables[grouping]

    def walk(
        self,
        grouping: int,
        weights: NDArray[np.float64],
        variants: list[_native.WalkVariant],
        *,
        guide: Schedule | None = None,
        limit_bytes: NDArray[np.int64] | None = None,
        seconds: float = math.inf,
        threads: int = 0,
    ) -> list[_native.Walk]:
        """A walk for each variant; `guide` is what those go on from that go on from another one."""
        return _native.walks(
            self.tables(grouping), weights, variants=variants, seconds=seconds, threads=threads,
            limit_bytes=self.limit_bytes if limit_bytes is None else limit_bytes, opinions=self.opinions(grouping),
            guide_devices=None if guide is None else guide.devices[None, :],
            guide_orders=None if guide is None else guide.order[None, :],
        )  # fmt: skip

    def opinions(self, grouping: int) -> NDArray[np.float64] | None:  # [row, unit * device]
        """What is thought of units on devices, beside rules; nothing here."""
        return None
