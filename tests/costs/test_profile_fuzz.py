"""Damaged profiles: a profile or one line. STEAD_FUZZ=20000 tries that many files of each kind."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from damage import damaged_bytes, damaged_json

from stead.costs import read_profile
from stead.errors import BadInput

ROUNDS = int(os.environ.get("STEAD_FUZZ", "300"))
KINDS: dict[str, Any] = {
    "stead": {
        "format": "stead.profile", "version": 1, "device": "gpu", "source": "measured",
        "operators": {"conv1": 0.5, "conv2": 1.5}, "kinds": {"Relu": 0.25}, "samples": {"conv1": 3},
    },
    "onnxruntime": [
        {"cat": "Node", "name": "conv1_kernel_time", "dur": 12, "ph": "X"},
        {"cat": "Session", "name": "model_run", "dur": 99},
    ],
    "openvino": [{"node_name": "conv1", "node_type": "Convolution", "real_time": 12.5, "status": "EXECUTED"}],
    "torch": {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "dur": 3.5, "ts": 0}]},
}  # fmt: skip


@pytest.mark.fuzz(ROUNDS)
@pytest.mark.parametrize("kind", [*KINDS, "csv"])
def test_a_damaged_profile_is_a_profile_or_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "profile"
    read = 0
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        if kind == "csv":
            data = damaged_bytes(chance, b"name,seconds\nconv1,0.5\nconv2,1.5\n")
        else:
            data = damaged_json(chance, KINDS[kind])
        path.write_bytes(data)
        try:
            profile = read_profile(path, device="gpu")
        except BadInput as error:
            told = str(error)
            assert told.startswith(str(path)), data
            assert told.isprintable(), data
            assert len(told) < 1500, data
        else:
            read += 1
            times = (*profile.by_name.values(), *profile.by_kind.values())
            assert times, data
            assert all(math.isfinite(seconds) and seconds >= 0 for seconds in times), data
    assert read, "some damage must be harmless, or only the first check is ever tested"


def test_a_key_given_twice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "profile"
    path.write_text(json.dumps(KINDS["stead"]).replace("conv2", "conv1"))
    with pytest.raises(BadInput, match="the key 'conv1' is given twice; keep one"):
        read_profile(path, device="gpu")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_and_an_endless_device_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(BadInput, match="not a regular file"):
            read_profile(path, device="gpu")
