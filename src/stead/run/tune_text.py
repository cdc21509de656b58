"""What a tuning run believed and what it saw, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stead.cluster.quantities import format_seconds
from stead.printing.look import PLAIN, Look
from stead.printing.table import Column, Scale, in_seconds, table
from stead.run.calibrate import Factor
from stead.run.tune import Candidate, Round, Tuned

MOST_FACTORS = 4  # kinds that a line names
ENDED = {
    "no improvement": "the best one no longer improved",
    "measurements": "as many measurements as were allowed",
    "time": "the time limit",
    "interrupted": "an interrupt",
}


def rounds_table(rounds: Sequence[Round], look: Look = PLAIN) -> list[str]:
    """One line for every placement that was run: what its round believed of it, and what was seen."""
    near = min((one.trial.seconds for part in rounds for one in part.candidates if one.trial.counts), default=0.0)
    time = in_seconds(near)
    columns = [
        Column("round", right=True), Column("placement", least=14), Column("transfers", right=True, drop=1),
        Column("believed", time.unit, right=True), Column("measured", time.unit, right=True),
        Column("off", right=True), Column("", least=6),
    ]  # fmt: skip
    best, rows = math.inf, []
    for part in rounds:
        for place, one in enumerate(part.candidates):
            better = one.trial.counts and one.trial.seconds < best
            best = min(best, one.trial.seconds) if one.trial.counts else best
            rows.append([str(part.number) if not place else "", *_row(one, time), "best" if better else ""])
    return table(columns, rows, look)


def _row(one: Candidate, time: Scale) -> list[str]:
    if one.trial.counts:
        seen, off = time(one.trial.seconds), f"{100 * one.off:+.0f} %"
    else:
        seen, off = "lost" if one.trial.is_lost else "does not run", ""
    return [one.name, str(one.transfers), time(one.believed_seconds), seen, off]


def verdict(tuned: Tuned) -> str:
    """The gain over the best single device and over the rule, each of them called noise where it is no more."""
    told = [text for one in (tuned.alone, tuned.rule) if one is not None and (text := _over(tuned, one))]
    return "; ".join(told) or "no simple alternative could be timed"


def _over(tuned: Tuned, other: Candidate) -> str:
    name = other.name.removeprefix("single:")
    if other.placement == tuned.plan.placement or other.trial.seconds == tuned.measured_seconds:
        return f"{name} is what was found"
    gain = other.trial.seconds / tuned.measured_seconds
    what = f"{gain:.2f}x over {name} ({format_seconds(other.trial.seconds)} measured)"
    return f"{what}, within noise ({100 * tuned.noise:.1f} %)" if tuned.is_noise(gain) else what


def corrections(factors: Sequence[Factor]) -> str:
    """What was found to be off, most certain first: devices, links, and the kinds that differ most."""
    told = [_told(one) for one in factors if one.what == "device" and one.source == "measured"]
    links = [one for one in factors if one.what in ("latency", "bandwidth", "transfers") and one.source == "measured"]
    told += [_told(one) for one in links]
    kinds = [one for one in factors if one.what == "kind" and one.source == "measured"]
    kinds.sort(key=lambda one: -abs(math.log(one.value)))
    told += [_told(one) for one in kinds[:MOST_FACTORS]]
    return "; ".join(told) or "nothing that measurements are sure of"


def _told(one: Factor) -> str:
    what = {"latency": "latency of ", "bandwidth": "bytes over ", "transfers": ""}.get(one.what, "")
    return f"{what}{one.name} x{one.value:.2f} (+-{100 * one.error:.0f} %)"


def tuned_lines(tuned: Tuned) -> list[tuple[str, str]]:
    """(label, text) of what came out."""
    ended = ENDED.get(tuned.stopped_by, tuned.stopped_by)
    belief = tuned.calibrated
    from_profile = [] if tuned.profile_gain is None else [("profile", f"its plan: {tuned.profile_gain}")]
    return [
        *from_profile,
        ("measured", f"{format_seconds(tuned.measured_seconds)}; predicted {format_seconds(tuned.predicted_seconds)}, "
                     f"believed at first {format_seconds(tuned.prior_seconds)}"),
        ("gain", verdict(tuned)),
        ("costs", f"off by {100 * math.expm1(belief.prior_error):.0f} % at first, by "
                  f"{100 * math.expm1(belief.error):.1f} % now; {corrections(belief.factors)}"),
        ("ended by", f"{ended}, after {tuned.measurements} measurements"),
    ]  # fmt: skip
