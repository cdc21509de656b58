"""What a plan would be worth if some of its operators stood elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.cluster.classes import DeviceIndices
from stead.errors import BadInput
from stead.problem import Order, Placement, Problem, ProgramOrder
from stead.sim.simulator import simulate_many
from stead.sim.trace import Memory, Scores

CELLS_AT_ONCE = 2**25  # devices of operators that are written down at once: rows go to the core in portions


class Move(NamedTuple):
    """Operators that go to a device; whoever must share a device with them goes along."""

    operators: NDArray[np.int64]  # indices
    device: int


def score_moves(
    problem: Problem, placement: Placement, moves: Sequence[Move], *, memory: Memory = "check", threads: int = 0
) -> Scores:
    """The value of a placement after each of `moves`, one row per move; every move starts from the placement itself.

    The order that a placement brings is kept (`order_after`). Devices that share a stage are not known here: rows are
    scored without.

    >>> from stead.testing import two_towers
    >>> problem = two_towers()
    >>> apart = Placement(problem, [0, 1, 0, 1, 0])
    >>> score_moves(problem, apart, [Move(np.array([1, 3]), 0), Move(np.array([4]), 1)]).seconds.tolist()
    [9.0, 7.5]
    """
    count = 1 if _lists_sends(placement.order) else max(1, CELLS_AT_ONCE // max(1, len(problem.graph)))
    portions = [moves[i : i + count] for i in range(0, len(moves), count)] or [moves]
    done = []
    for portion in portions:
        rows = _rows(problem, placement, portion)
        order = order_after(placement, rows[0]) if len(rows) == 1 else placement.order
        done.append(simulate_many(problem, rows, policy=order, memory=memory, threads=threads))
    columns = ("ticks", "seconds", "status", "peak_bytes", "over_bytes")
    return Scores(done[0].policy, *(np.concatenate([getattr(one, name) for one in done]) for name in columns))


def order_after(placement: Placement, devices: DeviceIndices) -> Order | None:
    """The order that a placement brings, for its operators on other devices.

    Operators keep their order. One that also lists transfers says what crosses between the old devices: elsewhere every
    tensor is sent when its first reader's turn comes.
    """
    order, problem = placement.order, placement.problem
    if not _lists_sends(order) or np.array_equal(devices, placement.devices):
        return order
    assert isinstance(order, ProgramOrder)
    assert order.order is not None
    operators = order.order[order.order < len(problem.graph)]
    return ProgramOrder(_native.list_sends(problem.native, placement=devices, order=operators), sends=True)


def _lists_sends(order: Order | None) -> bool:
    return isinstance(order, ProgramOrder) and order.sends


def moved_devices(problem: Problem, devices: DeviceIndices, move: Move) -> DeviceIndices:
    """The devices of all operators after a move."""
    if not 0 <= move.device < len(problem.cluster):
        raise BadInput(f"no device {move.device}; they are 0..{len(problem.cluster) - 1}")
    row = devices.copy()
    if problem.unit_count == len(row):
        row[move.operators] = move.device
    else:
        row[np.isin(problem.units, problem.units[move.operators])] = move.device
    return row


def _rows(problem: Problem, placement: Placement, moves: Sequence[Move]) -> DeviceIndices:
    rows = np.empty((len(moves), len(problem.graph)), dtype=placement.devices.dtype)
    for row, move in zip(rows, moves, strict=True):
        row[:] = moved_devices(problem, placement.devices, move)
    return rows
