"""Why a placement cannot be used: one value per reason, whose text says what, where and how much."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from stead.cluster.quantities import format_bytes, format_seconds


class Status(IntEnum):
    """What is known about one of many placements."""

    OK = 0
    MEMORY = 1  # some device is over its capacity
    UNSUPPORTED = 2  # an operator cannot run, or must not run, where it is placed
    UNREACHABLE = 3  # a tensor has no way to a device that reads it
    CUT = 4  # worse than the cutoff; not simulated to the end
    CYCLIC = 5  # calls or stages wait for each other
    TORN = 6  # operators that must share a device do not


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that live together: a weight, an output, a received copy or the workspace of an operator."""

    name: str
    kind: str  # "weights", "activations", "received", "workspace"
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Peak:
    """What one device holds at the first moment at which it holds most."""

    device: str
    capacity_bytes: int
    peak_bytes: int
    at_seconds: float | None  # None without a time line
    at_operator: str  # without a time line: the operator that runs then; empty otherwise
    weights_bytes: int
    activations_bytes: int
    received_bytes: int
    workspace_bytes: int
    blocks: tuple[Block, ...]  # the ten largest

    @property
    def headroom_bytes(self) -> int:
        """Bytes left; negative means that it does not fit."""
        return self.capacity_bytes - self.peak_bytes


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A device that would have to hold more than it can."""

    peak: Peak

    @property
    def device(self) -> str:
        """Its name."""
        return self.peak.device

    @property
    def bytes_over(self) -> int:
        """Bytes missing."""
        return -self.peak.headroom_bytes

    def __str__(self) -> str:
        peak = self.peak
        if peak.at_seconds is not None:
            when = f" at {format_seconds(peak.at_seconds)}"
        else:
            when = f" at operator {peak.at_operator!r}" if peak.at_operator else ""
        parts = (
            ("weights", peak.weights_bytes),
            ("activations", peak.activations_bytes),
            ("received", peak.received_bytes),
            ("workspace", peak.workspace_bytes),
        )
        split = ", ".join(f"{what} {format_bytes(size)}" for what, size in parts if size)
        return (
            f"{peak.device} is short by {format_bytes(self.bytes_over)}: "
            f"peak {format_bytes(peak.peak_bytes)} of {format_bytes(peak.capacity_bytes)}{when} ({split})"
        )


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An operator that cannot run, or must not run, where it is placed."""

    operator: str
    device: str
    reason: str
    others: int = 0  # further operators with the same fate

    def __str__(self) -> str:
        more = f" (and {self.others} more operator{'s' if self.others > 1 else ''})" if self.others else ""
        return f"operator {self.operator!r} cannot run on {self.device}: {self.reason}{more}"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A tensor that has no way to a device that reads it."""

    source: str
    target: str
    tensor: str

    def __str__(self) -> str:
        return f"tensor {self.tensor!r} has no route from {self.source} to {self.target}"


@dataclass(frozen=True, slots=True)
class Cyclic:
    """Calls or stages that wait for each other."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class TornApart:
    """Operators on different devices that must share one."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


Violation: TypeAlias = Shortfall | Unsupported | Unreachable | Cyclic | TornApart
