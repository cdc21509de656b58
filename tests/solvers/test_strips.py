"""Layers of unrolled networks, cut along time."""

from __future__ import annotations

import numpy as np

from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.solvers import Budget, solver
from stead.solvers.auto import Auto
from stead.solvers.search.search import schedule_of
from stead.solvers.search.strips import cut, layers, search_strips
from stead.solvers.search_state import Search
from stead.testing import two_towers


def grid(operators: int = 1000) -> Problem:
    return load(f"zoo:lstm-grid?operators={operators},phase=train", "2x A100-80GB + 2x 3090").problem(Latency())


def steps_of(problem: Problem, name: str) -> list[int]:
    """Operators of a layer in all steps, forward and backward."""
    return [v for v, one in enumerate(problem.graph.operator_names) if one.startswith(f"{name}#")]


def test_a_layer_is_what_shares_weights_in_all_steps_with_what_follows() -> None:
    problem = grid()
    layer = layers(problem)
    assert layer is not None
    found = [set(layer[steps_of(problem, name)].tolist()) for name in ("cells.0", "cells.1", "cells.2", "proj")]
    assert [len(one) for one in found] == [1, 1, 1, 1]
    assert len(set.union(*found)) == 4


def test_a_network_whose_weights_are_used_once_has_no_layers() -> None:
    assert layers(load("zoo:inception?operators=300,phase=train", "2x 3090").problem(Latency())) is None
    assert layers(two_towers(Latency())) is None


def test_pieces_of_a_layer_follow_each_other_in_time_and_hold_about_equal_work() -> None:
    problem = grid()
    layer = layers(problem)
    assert layer is not None
    strips = cut(problem, layer, 4)
    forward = [v for v in steps_of(problem, "cells.1") if problem.graph.operator_names[v].endswith("/gates")]
    pieces = strips.unit_of[forward]
    runs = 1 + np.count_nonzero(np.diff(pieces))
    assert runs == len(set(pieces.tolist())) > 1
    counts = np.unique(pieces, return_counts=True)[1]
    assert counts.max() - counts.min() <= 1


def test_what_belongs_together_backward_and_forward_is_in_one_piece() -> None:
    problem = grid()
    layer = layers(problem)
    assert layer is not None
    unit = dict(zip(problem.graph.operator_names, cut(problem, layer, 16).unit_of.tolist(), strict=True))
    assert unit["cells.0#2/gates"] == unit["cells.0#2/h"] == unit["cells.0#2/gates.backward"]


def test_strips_get_far_below_constructions_and_find_the_same_again() -> None:
    problem, found = grid(), []
    built = solver("chunks").solve(problem, Budget(), 0)
    for _ in range(2):
        search = Search(problem, Budget(evaluations=20_000), solver="strips", seed=0)
        schedules = search_strips(search, layers(problem), [schedule_of(built.placement, "chunks")], share=1.0)
        assert search.best_seconds <= min(one.seconds for one in schedules)
        found.append((search.best_seconds, search.evaluations))
    assert found[0] == found[1]
    assert found[0][0] < 0.95 * built.objective_seconds


def test_auto_says_where_a_network_is_not_unrolled() -> None:
    problem = load("zoo:inception?operators=300,phase=train", "2x 3090").problem(Latency())
    solution = Auto(exact=False).solve(problem, Budget(evaluations=300))
    assert {one.name: one.why_not for one in solution.phases}["strips"] == "no weight is used in many steps"
