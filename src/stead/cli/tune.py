"""stead tune: place, run a few different placements for real, correct the costs, place again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stead.cli import options


def tune(
    model: options.Model,
    on: options.On = None,
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices", "-d", metavar="D", help="What to believe of the workers at first. Not given: this machine."
        ),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of `stead profile`: begin with measured costs.")
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", "-g", metavar="latency|throughput", help="What is measured.")
    ] = "latency",
    executor: options.ExecutorName = "auto",
    measurements: Annotated[int, typer.Option(min=1, help="Bursts to run at most.")] = 20,
    time_limit: Annotated[float, typer.Option(help="Seconds, once the workers are there.")] = 120.0,
    evaluations: Annotated[int, typer.Option(min=1, help="Placements that every plan on the way may score.")] = 4000,
    batch: options.Batch = None,
    shape: options.Shape = None,
    context: options.Context = None,
    phase: options.Phase = None,
    read: options.Read = None,
    seed: options.Seed = 0,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the plan.")] = Path("plan.json"),
    json: options.Json = False,
    engine: options.EngineName = None,
) -> int:
    """Find the placement that runs fastest here: measure, correct what is believed, place again."""
    import sys

    from stead.cli.interrupts import held_off
    from stead.cli.leased import elsewhere
    from stead.cli.output import print_json
    from stead.cli.progress import Progress
    from stead.cli.streams import look, print_lines, show
    from stead.costs import read_machine_profile
    from stead.problem import objective_from
    from stead.report.text import line
    from stead.run.believed import believed_problem
    from stead.run.noise import bars_of_profiles
    from stead.run.session import opened, workers_on
    from stead.run.tune import finished
    from stead.run.tune import tune as find
    from stead.run.tune_text import rounds_table, tuned_lines
    from stead.solvers import Budget

    Budget(time_limit)  # what makes no sense is told before anything is started
    goal = objective_from(objective)
    if engine is not None:
        given: list[str] = [
            "--objective", objective, "--executor", executor, "--measurements", str(measurements), "--time-limit",
            str(time_limit), "--evaluations", str(evaluations), "--seed", str(seed), "-o", "{folder}/" + output.name,
        ]  # fmt: skip
        single = {"--on": on, "--devices": devices, "--batch": batch, "--context": context, "--phase": phase}
        for option, value in single.items():
            given += [option, str(value)] if value is not None else []
        for option, values in (("--shape", shape), ("--read", read)):
            given += [part for value in values or () for part in (option, value)]
        return elsewhere(engine, ["tune", model, *given], profile, output, json)
    known = None if profile is None else read_machine_profile(profile)
    reading = options.model_options(batch, context, phase, read, shape)
    workers = workers_on(on or "this-machine")
    with Progress() as progress:
        progress.doing(f"starting {model}")
        with opened(model, workers, executor=executor, options=reading) as running:
            problem = believed_problem(running, goal, devices=devices, profile=known)
            bars = None if known is None else bars_of_profiles(problem.graph, problem.cluster, known.profiles)
            tuned = find(
                problem, measure=running, bars=bars, measurements=measurements, evaluations=evaluations, seed=seed,
                time_limit=time_limit, on_trial=lambda one: progress.doing(f"measured {one.name}"),
            )  # fmt: skip
            tuned, numerics = finished(tuned, running, model=model, devices=devices or on or "this-machine")
    with held_off():
        tuned.plan.save(output)
    if json:
        print_json({
            "written": str(output), "objective": goal.name, **tuned.plan.provenance["tuned"],
            "gain": tuned.gain, "within_noise": tuned.is_within_noise,
            "rounds": [[one.as_dict() for one in part.candidates] for part in tuned.rounds],
        })  # fmt: skip
    else:
        show("\n".join(["", *rounds_table(tuned.rounds, look()), ""]))
        told = [one for one in tuned_lines(tuned) if numerics.passed or one[0] != "gain"]
        print_lines([line(label, text) for label, text in told])
        print_lines([line("wrote", f"{output}    next: stead measure {output}")])
    if not numerics.passed:
        print(f"stead: {numerics.fault}: no gain is told", file=sys.stderr)
        return 1
    if tuned.stopped_by == "interrupted":
        print(f"stead: interrupted; the best plan that was measured is in {output}", file=sys.stderr)
    return 0
