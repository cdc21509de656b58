"""Events: what a search tells while it runs, so that who watches sees value, bound and gap at any time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stead.cluster.classes import DeviceIndices

if TYPE_CHECKING:
    from stead.problem import Order

EventKind = Literal["improvement", "bound", "baseline"]


@dataclass(frozen=True, slots=True, eq=False)
class Incumbent:
    """The best placement so far, as a Placement is made of it."""

    devices: DeviceIndices  # [operator]
    order: Order | None = None
    replicas: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """Where a search stands after something has become better, or what a simple rule has found."""

    kind: EventKind
    evaluations: int = 0
    objective_seconds: float = math.inf  # inf: nothing has been found yet
    bound_seconds: float = 0.0
    bound_name: str = ""
    scope: str = ""  # the placements that the bound holds for; empty: all
    found_by: str = ""
    reason: str = ""  # why a rule has no value
    incumbent: Incumbent | None = None

    def joined(self, later: Event) -> Event | None:
        """This state with what a later event adds to it; None if that is nothing.

        A bound over fewer placements than this one says nothing new.
        """
        better = later.objective_seconds < self.objective_seconds
        proves = later.scope in ("", self.scope) and later.bound_seconds > self.bound_seconds
        if not better and not proves:
            return None
        count = max(self.evaluations, later.evaluations)
        joined = replace(self, kind="improvement" if better else "bound", evaluations=count)
        if better:
            joined = replace(
                joined,
                objective_seconds=later.objective_seconds,
                found_by=later.found_by,
                incumbent=later.incumbent,
            )
        if proves:
            joined = replace(joined, bound_seconds=later.bound_seconds, bound_name=later.bound_name)
        return joined
