"""stead report: a plan as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stead.cli import options


def report(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that `stead place` wrote.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the page.")] = Path(
        "report.html"
    ),
    json: options.Json = False,
) -> int:
    """Write one self-contained page about a plan: verdict, time line, memory."""
    from stead.cli.output import print_json
    from stead.files import write_text
    from stead.plan import Plan
    from stead.report import page

    write_text(output, page(Plan.load(plan)))
    if json:
        print_json({"written": str(output)})
    else:
        print(f"wrote {output}")
    return 0
