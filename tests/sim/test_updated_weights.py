"""What updated weights cost on their way to readers elsewhere, worked out by hand.

Links take 0.5 s and 2 bytes a second: 4 bytes (an activation, a gradient) cross in 2.5 s, the weight of 8 in 4.5 s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.graph.weights import resident_bytes
from stead.problem import Latency, Objective, Placement, Problem, Throughput
from stead.sim import lower_bounds, simulate
from stead.solvers import Budget
from stead.solvers.exact.exhaustive import Exhaustive
from stead.testing.tiny import tiny_cluster

SECONDS = {"f": 1.0, "b": 2.0, "u": 1.0}


def step(objective: Objective | None = None, *, devices: int = 2, backward_reads: bool = True) -> Problem:
    """f (1 s) -> b (2 s) -> u (1 s): f, and b if wanted, read a weight of 8 bytes, u updates it with its moments."""
    build = GraphBuilder("step")
    f = build.operator("f")
    b = build.operator("b", reads=[build.tensor(f, size_bytes=4)], phase="backward", twin="f")
    u = build.operator("u", reads=[build.tensor(b, size_bytes=4)], phase="update")
    build.weight("w", size_bytes=8, users=[f, b, u] if backward_reads else [f, u])
    build.weight("w.moments", size_bytes=16, users=[u])
    graph, cluster = build.build(), tiny_cluster(devices)
    seconds = np.array([[SECONDS.get(name, 0.0)] * devices for name in graph.operator_names])
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=objective)


def placed(problem: Problem, f: int, b: int, u: int) -> Placement:
    on = {"f": f, "b": b, "u": u, "f.refresh": f, "b.refresh": b}
    return Placement(problem, [on[name] for name in problem.graph.operator_names])


@pytest.mark.parametrize(
    ("f", "b", "u", "seconds"),
    [
        (0, 0, 0, 4.0),  # 1 + 2 + 1
        (0, 0, 1, 11.0),  # 1 + 2, gradient 2.5, update 1, weight back 4.5, once for both readers
        (0, 1, 1, 11.0),  # 1, activation 2.5, 2 + 1, weight to f 4.5
        (0, 1, 0, 13.5),  # 1, 2.5, 2, gradient 2.5, update 1, weight to b 4.5
    ],
)
def test_a_step_ends_when_every_reader_has_the_new_weight(f: int, b: int, u: int, seconds: float):
    problem = step()
    assert simulate(problem, placed(problem, f, b, u)).objective_seconds == seconds


def test_where_only_one_operator_reads_the_weight_only_its_device_gets_it():
    problem = step(backward_reads=False)
    assert simulate(problem, placed(problem, 0, 1, 0)).objective_seconds == 9.0  # 1 + 2.5 + 2 + 2.5 + 1, nothing more


def test_readers_on_two_devices_get_it_once_each():
    at_once, in_turn = step(devices=3), step(Latency("sequential"), devices=3)
    # 1, activation 2.5, 2, gradient 2.5, update 1, then the weight over two links of their own.
    assert simulate(at_once, placed(at_once, 0, 1, 2)).objective_seconds == 13.5
    assert simulate(in_turn, placed(in_turn, 0, 1, 2)).objective_seconds == 18.0


def test_a_gradient_computed_elsewhere_crosses_to_the_update():
    problem = step(Latency("sequential"))
    trace = simulate(problem, placed(problem, 0, 0, 1))
    names = problem.graph.tensor_names
    assert trace.timeline is not None
    assert [names[t] for t in trace.timeline.transfers.tensor.tolist()] == ["b", "w.updated"]
    assert trace.objective_seconds == 4.0 + 2.5 + 4.5


def test_a_full_pipeline_pays_for_the_weight_at_both_ends():
    problem = step(Throughput())
    # d0: 1 + 2, sends the gradient 2.5, gets the weight 4.5; d1: 1 + 2.5 + 4.5.
    assert simulate(problem, placed(problem, 0, 0, 1)).objective_seconds == 10.0


@pytest.mark.parametrize("microbatches", [1, 2, 4])
def test_micro_batches_share_one_update_and_one_way_back(microbatches: int):
    problem = step(Throughput(microbatches=microbatches))
    # m times 3 s of work, then once the sum of the gradients 2.5, the update 1 and the weight 4.5.
    expected = (3.0 * microbatches + 2.5 + 1.0 + 4.5) / microbatches
    assert simulate(problem, placed(problem, 0, 0, 1)).objective_seconds == pytest.approx(expected)


def test_the_state_of_the_optimiser_is_where_the_update_is():
    problem = step()
    on = placed(problem, 0, 0, 1).devices
    assert resident_bytes(problem.graph, on, 2).tolist() == [8, 8 + 16]
    trace = simulate(problem, placed(problem, 0, 0, 1))
    # d0: the weight, and either two tensors of 4 or the new weight on its way; d1: the same with the moments.
    assert trace.peak_bytes.tolist() == [8 + 8, 24 + 4 + 8]


@pytest.mark.parametrize(
    "objective", [Latency(), Latency("sequential"), Throughput(), Throughput(microbatches=2)], ids=str
)
def test_bounds_and_the_exact_solver_know_of_it(objective: Any):
    """f may only be on d0 and u on d1, so that the way back is part of every answer."""
    problem = step(objective)
    seconds = problem.costs.seconds.copy()
    seconds[problem.graph.index("f"), 1] = seconds[problem.graph.index("u"), 0] = np.inf
    graph, cluster = problem.graph, problem.cluster
    forced = Problem(graph, cluster, Costs(graph, cluster, seconds), objective=objective)
    best = min(simulate(forced, placed(forced, 0, b, 1)).objective_seconds for b in (0, 1))
    solution = Exhaustive().solve(forced, Budget())
    assert solution.objective_seconds == best
    assert all(bound.seconds <= best for bound in lower_bounds(forced))
    if isinstance(objective, Latency):
        assert max(bound.seconds for bound in lower_bounds(forced)) >= 4.0 + 2.5 + 4.5
