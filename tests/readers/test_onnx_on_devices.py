"""ONNX files of others, and awkward ones of our own, on a CPU and an NPU: all are placed, and what was done is said."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_files import FLOAT, INT64, Graph, integers, node, onnx_model, tensor, value

from stead.cli.main import exit_code
from stead.errors import BadInput
from stead.placing.loading import assumptions, load
from stead.placing.place import place
from stead.readers.onnx.reader import Onnx

CPU_AND_NPU = "cpu + NPU"
BOOL, FP16, BF16, INT8, FP64 = 9, 10, 16, 3, 11


def shipped(package: str, folder: str) -> list[Path]:
    """ONNX files that come with an installed package, without importing it."""
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return sorted(path for place in places for path in (Path(place) / folder).rglob("*.onnx"))


NETS = shipped("onnx", "backend/test/data/light")  # AlexNet, DenseNet, two Inceptions, ResNet, ShuffleNet, ...
OTHERS = [
    *shipped("onnx", "backend/test/data/simple"),
    *shipped("onnx", "backend/test/data/pytorch-operator"),
    *shipped("onnx", "backend/test/data/pytorch-converted"),
    *shipped("onnxruntime", "datasets"),
]


def label(path: Path) -> str:
    return path.stem if path.stem != "model" else path.parent.name


@pytest.mark.skipif(not NETS, reason="the package onnx is not installed, or comes without its nets")
@pytest.mark.parametrize("path", NETS, ids=label)
def test_a_net_of_others_is_placed_on_a_cpu_and_an_npu(path: Path) -> None:
    plan = place(path, CPU_AND_NPU, evaluations=20, baselines=False)
    alone = place(path, "cpu", evaluations=1, baselines=False)
    assert plan.solution.objective_seconds <= alone.solution.objective_seconds


@pytest.mark.skipif(len(OTHERS) < 15, reason="packages with ONNX files are not installed")
def test_every_file_of_others_is_priced_on_a_cpu_and_an_npu() -> None:
    for path in OTHERS:
        loaded = load(path, CPU_AND_NPU)
        seconds = loaded.costs.costs(loaded.graph, loaded.cluster).seconds
        assert np.isfinite(seconds).all(), path


def masks() -> Graph:
    nodes = [
        node("Greater", "x zero", "mask"),
        node("Not", "mask", "other"),
        node("And", "mask other", "both"),
        node("Cast", "both", "number", to=FLOAT),
        node("Where", "mask x number", "chosen"),
        node("MatMul", "chosen w", "y"),
    ]
    return Graph(nodes, [value("x", (2, 8))], [value("y")], [tensor("zero", ()), tensor("w", (8, 8))])


def product(kind: int) -> Graph:
    ends = [value(name, (64, 64), kind) for name in ("x", "y")]
    return Graph([node("MatMul", "x w", "y")], ends[:1], ends[1:], [tensor("w", (64, 64), kind)])


def recurrent() -> Graph:
    stored = [tensor("w", (1, 8, 3)), tensor("r", (1, 8, 2))]
    return Graph([node("LSTM", "x w r", "y", hidden_size=2)], [value("x", (10, 5, 3))], [value("y")], stored)


def quantised() -> Graph:
    nodes = [
        node("QuantizeLinear", "x scale zero", "q"),
        node("QLinearMatMul", "q scale zero w scale zero scale zero", "p"),
        node("DequantizeLinear", "p scale zero", "y"),
    ]
    stored = [tensor("scale", ()), tensor("zero", (), INT8), tensor("w", (8, 8), INT8)]
    return Graph(nodes, [value("x", (2, 8))], [value("y")], stored)


def branches() -> Graph:
    sides = {
        side: Graph([node(kind, "x", side)], (), [value(side)])
        for side, kind in (("then_branch", "Relu"), ("else_branch", "Tanh"))
    }
    return Graph([node("If", "c", "y", "either", **sides)], [value("x", (2, 8)), value("c", (), BOOL)], [value("y")])


def trips() -> Graph:
    body = Graph(
        [node("MatMul", "h w", "next"), node("Identity", "c", "again")],
        [value("i", (), INT64), value("c", (), BOOL), value("h")],
        [value("again"), value("next")],
        [tensor("w", (8, 8))],
    )
    return Graph([node("Loop", "n _ x", "y", body=body)], [value("x", (2, 8))], [value("y")], [integers("n", 6)])


def lookups() -> Graph:
    nodes = [node("Gather", "table ids", "rows"), node("ArgMax", "rows", "best")]
    return Graph(nodes, [value("ids", ("batch", "seq"), INT64)], [value("best")], [tensor("table", (100, 8))])


OWN = {
    "bool masks": masks(),
    "fp16": product(FP16),
    "bf16": product(BF16),
    "fp64": product(FP64),
    "LSTM": recurrent(),
    "int8": quantised(),
    "If": branches(),
    "Loop": trips(),
    "indices": lookups(),
}


@pytest.mark.parametrize("graph", OWN.values(), ids=OWN)
@pytest.mark.parametrize("devices", [CPU_AND_NPU, "X Elite NPU + cpu", "V100-SXM2-32GB,T4", "M4 Max 64GB + cpu"])
def test_awkward_files_are_placed(tmp_path: Path, graph: Graph, devices: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_model(graph))
    plan = place(path, devices, evaluations=20, baselines=False)
    assert np.isfinite(plan.solution.objective_seconds)


def told(tmp_path: Path, graph: Graph, devices: str) -> tuple[str, ...]:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_model(graph))
    return load(path, devices).resolutions


def test_what_a_device_does_with_a_type_is_said(tmp_path: Path) -> None:
    assert "fp32 on NPU is converted to fp16" in told(tmp_path, product(FLOAT), CPU_AND_NPU)
    assert "bf16 on V100-SXM2-32GB is computed in fp32" in told(tmp_path, product(BF16), "V100-SXM2-32GB,A100-80GB")
    assert not [line for line in told(tmp_path, lookups(), CPU_AND_NPU) if "int64" in line or "bool" in line]


# Open dimensions


OPEN = Graph(
    [node("MatMul", "x w", "y")], [value("x", ("batch", "seq", 8))], [value("y")], [tensor("w", (8, 5))]
)


def test_what_is_assumed_and_what_other_sizes_cost_is_said(tmp_path: Path) -> None:
    """One row costs 2 * 8 * 5 = 80 FLOPs: 128 of them 10,240."""
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_model(OPEN))
    assert assumptions(load(path, "cpu"), path) == (
        "batch = 1, seq = 128 (--shape batch=N sets one)",
        "GFLOP by batch: 1.024e-05 at 1, 8.192e-05 at 8, 0.0003277 at 32",
        "GFLOP by sequence: 1.024e-05 at 128, 4.096e-05 at 512, 0.0001638 at 2048",
    )
    text = {"shapes": "seq=512"}
    assert assumptions(load(path, "cpu", options=text), path, text) == (
        "batch = 1 (--shape batch=N sets one)",
        "GFLOP by batch: 4.096e-05 at 1, 0.0003277 at 8, 0.001311 at 32",
    )
    options = {"shapes": {"seq": 512}, "batch": 8}
    assert assumptions(load(path, "cpu", options=options), path, options) == ()


NAMES = ["batch", "seq", "past + 1", "a*b", "(a", "1or 2", "9**9", "a//0", "", "a b", "\\d", "'", "a - 9", "(1)(2)+1"]
NAMES += ["past_sequence_length + sequence_length", "total_sequence_length", "past_sequence_length"]


@given(
    st.lists(st.lists(st.sampled_from(NAMES) | st.integers(0, 9), max_size=5), max_size=4),
    st.dictionaries(st.sampled_from([*NAMES, "x0", "x1[0]"]), st.sampled_from([1, 8, (1, 2)]), max_size=2),
)
def test_whatever_dimensions_are_called_they_get_sizes_or_one_line(
    inputs: list[list[int | str]], sizes: dict[str, int | tuple[int, ...]]
) -> None:
    graph = Graph(
        [node("Concat", " ".join(f"x{i}" for i in range(len(inputs))), "y", axis=0)],
        [value(f"x{i}", shape) for i, shape in enumerate(inputs)],
        [value("y")],
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(onnx_model(graph))
        said = ""
        try:
            assert all(one.size >= 1 for one in Onnx(shapes=sizes).read(path).assumed)
        except BadInput as error:
            said = str(error)
    assert "\n" not in said


def test_the_command_line_sets_open_dimensions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(onnx_model(OPEN))
    assert exit_code(["doctor", "net.onnx"]) == 0
    assert capsys.readouterr().out.startswith(" assumed  batch = 1, seq = 128 (--shape batch=N sets one)\n")
    assert exit_code(["doctor", "net.onnx", "--batch", "8", "--shape", "seq=512"]) == 0
    out = capsys.readouterr().out
    assert "assumed" not in out
    assert " 328 kFLOP" in out  # 80 * 8 * 512
    assert exit_code(["doctor", "net.onnx", "--shape", "x=8x512x8"]) == 0
    assert capsys.readouterr().out == out
    assert exit_code(["place", "net.onnx", "-d", CPU_AND_NPU, "-g", "latency", "--evaluations", "20"]) == 0
    screen = capsys.readouterr().out.splitlines()[:24]
    assert " assumed  batch = 1, seq = 128 (--shape batch=N sets one)" in screen
    assert "          fp32 on NPU is converted to fp16" in screen


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("sq=512", 'no open dimension "sq"; did you mean \'seq\'?; open in this file: "batch", "seq"'),
        ("x=1x2", '"x" has 3 dimensions (batchxseqx8), got 1x2'),
        ("seq", "--shape needs NAME=SIZE, such as seq=512 or x=1x3x224x224, got 'seq'"),
        ("seq=long", "--shape needs NAME=SIZE"),
        ("seq=0", "must be a whole number from 1 to 2^40, got 0"),
    ],
)
def test_a_wrong_shape_is_told_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(onnx_model(OPEN))
    assert exit_code(["doctor", "net.onnx", "--shape", wrong]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
