"""Unrolled networks whose weights are operators."""

from __future__ import annotations

import numpy as np
import pytest

from stead.coarsen.colocation import forward_operators
from stead.coarsen.unrolled import first_readers, steps_of, weight_tensors
from stead.costs import Costs, Source
from stead.graph import FORWARD, Graph, GraphBuilder, TensorId
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.solvers import Budget, solver
from stead.solvers.build.schedules import groupings, mirrored_groupings, unrolled_groupings
from stead.testing import two_towers


def recurrent(steps: int, *, weight_bytes: int = 100, other_bytes: int = 10) -> Graph:
    """h1 = f(x, w), h2 = f(h1, w), ..., and backward: dh by gradient and w, dw by gradient and the state before."""
    build = GraphBuilder("recurrent")
    w = build.tensor(build.operator("w", colocate="w"), size_bytes=weight_bytes)
    state = build.tensor(build.operator("x"), size_bytes=other_bytes)
    states = [state]
    for step in range(1, steps + 1):
        state = build.tensor(build.operator(f"f{step}", reads=[states[-1], w]), size_bytes=4)
        states.append(state)
    loss = build.tensor(build.operator("loss", reads=[states[-1]]), size_bytes=4)
    gradient = build.tensor(build.operator("dloss", reads=[loss], phase="backward"), size_bytes=4)
    parts = []
    for step in range(steps, 0, -1):
        reads = [gradient, states[step - 1]]
        parts.append(build.tensor(build.operator(f"dw{step}", reads=reads, phase="backward"), size_bytes=weight_bytes))
        gradient = build.tensor(build.operator(f"dh{step}", reads=[gradient, w], phase="backward"), size_bytes=4)
    build.operator("update", reads=[w, *parts], phase="update", colocate="w")
    return build.build(refresh=False)


def test_a_weight_is_what_many_steps_read_from_outside() -> None:
    graph = recurrent(8)
    assert np.flatnonzero(weight_tensors(graph)).tolist() == [0]
    assert not weight_tensors(recurrent(7)).any()
    assert not weight_tensors(recurrent(8, other_bytes=101)).any()  # a mask that all steps read beside larger weights
    assert not weight_tensors(two_towers().graph).any()


def test_a_weight_goes_where_it_is_read_first() -> None:
    graph = recurrent(8)
    writer, reader = first_readers(graph, weight_tensors(graph))
    assert [graph.operator_names[v] for v in (*writer, *reader)] == ["w", "f1"]


def test_backward_operators_belong_to_the_step_that_read_the_same() -> None:
    graph = recurrent(8)
    of = {name: graph.operator_names[v] for name, v in zip(graph.operator_names, steps_of(graph), strict=True)}
    for step in range(1, 9):
        assert of[f"f{step}"] == of[f"dh{step}"] == of[f"dw{step}"] == f"f{step}"
    assert of["loss"] == of["dloss"] == "loss"
    assert of["update"] == "f8"  # it reads the gradient of the last step first


def exploded(problem: Problem) -> tuple[Graph, list[int]]:
    """A graph whose weights are operators and that does not say what is the twin of what; who its operators were."""
    graph, build = problem.graph, GraphBuilder("exploded")
    first, users = graph.weight_user_first, graph.weight_users.tolist()
    reads: list[list[TensorId]] = [[] for _ in range(len(graph))]
    was: dict[str, int] = {}
    for w, size in enumerate(graph.weight_bytes.tolist()):
        written = build.tensor(build.operator(f"w{w}"), size_bytes=size)
        for v in users[first[w] : first[w + 1]]:
            reads[v].append(written)
    made: dict[int, TensorId] = {}
    for v, phase in enumerate(graph.phases.tolist()):
        own = [made[t] for t in graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist()]
        operator = build.operator(f"o{v}", reads=[*reads[v], *own], phase=("forward", "backward", "update")[phase])
        was[f"o{v}"] = v
        for t in range(graph.tensor_first[v], graph.tensor_first[v + 1]):
            made[t] = build.tensor(operator, size_bytes=int(graph.tensor_bytes[t]))
    again = build.build(refresh=False)
    return again, [was.get(name, -1) for name in again.operator_names]


def test_steps_of_a_grid_are_those_that_its_twins_tell() -> None:
    problem = load("zoo:lstm-grid?operators=1000,phase=train", "2x 3090").problem(Latency())
    graph, was = exploded(problem)
    assert weight_tensors(graph).any()
    twins, found = forward_operators(problem.graph), steps_of(graph)
    late = [v for v, old in enumerate(was) if old >= 0 and problem.graph.phases[old] == 1]
    same = np.mean([was[found[v]] == twins[was[v]] for v in late])
    assert len(late) > 400
    assert same > 0.9


def test_constructions_are_better_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = load("zoo:lstm-grid?operators=3000,hidden=256,vocabulary=1000,phase=train", "4x 3090").problem(Latency())
    graph, was = exploded(known)
    seconds = np.array([known.costs.seconds[old] if old >= 0 else np.full(4, 1e-6) for old in was])
    sources = np.full(seconds.shape, Source.IMPORTED, dtype=np.uint8)
    problem = Problem(graph, known.cluster, Costs(graph, known.cluster, seconds, sources=sources), objective=Latency())
    with_steps = solver("chunks").solve(problem, Budget()).objective_seconds
    monkeypatch.setattr("stead.solvers.build.schedules._step_groupings", lambda problem: [])
    assert with_steps < 0.96 * solver("chunks").solve(problem, Budget()).objective_seconds


@pytest.mark.parametrize("phase", ["train", "infer"])
def test_graphs_that_know_their_weights_are_grouped_as_before(phase: str) -> None:
    problem = load(f"zoo:lstm-grid?operators=300,phase={phase}", "2x 3090").problem(Latency())
    assert unrolled_groupings(problem) == []
    assert all(
        np.array_equal(one, other)
        for one, other in zip(mirrored_groupings(problem), groupings(problem)[-2:], strict=False)
    )
    assert (steps_of(problem.graph)[problem.graph.phases == FORWARD] >= 0).all()
