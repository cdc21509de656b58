"""Levels and ranks on graphs one can draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import graphs

from stead.errors import BadInput
from stead.graph import Graph
from stead.graph.order import bottom_levels, levels, upward_ranks
from stead.sim.ranks import upward_rank
from stead.testing import chain3, diamond, two_towers

FEWER = settings(max_examples=settings.default.max_examples * 2 // 5)


def test_levels_count_edges_from_the_front_and_from_the_back() -> None:
    graph = two_towers().graph  # l1, r1, l2, r2, head
    assert levels(graph).tolist() == [0, 0, 1, 1, 2]
    assert bottom_levels(graph).tolist() == [2, 2, 1, 1, 0]


@FEWER
@given(graphs())
def test_levels_rise_along_edges_by_the_longest_way(graph: Graph) -> None:
    level, below = levels(graph), bottom_levels(graph)
    for v in range(len(graph)):
        before = [level[u] for u, w in graph.edges.tolist() if w == v]
        behind = [below[w] for u, w in graph.edges.tolist() if u == v]
        assert level[v] == max(before, default=-1) + 1
        assert below[v] == max(behind, default=-1) + 1


def test_ranks_of_a_chain_add_operators_and_transfers() -> None:
    graph = chain3().graph  # a(1) -> b(2) -> c(1), 2.5 s between devices
    assert upward_ranks(graph, [1, 2, 1]).tolist() == [4, 3, 1]
    assert upward_ranks(graph, [1, 2, 1], [2.5, 2.5, 2.5]).tolist() == [9, 5.5, 1]


def test_ranks_follow_the_longer_branch() -> None:
    graph = diamond().graph  # a(1) -> b(2), c(3) -> d(1)
    assert upward_ranks(graph, [1, 2, 3, 1]).tolist() == [5, 3, 4, 1]


def test_upward_ranks_are_those_of_list_scheduling() -> None:
    problem = two_towers()
    own = upward_ranks(problem.graph, problem.costs.seconds[:, 0], np.full(problem.graph.tensor_count, 2.5))
    assert own.tolist() == upward_rank(problem).tolist()


def test_ranks_need_a_number_per_operator() -> None:
    with pytest.raises(BadInput, match="seconds must be 3 numbers"):
        upward_ranks(chain3().graph, [1, 2])
