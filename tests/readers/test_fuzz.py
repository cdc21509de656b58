"""Damaged files: whatever happens to a valid file, reading it works or ends in one line, soon.

STEAD_FUZZ=20000 tries that many files.
"""

from __future__ import annotations

import copy
import gzip
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from damage import damaged_json
from tiny_files import GRAPH, INPUT

from stead.errors import SteadError
from stead.readers import JsonGraph, MsrFiddle, read, read_split, write_graph

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))
SECONDS_PER_FILE = 5.0

SPLIT: dict[str, Any] = {"fpgas": [{"load": -1, "nodes": [1, 2]}], "cpus": [{"load": 0.0, "nodes": [5]}]}


def damaged(chance: random.Random, valid: Any) -> bytes:
    data = damaged_json(chance, valid)
    if chance.random() < 0.1:
        packed = bytearray(gzip.compress(data))
        if chance.random() < 0.5:
            packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        return bytes(packed)
    return data


def survives(reading: Any, *arguments: Any) -> Any:
    """The result of reading, or None for an error that is one printable line; never slow."""
    started = time.process_time()
    try:
        result = reading(*arguments)
    except SteadError as error:
        result = None
        text = str(error)
        assert text.isprintable()
        assert len(text) < 4000
    assert time.process_time() - started < SECONDS_PER_FILE
    return result


@pytest.mark.fuzz(ROUNDS)
@pytest.mark.parametrize("valid", [GRAPH, INPUT], ids=["stead-json", "msr-fiddle"])
def test_a_damaged_file_gives_a_model_or_one_line(here: Path, valid: Any):
    reader = JsonGraph() if valid is GRAPH else MsrFiddle()
    readable = 0
    for seed in range(ROUNDS):
        data = damaged(random.Random(seed), valid)
        Path("damaged.json").write_bytes(data)
        survives(read, "damaged.json")
        model = survives(reader.read, "damaged.json")
        if model is not None:
            readable += 1
            write_graph("again.json", model.graph, model.given)
            assert read("again.json").graph == model.graph
    assert readable, "some damage must be harmless, or only the first check is ever tested"


@pytest.mark.fuzz(ROUNDS)
def test_a_damaged_split_gives_a_placement_or_one_line(here: Path):
    Path("input.json").write_text(json.dumps(INPUT))
    model = read("input.json")
    for seed in range(ROUNDS):
        Path("damaged.json").write_bytes(damaged(random.Random(seed), SPLIT))
        split = survives(read_split, "damaged.json", model)
        assert split is None or list(split) == list(model.graph.operator_names)


@pytest.mark.fuzz(ROUNDS)
def test_repairs_survive_damaged_training_inputs(here: Path):
    valid = copy.deepcopy(INPUT)
    for twin in copy.deepcopy(valid["nodes"]):
        valid["nodes"].append({**twin, "id": twin["id"] + 10, "isBackwardNode": 1})
    valid["nodes"][2]["colorClass"] = valid["nodes"][5]["colorClass"] = 8
    valid["edges"] += [
        {"sourceId": 11, "destId": 12, "cost": 0.5},
        {"sourceId": 11, "destId": 15, "cost": 0.5},
    ]
    reader = MsrFiddle(cost_scale=1000, repair="backward-edges")
    repaired = 0
    for seed in range(ROUNDS):
        Path("damaged.json").write_bytes(damaged(random.Random(seed), valid))
        repaired += survives(reader.read, "damaged.json") is not None
    assert repaired
