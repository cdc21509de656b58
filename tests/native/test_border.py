"""The native border: wrong types, shapes and ranges are errors, never crashes."""

from __future__ import annotations

import gc
import signal
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead import _native
from stead.testing import two_towers


def arrays() -> dict[str, Any]:
    """Two operators with a tensor between them on two devices."""
    return {
        "seconds": np.ones((2, 2)),
        "workspace_bytes": np.zeros((2, 2), np.int64),
        "tensor_first": np.array([0, 1, 1], np.int32),
        "tensor_bytes": np.array([8], np.int64),
        "tensor_kept": np.array([0], np.uint8),
        "consumer_first": np.array([0, 1], np.int32),
        "consumer": np.array([1], np.int32),
        "weight_bytes": np.array([4], np.int64),
        "weight_user_first": np.array([0, 1], np.int32),
        "weight_user": np.array([0], np.int32),
        "latency_seconds": np.zeros((2, 2)),
        "bytes_per_second": np.ones((2, 2)),
        "gap_seconds": np.zeros((2, 2)),
        "channel": np.array([[0, 1], [2, 3]], np.int32),
        "memory_bytes": np.array([100, 100], np.int64),
        "tensor_seconds": np.zeros(0),
        "hops": np.ones((2, 2), np.int32),
        "phase": np.zeros(2, np.uint8),
        "host": np.zeros(2, np.uint8),
        "routing": 0,
        "host_latency_seconds": np.zeros((2, 2)),
        "host_bytes_per_second": np.ones((2, 2)),
    }


def test_the_plain_problem_runs() -> None:
    problem = _native.Problem(**arrays())
    scores = _native.simulate_many(problem, np.zeros((1, 2), np.uint8))
    assert (scores.ticks.tolist(), scores.status.tolist()) == ([2 * 10**12], [0])


def strided(array: np.ndarray) -> np.ndarray:
    """The same numbers with gaps between them."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


WRONG_ARRAYS = [
    (name, change)
    for name, array in arrays().items()
    for change in ("dtype", "short", "long", "dimension", "strided", "none", "text")
    if name != "routing"
    # an array of one element is contiguous whatever its stride
    and not (change == "strided" and strided(array).flags.c_contiguous)
]


@pytest.mark.parametrize(("name", "change"), WRONG_ARRAYS)
def test_a_wrong_array_is_an_error(name: str, change: str) -> None:
    given = arrays()
    array = given[name]
    if change == "dtype":
        given[name] = array.astype(np.float32)
    elif change == "short":
        given[name] = array[:-1] if array.size else np.zeros(3)
    elif change == "long":
        given[name] = np.concatenate([array, array]) if array.size else np.zeros(3)
    elif change == "dimension":
        given[name] = array[None]
    elif change == "strided":
        given[name] = strided(array)
    else:
        given[name] = None if change == "none" else "text"
    with pytest.raises((TypeError, ValueError)):
        _native.Problem(**given)


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("seconds", (0, 0), np.nan),
        ("seconds", (0, 0), -1.0),
        ("seconds", (0, 0), 1e300),
        ("workspace_bytes", (0, 0), -1),
        ("tensor_first", 1, 7),
        ("tensor_first", 0, -1),
        ("tensor_first", 2, 0),
        ("tensor_bytes", 0, -8),
        ("tensor_bytes", 0, 2**63 - 1),
        ("consumer_first", 1, 9),
        ("consumer", 0, 0),
        ("consumer", 0, 2),
        ("consumer", 0, -1),
        ("weight_bytes", 0, -4),
        ("weight_user_first", 1, 5),
        ("weight_user", 0, 2),
        ("latency_seconds", (0, 1), np.nan),
        ("latency_seconds", (0, 1), -1.0),
        ("bytes_per_second", (0, 1), 0.0),
        ("bytes_per_second", (0, 1), np.nan),
        ("gap_seconds", (0, 1), np.inf),
        ("channel", (0, 1), -3),
        ("memory_bytes", 0, -1),
        ("hops", (0, 1), -1),
        ("phase", 0, 3),
        ("host_latency_seconds", (0, 0), np.nan),
        ("host_bytes_per_second", (0, 0), -1.0),
    ],
)
def test_a_value_out_of_range_is_an_error(name: str, index: Any, value: Any) -> None:
    given = arrays()
    given[name][index] = value
    with pytest.raises(ValueError, match=r"\w"):
        _native.Problem(**given)


@pytest.mark.parametrize(
    "placements",
    [
        np.zeros(2, np.uint8),
        np.zeros((1, 3), np.uint8),
        np.zeros((1, 2), np.int64),
        np.full((1, 2), 2, np.uint8),
        np.zeros((2, 4), np.uint8)[:, ::2],
        None,
    ],
)
@pytest.mark.parametrize("call", ["simulate_many", "loads_many", "sequential_many", "offload_many"])
def test_a_wrong_placement_is_an_error(placements: Any, call: str) -> None:
    problem = _native.Problem(**arrays())
    with pytest.raises((TypeError, ValueError)):
        getattr(_native, call)(problem, placements)


WRONG_ORDERS = [
    (policy, order)
    for policy in ("priority", "program_order")
    for order in ([0], [0, 0], [1, 0], [0, 5], [-1, 0], [0, 1, 2])
    if (policy, order) != ("priority", [1, 0])  # any permutation is a priority
]


@pytest.mark.parametrize(("policy", "order"), WRONG_ORDERS)
def test_a_wrong_order_is_an_error(order: list[int], policy: str) -> None:
    problem = _native.Problem(**arrays())
    with pytest.raises(ValueError, match=r"\w"):
        _native.simulate(problem, np.zeros(2, np.uint8), policy=policy, order=np.array(order, np.int32))


@pytest.mark.parametrize("options", [{"policy": "lifo"}, {"memory": "some"}])
def test_an_unknown_word_is_an_error(options: dict[str, str]) -> None:
    problem = _native.Problem(**arrays())
    with pytest.raises(ValueError, match=r"\w"):
        _native.simulate_many(problem, np.zeros((1, 2), np.uint8), **options)


@given(data=st.data())
def test_no_change_of_any_number_crashes(data: st.DataObject) -> None:
    given = arrays()
    name = data.draw(st.sampled_from([name for name in given if name != "routing" and given[name].size]))
    array = given[name]
    position = data.draw(st.integers(0, array.size - 1))
    if array.dtype.kind == "f":
        value: Any = data.draw(st.floats())
    else:
        value = data.draw(st.integers(int(np.iinfo(array.dtype).min), int(np.iinfo(array.dtype).max)))
    array.reshape(-1)[position] = value
    try:
        problem = _native.Problem(**given)
    except ValueError:
        return
    rows = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.uint8)
    for policy in ("fifo", "priority", "program_order"):
        order = np.array([0, 1], np.int32)
        _native.simulate_many(
            problem, rows, policy=policy, order=None if policy == "fifo" else order, memory="peak"
        )
    _native.loads_many(problem, rows, memory="peak")
    _native.sequential_many(problem, rows, memory="peak")
    _native.offload_many(problem, rows, memory="peak")
    _native.earliest_finish(problem)


def test_no_function_answers_with_a_bare_tuple() -> None:
    stub = (Path(__file__).parents[2] / "src/stead/_core.pyi").read_text()
    assert "tuple[" not in stub


def test_an_array_keeps_the_result_that_it_belongs_to_alive() -> None:
    ticks = _native.simulate_many(_native.Problem(**arrays()), np.zeros((1, 2), np.uint8)).ticks
    gc.collect()
    assert ticks.tolist() == [2 * 10**12]


def test_an_exception_that_ended_a_search_can_be_collected_with_what_was_found() -> None:
    class Ended(Exception):  # one can refer to it weakly
        pass

    def end(*_: object) -> None:
        raise Ended

    def interrupted() -> weakref.ref[Ended]:
        problem = two_towers()
        starts = np.zeros((1, 5), np.uint8)
        found = _native.balance(problem.native, problem.units, load="sum", starts=starts, moves=2**40)
        assert isinstance(found.raised, Ended)
        try:
            raise found.raised  # from now on it knows this frame, which knows `found`
        except Ended as error:
            return weakref.ref(error)

    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        left = interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    gc.collect()
    assert left() is None
