"""stead train: make a policy better on some graphs, and write it with its log and its learning curve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options
from stead.printing.look import Look
from stead.printing.table import Column, in_seconds, table

if TYPE_CHECKING:
    from stead.problem import Problem
    from stead.run.measured_reward import MeasuredReward

INTERRUPTED = 130
TIMES = ("best drawn", "last greedy", "start", "bound", "best rule")
MOST_SHOWN = 40  # graphs in the table


def train(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A solver that learns, such as colocrl.")],
    graphs: Annotated[
        list[str] | None,
        typer.Option("--graphs", metavar="MODEL", help="Files or zoo:NAME; may be given repeatedly."),
    ] = None,
    devices: options.Devices = None,
    problems: Annotated[
        int,
        typer.Option(help="So many problems that are made up from seeds, in place of --graphs; walk, decoder=walk."),
    ] = 0,
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
    engine: options.EngineName = None,
    processes: Annotated[int | None, typer.Option(help="The old name of --engine local:N.", hidden=True)] = None,
    ray: Annotated[bool, typer.Option("--ray", help="The old name of --engine ray.", hidden=True)] = False,
    reward: Annotated[
        str,
        typer.Option(
            metavar="simulated|measured|mixed",
            help="What placements earn: simulated time, time on this machine, or of every tenth batch the latter.",
        ),
    ] = "simulated",
    on: options.On = None,
    executor: options.ExecutorName = "auto",
    json: options.Json = False,
    events: options.Events = None,
) -> int:
    """Train a policy on graphs; the same seed gives the same policy, also after a kill and --resume."""
    import sys
    from importlib import import_module

    from stead.cli.output import print_json
    from stead.cli.streams import look, print_lines, show
    from stead.cli.train_progress import TrainProgress
    from stead.errors import BadInput
    from stead.report.text import line
    from stead.solvers import solver, solver_names

    chosen: Any = solver(policy, **options.settings("--set", settings))
    if hasattr(chosen, "train"):  # rules, which need no network
        from stead.cli.train_rules import train_rules

        given = [_problem(model, devices, "latency", "dataflow") for model in graphs or ()]
        return train_rules(chosen, given, problems, updates, seed, output, resume=resume, every=every, json=json)
    if not hasattr(chosen, "learner"):
        *others, last = solver_names("learned")
        raise BadInput(f"{policy} is a solver that does not learn; {', '.join(others)} and {last} do")
    if problems and not getattr(chosen, "walks", False):
        raise BadInput(f"give --graphs MODEL to learn from; {policy} makes up no problems unless decoder=walk")
    if bool(graphs) == bool(problems):
        raise BadInput("give --graphs MODEL to learn from" + (", or --problems N, not both" if problems else ""))
    graphs = graphs or []
    runs = import_module("stead.learn.ground.training_run")  # by name: the command line does not know what learns
    train_policy = import_module("stead.learn.ground.solver").train_policy
    run = runs.Run(output, updates, resume, every)
    engine = _engine_named(engine, processes, ray)
    goal = (objective or "latency", execution)
    measured: dict[str, Any] = {}
    try:
        with (
            options.events_to(events) as log,
            _measuring(reward, graphs, devices, goal, on, executor, engine is not None, run, seed) as source,
            options.engine_from(engine) as spread,
        ):
            log.begin("train", policy=policy, graphs=graphs, updates=updates, seed=seed)
            progress = TrainProgress(runs, run, log)
            learned = [_problem(model, devices, *goal) for model in graphs] if source is None else [source.problem]
            if problems:
                learned = import_module("stead.learn.walk.made_problems").practice_problems(problems)
                graphs = [f"made {n}" for n in range(problems)]
            learner = train_policy(
                chosen, learned, graphs, run, seed=seed, engine=spread, report=progress, evaluate=source
            )
            if source is not None:
                measured = _confirmed(learner.tasks[0], source)
            log.end(0, written=[str(output)])
    except KeyboardInterrupt:
        print(f"stead: interrupted; go on with --resume -o {output}", file=sys.stderr)
        return INTERRUPTED
    found = [
        {
            "graph": task.name, "best_seconds": _scored(task.scorer.best_seconds),
            "greedy_seconds": _scored(task.greedy_seconds),
            "start_seconds": None if task.scorer.start is None else task.scorer.start.seconds,
            "start": "" if task.scorer.start is None else task.scorer.start.by,
            "bound_seconds": task.bound_seconds, "baselines": task.known, "evaluations": task.scorer.evaluations,
        }
        for task in learner.tasks
    ]  # fmt: skip
    if json:
        also = {"measured": measured} if measured else {}
        print_json({"policy": str(output), "updates": learner.version, "seed": seed, "graphs": found, **also})
        return 0
    show("\n".join(_table(found[:MOST_SHOWN], look())))
    if len(found) > MOST_SHOWN:
        print_lines([f"... and {len(found) - MOST_SHOWN} more graphs; --json has them all"])
    if measured:
        print_lines([line("measured", _told(measured))])
    print_lines([line("wrote", f"{output}    next: stead place MODEL --solver {policy} --policy {output}")])
    return 0


def _engine_named(engine: str | None, processes: int | None, ray: bool) -> str | None:
    """The engine, also by the names that it had before."""
    import warnings

    from stead.errors import BadInput, Renamed

    if processes is None and not ray:
        return engine
    if engine is not None:
        raise BadInput("--engine takes the place of --processes and --ray; leave these out")
    if processes is not None and processes < 1:
        raise BadInput(f"--processes must be at least 1, got {processes}")
    named = ("ray" if ray else "local") + (f":{processes}" if processes is not None else "")
    old = " ".join(([f"--processes {processes}"] if processes is not None else []) + (["--ray"] if ray else []))
    warnings.warn(f"{old} is now --engine {named}", Renamed, stacklevel=2)
    return None if processes == 1 and not ray else named


def _scored(seconds: float) -> float | None:
    """Seconds; None where nothing was scored, or nothing that runs."""
    return seconds if seconds < float("inf") else None


def _problem(model: str, devices: str | None, objective: str, execution: str) -> Problem:
    from stead.placing.loading import load
    from stead.problem import objective_from

    goal = objective_from(objective, execution=execution)
    return load(model, devices).problem(goal)


@contextmanager
def _measuring(
    reward: str,
    graphs: list[str],
    devices: str | None,
    goal: tuple[str, str],
    on: str | None,
    executor: str,
    shared: bool,
    run: Any,
    seed: int,
) -> Iterator[MeasuredReward | None]:
    """What measures placements of the one model on workers of this machine; None where the simulator is enough."""
    from stead.errors import BadInput, did_you_mean
    from stead.problem import objective_from
    from stead.run.measured_reward import REWARDS, MeasuredReward

    if reward not in REWARDS:
        raise BadInput(f"--reward is one of {', '.join(REWARDS)}, got {reward!r}{did_you_mean(reward, REWARDS)}")
    if reward == "simulated":
        if on is not None:
            raise BadInput("--on names who measures; add --reward measured or mixed, or leave it out")
        yield None
        return
    if len(graphs) != 1:
        raise BadInput(f"measured rewards are those of one model, got {len(graphs)}; give one --graphs")
    if shared:
        raise BadInput("other processes would disturb what is measured; leave out --engine")
    from stead.run.believed import believed_problem
    from stead.run.session import opened, workers_on

    kept = run.beside(".measured.jsonl")
    if not run.resume:
        kept.unlink(missing_ok=True)
    with opened(graphs[0], workers_on(on or "this-machine"), executor=executor) as running:
        problem = believed_problem(running, objective_from(goal[0], execution=goal[1]), devices=devices)
        yield MeasuredReward(running, problem, kind=reward, seed=seed, kept=kept)


def _confirmed(task: Any, reward: MeasuredReward) -> dict[str, Any]:
    """The best placement, measured once more, and all that was run for it."""
    trials = reward.trials
    again = reward.confirm(task.scorer.placed(task.scorer.own)) if task.scorer.own is not None else None
    return {
        "reward": reward.kind, "best_seconds": None if again is None else again.seconds, "measurements": trials.count,
        "lost": trials.lost, "known": trials.hits, "simulated": reward.simulated, "drift": trials.drift,
        "noise": trials.noise, "scale": reward.scale,
    }  # fmt: skip


def _told(measured: dict[str, Any]) -> str:
    from stead.cluster.quantities import format_seconds

    best = measured["best_seconds"]
    again = "nothing that runs" if best is None else f"{format_seconds(best)} when the best was run once more"
    return (
        f"{again}; {measured['measurements']} measurements, {measured['lost']} lost, {measured['known']} known already"
    )


def _table(found: list[dict[str, Any]], shape: Look) -> list[str]:
    """What came out for every graph, beside the bound and the best simple rule."""
    time = in_seconds(min((row["best_seconds"] or row["bound_seconds"] for row in found), default=0))
    columns = [
        Column("graph", least=16),
        *(Column(title, time.unit, right=True) for title in TIMES),
        Column("", least=8),
        Column("evaluations", right=True, drop=1),
    ]
    rows = []
    for row in found:
        rule, seconds = min(row["baselines"].items(), key=lambda one: one[1], default=("", None))
        times = [row[f"{name}_seconds"] for name in ("best", "greedy", "start", "bound")] + [seconds]
        rows.append([row["graph"], *map(time, times), rule, str(row["evaluations"])])
    return table(columns, rows, shape)
