"""Constructions at the border of the core: what is refused, and what refinement and spilling promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from orders import is_topological

from stead import _native
from stead.testing import chain3, two_towers

UNLIMITED = np.full(2, 2**40, dtype=np.int64)


def i64(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("units", "message"),
    [([0, 1], "one per operator"), ([0, 1, 3], "numbers begin|leaves out"), ([0, 2, 2], "leaves out unit 1")],
)
def test_units_are_numbered_without_gaps(units: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.list_schedules(
            chain3().native, np.array(units, dtype=np.int32), variants=[], limit_bytes=UNLIMITED
        )


@pytest.mark.parametrize(
    "variant",
    [
        {"rule": "best"},
        {"rule": "heft", "bias": -1.0},
        {"rule": "heft", "bias": np.nan},
        {"rule": "heft", "average": "median"},
        {"rule": "heft", "foresight": -1.0},
        {"rule": "heft", "thrift": -1.0},
    ],
)
def test_variants_are_checked(variant: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        _native.ListVariant(**variant)


def test_limits_are_one_per_device() -> None:
    problem = chain3()
    with pytest.raises(ValueError, match="limit_bytes"):
        _native.list_schedules(problem.native, problem.units, variants=[], limit_bytes=UNLIMITED[:1])


@pytest.mark.parametrize("kind", ["rank", "depth", "level"])
def test_orders_are_topological(kind: str) -> None:
    problem = two_towers()
    assert is_topological(problem.graph, _native.topological_order(problem.native, kind=kind))


def test_depth_first_follows_a_tower_to_its_end() -> None:
    assert _native.topological_order(two_towers().native, kind="depth").tolist() == [0, 2, 1, 3, 4]


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ValueError, match="rank, depth or level"):
        _native.topological_order(chain3().native, kind="random")


def test_a_device_gives_away_its_tail() -> None:
    problem = chain3()
    found = _native.spill(
        problem.native, problem.units, devices=np.zeros(3, dtype=np.uint8), order=np.arange(3, dtype=np.int32),
        over_bytes=i64(5, 0), room_bytes=i64(0, 100),
    )  # fmt: skip
    assert (found.devices.tolist(), found.moved_units) == ([0, 1, 1], 2)  # every output has 4 bytes


def test_nothing_moves_where_nothing_has_room() -> None:
    problem = two_towers()
    kept = np.zeros(5, dtype=np.uint8)
    problem = problem.with_memory("d1", 1)
    found = _native.spill(
        problem.native, problem.units, devices=kept, order=np.arange(5, dtype=np.int32),
        over_bytes=i64(0, 0), room_bytes=i64(0, 0),
    )  # fmt: skip
    assert found.devices.tolist() == kept.tolist()


def refined(part_of: list[int], *, limit: list[list[int]], weight: list[list[int]]) -> list[int]:
    """Parts of the path 0 - 1 - 2 - 3 whose middle edge is light."""
    found = _native.refine_parts(
        first=i64(0, 1, 3, 5, 6),
        neighbour=i64(1, 0, 2, 1, 3, 2),
        edge_weight=i64(9, 9, 1, 1, 9, 9),
        weight=np.array(weight, dtype=np.int64),
        allowed=np.full(4, 3, dtype=np.uint64),
        part_of=np.array(part_of, dtype=np.int32),
        limit=np.array(limit, dtype=np.int64),
    )
    return [int(part) for part in found]


def test_an_overfull_part_gives_away_what_costs_least() -> None:
    assert refined([0, 1, 1, 1], limit=[[2], [2]], weight=[[1]] * 4) == [0, 0, 1, 1]


def test_a_vertex_moves_where_it_gains() -> None:
    # 0 joins 1; then 2 would make four of a limit of three, so 3 joins 2.
    assert refined([0, 1, 0, 1], limit=[[3], [3]], weight=[[1]] * 4) == [1, 1, 0, 0]


def test_every_constraint_counts() -> None:
    by_slice = [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert refined([0, 1, 0, 1], limit=[[1, 1], [1, 1]], weight=by_slice) == [0, 1, 0, 1]


def test_parts_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="part 2 of 2"):
        refined([0, 0, 0, 2], limit=[[4], [4]], weight=[[1]] * 4)
