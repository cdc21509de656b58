"""Policy placeto: the published simulator, to the bit, in the reference and in the core."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead.errors import BadGraph, BadInput
from stead.sim.published_placeto import (
    PlacetoGraph,
    PlacetoNode,
    PlacetoResult,
    simulate_placeto,
    simulate_placeto_many,
)
from stead.sim.spec.published_placeto import simulate_placeto_reference

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "placeto_sim_cases.json"


def run(engine: str, nodes: list[PlacetoNode], placement: list[int], devices: int) -> PlacetoResult:
    if engine == "reference":
        return simulate_placeto_reference(nodes, placement, devices)
    return simulate_placeto(PlacetoGraph(nodes), placement, devices)


def facts(result: PlacetoResult) -> tuple[float, list[float], list[float]]:
    return result.makespan_us, result.start_us.tolist(), result.peak_bytes.tolist()


# --- what the published code said ---


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    if not PUBLISHED.exists():
        pytest.skip(f"the outputs of the published simulator are not here: {PUBLISHED}")
    cases: dict[str, Any] = json.loads(PUBLISHED.read_text())  # keeps 0 and 0.0 apart
    return cases


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_every_published_output_is_reproduced_to_the_bit(engine: str, published: dict[str, Any]) -> None:
    wrong = []
    for number, case in enumerate(published["cases"]):
        nodes = published["graphs"][case["graph"]]["nodes"]
        makespan, start, peak = facts(run(engine, nodes, list(map(int, case["placement"])), case["D"]))
        digest = hashlib.sha256(",".join(map(repr, start)).encode()).hexdigest()
        same_start = digest == case["sha256_starts_repr"] and start == case.get("start", start)
        if (makespan, peak, same_start) != (case["makespan"], case["peak_mem"], True):
            wrong.append((number, case["graph"], case["D"], case["kind"]))
    assert len(published["cases"]) == 184
    assert wrong == []


# --- by hand ---

both = pytest.mark.parametrize("engine", ["native", "reference"])


@both
def test_the_makespan_includes_the_gap_after_the_last_operator(engine: str) -> None:
    assert run(engine, [("a", 10, [8], [])], [0], 1).makespan_us == 15.7


@both
def test_only_the_integer_zero_pays_no_gap(engine: str) -> None:
    nodes: list[PlacetoNode] = [("a", 0, [76], []), ("b", 0.0, [76], ["a"]), ("c", 7, [76], ["b"])]
    assert facts(run(engine, nodes, [0, 0, 0], 1))[:2] == (5.7 + 7 + 5.7, [0, 0, 5.7])


@both
def test_one_transfer_reaches_all_devices_at_once(engine: str) -> None:
    readers: list[PlacetoNode] = [(name, 1, [0], ["a"]) for name in "bcd"]
    assert run(engine, [("a", 10, [760_000], []), *readers], [0, 1, 2, 3], 4).start_us.tolist() == [
        0,
        110,
        110,
        110,
    ]


@both
def test_the_bus_rests_after_a_transfer(engine: str) -> None:
    nodes: list[PlacetoNode] = [("a", 10, [7600, 7600], []), ("b", 1, [0], ["a:0"]), ("c", 1, [0], ["a:1"])]
    assert run(engine, nodes, [0, 1, 1], 2).start_us.tolist() == [0, 11, 11 + 25 + 1]


@both
def test_outputs_are_sent_in_the_order_of_their_first_remote_readers(engine: str) -> None:
    nodes: list[PlacetoNode] = [
        ("a", 10, [7600, 7600], []),
        ("here", 1, [0], ["a:0"]),
        ("b", 1, [0], ["a:1"]),
        ("c", 1, [0], ["a:0"]),
    ]
    assert run(engine, nodes, [0, 0, 1, 1], 2).start_us.tolist() == [0, 15.7, 11, 37]


@both
def test_a_reader_of_two_outputs_waits_for_the_one_named_last(engine: str) -> None:
    nodes: list[PlacetoNode] = [("a", 10, [7_600_000, 760], []), ("b", 1, [0], ["a:0", "a:1"])]
    assert run(engine, nodes, [0, 1], 2).start_us.tolist() == [0, 10.1]


@both
def test_a_control_edge_moves_the_first_output(engine: str) -> None:
    nodes: list[PlacetoNode] = [("a", 10, [7_600_000], []), ("b", 1, [0], ["^a"])]
    assert run(engine, nodes, [0, 1], 2).start_us.tolist() == [0, 1010]


@both
def test_an_output_that_is_not_listed_is_empty(engine: str) -> None:
    nodes: list[PlacetoNode] = [("a", 10, [7_600_000], []), ("b", 1, [0], ["a:3"])]
    assert run(engine, nodes, [0, 1], 2).start_us.tolist() == [0, 10]


@both
def test_readers_that_become_ready_together_queue_by_name(engine: str) -> None:
    nodes: list[PlacetoNode] = [("a", 10, [0], []), ("z", 1, [0], ["a"]), ("b", 1, [0], ["a"])]
    assert run(engine, nodes, [0, 0, 0], 1).start_us.tolist() == [0, 15.7 + 1 + 5.7, 15.7]


@both
def test_device_10_comes_before_device_2(engine: str) -> None:
    nodes: list[PlacetoNode] = [
        ("a", 0, [0], []),
        ("z", 0, [0], []),
        ("from_a", 1, [0], ["a"]),
        ("from_z", 1, [0], ["z"]),
    ]
    assert run(engine, nodes, [2, 10, 5, 5], 11).start_us.tolist() == [0, 0, 6.7, 0]


@both
def test_the_order_of_the_file_need_not_be_topological(engine: str) -> None:
    nodes: list[PlacetoNode] = [("b", 20, [0], ["a"]), ("a", 10, [76_000], [])]
    assert run(engine, nodes, [1, 0], 2).start_us.tolist() == [20, 0]


@both
def test_an_output_is_held_until_its_last_reader_is_nearly_done(engine: str) -> None:
    # a holds 100 bytes from 0 to 15 + 5 - 1; b holds 50 at 15.7 only, because nobody reads it
    nodes: list[PlacetoNode] = [("a", 10, [60, 40], []), ("b", 5, [50], ["a"])]
    assert run(engine, nodes, [0, 0], 1).peak_bytes.tolist() == [150]


@both
def test_received_copies_take_no_memory(engine: str) -> None:
    nodes: list[PlacetoNode] = [("a", 10, [100], []), ("b", 5, [0], ["a"])]
    assert run(engine, nodes, [0, 1], 2).peak_bytes.tolist() == [100, 0]


@both
def test_an_empty_graph_takes_no_time(engine: str) -> None:
    assert facts(run(engine, [], [], 2)) == (0, [], [0, 0])


# --- the core is the reference ---

COSTS = st.sampled_from([0, 0, 0.0, 1, 1, 2, 7, 0.1, 5.7, 13.37])
SIZES = st.sampled_from([0, 0, 1, 76, 7600, 0.5, 0.1, 123_456])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[PlacetoNode], list[int], int]:
    """Graphs with ties, several outputs and inputs of one parent, control edges; up to twelve devices."""
    count = draw(st.integers(0, 12))
    names = [f"n{i}" for i in draw(st.permutations(range(count)))]
    nodes: list[PlacetoNode] = []
    for v in range(count):
        inputs = []
        for parent in draw(st.lists(st.sampled_from(names[:v]), max_size=4)) if v else []:
            inputs.append(draw(st.sampled_from(["{}", "{}:0", "{}:1", "{}:2", "^{}"])).format(parent))
        nodes.append((names[v], draw(COSTS), draw(st.lists(SIZES, max_size=3)), inputs))
    devices = draw(st.sampled_from([1, 2, 3, 12]))
    placement = draw(st.lists(st.integers(0, devices - 1), min_size=count, max_size=count))
    order = draw(st.permutations(range(count)))
    return [nodes[v] for v in order], [placement[v] for v in order], devices


@given(cases())
def test_the_core_equals_the_reference(case: tuple[list[PlacetoNode], list[int], int]) -> None:
    assert facts(run("native", *case)) == facts(run("reference", *case))


@given(cases(), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_batch_equals_its_rows_for_any_number_of_threads(
    case: tuple[list[PlacetoNode], list[int], int], rows: int, seed: int
) -> None:
    nodes, _, devices = case
    graph = PlacetoGraph(nodes)
    placements = np.random.default_rng(seed).integers(0, devices, (rows, len(graph)), dtype=np.uint8)
    one_by_one = [simulate_placeto(graph, row, devices) for row in placements]
    for threads in (1, 2, 7):
        scores = simulate_placeto_many(graph, placements, devices, threads=threads)
        assert scores.makespan_us.tolist() == [result.makespan_us for result in one_by_one]
        assert scores.peak_bytes.tolist() == [result.peak_bytes.tolist() for result in one_by_one]


def test_peaks_are_left_out_on_request() -> None:
    graph = PlacetoGraph([("a", 10, [8], [])])
    scores = simulate_placeto_many(graph, np.zeros((3, 1), np.uint8), 2, memory="off")
    assert (scores.makespan_us.tolist(), scores.peak_bytes.tolist()) == ([15.7] * 3, [[-1, -1]] * 3)


def test_results_do_not_share_memory_and_placements_stay() -> None:
    graph = PlacetoGraph([("a", 10, [8], []), ("b", 10, [8], ["a"])])
    placement = np.array([0, 1])
    first = simulate_placeto(graph, placement, 2)
    kept = facts(first)
    simulate_placeto(graph, [0, 0], 2)
    assert (facts(first), placement.tolist()) == (kept, [0, 1])


# --- what makes no sense ---


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("a", 1, [], []), ("a", 1, [], [])], "two nodes are called 'a': nodes 0 and 1"),
        ([("alpha", 1, [], []), ("b", 1, [], ["alpah"])], "'b' reads 'alpah', but .* did you mean 'alpha'"),
        ([("a", 1, [], ["a"])], "a cycle: 'a'"),
        ([("a", 1, [], ["b"]), ("b", 1, [], ["a"])], "a cycle: 'a'"),
        ([("a", -1, [], [])], "the cost of 'a' must be .* at least 0"),
        ([("a", math.nan, [], [])], "the cost of 'a'"),
        ([("a", math.inf, [], [])], "the cost of 'a'"),
        ([("a", 10**400, [], [])], "the cost of 'a'"),
        ([("a", True, [], [])], "the cost of 'a' must be an int or float"),
        ([("a", "1", [], [])], "the cost of 'a' must be an int or float"),
        ([("a", 1, [1, -8], [])], "output 1 of 'a'"),
        ([("a", 1, [math.inf], [])], "output 0 of 'a'"),
        ([("a", 1, 8, [])], "the outputs of 'a' must be a list"),
        ([("a", 1, "8", [])], "the outputs of 'a' must be a list"),
        ([("a", 1, [], "b")], "the inputs of 'a' must be a list of strings"),
        ([("a", 1, [], [0])], "the inputs of 'a' must be a list of strings"),
        ([("a", 1, [], ["b:x"])], "input 'b:x' of 'a' is not of the form"),
        ([("a", 1, [], [""])], "input '' of 'a' is not of the form"),
        ([("a:1", 1, [], [])], "node 0 needs a name"),
        ([("^a", 1, [], [])], "node 0 needs a name"),
        ([("", 1, [], [])], "node 0 needs a name"),
        ([("\ud800", 1, [], [])], "node 0 needs a name"),
        ([(1, 1, [], [])], "node 0 needs a name"),
        ([("a", 1, [])], "node 0 must be"),
        (["abcd"], "node 0 must be"),
        ([7], "node 0 must be"),
        ([("a", 2**52, [], []), ("b", 2**52, [], [])], "cost_us must add up to less than"),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused(nodes: Any, message: str) -> None:
    with pytest.raises(BadGraph, match=message):
        PlacetoGraph(nodes)


@pytest.mark.parametrize(
    ("placement", "devices", "message"),
    [
        ([0, 2], 2, "operator 'b': no device 2; they are 0..1"),
        ([-1, 0], 2, "operator 'a': no device -1"),
        ([0, 256], 2, "operator 'b': no device 256"),
        ([0], 2, r"shape \[2\] are needed, got int64 of shape \[1\]"),
        ([[0, 0]], 2, r"shape \[2\] are needed"),
        ([0.0, 1.0], 2, "got float64"),
        ("01", 2, "are needed"),
        ([0, 0], 0, "number of devices must lie in 1..64, got 0"),
        ([0, 0], 65, "number of devices must lie in 1..64, got 65"),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(placement: Any, devices: int, message: str) -> None:
    graph = PlacetoGraph([("a", 1, [8], []), ("b", 1, [8], ["a"])])
    with pytest.raises(BadInput, match=message):
        simulate_placeto(graph, placement, devices)


def test_a_batch_names_the_row_that_makes_no_sense() -> None:
    graph = PlacetoGraph([("a", 1, [8], []), ("b", 1, [8], ["a"])])
    with pytest.raises(BadInput, match="row 1, operator 'b': no device 5"):
        simulate_placeto_many(graph, [[0, 1], [0, 5]], 2)


def test_an_unknown_memory_mode_and_negative_threads_are_refused() -> None:
    graph = PlacetoGraph([("a", 1, [8], [])])
    with pytest.raises(BadInput, match="memory must be 'peak' or 'off'"):
        simulate_placeto_many(graph, [[0]], 1, memory="all")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="threads must be 0"):
        simulate_placeto_many(graph, [[0]], 1, threads=-1)
