"""The native local search: exact values, the same for any number of threads, never worse than a start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from strategies import CONTENTIONS

from stead import _native
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.problem import Problem
from stead.testing import two_towers
from stead.workloads.synthetic import synthetic


def problem_of(
    operators: int, *, contention: str = "link", memory_bytes: int = 2**40, family: str = "layered"
) -> Problem:
    """A synthetic graph on three devices whose times differ."""
    graph = synthetic(family, operators=operators)
    names = ["d0", "d1", "d2"]
    cluster = Cluster(
        tuple(Device(name, memory_bytes=memory_bytes) for name in names),
        link_all(names, bytes_per_second=12e9, latency_seconds=5e-6),
        contention=contention,  # type: ignore[arg-type]
    )
    seconds = np.random.default_rng(1).choice([1e-5, 5e-5, 2e-4], size=(len(graph), 3))
    return Problem(graph, cluster, Costs(graph, cluster, seconds))


def starts_of(problem: Problem, count: int = 3) -> dict[str, Any]:
    """Blocks, everything on one device, and one random placement, all in index order."""
    operators = len(problem.graph)
    rows = np.zeros((3, operators), np.uint8)
    rows[0] = np.arange(operators) * len(problem.cluster) // operators
    rows[2] = np.random.default_rng(0).integers(len(problem.cluster), size=problem.unit_count)[problem.units]
    orders = np.repeat(np.arange(operators, dtype=np.int32)[None, :], 3, axis=0)
    return {"unit_of": problem.units, "starts": rows[:count], "start_orders": orders[:count]}


def by_reader(count: int = 3) -> dict[str, Any]:
    """Starts of which the second sends by producer and the others by reader."""
    return {"start_sends": np.array([1, 0, 1], np.uint8)[:count]}


def simulated(problem: Problem, rows: NDArray[np.uint8], orders: NDArray[np.int32]) -> list[int]:
    """Ticks under policy program_order."""
    ticks: list[int] = _native.simulate_many(
        problem.native, rows, policy="program_order", order=orders, memory="off"
    ).ticks.tolist()
    return ticks


def simulated_with_sends(problem: Problem, states: list[_native.SearchState]) -> list[int]:
    """Ticks of states under policy program_order, with transfers listed where they go by reader."""
    ticks: list[int] = []
    for state in states:
        listed = _native.list_sends(problem.native, placement=state.devices, order=state.order)
        scores = _native.simulate_many(
            problem.native,
            state.devices[None, :],
            policy="program_order",
            order=listed if state.sends else state.order,
            sends=bool(state.sends),
            memory="off",
        )
        ticks += scores.ticks.tolist()
    return ticks


def columns(
    found: _native.SearchResult,
) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int64]]:
    """(devices, orders, ticks) of all states that a search returns, one per row."""
    return (
        np.stack([state.devices for state in found.pool]),
        np.stack([state.order for state in found.pool]),
        np.array([state.ticks for state in found.pool]),
    )


@pytest.mark.parametrize("contention", CONTENTIONS)
def test_values_are_those_of_the_simulator_and_better_than_any_start(contention: str) -> None:
    problem = problem_of(120, contention=contention)
    given = starts_of(problem)
    found = _native.search(problem.native, **given, budget=300_000, seconds=60.0, threads=1)
    devices, orders, ticks = columns(found)
    assert found.raised is None
    assert ticks.tolist() == simulated(problem, devices, orders)
    assert ticks[0] < min(simulated(problem, given["starts"], given["start_orders"]))
    assert (np.diff(ticks) >= 0).all()
    assert found.moves > 1000
    assert 300_000 <= found.work < 310_000
    assert (np.diff([point.ticks for point in found.trail]) <= 0).all()


@pytest.mark.parametrize("operators", [120, 7000])
def test_values_are_those_of_the_simulator_whatever_the_order_of_sends(operators: int) -> None:
    problem = problem_of(operators, family="lstm-grid")
    budget = 2500 * operators if operators < 1000 else 1000 * operators
    found = _native.search(
        problem.native, **starts_of(problem), **by_reader(), budget=budget, seconds=600.0, threads=1
    )
    assert [state.ticks for state in found.pool] == simulated_with_sends(problem, found.pool)
    assert {state.sends for state in found.pool} <= {0, 1}


@pytest.mark.parametrize("sends", [{}, by_reader()])
@pytest.mark.parametrize(("operators", "budget"), [(150, 400_000), (7000, 3_000_000)])
def test_threads_do_not_change_the_answer(operators: int, budget: int, sends: dict[str, Any]) -> None:
    problem = problem_of(operators)
    one, two = (
        _native.search(
            problem.native, **starts_of(problem), **sends, budget=budget, seconds=600.0, seed=5, threads=threads
        )
        for threads in (1, 2)
    )
    for first, second in zip(columns(one), columns(two), strict=True):
        assert np.array_equal(first, second)
    assert (one.moves, one.work) == (two.moves, two.work)
    assert [(p.spent, p.ticks) for p in one.trail] == [(p.spent, p.ticks) for p in two.trail]


def test_every_move_counts_as_one_of_its_kind() -> None:
    problem = problem_of(150)
    one, two = (
        _native.search(problem.native, **starts_of(problem), budget=400_000, seconds=600.0, threads=threads)
        for threads in (1, 2)
    )
    kinds = {kind.name: kind for kind in one.kinds}
    assert len(kinds) == len(one.kinds)
    assert sum(kind.tried for kind in one.kinds) == one.moves
    assert all(kind.kept <= kind.tried <= kind.work for kind in one.kinds)
    assert all(kind.kept or not kind.gain for kind in one.kinds)
    assert kinds["one unit"].gain > 0
    assert [(k.name, k.tried, k.kept, k.work, k.gain) for k in one.kinds] == [
        (k.name, k.tried, k.kept, k.work, k.gain) for k in two.kinds
    ]


def test_windows_of_a_large_graph_keep_values_exact() -> None:
    problem = problem_of(7000, family="lstm-grid")
    given = starts_of(problem)
    devices, orders, ticks = columns(
        _native.search(problem.native, **given, budget=6_000_000, seconds=600.0, threads=1)
    )
    assert ticks.tolist() == simulated(problem, devices, orders)
    assert ticks[0] < min(simulated(problem, given["starts"], given["start_orders"]))


def test_another_seed_searches_otherwise() -> None:
    problem = problem_of(150)
    one, two = (
        _native.search(problem.native, **starts_of(problem), budget=100_000, seconds=60.0, seed=seed)
        for seed in (0, 1)
    )
    assert (one.moves, one.work) != (two.moves, two.work)


def test_nothing_to_do_gives_the_best_start() -> None:
    problem = problem_of(120)
    given = starts_of(problem)
    devices, _, ticks = columns(_native.search(problem.native, **given, budget=1, seconds=60.0))
    values = simulated(problem, given["starts"], given["start_orders"])
    assert ticks.tolist() == sorted(values)
    assert np.array_equal(devices[0], given["starts"][int(np.argmin(values))])


def test_units_stay_together() -> None:
    problem = problem_of(120)
    units = (np.arange(120) // 4).astype(np.int32)
    given = {**starts_of(problem, 2), "unit_of": units}
    given["starts"][0] = (units * 3 // 30).astype(np.uint8)
    devices, *_ = columns(_native.search(problem.native, **given, budget=200_000, seconds=60.0))
    assert (devices == devices[:, units * 4]).all()


def test_what_devices_hold_never_exceeds_the_room() -> None:
    problem = problem_of(120)
    held = np.full(120, 2**45, np.int64)  # beside which the weights of the graph are nothing
    room = np.array([50, 40, 30], np.int64) * 2**45 + 2**44
    start = np.repeat(np.array([0, 1, 2], np.uint8), [50, 40, 30])[None, :]
    order = np.arange(120, dtype=np.int32)[None, :]
    found = _native.search(
        problem.native,
        problem.units,
        starts=start,
        start_orders=order,
        budget=300_000,
        seconds=60.0,
        held_bytes=held,
        room_bytes=room,
    )
    counts = [np.bincount(state.devices, minlength=3).tolist() for state in found.pool]
    assert counts == [[50, 40, 30]] * len(found.pool)  # exchanges are all that is left


def test_a_start_without_room_is_repaired_first() -> None:
    problem = problem_of(120)
    given = starts_of(problem, 2)
    room = np.full(3, 60 * 2**45 + 2**44, np.int64)
    found = _native.search(
        problem.native,
        given["unit_of"],
        starts=given["starts"][1:],
        start_orders=given["start_orders"][1:],
        budget=300_000,
        seconds=60.0,
        held_bytes=np.full(120, 2**45, np.int64),
        room_bytes=room,
    )
    assert np.bincount(found.pool[0].devices, minlength=3).max() <= 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit_of": np.zeros(4, np.int32)}, "unit_of needs 5 entries"),
        ({"unit_of": np.full(5, 5, np.int32)}, "unit_of must lie in 0..4"),
        ({"unit_of": np.full(5, -1, np.int32)}, "unit_of must lie in 0..4"),
        ({"unit_of": np.full(5, 1, np.int32)}, "unit 0 is empty"),
        (
            {"unit_of": np.zeros(5, np.int32), "starts": np.array([[0, 0, 0, 0, 1]], np.uint8)},
            "unit 0 is on devices",
        ),
        ({"starts": np.zeros((1, 4), np.uint8)}, r"starts needs shape \(1, 5\)"),
        ({"starts": np.full((1, 5), 7, np.uint8)}, "start 0: operator 0 is on device 7"),
        (
            {"starts": np.zeros((0, 5), np.uint8), "start_orders": np.zeros((0, 5), np.int32)},
            "at least 1 start",
        ),
        ({"start_orders": np.zeros((1, 5), np.int32)}, "start 0: order must be a permutation"),
        ({"start_orders": np.array([[4, 3, 2, 1, 0]], np.int32)}, "start 0: order must be topological"),
        ({"start_orders": np.arange(10, dtype=np.int32).reshape(2, 5)}, r"start_orders needs shape \(1, 5\)"),
        ({"budget": 0}, "budget must be at least 1"),
        ({"seconds": -1.0}, "seconds must be at least 0"),
        ({"seconds": np.nan}, "seconds must be at least 0"),
        ({"threads": -1}, "threads must be 0"),
        ({"start_sends": np.zeros(2, np.uint8)}, "start_sends needs 1 entries"),
        ({"start_sends": np.full(1, 2, np.uint8)}, "start_sends must lie in 0..1"),
        ({"streams": 0}, "streams must lie in"),
        ({"rounds": 0}, "rounds must lie in"),
        ({"pool": 0}, "pool must lie in"),
        ({"warmth": np.nan}, "warmth must lie in"),
        ({"held_bytes": np.zeros(4, np.int64)}, "need 5 and 2 entries"),
        ({"held_bytes": np.full(5, -1, np.int64)}, "held_bytes must lie in"),
        ({"room_bytes": np.zeros(3, np.int64)}, "need 5 and 2 entries"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    given = {
        "unit_of": np.arange(5, dtype=np.int32),
        "starts": np.zeros((1, 5), np.uint8),
        "start_orders": np.arange(5, dtype=np.int32)[None, :],
        "budget": 100,
        "seconds": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        _native.search(two_towers().native, **{**given, **change})


def test_no_operators_and_one_device_are_no_obstacle() -> None:
    problem = two_towers()
    alone = Problem(
        problem.graph,
        Cluster((problem.cluster.devices[0],)),
        Costs(problem.graph, Cluster((problem.cluster.devices[0],)), np.ones((5, 1))),
    )
    devices, _, ticks = columns(
        _native.search(alone.native, **starts_of(alone, 1), budget=10_000, seconds=60.0)
    )
    assert (devices.tolist(), ticks.tolist()) == ([[0] * 5], [5 * 10**12])
