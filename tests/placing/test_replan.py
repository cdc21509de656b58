"""Plans whose devices change: what moves, how long that takes, and that it pays."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stead.cluster import Cluster, Device, cluster_from, link_all
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.graph import Graph, GraphBuilder
from stead.placing.place import place, place_problem
from stead.placing.recost import recosted, with_known_names
from stead.placing.replan import replan
from stead.placing.replan_text import replanned_lines, verdict
from stead.placing.weight_moves import LOADED_AGAIN, Removal
from stead.plan import Plan
from stead.problem import Placement, Problem
from stead.sim import simulate, simulate_many
from stead.solvers import Budget, Solution
from stead.workloads.demo import demo_graph

RATE = 100.0  # bytes per second of every link; 0.5 s latency


def chain(sizes: list[int]) -> Graph:
    """a -> b -> ..., each with a weight of its own; tensors of one byte."""
    build = GraphBuilder()
    reads: tuple[object, ...] = ()
    for n, size in enumerate(sizes):
        operator = build.operator(f"op{n}", reads=reads)  # type: ignore[arg-type]
        build.weight(f"w{n}", size_bytes=size, users=(operator,))
        reads = (build.tensor(operator, size_bytes=1),)
    return build.build()


def problem_of(graph: Graph, seconds: list[list[float]], memory: int = 10**6) -> Problem:
    names = [f"d{d}" for d in range(len(seconds[0]))]
    links = link_all(names, bytes_per_second=RATE, latency_seconds=0.5)
    cluster = Cluster(tuple(Device(name, memory_bytes=memory) for name in names), links)
    return Problem(graph, cluster, Costs(graph, cluster, seconds))


def planned(problem: Problem, devices: list[int]) -> Plan:
    placement = Placement(problem, devices)
    return Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))


def test_weights_come_from_the_device_that_held_them_and_else_are_loaded_again() -> None:
    problem = problem_of(chain([100, 300, 50]), [[1.0, 1.0]] * 3)
    removal = Removal(problem, np.array([0, 0, -1]), load_bytes_per_second=10.0)
    moving = removal.to(np.array([0, 1, 1], np.uint8))
    assert [(m.source, m.target, m.bytes, m.seconds) for m in moving.moves] == [
        (LOADED_AGAIN, 1, 50, 5.0), (0, 1, 300, 3.5),  # 0.5 s + 300 / 100
    ]  # fmt: skip
    assert (moving.seconds, moving.bytes) == (5.0, 350)  # both at the same time
    assert (moving.kept_bytes, moving.held_bytes, moving.kept_share) == (100, 400, 0.25)


def test_transfers_of_one_channel_wait_for_each_other() -> None:
    graph = chain([100, 100, 100])
    names = ["a", "b", "c"]
    links = link_all(names, bytes_per_second=RATE, latency_seconds=0.0)
    for contention, seconds in (("pair", 1.0), ("sender", 2.0)):
        cluster = Cluster(tuple(map(Device, names)), links, contention=contention)
        problem = Problem(graph, cluster, Costs(graph, cluster, [[1.0] * 3] * 3))
        moving = Removal(problem, np.array([0, 0, 0]), 1e9).to(np.array([0, 1, 2], np.uint8))
        assert moving.seconds == seconds, contention


def test_a_tied_weight_moves_once_to_a_device() -> None:
    build = GraphBuilder()
    a = build.operator("a")
    b = build.operator("b", reads=(build.tensor(a, size_bytes=1),))
    build.weight("tied", size_bytes=700, users=(a, b))
    problem = problem_of(build.build(), [[1.0, 1.0]] * 2)
    assert Removal(problem, np.array([0, 0]), 1e9).to(np.array([1, 1], np.uint8)).bytes == 700
    assert Removal(problem, np.array([0, 1]), 1e9).to(np.array([1, 1], np.uint8)).bytes == 0


def test_a_faster_device_is_used_only_where_moving_pays_within_the_steps() -> None:
    problem = problem_of(chain([1000, 1000]), [[3.0, 1.0], [3.0, 1.0]])
    plan = planned(problem, [0, 0])
    moved = 0.5 + 2000 / RATE  # 20.5 s, to save 4 s in every step
    few, enough = (replan(plan, problem.cluster, steps=steps, evaluations=200) for steps in (5, 6))
    assert few.chosen.placement.devices.tolist() == [0, 0]
    assert few.chosen.moving.moves == ()
    assert verdict(few) == ["nothing has to be moved"]
    assert enough.chosen.placement.devices.tolist() == [1, 1]
    assert enough.saved_seconds == pytest.approx(6 * 4.0 - moved)
    assert verdict(enough) == ["moves 2.0 KiB in 20.5 s; pays after 6 steps and saves 3.50 s over 6"]


def test_what_stood_on_a_lost_device_goes_elsewhere_and_the_rest_stays() -> None:
    problem = problem_of(chain([10, 20, 30]), [[1.0, 1.0, 1.0]] * 3)
    plan = planned(problem, [0, 1, 2])
    found = replan(plan, problem.cluster.without("d1"), steps=1, keep=1.0, evaluations=200)
    assert found.stay is not None
    assert found.stay.placement.devices[[0, 2]].tolist() == [0, 1]  # the second device is now d2
    assert found.chosen.moving.kept_share == 1.0
    assert [(m.source, m.bytes) for m in found.chosen.moving.moves] == [(LOADED_AGAIN, 20)]


def test_keep_is_kept_or_refused_with_what_is_possible() -> None:
    graph = chain([600, 600])
    plan = planned(problem_of(graph, [[1.0, 9.0]] * 2), [0, 0])
    smaller = problem_of(graph, [[1.0, 9.0]] * 2, memory=700).cluster
    found = replan(plan, smaller, evaluations=200)
    assert found.chosen.moving.kept_share == 0.5
    with pytest.raises(Infeasible, match=r"keeps 90% of the loaded bytes .*the most was 50\.0%: lower --keep"):
        replan(plan, smaller, keep=0.9, evaluations=200)


def test_costs_of_devices_that_stayed_are_kept_and_new_ones_are_priced() -> None:
    loaded = place(demo_graph(), "2x 3090", evaluations=20).problem
    after = with_known_names(loaded.cluster, cluster_from("4090 + 3090")[0])
    assert after.names == ("4090", "3090:0")
    again = recosted(loaded, after)
    assert np.array_equal(again.costs.seconds[:, 1], loaded.costs.seconds[:, 0])
    assert again.costs.seconds[:, 0].sum() < again.costs.seconds[:, 1].sum()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"keep": 1.5}, "keep is a share between 0 and 1"),
        ({"load_bytes_per_second": 0.0}, "more than 0 bytes per second"),
    ],
)
def test_options_that_make_no_sense_are_told(options: dict[str, float], why: str) -> None:
    plan = planned(problem_of(chain([1]), [[1.0]]), [0])
    with pytest.raises(BadInput, match=why):
        replan(plan, plan.problem.cluster, **options)  # type: ignore[arg-type]


@st.composite
def changes(draw: st.DrawFn) -> tuple[Plan, Cluster, int]:
    """A plan of a chain, and a cluster without some of its devices, with others slower and with less memory."""
    count, devices = draw(st.integers(2, 5)), draw(st.integers(2, 3))
    graph = chain(draw(st.lists(st.integers(0, 500), min_size=count, max_size=count)))
    seconds = [[float(draw(st.integers(1, 9))) for _ in range(devices)] for _ in range(count)]
    problem = problem_of(graph, seconds, memory=draw(st.sampled_from([700, 2000, 10**6])))
    rows = np.array(list(itertools.product(range(devices), repeat=count)), np.uint8)
    fitting = rows[simulate_many(problem, rows).feasible]
    if not len(fitting):
        problem, fitting = problem_of(graph, seconds), rows
    plan = planned(problem, fitting[draw(st.integers(0, len(fitting) - 1))].tolist())
    gone = draw(st.lists(st.integers(0, devices - 1), max_size=devices - 1, unique=True))
    cluster = problem.cluster.without(*(problem.cluster.names[d] for d in gone))
    return plan, cluster, draw(st.integers(1, 200))


def brute(plan: Plan, problem: Problem, before: NDArray[np.int64], steps: int) -> float:
    """The least total over all placements, in the order that the simulator takes by itself."""
    rows = np.array(list(itertools.product(range(len(problem.cluster)), repeat=len(problem.graph))), np.uint8)
    scores, removal = simulate_many(problem, rows), Removal(problem, before, 50.0)
    totals = [
        removal.to(row).seconds + steps * seconds
        for row, seconds, fits in zip(rows, scores.seconds.tolist(), scores.feasible.tolist(), strict=True)
        if fits
    ]
    return min(totals)


@settings(max_examples=25, deadline=None)
@given(changes())
def test_moving_never_costs_more_than_it_saves(change: tuple[Plan, Cluster, int]) -> None:
    plan, cluster, steps = change
    try:
        found = replan(plan, cluster, steps=steps, evaluations=60, load_bytes_per_second=50.0)
    except Infeasible:
        return
    trace = simulate(found.plan.problem, found.chosen.placement)
    assert trace.feasible
    assert trace.objective_seconds == found.chosen.step_seconds == found.plan.solution.objective_seconds
    assert found.plan.solution.bound_seconds <= found.chosen.step_seconds
    for other in (found.stay, found.free):
        if other is not None:
            assert found.chosen.total_seconds(steps) <= other.total_seconds(steps)
    if found.stay is not None:
        extra = found.chosen.moving.seconds - found.stay.moving.seconds
        assert extra <= steps * (found.stay.step_seconds - found.chosen.step_seconds) + 1e-9
    where = {name: d for d, name in enumerate(cluster.names)}
    before = np.array([where.get(plan.problem.cluster.names[d], -1) for d in plan.placement.devices.tolist()])
    least = brute(plan, found.plan.problem, before, steps)
    assert found.chosen.total_seconds(steps) >= least - 1e-9  # a chain has one order: nothing is below all placements
    assert replanned_lines(found)


def test_the_same_seed_gives_the_same_plan() -> None:
    plan = place_problem(problem_of(chain([5, 9, 700, 20]), [[2.0, 3.0, 1.0]] * 4), budget=Budget(None, 100))
    answers = [replan(plan, plan.problem.cluster.without("d2"), evaluations=100) for _ in range(2)]
    assert answers[0].chosen.placement.devices.tolist() == answers[1].chosen.placement.devices.tolist()
    assert answers[0].as_dict() == answers[1].as_dict()


def test_a_replanned_plan_is_saved_and_read_like_any_other(tmp_path: Path) -> None:
    plan = place(demo_graph(), "3090 + 3060", evaluations=50)
    found = replan(plan, cluster_from("3090 + 3080")[0], evaluations=60)
    found.plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again.solution.objective_seconds == found.chosen.step_seconds
    assert again.provenance["replanned"]["moved_bytes"] == found.chosen.moving.bytes
