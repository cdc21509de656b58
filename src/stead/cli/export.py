"""stead export and stead verify: a plan for the runtime that is to run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.export.base import Exporter, Verification
    from stead.export.placing import Targeted

VERIFY_FAILED = 4
QUESTIONS = (("outputs", "outputs as without a placement"), ("placed", "everything where planned"),
             ("memory", "memory within limits"))  # fmt: skip

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that `stead place` wrote.")]
To = Annotated[str, typer.Option("--to", metavar="TARGET", help="`stead targets` lists them.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="An option of the target.")
]
Legalize = Annotated[
    bool, typer.Option("--legalize", help="Move what the target cannot express, and say what that costs.")
]


def export(
    plan: PlanFile,
    to: To,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="A folder; without it, targets that are text are printed."),
    ] = None,
    legalize: Legalize = False,
    settings: Settings = None,
    json: options.Json = False,
) -> int:
    """Write a plan as a runtime loads it; on stdout nothing but what it takes."""
    from stead.cli.output import print_json
    from stead.errors import BadInput
    from stead.export.folder import write_folder

    exporter, targeted = _targeted(plan, to, settings, legalize)
    bundle = exporter.export(targeted.plan)
    if output is None and not bundle.text and not json:
        raise BadInput(f"{to} is loaded from files: give a folder to write them to with -o DIR")
    written = [] if output is None else write_folder(output, to, targeted.plan, bundle)
    if json:
        print_json({
            "target": to, "text": bundle.text, "load": bundle.load, "versions": dict(bundle.versions),
            "written": [str(path) for path in written], **_moves(targeted),
        })  # fmt: skip
    elif output is None:
        print(bundle.text)
    else:
        print(f"wrote {len(written)} files to {output}; to load them, in that folder:\n\n{bundle.load}")
    return 0


def verify(
    plan: PlanFile, to: To, legalize: Legalize = False, settings: Settings = None, json: options.Json = False
) -> int:
    """Check that a runtime does what was planned; ends with 4 if it does not."""
    from stead.cli.output import print_json

    exporter, targeted = _targeted(plan, to, settings, legalize)
    verdict = exporter.verify(targeted.plan)
    if json:
        answers = {name: getattr(verdict, name) for name, _ in QUESTIONS}
        print_json({
            "target": to, "failed": verdict.failed, **_moves(targeted),
            **{name: {"result": one.result, "detail": one.detail} for name, one in answers.items()},
        })  # fmt: skip
    else:
        _print_verdict(verdict)
    return VERIFY_FAILED if verdict.failed else 0


def _targeted(path: Path, to: str, settings: list[str] | None, legalize: bool) -> tuple[Exporter, Targeted]:
    """The exporter, and the plan as it can take it; BadInput by name where that is another one than the user's."""
    import sys

    from stead.export.placing import for_target
    from stead.export.projecting import cost_of, refuse_moves
    from stead.export.targets import exporter as exporter_named
    from stead.plan import Plan

    exporter = exporter_named(to, **options.settings("--set", settings))
    targeted = for_target(Plan.load(path), exporter)
    if not legalize:
        refuse_moves(exporter, targeted.projection)
    for move in targeted.projection.moves:
        print(f"stead: moved {move}", file=sys.stderr)
    if targeted.projection.moves:
        print(f"stead: {cost_of(targeted.projection)}", file=sys.stderr)
    return exporter, targeted


def _moves(targeted: Targeted) -> dict[str, Any]:
    from dataclasses import asdict

    projection = targeted.projection
    return {
        "moves": [asdict(move) for move in projection.moves],
        "seconds_before": projection.seconds_before, "seconds_after": projection.seconds_after,
    }  # fmt: skip


def _print_verdict(verdict: Verification) -> None:
    from stead.cli.streams import look, show
    from stead.printing.table import Column, table

    columns = [Column("question"), Column("answer"), Column("how it was seen", least=30, whole=True)]
    lines = [[text, one.result, one.detail] for name, text in QUESTIONS for one in (getattr(verdict, name),)]
    show("\n".join(table(columns, lines, look(), indent="")))
