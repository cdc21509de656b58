"""stead compare: plans of one model side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.placing.plans_compared import Comparison
    from stead.printing.look import Look

MOST_MOVED = 12  # rows of what moved


def compare(
    plans: Annotated[
        list[Path], typer.Argument(metavar="A B", help="Two to four plans of one model; the first is compared with.")
    ],
    json: options.Json = False,
) -> int:
    """Compare plans of one model: value, bound, use of every device, and which layers moved."""
    from stead.cli.output import print_json
    from stead.cli.streams import look, print_lines, show
    from stead.errors import BadInput
    from stead.placing.plans_compared import compare as beside
    from stead.plan import Plan
    from stead.report.text import line

    if len({str(path) for path in plans}) < len(plans):
        raise BadInput("a plan is given twice; give different ones")
    found = beside({str(path): Plan.load(path) for path in plans})
    if json:
        print_json(document(found))
        return 0
    first = found.plans[0]
    same = ", ".join(found.differs) or "nothing: the questions are the same"
    print_lines(
        [
            line("graph", f"{first.problem.graph.name}: {len(first.problem.graph)} operators"),
            line("differs", same),
        ]
    )
    show("\n".join(["", *_values(found, look()), "", *_devices(found, look())]))
    for number in range(1, len(found.plans)):
        show("\n".join(["", *_moved(found, number, look())]))
    return 0


def _values(found: Comparison, shape: Look) -> list[str]:
    from stead.printing.table import Column, in_seconds, table

    time = in_seconds(min(plan.solution.objective_seconds for plan in found.plans))
    columns = [
        Column("plan", least=12),
        Column("goal"),
        *(Column(title, time.unit, right=True) for title in ("value", "bound")),
        Column("gap", "%", right=True),
        Column("to the first", right=True),
        Column("found by", drop=1),
    ]
    rows = []
    for number, (name, plan) in enumerate(zip(found.names, found.plans, strict=True)):
        solution, ratio = plan.solution, found.ratio(number)
        gap = f"{100 * solution.gap:.1f}" if solution.bound_seconds > 0 else ""
        values = [time(solution.objective_seconds), time(solution.bound_seconds), gap]
        said = "" if ratio is None or not number else f"{ratio:.3f}x"
        rows.append([name, plan.problem.objective.name, *values, said, solution.found_by or solution.solver])
    return table(columns, rows, shape)


def _devices(found: Comparison, shape: Look) -> list[str]:
    from stead.printing.table import Column, in_bytes, in_seconds, table

    uses = [(name, use) for number, name in enumerate(found.names) for use in found.uses(number)]
    time = in_seconds(max((use.busy_seconds for _, use in uses), default=0.0))
    size = in_bytes(max((use.peak_bytes for _, use in uses), default=0))
    columns = [
        Column("plan", least=12),
        Column("device", least=8),
        Column("operators", right=True),
        Column("busy", time.unit, right=True),
        Column("peak", size.unit, right=True),
        Column("limit", size.unit, right=True, drop=1),
    ]
    rows = []
    last = ""
    for name, use in uses:
        shown = name if name != last else ""
        last = name
        numbers = [str(use.operators), time(use.busy_seconds), size(use.peak_bytes), size(use.usable_bytes)]
        rows.append([shown, use.device, *numbers])
    return table(columns, rows, shape)


def _moved(found: Comparison, number: int, shape: Look) -> list[str]:
    from stead.printing.table import Column, in_seconds, table

    moved = found.moved(number)
    count = sum(one.operators for one in moved)
    if not moved:
        return [f" {found.names[number]} places every operator as {found.names[0]} does"]
    time = in_seconds(moved[0].seconds)
    columns = [
        Column("layer", least=12),
        Column(f"in {found.names[0]}", least=8),
        Column(f"in {found.names[number]}", least=8),
        Column("operators", right=True),
        Column("time", time.unit, right=True),
    ]
    rows = [
        [one.layer, one.source, one.target, str(one.operators), time(one.seconds)] for one in moved[:MOST_MOVED]
    ]
    rest = len(moved) - len(rows)
    more = [f" and {rest} more rows; --json has all"] if rest else []
    return [f" {count} operators moved", *table(columns, rows, shape), *more]


def document(found: Comparison) -> dict[str, Any]:
    """All of it with the keys that scripts rely on."""
    return {
        "graph": found.plans[0].problem.graph.name,
        "differs": list(found.differs),
        "plans": [_plan(found, number) for number in range(len(found.plans))],
    }


def _plan(found: Comparison, number: int) -> dict[str, Any]:
    plan = found.plans[number]
    solution = plan.solution
    return {
        "plan": found.names[number],
        "objective": plan.problem.objective.name,
        "objective_seconds": solution.objective_seconds,
        "bound_seconds": solution.bound_seconds,
        "gap": solution.gap,
        "found_by": solution.found_by,
        "ratio": found.ratio(number),
        "devices": [
            {
                "device": use.device,
                "operators": use.operators,
                "busy_seconds": use.busy_seconds,
                "peak_bytes": use.peak_bytes,
                "usable_bytes": use.usable_bytes,
            }
            for use in found.uses(number)
        ],
        "moved": [
            {
                "layer": one.layer,
                "from": one.source,
                "to": one.target,
                "operators": one.operators,
                "seconds": one.seconds,
            }
            for one in (found.moved(number) if number else ())
        ],
    }
