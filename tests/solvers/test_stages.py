"""Stages of pipelines of micro-batches: cut with their backward operators, then shifted as a whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from stead.placing.loading import load
from stead.problem import Problem, Throughput
from stead.solvers import Budget, Search, solver
from stead.solvers.build.schedules import tied_units
from stead.solvers.search.stages import shift_stages
from stead.testing import tiny_problem
from stead.workloads import synthetic


def long_chain() -> Problem:
    """Eight operators of 10 s in a row on two equal devices; a tensor takes 2.5 s to cross."""
    names = [f"v{i}" for i in range(8)]
    reads = {name: [before] for before, name in pairwise(names)}
    return tiny_problem(dict.fromkeys(names, 10.0), reads, objective=Throughput(microbatches=4))


def test_a_border_is_shifted_to_where_both_devices_have_the_same_to_do() -> None:
    search = Search(long_chain(), Budget(), solver="test")
    search.offer([0, 1, 1, 1, 1, 1, 1, 1])
    shift_stages(search)
    assert search.best is not None
    assert search.best.tolist() in ([0, 0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0, 0])
    # 40 s until the second device begins, 2.5 s on the way, then 4 x 40 s there: 202.5 s for 4 micro-batches
    assert search.best_seconds == 202.5 / 4


def test_a_split_of_training_keeps_backward_operators_with_their_forward_ones() -> None:
    graph = synthetic("transformer", operators=120, training=True)
    problem = load(graph, "2x 3090").problem(Throughput(microbatches=4, schedule="1f1b"))
    found = solver("split").solve(problem, Budget(), 0)
    devices = found.placement.devices
    units = tied_units(problem)
    assert len(np.unique(devices)) == 2
    assert all(len(set(devices[units == unit].tolist())) == 1 for unit in range(int(units.max()) + 1))
