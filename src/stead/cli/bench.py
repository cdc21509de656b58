"""stead bench: every solver on the same instances, with tables and a picture of what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stead.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stead.bench import Bench, Job
    from stead.engine import Engine
    from stead.placing.event_log import EventLog

INTERRUPTED = 130


def bench(
    suite: Annotated[
        str, typer.Option(help="smoke (a minute), small (tens of minutes), peers (an hour) or full (hours).")
    ] = "smoke",
    solvers: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help='`stead solvers` lists them; with options: "auto,auto pool=20". Not given: those of the suite.',
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of every solver. Not given: 1 or 3, by suite.")
    ] = None,
    budgets: Annotated[str | None, typer.Option(metavar="S,S", help="Seconds per run, as in 1,10.")] = None,
    evaluations: Annotated[
        int | None, typer.Option(help="Placements to score; without --budgets no clock.")
    ] = None,
    instances: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TEXT", help="Instances whose names contain it, or match *."),
    ] = None,
    objectives: Annotated[
        str | None, typer.Option(metavar="A,B", help="latency, throughput, offload, sequential.")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also graphs of others below it (docs/howto/bench.md)."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="One line of JSON per finished run.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Go on with such a file; what it has is not run again."),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tables in Markdown; put between the marks of a file that has them."),
    ] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="The gap over time.")] = None,
    cores: Annotated[int, typer.Option(help="That a run may use.")] = 1,
    memory_limit: Annotated[
        float, typer.Option(help="GiB of address space that a run may use; 0: any.")
    ] = 8.0,
    listed: Annotated[bool, typer.Option("--list", help="Print the instances and run nothing.")] = False,
    events: options.Events = None,
    engine: options.EngineName = None,
) -> int:
    """Compare solvers: value, bound, gap and time on every instance of a suite, medians over seeds."""
    from stead.bench import Bench, jobs_of, suite_named
    from stead.bench.runner import Journal
    from stead.errors import BadInput

    chosen = suite_named(suite)
    if inputs is not None:
        chosen = chosen.with_inputs(inputs)
    chosen = chosen.only(instances or (), _names(objectives))
    if listed:
        print("\n".join(one.name for one in chosen.instances))
        return 0
    if cores < 1:
        raise BadInput(f"--cores needs at least 1, got {cores}")
    if json is not None and resume is not None and json != resume:
        raise BadInput("--resume goes on in its own file; leave out --json")
    jobs = jobs_of(
        chosen, solvers=_names(solvers), seeds=seeds, budgets=_budgets(budgets), evaluations=evaluations
    )
    journal = Journal(resume or json, resume=resume is not None)
    with options.events_to(events) as log:
        log.begin("bench", suite=suite, runs=len(jobs))
        with options.engine_from(engine) as spread:
            records, interrupted = _run(jobs, journal, cores, int(memory_limit * 2**30), log, spread)
        log.end(INTERRUPTED if interrupted else 0, runs=len(records))
    if interrupted and not records:
        return INTERRUPTED
    found = Bench(records)
    if not interrupted:
        journal.add_summary(found.document())
    quoted = f'"{solvers}"' if solvers and " " in solvers else solvers
    given = {
        "--suite": suite, "--solvers": quoted, "--seeds": seeds, "--budgets": budgets, "--evaluations": evaluations,
        "--objectives": objectives, "--inputs": "DIR" if inputs else None, "--cores": cores if cores > 1 else None,
        "--engine": engine,
    }  # fmt: skip
    command = " ".join(f"{option} {value}" for option, value in given.items() if value is not None)
    command += "".join(f' --only "{pattern}"' for pattern in instances or ())
    _write(found, _title(f"stead bench {command}", jobs), markdown, picture)
    return INTERRUPTED if interrupted else 0


def _names(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _budgets(text: str | None) -> list[float]:
    from stead.errors import BadInput

    try:
        return [float(part) for part in _names(text)]
    except ValueError:
        raise BadInput(f"--budgets needs seconds separated by commas, got {text!r}") from None


def _run(
    jobs: Sequence[Job], journal: Any, cores: int, memory_bytes: int, log: EventLog, engine: Engine | None
) -> tuple[list[dict[str, Any]], bool]:
    """Records of the jobs; after Ctrl-C those that there are."""
    import sys

    from stead.bench import run_jobs
    from stead.bench.filling_table import filling_lines
    from stead.cli.live_block import LiveBlock

    records: list[dict[str, Any]] = []
    interrupted, block, mine = False, LiveBlock.if_watched(), {job.key for job in jobs}

    def ended() -> list[dict[str, Any]]:
        return [record for record in journal.records if type(jobs[0]).key_of(record) in mine]

    def watch(number: int, job: Job, record: dict[str, Any]) -> None:
        if block is None:
            print(f"[{number + 1}/{len(jobs)}] {_line(job, record)}", file=sys.stderr, flush=True)
        else:
            block.draw(lambda look, room: filling_lines(jobs, ended(), look, room))
        log.write("run", number=number, **{key: value for key, value in record.items() if key != "kind"})

    try:
        for record in run_jobs(
            jobs, journal, cores=cores, memory_bytes=memory_bytes, watch=watch, engine=engine
        ):
            records.append(record)  # one by one: an interruption must not lose those before
    except KeyboardInterrupt:
        interrupted, records = True, ended()
    finally:
        if block is not None:
            block.wipe()  # whole tables follow
    if interrupted:
        hint = f"; go on with --resume {journal.path}" if journal.path else ""
        print(f"stead: interrupted after {len(records)} of {len(jobs)} runs{hint}", file=sys.stderr)
    return records, interrupted


def _line(job: Job, record: dict[str, Any]) -> str:
    from stead.cluster.quantities import format_seconds

    value = record.get("value_seconds", record.get("bound_seconds"))
    said = format_seconds(value) if value is not None else f"{record['status']}: {record.get('reason', '')}"
    cpu = f", {record['cpu_seconds']:.2f} s CPU" if "cpu_seconds" in record else ""
    return f"{job.instance}  {job.solver} seed {job.seed}: {said}{cpu}"


def _title(command: str, jobs: Sequence[Job]) -> str:
    import os
    import platform

    from stead.version import __version__

    seeds = 1 + max((job.seed for job in jobs), default=0)
    return (
        f"`{command}`: stead {__version__}, {seeds} seed{'s' if seeds > 1 else ''}, {platform.machine()} with "
        f"{os.cpu_count()} cores, Python {platform.python_version()}."
    )


def _write(found: Bench, title: str, markdown: Path | None, picture: Path | None) -> None:
    """The tables on stdout, and files that were asked for."""
    from stead.bench.gap_picture import picture as draw
    from stead.bench.tables import markdown as tables
    from stead.bench.tables import text_tables, write_markdown
    from stead.cli.streams import look, show
    from stead.files import write_text

    show(text_tables(found, title, look()))
    if markdown is not None:
        write_markdown(markdown, tables(found, title))
    if picture is not None:
        write_text(picture, draw(found))
