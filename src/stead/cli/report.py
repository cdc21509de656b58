"""stead report: a plan as a page, up to four plans beside each other, or a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.plan import Plan


def report(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that `stead place` wrote.")],
    others: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[OTHER]...", help="Up to three other plans of the same model, to stand beside it."),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the page.")] = Path(
        "report.html"
    ),
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="A figure for a paper instead, as .pdf, .svg or .png: gantt, memory, baselines, history or graph.",
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Write one self-contained page about a plan: verdict, model, time line, memory, and why."""
    from stead.cli.output import print_json
    from stead.errors import BadInput
    from stead.files import write_text
    from stead.placing.size_curves import size_curves
    from stead.plan import Plan
    from stead.report import page
    from stead.report.offline_page import MOST_PLANS

    beside = others or []
    if figure is not None and beside:
        raise BadInput("a figure shows one plan; leave the others out")
    if len(beside) >= MOST_PLANS:
        raise BadInput(f"{len(beside) + 1} plans do not fit one page; give at most {MOST_PLANS}")
    first = Plan.load(plan)
    if figure is not None:
        from stead.plot import save_figure

        save_figure(first, figure, output)
    else:
        loaded = [_beside(first, plan, Plan.load(path), path) for path in beside]
        names = _told_apart([plan, *beside]) if beside else []
        sizes = size_curves(first)
        write_text(output, page(first, *loaded, names=names, exports=_exports(first, plan), sizes=sizes))
    if json:
        print_json({"written": str(output)})
    else:
        print(f"wrote {output}")
    return 0


def _told_apart(paths: list[Path]) -> list[str]:
    """What plans are called beside each other: names of files, whole paths where two have the same name."""
    names = [path.name for path in paths]
    return [path.name if names.count(path.name) == 1 else str(path) for path in paths]


def _beside(first: Plan, path: Path, second: Plan, other: Path) -> Plan:
    """The second plan, if it is one of the same model."""
    from stead.errors import BadInput

    if first.problem.graph.operator_names != second.problem.graph.operator_names:
        raise BadInput(f"{path} and {other} are plans of different models; plans of one model can be compared")
    return second


def _exports(plan: Plan, path: Path) -> list[tuple[str, str]]:
    """What the plan can be handed on to, with the command for each."""
    import shlex

    from stead.export.targets import TARGETS, exporter

    able = [name for name in TARGETS if exporter(name).unsupported(plan.problem) is None]
    file = shlex.quote(str(path))
    return [("explain", f"stead explain {file} NAME"), *((name, f"stead export {file} --to {name}") for name in able)]
