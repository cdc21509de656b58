"""What a coordinator and its workers say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stead.run.executor import Worker
from stead.run.instructions import Crossing, WorkerProgram
from stead.run.sheet import Layout, Sheet
from stead.run.subject import Subject


@dataclass(frozen=True, slots=True)
class Begin:
    """Make the model ready."""

    subject: Subject
    worker: Worker
    number: int
    workers: int
    graph_path: str  # where to write the graph; empty: somebody else does


@dataclass(frozen=True, slots=True)
class Ready:
    """What a worker has become."""

    readback: dict[str, Any]
    sheet: Sheet
    layouts: tuple[Layout, ...]
    seconds: float  # of one whole run, roughly


@dataclass(frozen=True, slots=True)
class Memory:
    """A new segment; its descriptor follows."""

    size: int


@dataclass(frozen=True, slots=True)
class Load:
    """Bind a program to slots."""

    number: int
    program: WorkerProgram
    crossings: tuple[Crossing, ...]
    sent: dict[int, Layout]
    offsets: tuple[int, ...]
    rings: int
    piped: bool
    kept: int  # programs that may stay bound, with this one
    receivers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # crossing: workers on other hosts


@dataclass(frozen=True, slots=True)
class Go:
    """Run a program some times."""

    number: int
    active: tuple[int, ...]  # workers that take part
    sequence: int  # of the first run
    warmups: int
    runs: int
    deadline_seconds: float
    real_time: bool
    pipeline: bool = False
    each: str = ""  # time instructions: "wall" or "cpu"
    input_seed: int = 0  # 0: the inputs that came with the model
    results: bool = False  # give results of the last run
    every_result: int = -1  # number of a result to give after every run


@dataclass(frozen=True, slots=True)
class Done:
    """What became of it."""

    begins: list[int]  # [run] nanoseconds
    ends: list[int]
    cpu: list[int]  # [run] nanoseconds of processor time
    switches: int
    real_time: bool
    each: list[list[int]]
    results: dict[int, Any]
    trail: list[Any]
    overran: bool = False
