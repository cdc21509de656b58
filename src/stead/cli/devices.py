"""stead devices: the catalogue, or how a description is understood."""

from __future__ import annotations

from typing import Annotated

import typer

from stead.cli import options


def devices(
    description: Annotated[
        str | None, typer.Argument(metavar="[D]", help='A description such as "3090,3060", auto, or a file.')
    ] = None,
    json: options.Json = False,
) -> int:
    """List the devices stead knows, or show how a description is understood."""
    if description is None:
        _catalogue(json)
    else:
        _understood(description, json)
    return 0


def _catalogue(json: bool) -> None:
    from stead.cli.output import print_json
    from stead.cluster import entries
    from stead.cluster.units import format_bytes, format_rate

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
    for one in entries():
        memory = "of its host" if one.memory_bytes is None else format_bytes(one.memory_bytes)
        speed = "of its host" if one.bytes_per_second is None else format_rate(one.bytes_per_second)
        rates = "  ".join(f"{dtype} {rate / 1e12:.4g}T" for dtype, rate in one.flops_per_second.items())
        names = f"  = {', '.join(one.aliases)}" if one.aliases else ""
        print(f"{one.key:<34} {one.kind:<4} {memory:>11} {speed:>11}  {rates}{names}")


def _understood(description: str, json: bool) -> None:
    from stead.cli.output import print_json
    from stead.cluster import cluster_from, precision_of
    from stead.cluster.units import format_bytes, format_flops, format_rate, format_seconds

    cluster, lines = cluster_from(description)
    if json:
        print_json({**cluster.as_dict(), "resolutions": list(lines)})
        return
    print("\n".join(lines))
    for device in cluster:
        rates = ", ".join(f"{dtype} {format_flops(rate)}" for dtype, rate in device.flops_per_second.items())
        memory, speed = format_bytes(device.usable_bytes), format_rate(device.bytes_per_second)
        print(f"{device.name}: {device.kind}, {memory} usable, {speed}, {rates or 'no FLOP/s given'}")
        lacking = {dtype: precision_of(device, dtype).told for dtype in ("fp32", "bf16", "fp16", "fp64")}
        if words := [f"{dtype} is {told}" for dtype, told in lacking.items() if told]:
            print(f"{device.name}: {', '.join(words)}")
    for link in cluster.links:
        figures = f"{format_rate(link.bytes_per_second)}, {format_seconds(link.latency_seconds)}"
        print(f"{link.source} -> {link.target}: {figures}")
