"""Updated weights reach their readers: what is added to a graph for that, and where nothing is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stead.cluster import cluster_from
from stead.costs import Costs, Roofline
from stead.graph import REFRESH, Graph, GraphBuilder, refreshed
from stead.graph.arrays import graph_from_arrays
from stead.graph.kernels import Kernel
from stead.plan import Plan
from stead.problem import Placement, Problem
from stead.readers import graph_as_dict, graph_from_dict, read
from stead.readers.native.npz import graph_as_npz, graph_from_npz, write_npz
from stead.sim import simulate
from stead.solvers import Solution
from stead.testing.tiny import tiny_cluster


def step(
    *, group: str = "", names: tuple[str, ...] = (), kernels: bool = False, refresh: bool = True, weight: str = "w"
) -> Graph:
    """f (group) -> b -> u: f and b read w, u updates it and keeps its moments."""
    build = GraphBuilder("step")
    f = build.operator("f", kind="MatMul", module="layer", dtype="fp16", colocate=group)
    x = build.tensor(f, size_bytes=4)
    b = build.operator("b", reads=[x], phase="backward", twin="f", module="layer", flops=2.0 if kernels else 0.0,
                       kernels=[Kernel(1.0, 0.0), Kernel(1.0, 0.0)] if kernels else ())  # fmt: skip
    gradient = build.tensor(b, size_bytes=4)
    u = build.operator("u", reads=[gradient], phase="update", twin="f", colocate=group)
    for name in names:
        build.operator(name)
    build.weight(weight, size_bytes=8, users=[f, b, u])
    build.weight(f"{weight}.moments", size_bytes=16, users=[u])
    return build.build(refresh=refresh)


def reads(graph: Graph, name: str) -> list[str]:
    return [graph.tensor_names[t] for t in graph.operator(graph.index(name)).reads]


def test_every_reader_that_need_not_be_with_the_update_gets_what_the_update_wrote():
    graph = step()
    assert graph.operator_names == ("f", "b", "u", "f.refresh", "b.refresh")
    updated = graph.tensor(graph.tensor_names.index("w.updated"))
    assert (updated.producer, updated.readers, updated.size_bytes, updated.kept) == (2, (3, 4), 8, False)
    for reader in ("f", "b"):
        one, own = graph.operator(graph.index(reader)), graph.operator(graph.index(f"{reader}.refresh"))
        assert (own.kind, own.phase, own.twin) == (REFRESH, "update", 0)
        assert own.colocation == one.colocation != ""
        assert (own.module, own.dtype) == (one.module, one.dtype)
        assert (own.flops, own.moved_bytes, own.parameter_bytes) == (0, 0, 0)
    assert graph.operator(graph.index("u")).colocation == ""


def test_what_was_there_before_stays_as_it_was():
    before, graph = step(refresh=False, kernels=True), step(kernels=True)
    for name in before.operator_names:
        old, new = before.operator(before.index(name)), graph.operator(graph.index(name))
        for what in ("kind", "phase", "module", "flops", "moved_bytes", "parameter_bytes"):
            assert getattr(old, what) == getattr(new, what)
        assert before.kernels_of(old.index) == graph.kernels_of(new.index)
        assert reads(before, name) == reads(graph, name)
    assert [before.weight_names, before.weight_bytes.tolist()] == [graph.weight_names, graph.weight_bytes.tolist()]
    assert graph.kernels_of(graph.index("b.refresh")) == ()


def test_a_reader_bound_to_the_update_gets_nothing():
    graph = step(group="together")
    assert graph.operator_names == ("f", "b", "u", "b.refresh")


def test_twice_is_once_and_inference_is_left_alone():
    graph = step()
    assert refreshed(graph) is graph
    build = GraphBuilder()
    build.weight("w", size_bytes=8, users=[build.operator("a"), build.operator("b")])
    assert len(build.build()) == 2


def test_what_the_builder_gives_is_what_the_function_gives():
    assert refreshed(step(refresh=False)) == step()


def test_names_that_are_taken_get_a_number():
    assert "f.refresh#2" in step(names=("f.refresh",)).operator_names


def test_readers_in_one_group_share_one_refresh_for_all_their_weights():
    build = GraphBuilder()
    cells = [build.operator(name, colocate="cells") for name in ("c0", "c1")]
    for n in range(2):
        u = build.operator(f"u{n}", phase="update", after=cells)
        build.weight(f"w{n}", size_bytes=8, users=[*cells, u])
    graph = build.build()
    assert graph.operator_names == ("c0", "c1", "u0", "u1", "c0.refresh")
    assert reads(graph, "c0.refresh") == ["w0.updated", "w1.updated"]


def test_a_refresh_comes_right_behind_the_last_update_that_it_waits_for():
    """So that on one device at most the weights of one reader are held twice, not those of the model."""
    build = GraphBuilder()
    readers = [build.operator(f"f{n}") for n in range(3)]
    for n, reader in enumerate(readers):
        build.weight(f"w{n}", size_bytes=8, users=[reader, build.operator(f"u{n}", phase="update", after=readers)])
    assert build.build().operator_names[3:] == ("u0", "f0.refresh", "u1", "f1.refresh", "u2", "f2.refresh")


def test_of_an_update_in_several_operators_the_last_one_writes():
    """Decay reads the weight elsewhere: without the new one it would be wrong in the next step."""
    build = GraphBuilder()
    decay = build.operator("decay", phase="update")
    change = build.operator("change", reads=[build.tensor(decay, size_bytes=8)], phase="update")
    build.weight("w", size_bytes=8, users=[decay, change])
    graph = build.build()
    assert graph.operator_names == ("decay", "change", "decay.refresh")
    assert reads(graph, "decay.refresh") == ["w.updated"]


def test_uses_that_each_make_their_own_update_need_nothing_of_each_other():
    build = GraphBuilder()
    for use in "ab":
        f = build.operator(use, colocate=use)
        u = build.operator(f"u{use}", phase="update", after=[f], colocate=use)
        build.weight(f"copy {use}", size_bytes=8, users=[f, u])
    build.weight("tied", size_bytes=8, users=range(4))
    assert REFRESH not in build.build().kinds


@pytest.mark.parametrize("weight", ["w.gradients", "w.grad", "w.exp_avg", "w.kv_cache"])
def test_what_is_no_parameter_is_not_sent(weight: str):
    assert REFRESH not in step(weight=weight).kinds


def test_refreshes_take_no_time_on_any_device():
    graph = step()
    costs = Roofline().costs(graph, cluster_from("3090 + cpu")[0])
    assert not costs.seconds[[graph.index("f.refresh"), graph.index("b.refresh")]].any()


def test_files_and_plain_data_keep_a_graph_as_it_is():
    for graph in (step(), step(refresh=False), step(kernels=True, names=("f.refresh",))):
        assert graph_from_dict(graph_as_dict(graph), place="") == graph
        assert graph_from_npz(graph_as_npz(graph)) == graph


def test_a_control_dependency_on_the_update_stays_behind_its_results():
    build = GraphBuilder()
    f = build.operator("f")
    u = build.operator("u", phase="update", after=[f])
    build.operator("done", phase="update", after=[u])
    build.weight("w", size_bytes=8, users=[f, u])
    graph = build.build()
    assert [graph.tensor_names[t] for t in graph.operator(graph.index("u")).writes] == ["w.updated", "^u"]
    assert graph_from_dict(graph_as_dict(graph), place="") == graph


def test_twenty_thousand_weights_get_a_refresh_each():
    count = 20_000
    cells = np.arange(count)
    graph = graph_from_arrays(
        "many", operator_names=[f"v{v}" for v in range(2 * count)], tensor_producer=cells, tensor_bytes=cells * 0 + 4,
        reads=(cells, cells + count), phases=np.repeat([0, 2], count), weight_names=[f"w{v}" for v in range(count)],
        weight_bytes=cells + 1, weight_uses=(np.tile(cells, 2), np.arange(2 * count)),
    )  # fmt: skip
    more = refreshed(graph)
    assert len(more) == 3 * count
    names = dict(zip(more.tensor_names, more.tensor_bytes.tolist(), strict=True))
    assert all(names[f"w{v}.updated"] == v + 1 for v in range(0, count, 997))


def test_reading_a_file_sends_updated_weights_at_the_pace_of_the_tensors_it_times(tmp_path: Path):
    """4 bytes in 2 s each: the weight of 8 bytes takes 4 s."""
    document = graph_as_dict(step(refresh=False))
    for entry in document["operators"]:
        for output in entry.get("outputs", ()):
            output["seconds"] = 2.0
    (tmp_path / "graph.json").write_text(json.dumps(document))
    model = read(tmp_path / "graph.json")
    assert model.graph == step()
    assert model.given is not None
    assert model.given.tensor_seconds is not None
    assert dict(zip(model.graph.tensor_names, model.given.tensor_seconds.tolist(), strict=True)) == {
        "f": 2.0, "b": 2.0, "w.updated": 4.0,
    }  # fmt: skip


def test_files_of_arrays_are_read_with_refreshes(tmp_path: Path):
    write_npz(tmp_path / "graph.npz", step(refresh=False))
    assert read(tmp_path / "graph.npz").graph == step()


def test_a_plan_keeps_the_graph_that_it_was_made_with(tmp_path: Path):
    """Also one from before there were refreshes."""
    for graph in (step(refresh=False), step()):
        cluster = tiny_cluster()
        problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((len(graph), 2))))
        row = [0, 1, 1, 0, 1][: len(graph)]
        placement = Placement(problem, row)
        plan = Plan(problem, Solution(placement, simulate(problem, placement).objective_seconds))
        plan.save(tmp_path / "plan.json")
        again = Plan.load(tmp_path / "plan.json")
        assert again.problem.graph == graph
        assert again.placement.devices.tolist() == row
