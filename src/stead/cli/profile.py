"""stead profile: time every operator of a model on the devices of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stead.cli import options


def profile(
    model: options.Model,
    on: options.On = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to write what was measured; ends in .json.")
    ] = Path("costs.json"),
    executor: options.ExecutorName = "auto",
    repeats: Annotated[int, typer.Option(min=1, help="Whole runs per burst.")] = 6,
    bursts: options.Bursts = 6,
    batch: options.Batch = None,
    shape: options.Shape = None,
    context: options.Context = None,
    phase: options.Phase = None,
    read: options.Read = None,
    json: options.Json = False,
) -> int:
    """Time every operator of a model on this machine, and the links between devices."""
    import shlex
    import sys

    from stead.cli.output import print_json
    from stead.cli.progress import Progress
    from stead.cli.streams import look, print_lines, show
    from stead.costs import write_machine_profile
    from stead.errors import BadInput
    from stead.report.text import line
    from stead.run.crossing_times import links_in_place
    from stead.run.machine_rates import measure_machine, rates_text
    from stead.run.profile import machine_profile, profile_text, take_timings
    from stead.run.session import circumstances, opened, workers_on

    if output.suffix != ".json":
        raise BadInput(f"{output}: profiles are JSON; give a name that ends in .json")
    workers = workers_on(on or "this-machine")
    reading = options.model_options(batch, context, phase, read, shape)
    with Progress() as progress:
        progress.doing("rates and links")
        machine = measure_machine(workers, on_step=progress.doing)
        progress.doing(f"starting {model}")
        with opened(model, workers, executor=executor, options=reading) as running:
            timings = take_timings(running, repeats=repeats, bursts=bursts, on_step=progress.doing)
            made = circumstances(running, model=model)
            crossings = links_in_place(running, timings, machine.cluster, on_step=progress.doing)
            found = machine_profile(
                running, timings, crossings.cluster, links=[one for link in machine.links for one in link.samples],
                made=made, warnings=(*machine.not_independent, *crossings.warnings),
            )  # fmt: skip
            graph = running.graph
    write_machine_profile(found, output)
    if json:
        totals = {one.device: one.total for one in found.profiles if one.total is not None}
        print_json({
            "written": str(output), "warnings": list(found.warnings), "made": dict(found.made),
            "total_seconds": {name: bar.quartile_seconds for name, bar in totals.items()},
            "spread": {name: bar.relative_spread for name, bar in totals.items()},
        })  # fmt: skip
    else:
        show("\n".join(profile_text(found, graph, look())))
        show("\n".join(["", *rates_text(machine, look()), *crossings.text]))
        print_lines([line("wrote", f"{output}    next: stead place {shlex.quote(model)} --profile {output}")])
    for said in found.warnings:
        print(f"stead: warning: {said}", file=sys.stderr)
    return 0
