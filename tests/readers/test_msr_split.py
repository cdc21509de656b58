"""Splits: placements by lists of ids."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stead.errors import BadInput
from stead.readers import host_cluster, is_split, read, read_split, split_placement, write_split

SPLIT = {"maxLoad": 0, "fpgas": [{"load": -1, "nodes": [1, 2]}, {"load": -1, "nodes": []}],
         "cpus": [{"load": 0.0, "nodes": [5]}]}  # fmt: skip


@pytest.fixture
def model(save, input_data):
    return read(save(input_data, "input.json"))


@pytest.fixture
def training(save, input_data):
    """Node 9 is the backward half of class 7, node 8 of no class."""
    input_data["nodes"] += [
        {
            "id": 9,
            "supportedOnFpga": 1,
            "cpuLatency": 1,
            "fpgaLatency": 1,
            "isBackwardNode": 1,
            "colorClass": 7,
        },
    ]
    return read(save(input_data, "training.json"))


def test_a_split_names_devices_by_position(save, model):
    assert read_split(save(SPLIT), model) == {"1": "fpga0", "2": "fpga0", "5": "cpu0"}


def test_without_a_cluster_devices_are_numbered(model):
    assert split_placement(SPLIT, model.graph) == {"1": "fpga0", "2": "fpga0", "5": "cpu0"}


def test_devices_of_another_cluster_are_taken_in_order(model):
    cluster = host_cluster(2, 1).without("fpga0")
    assert split_placement(SPLIT, model.graph, cluster=cluster)["1"] == "fpga1"


def test_a_split_is_recognised():
    assert is_split(SPLIT)
    assert not is_split({"placement": {}})
    assert not is_split([1])


def test_backward_nodes_follow_their_class(save, training):
    assert read_split(save(SPLIT), training)["9"] == "fpga0"


def test_a_class_that_is_torn_apart_leads_nowhere(save, refusal, training):
    torn = {"fpgas": [{"nodes": [1]}, {"nodes": [2]}], "cpus": [{"nodes": [5]}]}
    assert refusal(read_split, save(torn), training).startswith(
        "demo.json: 1 of 4 operators are on no device (9)"
    )


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ({"fpgas": [{"nodes": [1, 2]}]}, "1 of 3 operators are on no device (5); list every id once"),
        ({"fpgas": [{"nodes": [1, 2, 5, 3]}]}, "fpgas: entry 1: the graph has no operator with id 3"),
        ({"fpgas": [{"nodes": [1, 2]}, {"nodes": [5, 1]}]}, "fpgas: entry 2: fpga0 has node 1 already"),
        ({"fpgas": [{"nodes": [1, 1]}]}, "fpgas: entry 1: fpga0 has node 1 already"),
        ({"fpgas": [{"nodes": []}] * 2 + [{"nodes": [1]}]}, "fpgas: entry 3 has operators, but there are 2;"),
        ({"cpus": [{"nodes": []}, {"nodes": [1]}]}, "cpus: entry 2 has operators, but there are 1;"),
        ({"fpgas": [{"nodes": [True]}]}, "fpgas: entry 1: nodes must be ids, got true"),
        ({"fpgas": [{"nodes": ["1"]}]}, 'fpgas: entry 1: nodes must be ids, got "1"'),
        ({"fpgas": [{}, {"load": 1}]}, "fpgas: entry 1: must be a list, got null"),
        ({"fpgas": [{"nodes": []}, [1]]}, "fpgas: entry 2: must be an object, got a list"),
        ({"fpgas": {}}, "fpgas: entry 1: must be a list, got an object"),
        ({"nodes": []}, 'not a split: it has neither "fpgas" nor "cpus"'),
        ([], 'not a split: it has neither "fpgas" nor "cpus"'),
    ],
)
def test_a_wrong_split_is_told_with_its_place(save, refusal, model, split, told):
    assert refusal(read_split, save(split), model).startswith(f"demo.json: {told}")


def test_more_entries_than_devices_are_fine_while_they_are_empty(save, model):
    padded = {**SPLIT, "fpgas": SPLIT["fpgas"] + [{"load": 0, "nodes": []}] * 3}
    assert read_split(save(padded), model)["5"] == "cpu0"


def test_a_larger_cluster_takes_a_larger_split(save, model):
    split = {"fpgas": [{"nodes": [1, 2]}, {"nodes": []}, {"nodes": [5]}]}
    larger = replace(model, cluster=host_cluster(3, 1))
    assert read_split(save(split), larger)["5"] == "fpga2"


def test_a_model_without_devices_takes_no_split(save, graph_data, refusal):
    own = read(save(graph_data, "own.json"))
    assert "a split belongs to a model with devices of its own" in refusal(read_split, save(SPLIT), own)


def test_what_is_written_is_read_again(here, model):
    split = {"1": "fpga1", "2": "cpu0", "5": "fpga1"}
    write_split("split.json", split, model.cluster, load_ms={"fpga1": 4.5}, max_load_ms=4.5)
    assert read_split("split.json", model) == split
    assert json.loads(Path("split.json").read_text()) == {
        "maxLoad": 4.5,
        "fpgas": [{"load": -1.0, "nodes": []}, {"load": 4.5, "nodes": [1, 5]}],
        "cpus": [{"load": -1.0, "nodes": [2]}],
    }


def test_a_latency_is_written_under_its_own_key(here, model):
    write_split("split.json", {"1": "cpu0"}, model.cluster, total_latency_ms=7)
    assert json.loads(Path("split.json").read_text())["totalLatency"] == 7.0


def test_infinite_loads_cannot_be_written(here, model, refusal):
    assert "JSON has no infinity" in refusal(
        write_split, "s.json", {}, model.cluster, max_load_ms=float("inf")
    )


def test_operators_without_number_cannot_be_written(here, model):
    with pytest.raises(BadInput, match="'conv1': this format knows operators by number"):
        write_split("split.json", {"conv1": "cpu0"}, model.cluster)
    with pytest.raises(BadInput, match="no device 'gpu0'"):
        write_split("split.json", {"1": "gpu0"}, model.cluster)
