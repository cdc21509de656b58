"""Reports as text; computes nothing new."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stead.cluster.units import format_bytes, format_seconds
from stead.report.facts import DOES_NOT_MATTER, OperatorReport, Report, RuleFacts
from stead.report.layer_text import layer_table, layer_texts

LABEL = 9  # width of the words at the beginning of a line
MOST_SINGLES = 4
MOST_TIED = 3
WEIGHTS = "weights per device, GiB"


def line(label: str, text: str) -> str:
    """One labelled line.

    >>> line("graph", "35 operators")
    ' graph    35 operators'
    """
    return f" {label:<{LABEL - 1}} {text}"


def summary(
    report: Report, *, devices: Sequence[str] = (), assumed: Sequence[str] = (), every_layer: bool = False
) -> str:
    """A plan in one screen: which layer goes where, what was solved, the baselines beside it, and why.

    `devices` says how device names were understood, `assumed` which open sizes were; with `every_layer` layers are a
    table without omissions.
    """
    layers = layer_table(report.layers) if every_layer else layer_texts(report.layers)
    lines = [line("" if n else "layers", text) for n, text in enumerate(layers)]
    lines.extend([line("blocks", report.levels.text)] if report.levels is not None else [])
    lines.extend(line("" if n else "devices", text) for n, text in enumerate(devices))
    lines.extend(line("" if n else "assumed", text) for n, text in enumerate(assumed))
    return "\n".join([*lines, *_head(report), *_table(report), *_tail(report)])


def _head(report: Report) -> list[str]:
    flops = f"   {report.flops / 1e9:.4g} GFLOP" if report.flops else ""
    caches = f"   KV cache {format_bytes(report.kv_bytes)}" if report.kv_bytes else ""
    graph = f"{report.operators} operators   weights {format_bytes(report.weight_bytes)}{caches}{flops}"
    lines = [
        line("graph", f"{graph}   costs: {_costs_label(report)}"),
        line("goal", f"{report.objective}: seconds per {report.unit}, smaller is better"),
    ]
    by = f" (found by {report.found_by})" if report.found_by and report.found_by != report.solver else ""
    lines.append(line("solver", f"{report.solver}{by}: {_proof(report)}"))
    if report.order:
        elsewhere = f"{format_seconds(report.policy_seconds)} per {report.unit} where that cannot be had"
        lines.append(
            line("order", f"the plan says who goes first on every device ({report.order}); {elsewhere}")
        )
    lines.extend(
        line("shared", f"{', '.join(group)} take samples in turn: all hold the stage of {group[0]}")
        for group in report.shared
    )
    if report.interrupted:
        lines.append(line("", "interrupted: this is the best plan so far"))
    elif report.stopped_by == "time":
        lines.append(line("", "stopped by: time"))
    lines.extend(line("problem", problem) for problem in report.problems)
    return lines


def _costs_label(report: Report) -> str:
    return f"{report.source}, uncalibrated" if report.source == "analytic" else report.source


def _proof(report: Report) -> str:
    if report.bound_seconds <= 0:
        return "no bound is proved"
    among = f" among {report.scope}" if report.scope else ""
    if report.gap == 0:
        return f"proved optimal{among}, gap 0.0 % ({report.bound_name})"
    bound = format_seconds(report.bound_seconds)
    return f"gap {100 * report.gap:.1f} %: no placement{among} is below {bound} ({report.bound_name})"


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the table; rules with the same outcome share it."""

    names: list[str]
    seconds: float
    times_plan: float
    weights: str
    changes: int


def _table(report: Report) -> list[str]:
    devices = [device.name for device in report.devices]
    plan = [device.weight_bytes for device in report.devices]
    rows = [_Row(["> plan"], report.objective_seconds, 1.0, _weights(devices, plan), report.changes)]
    refused = [rule for rule in _shown(report) if rule.objective_seconds is None]
    for rule in _shown(report):
        if rule.objective_seconds is None:
            continue
        row = _Row(
            [rule.name],
            rule.objective_seconds,
            rule.times_plan,
            _weights(devices, rule.weight_bytes),
            rule.changes,
        )
        last = rows[-1]
        if len(rows) > 1 and (row.seconds, row.weights, row.changes) == (
            last.seconds,
            last.weights,
            last.changes,
        ):
            last.names.append(rule.name)
        else:
            rows.append(row)
    width = max([len(row.names[0]) + 2 for row in rows[1:]] + [len(rule.name) + 2 for rule in refused] + [6])
    weights_width = max([len(row.weights) for row in rows] + [len(WEIGHTS)])
    titles = f"{'per ' + report.unit:>10} {'per second':>10}  {WEIGHTS:<{weights_width}} {'transfers':>9}"
    lines = [f" {'':<{width}} {titles}"]
    for number, row in enumerate(rows):
        name = row.names[0] if number == 0 else f"  {row.names[0]}"
        rate = f"{1 / row.seconds:,.4g}" if row.seconds > 0 else "-"
        figures = (
            f"{format_seconds(row.seconds):>10} {rate:>10}  {row.weights:<{weights_width}} {row.changes:>9}"
        )
        also = f"   also: {', '.join(row.names[1:])}" if len(row.names) > 1 else ""
        lines.append(f" {name:<{width}} {figures}{_verdict(number, row.times_plan)}{also}")
    lines.extend(f" {'  ' + rule.name:<{width}} {_short(rule.reason)}" for rule in refused)
    return lines


def _verdict(number: int, ratio: float) -> str:
    if number == 0 or not math.isfinite(ratio):
        return ""
    if ratio < 1:
        return f"  {1 / ratio:.3g}x faster"
    return f"  {ratio:.2f}x slower" if ratio >= 1.005 else "  the same"


def _shown(report: Report) -> list[RuleFacts]:
    """Rules by value, then those without one; of many single devices only the best few."""
    valued = sorted(
        (rule for rule in report.rules if rule.objective_seconds is not None),
        key=lambda rule: (rule.objective_seconds or 0.0, rule.name),
    )
    singles = [rule for rule in valued if rule.name.startswith("single:")][MOST_SINGLES:]
    refused = [rule for rule in report.rules if rule.objective_seconds is None]
    refused_singles = [rule for rule in refused if rule.name.startswith("single:")][MOST_SINGLES:]
    hidden = {rule.name for rule in (*singles, *refused_singles)}
    return [rule for rule in (*valued, *refused) if rule.name not in hidden]


def _weights(names: Sequence[str], held: Sequence[int]) -> str:
    if len(names) > 6:
        used = [f"{name} {size / 2**30:.1f}" for name, size in zip(names, held, strict=True) if size]
        return " | ".join(used[:6]) + (" ..." if len(used) > 6 else "")
    return " | ".join(f"{name} {size / 2**30:.1f}" for name, size in zip(names, held, strict=True))


def _short(reason: str, width: int = 90) -> str:
    reason = reason.partition(" (")[0] if len(reason) > width else reason
    return reason if len(reason) <= width else reason[: width - 3] + "..."


def _tail(report: Report) -> list[str]:
    lines: list[str] = []
    for device in report.used:
        limit = "no limit" if device.limit_bytes >= 2**60 else f"of {format_bytes(device.limit_bytes)}"
        lines.append(
            line(
                "device" if not lines else "",
                f"{device.name}: {device.operators} operators, compute {format_seconds(device.compute_seconds)}, "
                f"received {format_seconds(device.received_seconds)}, sent {format_seconds(device.sent_seconds)}, "
                f"peak memory {format_bytes(device.peak_bytes)} {limit}",
            )
        )
    lines.extend(_tied(report))
    lines.append(line("why", _why(report)))
    return lines


def _tied(report: Report) -> list[str]:
    """Where tied weights are, if on several devices, and what keeps them equal."""
    lines: list[str] = []
    for one in report.tied[:MOST_TIED]:
        devices = f"{', '.join(one.devices[:-1])} and {one.devices[-1]}"
        held = f"{one.name} ({format_bytes(one.size_bytes)}) is held by {devices}"
        seconds, sent = one.all_reduce_seconds, format_bytes(one.sent_bytes)
        price = f"{sent} sent" if seconds is None else format_seconds(seconds)
        equal = f": kept equal by one all-reduce per step ({price})" if one.is_trained else ""
        lines.append(line("tied" if not lines else "", f"{held}{equal}"))
    if len(report.tied) > MOST_TIED:
        lines.append(line("", f"and {len(report.tied) - MOST_TIED} more weights on several devices"))
    return lines


def _why(report: Report) -> str:
    best = report.best_rule
    if best is not None and not report.placement_matters:
        return (
            "placement does not matter here: every rule that works is within 2 % of the plan, and no placement is "
            f"better than {format_seconds(report.bound_seconds)}"
        )
    if report.as_good is not None:
        return f"the simple rule {report.as_good.name} is as good{_spread(report)}"
    if report.beaten_by is not None:
        looked = f"{report.solver} looks at {report.scope} only" if report.scope else "try --solver auto"
        return (
            f"the rule {report.beaten_by.name} is better, {format_seconds(report.beaten_by.objective_seconds or 0.0)}: "
            f"{looked}"
        )
    busiest = report.bottleneck
    others = ", ".join(device.name for device in report.devices if not device.operators)
    left_out = (
        f"; {others} would only slow it down" if others and report.gap == 0 and not report.scope else ""
    )
    if len(report.used) == 1:
        only = report.used[0]
        spare = "" if only.limit_bytes >= 2**60 else f" with {format_bytes(only.headroom_bytes)} to spare"
        return f"everything fits {only.name}{spare}{left_out}"
    return (
        f"{busiest.name} has the most to do: {format_seconds(busiest.busy_seconds)}, "
        f"of it {format_seconds(busiest.received_seconds + busiest.sent_seconds)} in transfers{left_out}"
    )


def _spread(report: Report) -> str:
    """How far behind the worst rule is, where that is far."""
    worst = report.worst_rule
    if worst is None or not worst.times_plan > 1 + DOES_NOT_MATTER:
        return ""
    return f"; which one matters: {worst.name} is {worst.times_plan:.2f}x slower"


def operator_text(report: OperatorReport) -> str:
    """Why an operator is where it is, one line per device."""
    module = f", module {report.module}" if report.module else ""
    moves = f"; {report.unit_size} operators move together" if report.unit_size > 1 else ""
    lines = [
        f"{report.name} ({report.kind or 'no kind'}{module}) is on {report.device}   costs: {report.source}{moves}"
    ]
    width = max(len(one.device) for one in report.alternatives)
    for one in report.alternatives:
        own = format_seconds(one.seconds) if math.isfinite(one.seconds) else "cannot run"
        if one.device == report.device:
            lines.append(
                f"  {one.device:<{width}}  {own:>12}   here: whole plan {format_seconds(one.objective_seconds)}"
            )
        elif math.isfinite(one.objective_seconds):
            sign = "+" if one.change_seconds >= 0 else "-"
            change = f"{sign}{format_seconds(abs(one.change_seconds))}"
            lines.append(f"  {one.device:<{width}}  {own:>12}   whole plan {change}: {one.reason}")
        else:
            lines.append(f"  {one.device:<{width}}  {own:>12}   does not work: {one.reason}")
    return "\n".join(lines)
