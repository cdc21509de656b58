"""stead devices: the catalogue, or how a description is understood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stead.cli import options
from stead.printing.look import Look, device_style
from stead.printing.table import Cell, Column, Painted, table

if TYPE_CHECKING:
    from stead.cluster import Cluster


def devices(
    description: Annotated[
        str | None, typer.Argument(metavar="[D]", help='A description such as "3090,3060", auto, or a file.')
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time the cores of this machine and the links between them.")
    ] = False,
    on: options.On = None,
    hosts: options.Hosts = "",
    launch: options.Launch = "",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.toml", help="Of --measure: write them as a device file."),
    ] = None,
    json: options.Json = False,
) -> int:
    """List the devices stead knows, or show how a description is understood, or measure this machine."""
    if measure and hosts:
        return _measured_hosts(description or on, hosts, launch, output, json)
    if measure and not launch:
        return _measured(description, on, output, json)
    if on is not None or output is not None or hosts or launch:
        from stead.errors import BadInput

        raise BadInput("--on, --hosts and -o belong to --measure, and --launch to --hosts")
    if description is None:
        _catalogue(json)
    else:
        _understood(description, json)
    return 0


def _catalogue(json: bool) -> None:
    from stead.cli.output import print_json
    from stead.cli.streams import look, show
    from stead.cluster import entries

    if json:
        fields = (
            "key",
            "vendor",
            "kind",
            "memory_bytes",
            "bytes_per_second",
            "pcie",
            "aliases",
            "note",
            "source",
        )
        print_json(
            [
                {
                    "flops_per_second": dict(one.flops_per_second),
                    "precision": dict(one.precision),
                    **{name: getattr(one, name) for name in fields},
                }
                for one in entries()
            ]
        )
        return
    known = _ordered([one.flops_per_second for one in entries()])
    rows = [
        [
            one.key,
            one.kind,
            "host's" if one.memory_bytes is None else f"{one.memory_bytes / 2**30:.1f}",
            "host's" if one.bytes_per_second is None else f"{one.bytes_per_second / 1e9:.0f}",
            *_rates(known, one.flops_per_second),
            ", ".join(one.aliases),
        ]
        for one in entries()
    ]
    columns = [Column("device", least=28), Column("kind"), *_figures("memory", known)]
    show("\n".join(table([*columns, Column("also called", least=16, whole=True)], rows, look(), indent="")))


def _measured(description: str | None, on: str | None, output: Path | None, json: bool) -> int:
    """Time this machine and write a device file of it."""
    import sys

    from stead.cli.output import print_json
    from stead.cli.progress import Progress
    from stead.cli.streams import look, print_lines, show
    from stead.cluster.device_file import write_cluster
    from stead.errors import BadInput
    from stead.report.text import line
    from stead.run.machine_rates import measure_machine, rates_text
    from stead.run.session import THIS_MACHINE, workers_on

    if description is not None:
        raise BadInput(f"--measure times this machine, not {description!r}; name its cores with --on")
    workers = workers_on(on or THIS_MACHINE)
    with Progress() as progress:
        machine = measure_machine(workers, on_step=progress.doing)
    if output is not None:
        write_cluster(machine.cluster, output)
    if json:
        print_json({
            **machine.cluster.as_dict(), "timing_mode": machine.timing_mode, "aggregate": machine.aggregate,
            "warnings": list(machine.not_independent), "written": None if output is None else str(output),
        })  # fmt: skip
    else:
        show("\n".join(rates_text(machine, look())))
        together = ", ".join(f"{what} {times:.2f}x of one" for what, times in machine.aggregate.items())
        print_lines([line("together", f"{together}; timing {machine.timing_mode}")])
        if output is not None:
            print_lines([line("wrote", f"{output}    next: stead place MODEL --devices {output}")])
    for said in machine.not_independent:
        print(f"stead: warning: {said}", file=sys.stderr)
    return 0


def _measured_hosts(besides: str | None, hosts: str, launch: str, output: Path | None, json: bool) -> int:
    """Time hosts and the links between them, and write a device file of them."""
    import os

    from stead.cli.output import print_json
    from stead.cli.progress import Progress
    from stead.cli.streams import look, print_lines, show
    from stead.cluster.device_file import write_cluster
    from stead.errors import BadInput
    from stead.report.text import line
    from stead.run.hosts.host_executor import agents_on
    from stead.run.hosts.host_links import hosts_text, measure_hosts
    from stead.run.hosts.under_torchrun import TORCHRUN, Rank, serve_rank

    if besides is not None:
        raise BadInput(f"--measure --hosts times all cores of the hosts, not {besides!r}; leave it out")
    if hosts.strip() == TORCHRUN and (rank := Rank.of(os.environ)).number:
        serve_rank(rank)
        return 0
    with Progress() as progress:
        progress.doing(f"starting agents on {hosts}")
        measured = measure_hosts(agents_on(hosts, launch=launch), on_step=progress.doing)
    if output is not None:
        write_cluster(measured.cluster, output)
    if json:
        print_json({**measured.cluster.as_dict(), "written": None if output is None else str(output)})
        return 0
    show("\n".join(hosts_text(measured, look())))
    if output is not None:
        print_lines([line("wrote", f"{output}    next: stead place MODEL --devices {output}")])
    return 0


def _ordered(given: Iterable[Mapping[str, float]]) -> list[str]:
    """Precisions that are met, the most usual first."""
    met = Counter(dtype for rates in given for dtype in rates)
    return sorted(met, key=lambda dtype: (-met[dtype], dtype))


def _rates(known: Iterable[str], rates: Mapping[str, float]) -> list[str]:
    return [f"{rates[dtype] / 1e12:.4g}" if dtype in rates else "" for dtype in known]


def _figures(memory: str, known: Iterable[str]) -> list[Column]:
    speeds = [Column(dtype, "TFLOP/s", right=True, drop=number) for number, dtype in enumerate(known)]
    return [Column(memory, "GiB", right=True), Column("bandwidth", "GB/s", right=True), *speeds]


def _understood(description: str, json: bool) -> None:
    from stead.cli.output import print_json
    from stead.cli.streams import look, print_lines, show
    from stead.cluster import cluster_from, precision_of
    from stead.cluster.devices import UNLIMITED_BYTES
    from stead.report.text import line

    cluster, lines = cluster_from(description)
    if json:
        print_json({**cluster.as_dict(), "resolutions": list(lines)})
        return
    shape = look()
    print_lines(line("devices" if number == 0 else "", text) for number, text in enumerate(lines))
    for device in cluster:
        lacking = {dtype: precision_of(device, dtype).told for dtype in ("fp32", "bf16", "fp16", "fp64")}
        if words := [f"{dtype} is {told}" for dtype, told in lacking.items() if told]:
            print_lines([line("", f"{device.name}: {', '.join(words)}")])
    known = _ordered([device.flops_per_second for device in cluster])
    rows: list[list[Cell]] = [
        [
            Painted(device.name, device_style(d)),
            device.kind,
            "no limit" if device.usable_bytes >= UNLIMITED_BYTES // 4 else f"{device.usable_bytes / 2**30:.1f}",
            "no limit" if device.bytes_per_second == inf else f"{device.bytes_per_second / 1e9:.4g}",
            *_rates(known, device.flops_per_second),
        ]
        for d, device in enumerate(cluster)
    ]
    columns = [Column("device", least=12), Column("kind"), *_figures("usable", known)]
    show("\n".join(["", *table(columns, rows, shape), *_links(cluster, shape)]))


def _links(cluster: Cluster, shape: Look) -> list[str]:
    """Links, those of one device with the same figures in one row."""
    alike: dict[tuple[str, float, float, str], list[str]] = {}
    for link in cluster.links:
        figures = link.source, link.bytes_per_second, link.latency_seconds, link.carried_by
        alike.setdefault(figures, []).append(link.target)
    rows = [
        [
            source, "no limit" if rate == inf else f"{rate / 1e9:.4g}", f"{seconds * 1e6:.4g}",
            ", ".join(targets) + (", carried by its sender" if carried_by == "sender" else ""),
        ]
        for (source, rate, seconds, carried_by), targets in alike.items()
    ]  # fmt: skip
    columns = [
        Column("link from", least=12),
        Column("bandwidth", "GB/s", right=True),
        Column("latency", "us", right=True),
        Column("to", least=16, whole=True),
    ]
    return ["", *table(columns, rows, shape)] if rows else []
