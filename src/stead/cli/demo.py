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
    from stead.placing.loading import load
    from stead.placing.place import place_problem
    from stead.problem import Latency
    from stead.report import explain, page
    from stead.report.text import line, summary
    from stead.solvers import Budget
    from stead.workloads.demo import demo_graph

    cluster, resolutions = cluster_from(DEVICES)
    loaded = load(demo_graph(), cluster)
    # Counted in evaluations, so that everybody sees the same numbers; a second or two of work.
    plan = place_problem(
        loaded.problem(Latency()),
        budget=Budget(evaluations=EVALUATIONS),
        seed=seed,
        made_from=("demo", DEVICES),
        granularity=granularity,  # type: ignore[arg-type]
    )
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
    show(summary(explain(plan), look(), devices=resolutions))
    made = output / "plan.json"
    print_lines([
        line("wrote", f"{made} and {output / 'report.html'}"),
        line("next", f'stead place MODEL --devices "3090,3060" | stead explain {made} NAME'),
    ])  # fmt: skip
    return 0
