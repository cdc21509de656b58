"""What constructions share: units with their backward parts, offering a placement with an order, making it fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.coarsen.colocation import forward_operators
from stead.coarsen.unrolled import first_readers, steps_of, weight_tensors
from stead.graph.components import connected
from stead.problem import Latency, Priority, Problem, ProgramOrder
from stead.sim import simulate_many
from stead.solvers.search_state import Search

MOST_SPILLS = 24
MOST_PRESSURE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Devices, an order in which operators may run, and which tensor a channel sends first."""

    devices: NDArray[np.uint8]  # [operator]
    order: NDArray[np.int32]  # operators, topological
    name: str = ""  # of the variant that built it
    by_reader: bool = False  # what is read first; else what is produced first
    seconds: float = math.inf  # what a search says of it; inf where none has looked

    def program(self, problem: Problem) -> ProgramOrder:
        """The order as a policy of the simulator; it lists transfers if they go by reader."""
        if not self.by_reader:
            return ProgramOrder(self.order)
        items = _native.list_sends(problem.native, placement=self.devices, order=self.order)
        return ProgramOrder(items, sends=True)


def tied_units(problem: Problem) -> NDArray[np.int32]:  # [operator]
    """Units in which backward and update operators share the device of their forward operator.

    They are the problem's own units for a graph without backward operators, and where a pair has no device in common.
    """
    if not problem.graph.is_training:
        return problem.units
    return joined_units(problem, np.arange(len(problem.graph)), forward_operators(problem.graph))


def weight_units(problem: Problem) -> NDArray[np.int32]:  # [operator]
    """Tied units in which, beyond that, all users of a weight share a device: its gradients never travel.

    They are the problem's own units where users have no device in common.
    """
    graph = problem.graph
    users = np.diff(graph.weight_user_first)
    first = np.repeat(graph.weight_users[graph.weight_user_first[:-1][users > 0]], users[users > 0])
    return joined_units(
        problem,
        np.concatenate([np.arange(len(graph)), first]),
        np.concatenate([forward_operators(graph), graph.weight_users]),
    )


def joined_units(problem: Problem, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int32]:
    """Units of which some are joined, one[i] with other[i], numbered by first operator."""
    units = problem.units
    label = connected(problem.unit_count, units[one].astype(np.int64), units[other].astype(np.int64))
    leaders, first = np.unique(label, return_index=True)
    number = np.empty(len(leaders), dtype=np.int32)
    number[np.argsort(first, kind="stable")] = np.arange(len(leaders), dtype=np.int32)
    unit_of = number[np.searchsorted(leaders, label)][units]
    allowed = np.ones((len(leaders), len(problem.cluster)), dtype=bool)
    np.logical_and.at(allowed, unit_of, problem.allowed)
    return unit_of if allowed.any(axis=1).all() else units


def groupings(problem: Problem) -> list[NDArray[np.int32]]:  # of [operator]
    """Units to build with: the problem's own; for training also tied ones and those of weights, each grouping once."""
    return _distinct([problem.units, *_tied_groupings(problem)])


def mirrored_groupings(problem: Problem) -> list[NDArray[np.int32]]:  # of [operator]
    """Units in which backward follows forward, each grouping once; the problem's own where there is no backward."""
    return _distinct([*_tied_groupings(problem), *_step_groupings(problem)])


def unrolled_groupings(problem: Problem) -> list[NDArray[np.int32]]:  # of [operator]
    """Units for unrolled networks whose weights are operators: weights where they are read first, steps with backward.

    There are none for other graphs.
    """
    weights = weight_tensors(problem.graph)
    with_readers = [joined_units(problem, *first_readers(problem.graph, weights))] if weights.any() else []
    return [*with_readers, *_step_groupings(problem)]


def _tied_groupings(problem: Problem) -> list[NDArray[np.int32]]:  # of [operator]
    tied = tied_units(problem)
    return _distinct([tied, weight_units(problem)]) if problem.graph.is_training else [tied]


def _step_groupings(problem: Problem) -> list[NDArray[np.int32]]:  # of [operator]
    """Units of an unrolled network in which backward operators are with a step, where the graph does not say which."""
    graph = problem.graph
    if not graph.is_training or (graph.twins >= 0).any() or not weight_tensors(graph).any():
        return []
    return [joined_units(problem, np.arange(len(graph)), steps_of(graph))]


def _distinct(unit_groups: list[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    found: list[NDArray[np.int32]] = []
    for unit_of in unit_groups:
        if not any(np.array_equal(unit_of, known) for known in found):
            found.append(unit_of)
    return found


def takes_orders(problem: Problem) -> bool:
    """Whether an answer may say in which order operators run."""
    return isinstance(problem.objective, Latency) and problem.objective.takes_orders


def offer_schedule(search: Search, schedule: Schedule) -> None:
    """Score devices in the given order, with the order as priorities, and under the policy of the objective."""
    devices, found_by = schedule.devices, schedule.name
    if takes_orders(search.problem):
        position = np.empty(len(schedule.order), dtype=np.int32)
        position[schedule.order] = np.arange(len(position), dtype=np.int32)
        search.offer(devices, order=schedule.program(search.problem), found_by=found_by)
        search.offer(devices, order=Priority(position), found_by=found_by)
    search.offer(devices, found_by=found_by)


def offer_fitting(search: Search, schedule: Schedule, unit_of: NDArray[np.int32]) -> None:
    """Score a schedule; while nothing has been found that fits, move tails of overfull devices and score again.

    Where units share their weights, moving some of them frees little: then all users of a weight are moved together.
    """
    offer_schedule(search, schedule)
    for units in _distinct([unit_of, weight_units(search.problem)]):
        if search.best is None and not search.done:
            _spill(search, schedule, units)


def _spill(search: Search, schedule: Schedule, unit_of: NDArray[np.int32]) -> None:
    """Move units off overfull devices until a placement fits or nothing can be moved any more."""
    problem, moved, pressure = search.problem, 0, 1
    usable = np.array([device.usable_bytes for device in problem.cluster], dtype=np.int64)
    firsts = np.unique(unit_of, return_index=True)[1]
    devices = where_allowed(problem, schedule.devices[firsts], unit_of)
    for _ in range(MOST_SPILLS):
        if moved:
            offer_schedule(search, Schedule(devices, schedule.order, schedule.name))
        if search.best is not None or search.done:
            break
        peak = simulate_many(problem, devices[None, :], memory="peak").peak_bytes[0]
        if (peak < 0).any():
            break  # it cannot run at all
        # What leaves a device frees less than it weighs if it was not there at the peak: ask for more each time.
        spilled = _native.spill(
            problem.native,
            unit_of,
            devices=devices,
            order=schedule.order,
            over_bytes=np.maximum(0, peak - usable) * pressure,
            room_bytes=np.maximum(0, usable - peak),
        )
        devices = spilled.devices
        moved, pressure = moved + spilled.moved_units, min(MOST_PRESSURE, pressure + 1)
        if not spilled.moved_units:
            break
    if moved and search.best is not None:
        search.notes.append(f"{moved} units moved: the construction does not fit into memory")


def where_allowed(
    problem: Problem, wanted: NDArray[np.uint8], unit_of: NDArray[np.int32]
) -> NDArray[np.uint8]:  # [operator]
    """Devices of operators from those of units; the first allowed one where a unit may not be where it is wanted."""
    allowed = np.ones((len(wanted), len(problem.cluster)), dtype=bool)
    np.logical_and.at(allowed, unit_of, problem.allowed)
    fits = allowed[np.arange(len(wanted)), wanted]
    by_unit = np.where(fits, wanted, allowed.argmax(axis=1))
    return by_unit[unit_of].astype(np.uint8)
