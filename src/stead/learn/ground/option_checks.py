"""Checks of the options of learned methods, with one wording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stead.errors import BadInput, did_you_mean
from stead.problem import Problem


class Named(Protocol):
    """Whatever has options and a name."""

    @property
    def name(self) -> str:
        """For error lines."""


def check_words(method: Named, known: Mapping[str, Sequence[str]]) -> None:
    """Options that are one of some words; an empty word among them means "that of the variant"."""
    for name, words in known.items():
        given = getattr(method, name)
        if given not in words:
            hint = did_you_mean(str(given), list(filter(None, words)))
            raise BadInput(
                f"{method.name}: {name} is one of {', '.join(filter(None, words))}, got {given!r}{hint}"
            )


def check_least(method: Named, least: Mapping[str, float]) -> None:
    """Options that are numbers of at least so much."""
    for name, value in least.items():
        given = getattr(method, name)
        if not given >= value:  # also where it is not a number
            raise BadInput(f"{method.name}: {name} must be at least {value}, got {given}")


def one_number_of_devices(name: str, problems: Sequence[Problem]) -> int:
    """The devices of all clusters, where their number is part of the network."""
    counts = {len(problem.cluster) for problem in problems}
    if len(counts) != 1:
        raise BadInput(f"{name} learns for one number of devices, got clusters of {sorted(counts)}")
    return counts.pop()


def check_even(method: Named, name: str) -> None:
    """An option that two halves are made of."""
    if getattr(method, name) % 2:
        raise BadInput(f"{method.name}: {name} must be even, got {getattr(method, name)}")
