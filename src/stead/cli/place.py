"""stead place: solve, compare with baselines, write the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.engine import Engine
    from stead.errors import Infeasible
    from stead.placing.event_log import EventLog
    from stead.placing.loading import Loaded
    from stead.placing.remedies import Remedy
    from stead.placing.spread import Spread
    from stead.plan import Plan
    from stead.problem import Objective

INFEASIBLE, INTERRUPTED = 3, 130
LEAST_READING_SECONDS = 10.0  # a short limit is one for the search: without a model there is no answer at all


def place(
    model: options.Model,
    devices: options.Devices = None,
    batch: options.Batch = None,
    shape: options.Shape = None,
    context: options.Context = None,
    phase: options.Phase = None,
    objective: options.ObjectiveName = None,
    execution: options.Execution = "dataflow",
    dispatch: options.Dispatch = None,
    load: options.Load = "sum",
    microbatches: options.Microbatches = None,
    schedule: options.Schedule = "gpipe",
    solver: Annotated[str, typer.Option(help="`stead solvers` lists them.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="An option of the solver.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A policy of `stead train`, for the solver that it was trained for."
        ),
    ] = None,
    fine_tune: Annotated[
        int | None, typer.Option(metavar="N", help="Updates on this model that go on from the policy.")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds.")] = 60.0,
    evaluations: Annotated[int | None, typer.Option(help="Placements to score at most.")] = None,
    granularity: options.Granularity = "auto",
    target: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="Plan only what a runtime can load; `stead targets` lists them."),
    ] = None,
    seed: options.Seed = 0,
    pin: options.Pin = None,
    forbid: options.Forbid = None,
    colocate: options.Colocate = None,
    profile: options.Profiles = None,
    read: options.Read = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the plan.")] = Path(
        "plan.json"
    ),
    json: options.Json = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Also what phases of the search and kinds of moves took and gained.")
    ] = False,
    start: options.Start = None,
    events: options.Events = None,
    engine: options.EngineName = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --engine: what tasks found; after a kill the same command goes on."),
    ] = None,
) -> int:
    """Place a model on devices: solve, compare with simple rules, write the plan."""
    from functools import partial

    from stead.cli.interrupts import within
    from stead.cli.progress import Progress
    from stead.errors import BadInput
    from stead.placing.loading import load as load_model
    from stead.placing.place import place as find
    from stead.problem import objective_from
    from stead.solvers import Budget
    from stead.solvers import solver as solver_named

    if journal is not None and engine is None:
        raise BadInput("--journal keeps what tasks of an --engine found; name one")
    if engine is not None and target is not None:
        raise BadInput("--target is not spread over an engine; leave out --engine")
    Budget(time_limit, evaluations)  # what makes no sense is told before anything is read
    reading = options.model_options(batch, context, phase, read, shape)
    longest = max(time_limit, LEAST_READING_SECONDS)
    late = BadInput(f"{model}: reading took more than {longest:g} s; give it more with --time-limit")
    with Progress() as progress, within(longest, late):
        progress.doing(f"reading {model}")
        profiles = options.profiles_from(profile)
        where = options.profiled_devices(profile) if devices is None else devices
        loaded = load_model(model, where, options=reading, profiles=profiles)
    given: dict[str, Any] = options.settings("--set", settings)
    given.update({key: value for key, value in (("policy", policy), ("fine_tune", fine_tune)) if value})
    ask: Callable[..., Plan]
    if target is None:
        ask = partial(find, granularity=granularity)  # type: ignore[arg-type]
    else:
        if granularity != "auto":
            raise BadInput("--target says what stays whole: leave --granularity out")
        from stead.export.placing import place_for
        from stead.export.targets import exporter

        ask = partial(place_for, exporter(target))
    ask = partial(
        ask, loaded, solver=solver_named(solver, **given), time_limit=time_limit, evaluations=evaluations, seed=seed,
        constraints=options.constraints_from(pin, forbid, colocate),
    )  # fmt: skip
    goals = [
        objective_from(name, execution=execution, dispatch=dispatch, load=load, microbatches=microbatches,
                       schedule=schedule)
        for name in ([objective] if objective else ["latency", "throughput"])
    ]  # fmt: skip
    if start is not None:
        from stead.placing.start_files import start_from

        ask = partial(ask, start=start_from(start))
    with options.events_to(events) as log, options.engine_from(engine) as spread:
        ask = ask if spread is None else partial(ask, spread=_spread(spread, journal))
        asked = {"model": model, "graph": loaded.graph.fingerprint, "operators": len(loaded.graph)}
        log.begin("place", devices=loaded.cluster.names, time_limit=time_limit, evaluations=evaluations, **asked)
        return _found(goals, ask, loaded, time_limit, log, (model, reading), output, json, verbose)


def _spread(engine: Engine, journal: Path | None) -> Spread:
    from stead.engine import Journal
    from stead.placing.spread import Spread

    return Spread(engine, None if journal is None else Journal(journal))


def _found(
    goals: list[Objective],
    ask: Callable[..., Plan],
    loaded: Loaded,
    time_limit: float,
    log: EventLog,
    source: tuple[str, dict[str, Any]],
    output: Path,
    json: bool,
    verbose: bool,
) -> int:
    """Solve for every goal, save and print; what there is after an interrupt, or what would help where nothing fits."""
    from stead import clock
    from stead.cli.progress import Progress
    from stead.errors import Infeasible

    plans: list[Plan] = []
    try:
        for goal in goals:
            log.write("goal", objective=goal.name, detail=goal.describe(), unit=goal.unit)
            with Progress() as progress:
                progress.search(time_limit)
                end = clock.now() + time_limit + max(1.0, 0.05 * time_limit)

                def doing(step: str, progress: Progress = progress) -> None:
                    progress.doing(step)
                    log.doing(step)

                try:
                    plans.append(
                        ask(objective=goal, on_improvement=progress.improved, on_step=doing, on_event=log.listener)
                    )
                except Infeasible as error:
                    progress.doing("looking for what would help")
                    found = _fixes(error, end - clock.now())
                    progress.close()
                    _print_infeasible(error, found, goal, loaded, json)
                    told = {"fixes": [one.text for one in found], "asks": [dict(one.asks) for one in found]}
                    log.end(INFEASIBLE, message=str(error), **told)
                    return INFEASIBLE
            if plans[-1].solution.interrupted:
                break
    except KeyboardInterrupt:
        if not plans:
            raise
    return _written(plans, loaded, source, output, json, verbose, log)


def _written(
    plans: list[Plan], loaded: Loaded, source: tuple[str, dict[str, Any]], output: Path, json: bool, verbose: bool,
    log: EventLog,
) -> int:  # fmt: skip
    """Save and print plans; an interrupt waits until they are saved, and then only ends the printing."""
    import sys

    from stead.cli.interrupts import held_off
    from stead.placing.loading import assumptions

    written: list[Path] = []
    try:
        with held_off():
            written = _save(plans, output)
            interrupted = any(plan.solution.interrupted for plan in plans)
            log.end(0, written=[str(path) for path in written], interrupted=interrupted)
        _print(plans, loaded, written, () if json else assumptions(loaded, *source), json, verbose)
    except KeyboardInterrupt:
        names = " and ".join(str(path) for path in written)
        print(f"stead: interrupted; the best plan so far is in {names}", file=sys.stderr)
        return INTERRUPTED if any(plan.solution.interrupted for plan in plans) else 0
    return 0


def _fixes(error: Infeasible, seconds: float) -> Sequence[Remedy]:
    """What would help; after so many seconds the look for it is interrupted, as reading a model again can take long."""
    from contextlib import suppress

    from stead.cli.interrupts import within

    with suppress(KeyboardInterrupt), within(max(0.1, seconds), KeyboardInterrupt()):
        return error.fixes
    return ()


def _print_infeasible(
    error: Infeasible, found: Sequence[Remedy], goal: Objective, loaded: Loaded, json: bool
) -> None:
    """What is missing and the smallest changes that were tried and help."""
    import sys

    from stead.cli.output import print_json

    if json:
        print_json({
            "feasible": False, "objective": goal.name, "reason": str(error), "proved": error.proved,
            "short_bytes": error.short_bytes, "fixes": [one.text for one in found],
        })  # fmt: skip
    word = "infeasible" if error.proved else "no feasible placement was found"
    print(f"stead: {word}: {error}", file=sys.stderr)
    for one in found:
        print(f"  fix: {one.text}", file=sys.stderr)
    if not found:
        print("  no single change that was tried helps", file=sys.stderr)
    batch = loaded.source.size("batch") if loaded.source is not None else None
    if batch is not None and batch > 1 and not any(one.text.startswith("--batch") for one in found):
        said = f"  a smaller --batch (now {batch}) may help: none was settled within the time limit"
        print(said, file=sys.stderr)


def _save(plans: list[Plan], output: Path) -> list[Path]:
    """One file if all plans place alike, else one per objective."""
    if all(plan.placement == plans[0].placement for plan in plans):
        plans[0].save(output)
        return [output]
    written = []
    for plan in plans:
        path = output.with_name(f"{output.stem}.{plan.problem.objective.name}{output.suffix}")
        plan.save(path)
        written.append(path)
    return written


def _print(
    plans: list[Plan], loaded: Loaded, written: list[Path], assumed: tuple[str, ...], json: bool, verbose: bool
) -> None:
    import shlex
    import sys
    from dataclasses import asdict

    from stead.cli.streams import look, print_lines, show
    from stead.report import explain
    from stead.report.text import line, summary

    for note in loaded.notes:
        print(f"stead: note: {note}", file=sys.stderr)
    if json:
        from stead.cli.output import plan_document, print_json

        also = {"written": [str(path) for path in written], "assumed": {one.name: one.size for one in loaded.assumed}}
        phases = [{"phases": [asdict(phase) for phase in plan.solution.phases]} if verbose else {} for plan in plans]
        documents = [{**plan_document(plan), **also, **more} for plan, more in zip(plans, phases, strict=True)]
        print_json(documents[0] if len(documents) == 1 else {plan["objective"]: plan for plan in documents})
        return
    for number, plan in enumerate(plans):
        first = () if number else assumed
        show(summary(explain(plan), look(), devices=() if number else loaded.resolutions, assumed=first))
        if verbose:
            from stead.report.phase_table import kind_table, phase_table

            tables = [one(plan.solution.phases, look()) for one in (phase_table, kind_table)]
            show("\n".join(text for lines in tables if lines for text in ("", *lines)) + "\n")
    if len(plans) > 1:
        agree = "agree" if len(written) == 1 else "differ: choose with --objective"
        print_lines([line("both", f"the placements for latency and for throughput {agree}")])
    names = " and ".join(str(path) for path in written)
    target = plans[0].provenance.get("target")
    first_plan = shlex.quote(str(written[0]))
    following = f"stead explain {first_plan} | stead report {first_plan}"
    if target is not None:
        from stead.export.targets import export_command

        model = "MODEL" if loaded.source is None else str(loaded.source.model)
        following = f"{export_command(written[0], target['name'], model)} | {following}"
    print_lines([line("wrote", f"{names}    next: {following}")])
