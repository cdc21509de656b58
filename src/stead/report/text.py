"""Reports as text; computes nothing new."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stead.cluster.devices import UNLIMITED_BYTES
from stead.cluster.quantities import format_bytes, format_seconds, format_work
from stead.printing.look import BAD, BEST, GOOD, LABEL, PLAIN, Look, device_style
from stead.printing.table import Cell, Column, Painted, Scale, in_bytes, in_seconds, per_second, table
from stead.report.bars import picture
from stead.report.facts import DOES_NOT_MATTER, DeviceFacts, Report, RuleFacts
from stead.report.layer_text import layer_table, layer_texts

MOST_SINGLES = 4
MOST_TIED = 3
MOST_DEVICES_BESIDE = 4  # devices whose weights stand beside every rule
LONG_REASON = 90
SAME = 0.005  # rules that differ by less share a row, and are called the same as the plan


def line(label: str, text: str) -> str:
    """One labelled line.

    >>> line("graph", "35 operators")
    ' graph    35 operators'
    """
    return f" {label:<{LABEL - 1}} {text}"


def summary(
    report: Report,
    look: Look = PLAIN,
    *,
    devices: Sequence[str] = (),
    assumed: Sequence[str] = (),
    every_layer: bool = False,
) -> str:
    """A plan in one screen: which layer goes where, what was solved, the baselines beside it, and why.

    `devices` says how device names were understood, `assumed` which open sizes were; with `every_layer` layers are a
    table without omissions.
    """
    layers = [] if every_layer else layer_texts(report.layers)
    lines = [line("" if n else "layers", text) for n, text in enumerate(layers)]
    lines.extend([line("blocks", report.levels.text)] if report.levels is not None else [])
    lines.extend([line("target", report.target)] if report.target else [])
    lines.extend(line("" if n else "devices", text) for n, text in enumerate(devices))
    lines.extend(line("" if n else "assumed", text) for n, text in enumerate(assumed))
    parts = [
        *([*layer_table(report.layers, look), ""] if every_layer else []),
        *look.fitted([*lines, *_head(report)]),
        "",
        *_table(report, look),
        *_refused(report, look),
        "",
        *_devices(report, look),
        *picture(report, look),
        "",
        *look.fitted(_tail(report)),
    ]
    return "\n".join(parts)


def _head(report: Report) -> list[str]:
    flops = f"   {format_work(report.flops)}" if report.flops else ""
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
    """One line of the table; rules that are as fast share it."""

    names: list[str]
    seconds: float
    times_plan: float
    weights: Sequence[int]  # [device]
    changes: int


def _table(report: Report, look: Look) -> list[str]:
    """The plan with all rules that give a placement below it."""
    plan = [device.weight_bytes for device in report.devices]
    rows = [_Row(["plan"], report.objective_seconds, 1.0, plan, report.changes)]
    for rule in _shown(report):
        if rule.objective_seconds is None:
            continue
        if len(rows) > 1 and rule.objective_seconds <= rows[-1].seconds * (1 + SAME):
            rows[-1].names.append(rule.name)
        else:
            rows.append(
                _Row([rule.name], rule.objective_seconds, rule.times_plan, rule.weight_bytes, rule.changes)
            )
    time = in_seconds(report.objective_seconds or max(row.seconds for row in rows))
    held = in_bytes(max((max(row.weights, default=0) for row in rows), default=0))
    rate = per_second(report.objective_seconds)
    shares, weights = _shares([row.weights for row in rows], [device.name for device in report.devices], held)
    columns = [
        Column("", least=20),
        Column(f"per {report.unit}", time.unit, right=True),
        Column("per second", right=True, drop=1),
        *weights,
        Column("transfers", right=True, drop=2),
        Column("", least=12, sentence=True),
        Column("", least=10, sentence=True),
    ]
    lines: list[list[Cell]] = []
    for number, row in enumerate(rows):
        name: Cell = Painted("> plan", BEST) if number == 0 else f"  {row.names[0]}"
        also = f"also: {', '.join(row.names[1:])}" if len(row.names) > 1 else ""
        often = rate(1 / row.seconds) if row.seconds > 0 else "-"
        figures = [time(row.seconds), often, *shares[number], str(row.changes)]
        lines.append([name, *figures, _verdict(number, row.times_plan), also])
    return table(columns, lines, look)


def _shares(
    held: Sequence[Sequence[int]], names: Sequence[str], scale: Scale
) -> tuple[list[list[str]], list[Column]]:
    """Weights per row and device; of many devices how many hold some and the most that one of them holds."""
    if len(names) <= MOST_DEVICES_BESIDE:
        columns = [Column("weights", f"{name}, {scale.unit}", right=True, drop=3) for name in names]
        return [[scale(size) for size in sizes] or [""] * len(names) for sizes in held], columns
    columns = [
        Column("weights", f"at most, {scale.unit}", right=True, drop=3),
        Column("on devices", right=True, drop=3),
    ]
    return [[scale(max(sizes, default=0)), str(sum(size > 0 for size in sizes))] for sizes in held], columns


def _refused(report: Report, look: Look) -> list[str]:
    """Rules without a placement that works, and why; those with the same reason in one row."""
    reasons: dict[str, list[str]] = {}
    for rule in _shown(report):
        if rule.objective_seconds is None:
            reasons.setdefault(_short(rule.reason), []).append(rule.name)
    rows = [[f"  {', '.join(names)}", reason] for reason, names in reasons.items()]
    columns = [Column("  does not work", least=20, sentence=True), Column("why", least=20, sentence=True)]
    return table(columns, rows, look) if rows else []


def _verdict(number: int, ratio: float) -> Cell:
    if number == 0 or not math.isfinite(ratio):
        return ""
    if ratio < 1 - SAME:
        return Painted(f"{1 / ratio:.3g}x faster", GOOD)
    if ratio <= 1 + SAME:
        return "the same"
    return Painted(f"{ratio:.{2 if ratio < 100 else 0}f}x slower", BAD)


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


def _short(reason: str) -> str:
    """A reason without what it adds in brackets, where it is long."""
    return reason.partition(" (")[0] if len(reason) > LONG_REASON else reason


def _devices(report: Report, look: Look) -> list[str]:
    """What every used device does and holds."""
    used = [(d, device) for d, device in enumerate(report.devices) if device.operators]
    facts = [device for _, device in used]
    times = in_seconds(
        max((max(one.compute_seconds, one.received_seconds, one.sent_seconds) for one in facts), default=0), digits=4
    )
    caches = [device.kv_bytes for device in facts]
    held = in_bytes(max((device.weight_bytes for device in facts), default=0))
    cached = in_bytes(max(caches, default=0))
    room = in_bytes(max((_room(device) for device in facts), default=0))
    columns = [
        Column("device", least=12),
        Column("operators", right=True, drop=1),
        Column("compute", times.unit, right=True),
        Column("received", times.unit, right=True, drop=3),
        Column("sent", times.unit, right=True, drop=3),
        Column("weights", held.unit, right=True, drop=2),
        Column("KV", cached.unit, right=True),
        Column("peak", room.unit, right=True),
        Column("limit", room.unit, right=True),
    ]
    rows: list[list[Cell]] = [
        [
            Painted(device.name, device_style(d)),
            str(device.operators),
            times(device.compute_seconds),
            times(device.received_seconds),
            times(device.sent_seconds),
            held(device.weight_bytes),
            cached(kv) if any(caches) else "",
            room(device.peak_bytes) if device.peak_bytes >= 0 else "",
            "none" if _unlimited(device) else room(device.limit_bytes),
        ]
        for (d, device), kv in zip(used, caches, strict=True)
    ]
    return table(columns, rows, look)


def _unlimited(device: DeviceFacts) -> bool:
    return device.limit_bytes >= UNLIMITED_BYTES // 4


def _room(device: DeviceFacts) -> int:
    return device.peak_bytes if _unlimited(device) else max(device.peak_bytes, device.limit_bytes)


def _tail(report: Report) -> list[str]:
    return [*_tied(report), *_refreshed(report), line("why", _why(report))]


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


def _refreshed(report: Report) -> list[str]:
    """What is sent so that readers elsewhere go on with the updated weights."""
    own = report.refreshed
    if not own.weights:
        return []
    what = "1 updated weight goes" if own.weights == 1 else f"{own.weights} updated weights go"
    return [line("refresh", f"{what} to readers on other devices: {format_bytes(own.sent_bytes)} per step")]


def _why(report: Report) -> str:
    best = report.best_rule
    if best is not None and not report.placement_matters:
        return (
            "placement does not matter here: every rule that works is within 2 % of the plan, and no placement is "
            f"better than {format_seconds(report.bound_seconds)}"
        )
    if report.as_good is not None:
        rule = report.as_good.name if report.solver.startswith("given (") else f"the simple rule {report.as_good.name}"
        return f"{rule} is as good{_spread(report)}"
    if report.beaten_by is not None:
        if report.solver.startswith("given ("):  # a set-up of somebody
            return f"{report.beaten_by.name} is better: {format_seconds(report.beaten_by.objective_seconds or 0.0)}"
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
        if only.headroom_bytes < 0:
            return f"everything is on {only.name}, which is short by {format_bytes(-only.headroom_bytes)}"
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
