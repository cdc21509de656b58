"""stead train: make a policy better on some graphs, and write it with its log and its learning curve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options
from stead.printing.look import Look
from stead.printing.table import Column, in_seconds, table

if TYPE_CHECKING:
    from stead.problem import Problem

INTERRUPTED = 130
INTERVAL_SECONDS = 2.0  # between progress lines


def train(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A solver that learns, such as colocrl.")],
    graphs: Annotated[
        list[str],
        typer.Option("--graphs", metavar="MODEL", help="Files or zoo:NAME; may be given repeatedly."),
    ],
    devices: options.Devices = None,
    updates: Annotated[int, typer.Option(help="Steps of the optimiser.")] = 500,
    seed: options.Seed = 0,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Where to write the policy; its log and curve lie beside it."),
    ] = Path("policy.safetensors"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint beside the output, if there is one.")
    ] = False,
    every: Annotated[int, typer.Option(help="Updates between checkpoints.")] = 25,
    objective: options.ObjectiveName = "latency",
    execution: options.Execution = "dataflow",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="An option of the solver.")
    ] = None,
    processes: Annotated[
        int, typer.Option(help="That share the graphs of an update; the policy is the same for any number.")
    ] = 1,
    ray: Annotated[
        bool, typer.Option("--ray", help="Take actors of Ray as processes, of the cluster at RAY_ADDRESS if set.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Train a policy on graphs; the same seed gives the same policy, also after a kill and --resume."""
    import sys
    from importlib import import_module

    from stead.cli.output import print_json
    from stead.cli.streams import look, print_lines, show
    from stead.errors import BadInput
    from stead.report.text import line
    from stead.solvers import solver, solver_names

    chosen: Any = solver(policy, **options.settings("--set", settings))
    if not hasattr(chosen, "learner"):
        *others, last = solver_names("learned")
        raise BadInput(f"{policy} is a solver that does not learn; {', '.join(others)} and {last} do")
    runs = import_module("stead.learn.ground.training_run")  # by name: the command line does not know what learns
    train_policy = import_module("stead.learn.ground.solver").train_policy
    run = runs.Run(output, updates, resume, every)
    problems = [_problem(model, devices, objective or "latency", execution) for model in graphs]
    progress = _Progress(runs.progress_line)
    try:
        learner = train_policy(chosen, problems, graphs, run, seed=seed, processes=processes, ray=ray, report=progress)
    except KeyboardInterrupt:
        print(f"stead: interrupted; go on with --resume -o {output}", file=sys.stderr)
        return INTERRUPTED
    found = [
        {
            "graph": task.name, "best_seconds": task.scorer.best_seconds, "greedy_seconds": task.greedy_seconds,
            "bound_seconds": task.bound_seconds, "baselines": task.known, "evaluations": task.scorer.evaluations,
        }
        for task in learner.tasks
    ]  # fmt: skip
    if json:
        print_json({"policy": str(output), "updates": learner.version, "seed": seed, "graphs": found})
        return 0
    show("\n".join(_table(found, look())))
    print_lines([line("wrote", f"{output}    next: stead place MODEL --solver {policy} --policy {output}")])
    return 0


def _problem(model: str, devices: str | None, objective: str, execution: str) -> Problem:
    from stead.placing.loading import load
    from stead.problem import objective_from

    goal = objective_from(objective, execution=execution)
    return load(model, devices).problem(goal)


def _table(found: list[dict[str, Any]], shape: Look) -> list[str]:
    """What came out for every graph, beside the bound and the best simple rule."""
    time = in_seconds(min((row["best_seconds"] for row in found), default=0))
    columns = [
        Column("graph", least=16),
        *(Column(title, time.unit, right=True) for title in ("best", "last greedy", "bound", "best rule")),
        Column("", least=8),
        Column("evaluations", right=True, drop=1),
    ]
    rows = []
    for row in found:
        rule, seconds = min(row["baselines"].items(), key=lambda one: one[1], default=("", None))
        times = [row["best_seconds"], row["greedy_seconds"], row["bound_seconds"], seconds]
        rows.append([row["graph"], *map(time, times), rule, str(row["evaluations"])])
    return table(columns, rows, shape)


class _Progress:
    """A line on stderr from time to time."""

    def __init__(self, line: Any) -> None:
        import time

        self._line, self._clock = line, time.monotonic
        self._begin = self._clock()
        self._last = self._begin - INTERVAL_SECONDS

    def __call__(self, metrics: Any, learner: Any) -> None:
        import sys

        now = self._clock()
        if now - self._last >= INTERVAL_SECONDS:
            self._last = now
            print(self._line(metrics, learner, now - self._begin), file=sys.stderr, flush=True)
