"""stead demo: a bundled model on two unequal cards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stead.cli import options

DEVICES = "3090,3060"
EVALUATIONS = 100_000
RUN_MODEL = "zoo:inception-v3?batch=1,side=160"  # branches, and some 50 ms on one core
RUN_SECONDS, RUN_MEASUREMENTS, RUN_EVALUATIONS = 30.0, 14, 2000


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for plan.json and report.html.")
    ] = Path(),
    granularity: options.Granularity = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
    run: Annotated[
        bool,
        typer.Option("--run", help="Run a small network on two cores of this machine instead; a minute, needs torch."),
    ] = False,
) -> int:
    """Place a bundled model on two unequal cards; writes plan.json and report.html."""
    from stead.cli.output import plan_document, print_json
    from stead.cli.streams import look, print_lines, show
    from stead.cluster import cluster_from
    from stead.files import write_text
    from stead.placing.place import place
    from stead.report import explain, page
    from stead.report.text import line, summary
    from stead.workloads.demo import demo_graph

    if run:
        return _run(output, seed, json)
    # Counted in evaluations, so that everybody sees the same numbers; a second or two of work.
    plan = place(
        demo_graph(), DEVICES, time_limit=None, evaluations=EVALUATIONS, seed=seed,
        granularity=granularity,  # type: ignore[arg-type]
    )  # fmt: skip
    _folder(output)
    plan.save(output / "plan.json")
    write_text(output / "report.html", page(plan))
    if json:
        print_json(plan_document(plan))
        return 0
    show(summary(explain(plan), look(), devices=cluster_from(DEVICES)[1]))
    made = output / "plan.json"
    print_lines([
        line("wrote", f"{made} and {output / 'report.html'}"),
        line("next", f'stead place MODEL --devices "3090,3060" | stead explain {made} NAME'),
    ])  # fmt: skip
    return 0


def _folder(output: Path) -> None:
    from stead.errors import BadInput

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot write to {output}: {error.strerror or error}; choose a folder with -o"
        ) from None


def _run(output: Path, seed: int, json: bool) -> int:
    """Believe the data sheet, measure, correct, place again: on two cores of whoever asks."""
    from importlib.util import find_spec

    from stead.cli.streams import print_lines
    from stead.cli.tune import tune
    from stead.errors import BadInput, MissingExtra
    from stead.report.text import line
    from stead.run.cores import usable_cores

    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch", "stead demo --run")
    cores = usable_cores()
    if len(cores) < 2:
        raise BadInput("stead demo --run places a network on two cores, and this machine lets it use one")
    _folder(output)
    if not json:
        print_lines([
            line("model", f"{RUN_MODEL.removeprefix('zoo:')}, with random weights, on core {cores[0]} and {cores[1]}"),
            line("round 0", "believes the data sheet of this processor; later ones believe what was measured"),
            line("drawn", "placements that would be best if costs were off by what measurements still allow"),
        ])  # fmt: skip
    return tune(
        RUN_MODEL, on=f"core {cores[0]} + core {cores[1]}", measurements=RUN_MEASUREMENTS, time_limit=RUN_SECONDS,
        evaluations=RUN_EVALUATIONS, seed=seed, output=output / "plan.json", json=json,
    )  # fmt: skip
