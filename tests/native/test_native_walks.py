"""Walks in the core: zero weights are HEFT to the bit, any weights give a schedule, threads change nothing."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from orders import is_topological

from stead import GraphBuilder, ProgramOrder, _native
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.learn.walk.made_problems import AMPLE_BYTES, FAMILIES, HELD_OUT, Scope, made_problem
from stead.learn.walk.walk_rules import Grounds, weight_count
from stead.learn.walk.walk_steps import ANEW, Again, Step
from stead.problem import Problem
from stead.sim import simulate_many
from stead.solvers.build.schedules import Schedule
from stead.testing import two_towers

SEEDS = range(24)
ORDER = np.arange(5, dtype=np.int32)[None, :]
SHAPES = [(bias, foresight, average) for bias in (1.0, 2.0, 0.5) for foresight in (0.0, 1.0) for average in
          ("mean", "min", "best")]  # fmt: skip


def made(seed: int) -> Grounds:
    """A small problem of any family; one in four has little memory."""
    return Grounds(made_problem(seed, Scope(tuple(FAMILIES), least=30, most=200)).problem)


def random_rules(count: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(scale=0.3, size=(count, weight_count()))


def found(walks: list[_native.Walk]) -> list[tuple[object, ...]]:
    return [(walk.ticks, walk.over_bytes, walk.devices.tobytes(), walk.order.tobytes()) for walk in walks]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_with_zero_weights_is_heft(seed: int) -> None:
    grounds = made(seed)
    almost = np.zeros((1, weight_count()))
    almost[0, -1] = 1e-300  # so little that it moves nothing: the queue is used, and leads to the order of ranks
    for number, units in enumerate(grounds.unit_groups):
        heft = _native.list_schedules(
            grounds.problem.native,
            units,
            variants=[
                _native.ListVariant(rule="heft", bias=bias, foresight=foresight, average=average)
                for bias, foresight, average in SHAPES
            ],
            limit_bytes=grounds.limit_bytes,
        )
        variants = [Step(0, *shape).native(retime=False) for shape in SHAPES]
        wanted = [(one.ticks, one.devices.tobytes(), one.order.tobytes()) for one in heft]
        for weights in (np.zeros((1, weight_count())), almost):
            walks = grounds.walk(number, weights, variants)
            assert [(one.ticks, one.devices.tobytes(), one.order.tobytes()) for one in walks] == wanted


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_whatever_the_weights_a_walk_is_a_schedule_as_the_simulator_scores_it(seed: int) -> None:
    grounds = made(seed)
    for number in range(len(grounds.unit_groups)):
        for walk in grounds.walk(number, random_rules(4), [Step(rule).native() for rule in range(4)]):
            assert is_topological(grounds.problem.graph, walk.order)
            units = grounds.unit_groups[number]
            firsts = np.unique(units, return_index=True)[1]
            assert np.array_equal(walk.devices, walk.devices[firsts][units])
            scores = simulate_many(grounds.problem, walk.devices[None, :], policy=ProgramOrder(walk.order))
            assert bool(scores.feasible[0]) == (walk.over_bytes == 0)
            assert scores.seconds[0] == pytest.approx(walk.ticks * 1e-12, rel=1e-12)
            assert walk.simulations == 3


def test_threads_do_not_change_what_is_found_and_seeds_do() -> None:
    grounds = made(5)
    variants = [Step(n % 3).native(noise=0.5, seed=n) for n in range(40)]
    one, many = (found(grounds.walk(0, random_rules(3), variants, threads=threads)) for threads in (1, 4))
    assert one == many
    assert len(set(one)) > 3


def test_orders_by_ranks_at_the_chosen_devices_are_taken_only_if_they_are_better() -> None:
    better = 0
    for seed in SEEDS:
        grounds = made(seed)
        walked, tried = (
            grounds.walk(0, random_rules(1), [Step(0).native(retime=retime)])[0] for retime in (False, True)
        )
        assert np.array_equal(walked.devices, tried.devices)
        assert (tried.over_bytes, tried.ticks) <= (walked.over_bytes, walked.ticks)
        assert tried.retimed == ((tried.over_bytes, tried.ticks) < (walked.over_bytes, walked.ticks))
        better += tried.retimed
    assert better > 0


def test_a_walk_that_clings_keeps_the_devices_of_its_guide_and_orders_them_anew() -> None:
    better = 0
    for seed in SEEDS:
        grounds = made(seed)
        guide = grounds.walk(0, random_rules(1), [Step(0).native(retime=False)])[0]
        known, step = Schedule(guide.devices, guide.order), Again(cling=1e6).after(Step(0))
        kept = grounds.walk(0, random_rules(1), [step.native(retime=False)], guide=known)[0]
        assert is_topological(grounds.problem.graph, kept.order)
        if grounds.problem.cluster.devices[0].memory_bytes == AMPLE_BYTES:
            assert np.array_equal(kept.devices, guide.devices)
        better += kept.ticks < guide.ticks
    assert better > 0


def test_no_rule_fills_a_device_beyond_its_memory_while_another_has_room() -> None:
    build = GraphBuilder()
    for n in range(4):
        build.weight(f"w{n}", size_bytes=10, users=(build.operator(f"v{n}"),))
    graph = build.build()
    names = ("d0", "d1")
    cluster = Cluster(tuple(Device(name, memory_bytes=20) for name in names), link_all(names, bytes_per_second=1e9))
    grounds = Grounds(Problem(graph, cluster, Costs(graph, cluster, np.ones((4, 2)))))
    for walk in grounds.walk(0, random_rules(20), [Step(rule).native() for rule in range(20)]):
        assert np.bincount(walk.devices, minlength=2).tolist() == [2, 2]
        assert walk.over_bytes == 0


def test_zero_weights_and_two_towers_take_a_tower_per_device() -> None:
    grounds = Grounds(two_towers())
    walk = grounds.walk(0, np.zeros((1, weight_count())), [Step(0).native()])[0]
    assert walk.ticks == 7_500_000_000_000
    assert (walk.devices[0], walk.devices[1]) == (walk.devices[2], walk.devices[3])


def test_time_that_is_up_leaves_walks_unbuilt() -> None:
    problem = made_problem(1, Scope(("layered",), least=30_000, most=40_000)).problem
    walks = Grounds(problem).walk(0, np.zeros((1, weight_count())), [Step(0).native()], seconds=0.0)
    assert [walk.ticks for walk in walks] == [-2]


def test_tables_keep_their_problem_alive() -> None:
    grounds = made(2)
    tables, limit = grounds.tables(0), grounds.limit_bytes
    del grounds
    gc.collect()
    walks = _native.walks(tables, np.zeros((1, weight_count())), variants=[Step(0).native()], limit_bytes=limit)
    assert walks[0].ticks > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.zeros((1, 3))}, "shape"),
        ({"weights": np.full((1, weight_count()), np.nan)}, "weights must lie"),
        ({"variants": [Step(1).native()]}, "names rule 1"),
        ({"variants": [Step(-1).native()]}, "names rule -1"),
        ({"limit_bytes": np.zeros(1, np.int64)}, "limit_bytes needs 2"),
        ({"limit_bytes": np.full(2, -1)}, "negative"),
        ({"seconds": np.nan}, "seconds"),
        ({"threads": -1}, "threads"),
        ({"variants": [ANEW.after(Step(0)).native()]}, "names guide 0"),
        ({"guide_devices": np.zeros((1, 5), np.uint8)}, "devices and orders"),
        ({"guide_devices": np.zeros((1, 4), np.uint8), "guide_orders": ORDER}, "guide_devices needs shape"),
        ({"guide_devices": np.zeros((2, 5), np.uint8), "guide_orders": ORDER}, "guide_orders needs shape"),
        ({"guide_devices": np.full((1, 5), 9, np.uint8), "guide_orders": ORDER}, "device"),
        ({"guide_devices": np.zeros((1, 5), np.uint8), "guide_orders": ORDER[:, ::-1].copy()}, "topological"),
    ],
)
def test_walks_are_checked(change: dict[str, Any], message: str) -> None:
    given = {
        "weights": np.zeros((1, weight_count())), "variants": [Step(0).native()],
        "limit_bytes": np.full(2, 2**40), **change,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        _native.walks(Grounds(two_towers()).tables(0), given.pop("weights"), **given)


@pytest.mark.parametrize(
    "wrong",
    [{"bias": -1.0}, {"foresight": np.nan}, {"noise": -0.1}, {"average": "median"}, {"tail": -1.0}, {"cling": np.inf}],
)
def test_variants_of_walks_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        _native.WalkVariant(**wrong)


@pytest.mark.parametrize("forward", [[0, 1], [0, 1, 2, 3, 5], [0, 1, 2, 3, -1]])
def test_forward_operators_are_checked(forward: list[int]) -> None:
    problem = two_towers()
    with pytest.raises(ValueError, match="forward_of"):
        _native.WalkTables(problem.native, problem.units, np.array(forward, np.int32))


def test_held_out_families_are_among_those_that_zero_weights_were_tried_on() -> None:
    families = {made_problem(seed, Scope(tuple(FAMILIES), least=30, most=200)).family for seed in SEEDS}
    assert families & set(HELD_OUT)
