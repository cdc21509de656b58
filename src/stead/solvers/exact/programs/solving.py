"""How solvers by integer program go about it: a quick start, the program, and again with less room if need be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput, did_you_mean
from stead.problem import Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim import simulate_many
from stead.solvers.exact.programs.load_rows import LoadRows
from stead.solvers.exact.programs.program import Settings, run
from stead.solvers.exact.reduction import Merge, Notion, Reduced, reduce
from stead.solvers.search_state import Search

ATTEMPTS = 8  # programs with less and less room for weights
BELOW = 1 - 1e-12  # times a bound in seconds, so that rounding does not lift it
BUILDING_SECONDS = 2e-5  # per variable, to write a program down


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A program about loads and what its values mean."""

    rows: LoadRows
    place: Callable[[NDArray[np.int64]], NDArray[np.uint8]]  # values of variables to devices of operators


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a program may use of what is known."""

    rooms: list[int]  # [kind]; bytes for weights
    upper_ticks: int | None  # the incumbent's value
    lower_ticks: int  # what is proved of every placement
    device_of_node: NDArray[np.uint8] | None  # the incumbent, if it is one for these supernodes


Build = Callable[[Reduced, Given], Model]


def solve_with(reduced: Reduced, search: Search, settings: Settings, build: Build) -> None:
    """Solve a program about loads; if what it finds does not fit once activations count too, give it less room.

    The program knows weights only, so its bound holds in any case, but only with all the room there is.
    """
    rooms = [kind.memory_bytes for kind in reduced.kinds]
    for attempt in range(ATTEMPTS):
        if search.done or search.lacks_time(BUILDING_SECONDS * _size(reduced)):
            return
        model = build(reduced, _given(reduced, search, rooms))
        proves = attempt == 0 and reduced.lossless
        outcome = run(
            model.rows.program,
            search,
            settings,
            place=model.place,
            bound_seconds=model.rows.scale.seconds if proves else None,
            bound_name=f"integer program ({settings.engine})",
        )
        if outcome.status != "optimal" or outcome.values is None:
            break
        over = simulate_many(reduced.problem, model.place(outcome.values)[None, :]).over_bytes[0]
        if not over.any():
            return
        rooms = [
            room - int(max(over[d] for d in kind.devices))
            for room, kind in zip(rooms, reduced.kinds, strict=True)
        ]
    if search.current is None and not search.done:
        search.offer(reduced.lift(fullest_fit(reduced)))


def _size(reduced: Reduced) -> int:
    """About how many variables a program has."""
    things = reduced.count + 2 * len(reduced.tensor_source) + len(reduced.weight_bytes)
    return things * len(reduced.problem.cluster)


def _given(reduced: Reduced, search: Search, rooms: list[int]) -> Given:
    lower = int(search.bound_seconds * TICKS_PER_SECOND * BELOW)
    if search.best is None:
        return Given(rooms, None, lower, None)
    upper = round(search.best_seconds * TICKS_PER_SECOND)
    device = np.zeros(reduced.count, dtype=np.uint8)
    device[reduced.node_of] = search.best
    if not np.array_equal(reduced.lift(device), search.best) or not _fits(reduced, device, rooms):
        return Given(rooms, upper, lower, None)
    return Given(rooms, upper, lower, device)


def _fits(reduced: Reduced, device_of_node: NDArray[np.uint8], rooms: Sequence[int]) -> bool:
    """Whether weights fit into so much room."""
    held = np.zeros((len(reduced.weight_bytes), len(reduced.problem.cluster)), dtype=bool)
    weight = np.repeat(np.arange(len(reduced.weight_bytes)), np.diff(reduced.user_first))
    held[weight, device_of_node[reduced.users]] = True
    used = reduced.weight_bytes @ held
    return all(
        int(used[d]) <= room for room, kind in zip(rooms, reduced.kinds, strict=True) for d in kind.devices
    )


def fullest_fit(reduced: Reduced) -> NDArray[np.uint8]:  # [node]
    """Every supernode on the device that has most room left and may run it: something to measure what is missing."""
    left = {d: kind.memory_bytes for kind in reduced.kinds for d in kind.devices}
    device = np.zeros(reduced.count, dtype=np.uint8)
    weights: list[list[int]] = [[] for _ in range(reduced.count)]
    for w, size in enumerate(reduced.weight_bytes.tolist()):
        weights[int(reduced.users[reduced.user_first[w]])].append(size)
    for v in range(reduced.count):
        may = [d for k, kind in enumerate(reduced.kinds) if reduced.ticks[v, k, 0] >= 0 for d in kind.devices]
        if not may:  # fused supernodes may have no common device
            continue
        device[v] = max(may, key=lambda d: (left[d], -d))
        left[int(device[v])] -= sum(weights[v])
    return device


def too_large(
    problem: Problem, notion: Notion, merge: Merge, limit: int, literals: Callable[[Reduced], int]
) -> str | None:
    """Why a program would be too large, in one sentence; None if it is not.

    Problems that cannot exceed the limit are not reduced to find out.
    """
    graph, devices = problem.graph, len(problem.cluster)
    things = len(graph) + graph.tensor_count + len(graph.weight_bytes)
    if 3 * things * devices <= limit:
        return None
    count = literals(reduce(problem, notion=notion, merge=merge))
    if count <= limit:
        return None
    return f"the integer program would have {count:,} variables, more than max_literals = {limit:,}"


def checked(what: str, given: str, known: Sequence[str]) -> None:
    """An option is one of the known words."""
    if given not in known:
        raise BadInput(f"{what} is one of {', '.join(known)}, got {given!r}{did_you_mean(given, known)}")
