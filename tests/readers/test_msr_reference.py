"""The published inputs themselves, where they are at hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stead.readers import MsrFiddle, host_cluster, read, read_split

DATA = Path(__file__).parents[3] / "shared" / "data" / "msr-fiddle"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the published inputs are not beside the project")

COUNTS = {  # nodes, edges, accelerators
    "throughput-inputs/LayerGraphs/bert24_inference": (32, 55, 6),
    "throughput-inputs/LayerGraphs/bert24_training": (64, 110, 6),
    "throughput-inputs/LayerGraphs/gnmt_inference": (96, 122, 6),
    "throughput-inputs/LayerGraphs/inceptionv3_inference": (326, 363, 6),
    "throughput-inputs/LayerGraphs/resnet50_inference": (177, 193, 6),
    "throughput-inputs/LayerGraphs/resnet50_training": (354, 386, 6),
    "throughput-inputs/OperatorGraphs/bert_l-3_inference": (235, 250, 3),
    "throughput-inputs/OperatorGraphs/bert_l-3_training": (600, 817, 3),
    "throughput-inputs/OperatorGraphs/bert_l-6_inference": (418, 448, 3),
    "throughput-inputs/OperatorGraphs/resnet50_inference": (604, 619, 6),
    "throughput-inputs/OperatorGraphs/bert_L-12_training": (2012, 2751, 6),
    "latency-inputs/LayerGraphs/bert24_inference": (32, 55, 5),
    "latency-inputs/LayerGraphs/gnmt_inference": (96, 122, 6),
    "latency-inputs/LayerGraphs/inceptionv3_inference": (326, 363, 12),
    "latency-inputs/OperatorGraphs/bert_l-3_inference": (235, 250, 4),
    "latency-inputs/OperatorGraphs/bert_l-12_inference": (783, 843, 8),
    "latency-inputs/OperatorGraphs/resnet50_inference": (604, 619, 9),
}
EXPERTS = [
    "bert24_inference",
    "bert24_training",
    "gnmt_inference",
    "inceptionv3_inference",
    "resnet50_inference",
    "resnet50_training",
]


def reference():
    return json.loads((DATA / "reference.json").read_text())


def largest_load_ms(model, split):
    """Compute + received + sent of the busiest device, straight from the definition."""
    graph, devices = model.graph, [split[name] for name in model.graph.operator_names]
    load = dict.fromkeys(model.cluster.names, 0.0)
    for v, device in enumerate(devices):
        load[device] += model.given.columns[device.rstrip("0123456789")][v]
    for tensor in graph.tensors():
        source = devices[tensor.producer]
        targets = {devices[reader] for reader in tensor.readers} - {source}
        for device in targets | ({source} if targets else set()):
            if not device.startswith("cpu"):
                load[device] += model.given.tensor_seconds[tensor.index]
    return max(load.values()) * 1e3


def test_every_published_input_is_checked_here():
    files = [
        path for folder in ("throughput-inputs", "latency-inputs") for path in (DATA / folder).rglob("*.json")
    ]
    assert {str(path.relative_to(DATA)).removesuffix(".json") for path in files} == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_a_published_input_has_the_counts_it_should_have(name):
    model = read(DATA / f"{name}.json")
    accelerators = sum(device.kind == "fpga" for device in model.cluster)
    assert (len(model.graph), len(model.graph.edges), accelerators) == COUNTS[name]
    assert np.isfinite(model.given.costs(model.graph, model.cluster).seconds).all()


@pytest.mark.parametrize("name", COUNTS)
def test_only_layer_graphs_for_throughput_are_suspected_of_a_slip_of_units(name):
    suspected = any("TB/s" in note for note in read(DATA / f"{name}.json").notes)
    assert suspected == name.startswith("throughput-inputs/LayerGraphs")


@pytest.mark.parametrize("name", [name for name in COUNTS if "LayerGraphs" in name and "training" in name])
def test_backward_edges_of_layer_graphs_can_be_repaired(name):
    model = MsrFiddle(repair="backward-edges").read(DATA / f"{name}.json")
    graph = model.graph
    assert len(graph) == COUNTS[name][0]
    # Every edge within a pass stays an edge, and every backward operator waits for its forward twin.
    assert len(graph.edges) == COUNTS[name][1] + len(graph) // 2


@pytest.mark.parametrize("name", EXPERTS)
def test_the_load_of_a_published_expert_split_is_the_known_one(name):
    model = read(DATA / f"throughput-inputs/LayerGraphs/{name}.json")
    known = reference()["throughput"][f"LayerGraphs/{name}"]["published_baselines"]
    split = read_split(DATA / "human-experts" / known["human_expert_file"], model)
    assert largest_load_ms(model, split) == pytest.approx(known["human_expert"], rel=1e-6)


def test_a_training_input_takes_the_split_of_its_inference_input():
    model = read(DATA / "throughput-inputs/LayerGraphs/bert24_training.json")
    inference = read_split(DATA / "human-experts/bert24_inference_expert.json", model)
    assert inference == read_split(DATA / "human-experts/bert24_training_expert.json", model)


def test_the_expert_split_of_bert_needs_one_accelerator_more_than_the_latency_input_has(refusal):
    model = read(DATA / "latency-inputs/LayerGraphs/bert24_inference.json")
    path = DATA / "human-experts/bert24_inference_expert.json"
    assert "fpgas: entry 6 has operators, but there are 5; use a larger cluster" in refusal(
        read_split, path, model
    )
    assert len(read_split(path, replace(model, cluster=host_cluster(6, 8)))) == 32
