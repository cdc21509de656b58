"""Schedules crossed from two others."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from stead.cluster import Cluster, Device, Link
from stead.costs import Costs
from stead.placing.loading import load
from stead.problem import Constraints, Latency, Problem
from stead.solvers.build.schedules import Schedule
from stead.solvers.search.crossing import crossed
from stead.testing import tiny_problem

NINE = "abcdefghi"


def chain(count: int = 9) -> Problem:
    """Operators of a second each, every one read by the next."""
    names = NINE[:count]
    return tiny_problem(dict.fromkeys(names, 1), {b: [a] for a, b in pairwise(names)})


def schedule(devices: list[int], seconds: float) -> Schedule:
    return Schedule(np.array(devices, dtype=np.uint8), np.arange(len(devices), dtype=np.int32), seconds=seconds)


def test_a_crossing_is_one_parent_in_a_stretch_of_time_and_the_other_elsewhere() -> None:
    # Devices are equal, and the second parent says the same of the first three operators with other names.
    parents = [schedule([0, 0, 0, 1, 1, 1, 0, 0, 0], 1.0), schedule([1, 1, 1, 1, 1, 0, 0, 1, 1], 2.0)]
    found = crossed(chain(), parents, 50, (0,))
    renamed = 1 - parents[1].devices  # as it agrees with the first parent on five operators so, and on four as it is
    assert found
    for one in found:
        other = np.flatnonzero(one.devices != parents[0].devices)
        assert (one.devices[other] == renamed[other]).all()
        assert one.order is parents[0].order
        assert one.seconds == np.inf


def test_crossings_are_the_same_for_the_same_seed_and_differ_for_others() -> None:
    parents = [schedule([0] * 9, 1.0), schedule([0, 1] * 4 + [0], 2.0)]
    one, again, other = (
        [crossing.devices.tolist() for crossing in crossed(chain(), parents, 4, seed)] for seed in ((1,), (1,), (2,))
    )
    assert one == again != other


def test_parents_that_agree_have_no_crossings() -> None:
    same = schedule([0, 1, 0, 1, 0, 1, 0, 1, 0], 1.0)
    assert crossed(chain(), [same], 6, (0,)) == []
    assert crossed(chain(), [same, replace(same, devices=1 - same.devices)], 6, (0,)) == []  # but for names


def test_units_stay_together() -> None:
    problem = load("zoo:lstm-grid?operators=300,phase=train", "2x 3090 + 3060").problem(Latency())
    rng, units = np.random.default_rng(0), problem.units
    rows = [rng.integers(3, size=problem.unit_count)[units].astype(np.uint8) for _ in range(3)]
    order = np.arange(len(units), dtype=np.int32)
    for one in crossed(problem, [Schedule(row, order) for row in rows], 20, (0,)):
        first = one.devices[np.unique(units, return_index=True)[1]]
        assert (one.devices == first[units]).all()


def test_what_is_pinned_or_forbidden_stays_so() -> None:
    """Devices that are equal but for a pin are not renamed into each other."""
    pinned = chain().with_constraints(Constraints(pin=(("c", "d0"),), forbid=(("h", "d0"),)))
    rng, rows = np.random.default_rng(0), []
    for _ in range(4):
        row = rng.integers(2, size=9)
        row[[2, 7]] = 0, 1
        rows.append(schedule(row.tolist(), 1.0))
    found = [one for seed in range(20) for one in crossed(pinned, rows, 6, (seed,))]
    assert len(found) > 50
    assert {(one.devices[2], one.devices[7]) for one in found} == {(0, 1)}


@pytest.mark.parametrize("back", [True, False])
def test_where_a_tensor_would_have_no_way_there_is_no_crossing(back: bool) -> None:
    # One parent goes from a to b and the other from b to a: without a link back only whole parents would do.
    problem = chain(2)
    devices = tuple(Device(name, kind="gpu", memory_bytes=2**20) for name in "xy")
    links = [Link("x", "y", 2.0, 0.5)] + ([Link("y", "x", 2.0, 0.5)] if back else [])
    cluster = Cluster(devices, tuple(links))
    seconds = np.array([[1.0, 2.0], [1.0, 3.0]])
    given = Problem(problem.graph, cluster, Costs(problem.graph, cluster, seconds), objective=Latency())
    found = crossed(given, [schedule([0, 0], 2.0), schedule([1, 1], 5.0)], 50, (0,))
    assert {tuple(one.devices.tolist()) for one in found} == ({(0, 1), (1, 0)} if back else {(0, 1)})
