"""stead what-if: a plan in other circumstances, as it is and solved anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.placing.what_if import Outcome
    from stead.plan import Plan
    from stead.printing.look import Look

INFEASIBLE = 3


def what_if(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that `stead place` wrote.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="WHAT=VALUE",
            help="cuda:1.bandwidth=1008GB/s, 3090.memory=2x, 3090.fp16=71T, links.latency=5us, a->b.bandwidth=2x, "
            "batch=8 or context=8192.",
        ),
    ] = None,
    add: Annotated[
        list[str] | None, typer.Option("--add", metavar="D", help="One more device, as in --devices.")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="DEV", help="A device less.")] = None,
    sweep: Annotated[
        str,
        typer.Option(
            metavar="WHAT=A..B",
            help="One thing at many values: batch=1..64, 3060.bandwidth=200GB/s..1TB/s, or batch=1,3,9.",
        ),
    ] = "",
    time_limit: Annotated[float, typer.Option(help="Seconds of search for every case.")] = 10.0,
    evaluations: Annotated[int | None, typer.Option(help="Placements to score at most, for every case.")] = None,
    seed: options.Seed = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Also write the new plan; not of a sweep.")
    ] = None,
    curve: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Also draw the sweep.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> int:
    """Ask what a plan is worth elsewhere: the same placement re-simulated, and the best one found anew."""
    from stead.cli.progress import Progress
    from stead.errors import BadInput
    from stead.placing.what_if import Changes, cases_of, outcome_of
    from stead.plan import Plan
    from stead.solvers import Budget

    Budget(time_limit, evaluations)  # what makes no sense is told before anything is read
    if sweep and output is not None:
        raise BadInput("a sweep finds a plan for every point; leave out -o, or set one point with --set")
    if curve is not None and not sweep:
        raise BadInput("--curve draws a sweep; add --sweep, such as --sweep batch=1..64")
    before = Plan.load(plan)
    changes = Changes(tuple(settings or ()), tuple(add or ()), tuple(remove or ()), sweep)
    outcomes: list[Outcome] = []
    with Progress() as progress:
        progress.doing("pricing")
        cases = cases_of(before, changes)
        for number, case in enumerate(cases):
            progress.search(time_limit)
            where = f"case {number + 1} of {len(cases)}: " if sweep else ""

            def doing(step: str, where: str = where) -> None:
                progress.doing(where + step)

            try:
                outcomes.append(outcome_of(case, Budget(time_limit, evaluations, progress.improved, doing), seed))
            except KeyboardInterrupt:
                if not outcomes:
                    raise
                break  # what was found before is an answer
            if outcomes[-1].solved is not None and outcomes[-1].solved.solution.interrupted:
                break
    _written(before, changes, outcomes, output, curve)
    _print(before, str(plan), changes, outcomes, json)
    return 0 if any(one.solved is not None for one in outcomes) else INFEASIBLE


def _written(before: Plan, changes: Any, outcomes: list[Outcome], output: Path | None, curve: Path | None) -> None:
    from stead.files import write_text
    from stead.placing.sweep_picture import picture

    if output is not None and outcomes[0].solved is not None:
        outcomes[0].solved.save(output)
    if curve is not None:
        title = f"{before.problem.graph.name}: {changes.sweep.partition('=')[0]}"
        write_text(curve, picture(outcomes, title, before.problem.objective.unit))


def _print(before: Plan, name: str, changes: Any, outcomes: list[Outcome], json: bool) -> None:
    from stead.cli.output import print_json
    from stead.cli.streams import look, print_lines, show
    from stead.report.text import line

    if json:
        print_json(document(before, name, changes, outcomes))
        return
    spelled = [*changes.sets, *(f"+ {one}" for one in changes.adds), *(f"- {one}" for one in changes.removes)]
    objective = before.problem.objective
    lines = [line("plan", f"{name}: {before.problem.graph.name} on {', '.join(before.problem.cluster.names)}")]
    lines.append(line("goal", f"{objective.name}: seconds per {objective.unit}, smaller is better"))
    lines.append(line("change", "; ".join([*spelled, *([changes.sweep] if changes.sweep else [])])))
    lines.extend(line("", note) for note in outcomes[0].case.notes)
    print_lines(lines)
    by_batch = changes.sweep.startswith("batch=") and objective.unit == "step"
    show("\n".join(["", *_table(before, outcomes, look(), per_sample=by_batch)]))
    told = dict.fromkeys(text for one in outcomes for text in _remarks(one))
    if told:
        print_lines(["", *(line("" if n else "note", text) for n, text in enumerate(told))])


def _table(before: Plan, outcomes: list[Outcome], shape: Look, *, per_sample: bool) -> list[str]:
    """A row for every case, below the plan as it is now; `per_sample` divides by the batch of each case."""
    from stead.printing.table import Cell, Column, in_seconds, table

    now = before.solution.objective_seconds
    time = in_seconds(now)
    columns = [
        Column("case", least=8),
        *(Column(title, time.unit, right=True) for title in ("this plan", "solved anew", "bound")),
        Column("gap", "%", right=True),
        Column("to now", right=True),
        *([Column("per sample", time.unit, right=True)] if per_sample else []),
        Column("moved", right=True, drop=1),
    ]
    solution = before.solution
    rows: list[list[Cell]] = [["now", time(now), "", time(solution.bound_seconds), _gap(before), ""]]
    for one in outcomes:
        kept = one.case.seconds
        shown: list[Cell] = [one.case.label or "then", "-" if kept is None else time(kept)]
        if one.solved is None:
            rows.append([*shown, "-"])
            continue
        found = one.solved.solution
        change = f"{found.objective_seconds / now:.3g}x" if now else ""
        each = [time(found.objective_seconds / int(one.case.label))] if per_sample else []
        moved = "" if one.moved is None else str(one.moved)
        values = [time(found.objective_seconds), time(found.bound_seconds), _gap(one.solved), change]
        rows.append([*shown, *values, *each, moved])
    return table(columns, [[*row, *[""] * (len(columns) - len(row))] for row in rows], shape)


def _gap(plan: Plan) -> str:
    return f"{100 * plan.solution.gap:.1f}" if plan.solution.bound_seconds > 0 else ""


def _remarks(one: Outcome) -> list[str]:
    """Why there is no number."""
    at = f"{one.case.label}: " if one.case.label else ""
    told = [f"{at}this plan does not work there: {one.case.trouble}"] if one.case.trouble else []
    return [*told, *([f"{at}nothing was found: {one.reason}"] if one.solved is None else [])]


def document(before: Plan, name: str, changes: Any, outcomes: list[Outcome]) -> dict[str, Any]:
    """All of it with the keys that scripts rely on."""
    return {
        "plan": name,
        "objective": before.problem.objective.name,
        "objective_detail": before.problem.objective.describe(),
        "unit": before.problem.objective.unit,
        "objective_seconds": before.solution.objective_seconds,
        "bound_seconds": before.solution.bound_seconds,
        "changes": {
            "set": list(changes.sets),
            "add": list(changes.adds),
            "remove": list(changes.removes),
            "sweep": changes.sweep or None,
        },
        "cases": [_case(one) for one in outcomes],
    }


def _case(one: Outcome) -> dict[str, Any]:
    found = None if one.solved is None else one.solved.solution
    return {
        "label": one.case.label or None,
        "devices": list(one.case.problem.cluster.names),
        "kept_seconds": one.case.seconds,
        "kept_trouble": one.case.trouble or None,
        "solved_seconds": None if found is None else found.objective_seconds,
        "bound_seconds": None if found is None else found.bound_seconds,
        "gap": None if found is None else found.gap,
        "scope": None if found is None else found.scope,
        "moved_operators": one.moved,
        "reason": one.reason or None,
    }
