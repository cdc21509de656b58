"""The verdict on a plan in a word and a few claims: what a reader should know before any picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from stead.cluster.quantities import format_bytes, format_seconds
from stead.report.box_moves import BoxMoves
from stead.report.facts import Report
from stead.report.fold import TIMES, Fold
from stead.sim import Shortfall, simulate

if TYPE_CHECKING:
    from stead.plan import Plan

State = Literal["infeasible", "beaten", "indifferent", "proved", "as good", "better"]
MOST_REMEDIES = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state, and sentences: problems and remedies come first where there are any."""

    state: State
    interrupted: bool
    claims: tuple[tuple[str, str], ...]  # what stands out, and the rest of the sentence
    problems: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    def as_dict(self) -> Mapping[str, Any]:
        """Plain data."""
        return asdict(self)


def verdict(plan: Plan, report: Report, fold: Fold | None = None, moves: BoxMoves | None = None) -> Verdict:
    """What the facts come to; remedies are moves of `moves` that were simulated and fit."""
    remedies = () if report.feasible else _remedies(plan, fold, moves)
    return Verdict(_state(report), report.interrupted, tuple(_claims(report)), report.problems, remedies)


def _state(report: Report) -> State:
    if not report.feasible:
        return "infeasible"
    if report.beaten_by is not None:
        return "beaten"
    if not report.placement_matters:
        return "indifferent"
    if report.gap == 0 and report.bound_seconds > 0:
        return "proved"
    return "as good" if report.as_good is not None else "better"


def _claims(report: Report) -> list[tuple[str, str]]:
    claims: list[tuple[str, str]] = []
    best = report.best_rule
    if not report.feasible:
        return [("Does not work", "as it stands; what helps comes first.")]
    if report.beaten_by is not None:
        slower = 1 / report.beaten_by.times_plan
        claims.append((f"{slower:.2f}{TIMES}", f"slower than the simple rule {report.beaten_by.name}"))
    elif not report.placement_matters:
        everywhere = "every rule that works is within 2 %, and nothing better exists"
        claims.append(("Placement does not matter here:", everywhere))
    elif report.as_good is not None:
        claims.append(("As good:", f"the simple rule {report.as_good.name}, within 2 %"))
    elif best is not None:
        claims.append((f"{best.times_plan:.2f}{TIMES}", f"faster than the best simple rule ({best.name})"))
    among = f" among {report.scope}" if report.scope else ""
    if report.bound_seconds <= 0:
        claims.append(("No bound", "is proved"))
    elif report.gap == 0:
        claims.append(("Proved optimal", f"{among.strip()} ({report.bound_name})".strip()))
    else:
        bound = f"bound {format_seconds(report.bound_seconds)}, {report.bound_name}"
        share = f"{100 * report.gap:.1f} %" if report.gap >= 0.0005 else "Under 0.1 %"
        claims.append((share, f"at most left to gain{among} ({bound})"))
    if report.interrupted:
        claims.append(("Interrupted:", "this is the best plan so far"))
    return claims


def _remedies(plan: Plan, fold: Fold | None, moves: BoxMoves | None) -> tuple[str, ...]:
    """Moves of one box after which the plan works, the fastest first; then memory that would suffice."""
    found: list[tuple[float, str]] = []
    names = plan.problem.cluster.names
    if fold is not None and moves is not None:
        for box, outcomes in moves.outcomes.items():
            for d, (seconds, _) in enumerate(outcomes):
                if seconds is not None:
                    said = f"move {fold.path(box)} to {names[d]}: works, {format_seconds(seconds)}"
                    found.append((seconds, said))
    helps = [text for _, text in sorted(found)[:MOST_REMEDIES]]
    short = [one for one in plan.trace.problems if isinstance(one, Shortfall)]
    roomy = plan.problem
    for one in short:
        roomy = roomy.with_memory(one.device, one.peak.peak_bytes)
    if short and simulate(roomy, plan.placement).feasible:
        more = " and ".join(f"{format_bytes(one.bytes_over)} more on {one.device}" for one in short)
        helps.append(f"give it {more}: this placement then works as it is")
    return tuple(helps)
