"""Sheet: what an executor must know about a recorded model to split it among workers, without torch.

A sheet numbers the tensors of a tape. Each call says which of them it reads, writes into and gives; every tensor is a
part of a storage. Sheets travel between processes and are equal for equal captures, which is how a coordinator knows
that all workers speak of the same operators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stead.readers.torch.aten import Value, is_allocation, overwrites, values_in

if TYPE_CHECKING:
    from stead.readers.torch.tape import Tape

Keeping = Literal["made", "blank", "held", "given"]
"""What a storage holds before a step: nothing, memory without contents, state that outlives the step, or an input."""


@dataclass(frozen=True, slots=True)
class SheetCall:
    """One recorded call; tensors are numbers."""

    operator: int  # in `Sheet.operators`; -1 for views and what nobody needs
    folded: bool
    reads: tuple[int, ...]  # in the order of its arguments
    written: tuple[int, ...]  # of those, what it writes into
    blind: tuple[int, ...]  # of those, whole storages that it writes without looking
    gives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A recorded model in numbers."""

    operators: tuple[str, ...]  # names, in the order of the graph
    calls: tuple[SheetCall, ...]
    storage_of: tuple[int, ...]  # [tensor]
    keeping: tuple[Keeping, ...]  # [storage]
    whole: tuple[int, ...]  # [storage]: the tensor that is all of it
    results: tuple[tuple[str, int], ...]  # what a step gives: (label, tensor)
    is_training: bool

    @property
    def fingerprint(self) -> str:
        """The same for equal sheets."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies in its storage in a real run."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage_bytes: int
    item_bytes: int
    plain: bool = True  # no lazy conjugate or sign
    alias: bool = True  # of a folded call: it is really a view

    @property
    def covers(self) -> bool:
        """Whether the tensor is all of its storage, so that it can be copied as it is."""
        count = 1
        for size in self.shape:
            count *= size
        return self.plain and self.offset == 0 and count * self.item_bytes == self.storage_bytes


class Numbering:
    """The tensors of a tape, numbered as they come."""

    def __init__(self, tape: Tape) -> None:
        self.values: list[Value] = []
        self.number_of: dict[int, int] = {}  # by id of a value
        trace = tape.trace
        starting = (tape.parameters, tape.buffers, tape.slots)
        self._add(value for held in starting for value in held.values())
        self._add(value for value, _ in tape.constants.values())
        self._add(tape.inputs)
        for call in trace.calls:
            self._add(call.reads())
            self._add(call.writes)
        self._add(trace.storages)

    def _add(self, values: Iterable[Value]) -> None:
        for value in values:
            if id(value) not in self.number_of:
                self.number_of[id(value)] = len(self.values)
                self.values.append(value)

    def of(self, values: Iterable[Value]) -> tuple[int, ...]:
        """Numbers of some tensors."""
        return tuple(self.number_of[id(value)] for value in values)


def sheet_of(
    tape: Tape, numbering: Numbering, operators: Sequence[str], operator_of: Sequence[int]
) -> Sheet:
    """The sheet of a tape; `operators` and `operator_of` are those of its graph."""
    trace = tape.trace
    keeping: list[Keeping] = ["made"] * len(trace.storages)
    calls = []
    for index, call in enumerate(trace.calls):
        reads = numbering.of(call.reads())
        written = numbering.of(value for value in call.written)
        blind = _blind(tape, index)
        operator = -1 if call.folded else operator_of[index]
        calls.append(
            SheetCall(operator, call.folded, reads, written, numbering.of(blind), numbering.of(call.writes))
        )
        if call.folded and is_allocation(call.kind):
            for value in call.writes:
                keeping[value.storage] = "blank"
    for held in (tape.parameters, tape.buffers, tape.slots):
        for value in held.values():
            keeping[value.storage] = "held"
    for value in (*tape.inputs, *(value for value, _ in tape.constants.values())):
        keeping[value.storage] = "given"
    return Sheet(
        tuple(operators),
        tuple(calls),
        tuple(value.storage for value in numbering.values),
        tuple(keeping),
        numbering.of(trace.storages),
        tuple(_results(tape, numbering)),
        bool(tape.gradients),
    )


def _blind(tape: Tape, index: int) -> list[Value]:
    """Whole storages that a call fills without looking at what was there."""
    call = tape.trace.calls[index]
    if not overwrites(call.kind):
        return []
    looked_at = list(values_in((call.arguments[1:], call.named)))
    return [
        value
        for value in call.written
        if value.region is None and not any(one.storage == value.storage for one in looked_at)
    ]


def _results(tape: Tape, numbering: Numbering) -> list[tuple[str, int]]:
    """What a step gives and what it leaves behind; state that no call writes into is left out."""
    changed = {value.storage for call in tape.trace.calls for value in call.written}
    found = [(f"output {at}", value) for at, value in enumerate(tape.outputs)]
    if tape.loss is not None:
        found.append(("loss", tape.loss))
    found += [(f"gradient of {name}", value) for name, value in tape.gradients.items()]
    for held in (tape.parameters, tape.buffers, tape.slots):
        found += [(name, value) for name, value in held.items() if value.storage in changed]
    return [(label, numbering.number_of[id(value)]) for label, value in found]
