"""Options that several commands share."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stead.costs import Profile
    from stead.engine import Engine
    from stead.placing.event_log import EventLog
    from stead.problem import Constraints

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A file or folder (`stead formats` lists what can be read), or zoo:NAME (`stead zoo`).",
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices", "-d", metavar="D", help='"3090,3060", "2x 3090 @ pcie3x8 + cpu 64GB", auto, or a file.'
    ),
]
Batch = Annotated[
    int | None, typer.Option(help="Samples at once: of models that leave it open, a configuration or the zoo.")
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZE",
        help="An open dimension (seq=512, x[1]=512) or an input (x=1x3x224x224) of the file.",
    ),
]
Context = Annotated[
    int | None,
    typer.Option(help="Tokens, for language models; by default up to 4096 to decode, 2048 otherwise."),
]
Phase = Annotated[
    str | None, typer.Option(help="infer, prefill, decode or train, for models that have phases.")
]
Read = Annotated[
    list[str] | None,
    typer.Option("--read", metavar="OPTION=VALUE", help="Any option of the model or its reader."),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        metavar="FILE[@DEV]",
        help="Measured seconds: of `stead profile`, with its devices; or for a device name, model or kind.",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="E",
        help="Spread the work over local, local:N, dask://HOST:PORT, ray, ray:N or ray://HOST:PORT.",
    ),
]
ObjectiveName = Annotated[
    str | None,
    typer.Option("--objective", "-g", metavar="latency|throughput", help="Absent: both are solved."),
]
Execution = Annotated[str, typer.Option(help="Of latency: dataflow, offload or sequential.")]
Dispatch = Annotated[
    str | None,
    typer.Option(
        help="Of dataflow latency: fifo, priority, program_order or placeto. Not given: fifo, unless a plan brings an "
        "order of its own.",
        show_default=False,
    ),
]
Load = Annotated[str, typer.Option(help="Of throughput: sum, overlap, duplex or fwbw.")]
Microbatches = Annotated[
    int | None, typer.Option(help="Of throughput: simulate a step of that many micro-batches.")
]
Schedule = Annotated[str, typer.Option(help="Of micro-batches: gpipe or 1f1b.")]
Pin = Annotated[
    list[str] | None, typer.Option("--pin", metavar="NAME=DEV", help="Operators or modules to keep on DEV.")
]
Forbid = Annotated[
    list[str] | None, typer.Option("--forbid", metavar="NAME=DEV", help="Operators to keep off DEV.")
]
Colocate = Annotated[
    list[str] | None, typer.Option("--colocate", metavar="A,B", help="Operators that share a device.")
]
Granularity = Annotated[
    str,
    typer.Option(
        metavar="auto|block|operator",
        help="Keep blocks whole, as runtimes load them, or place operators; auto: split blocks of language models "
        "only where it pays.",
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="WORKERS",
        help='this-machine: one worker per core; or "core 0 + core 1 @ sse41". Not given: as the plan or this-machine.',
    ),
]
Hosts = Annotated[
    str,
    typer.Option(
        "--hosts",
        metavar="A,B",
        help="Hosts to use, with addresses where they cannot be found (A=10.0.0.1); torchrun: those that it started.",
    ),
]
Launch = Annotated[
    str,
    typer.Option(
        "--launch", metavar="COMMAND", help='How --hosts starts {command} on a {host}. Absent: "ssh {host} {command}".'
    ),
]
ExecutorName = Annotated[
    str, typer.Option("--executor", metavar="NAME", help="auto (by kind of model), torch, openvino or ort.")
]
Bursts = Annotated[int, typer.Option(min=1, help="Rounds over everything that is timed.")]
Seed = Annotated[int, typer.Option(help="Same seed, same answer.")]
Start = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Begin with the placement of a plan, or the last one of an --events file."),
]
Events = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Tell what happens while it runs, in lines of JSON, with a heartbeat."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@contextmanager
def engine_from(text: str | None) -> Iterator[Engine | None]:
    """The engine that an option names, ended afterwards; None where there is none."""
    if text is None:
        yield None
        return
    from stead.engine import opened_engine

    with opened_engine(text) as engine:
        yield engine


@contextmanager
def events_to(path: str | None) -> Iterator[EventLog]:
    """The file of events, open while a command runs; an error that ends the command is its last line."""
    import sys

    from stead.errors import Infeasible, SteadError
    from stead.placing.event_log import EventLog

    with EventLog(path) as log:
        try:
            yield log
        except KeyboardInterrupt:
            log.end(130, message="interrupted")
            raise
        except SteadError as error:
            log.end(3 if isinstance(error, Infeasible) else 2, message=str(error))
            raise
    if log.failure:
        print(f"stead: note: {log.failure}", file=sys.stderr)


def model_options(
    batch: int | None,
    context: int | None,
    phase: str | None,
    read: list[str] | None,
    shape: list[str] | None = None,
) -> dict[str, Any]:
    """What the options say about reading the model; only what was given."""
    shapes = shapes_from(shape) or None
    given: dict[str, Any] = {"batch": batch, "context": context, "phase": phase, "shapes": shapes}
    return {key: value for key, value in given.items() if value is not None} | settings("--read", read)


def shapes_from(given: list[str] | None) -> dict[str, int | tuple[int, ...]]:
    """Sizes given as NAME=8 or NAME=1x3x224x224."""
    from stead.errors import BadInput
    from stead.option_values import size_from

    shapes: dict[str, int | tuple[int, ...]] = {}
    for text in given or ():
        name, _, size = text.rpartition("=")
        try:
            found = size_from(size)
        except ValueError:
            name = ""
        if not name:
            raise BadInput(f"--shape needs NAME=SIZE, such as seq=512 or x=1x3x224x224, got {text!r}")
        shapes[name] = found
    return shapes


def settings(option: str, given: list[str] | None) -> dict[str, str]:
    """OPTION=VALUE pairs."""
    from stead.errors import BadInput

    pairs = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise BadInput(f"{option} needs OPTION=VALUE, got {text!r}")
        pairs[key] = value
    return pairs


def profiles_from(given: list[str] | None) -> list[Profile]:
    """Profiles given as FILE@DEVICE, or as the FILE of a machine."""
    from stead.costs import read_machine_profile, read_profile

    found: list[Profile] = []
    for text in given or ():
        path, _, device = text.rpartition("@")
        if _is_whole(text):
            found += read_machine_profile(text).profiles
        else:
            found.append(read_profile(path, device=device))
    return found


def profiled_devices(given: list[str] | None) -> str | None:
    """The file of `stead profile` among profiles: it brings its devices; None if there is none."""
    from stead.costs import is_machine_profile

    return next((text for text in given or () if _is_whole(text) and is_machine_profile(text)), None)


def _is_whole(text: str) -> bool:
    """Whether it is the file of a machine rather than FILE@DEVICE."""
    from pathlib import Path

    from stead.errors import BadInput

    path, _, device = text.rpartition("@")
    if path and device and not Path(text).exists():
        return False
    if "@" in text and not (path and device):
        raise BadInput(f"--profile needs FILE@DEVICE, got {text!r}")
    return True


def constraints_from(
    pin: list[str] | None, forbid: list[str] | None, colocate: list[str] | None
) -> Constraints:
    """The constraints that the options describe."""
    from stead.errors import BadInput
    from stead.problem import Constraints

    groups = tuple(tuple(part.strip() for part in one.split(",") if part.strip()) for one in colocate or ())
    for group, text in zip(groups, colocate or (), strict=True):
        if not group:
            raise BadInput(f"--colocate needs names or patterns separated by commas, got {text!r}")
    return Constraints(_pairs("--pin", pin), _pairs("--forbid", forbid), groups)


def _pairs(option: str, given: list[str] | None) -> tuple[tuple[str, str], ...]:
    from stead.errors import BadInput

    pairs = []
    for text in given or ():
        name, equals, device = text.rpartition("=")
        if not (equals and name and device):
            raise BadInput(f"{option} needs NAME=DEVICE, got {text!r}")
        pairs.append((name, device))
    return tuple(pairs)
