"""stead explain: why a plan, or one of its operators, is as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stead.cli import options


def explain(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that `stead place` wrote.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="An operator, a pattern or a module path.", show_default=False),
    ] = None,
    json: options.Json = False,
) -> int:
    """Explain a plan, or why an operator is where it is; every change is re-simulated."""
    from stead.cli.output import operator_document, plan_document, print_json
    from stead.cli.streams import look, show
    from stead.plan import Plan
    from stead.report import explain as facts
    from stead.report import explain_named, explain_operators, named_text, summary

    loaded = Plan.load(plan)
    if name is None:
        if json:
            print_json(plan_document(loaded))
        else:
            show(summary(facts(loaded), look(), every_layer=True))
        return 0
    if json:
        print_json([operator_document(one) for one in explain_operators(loaded, name)])
    else:
        show(named_text(explain_named(loaded, name), look()))
    return 0
