"""The inputs of Tarnawski et al.: what they mean, one rule at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stead.cluster import UNLIMITED_BYTES
from stead.errors import BadInput
from stead.readers import MsrFiddle, host_cluster, read, write_graph

RATE_NOTE = "edge costs and sizes imply links of "


def node(identity, **changes):
    complete = {"supportedOnFpga": 1, "isBackwardNode": 0, "cpuLatency": 10.0, "fpgaLatency": 1.0}
    return {"id": identity, **complete, **changes}


def edge(source, target, cost=0.5, **more):
    return {"sourceId": source, "destId": target, "cost": cost, **more}


def an_input(nodes, edges=(), **top):
    return {"maxSizePerFPGA": 1e9, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": list(edges), **top}


def training(**changes):
    """Two layers whose backward edge copies the direction of the forward edge, as published."""
    backward = {"isBackwardNode": 1}
    nodes = [node(1, colorClass=1), node(2, colorClass=2),
             node(3, colorClass=1, **backward), node(4, colorClass=2, **backward)]  # fmt: skip
    return an_input(nodes, [edge(1, 2, 2.0), edge(3, 4, 2.0)], **changes)


def test_operators_are_called_by_their_ids_and_keep_their_names_as_modules(save, input_data):
    graph = read(save(input_data)).graph
    assert graph.operator_names == ("1", "2", "5")
    assert graph.modules == ("first", "second", "")


def test_milliseconds_become_seconds_and_unsupported_is_infinite(save, input_data):
    given = read(save(input_data)).given
    assert given.columns["cpu"].tolist() == [0.01, 0.02, 0.0305]
    assert given.columns["fpga"].tolist() == [0.001, 0.002, math.inf]


def test_all_out_edges_are_one_tensor_of_no_bytes(save, input_data):
    model = read(save(input_data))
    assert model.graph.tensor_count == 1
    tensor = model.graph.tensor(0)
    assert (tensor.producer, tensor.readers, tensor.size_bytes) == (0, (1, 2), 0)
    assert model.given.tensor_seconds.tolist() == [0.0005]


def test_the_size_of_a_node_is_a_weight_of_its_own(save, input_data):
    assert read(save(input_data)).graph.parameter_bytes.tolist() == [100, 200, 0]


def test_a_colour_class_shares_a_device_and_no_class_is_alone(save, input_data):
    graph = read(save(input_data)).graph
    assert graph.colocation_names == ("class 7",)
    assert graph.colocation.tolist() == [0, 0, -1]


def test_two_nodes_without_class_are_not_one_class(save):
    graph = read(save(an_input([node(1), node(2, colorClass=None)]))).graph
    assert graph.colocation.tolist() == [-1, -1]


def test_ids_may_start_at_0_and_leave_gaps(save):
    graph = read(save(an_input([node(798), node(0)], [edge(798, 0)]))).graph
    assert graph.operator_names == ("798", "0")


def test_nodes_may_come_in_any_order_and_keep_their_numbers(save):
    nodes = [node(3, fpgaLatency=3), node(1, fpgaLatency=1), node(2, fpgaLatency=2)]
    model = read(save(an_input(nodes, [edge(1, 2, 0.1), edge(2, 3, 0.2)])))
    assert model.graph.operator_names == ("1", "2", "3")
    assert model.given.columns["fpga"].tolist() == [0.001, 0.002, 0.003]
    assert model.given.tensor_seconds.tolist() == [0.0001, 0.0002]


@pytest.mark.parametrize("value", [True, False, 0, 1])
def test_flags_are_booleans_or_0_and_1(save, value):
    assert np.isfinite(
        read(save(an_input([node(1, supportedOnFpga=value)]))).given.columns["fpga"][0]
    ) == bool(value)


@pytest.mark.parametrize("value", [2, -1, 1.0, "true", None, []])
def test_anything_else_is_no_flag(save, refusal, value):
    for key in ("supportedOnFpga", "isBackwardNode"):
        told = refusal(read, save(an_input([node(4, **{key: value})])))
        assert told.startswith(f"demo.json: node 1 (id 4): {key}: must be true, false, 0 or 1, got ")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cpuLatency": -0.5}, "cpuLatency: must be a finite number of at least 0, got -0.5"),
        ({"fpgaLatency": "1"}, 'fpgaLatency: must be a number, got "1"'),
        ({"size": -1}, "size: must be a finite number of at least 0, got -1"),
        ({"size": 1e30}, "size: must be at most 2^62 bytes, got 1e+30"),
        ({"colorClass": 1.5}, "colorClass: must be a whole number, got 1.5"),
        ({"colorClass": True}, "colorClass: must be a whole number, got true"),
        ({"name": 5}, "name: must be text, got 5"),
    ],
)
def test_a_wrong_value_is_told_with_its_node(save, refusal, changed, told):
    assert refusal(read, save(an_input([node(1), node(9, **changed)]))) == f"demo.json: node 2 (id 9): {told}"


def test_a_number_that_overflows_is_refused(save, refusal):
    text = '{"maxSizePerFPGA": 1, "maxFPGAs": 1, "nodes": [{"id": 1, "cpuLatency": 1e999}], "edges": []}'
    assert "node 1 (id 1): cpuLatency: must be a finite number of at least 0, got Infinity" in refusal(
        read, save(text)
    )


@pytest.mark.parametrize("key", ["id", "supportedOnFpga", "isBackwardNode", "cpuLatency", "fpgaLatency"])
def test_a_node_needs_its_keys(save, refusal, key):
    incomplete = node(1)
    del incomplete[key]
    assert f'the key "{key}" is missing' in refusal(read, save(an_input([incomplete])))


@pytest.mark.parametrize("identity", [-1, 1.0, "1", True, None, 2**63])
def test_ids_are_whole_numbers(save, refusal, identity):
    assert "id: must be a whole number" in refusal(read, save(an_input([node(identity)])))


def test_an_id_given_twice_is_refused(save, refusal):
    assert refusal(read, save(an_input([node(1), node(1)]))) == (
        "demo.json: node 2 (id 1): an earlier node has the same id; ids must differ"
    )


@pytest.mark.parametrize(
    ("edges", "told"),
    [
        ([edge(1, 3)], "edge 1: destId: no node has id 3"),
        ([edge(1, 2), edge(7, 2)], "edge 2: sourceId: no node has id 7"),
        ([edge(1, 1)], "edge 1: leads from node 1 to itself; leave it out"),
        ([edge(1, 2, -1)], "edge 1: cost: must be a finite number of at least 0, got -1"),
        ([{"sourceId": 1, "destId": 2}], 'edge 1: the key "cost" is missing'),
        ([[1, 2]], "edge 1: must be an object, got a list"),
        ([edge(1, 2), edge(2, 1)], "the graph has a cycle: 2 -> 1 -> 2"),
    ],
)
def test_a_wrong_edge_is_told_with_its_number(save, refusal, edges, told):
    assert refusal(read, save(an_input([node(1), node(2)], edges))) == f"demo.json: {told}"


def test_out_edges_of_different_cost_name_the_node(save, refusal):
    edges = [edge(1, 2, 0.5), edge(1, 3, 0.75)]
    told = refusal(read, save(an_input([node(1), node(2), node(3)], edges)))
    assert told.startswith("demo.json: edge 2: node 1 has out-edges of cost 0.5 and 0.75; ")


def test_costs_that_differ_in_the_last_digits_are_equal(save):
    edges = [edge(1, 2, 0.5), edge(1, 3, 0.5 + 9e-7)]
    assert read(save(an_input([node(1), node(2), node(3)], edges))).given.tensor_seconds.tolist() == [0.0005]


def test_an_edge_from_backward_to_forward_is_refused(save, refusal):
    nodes = [node(1), node(2, isBackwardNode=True)]
    assert refusal(read, save(an_input(nodes, [edge(2, 1)]))) == (
        "demo.json: edge 1: leads from backward node 2 to forward node 1; only the other way makes sense"
    )


def test_colour_classes_may_form_cycles(save):
    nodes = [node(1, colorClass=1), node(2, colorClass=2), node(3, colorClass=1)]
    assert len(read(save(an_input(nodes, [edge(1, 2), edge(2, 3)]))).graph) == 3


def test_the_same_edge_twice_is_one_reader(save):
    assert read(save(an_input([node(1), node(2)], [edge(1, 2), edge(1, 2)]))).graph.tensor(0).readers == (1,)


def test_sizes_are_whole_within_a_millionth_and_otherwise_rounded_up_with_a_note(save):
    model = read(save(an_input([node(1, size=10.0000001), node(2, size=10.2), node(3, size=1e-9)])))
    assert model.graph.parameter_bytes.tolist() == [10, 11, 0]
    assert model.notes == ("sizes of 1 nodes are not whole bytes and are rounded up",)


def test_keys_that_mean_nothing_are_ignored_with_a_note(save):
    model = read(save(an_input([node(1, colour=3, layerId=4)], comment="by hand")))
    assert model.notes == ('ignored keys: "colour", "comment"',)


def test_the_cluster_is_that_of_the_file(save, input_data):
    cluster = read(save(input_data)).cluster
    assert cluster.names == ("fpga0", "fpga1", "cpu0")
    assert [device.memory_bytes for device in cluster] == [1000, 1000, UNLIMITED_BYTES]
    assert cluster.routing == "host"


def test_links_cost_nothing_by_themselves_and_hops_are_counted(save, input_data):
    routes = read(save(input_data)).cluster.routes()
    assert not routes.latency_seconds.any()
    assert np.isinf(routes.bytes_per_second).all()
    assert routes.hops.tolist() == [[2, 2, 1], [2, 2, 1], [1, 1, 0]]


def test_without_cpu_tensors_still_pass_host_memory(save, input_data):
    input_data["maxCPUs"] = 0
    cluster = read(save(input_data)).cluster
    routes = cluster.routes()
    assert cluster.names == ("fpga0", "fpga1")
    assert not routes.host_latency_seconds.any()
    assert not routes.latency_seconds.any()
    assert routes.hops.tolist() == [[2, 2], [2, 2]]


def test_a_file_that_is_silent_about_cpus_has_one_and_says_so(save, input_data):
    del input_data["maxCPUs"]
    model = read(save(input_data))
    assert model.cluster.names == ("fpga0", "fpga1", "cpu0")
    assert model.notes == ('the file has no "maxCPUs"; it is taken to mean one CPU',)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"maxFPGAs": 0, "maxCPUs": 0}, "maxFPGAs + maxCPUs must lie in 1..1024, got 0 + 0"),
        ({"maxFPGAs": 1024}, "maxFPGAs + maxCPUs must lie in 1..1024, got 1024 + 1"),
        ({"maxFPGAs": -1}, "maxFPGAs: must be a whole number of at least 0, got -1"),
        ({"maxFPGAs": 1.5}, "maxFPGAs: must be a whole number of at least 0, got 1.5"),
        ({"maxSizePerFPGA": 0}, "maxSizePerFPGA: must be at least 1 byte, got 0"),
        ({"maxCPUs": None}, "maxCPUs: must be a whole number of at least 0, got null"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(save, refusal, changes, told):
    assert refusal(read, save(an_input([node(1)], **changes))) == f"demo.json: {told}"


def test_memory_beyond_all_bounds_is_unlimited(save):
    assert (
        read(save(an_input([node(1)], maxSizePerFPGA=1e300))).cluster.devices[0].memory_bytes
        == UNLIMITED_BYTES
    )


def test_a_backward_node_has_a_twin_if_its_class_has_one_of_each(save):
    graph = read(save(training())).graph
    names = graph.operator_names
    twins = {names[v]: names[twin] for v, twin in enumerate(graph.twins.tolist()) if twin >= 0}
    assert twins == {"3": "1", "4": "2"}
    assert [names[v] for v in np.flatnonzero(graph.phases)] == ["3", "4"]


def test_a_class_of_three_has_no_twins(save):
    data = training()
    data["nodes"].append(node(5, colorClass=1))
    graph = read(save(data)).graph
    assert graph.twins[graph.index("3")] == -1


def test_layer_graphs_are_read_as_published_but_not_without_a_word(save):
    model = read(save(training()))
    graph = model.graph
    assert [graph.operator(v).name for v in graph.tensor(1).readers] == ["4"]
    assert len(model.notes) == 1
    assert model.notes[0].startswith("backward edges point the same way as forward ones")


def test_repair_turns_backward_edges_round_and_says_so(save):
    model = MsrFiddle(repair="backward-edges").read(save(training()))
    graph = model.graph
    assert graph.operator_names == ("1", "2", "4", "3")
    edges = {(graph.operator_names[u], graph.operator_names[v]) for u, v in graph.edges.tolist()}
    assert edges == {("1", "2"), ("4", "3"), ("1", "3"), ("2", "4")}
    seconds = dict(zip(graph.tensor_names, model.given.tensor_seconds.tolist(), strict=True))
    assert seconds == {"1": 0.002, "^1": 0, "^2": 0, "4->3": 0.002}
    assert model.notes[0].startswith("backward edges are turned round")


def test_a_gradient_of_a_fan_out_comes_from_every_consumer(save):
    data = training()
    data["nodes"] += [node(5, colorClass=3), node(6, colorClass=3, isBackwardNode=1)]
    data["edges"] += [edge(1, 5, 2.0), edge(3, 6, 2.0)]
    graph = MsrFiddle(repair="backward-edges").read(save(data)).graph
    reads = graph.operator(graph.index("3")).reads
    assert sorted(graph.tensor(t).name for t in reads) == ["4->3", "6->3", "^1"]


def test_repair_of_what_is_not_broken_is_an_error(save, refusal):
    repair = MsrFiddle(repair="backward-edges")
    assert "there are no backward edges to repair" in refusal(repair.read, save(an_input([node(1)])))
    data = training()
    data["edges"].append(edge(2, 4, 0.25))
    data["edges"][0]["cost"] = 0.25
    assert "edge 2 -> 4 leads into the backward pass" in refusal(repair.read, save(data))
    data = training()
    data["edges"] = [edge(1, 2), edge(4, 3)]
    assert "backward edge 4 -> 3 copies no forward edge" in refusal(repair.read, save(data))


def test_cost_scale_multiplies_costs_and_says_so(save, input_data):
    model = MsrFiddle(cost_scale=1000).read(save(input_data))
    assert model.given.tensor_seconds.tolist() == [0.5]
    assert model.notes == ("edge costs are multiplied by 1000 (cost_scale)",)


def test_links_faster_than_light_are_noticed(save, input_data):
    for each in input_data["edges"]:
        each["size"] = 2**30  # in 0.5 ms: 2.147 TB/s
    path = save(input_data)
    assert [note[: len(RATE_NOTE) + 9] for note in read(path).notes] == [RATE_NOTE + "2.15 TB/s"]
    assert not any(RATE_NOTE in note for note in MsrFiddle(cost_scale=1000).read(path).notes)


def test_edges_without_size_cannot_be_judged(save, input_data):
    input_data["edges"][0]["size"] = "large"
    assert read(save(input_data)).notes == ()


@pytest.mark.parametrize("options", [{"cost_scale": 0}, {"cost_scale": math.inf}, {"cost_scale": math.nan}])
def test_options_are_checked(options):
    with pytest.raises(BadInput, match="cost_scale"):
        MsrFiddle(**options)
    with pytest.raises(BadInput, match="repair is one of nothing, backward-edges"):
        MsrFiddle(repair="all")


def test_costs_that_overflow_when_scaled_are_refused(save, refusal):
    path = save(an_input([node(1), node(2)], [edge(1, 2, 1e300)]))
    assert "edge costs times cost_scale 1e+20 are infinite" in refusal(MsrFiddle(cost_scale=1e20).read, path)


def test_a_host_cluster_has_links_between_every_accelerator_and_cpu():
    assert len(host_cluster(3, 2).links) == 2 * 3 * 2
    assert len(host_cluster(0, 2).links) == 0


def test_an_input_can_be_kept_in_our_own_format(save, here):
    model = MsrFiddle(repair="backward-edges").read(save(training()))
    write_graph("own.json", model.graph, model.given)
    own = read("own.json")
    assert own.graph == model.graph
    assert own.given.tensor_seconds.tolist() == model.given.tensor_seconds.tolist()
    assert {key: column.tolist() for key, column in own.given.columns.items()} == {
        key: column.tolist() for key, column in model.given.columns.items()
    }
