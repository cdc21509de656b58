"""What is minimised, and how a placed graph is executed while it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.errors import BadInput, did_you_mean

Execution = Literal["dataflow", "offload", "sequential"]
Pieces = Literal["serial", "published"]
Load = Literal["sum", "overlap", "duplex", "fwbw"]
Schedule = Literal["gpipe", "1f1b"]
Ordering = Literal["free", "policy"]


@dataclass(frozen=True, slots=True)
class Fifo:
    """Devices and channels serve in order of arrival; ties by operator index. The default, and the judge."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return "fifo"


@dataclass(frozen=True, slots=True, eq=False)
class Priority:
    """Among ready operators the one of lowest `position` runs first (dynamic list scheduling).

    Without `position`: decreasing upward rank. `transfer_position` orders waiting transfers likewise.
    """

    position: NDArray[np.int32] | None = None  # [operator]; a permutation
    transfer_position: NDArray[np.int32] | None = None  # [tensor]; a permutation

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", _indices("position", self.position))
        object.__setattr__(self, "transfer_position", _indices("transfer_position", self.transfer_position))

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return "priority"


@dataclass(frozen=True, slots=True, eq=False)
class ProgramOrder:
    """Every device runs its operators in the given order and waits for the next one even if a later one is ready.

    With `sends` the order also lists transfers, as items `operators + tensor * devices + device`.
    """

    order: NDArray[np.int32] | None = None  # a topological order; None: by index
    sends: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", _indices("order", self.order))

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return "program_order"


@dataclass(frozen=True, slots=True)
class PlacetoDispatch:
    """The simulator published with Placeto, reproduced to the bit for comparison; never the judge."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return "placeto"


Order = Priority | ProgramOrder
Policy = Fifo | Priority | ProgramOrder | PlacetoDispatch
POLICIES: dict[str, type[Fifo] | type[Priority] | type[ProgramOrder] | type[PlacetoDispatch]] = {
    "fifo": Fifo,
    "priority": Priority,
    "program_order": ProgramOrder,
    "placeto": PlacetoDispatch,
}


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from start to end of one step.

    `dataflow`: operators run as soon as inputs and device are there, transfers overlap with compute. Which of several
    ready operators goes first is half of the answer: with `order="free"` a placement may bring an order of its own,
    with `order="policy"` the policy alone decides.
    `offload`: all operators of an accelerator are one call that copies in, computes and copies out; CPUs have
    unlimited cores (Tarnawski et al. 2020). A device that a path re-enters makes one call per piece: `serial` runs
    the pieces of a device one after another, `published` as if each had a device of its own.
    `sequential`: one operator or transfer at a time over the whole cluster; everything adds up.
    """

    execution: Execution = "dataflow"
    policy: Policy = field(default_factory=Fifo)
    pieces: Pieces = "serial"
    order: Ordering = "free"

    def __post_init__(self) -> None:
        _choice("order", self.order, get_args(Ordering))
        _choice("execution", self.execution, get_args(Execution))
        _choice("pieces", self.pieces, get_args(Pieces))

    @property
    def name(self) -> str:
        """The word used on the command line and in files."""
        return "latency"

    @property
    def unit(self) -> str:
        """What one value of the objective is the time of."""
        return "step"

    @property
    def takes_orders(self) -> bool:
        """Whether a placement may say in which order operators run."""
        return self.execution == "dataflow" and self.order == "free" and not isinstance(self.policy, PlacetoDispatch)

    def describe(self) -> str:
        """One phrase that tells this objective from every other."""
        if self.execution == "dataflow":
            return f"latency, dataflow, {self.policy.name}{'' if self.order == 'free' else ' only'}"
        if self.execution == "offload":
            return f"latency, offload, pieces {self.pieces}"
        return "latency, sequential"


@dataclass(frozen=True, slots=True)
class Throughput:
    """Seconds per sample of a pipeline that is kept full, or of a step of `microbatches`.

    Without `microbatches`: the load of the busiest device. `sum`: compute + received + sent; `overlap`: the larger of
    compute and received + sent; `duplex`: the largest of the three; `fwbw`: largest forward `sum` plus largest
    backward `sum`. With `microbatches`: the simulated length of a step of that many, divided by their number;
    `gpipe` runs all forward passes before the backward ones, `1f1b` alternates and holds fewer in memory. Devices that
    share a stage of a training graph keep their weights equal once per `samples_per_update`.
    """

    load: Load = "sum"
    microbatches: int | None = None
    schedule: Schedule = "gpipe"
    samples_per_update: int = 1

    def __post_init__(self) -> None:
        if self.samples_per_update < 1:
            raise BadInput(f"samples_per_update must be at least 1, got {self.samples_per_update}")
        _choice("load", self.load, get_args(Load))
        _choice("schedule", self.schedule, get_args(Schedule))
        if self.microbatches is not None and not 1 <= self.microbatches <= 4096:
            raise BadInput(f"microbatches must lie in 1..4096, got {self.microbatches}")

    @property
    def name(self) -> str:
        """The word used on the command line and in files."""
        return "throughput"

    @property
    def unit(self) -> str:
        """What one value of the objective is the time of."""
        return "sample"

    def describe(self) -> str:
        """One phrase that tells this objective from every other."""
        if self.microbatches is None:
            seldom = self.samples_per_update
            return f"throughput, load {self.load}{f', {seldom} samples per update' if seldom > 1 else ''}"
        return f"throughput, {self.schedule}, {self.microbatches} micro-batches"


Objective = Latency | Throughput


def _choice(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise BadInput(f"{what} is one of {', '.join(known)}, got {given!r}")


def _indices(what: str, given: ArrayLike | None) -> NDArray[np.int32] | None:
    """A read-only copy of a list of indices; whether it fits a problem is checked when it is used."""
    if given is None:
        return None
    array = np.asarray(given)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        raise BadInput(
            f"{what} must be indices, one row or one per placement; got {array.dtype} of shape {array.shape}"
        )
    if array.size and not (array.min() >= 0 and array.max() < 2**31):
        raise BadInput(f"{what} must be indices from 0 upwards, got {array.min()}..{array.max()}")
    own = array.astype(np.int32, order="C")
    own.setflags(write=False)
    return own


# Names of questions that are asked often.
OBJECTIVES: dict[str, Objective] = {
    "latency": Latency(),
    "throughput": Throughput(),
    "offload": Latency(execution="offload"),
    "sequential": Latency(execution="sequential"),
}


def objective_from(
    name: str,
    *,
    execution: str = "dataflow",
    dispatch: str | None = None,
    load: str = "sum",
    microbatches: int | None = None,
    schedule: str = "gpipe",
) -> Objective:
    """The objective that words describe, as the command line spells them.

    >>> objective_from("throughput").describe(), objective_from("latency", dispatch="priority").describe()
    ('throughput, load sum', 'latency, dataflow, priority only')
    """
    if name == "throughput":
        return Throughput(load=load, microbatches=microbatches, schedule=schedule)  # type: ignore[arg-type]
    if name != "latency":
        raise BadInput(f"--objective is latency or throughput, got {name!r}")
    if dispatch is None:
        return Latency(execution=execution)  # type: ignore[arg-type]
    if dispatch not in POLICIES:
        known = ", ".join(POLICIES)
        raise BadInput(f"no --dispatch {dispatch!r}{did_you_mean(dispatch, POLICIES)}; there are {known}")
    return Latency(execution=execution, policy=POLICIES[dispatch](), order="policy")  # type: ignore[arg-type]
