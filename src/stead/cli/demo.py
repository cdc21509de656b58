"""stead demo: a bundled model on two unequal cards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stead.cli import options

DEVICES = "3090,3060"
EVALUATIONS = 100_000


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for plan.json and report.html.")
    ] = Path(),
    granularity: options.Granularity = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> int:
    """Place a bundled model on two unequal cards; writes plan.json and report.html."""
    from stead.cli.output import plan_document, print_json
    from stead.cli.streams import look, print_lines, show
    from stead.cluster import cluster_from
    from stead.errors import BadInput
    from stead.files import write_text
    from stead.placing.place import place
    from stead.report import explain, page
    from stead.report.text import line, summary
    from stead.workloads.demo import demo_graph

    # Counted in evaluations, so that everybody sees the same numbers; a second or two of work.
    plan = place(
        demo_graph(), DEVICES, time_limit=None, evaluations=EVALUATIONS, seed=seed,
        granularity=granularity,  # type: ignore[arg-type]
    )  # fmt: skip
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot write to {output}: {error.strerror or error}; choose a folder with -o"
        ) from None
    plan.save(output / "plan.json")
    write_text(output / "report.html", page(plan))
    if json:
        print_json(plan_document(plan))
        return 0
    show(summary(explain(plan), look(), devices=cluster_from(DEVICES)[1]))
    made = output / "plan.json"
    print_lines([
        line("wrote", f"{made} and {output / 'report.html'}"),
        line("next", f'stead place MODEL --devices "3090,3060" | stead explain {made} NAME'),
    ])  # fmt: skip
    return 0
