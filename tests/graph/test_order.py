"""Levels and ranks on graphs one can draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import graphs

from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import Graph
from stead.graph.order import bottom_levels, levels, upward_ranks
from stead.problem import Constraints, Latency, Problem
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


@pytest.mark.parametrize(
    "bound",
    [
        Constraints(pin=(("l2", "d0"),)),
        Constraints(forbid=(("l2", "d0"),)),
        Constraints(colocate=(("l1", "l2"),)),  # l1 can run on d1 alone, so that l2 is bound to it, too
    ],
)
def test_constraints_do_not_change_who_goes_first(bound: Constraints) -> None:
    towers = two_towers()  # l1, r1, l2, r2, head
    seconds = np.array([[np.inf, 2.0], [2.0, 2.0], [1.0, 9.0], [3.0, 3.0], [1.0, 1.0]])
    free = Problem(towers.graph, towers.cluster, Costs(towers.graph, towers.cluster, seconds), objective=Latency())
    rank = upward_rank(free).tolist()
    assert rank[4] == 1.0
    assert rank[2] - rank[3] == 2.0  # (1 + 9) / 2 and 3 before the same head
    assert upward_rank(free.with_constraints(bound)).tolist() == rank


def test_upward_ranks_are_those_of_list_scheduling() -> None:
    problem = two_towers()
    own = upward_ranks(problem.graph, problem.costs.seconds[:, 0], np.full(problem.graph.tensor_count, 2.5))
    assert own.tolist() == upward_rank(problem).tolist()


def test_ranks_need_a_number_per_operator() -> None:
    with pytest.raises(BadInput, match="seconds must be 3 numbers"):
        upward_ranks(chain3().graph, [1, 2])
