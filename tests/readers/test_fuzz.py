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
from tiny_files import GRAPH, INPUT

from stead.errors import SteadError
from stead.readers import JsonGraph, MsrFiddle, read, read_split, write_graph

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))
SECONDS_PER_FILE = 5.0

SPLIT: dict[str, Any] = {"fpgas": [{"load": -1, "nodes": [1, 2]}], "cpus": [{"load": 0.0, "nodes": [5]}]}
ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e308, 1e-320, 2**53, 2**62, 2**63, -(2**70), 10**399,
    "", "a", "1", "conv1", "\u0000", "\ud800", "\U0001f600", "a" * 300,
    [], {}, [[]], [None], {"": 0}, {"a": {"b": []}}, [1, 2, 3],
    {"operator": "conv1", "output": 0}, {"operator": "conv1", "output": 10**30},
]  # fmt: skip
ODD_TEXTS = [
    b"NaN", b"-Infinity", b"1e999", b"-0", b"1" + b"0" * 5000, b'"\\ud800"', b"[" * 2000, b'{"a":' * 2000,
    b"\xff", b"\x00",
    b"\xef\xbb\xbf", b",", b"}", b'"', b"\\", b'"x":1,"x":2,', b"/*", b"\x1f\x8b", b" " * 5000,
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    found: list[tuple[Any, Any]] = []
    open_values = [value]
    while open_values:
        container = open_values.pop()
        keys = range(len(container)) if isinstance(container, list) else list(container)
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                open_values.append(container[key])
    return found


def damaged_structure(chance: random.Random, valid: Any) -> bytes:
    """The JSON of a document with some values replaced, removed, doubled, renamed or exchanged."""
    document = copy.deepcopy(valid)
    for _ in range(chance.randint(1, 4)):
        known = places(document)
        if not known:
            break
        container, key = chance.choice(known)
        kind = chance.randrange(5)
        if kind == 0:
            container[key] = copy.deepcopy(chance.choice(ODD_VALUES))
        elif kind == 1:
            del container[key]
        elif kind == 2 and isinstance(container, list):
            container.insert(chance.randint(0, len(container)), copy.deepcopy(container[key]))
        elif kind == 3 and isinstance(container, dict):
            container[chance.choice(["", "x", key + "s", key.upper(), "seconds", "size"])] = container.pop(
                key
            )
        else:
            other, place = chance.choice(known)
            try:
                container[key] = copy.deepcopy(other[place])
            except (KeyError, IndexError):
                continue
    return json.dumps(document).encode()


def damaged_bytes(chance: random.Random, valid: Any) -> bytes:
    """The JSON of a document with some bytes changed, removed, doubled or put in."""
    data = bytearray(json.dumps(valid).encode())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + chance.randint(1, 200)]
        elif kind == 3:
            data[at:at] = chance.choice(ODD_TEXTS)
        elif chance.random() < 0.2:
            del data[at:]
    return bytes(data)


def damaged(chance: random.Random, valid: Any) -> bytes:
    data = (damaged_structure if chance.random() < 0.6 else damaged_bytes)(chance, valid)
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
