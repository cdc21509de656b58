"""Annealing and descent in the core: exact values, the same answer again, errors instead of crashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems

from stead import _native
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.problem import Load, Problem, Throughput
from stead.sim import Status, simulate_many
from stead.testing import chain3, diamond, tiny_problem, two_towers

LOADS: tuple[Load, ...] = ("sum", "overlap", "duplex", "fwbw")


def starts(problem: Problem, *rows: list[int]) -> Any:
    return np.array(rows, dtype=np.uint8).reshape(len(rows), problem.unit_count)


def balance(problem: Problem, *rows: list[int], load: Load = "sum", **options: Any) -> _native.Balanced:
    given = {"moves": 2000, "restarts": 0, **options}
    found = _native.balance(
        problem.native, problem.units, load=load, starts=starts(problem, *rows), **given
    )
    assert found.raised is None  # by a signal while it ran
    return found


def trail(found: _native.Balanced) -> list[tuple[int, int]]:
    return [(point.spent, point.ticks) for point in found.trail]


def descend(problem: Problem, *rows: list[int], **options: Any) -> _native.Descents:
    given = {"load": "sum", "moves": 10**6, "least_gain": 0.0, "targets": np.ones(2, np.uint8), **options}
    found = _native.descend(problem.native, problem.units, starts=starts(problem, *rows), **given)
    assert found.raised is None
    return found


@st.composite
def walks(draw: Any) -> tuple[Problem, Load, list[list[int]]]:
    """A problem with units, and rows of devices that its units may be on."""
    load = draw(st.sampled_from(LOADS))
    problem = draw(problems(objective=Throughput(load), training=True, colocate=True))
    options = [np.flatnonzero(row).tolist() for row in problem.unit_allowed]
    count = draw(st.integers(1, 4))
    return problem, load, [[draw(st.sampled_from(may)) for may in options] for _ in range(count)]


@given(walks())
def test_a_start_has_the_value_that_the_simulator_gives_it(
    walk: tuple[Problem, Load, list[list[int]]],
) -> None:
    problem, load, rows = walk
    room = np.full(len(problem.cluster), 2**60, dtype=np.int64)
    for row in rows:
        found = balance(problem, row, load=load, moves=0, room_bytes=room)
        assert (found.ticks, found.moves) == (expected(problem, starts(problem, row)[0]), 0)


@given(walks(), st.integers(0, 2**32))
def test_loads_kept_move_by_move_are_those_of_the_simulator(
    walk: tuple[Problem, Load, list[list[int]]], seed: int
) -> None:
    problem, load, rows = walk
    room = np.full(len(problem.cluster), 2**60, dtype=np.int64)
    found = balance(problem, *rows, load=load, seed=seed, restarts=6, moves=600, room_bytes=room)
    ticks = found.ticks
    assert ticks == expected(problem, found.devices)
    assert [point.ticks for point in found.trail[-1:]] == ([] if ticks < 0 else [ticks])
    assert all(
        ticks <= value or value < 0 for value in (expected(problem, np.array(row, np.uint8)) for row in rows)
    )


def expected(problem: Problem, unit_devices: Any) -> int:
    """Ticks by the simulator; -1 where a tensor has no way."""
    scores = simulate_many(problem, unit_devices[problem.units][None, :], memory="off")
    return -1 if scores.status[0] == Status.UNREACHABLE else int(scores.ticks[0])


@given(walks())
def test_a_descent_ends_where_no_single_move_helps(walk: tuple[Problem, Load, list[list[int]]]) -> None:
    problem, load, rows = walk
    targets = np.ones(len(problem.cluster), np.uint8)
    found = descend(problem, *rows, load=load, targets=targets)
    for devices, value in zip(found.devices, found.ticks.tolist(), strict=True):
        assert value == expected(problem, devices)
        for unit, may in enumerate(problem.unit_allowed):
            for d in np.flatnonzero(may):
                moved = devices.copy()
                moved[unit] = d
                other = expected(problem, moved)
                assert value < 0 or other < 0 or other >= value


def test_towers_on_two_devices_take_the_larger_tower_and_its_transfer() -> None:
    # l1, l2 and head on one device: 2 + 2 + 1, and r2's tensor in 2.5 s.
    found = balance(two_towers(), [0, 0, 0, 0, 0])
    assert (found.ticks, found.moves) == (7_500_000_000_000, 2000)
    assert trail(found)[0] == (0, 9_000_000_000_000)


def test_the_best_single_move_is_made() -> None:
    # Four operators of 1, 2, 3 and 4 s without tensors: from 10 s, 4 moves away to leave 6; 1 more ends at 5.
    problem = tiny_problem({"a": 1, "b": 2, "c": 3, "d": 4}, {})
    found = descend(problem, [0, 0, 0, 0])
    assert (found.ticks.tolist(), found.devices[0].tolist()) == ([5 * 10**12], [1, 0, 0, 1])


def test_a_descent_stays_on_its_targets() -> None:
    problem = tiny_problem({"a": 1, "b": 2}, {})
    found = descend(problem, [0, 0], targets=np.array([1, 0], np.uint8))
    assert (found.devices.tolist(), found.ticks.tolist()) == ([[0, 0]], [3 * 10**12])


def test_a_small_gain_is_left_alone() -> None:
    problem = tiny_problem({"a": 1, "b": 9}, {})  # moving a gains a tenth
    assert descend(problem, [0, 0], least_gain=0.11).ticks.tolist() == [10 * 10**12]
    assert descend(problem, [0, 0], least_gain=0.09).ticks.tolist() == [9 * 10**12]


def weighty(*, memory_bytes: int, shared: bool) -> Problem:
    """Two operators of 1 s, each with 10 bytes of weights: its own, or one that both use."""
    build = GraphBuilder("weighty")
    operators = [build.operator(name) for name in "ab"]
    for users in [operators] if shared else [[v] for v in operators]:
        build.weight(f"w{users[0]}", size_bytes=10, users=users)
    graph = build.build()
    devices = tuple(Device(name, memory_bytes=memory_bytes) for name in ("d0", "d1"))
    cluster = Cluster(devices, link_all(["d0", "d1"], bytes_per_second=1.0))
    return Problem(graph, cluster, Costs(graph, cluster, np.array([[1.0, 9.0]] * 2)), objective=Throughput())


def test_weights_that_do_not_fit_beside_each_other_are_parted() -> None:
    found = balance(weighty(memory_bytes=15, shared=False), [0, 0])
    assert (sorted(found.devices.tolist()), found.ticks) == ([0, 1], 9 * 10**12)


def test_a_weight_with_two_users_is_held_once() -> None:
    found = balance(weighty(memory_bytes=15, shared=True), [0, 1])
    assert (found.devices.tolist(), found.ticks) == ([0, 0], 2 * 10**12)


def test_where_nothing_fits_there_is_no_value() -> None:
    found = balance(weighty(memory_bytes=5, shared=False), [0, 0])
    assert (len(found.devices), found.ticks, found.trail) == (2, -1, [])


@pytest.mark.parametrize("load", LOADS)
def test_threads_do_not_change_the_answer(load: Load) -> None:
    one, three = (
        balance(two_towers(), load=load, restarts=7, moves=7000, threads=n, seed=3) for n in (1, 3)
    )
    assert one.devices.tolist() == three.devices.tolist()
    assert (one.ticks, one.moves, trail(one)) == (three.ticks, three.moves, trail(three))


def test_a_time_limit_ends_a_long_search() -> None:
    assert balance(diamond(), restarts=4, moves=2**40, seconds=0.05).moves < 2**30


def test_an_empty_graph_has_load_zero() -> None:
    problem = tiny_problem({}, {})
    found = balance(problem, [])
    assert (found.devices.tolist(), found.ticks, found.moves) == ([], 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"node_of": np.zeros(2, np.int32)},
        {"node_of": np.array([0, 1, 3], np.int32)},
        {"node_of": np.array([0, 2, 2], np.int32)},
        {"node_of": np.array([0, -1, 1], np.int32)},
        {"node_of": np.zeros(3, np.int64)},
        {"starts": np.zeros((1, 2), np.uint8)},
        {"starts": np.full((1, 3), 2, np.uint8)},
        {"starts": np.zeros((1, 6), np.uint8)[:, ::2]},
        {"load": "most"},
        {"moves": -1},
        {"moves": 2**41},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"restarts": -1},
        {"threads": -1},
        {"seed": -1},
        {"room_bytes": np.zeros(3, np.int64)},
    ],
)
def test_input_that_makes_no_sense_is_an_error(change: dict[str, Any]) -> None:
    problem = chain3()
    given = {
        "node_of": problem.units,
        "load": "sum",
        "starts": np.zeros((1, 3), np.uint8),
        "moves": 10,
        **change,
    }
    with pytest.raises((TypeError, ValueError), match=r"\w"):
        _native.balance(problem.native, given.pop("node_of"), **given)


@pytest.mark.parametrize(
    "change", [{"targets": np.ones(3, np.uint8)}, {"least_gain": -1.0}, {"least_gain": float("nan")}]
)
def test_a_descent_that_makes_no_sense_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        descend(chain3(), [0, 0, 0], **change)
