"""stead simulate: score a placement that somebody else made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stead.cli import options

if TYPE_CHECKING:
    from stead.problem import Placement, Problem


def simulate(
    model: options.Model,
    placement: Annotated[
        str,
        typer.Option(
            "--placement",
            "-p",
            metavar="FILE|DEV",
            help="A plan, {operator: device} or split file; or one device.",
        ),
    ],
    devices: options.Devices = None,
    batch: options.Batch = None,
    shape: options.Shape = None,
    context: options.Context = None,
    phase: options.Phase = None,
    objective: options.ObjectiveName = "latency",
    execution: options.Execution = "dataflow",
    dispatch: options.Dispatch = None,
    load: options.Load = "sum",
    microbatches: options.Microbatches = None,
    schedule: options.Schedule = "gpipe",
    profile: options.Profiles = None,
    read: options.Read = None,
    trace: Annotated[
        Path | None, typer.Option(help="Also write the time line for Perfetto; packed if it ends in .gz.")
    ] = None,
    json: options.Json = False,
) -> int:
    """Score a given placement: time, bound, memory; infeasible ends with exit code 3."""
    from stead.cli.output import plan_document, print_json
    from stead.cli.streams import look, show
    from stead.placing.loading import load as load_model
    from stead.plan import Plan, provenance
    from stead.problem import objective_from
    from stead.report import explain, summary
    from stead.sim import simulate as run
    from stead.sim.bounds import best_bound
    from stead.solvers import Solution

    reading = options.model_options(batch, context, phase, read, shape)
    profiles = options.profiles_from(profile)
    where = options.profiled_devices(profile) if devices is None else devices
    loaded = load_model(model, where, options=reading, profiles=profiles)
    goal = objective_from(
        objective or "latency", execution=execution, dispatch=dispatch, load=load, microbatches=microbatches,
        schedule=schedule,
    )  # fmt: skip
    problem = loaded.problem(goal)
    given = _placement(problem, model, placement)
    result = run(problem, given)
    bound = best_bound(problem)
    solution = Solution(
        given,
        result.objective_seconds,
        bound_seconds=min(bound.seconds, result.objective_seconds),
        bound_name=bound.name,
        solver="given",
        evaluations=1,
    )
    plan = Plan(
        problem, solution, (), provenance(model=loaded.model_name, devices=loaded.devices_text, seed=0)
    )
    if trace is not None:
        from stead.report.chrome_trace import write_trace

        write_trace(result, trace)
    if json:
        print_json(plan_document(plan))
    else:
        show(summary(explain(plan), look()))
    return 0 if result.feasible else 3


def _placement(problem: Problem, model: str, given: str) -> Placement:
    """The placement a file or a single device name means."""
    from stead.errors import BadInput
    from stead.plan import Plan, is_plan
    from stead.problem import Placement
    from stead.readers.base import read_json
    from stead.readers.msr.reader import is_split, split_placement

    if given in problem.cluster.names:
        return Placement(problem, [problem.cluster.index(given)] * len(problem.graph))
    path = Path(given)
    data = read_json(path)
    if is_split(data):
        return Placement.from_names(
            problem, split_placement(data, problem.graph, place=given, cluster=problem.cluster)
        )
    if is_plan(data):
        return Placement.from_names(problem, Plan.load(path).placement.by_name())
    names = data.get("placement", data) if isinstance(data, dict) else data
    if not isinstance(names, dict) or not all(isinstance(value, str) for value in names.values()):
        raise BadInput(f"{given} is no placement; it should map operator names to device names")
    return Placement.from_names(problem, names)
