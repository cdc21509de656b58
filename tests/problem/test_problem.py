"""Problem, Placement, Constraints, objectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stead
from stead.cluster import Cluster, Device
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.problem import (
    Constraints,
    Latency,
    Order,
    Placement,
    Priority,
    Problem,
    ProgramOrder,
    Throughput,
    matching,
)
from stead.sim import simulate
from stead.testing import chain3, diamond, two_towers


def test_a_placement_copies_what_it_is_given() -> None:
    devices = np.array([0, 1, 0])
    placement = Placement(chain3(), devices)
    devices[0] = 1
    assert placement.devices.tolist() == [0, 1, 0]


def test_a_placement_round_trips_by_name() -> None:
    placement = Placement(chain3(), [0, 1, 0])
    assert Placement.from_names(chain3(), placement.by_name()) == placement


@pytest.mark.parametrize(
    "devices", [[0, 1], [0, 1, 2], [0, 1, -1], [0.0, 1.0, 0.0], [2**32, 0, 0], [[0, 1, 0]], ["0", "1", "0"]]
)
def test_nonsense_placements_are_refused(devices: list[object]) -> None:
    with pytest.raises(BadInput):
        Placement(chain3(), devices)


def test_a_placement_by_name_must_be_complete() -> None:
    with pytest.raises(BadInput, match="leaves out 2 of 3 operators, first 'b'"):
        Placement.from_names(chain3(), {"a": "d0"})


def test_a_pin_leaves_one_device() -> None:
    problem = chain3().with_constraints(Constraints(pin=(("b", "d1"),)))
    assert problem.allowed.tolist() == [[True, True], [False, True], [True, True]]


def test_a_forbid_takes_one_device_away() -> None:
    problem = chain3().with_constraints(Constraints(forbid=(("*", "d0"),)))
    assert problem.allowed.tolist() == [[False, True]] * 3


def test_overlapping_groups_become_one_unit() -> None:
    problem = two_towers().with_constraints(Constraints(colocate=(("l*",), ("l2", "head"))))
    assert problem.units.tolist() == [0, 1, 0, 2, 0]


def test_a_pin_on_one_member_binds_its_unit() -> None:
    problem = chain3().with_constraints(Constraints(pin=(("a", "d1"),), colocate=(("a", "c"),)))
    assert problem.allowed.tolist() == [[False, True], [True, True], [False, True]]


def test_pins_that_contradict_each_other_are_infeasible() -> None:
    with pytest.raises(Infeasible, match="no device is left for operator 'a'") as caught:
        chain3().with_constraints(Constraints(pin=(("a", "d0"), ("a", "d1"))))
    assert caught.value.proved


def test_a_pattern_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(BadInput, match="no operator or module fits 'x\\*'"):
        matching(chain3().graph, "x*")


def test_constraints_can_be_taken_apart_and_put_together() -> None:
    constraints = Constraints((("a", "d0"),), (("b", "d1"),), (("a", "b"),))
    assert Constraints.of(constraints.items()) == constraints


def test_a_torn_unit_is_named() -> None:
    problem = chain3().with_constraints(Constraints(colocate=(("a", "c"),)))
    assert Placement(problem, [0, 0, 1]).violations() == [
        "'a' on d0 and 'c' on d1 must share a device (1 such group)"
    ]


def test_fingerprints_tell_objectives_apart() -> None:
    assert diamond().fingerprint != diamond(Throughput()).fingerprint


def test_offload_needs_a_host() -> None:
    with pytest.raises(BadInput, match='needs a device of kind "cpu"'):
        diamond(Latency(execution="offload"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Latency(execution="magic"),  # type: ignore[arg-type]
        lambda: Latency(pieces="some"),  # type: ignore[arg-type]
        lambda: Throughput(load="max"),  # type: ignore[arg-type]
        lambda: Throughput(microbatches=0),
        lambda: Throughput(schedule="zigzag"),  # type: ignore[arg-type]
        lambda: Priority([0.5]),  # type: ignore[arg-type]
        lambda: Priority([-1]),  # type: ignore[arg-type]
    ],
)
def test_nonsense_objectives_are_refused(make: object) -> None:
    with pytest.raises(BadInput):
        make()  # type: ignore[operator]


def test_costs_of_another_cluster_are_refused() -> None:
    problem = chain3()
    with pytest.raises(BadInput, match="costs are for 3 operators on 2 devices, the problem has 3 on 1"):
        Problem(problem.graph, Cluster((Device("d0"),)), problem.costs)


@pytest.mark.parametrize("order", [Priority([1, 0, 2, 3, 4]), ProgramOrder([1, 0, 2, 3, 4])])
def test_a_placement_runs_in_the_order_it_brings(order: Order) -> None:
    problem = two_towers()  # only r2 is elsewhere: r1 should run before l1, which arrival order does not know
    assert simulate(problem, Placement(problem, [0, 0, 0, 1, 0])).objective_seconds == 12.0
    assert simulate(problem, Placement(problem, [0, 0, 0, 1, 0], order)).objective_seconds == 10.0


def test_orders_tell_placements_apart() -> None:
    problem = two_towers()
    plain, ordered = (Placement(problem, [0] * 5, order) for order in (None, Priority([1, 0, 2, 3, 4])))
    assert plain != ordered
    assert ordered == Placement(problem, [0] * 5, Priority([1, 0, 2, 3, 4]))
    assert ordered.without_order == plain


@pytest.mark.parametrize(
    "objective", [Latency(order="policy"), Latency(execution="sequential"), Throughput()]
)
def test_an_order_needs_an_objective_that_honours_it(objective: Latency | Throughput) -> None:
    with pytest.raises(BadInput, match="cannot bring an order"):
        Placement(two_towers(objective), [0] * 5, Priority([0, 1, 2, 3, 4]))


def test_an_order_lists_every_operator() -> None:
    with pytest.raises(BadInput, match="lists 5 operators"):
        Placement(two_towers(), [0] * 5, Priority([0, 1]))


@pytest.mark.parametrize("execution", ["dataflow", "offload", "sequential"])
@pytest.mark.parametrize("seconds", [1e308, 5e6])
def test_times_beyond_what_the_core_counts_are_refused_in_one_line(execution: Any, seconds: float) -> None:
    loaded = stead.load("zoo:towers", "3090,cpu")
    table = loaded.problem(Latency()).costs.seconds.copy()
    table[3, 1] = seconds  # where nothing is placed
    costs = Costs(loaded.graph, loaded.cluster, table)
    problem = Problem(loaded.graph, loaded.cluster, costs, objective=Latency(execution))
    with pytest.raises(BadInput, match="2\\^62 picoseconds \\(53 days\\) or more"):
        simulate(problem, Placement(problem, [0] * len(loaded.graph)))
