"""The decoder: changes judged between two checkpoints have the makespan of a full simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from orders import random_order
from strategies import CONTENTIONS, placed_problems, topological_orders

from stead import _native
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.problem import Problem
from stead.problem.in_ticks import Tables
from stead.sim.spec.engine import program_order
from stead.testing import two_towers
from stead.workloads.synthetic import synthetic

CARRIED = ("carried", "carried by some")
WAYS = [
    *((contention, by_reader) for contention in CONTENTIONS for by_reader in (False, True)),
    *((contention, False) for contention in CARRIED),  # by its sender, right behind the producer
]


def contended(contention: str, *, seed: int, devices: int = 3, operators: int = 90) -> Problem:
    """A layered graph on devices whose times differ and whose transfers queue, or are carried, as `contention` says."""
    graph = synthetic("layered", operators=operators, seed=seed)
    names = [f"d{d}" for d in range(devices)]
    links = link_all(names, bytes_per_second=5e9, latency_seconds=5e-6, gap_seconds=2e-6)
    if contention in CARRIED:
        slow = [
            replace(link, gap_seconds=0.0, carried_by="sender", latency_seconds=i * 1e-6)
            for i, link in enumerate(links)
        ]
        links = tuple(slow) if contention == "carried" else (*slow[:3], *links[3:])
        contention = "sender"
    cluster = Cluster(tuple(Device(name) for name in names), links, contention=contention)  # type: ignore[arg-type]
    seconds = np.random.default_rng(seed).choice([0.0, 1e-5, 5e-5, 2e-4], size=(len(graph), devices))
    return Problem(graph, cluster, Costs(graph, cluster, seconds))


def listed(problem: Problem, devices: NDArray[np.uint8], order: NDArray[np.int32]) -> NDArray[np.int32]:
    """The order with each transfer right before the operator that needs it first."""
    graph, known, items = problem.graph, set(), []
    reads: list[list[int]] = [[] for _ in range(len(graph))]
    for t, reader in zip(graph.tensor_of_read.tolist(), graph.readers.tolist(), strict=True):
        reads[reader].append(t)
    for v in order.tolist():
        for t in sorted(reads[v]):
            sent = (t, int(devices[v]))
            if devices[graph.tensor_producer[t]] != devices[v] and sent not in known:
                known.add(sent)
                items.append(len(graph) + t * len(problem.cluster) + sent[1])
        items.append(v)
    return np.array(items, dtype=np.int32)


def simulated(
    problem: Problem, rows: NDArray[np.uint8], order: NDArray[np.int32], by_reader: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """(ticks, status) under policy program_order."""
    scores = [
        _native.simulate_many(
            problem.native,
            row[None, :],
            policy="program_order",
            order=listed(problem, row, order) if by_reader else order,
            sends=by_reader,
            memory="off",
        )
        for row in rows
    ]
    return np.concatenate([one.ticks for one in scores]), np.concatenate([one.status for one in scores])


@pytest.mark.parametrize("by_reader", [False, True])
@given(st.data())
def test_decoding_is_simulating_in_program_order(by_reader: bool, data: Any) -> None:
    problem, devices = data.draw(placed_problems())
    order = data.draw(topological_orders(problem.graph))
    ticks, status = simulated(problem, devices[None, :], order, by_reader)
    assume(len(devices) and status[0] == 0 and not (by_reader and problem.native.carries))
    same = _native.decode_moves(
        problem.native,
        placement=devices,
        order=order,
        operators=np.zeros(1, np.int32),
        targets=devices[:1],
        kept=np.zeros(1, np.uint8),
        by_reader=by_reader,
    )
    assert same.tolist() == ticks.tolist()
    items = listed(problem, devices, order) if by_reader else order
    specified = program_order(Tables(problem), devices.tolist(), items.tolist(), sends=by_reader)
    assert same.tolist() == [specified.makespan]


@given(st.data())
def test_sends_are_listed_before_their_first_readers(data: Any) -> None:
    problem, devices = data.draw(placed_problems())
    order = data.draw(topological_orders(problem.graph))
    items = _native.list_sends(problem.native, placement=devices, order=order)
    assert items.tolist() == listed(problem, devices, order).tolist()


@pytest.mark.parametrize("by_reader", [False, True])
@given(st.data())
def test_a_small_change_is_judged_as_a_simulation_would(by_reader: bool, data: Any) -> None:
    problem, devices = data.draw(placed_problems())
    order = data.draw(topological_orders(problem.graph))
    assume(len(devices) and simulated(problem, devices[None, :], order)[1][0] == 0)
    assume(not (by_reader and problem.native.carries))
    v = data.draw(st.integers(0, len(devices) - 1))
    target = data.draw(st.integers(0, len(problem.cluster) - 1))
    moved = devices.copy()
    moved[v] = target
    judged = _native.decode_moves(
        problem.native,
        placement=devices,
        order=order,
        operators=np.array([v], np.int32),
        targets=moved[v : v + 1],
        kept=np.zeros(1, np.uint8),
        by_reader=by_reader,
    )
    assert judged.tolist() == simulated(problem, moved[None, :], order, by_reader)[0].tolist()


@pytest.mark.parametrize("window", [(0, 90), (30, 60)])
@pytest.mark.parametrize(("contention", "by_reader"), WAYS)
def test_haste_gives_up_too_much_but_never_says_what_is_wrong(
    contention: str, by_reader: bool, window: tuple[int, int]
) -> None:
    problem = contended(contention, seed=3)
    rng = np.random.default_rng(3)
    moves, order = 200, random_order(problem.graph, 3)
    placement = rng.integers(3, size=len(problem.graph)).astype(np.uint8)
    common: dict[str, Any] = {
        "placement": placement,
        "order": order,
        "operators": order[rng.integers(*window, size=moves)],
        "targets": rng.integers(3, size=moves).astype(np.uint8),
        "kept": np.zeros(moves, np.uint8),
        "by_reader": by_reader,
        "first": window[0],
        "last": window[1],
        "cutoff_ticks": int(simulated(problem, placement[None, :], order, by_reader)[0][0]),
    }
    exact = _native.decode_moves(problem.native, **common)
    hasty = _native.decode_moves(problem.native, **common, patience_ticks=0)
    patient = _native.decode_moves(problem.native, **common, patience_ticks=10**12)
    assert patient.tolist() == exact.tolist()
    assert ((hasty == exact) | (hasty == -1)).all()
    better = (exact >= 0) & (exact < common["cutoff_ticks"])
    assert better.sum() > 0
    assert (hasty[better] >= 0).mean() >= 0.5  # what it is for is found more often than not


@pytest.mark.parametrize("window", [(0, 90), (30, 60)])
@pytest.mark.parametrize(("contention", "by_reader"), WAYS)
@pytest.mark.parametrize("seed", [0, 1])
def test_changes_one_after_another_stay_exact(
    contention: str, seed: int, by_reader: bool, window: tuple[int, int]
) -> None:
    problem = contended(contention, seed=seed)
    rng = np.random.default_rng(seed)
    count, moves = len(problem.graph), 300
    order = random_order(problem.graph, seed)
    current = rng.integers(3, size=count).astype(np.uint8)
    operators = order[rng.integers(*window, size=moves)]
    targets = rng.integers(3, size=moves).astype(np.uint8)
    kept = (rng.random(moves) < 0.3).astype(np.uint8)
    judged = _native.decode_moves(
        problem.native,
        placement=current,
        order=order,
        operators=operators,
        targets=targets,
        kept=kept,
        by_reader=by_reader,
        first=window[0],
        last=window[1],
    )
    rows = []
    for v, target, keep in zip(operators, targets, kept, strict=True):
        row = current.copy()
        row[v] = target
        rows.append(row)
        current = row if keep else current
    assert judged.tolist() == simulated(problem, np.array(rows), order, by_reader)[0].tolist()


def test_two_towers_by_hand() -> None:
    problem = two_towers()  # l1, r1, l2, r2 of 2 s and head of 1 s; a crossing takes 2.5 s
    order = np.arange(5, dtype=np.int32)
    one_by_one = _native.decode_moves(
        problem.native,
        placement=np.zeros(5, np.uint8),
        order=order,
        operators=np.array([1, 3, 0], np.int32),
        targets=np.array([1, 1, 0], np.uint8),
        kept=np.array([1, 1, 1], np.uint8),
    )
    # r1 alone on d1 comes back at 4.5 s, so r2 ends at 6.5 s and the head at 7.5 s; with r2 the result comes at 6.5 s.
    assert (one_by_one / 1e12).tolist() == [7.5, 7.5, 7.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"placement": np.zeros(4, np.uint8)}, "placement needs 5 entries"),
        ({"placement": np.full(5, 2, np.uint8)}, "devices are 0..1"),
        ({"order": np.array([4, 0, 1, 2, 3], np.int32)}, "topological"),
        ({"order": np.array([0, 0, 1, 2, 3], np.int32)}, "permutation"),
        ({"operators": np.array([5], np.int32)}, "no operator 5"),
        ({"operators": np.array([-1], np.int32)}, "no operator -1"),
        ({"targets": np.array([2], np.uint8)}, "no device 2"),
        ({"kept": np.zeros(2, np.uint8)}, "same length"),
        ({"first": 3, "last": 3}, "0 <= first < last"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    given = {
        "placement": np.zeros(5, np.uint8),
        "order": np.arange(5, dtype=np.int32),
        "operators": np.array([1], np.int32),
        "targets": np.array([1], np.uint8),
        "kept": np.array([1], np.uint8),
    }
    with pytest.raises(ValueError, match=message):
        _native.decode_moves(two_towers().native, **{**given, **change})


def test_readers_cannot_ask_for_what_a_device_carries_itself() -> None:
    problem = contended("carried", seed=0)
    devices, order = np.zeros(len(problem.graph), np.uint8), random_order(problem.graph, 0)
    with pytest.raises(ValueError, match="carry tensors themselves"):
        _native.decode_moves(
            problem.native, placement=devices, order=order, operators=order[:1], targets=devices[:1],
            kept=np.zeros(1, np.uint8), by_reader=True,
        )  # fmt: skip
