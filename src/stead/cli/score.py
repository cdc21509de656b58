"""stead score: how good a set-up is that somebody already has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.plan import Plan


def score(
    model: options.Model,
    setup: Annotated[
        tuple[str, str],
        typer.Option(
            "--from",
            metavar="TOOL SETUP",
            help="hf auto or device_map.json, llama 'FLAGS', vllm 16,16, megatron LAYOUT or stages names.json.",
        ),
    ],
    devices: options.Devices = None,
    batch: options.Batch = None,
    shape: options.Shape = None,
    context: options.Context = None,
    phase: options.Phase = None,
    objective: Annotated[
        str, typer.Option("--objective", "-g", metavar="latency|throughput", help="What is scored.")
    ] = "latency",
    microbatches: options.Microbatches = None,
    schedule: options.Schedule = "gpipe",
    profile: options.Profiles = None,
    read: options.Read = None,
    time_limit: Annotated[float, typer.Option(help="Seconds to look for something better.")] = 10.0,
    evaluations: Annotated[int | None, typer.Option(help="Placements to score at most.")] = None,
    seed: options.Seed = 0,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Also write the set-up as a plan.")
    ] = None,
    json: options.Json = False,
) -> int:
    """Score a set-up that you have: time, bound, simple rules, and what stead would choose for the same tool."""
    import sys

    from stead.cli.output import plan_document, print_json
    from stead.cli.streams import look, show
    from stead.export.present_setup import score_setup
    from stead.placing.loading import load as load_model
    from stead.problem import objective_from
    from stead.report import explain, summary
    from stead.solvers import Budget

    Budget(time_limit, evaluations)  # what makes no sense is told before anything is read
    reading = options.model_options(batch, context, phase, read, shape)
    loaded = load_model(model, devices, options=reading, profiles=options.profiles_from(profile))
    goal = objective_from(objective, microbatches=microbatches, schedule=schedule)
    scored = score_setup(*setup, loaded, objective=goal, time_limit=time_limit, evaluations=evaluations, seed=seed)
    for note in (*loaded.notes, *scored.notes):
        print(f"stead: note: {note}", file=sys.stderr)
    plan: Plan = scored.plan
    if output is not None:
        plan.save(output)
    if json:
        print_json({**plan_document(plan), "better_seconds": scored.better_seconds, "tool": scored.target})
    else:
        show(summary(explain(plan), look(), devices=loaded.resolutions))
        show(scored.verdict)
    return 0 if plan.trace.feasible else 3
