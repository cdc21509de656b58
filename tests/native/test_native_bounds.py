"""Bounds of the core: what the border refuses, and values worked by hand that leave no room for rounding."""

from __future__ import annotations

import numpy as np
import pytest

from stead import _native
from stead.problem import Problem
from stead.testing import chain3, two_towers

ROOM = 10**9


def table(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


def area(
    ticks: np.ndarray, weights: tuple[int, ...], room: tuple[int, ...], busy: tuple[int, ...] = ()
) -> int:
    return _native.area_bound(
        ticks=ticks,
        bytes=np.array(weights, dtype=np.int64),
        capacity_bytes=np.array(room, dtype=np.int64),
        busy=np.array(busy or [1] * len(room), dtype=np.uint8),
    )


def test_equal_devices_share_work_to_the_tick() -> None:
    assert area(table((3, 3, 3), (4, 4, 4)), (0, 0), (ROOM,) * 3) == 3  # 7 / 3, and time is whole


def test_work_that_runs_on_one_device_only_stays_there() -> None:
    assert area(table((10, -1), (1, 1)), (0, 0), (ROOM, ROOM)) == 10


def test_a_device_that_is_never_busy_takes_everything() -> None:
    assert area(table((10, 10), (7, 7)), (0, 0), (ROOM, ROOM), busy=(1, 0)) == 0


def test_memory_drives_work_to_the_slow_device() -> None:
    found = area(table((10**6, 5 * 10**6), (10**6, 5 * 10**6)), (10, 10), (10, 100))
    assert 4_999_000 <= found <= 5_000_000  # one row fits the quick device


def test_a_total_over_devices_keeps_to_memory() -> None:
    ticks, busy = table((10**6, 3 * 10**6), (10**6, 3 * 10**6)), np.ones(2, dtype=np.uint8)
    found = _native.total_bound(
        ticks=ticks, bytes=np.array([10, 10]), capacity_bytes=np.array([10, 100]), busy=busy
    )
    assert 3_999_000 <= found <= 4_000_000


def test_products_of_huge_numbers_do_not_wrap() -> None:
    ticks = table((2**59, 2**60), (2**59, 2**60))
    found = area(ticks, (2**60, 2**60), (2**60, 2**61))
    assert 0.99 * 2**60 <= found <= 2**60


def test_no_rows_take_no_time() -> None:
    assert area(np.zeros((0, 2), dtype=np.int64), (), (ROOM, ROOM)) == 0


@pytest.mark.parametrize(
    ("ticks", "weights", "room", "reason"),
    [
        (table((-2, 1)), (0,), (1, 1), r"ticks\[0, 0\] is negative"),
        (table((1, 1)), (-1,), (1, 1), r"bytes\[0\] is negative"),
        (table((1, 1)), (0,), (1, -1), r"capacity_bytes\[1\] is negative"),
        (table((1, 1)), (0, 0), (1, 1), "bytes needs 1 values, got 2"),
        (table((1, 1)), (0,), (1,), "capacity_bytes needs 2 values, got 1"),
        (table((2**62, 1)), (0,), (1, 1), "add up to"),
    ],
)
def test_rows_that_make_no_sense_are_refused(
    ticks: np.ndarray, weights: tuple[int, ...], room: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        area(ticks, weights, room)


def test_windows_check_their_arrays() -> None:
    native = chain3().native
    none, once = np.zeros(3, dtype=np.int64), np.ones(3, dtype=np.int32)
    with pytest.raises(ValueError, match="repeat needs 3 values, got 2"):
        _native.window_bounds(native, bytes=none, repeat=once[:2], reach=8)
    with pytest.raises(ValueError, match=r"bytes\[1\] is negative"):
        _native.window_bounds(native, bytes=np.array([0, -1, 0]), repeat=once, reach=8)


def test_without_looking_back_a_path_is_the_critical_one() -> None:
    native = two_towers().native
    none, once = np.zeros(5, dtype=np.int64), np.ones(5, dtype=np.int32)
    assert _native.window_bounds(native, bytes=none, repeat=once, reach=0).path_ticks == 5 * 10**12
    assert _native.window_bounds(native, bytes=none, repeat=once, reach=8).path_ticks == 7_500_000_000_000


def test_the_heaviest_path_is_listed_in_order() -> None:
    weight = np.array([1.0, 5.0, 1.0, 5.0, 1.0])
    assert _native.heaviest_path(two_towers().native, weight).tolist() == [1, 3, 4]


def test_runs_take_paths_only() -> None:
    with pytest.raises(ValueError, match="not a path"):
        _native.least_run_ticks(two_towers().native, np.array([0, 1], dtype=np.int32))
    with pytest.raises(ValueError, match=r"operators lie in 0\.\.4"):
        _native.least_run_ticks(two_towers().native, np.array([5], dtype=np.int32))


def chain_bound(problem: Problem, path: list[int], units: list[int], **options: int) -> int:
    return _native.block_chain_bound(
        problem.native, path=np.array(path, dtype=np.int32), units=np.array(units, dtype=np.int32), **options
    )


def test_blocks_of_two_towers_are_searched_until_one_has_to_cross() -> None:
    towers = two_towers()
    path = _native.heaviest_path(towers.native, np.ones(len(towers.graph))).tolist()
    apart = list(range(len(towers.graph)))
    assert chain_bound(towers, path, apart, steps=10_000) > chain_bound(towers, path, apart, steps=0)


def test_search_of_blocks_ends_where_it_cannot_get_beyond_what_is_known() -> None:
    towers = two_towers()
    path = _native.heaviest_path(towers.native, np.ones(len(towers.graph))).tolist()
    apart = list(range(len(towers.graph)))
    least = chain_bound(towers, path, apart, steps=10_000)
    assert chain_bound(towers, path, apart, steps=10_000, known=least) <= least


@pytest.mark.parametrize(
    ("path", "units", "options", "message"),
    [
        ([0, 2], [0, 1, 2], {}, "operator 2 of the path reads nothing of operator 0"),
        ([0, 7], [0, 1, 2], {}, "operators lie in 0..2, got 7"),
        ([0, 1], [0, 1], {}, "units needs 3 values, got 2"),
        ([0, 1], [0, 1, 2], {"most_operators": 0}, "most_operators must be at least 1"),
    ],
)
def test_a_chain_of_blocks_needs_a_path(
    path: list[int], units: list[int], options: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        chain_bound(chain3(), path, units, steps=10, **options)
