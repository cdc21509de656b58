"""Training steps with a tied weight: what the all-reduce of its gradients costs, and which placement is best.

The hand-made model runs embed (1 us), middle (2 us) and head (3 us), and as long on the way back; embed and head share
a weight of 4 bytes, a byte takes 1 us between devices, and the update takes 2 us. Activations weigh nothing.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hand import ask

from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.graph import GraphBuilder, OperatorId
from stead.problem import Latency, Objective, Placement, Problem, Throughput
from stead.readers.common.tied_weights import Use, all_reduce
from stead.sim import lower_bounds, simulate
from stead.solvers import Budget, solver

WEIGHT = 4
UPDATE = 2.0
LAYERS = {"embed": 1.0, "middle": 2.0, "head": 3.0}
STEPS = [
    Throughput(microbatches=8, schedule="1f1b"),
    Throughput(microbatches=8, schedule="gpipe"),
]


def tied_step(
    objective: Objective, *, devices: int = 2, uses: tuple[str, ...] = ("embed", "head"), apart: bool = True
) -> Problem:
    """The step; without `apart` there is one update, and all uses must share a device."""
    build = GraphBuilder("tied")
    us: dict[str, float] = {}
    forward: dict[str, OperatorId] = {}
    backward: dict[str, OperatorId] = {}
    group = {name: name if apart or name not in uses else "tied" for name in LAYERS}
    before: list[OperatorId] = []
    for name, cost in LAYERS.items():
        forward[name] = build.operator(name, after=before, colocate=group[name])
        before, us[name] = [forward[name]], cost
    for name in reversed(LAYERS):
        backward[name] = build.operator(
            f"{name}.backward", after=before, colocate=group[name], phase="backward", twin=name
        )
        before, us[f"{name}.backward"] = [backward[name]], LAYERS[name]
    users = [forward[name] for name in uses]
    if apart:
        ends = [Use(name, name, "fp32", name, (backward[name],)) for name in uses]
        for name, own in zip(uses, all_reduce(build, "w", WEIGHT, ends), strict=True):
            update = build.operator(
                f"update@{name}", after=[own[-1]], colocate=name, phase="update", twin=name
            )
            users += [*own, update]
            us[f"update@{name}"] = UPDATE / len(uses)
    else:
        users.append(
            build.operator(
                "update", after=[backward[name] for name in uses], colocate="tied", phase="update"
            )
        )
        us["update"] = UPDATE
    build.weight("w", size_bytes=WEIGHT, users=users)
    graph = build.build()
    names = [f"gpu{d}" for d in range(devices)]
    cluster = Cluster(tuple(Device(name) for name in names), link_all(names, bytes_per_second=1e6))
    column = np.array([us.get(name, 0.0) for name in graph.operator_names]) * 1e-6
    return Problem(
        graph, cluster, Costs(graph, cluster, np.repeat(column[:, None], devices, axis=1)), objective=objective
    )


def where(problem: Problem, **devices: int) -> Placement:
    """Every operator on the device of its layer."""
    first = problem.graph.operator_names
    owner = [problem.graph.twins[v] if problem.graph.twins[v] >= 0 else v for v in range(len(first))]
    return Placement(problem, [devices[first[v]] for v in owner])


def step_us(problem: Problem, placement: Placement) -> float:
    """Microseconds of a step of 8 micro-batches."""
    trace = simulate(problem, placement)
    trace.check()
    return round(trace.objective_seconds * 8e6, 6)


@pytest.mark.parametrize("objective", STEPS)
def test_all_uses_on_one_device_take_as_long_as_one_update(objective: Throughput) -> None:
    apart, together = tied_step(objective), tied_step(objective, apart=False)
    values = [simulate(one, Placement(one, [0] * len(one.graph))) for one in (apart, together)]
    assert values[0].objective_ticks == values[1].objective_ticks
    assert values[0].objective_seconds * 8e6 == pytest.approx(8 * 12 + 2)
    assert values[0].peak_bytes.tolist() == values[1].peak_bytes.tolist() == [WEIGHT, 0]


@pytest.mark.parametrize("objective", STEPS)
def test_the_gradients_of_eight_microbatches_are_exchanged_once(objective: Throughput) -> None:
    # The first stage ends its last backward pass at 3 + 8 * 6 + 3 = 54; then 4 bytes go both ways at once, and each
    # device does its half of the update.
    problem = tied_step(objective)
    placement = where(problem, embed=0, middle=0, head=1)
    assert step_us(problem, placement) == 54 + 4 + 1
    trace = simulate(problem, placement)
    assert trace.timeline is not None
    sizes = trace.timeline.problem.graph.tensor_bytes
    moved = [int(sizes[tensor]) for tensor in trace.timeline.transfers.tensor]
    assert sorted(size for size in moved if size) == [WEIGHT, WEIGHT]


@pytest.mark.parametrize("objective", STEPS)
def test_the_best_of_all_placements_parts_embedding_and_head(objective: Throughput) -> None:
    problem = tied_step(objective)
    values = {}
    for embed, middle, head in product(range(2), repeat=3):
        placement = where(problem, embed=embed, middle=middle, head=head)
        assert placement.violations() == []
        trace = simulate(problem, placement)
        if trace.feasible:
            values[embed, middle, head] = round(trace.objective_seconds * 8e6, 6)
    best = min(values.values())
    assert best == 59
    assert {place for place, value in values.items() if value == best} == {(0, 0, 1), (1, 1, 0)}
    found = solver("exhaustive").solve(problem, Budget(evaluations=10_000))
    assert found.objective_seconds * 8e6 == pytest.approx(59)
    assert all(bound.seconds * 8e6 <= 59 * (1 + 1e-12) for bound in lower_bounds(problem))


def test_stages_in_pipeline_order_were_impossible_with_one_update() -> None:
    problem = tied_step(STEPS[0], apart=False)
    found = solver("exhaustive").solve(problem, Budget(evaluations=10_000))
    assert found.objective_seconds * 8e6 == pytest.approx(8 * 12 + 2)


@pytest.mark.parametrize(
    ("devices", "sent", "us"),
    [((0, 0, 0), 0, 12 + 2), ((0, 0, 1), 2, 12 + 4 + 4 / 3), ((0, 1, 2), 4, 12 + 8 + 2 / 3)],
)
def test_three_uses_send_two_gradients_for_every_device_but_one(
    devices: tuple[int, int, int], sent: int, us: float
) -> None:
    problem = tied_step(Latency(), devices=3, uses=("embed", "middle", "head"))
    placement = where(problem, **dict(zip(LAYERS, devices, strict=True)))
    trace = simulate(problem, placement)
    assert trace.timeline is not None
    sizes = problem.graph.tensor_bytes[trace.timeline.transfers.tensor]
    assert np.count_nonzero(sizes) == sent
    assert trace.objective_seconds * 1e6 == pytest.approx(us)


@pytest.mark.parametrize("devices", list(product(range(2), repeat=3)))
def test_the_core_runs_a_tied_step_as_the_specification_says(devices: tuple[int, int, int]) -> None:
    problem = tied_step(Latency())
    on = where(problem, **dict(zip(LAYERS, devices, strict=True))).devices
    assert ask("native", problem, on) == ask("reference", problem, on)


def test_each_device_with_a_use_holds_the_weight() -> None:
    problem = tied_step(Latency())
    apart = simulate(problem, where(problem, embed=0, middle=0, head=1))
    # The weight, and at the end a gradient that leaves and one that comes.
    assert apart.peak_bytes.tolist() == [3 * WEIGHT, 3 * WEIGHT]
