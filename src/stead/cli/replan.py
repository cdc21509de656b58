"""stead replan: devices were lost, added or changed while a plan is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stead.cli import options


def replan(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan that is in use.")],
    devices: Annotated[
        str | None,
        typer.Option("--devices", "-d", metavar="D", help="The devices from now on, written as for `stead place`."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="DEV", help="A device of the plan that is gone.")
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps within which moving must pay: requests, or samples of a pipeline.")
    ] = 10_000,
    keep: Annotated[float, typer.Option(help="Share of the loaded bytes that stays where it is, at least.")] = 0.0,
    load_rate: Annotated[
        str, typer.Option(metavar="RATE", help="How fast weights are loaded that no device holds any more.")
    ] = "2GB/s",
    time_limit: Annotated[float, typer.Option(help="Seconds.")] = 30.0,
    evaluations: Annotated[int | None, typer.Option(min=1, help="Placements to score, rather than seconds.")] = None,
    seed: options.Seed = 0,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the new plan.")] = Path("plan.json"),
    json: options.Json = False,
) -> int:
    """Place a plan's model on changed devices, so that moving its weights pays."""
    from stead.cli.interrupts import held_off
    from stead.cli.output import plan_document, print_json
    from stead.cli.progress import Progress
    from stead.cli.streams import look, print_lines, show
    from stead.cluster import cluster_from
    from stead.cluster.quantities import parse_rate
    from stead.errors import BadInput
    from stead.placing.replan import replan as find
    from stead.placing.replan_text import replanned_lines
    from stead.plan import Plan
    from stead.report import explain
    from stead.report.text import line, summary
    from stead.solvers import Budget

    Budget(time_limit, evaluations)  # what makes no sense is told before anything is read
    rate = parse_rate(load_rate, "--load-rate")
    if devices is None and not without:
        raise BadInput("nothing has changed: say --devices with those from now on, or --without with one that is gone")
    loaded = Plan.load(plan)
    cluster = loaded.problem.cluster if devices is None else cluster_from(devices)[0]
    cluster = cluster.without(*(without or ()))
    with Progress() as progress:
        found = find(
            loaded, cluster, steps=steps, keep=keep, load_bytes_per_second=rate, time_limit=time_limit,
            evaluations=evaluations, seed=seed, on_step=progress.doing,
        )  # fmt: skip
    with held_off():
        found.plan.save(output)
    if json:
        print_json({"written": str(output), **plan_document(found.plan), **found.as_dict()})
    else:
        show(summary(explain(found.plan), look()))
        show("\n".join(["", *replanned_lines(found, look())]))
        print_lines([line("wrote", f"{output}    before: {plan}")])
    return 0
