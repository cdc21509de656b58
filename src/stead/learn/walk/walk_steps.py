"""Walks of a plan: those that begin anew, and those that go on from the best one before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from stead import _native

AT_ONCE = 4  # walks of a round: nothing that one of them finds helps another
AVERAGES = ("mean", "min", "best")
MOST_WEIGHT = 1e6
NONE = -1  # of the core, for opinions and guides


@dataclass(frozen=True, slots=True)
class Again:
    """A walk that goes on from the best one before it: the same step, with ranks that are those of its schedule."""

    tail: float = 0.0  # weight of the longest way behind an operator when devices are compared
    cling: float = 0.0  # preference for the device that the best walk has
    noise: float = 0.0  # of logits
    shake: float = 0.0  # of the weights of the best walk's rule
    finest: bool = False  # with the units of the problem, whatever those of the best walk are

    def after(self, best: Step) -> Step:
        """The step that it is once the best walk is known."""
        return replace(best, grouping=0 if self.finest else best.grouping, again=self)


ANEW = Again()


@dataclass(frozen=True, slots=True)
class Step:
    """One walk."""

    rule: int  # row of the weights; 0: list scheduling
    bias: float = 1.0  # weight of a transfer when devices are compared
    foresight: float = 0.0  # weight of the work that a unit brings later
    average: str = "mean"  # of costs for ranks
    grouping: int = 0  # 0: the units of the problem, 1: backward beside forward, 2: users of a weight together
    again: Again | None = None  # how it goes on from another walk; never part of a plan

    def native(
        self, *, noise: float = 0.0, seed: int = 0, retime: bool = True, opinion: int = NONE
    ) -> _native.WalkVariant:
        """The same as the core takes it; a walk that goes on from another one is given that as its only guide."""
        own = self.again or ANEW
        return _native.WalkVariant(
            rule=self.rule, bias=self.bias, foresight=self.foresight, average=self.average,
            noise=max(noise, own.noise), seed=seed, retime=retime, opinion=opinion,
            guide=NONE if self.again is None else 0, tail=own.tail, cling=own.cling,
        )  # fmt: skip


Planned = Step | Again


def rounds(plan: Sequence[Planned]) -> Iterator[range]:
    """Numbers of the walks that go on from the same: a few at a time, and none that begins anew among others.

    >>> [list(one) for one in rounds([Step(0), Step(1), ANEW, ANEW, ANEW, ANEW, ANEW])]
    [[0, 1], [2, 3, 4, 5], [6]]
    """
    begin = 0
    for number in range(1, len(plan) + 1):
        ends = number == len(plan) or number - begin == AT_ONCE
        if ends or isinstance(plan[number], Again) != isinstance(plan[begin], Again):
            yield range(begin, number)
            begin = number


def listed(walk: Planned) -> object:
    """A walk of a plan as plain data."""
    if isinstance(walk, Again):
        return asdict(walk)
    return [walk.rule, walk.bias, walk.foresight, walk.average, walk.grouping]


def read_walk(given: Any) -> Planned:
    """What `listed` wrote; anything else is a ValueError."""
    if isinstance(given, Mapping):
        return _read_again(given)
    rule, bias, foresight, average, grouping = given
    if type(rule) is not int or type(grouping) is not int or average not in AVERAGES:
        raise ValueError(f"no walk: {given!r}")
    return Step(rule, _weight(bias), _weight(foresight), average, grouping)


def _read_again(given: Mapping[str, Any]) -> Again:
    types = {one.name: one.type for one in fields(Again)}
    whole = {"shake": 0.0, **given}  # which files of the second format do not have
    found: dict[str, Any] = {
        name: _weight(value) if types.get(name) == "float" else value for name, value in whole.items()
    }
    if {name: type(value).__name__ for name, value in found.items()} != types:
        raise ValueError(f"no walk: {given!r}")
    return Again(**found)


def _weight(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, float | int) or not 0 <= given <= MOST_WEIGHT:
        raise ValueError(f"no weight: {given!r}")
    return float(given)
