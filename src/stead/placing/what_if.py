"""What if: a plan on other devices or at another size, re-costed as it is and solved anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from stead.cluster import Cluster
from stead.cluster.adding import with_added
from stead.cluster.changes import Change, change_of
from stead.cluster.quantities import show
from stead.costs.repriced import is_analytic, repriced
from stead.errors import BadInput, Infeasible, SteadError
from stead.placing.loading import load
from stead.placing.place import place_problem
from stead.placing.start_files import moved_to
from stead.plan import Plan
from stead.problem import Placement, Problem
from stead.sim import Trace, simulate
from stead.solvers import Budget

SIZES = ("batch", "context")  # of a model that is read again
MOST_POINTS = 64  # of a sweep
POINTS = 7  # of a range of an amount
LARGEST_SIZE = 2**31


@dataclass(frozen=True, slots=True)
class Size:
    """Another batch or context."""

    what: str
    amount: int

    def __str__(self) -> str:
        return f"{self.what} = {self.amount}"

    @property
    def shown(self) -> str:
        """The amount alone."""
        return str(self.amount)


AnyChange = Change | Size


@dataclass(frozen=True)
class Case:
    """A plan in changed circumstances: the problem as it then is, and the same placement in it."""

    plan: Plan
    problem: Problem
    label: str = ""  # of a point of a sweep
    notes: tuple[str, ...] = ()

    @cached_property
    def kept(self) -> Placement | None:
        """The plan's placement in the changed problem; None if that cannot be, `trouble` says why."""
        try:
            return moved_to(self.plan.placement, self.problem, "the plan")
        except SteadError:
            return None

    @cached_property
    def trace(self) -> Trace | None:
        """The placement as the simulator runs it there."""
        return None if self.kept is None else simulate(self.problem, self.kept)

    @property
    def seconds(self) -> float | None:
        """What the same placement takes there; None if it does not work."""
        return self.trace.objective_seconds if self.trace is not None and self.trace.feasible else None

    @property
    def trouble(self) -> str:
        """Why the same placement does not work there; empty if it does."""
        if self.trace is not None:
            return "; ".join(str(problem) for problem in self.trace.problems)
        try:
            moved_to(self.plan.placement, self.problem, "the plan")
        except SteadError as error:
            return str(error).removeprefix("the plan: ")
        return ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case, and the best plan that was found for it; `reason` says why there is none."""

    case: Case
    solved: Plan | None
    reason: str = ""

    @property
    def moved(self) -> int | None:
        """Operators that the new plan puts elsewhere; None where the two cannot be compared."""
        if self.solved is None or self.case.kept is None:
            return None
        return int((self.solved.placement.devices != self.case.kept.devices).sum())


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be changed, in the words of the user; each part is checked against the plan's cluster."""

    sets: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    sweep: str = ""

    def __bool__(self) -> bool:
        return bool(self.sets or self.adds or self.removes or self.sweep)


def cases_of(plan: Plan, changes: Changes) -> list[Case]:
    """The plan with the changes made: one case, or one for every point of a sweep."""
    if not changes:
        raise BadInput("nothing is changed; give --set, --add, --remove or --sweep")
    _check_free(plan, changes)
    cluster, notes = with_added(plan.problem.cluster, changes.adds)
    cluster = cluster.without(*changes.removes)
    made = [_change_from(text, cluster) for text in changes.sets]
    points: list[AnyChange | None] = [*sweep_of(changes.sweep, cluster)] if changes.sweep else [None]
    cases = []
    for point in points:
        label = "" if point is None else point.shown
        case = case_of(plan, cluster, [*made, *([] if point is None else [point])])
        cases.append(replace(case, label=label, notes=(*notes, *case.notes)))
    return cases


def case_of(plan: Plan, cluster: Cluster, changes: Sequence[AnyChange]) -> Case:
    """The plan on another cluster with single things changed."""
    before = plan.problem
    sizes = {change.what: change.amount for change in changes if isinstance(change, Size)}
    for change in changes:
        if isinstance(change, Change):
            if change.is_link and change.what == "bandwidth" and before.costs.tensor_seconds is not None:
                raise BadInput(f"{change}: the plan's file gives the seconds of every transfer; bandwidth says nothing")
            cluster = change.on(cluster)
    if not sizes:
        costs = repriced(before.graph, before.cluster, before.costs, cluster)
        problem = Problem(
            before.graph, cluster, costs, objective=before.objective, constraints=before.constraints
        )
        return Case(plan, problem)
    return _at_size(plan, cluster, sizes)


def outcome_of(case: Case, budget: Budget, seed: int = 0) -> Outcome:
    """The case solved anew, beginning with the plan's own placement where that works."""
    kept = case.kept
    try:
        solved = place_problem(
            case.problem,
            budget=budget,
            seed=seed,
            start=None if case.seconds is None or kept is None else lambda _: kept,
            made_from=(str(case.plan.provenance.get("model", "")), ""),
            source=case.plan.provenance.get("source"),
        )
    except Infeasible as error:
        return Outcome(case, None, str(error))
    return Outcome(case, solved)


def sweep_of(text: str, cluster: Cluster) -> list[AnyChange]:
    """The points of `batch=1..64` (doubled), `3060.bandwidth=200GB/s..800GB/s` (in equal ratios) or `batch=1,3,9`.

    >>> from stead.cluster import cluster_from
    >>> [point.shown for point in sweep_of("batch=1..6", cluster_from("3090")[0])]
    ['1', '2', '4', '6']
    """
    key, equals, values = text.partition("=")
    if not (key.strip() and equals and values.strip()):
        raise BadInput(f"--sweep needs WHAT=FROM..TO or WHAT=A,B,C, such as batch=1..64; got {show(text)}")
    if ".." not in values:
        points = [_change_from(f"{key}={value}", cluster) for value in values.split(",") if value.strip()]
    else:
        low, high = (_change_from(f"{key}={value}", cluster) for value in values.split("..", 1))
        points = _between(low, high, text)
    if not 1 <= len(points) <= MOST_POINTS:
        raise BadInput(f"a sweep has 1 to {MOST_POINTS} points, {show(text)} has {len(points)}")
    return points


def _between(low: AnyChange, high: AnyChange, text: str) -> list[AnyChange]:
    if not low.amount < high.amount or getattr(low, "times", False) != getattr(high, "times", False):
        raise BadInput(f"--sweep {show(text)}: a range goes up, from one amount to a larger one of the same kind")
    if isinstance(low, Size):
        doubled = [low.amount << n for n in range(MOST_POINTS) if low.amount << n < high.amount]
        return [replace(low, amount=amount) for amount in (*doubled, int(high.amount))]
    if low.amount <= 0:
        raise BadInput(f"--sweep {show(text)}: a range of amounts begins above 0")
    ratio = (high.amount / low.amount) ** (1 / (POINTS - 1))
    amounts = [low.amount * ratio**n for n in range(POINTS - 1)]
    return [replace(low, amount=amount) for amount in (*amounts, high.amount)]


def _change_from(text: str, cluster: Cluster) -> AnyChange:
    """A change of the cluster, or of the size that the model is read at."""
    key, _, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if key in SIZES:
        if not (value.isdecimal() and value.isascii() and 0 < int(value[:20]) <= LARGEST_SIZE):
            raise BadInput(f"{key} is a whole number from 1 to 2^31, got {show(value)}")
        return Size(key, int(value))
    subject, dot, what = key.rpartition(".")
    if not (dot and subject and what and value):
        raise BadInput(
            f"a change needs DEVICE.PROPERTY=VALUE, batch=N or context=N, such as cuda:1.bandwidth=1008GB/s; "
            f"got {show(text)}"
        )
    return change_of(subject, what, value, cluster)


def _check_free(plan: Plan, changes: Changes) -> None:
    """Refuse to remove a device that the plan's constraints name, or all devices."""
    constraints = plan.problem.constraints
    for name in changes.removes:
        plan.problem.cluster.index(name)
        for what, device in (*constraints.pin, *constraints.forbid):
            if device == name:
                raise BadInput(f"{name} cannot be removed: the plan was made with a pin or forbid of {what!r} there")
    if not changes.adds and set(changes.removes) >= set(plan.problem.cluster.names):
        raise BadInput("no device would be left; remove fewer, or add others")


def _at_size(plan: Plan, cluster: Cluster, sizes: dict[str, int]) -> Case:
    """The plan's model read again at another size, priced as before."""
    before, source = plan.problem, plan.provenance.get("source")
    what = " and ".join(sizes)
    if not isinstance(source, dict) or not isinstance(source.get("model"), str):
        raise BadInput(f"another {what} needs the model itself, and the plan does not say what it was read from")
    if not is_analytic(before.graph, before.cluster, before.costs):
        raise BadInput(f"the plan's costs are {before.costs.source.label}: what another {what} costs is not known")
    options: dict[str, Any] = {**source.get("options", {}), **sizes}
    model = source["model"] if source["model"].startswith("zoo:") else Path(source["model"])
    loaded = load(model, cluster, options=options)
    asked = loaded.problem(before.objective, before.constraints)
    return Case(plan, _as_grouped(plan, asked))


def _as_grouped(plan: Plan, problem: Problem) -> Problem:
    """The problem with as much kept whole as in the plan."""
    from stead.solvers.whole_blocks import experts_together, whole_blocks

    level = plan.provenance.get("granularity")
    if not isinstance(level, dict):
        return problem
    return whole_blocks(problem) if level.get("level") == "block" else experts_together(problem)

