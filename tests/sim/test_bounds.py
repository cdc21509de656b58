"""Lower bounds: worked by hand on tiny problems, and never above any placement of random ones."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems

from stead.cluster import Cluster, Device, link_both_ways
from stead.costs import Costs
from stead.errors import Infeasible
from stead.graph import GraphBuilder
from stead.problem import Latency, Objective, Priority, Problem, ProgramOrder, Throughput
from stead.problem.objectives import Load, Pieces
from stead.sim import lower_bounds, simulate_many
from stead.testing import chain3, diamond, two_towers
from stead.testing.tiny import tiny_cluster, tiny_problem

OBJECTIVES: tuple[Objective, ...] = (
    Latency(),
    Latency(policy=Priority()),
    Latency(policy=ProgramOrder()),
    Latency(execution="sequential"),
    Throughput(),
    Throughput("overlap"),
    Throughput("duplex"),
    Throughput("fwbw"),
    Throughput(microbatches=3),
)


def values(problem: Problem) -> dict[str, float]:
    return {bound.name: bound.seconds for bound in lower_bounds(problem)}


def test_the_path_of_a_chain_is_its_length() -> None:
    assert values(chain3())["critical path"] == 4.0


def test_the_area_of_two_towers_is_half_their_work() -> None:
    assert values(two_towers())["area"] == pytest.approx(4.5)


def test_a_path_pays_for_leaving_the_only_device_that_runs_it() -> None:
    problem = chain3()
    seconds = problem.costs.seconds.copy()
    seconds[0, 1] = seconds[1, 0] = np.inf  # a only on d0, b only on d1: 1 + 2.5 + 2 + 1
    pinned = Problem(problem.graph, problem.cluster, Costs(problem.graph, problem.cluster, seconds))
    assert values(pinned)["critical path"] == 6.5


def test_of_three_branches_between_two_operators_one_moves_or_none() -> None:
    # a(1) -> b, c, d (3 each) -> e(1): one branch on the other device takes 1 + 2.5 + 3 + 2.5 + 1, none 11
    reads = {"b": ["a"], "c": ["a"], "d": ["a"], "e": ["b", "c", "d"]}
    problem = tiny_problem({"a": 1, "b": 3, "c": 3, "d": 3, "e": 1}, reads)
    found = values(problem)
    best = best_placement_seconds(problem)
    assert found["blocks of a path"] == best == 10.0
    assert max(seconds for name, seconds in found.items() if name != "blocks of a path") < 10.0


def test_blocks_of_a_path_add_up() -> None:
    assert values(two_towers())["blocks of a path"] == 7.5
    assert values(diamond())["blocks of a path"] == 7.0
    assert "blocks of a path" not in values(diamond(Latency(execution="sequential")))
    assert "blocks of a path" not in values(diamond(Throughput(microbatches=2)))


def test_one_at_a_time_takes_all_work() -> None:
    assert values(diamond(Latency(execution="sequential")))["total work"] == pytest.approx(7.0)


def test_operators_that_share_a_device_share_its_time() -> None:
    build = GraphBuilder()
    for name in "ab":
        build.operator(name, colocate="together")
    graph = build.build()
    cluster = Cluster((Device("x"), Device("y")))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((2, 2))), objective=Throughput())
    assert values(problem)["largest unit"] == 2.0


def hub(reader_seconds: float, *, one_tensor: bool = False, load: Load = "sum") -> Problem:
    """a(1) is read by b, c and d, which take as long as is said, as a full pipeline; a crossing takes 2.5 s."""
    build = GraphBuilder()
    a = build.operator("a")
    tensors = [build.tensor(a, size_bytes=4) for _ in range(1 if one_tensor else 3)]
    for name, t in zip("bcd", 3 * tensors if one_tensor else tensors, strict=True):
        build.operator(name, reads=[t])
    graph, cluster = build.build(), tiny_cluster(3)
    seconds = np.repeat([[1.0]] + 3 * [[reader_seconds]], 3, axis=1)
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=Throughput(load))


def test_a_device_runs_the_neighbours_of_what_it_runs_or_sends_to_them() -> None:
    assert values(hub(2.0))["neighbours"] == 7.0  # all readers at 2 s are with a
    assert values(hub(3.0))["neighbours"] == 8.5  # each is sent in 2.5 s
    assert values(hub(3.0, one_tensor=True))["neighbours"] == 4.0  # a sends once, 3.5; a reader has a with it, 4


def test_neighbours_count_a_half_or_a_third_where_loads_overlap() -> None:
    assert values(hub(3.0, load="overlap"))["neighbours"] == 4.25
    assert values(hub(3.0, load="duplex"))["neighbours"] == pytest.approx(8.5 / 3, abs=1e-12)
    assert values(hub(3.0, load="fwbw"))["neighbours"] == 8.5
    assert "neighbours" not in values(two_towers(Throughput(microbatches=2)))


def test_work_on_several_devices_takes_a_crossing_beside_it() -> None:
    assert values(hub(9.0))["area and a crossing"] == pytest.approx(28 / 3 + 2.5, abs=1e-11)  # 28 s of work
    assert values(hub(0.5))["area and a crossing"] == 2.5  # all of it on one device; a third and 2.5 s are more
    assert "area and a crossing" not in values(hub(9.0, load="overlap"))
    assert "area and a crossing" not in values(several_alike([[1.0, 1.0]] * 3))  # nothing joins them


def test_what_may_not_run_beside_its_neighbour_is_sent() -> None:
    problem = hub(1.0)
    seconds = problem.costs.seconds.copy()
    seconds[0, 1:] = np.inf  # a on d0 alone, where b may not run: 1 + 2.5 + 1 + 1
    seconds[1, 0] = np.inf
    apart = Problem(
        problem.graph, problem.cluster, Costs(problem.graph, problem.cluster, seconds), objective=Throughput()
    )
    assert values(apart)["neighbours"] == 5.5


def several_alike(seconds: list[list[float]], *, memory_bytes: int = 100) -> Problem:
    """Operators of 10 bytes of weights each that have nothing to do with each other, as a full pipeline."""
    build = GraphBuilder()
    for v in range(len(seconds)):
        build.weight(f"w{v}", size_bytes=10, users=[build.operator(f"v{v}")])
    graph = build.build()
    cluster = Cluster(tuple(Device(f"d{d}", memory_bytes=memory_bytes) for d in range(len(seconds[0]))))
    return Problem(graph, cluster, Costs(graph, cluster, np.array(seconds)), objective=Throughput())


def test_of_five_units_on_two_devices_three_share_one() -> None:
    # area: 10.5 / 2; the three smallest of the five together: 2 + 2 + 2
    assert values(several_alike([[2.0, 2.0]] * 4 + [[2.5, 2.5]]))["largest units together"] == 6.0


def test_a_slow_device_takes_only_as_many_as_it_has_time_for() -> None:
    # the fast one has all three, or the slow one has one of them for 10 s
    assert values(several_alike([[2.0, 10.0]] * 3))["largest units together"] == 6.0


def test_memory_for_two_units_leaves_the_third_to_the_slow_device() -> None:
    problem = several_alike([[2.0, 10.0]] * 3, memory_bytes=20)
    assert values(problem)["largest units together"] == 10.0


def heavy_chain(fast_bytes: int) -> Problem:
    """Four operators of 10 bytes of weights; 1 s each on the fast device, 3 s on the slow one."""
    build = GraphBuilder()
    tensor = None
    for name in "abcd":
        operator = build.operator(name, reads=[] if tensor is None else [tensor])
        tensor = build.tensor(operator, size_bytes=0)
        build.weight(name, size_bytes=10, users=[operator])
    graph = build.build()
    cluster = Cluster((Device("fast", memory_bytes=fast_bytes), Device("slow", memory_bytes=100)))
    return Problem(graph, cluster, Costs(graph, cluster, np.array([[1.0, 3.0]] * 4)))


def test_a_path_whose_weights_do_not_fit_the_quick_device_is_stretched() -> None:
    # 25 of 40 bytes fit: 2.5 operators take 1 s and 1.5 take 3 s when they may be cut.
    assert values(heavy_chain(25))["path in memory"] == pytest.approx(7.0)


def test_a_path_too_heavy_for_one_device_pays_for_changing_it() -> None:
    chain = heavy_chain(20)
    links = link_both_ways("fast", "slow", bytes_per_second=1.0, latency_seconds=2.5)
    linked = Problem(chain.graph, replace(chain.cluster, links=links), chain.costs)
    # Two of four on the fast device, a crossing, two on the slow one; all on the slow one would take 12 s.
    assert values(linked)["path cut by memory"] == 1 + 1 + 2.5 + 3 + 3


def fan(*, heavy_bytes: int = 0, fast_bytes: int = 10**9, slow: float = 1.0) -> Problem:
    """s(1), then four workers (1 each, `slow` times as long on the second device), then t(1); sending takes no time."""
    build = GraphBuilder()
    start = build.tensor(build.operator("s"), size_bytes=0)
    outputs = []
    for n in range(4):
        worker = build.operator(f"w{n}", reads=[start])
        outputs.append(build.tensor(worker, size_bytes=0))
        if heavy_bytes:
            build.weight(f"w{n}", size_bytes=heavy_bytes, users=[worker])
    build.operator("t", reads=outputs)
    graph = build.build()
    links = link_both_ways("x", "y", bytes_per_second=1.0, latency_seconds=0.0)
    cluster = Cluster((Device("x", memory_bytes=fast_bytes), Device("y", memory_bytes=10**9)), links)
    seconds = np.ones((6, 2))
    seconds[1:5, 1] = slow
    return Problem(graph, cluster, Costs(graph, cluster, seconds))


def test_a_window_adds_what_lies_before_and_behind_to_the_area_between() -> None:
    assert values(fan())["window"] == 1 + 4 / 2 + 1


def test_devices_of_unlike_speed_share_a_window_by_their_speed() -> None:
    assert values(fan(slow=3.0))["window"] == pytest.approx(1 + 4 / (1 + 1 / 3) + 1, rel=1e-4)


def test_memory_keeps_a_window_from_the_quick_device() -> None:
    # Two of four workers fit the quick device, the others take 5 s each on the slow one.
    assert values(fan(heavy_bytes=10, fast_bytes=20, slow=5.0))["window"] == pytest.approx(
        1 + 10 + 1, rel=1e-4
    )


def test_a_step_of_one_micro_batch_begins_and_ends_with_one_device() -> None:
    assert values(fan().with_objective(Throughput(microbatches=1)))["window"] == 1 + 4 / 2 + 1


def test_micro_batches_share_the_devices() -> None:
    # Five of the six operators of all three micro-batches wait for an s; or all of them: 3 * 6 / 2 = 9.
    assert values(fan().with_objective(Throughput(microbatches=3)))["window"] == max(1 + 3 * 5 / 2, 9) / 3


def test_towers_share_a_device_or_pay_for_meeting() -> None:
    # On one device the head starts at 8; else one of the towers sends something on its way: 2 + 2.5 + 2 or 4 + 2.5.
    assert values(two_towers())["crowded path"] == 6.5 + 1


def test_what_branches_need_together_counts_unless_one_is_sent() -> None:
    # d starts at 1 + 2 + 3 if b and c are on its device, at 3 + 2.5 if b is sent to it, at 4 + 2.5 if c is.
    assert values(diamond())["crowded path"] == 5.5 + 1


@pytest.mark.parametrize(("size_bytes", "microseconds"), [(4000, 8.0), (500, 7.0)])
@pytest.mark.parametrize("pieces", ["serial", "published"])
def test_calls_that_a_path_passes_hold_a_branch_or_copy_its_tensors(
    pieces: Pieces, size_bytes: int, microseconds: float
) -> None:
    # v0 (2) -> v1 (3), v2 (2) -> v3 (1), 1 us for 1,000 bytes; the path is 6. Either v2 is in one of its calls, 2 more,
    # or what v0 makes is written for it and what it makes is read: 4 + 4 or 0.5 + 0.5.
    problem = called_branch(size_bytes, Latency("offload", pieces=pieces))
    assert values(problem)["chain of calls"] == pytest.approx(microseconds * 1e-6)


def test_calls_that_cannot_hold_a_path_copy_all_that_passes_between_them() -> None:
    # v0 and v3 fill an accelerator each. Best is v0 alone, 2 + 4, and then the rest, 4 + 6; the path alone is 14.
    found = values(called_branch(4000, Latency("offload"), weight_bytes=10))
    assert found["chain of calls in memory"] == pytest.approx(16e-6)
    assert found["path cut by memory"] == pytest.approx(14e-6)


def called_branch(size_bytes: int, objective: Latency, weight_bytes: int = 0) -> Problem:
    """v0 (2 us) -> v1 (3), v2 (2) -> v3 (1) for two accelerators with room for 10 bytes; v0 and v3 have weights."""
    build = GraphBuilder("branch")
    ends = [build.operator("v0")]
    first = build.tensor(ends[0], size_bytes=size_bytes)
    both = [build.tensor(build.operator(name, reads=(first,)), size_bytes=size_bytes) for name in ("v1", "v2")]
    ends.append(build.operator("v3", reads=both))
    for v, operator in enumerate(ends):
        build.weight(f"w{v}", size_bytes=weight_bytes, users=[operator])
    graph, room = build.build(), 10 if weight_bytes else 2**40
    links = [link for gpu in ("gpu0", "gpu1") for link in link_both_ways("cpu", gpu, bytes_per_second=1e9)]
    cards = [Device(name, memory_bytes=room) for name in ("gpu0", "gpu1")]
    cluster = Cluster((Device("cpu", "cpu"), *cards), tuple(links), routing="host")
    seconds = np.array([[np.inf, us, us] for us in (2e-6, 3e-6, 2e-6, 1e-6)])
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=objective)


def test_bounds_are_named_once_and_say_what_they_assume() -> None:
    found = lower_bounds(fan())
    assert len({bound.name for bound in found}) == len(found)
    assert all(bound.assumes for bound in found)
    assert found[0].seconds == max(bound.seconds for bound in found)


def test_bounds_found_in_a_hurry_are_none_that_more_time_would_refute() -> None:
    one, other = two_towers(), two_towers()
    assert lower_bounds(one, seconds=0.0)[0].seconds <= lower_bounds(other)[0].seconds


def test_bounds_of_a_problem_are_found_once() -> None:
    problem = two_towers()
    assert lower_bounds(problem) is lower_bounds(problem, seconds=1.0)


def test_too_little_memory_in_all_is_proved_infeasible() -> None:
    with pytest.raises(Infeasible, match="weights need") as caught:
        lower_bounds(heavy_chain(25).with_memory("slow", 10))
    assert caught.value.proved
    assert caught.value.short_bytes == {"fast": 5}


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: one.describe())
@given(data=st.data())
def test_no_placement_beats_a_bound(objective: Objective, data: st.DataObject) -> None:
    training = isinstance(objective, Throughput)
    problem = data.draw(problems(objective=objective, most_operators=5, training=training))
    _check(problem)


@given(data=st.data())
def test_no_order_of_a_placement_beats_a_bound(data: st.DataObject) -> None:
    problem = data.draw(problems(most_operators=7))
    operators = len(problem.graph)
    order = Priority(np.array(data.draw(st.permutations(range(operators))), dtype=np.int32))
    _check(problem, order)


@pytest.mark.parametrize("pieces", ["serial", "published"])
@given(data=st.data())
def test_no_offloaded_placement_beats_a_bound(pieces: Pieces, data: st.DataObject) -> None:
    drawn = data.draw(problems(most_operators=5, host=True))
    if not any(device.is_host for device in drawn.cluster):
        return
    _check(drawn.with_objective(Latency(execution="offload", pieces=pieces)))


def _check(problem: Problem, order: Priority | None = None) -> None:
    """Compare every bound with every feasible placement."""
    try:
        bounds = lower_bounds(problem)
    except Infeasible:
        bounds = None
    if len(problem.cluster) ** len(problem.graph) > 1100:
        return
    best = best_placement_seconds(problem, order)
    if bounds is None:
        assert best == np.inf
        return
    for bound in bounds:
        assert bound.seconds <= best, bound


def best_placement_seconds(problem: Problem, order: Priority | None = None) -> float:
    """The least of all placements that fit, by the simulator; inf if none does."""
    devices, operators = len(problem.cluster), len(problem.graph)
    rows = np.array(list(itertools.product(range(devices), repeat=operators)), dtype=np.uint8)
    scores = simulate_many(problem, rows.reshape(devices**operators, operators), memory="peak", policy=order)
    return float(scores.seconds[scores.feasible].min(initial=np.inf))
