"""Costs corrected by times of whole placements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stead import (
    BadInput,
    Cluster,
    Costs,
    Device,
    GraphBuilder,
    Placement,
    Problem,
    Source,
    link_all,
    simulate,
)
from stead.run.calibrate import Seen, calibrated, seconds_of
from stead.solvers import Budget, solver
from stead.testing import two_towers


def seen(truth: Problem, rows: list[list[int]]) -> list[Seen]:
    placements = [Placement(truth, row) for row in rows]
    return [Seen(one, simulate(truth, one).objective_seconds) for one in placements]


def scaled(problem: Problem, factors: list[float]) -> Problem:
    seconds = problem.costs.seconds * np.array(factors)
    made = Costs(problem.graph, problem.cluster, seconds, sources=problem.costs.sources)
    return Problem(problem.graph, problem.cluster, made)


def branches(sources: Source = Source.ANALYTIC) -> Problem:
    """Two kinds side by side, four operators of each, on two devices."""
    build = GraphBuilder("branches")
    ends = []
    for kind in ("conv", "matmul"):
        last = None
        for n in range(4):
            made = build.operator(f"{kind}{n}", kind=kind, reads=[] if last is None else [last])
            last = build.tensor(made, size_bytes=1000)
        ends.append(last)
    build.operator("join", kind="add", reads=ends)
    graph = build.build()
    names = ["d0", "d1"]
    cluster = Cluster(tuple(map(Device, names)), link_all(names, bytes_per_second=1e4, latency_seconds=0.1))
    seconds = np.ones((9, 2))
    return Problem(graph, cluster, Costs(graph, cluster, seconds, sources=np.full((9, 2), sources, dtype=np.uint8)))


def test_nothing_seen_leaves_everything_as_it_was_believed() -> None:
    problem = two_towers()
    found = calibrated(problem, [])
    assert np.array_equal(found.problem.costs.seconds, problem.costs.seconds)
    assert all(factor.value == 1.0 and factor.source == "prior" for factor in found.factors)


def test_single_devices_give_the_speed_of_every_device() -> None:
    problem = two_towers()
    truth = scaled(problem, [3.0, 0.5])
    found = calibrated(problem, seen(truth, [[0] * 5, [1] * 5]))
    by_name = {factor.name: factor for factor in found.factors if factor.what == "device"}
    assert by_name["d0"].value == pytest.approx(3.0, rel=2e-3)  # 1 % error against a prior of a factor e
    assert by_name["d1"].value == pytest.approx(0.5, rel=2e-3)
    assert by_name["d0"].source == "measured"
    assert found.error < 1e-3 < found.prior_error


def test_an_unmeasured_link_keeps_its_prior_and_its_doubt() -> None:
    problem = two_towers()
    found = calibrated(problem, seen(problem, [[0] * 5, [1] * 5]))
    links = [factor for factor in found.factors if factor.what in ("latency", "bandwidth")]
    assert [factor.value for factor in links] == pytest.approx([1.0, 1.0])
    assert all(factor.error == pytest.approx(factor.prior_error, rel=1e-6) for factor in links)


def test_a_slow_link_is_seen_by_placements_that_cross() -> None:
    problem = two_towers()
    slow = tuple(replace(link, bytes_per_second=link.bytes_per_second / 2) for link in problem.cluster.links)
    cluster = replace(problem.cluster, links=slow)
    truth = Problem(problem.graph, cluster, Costs(problem.graph, cluster, problem.costs.seconds))
    rows = [[0] * 5, [1] * 5, [0, 1, 0, 1, 0], [0, 1, 1, 0, 1], [0, 0, 0, 0, 1]]
    found = calibrated(problem, seen(truth, rows))
    crossing = Placement(found.problem, [1, 0, 1, 0, 1])
    assert simulate(found.problem, crossing).objective_seconds == pytest.approx(4 + 4.5 + 1, rel=0.02)
    assert simulate(problem, Placement(problem, [1, 0, 1, 0, 1])).objective_seconds == 7.5


def test_kinds_are_told_apart_by_placements_that_part_them() -> None:
    problem = branches()
    seconds = problem.costs.seconds.copy()
    seconds[:4, 1] *= 2.0  # conv on d1
    truth = Problem(problem.graph, problem.cluster, Costs(problem.graph, problem.cluster, seconds))
    rows = [[0] * 9, [1] * 9, [1] * 4 + [0] * 5, [0] * 4 + [1] * 5, [1] * 4 + [0] * 4 + [1], [1, 1, 0, 0] + [0] * 5]
    found = calibrated(problem, seen(truth, rows))
    corrected = found.problem.costs.seconds
    assert corrected[0, 1] / corrected[4, 1] == pytest.approx(2.0, rel=0.1)
    assert found.error < 0.2 * found.prior_error
    new = [1, 0, 1, 0] + [0] * 5  # never seen
    told = simulate(found.problem, Placement(found.problem, new)).objective_seconds
    assert told == pytest.approx(simulate(truth, Placement(truth, new)).objective_seconds, rel=0.03)


def test_what_a_profile_has_measured_moves_with_the_drift_of_its_device_alone() -> None:
    problem = branches(Source.MEASURED)
    found = calibrated(problem, seen(scaled(problem, [1.05, 1.05]), [[0] * 9, [1] * 9]))
    assert not [factor for factor in found.factors if factor.what == "kind"]
    assert found.problem.costs.seconds[0, 0] == pytest.approx(1.05, rel=0.01)
    assert found.problem.costs.source == Source.MEASURED


def test_draws_lie_where_measurements_leave_doubt() -> None:
    problem = two_towers()
    found = calibrated(problem, seen(problem, [[0] * 5]))
    rng = np.random.default_rng(0)
    logs = np.log([found.drawn(rng).costs.seconds[0] / problem.costs.seconds[0] for _ in range(200)])
    assert logs[:, 0].std() < 0.05  # measured
    assert 0.8 < logs[:, 1].std() < 1.2  # as the prior has it


def test_placements_in_orders_of_their_own_are_timed_in_them() -> None:
    problem = two_towers()
    found = [solver(name).solve(problem, Budget(None, 50), 0).placement for name in ("heft", "auto", "single")]
    expected = [simulate(problem, one).objective_seconds for one in found]
    assert seconds_of(problem, found).tolist() == expected


def test_a_time_that_cannot_be_is_refused() -> None:
    problem = two_towers()
    with pytest.raises(BadInput, match="positive number of seconds"):
        calibrated(problem, [Seen(Placement(problem, [0] * 5), 0.0)])
