"""stead's own graph format: what it means, and what it refuses."""

from __future__ import annotations

import math
import random
import time

import numpy as np
import pytest

from stead.cluster import Cluster, Device
from stead.costs import Source
from stead.errors import BadGraph
from stead.readers import JsonGraph, graph_as_dict, graph_from_dict, read


def with_operators(*operators, **top):
    return {"format": "stead.graph", "version": 1, "operators": list(operators), **top}


def test_only_a_name_is_needed(save):
    graph = read(save(with_operators({"name": "a"}), "tiny.json")).graph
    operator = graph.operator(0)
    assert (graph.name, operator.name, operator.dtype, operator.phase) == ("tiny", "a", "fp32", "forward")
    assert (operator.flops, operator.moved_bytes, operator.parameter_bytes, operator.writes) == (0, 0, 0, ())


def test_every_key_arrives(save):
    operator = {
        "name": "b", "kind": "MatMul", "module": "layer.1", "dtype": "bf16", "phase": "backward", "twin": "a",
        "colocate": "pair", "flops": 7, "bytes": 8.5, "parameters": 9, "reads": ["a:1"], "after": ["c"],
        "outputs": [{"name": "grad", "bytes": 1e3, "kept": True, "shape": [2, 250], "dtype": "fp16"}],
    }  # fmt: skip
    first = {"name": "a", "colocate": "pair", "outputs": [{"bytes": 1}, {"bytes": 2}]}
    graph = read(save(with_operators(operator, first, {"name": "c"}))).graph
    b = graph.operator(graph.index("b"))
    assert (b.kind, b.module, b.dtype, b.phase, b.colocation) == (
        "MatMul",
        "layer.1",
        "bf16",
        "backward",
        "pair",
    )
    assert (b.flops, b.moved_bytes, b.parameter_bytes) == (7, 8.5, 9)
    assert b.twin == graph.index("a")
    assert [graph.tensor(t).name for t in b.reads] == ["a:1", "^c"]
    written = graph.tensor(b.writes[0])
    assert (written.name, written.size_bytes, written.kept) == ("grad", 1000, True)
    assert (written.shape, written.dtype) == ((2, 250), "fp16")
    assert graph.weight_names == ("b.weight",)


def test_operators_may_come_in_any_order(save):
    a = {"name": "a", "outputs": [{"bytes": 4}]}
    b = {"name": "b", "reads": ["a"], "outputs": [{"bytes": 4}]}
    c = {"name": "c", "reads": ["b"]}
    assert read(save(with_operators(c, b, a))).graph.operator_names == ("a", "b", "c")


def test_a_tensor_read_twice_is_one_tensor(save, graph_data):
    graph = read(save(graph_data)).graph
    assert graph.tensor(0).readers == (1, 2)
    assert graph.tensor_count == 2


def test_a_shared_weight_has_all_its_users(save, graph_data):
    graph = read(save(graph_data)).graph
    assert graph.parameter_bytes.tolist() == [64, 64, 100]


def test_seconds_are_kept_per_device_and_silence_is_not_zero(save, graph_data):
    given = read(save(graph_data)).given
    assert math.isnan(given.columns["gpu"][0])
    assert given.columns["gpu"][2] == 0.5
    assert given.columns["cpu"][2] == math.inf


def test_seconds_are_imported_and_the_rest_is_analytic(save, graph_data):
    model = read(save(graph_data))
    cluster = Cluster((Device("gpu0", flops_per_second={"fp32": 1e9}, bytes_per_second=1e9),))
    costs = model.given.costs(model.graph, cluster)
    assert costs.seconds[:, 0].tolist() == [2.0, 3.0, 0.5]
    assert costs.sources[:, 0].tolist() == [Source.ANALYTIC, Source.ANALYTIC, Source.IMPORTED]


def test_a_graph_without_seconds_gives_none(save):
    assert read(save(with_operators({"name": "a"}))).given is None


def test_workspace_may_be_one_number_or_one_per_device(save):
    a = {"name": "a", "workspace_bytes": 7}
    b = {"name": "b", "workspace_bytes": {"gpu": 5, "gpu1": 3}}
    model = read(save(with_operators(a, b)))
    cluster = Cluster((Device("gpu0"), Device("gpu1"), Device("cpu", kind="cpu")))
    costs = model.given.costs(model.graph, cluster)
    assert costs.workspace_bytes.tolist() == [[7, 7, 7], [5, 3, 0]]


def test_outputs_may_say_how_long_they_travel(save):
    a = {"name": "a", "outputs": [{"bytes": 0, "seconds": 0.25}, {"bytes": 0, "seconds": 0.5}]}
    c = {"name": "c", "outputs": [{"bytes": 0, "seconds": 1}]}
    model = read(save(with_operators(c, a, {"name": "b", "reads": ["a:1"], "after": ["a", "c"]})))
    by_name = dict(zip(model.graph.tensor_names, model.given.tensor_seconds.tolist(), strict=True))
    assert by_name == {"c": 1, "^c": 0, "a": 0.25, "a:1": 0.5}


def test_what_was_folded_into_an_operator_is_remembered(save, graph_data):
    graph_data["folded"] = {"relu1": "conv1"}
    assert dict(read(save(graph_data)).graph.folded) == {"relu1": "conv1"}


def test_two_tensors_of_one_name_can_be_told_apart_by_position(save, refusal):
    a = {"name": "a", "outputs": [{"bytes": 1, "name": "x"}, {"bytes": 2, "name": "x"}]}
    b = {"name": "b", "reads": [{"operator": "a", "output": 1}]}
    graph = read(save(with_operators(a, b))).graph
    assert graph.tensor(int(graph.read_tensors[0])).size_bytes == 2
    b["reads"] = ["x"]
    assert "reads: two tensors are called 'x'" in refusal(read, save(with_operators(a, b)))


def broken(change):
    """A test case: a name for it and what it does to the operators of the valid graph."""
    return pytest.param(change, id=change.__name__)


def misspelt_tensor(data):
    data["operators"][2]["reads"] = ["con2"]
    return "operator 3 (\"head\"): reads: no tensor 'con2'; did you mean 'conv2' or 'conv1'?"


def misspelt_key(data):
    data["operators"][1]["flop"] = 3
    return 'operator 2 ("conv2"): unknown key "flop"; did you mean \'flops\'?'


def misspelt_top_key(data):
    data["weight"] = []
    return "unknown key \"weight\"; did you mean 'weights'?; known are format, version, name"


def misspelt_control(data):
    data["operators"][2]["after"] = ["conv3"]
    return "operator 3 (\"head\"): after: no operator 'conv3'; did you mean 'conv"


def misspelt_twin(data):
    data["operators"][2]["twin"] = "conv"
    return "operator 3 (\"head\"): twin: no operator 'conv'; did you mean"


def misspelt_user(data):
    data["weights"][0]["users"] = ["conv1", "haed"]
    return "weight 1 (\"shared\"): users: no operator 'haed'; did you mean 'head'?"


def misspelt_phase(data):
    data["operators"][0]["phase"] = "forwards"
    return 'operator 1 ("conv1"): phase: must be one of forward, backward, update, got "forwards"'


def no_name(data):
    del data["operators"][1]["name"]
    return 'operator 2: the key "name" is missing'


def empty_name(data):
    data["operators"][1]["name"] = ""
    return 'operator 2 (""): name: must be a name, got ""'


def number_for_a_name(data):
    data["operators"][1]["name"] = 7
    return "operator 2: name: must be a name, got 7"


def same_name(data):
    data["operators"][2]["name"] = "conv1"
    return 'operator 3 ("conv1"): operator 1 has the same name; names must differ'


def list_for_an_operator(data):
    data["operators"][0] = ["conv1"]
    return "operator 1: must be an object, got a list"


def object_for_the_operators(data):
    data["operators"] = {"conv1": {}}
    return "operators: must be a list, got an object"


def no_operators(data):
    del data["operators"]
    return 'the key "operators" is missing'


def negative_flops(data):
    data["operators"][0]["flops"] = -1.5
    return 'operator 1 ("conv1"): flops: must be a finite number of at least 0, got -1.5'


def overflowing_flops(data):
    data["operators"][0]["flops"] = 10**350
    return 'operator 1 ("conv1"): flops: must be a finite number of at least 0, got 1000'


def infinite_seconds(data):
    data["operators"][0]["seconds"] = {"gpu": "inf"}
    return 'operator 1 ("conv1"): seconds: "gpu": must be a number, got "inf"'


def true_for_a_number(data):
    data["operators"][0]["bytes"] = True
    return 'operator 1 ("conv1"): bytes: must be a number, got true'


def half_a_byte(data):
    data["operators"][0]["outputs"] = [{"bytes": 0}, {"bytes": 0.5}]
    return 'operator 1 ("conv1"): outputs: output 1: bytes: must be a whole number from 0 to 2^62, got 0.5'


def too_many_bytes(data):
    data["operators"][0]["parameters"] = 2**62 + 1
    return 'operator 1 ("conv1"): parameters: must be a whole number from 0 to 2^62'


def output_without_bytes(data):
    data["operators"][0]["outputs"] = [{"name": "x"}]
    return 'operator 1 ("conv1"): outputs: output 0: the key "bytes" is missing'


def number_for_kept(data):
    data["operators"][0]["outputs"] = [{"bytes": 1, "kept": 1}]
    return "outputs: output 0: kept: must be true or false, got 1"


def text_for_reads(data):
    data["operators"][1]["reads"] = "conv1"
    return 'operator 2 ("conv2"): reads: must be a list, got "conv1"'


def read_of_an_operator_without_outputs(data):
    data["operators"][1]["reads"] = ["head"]
    return (
        'reads: no tensor \'head\'; that operator has no "outputs": give it some, or wait for it with "after"'
    )


def read_of_a_renamed_output(data):
    data["operators"][0]["outputs"][0]["name"] = "y"
    return "reads: no tensor 'conv1'; outputs of that operator have names, the first \"y\""


def read_of_an_output_that_is_not_there(data):
    data["operators"][1]["reads"] = [{"operator": "conv1", "output": 1}]
    return 'reads: operator "conv1" has 1 outputs, none with number 1'


def weight_without_users(data):
    data["weights"][0]["users"] = []
    return 'weight 1 ("shared"): users: must name at least one operator; leave the weight out'


def folded_into_nothing(data):
    data["folded"] = {"view": "conv1", "relu": "conv9"}
    return "folded: \"relu\": no operator 'conv9'; did you mean"


def negative_shape(data):
    data["operators"][0]["outputs"][0]["shape"] = [1, -1]
    return 'operator 1 ("conv1"): outputs: output 0: shape: must be a whole number from 0 to 2^62, got -1'


def seconds_on_some_outputs_only(data):
    data["operators"][1]["outputs"][0]["seconds"] = 1
    return 'operator 1 ("conv1"): output 0: the key "seconds" is missing, which other outputs have'


def newer_version(data):
    data["version"] = 2
    return "version 2 is newer than what this stead reads (1); update stead"


def no_version(data):
    del data["version"]
    return 'the key "version" must be a number from 1 to 1, got null'


def version_zero(data):
    data["version"] = 0
    return 'the key "version" must be a number from 1 to 1, got 0'


def cycle(data):
    data["operators"][0]["reads"] = ["conv2"]
    return "the graph has a cycle: conv2 -> conv1 -> conv2"


def operator_that_reads_itself(data):
    data["operators"][0]["reads"] = ["conv1"]
    return "the graph has a cycle: conv1 -> conv1"


@pytest.mark.parametrize(
    "change",
    [
        broken(change)
        for change in (
            misspelt_tensor, misspelt_key, misspelt_top_key, misspelt_control, misspelt_twin, misspelt_user,
            misspelt_phase, no_name, empty_name, number_for_a_name, same_name, list_for_an_operator,
            object_for_the_operators, no_operators, negative_flops, overflowing_flops, infinite_seconds,
            true_for_a_number, half_a_byte, too_many_bytes, output_without_bytes, number_for_kept,
            text_for_reads, read_of_an_operator_without_outputs, read_of_a_renamed_output,
            read_of_an_output_that_is_not_there, weight_without_users, folded_into_nothing, negative_shape,
            seconds_on_some_outputs_only, newer_version, no_version, version_zero, cycle,
            operator_that_reads_itself,
        )
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_a_remedy(save, refusal, graph_data, change):
    expected = change(graph_data)
    told = refusal(read, save(graph_data))
    assert told.startswith("demo.json: ")
    assert expected in told


def test_the_format_key_is_needed(save, refusal):
    assert refusal(JsonGraph().read, save({"operators": []})) == (
        'demo.json: the key "format" must be "stead.graph", got null'
    )
    assert refusal(JsonGraph().read, save([1, 2])) == "demo.json: the file must hold one object, got a list"


def test_a_cycle_stays_a_bad_graph(save, graph_data):
    cycle(graph_data)
    with pytest.raises(BadGraph, match="cycle"):
        read(save(graph_data))


def test_names_with_line_breaks_do_not_break_messages(save, refusal):
    told = refusal(read, save(with_operators({"name": "a\nb\x1b", "reads": ["x"]})))
    assert told == "demo.json: operator 1 (\"a\\nb\\x1b\"): reads: no tensor 'x'"


def test_a_misspelt_name_among_many_is_found_quickly(save, refusal):
    operators = [{"name": f"layer{i}.conv", "outputs": [{"bytes": 1}]} for i in range(30_000)]
    path = save(with_operators(*operators, {"name": "head", "reads": ["layer77.cnv"]}))
    started = time.process_time()
    assert "did you mean 'layer77.conv'" in refusal(read, path)
    assert time.process_time() - started < 5


def test_plain_data_are_not_changed_by_reading(graph_data):
    before = repr(graph_data)
    graph_from_dict(graph_data, place="plan.json")
    assert repr(graph_data) == before


def test_plain_data_are_told_by_their_place(graph_data, refusal):
    cycle(graph_data)
    assert refusal(graph_from_dict, graph_data, place="plan.json").startswith(
        "plan.json: the graph has a cycle"
    )


def test_plain_data_come_back(save, graph_data):
    graph = read(save(graph_data)).graph
    assert graph_from_dict(graph_as_dict(graph), place="here") == graph


def test_a_long_shuffled_chain_needs_no_recursion(save):
    count = 20_000
    operators = [
        {"name": f"n{i}", "reads": [f"n{i - 1}"] if i else [], "outputs": [{"bytes": 1}]}
        for i in range(count)
    ]
    random.Random(1).shuffle(operators)
    graph = read(save(with_operators(*operators))).graph
    assert graph.operator_names[-1] == f"n{count - 1}"
    assert np.array_equal(graph.edges[:, 0] + 1, graph.edges[:, 1])
