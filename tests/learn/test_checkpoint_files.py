"""Files of policies and checkpoints: whole, sealed by a checksum, and refused in one line where they are damaged.

STEAD_FUZZ=20000 tries that many files.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import damaged_bytes, damaged_document

pytest.importorskip("torch")

from stead.errors import BadInput
from stead.learn.gdp import method as gdp
from stead.learn.ground import tensor_file
from stead.learn.ground.policy import NetworkPolicy
from stead.learn.placeto import method as placeto
from stead.learn.placeto.method import Placeto

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))
ARRAYS = {
    "network.a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "network.b": np.float64(0.5),
    "adam.0.step": np.zeros(1, dtype=np.int64),
    "kept": np.zeros((0, 4), dtype=np.uint8),
}
DOCUMENT: dict[str, Any] = {"policy": "placeto", "options": {"hidden": 3}, "devices": 2}


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        tensor_file.load(path)
    told = str(caught.value)
    assert told.startswith(str(path))
    assert told.isprintable()
    return told


def packed(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensor_file.save(tmp_path / "p.safetensors", ARRAYS, DOCUMENT)
    return tmp_path / "p.safetensors"


def test_what_was_saved_is_loaded(path: Path) -> None:
    arrays, document = tensor_file.load(path)
    assert document == DOCUMENT
    assert list(arrays) == sorted(ARRAYS)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype


def test_a_flipped_bit_anywhere_is_found(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            arrays, document = tensor_file.load(path)
        except BadInput:
            continue
        assert whole[at : at + 1] in b" \n", at  # a blank for another blank changes nothing
        assert document == DOCUMENT
        assert list(arrays) == sorted(ARRAYS)


def test_a_file_without_a_checksum_is_still_read(path: Path) -> None:
    header, body = parts(path)
    del header["__metadata__"]["sha256"]
    path.write_bytes(packed(header, body))
    assert tensor_file.load(path)[1] == DOCUMENT


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"shape": [float("inf")]}, "inf is no size of a tensor"),
        ({"shape": [2**62, 2**62]}, "does not lie inside the file"),
        ({"shape": [-2, -3]}, "-2 is no size of a tensor"),
        ({"shape": [True] * 6}, "True is no size of a tensor"),
        ({"shape": [1] * 40}, "does not lie inside the file"),
        ({"data_offsets": [0, 2**63]}, "does not lie inside the file"),
        ({"data_offsets": [0]}, "not enough values"),
        ({"dtype": "F16"}, "'F16' is missing or not known"),
        ({"dtype": ["F32"]}, "unhashable"),
    ],
)
def test_sizes_that_make_no_sense_are_told(path: Path, entry: dict[str, Any], message: str) -> None:
    header = {
        "__metadata__": {"stead": "{}"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **entry},
    }
    path.write_bytes(packed(header, bytes(24)))
    assert message in refusal(path)


@pytest.mark.fuzz(ROUNDS)
def test_a_damaged_file_is_refused_or_says_what_it_said(path: Path) -> None:
    whole = path.read_bytes()
    header, body = parts(path)
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        by_bytes = chance.random() < 0.5
        data = damaged_bytes(chance, whole) if by_bytes else packed(damaged_document(chance, header), body)
        path.write_bytes(data)
        try:
            arrays, document = tensor_file.load(path)
        except BadInput as error:
            told = str(error)
            assert told.startswith(str(path)), data
            assert told.isprintable(), data
            assert len(told) < 1500, data
        else:
            sealed = "sha256" in parts(path)[0]["__metadata__"]
            assert not sealed or document == DOCUMENT, data
            assert not sealed or {name: array.tobytes() for name, array in arrays.items()} == {
                name: np.asarray(array).tobytes() for name, array in ARRAYS.items()
            }, data


@pytest.mark.parametrize("shipped", [gdp.SHIPPED, placeto.SHIPPED])
def test_the_policies_of_the_package_have_checksums(shipped: Path) -> None:
    assert "sha256" in parts(shipped)[0]["__metadata__"]
    arrays, _ = tensor_file.load(shipped)
    assert all(np.isfinite(array).all() for array in arrays.values())


@pytest.mark.fuzz(max(ROUNDS // 10, 30))
def test_a_policy_with_odd_options_or_arrays_is_refused(tmp_path: Path) -> None:
    arrays, document = tensor_file.load(placeto.SHIPPED)
    known = {key: document[key] for key in ("policy", "options", "devices")}
    path = tmp_path / "p.safetensors"
    for seed in range(max(ROUNDS // 10, 30)):
        chance = random.Random(seed)
        changed = dict(arrays)
        if chance.random() < 0.5:
            name = chance.choice(list(changed))
            changed[name] = chance.choice(
                [changed[name] * np.float32("nan"), changed[name].astype(np.float64), changed[name].ravel()[:1]]
            )
        odd = damaged_document(chance, known)
        tensor_file.save(path, changed, odd if isinstance(odd, dict) else known)
        try:
            NetworkPolicy.load(path, Placeto)
        except BadInput as error:
            told = str(error)
            assert "\n" not in told
