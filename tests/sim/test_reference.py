"""Numbers worked out by hand, asked of the specification and of the core alike."""

from __future__ import annotations

import numpy as np
import pytest
from hand import ask, small

from stead import testing
from stead.problem import Priority, Problem, ProgramOrder
from stead.problem.in_ticks import Tables, ticks

ENGINES = pytest.mark.parametrize("engine", ["reference", "native"])
CONTENTIONS = ("none", "link", "pair", "sender", "receiver", "bus")


def policies_problem() -> Problem:
    return small([5, 2, 3, 4, 6], [(0, [1], 1000), (3, [4], 1000)], latency_us=1)


def memory_problem(capacities: list[int] | None = None) -> Problem:
    return small(
        [10, 10, 10, 10],
        [(0, [1, 2], 4000), (1, [3], 100), (2, [3], 200), (3, [], 50)],
        latency_us=1,
        kept=[3],
        weights=[(1000, [0]), (2000, [1]), (500, [0, 2])],
        workspace=300,
        capacities=capacities,
    )


@ENGINES
def test_fifo_runs_by_arrival_and_not_by_index(engine: str) -> None:
    outcome = ask(engine, policies_problem(), [1, 0, 0, 0, 1])
    assert outcome.start_us == [0, 7, 0, 3, 9]
    assert outcome.makespan_us == 15


@ENGINES
def test_priority_runs_the_lowest_position_first(engine: str) -> None:
    policy = Priority(np.array([2, 3, 1, 0, 4]))
    outcome = ask(engine, policies_problem(), [1, 0, 0, 0, 1], policy)
    assert outcome.start_us == [0, 7, 4, 0, 6]
    assert outcome.makespan_us == 12


@ENGINES
def test_program_order_waits_although_a_later_operator_is_ready(engine: str) -> None:
    outcome = ask(engine, policies_problem(), [1, 0, 0, 0, 1], ProgramOrder())
    assert outcome.start_us == [0, 7, 9, 12, 18]
    assert outcome.makespan_us == 24


def transfers_problem() -> Problem:
    return small([1, 1, 9], [(0, [1], 8000), (0, [2], 1000)], latency_us=1)


@ENGINES
def test_channels_serve_in_the_order_of_tensors(engine: str) -> None:
    outcome = ask(engine, transfers_problem(), [0, 1, 1])
    assert outcome.start_us == [0, 10, 11]
    assert outcome.makespan_us == 20


@ENGINES
def test_channels_serve_by_transfer_position_if_there_is_one(engine: str) -> None:
    outcome = ask(engine, transfers_problem(), [0, 1, 1], Priority(np.arange(3), np.array([1, 0])))
    assert outcome.start_us == [0, 12, 3]
    assert outcome.makespan_us == 13


@ENGINES
def test_channels_serve_as_listed_when_the_order_lists_sends(engine: str) -> None:
    first, second = 3 + 0 * 2 + 1, 3 + 1 * 2 + 1  # tensors 0 and 1 to device 1
    policy = ProgramOrder(np.array([0, second, first, 2, 1]), sends=True)
    outcome = ask(engine, transfers_problem(), [0, 1, 1], policy)
    assert outcome.start_us == [0, 12, 3]
    assert outcome.makespan_us == 13


@ENGINES
def test_ties_go_by_operator_index(engine: str) -> None:
    outcome = ask(engine, small([0, 3, 0, 2], [(0, [2], 0)], devices=1), [0, 0, 0, 0])
    assert outcome.order == [0, 1, 2, 3]
    assert outcome.start_us == [0, 0, 3, 3]


@ENGINES
def test_a_channel_is_booked_when_the_producer_finishes(engine: str) -> None:
    problem = small([10, 0, 1, 1], [(0, [2], 1000), (1, [3], 1000)], latency_us=1, contention="sender")
    outcome = ask(engine, problem, [0, 0, 1, 1])
    assert [begin / 1e6 for _, begin, _ in outcome.transfers.values()] == [10, 11]
    assert outcome.start_us == [0, 10, 12, 13]


@ENGINES
def test_a_channel_serves_equal_finishes_by_who_was_ready_first(engine: str) -> None:
    # v1 (ready at 1, 2 us) and v2 (ready at 0, 3 us) finish together at 3; v2 was ready first and sends first.
    problem = small(
        [1, 2, 3, 1, 1], [(0, [1], 0), (1, [3], 1000), (2, [4], 1000)], devices=4, contention="bus"
    )
    assert ask(engine, problem, [1, 1, 0, 2, 3]).start_us == [0, 1, 0, 5, 4]


@ENGINES
def test_a_gap_keeps_the_channel_busy(engine: str) -> None:
    problem = small(
        [10, 1, 1], [(0, [1], 7600), (0, [2], 7600)], latency_us=25, gap_us=25, bytes_per_second=7.6e9
    )
    assert ask(engine, problem, [0, 1, 1]).start_us == [0, 36, 62]


@ENGINES
def test_a_tensor_read_twice_on_a_device_is_sent_once(engine: str) -> None:
    problem = small(
        [10, 5, 5], [(0, [1, 2], 760_000)], latency_us=25, bytes_per_second=7.6e9, contention="sender"
    )
    outcome = ask(engine, problem, [0, 1, 1])
    assert len(outcome.transfers) == 1
    assert outcome.start_us == [0, 135, 140]
    assert outcome.peaks == [760_000, 760_000]


@ENGINES
@pytest.mark.parametrize(
    ("on", "makespan_us", "peaks"),
    [
        ([0, 0, 0, 0], 40, [8100, 0]),
        ([0, 1, 0, 0], 36.1, [6000, 6400]),
        ([0, 1, 1, 0], 46.2, [5800, 7100]),
    ],
)
def test_peaks_count_weights_outputs_copies_and_workspace(
    engine: str, on: list[int], makespan_us: float, peaks: list[int]
) -> None:
    outcome = ask(engine, memory_problem(), on)
    assert outcome.makespan_us == makespan_us
    assert outcome.peaks == peaks


def chain(count: int, devices: int, latency_us: float = 25) -> Problem:
    tensors = [(v, [v + 1], 76) for v in range(count - 1)]
    return small([6.7] * count, tensors, devices=devices, latency_us=latency_us, bytes_per_second=7.6e9)


@ENGINES
def test_a_chain_on_one_device_takes_the_sum_of_its_operators(engine: str) -> None:
    assert ask(engine, chain(1000, 1), np.zeros(1000, dtype=int)).makespan_us == 6700


@ENGINES
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize(("latency_us", "makespan_us"), [(25, 31_684.99), (0, 6_709.99)])
def test_a_chain_never_gains_from_going_round_the_devices(
    engine: str, devices: int, latency_us: float, makespan_us: float
) -> None:
    problem = chain(1000, devices, latency_us)
    assert ask(engine, problem, np.arange(1000) % devices).makespan_us == makespan_us


@ENGINES
@pytest.mark.parametrize("contention", CONTENTIONS)
def test_every_receiving_device_costs_a_transfer(engine: str, contention: str) -> None:
    problem = small(
        [10, 10, 20, 30, 40],
        [(0, [1, 2, 3, 4], 760_000)],
        devices=4,
        latency_us=25,
        bytes_per_second=7.6e9,
        contention=contention,
    )
    outcome = ask(engine, problem, [0, 1, 2, 3, 0])
    if contention in ("sender", "bus"):
        assert outcome.start_us == [0, 135, 235, 335, 10]
        assert outcome.makespan_us == 365
    else:
        assert outcome.start_us == [0, 135, 135, 135, 10]
        assert outcome.makespan_us == 165
    assert outcome.peaks[1:] == [760_000] * 3


@ENGINES
def test_a_control_dependency_moves_no_bytes(engine: str) -> None:
    tensors = [(0, [], 7_600_000), (0, [1], 0)]
    problem = small([10, 1], tensors, kept=[0], latency_us=25, bytes_per_second=7.6e9)
    outcome = ask(engine, problem, [0, 1])
    assert outcome.start_us == [0, 35]
    assert outcome.peaks == [7_600_000, 0]


@ENGINES
def test_an_operator_waits_for_every_tensor_it_reads(engine: str) -> None:
    tensors = [(0, [1, 2], 7_600_000), (0, [1, 3], 760)]
    problem = small([10, 5, 5, 5], tensors, latency_us=25, bytes_per_second=7.6e9)
    assert ask(engine, problem, [0, 1, 0, 1]).start_us == [0, 1035.1, 10, 1040.1]


@ENGINES
def test_the_run_ends_with_its_last_operator(engine: str) -> None:
    assert ask(engine, small([10], devices=1), [0]).makespan_us == 10


@ENGINES
@pytest.mark.parametrize("zero", [0, 0.0, np.float64(0), np.int64(0)])
def test_zero_seconds_mean_the_same_in_every_type(engine: str, zero: float) -> None:
    assert ask(engine, small([zero, 7], [(0, [1], 0)], devices=1), [0, 0]).makespan_us == 7


@ENGINES
def test_names_change_nothing(engine: str) -> None:
    tensors = [(0, [2], 1000), (1, [3], 1000)]
    plain = small([1, 1, 1, 1], tensors, latency_us=1, contention="bus")
    named = small([1, 1, 1, 1], tensors, latency_us=1, contention="bus", names=["10", "9", "b", "a"])
    assert ask(engine, plain, [0, 0, 1, 1]) == ask(engine, named, [0, 0, 1, 1])


@ENGINES
def test_a_shorter_operator_can_make_a_run_longer(engine: str) -> None:
    tensors = [(0, [1], 1000), (2, [3, 4], 1000), (3, [4], 1000)]
    assert ask(engine, small([5, 6, 6, 6, 6], tensors, latency_us=1), [1, 0, 0, 0, 1]).makespan_us == 20
    assert ask(engine, small([4, 6, 6, 6, 6], tensors, latency_us=1), [1, 0, 0, 0, 1]).makespan_us == 26


@ENGINES
@pytest.mark.parametrize(
    ("problem", "on", "seconds"),
    [
        (testing.chain3(), [0, 0, 0], 4),
        (testing.chain3(), [0, 1, 0], 9),
        (testing.diamond(), [0, 0, 0, 0], 7),
        (testing.diamond(), [0, 0, 1, 0], 10),
        (testing.diamond(), [0, 1, 1, 0], 12),
        (testing.two_towers(), [0, 0, 0, 0, 0], 9),
        (testing.two_towers(), [0, 1, 0, 1, 0], 7.5),
    ],
)
def test_tiny_problems_take_the_seconds_worked_out_by_hand(
    engine: str, problem: Problem, on: list[int], seconds: float
) -> None:
    assert ask(engine, problem, on).makespan_us == seconds * 1e6


def test_ticks_round_halves_to_even() -> None:
    assert [ticks(x * 1e-12) for x in (0.5, 1.5, 2.5, 3.4)] == [0, 2, 2, 3]


def test_an_operator_that_cannot_run_is_found_before_anything_runs() -> None:
    problem = small([1, 1], [(0, [1], 4)])
    tables = Tables(problem)
    tables.duration[1][1] = -1
    assert tables.unsupported([0, 1]) == 1
    assert tables.unsupported([1, 0]) is None


def test_a_tensor_without_a_route_is_found_before_anything_runs() -> None:
    tables = Tables(small([1, 1], [(0, [1], 4)]))
    tables.latency[0][1] = -1
    assert tables.unreachable([0, 1]) == (0, 1, 0)
    assert tables.unreachable([1, 0]) is None
