"""The order of transfers."""

from __future__ import annotations

import numpy as np
import pytest

from stead.cluster import Cluster, Device, link_both_ways
from stead.costs import Costs
from stead.graph import GraphBuilder
from stead.problem import Latency, Priority, Problem, ProgramOrder
from stead.solvers import Budget
from stead.solvers.search.transfers import order_transfers
from stead.solvers.search_state import Search


def problem() -> Problem:
    """One operator with three outputs for another device, where the reader of the last one takes long.

    Each output takes 1 s on the way. Sent as listed, `long` starts at 1 + 3 and ends at 4 + 10 = 14; sent first, it
    ends at 2 + 10 = 12 and the others, 1 s each, run behind it.
    """
    build = GraphBuilder()
    source = build.operator("source")
    outputs = [build.tensor(source, size_bytes=10) for _ in range(3)]
    for name, tensor in zip(("short", "brief", "long"), outputs, strict=True):
        build.operator(name, reads=(tensor,))
    graph = build.build()
    cluster = Cluster(
        (Device("g0"), Device("g1"), Device("g2")),
        tuple(
            link
            for one, other in (("g0", "g1"), ("g0", "g2"), ("g1", "g2"))
            for link in link_both_ways(one, other, bytes_per_second=10.0, latency_seconds=0.0)
        ),
        contention="sender",
    )
    seconds = np.repeat(np.array([1.0, 1.0, 1.0, 10.0])[:, None], 3, axis=1)
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=Latency())


def searched(tries: int) -> Search:
    """A search that holds the operators in the order listed: `long` alone on the third device."""
    search = Search(problem(), Budget(), solver="test")
    order = ProgramOrder(np.arange(4, dtype=np.int32))
    search.offer(np.array([0, 1, 1, 2], dtype=np.uint8), order=order)
    order_transfers(search, tries=tries)
    return search


def test_what_takes_long_behind_it_is_sent_first() -> None:
    assert searched(tries=50).best_seconds == pytest.approx(12.0)


def test_the_answer_says_the_order_of_transfers() -> None:
    order = searched(tries=50).best_order
    assert isinstance(order, Priority)
    assert order.transfer_position is not None


def test_without_tries_what_is_read_first_is_sent_first() -> None:
    assert searched(tries=0).best_seconds == pytest.approx(14.0)
