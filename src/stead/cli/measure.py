"""stead measure: run plans for real, beside the simple alternatives and what was predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stead.cli import options
from stead.errors import BadInput


def measure(
    plans: Annotated[list[Path], typer.Argument(metavar="PLAN...", help="Plans of `stead place`.")],
    on: options.On = None,
    hosts: options.Hosts = "",
    launch: options.Launch = "",
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of `stead profile`: predict with measured seconds and links, too."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="What to run. Not given: as the plan says.")
    ] = None,
    executor: options.ExecutorName = "auto",
    bursts: options.Bursts = 6,
    alone: Annotated[
        bool, typer.Option("--no-alternatives", help="Leave out replicas and threads: fewer processes.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the records, as JSON.")
    ] = None,
    json: options.Json = False,
    engine: options.EngineName = None,
) -> int:
    """Run plans on this machine or on hosts: predicted beside measured, one device, replicas and threads beside it."""
    import json as writer
    import sys

    from stead.cli.leased import elsewhere
    from stead.cli.output import print_json
    from stead.cli.progress import Progress
    from stead.cli.streams import look, print_lines, show
    from stead.costs import read_machine_profile
    from stead.files import plain, write_text
    from stead.plan import Plan
    from stead.report.text import line
    from stead.run.record import records_text
    from stead.run.session import measure_plans

    if hosts.strip() == "torchrun":
        raise BadInput("stead measure starts agents by itself: name the hosts; under torchrun there is stead run")
    if launch and not hosts:
        raise BadInput("--launch says how agents are started on --hosts; name them")
    if engine is not None:
        if hosts:
            raise BadInput("--hosts names the machines already; leave out --engine")
        given = ["--executor", executor, "--bursts", str(bursts), *(["--no-alternatives"] if alone else [])]
        for option, value in (("--on", on), ("--model", model)):
            given += [option, value] if value is not None else []
        given += ["-o", "{folder}/" + output.name] if output is not None else []
        inside = ["{folder}/" + path.name for path in plans]
        return elsewhere(engine, ["measure", *inside, *given], profile, output, json, plans)
    known = None if profile is None else read_machine_profile(profile)
    with Progress() as progress:
        loaded = [Plan.load(path) for path in plans]
        names = [path.stem for path in plans]
        records = measure_plans(
            loaded, names=names, on=on, model=model, executor=executor, profile=known, bursts=bursts,
            alternatives=not alone, hosts=hosts, launch=launch, on_step=progress.doing,
        )  # fmt: skip
    documents = [record.as_dict() for record in records]
    if output is not None:
        write_text(output, writer.dumps(plain(documents), indent=1, allow_nan=False) + "\n")
    if json:
        print_json(documents)
    else:
        show("\n".join(records_text(records, look())))
        print_lines([line("timing", _circumstances(documents[0]))])
        if output is not None:
            print_lines([line("wrote", str(output))])
    for said in dict.fromkeys(said for record in records for said in record.warnings):
        print(f"stead: warning: {said}", file=sys.stderr)
    return 0 if all(record.numerics.passed for record in records) else 1


def _circumstances(document: dict[str, object]) -> str:
    seen = document["contention"]
    assert isinstance(seen, dict)
    left = document["baselines"]
    assert isinstance(left, dict)
    missing = [f"no {what}: {why}" for what, why in left["left_out"].items()]
    return (
        f"{document['timing_mode']}; load {seen['load_average']:.1f}, {seen['steal_ticks']} stolen ticks, "
        f"{seen['involuntary_switches']} interruptions; {'; '.join(missing) or 'replicas and threads beside it'}"
    )
