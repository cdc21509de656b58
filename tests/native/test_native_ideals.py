"""Dynamic programs over ideals: equal to plain enumeration of chains, and never a crash."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stead import _native

Arrays = dict[str, Any]
LOADS = ["sum", "overlap", "duplex", "fwbw"]
FAR = 2**62


def runs(lists: Iterable[Iterable[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each list begins, and all of them in a row."""
    items = [list(one) for one in lists]
    first = np.cumsum([0, *map(len, items)], dtype=np.int64)
    return first, np.array([item for one in items for item in one], np.int32)


def instance(
    ticks: Any,
    order: Iterable[tuple[int, int]] = (),
    tensors: Iterable[tuple[int, Iterable[int], int]] = (),  # source, readers, ticks on every kind
    weights: Iterable[tuple[int, Iterable[int]]] = (),  # bytes, users
    count: Iterable[int] = (1,),
    memory: Iterable[int] | None = None,
) -> Arrays:
    """An instance whose nodes take `ticks[node][kind]` forward and nothing backward."""
    given = np.array(ticks, np.int64).reshape(-1, len(list(count)))
    tensors, weights = list(tensors), list(weights)
    reader_first, readers = runs(readers for _, readers, _ in tensors)
    user_first, users = runs(users for _, users in weights)
    prices = np.repeat(np.array([price for *_, price in tensors], np.int64)[:, None], given.shape[1], axis=1)
    return {
        "ticks": np.stack([given, np.minimum(given, 0)], axis=2),
        "order": np.array(list(order), np.int32).reshape(-1, 2),
        "tensor_source": np.array([source for source, *_ in tensors], np.int32),
        "tensor_late": np.zeros(len(tensors), np.uint8),
        "reader_first": reader_first,
        "readers": readers,
        "receive_ticks": prices,
        "send_ticks": prices.copy(),
        "weight_bytes": np.array([size for size, _ in weights], np.int64),
        "user_first": user_first,
        "users": users,
        "kind_count": np.array(list(count), np.int32),
        "kind_memory": np.full(given.shape[1], FAR) if memory is None else np.array(list(memory), np.int64),
    }


def drawn_instance(rng: random.Random) -> Arrays:
    """A random one with zeros, ties, backward work, nodes that do not run everywhere and tight memory."""
    nodes, kinds, most = rng.randint(1, 6), rng.randint(1, 3), rng.choice([3, 1000])
    ticks = [[rng.choice([-1, 0, *[rng.randint(0, most)] * 6]) for _ in range(kinds)] for _ in range(nodes)]
    arrays = instance(
        ticks,
        order=[edge for edge in itertools.combinations(range(nodes), 2) if rng.random() < 0.3],
        tensors=[
            (
                source,
                [v for v in range(nodes) if v != source and rng.random() < 0.4],
                rng.randint(0, most // 2),
            )
            for source in rng.choices(range(nodes), k=rng.randint(0, 2 * nodes))
        ],
        weights=[
            (rng.randint(0, 10), [v for v in range(nodes) if rng.random() < 0.3])
            for _ in range(rng.randint(0, nodes + 1))
        ],
        count=[rng.randint(0, 3) for _ in range(kinds)],
        memory=[rng.choice([5, 15, 30, 1000]) for _ in range(kinds)],
    )
    backward = arrays["ticks"][:, :, 1]
    backward[backward == 0] = rng.choices(range(most), k=int((backward == 0).sum()))
    arrays["tensor_late"][:] = rng.choices([0, 1], k=len(arrays["tensor_late"]))
    if rng.random() < 0.5:  # a kind that computes in host memory
        arrays["receive_ticks"][:, 0] = arrays["send_ticks"][:, 0] = 0
    if rng.random() < 0.3:  # prices of receiving and sending that differ
        arrays["receive_ticks"][:] += rng.randint(0, most)
    return arrays


def cost(arrays: Arrays, stage: set[int], load: str, kind: int, devices: int, sync: float) -> Any:
    """(forward, backward) ticks of a stage straight from the definition; None where it cannot run."""
    ticks, memory = arrays["ticks"], arrays["kind_memory"][kind]
    users = np.split(arrays["users"], arrays["user_first"][1:-1])
    sizes = zip(arrays["weight_bytes"].tolist(), users, strict=False)
    held = sum(size for size, nodes in sizes if stage & set(nodes.tolist()))
    if held > memory or any(ticks[v, kind, 0] < 0 for v in stage):
        return None
    compute = [sum(int(ticks[v, kind, phase]) for v in stage) for phase in (0, 1)]
    received, sent = [0, 0], [0, 0]
    for t, source in enumerate(arrays["tensor_source"].tolist()):
        readers = set(arrays["readers"][slice(*arrays["reader_first"][t : t + 2])].tolist())
        phase = arrays["tensor_late"][t]
        if source not in stage and readers & stage:
            received[phase] += int(arrays["receive_ticks"][t, kind])
        if source in stage and readers - stage:
            sent[phase] += int(arrays["send_ticks"][t, kind])
    extra = round(sync * held * 4 * (devices - 1) / devices)
    if load == "fwbw":
        loads = [compute[phase] + received[phase] + sent[phase] for phase in (0, 1)]
        return -(-loads[0] // devices), -(-loads[1] // devices) + extra
    c, i, o = sum(compute), sum(received), sum(sent)
    total = {"sum": c + i + o, "overlap": max(c, i + o), "duplex": max(c, i, o)}[load]
    return -(-total // devices) + extra, 0


def best_chain(
    arrays: Arrays, load: str, replicas: int, sync: NDArray[np.float64], linear: bool = False
) -> int:
    """The least cost of any chain of ideals, or of prefixes of 0, 1, 2, ...; -1 when there is none."""
    nodes, kinds, _ = arrays["ticks"].shape
    subsets = (set(s) for size in range(nodes + 1) for s in itertools.combinations(range(nodes), size))
    edges = arrays["order"].tolist()
    ideals = [s for s in subsets if all(a in s or b not in s for a, b in edges)]
    if linear:
        ideals = [set(range(size)) for size in range(nodes + 1)]
    chains: list[set[tuple[tuple[int, ...], int, int]]] = [{((0,) * kinds, 0, 0)}]
    for index, ideal in enumerate(ideals[1:], start=1):
        chains.append(set())
        for before, smaller in enumerate(ideals[:index]):
            if not smaller < ideal or not chains[before]:
                continue
            for kind, devices in itertools.product(range(kinds), range(1, replicas + 1)):
                price = cost(arrays, ideal - smaller, load, kind, devices, sync[kind])
                if price is None:
                    continue
                for used, forward, backward in chains[before]:
                    more = (*used[:kind], used[kind] + devices, *used[kind + 1 :])
                    if more[kind] <= arrays["kind_count"][kind]:
                        chains[index].add((more, max(forward, price[0]), max(backward, price[1])))
    return min((forward + backward for _, forward, backward in chains[-1]), default=-1)


def split_cost(arrays: Arrays, split: Any, load: str, sync: NDArray[np.float64]) -> int:
    """What a returned split costs, after checking that it is one."""
    stage_of, kinds, replicas = (
        array.tolist() for array in (split.stage_of_node, split.kind_of_stage, split.replicas_of_stage)
    )
    assert set(stage_of) == set(range(len(kinds)))
    assert all(stage_of[a] <= stage_of[b] for a, b in arrays["order"].tolist())
    used = np.bincount(kinds, weights=replicas, minlength=len(arrays["kind_count"]))
    assert (used <= arrays["kind_count"]).all()
    prices = [
        cost(
            arrays, {v for v, s in enumerate(stage_of) if s == stage}, load, kind, replicas[stage], sync[kind]
        )
        for stage, kind in enumerate(kinds)
    ]
    return int(max(forward for forward, _ in prices) + max(backward for _, backward in prices))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_they_equal_plain_enumeration(load: str, replicas: int) -> None:
    rng = random.Random(f"{load} {replicas}")
    for _ in range(40):
        arrays = drawn_instance(rng)
        sync = np.array([rng.choice([0.0, 0.5, 3.3]) for _ in arrays["kind_count"]])
        stages = _native.Stages(**arrays)
        options: Any = {"load": load, "replicas": replicas, "sync_ticks_per_byte": sync}
        wanted = best_chain(arrays, load, replicas, sync)
        run = _native.ideals(stages, cutoff_ticks=FAR, threads=1, **options)
        assert (run.value_ticks, run.status) == (wanted, "optimal" if wanted >= 0 else "cutoff")
        linear = _native.linear_dp(stages, np.arange(stages.nodes, dtype=np.int32), **options)
        assert linear.value_ticks == best_chain(arrays, load, replicas, sync, linear=True)
        if linear.value_ticks >= 0:
            assert split_cost(arrays, linear, load, sync) == linear.value_ticks >= wanted
        if wanted < 0:
            continue
        assert split_cost(arrays, run, load, sync) == run.bound_ticks == wanted
        tight = _native.ideals(stages, cutoff_ticks=wanted + 1, threads=2, **options)
        assert split_cost(arrays, tight, load, sync) == tight.value_ticks == wanted
        beyond = _native.ideals(stages, cutoff_ticks=wanted, **options)
        assert (beyond.status, beyond.value_ticks, beyond.bound_ticks) == ("cutoff", -1, wanted)
        stopped = _native.ideals(stages, max_pairs=rng.randint(0, 20), **options)
        assert 0 <= stopped.bound_ticks <= wanted
        assert stopped.value_ticks == -1 or stopped.value_ticks >= wanted


def grid(rows: int, columns: int, kinds: int = 1, seed: int = 0) -> Arrays:
    """An unrolled recurrent network: each cell feeds the next one in its row and in its column."""
    rng = random.Random(seed)
    cells = [(row, column) for column in range(columns) for row in range(rows)]
    number = {cell: v for v, cell in enumerate(cells)}
    edges = [
        (number[row, column], number[after])
        for row, column in cells
        for after in ((row + 1, column), (row, column + 1))
        if after in number
    ]
    return instance(
        [[rng.randint(500, 1000)] * kinds for _ in cells],
        order=sorted(edges),
        tensors=[(a, [b], rng.randint(1, 9)) for a, b in edges],
        count=[4] * kinds,
    )


def test_a_tensor_read_twice_by_a_stage_is_received_once() -> None:
    arrays = instance([[5], [3], [3]], order=[(0, 1), (0, 2)], tensors=[(0, [1, 2], 2)], count=[2])
    run = _native.ideals(_native.Stages(**arrays))
    assert (run.value_ticks, run.stage_of_node.tolist()) == (8, [0, 1, 1])  # 5 + 2 sent; 2 received + 3 + 3


def test_a_shared_weight_is_held_once_per_device() -> None:
    arrays = instance([[4], [4]], weights=[(10, [0, 1])], count=[2], memory=[10])
    assert _native.ideals(_native.Stages(**arrays)).value_ticks == 4
    arrays["weight_bytes"][0] = 11
    assert _native.ideals(_native.Stages(**arrays)).status == "cutoff"


def test_each_node_goes_where_it_runs_best() -> None:
    arrays = instance([[1, 9], [-1, 2], [9, 1]], order=[(0, 1), (1, 2)], count=[1, 1])
    run = _native.ideals(_native.Stages(**arrays))
    assert (run.value_ticks, run.kind_of_stage.tolist(), run.stage_of_node.tolist()) == (3, [0, 1], [0, 1, 1])


def test_replicas_share_the_samples_of_a_stage_and_pay_for_equal_weights() -> None:
    arrays = instance([[90]], weights=[(6, [0])], count=[3])
    stages, sync = _native.Stages(**arrays), np.array([1.0])
    alone = _native.ideals(stages, replicas=3)
    assert (alone.value_ticks, alone.replicas_of_stage.tolist()) == (30, [3])
    synced = _native.ideals(stages, replicas=3, sync_ticks_per_byte=sync)
    assert synced.value_ticks == 30 + 16  # 4 * 2 / 3 * 6 bytes


def test_an_empty_instance_takes_no_time() -> None:
    stages = _native.Stages(**instance(np.zeros((0, 1)), count=[1]))
    run = _native.ideals(stages)
    assert (run.status, run.value_ticks, run.stage_of_node.tolist()) == ("optimal", 0, [])
    assert _native.ideals(stages, cutoff_ticks=0).status == "cutoff"
    assert _native.linear_dp(stages, np.zeros(0, np.int32)).value_ticks == 0


def test_eight_devices_of_their_own_kind_are_told_apart() -> None:
    ticks = np.full((8, 8), 50)
    np.fill_diagonal(ticks, 3)
    arrays = instance(ticks[:, ::-1], order=[(v, v + 1) for v in range(7)], count=[1] * 8)
    run = _native.ideals(_native.Stages(**arrays))
    assert (run.value_ticks, run.kind_of_stage.tolist()) == (3, [7, 6, 5, 4, 3, 2, 1, 0])


def test_more_states_than_memory_is_an_answer() -> None:
    stages = _native.Stages(**instance(np.ones((40, 30)), count=[20] * 30))
    run = _native.ideals(stages, max_bytes=2**20)
    assert (run.status, run.bound_ticks, run.value_ticks) == ("bytes", 1, -1)
    with pytest.raises(ValueError, match="table"):
        _native.linear_dp(stages, np.arange(40, dtype=np.int32))


@pytest.mark.parametrize("load", LOADS)
def test_threads_do_not_change_the_answer(load: str) -> None:
    stages = _native.Stages(**grid(4, 6, kinds=2))
    answers = set()
    for threads in (1, 2, 5):
        run = _native.ideals(stages, load=load, cutoff_ticks=6000, threads=threads)
        answers.add((run.value_ticks, run.stage_of_node.tobytes(), run.ideals, run.pairs))
    assert len(answers) == 1


def test_threads_do_not_change_what_a_limited_search_has_found() -> None:
    stages = _native.Stages(**grid(4, 8))
    answers = set()
    for threads in (1, 2, 5):
        run = _native.ideals(stages, max_pairs=20_000, threads=threads)
        answers.add((run.status, run.value_ticks, run.stage_of_node.tobytes(), run.bound_ticks, run.pairs))
    assert {status for status, *_ in answers} == {"pairs"}
    assert len(answers) == 1


def test_a_large_grid_keeps_its_limits() -> None:
    stages = _native.Stages(**grid(8, 40))
    linear = _native.linear_dp(stages, np.arange(320, dtype=np.int32))
    late = _native.ideals(stages, cutoff_ticks=linear.value_ticks, seconds=0.2)
    assert late.status == "time"
    full = _native.ideals(stages, max_bytes=2**22, seconds=60.0)
    assert full.status == "bytes"
    assert full.peak_bytes < 2**23
    for run in (late, full):
        assert 0 < run.bound_ticks <= linear.value_ticks


def test_only_ideals_from_which_the_rest_fits_are_stored() -> None:
    stages = _native.Stages(**grid(5, 8))
    best = _native.ideals(stages).value_ticks
    tight = _native.ideals(stages, cutoff_ticks=best + 1)
    assert tight.value_ticks == best
    assert tight.ideals < 1287 / 2  # of all (5 + 8 choose 5)


def test_a_long_chain_is_cut_into_equal_stages() -> None:
    nodes = 5000
    arrays = instance(
        [[2, 20]] * nodes,
        order=[(v, v + 1) for v in range(nodes - 1)],
        tensors=[(v, [v + 1], 1) for v in range(nodes - 1)],
        count=[8, 1],
    )
    split = _native.linear_dp(_native.Stages(**arrays), np.arange(nodes, dtype=np.int32))
    assert split.value_ticks == 1238  # 1 + 2 * 618 + 1 between others; the slow device has 56


def test_an_interrupt_ends_a_search() -> None:
    import _thread

    stages = _native.Stages(**grid(8, 40))
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _native.ideals(stages, seconds=30.0, max_bytes=2**31)
    timer.join()


PLAIN = instance(
    [[1, 2], [3, 4], [5, 6]],
    order=[(0, 1), (1, 2)],
    tensors=[(0, [1, 2], 7), (1, [2], 7)],
    weights=[(4, [0, 2]), (5, [1])],
    count=[2, 1],
)


def copied() -> Arrays:
    return {name: array.copy() for name, array in PLAIN.items()}


WRONG_ARRAYS = [
    (name, change)
    for name in PLAIN
    for change in ("dtype", "short", "long", "dimension", "strided", "none")
    if (name, change) not in {("ticks", "long"), ("order", "short")}  # a node that nothing needs, an edge less
]


@pytest.mark.parametrize(("name", "change"), WRONG_ARRAYS)
def test_a_wrong_array_is_an_error(name: str, change: str) -> None:
    given = copied()
    array = given[name]
    given[name] = {
        "dtype": array.astype(np.float32),
        "short": array[:-1],
        "long": np.concatenate([array, array]),
        "dimension": array[None],
        "strided": np.repeat(array, 2, axis=-1)[..., ::2],
        "none": None,
    }[change]
    with pytest.raises((TypeError, ValueError)):
        _native.Stages(**given)


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("ticks", (1, 0, 0), -1, "node 1 on kind 0"),
        ("ticks", (1, 0), -2, "node 1 on kind 0"),
        ("ticks", (1, 0, 0), 2**62, "below 2"),
        ("order", (0, 0), -1, "edge 0"),
        ("order", (0, 1), 3, "edge 0"),
        ("order", (1, 1), 1, "edge 1"),
        ("order", 1, (0, 1), "edge 1"),
        ("tensor_source", 0, 3, "tensor 0"),
        ("tensor_source", 0, -1, "tensor 0"),
        ("tensor_source", 0, 1, "own source"),
        ("tensor_late", 0, 2, "tensor_late"),
        ("reader_first", 0, 1, "reader_first"),
        ("reader_first", 1, 9, "reader_first"),
        ("readers", 0, 2, "readers"),
        ("readers", 0, -1, "readers"),
        ("receive_ticks", (0, 0), -1, "receive_ticks"),
        ("send_ticks", (1, 1), 2**62, "send_ticks"),
        ("weight_bytes", 0, -1, "weight_bytes"),
        ("weight_bytes", 0, 2**62, "weight_bytes"),
        ("user_first", 1, -5, "user_first"),
        ("users", 1, 0, "users"),
        ("users", 1, 3, "users"),
        ("kind_count", 0, -1, "kind_count"),
        ("kind_memory", 0, -1, "kind_memory"),
    ],
)
def test_a_value_out_of_range_is_an_error(name: str, index: Any, value: int, message: str) -> None:
    given = copied()
    given[name][index] = value
    with pytest.raises(ValueError, match=message):
        _native.Stages(**given)


@pytest.mark.parametrize("kinds", [0, 65])
def test_the_number_of_kinds_is_limited(kinds: int) -> None:
    given = instance(np.ones((2, 1)), count=[1])
    for name in ("ticks", "receive_ticks", "send_ticks"):
        given[name] = np.zeros((given[name].shape[0], kinds, *given[name].shape[2:]), np.int64)
    given["kind_count"], given["kind_memory"] = np.ones(kinds, np.int32), np.ones(kinds, np.int64)
    with pytest.raises(ValueError, match="kinds"):
        _native.Stages(**given)


@pytest.mark.parametrize(
    "options",
    [
        {"load": "product"},
        {"replicas": 0},
        {"threads": -1},
        {"seconds": float("nan")},
        {"sync_ticks_per_byte": np.array([1.0])},
        {"sync_ticks_per_byte": np.array([1.0, -1.0])},
        {"sync_ticks_per_byte": np.array([1.0, np.inf])},
        {"sync_ticks_per_byte": np.array([1.0, np.nan])},
    ],
)
def test_a_wrong_option_is_an_error(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options)).split("_")[0]):
        _native.ideals(_native.Stages(**PLAIN), **options)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 3], [0, -1, 2], [1, 0, 2]])
def test_a_wrong_order_is_an_error(order: list[int]) -> None:
    with pytest.raises(ValueError, match="order"):
        _native.linear_dp(_native.Stages(**PLAIN), np.array(order, np.int32))


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("cutoff_ticks", -5, "cutoff"),
        ("max_bytes", -1, "bytes"),
        ("max_pairs", -1, "pairs"),
        ("seconds", -1.0, "time"),
    ],
)
def test_no_limit_is_too_low(name: str, value: Any, status: str) -> None:
    run = _native.ideals(_native.Stages(**PLAIN), **{name: value})
    assert (run.status, run.value_ticks) == (status, -1)
