"""stead doctor: a look at a model without placing it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from stead.cli import options
from stead.printing.look import BAD, Look, device_style
from stead.printing.table import Cell, Column, Painted, in_seconds, table

if TYPE_CHECKING:
    from stead.report.checkup import Checkup


def doctor(
    model: options.Model,
    devices: options.Devices = None,
    batch: options.Batch = None,
    shape: options.Shape = None,
    context: options.Context = None,
    phase: options.Phase = None,
    read: options.Read = None,
    json: options.Json = False,
) -> int:
    """Look at a model without placing it: size, kinds of operators, what each device could run."""
    import sys

    from stead.cli.output import print_json
    from stead.cli.streams import look, print_lines, show
    from stead.placing.loading import assumptions, load, read_model
    from stead.report.checkup import checkup
    from stead.report.text import line

    understood: tuple[str, ...] = ()
    reading = options.model_options(batch, context, phase, read, shape)
    found, _ = read_model(model, reading)
    assumed = assumptions(found, model, reading)
    for note in found.notes:
        print(f"stead: note: {note}", file=sys.stderr)
    if devices is None and found.cluster is None:
        report = checkup(found.graph)
    else:
        loaded = load(found, devices)
        understood = loaded.resolutions
        report = checkup(loaded.graph, loaded.cluster, loaded.costs.costs(loaded.graph, loaded.cluster))
    if json:
        sizes = {one.name: one.size for one in found.assumed}
        print_json({**asdict(report), "resolutions": list(understood), "assumed": sizes})
    else:
        print_lines(line("assumed" if number == 0 else "", text) for number, text in enumerate(assumed))
        print_lines(line("devices" if number == 0 else "", text) for number, text in enumerate(understood))
        show(_text(report, look()))
    return 0


def _text(report: Checkup, shape: Look) -> str:
    from stead.cluster.quantities import format_bytes, format_work
    from stead.report.text import line

    lines = [
        line("graph", f"{report.name}: {report.operators} operators, {report.tensors} tensors, {report.edges} edges, "
                      f"longest path {report.depth}"),
        line("size", f"{format_work(report.flops)}, "
                     f"tensors {format_bytes(report.tensor_bytes)}, traffic {format_bytes(int(report.moved_bytes))}"),
        line("memory", _memory(report)),
        line("kinds", ", ".join(f"{kind} {count}" for kind, count in report.kinds)),
    ]  # fmt: skip
    if len(report.by_phase) > 1:
        lines.append(line("phases", ", ".join(f"{phase} {count}" for phase, count in report.by_phase)))
    if report.colocation_groups:
        lines.append(line("groups", f"{report.colocation_groups} sets of operators must share a device"))
    if report.unpriced:
        lines.append(
            line("free", f"{report.unpriced} operators have no FLOPs, bytes or seconds and cost nothing")
        )
    if report.greedy_changes is not None:
        lines.append(
            line("greedy", f"first device that supports each operator: {report.greedy_changes} transfers")
        )
    return "\n".join([*shape.fitted(lines), *_supports(report, shape)])


def _supports(report: Checkup, shape: Look) -> list[str]:
    """What every device could run."""
    if not report.supports:
        return []
    time = in_seconds(min((one.total_seconds for one in report.supports if one.total_seconds), default=0))
    columns = [
        Column("device", least=12),
        Column("runs", f"of {report.operators}", right=True),
        Column("one by one", time.unit, right=True),
        Column("memory"),
        Column("cannot run", least=16, whole=True),
    ]
    rows: list[list[Cell]] = [
        [
            Painted(one.device, device_style(d)),
            str(one.supported),
            time(one.total_seconds),
            "fits" if one.fits else Painted("does not fit", BAD),
            ", ".join(f"{kind} {count}" for kind, count in one.unsupported_kinds),
        ]
        for d, one in enumerate(report.supports)
    ]
    return ["", *table(columns, rows, shape)]


def _memory(report: Checkup) -> str:
    """What stays for the whole run, by what it is; parameters to the byte."""
    from stead.cluster.quantities import format_bytes

    parts = [f"parameters {format_bytes(report.parameter_bytes)} ({report.parameter_bytes} bytes)"]
    for what, size in (
        ("KV cache", report.kv_bytes),
        ("gradients and moments", report.state_bytes),
        ("buffers", report.buffer_bytes),
    ):
        if size:
            parts.append(f"{what} {format_bytes(size)}")
    return ", ".join(parts)
