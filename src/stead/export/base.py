"""What every exporter promises.

    target = exporter("llama")
    target.unsupported(problem)            # why no plan of it can be exported, if so
    target.constraints(graph, cluster)     # plan only what it can express
    target.charged(problem)                # price what it really does
    target.project(plan)                   # the nearest plan that it can express, and what that moves and costs
    target.export(plan)                    # the files and the command that loads them; nothing is written here
    target.verify(plan)                    # run the consumer and look

An exporter is a frozen dataclass whose fields are its options, all with defaults. Nothing is ever moved silently:
`export` takes plans that `project` leaves as they are, and refuses others by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args, runtime_checkable

from stead.cluster import Cluster
from stead.graph import Graph
from stead.plan import Baseline, Plan
from stead.problem import Constraints, Placement, Problem

Granularity = Literal["operator", "module", "layer", "stage"]
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
Result = Literal["passed", "failed", "not checkable here"]


@dataclass(frozen=True, slots=True)
class Move:
    """Operators that a target cannot leave where they were planned."""

    what: str  # a module, layers, an operator
    operators: int
    source: str  # device
    target: str  # device
    why: str

    def __str__(self) -> str:
        count = f"{self.operators} operator{'' if self.operators == 1 else 's'}"
        return f"{self.what} ({count}) from {self.source} to {self.target}: {self.why}"


@dataclass(frozen=True, slots=True)
class Projection:
    """The nearest placement that a target can express, with its value as the target runs it (`charged`)."""

    placement: Placement  # of the charged problem
    moves: tuple[Move, ...]
    seconds_before: float  # of the plan as it is
    seconds_after: float

    @property
    def is_same(self) -> bool:
        """Whether the plan can be exported as it is."""
        return not self.moves


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is handed to a consumer."""

    files: Mapping[str, str | bytes]  # by path inside the folder of the export
    load: str  # the exact command, or the three lines of Python, that load it
    text: str = ""  # flags or one string that stand for everything; empty where files are needed
    versions: Mapping[str, str] = field(default_factory=dict)  # of the consumers that it was checked with


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the three questions of a verification."""

    result: Result
    detail: str  # the figure, or why it could not be looked at


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a consumer does what was planned."""

    outputs: Answer  # the same results as without a placement
    placed: Answer  # every operator where it was planned
    memory: Answer  # no device beyond its limit

    @property
    def failed(self) -> bool:
        """Whether something was seen to be wrong; what could not be looked at is no pass and no failure."""
        return any(one.result == "failed" for one in (self.outputs, self.placed, self.memory))


def unseen(why: str) -> Verification:
    """A verdict where nothing could be looked at."""
    answer = Answer("not checkable here", why)
    return Verification(answer, answer, answer)


def did_not_run(why: str) -> Verification:
    """A verdict on what the consumer could not even run."""
    silent = Answer("not checkable here", "it did not run")
    return Verification(Answer("failed", why), silent, silent)


class Exporter(Protocol):
    """Turns plans into something that a runtime loads."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    @property
    def granularity(self) -> Granularity:
        """The smallest thing that it can put on a device of its own."""

    def unsupported(self, problem: Problem) -> str | None:
        """Why no plan of a problem can be exported, in one sentence; None if some can."""

    def constraints(self, graph: Graph, cluster: Cluster) -> Constraints:
        """What must stay together or may not go somewhere, so that a plan can be expressed."""

    def charged(self, problem: Problem) -> Problem:
        """The problem as the consumer runs it: streamed weights, copies back to the first device, and the like.

        It has the same operators and devices; charging twice is charging once.
        """

    def project(self, plan: Plan) -> Projection:
        """The nearest plan that it can express."""

    def export(self, plan: Plan) -> Bundle:
        """Files and the command that loads them; BadInput that names operators where a plan cannot be expressed."""

    def verify(self, plan: Plan) -> Verification:
        """Run the real consumer on the plan and look at outputs, devices and memory."""


@runtime_checkable
class ChoosesItself(Protocol):
    """An exporter whose consumer has a rule of its own, which stands beside plans that are made for it."""

    def own_choice(self, problem: Problem) -> Baseline:
        """What the consumer would choose without a plan, or why that is not known."""
